"""The command that shows a run: one HTML page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lg2ar.cli.options import DataOption, DeviceOption, ReadOptions, look_for_data_in, reads_source


@reads_source
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that pretrain wrote.")],
    reading: ReadOptions,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE", help="Graphs to show; default: what the run was trained on."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write; default: report.html in the run folder.")
    ] = None,
    colour_by: Annotated[
        str | None,
        typer.Option("--colour-by", metavar="COLUMN", help="What the map starts coloured by."),
    ] = None,
    examples: Annotated[
        int, typer.Option(min=0, max=20, help="Graphs to show the heads' views of.")
    ] = 3,
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Write one HTML page about a run: curves, views, a map of the embeddings, scores."""
    from lg2ar.report.page import write_report

    look_for_data_in(data)
    page = write_report(
        run,
        source,
        out=out,
        options=reading,
        colour_by=colour_by,
        examples=examples,
        device=device,
        command=["lg2ar", *sys.argv[1:]],
    )
    print(f"Report page: {page} ({page.stat().st_size / 1e6:.1f} MB)")
