"""The contract of a head, and how a head's probabilities become edge weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from lg2ar.graph import Encoding, GraphBatch
from lg2ar.layers import MLP
from lg2ar.sampling import straight_through

EdgeWeighting = Literal["printed", "relative", "straight-through"]


class Head(nn.Module, ABC):
    """An augmentation that learns the distribution of its own parameters.

    A head cuts one view of every graph in the batch. It adds no node, joins no two graphs, leaves
    no graph without nodes, and does not touch its input.
    """

    @abstractmethod
    def forward(
        self, graph: GraphBatch, encoding: Encoding, generator: torch.Generator | None = None
    ) -> GraphBatch:
        """Cut a view.

        Args:
            graph: The batch.
            encoding: What the augmentation encoder made of it.
            generator: Source of randomness.

        Returns:
            The view, its ``origin`` pointing into ``graph``.
        """


class NodeScores(nn.Module):
    """The two-layer MLP on ``[h_v || h_g]`` that node dropping and sub-graph inducing share.

    Args:
        hidden: Width of the encodings, ``d_h``.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.mlp = MLP(2 * hidden, hidden, 1, layers=2)

    def forward(self, graph: GraphBatch, encoding: Encoding) -> Tensor:
        """One logit per node, shape ``[N]``."""
        # W [h_v || h_g] = W_v h_v + W_g h_g: h_g is multiplied once per graph, not per node.
        weight, bias = self.mlp.first.weight, self.mlp.first.bias
        width = encoding.nodes.size(1)
        per_graph = encoding.graphs @ weight[:, width:].T + bias
        hidden = encoding.nodes @ weight[:, :width].T + per_graph[graph.batch]
        logits: Tensor = self.mlp.rest(hidden).squeeze(-1)
        return logits


def node_edge_weight(graph: GraphBatch, p: Tensor, weighting: EdgeWeighting) -> Tensor:
    r"""Edge weights from node probabilities, :math:`w_{ij} = p(v_i) + p(v_j)`.

    Args:
        graph: The batch, whose own weights are multiplied in.
        p: Probability of each node within its graph, shape ``[N]``.
        weighting: ``printed`` as above; ``relative`` times :math:`|V| / 2`, one where all nodes are
            equally likely; ``straight-through`` of value one with the gradient of ``relative``.

    Returns:
        Weights, shape ``[E]``.
    """
    if weighting != "printed":
        p = p * (graph.sizes[graph.batch] / 2)
    source, target = graph.edge_index
    return edge_weight(graph, p[source] + p[target], weighting)


def edge_weight(graph: GraphBatch, w: Tensor, weighting: EdgeWeighting) -> Tensor:
    """A head's edge weights ``[E]``, the graph's own multiplied in, the value as ``weighting``."""
    if weighting == "straight-through":
        w = straight_through(torch.ones_like(w), w)
    return w if graph.edge_weight is None else w * graph.edge_weight
