"""Cells and tables of Markdown, of records of measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]

NOT_RUN = "not run yet"
NONE = "\N{EN DASH}"


def table(head: str, rows: Sequence[Sequence[str]], made: Iterable[Record]) -> str:
    """Markdown: a sentence on where it was measured, the table; or that it was not."""
    measured = sorted({f"{r['device']}, torch {r['versions']['torch']}" for r in made})
    if not rows or not measured:
        return f"*{NOT_RUN}*"
    names = [name.strip() for name in head.split("|")]
    lines = [f"| {' | '.join(names)} |", f"|---|{'---:|' * (len(names) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"Measured on {'; '.join(measured)}.", "", *lines])


def of(told: Record | None, key: str, form: str = "") -> str:
    """What a record says of something."""
    if told is None:
        return NOT_RUN
    value = told.get(key)
    return form.format(value) if form and value is not None else number(value)


def with_spread(told: Record | None) -> str:
    """Seconds of an epoch, the least and the most."""
    if told is None:
        return NOT_RUN
    seen = told["spread"]["seconds_per_epoch"]
    return f"{number(seen['median'])} ({number(seen['min'])} to {number(seen['max'])})"


def ratio(above: float | None, below: float | None) -> str:
    """One number over another, where there are both."""
    return f"{above / below:.1f}" if above and below else NONE


def number(value: float | None) -> str:
    """Three digits, without an exponent for all that is measured here."""
    if value is None:
        return NONE
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    digits = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1
    return f"{value:.{digits}f}" if abs(value) >= 0.0995 else f"{value:.2g}"
