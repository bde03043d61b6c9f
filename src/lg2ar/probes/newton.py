"""Newton's method on many linear SVMs at once.

The folds of a cross-validation share most rows, hence nearly share their Hessians. One Cholesky
factor of the mean Hessian of all folds therefore preconditions the conjugate gradients of every
fold, and each of their steps is two matrix products for all problems together. Where few rows have
slack, the Hessian of one fold is cheap and unlike that of others: it is factored itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lg2ar.devices import sharers
from lg2ar.probes.basis import Rows, cholesky
from lg2ar.probes.scaling import Groups

# Up to this width a Hessian of one's own costs less than conjugate gradients. On a GPU always: its
# many small matrices are factored at once, where conjugate gradients are a chain of small kernels.
_DIRECT_WIDTH = {"cpu": 96, "cuda": 1 << 30}
# Newton steps after which a problem that still has not converged gets its own Hessian.
_PATIENCE = 30
# Active rows per feature up to which it gets one at once.
_FEW_ACTIVE = 1.5
_CG_STEPS = 60
_CG_ACCURACY = 0.1
# Conjugate gradient steps after which the shared Hessian is made anew.
_STALE = 8
# Conjugate gradient steps after which it is given up, and each problem gets an own one.
_HARD = 20
# Leverage, times the share of problems that a row is missing from, that makes it count for each.
_HIGH = 0.05
_LINE_STEPS = 30
# Asking a GPU whether all is done makes it wait: ask only every so many steps.
_ASK_EVERY = 4
# Numbers that Hessians of problems' own may take at a time (256 MiB and 8 GiB in float64, which
# processes that share a GPU also share).
_CHUNK = {"cpu": 2**25, "cuda": 2**30}
# Where rounding hides the duality gap for so many Newton steps, an objective that no longer falls
# by this share ends the search, if the gradient's norm is down to that share of its norm at zero.
_LONG, _STILL, GRADIENT = 60, 1e-9, 1e-4


@dataclass(frozen=True)
class Problems:
    """``Q`` problems over the same rows."""

    rows: Rows
    signs: Tensor  # [Q, n]
    masks: Tensor  # [Q, n], 0 or 1
    C: Tensor  # [Q, 1]
    groups: Tensor  # [Q], on the CPU: equal numbers share a preconditioner, and C
    numbers: Tensor  # [Q], on the CPU: each problem's own

    def select(self, index: Tensor) -> Problems:
        """Some of the problems."""
        return Problems(
            self.rows.select(index),
            self.signs[index],
            self.masks[index],
            self.C[index],
            self.groups[index.cpu()],
            self.numbers[index.cpu()],
        )

    def slack(self, margins: Tensor) -> Tensor:
        """``mu_i max(0, 1 - m_i)``, ``[Q, n]``."""
        return (1 - margins).clamp_(min=0).mul_(self.masks)


@dataclass(frozen=True)
class Point:
    """A place ``w`` and what Newton's method needs to know there."""

    w: Tensor  # [Q, r]
    margins: Tensor  # [Q, n]
    active: Tensor  # [Q, n], 1 where a training row has slack
    gradient: Tensor  # [Q, r]
    objective: Tensor  # [Q, 1]

    @property
    def gap(self) -> Tensor:
        """Relative duality gap, ``[Q]``."""
        gap = 0.5 * self.gradient.square().sum(1)
        # At an objective of exactly zero (no row, no weight) the gap is zero too.
        return gap / self.objective[:, 0].clamp(min=torch.finfo(gap.dtype).tiny)

    def select(self, index: Tensor) -> Point:
        """The places of some problems."""
        return Point(
            self.w[index],
            self.margins[index],
            self.active[index],
            self.gradient[index],
            self.objective[index],
        )


def evaluate(problems: Problems, w: Tensor) -> Point:
    """Objective, gradient and active rows at ``w``."""
    margins = problems.rows.times(w).mul_(problems.signs)
    slack = problems.slack(margins)
    loss = slack.square().sum(1, keepdim=True)
    objective = 0.5 * w.square().sum(1, keepdim=True) + problems.C * loss
    gradient = w - 2 * problems.C * problems.rows.adjoint(slack * problems.signs)
    return Point(w, margins, (slack > 0).to(w), gradient, objective)


def gradient_at_zero(problems: Problems) -> Tensor:
    """Norm of the gradient where all weights are zero, ``[Q]``."""
    gradient = 2 * problems.C * problems.rows.adjoint(problems.masks * problems.signs)
    return gradient.square().sum(1).sqrt()


def newton(problems: Problems, w: Tensor, tolerance: float, max_steps: int) -> tuple[Tensor, int]:
    """Weights whose relative duality gap is within the tolerance, and the steps that took."""
    w = w.clone()
    index, now, step = torch.arange(len(w), device=w.device), problems, 0
    before, start = w.new_full((len(w),), math.inf), gradient_at_zero(problems)
    preconditioner, hard = None, False
    while True:
        point = evaluate(now, w[index])
        objective = point.objective[:, 0]
        still = point.gradient.norm(dim=1) <= GRADIENT * start[index]
        still &= (before[index] - objective <= _STILL * objective) & (step >= _LONG)
        before[index] = objective
        left = (~((point.gap <= tolerance) | still)).nonzero()[:, 0]  # NaN is not within it
        if len(left) == 0 or step == max_steps:
            return w, step
        if len(left) < len(index):
            index, now, point = index[left], now.select(left), point.select(left)
        direction = torch.empty_like(point.w)
        own = _wants_own_hessian(point, step)
        some, others = own.nonzero()[:, 0], (~own).nonzero()[:, 0]
        if len(some):
            direction[some] = _direct(now.select(some), point.select(some))
        if len(others):
            part, at = now.select(others), point.select(others)
            if preconditioner is None or not preconditioner.serves(part):
                preconditioner = Preconditioner(part, at, own=hard)
            direction[others], taken = _conjugate_gradients(part, at, preconditioner, tolerance)
            hard |= taken > _HARD
            if taken > (_HARD if preconditioner.own else _STALE):
                preconditioner = None
        w[index] = point.w + _line_search(now, point, direction) * direction
        step += 1


def _wants_own_hessian(point: Point, step: int) -> Tensor:
    """Where a Cholesky factor of its own beats conjugate gradients, ``[Q]``."""
    width = point.w.shape[1]
    if width <= _DIRECT_WIDTH[point.w.device.type] or step >= _PATIENCE:
        return torch.ones_like(point.active[:, 0], dtype=torch.bool)
    return point.active.sum(1) <= _FEW_ACTIVE * width


def _direct(problems: Problems, point: Point) -> Tensor:
    """Newton's direction by a Cholesky factor for each problem."""
    count, order = point.active.sum(1).sort()  # alike together: a chunk is as long as its longest
    size = 3 * max(1, int(count[-1])) * point.w.shape[1]
    direction = torch.empty_like(point.w)
    for some in pieces(order, _room(order.device) // size):
        direction[some] = _direct_chunk(problems.select(some), point.select(some))
    return direction


def _room(device: torch.device) -> int:
    return _CHUNK[device.type] // (sharers() if device.type == "cuda" else 1)


def _direct_chunk(problems: Problems, point: Point) -> Tensor:
    r"""Solve ``(I + Y^T Y) d = -g`` with ``Y`` the active rows times :math:`\sqrt{2C}`.

    In the space of the features even where the active rows are fewer: principal directions are
    sorted by length, and so Cholesky keeps what is small beside the largest. Among the rows it
    would drown: there, embeddings of REDDIT-BINARY do not converge from ``C = 100`` on.
    """
    most = max(1, int(point.active.sum(1).max()))
    active, place = point.active.topk(most, dim=1)  # [Q, most]; 0 pads the shorter ones
    y = problems.rows.at(place) * ((2 * problems.C).sqrt() * active)[..., None]
    return -torch.cholesky_solve(point.gradient[..., None], cholesky(y.mT @ y))[..., 0]


class Preconditioner:
    """Approximate Hessians, inverted: one for each group of problems, or for each problem.

    A group shares its mean Hessian. That is a poor guide where some rows have much leverage, alone
    holding up a direction, and are active in some problems only. With ``own``, such rows count in
    each problem's Hessian as they are in it, and all others by their mean.

    Of the shared rows: a problem's own map of them is undone around it.
    """

    def __init__(self, problems: Problems, point: Point, *, own: bool = False) -> None:
        self.own = own
        key = problems.numbers if own else problems.groups
        self._keys = torch.unique(key)
        device = point.w.device
        halves = point.w.new_empty(len(self._keys), *point.w.shape[1:] * 2)
        for number in torch.unique(problems.groups):
            member = (problems.groups == number).nonzero()[:, 0]
            place = torch.searchsorted(self._keys, torch.unique(key[member])).to(device)
            at = member[key[member].argsort()].to(device)
            halves[place] = _inverse_halves(
                problems.rows.x, point.active[at], 2 * problems.C[at[0]], own
            )
        self._halves = halves

    def serves(self, problems: Problems) -> bool:
        """Whether it has what these problems need."""
        key = problems.numbers if self.own else problems.groups
        return bool(torch.isin(key, self._keys).all())

    def of(self, problems: Problems) -> Callable[[Tensor], Tensor]:
        """What takes residuals ``[Q, r]`` of these problems to directions."""
        device, lens = self._halves.device, problems.rows.lens
        groups = Groups(problems.numbers if self.own else problems.groups, device)
        present = torch.searchsorted(self._keys, groups.numbers)
        half = self._halves if len(present) == len(self._keys) else self._halves[present.to(device)]

        def apply(r: Tensor) -> Tensor:
            return lens.undo(groups.product(groups.product(lens.undo_adjoint(r), half.mT), half))

        return apply


def _inverse_halves(x: Tensor, active: Tensor, weight: Tensor, own: bool) -> Tensor:
    """``L^-1`` of Hessians ``L L'``: the mean one of some problems, or one for each."""
    unit = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    share = active.mean(0) * weight  # [n]
    mean: Tensor = torch.linalg.solve_triangular(cholesky(_gram(x, share)), unit, upper=False)
    if not own:
        return mean[None]
    leverage = (x @ mean.T).square().sum(1) * share * (1 - active.mean(0))
    high = leverage > _HIGH
    base = _gram(x, share.masked_fill(high, 0.0))
    y, here = x[high], active[:, high] * weight.sqrt()  # [m, r], [Q, m]
    halves = x.new_empty(len(active), *base.shape)
    every, most = torch.arange(len(active), device=x.device), _room(x.device)
    for some in pieces(every, most // max(1, y.numel())):
        z = y * here[some, :, None]
        factor = cholesky(torch.baddbmm(base, z.mT, z))
        halves[some] = torch.linalg.solve_triangular(factor, unit, upper=False)
    return halves


def _gram(x: Tensor, weight: Tensor) -> Tensor:
    """``sum_i weight_i x_i x_i'``."""
    some = weight.nonzero()[:, 0]
    y = x[some] * weight[some].sqrt()[:, None]
    return y.T @ y


def _conjugate_gradients(
    problems: Problems, point: Point, preconditioner: Preconditioner, tolerance: float
) -> tuple[Tensor, int]:
    """Newton's direction, roughly, and the steps that took: ``(I + Y^T Y) d = -g``."""
    apply, rows = preconditioner.of(problems), problems.rows
    d, r = torch.zeros_like(point.w), -point.gradient
    weight = 2 * problems.C * point.active
    # No finer than the end asks for: a gradient of this norm is within the tolerance.
    enough = 0.3 * (2 * tolerance * point.objective).sqrt()
    p = z = apply(r)
    rz = dot(r, z)
    # In the norm of the inverse Hessian, since the plain norm may grow while d gets better.
    target, done = _CG_ACCURACY**2 * rz, torch.zeros_like(rz, dtype=torch.bool)
    step = 0
    while step < _CG_STEPS:
        hp = p + rows.adjoint(rows.times(p).mul_(weight))
        a = torch.where(done, 0.0, rz / dot(p, hp))
        d, r = d + a * p, r - a * hp
        z = apply(r)
        after = dot(r, z)
        done |= (after <= target) | (r.norm(dim=1, keepdim=True) <= enough)
        step += 1
        if _all(done, step):
            break
        p, rz = torch.where(done, 0.0, z + after / rz * p), after
    return d, step


def _line_search(problems: Problems, point: Point, direction: Tensor) -> Tensor:
    """Step length ``[Q, 1]`` near the minimum along the direction.

    The slope along it is increasing and piecewise linear in the length: its root is found by
    Newton's method, by halving where that leaves the bracket.
    """
    along = problems.rows.times(direction).mul_(problems.signs)  # change of the margins
    a, b = dot(point.w, direction), dot(direction, direction)
    enough = 0.1 * dot(point.gradient, direction).abs()
    t = torch.ones_like(a)
    low, high = torch.zeros_like(a), torch.full_like(a, math.inf)
    for step in range(_LINE_STEPS):
        slack = problems.slack(point.margins + t * along)
        slope = a + t * b - 2 * problems.C * dot(slack, along)
        done = slope.abs() <= enough
        if _all(done, step):
            break
        low, high = torch.where(slope < 0, t, low), torch.where(slope < 0, high, t)
        curve = b + 2 * problems.C * dot((slack > 0) * along, along)
        middle = torch.where(high.isinf(), 2 * t, (low + high) / 2)
        after = t - slope / curve
        after = torch.where((after > low) & (after < high), after, middle)
        t = torch.where(done, t, after)
    return t


def _all(done: Tensor, step: int) -> bool:
    """Whether all are done, as far as it is asked at this step."""
    return (done.device.type == "cpu" or step % _ASK_EVERY == 0) and bool(done.all())


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products of rows, ``[Q, 1]``."""
    return (a * b).sum(1, keepdim=True)


def pieces(index: Tensor, most: int) -> list[Tensor]:
    """``index`` in parts of at most so many, and at least one."""
    return list(torch.split(index, max(1, most)))
