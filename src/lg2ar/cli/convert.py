"""``lg2ar convert``: graphs into a file that is read batch by batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from lg2ar.data.mapped_layout import Manifest


@reads_source
def convert(
    source: SourceArgument,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="What to write: something.sqlite of many graphs, something.graph of one.",
        ),
    ],
    reading: ReadOptions,
    append: Annotated[
        bool, typer.Option("--append", help="Add the graphs to those that OUT holds.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Write OUT anew where it is there already.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Do nothing where OUT was made of this SOURCE."),
    ] = False,
    data: DataOption = None,
) -> None:
    """Put graphs on a disk, to be trained on batch by batch; for more data than memory.

    OUT is then a SOURCE like any other, with the same results. Where SOURCE itself does not fit
    into memory, convert it in parts, one after the other with --append. One large graph becomes a
    folder; its table of edges is read some rows at a time.
    """
    from lg2ar.data.conversion import check_out, holds_already, write_on_disk
    from lg2ar.data.mapped_layout import SUFFIX

    look_for_data_in(data)
    if out.suffix == SUFFIX:
        _map(source, out, reading, append, replace, resume)
        return
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


def _map(
    source: str, out: Path, reading: ReadOptions, append: bool, replace: bool, resume: bool
) -> None:
    """Write one large graph as a folder."""
    from lg2ar.data import prints
    from lg2ar.data.mapping import check_folder, holds_already, write_mapped
    from lg2ar.data.sources import are_tables

    if append:
        raise InputError(f"{out}: one large graph cannot be added to; leave --append out.")
    if out.exists() and out.resolve() == Path(source).resolve():
        raise InputError(f"{out}: is the source itself; choose another OUT.")
    check_folder(out, replace=replace or resume)  # before a long reading
    dataset = None if are_tables(source, reading.smiles) else open_and_tell(source, reading)
    made_of = prints.of_tables(source, reading) if dataset is None else prints.of_dataset(dataset)
    if resume and (held := holds_already(out, made_of, replace=replace)):
        print(f"{out} holds this graph of {held.num_nodes} nodes already")
        return
    manifest = None if dataset else _map_tables(source, out, reading, replace, made_of)
    if manifest is None:
        dataset = dataset or open_and_tell(source, reading)
        manifest = write_mapped(out, dataset, replace=replace, made_of=made_of)
    size = sum(file.stat().st_size for file in out.iterdir()) / 1e6
    print(
        f"{out} holds one graph of {manifest.num_nodes} nodes and {manifest.num_edges} listed "
        f"edges ({size:.1f} MB)"
    )


def _map_tables(
    source: str, out: Path, reading: ReadOptions, replace: bool, made_of: str
) -> Manifest | None:
    """Write tables as a folder, some rows at a time; None where they must be read at once."""
    from lg2ar.data.mapped_tables import map_tables

    with counting("interrupted; nothing was written, the same command begins again.") as tell:
        manifest = map_tables(
            out,
            source,
            reading,
            replace=replace,
            on_rows=lambda rows: tell(rows, 0, "rows"),
            made_of=made_of,
        )
    for note in () if manifest is None else manifest.notes:
        print(f"lg2ar: {note}", file=sys.stderr)
    return manifest
