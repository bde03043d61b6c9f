"""A data set: graphs or one large graph, with labels where there are some."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lg2ar.config import Level
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
        graph: All graphs side by side, with the features the data has of its own, which may be
            none (``[N, 0]``).
        y: A label per graph (or per node), for evaluation alone; None where there are none.
    """

    name: str
    level: Level
    graph: GraphBatch
    y: Tensor | None = None

    def __len__(self) -> int:
        """Number of things that get an embedding: graphs, or nodes of the large graph."""
        return self.graph.num_graphs if self.level == "graph" else self.graph.num_nodes

    def fingerprint(self) -> str:
        """SHA-256 of the tensors: two data sets with the same one are the same."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        graph = self.graph
        for tensor in (graph.x, graph.edge_index, graph.batch, graph.edge_weight, self.y):
            if tensor is not None:
                array = tensor.detach().cpu().contiguous().numpy()
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(array.tobytes())
        return digest.hexdigest()

    @classmethod
    def from_pyg(
        cls, data: Data | Sequence[Data], *, level: Level = "graph", name: str = "graphs"
    ) -> Dataset:
        """Take PyG graphs: a list or data set of them, or one large graph for ``level="node"``.

        Labels are read from ``y`` where every graph (or node) has one.
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
        if batch.get("edge_weight") is not None:
            batch.edge_weight = batch.edge_weight.float()
        graph = GraphBatch.from_pyg(batch, name)
        expected = graph.num_graphs if level == "graph" else graph.num_nodes
        y = batch.y if isinstance(batch.y, Tensor) and batch.y.numel() == expected else None
        y = None if y is None else y.view(-1)
        return cls(name=name, level=level, graph=graph, y=y)
