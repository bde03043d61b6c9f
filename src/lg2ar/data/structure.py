"""Nodes and edges in numbers: sizes, degrees, loops, repetitions, parts.

Nothing here loops over graphs or nodes: a million of either is counted in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lg2ar.graph import GraphBatch


@dataclass(frozen=True)
class Spread:
    """How some numbers are spread."""

    low: float
    median: float
    mean: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray | Tensor) -> Spread | None:
        """Of some numbers, missing ones left aside; None where there are none."""
        there = np.asarray(values, dtype=np.float64).reshape(-1)
        there = there[np.isfinite(there)]
        if not len(there):
            return None
        low, median, high = (float(np.quantile(there, share)) for share in (0, 0.5, 1))
        return cls(low, median, float(there.mean()), high)


@dataclass(frozen=True)
class Structure:
    """What there is to say about nodes and edges.

    Attributes:
        graphs: How many graphs.
        nodes: How many nodes, all together.
        edges: How many edges; an undirected one counts once.
        nodes_a_graph: Spread of the sizes.
        edges_a_graph: Spread of the numbers of edges, counted in the same way.
        degree: Spread of the edges that lead to a node.
        directed: Whether some edge has none that leads back.
        one_way: How many edges have none that leads back.
        self_loops: Edges from a node to itself.
        duplicates: Edges that are listed again.
        isolated: Nodes without an edge to another one.
        edgeless: Graphs without an edge.
        disconnected: Graphs of several parts.
        parts: How many parts all graphs have together.
    """

    graphs: int
    nodes: int
    edges: int
    nodes_a_graph: Spread | None
    edges_a_graph: Spread | None
    degree: Spread | None
    directed: bool
    one_way: int
    self_loops: int
    duplicates: int
    isolated: int
    edgeless: int
    disconnected: int
    parts: int


def measure_structure(graph: GraphBatch) -> Structure:
    """Count all there is to count."""
    batch = graph.batch.cpu()
    source, target = graph.edge_index.cpu()
    key = torch.unique(source * graph.num_nodes + target)
    source, target = key // max(graph.num_nodes, 1), key % max(graph.num_nodes, 1)
    loops = source == target
    back = target * graph.num_nodes + source
    place = torch.searchsorted(key, back).clamp(max=max(len(key) - 1, 0))
    one_way = int((key[place] != back).sum()) if len(key) else 0
    degree = torch.bincount(target, minlength=graph.num_nodes)
    touched = torch.zeros(graph.num_nodes, dtype=torch.bool)
    touched[source[~loops]] = True
    touched[target[~loops]] = True
    halves = torch.full((len(key),), 1.0 if one_way else 0.5)
    halves[loops] = 1.0
    edges = torch.bincount(batch[source], weights=halves, minlength=graph.num_graphs)
    parts = _parts(batch, source, target)
    return Structure(
        graphs=graph.num_graphs,
        nodes=graph.num_nodes,
        edges=round(float(edges.sum())),
        nodes_a_graph=Spread.of(batch.bincount()),
        edges_a_graph=Spread.of(edges),
        degree=Spread.of(degree),
        directed=one_way > 0,
        one_way=one_way,
        self_loops=int(loops.sum()),
        duplicates=graph.num_edges - len(key),
        isolated=int((~touched).sum()),
        edgeless=int((edges == 0).sum()),
        disconnected=int((parts > 1).sum()),
        parts=int(parts.sum()),
    )


def _parts(batch: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """How many connected parts each graph has, ``[B]``."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(source), dtype=np.int8)
    shape = (len(batch), len(batch))
    matrix = coo_array((ones, (source.numpy(), target.numpy())), shape=shape)
    _, part = connected_components(matrix.tocsr(), directed=False)
    first = np.unique(part, return_index=True)[1]  # a node of each part
    return torch.bincount(batch[torch.from_numpy(first)])
