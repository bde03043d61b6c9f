"""What the lines of a study's records file say, checked key by key as it is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from lg2ar.config import HOW
from lg2ar.errors import InputError
from lg2ar.protocols import read_by


@dataclass(frozen=True)
class Fields:
    """The keys of one record; a key that is not as it should be is an :class:`InputError`.

    Attributes:
        place: Where the record stands, for the error.
        values: The record.
    """

    place: str
    values: Mapping[str, Any]

    def get(self, key: str) -> Any:
        """The value of a key, or of a key within a key: ``task.seed``."""
        value: Any = self.values
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                self._refuse(f"key '{key}' is missing")
            value = value[part]
        return value

    def text(self, key: str) -> str:
        """A string that is not empty."""
        value = self.get(key)
        if not isinstance(value, str) or not value:
            self._refuse(f"key '{key}' must be a text, not {value!r:.40}")
        return value

    def text_or_none(self, key: str) -> str | None:
        """A string, or null."""
        return None if self.get(key) is None else self.text(key)

    def whole(self, key: str) -> int:
        """A whole number, not negative."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._refuse(f"key '{key}' must be a whole number, not {value!r:.40}")
        return value

    def number(self, key: str) -> float:
        """A finite number."""
        return self._numbers(key, [self.get(key)])[0]

    def numbers(self, key: str, *, least: int = 1) -> list[float]:
        """A list of at least so many finite numbers."""
        return self._numbers(key, self.items(key, least=least))

    def items(self, key: str, *, least: int = 1) -> list[Any]:
        """A list of at least so many things."""
        value = self.get(key)
        if not isinstance(value, list):
            self._refuse(f"key '{key}' must be a list, not {value!r:.40}")
        if len(value) < least:
            self._refuse(f"key '{key}' must not be empty")
        return value

    def percents(self, key: str) -> list[float]:
        """A list of numbers from 0 to 100."""
        values = self.numbers(key)
        for value in values:
            if not 0 <= value <= 100:
                self._refuse(f"key '{key}' must be percent from 0 to 100, not {value!r:.40}")
        return values

    def counts(self, key: str, size: int) -> list[list[int]]:
        """Whole numbers, not negative, in a square of shape ``[size, size]``."""
        rows = self.items(key, least=0)
        square = len(rows) == size and all(isinstance(r, list) and len(r) == size for r in rows)
        cells = [cell for row in rows for cell in row] if square else [""]
        if not all(isinstance(c, int) and not isinstance(c, bool) and c >= 0 for c in cells):
            self._refuse(f"key '{key}' must be {size} x {size} counts, one row per head")
        return rows

    def _numbers(self, key: str, values: list[Any]) -> list[float]:
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                self._refuse(f"key '{key}' must hold numbers, not {value!r:.40}")
            if not math.isfinite(value):
                self._refuse(f"key '{key}' must hold finite numbers, not {value}")
        return [float(value) for value in values]

    def _refuse(self, fault: str) -> NoReturn:
        raise InputError(f"{self.place}: {fault}; remove the line and run it again.")


@dataclass(frozen=True)
class Run:
    """A finished run: the task it was, and the rest of its record.

    Attributes:
        table: The table it belongs to.
        dataset: The data set.
        level: ``graph`` or ``node``.
        method: What was trained.
        variant: Which one, where there are several.
        preset: Whose settings it had.
        seed: Its seed.
        fields: All of its record.
        earlier: Records of the same run, from the first on: a run that was done again to be
            evaluated under one more protocol has several.
    """

    table: str
    dataset: str
    level: str
    method: str
    variant: str | None
    preset: str
    seed: int
    fields: Fields
    earlier: tuple[Fields, ...] = ()

    @property
    def task(self) -> tuple[str | int | None, ...]:
        """What it was the run of, which is the same when it is done again."""
        names = (self.table, self.dataset, self.level, self.method, self.variant, self.preset)
        return (*names, self.seed)

    def setting(self, key: str, default: Any) -> Any:
        """One of its settings; ``default`` in records older than the setting."""
        config = self.fields.get("config")
        return config.get(key, default) if isinstance(config, Mapping) else default


@dataclass(frozen=True)
class Evaluation:
    """What a run scored at an epoch.

    Attributes:
        protocol: How it was evaluated.
        epoch: After how many epochs; 0 is the untrained encoder.
        selection: How what was evaluated was chosen, where the evaluation itself chose.
        value: Percent, the mean over folds or splits.
    """

    protocol: str
    epoch: int
    selection: str | None
    value: float


def read_runs(records: Iterable[Mapping[str, Any]]) -> list[Run]:
    """The runs of a records file; of a task that was run twice, the later run.

    Runs that failed are passed over: see :func:`failed_runs`.

    Where the later one has the same settings, it keeps what the earlier one was evaluated on.

    Args:
        records: What :func:`~lg2ar.report.tables.read_records` gives, which knows its lines, or
            any such mappings, which are numbered from 1 where an error has to name one.

    Raises:
        InputError: For a record that does not say what it is of.
    """
    runs: dict[tuple[str | int | None, ...], Run] = {}
    for run in _all_runs(records):
        if "failed" in run.fields.values:
            continue
        key: tuple[str | int | None, ...] = run.task
        if run.table == "cost":  # what it costs elsewhere is another question
            key = (*key, run.fields.text("device"))
        before = runs.get(key)
        if before is not None and _same_settings(before, run):
            run = replace(run, earlier=(*before.earlier, before.fields))
        runs[key] = run
    return list(runs.values())


def failed_runs(records: Iterable[Mapping[str, Any]], table: str | None = None) -> list[str]:
    """The runs that failed and were not done since, each with the reason.

    Args:
        records: As :func:`read_runs` takes them.
        table: Only those of this table; None takes all.
    """
    failed: dict[tuple[str | int | None, ...], str] = {}
    for run in _all_runs(records):
        if table not in (None, run.table):
            continue
        failed.pop(run.task, None)
        if "failed" in run.fields.values:
            name = f"{run.table} {run.dataset} {run.variant or run.method} seed {run.seed}"
            failed[run.task] = f"{name} ({run.fields.text('failed').rstrip('.')})"
    return list(failed.values())


def _all_runs(records: Iterable[Mapping[str, Any]]) -> Iterator[Run]:
    for number, record in enumerate(records, start=1):
        yield _run(Fields(getattr(record, "place", f"record {number}"), record))


def evaluations(run: Run) -> list[Evaluation]:
    """All that a run was evaluated on; where one protocol was used twice, the later ones."""
    found: dict[str, list[Evaluation]] = {}
    for fields in (*run.earlier, run.fields):
        fresh: dict[str, list[Evaluation]] = {}
        for evaluation in _evaluations(fields, run.level):
            fresh.setdefault(evaluation.protocol, []).append(evaluation)
        found |= fresh
    return [evaluation for each in found.values() for evaluation in each]


def _evaluations(fields: Fields, level: str) -> Iterator[Evaluation]:
    config = fields.values.get("config")
    settings = config if isinstance(config, Mapping) else {}
    for number, values in enumerate(fields.items("evaluations", least=0)):
        part = Fields(f"{fields.place}, evaluations[{number}]", values)
        accuracy = part.percents("accuracy")
        yield Evaluation(
            protocol=read_by(part.text("protocol"), level, settings),
            epoch=part.whole("epoch"),
            selection=part.text_or_none("selection"),
            value=math.fsum(accuracy) / len(accuracy),
        )


def _same_settings(run: Run, other: Run) -> bool:
    """Whether two records agree in all that both know of their settings and of their data.

    How steps were done is no part of it, as it is none for the study that made them.
    """
    pairs = [
        (run.fields.get("config"), other.fields.get("config")),
        (run.fields.values.get("data", {}), other.fields.values.get("data", {})),
    ]
    if not all(isinstance(part, Mapping) for pair in pairs for part in pair):
        return False
    return all(
        ours[key] == theirs[key]
        for ours, theirs in pairs
        for key in ours.keys() & theirs.keys() - set(HOW)
    )


def _run(fields: Fields) -> Run:
    return Run(
        table=fields.text("task.table"),
        dataset=fields.text("task.dataset"),
        level=fields.text("task.level"),
        method=fields.text("task.method"),
        variant=fields.text_or_none("task.variant"),
        preset=fields.text("task.preset"),
        seed=fields.whole("task.seed"),
        fields=fields,
    )
