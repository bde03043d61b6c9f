"""Which epoch of fine-tuning on folds is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.records import Score

Selection = Literal["test-max", "validation", "validation-loss", "last"]

# How the epoch was chosen, in words that a score carries.
SELECTIONS: dict[Selection, str] = {
    "test-max": "epoch of the best mean test accuracy over the folds",
    "validation": "each fold's epoch of the best validation accuracy",
    "validation-loss": "each fold's epoch of the lowest validation loss",
    "last": "last epoch, no choice made",
}


@dataclass(frozen=True, eq=False)
class Curve:
    """How one fold went, a number per epoch.

    Attributes:
        train_loss: Mean cross-entropy of the labelled rows while they were trained on.
        test: Accuracy on the test rows after each epoch, in percent.
        validation: The same on the validation rows; None where there are none.
        validation_loss: Mean cross-entropy there; None where there are none.
    """

    train_loss: np.ndarray
    test: np.ndarray
    validation: np.ndarray | None = None
    validation_loss: np.ndarray | None = None


def curve_of(losses: Tensor, results: Tensor, learning_rate: float, validated: bool) -> Curve:
    """A fold's curve from what was measured on the device.

    Args:
        losses: Of each epoch, ``[epochs]``.
        results: Accuracy and loss of the validation rows and of the test rows, ``[epochs, 2, 2]``.
        learning_rate: What the losses came of.
        validated: Whether there are validation rows.

    Raises:
        NonFiniteLossError: When a loss is not a number.
    """
    loss, result = losses.double().cpu().numpy(), results.cpu().numpy()
    broken = np.flatnonzero(~np.isfinite(loss))
    if len(broken):
        raise NonFiniteLossError(
            f"The loss became {loss[broken[0]]} in epoch {broken[0] + 1} of fine-tuning: lower "
            f"learning_rate (now {learning_rate:g})."
        )
    return Curve(
        train_loss=loss,
        test=result[:, 1, 0],
        validation=result[:, 0, 0] if validated else None,
        validation_loss=result[:, 0, 1] if validated else None,
    )


@dataclass(frozen=True, eq=False)
class FoldAccuracy:
    """What fine-tuning gave, fold by fold.

    Attributes:
        accuracy: On the test rows at the chosen epoch, in percent, shape ``[folds]``.
        epoch: The chosen epoch, counted from 1, shape ``[folds]``.
        selection: How it was chosen.
        curves: All epochs; :func:`select` makes another choice of them without training again.
    """

    accuracy: np.ndarray
    epoch: np.ndarray
    selection: Selection
    curves: list[Curve]

    def score(self, protocol: str) -> Score:
        """Mean and standard deviation over folds, with how they came about."""
        return Score(
            mean=float(self.accuracy.mean()),
            std=float(self.accuracy.std()),
            protocol=protocol,
            runs=len(self.accuracy),
            selection=SELECTIONS[self.selection],
        )


def select(curves: Sequence[Curve], selection: Selection) -> FoldAccuracy:
    """Choose the epoch to report; where several are equally good, the first of them.

    ``test-max`` is the one epoch at which the folds' mean test accuracy is highest, which is what
    GraphCL and its successors publish; ``validation`` each fold's own with the highest
    validation accuracy; ``validation-loss`` each fold's own with the lowest validation loss, which
    is what GraphCL's code calls ``val_max``; ``last`` the last.

    Args:
        curves: One per fold, with the same number of epochs.
        selection: One of the above.

    Raises:
        InputError: For another selection, or a choice by validation rows where there are none.
    """
    check_selection(selection, all(curve.validation is not None for curve in curves))
    test = _table(curves, "test")
    folds, epochs = test.shape
    match selection:
        case "test-max":
            chosen = np.full(folds, test.mean(0).argmax())
        case "validation":
            # Of each fold by itself: its validation rows are test rows of the fold before.
            chosen = _table(curves, "validation").argmax(1)
        case "validation-loss":
            chosen = _table(curves, "validation_loss").argmin(1)
        case "last":
            chosen = np.full(folds, epochs - 1)
    return FoldAccuracy(test[np.arange(folds), chosen], chosen + 1, selection, list(curves))


def _table(curves: Sequence[Curve], name: str) -> np.ndarray:
    """One of the numbers of all curves, shape ``[folds, epochs]``."""
    return np.stack([getattr(curve, name) for curve in curves])


def check_selection(selection: str, validated: bool) -> None:
    """Refuse a selection that is not there, or one by validation rows where there are none."""
    if selection not in SELECTIONS:
        raise InputError(f"selection = {selection!r} must be one of {', '.join(SELECTIONS)}.")
    if selection.startswith("validation") and not validated:
        raise InputError(
            f"selection = {selection!r} needs validation rows; make the splits with "
            "validation=True, or choose 'last'."
        )
