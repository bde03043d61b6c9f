r"""Linear support vector machines by the hundred: exact, certified, batched, on CPU or GPU.

Each problem is the one scikit-learn's ``LinearSVC`` solves (squared hinge, L2 penalty, the
intercept a penalised weight of a constant feature):

.. math::
    P(w) = \tfrac12 \|w\|^2 + C \sum_i \mu_i \max(0, 1 - s_i w \cdot x_i)^2

with signs ``s`` in {-1, 1} and a mask ``mu`` of the training rows. ``P`` is piecewise quadratic, so
Newton's method with a line search ends after few steps.

A feasible dual point is :math:`\alpha_i = 2 C \mu_i \max(0, 1 - s_i w \cdot x_i)`. Put into the
dual :math:`D(\alpha) = \sum_i \alpha_i - \tfrac12 \|\sum_i \alpha_i s_i x_i\|^2 -
\sum_i \alpha_i^2 / 4C` it gives

.. math::
    P(w) - D(\alpha) = \tfrac12 \|\nabla P(w)\|^2 \ge P(w) - \min P

so half the squared gradient is the duality gap itself, free of cancellation: the certificate.

It is a strict one. Unscaled rows with entries of 10^4 and a large ``C`` leave a gradient that
rounding alone keeps from vanishing; there Newton's method goes on until the objective no longer
falls, and ``residual``, the gradient's norm over that at zero, which is what liblinear itself stops
by, tells how far it got.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lg2ar.probes.basis import Basis, Rows, View, with_ones
from lg2ar.probes.newton import Problems, evaluate, gradient_at_zero, newton, pieces
from lg2ar.probes.scaling import Scaling, Unscaled, standardise

__all__ = ["ConvergenceError", "Scaling", "Solution", "fit", "standardise"]

# Share of the tolerance that may be spent on leaving out directions.
LEFT_OUT = 0.1
# Numbers that one chunk of problems may hold at a time (1 GiB in float64).
_CHUNK = 2**27


class ConvergenceError(RuntimeError):
    """A problem was not solved to the tolerance asked for."""


@dataclass(frozen=True)
class Solution:
    """Solved problems with their proofs.

    Attributes:
        coef: Weights, ``[problems, d]``; of the scaled features where a scaling was given.
        intercept: Constant terms, ``[problems]``.
        objective: ``P(w)``, ``[problems]``.
        gap: Duality gap over ``P(w)``: no ``w`` has an objective below ``P(w) * (1 - gap)``.
        residual: Norm of the gradient over its norm at zero.
        converged: Whether ``gap`` is within the tolerance.
        steps: Newton steps taken by the slowest problem.
    """

    coef: Tensor
    intercept: Tensor
    objective: Tensor
    gap: Tensor
    residual: Tensor
    converged: Tensor
    steps: int

    def decision(self, x: Tensor, scaling: Scaling | None = None) -> Tensor:
        """Decision values ``[problems, n]`` of rows ``x`` ``[n, d]``."""
        w = self.weights
        return Rows(with_ones(x.to(w)), scaling or Unscaled()).times(w)

    def select(self, index: Tensor) -> Solution:
        """Some of the problems."""
        return Solution(
            self.coef[index],
            self.intercept[index],
            self.objective[index],
            self.gap[index],
            self.residual[index],
            self.converged[index],
            self.steps,
        )

    @property
    def weights(self) -> Tensor:
        """Weights and constant term, ``[problems, d + 1]``."""
        return torch.cat([self.coef, self.intercept[:, None]], dim=1)


def fit(
    x: Tensor,
    signs: Tensor,
    masks: Tensor,
    C: Tensor | float,
    *,
    scaling: Scaling | None = None,
    groups: Tensor | None = None,
    start: Solution | None = None,
    basis: Basis | None = None,
    tolerance: float = 1e-5,
    max_steps: int = 300,
    strict: bool = True,
) -> Solution:
    """Solve many linear SVMs that share their rows.

    Args:
        x: Rows ``[n, d]``, or ``[folds, n, d]`` with as many problems for each fold, in order. Its
            dtype and device are those of the computation; use float64.
        signs: -1 or 1, ``[problems, n]``.
        masks: True where a row is for training, ``[problems, n]``.
        C: Weight of the loss, one for all or ``[problems]``.
        scaling: Of the features, for each problem.
        groups: Equal numbers mark problems that differ little, such as folds of one class:
            they share a preconditioner. It changes the speed only. ``[problems]``.
        start: Where to begin, such as the solution for a smaller ``C``.
        basis: Principal directions of ``x``, where they are known already.
        tolerance: Largest relative duality gap.
        max_steps: Newton steps at most.
        strict: Raise where the tolerance is missed, instead of saying so in ``converged``.

    Raises:
        ConvergenceError: If ``strict`` and a problem missed the tolerance.
    """
    _check(x, signs, masks)
    C = torch.as_tensor(C, dtype=x.dtype, device=x.device).expand(len(signs))
    values = C.tolist()
    if min(values) <= 0:
        raise ValueError(f"C must be positive, got {min(values)}")
    if x.dim() == 3:
        solution = _fit_each(x, signs, masks, C, scaling, groups, start, tolerance, max_steps)
    else:
        # A preconditioner is for one C: split groups by it.
        numbers = [0] * len(signs) if groups is None else groups.tolist()
        pairs = list(zip(numbers, values, strict=True))
        place = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
        every = Problems(
            Rows(with_ones(x), scaling or Unscaled()),
            signs.to(x),
            masks.to(x),
            C[:, None],
            torch.tensor([place[pair] for pair in pairs]),
            torch.arange(len(signs)),
        )
        if basis is None and scaling is None:
            basis = Basis(x, C=max(values), error=LEFT_OUT * tolerance)
        view = basis.view(max(values)) if basis else View(every.rows, None, every.rows.lens)
        w = every.rows.x.new_zeros(len(signs), x.shape[1] + 1) if start is None else start.weights
        solution = _solve(every, view, w, tolerance, max_steps)
    if strict and not bool(solution.converged.all()):
        missed = int((~solution.converged).sum())
        raise ConvergenceError(
            f"{missed} of {len(signs)} linear SVMs missed the tolerance {tolerance:g} after "
            f"{solution.steps} Newton steps; the worst relative duality gap is "
            f"{solution.gap.max().item():.3g}. Scale the features or use smaller values of C."
        )
    return solution


def _solve(problems: Problems, view: View, w: Tensor, tolerance: float, max_steps: int) -> Solution:
    """Chunk by chunk, in the directions that matter; proved with the rows as they were given."""
    rows, parts = problems.rows, []
    most = _CHUNK // (16 * sum(rows.x.shape))
    for index in pieces(torch.arange(len(w), device=w.device), most):
        given, seen = problems.select(index), view.select(index)
        inside = replace(given, rows=seen.rows)
        # Leaving out directions takes its share of the tolerance.
        narrow, steps = newton(
            inside, seen.narrow(w[index]), (1 - 2 * LEFT_OUT) * tolerance, max_steps
        )
        wide = seen.widen(narrow)
        point = evaluate(given, wide)
        left = (~(point.gap <= tolerance)).nonzero()[:, 0]
        if len(left) and steps < max_steps:
            wide[left], more = newton(given.select(left), wide[left], tolerance, max_steps - steps)
            steps, point = steps + more, evaluate(given, wide)
        gap, objective = point.gap, point.objective[:, 0]
        residual = point.gradient.norm(dim=1) / gradient_at_zero(given).clamp(min=1e-300)
        good = gap <= tolerance
        parts.append(Solution(wide[:, :-1], wide[:, -1], objective, gap, residual, good, steps))
    return _join(parts)


def _fit_each(
    x: Tensor,
    signs: Tensor,
    masks: Tensor,
    C: Tensor,
    scaling: Scaling | None,
    groups: Tensor | None,
    start: Solution | None,
    tolerance: float,
    max_steps: int,
) -> Solution:
    """Folds with rows of their own, one after the other."""
    parts = []
    for fold, index in enumerate(torch.arange(len(signs), device=x.device).view(len(x), -1)):
        part = fit(
            x[fold],
            signs[index],
            masks[index],
            C[index],
            scaling=scaling and scaling.select(index),
            groups=None if groups is None else groups[index.to(groups.device)],
            start=start and start.select(index),
            tolerance=tolerance,
            max_steps=max_steps,
            strict=False,
        )
        parts.append(part)
    return _join(parts)


def _join(parts: list[Solution]) -> Solution:
    return Solution(
        torch.cat([part.coef for part in parts]),
        torch.cat([part.intercept for part in parts]),
        torch.cat([part.objective for part in parts]),
        torch.cat([part.gap for part in parts]),
        torch.cat([part.residual for part in parts]),
        torch.cat([part.converged for part in parts]),
        max(part.steps for part in parts),
    )


def _check(x: Tensor, signs: Tensor, masks: Tensor) -> None:
    if x.dim() not in (2, 3) or signs.dim() != 2 or signs.shape != masks.shape:
        shapes = [list(t.shape) for t in (x, signs, masks)]
        raise ValueError(f"expected x [n, d], signs and masks [problems, n], got shapes {shapes}")
    if signs.shape[1] != x.shape[-2] or (x.dim() == 3 and len(signs) % len(x)):
        raise ValueError(f"signs {list(signs.shape)} do not fit x {list(x.shape)}")
    if not bool(x.isfinite().all()):
        raise ValueError("x holds values that are not finite numbers")
