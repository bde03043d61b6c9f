"""Raw columns of nodes or edges, and the recipe that makes numbers of them.

The recipe is learned on the data a model is trained on and kept with the model as JSON, so that
unseen data is read the same way: numbers with the same mean and scale, categories in the same
places.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lg2ar.errors import InputError

# Values of a category that get a place of their own; rarer ones share a place called other.
LARGEST = 64

Kind = Literal["number", "category"]
Unseen = Counter[tuple[str, str]]  # how often each (column, value) came; missing is value ""


@dataclass(frozen=True, eq=False)
class Column:
    """One raw column of nodes or of edges.

    Attributes:
        name: What it is called.
        kind: ``number``, or ``category`` for words, for booleans and for what was asked to be one.
        values: ``float64`` with NaN for missing, or an object array of ``str`` with None.
    """

    name: str
    kind: Kind
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def numbers(cls, name: str, values: Any) -> Column:
        """A column of numbers, NaN where one is missing."""
        return cls(name, "number", np.asarray(values, dtype=np.float64))

    @classmethod
    def categories(cls, name: str, values: Any) -> Column:
        """A column of categories: anything, as text; None and NaN are missing."""
        import pandas as pd

        given = pd.Series(np.asarray(values, dtype=object), dtype=object)
        missing = given.isna().to_numpy()
        texts = given.map(_text, na_action="ignore").to_numpy(dtype=object, copy=True)
        texts[missing] = None
        return cls(name, "category", texts)

    def take(self, index: np.ndarray) -> Column:
        """The values at these places."""
        return Column(self.name, self.kind, self.values[index])


Columns = tuple[Column, ...]


@dataclass(frozen=True)
class NumberRule:
    """A column of numbers, brought to mean 0 and standard deviation 1.

    Attributes:
        name: The column.
        mean: Of the values that were there; a missing one is taken to be it.
        std: Their standard deviation; 0 where they were all alike, which makes no feature.
        missing: Whether some were missing, which is then a feature of its own.
    """

    name: str
    mean: float
    std: float
    missing: bool
    kind: Literal["number"] = "number"

    @property
    def width(self) -> int:
        """Number of features it makes."""
        return int(self.std > 0) + int(self.missing)

    @classmethod
    def learn(cls, column: Column) -> NumberRule:
        """Measure a column."""
        given = column.values
        there = np.sort(given[~np.isnan(given)])  # so that the order of rows changes no last digit
        missing = len(there) < len(column)
        if not len(there):
            return cls(column.name, 0.0, 0.0, False)
        low, high = float(there.min()), float(there.max())
        if low == high:
            return cls(column.name, low, 0.0, missing)
        size = max(abs(low), abs(high))  # so that squares of the largest numbers stay finite
        scaled = there / size
        return cls(column.name, float(scaled.mean()) * size, float(scaled.std()) * size, missing)

    def apply(self, column: Column) -> tuple[np.ndarray, Unseen]:
        """The features ``[rows, width]``, and what was not seen when the rule was learned."""
        absent = np.isnan(column.values)
        made = np.zeros((len(column), self.width), dtype=np.float32)
        if self.std > 0:
            with np.errstate(over="ignore"):  # what is beyond float32 is refused further on
                made[:, 0] = np.where(absent, 0.0, (column.values - self.mean) / self.std)
        if self.missing:
            made[:, -1] = absent
        new = 0 if self.missing or not self.std else int(absent.sum())
        return made, Counter({(self.name, ""): new} if new else {})


@dataclass(frozen=True)
class CategoryRule:
    """A column of categories, a place for each value.

    Attributes:
        name: The column.
        values: The values with a place of their own, in order.
        other: Whether there were more, which share a place; values never seen go there too, or
            nowhere if there is no such place.
        missing: Whether some were missing, which is then a place of its own.
    """

    name: str
    values: tuple[str, ...]
    other: bool
    missing: bool
    kind: Literal["category"] = "category"

    @property
    def width(self) -> int:
        """Number of features it makes."""
        return len(self.values) + int(self.other) + int(self.missing)

    @classmethod
    def learn(cls, column: Column, largest: int = LARGEST) -> CategoryRule:
        """Measure a column."""
        import pandas as pd

        counts = pd.Series(column.values, dtype=object).value_counts()
        missing = int(counts.sum()) < len(column)
        if len(counts) > largest and int((counts == 1).sum()) > len(counts) / 2:
            return cls(column.name, (), False, False)  # names and texts, not categories
        frequency = counts.to_dict()
        # Sorted twice, so that of equally frequent ones the first in order are kept.
        kept = sorted(_ordered(list(frequency)), key=lambda value: -frequency[value])[:largest]
        return cls(column.name, tuple(_ordered(kept)), len(counts) > largest, missing)

    def apply(self, column: Column) -> tuple[np.ndarray, Unseen]:
        """The features ``[rows, width]``, and what was not seen when the rule was learned."""
        import pandas as pd

        made = np.zeros((len(column), self.width), dtype=np.float32)
        if not self.width:
            return made, Counter()
        places = pd.Index(self.values, dtype=object)
        place = places.get_indexer(pd.Index(column.values, dtype=object))
        absent = pd.isna(column.values)
        new = (place < 0) & ~absent
        unseen: Unseen = Counter()
        if new.any() and not self.other:
            counts = pd.Series(column.values[new], dtype=object).value_counts()
            unseen.update({(self.name, value): int(count) for value, count in counts.items()})
        if self.other:
            place = np.where(new, len(self.values), place)
        if self.missing:
            place = np.where(absent, self.width - 1, place)
        elif absent.any():
            unseen[(self.name, "")] += int(absent.sum())
        rows = np.flatnonzero(place >= 0)
        made[rows, place[rows]] = 1
        return made, unseen


@dataclass(frozen=True)
class ColumnRecipe:
    """How the columns of nodes, or of edges, become features.

    Attributes:
        rules: One a column, in order.
    """

    rules: tuple[NumberRule | CategoryRule, ...]

    @property
    def width(self) -> int:
        """Number of features the recipe makes."""
        return sum(rule.width for rule in self.rules)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns that make no feature: one number everywhere, or a different text in each row."""
        return tuple(rule.name for rule in self.rules if not rule.width)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What each feature is, ``[width]``."""
        names: list[str] = []
        for rule in self.rules:
            if isinstance(rule, NumberRule):
                names += [rule.name] if rule.std > 0 else []
            else:
                names += [f"{rule.name} = {value}" for value in rule.values]
                names += [f"{rule.name}: another"] if rule.other else []
            names += [f"{rule.name}: missing"] if rule.missing else []
        return tuple(names)

    @classmethod
    def learn(cls, columns: Sequence[Column], name: str = "the data") -> ColumnRecipe:
        """Measure columns, once and for all."""
        rules: list[NumberRule | CategoryRule] = []
        for column in columns:
            known = getattr(column, "rule", None)  # of a column on a disk, learned before
            if known is None:
                _refuse_infinity([column], name)
                learner = NumberRule if column.kind == "number" else CategoryRule
                known = learner.learn(column)
            rules.append(known)
        return cls(tuple(rules))

    def apply(self, columns: Sequence[Column], name: str = "the data") -> tuple[Tensor, Unseen]:
        """Make features of columns of the same names; further ones are not looked at.

        Args:
            columns: In any order.
            name: What to call the data in a message.

        Returns:
            The features ``[rows, width]``, and how often values came that were not seen when the
            recipe was learned: they count as other, or as nothing; a missing number as the mean.

        Raises:
            InputError: When a column is not there, or holds words in place of numbers.
        """
        _refuse_infinity(columns, name)
        known = {column.name: column for column in columns}
        unseen: Unseen = Counter()
        parts = []
        for rule in self.rules:
            if not rule.width:
                continue
            made, new = rule.apply(_fitting(known, rule.name, rule.kind, name))
            parts.append(made)
            unseen.update(new)
        rows = len(columns[0]) if columns else 0
        whole = np.concatenate(parts, axis=1) if parts else np.zeros((rows, 0), dtype=np.float32)
        return torch.from_numpy(whole), unseen

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON has it."""
        return {"rules": [asdict(rule) for rule in self.rules]}

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> ColumnRecipe:
        """The recipe that :meth:`to_dict` wrote.

        Raises:
            TypeError, KeyError: When it is not one.
        """
        return cls(tuple(_rule(dict(rule)) for rule in held["rules"]))


def _rule(held: dict[str, Any]) -> NumberRule | CategoryRule:
    """A rule out of JSON, which another hand may have changed.

    Raises:
        TypeError, KeyError: When it is none.
    """
    rule: NumberRule | CategoryRule
    if held.pop("kind") == "number":
        rule = NumberRule(**held)
        fits = all(isinstance(n, int | float) and abs(n) < math.inf for n in (rule.mean, rule.std))
    else:
        rule = CategoryRule(**{**held, "values": tuple(held["values"])})
        fits = isinstance(rule.other, bool) and all(isinstance(v, str) for v in rule.values)
        fits = fits and len(set(rule.values)) == len(rule.values)
    if not fits or not isinstance(rule.name, str) or not isinstance(rule.missing, bool):
        raise TypeError("a rule of no known kind")
    return rule


def _fitting(known: Mapping[str, Column], wanted: str, kind: Kind, name: str) -> Column:
    """The column of that name as the kind that is wanted, where it can be read so."""
    column = known.get(wanted)
    if column is None:
        there = ", ".join(f"'{other}'" for other in list(known)[:8]) or "none"
        raise InputError(
            f"{name}: has no column '{wanted}', which the model was trained on (its columns are "
            f"{there}); add it, empty where it is not known."
        )
    if column.kind == kind:
        return column
    if kind == "category":  # numbers in this file, words among them in the other one
        return Column.categories(wanted, column.values)
    word = next((value for value in column.values if value is not None), None)
    if word is not None:
        raise InputError(
            f"{name}: column '{wanted}' holds words ('{word[:40]}') where the model was trained on "
            "numbers; give it numbers, empty where they are not known."
        )
    return Column.numbers(wanted, np.full(len(column), np.nan))


def _refuse_infinity(columns: Sequence[Column], name: str) -> None:
    for column in columns:
        if column.kind == "number" and np.isinf(column.values).any():
            row = int(np.flatnonzero(np.isinf(column.values))[0])
            raise InputError(
                f"{name}: column '{column.name}' holds infinity in row {row + 1}; replace it, or "
                "leave the place empty."
            )


def _text(value: Any) -> str:
    """A value as it would stand in a file: whole numbers without a point."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def _ordered(values: list[str]) -> list[str]:
    """Values in the order of the numbers they are, or of the alphabet."""
    try:
        numbers = {value: float(value) for value in values}
    except ValueError:
        return sorted(values)
    if not np.isfinite(list(numbers.values())).all():
        return sorted(values)
    return sorted(values, key=lambda value: (numbers[value], value))
