"""Sub-graph inducing (Algorithm 2)."""

from __future__ import annotations

import torch

from lg2ar.graph import Encoding, GraphBatch
from lg2ar.heads.base import EdgeWeighting, Head, NodeScores, node_edge_weight
from lg2ar.ops import induced_subgraph, k_hop, segment_softmax
from lg2ar.sampling import sample_one


class SubGraph(Head):
    r"""Keeps what lies within K hops of one drawn node per graph.

    .. math::
        p(V) = \mathrm{softmax}\, \mathrm{MLP}([H_v \parallel h_g]), \quad
        v_{center} \sim p(V), \quad w_{ij} = p(v_i) + p(v_j)

    Args:
        hidden: Width of the encodings, ``d_h``.
        hops: How far to walk from the centre, ``K``.
        edge_weighting: How probabilities become weights (docs/paper.md, D7).
    """

    def __init__(
        self, hidden: int, hops: int = 3, edge_weighting: EdgeWeighting = "relative"
    ) -> None:
        super().__init__()
        self.scores = NodeScores(hidden)
        self.hops = hops
        self.edge_weighting = edge_weighting

    def forward(
        self, graph: GraphBatch, encoding: Encoding, generator: torch.Generator | None = None
    ) -> GraphBatch:
        """Cut the sub-graph around the drawn centres."""
        logits = self.scores(graph, encoding)  # [N]
        p = segment_softmax(logits, graph.batch, graph.num_graphs)  # p(V)
        centre = sample_one(logits, graph, generator)  # v_center
        kept = k_hop(graph, centre, self.hops)  # V'
        w = node_edge_weight(graph, p, self.edge_weighting)  # W_E
        return induced_subgraph(graph.replace(edge_weight=w), kept)  # E', X'
