"""Support vector machines with the RBF kernel, as scikit-learn's ``SVC`` makes them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.svm import SVC
from torch import Tensor

from lg2ar.probes.folds import C_GRID, NestedAccuracy, as_numpy, cut, inner_means, row_numbers

Array = NDArray[np.float64]
Labels = NDArray[np.intp]
Rows = NDArray[np.intp]


def rbf_accuracy(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    folds: Sequence[ArrayLike],
    *,
    C: Sequence[float] = C_GRID,
    inner: int = 5,
    seed: int | None = None,
    jobs: int | None = None,
) -> NestedAccuracy:
    """Test accuracy of an RBF SVM whose ``C`` is chosen inside each outer training part.

    The same numbers as ``GridSearchCV(SVC(), {"C": C}, cv=inner)`` in every outer fold. Distances
    are computed once and for all; of a kernel, only its width differs from fit to fit, since
    ``SVC`` sets it from the variance of the rows it trains on.

    Args:
        x: Embeddings, ``[n, d]``.
        y: Labels, ``[n]``.
        folds: Row numbers of each outer fold's test part.
        C: Values to choose from. Of equally good ones the smallest is taken.
        inner: Number of inner folds, stratified.
        seed: Shuffles the inner folds; without it they are cut in the order of the rows.
        jobs: Outer folds computed at a time, in threads; as many as there are cores by default.
    """
    rows = np.asarray(as_numpy(x), dtype=np.float64)
    labels = np.unique(as_numpy(y), return_inverse=True)[1]
    if rows.ndim != 2 or labels.shape != (len(rows),):
        raise ValueError(f"expected x [n, d] and y [n], got {rows.shape} and {labels.shape}")
    grid, distances = sorted(C), _squared_distances(rows)
    tests = [row_numbers(fold, len(labels)) for fold in folds]
    workers = jobs or min(len(tests), os.cpu_count() or 1)
    # Threads: libsvm works outside Python's lock, and they share the distances.
    found = Parallel(n_jobs=workers, backend="threading")(
        delayed(_one_fold)(rows, labels, distances, test, grid, inner, seed) for test in tests
    )
    accuracy, best, within, converged = zip(*found, strict=True)
    return NestedAccuracy(
        accuracy=100 * np.array(accuracy),
        C=np.asarray(grid)[list(best)],
        inner=100 * np.stack(within),
        gap=float("nan"),
        residual=float("nan"),
        converged=all(converged),
        problems=len(tests) * (inner * len(grid) + 1),
    )


def _one_fold(
    rows: Array,
    labels: Labels,
    distances: Array,
    test: Rows,
    grid: list[float],
    inner: int,
    seed: int | None,
) -> tuple[float, int, Array, bool]:
    """Accuracy, place of the chosen ``C``, means of the inner folds, and whether all converged."""
    train = np.setdiff1d(np.arange(len(labels)), test)
    parts = [
        _scores(rows, labels, distances, *part, grid) for part in cut(labels, train, inner, seed)
    ]
    within = inner_means(np.stack([share for share, _ in parts]), inner)[0]
    best = int(within.argmax())
    last, converged = _scores(rows, labels, distances, train, test, [grid[best]])
    return float(last[0]), best, within, converged and all(good for _, good in parts)


def _scores(
    rows: Array, labels: Labels, distances: Array, train: Rows, test: Rows, grid: list[float]
) -> tuple[Array, bool]:
    """Share of right answers for each ``C``, and whether every fit converged."""
    variance = rows[train].var()
    gamma = 1.0 / (rows.shape[1] * variance) if variance != 0 else 1.0
    kernel, across = (np.exp(-gamma * distances[np.ix_(some, train)]) for some in (train, test))
    share, converged = np.empty(len(grid)), True
    for place, value in enumerate(grid):
        machine = SVC(C=value, kernel="precomputed").fit(kernel, labels[train])
        share[place] = np.mean(machine.predict(across) == labels[test])
        converged &= machine.fit_status_ == 0
    return share, bool(converged)


def _squared_distances(x: Array) -> Array:
    """``[n, n]``, by the formula that libsvm has: squares first, in double precision."""
    square = np.einsum("ij,ij->i", x, x)
    distances = x @ x.T
    distances *= -2
    distances += square[:, None]
    distances += square
    return np.maximum(distances, 0, out=distances)
