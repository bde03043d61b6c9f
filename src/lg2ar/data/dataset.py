"""A data set: graphs or one large graph, with labels where there are some."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lg2ar.config import Level
from lg2ar.data.columns import Column, Columns
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch, collate

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class Dataset:
    """Graphs to learn from.

    Attributes:
        name: What to call it.
        level: Whether graphs are embedded, or the nodes of one large graph.
        graph: All graphs side by side, with the features the data has of its own as numbers ready
            for use, which may be none (``[N, 0]``).
        y: A label per graph (or per node), for evaluation alone; None where there are none.
        ids: What each graph (or node) is called, in order; None where they have no names.
        node_columns: Raw columns, a value per node, that the recipe makes features of; they stand
            behind those in ``graph.x``.
        edge_columns: Raw columns, a value per listed edge; both directions of an undirected edge
            have the same.
        classes: Names of the labels in ``y``, where these came from words.
        targets: Further columns with a value per graph (or node), by name: other labels, numbers to
            predict, anything to colour by. No feature is made of them.
        notes: Sentences that tell what was detected, left out and counted while reading.
        reading: Options, as JSON has them, that unseen data is to be read with as well: see
            :meth:`~lg2ar.data.reading.ReadOptions.remembered`.
        source: The path it was read from, as it was given; empty where it was not one.
    """

    name: str
    level: Level
    graph: GraphBatch
    y: Tensor | None = None
    ids: Sequence[str] | None = None
    node_columns: Columns = ()
    edge_columns: Columns = ()
    classes: tuple[str, ...] | None = None
    targets: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    def __len__(self) -> int:
        """Number of things that get an embedding: graphs, or nodes of the large graph."""
        return self.graph.num_graphs if self.level == "graph" else self.graph.num_nodes

    def fingerprint(self) -> str:
        """SHA-256 of tensors and columns: two data sets with the same one are the same."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        graph = self.graph
        plain = (graph.x, graph.edge_index, graph.batch, graph.edge_weight, self.y)
        for tensor in (*plain, graph.edge_attr):
            if tensor is not None:
                array = tensor.detach().cpu().contiguous().numpy()
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(array.tobytes())
        for what, columns in (("node", self.node_columns), ("edge", self.edge_columns)):
            for column in columns:
                digest.update(f"{what}{column.kind}{column.name!r}{len(column)}".encode())
                digest.update(_content(column))
        return digest.hexdigest()

    @classmethod
    def from_pyg(
        cls, data: Data | Sequence[Data], *, level: Level = "graph", name: str = "graphs"
    ) -> Dataset:
        """Take PyG graphs: a list or data set of them, or one large graph for ``level="node"``.

        Labels are read from ``y`` where every graph (or node) has one.

        Examples:
            >>> from torch_geometric.data import Data
            >>> ring = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
            >>> graphs = [Data(x=torch.ones(3, 1), edge_index=ring, y=kind) for kind in (0, 1)]
            >>> dataset = Dataset.from_pyg(graphs)
            >>> len(dataset), dataset.y.tolist()
            (2, [0, 1])
        """
        from torch_geometric.data import Batch
        from torch_geometric.data import Data as PyGData

        if isinstance(data, Batch):
            data = data.to_data_list()
        graphs = [data] if isinstance(data, PyGData) else list(data)
        if level == "node" and len(graphs) != 1:
            raise InputError(f"{name} holds {len(graphs)} graphs; node level takes one large one.")
        batch = collate(graphs, name)
        if batch.x is None:
            batch.x = torch.empty(batch.num_nodes, 0)
        batch.x = (batch.x.to_dense() if batch.x.is_sparse else batch.x).float()
        for key in ("edge_weight", "edge_attr"):
            if batch.get(key) is not None:
                batch[key] = batch[key].float()
        graph = GraphBatch.from_pyg(batch, name)
        expected = graph.num_graphs if level == "graph" else graph.num_nodes
        y = batch.y if isinstance(batch.y, Tensor) and batch.y.numel() == expected else None
        y = None if y is None else y.view(-1)
        return cls(name=name, level=level, graph=graph, y=y)


def _content(column: Column) -> bytes:
    """The values of a column, the same bytes for the same values."""
    if column.kind == "number":
        return column.values.tobytes()
    import pandas as pd

    places, values = pd.factorize(column.values)
    names = "\0".join(values).encode(errors="surrogatepass")
    return bytes(places.astype(np.int64).tobytes() + names)
