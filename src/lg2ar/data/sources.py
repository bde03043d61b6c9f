"""Where graphs come from: a name, a file, or PyG objects."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import torch

from lg2ar.config import Level
from lg2ar.data.arrays import read_arrays
from lg2ar.data.benchmarks import BENCHMARKS, find_benchmark, open_benchmark
from lg2ar.data.dataset import Dataset
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError

if TYPE_CHECKING:
    from torch_geometric.data import Data

Source = Union[str, Path, Dataset, "Data", Sequence["Data"]]

BUILT_IN: dict[str, Callable[[], Dataset]] = {"toy-graphs": toy_graphs, "toy-nodes": toy_nodes}


def open_source(source: Source, level: Level | None = None) -> Dataset:
    """Get graphs from a source.

    Args:
        source: The name of an embedded or a benchmark data set, the path of an ``.npz`` file, a
            :class:`~lg2ar.data.dataset.Dataset`, or PyG graphs: a list or data set of them, or
            one large graph.
        level: What is to be embedded; where PyG does not tell, one graph means its nodes.
    """
    if isinstance(source, Dataset):
        weight = source.graph.edge_weight
        if source.graph.x.dtype == torch.float32 and (
            weight is None or weight.dtype == torch.float32
        ):
            return source
        return replace(source, graph=source.graph.to(source.graph.device, torch.float32))
    if isinstance(source, str | Path):
        return _open_named(source, level)
    from torch_geometric.data import Batch, Data

    if isinstance(source, Batch):
        source = source.to_data_list()
    many = isinstance(source, Iterable) and not isinstance(source, Data)
    graphs: list[Any] = list(source) if many else [source]
    if not all(isinstance(graph, Data) for graph in graphs):
        raise InputError(
            f"a {type(source).__name__} is not a source of graphs; give a name, a path, PyG graphs "
            "or a lg2ar.Dataset."
        )
    return Dataset.from_pyg(graphs, level=level or ("node" if len(graphs) == 1 else "graph"))


def _open_named(source: str | Path, level: Level | None) -> Dataset:
    name = str(source)
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if name.endswith(".npz"):
        return read_arrays(source, level)
    if Path(name).suffix in (".pt", ".pth", ".pkl", ".pickle"):
        raise InputError(
            f"{name}: is a pickle, which can run code when it is opened, and is refused; write "
            "the graphs as .npz (see lg2ar.data.arrays)."
        )
    known = [*BUILT_IN, *BENCHMARKS]
    try:
        find_benchmark(name)
    except InputError:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}."
        raise InputError(f"'{name}' is neither a known data set nor an .npz file; {hint}") from None
    return open_benchmark(name)
