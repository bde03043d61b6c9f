"""Records as Markdown tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lg2ar.config import in_todays_words
from lg2ar.errors import InputError


class Record(dict[str, Any]):
    """A line of a records file, which knows its place there.

    Args:
        values: What the line says.
        place: The file and the line, for errors.
    """

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        super().__init__(values)
        self.place = place


def read_records(path: str | Path) -> list[Record]:
    """Read a records file, one JSON object a line.

    A last record without its end, which a kill in the middle of a write leaves, is passed over.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}).") from None
    lines, records = text.splitlines(), []
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) and is_cut_short(text):
                break
            raise InputError(f"{place}: not a record ({error}).") from None
        if not isinstance(values, dict):
            raise InputError(f"{place}: not a record, which is a JSON object.")
        records.append(Record(values, place))
    return records


def is_cut_short(text: str) -> bool:
    """Whether a records file ends in the beginning of a record, which lacks its end."""
    return text.rpartition("\n")[2].startswith("{")


def variants_table(records: Iterable[Mapping[str, Any]], base: Mapping[str, Any]) -> str:
    """Untrained beside trained, a row for each way in which runs differ from ``base``.

    Mean and standard deviation are over seeds.

    Args:
        records: Runs of one data set under one protocol.
        base: The settings that are not worth mentioning.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(_difference(record["config"], base), []).append(record)
    lines = [
        "| setting | seeds | untrained | trained | difference |",
        "|---|---|---|---|---|",
    ]
    for name, runs in groups.items():
        before = [run["scores"]["untrained"]["mean"] for run in runs]
        after = [run["scores"]["trained"]["mean"] for run in runs]
        gain = [b - a for a, b in zip(before, after, strict=True)]
        cells = " | ".join(_spread(values) for values in (before, after, gain))
        lines.append(f"| {name} | {len(runs)} | {cells} |")
    return "\n".join(lines)


def _difference(config: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    changed = [
        f"`{key} = {value}`"
        for key, value in in_todays_words(config).items()
        if key != "seed" and value != base.get(key, value)
    ]
    return ", ".join(changed) or "as it is"


def _spread(values: list[float]) -> str:
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {std:.1f}"
