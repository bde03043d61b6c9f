"""Cells as text: tables to read in Markdown and LaTeX, lines to compute with in CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

from lg2ar.benchmarks import captions
from lg2ar.errors import InputError
from lg2ar.report.cells import PUBLISHED, UNLEARNED, UNTRAINED, Cell, protocol_place
from lg2ar.report.rows import label, printed_rows
from lg2ar.report.summary import summary

FORMATS = ("md", "csv", "latex", "json", "summary")

NOT_RUN = "not run"
NONE = "\N{EN DASH}"


@dataclass(frozen=True)
class Block:
    """One table to read.

    Attributes:
        title: What it holds, in few words.
        note: Sentences on how its numbers came about.
        head: Names of the columns.
        rows: As wide as the head.
        names: How many columns, the first ones, name a row; empty, they continue the row above.
        texts: How many columns hold no numbers, those among them.
    """

    title: str
    note: str
    head: list[str]
    rows: list[list[str]]
    names: int
    texts: int


def render(cells: Sequence[Cell], table: str, format: str = "md") -> str:  # noqa: A002
    """Write a table's cells down.

    Args:
        cells: What :func:`lg2ar.report.cells.cells` gives.
        table: The same table.
        format: One of :data:`FORMATS`: ``md`` or ``latex`` for tables with methods down and data
            sets across, a block for the paper's numbers and one for each protocol; ``csv`` or
            ``json`` for a line or an object per cell, with the names of
            :class:`~lg2ar.report.cells.Cell`; ``summary`` for a short Markdown table of what was
            run.

    Raises:
        InputError: For another format.
    """
    if format not in FORMATS:
        raise InputError(f"'{format}' is not a format; there are {', '.join(FORMATS)}.")
    if format == "csv":
        return _csv(cells)
    if format == "json":
        return json.dumps([dataclasses.asdict(cell) for cell in cells], indent=2, allow_nan=False)
    if format == "summary":
        return summary(cells, table)
    made = blocks(cells, table)
    return _markdown(made) if format == "md" else _latex(made)


def blocks(cells: Sequence[Cell], table: str) -> list[Block]:
    """The tables to read: the paper's, then ours, one for each way to evaluate."""
    printed = [cell for cell in cells if cell.protocol == PUBLISHED]
    ours = [cell for cell in cells if cell.protocol != PUBLISHED]
    datasets = list(dict.fromkeys(cell.dataset for cell in [*printed, *ours]))
    made = [_published_block(printed, table)] if printed else []
    for protocol, selection in _ways(ours):
        made.append(_our_block(ours, printed, table, datasets, protocol, selection))
    return made


def _ways(ours: Sequence[Cell]) -> list[tuple[str | None, str | None]]:
    """Protocols; with a selection only where cells of the same row and data set differ in it."""
    ways: list[tuple[str | None, str | None]] = []
    for protocol in sorted({c.protocol for c in ours if c.protocol}, key=protocol_place):
        within = [cell for cell in ours if cell.protocol == protocol]
        places = {(cell.dataset, cell.method, cell.variant) for cell in within}
        selections = dict.fromkeys(c.selection for c in within if c.method not in UNLEARNED)
        if len(places) == len(within):
            ways.append((protocol, None))
        else:
            ways += [(protocol, selection) for selection in selections]
    return ways or [(None, None)]


def _published_block(printed: Sequence[Cell], table: str) -> Block:
    groups: dict[str, str] = {}
    for row in printed_rows(table):
        # The mixed table has no groups of methods, but those it adds learn without labels.
        group = "unsupervised" if row.table == "mix" else row.group
        groups.setdefault(row.method, group)
    datasets = list(dict.fromkeys(cell.dataset for cell in printed))
    lines: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in printed:
        key = (cell.variant or groups[cell.method], cell.method)
        lines.setdefault(key, {})[cell.dataset] = cell
    order = list(dict.fromkeys(group for group, _ in lines))
    rows, last = [], ""
    for group, method in sorted(lines, key=lambda k: (order.index(k[0]), k[1].startswith("LG2AR"))):
        values = [_printed(lines[group, method].get(dataset)) or NONE for dataset in datasets]
        rows.append([group if group != last else "", method, *values])
        last = group
    return Block("Published", _published_note(table), ["", "method", *datasets], rows, 1, 2)


def _published_note(table: str) -> str:
    rows = printed_rows(table)
    mixed = dict.fromkeys(row.dataset for row in rows if row.table == "mix")
    sentences = [captions()[table]]
    if mixed:
        sentences.append(f"{', '.join(mixed)}: {captions()['mix']}")
    sentences += [f"{row.method} on {row.dataset}: {row.note}" for row in rows if row.note]
    return " ".join(sentences)


def _our_block(
    ours: Sequence[Cell],
    printed: Sequence[Cell],
    table: str,
    datasets: Sequence[str],
    protocol: str | None,
    selection: str | None,
) -> Block:
    shown = [
        cell
        for cell in ours
        if cell.protocol == protocol
        and (selection is None or cell.selection in (selection, *UNLEARNED.values()))
    ]
    paper = {(c.variant or "", c.method, c.dataset): _printed(c) for c in printed}
    groups: dict[str, list[list[str]]] = {}
    for method, variant in dict.fromkeys((cell.method, cell.variant) for cell in ours):
        mine = {c.dataset: c for c in shown if (c.method, c.variant) == (method, variant)}
        held = {c.dataset: c for c in ours if (c.method, c.variant) == (method, variant)}
        unrun = [d for d in datasets if d not in held or not held[d].runs]
        if not mine and len(unrun) < len(datasets):
            continue  # run, but never evaluated in this way
        group, name = label(table, method, variant)
        lines = {
            "" if method in UNLEARNED or table == "cost" else "trained": {
                d: NOT_RUN if d in unrun else _measured(mine.get(d), table) for d in datasets
            },
            "untrained": {d: _untrained(mine.get(d)) for d in datasets},
            "difference": {d: _difference(mine.get(d)) for d in datasets},
            PUBLISHED: {
                d: _printed(held.get(d)) or paper.get((group, name, d), "") for d in datasets
            },
        }
        groups.setdefault(group, []).extend(_lines(name, lines, _runs(list(mine.values()))))
    head = ["method", "", "runs", *datasets]
    rows = [row for rows in groups.values() for row in rows]
    if len(groups) == 1:
        return Block(_title(protocol), _note(shown, table), head, rows, names=1, texts=3)
    rows = [
        ["" if number else group, *row]
        for group, rows in groups.items()
        for number, row in enumerate(rows)
    ]
    return Block(_title(protocol), _note(shown, table), ["", *head], rows, names=2, texts=4)


def _lines(name: str, lines: dict[str, dict[str, str]], runs: str) -> list[list[str]]:
    """The lines of one row; those without a number are left out, but for the first."""
    rows: list[list[str]] = []
    for what, values in lines.items():
        if not rows:
            rows.append([name, what, runs, *values.values()])
        elif any(values.values()):
            rows.append(["", what, "", *values.values()])
    return rows


def _title(protocol: str | None) -> str:
    if protocol is None:
        return "Not run"
    if protocol.startswith("measured"):
        return protocol.capitalize()
    return f"Protocol {protocol}"


def _note(shown: Sequence[Cell], table: str) -> str:
    if not any(cell.runs for cell in shown):
        return "There are no records of this table."
    if table == "cost":
        return (
            "Mean ± standard deviation over runs. Gigabytes are of the device's memory on CUDA, "
            "of the whole process's elsewhere."
        )
    told = _selections([cell for cell in shown if cell.method not in UNLEARNED], table)
    without = "without pre-training" if table == "semi" else "untrained"
    return (
        f"Epoch: {told or UNTRAINED}. Percent, mean ± standard deviation over runs; difference: to "
        f"the same runs {without}, ± half the width of its 95 % interval."
    )


def _selections(shown: Sequence[Cell], table: str) -> str:
    """How epochs were chosen; where in several ways, on which data sets or for which rows."""
    chosen = {
        way: [cell for cell in shown if cell.selection == way]
        for way in dict.fromkeys(cell.selection for cell in shown)
    }
    if len(chosen) < 2:
        return "".join(str(way) for way in chosen)
    datasets = [{cell.dataset: None for cell in held} for held in chosen.values()]
    if len({name for names in datasets for name in names}) == sum(map(len, datasets)):
        places = datasets
    else:
        places = [
            {label(table, cell.method, cell.variant)[1]: None for cell in held}
            for held in chosen.values()
        ]
    return "; ".join(
        f"{way} ({', '.join(names)})" for way, names in zip(chosen, places, strict=True)
    )


def _printed(cell: Cell | None) -> str:
    """The paper's number, with the figures it has there."""
    if cell is None or cell.published_mean is None:
        return ""
    mean, std = (
        None if value is None else max(f"{value:.1f}", f"{value:g}", key=len)
        for value in (cell.published_mean, cell.published_std)
    )
    return f"{mean} ± {std}" if std else f"{mean}"


def _measured(cell: Cell | None, table: str) -> str:
    if cell is None or cell.mean is None:
        return NONE
    figures = 1 if table != "cost" else 2 if cell.mean >= 1 else 3
    mean = f"{cell.mean:.{figures}f}"
    return mean if cell.std is None else f"{mean} ± {cell.std:.{figures}f}"


def _untrained(cell: Cell | None) -> str:
    return "" if cell is None or cell.untrained_mean is None else f"{cell.untrained_mean:.1f}"


def _difference(cell: Cell | None) -> str:
    if cell is None or cell.difference is None:
        return ""
    shown = f"{round(cell.difference, 1) + 0.0:+.1f}"  # the sum turns -0.0 into 0.0
    return shown if cell.difference_ci95 is None else f"{shown} ± {cell.difference_ci95:.1f}"


def _runs(mine: Sequence[Cell]) -> str:
    counts = sorted({cell.runs or 0 for cell in mine}) or [0]
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _markdown(made: Sequence[Block]) -> str:
    parts = []
    for block in made:
        rule = ["---"] * block.texts + ["---:"] * (len(block.head) - block.texts)
        rows = [block.head, rule, *block.rows]
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        parts.append(f"**{block.title}.** {block.note}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


_ESCAPES = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        NONE: "--",
    }
)


def _latex(made: Sequence[Block]) -> str:
    parts = ["% Needs \\usepackage{booktabs}."]
    for block in made:
        lines = []
        for number, row in enumerate(block.rows):
            if number and any(row[: block.names]):
                starts_group = bool(row[0]) and not block.head[0]
                lines.append("\\midrule" if starts_group else "\\addlinespace")
            lines.append(_latex_row(row))
        columns = "l" * block.texts + "c" * (len(block.head) - block.texts)
        caption = f"{block.title}. {block.note}".translate(_ESCAPES)
        parts.append(
            "\\begin{table*}\n"
            f"\\caption{{{caption}}}\n"
            "\\centering\\footnotesize\\setlength{\\tabcolsep}{3pt}\n"
            f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{_latex_row(block.head)}\n\\midrule\n"
            + "\n".join(lines)
            + "\n\\bottomrule\n\\end{tabular}\n\\end{table*}"
        )
    return "\n\n".join(parts)


def _latex_row(row: Sequence[str]) -> str:
    # Set tight, as the paper does: eight data sets are a wide table.
    return " & ".join(cell.replace(" ± ", "±").translate(_ESCAPES) for cell in row) + " \\\\"


def _csv(cells: Sequence[Cell]) -> str:
    names = [field.name for field in dataclasses.fields(Cell)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(cell) for cell in cells)
    return text.getvalue().removesuffix("\n")
