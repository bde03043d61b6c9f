"""What a person may say about how a source is to be read."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

from lg2ar.config import Level
from lg2ar.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Table = Union[str, Path, "pd.DataFrame"]

Role = Literal["graph", "node", "source", "target"]
ROLES: tuple[Role, ...] = ("graph", "node", "source", "target")


@dataclass(frozen=True, eq=False)
class ReadOptions:
    """How a source is to be read; what is left at its default is detected.

    Attributes:
        level: ``graph`` or ``node``: what is to be embedded.
        labels: Column (or attribute) that holds the labels.
        directed: Whether an edge points from its source to its target only.
        weight: Column (or attribute) that holds the weights of edges.
        categories: Columns whose numbers are categories, not amounts.
        ignore: Columns that no feature is made of.
        columns: What the columns with ids are called, by role: ``graph``, ``node``, ``source``,
            ``target``.
        nodes: Table of nodes, beside a source that is a table of edges.
        graphs: Table of graphs, beside a source that is a table of edges.
        smiles: Column that holds molecules as SMILES.
        strict: Whether what could be skipped and counted is refused instead.
    """

    level: Level | None = None
    labels: str | None = None
    directed: bool | None = None
    weight: str | None = None
    categories: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    nodes: Table | None = None
    graphs: Table | None = None
    smiles: str | None = None
    strict: bool = False

    @classmethod
    def make(cls, options: Mapping[str, Any]) -> ReadOptions:
        """Options by name, checked.

        Raises:
            InputError: For an option that is not there, or a value it cannot have.
        """
        known = [option.name for option in fields(cls)]
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known)}."
                raise InputError(f"'{name}' is no option of reading; {hint}")
        made = cls(**options)
        if made.level not in (None, "graph", "node"):
            raise InputError(f"level = {made.level!r} must be graph or node.")
        roles = [role for role in made.columns if role not in ROLES]
        if roles:
            raise InputError(f"columns: '{roles[0]}' must be one of {', '.join(ROLES)}.")
        words: dict[str, Any] = {
            name: (value,) if isinstance(value, str) else tuple(value)
            for name in ("categories", "ignore")
            if (value := getattr(made, name)) is not None
        }
        return replace(made, **words)

    def given(self) -> set[str]:
        """The options that were given, by name."""
        default = ReadOptions()
        return {
            option.name
            for option in fields(self)
            if getattr(self, option.name) is not getattr(default, option.name)
            and not _is_empty(getattr(self, option.name))
        }

    def check(self, source: str, known: Collection[str]) -> None:
        """Refuse options that say nothing about a kind of source."""
        for name in sorted(self.given() - set(known)):
            raise InputError(
                f"{source}: the option '{name}' says nothing about a source of this kind; leave "
                "it out."
            )

    def filled(self, usual: Mapping[str, Any], known: Collection[str]) -> ReadOptions:
        """These options, and where they are silent what is usual, as far as it applies."""
        given = self.given()
        more: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in usual.items()
            if name in known and name not in given and name in REMEMBERED
        }
        for name, value in more.items():  # out of a file that another hand may have changed
            if not _is_kind(REMEMBERED[name], value):
                raise InputError(
                    f"{name} = {value!r}, which the model was trained with, cannot be; restore its "
                    "folder, or train again."
                )
        return replace(self, **more)

    def remembered(self, **settled: Any) -> dict[str, Any]:
        """What such data is to be read with another time, as JSON has it.

        Args:
            **settled: What was detected, where it was left open.
        """
        held = {name: getattr(self, name) for name in REMEMBERED if name in self.given()} | settled
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in held.items()
            if value is not None
        }


def _is_empty(value: Any) -> bool:
    return isinstance(value, tuple | Mapping) and not value


def _is_kind(kind: type, value: Any) -> bool:
    if not isinstance(value, kind):
        return False
    held: Any = (*value, *value.values()) if isinstance(value, dict) else value
    return kind in (str, bool) or all(isinstance(word, str) for word in held)


# Options that go with a model: data is read with them again unless told otherwise. And their kinds.
REMEMBERED: dict[str, type] = {
    "labels": str,
    "directed": bool,
    "weight": str,
    "categories": tuple,
    "ignore": tuple,
    "columns": dict,
    "smiles": str,
}
