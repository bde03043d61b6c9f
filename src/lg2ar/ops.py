"""What is done to batches of graphs without anything random or learned.

All functions treat the whole batch at once. Only :func:`keep_edges` and :func:`induced_subgraph`
wait for the device, because the size of what they return depends on values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lg2ar.graph import GraphBatch


def segment_sum(values: Tensor, segment: Tensor, num_segments: int) -> Tensor:
    """Sum the rows of each segment, shape ``[num_segments, ...]``.

    >>> segment_sum(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 0, 1]), 2).tolist()
    [3.0, 3.0]
    """
    return values.new_zeros(num_segments, *values.shape[1:]).index_add(0, segment, values)


def segment_mean(values: Tensor, segment: Tensor, num_segments: int) -> Tensor:
    """Average the rows of each segment; zero where a segment is empty."""
    total = segment_sum(values, segment, num_segments)
    count = segment_sum(values.new_ones(values.size(0)), segment, num_segments).clamp(min=1)
    return total / count.view(-1, *[1] * (values.dim() - 1))


def signed_log(x: Tensor) -> Tensor:
    r"""A logarithmic scale in both directions, :math:`\mathrm{sign}(x) \log(1 + |x|)`."""
    return x.sign() * x.abs().log1p()


def segment_log_softmax(logits: Tensor, segment: Tensor, num_segments: int) -> Tensor:
    """Logarithm of the softmax of ``logits`` [N] within each segment."""
    highest = logits.new_zeros(num_segments).scatter_reduce(
        0, segment, logits.detach(), "amax", include_self=False
    )
    shifted = logits - highest[segment]
    return shifted - segment_sum(shifted.exp(), segment, num_segments).log()[segment]


def segment_softmax(logits: Tensor, segment: Tensor, num_segments: int) -> Tensor:
    """Softmax of ``logits`` [N] within each segment: each segment's values sum to one.

    >>> segment_softmax(torch.zeros(3), torch.tensor([0, 0, 1]), 2).tolist()
    [0.5, 0.5, 1.0]
    """
    return segment_log_softmax(logits, segment, num_segments).exp()


def segment_rank(keys: Tensor, graph: GraphBatch) -> Tensor:
    """Rank of each node's key among the nodes of its graph, 0 for the largest, shape ``[N]``."""
    order = keys.argsort(descending=True, stable=True)
    order = order[graph.batch[order].argsort(stable=True)]  # graph by graph, largest key first
    place = torch.arange(graph.num_nodes, device=graph.device)
    rank = place - graph.ptr[graph.batch]  # batch is ascending, so batch[order] == batch
    return torch.empty_like(rank).scatter(0, order, rank)


def k_hop(graph: GraphBatch, start: Tensor, hops: int) -> Tensor:
    """Mark the nodes at most ``hops`` edges from a start node, whatever the edges' direction.

    Args:
        graph: The batch.
        start: True at the start nodes, shape ``[N]``.
        hops: How far to walk, ``K``.
    """
    source, target = graph.edge_index
    reached = start.to(torch.uint8)
    for _ in range(hops):
        ahead = reached.scatter_reduce(0, target, reached[source], "amax")
        reached = ahead.scatter_reduce(0, source, reached[target], "amax")
    return reached.bool()


def keep_edges(graph: GraphBatch, kept: Tensor) -> GraphBatch:
    """The batch with all of its nodes and only the edges where ``kept`` [E] is True.

    Edges that stay keep their weights and attributes.
    """
    index = kept.nonzero().squeeze(1)

    def of_kept(values: Tensor | None) -> Tensor | None:
        return None if values is None else values.index_select(0, index)

    return graph.replace(
        edge_index=graph.edge_index.index_select(1, index),
        edge_weight=of_kept(graph.edge_weight),
        edge_attr=of_kept(graph.edge_attr),
    )


def with_candidates(graph: GraphBatch, others: Tensor) -> GraphBatch:
    """The batch with as many edges more, ``others`` [2, E], behind its own.

    Each has the weight and the attributes of the edge in its place.
    """
    weight, attributes = graph.edge_weight, graph.edge_attr
    return graph.replace(
        edge_index=torch.cat([graph.edge_index, others], dim=1),
        edge_weight=None if weight is None else weight.repeat(2),
        edge_attr=None if attributes is None else attributes.repeat(2, 1),
    )


def induced_subgraph(graph: GraphBatch, kept: Tensor) -> GraphBatch:
    """The nodes where ``kept`` [N] is True and every edge between two of them.

    The view's ``origin`` is the index of each of its nodes in ``graph``.
    """
    nodes = kept.nonzero().squeeze(1)
    label = kept.cumsum(0) - 1
    view = keep_edges(graph, kept[graph.edge_index].all(0))
    return view.replace(
        x=graph.x.index_select(0, nodes),
        edge_index=label[view.edge_index],
        batch=graph.batch[nodes],
        origin=nodes,
    )


@dataclass(frozen=True, eq=False)
class NodePairs:
    """The unordered node pairs that a batch's edges join.

    Both directions of an undirected edge, and every repetition of it, are one pair. Arrays have
    ``E`` entries so that no size has to be read back; only the first ``number of pairs`` of
    ``keys`` are meaningful, the rest are larger than any key.

    Attributes:
        pair: The pair of each edge, shape ``[E]``.
        keys: The number of each pair among all node pairs of the batch, ascending, shape ``[E]``.
        graph: The graph of each pair, shape ``[E]``.
        loop: True at edges that join a node with itself, shape ``[E]``.
        per_graph: How many pairs of distinct nodes each graph joins, shape ``[B]``.
    """

    pair: Tensor
    keys: Tensor
    graph: Tensor
    loop: Tensor
    per_graph: Tensor


def pair_offsets(graph: GraphBatch) -> Tensor:
    """Where the numbers of each graph's node pairs begin, and the total, shape ``[B + 1]``."""
    n = graph.sizes
    return torch.cat([n.new_zeros(1), (n * (n - 1) // 2).cumsum(0)])


def joined_pairs(graph: GraphBatch) -> NodePairs:
    """Number the node pairs joined by the edges.

    The pair of the graph's u-th and v-th node, u < v, has number v (v - 1) / 2 + u within its
    graph. A self-loop gets a number behind all pairs, its own for each node.
    """
    source, target = graph.edge_index
    home = graph.batch[source]
    first = graph.ptr[home]
    u = torch.minimum(source, target) - first
    v = torch.maximum(source, target) - first
    offsets = pair_offsets(graph)
    loop = source == target
    key = torch.where(loop, offsets[-1] + source, offsets[home] + v * (v - 1) // 2 + u)

    ordered, order = key.sort(stable=True)
    new = torch.ones_like(loop)
    new[1:] = ordered[1:] != ordered[:-1]
    ordered_pair = new.cumsum(0) - 1
    pair = torch.empty_like(key).scatter(0, order, ordered_pair)
    beyond = torch.iinfo(key.dtype).max
    keys = torch.full_like(key, beyond).scatter(0, ordered_pair, ordered)
    counted = (new & ~loop[order]).long()
    return NodePairs(
        pair=pair,
        keys=keys,
        graph=torch.zeros_like(key).scatter(0, pair, home),
        loop=loop,
        per_graph=segment_sum(counted, home[order], graph.num_graphs),
    )


def pair_from_number(number: Tensor) -> tuple[Tensor, Tensor]:
    """The two nodes u < v of the pair with this number within its graph: v (v - 1) / 2 + u."""
    v = ((1 + (1 + 8 * number.double()).sqrt()) / 2).long()
    # The root is rounded: step to the exact answer, which is at most one away.
    v = torch.where(v * (v - 1) // 2 > number, v - 1, v)
    v = torch.where(v * (v + 1) // 2 <= number, v + 1, v)
    return number - v * (v - 1) // 2, v
