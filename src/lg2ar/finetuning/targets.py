"""What is to be predicted: a column of labels as classes or numbers, its loss and its scores."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lg2ar.data.dataset import Dataset
from lg2ar.errors import InputError

Task = Literal["classification", "regression"]

# Whole numbers with at most so many different values are taken for classes.
FEW = 20


@dataclass(frozen=True)
class Target:
    """What a network was fine-tuned to tell.

    Attributes:
        column: What the labels are called.
        task: Whether they are classes or numbers.
        classes: Names of the classes, in the order of the outputs; empty for numbers.
        mean: Of the numbers that were learned from.
        scale: Their standard deviation; the network tells numbers in these units.
    """

    column: str
    task: Task
    classes: tuple[str, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Target:
        """The target that :meth:`to_dict` wrote.

        Raises:
            TypeError, KeyError: When it is something else.
        """
        target = cls(**{**held, "classes": tuple(held["classes"])})
        numbers = all(type(number) in (int, float) for number in (target.mean, target.scale))
        words = all(isinstance(word, str) for word in (target.column, *target.classes))
        if not numbers or not words or (target.task == "classification") != bool(target.classes):
            raise TypeError("a target of no known kind")
        if target.task not in ("classification", "regression"):
            raise TypeError("a task of no known kind")
        return target

    @property
    def outputs(self) -> int:
        """Width of what the network puts out."""
        return len(self.classes) or 1

    def loss(self, outputs: Tensor, wanted: Tensor) -> Tensor:
        """Cross-entropy of classes, or mean squared error of scaled numbers.

        Args:
            outputs: Of the network, ``[R, outputs]``.
            wanted: The place of each class, or numbers as they are, ``[R]``.
        """
        if self.task == "classification":
            return F.cross_entropy(outputs, wanted)
        return F.mse_loss(outputs.squeeze(1), (wanted - self.mean).to(outputs) / self.scale)

    def read(self, outputs: Tensor) -> NDArray[np.float64]:
        """What outputs say: probabilities ``[R, classes]``, or numbers ``[R]``."""
        values = outputs.double().cpu()
        if self.task == "classification":
            return torch.softmax(values, dim=1).numpy()
        found: NDArray[np.float64] = (values.squeeze(1) * self.scale + self.mean).numpy()
        return found

    def scores(self, truth: NDArray[Any], told: NDArray[np.float64]) -> dict[str, float]:
        """How good predictions are, in the usual measures.

        Classes: accuracy and F1 (mean over the classes) in percent and, of two classes, the area
        under the ROC curve in percent. Numbers: MAE, RMSE, and R², where there is a spread.

        Args:
            truth: Places of the classes, or numbers, ``[R]``.
            told: What :meth:`read` gave.
        """
        from sklearn import metrics

        if self.task == "regression":
            error = told - truth
            found = {"MAE": float(np.abs(error).mean()), "RMSE": float((error**2).mean() ** 0.5)}
            spread = float(((truth - truth.mean()) ** 2).sum())
            return found | ({"R2": 1 - float((error**2).sum()) / spread} if spread else {})
        guess = told.argmax(1)
        macro = metrics.f1_score(
            truth, guess, labels=range(len(self.classes)), average="macro", zero_division=0
        )
        found = {"accuracy": 100 * float((guess == truth).mean()), "F1": 100 * float(macro)}
        if len(self.classes) == 2 and len(np.unique(truth)) == 2:
            found["ROC-AUC"] = 100 * float(metrics.roc_auc_score(truth, told[:, 1]))
        return found

    def floor(self, learned: NDArray[Any], number: int) -> NDArray[np.float64]:
        """What knows no graph would tell: the shares of the classes, or the mean.

        Args:
            learned: Labels that were learned from.
            number: For how many rows.
        """
        if self.task == "regression":
            return np.full(number, float(learned.mean()))
        shares = np.bincount(learned, minlength=len(self.classes)) / len(learned)
        return np.tile(shares, (number, 1))

    def to_dict(self) -> dict[str, Any]:
        """The target as JSON has it."""
        return asdict(self) | {"classes": list(self.classes)}


@dataclass(frozen=True, eq=False)
class Labels:
    """A column of labels.

    Attributes:
        target: What they are; mean and scale are not measured yet.
        values: The place of each class, or numbers, ``[rows]``; of no meaning where unknown.
        known: Numbers of the rows that have a label, ascending.
    """

    target: Target
    values: NDArray[Any]
    known: NDArray[np.int64]


def read_labels(dataset: Dataset, column: str | None = None, task: Task | None = None) -> Labels:
    """Take a column of labels from a data set and find out whether it holds classes or numbers.

    Words, truth values, and whole numbers with few different values are classes; other numbers
    are numbers to predict.

    Args:
        dataset: What the labels belong to.
        column: Its name among the data's targets; None, or ``y``, for the data's own labels.
        task: What to take them for, whatever they look like.

    Raises:
        InputError: When there is no such column, or it cannot be what it is wanted to be.
    """
    name, values, classes = _find(dataset, column)
    if task not in (None, "classification", "regression"):
        raise InputError(f"task = {task!r} must be classification or regression.")
    known = np.flatnonzero(~_missing(values))
    if not len(known):
        raise InputError(f"{dataset.name}: no {dataset.level} has a label in column '{name}'.")
    numbers = _as_numbers(values[known]) if classes is None else None
    if task is None:
        task = "classification" if numbers is None or _are_classes(numbers) else "regression"
    if task == "regression":
        return _numbers(dataset, name, values, known, numbers)
    if classes is not None:
        return Labels(Target(name, task, classes), values.astype(np.int64), known)
    return _classes(dataset, name, values, known, numbers)


def _find(dataset: Dataset, column: str | None) -> tuple[str, NDArray[Any], tuple[str, ...] | None]:
    """A column's name, its values and, where these are places in a list already, that list."""
    own = str(dataset.reading.get("labels") if column is None else column)
    if own in dataset.targets:
        return own, np.asarray(dataset.targets[own]), None
    if column in (None, "y") and dataset.y is not None:
        if len(dataset.y) != len(dataset):
            raise InputError(
                f"{dataset.name}: has {len(dataset.y)} labels for {len(dataset)} rows; name a "
                "column with one for each."
            )
        return "y", dataset.y.cpu().numpy(), dataset.classes
    there = [*dataset.targets, *(["y"] if dataset.y is not None else [])]
    if not there:
        raise InputError(f"{dataset.name}: has no labels and no further columns to predict.")
    if column is None:
        raise InputError(
            f"{dataset.name}: does not say which column holds the labels; name one of "
            f"{', '.join(there)}."
        )
    close = difflib.get_close_matches(column, there, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(there)}."
    raise InputError(f"{dataset.name}: has no column '{column}' to predict; {hint}")


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    # NaN is not even itself.
    return np.array([v is None or v != v or v == "" for v in values.tolist()], dtype=bool)


def _as_numbers(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """The values as numbers; None where some are words or truth values."""
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    kinds = {type(value) for value in values.tolist()}
    if kinds <= {int, float}:
        return values.astype(np.float64)
    return None


def _are_classes(numbers: NDArray[np.float64]) -> bool:
    return bool((numbers == numbers.round()).all()) and len(np.unique(numbers)) <= FEW


def _numbers(
    dataset: Dataset,
    name: str,
    values: NDArray[Any],
    known: NDArray[np.int64],
    numbers: NDArray[np.float64] | None,
) -> Labels:
    if numbers is None:
        raise InputError(
            f"{dataset.name}: column '{name}' holds classes, such as '{values[known[0]]}', and no "
            "numbers to predict; leave task out, or set it to classification."
        )
    if not np.isfinite(numbers).all():
        row = int(known[np.flatnonzero(~np.isfinite(numbers))[0]])
        raise InputError(f"{dataset.name}: column '{name}' is infinite in row {row}; replace it.")
    whole = np.zeros(len(values))
    whole[known] = numbers
    return Labels(Target(name, "regression"), whole, known)


def _classes(
    dataset: Dataset,
    name: str,
    values: NDArray[Any],
    known: NDArray[np.int64],
    numbers: NDArray[np.float64] | None,
) -> Labels:
    if numbers is None:
        names, places = np.unique(values[known].astype(str), return_inverse=True)
    else:
        kinds, places = np.unique(numbers, return_inverse=True)
        names = np.array([f"{kind:.17g}" for kind in kinds])
    if len(names) < 2:
        raise InputError(
            f"{dataset.name}: column '{name}' holds the single class '{names[0]}', which leaves "
            "nothing to tell apart."
        )
    if 2 * len(names) > len(known):
        raise InputError(
            f"{dataset.name}: column '{name}' holds {len(names)} classes for {len(known)} labelled "
            "rows, too many to learn; name another column, or set task to regression."
        )
    whole = np.zeros(len(values), dtype=np.int64)
    whole[known] = places
    return Labels(Target(name, "classification", tuple(names.tolist())), whole, known)
