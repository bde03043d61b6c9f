"""The raw files of the benchmark data sets, read without PyG's data set classes.

Those keep what they have read as a pickle, and unpickle whatever lies there under its name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lg2ar.data.archives import read_npz
from lg2ar.data.dataset import Dataset
from lg2ar.data.planetoid import read_planetoid
from lg2ar.data.sparse_arrays import dense, rows_of, shape_of
from lg2ar.data.tu import read_tu

if TYPE_CHECKING:
    from torch_geometric.data import Data

NPZ = tuple(
    f"{of}_{part}" for of in ("attr", "adj") for part in ("data", "indices", "indptr", "shape")
)


def raw_files(source: str, name: str) -> list[str]:
    """The raw files without which a data set cannot be read.

    Args:
        source: The collection: a class of PyG's.
        name: The data set's name there.
    """
    if source == "TUDataset":
        return [f"{name}_A.txt", f"{name}_graph_indicator.txt"]
    if source == "Planetoid":
        parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
        return [f"ind.{name.lower()}.{part}" for part in parts]
    if source == "Amazon":
        return [f"amazon_electronics_{name.lower()}.npz"]
    if source == "Coauthor":
        return [f"ms_academic_{name[:3].lower()}.npz"]
    return ["data.json"]


def read_raw_files(source: str, name: str, raw: Path) -> tuple[Dataset, dict[str, Tensor]]:
    """The data set, and its public splits, ``[splits, N]`` each; what PyG's class would make.

    Args:
        source: The collection.
        name: The data set's name there.
        raw: The folder of its raw files.

    Raises:
        InputError, ValueError, OSError: And nearly anything else, when a file is damaged.
    """
    if source == "TUDataset":
        return read_tu(raw / raw_files(source, name)[0]), {}
    if source == "Planetoid":
        graph = read_planetoid(raw, name)
    else:
        path = str(raw / raw_files(source, name)[0])
        graph = _read_arrays(path) if path.endswith(".npz") else _read_wikics(path)
    return Dataset.from_pyg([graph], level="node", name=name), _splits(graph)


def _read_arrays(path: str) -> Data:
    """The graph of an archive of arrays, as PyG's ``read_npz`` makes it."""
    from torch_geometric.data import Data
    from torch_geometric.utils import remove_self_loops, to_undirected

    held = read_npz(Path(path), (*NPZ, "labels"))
    data, indices, begins, shape, _, columns, rows, sizes = (held[name] for name in NPZ)
    x = dense(data, indices, begins, shape_of(shape))
    x[x > 0] = 1
    height, width = shape_of(sizes)
    edges = np.stack([rows_of(rows, columns, width, height), columns.astype(np.int64)])
    if (
        not height == width == len(x) == len(held["labels"])
        or held["labels"].dtype.kind not in "iu"
    ):
        raise ValueError("features, edges and labels do not fit each other")
    edge_index, _ = remove_self_loops(torch.from_numpy(edges))
    return Data(
        x=torch.from_numpy(x),
        edge_index=to_undirected(edge_index, num_nodes=len(x)),
        y=torch.from_numpy(held["labels"].astype(np.int64)),
    )


def _read_wikics(path: str) -> Data:
    """The graph of WikiCS's JSON, as PyG's ``WikiCS(is_undirected=True)`` makes it."""
    from torch_geometric.data import Data
    from torch_geometric.utils import to_undirected

    held = json.loads(Path(path).read_text(encoding="utf-8"))
    x = torch.tensor(held["features"], dtype=torch.float)
    pairs = [(node, other) for node, others in enumerate(held["links"]) for other in others]
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous()
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < len(x):
        raise ValueError("a link to what is no node")
    masks = {
        key: torch.tensor(held[name], dtype=torch.bool).t().contiguous()
        for key, name in (("train_mask", "train_masks"), ("val_mask", "val_masks"))
    }
    return Data(
        x=x,
        edge_index=to_undirected(edges, num_nodes=len(x)),
        y=torch.tensor(held["labels"], dtype=torch.long),
        test_mask=torch.tensor(held["test_mask"], dtype=torch.bool),
        **masks,
    )


def _splits(graph: Data) -> dict[str, Tensor]:
    if "train_mask" not in graph:
        return {}
    train = graph.train_mask.view(graph.num_nodes, -1).t()  # [splits, N]
    validation = graph.val_mask.view(graph.num_nodes, -1).t()
    test = graph.test_mask.view(graph.num_nodes, -1).t().expand_as(train)  # WikiCS has but one
    masks = {"train": train, "validation": validation, "test": test}
    return {
        key: value.bool().clone(memory_format=torch.contiguous_format)
        for key, value in masks.items()
    }
