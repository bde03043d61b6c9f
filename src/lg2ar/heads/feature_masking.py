"""Feature masking (Algorithm 5)."""

from __future__ import annotations

import torch
from torch import nn

from lg2ar.graph import Encoding, GraphBatch
from lg2ar.heads.base import Head
from lg2ar.layers import MLP
from lg2ar.sampling import relaxed_bernoulli, straight_through


class FeatureMasking(Head):
    r"""Projects the features and sets some to zero, per node and dimension.

    .. math::
        X' = \mathrm{Linear}(X) \odot M, \qquad
        M \sim \mathrm{Bernoulli}(\sigma\, \mathrm{MLP}(H_v))

    The mask is zero or one; its gradient is that of the relaxed draw.

    Args:
        num_features: Width of the node features, ``d_x``.
        hidden: Width of the encodings, ``d_h``.
        temperature: Of the relaxed Bernoulli draw, :math:`t`.
        projection: Whether this head projects the features itself, to the same width. It is False
            where the base encoder projects for all views alike, or nothing does (docs/paper.md,
            D6).
    """

    def __init__(
        self, num_features: int, hidden: int, temperature: float = 1.0, projection: bool = True
    ) -> None:
        super().__init__()
        self.mlp = MLP(hidden, hidden, num_features, layers=2)
        self.projection: nn.Module = nn.Identity()
        if projection:
            self.projection = nn.Linear(num_features, num_features)
        self.temperature = temperature

    def forward(
        self, graph: GraphBatch, encoding: Encoding, generator: torch.Generator | None = None
    ) -> GraphBatch:
        """Cut a view with the same structure and masked features."""
        soft = relaxed_bernoulli(self.mlp(encoding.nodes), self.temperature, generator)
        mask = straight_through((soft > 0.5).to(soft.dtype), soft)  # M, [N, d_x]
        origin = torch.arange(graph.num_nodes, device=graph.device)
        return graph.replace(x=self.projection(graph.x) * mask, origin=origin)
