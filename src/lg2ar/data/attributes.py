"""Attributes of any kind, as files and libraries have them, sorted into columns and targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lg2ar.data.columns import Column
from lg2ar.data.reading import ReadOptions
from lg2ar.data.table_labels import LABELS, as_labels
from lg2ar.data.text_tables import MOST_COLUMNS
from lg2ar.errors import InputError

Row = Mapping[str, Any]
RowName = Callable[[int], str]  # what to call a node or edge in a message, by its place

WEIGHTS = ("weight", "edge_weight")


def gather(rows: Sequence[Row], what: str, where: str) -> dict[str, list[Any]]:
    """Attributes by name, a value per row, None where a row has none.

    Args:
        rows: The attributes of each node, edge or graph.
        what: Which of these they are, for a message.
        where: What to call the data in it.
    """
    gathered: dict[str, list[Any]] = {}
    for place, row in enumerate(rows):
        for name, value in row.items():
            if name not in gathered:
                if len(gathered) == MOST_COLUMNS:
                    raise InputError(
                        f"{where}: {what} have more than {MOST_COLUMNS} different "
                        "attributes; give features as a list of numbers in one attribute."
                    )
                gathered[name] = [None] * len(rows)
            gathered[name][place] = value
    return gathered


class Sorter:
    """Tells numbers, categories and vectors apart, and notes what is none of them.

    Args:
        name: What to call the data in messages.
        options: What was said about attributes.
        notes: Where to say what was found.
    """

    def __init__(self, name: str, options: ReadOptions, notes: list[str]) -> None:
        self.name, self.options, self.notes = name, options, notes
        self.unused: list[str] = []
        self.seen: set[str] = set()

    def weight(self, gathered: dict[str, list[Any]]) -> list[Column]:
        """The attribute that holds the edge weights, taken out of the others; or nothing."""
        asked = self.options.weight
        found = asked or next((name for name in gathered if name.lower() in WEIGHTS), None)
        if found is None or found in self.options.ignore:
            return []
        if found not in gathered:
            raise InputError(f"{self.name}: edges have no attribute '{found}' for their weights.")
        column = as_column(found, gathered[found])
        if column is not None and column.kind == "number" and _are_weights(column.values):
            del gathered[found]
            if asked is None:
                self.notes.append(f"'{found}' of edges is taken for their weights.")
            return [column]
        if asked is not None:
            raise InputError(
                f"{self.name}: '{asked}' of edges is to hold weights, but is not everywhere a "
                "number that is not negative; correct it, or do not ask for it."
            )
        self.notes.append(
            f"'{found}' of edges is an attribute, not a weight: it is not everywhere a number that "
            "is not negative."
        )
        return []

    def sort(
        self, gathered: dict[str, list[Any]], what: str, rows: int, row_name: RowName
    ) -> tuple[tuple[Column, ...], Tensor]:
        """Columns, and vectors side by side ``[rows, features]``.

        Args:
            gathered: Attributes by name.
            what: Nodes or edges, for a message.
            rows: How many of them.
            row_name: What to call one of them in a message.
        """
        columns: list[Column] = []
        vectors: list[np.ndarray] = []
        for name, values in gathered.items():
            self.seen.add(name)
            if name in self.options.ignore:
                continue
            vector = _as_vectors(name, values, row_name)
            if vector is not None and vector.shape[1] == 1:
                values, vector = vector[:, 0].tolist(), None
            if vector is not None:
                vectors.append(vector)
                continue
            column = as_column(name, values, category=name in self.options.categories)
            if column is None:
                self.unused.append(f"'{name}' of {what}")
                continue
            if column.kind == "number" and np.isinf(column.values).any():
                row = int(np.flatnonzero(np.isinf(column.values))[0])
                raise InputError(
                    f"{row_name(row)} has infinity in '{name}'; replace it, or leave it out."
                )
            columns.append(column)
        wide = np.concatenate([np.zeros((rows, 0)), *vectors], axis=1)
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and is refused
            return tuple(columns), torch.from_numpy(wide.astype(np.float32))

    def tell_unused(self) -> None:
        """Note what was not used, and refuse options about what is not there."""
        for option in ("categories", "ignore"):
            lost = [name for name in getattr(self.options, option) if name not in self.seen]
            if lost:
                known = ", ".join(f"'{name}'" for name in sorted(self.seen)[:8]) or "none"
                raise InputError(
                    f"{self.name}: {option} names '{lost[0]}', but no node or edge has such an "
                    f"attribute; there are {known}."
                )
        if self.unused:
            self.notes.append(
                f"No feature is made of {', '.join(self.unused[:8])}: what they hold is neither "
                "numbers nor words."
            )


def as_column(name: str, values: Sequence[Any], *, category: bool = False) -> Column | None:
    """Values as a column, None where they are neither numbers nor words."""
    kinds = {type(value) for value in values} - {type(None)}
    numeric = {kind for kind in kinds if _is_number(kind)}
    if not kinds - numeric and not category:
        try:
            return Column.numbers(name, values)
        except OverflowError:  # a whole number beyond all floats
            return Column.categories(name, values)
    if all(kind in numeric or issubclass(kind, str | bool | np.bool_) for kind in kinds):
        return Column.categories(name, values)
    return None


def _are_weights(values: np.ndarray) -> bool:
    return bool(((values >= 0) & (values < np.finfo(np.float32).max)).all())


def _is_number(kind: type) -> bool:
    return issubclass(kind, Number | np.number) and not issubclass(
        kind, bool | np.bool_ | complex | np.complexfloating
    )


def _as_vectors(name: str, values: Sequence[Any], row_name: RowName) -> np.ndarray | None:
    """Lists of numbers as a matrix; None where the values are something else."""
    kinds = {type(value) for value in values}
    if not any(_is_list(kind) for kind in kinds):
        return None
    length = None
    rows = []
    for place, value in enumerate(values):
        if value is None:
            raise InputError(f"{row_name(place)} has no '{name}', where others have a list.")
        row = _as_numbers(value)
        if row is None:
            return None  # lists of words, or of lists
        if length is not None and len(row) != length:
            raise InputError(
                f"{row_name(place)} has {len(row)} numbers in '{name}' where the first one has "
                f"{length}; give them the same length."
            )
        length = len(row)
        if not all(map(math.isfinite, row)):
            raise InputError(
                f"{row_name(place)} has a number in '{name}' that is not finite; replace NaN and "
                "infinity."
            )
        rows.append(row)
    return np.array(rows, dtype=np.float64) if length else None


def _is_list(kind: type) -> bool:
    return issubclass(kind, list | tuple | np.ndarray | Tensor)


def _as_numbers(value: Any) -> list[float] | None:
    if isinstance(value, np.ndarray | Tensor):
        value = value.reshape(-1).tolist()
    if not isinstance(value, list | tuple):
        return [float(value)] if _is_number(type(value)) else None
    if not all(_is_number(kind) or issubclass(kind, bool) for kind in set(map(type, value))):
        return None
    try:
        return [float(number) for number in value]
    except OverflowError:
        return [math.inf]


def spread_targets(columns: Mapping[str, list[Any]], kept: Iterable[str]) -> dict[str, list[Any]]:
    """Targets that are lists of one length, a name for each place; a list of one is a value."""
    spread: dict[str, list[Any]] = {}
    for name in kept:
        values = columns[name]
        lengths = {len(v) for v in values if _is_row(v)}
        if len(lengths) == 1 and all(v is None or _is_row(v) for v in values):
            (length,) = lengths
            for place in range(length):
                key = name if length == 1 else f"{name}_{place}"
                spread[key] = [None if v is None else _plain(v[place]) for v in values]
        else:
            spread[name] = list(values)
    return spread


def _is_row(value: Any) -> bool:
    """Whether it is a list of values, not of further lists."""
    if isinstance(value, np.ndarray | Tensor):
        return value.ndim == 1
    return isinstance(value, list | tuple) and not any(_is_list(type(part)) for part in value)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic | Tensor) else value


def as_target(values: Sequence[Any]) -> np.ndarray:
    """Values as numbers or words, missing ones as NaN or None."""
    column = as_column("", values)
    if column is None:  # a structure: as text, to look at
        return Column.categories("", [None if v is None else str(v) for v in values]).values
    return column.values


def settle_labels(
    name: str | None, asked: str | None, targets: Mapping[str, np.ndarray], notes: list[str]
) -> tuple[Tensor | None, tuple[str, ...] | None]:
    """``y`` and the names of classes, from the target that holds the labels.

    Args:
        name: The target; None where there is none.
        asked: The one that was asked for.
        targets: All of them.
        notes: Where to say what was found.
    """
    if name is None or name not in targets:
        return None, None
    if asked is None:
        notes.append(f"'{name}' is taken for the labels; no feature is made of it.")
    y, classes = as_labels(targets[name])
    if y is None:
        notes.append(f"'{name}' has no label for some; they stay without.")
    return y, classes


def label_name(asked: str | None, columns: Mapping[str, Any], name: str, what: str) -> str | None:
    """The column that holds the labels: the one asked for, or one that is called like it."""
    if asked is not None:
        if asked not in columns:
            known = ", ".join(f"'{column}'" for column in list(columns)[:8]) or "none"
            raise InputError(
                f"{name}: {what} have no column '{asked}' for their labels; there are {known}."
            )
        return asked
    by_word = {column.lower(): column for column in reversed(list(columns))}
    found = [by_word[word] for word in LABELS if word in by_word]
    return next((column for column in found if not _are_names(columns[column])), None)


def _are_names(values: Iterable[Any]) -> bool:
    """Whether most words are there but once: such are names or remarks, not classes."""
    words = [value for value in values if isinstance(value, str)]
    return len(set(words)) > max(len(words) / 2, 1)


def short(value: Any) -> str:
    """A value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
