"""Node dropping (Algorithm 3)."""

from __future__ import annotations

import torch

from lg2ar.graph import Encoding, GraphBatch
from lg2ar.heads.base import EdgeWeighting, Head, NodeScores, node_edge_weight
from lg2ar.ops import induced_subgraph, segment_softmax
from lg2ar.sampling import gumbel_top_k


class NodeDropping(Head):
    r"""Keeps a share of each graph's nodes, drawn by Gumbel-Top-K.

    .. math::
        p(V) = \mathrm{softmax}\, \mathrm{MLP}([H_v \parallel h_g]), \quad
        V' \sim \text{Top-K}(p(V), \mu), \quad w_{ij} = p(v_i) + p(v_j)

    Args:
        hidden: Width of the encodings, ``d_h``.
        ratio: Share of nodes **kept**, :math:`\mu`; the number is rounded up.
        edge_weighting: How probabilities become weights (docs/paper.md, D7).

    Examples:
        >>> from lg2ar.data.toy import toy_graphs
        >>> from lg2ar.encoders import GIN, Encoder
        >>> graph = toy_graphs(4).graph
        >>> encoding = Encoder(GIN(graph.num_features, 8, layers=1), hidden=8)(graph)
        >>> view = NodeDropping(hidden=8, ratio=0.5)(graph, encoding)
        >>> torch.equal(view.sizes, (graph.sizes / 2).ceil().long())
        True
    """

    def __init__(
        self, hidden: int, ratio: float = 0.8, edge_weighting: EdgeWeighting = "relative"
    ) -> None:
        super().__init__()
        self.scores = NodeScores(hidden)
        self.ratio = ratio
        self.edge_weighting = edge_weighting

    def forward(
        self, graph: GraphBatch, encoding: Encoding, generator: torch.Generator | None = None
    ) -> GraphBatch:
        """Cut the sub-graph induced by the kept nodes."""
        logits = self.scores(graph, encoding)  # [N]
        p = segment_softmax(logits, graph.batch, graph.num_graphs)  # p(V)
        kept = gumbel_top_k(logits, graph, self.ratio, generator)  # V'
        w = node_edge_weight(graph, p, self.edge_weighting)  # W_E
        return induced_subgraph(graph.replace(edge_weight=w), kept)  # E', X'
