"""The commands that learn from labels and predict them: finetune and predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lg2ar.cli.options import (
    DataOption,
    DeviceOption,
    SettingOption,
    SourceArgument,
    check_not_source,
    look_for_data_in,
    open_and_tell,
    read_settings,
    reads_source,
)
from lg2ar.cli.progress import counting
from lg2ar.data.reading import ReadOptions

if TYPE_CHECKING:
    from lg2ar.finetuning import FineTuned
    from lg2ar.finetuning.early_stopping import TunedEpoch

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that pretrain wrote.")]


@reads_source
def finetune(
    run: RunArgument,
    source: SourceArgument,
    reading: ReadOptions,
    out: Annotated[Path, typer.Option(help="Folder for the fine-tuned model.")],
    fraction: Annotated[
        float, typer.Option(help="Share of the labels that are not held out to use at all.")
    ] = 1.0,
    task: Annotated[
        Literal["classification", "regression"] | None,
        typer.Option(help="What the labels are; default: found out and said."),
    ] = None,
    freeze: Annotated[
        bool, typer.Option("--freeze", help="Train the head alone, not the encoder.")
    ] = False,
    test: Annotated[float, typer.Option(help="Share of the labels held out for scores.")] = 0.2,
    validation: Annotated[
        float, typer.Option(help="Share of the labels used that stops training.")
    ] = 0.2,
    floor: Annotated[
        bool, typer.Option(help="Fine-tune an untrained encoder too, to compare with.")
    ] = True,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the fine-tuned model in --out.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what was begun in --out.")
    ] = False,
    setting: SettingOption = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set seed=N.")] = None,
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Train a run's encoder with labels (--labels COLUMN), and score it on rows held out.

    Settings (--set): epochs, patience, learning_rate, batch_size, hidden, dropout.
    """
    from lg2ar.finetuning import finetune
    from lg2ar.runs import load

    look_for_data_in(data)
    settings = read_settings(None, setting, seed) | ({"freeze": True} if freeze else {})
    trained = load(run, device)
    dataset = open_and_tell(source, reading, trained.config.level, trained.reading)
    epochs = int(settings["epochs"]) if isinstance(settings.get("epochs"), int) else 200
    with counting("interrupted; what was done is kept, --resume goes on.") as tell:

        def on_epoch(name: str, record: TunedEpoch) -> None:
            text = f"{name}: loss {record.loss:.4f}, validation {record.validation_loss:.4f}"
            tell(record.epoch, epochs, text)

        tuned = finetune(
            trained,
            dataset,
            reading.labels,
            task=task,
            fraction=fraction,
            test=test,
            validation=validation,
            floor=floor,
            out=out,
            overwrite=replace,
            resume=resume,
            on_epoch=on_epoch,
            **settings,
        )
    print(_summary(tuned))
    print(f"Fine-tuned model: {out}")


@reads_source
def predict(
    model: Annotated[Path, typer.Argument(metavar="FINETUNED", help="Folder that finetune wrote.")],
    source: SourceArgument,
    reading: ReadOptions,
    out: Annotated[Path, typer.Option(help="File to write: .csv, .parquet or .npz.")],
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Predict the classes or numbers of graphs (or nodes) with a fine-tuned model."""
    from lg2ar.finetuning import load_finetuned
    from lg2ar.frames import check_format

    look_for_data_in(data)
    check_format(out)
    check_not_source(out, source, reading)
    tuned = load_finetuned(model, device)
    dataset = open_and_tell(source, reading, tuned.config.level, tuned.reading)
    predictions = tuned.predict(dataset)
    predictions.write(out)
    print(f"{len(predictions)} predictions of '{tuned.target.column}' written to {out}")


def _summary(tuned: FineTuned) -> str:
    """What was learned from what, and the scores side by side."""
    target, rows = tuned.target, tuned.rows
    kind = "a number" if target.task == "regression" else f"{len(target.classes)} classes"
    freezing = "head alone" if tuned.settings.freeze else "whole encoder"
    lines = [
        f"'{target.column}' is {kind} ({target.task}); {freezing}; learned from "
        f"{rows['learned from']} of {rows['labelled']} labels, stopped by {rows['stopped by']} "
        f"others at epoch {tuned.epoch}.",
        f"On {rows['held out']} rows held out:",
    ]
    names = list(tuned.scores["pretrained"])
    lines.append(f"  {'':<12}" + "".join(f"{name:>10}" for name in names))
    for encoder, scores in tuned.scores.items():
        values = "".join(f"{_number(scores.get(name)):>10}" for name in names)
        lines.append(f"  {encoder:<12}{values}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
