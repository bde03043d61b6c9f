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
from torch import Tensor

from lg2ar.probes.folds import C_GRID, as_numpy, cut
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
        inner: Number of inner folds, stratified; as many as there are labelled rows at most.
        seed: Shuffles the inner folds.

    Returns:
        Percent of each split's tested rows, and the ``C`` chosen for each.
    """
    rows = StandardScaler().fit_transform(np.asarray(as_numpy(x), dtype=np.float64))
    labels = np.unique(as_numpy(y), return_inverse=True)[1]
    grid = sorted(C)
    workers = min(len(parts), os.cpu_count() or 1)
    found = Parallel(n_jobs=workers, backend="threading")(
        delayed(_one_split)(rows, labels, train, test, grid, inner, seed) for train, test in parts
    )
    accuracy, chosen = zip(*found, strict=True)
    return 100 * np.array(accuracy), np.asarray(grid)[list(chosen)]


def _one_split(
    rows: Array, labels: Labels, train: Rows, test: Rows, grid: list[float], inner: int, seed: int
) -> tuple[float, int]:
    """Share of right answers, and the place of the ``C`` they are given with."""
    # Weights that are held back by their squares are combinations of the labelled rows: in the
    # axes of these, of which there are fewer than columns, nothing is lost.
    axes = np.linalg.svd(rows[train], full_matrices=False)[2].T
    turned = rows @ axes
    folds = cut(labels, train, min(inner, len(train)), seed)
    errors = np.mean([_errors(turned, labels, *fold, grid) for fold in folds], axis=0)
    best = int(errors.argmin())
    answers = _fitted(turned[train], labels[train], grid[best]).predict(turned[test])
    return float(np.mean(answers == labels[test])), best


def _errors(rows: Array, labels: Labels, train: Rows, test: Rows, grid: list[float]) -> list[float]:
    """Mean squared error of the chances for each ``C``.

    A class that is not among the training rows has no chance.
    """
    kinds = np.unique(labels)
    truth = labels[test][:, None] == kinds
    errors = []
    for value in grid:
        model = _fitted(rows[train], labels[train], value)
        chances = np.zeros((len(test), len(kinds)))
        chances[:, np.searchsorted(kinds, model.classes_)] = model.predict_proba(rows[test])
        errors.append(float(np.square(chances - truth).sum(1).mean()))
    return errors


def _fitted(x: Array, y: Labels, value: float) -> LogisticRegression:
    # By far the fastest of scikit-learn's solvers where columns are as many as rows.
    return LogisticRegression(C=value, solver="newton-cg", max_iter=1000, tol=1e-7).fit(x, y)
