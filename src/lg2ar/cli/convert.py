"""``lg2ar convert``: graphs into a file that is read batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lg2ar.cli.options import (
    DataOption,
    SourceArgument,
    look_for_data_in,
    open_and_tell,
    own_files,
    reads_source,
)
from lg2ar.cli.progress import counting
from lg2ar.data.reading import ReadOptions
from lg2ar.errors import InputError


@reads_source
def convert(
    source: SourceArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write: something.sqlite.")],
    reading: ReadOptions,
    append: Annotated[
        bool, typer.Option("--append", help="Add the graphs to those that OUT holds.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Write OUT anew where it is there already.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Do nothing where OUT holds the graphs already.")
    ] = False,
    data: DataOption = None,
) -> None:
    """Put graphs on a disk, to be trained on batch by batch; for more data than memory.

    OUT is then a SOURCE like any other, with the same results. Where SOURCE itself does not fit
    into memory, convert it in parts, one after the other with --append.
    """
    from lg2ar.data.conversion import check_out, holds_already, write_on_disk

    look_for_data_in(data)
    if out.exists() and out.resolve() in own_files(Path(source)):
        raise InputError(f"{out}: is the source itself; choose another OUT.")
    if not resume:
        check_out(out, append=append, replace=replace)  # before a long reading
    dataset = open_and_tell(source, reading)
    if resume and (number := holds_already(out, dataset, append=append)):
        print(f"{out} holds these graphs already, {number} in all")
        return
    with counting("interrupted; nothing was written, the same command begins again.") as tell:
        number = write_on_disk(
            out,
            dataset,
            append=append,
            replace=replace,
            on_graphs=lambda done, total: tell(done, total, "graphs"),
        )
    size = out.stat().st_size / 1e6
    print(f"{out} holds {number} graphs ({size:.1f} MB)")
