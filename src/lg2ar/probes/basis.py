r"""Rows in a basis of their principal directions, as wide as the problem at hand needs.

Embeddings are often far wider than what they say: read-outs of untrained or collapsed encoders
have columns that are nearly multiples of others. Rotating the rows does not change a linear SVM.
Leaving out directions in which all rows together have length :math:`\tau` changes its optimum by
a share of at most :math:`2 C \tau^2`: the dual falls by :math:`\tfrac12 \tau^2 \|\alpha\|^2`, and
:math:`\|\alpha\|^2 = 4 C^2 \|\xi\|^2 \le 4 C P`. So small ``C`` need few directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lg2ar.probes.scaling import Dense, Lens, Scaling, Unscaled

# Below this share of the full width, a matrix for each fold costs less than the full width.
_NARROW = 0.6


@dataclass(frozen=True)
class Rows:
    """Shared rows and how each problem sees them."""

    x: Tensor  # [n, r]
    lens: Lens

    def times(self, w: Tensor) -> Tensor:
        """``w . z_i`` of every problem and row: ``[Q, r]`` to ``[Q, n]``."""
        return self.lens.apply(w) @ self.x.T

    def adjoint(self, a: Tensor) -> Tensor:
        """``sum_i a_i z_i`` of every problem: ``[Q, n]`` to ``[Q, r]``."""
        return self.lens.adjoint(a @ self.x)

    def at(self, place: Tensor) -> Tensor:
        """Rows written out, some for each problem: ``[Q, m]`` to ``[Q, m, r]``."""
        return self.lens.rows(self.x[place])

    def select(self, index: Tensor) -> Rows:
        """The rows as some of the problems see them."""
        return Rows(self.x, self.lens.select(index))


def with_ones(x: Tensor) -> Tensor:
    """Rows with the constant feature appended."""
    return torch.cat([x, x.new_ones(*x.shape[:-1], 1)], dim=-1)


@dataclass(frozen=True)
class View:
    """Rows in some of their principal directions, and the way back."""

    rows: Rows
    vectors: Tensor | None  # [d + 1, r]; None where the rows are as they were
    scaling: Lens  # of the rows as they were

    def narrow(self, w: Tensor) -> Tensor:
        """Weights of the principal directions, ``[Q, r]``, from those of the features."""
        if self.vectors is None:
            return w
        return self.rows.lens.undo(self.scaling.apply(w) @ self.vectors)

    def widen(self, u: Tensor) -> Tensor:
        """Weights of the features, ``[Q, d + 1]``, from those of the principal directions."""
        if self.vectors is None:
            return u
        return self.scaling.adjoint(self.rows.lens.undo_adjoint(u) @ self.vectors.T)

    def select(self, index: Tensor) -> View:
        """The view of some problems."""
        return View(self.rows.select(index), self.vectors, self.scaling.select(index))


class Basis:
    """Principal directions of rows, the longest first.

    Args:
        x: Rows, ``[n, d]``.
        scaling: Of the features, one for each fold; without it, problems see the rows as they are.
        fold: The fold of each problem, on the CPU, ``[Q]``.
        C: The largest value that will be asked for.
        error: Share of the optimum by which leaving out directions may change it.
    """

    def __init__(
        self,
        x: Tensor,
        *,
        scaling: Scaling | None = None,
        fold: Tensor | None = None,
        C: float,
        error: float,
    ) -> None:
        full = with_ones(x)
        self._error, self._fold = error, fold
        self._vectors, self._x = _principal(full)
        squares = self._x.square().sum(0)
        if scaling is None or fold is None:
            self._full = Rows(full, Unscaled())
        else:
            self._full = Rows(full, scaling.select(fold.to(x.device)))
            most = with_ones(scaling.factor.amax(0)).square()
            squares = squares * (most @ self._vectors.square())
        # The sum of what is left out if so many directions are kept.
        self._left_out = [*squares.flip(0).cumsum(0).flip(0).tolist(), 0.0]
        self._widest = len(squares)
        self._maps: tuple[Tensor, Tensor] | None = None
        if scaling is not None:
            self._widest = min(self._width(C), int(_NARROW * full.shape[1]))
            self._maps = _triangles(scaling, self._vectors[:, : self._widest])

    def view(self, C: float) -> View:
        """As few directions as problems with this ``C`` need."""
        width = self._width(C)
        if width > self._widest:
            return View(self._full, None, self._full.lens)
        lens: Lens = Unscaled()
        if self._maps is not None and self._fold is not None:
            maps, inverse = (part[:, :width, :width] for part in self._maps)
            lens = Dense(maps, inverse, self._fold)
        rows = Rows(self._x[:, :width].contiguous(), lens)
        return View(rows, self._vectors[:, :width], self._full.lens)

    def _width(self, C: float) -> int:
        enough = (r for r, rest in enumerate(self._left_out) if 2 * C * rest <= self._error)
        return max(1, next(enough))


def _principal(x: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal directions ``[d, r]`` and the rows in them ``[n, r]``, by falling length."""
    if x.shape[1] > x.shape[0]:  # first the space that the rows span
        span, r = torch.linalg.qr(x.T)
        vectors, rows = _principal(r.T)
        return span @ vectors, rows
    vectors = torch.linalg.eigh(x.T @ x).eigenvectors.flip(1)
    rows = x @ vectors
    # Squaring hides directions shorter than 1e-8 of the longest: the shorter ones once more, alone.
    for _ in range(2):
        length = rows.norm(dim=0)
        short = int((length > 1e-6 * length[0]).sum())
        tail = rows[:, short:]
        turn = torch.linalg.eigh(tail.T @ tail).eigenvectors.flip(1)
        vectors[:, short:] = vectors[:, short:] @ turn
        rows = x @ vectors
    return vectors, rows


def _triangles(scaling: Scaling, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Each fold's scaling seen in the principal directions, ``[F, r, r]``, and its inverse.

    Weights ``w = T' V L'^-1 u`` of the scaled features with ``L L' = V' T T' V`` have the length of
    ``u``, and the rows see ``L u``. Leading parts of ``L`` and its inverse serve fewer directions.
    """
    maps = []
    for fold in range(len(scaling.shift)):
        one = scaling.select(torch.tensor([fold] * vectors.shape[1], device=vectors.device))
        turned = one.adjoint(vectors.T.contiguous())  # [r, d + 1]
        maps.append(turned @ turned.T)
    lower = cholesky(torch.stack(maps), ridge=0.0)
    unit = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    return lower, torch.linalg.solve_triangular(lower, unit, upper=False)


def cholesky(gram: Tensor, ridge: float = 1.0) -> Tensor:
    """Factor of ``gram`` plus a multiple of the identity, ``gram`` overwritten, ``[..., r, r]``."""
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    # Rounding may make a zero negative: some is added to each entry, by its own size, since
    # Cholesky's rounding is by the size of the entries too, however they differ.
    diagonal += ridge + diagonal * (4 * torch.finfo(gram.dtype).eps * gram.shape[-1])
    factor: Tensor = torch.linalg.cholesky(gram)
    return factor
