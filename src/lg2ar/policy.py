"""The policy (Section 3.2): which two augmentations a batch gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lg2ar.distributed import same
from lg2ar.layers import MLP
from lg2ar.recurrence import last_state

# A probability that is as good as none, and can still be divided by.
NEVER = 1e-30


@dataclass(frozen=True, eq=False)
class Draw:
    r"""Two augmentations drawn for a batch.

    Attributes:
        i: Place of the first augmentation in the list of heads.
        j: Place of the second.
        p_i: Probability of the first, a scalar that carries the policy's gradient.
        p_j: Probability of the second.
        probabilities: The whole distribution, shape ``[T]``.
    """

    i: int
    j: int
    p_i: Tensor
    p_j: Tensor
    probabilities: Tensor


class Policy(nn.Module, ABC):
    r"""A categorical distribution over the augmentations, given a batch.

    .. math::
        p = \mathrm{softmax}\big(r_\mu(H_g) / t\big), \qquad i, j \sim p

    Args:
        num_heads: Number of augmentations to choose from, ``T``.
        temperature: :math:`t`, which divides the logits.
        replacement: Whether both draws may be the same augmentation.
    """

    def __init__(self, num_heads: int, temperature: float = 1.0, replacement: bool = True) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"a policy needs at least one augmentation, got {num_heads}")
        self.num_heads = num_heads
        self.temperature = temperature
        # With a single augmentation both views are made by it, whatever was asked for.
        self.replacement = replacement or num_heads == 1

    @abstractmethod
    def logits(self, graphs: Tensor) -> Tensor:
        """Score each augmentation for graph encodings ``[B, d_h]``, shape ``[T]``."""

    def forward(self, graphs: Tensor, generator: torch.Generator | None = None) -> Draw:
        """Draw two augmentations for a batch of graph encodings ``[B, d_h]``."""
        p = (self.logits(graphs) / self.temperature).softmax(-1)
        # A broken policy (NaN) draws evenly; the loss is NaN all the same, and training says so.
        # Left as it is, the draw would take the whole CUDA context down.
        source = p.detach().nan_to_num(nan=1.0)
        if not self.replacement:  # where no other has a chance left, all others have the same
            source = source.clamp(min=NEVER)
        source = source if generator is None else source.to(generator.device)
        pair = torch.multinomial(source, 2, self.replacement, generator=generator)
        i, j = same(pair.tolist())  # the step's one look at the policy: which heads are to run
        return Draw(i=i, j=j, p_i=p[i], p_j=p[j], probabilities=p)


class GRUPolicy(Policy):
    """Graph encodings in the order of their L2 norm through a GRU; its last state decides.

    Sorting makes the policy ignore the order of the graphs within the batch.

    Args:
        hidden: Width of the graph encodings and of the GRU, ``d_h``.
        num_heads: Number of augmentations, ``T``.
        temperature: Divides the logits.
        replacement: Whether both draws may be the same augmentation.

    Examples:
        >>> graphs = torch.randn(8, 4)
        >>> draw = GRUPolicy(hidden=4, num_heads=5)(graphs)
        >>> draw.i in range(5), draw.probabilities.shape
        (True, torch.Size([5]))
    """

    def __init__(
        self, hidden: int, num_heads: int, temperature: float = 1.0, replacement: bool = True
    ) -> None:
        super().__init__(num_heads, temperature, replacement)
        self.gru = nn.GRU(hidden, hidden)
        self.output = nn.Linear(hidden, num_heads)

    def logits(self, graphs: Tensor) -> Tensor:
        """Score each augmentation, shape ``[T]``."""
        h = graphs.detach()
        # Where norms are equal a fixed direction decides, never the place in the batch.
        order = (h @ torch.arange(h.size(1), device=h.device, dtype=h.dtype).cos()).argsort()
        order = order[h[order].norm(dim=-1).argsort(stable=True)]
        score: Tensor = self.output(self._last(graphs[order]))
        return score

    def _last(self, ordered: Tensor) -> Tensor:
        """The GRU's last state, ``[d_h]``."""
        if ordered.device.type == "cpu":
            names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
            return last_state(ordered, *(self.gru.get_parameter(name) for name in names))
        _, last = self.gru(ordered.unsqueeze(1))  # [1, 1, d_h]
        state: Tensor = last.flatten()
        return state


class DeepSetPolicy(Policy):
    """Graph encodings projected, averaged over the batch, and read by a second MLP.

    Args:
        hidden: Width of the graph encodings, ``d_h``.
        num_heads: Number of augmentations, ``T``.
        temperature: Divides the logits.
        replacement: Whether both draws may be the same augmentation.
    """

    def __init__(
        self, hidden: int, num_heads: int, temperature: float = 1.0, replacement: bool = True
    ) -> None:
        super().__init__(num_heads, temperature, replacement)
        self.element = MLP(hidden, hidden, hidden, layers=2)
        self.batch = MLP(hidden, hidden, num_heads, layers=2)

    def logits(self, graphs: Tensor) -> Tensor:
        """Score each augmentation, shape ``[T]``."""
        score: Tensor = self.batch(self.element(graphs).mean(0))
        return score


class RandomPolicy(Policy):
    """Every augmentation equally likely, whatever the batch; nothing is learned.

    Args:
        hidden: Not used; all policies are made alike.
        num_heads: Number of augmentations, ``T``.
        temperature: Not used.
        replacement: Whether both draws may be the same augmentation.

    Examples:
        >>> RandomPolicy(hidden=4, num_heads=4)(torch.randn(8, 4)).probabilities.tolist()
        [0.25, 0.25, 0.25, 0.25]
    """

    def __init__(
        self, hidden: int, num_heads: int, temperature: float = 1.0, replacement: bool = True
    ) -> None:
        super().__init__(num_heads, temperature, replacement)

    def logits(self, graphs: Tensor) -> Tensor:
        """Equal scores, shape ``[T]``."""
        return graphs.new_zeros(self.num_heads)


POLICIES: dict[str, type[GRUPolicy] | type[DeepSetPolicy] | type[RandomPolicy]] = {
    "gru": GRUPolicy,
    "deepset": DeepSetPolicy,
    "random": RandomPolicy,
}
