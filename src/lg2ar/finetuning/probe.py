"""A linear model on the encoder as it is: what fine-tuning has to be better than."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lg2ar.finetuning.targets import Target
from lg2ar.moments import scaled
from lg2ar.splits import Split

# With more labels than these a probe takes longer than it is worth, and fine-tuning does well.
MOST = 2000

# How strongly a linear model of numbers may be held back.
_ALPHAS = tuple(10.0**k for k in range(-2, 6))


def probed(
    encodings: NDArray[np.floating], values: NDArray[Any], split: Split, target: Target
) -> NDArray[np.float64]:
    """What a linear model tells about the tested rows, as :meth:`Target.read` does.

    It is a logistic regression of classes, or a ridge regression of numbers, and learns from the
    rows that stop fine-tuning as well: how strongly it is held back is chosen among these labels.
    Columns are scaled by all rows of the split, whose labels are not looked at for it.

    Args:
        encodings: Of all rows of the split.
        values: Labels of all rows of the data.
        split: Numbers of the rows, in the order of training, validation and test those of
            ``encodings``.
        target: What the labels are.
    """
    rows, learned = scaled(encodings), len(split.train) + len(split.validation)
    known = values[np.concatenate([split.train, split.validation])]
    if target.task == "regression":
        from sklearn.linear_model import RidgeCV

        model = RidgeCV(alphas=_ALPHAS).fit(rows[:learned], known)
        told: NDArray[np.float64] = model.predict(rows[learned:])
        return told
    from lg2ar.probes.few_labels import chosen_logistic_chances, inner_folds

    every, folds = np.arange(len(rows)), inner_folds(known)
    return chosen_logistic_chances(
        rows, known, every[:learned], every[learned:], len(target.classes), folds
    )[0]
