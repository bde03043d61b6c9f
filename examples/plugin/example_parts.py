"""Parts of one's own for lg2ar; `pip install examples/plugin` makes their names settings.

lg2ar pretrain toy-graphs --out runs/own \
    --set heads=identity,feature-noise --set policy=linear --set bound=hinge
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lg2ar.config import Config
from lg2ar.discriminators import Discriminator
from lg2ar.graph import Encoding, GraphBatch
from lg2ar.heads import Head
from lg2ar.policy import Policy


class FeatureNoise(Head):
    """Adds noise to the features of every node, as much as an encoding of the node asks for.

    Args:
        hidden: Width of the encodings.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.scale = nn.Linear(hidden, 1)

    def forward(
        self, graph: GraphBatch, encoding: Encoding, generator: torch.Generator | None = None
    ) -> GraphBatch:
        """Cut a view with the same structure and noisy features."""
        device = graph.device if generator is None else generator.device
        noise = torch.randn(graph.x.shape, generator=generator, device=device).to(graph.x)
        scale = F.softplus(self.scale(encoding.nodes))  # [N, 1]; the gradient's way to this head
        origin = torch.arange(graph.num_nodes, device=graph.device)
        return graph.replace(x=graph.x + scale * noise, origin=origin)


class LinearPolicy(Policy):
    """Scores the augmentations by one linear layer on the mean of the graph encodings.

    Args:
        hidden: Width of the encodings.
        num_heads: Number of augmentations.
        temperature: Divides the logits.
        replacement: Whether both draws may be the same augmentation.
    """

    def __init__(self, hidden: int, num_heads: int, temperature: float, replacement: bool) -> None:
        super().__init__(num_heads, temperature, replacement)
        self.output = nn.Linear(hidden, num_heads)

    def logits(self, graphs: Tensor) -> Tensor:
        """Score each augmentation, shape ``[T]``."""
        score: Tensor = self.output(graphs.mean(0))
        return score


def make_feature_noise(config: Config, num_features: int) -> FeatureNoise:
    """What the name ``feature-noise`` stands for."""
    return FeatureNoise(config.hidden)


def make_linear_policy(config: Config) -> LinearPolicy:
    """What the name ``linear`` stands for."""
    return LinearPolicy(config.hidden, len(config.heads), config.temperature, config.replacement)


def hinge(scores: Tensor, positive: Tensor, weight: Tensor | None = None) -> Tensor:
    """Minus the hinge loss of telling positive pairs from negative ones, to be maximised.

    Args:
        scores: Of every row with every candidate, shape ``[R, C]``.
        positive: True where the pair belongs together, shape ``[R, C]``.
        weight: How much each row counts, shape ``[R]``; None counts all alike.
    """
    rows = scores.new_ones(scores.size(0)) if weight is None else weight.to(scores.dtype)
    short = (1 - scores).relu().where(positive, (1 + scores).relu())  # [R, C]
    joint = (short * positive).sum(1) / positive.sum(1).clamp(min=1)
    product = (short * ~positive).sum(1) / (~positive).sum(1).clamp(min=1)
    return -((joint + product) * rows).sum() / rows.sum()


class Distance(Discriminator):
    """Minus the distance of two encodings: the nearer, the better they fit."""

    def forward(
        self,
        rows: Tensor,
        graphs: Tensor,
        row_scale: Tensor | float = 1.0,
        graph_scale: Tensor | float = 1.0,
    ) -> Tensor:
        """Score every row with every graph, shape ``[R, B]``."""
        return -torch.cdist(rows * row_scale, graphs * graph_scale)

    def paired(
        self,
        rows: Tensor,
        graphs: Tensor,
        row_scale: Tensor | float = 1.0,
        graph_scale: Tensor | float = 1.0,
    ) -> Tensor:
        """Score each row with its own graph, shape ``[R]``."""
        apart = rows * row_scale - graphs * graph_scale
        distance: Tensor = apart.square().sum(-1).sqrt()
        return -distance


def make_distance(config: Config, width: int) -> Distance:
    """What the name ``distance`` stands for."""
    return Distance(width)
