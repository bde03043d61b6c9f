r"""Kernel ridge regression on the classes, its kernel and strength chosen by validation rows.

.. math::
    f(x) = \bar t + k(x, X) (K + \rho I)^{-1} (T - \bar t)

with the training rows :math:`X`, a one at the class of each in :math:`T` and the shares of the
classes :math:`\bar t`; the answer is the class with the highest value. It has a closed form, so
nothing depends on a seed or on when training ends. Kernels are between training rows and a part of
the others, never between all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lg2ar.moments import scaled
from lg2ar.probes.folds import check_splits, checked
from lg2ar.probes.kernel_ridge import distances
from lg2ar.splits import Splits

# The width that stands for no width: the kernel is the product of two rows.
LINEAR = 0.0
# Factors of one over the number of features, as in the other probes: on either scale the mean
# square of all values is one.
GAMMAS = (LINEAR, 0.1, 0.3, 1.0)
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 1e1)

# How many of the best answer together: which one is the very best, the validation rows hardly
# tell (docs/protocols.md says what this was decided on).
TOGETHER = 5

# Width of the kernels of features beside the rows.
FEATURES_GAMMA = 1.0

# Tested rows whose kernel with the training rows is held at once.
_CHUNK = 4096


@dataclass(frozen=True)
class Candidate:
    """One of the probes to choose from.

    Attributes:
        scale: ``standard``, with all columns alike, or ``unit``, with all rows of length one.
        gamma: Of the RBF kernel, 0 for the linear one.
        ridge: How strongly it is held back.
        beside: Places of the features whose kernels it is the mean of, with that of the rows.
    """

    scale: str
    gamma: float
    ridge: float
    beside: tuple[int, ...] = ()


@dataclass(frozen=True)
class ValidatedAccuracy:
    """Accuracies of the probes that were chosen in each split, in percent.

    Attributes:
        test: Of the test rows, ``[S]``.
        validation: Of the validation rows, which chose them, ``[S]``.
        chosen: The probes of each split, the best first.
    """

    test: NDArray[np.float64]
    validation: NDArray[np.float64]
    chosen: tuple[tuple[Candidate, ...], ...]


def validated_accuracy(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    splits: Splits,
    *,
    features: Sequence[ArrayLike | Tensor] = (),
    gammas: Sequence[float] = GAMMAS,
    ridges: Sequence[float] = RIDGES,
    together: int = TOGETHER,
    device: torch.device | str = "cpu",
) -> ValidatedAccuracy:
    """Test accuracy of the kernel ridge regressions that are best on the validation rows.

    Scale, kernel and strength are chosen together, by how many validation rows are right, then by
    the squared error there, then by their order. The few best answer together. Only training rows
    are learned from, before the choice and after it; rows are scaled by all of them, without
    labels. Double precision.

    Args:
        x: Embeddings, ``[N, d]``.
        y: Labels, ``[N]``.
        splits: Masks of the rows, ``[S, N]`` each.
        features: What else is known of each, ``[N, d_x]``, in one or several ways: every RBF kernel
            is then also to choose as the mean of itself and those of any of these, of length one.
        gammas: Widths to choose from, 0 for the linear kernel.
        ridges: Strengths to choose from.
        together: How many of the best answer together, by the mean of their values.
        device: Where to compute.

    Raises:
        InputError: If a split leaves nothing to train on, to choose by or to test on.
    """
    given, labels = checked(x, y)
    check_splits(splits, len(given))
    if together < 1:
        raise ValueError(f"together must be positive, got {together}")
    if not gammas or min(gammas) < 0 or not ridges or min(ridges) <= 0:
        raise ValueError(
            f"gammas must be some, none negative, and ridges some positive ones, got "
            f"{list(gammas)} and {list(ridges)}"
        )
    rows = {
        "standard": torch.from_numpy(scaled(given)).to(device),
        "unit": unit_rows(torch.from_numpy(given).to(device)),
    }
    known = [_known(each, len(given), device) for each in features]
    targets = torch.nn.functional.one_hot(torch.from_numpy(labels)).double().to(device)
    found = []
    for masks in zip(splits.train, splits.validation, splits.test, strict=True):
        train, validation, test = (mask.nonzero()[:, 0].to(device) for mask in masks)
        best = _fits(rows, known, targets, train, validation, gammas, ridges)[:together]
        told = torch.stack([fit.told for fit in best]).mean(0)
        chosen = tuple(fit.candidate for fit in best)
        tested = _tested(best, rows, known, targets, train, test)
        found.append((tested, _right(told, targets[validation]), chosen))
    test_share, validation_share, candidates = zip(*found, strict=True)
    return ValidatedAccuracy(
        100 * np.array(test_share), 100 * np.array(validation_share), candidates
    )


def _known(features: ArrayLike | Tensor, n: int, device: torch.device | str) -> Tensor:
    """Features that stand beside ``n`` rows, of length one."""
    given = torch.as_tensor(features).detach().to(device, torch.float64)
    if given.dim() != 2 or len(given) != n:
        raise ValueError(f"expected features [{n}, d_x], got {list(given.shape)}")
    if not given.size(1):
        raise ValueError(f"features must have columns, got {list(given.shape)}")
    if not bool(given.isfinite().all()):
        raise ValueError("features must be finite")
    return unit_rows(given)


def unit_rows(rows: Tensor) -> Tensor:
    """Rows of length one around their middle, stretched so that the mean square of all is one.

    So one width means the same for them as for standardised rows. A row of zeros stays at zero
    before it is moved with the others; where all rows are alike, zeros come out.
    """
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    moved: Tensor = rows / length.where(length > 0, 1)
    moved -= moved.mean(0)
    spread = torch.linalg.vector_norm(moved) / math.sqrt(max(1, moved.numel()))
    # What rounding leaves of rows that are alike is no difference.
    moved /= spread.where(spread > 1e-12, math.inf)
    return moved


@dataclass(frozen=True, eq=False)
class _Fit:
    """A probe that was fitted, and what it says of the validation rows."""

    candidate: Candidate
    weights: Tensor  # [m, classes]
    told: Tensor  # [validation rows, classes]
    right: float
    error: float


def _fits(
    rows: Mapping[str, Tensor],
    features: Sequence[Tensor],
    targets: Tensor,
    train: Tensor,
    validation: Tensor,
    gammas: Sequence[float],
    ridges: Sequence[float],
) -> list[_Fit]:
    """All candidates, those first that are best on the validation rows."""
    share, wanted, found = targets[train].mean(0), targets[validation], []
    known = [_pair(each, train, validation) for each in features]
    for scale, points in rows.items():
        seen, asked = points[train], points[validation]
        kernels = zip(_kernels(seen, seen, gammas), _kernels(asked, seen, gammas), strict=True)
        for gamma, (among, across) in zip(gammas, kernels, strict=True):
            # The linear kernel is of another size.
            for beside in _combinations(len(known) if gamma != LINEAR else 0):
                many = 1 + len(beside)
                inside = sum((known[place][0] for place in beside), among) / many
                outside = sum((known[place][1] for place in beside), across) / many
                for ridge in ridges:
                    weights = _weights(inside, targets[train] - share, ridge)
                    told = outside @ weights + share
                    candidate = Candidate(scale, gamma, ridge, beside)
                    error = (told - wanted).square().sum(1).mean().item()
                    found.append(_Fit(candidate, weights, told, _right(told, wanted), error))
    return sorted(found, key=lambda fit: (-fit.right, fit.error))


def _combinations(count: int) -> Iterator[tuple[int, ...]]:
    """All of some places, few before many: none, each alone, ..., all together."""
    return chain.from_iterable(combinations(range(count), size) for size in range(count + 1))


def _pair(points: Tensor, train: Tensor, validation: Tensor) -> tuple[Tensor, Tensor]:
    """The features' kernel among training rows, and of validation rows with these."""
    seen, width = points[train], [FEATURES_GAMMA]
    return next(_kernels(seen, seen, width)), next(_kernels(points[validation], seen, width))


def _tested(
    fits: Sequence[_Fit],
    rows: Mapping[str, Tensor],
    features: Sequence[Tensor],
    targets: Tensor,
    train: Tensor,
    test: Tensor,
) -> float:
    """Share of the test rows that are right by the mean of what some probes say."""
    # Those of one kernel are one probe: the kernel is linear in their weights.
    kernels: dict[str | int, dict[float, Tensor]] = {}
    for fit in fits:
        used: list[tuple[str | int, float]] = [(fit.candidate.scale, fit.candidate.gamma)]
        used += [(place, FEATURES_GAMMA) for place in fit.candidate.beside]
        for kind, gamma in used:
            own, part = kernels.setdefault(kind, {}), fit.weights / len(fits) / len(used)
            own[gamma] = own.get(gamma, torch.zeros_like(part)) + part
    right = 0.0
    for chunk in torch.split(test, _CHUNK):
        told = targets[train].mean(0).expand(len(chunk), -1)
        for kind, own in kernels.items():
            points = features[kind] if isinstance(kind, int) else rows[kind]
            across = _kernels(points[chunk], points[train], list(own))
            for kernel, weights in zip(across, own.values(), strict=True):
                told = told + kernel @ weights
        right += len(chunk) * _right(told, targets[chunk])
    return right / len(test)


def _kernels(a: Tensor, b: Tensor, gammas: Sequence[float]) -> Iterator[Tensor]:
    """The kernel of each width between all rows of ``a`` and ``b``, one after the other."""
    between = None
    for gamma in gammas:
        if gamma == LINEAR:
            yield a @ b.T / a.shape[1]
            continue
        between = distances(a, b) if between is None else between
        yield torch.exp(-gamma * between)


def _weights(kernel: Tensor, targets: Tensor, ridge: float) -> Tensor:
    """Weights ``[m, classes]`` of the training rows."""
    held = kernel.clone()
    held.diagonal().add_(ridge)
    # For a handful of ridges a Cholesky factor of each is far cheaper than one decomposition.
    found: Tensor = torch.cholesky_solve(targets, torch.linalg.cholesky(held))
    return found


def _right(told: Tensor, targets: Tensor) -> float:
    """Share of rows whose highest value is at their class."""
    return (told.argmax(1) == targets.argmax(1)).double().mean().item()
