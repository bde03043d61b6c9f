"""The results in short: a line for each cell that was run."""

from __future__ import annotations

from collections.abc import Sequence

from lg2ar.report.cells import PUBLISHED, UNTRAINED, Cell
from lg2ar.report.rows import label

HEAD = (
    "data set",
    "method",
    "protocol",
    "epoch",
    "runs",
    "paper",
    "ours",
    "untrained",
    "difference",
)


def summary(cells: Sequence[Cell], table: str) -> str:
    """A Markdown table of trained beside untrained and published, data set by data set.

    Args:
        cells: What :func:`lg2ar.report.cells.cells` gives; what was not run is left out.
        table: The same table.
    """
    ours = [c for c in cells if c.runs and c.protocol != PUBLISHED and c.method != UNTRAINED]
    order = list(dict.fromkeys(cell.dataset for cell in ours))
    lines = [f"| {' | '.join(HEAD)} |", "|---|---|---|---|---:|---:|---:|---:|---:|"]
    for cell in sorted(ours, key=lambda cell: order.index(cell.dataset)):
        lines.append(f"| {' | '.join(_row(cell, table))} |")
    return "\n".join(lines)


def _row(cell: Cell, table: str) -> list[str]:
    return [
        cell.dataset,
        ", ".join(filter(None, label(table, cell.method, cell.variant))),
        f"`{cell.protocol}`",
        (cell.selection or "").replace("best evaluated epoch, chosen on", "best on"),
        str(cell.runs),
        _number(cell.published_mean, cell.published_std),
        _number(cell.mean, cell.std),
        _number(cell.untrained_mean, None),
        _number(cell.difference, cell.difference_ci95, sign="+"),
    ]


def _number(mean: float | None, spread: float | None, sign: str = "") -> str:
    if mean is None:
        return "\N{EN DASH}"
    return f"{mean:{sign}.1f}" + ("" if spread is None else f" ± {spread:.1f}")
