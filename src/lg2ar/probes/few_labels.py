"""Logistic regression on a small share of the labels."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor

from lg2ar.moments import scaled
from lg2ar.probes.folds import C_GRID, checked, cut
from lg2ar.records import Score

Array = NDArray[np.float64]
Labels = NDArray[np.intp]
Rows = NDArray[np.intp]


def few_label_accuracy(
    x: np.ndarray, y: np.ndarray, *, share: float = 0.1, splits: int = 20, seed: int = 0
) -> Score:
    """Accuracy of logistic regression that sees the labels of a small share of the rows.

    Each split draws that share of every class; features are scaled on it alone, and the rest is
    predicted. Nothing is tuned.

    Args:
        x: Embeddings, a row each.
        y: Labels.
        share: Share of rows whose label is seen.
        splits: How many random splits.
        seed: Fixes the splits, so that two encoders are compared on the same ones.
    """
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    draw = StratifiedShuffleSplit(splits, train_size=share, random_state=seed)
    accuracy = 100 * cross_val_score(probe, x, y, cv=draw)
    return Score(
        mean=float(accuracy.mean()),
        std=float(accuracy.std()),
        protocol=f"logistic regression on {share:.0%} of the labels, {splits} splits",
        runs=splits,
        selection="last epoch, no choice made",
    )


def chosen_logistic_accuracy(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    parts: Sequence[tuple[Rows, Rows]],
    *,
    C: Sequence[float] = C_GRID,
    inner: int = 5,
    seed: int = 0,
) -> tuple[Array, Array]:
    """Accuracy of logistic regression whose ``C`` is chosen on the labelled rows alone.

    It is chosen by the squared error of the chances that it gives on inner folds (Brier's score):
    among some hundred rows, how many are right tells too little, and the logarithm of a chance
    says too much about the few that are far off. Columns are scaled by all rows, whose labels are
    not looked at for it.

    Args:
        x: Embeddings, ``[n, d]``.
        y: Labels, ``[n]``.
        parts: Numbers of the labelled rows and of the tested ones, for each split.
        C: Values to choose from. Of equally good ones the smallest is taken.
        inner: Number of inner folds, stratified; no more than the largest class has rows.
        seed: Shuffles the inner folds.

    Returns:
        Percent of each split's tested rows, and the ``C`` chosen for each.
    """
    if not parts:
        raise ValueError("there are no splits to learn from")
    given, labels = checked(x, y)
    rows, classes = scaled(given), int(labels.max()) + 1
    # Before the threads: cutting hides a warning, which is not safe among them.
    folds = [inner_folds(labels[train], inner, seed) for train, _ in parts]
    cores = os.cpu_count() or 1
    workers = min(len(parts), cores)
    # Where every thread multiplies with all cores, they wait for each other most of the time. What
    # a process may take already is not raised: others may stand beside it.
    pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    with threadpool_limits(max(1, min([cores // workers, *pools])), user_api="blas"):
        found = Parallel(n_jobs=workers, backend="threading")(
            delayed(chosen_logistic_chances)(rows, labels, *part, classes, own, C)
            for part, own in zip(parts, folds, strict=True)
        )
    right = [
        np.mean(chances.argmax(1) == labels[test])
        for (chances, _), (_, test) in zip(found, parts, strict=True)
    ]
    return 100 * np.array(right), np.array([value for _, value in found])


def chosen_logistic_chances(
    rows: Array,
    labels: Labels,
    train: Rows,
    test: Rows,
    classes: int,
    folds: Sequence[tuple[Rows, Rows]],
    C: Sequence[float] = C_GRID,
) -> tuple[Array, float]:
    """Chances of all classes for the tested rows of one split, ``[len(test), classes]``, and ``C``.

    Args:
        rows: Embeddings, scaled, ``[n, d]``.
        labels: Places of the classes, ``[n]``; only those of the labelled rows are looked at.
        train: Numbers of the labelled rows, at least two classes among them.
        test: Numbers of the tested rows.
        classes: How many there are.
        folds: Places among the labelled rows to choose ``C`` by; see :func:`inner_folds`.
        C: Values to choose from. Of equally good ones the smallest is taken.
    """
    grid, known = sorted(C), labels[train]
    # Weights that are held back by their squares are combinations of the labelled rows: in the
    # axes of these, which may be fewer than the columns, nothing is lost.
    axes = np.linalg.svd(rows[train], full_matrices=False)[2].T
    seen = rows[train] @ axes
    errors = np.zeros(len(grid))
    for learned, held in folds:
        errors += _errors(seen[learned], known[learned], seen[held], known[held], grid)
    value = grid[int(errors.argmin())]
    return _chances(seen, known, rows[test] @ axes, classes, value), value


def inner_folds(known: Labels, inner: int = 5, seed: int = 0) -> list[tuple[Rows, Rows]]:
    """Places of learned and held-out rows among labelled ones, stratified.

    No more folds than the largest class has rows; none where it has a single one, which leaves
    nothing to choose by.
    """
    number = min(inner, int(np.bincount(known).max()))
    return cut(known, np.arange(len(known)), number, seed) if number > 1 else []


def _errors(x: Array, y: Labels, held: Array, truth: Labels, grid: list[float]) -> Array:
    """Mean squared error of the chances, for each ``C``."""
    number = int(max(y.max(), truth.max())) + 1
    right = truth[:, None] == np.arange(number)
    return np.array(
        [np.square(_chances(x, y, held, number, value) - right).sum(1).mean() for value in grid]
    )


def _chances(x: Array, y: Labels, held: Array, number: int, value: float) -> Array:
    """What is foretold; a class that nothing is learned of has no chance."""
    kinds, chances = np.unique(y), np.zeros((len(held), number))
    if len(kinds) == 1:
        chances[:, kinds] = 1.0
        return chances
    # By far the fastest of scikit-learn's solvers where columns are as many as rows.
    model = LogisticRegression(C=value, solver="newton-cg", max_iter=1000, tol=1e-7).fit(x, y)
    chances[:, kinds] = model.predict_proba(held)
    return chances
