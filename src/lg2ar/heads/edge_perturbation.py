"""Edge perturbation (Algorithm 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from lg2ar.graph import Encoding, GraphBatch
from lg2ar.heads.base import EdgeWeighting, Head, edge_weight
from lg2ar.layers import MLP, attributes_of
from lg2ar.ops import keep_edges, segment_mean, with_candidates
from lg2ar.sampling import negative_edges, pair_coins, relaxed_bernoulli


class EdgePerturbation(Head):
    r"""Keeps or drops each edge, and adds some of as many non-edges.

    .. math::
        p(e_{ij}) = \sigma\, \mathrm{MLP}([h_{v_i} + h_{v_j} \parallel 1_E(e_{ij})]), \quad
        e_{ij} \sim \mathrm{Bernoulli}(p(e_{ij})), \quad w_{ij} = p(e_{ij})

    Both directions of an edge are kept or dropped together, and so are repetitions. All nodes
    stay: a graph that loses every edge is a set of isolated nodes (docs/paper.md, D8).

    Where edges have attributes, the MLP reads :math:`[h_{v_i} + h_{v_j} \parallel e_{ij} \parallel
    1_E(e_{ij})]`, with the mean over the edges of a pair of nodes; a non-edge has the attributes of
    the edge it was drawn for (docs/paper.md, D17).

    Args:
        hidden: Width of the encodings, ``d_h``.
        temperature: Of the relaxed Bernoulli draw, :math:`t`.
        edge_weighting: ``straight-through`` gives weights of value one (docs/paper.md, D7).
        num_edge_features: Width of the edge attributes, ``d_e``; 0 does not look at them.
    """

    def __init__(
        self,
        hidden: int,
        temperature: float = 1.0,
        edge_weighting: EdgeWeighting = "relative",
        num_edge_features: int = 0,
    ) -> None:
        super().__init__()
        self.mlp = MLP(hidden + num_edge_features + 1, hidden, 1, layers=2)
        self.num_edge_features = num_edge_features
        self.temperature = temperature
        self.edge_weighting = edge_weighting

    def forward(
        self, graph: GraphBatch, encoding: Encoding, generator: torch.Generator | None = None
    ) -> GraphBatch:
        """Cut a view with the same nodes and other edges."""
        negatives, valid, pair = negative_edges(graph, generator)  # E-bar
        logits = self._by_pair(encoding.nodes, graph, negatives, pair)
        # One coin per pair of nodes: its edges, in both directions, share the noise.
        coins = pair_coins(graph, pair)
        drawn = relaxed_bernoulli(logits.detach(), self.temperature, generator, share=coins) > 0.5
        kept = drawn & torch.cat([torch.ones_like(valid), valid])
        both = with_candidates(graph, negatives)  # [2, 2E]
        w = edge_weight(both, logits.sigmoid(), self.edge_weighting)  # W_E = p(e)
        origin = torch.arange(graph.num_nodes, device=graph.device)
        return keep_edges(both.replace(edge_weight=w, origin=origin), kept)

    def _by_pair(self, nodes: Tensor, graph: GraphBatch, negatives: Tensor, pair: Tensor) -> Tensor:
        """Logits of the edges and of their negatives, ``[2E]``, computed once for each pair.

        Both directions of an edge, and repetitions, have the same ends and so the same logit.
        """
        edges = graph.edge_index
        number = pair.numel()
        if number and pair.device.type == "cpu":  # a GPU would have to be waited for
            number = int(pair.max()) + 1
        some = pair.new_zeros(number)  # an edge of each pair, any of them
        some[pair] = torch.arange(pair.numel(), device=pair.device)
        exists = torch.arange(2 * number, device=pair.device) < number
        ends = torch.cat([edges.index_select(1, some), negatives.index_select(1, some)], dim=1)
        attributes = None
        if self.num_edge_features:
            listed = attributes_of(graph, self.num_edge_features)
            attributes = segment_mean(listed, pair, number).repeat(2, 1)
        logits = self.logits(nodes, ends, exists, attributes)
        own, new = logits.view(2, number)
        return torch.cat([own.index_select(0, pair), new.index_select(0, pair)])

    def logits(
        self, nodes: Tensor, edge_index: Tensor, exists: Tensor, attributes: Tensor | None = None
    ) -> Tensor:
        """One logit per candidate edge, shape ``[len(exists)]``.

        Args:
            nodes: Node encodings, shape ``[N, d_h]``.
            edge_index: The candidates' ends.
            exists: Whether each is an edge of the graph.
            attributes: Of each candidate, shape ``[len(exists), d_e]``, where the head reads some.
        """
        # W [h_i + h_j || 1] = W h_i + W h_j + w 1: multiply nodes, of which there are fewer.
        weight, bias = self.mlp.first.weight, self.mlp.first.bias
        width = nodes.size(1)
        per_node = nodes @ weight[:, :width].T
        source, target = edge_index
        hidden = per_node.index_select(0, source) + per_node.index_select(0, target)
        hidden = hidden + exists.unsqueeze(-1) * weight[:, -1] + bias
        if attributes is not None:
            hidden = hidden + attributes @ weight[:, width:-1].T
        logits: Tensor = self.mlp.rest(hidden).squeeze(-1)
        return logits
