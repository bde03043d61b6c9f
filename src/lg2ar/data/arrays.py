"""Graphs as plain arrays in one ``.npz`` file: the shortest way in from anywhere.

Arrays: ``edge_index`` [2, edges], and where there are some ``x`` [nodes, features],
``batch`` [nodes] (the graph of each node, ascending; without it all nodes are one graph),
``edge_weight`` [edges], ``edge_attr`` [edges, attributes], ``y`` (a label per graph, or per node of
one graph). Nothing is unpickled.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from lg2ar.config import Level
from lg2ar.data.archives import read_npz
from lg2ar.data.dataset import Dataset
from lg2ar.errors import InputError
from lg2ar.files import written_beside
from lg2ar.graph import GraphBatch

KNOWN = ("x", "edge_index", "batch", "edge_weight", "edge_attr", "y")


def read_arrays(path: str | Path, level: Level | None = None) -> Dataset:
    """Read a ``.npz`` file of graphs.

    Args:
        path: The file.
        level: What is to be embedded, where that is known already; labels of the other level are
            then left out. Otherwise one graph is node level and several are graph level.
    """
    path = Path(path)
    arrays = _load(path)
    if "edge_index" not in arrays:
        known = ", ".join(arrays) or "none that is known"
        raise InputError(f"{path}: has no array 'edge_index' [2, edges]; it holds {known}.")
    edge_index = _integers(path, "edge_index", arrays["edge_index"])
    batch = _integers(path, "batch", arrays["batch"]) if "batch" in arrays else None
    x = _features(path, arrays.get("x"), batch, edge_index)
    if x.size(0) == 0:
        raise InputError(f"{path}: holds no nodes; give at least one graph with one node.")
    if batch is None:
        batch = torch.zeros(x.size(0), dtype=torch.long)
    of_edges = {
        name: torch.from_numpy(_numbers(path, name, arrays[name]))
        for name in ("edge_weight", "edge_attr")
        if name in arrays
    }
    graph = GraphBatch(
        x=x,
        edge_index=edge_index,
        batch=batch,
        num_graphs=int(batch.max()) + 1 if batch.numel() else 0,
        **of_edges,
    ).validate(str(path))
    given, y = level is not None, arrays.get("y")
    level = level or ("node" if graph.num_graphs == 1 else "graph")
    expected = graph.num_nodes if level == "node" else graph.num_graphs
    if given and y is not None and y.shape != (expected,):
        y = None
    if y is not None and y.shape != (expected,):
        raise InputError(
            f"{path}: y has shape {list(y.shape)}, expected [{expected}], one a {level}."
        )
    labels = None if y is None else torch.from_numpy(_numbers(path, "y", y))
    if y is not None and np.issubdtype(y.dtype, np.integer):
        labels = _integers(path, "y", y)
    return Dataset(name=path.stem, level=level, graph=graph, y=labels)


def write_arrays(path: str | Path, dataset: Dataset) -> None:
    """Write graphs as a ``.npz`` file that :func:`read_arrays` reads back."""
    graph = dataset.graph
    arrays = {
        "x": graph.x,
        "edge_index": graph.edge_index,
        "batch": graph.batch,
        "edge_weight": graph.edge_weight,
        "edge_attr": graph.edge_attr,
        "y": dataset.y,
    }
    kept = {name: value.cpu().numpy() for name, value in arrays.items() if value is not None}
    with written_beside(Path(path)) as beside, open(beside, "wb") as file:
        np.savez_compressed(file, **kept)  # type: ignore[arg-type]


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        return read_npz(path, KNOWN)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except Exception as error:  # a damaged archive can raise nearly anything
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: not a readable .npz file ({reason}).") from None


def _integers(path: Path, name: str, array: np.ndarray) -> torch.Tensor:
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{path}: {name} must hold whole numbers, not {array.dtype}.")
    return torch.from_numpy(array.astype(np.int64))


def _features(
    path: Path, x: np.ndarray | None, batch: torch.Tensor | None, edge_index: torch.Tensor
) -> torch.Tensor:
    if x is None:
        if batch is None:
            raise InputError(
                f"{path}: has neither 'x' nor 'batch', so how many nodes there are is not told; "
                "add one of them."
            )
        return torch.empty(len(batch), 0)
    x = _numbers(path, "x", x)
    if x.ndim != 2:
        raise InputError(f"{path}: x must be a matrix [nodes, features], not of shape {x.shape}.")
    return torch.from_numpy(x)


def _numbers(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    kind = array.dtype
    if not (np.issubdtype(kind, np.number) or kind == np.bool_) or kind.kind == "c":
        raise InputError(f"{path}: {name} must hold numbers, not {kind}.")
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and is then refused
        return array.astype(np.float32)
