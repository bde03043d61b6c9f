"""Hypothesis strategies for batches of graphs, and plain-Python views of what is in them."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise, permutations

import torch
from hypothesis import strategies as st

from lg2ar.graph import Encoding, GraphBatch

Edge = tuple[int, int]
WeightedEdge = tuple[int, int, float]
AttributedEdge = tuple[int, int, tuple[float, ...]]

seeds = st.integers(0, 2**16)


@st.composite
def local_edges(draw: st.DrawFn, n: int, undirected: bool | None = None) -> list[list[Edge]]:
    """Edges of a graph of ``n`` nodes, each as the list of its one or two directions.

    None at all, any few (self-loops and repetitions among them), or every pair.
    """
    both = draw(st.booleans()) if undirected is None else undirected
    few = st.lists(st.integers(0, n * n - 1).map(lambda number: divmod(number, n)), max_size=12)
    every = combinations(range(n), 2) if both else permutations(range(n), 2)
    edges = draw(st.one_of(few, st.just([]), st.just(list(every))))
    return [[(u, v), (v, u)] if both and u != v else [(u, v)] for u, v in edges]


@st.composite
def graph_batches(
    draw: st.DrawFn,
    *,
    undirected: bool | None = None,
    weighted: bool | None = None,
    attributed: bool | None = None,
    dtype: torch.dtype = torch.float32,
) -> GraphBatch:
    """One to six graphs of one to nine nodes, with everything that real data may hold.

    Single and isolated nodes, no edges, complete graphs, self-loops, repeated edges, one direction
    or both, constant features. The edges of different graphs are interleaved. Both directions of an
    edge weigh the same and have the same attributes; its repetitions need not.

    Args:
        draw: Hypothesis's own.
        undirected: Whether every edge is listed in both directions; None draws it graph by graph.
        weighted: Whether edges have weights; None draws it.
        attributed: Whether edges have attributes; None draws it.
        dtype: Type of features, weights and attributes.
    """
    numbers = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    starts = [0]
    for n in numbers:
        starts.append(starts[-1] + n)
    listed: list[tuple[int, int, int]] = []  # source, target, which weight
    number = 0
    for first, after in pairwise(starts):
        for directions in draw(local_edges(after - first, undirected)):
            listed += [(first + u, first + v, number) for u, v in directions]
            number += 1

    width = draw(st.integers(1, 5))
    constant = draw(st.booleans())
    generator = torch.Generator().manual_seed(draw(seeds))
    order = torch.randperm(len(listed), generator=generator)
    columns = torch.tensor(listed, dtype=torch.long).reshape(-1, 3)[order].T
    x = torch.randn(starts[-1], width, generator=generator, dtype=dtype)
    weight = 0.5 + torch.rand(number, generator=generator, dtype=dtype)
    has_weights = draw(st.booleans()) if weighted is None else weighted
    has_attributes = draw(st.booleans()) if attributed is None else attributed
    attributes = torch.randn(number, 1 + width % 3, generator=generator, dtype=dtype)
    return GraphBatch(
        x=torch.ones_like(x) if constant else x,
        edge_index=columns[:2].contiguous(),
        batch=torch.repeat_interleave(torch.arange(len(numbers)), torch.tensor(numbers)),
        num_graphs=len(numbers),
        edge_weight=weight[columns[2]] if has_weights else None,
        edge_attr=attributes[columns[2]] if has_attributes else None,
    )


def encode(graph: GraphBatch, hidden: int = 4, seed: int = 0) -> Encoding:
    """Any encoding of the batch, as leaves that ask for a gradient."""
    generator = torch.Generator().manual_seed(seed)

    def rows(number: int) -> torch.Tensor:
        values = torch.randn(number, hidden, generator=generator, dtype=graph.x.dtype)
        return values.to(graph.device).requires_grad_()

    return Encoding(nodes=rows(graph.num_nodes), graphs=rows(graph.num_graphs))


def sizes(graph: GraphBatch) -> list[int]:
    """Number of nodes of each graph."""
    counts = Counter(graph.batch.tolist())
    return [counts[k] for k in range(graph.num_graphs)]


def origins(graph: GraphBatch) -> list[int]:
    """For each node what it is called where the batch was cut from."""
    nodes = torch.arange(graph.num_nodes) if graph.origin is None else graph.origin
    return [int(node) for node in nodes.tolist()]


def weighted_edges(graph: GraphBatch) -> list[list[WeightedEdge]]:
    """The edges of each graph, sorted, by the nodes' original names, with their weights."""
    names, home = origins(graph), graph.batch.tolist()
    found: list[list[WeightedEdge]] = [[] for _ in range(graph.num_graphs)]
    for (u, v), w in zip(graph.edge_index.T.tolist(), graph.weights().tolist(), strict=True):
        found[home[u]].append((names[u], names[v], w))
    return [sorted(edges) for edges in found]


def attributed_edges(graph: GraphBatch) -> list[list[AttributedEdge]]:
    """The edges of each graph, sorted, by the nodes' original names, with their attributes."""
    names, home = origins(graph), graph.batch.tolist()
    found: list[list[AttributedEdge]] = [[] for _ in range(graph.num_graphs)]
    rows = [[]] * graph.num_edges if graph.edge_attr is None else graph.edge_attr.tolist()
    for (u, v), row in zip(graph.edge_index.T.tolist(), rows, strict=True):
        found[home[u]].append((names[u], names[v], tuple(row)))
    return [sorted(edges) for edges in found]


def edges_per_graph(graph: GraphBatch) -> list[Counter[Edge]]:
    """How often each graph lists each edge, by the nodes' original names."""
    return [Counter((u, v) for u, v, _ in edges) for edges in weighted_edges(graph)]


def nodes_per_graph(graph: GraphBatch) -> list[list[int]]:
    """The nodes of each graph, by their original names."""
    found: list[list[int]] = [[] for _ in range(graph.num_graphs)]
    for name, home in zip(origins(graph), graph.batch.tolist(), strict=True):
        found[home].append(name)
    return found
