"""How each of many problems sees the rows that they share.

A problem's own rows are a linear map of the shared ones: ``z_i = x_i T``, the last entry of ``x_i``
a constant one. They are never written out, since :math:`x_i T w = x_i (T w)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Lens(Protocol):
    """Maps ``T``, one for each of ``Q`` problems."""

    def apply(self, w: Tensor) -> Tensor:
        """``T w``, ``[Q, r]``."""

    def adjoint(self, v: Tensor) -> Tensor:
        """``T' v``, ``[Q, r]``."""

    def undo(self, v: Tensor) -> Tensor:
        """``T^-1 v``, ``[Q, r]``."""

    def undo_adjoint(self, w: Tensor) -> Tensor:
        """``T'^-1 w``, ``[Q, r]``."""

    def rows(self, x: Tensor) -> Tensor:
        """``x T``, some rows for each problem: ``[Q, m, r]``, which may be overwritten."""

    def select(self, index: Tensor) -> Lens:
        """The maps of some problems."""


@dataclass(frozen=True)
class Scaling:
    """Affine scaling of features, one for each problem: ``(x - shift) * factor``.

    Attributes:
        shift: Means of the training rows, ``[problems, d]``.
        factor: One over their standard deviations, 0 for constant columns, ``[problems, d]``.
    """

    shift: Tensor
    factor: Tensor

    def scaled(self, x: Tensor) -> Tensor:
        """The scaled rows ``[problems, n, d]`` of ``x``, ``[n, d]``."""
        return (x - self.shift[:, None]) * self.factor[:, None]

    def apply(self, w: Tensor) -> Tensor:
        """From weights of scaled features to those of the features, ``[problems, d + 1]``."""
        v = w[:, :-1] * self.factor
        return torch.cat([v, w[:, -1:] - (v * self.shift).sum(1, keepdim=True)], dim=1)

    def adjoint(self, v: Tensor) -> Tensor:
        """The transpose of :meth:`apply`."""
        b = v[:, -1:]
        return torch.cat([(v[:, :-1] - self.shift * b) * self.factor, b], dim=1)

    def undo(self, v: Tensor) -> Tensor:
        """The inverse of :meth:`apply`; a constant column's weight stays as it is."""
        b = v[:, -1:] + (v[:, :-1] * self.shift).sum(1, keepdim=True)
        return torch.cat([v[:, :-1] * self._inverse, b], dim=1)

    def undo_adjoint(self, w: Tensor) -> Tensor:
        """The transpose of :meth:`undo`."""
        b = w[:, -1:]
        return torch.cat([w[:, :-1] * self._inverse + self.shift * b, b], dim=1)

    def rows(self, x: Tensor) -> Tensor:
        """Scale rows that end in a one, in place: ``[problems, m, d + 1]``."""
        x[..., :-1] -= self.shift[:, None]
        x[..., :-1] *= self.factor[:, None]
        return x

    def select(self, index: Tensor) -> Scaling:
        """The scalings of some problems."""
        return Scaling(self.shift[index], self.factor[index])

    @property
    def _inverse(self) -> Tensor:
        return torch.where(self.factor > 0, 1 / self.factor, 1.0)


@dataclass(frozen=True)
class Unscaled:
    """Every problem sees the shared rows."""

    def apply(self, w: Tensor) -> Tensor:
        """``w`` itself, as in all that follow."""
        return w

    adjoint = undo = undo_adjoint = rows = apply

    def select(self, index: Tensor) -> Unscaled:
        """The same."""
        return self


class Groups:
    """Problems that share a matrix, for one batched product over all of them.

    Args:
        number: The group of each problem, on the CPU, ``[Q]``.
        device: Where the products are made.

    Attributes:
        numbers: The groups there are, ascending, ``[G]``.
    """

    def __init__(self, number: Tensor, device: torch.device) -> None:
        self.numbers, place, count = torch.unique(number, return_inverse=True, return_counts=True)
        order = place.argsort(stable=True)
        first = count.cumsum(0) - count
        # Each group's problems in a row of their own; what pads it points behind the last problem.
        members = torch.full((len(count), int(count.max())), len(number))
        within = torch.arange(len(number)) - first.repeat_interleave(count)
        members[place[order], within] = order
        self._members = members.to(device)

    def product(self, w: Tensor, matrices: Tensor) -> Tensor:
        """``w_q M`` with its group's matrix ``M``: ``[Q, a]`` and ``[G, a, b]`` to ``[Q, b]``."""
        padded = torch.cat([w, w.new_zeros(1, w.shape[1])])[self._members]
        out = w.new_empty(len(w) + 1, matrices.shape[2])
        out[self._members] = padded @ matrices
        return out[:-1]


class Dense:
    """Maps that are triangular matrices, problems of the same fold sharing theirs.

    Args:
        maps: ``T`` of each fold, lower triangular, ``[F, r, r]``.
        inverse: Their inverses, ``[F, r, r]``.
        fold: Of each problem, on the CPU, ``[Q]``.
    """

    def __init__(self, maps: Tensor, inverse: Tensor, fold: Tensor) -> None:
        self._all, self._fold, self._groups = (maps, inverse), fold, Groups(fold, maps.device)
        present = self._groups.numbers.to(maps.device)
        some = len(present) < len(maps)
        self._maps, self._inverse = (maps[present], inverse[present]) if some else (maps, inverse)

    def apply(self, w: Tensor) -> Tensor:
        """``T w``, ``[Q, r]``."""
        return self._groups.product(w, self._maps.mT)

    def adjoint(self, v: Tensor) -> Tensor:
        """``T' v``, ``[Q, r]``."""
        return self._groups.product(v, self._maps)

    def undo(self, v: Tensor) -> Tensor:
        """``T^-1 v``, ``[Q, r]``."""
        return self._groups.product(v, self._inverse.mT)

    def undo_adjoint(self, w: Tensor) -> Tensor:
        """``T'^-1 w``, ``[Q, r]``."""
        return self._groups.product(w, self._inverse)

    def rows(self, x: Tensor) -> Tensor:
        """``x T``, some rows for each problem, ``[Q, m, r]``."""
        return x @ self._all[0][self._fold.to(x.device)]

    def select(self, index: Tensor) -> Dense:
        """The maps of some problems."""
        return Dense(*self._all, self._fold[index.cpu()])


def standardise(x: Tensor, masks: Tensor) -> Scaling:
    """Scaling of each problem's features by its training rows alone.

    Args:
        x: Rows, ``[n, d]``.
        masks: True where a row is for training, ``[problems, n]``.

    Returns:
        Mean 0 and standard deviation 1 on the training rows, as ``StandardScaler`` makes them; a
        column that is constant there becomes zero.
    """
    weight = masks.to(x)
    count = weight.sum(1, keepdim=True).clamp(min=1)
    centre = x.mean(0)  # taken off first, so that the sums round little
    mean = weight @ (x - centre) / count + centre
    # Around each problem's own mean: a column may be constant but for one row that it lacks. And
    # once more for the mean itself, as such a row, if large, has left its rounding there.
    each = list(zip(weight, mean, count, strict=True))
    mean = torch.stack([middle + own @ (x - middle) / size for own, middle, size in each])
    pairs = zip(weight, mean, strict=True)
    variance = torch.stack([own @ (x - middle).square() for own, middle in pairs]) / count
    # scikit-learn's bound of what rounding leaves of a constant column.
    eps = torch.finfo(torch.float64).eps
    noise = count * eps * variance + (count * eps * mean).square()
    return Scaling(mean, torch.where(variance > noise, variance.rsqrt(), 0.0))
