"""Discriminators: how well a node (or graph) of one view fits a graph of the other.

Each gives the matrix of scores of every row with every graph. ``scale`` is the probability of the
augmentation that made the encodings, with which the paper multiplies them (the skip connection
that carries the policy's gradient).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lg2ar.layers import MLP

# Numbers that one block of the MLP discriminator's hidden layer may hold: 256 MiB in float32.
BLOCK = 1 << 26


class Discriminator(nn.Module, ABC):
    """Scores of pairs of encodings.

    Args:
        hidden: Width of the encodings, ``d_h``.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden

    @abstractmethod
    def forward(
        self,
        rows: Tensor,
        graphs: Tensor,
        row_scale: Tensor | float = 1.0,
        graph_scale: Tensor | float = 1.0,
    ) -> Tensor:
        """Score every row with every graph.

        Args:
            rows: Node or graph encodings of one view, shape ``[R, d_h]``.
            graphs: Graph encodings of the other view, shape ``[B, d_h]``.
            row_scale: Probability that multiplies ``rows``.
            graph_scale: Probability that multiplies ``graphs``.

        Returns:
            Scores, shape ``[R, B]``.
        """

    @abstractmethod
    def paired(
        self,
        rows: Tensor,
        graphs: Tensor,
        row_scale: Tensor | float = 1.0,
        graph_scale: Tensor | float = 1.0,
    ) -> Tensor:
        """Score each row with the graph in the same place, both ``[R, d_h]``, shape ``[R]``."""


class Dot(Discriminator):
    r""":math:`\mathcal D(h_v, h_G) = h_v \cdot h_G`, the paper's choice.

    Examples:
        >>> rows, graphs = torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> Dot(hidden=2)(rows, graphs).tolist()
        [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
        >>> Dot(hidden=2).paired(rows, graphs[:2]).tolist()
        [1.0, 4.0]
    """

    def prepare(self, rows: Tensor, graphs: Tensor) -> tuple[Tensor, Tensor]:
        """What is done to the encodings before their product."""
        return rows, graphs

    def forward(
        self,
        rows: Tensor,
        graphs: Tensor,
        row_scale: Tensor | float = 1.0,
        graph_scale: Tensor | float = 1.0,
    ) -> Tensor:
        """Score every row with every graph, shape ``[R, B]``."""
        rows, graphs = self.prepare(rows, graphs)
        return (rows * row_scale) @ (graphs * graph_scale).T

    def paired(
        self,
        rows: Tensor,
        graphs: Tensor,
        row_scale: Tensor | float = 1.0,
        graph_scale: Tensor | float = 1.0,
    ) -> Tensor:
        """Score each row with the graph in the same place, shape ``[R]``."""
        rows, graphs = self.prepare(rows, graphs)
        return ((rows * row_scale) * (graphs * graph_scale)).sum(-1)


class Cosine(Dot):
    r""":math:`\mathcal D(h_v, h_G) = h_v \cdot h_G \,/\, (\|h_v\| \|h_G\|)`.

    The scales multiply the normalised encodings: a cosine forgets a factor, and with it the
    policy's only gradient (docs/paper.md, D9).
    """

    def prepare(self, rows: Tensor, graphs: Tensor) -> tuple[Tensor, Tensor]:
        """Bring every encoding to length one."""
        return F.normalize(rows), F.normalize(graphs)


class Bilinear(Dot):
    r""":math:`\mathcal D(h_v, h_G) = h_v^\top W h_G`."""

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.weight = nn.Parameter(torch.empty(hidden, hidden))
        nn.init.xavier_uniform_(self.weight)

    def prepare(self, rows: Tensor, graphs: Tensor) -> tuple[Tensor, Tensor]:
        """Multiply the graphs by the matrix."""
        return rows, graphs @ self.weight.T


class MLPDiscriminator(Discriminator):
    r""":math:`\mathcal D(h_v, h_G) = \mathrm{MLP}([h_v \parallel h_G])`.

    The first layer acts on both halves apart, ``W [h_v || h_G] = W_v h_v + W_G h_G``. The hidden
    layer of all pairs, ``R * B * d_h`` numbers, is made in blocks of rows and made again in the
    backward pass, so that memory stays linear in rows.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.mlp = MLP(2 * hidden, hidden, 1, layers=2)

    def forward(
        self,
        rows: Tensor,
        graphs: Tensor,
        row_scale: Tensor | float = 1.0,
        graph_scale: Tensor | float = 1.0,
    ) -> Tensor:
        """Score every row with every graph, shape ``[R, B]``."""
        left, right = self._hidden(rows * row_scale, graphs * graph_scale)
        step = max(1, BLOCK // max(1, right.numel()))
        if rows.size(0) <= step:
            return self._score(left, right)
        blocks = [
            checkpoint(self._score, block, right, use_reentrant=False)
            for block in torch.split(left, step)
        ]
        return torch.cat(blocks)

    def paired(
        self,
        rows: Tensor,
        graphs: Tensor,
        row_scale: Tensor | float = 1.0,
        graph_scale: Tensor | float = 1.0,
    ) -> Tensor:
        """Score each row with the graph in the same place, shape ``[R]``."""
        pairs = torch.cat([rows * row_scale, graphs * graph_scale], dim=-1)
        score: Tensor = self.mlp(pairs).squeeze(-1)
        return score

    def _hidden(self, rows: Tensor, graphs: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = self.mlp.first.weight, self.mlp.first.bias
        return rows @ weight[:, : self.hidden].T, graphs @ weight[:, self.hidden :].T + bias

    def _score(self, left: Tensor, right: Tensor) -> Tensor:
        score: Tensor = self.mlp.rest(left.unsqueeze(1) + right).squeeze(-1)
        return score


DISCRIMINATORS: dict[str, type[Discriminator]] = {
    "dot": Dot,
    "cosine": Cosine,
    "bilinear": Bilinear,
    "mlp": MLPDiscriminator,
}
