"""The command that looks for good settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lg2ar.cli.options import (
    DataOption,
    DeviceOption,
    EngineOption,
    ResumeOption,
    SettingOption,
    SourceArgument,
    WorkersOption,
    look_for_data_in,
    open_and_tell,
    read_settings,
    reads_source,
)
from lg2ar.cli.progress import counting
from lg2ar.data.reading import ReadOptions

if TYPE_CHECKING:
    from lg2ar.tuning import Tuned


@reads_source
def tune(
    source: SourceArgument,
    reading: ReadOptions,
    out: Annotated[Path, typer.Option(help="Folder for the best settings and the study.")],
    trials: Annotated[int, typer.Option(min=1, help="How many in all; more go on.")] = 30,
    criterion: Annotated[
        Literal["label-free", "labels"] | None,
        typer.Option(help="What settings are compared by; default: labels where --labels is."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Database that others may share; default: SQLite in --out."
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Begin no trial after so many minutes.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings that stay as they are.")
    ] = None,
    setting: SettingOption = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Fixes what is drawn.")] = 0,
    resume: ResumeOption = False,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    engine: EngineOption = "processes",
    data: DataOption = None,
) -> None:
    """Look for good settings in the paper's ranges, without labels or by a part of them.

    What --set or --config fix is not searched for. Run again, it goes on where it was.
    """
    from lg2ar.engines import Crew
    from lg2ar.tuning import tune

    look_for_data_in(data)
    settings = read_settings(config, setting, None)
    dataset = open_and_tell(source, reading, settings.get("level"))
    name = criterion or ("labels" if reading.labels is not None else "label-free")
    with counting("interrupted; the same command goes on.") as tell:

        def on_trial(done: int, total: int, best: float | None) -> None:
            tell(done, total, "no trial finished" if best is None else f"best {best:.4g}")

        found = tune(
            dataset,
            out,
            trials=trials,
            criterion=name,
            labels=reading.labels,
            settings=settings,
            storage=storage,
            timeout=None if minutes is None else 60 * minutes,
            seed=seed,
            device=device,
            crew=Crew(engine, workers),
            on_trial=on_trial,
        )
    print(_summary(found))


def _summary(found: Tuned) -> str:
    lines = [
        f"{found.finished} trials finished, {found.pruned} given up"
        f"{f' ({found.broken} broke down)' if found.broken else ''}; criterion: "
        f"{found.criterion}",
        f"  best       {found.value:.4g} (trial {found.trial}){_apart(found, 'best')}",
    ]
    if found.usual is not None:
        lines.append(f"  usual      {found.usual:.4g}{_apart(found, 'usual')}")
    if found.untrained is not None:
        lines.append(f"  untrained  {found.untrained:.4g}{_apart(found, 'untrained')}")
    if found.importance:
        mattered = ", ".join(f"{key} {100 * v:.0f} %" for key, v in found.importance.items())
        lines.append(f"What mattered: {mattered}")
    lines.append(f"Use them with: lg2ar pretrain SOURCE --config {found.folder}/best.toml")
    return "\n".join(lines)


def _apart(found: Tuned, name: str) -> str:
    return f", {found.test[name]:.4g} on labels kept apart" if name in found.test else ""
