"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lg2ar.data.reading import ReadOptions as ReadOptions  # commands take it from here
from lg2ar.errors import InputError

if TYPE_CHECKING:
    from lg2ar.config import Level
    from lg2ar.data.dataset import Dataset

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder of tables (edges, nodes, graphs) or one table, a TU folder or zip, a "
        "GraphML, GEXF or node-link JSON file, SMILES in a table, an .npz file, an .sqlite "
        "file or a .graph folder (see lg2ar convert), or a data set by name: toy-graphs, "
        "toy-nodes, a benchmark (see lg2ar datasets).",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        envvar="LG2AR_DATA", help="Folder of the benchmark data sets; default: the user's cache."
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting; may be repeated."),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with what is there; this command always does.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="How many at a time, in processes; default: one, or all of a Ray cluster."
    ),
]
EngineOption = Annotated[
    Literal["processes", "ray"],
    typer.Option(help="Who does it: processes on this machine, or a Ray cluster (RAY_ADDRESS)."),
]


def _about_source(
    level: Annotated[
        Literal["graph", "node"] | None,
        typer.Option(help="What to embed; default: graphs, or the nodes where there is but one."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the labels; never a feature.")
    ] = None,
    directed: Annotated[
        bool | None,
        typer.Option(
            "--directed/--undirected", help="Whether edges point one way; default: detected."
        ),
    ] = None,
    weight: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of edge weights.")
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Columns whose numbers are categories."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Columns to make no feature of."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=COLUMN",
            help="Column of ids, where its name does not tell: graph, node, source, target.",
        ),
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="Table of nodes, where SOURCE is a table of edges.")
    ] = None,
    graphs: Annotated[
        Path | None, typer.Option(help="Table of graphs, where SOURCE is a table of edges.")
    ] = None,
    smiles: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of molecules as SMILES.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse what would be skipped and counted.")
    ] = False,
) -> ReadOptions:
    """The options of every command that reads a source."""
    pairs = [pair.partition("=") for pair in column or []]
    for role, sign, name in pairs:
        if not (role and sign and name):
            raise InputError(f"--column {role}{sign}{name}: give it as ROLE=COLUMN.")
    return ReadOptions.make(
        {
            "level": level,
            "labels": labels,
            "directed": directed,
            "weight": weight,
            "categories": tuple(read_words(category)),
            "ignore": tuple(read_words(ignore)),
            "columns": {role: name for role, _, name in pairs},
            "nodes": nodes,
            "graphs": graphs,
            "smiles": smiles,
            "strict": strict,
        }
    )


def reads_source(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how its SOURCE is read.

    The command has a parameter ``reading: ReadOptions``; on the command line stand ``--level``,
    ``--labels``, ``--directed`` and so on in its place. To be written below ``@app.command()``.
    """
    own = inspect.signature(command, eval_str=True).parameters
    more = inspect.signature(_about_source, eval_str=True).parameters
    if both := own.keys() & more.keys():
        raise ValueError(f"{command.__name__} and its source have an option {both.pop()}")
    for value in more.values():
        value.annotation.__metadata__[0].rich_help_panel = "How SOURCE is read"
    shown = {name: value for name, value in own.items() if name != "reading"} | dict(more)

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        reading = _about_source(**{name: given.pop(name) for name in more})
        command(**given, reading=reading)

    parameters = [value.replace(kind=inspect.Parameter.KEYWORD_ONLY) for value in shown.values()]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {name: value.annotation for name, value in shown.items()}
    return wrapped


def open_and_tell(
    source: str,
    reading: ReadOptions,
    level: Level | None = None,
    usual: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
) -> Dataset:
    """Read a source and print what was noted while reading, to standard error.

    Args:
        source: What the person gave.
        reading: How to read it.
        level: That of the run or of the settings, where there is one.
        usual: What the run's data was read with: ``run.reading``.
        quiet: Whether another process prints it.
    """
    from lg2ar.data.sources import open_source

    if level is not None and reading.level not in (None, level):
        raise InputError(f"--level {reading.level}: the run is at {level} level; leave it out.")
    dataset = open_source(source, level, reading, usual)
    for note in () if quiet else dataset.notes:
        print(f"lg2ar: {note}", file=sys.stderr)
    return dataset


def check_not_source(out: Path, source: str, reading: ReadOptions) -> None:
    """Refuse to write over the data that is read, or to become a part of it."""
    for given in (Path(source), reading.nodes, reading.graphs):
        if isinstance(given, Path) and out.resolve() in own_files(given):
            raise InputError(f"{out}: is the source itself; choose another --out.")


def own_files(source: Path) -> set[Path]:
    """The files that a source consists of, or that would become a part of it if they were there."""
    from lg2ar.data.tables import PARTS

    if not source.is_dir():
        return {source.resolve()}
    stems = [stem for stems in PARTS.values() for stem in stems]
    endings = (".csv", ".parquet", ".npz")
    return {(source / f"{stem}{ending}").resolve() for stem in stems for ending in endings}


def read_settings(file: Path | None, pairs: list[str] | None, seed: int | None) -> dict[str, Any]:
    """Settings from a TOML file, with single ones that win over it."""
    from lg2ar.config import parse_setting, read_toml

    settings = {} if file is None else read_toml(file)
    settings |= dict(parse_setting(pair) for pair in pairs or [])
    if seed is not None:
        settings["seed"] = seed
    return settings


def look_for_data_in(folder: Path | None) -> None:
    """Take benchmark data from this folder from now on."""
    if folder is not None:
        os.environ["LG2AR_DATA"] = str(folder)


def read_words(values: list[str] | None) -> list[str]:
    """The words of an option that takes several, comma-separated or repeated."""
    words = [word.strip() for value in values or [] for word in value.split(",") if word.strip()]
    if values and not words:
        raise InputError("an empty list was given; name something, or leave the option out.")
    return words
