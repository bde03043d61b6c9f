"""What the points of a map can be coloured by: labels, columns of the data, sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lg2ar.data.dataset import Dataset
from lg2ar.errors import InputError
from lg2ar.report.kinds import in_order, label_names
from lg2ar.report.outlines import Outliner
from lg2ar.report.words import shortened

MOST_COLUMNS = 16
MOST_NAMES = 40  # categories that are told apart; the rest are called other
LABEL = "label"  # what the labels are called, where their column has no name
FEW = 12  # different whole numbers that are taken for categories


@dataclass(frozen=True, eq=False)
class Colouring:
    """One column of values, a value per row.

    Attributes:
        name: What it is called.
        kind: ``number`` or ``category``.
        values: Numbers, NaN where one is missing; or places in ``names``, -1 where one is missing.
        names: Of the categories.
    """

    name: str
    kind: Literal["number", "category"]
    values: NDArray[np.float64]
    names: tuple[str, ...] = ()


def colourings(dataset: Dataset, rows: NDArray[np.int64], outliner: Outliner) -> list[Colouring]:
    """All that these rows can be coloured by: the labels, the data's columns, then sizes.

    Args:
        dataset: The data.
        rows: Which of its rows are shown.
        outliner: Knows sizes and degrees.
    """
    found = []
    label = str(dataset.reading.get("labels") or LABEL)
    if dataset.y is not None and len(dataset.y) == len(dataset):
        if dataset.y.is_floating_point():
            found.append(_numbers(label, dataset.y.double().numpy()[rows]))
        else:
            names = label_names(dataset)
            found.append(_categories(label, [names[row] for row in rows]))
    for name, values in dataset.targets.items():
        if found and name == found[0].name:
            continue  # the label's own column
        if len(values) == len(dataset) and len(found) < MOST_COLUMNS - 2:
            found.append(_column(str(name), np.asarray(values)[rows]))
    if dataset.level == "node":
        found.append(_numbers("degree", outliner.degrees[rows]))
    else:
        found.append(_numbers("nodes", dataset.graph.sizes.cpu().numpy()[rows]))
        found.append(_numbers("edges", outliner.num_pairs()[rows]))
    return found


def chosen(found: Sequence[Colouring], name: str | None) -> int:
    """Which of them the page starts with: the first, unless another is asked for.

    Raises:
        InputError: For a column that is not there.
    """
    names = [colouring.name for colouring in found]
    if name is None or (name == LABEL and name not in names):
        return 0
    if name not in names:
        raise InputError(
            f"--colour-by: there is no column '{shortened(name)}'; there are "
            f"{', '.join(shortened(each) for each in names)}."
        )
    return names.index(name)


def _column(name: str, values: NDArray[Any]) -> Colouring:
    if values.dtype.kind in "iu" and len(np.unique(values)) > FEW:
        return _numbers(name, values)
    if values.dtype.kind == "f":
        return _numbers(name, values)
    if values.dtype.kind == "O" and _are_numbers(values):
        return _column(name, np.array([np.nan if v is None else v for v in values], float))
    texts = [None if _is_missing(value) else str(value) for value in values.tolist()]
    return _categories(name, texts)


def _numbers(name: str, values: NDArray[Any]) -> Colouring:
    numbers = np.asarray(values, dtype=np.float64)
    return Colouring(name, "number", np.where(np.isfinite(numbers), numbers, np.nan))


def _categories(name: str, texts: Sequence[str | None]) -> Colouring:
    there = [shortened(text) for text in texts if text is not None]
    names, counts = np.unique(np.array(there, str), return_counts=True)
    kept = [str(each) for each in names]
    if len(kept) > MOST_NAMES:
        most = np.argsort(-counts, kind="stable")[: MOST_NAMES - 1]
        kept = [str(names[k]) for k in most]
    kept.sort(key=in_order)
    if len(names) > len(kept):
        kept.append("other")
    codes = {text: float(code) for code, text in enumerate(kept)}
    rest = float(len(kept) - 1)
    values = [-1.0 if text is None else codes.get(shortened(text), rest) for text in texts]
    return Colouring(name, "category", np.array(values, dtype=np.float64), tuple(kept))


def _are_numbers(values: NDArray[Any]) -> bool:
    return all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        for value in values.tolist()
    )


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))
