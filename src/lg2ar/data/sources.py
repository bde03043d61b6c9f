"""Where graphs come from: a name, a file, a folder, or objects of PyG, NetworkX and pandas."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import torch

from lg2ar.config import Level
from lg2ar.data.arrays import read_arrays
from lg2ar.data.benchmarks import BENCHMARKS, find_benchmark, open_benchmark
from lg2ar.data.dataset import Dataset
from lg2ar.data.disk_layout import SUFFIX
from lg2ar.data.mapped import MappedGraph, read_mapped
from lg2ar.data.mapped_layout import SUFFIX as MAPPED
from lg2ar.data.mapped_layout import is_mapped
from lg2ar.data.on_disk import GraphsOnDisk, read_on_disk
from lg2ar.data.reading import ReadOptions
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from torch_geometric.data import Data

Source = Union[
    str,
    Path,
    Dataset,
    "Data",
    "nx.Graph",
    "pd.DataFrame",
    Sequence["Data"],
    Sequence["nx.Graph"],
    Sequence[str],
]

BUILT_IN: dict[str, Callable[[], Dataset]] = {"toy-graphs": toy_graphs, "toy-nodes": toy_nodes}

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".edgelist", ".edges")
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".gpickle")
NETWORKS = (".graphml", ".gexf", ".json")
MOLECULES = (".smi", ".smiles")

FEATURES = ("labels", "categories", "ignore", "directed", "weight")


def read(source: Source, **options: Any) -> Dataset:
    """Read graphs from a file, a folder, a name, or from objects of other libraries.

    Args:
        source: See :func:`open_source`.
        **options: See :class:`~lg2ar.data.reading.ReadOptions`: ``level``, ``labels``,
            ``directed``, ``weight``, ``categories``, ``ignore``, ``columns``, ``nodes``,
            ``graphs``, ``smiles``, ``strict``.

    Examples:
        >>> import pandas as pd
        >>> edges = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", "cem"]})
        >>> dataset = read(edges)
        >>> dataset.level, dataset.ids
        ('node', ('ann', 'bob', 'cem'))
        >>> dataset.notes[0].partition(";")[0]
        'the edges: Edges are taken to be undirected: they are listed once'
    """
    return open_source(source, options=ReadOptions.make(options))


def open_source(
    source: Source,
    level: Level | None = None,
    options: ReadOptions | None = None,
    usual: Mapping[str, Any] | None = None,
) -> Dataset:
    """Get graphs from a source.

    Args:
        source: One of

            - the name of an embedded or a benchmark data set;
            - a folder with the tables ``edges``, and where there are some ``nodes`` and ``graphs``,
              as ``.csv``, ``.tsv`` or ``.parquet``; or one such file, or frames of pandas;
            - a folder or zip archive in the format of TUDataset;
            - a file ``.graphml``, ``.gexf`` or ``.json`` (node-link), or graphs of NetworkX;
            - a table with a column of SMILES, a file ``.smi``, or a list of SMILES;
            - a file ``.npz`` of arrays (see :mod:`lg2ar.data.arrays`);
            - a file ``.sqlite`` that ``lg2ar convert`` wrote, which is read batch by batch;
            - a folder ``.graph`` that it wrote of one large graph, which stays on the disk;
            - graphs of PyG: a list or data set of them, or one large graph;
            - a :class:`~lg2ar.data.dataset.Dataset`.
        level: What is to be embedded, where that is known already; else the options say it, or
            one graph means its nodes.
        options: How to read it.
        usual: Options to take, where ``options`` are silent and as far as they apply: those that
            the data was read with that a model was trained on.

    Raises:
        InputError: In one sentence, with file, line and remedy.
    """
    options = options or ReadOptions()
    if level is not None:
        options = ReadOptions.make({**vars(options), "level": level})
    if isinstance(source, Dataset):
        options.check(source.name, ("level",))
        return _as_float(source)
    usual = usual or {}
    reader = _find_reader(source, options.smiles or usual.get("smiles"))
    options.check(_named(source), ("level", *reader.options))
    dataset = reader.read(options.filled(usual, reader.options))
    if isinstance(source, str | Path) and Path(source).exists():
        # Not a copy, which would forget the fingerprint that one on a disk knows from before.
        object.__setattr__(dataset, "source", str(source))
    return _at_level(_as_float(dataset), options.level)


@dataclass(frozen=True)
class _Reader:
    """How a kind of source is read, and the options that say something about it."""

    read: Callable[[ReadOptions], Dataset]
    options: tuple[str, ...] = ()


def _find_reader(source: Any, smiles: str | None) -> _Reader:
    if isinstance(source, str | Path):
        return _reader_of_path(source, smiles)
    if type(source).__module__.partition(".")[0] == "pandas":
        from lg2ar.data.tables import are_molecules

        molecules = smiles or are_molecules(map(str, source.columns))
        return _molecules(source) if molecules else _tables(source)
    many = _members(source)
    if many and all(isinstance(item, str) for item in many):
        return _molecules(many)
    if many and all(_is_networkx(item) for item in many):
        from lg2ar.data.interchange import from_networkx

        return _Reader(lambda o: from_networkx(many, **_chosen(o, "level", *FEATURES)), FEATURES)
    return _Reader(lambda o: _from_pyg(source, many, o.level))


def _reader_of_path(source: str | Path, smiles: str | None) -> _Reader:
    name, path = str(source), Path(source)
    suffix = path.suffix.lower()
    if name in BUILT_IN:
        return _Reader(lambda _: BUILT_IN[name]())
    if _is_benchmark(name):
        return _Reader(lambda _: open_benchmark(name))
    if suffix in PICKLES:
        raise InputError(
            f"{name}: is a pickle, which can run code when it is opened, and is refused; write "
            "the graphs as .npz (see lg2ar.data.arrays) or as GraphML."
        )
    if suffix == SUFFIX:
        return _Reader(lambda _: read_on_disk(path))
    if is_mapped(path):
        return _Reader(lambda _: read_mapped(path))
    if suffix == ".npz":
        return _Reader(lambda o: read_arrays(source, o.level))
    if suffix in NETWORKS:
        from lg2ar.data.interchange import read_networkx_file

        return _Reader(
            lambda o: read_networkx_file(path, **_chosen(o, "level", *FEATURES)), FEATURES
        )
    if suffix == ".zip" or path.name.endswith("_A.txt") or _is_tu_folder(path):
        from lg2ar.data.tu import read_tu

        return _Reader(lambda o: read_tu(path, level=o.level))
    if suffix in MOLECULES:
        return _molecules(path)
    if suffix in TABLES:
        from lg2ar.data.tables import looks_like_molecules

        return _molecules(path) if smiles or looks_like_molecules(path) else _tables(path)
    if path.is_dir():
        return _folder(path)
    raise _unknown(name, path)


def are_tables(source: str | Path, smiles: str | None = None) -> bool:
    """Whether a source is a table of edges, or a folder of tables."""
    from lg2ar.data.tables import has_tables, looks_like_molecules

    name, path = str(source), Path(source)
    if smiles or name in BUILT_IN or _is_benchmark(name) or is_mapped(path) or _is_tu_folder(path):
        return False
    if path.is_dir():
        return has_tables(path)
    plain = path.suffix.lower() in TABLES and not path.name.endswith("_A.txt")
    return plain and not looks_like_molecules(path)


def _folder(path: Path) -> _Reader:
    """A folder of tables, or else of files with a graph in each."""
    from lg2ar.data.interchange import graph_files, read_networkx_file
    from lg2ar.data.tables import has_tables

    if has_tables(path) or not graph_files(path):
        return _tables(path)
    return _Reader(lambda o: read_networkx_file(path, **_chosen(o, "level", *FEATURES)), FEATURES)


def _tables(source: Any) -> _Reader:
    from lg2ar.data.tables import read_tables

    more = ("columns", "nodes", "graphs")
    return _Reader(lambda o: read_tables(source, o), (*FEATURES, *more))


def _molecules(source: Any) -> _Reader:
    from lg2ar.data.molecules import read_smiles

    def reader(options: ReadOptions) -> Dataset:
        return read_smiles(
            source, column=options.smiles, strict=options.strict, **_chosen(options, "labels")
        )

    return _Reader(reader, ("smiles", "strict", "labels"))


def _chosen(options: ReadOptions, *names: str) -> dict[str, Any]:
    """Options that were given, by name, of those that a reader takes."""
    return {name: getattr(options, name) for name in names if name in options.given()}


def _members(source: Any) -> list[Any]:
    """The graphs of a collection, or a single one as a list."""
    if _is_networkx(source):
        return [source]
    from torch_geometric.data import Batch, Data

    if isinstance(source, Batch):
        return list(source.to_data_list())
    many = isinstance(source, Iterable) and not isinstance(source, Data | Mapping)
    return list(source) if many else [source]


def _from_pyg(source: Any, graphs: list[Any], level: Level | None) -> Dataset:
    from torch_geometric.data import Data

    if not all(isinstance(graph, Data) for graph in graphs):
        raise InputError(
            f"a {type(source).__name__} is not a source of graphs; give a name, a path, graphs of "
            "PyG or NetworkX, or a lg2ar.Dataset."
        )
    return Dataset.from_pyg(graphs, level=level or ("node" if len(graphs) == 1 else "graph"))


def _is_networkx(thing: Any) -> bool:
    """Whether it is a graph of NetworkX, found out without importing it."""
    return any(base.__module__.partition(".")[0] == "networkx" for base in type(thing).__mro__)


def _is_benchmark(name: str) -> bool:
    try:
        find_benchmark(name)
    except InputError:
        return False
    return True


def _is_tu_folder(path: Path) -> bool:
    return any(any(folder.glob("*_A.txt")) for folder in (path, path / "raw") if folder.is_dir())


def _named(source: Any) -> str:
    return str(source) if isinstance(source, str | Path) else f"a {type(source).__name__}"


def _as_float(dataset: Dataset) -> Dataset:
    """Float32 throughout, whatever a person has made the tensors of."""
    graph = dataset.graph
    if isinstance(graph, GraphsOnDisk | MappedGraph):
        return dataset
    parts = (graph.x, graph.edge_weight, graph.edge_attr)
    if all(part is None or part.dtype == torch.float32 for part in parts):
        return dataset
    return replace(dataset, graph=graph.to(graph.device, torch.float32))


def _at_level(dataset: Dataset, level: Level | None) -> Dataset:
    """The data set at the level that is wanted; what belongs to the other level is dropped."""
    if level in (None, dataset.level) or (level == "node" and dataset.graph.num_graphs > 1):
        return dataset  # many graphs at node level are refused by whoever needs one
    return replace(dataset, level=level, y=None, ids=None, classes=None, targets={})


def _unknown(name: str, path: Path) -> InputError:
    known = [*BUILT_IN, *BENCHMARKS]
    if path.exists():
        endings = ", ".join((*TABLES, *NETWORKS, *MOLECULES, ".zip", ".npz", SUFFIX, MAPPED))
        return InputError(f"{name}: files of this kind are not read; known are {endings}.")
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}."
    return InputError(f"'{name}' is neither a known data set nor a file or folder; {hint}")
