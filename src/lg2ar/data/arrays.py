"""Graphs as plain arrays in one ``.npz`` file: the shortest way in from anywhere.

Arrays: ``edge_index`` [2, edges], and where there are some ``x`` [nodes, features],
``batch`` [nodes] (the graph of each node, ascending; without it all nodes are one graph),
``edge_weight`` [edges], ``y`` (a label per graph, or per node of one graph). Nothing is unpickled.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch

from lg2ar.config import Level
from lg2ar.data.dataset import Dataset
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch

KNOWN = ("x", "edge_index", "batch", "edge_weight", "y")


def read_arrays(path: str | Path) -> Dataset:
    """Read a ``.npz`` file of graphs; one graph is node level, several are graph level."""
    path = Path(path)
    arrays = _load(path)
    if "edge_index" not in arrays:
        raise InputError(f"{path}: has no array 'edge_index' [2, edges]; it holds {list(arrays)}.")
    edge_index = _integers(path, "edge_index", arrays["edge_index"])
    batch = _integers(path, "batch", arrays["batch"]) if "batch" in arrays else None
    x = _features(path, arrays.get("x"), batch, edge_index)
    if x.size(0) == 0:
        raise InputError(f"{path}: holds no nodes; give at least one graph with one node.")
    if batch is None:
        batch = torch.zeros(x.size(0), dtype=torch.long)
    weight = arrays.get("edge_weight")
    graph = GraphBatch(
        x=x,
        edge_index=edge_index,
        batch=batch,
        num_graphs=int(batch.max()) + 1 if batch.numel() else 0,
        edge_weight=None if weight is None else torch.from_numpy(weight),
    ).validate(str(path))
    level: Level = "node" if graph.num_graphs == 1 else "graph"
    y = arrays.get("y")
    expected = graph.num_nodes if level == "node" else graph.num_graphs
    if y is not None and y.shape != (expected,):
        raise InputError(
            f"{path}: y has shape {list(y.shape)}, expected [{expected}], one a {level}."
        )
    labels = None if y is None else _integers(path, "y", y)
    return Dataset(name=path.stem, level=level, graph=graph, y=labels)


def write_arrays(path: str | Path, dataset: Dataset) -> None:
    """Write graphs as a ``.npz`` file that :func:`read_arrays` reads back."""
    graph = dataset.graph
    arrays = {
        "x": graph.x,
        "edge_index": graph.edge_index,
        "batch": graph.batch,
        "edge_weight": graph.edge_weight,
        "y": dataset.y,
    }
    kept = {name: value.cpu().numpy() for name, value in arrays.items() if value is not None}
    np.savez_compressed(path, **kept)  # type: ignore[arg-type]


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        # Opened here, not by NumPy, which forgets to close a file that it finds damaged.
        with open(path, "rb") as content, np.load(content, allow_pickle=False) as file:
            return {name: file[name] for name in KNOWN if name in file}
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a readable .npz file ({error}).") from None


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
    if not np.issubdtype(x.dtype, np.number) or np.issubdtype(x.dtype, np.complexfloating):
        raise InputError(f"{path}: x must hold numbers, not {x.dtype}.")
    if x.ndim != 2:
        raise InputError(f"{path}: x must be a matrix [nodes, features], not of shape {x.shape}.")
    return torch.from_numpy(x.astype(np.float32))
