"""The command that writes an encoder as a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lg2ar.cli.labels import RunArgument
from lg2ar.cli.options import DataOption, look_for_data_in, open_and_tell, reads_source
from lg2ar.data.reading import ReadOptions


@reads_source
def export(
    run: RunArgument,
    reading: ReadOptions,
    out: Annotated[Path, typer.Option(help="File to write: .onnx or .pt2 (torch.export).")],
    source: Annotated[
        str | None, typer.Argument(metavar="[SOURCE]", help="Graphs to compare embeddings on.")
    ] = None,
    weighted: Annotated[
        bool | None,
        typer.Option(help="Whether it takes edge weights; default: as the run's data has them."),
    ] = None,
    data: DataOption = None,
) -> None:
    """Write a run's encoder as an ONNX or torch.export file, once its embeddings agree."""
    from lg2ar.exporting import check_export, export_encoder
    from lg2ar.runs import load

    look_for_data_in(data)
    check_export(out)
    trained = load(run, "cpu")
    dataset = None
    if source is not None:
        dataset = open_and_tell(source, reading, trained.config.level, trained.reading)
    made = export_encoder(trained, out, dataset, weighted=weighted)
    where = "made-up graphs" if dataset is None else f"made-up graphs and {dataset.name}"
    print(
        f"Encoder written to {out}: {', '.join(made.inputs)} in, embedding out.\n"
        f"{made.rows} embeddings of {where} agree with the run's to {made.difference:.1g} of the "
        "largest number."
    )
