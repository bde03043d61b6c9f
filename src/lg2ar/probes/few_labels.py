"""Logistic regression on a small share of the labels."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lg2ar.records import Score


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
