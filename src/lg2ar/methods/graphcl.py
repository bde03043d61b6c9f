"""GraphCL (You et al., 2020): augmentations drawn evenly, of fixed strength, nothing learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from lg2ar.config import Config
from lg2ar.discriminators import Cosine
from lg2ar.encoders import Encoder
from lg2ar.graph import GraphBatch
from lg2ar.model import (
    Method,
    Negatives,
    Objective,
    StepOutput,
    build_base_encoder,
    initialise_parts,
)
from lg2ar.mutual_information import nt_xent
from lg2ar.ops import (
    induced_subgraph,
    keep_edges,
    segment_mean,
    segment_rank,
    segment_sum,
    with_candidates,
)
from lg2ar.policy import Draw, RandomPolicy
from lg2ar.sampling import (
    gumbel_top_k,
    negative_edges,
    of_pairs,
    private_randomness,
    sample_one,
    uniform,
)

Augmentation = Callable[[GraphBatch, float, torch.Generator | None], GraphBatch]

# Sub-graphs grow by at most so many hops; whether they still do is looked up at every stride.
HOPS, STRIDE = 64, 4


class GraphCL(Method):
    """Two augmentations drawn evenly for the batch, their graphs told apart by NT-Xent.

    As LG2AR, and unlike GraphCL's code, one draw serves the whole batch, both views may be
    augmented, a graph's own pair stands among the candidates of the softmax, and the loss is the
    sum of both directions.

    Args:
        base_encoder: What is learned and kept.
        heads: Names of the augmentations to draw from.
        ratio: Share of nodes (edges, features) that an augmentation leaves alone.
        temperature: Of NT-Xent.
        negatives: ``graphs``, the others of the batch, or ``shuffled``, copies with the features
            of each graph in random order.
        replacement: Whether both draws may be the same augmentation.
    """

    def __init__(
        self,
        base_encoder: Encoder,
        heads: Sequence[str],
        ratio: float = 0.8,
        temperature: float = 0.5,
        negatives: Negatives = "graphs",
        replacement: bool = True,
    ) -> None:
        super().__init__()
        self.base_encoder = base_encoder
        self.discriminator = Cosine(base_encoder.out_features)
        self.policy = RandomPolicy(base_encoder.out_features, len(heads), replacement=replacement)
        self.augmentations = [AUGMENTATIONS[name] for name in heads]
        self.num_heads = len(heads)
        self.ratio = ratio
        bound = partial(nt_xent, temperature=temperature)
        self.objective = Objective(bound, "global-global", negatives)

    def parts(self) -> dict[str, list[nn.Module]]:
        """The encoder, every time; nothing else learns."""
        return {"base": [self.base_encoder]}

    def forward(self, graph: GraphBatch, generator: torch.Generator | None = None) -> StepOutput:
        """Draw two views of every graph in the batch and tell how well they agree."""
        source = self.base_encoder.prepare(graph)
        draw: Draw = self.policy(source.x, generator)  # reads nothing of it but type and device
        view_i = self.augmentations[draw.i](source, self.ratio, generator)
        view_j = self.augmentations[draw.j](source, self.ratio, generator)
        one = torch.ones((), device=graph.device)
        left = view_i, self.base_encoder(view_i), one
        right = view_j, self.base_encoder(view_j), one
        networks = self.base_encoder, self.discriminator
        there = self.objective.agreement(left, right, *networks, generator)
        back = self.objective.agreement(right, left, *networks, generator)
        return StepOutput(loss=-(there + back), draw=draw, views=(view_i, view_j))


def leave(graph: GraphBatch, ratio: float, generator: torch.Generator | None = None) -> GraphBatch:
    """The graph itself, as a view."""
    return graph.replace(origin=torch.arange(graph.num_nodes, device=graph.device))


def drop_nodes(
    graph: GraphBatch, ratio: float, generator: torch.Generator | None = None
) -> GraphBatch:
    """Keep a share of each graph's nodes, rounded up, all equally likely."""
    return induced_subgraph(graph, _some_nodes(graph, ratio, generator))


def perturb_edges(
    graph: GraphBatch, ratio: float, generator: torch.Generator | None = None
) -> GraphBatch:
    """Keep a share of each graph's edges, rounded up, and add as many others as were dropped.

    Edges are counted in pairs of nodes: both directions and all repetitions of an edge stay or go
    together. Self-loops stay. A graph with fewer non-edges than edges dropped gets all it has. A
    new edge has the weight and the attributes of one that was there.
    """
    negatives, valid, pair = negative_edges(graph, generator)
    source, target = graph.edge_index
    nowhere = graph.num_graphs  # the graph of loops, which are not counted
    home = torch.full_like(pair, nowhere)  # the graph of each pair of nodes, [E]
    home = home.scatter(0, pair, graph.batch[source].where(source != target, nowhere))
    offered = torch.zeros_like(valid).scatter(0, pair, valid)
    joined = segment_sum(torch.ones_like(home), home, nowhere + 1)
    swapped = joined - _kept(joined, ratio)  # how many of each graph's, [B + 1]
    swapped[nowhere] = 0
    pairs = joined[:nowhere].sum()
    dropped = _random_rank(home, nowhere + 1, pairs, generator) < swapped[home]
    home = home.where(offered, nowhere)
    added = _random_rank(home, nowhere + 1, pairs, generator) < swapped[home]

    both = with_candidates(leave(graph, ratio), negatives)  # [2, 2E]
    return keep_edges(both, torch.cat([~dropped[pair], added[pair]]))


def cut_sub_graph(
    graph: GraphBatch, ratio: float, generator: torch.Generator | None = None
) -> GraphBatch:
    """Keep the share of each graph's nodes, rounded up, that lies nearest to a random node.

    Where not all nodes at the same distance find room, chance decides. Nodes that cannot be
    reached, or only by more than ``HOPS`` hops, count as the farthest.
    """
    even = graph.x.new_zeros(graph.num_nodes, dtype=torch.float64)
    distance = _distance(graph, sample_one(even, graph, generator))
    ties = uniform(graph.num_nodes, device=graph.device, generator=generator)
    kept = segment_rank(ties - distance, graph) < _kept(graph.sizes, ratio)[graph.batch]
    return induced_subgraph(graph, kept)


def mask_features(
    graph: GraphBatch, ratio: float, generator: torch.Generator | None = None
) -> GraphBatch:
    """Keep the features of a share of each graph's nodes, rounded up; the rest get their mean.

    The mean is that of the graph's nodes, as in GraphCL's code for unsupervised learning. (Its code
    for few labels draws them from a normal distribution around one half instead, which says
    nothing about features of another scale, such as degrees.)
    """
    kept = _some_nodes(graph, ratio, generator).unsqueeze(-1)
    mean = segment_mean(graph.x, graph.batch, graph.num_graphs)[graph.batch]
    return leave(graph, ratio).replace(x=graph.x.where(kept, mean))


AUGMENTATIONS: dict[str, Augmentation] = {
    "identity": leave,
    "node-dropping": drop_nodes,
    "edge-perturbation": perturb_edges,
    "sub-graph": cut_sub_graph,
    "feature-masking": mask_features,
}


def _some_nodes(graph: GraphBatch, ratio: float, generator: torch.Generator | None) -> Tensor:
    """True at a share of each graph's nodes, rounded up, all equally likely, shape ``[N]``."""
    even = graph.x.new_zeros(graph.num_nodes, dtype=torch.float64)
    return gumbel_top_k(even, graph, ratio, generator)


def _kept(counts: Tensor, ratio: float) -> Tensor:
    """A share of some counts, rounded up; rounding of the product itself must not add one."""
    return (ratio * counts.double() - 1e-9).ceil().long()


def _random_rank(
    segment: Tensor, num_segments: int, pairs: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Put the pairs of each segment in random order: the place of each, shape ``[E]``."""
    keys = of_pairs(len(segment), pairs, generator)
    order = keys.argsort()
    order = order[segment[order].argsort(stable=True)]
    count = segment_sum(torch.ones_like(segment), segment, num_segments)
    first = count.cumsum(0) - count
    place = torch.arange(len(segment), device=segment.device) - first[segment[order]]
    return torch.empty_like(place).scatter(0, order, place)


def _distance(graph: GraphBatch, start: Tensor) -> Tensor:
    """Hops from the start nodes to each node, at most ``HOPS + 1``, shape ``[N]``."""
    ends = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1)  # walked both ways
    distance = torch.full_like(graph.batch, HOPS + 1).masked_fill(start, 0)
    for hop in range(1, HOPS + 1):
        ahead = distance.index_select(0, ends[0]) + 1
        distance = distance.scatter_reduce(0, ends[1], ahead, "amin")
        # Only now and then is it worth waiting for the device to hear that no hop is left to take.
        if hop % STRIDE == 0 and not bool((distance == hop).any()):
            break
    return distance


def build(config: Config, num_features: int, num_edge_features: int = 0) -> GraphCL:
    """Make GraphCL of a config's parts; its base encoder starts as LG2AR's of the same seed.

    Discriminator (cosine), bound (NT-Xent) and contrast (graphs with graphs) are GraphCL's own,
    whatever the config says of them.

    Args:
        config: The settings.
        num_features: Width of the node features, ``d_x``.
        num_edge_features: Width of the edge attributes, ``d_e``.
    """
    with private_randomness():
        encoder = build_base_encoder(config, num_features, num_edge_features)
        initialise_parts({"base encoder": encoder}, config.seed)
    return GraphCL(
        encoder,
        config.heads,
        ratio=config.ratio,
        temperature=config.bound_temperature,
        negatives=cast(Negatives, config.negatives),
        replacement=config.replacement,
    )
