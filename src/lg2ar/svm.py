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

The folds of a cross-validation share most rows, hence nearly share their Hessians. One Cholesky
factor of the mean Hessian of all folds therefore preconditions the conjugate gradients of every
fold, and each of their steps is two matrix products for all problems together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

C_GRID = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)

# Up to this width a Hessian of one's own costs less than conjugate gradients.
_DIRECT_WIDTH = 96
# Newton steps after which a problem that still has not converged gets its own Hessian.
_PATIENCE = 30
# Active rows per feature up to which it gets one at once.
_FEW_ACTIVE = 1.5
_CG_STEPS = 60
_CG_ACCURACY = 0.1
# Numbers that one chunk of problems may hold at a time (1 GiB in float64).
_CHUNK = 2**27


class ConvergenceError(RuntimeError):
    """A problem was not solved to the tolerance asked for."""


@dataclass(frozen=True)
class Scaling:
    """Affine scaling of features, one for each problem: ``(x - shift) * factor``.

    Attributes:
        shift: Means of the training rows, ``[problems, d]``.
        factor: One over their standard deviations, 0 for constant columns, ``[problems, d]``.
    """

    shift: Tensor
    factor: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """The scaled rows ``[problems, n, d]`` of ``x``, ``[n, d]``."""
        return (x - self.shift[:, None]) * self.factor[:, None]

    def select(self, index: Tensor) -> Scaling:
        """The scalings of some problems."""
        return Scaling(self.shift[index], self.factor[index])


@dataclass(frozen=True)
class Solution:
    """Solved problems with their proofs.

    Attributes:
        coef: Weights, ``[problems, d]``; of the scaled features where a scaling was given.
        intercept: Constant terms, ``[problems]``.
        objective: ``P(w)``, ``[problems]``.
        gap: Duality gap over ``P(w)``: no ``w`` has an objective below ``P(w) * (1 - gap)``.
        converged: Whether ``gap`` is within the tolerance.
        steps: Newton steps taken by the slowest problem.
    """

    coef: Tensor
    intercept: Tensor
    objective: Tensor
    gap: Tensor
    converged: Tensor
    steps: int

    def decision(self, x: Tensor, scaling: Scaling | None = None) -> Tensor:
        """Decision values ``[problems, n]`` of rows ``x`` ``[n, d]``."""
        w = torch.cat([self.coef, self.intercept[:, None]], dim=1)
        return _Rows(_with_ones(x.to(w)), scaling).times(w)


@dataclass(frozen=True)
class NestedAccuracy:
    """Test accuracies of a nested cross-validation.

    Attributes:
        accuracy: Percent of each outer fold's test rows, ``[folds]``.
        C: The value chosen for each outer fold, ``[folds]``.
        inner: Mean percent over the inner folds, ``[folds, len(C)]``.
        gap: The largest relative duality gap among all problems.
        converged: Whether every problem met the tolerance.
        problems: How many were solved.
    """

    accuracy: NDArray[np.float64]
    C: NDArray[np.float64]
    inner: NDArray[np.float64]
    gap: float
    converged: bool
    problems: int


@dataclass(frozen=True)
class _Rows:
    """The rows with a one appended, ``[n, d + 1]``, as each problem sees them.

    Scaled copies are never stored: scaling is moved from the rows to the weights.
    """

    x: Tensor
    scaling: Scaling | None

    def times(self, w: Tensor) -> Tensor:
        """``w . x_i`` of every problem and row: ``[Q, d + 1]`` to ``[Q, n]``."""
        if self.scaling is not None:
            v = w[:, :-1] * self.scaling.factor
            b = w[:, -1:] - (v * self.scaling.shift).sum(1, keepdim=True)
            w = torch.cat([v, b], dim=1)
        return w @ self.x.T

    def adjoint(self, r: Tensor) -> Tensor:
        """``sum_i r_i x_i`` of every problem: ``[Q, n]`` to ``[Q, d + 1]``."""
        q = r @ self.x
        if self.scaling is None:
            return q
        b = q[:, -1:]
        return torch.cat([(q[:, :-1] - self.scaling.shift * b) * self.scaling.factor, b], dim=1)

    def at(self, place: Tensor) -> Tensor:
        """Rows written out, some for each problem: ``[Q, m]`` to ``[Q, m, d + 1]``."""
        x = self.x[place]
        if self.scaling is not None:
            x[..., :-1] -= self.scaling.shift[:, None]
            x[..., :-1] *= self.scaling.factor[:, None]
        return x

    def select(self, index: Tensor) -> _Rows:
        """The rows as some of the problems see them."""
        return self if self.scaling is None else replace(self, scaling=self.scaling.select(index))


@dataclass(frozen=True)
class _Problems:
    """``Q`` problems over the same rows."""

    rows: _Rows
    signs: Tensor  # [Q, n]
    masks: Tensor  # [Q, n], 0 or 1
    C: Tensor  # [Q, 1]
    groups: Tensor  # [Q]: equal numbers share a preconditioner

    def select(self, index: Tensor) -> _Problems:
        return _Problems(
            self.rows.select(index),
            self.signs[index],
            self.masks[index],
            self.C[index],
            self.groups[index],
        )

    def slack(self, margins: Tensor) -> Tensor:
        """``mu_i max(0, 1 - m_i)``, ``[Q, n]``."""
        return (1 - margins).clamp_(min=0).mul_(self.masks)


@dataclass(frozen=True)
class _Point:
    """A place ``w`` and what Newton's method needs to know there."""

    w: Tensor  # [Q, d + 1]
    margins: Tensor  # [Q, n]
    active: Tensor  # [Q, n], 1 where a training row has slack
    gradient: Tensor  # [Q, d + 1]
    objective: Tensor  # [Q, 1]

    @property
    def gap(self) -> Tensor:
        """Relative duality gap, ``[Q]``."""
        gap = 0.5 * self.gradient.square().sum(1)
        # At an objective of exactly zero (no row, no weight) the gap is zero too.
        return gap / self.objective[:, 0].clamp(min=torch.finfo(gap.dtype).tiny)


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
    # Around the mean of all rows, so that the squares below cancel little. The mean drops out.
    centre = x.mean(0)
    y = x - centre
    mean = weight @ y / count
    variance = (weight @ y.square() / count - mean.square()).clamp(min=0)
    # Rounding leaves about this much variance in a constant column.
    noise = 1e-14 * (weight @ y.square() / count + centre.square() * 1e-14)
    factor = torch.where(variance > noise, variance.rsqrt(), 0.0)
    return Scaling(mean + centre, factor)


def fit(
    x: Tensor,
    signs: Tensor,
    masks: Tensor,
    C: Tensor | float,
    *,
    scaling: Scaling | None = None,
    groups: Tensor | None = None,
    start: Solution | None = None,
    tolerance: float = 1e-6,
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
        tolerance: Largest relative duality gap.
        max_steps: Newton steps at most.
        strict: Raise where the tolerance is missed, instead of saying so in ``converged``.

    Raises:
        ConvergenceError: If ``strict`` and a problem missed the tolerance.
    """
    _check(x, signs, masks)
    C = torch.as_tensor(C, dtype=x.dtype, device=x.device).expand(len(signs))
    if not bool((C > 0).all()):
        raise ValueError(f"C must be positive, got {C.min().item()}")
    groups = torch.zeros(len(signs), dtype=torch.long) if groups is None else groups.cpu()
    # A preconditioner is for one C: split groups by it.
    pairs = list(zip(groups.tolist(), C.tolist(), strict=True))
    number = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
    groups = torch.tensor([number[pair] for pair in pairs], device=x.device)
    w = None if start is None else torch.cat([start.coef, start.intercept[:, None]], dim=1)
    parts = []
    for fold, index in _chunks(x, len(signs)):
        rows = x if fold is None else x[fold]
        rest = None if scaling is None else scaling.select(index)
        basis, reduced = _reduce(_with_ones(rows), rest)
        problems = _Problems(
            _Rows(reduced, rest),
            signs[index].to(x),
            masks[index].to(x),
            C[index, None],
            groups[index],
        )
        first = reduced.new_zeros(len(index), reduced.shape[1])
        if w is not None:
            first = w[index] if basis is None else w[index] @ basis
        parts.append(_newton(problems, first, basis, tolerance, max_steps))
    solution = _join(parts)
    if strict and not bool(solution.converged.all()):
        missed = int((~solution.converged).sum())
        raise ConvergenceError(
            f"{missed} of {len(signs)} linear SVMs missed the tolerance {tolerance:g} after "
            f"{solution.steps} Newton steps; the worst relative duality gap is "
            f"{solution.gap.max().item():.3g}. Scale the features or use smaller values of C."
        )
    return solution


def nested_accuracy(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    folds: Sequence[ArrayLike],
    *,
    C: Sequence[float] = C_GRID,
    inner: int = 5,
    scale: bool = False,
    seed: int | None = None,
    device: torch.device | str = "cpu",
    tolerance: float = 1e-6,
    strict: bool = True,
) -> NestedAccuracy:
    """Test accuracy of a linear SVM whose ``C`` is chosen inside each outer training part.

    The same numbers as ``GridSearchCV(LinearSVC(), {"C": C}, cv=inner)`` in every outer fold, with
    every SVM converged; with ``scale``, as of a pipeline that begins with ``StandardScaler``.

    Args:
        x: Embeddings, ``[n, d]``.
        y: Labels, ``[n]``.
        folds: Row numbers of each outer fold's test part.
        C: Values to choose from. Of equally good ones the smallest is taken.
        inner: Number of inner folds, stratified.
        scale: Whether features are standardised, each time by the training rows alone.
        seed: Shuffles the inner folds; without it they are cut in the order of the rows.
        device: Where to compute.
        tolerance: Largest relative duality gap of every SVM.
        strict: Raise where an SVM misses it, instead of saying so in ``converged``.
    """
    rows = torch.as_tensor(x).detach().to(device, torch.float64)
    classes, labels = np.unique(_numpy(y), return_inverse=True)
    _check_rows(rows, labels, len(classes))
    tests = [_row_numbers(fold, len(labels)) for fold in folds]
    train, held_out = _split(labels, tests, inner, seed)  # [outer * (1 + inner), n], refits first
    masks, target = torch.from_numpy(train).to(device), torch.from_numpy(labels).to(device)
    grid = sorted(C)
    if scale:
        # No fold's scaled features change by this; the shared preconditioner needs it.
        whole = standardise(rows, torch.ones_like(masks[:1]))
        rows = whole.apply(rows)[0]
    # Two classes need one classifier: the other is its mirror image.
    positive = torch.arange(len(classes), device=device)[-1 if len(classes) == 2 else 0 :]
    groups = positive.repeat_interleave(len(masks))  # [Q], class by class
    signs = (target == groups[:, None]).to(rows) * 2 - 1
    scaling = standardise(rows, masks) if scale else None
    many = None if scaling is None else _repeat(scaling, len(positive))
    every = masks.repeat(len(positive), 1)
    # A class without training rows is none that scikit-learn would predict.
    seen = torch.stack([masks[:, target == k].any(1) for k in range(len(classes))])
    held = torch.from_numpy(held_out).to(device)
    # Decisions depend on inner products alone, so the basis is not needed.
    reduced = rows if scale else _reduce(rows, None)[1]
    solution, right, gaps, converged = None, [], [], True
    for value in grid:
        solution = fit(
            reduced,
            signs,
            every,
            value,
            scaling=many,
            groups=groups,
            start=solution,
            tolerance=tolerance,
            strict=strict,
        )
        decision = solution.decision(reduced, many).view(len(positive), *masks.shape)
        hit = (_predict(decision, seen) == target) & held
        right.append(hit.sum(1).double() / held.sum(1))
        gaps.append(solution.gap.max().item())
        converged &= bool(solution.converged.all())
    share = torch.stack(right, dim=1).cpu().numpy()  # [outer * (1 + inner), C]
    outer = len(tests)
    within = _inner_means(share[outer:], inner)
    best = within.argmax(1)
    return NestedAccuracy(
        accuracy=100 * share[:outer][np.arange(outer), best],
        C=np.asarray(grid)[best],
        inner=100 * within,
        gap=max(gaps),
        converged=converged,
        problems=len(signs) * len(grid),
    )


def _newton(
    problems: _Problems, w: Tensor, basis: Tensor | None, tolerance: float, max_steps: int
) -> Solution:
    """Newton's method on every problem until its gap is within the tolerance."""
    objective, gap = w.new_zeros(len(w)), w.new_zeros(len(w))
    w = w.clone()
    index, now, step = torch.arange(len(w), device=w.device), problems, 0
    factors: dict[int, Tensor] = {}
    stale = True
    while True:
        point = _evaluate(now, w[index])
        objective[index], gap[index] = point.objective[:, 0], point.gap
        left = (~(point.gap <= tolerance)).nonzero()[:, 0]  # NaN is not within it
        if len(left) == 0 or step == max_steps:
            break
        if len(left) < len(index):
            index, now, point = index[left], now.select(left), _pick(point, left)
        own = _wants_own_hessian(point, step)
        direction = torch.empty_like(point.w)
        if bool(own.any()):
            some = own.nonzero()[:, 0]
            direction[some] = _direct(now.select(some), _pick(point, some))
        if not bool(own.all()):
            some = (~own).nonzero()[:, 0]
            part, at = now.select(some), _pick(point, some)
            if stale or not factors.keys() >= set(part.groups.tolist()):
                factors = _mean_factors(part, at)
            direction[some], taken = _conjugate_gradients(part, at, factors, tolerance)
            stale = taken > 8
        w[index] = point.w + _line_search(now, point, direction) * direction
        step += 1
    full = w if basis is None else w @ basis.T
    return Solution(full[:, :-1], full[:, -1], objective, gap, gap <= tolerance, step)


def _evaluate(problems: _Problems, w: Tensor) -> _Point:
    """Objective, gradient and active rows at ``w``."""
    margins = problems.rows.times(w).mul_(problems.signs)
    slack = problems.slack(margins)
    loss = slack.square().sum(1, keepdim=True)
    objective = 0.5 * w.square().sum(1, keepdim=True) + problems.C * loss
    gradient = w - 2 * problems.C * problems.rows.adjoint(slack * problems.signs)
    return _Point(w, margins, (slack > 0).to(w), gradient, objective)


def _pick(point: _Point, index: Tensor) -> _Point:
    return _Point(
        point.w[index],
        point.margins[index],
        point.active[index],
        point.gradient[index],
        point.objective[index],
    )


def _wants_own_hessian(point: _Point, step: int) -> Tensor:
    """Where a Cholesky factor of its own beats conjugate gradients, ``[Q]``.

    With few active rows for its width a problem's Hessian is cheap, and unlike that of others.
    """
    width = point.w.shape[1]
    if width <= _DIRECT_WIDTH or step >= _PATIENCE:
        return torch.ones_like(point.active[:, 0], dtype=torch.bool)
    return point.active.sum(1) <= _FEW_ACTIVE * width


def _direct(problems: _Problems, point: _Point) -> Tensor:
    """Newton's direction by a Cholesky factor for each problem."""
    count = point.active.sum(1)
    order = count.argsort()  # alike together: each chunk is as long as its longest
    size = 3 * int(count.max()) * point.w.shape[1]
    direction = torch.empty_like(point.w)
    for some in _pieces(order, _CHUNK // 4 // max(1, size)):
        direction[some] = _direct_chunk(problems.select(some), _pick(point, some))
    return direction


def _direct_chunk(problems: _Problems, point: _Point) -> Tensor:
    r"""Solve ``(I + Y^T Y) d = -g`` with ``Y`` the active rows times :math:`\sqrt{2C}`.

    In the space of the rows where these are fewer than the features, by Woodbury's identity
    :math:`(I + Y^T Y)^{-1} = I - Y^T (I + Y Y^T)^{-1} Y`.
    """
    most = max(1, int(point.active.sum(1).max()))
    active, place = point.active.topk(most, dim=1)  # [Q, most]; 0 pads the shorter ones
    y = problems.rows.at(place) * ((2 * problems.C).sqrt() * active)[..., None]
    g = point.gradient[..., None]
    if y.shape[2] <= y.shape[1]:
        return -torch.cholesky_solve(g, _cholesky(y.mT @ y))[..., 0]
    inside = torch.cholesky_solve(y @ g, _cholesky(y @ y.mT))
    return (y.mT @ inside - g)[..., 0]


def _cholesky(gram: Tensor) -> Tensor:
    """Factor of ``I + gram``, ``gram`` overwritten."""
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    # Below this share of the largest entry, one is lost to rounding: keep the sum positive.
    least = 4 * torch.finfo(gram.dtype).eps * gram.shape[-1] * diagonal.amax(-1, keepdim=True)
    diagonal.add_(least.clamp(min=1.0))
    factor: Tensor = torch.linalg.cholesky(gram)
    return factor


def _mean_factors(problems: _Problems, point: _Point) -> dict[int, Tensor]:
    """Cholesky factor of each group's mean Hessian.

    Of the unscaled rows: ``nested_accuracy`` hands over rows that are nearly scaled already.
    """
    factors = {}
    for group in sorted(set(problems.groups.tolist())):
        member = problems.groups == group
        share = point.active[member].mean(0) * 2 * problems.C[member][0]  # [n]
        some = share > 0
        y = problems.rows.x[some] * share[some].sqrt()[:, None]
        factors[group] = _cholesky(y.T @ y)
    return factors


def _precondition(problems: _Problems, factors: dict[int, Tensor], r: Tensor) -> Tensor:
    z = torch.empty_like(r)
    for group, factor in factors.items():
        member = (problems.groups == group).nonzero()[:, 0]
        if len(member) == 0:
            continue
        z[member] = torch.cholesky_solve(r[member].T, factor).T
    return z


def _conjugate_gradients(
    problems: _Problems, point: _Point, factors: dict[int, Tensor], tolerance: float
) -> tuple[Tensor, int]:
    """Newton's direction, roughly, and the steps that took: ``(I + Y^T Y) d = -g``."""
    d, r = torch.zeros_like(point.w), -point.gradient
    weight = 2 * problems.C * point.active
    # No finer than the end asks for: a gradient of this norm is within the tolerance.
    enough = 0.3 * (2 * tolerance * point.objective).sqrt()
    z = _precondition(problems, factors, r)
    p, rz, step = z, _dot(r, z), 0
    # In the norm of the inverse Hessian, since the plain norm may grow while d gets better.
    target, done = _CG_ACCURACY**2 * rz, torch.zeros_like(rz, dtype=torch.bool)
    for step in range(1, _CG_STEPS + 1):  # noqa: B007
        hp = p + problems.rows.adjoint(problems.rows.times(p).mul_(weight))
        a = torch.where(done, 0.0, rz / _dot(p, hp))
        d, r = d + a * p, r - a * hp
        z = _precondition(problems, factors, r)
        after = _dot(r, z)
        done |= (after <= target) | (r.norm(dim=1, keepdim=True) <= enough)
        if bool(done.all()):
            break
        p, rz = z + after / rz * p, after
    return d, step


def _line_search(problems: _Problems, point: _Point, direction: Tensor) -> Tensor:
    """Step length ``[Q, 1]`` near the minimum along the direction.

    The slope along it is increasing and piecewise linear in the length: its root is found by
    Newton's method, by halving where that leaves the bracket.
    """
    along = problems.rows.times(direction).mul_(problems.signs)  # change of the margins
    a, b = _dot(point.w, direction), _dot(direction, direction)
    at_zero = _dot(point.gradient, direction)
    t = torch.ones_like(a)
    low, high = torch.zeros_like(a), torch.full_like(a, math.inf)
    for _ in range(30):
        slack = problems.slack(point.margins + t * along)
        slope = a + t * b - 2 * problems.C * _dot(slack, along)
        if bool((slope.abs() <= 0.1 * at_zero.abs()).all()):
            break
        low, high = torch.where(slope < 0, t, low), torch.where(slope < 0, high, t)
        curve = b + 2 * problems.C * _dot((slack > 0) * along, along)
        middle = torch.where(high.isinf(), 2 * t, (low + high) / 2)
        after = t - slope / curve
        after = torch.where((after > low) & (after < high), after, middle)
        t = torch.where(slope.abs() <= 0.1 * at_zero.abs(), t, after)
    return t


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1, keepdim=True)


def _with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones(*x.shape[:-1], 1)], dim=-1)


def _reduce(x: Tensor, scaling: Scaling | None) -> tuple[Tensor | None, Tensor]:
    """Rows in a basis of the space they span, where that is smaller: ``x = reduced @ basis.T``.

    The penalty does not change under rotation, and the solution lies in the span of the rows, so
    this solves in the space of the samples. A scaling of features is no rotation.
    """
    if scaling is not None or x.shape[1] <= x.shape[0]:
        return None, x
    basis, r = torch.linalg.qr(x.T)
    return basis, r.T


def _chunks(x: Tensor, problems: int) -> list[tuple[int | None, Tensor]]:
    """Problem numbers that are solved together, with their fold where folds have their rows."""
    most = _CHUNK // (16 * (x.shape[-2] + x.shape[-1]))
    every = torch.arange(problems, device=x.device)
    if x.dim() == 2:
        return [(None, part) for part in _pieces(every, most)]
    by_fold = every.view(len(x), -1)
    return [(fold, part) for fold in range(len(x)) for part in _pieces(by_fold[fold], most)]


def _pieces(index: Tensor, most: int) -> list[Tensor]:
    most = max(1, most)
    return [index[first : first + most] for first in range(0, len(index), most)]


def _join(parts: list[Solution]) -> Solution:
    return Solution(
        torch.cat([part.coef for part in parts]),
        torch.cat([part.intercept for part in parts]),
        torch.cat([part.objective for part in parts]),
        torch.cat([part.gap for part in parts]),
        torch.cat([part.converged for part in parts]),
        max(part.steps for part in parts),
    )


def _repeat(scaling: Scaling, times: int) -> Scaling:
    return Scaling(scaling.shift.repeat(times, 1), scaling.factor.repeat(times, 1))


def _predict(decision: Tensor, seen: Tensor) -> Tensor:
    """Classes ``[problems, n]`` from decision values ``[classifiers, problems, n]``."""
    if len(decision) == 1:
        decision = torch.cat([torch.zeros_like(decision), decision])
    return decision.masked_fill(~seen[..., None], -math.inf).argmax(0)


def _inner_means(share: NDArray[np.float64], inner: int) -> NDArray[np.float64]:
    """Means over the inner folds: ``[outer * inner, C]`` to ``[outer, C]``.

    Bit for bit those of ``GridSearchCV``: it takes for a tie what its order of summing makes one,
    and a last bit can decide between two values of ``C``.
    """
    by_value = share.reshape(-1, inner, share.shape[1]).transpose(0, 2, 1)
    means = [np.average(np.ascontiguousarray(fold), axis=1) for fold in by_value]
    return np.stack(means)


def _split(
    labels: NDArray[np.intp], tests: Sequence[NDArray[np.intp]], inner: int, seed: int | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Training and held-out rows: of each outer fold, then of each inner fold of each."""
    cut = StratifiedKFold(inner, shuffle=seed is not None, random_state=seed)
    pairs = [(np.setdiff1d(np.arange(len(labels)), test), test) for test in tests]
    for train, _ in list(pairs):
        with warnings.catch_warnings():
            # A class with fewer rows than folds is missing from some: said here once, not 10 times.
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            parts = list(cut.split(train, labels[train]))
        pairs += [(train[i], train[j]) for i, j in parts]
    masks = np.zeros((2, len(pairs), len(labels)), dtype=bool)
    for place, (train, test) in enumerate(pairs):
        masks[0, place, train] = masks[1, place, test] = True
    return masks[0], masks[1]


def _row_numbers(fold: ArrayLike, n: int) -> NDArray[np.intp]:
    found = np.asarray(fold)
    if found.dtype == bool or found.size == 0 or found.min() < 0 or found.max() >= n:
        raise ValueError(f"a fold is a list of row numbers below {n}, got {fold!r}")
    return found.astype(np.intp)


def _numpy(values: ArrayLike | Tensor) -> NDArray[np.generic]:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _check_rows(x: Tensor, labels: NDArray[np.intp], classes: int) -> None:
    if x.dim() != 2 or labels.shape != (len(x),):
        raise ValueError(f"expected x [n, d] and y [n], got {list(x.shape)} and {labels.shape}")
    if classes < 2:
        raise ValueError(f"a classifier needs at least two classes, got {classes}")


def _check(x: Tensor, signs: Tensor, masks: Tensor) -> None:
    if x.dim() not in (2, 3) or signs.dim() != 2 or signs.shape != masks.shape:
        shapes = [list(t.shape) for t in (x, signs, masks)]
        raise ValueError(f"expected x [n, d], signs and masks [problems, n], got shapes {shapes}")
    if signs.shape[1] != x.shape[-2] or (x.dim() == 3 and len(signs) % len(x)):
        raise ValueError(f"signs {list(signs.shape)} do not fit x {list(x.shape)}")
    if not bool(x.isfinite().all()):
        raise ValueError("x holds values that are not finite numbers")
