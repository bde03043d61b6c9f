"""Which rows are learned from, which choose, and which count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lg2ar.errors import InputError


@dataclass(frozen=True, eq=False)
class Splits:
    """Splits of the rows of a data set, as masks of shape ``[splits, N]``.

    Attributes:
        train: True where a row's label may be learned from.
        validation: True where it may be used to choose.
        test: True where it counts.
    """

    train: Tensor
    validation: Tensor
    test: Tensor


def stratified_folds(
    y: ArrayLike | Tensor, folds: int = 10, seed: int = 0
) -> list[NDArray[np.intp]]:
    """Cut the rows into parts of nearly the same size and the same shares of the classes.

    Args:
        y: Labels, ``[n]``.
        folds: How many parts.
        seed: Fixes the parts, so that all embeddings of a data set are scored on the same ones.

    Returns:
        The row numbers of each part, in increasing order: its test rows; all others train.

    Raises:
        InputError: If there are fewer rows than parts, or a class has fewer.

    Examples:
        >>> folds = stratified_folds([0, 0, 0, 0, 1, 1], folds=2)
        >>> [len(rows) for rows in folds]
        [3, 3]
    """
    # Only what cuts folds needs scikit-learn; whoever reads data with its own splits does not.
    from sklearn.model_selection import StratifiedKFold

    labels = np.asarray(y.cpu() if isinstance(y, Tensor) else y)
    _check_folds(labels, folds)
    cut = StratifiedKFold(folds, shuffle=True, random_state=seed)
    return [test for _, test in cut.split(np.zeros(len(labels)), labels)]


def _check_folds(labels: NDArray[np.generic], folds: int) -> None:
    if folds < 2:
        raise InputError(f"{folds} folds leave nothing to learn from; ask for two or more.")
    if labels.ndim != 1 or len(labels) < folds:
        raise InputError(
            f"{labels.size} labelled rows cannot be cut into {folds} folds; ask for fewer folds."
        )
    classes, counts = np.unique(labels, return_counts=True)
    rare = int(counts.argmin())
    if counts[rare] < folds:
        raise InputError(
            f"Class {classes[rare]} has {counts[rare]} of the {len(labels)} rows, too few for "
            f"{folds} folds; ask for at most {max(2, counts[rare])} folds, or leave the class out."
        )


def random_splits(
    num_nodes: int,
    *,
    count: int = 20,
    seed: int = 0,
    shares: tuple[float, float, float] = (0.1, 0.1, 0.8),
) -> Splits:
    """Draw splits uniformly, each from a permutation of its own, as GCA does.

    Classes are not looked at: a rare one may be missing from the training rows of a split.

    Args:
        num_nodes: Number of rows.
        count: How many splits.
        seed: Fixes them.
        shares: Of the rows to train on, to choose by and to test on. What is left of a sum below
            one belongs to none of them.

    Raises:
        InputError: If a part would be empty, or the shares exceed the whole.
    """
    if count < 1 or min(shares) <= 0 or sum(shares) > 1 + 1e-9:
        raise InputError(
            f"{count} splits of shares {shares} cannot be drawn; ask for at least one split, with "
            "positive shares that sum to at most 1."
        )
    train, validation = int(num_nodes * shares[0]), int(num_nodes * shares[1])
    test = min(round(num_nodes * shares[2]), num_nodes - train - validation)
    # What rounding leaves over is tested on, as where the shares make up the whole.
    if sum(shares) >= 1 - 1e-9:
        test = num_nodes - train - validation
    if min(train, validation, test) < 1:
        raise InputError(
            f"Shares {shares} of {num_nodes} rows leave a part empty; ask for larger shares."
        )
    generator = torch.Generator().manual_seed(seed)
    masks = torch.zeros(3, count, num_nodes, dtype=torch.bool)
    ends = (0, train, train + validation, train + validation + test)
    for split in range(count):
        order = torch.randperm(num_nodes, generator=generator)
        for part in range(3):
            masks[part, split, order[ends[part] : ends[part + 1]]] = True
    return Splits(*masks)


@dataclass(frozen=True, eq=False)
class Split:
    """Which rows are learned from, chosen by and counted; no row is in two of them.

    Attributes:
        train: Rows whose label is seen, ascending.
        validation: Rows that an epoch may be chosen by, ascending; may be empty.
        test: Rows that count, ascending.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def semi_splits(
    y: Tensor | np.ndarray,
    *,
    folds: int = 10,
    share: int = 10,
    seed: int = 12345,
    validation: bool = False,
) -> list[Split]:
    """Splits with few labels, the very ones of GraphCL's code.

    Fold i is the test part; with ``validation`` the fold before it is the validation part. What is
    left is divided once more, and one ``share``-th of it is labelled: 9% of all rows, or 8%.

    Args:
        y: Labels.
        folds: How many folds.
        share: One of how many remaining rows is labelled.
        seed: Fixes the splits.
        validation: Whether to set a validation part aside.
    """
    labels = _labels(y)
    splits = []
    for split in supervised_splits(labels, folds=folds, seed=seed, validation=validation):
        labelled = stratified_folds(labels[split.train], share, seed)[0]
        splits.append(Split(split.train[labelled], split.validation, split.test))
    return splits


def supervised_splits(
    y: Tensor | np.ndarray, *, folds: int = 10, seed: int = 12345, validation: bool = False
) -> list[Split]:
    """Splits with all labels: everything but the test fold (and the validation fold) is labelled.

    Args:
        y: Labels.
        folds: How many folds.
        seed: Fixes the splits.
        validation: Whether to set the fold before the test fold aside.
    """
    labels = _labels(y)
    parts = stratified_folds(labels, folds, seed)
    splits = []
    for place, test in enumerate(parts):
        held_out = parts[place - 1] if validation else np.empty(0, dtype=np.int64)
        train = np.ones(len(labels), dtype=bool)
        train[test] = train[held_out] = False
        splits.append(Split(train.nonzero()[0], held_out, test))
    return splits


def _labels(y: Tensor | np.ndarray) -> np.ndarray:
    return y.cpu().numpy() if isinstance(y, Tensor) else y
