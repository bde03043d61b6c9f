"""The results in short: a line for each cell that was run, or for each data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lg2ar.protocols import OLDER
from lg2ar.report.cells import PUBLISHED, UNTRAINED, Cell
from lg2ar.report.rows import in_papers_order, label

NONE = "\N{EN DASH}"
# Protocols that choose nothing on what they report, by level.
STRICT = {
    "graph": ("strict", "nested"),
    "node": ("nested", "nested-features", *OLDER, *OLDER.values()),
}
# How few labels are read, and how the epoch is chosen; the first chooses it on what it reports.
FEW = (
    *(("semi", "test-max"), ("semi", "validation")),
    *(("semi-frozen", "last epoch"), ("semi-kernel", "last epoch")),
)
# What stands beside numbers of the node level that were read as it was before.
MARK = "(300)"
NOTE = (
    f"{MARK}: the probe's layer was trained for 300 epochs, as `paper-300` and `strict-300` say; "
    "the untrained encoder beside it was read alike."
)
# How presets end whose encoders hand out standardised rows.
STANDARDISED = "standardised"
# Runs below which a mean is not put beside those of others.
FEWEST = 5
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
    lines = [f"| {' | '.join(HEAD)} |", "|---|---|---|---|---:|---:|---:|---:|---:|"]
    for name in in_papers_order(cell.dataset for cell in ours):
        rows = [_row(cell, table) for cell in ours if cell.dataset == name]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def brief(cells: Sequence[Cell], protocols: Sequence[str]) -> str:
    """A Markdown table with a line for each data set: what was published, and ours.

    Where a data set was not read under a protocol but as that was before, this is shown, marked.

    Args:
        cells: Those of one method with one set of settings, of any table and protocol.
        protocols: Which of them to show; of the last one also the untrained encoder.
    """
    known = {*protocols, *(OLDER[p] for p in protocols if p in OLDER)}
    ours = [cell for cell in cells if cell.runs and cell.protocol in known]
    if not ours:
        return "*not run yet*"
    last = protocols[-1]
    shown = [f"`{protocol}`" for protocol in protocols]
    head = ["data set", "runs", "published", *shown, f"untrained, {shown[-1]}", "difference"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for name in in_papers_order(cell.dataset for cell in ours):
        held = {cell.protocol: cell for cell in ours if cell.dataset == name}
        own = {p: held.get(p, held.get(OLDER.get(p))) for p in protocols}
        told = [_read_as(own[p]) for p in protocols]
        some = next(iter(held.values()))
        final = own[last]
        row = [
            name,
            str((final or some).runs),
            _number(some.published_mean, some.published_std),
            *told,
            NONE if final is None else _number(final.untrained_mean, None),
            NONE if final is None else _number(final.difference, final.difference_ci95, sign="+"),
        ]
        lines.append(f"| {' | '.join(row)} |")
    return noted("\n".join(lines))


def marked(text: str, protocol: str | None) -> str:
    """A number, or what numbers are of, with the mark of those that were read as it was before."""
    return f"{text} {MARK}" if protocol in OLDER.values() else text


def noted(table: str) -> str:
    """A table with what its mark means, where it has one."""
    return f"{table}\n\n{NOTE}" if MARK in table else table


def _read_as(cell: Cell | None) -> str:
    return NONE if cell is None else marked(_number(cell.mean, cell.std), cell.protocol)


def beside(cells: Sequence[Cell], since: Mapping[str, tuple[str, float]]) -> str:
    """A Markdown table with a line for each data set: the best of others, and ours.

    Args:
        cells: Those of one method; the highest counts of what chooses nothing on what it reports,
            at node level as it was read before only where there is nothing else.
        since: Method and accuracy of the others, by data set.
    """
    enough = [cell for cell in cells if (cell.runs or 0) >= FEWEST and cell.dataset in since]
    honest = [cell for cell in enough if cell.protocol in STRICT[cell.level]]
    head = ["data set", "others", "", "ours", "runs", "difference", "protocol", "untrained"]
    lines = [f"| {' | '.join(head)} |", "|---|---|---:|---:|---:|---:|---|---:|"]
    for name in in_papers_order(cell.dataset for cell in honest):
        own = [cell for cell in honest if cell.dataset == name]
        best = max(own, key=lambda c: (c.protocol not in OLDER.values(), c.mean or 0.0))
        assert best.mean is not None
        method, mean = since[name]
        row = [
            *(name, method, f"{mean:.1f}", _number(best.mean, best.std), str(best.runs)),
            f"{round(best.mean, 1) - mean:+.1f}",
            f"`{best.protocol}`, preset `{_preset(best)}`",
            _number(best.untrained_mean, None),
        ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def with_few_labels(cells: Sequence[Cell], since: Mapping[str, tuple[str, float]]) -> str:
    """A Markdown table with a line for each data set: few labels, read in several ways.

    Of the settings that were run those with the highest mean, in however few runs; how many stands
    beside it. The last column is how far the best of the readings that choose nothing on the test
    folds is from the next best of others, who choose their epoch there.

    Args:
        cells: Those of one method in the table ``semi``.
        since: Method and accuracy of the next best of others, by data set.
    """
    heads = [f"`{protocol}`, {selection}" for protocol, selection in FEW[:2]]
    heads += [f"`{protocol}`" for protocol, _ in FEW[2:]]
    lines = [f"| data set | published | next best | {' | '.join(heads)} | difference |"]
    lines.append("|---|---:|---:|" + "---|" * len(FEW) + "---:|")
    read = [cell for cell in cells if cell.runs and cell.dataset in since]
    for name in in_papers_order(cell.dataset for cell in read):
        own = [cell for cell in read if cell.dataset == name]
        found = [_highest(own, protocol, selection) for protocol, selection in FEW]
        honest = [cell.mean for cell in found[1:] if cell is not None and cell.mean is not None]
        ahead = round(max(honest), 1) - since[name][1] if honest else None
        shown = [NONE if cell is None else _with_runs(cell) for cell in found]
        published = _number(own[0].published_mean, own[0].published_std)
        row = [name, published, f"{since[name][1]:.1f}", *shown, _number(ahead, None, "+")]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _highest(cells: Sequence[Cell], protocol: str, selection: str) -> Cell | None:
    same = [cell for cell in cells if (cell.protocol, cell.selection) == (protocol, selection)]
    return max(same, key=lambda cell: cell.mean or 0.0, default=None)


def _with_runs(cell: Cell) -> str:
    before, runs = _number(cell.untrained_mean, None), "run" if cell.runs == 1 else "runs"
    preset = _preset(cell, "semi")
    return f"{_number(cell.mean, None)} (untrained {before}, {cell.runs} {runs}, `{preset}`)"


def nearest(cells: Sequence[Cell]) -> str:
    """A Markdown table with a line for each data set: how near the paper's number ours comes.

    Under the protocol ``paper``. Below it stands how many data sets reach that number at its
    printed digit, trained and untrained, how many without presets that standardise rows, and on how
    many training gains under ``strict``, with the interval clear of zero.

    Args:
        cells: Those of one method; of its settings the ones that score highest count, which is
            itself a choice.
    """
    known = [c for c in cells if (c.runs or 0) >= FEWEST and c.published_mean is not None]
    head = ["data set", "published", "ours, `paper`", "untrained", "runs", "difference"]
    head += ["preset", "trained - untrained, `strict`"]
    lines = [f"| {' | '.join(head)} |", "|---|---:|---:|---:|---:|---:|---|---:|"]
    reached, untrained, bare, gained = 0, 0, 0, 0
    names = in_papers_order(cell.dataset for cell in known if cell.protocol == "paper")
    for name in names:
        own = [cell for cell in known if cell.dataset == name]
        read = [cell for cell in own if cell.protocol == "paper"]
        best = max(read, key=lambda cell: cell.mean or 0.0)
        strict = next((c for c in own if (c.variant, c.protocol) == (best.variant, "strict")), None)
        difference = _above(best.mean, best)
        reached += difference >= 0
        untrained += _above(best.untrained_mean, best) >= 0
        bare += any(_above(c.mean, c) >= 0 for c in read if not _preset(c).endswith(STANDARDISED))
        gained += strict is not None and _clear(strict)
        row = [
            *(name, _number(best.published_mean, best.published_std)),
            *(_number(best.mean, best.std), _number(best.untrained_mean, None)),
            *(str(best.runs), f"{difference:+.1f}"),
            f"`{_preset(best)}`",
            NONE if strict is None else _number(strict.difference, strict.difference_ci95, "+"),
        ]
        lines.append(f"| {' | '.join(row)} |")
    told = (
        f"At or above the published mean, at its printed digit: {reached} of {len(names)}, {bare} "
        f"without presets that standardise rows; untrained encoders of the presets shown: "
        f"{untrained}. Under `strict` training gains with an interval clear of zero on {gained}."
    )
    return "\n".join([*lines, "", told])


def _above(mean: float | None, cell: Cell) -> float:
    """How far a mean is above what was published, at its printed digit."""
    assert cell.published_mean is not None
    if mean is None:
        return -cell.published_mean
    return round(round(mean, 1) - cell.published_mean, 1) + 0.0  # no minus zero


def _clear(cell: Cell) -> bool:
    """Whether a gain is above zero with its whole interval."""
    if cell.difference is None or cell.difference_ci95 is None:
        return False
    return cell.difference > cell.difference_ci95


def _preset(cell: Cell, usual: str = "paper") -> str:
    """The name of its settings; a table's usual ones are not named."""
    return (cell.variant or "").partition("preset=")[2] or usual


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
        return NONE
    return f"{mean:{sign}.1f}" + ("" if spread is None else f" ± {spread:.1f}")
