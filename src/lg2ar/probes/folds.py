"""What probes share: inner folds, what comes out of them, and checks of rows, labels and splits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from lg2ar.errors import InputError
from lg2ar.splits import Splits

C_GRID = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)


@dataclass(frozen=True)
class NestedAccuracy:
    """Test accuracies of a nested cross-validation.

    Attributes:
        accuracy: Percent of each outer fold's test rows, ``[folds]``.
        C: The value chosen for each outer fold, ``[folds]``.
        inner: Mean percent over the inner folds, ``[folds, len(C)]``.
        gap: The largest relative duality gap among all problems; not a number where the solver
            does not tell.
        residual: The largest norm of a gradient, over its norm at zero, among the problems whose
            gap is above the tolerance; zero where there are none.
        converged: Whether every problem's gap is within the tolerance, or its residual within
            ``lg2ar.probes.newton.GRADIENT``.
        problems: How many were solved.
    """

    accuracy: NDArray[np.float64]
    C: NDArray[np.float64]
    inner: NDArray[np.float64]
    gap: float
    residual: float
    converged: bool
    problems: int


def cut(
    labels: NDArray[np.intp], train: NDArray[np.intp], inner: int, seed: int | None
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Training and held-out row numbers of each inner fold of an outer training part."""
    folds = StratifiedKFold(inner, shuffle=seed is not None, random_state=seed)
    with warnings.catch_warnings():
        # A class with fewer rows than folds is missing from some, as in GridSearchCV.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        return [(train[i], train[j]) for i, j in folds.split(train, labels[train])]


def cut_all(
    labels: NDArray[np.intp], tests: Sequence[NDArray[np.intp]], inner: int, seed: int | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Training and held-out rows: of each outer fold, then of each inner fold of each."""
    pairs = [(np.setdiff1d(np.arange(len(labels)), test), test) for test in tests]
    for train, _ in list(pairs):
        pairs += cut(labels, train, inner, seed)
    masks = np.zeros((2, len(pairs), len(labels)), dtype=bool)
    for place, (train, test) in enumerate(pairs):
        masks[0, place, train] = masks[1, place, test] = True
    return masks[0], masks[1]


def inner_means(share: NDArray[np.float64], inner: int) -> NDArray[np.float64]:
    """Means over the inner folds: ``[outer * inner, C]`` to ``[outer, C]``.

    Bit for bit those of ``GridSearchCV``: it takes for a tie what its order of summing makes one,
    and a last bit can decide between two values of ``C``.
    """
    by_value = share.reshape(-1, inner, share.shape[1]).transpose(0, 2, 1)
    means = [np.average(np.ascontiguousarray(fold), axis=1) for fold in by_value]
    return np.stack(means)


def row_numbers(fold: ArrayLike, n: int) -> NDArray[np.intp]:
    """The rows of a fold, checked."""
    found = np.asarray(fold)
    if found.dtype == bool or found.size == 0 or found.min() < 0 or found.max() >= n:
        raise ValueError(f"a fold is a list of row numbers below {n}, got {fold!r}")
    return found.astype(np.intp)


def as_numpy(values: ArrayLike | Tensor) -> NDArray[np.generic]:
    """An array on the CPU."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def checked(
    x: ArrayLike | Tensor, y: ArrayLike | Tensor
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Embeddings ``[n, d]``, and of their labels the places among all classes, ``[n]``."""
    given = np.asarray(as_numpy(x), dtype=np.float64)
    labels = np.unique(as_numpy(y), return_inverse=True)[1]
    if given.ndim != 2 or labels.shape != (len(given),):
        raise ValueError(f"expected x [n, d] and y [n], got {given.shape} and {labels.shape}")
    if not np.isfinite(given).all():
        raise ValueError("embeddings must be finite")
    return given, labels


def check_splits(splits: Splits, n: int) -> None:
    """Refuse masks that are not of ``n`` rows, or leave out a part.

    Raises:
        InputError: If a split leaves nothing to train on, to choose by or to test on.
    """
    for name in ("train", "validation", "test"):
        mask = getattr(splits, name)
        if mask.dim() != 2 or mask.shape[1] != n:
            raise ValueError(f"expected masks [S, {n}], got {list(mask.shape)}")
        empty = (~mask.any(1)).nonzero()
        if len(empty):
            raise InputError(
                f"Split {int(empty[0])} has no {name} rows; give every split some of each kind."
            )
