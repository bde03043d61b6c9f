"""The part of a data set that is looked at: a page cannot show all of a large one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lg2ar.data.batches import as_store
from lg2ar.data.dataset import Dataset
from lg2ar.data.on_disk import GraphsOnDisk


def drawn_rows(total: int, most: int, seed: int) -> NDArray[np.int64]:
    """All rows, or so many drawn at random, ascending."""
    rows = np.arange(total)
    if total > most:
        rows = np.sort(np.random.default_rng(seed).choice(total, most, replace=False))
    return rows


def take(dataset: Dataset, rows: NDArray[np.int64]) -> Dataset:
    """Some graphs of a data set with what can be seen of them; only these are read from a disk.

    Graphs without names are called by their place in the whole data set. Columns of edges are left
    out.
    """
    index = rows.tolist()
    if isinstance(dataset.graph, GraphsOnDisk):
        part = dataset.graph.file.select(rows)
        graph, columns = part.graph, part.node_columns
    else:
        graph = as_store(dataset.graph).select(rows)
        assert graph.origin is not None
        columns = tuple(column.take(graph.origin.cpu().numpy()) for column in dataset.node_columns)
    ids = dataset.ids
    return replace(
        dataset,
        graph=graph.replace(origin=None),
        y=None if dataset.y is None else dataset.y[rows],
        ids=tuple(str(row) if ids is None else ids[row] for row in index),
        node_columns=columns,
        edge_columns=(),
        targets={name: np.asarray(values)[rows] for name, values in dataset.targets.items()},
    )
