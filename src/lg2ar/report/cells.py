"""The paper's tables made anew: its printed numbers and those of our records, cell by cell.

A run's value is its mean over folds; mean, standard deviation and intervals are over runs, which
differ in their seeds. A trained encoder is compared with itself before training, seed by seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lg2ar.benchmarks import Published
from lg2ar.config import BEFORE, HOW, in_todays_words
from lg2ar.data.benchmarks import BENCHMARKS
from lg2ar.errors import InputError
from lg2ar.report.rows import (
    BASELINES,
    TABLES,
    VARIANTS,
    find_printed,
    look_up,
    name_variant,
    printed_rows,
    split_variant,
)
from lg2ar.report.runs import Evaluation, Run, evaluations, read_runs

PUBLISHED = "published"  # the protocol of numbers that we did not measure
UNTRAINED = "untrained"  # the method, and how its epoch was chosen
LAST_EPOCH = "last epoch"
LOWEST_LOSS = "lowest training loss"
VALIDATION = "validation"  # the public splits of nodes have some, which a classifier may use
BEST_EPOCH = "best evaluated epoch, chosen on the reported folds"

# Protocol and level under which all runs are read at one epoch, the one that scores best.
READ_AT_BEST = {("paper", "graph"), ("paper-scaled", "graph")}

# What a record says of cost, in the paper's units.
MEASURES: dict[str, Callable[[Run], float]] = {
    "seconds-per-epoch": lambda run: run.fields.number("cost.seconds_per_epoch"),
    "gigabytes": lambda run: run.fields.number("cost.peak_memory") / 1e9,
}

# Settings that decide what an encoder makes of graphs before it is trained.
_ENCODER = (
    *("hidden", "layers", "base_encoder", "base_layers", "gcn_output", "smoothing"),
    *("norm", "norm_place", "calibrate", "readout", "projection", "embedding"),
    *("averaged_features", "embedding_scale", "feature_projection"),
    *("features", "degree_cap", "walk_length", "row_normalise"),
)

FEATURES = "features"  # a method without a network
NO_ENCODER = "no encoder"  # how their epoch was chosen
UNLEARNED = {FEATURES: NO_ENCODER, UNTRAINED: UNTRAINED}
_METHODS = ("supervised", FEATURES, "infograph", "graphcl", "", "lg2ar", UNTRAINED)  # "": others
_PROTOCOLS = (
    *("paper", "paper-scaled", "strict", "paper-300", "strict-300"),
    *("infograph-rbf", "nested", "nested-features", "semi", "semi-frozen", "semi-kernel"),
)


@dataclass(frozen=True)
class Cell:
    """One result; percent, but seconds or gigabytes in ``cost``. None is where there is none.

    Attributes:
        dataset: The data set.
        level: ``graph`` or ``node``.
        method: Ours by name, or a row of the paper as printed.
        variant: Which of several; in ``cost`` what was measured; for printed rows of ``ablation``
            and ``cost`` their group. It ends in ``preset=NAME`` for settings other than the
            paper's.
        protocol: How it was evaluated, ``published`` for the paper's own numbers, None for what
            was not run; in ``cost`` on what it was measured.
        selection: How the epoch was chosen.
        runs: How many runs are behind it; 0 for what was not run, None for the paper's rows.
        mean: Over runs.
        std: Sample standard deviation over runs, None for a single one.
        ci95: Half width of the 95 % interval of the mean (Student's t), None for a single run.
        published_mean: What the paper printed for it.
        published_std: Likewise.
        untrained_mean: Of the same runs before training, under the same protocol.
        difference: Mean over runs of trained minus untrained.
        difference_ci95: Half width of its 95 % interval.
    """

    dataset: str
    level: str
    method: str
    variant: str | None
    protocol: str | None
    selection: str | None
    runs: int | None
    mean: float | None
    std: float | None
    ci95: float | None
    published_mean: float | None
    published_std: float | None
    untrained_mean: float | None
    difference: float | None
    difference_ci95: float | None


def cells(records: Iterable[Mapping[str, Any]], table: str) -> list[Cell]:
    """All cells of a table: the paper's rows, ours, and those of LG2AR that were not run.

    Args:
        records: Finished runs, as :func:`~lg2ar.report.tables.read_records` reads them.
        table: One of :data:`TABLES`; runs of other tables are passed over.

    Raises:
        InputError: For another table, or a record that lacks what its cell needs.
    """
    if table not in TABLES:
        raise InputError(f"'{table}' is not a table; there are {', '.join(TABLES)}.")
    runs = [run for run in read_runs(records) if run.table == table]
    rows = printed_rows(table)
    ours = _cost_cells(runs, rows) if table == "cost" else _accuracy_cells(runs, table, rows)
    ours += _not_run(ours, table, rows)
    return [_printed_cell(row, table) for row in rows] + sorted(ours, key=_order(table))


def protocol_place(protocol: str) -> tuple[int, str]:
    """Where a protocol stands among others."""
    return _place(protocol, _PROTOCOLS)


def interval(values: Sequence[float]) -> float | None:
    """Half width of the 95 % interval of the mean by Student's t; None for a single value."""
    if len(values) < 2:
        return None
    from scipy.stats import t  # there wherever scikit-learn is; slow to import

    quantile = float(t.ppf(0.975, len(values) - 1))
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


@dataclass(frozen=True)
class _Row:
    """What the runs of a cell have in common."""

    table: str
    dataset: str
    level: str
    method: str
    variant: str | None
    preset: str


@dataclass(frozen=True)
class _Scored:
    """A run of a trained method with all of its evaluations."""

    run: Run
    evaluations: list[Evaluation]

    def untrained(self, protocol: str, selection: str | None) -> float | None:
        """Its value before training, chosen likewise where the evaluation chose."""
        found = {e.selection: e.value for e in self.evaluations if _is(e, protocol, untrained=True)}
        for key in (selection, None, UNTRAINED):
            if key in found:
                return found[key]
        return None


# Of each (protocol, selection): the value by seed.
_Values = dict[tuple[str, str], dict[int, float]]


def _accuracy_cells(runs: Sequence[Run], table: str, rows: Sequence[Published]) -> list[Cell]:
    groups: dict[_Row, list[_Scored]] = {}
    for run in runs:
        row = _Row(table, run.dataset, run.level, run.method, run.variant, run.preset)
        groups.setdefault(row, []).append(_Scored(run, evaluations(run)))
    for members in groups.values():
        check_alike([member.run for member in members])
    own = {_control_of(row): _starts(groups[row]) for row in groups if row.method == UNTRAINED}
    made = []
    for row, members in groups.items():
        if row.method == UNTRAINED:
            continue
        if row.method == FEATURES:
            printed = find_printed(rows, table, members[0].run)
            for (protocol, _), values in _starts(members).items():
                made.append(_cell(row, protocol, NO_ENCODER, values, {}, printed))
            continue
        start = groups.get(_control_of(row), [])
        fits = start and _same_encoder(start[0].run, members[0].run)
        control = own[_control_of(row)] if fits else {}
        for (protocol, selection), values in _trained(members).items():
            before = _before(members, control, protocol, selection)
            printed = find_printed(rows, table, members[0].run)
            made.append(_cell(row, protocol, selection, values, before, printed))
    for row, control in _controls(groups, own, table).items():
        made += [_cell(row, *key, values, {}, None) for key, values in control.items()]
    return made


def _settings(run: Run, part: str) -> Mapping[str, Any]:
    """What a record says of its settings, or of its data, in today's words."""
    value = run.fields.values.get(part, {})
    if not isinstance(value, Mapping):
        raise InputError(
            f"{run.fields.place}: key '{part}' must be an object; remove the line and run it again."
        )
    return in_todays_words({**BEFORE, **value}) if part == "config" else value


def check_alike(runs: Sequence[Run]) -> None:
    """Refuse to average runs of different settings or different data.

    Runs whose steps were done in different ways are averaged: each record says how it was done.
    """
    first = runs[0]
    for run in runs[1:]:
        for part, left_out in (("config", {"seed", *HOW}), ("data", set())):
            one, other = (_settings(item, part) for item in (first, run))
            shared = (one.keys() & other.keys()) - left_out
            differ = sorted(key for key in shared if one[key] != other[key])
            if differ:
                key = differ[0]
                raise InputError(
                    f"{run.fields.place}: {part}.{key} = {other[key]!r}, where "
                    f"{first.fields.place}, of the same cell, has {one[key]!r}; keep runs of "
                    "different settings in different files, or give them a preset of their own."
                )


def _same_encoder(run: Run, other: Run) -> bool:
    """Whether both are of the same encoder before training, as far as both records say."""
    one, two = (_settings(item, "config") for item in (run, other))
    return all(one[key] == two[key] for key in _ENCODER if key in one and key in two)


def _trained(members: Sequence[_Scored]) -> _Values:
    """The values that count, each under its protocol and how its epoch was chosen."""
    chosen: _Values = {}
    keys = {(e.protocol, e.selection): None for m in members for e in m.evaluations if e.epoch}
    for protocol, own in keys:
        series = {
            m.run.seed: {
                e.epoch: e.value
                for e in m.evaluations
                if _is(e, protocol, untrained=False) and e.selection == own
            }
            for m in members
        }
        if own is None and (protocol, members[0].run.level) in READ_AT_BEST:
            chosen[protocol, BEST_EPOCH] = _at_best_epoch(series)
            continue
        for member in members:
            values = series[member.run.seed]
            selection = own or _selection(member.run)
            if values:
                chosen.setdefault((protocol, selection), {})[member.run.seed] = values[max(values)]
    return chosen


def _selection(run: Run) -> str:
    """How a run came by the epoch that it ended with."""
    if run.method == "supervised" and run.level == "node":
        return VALIDATION
    return LOWEST_LOSS if run.setting("patience", 0) else LAST_EPOCH


def _at_best_epoch(series: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    """All runs at the one epoch where their mean is best; the earliest of equals.

    Only epochs that most runs have count: a single run's best would be luck.
    """
    seeds: dict[int, list[int]] = {}
    for seed, values in series.items():
        for epoch in values:
            seeds.setdefault(epoch, []).append(seed)

    def merit(epoch: int) -> tuple[int, float, int]:
        mean = statistics.fmean(series[seed][epoch] for seed in seeds[epoch])
        return len(seeds[epoch]), mean, -epoch

    best = max(seeds, key=merit)
    return {seed: series[seed][best] for seed in seeds[best]}


def _before(
    members: Sequence[_Scored], control: _Values, protocol: str, selection: str
) -> dict[int, float]:
    """Untrained values by seed: a run's own, else those of a control of the same seed."""
    found = {}
    for member in members:
        seed, own = member.run.seed, member.untrained(protocol, selection)
        if own is None and member.run.method != "supervised":
            shared = control.get((protocol, selection), control.get((protocol, UNTRAINED), {}))
            own = shared.get(seed)
        if own is not None:
            found[seed] = own
    return found


def _controls(
    groups: Mapping[_Row, list[_Scored]], own: Mapping[_Row, _Values], table: str
) -> dict[_Row, _Values]:
    """The untrained encoder's values: from runs of its own, else from the start of the others.

    A supervised run is no source: what it starts from was never meant to be probed. Nor is one of
    another encoder than the first row's.
    """
    rank = {name: place for place, name in enumerate(VARIANTS[table])}
    rows = [row for row in groups if row.method not in ("supervised", *UNLEARNED)]
    rows.sort(key=lambda row: (row.method != "lg2ar", rank.get(row.variant or "", len(rank))))
    members: dict[_Row, list[_Scored]] = {}
    for row in rows:
        held = members.setdefault(_control_of(row), [])
        if not held or _same_encoder(held[0].run, groups[row][0].run):
            held.extend(groups[row])
    shared = {control: _starts(held) for control, held in members.items()}
    return {row: shared.get(row, {}) | own.get(row, {}) for row in {**shared, **own}}


def _starts(members: Iterable[_Scored]) -> _Values:
    """Values before training, of each seed the first, so that none counts twice."""
    values: _Values = {}
    for member in members:
        for e in member.evaluations:
            if e.epoch == 0:
                by_seed = values.setdefault((e.protocol, e.selection or UNTRAINED), {})
                by_seed.setdefault(member.run.seed, e.value)
    return values


def _control_of(row: _Row) -> _Row:
    return _Row(row.table, row.dataset, row.level, UNTRAINED, None, row.preset)


def _is(evaluation: Evaluation, protocol: str, *, untrained: bool) -> bool:
    return evaluation.protocol == protocol and (evaluation.epoch == 0) == untrained


def _cost_cells(runs: Sequence[Run], rows: Sequence[Published]) -> list[Cell]:
    groups: dict[tuple[_Row, str], dict[int, float]] = {}
    for run in runs:
        device = f"measured on {run.fields.text('device')}"  # never averaged over devices
        # Any policy but the GRU, which the paper timed, is named.
        other = f" ({run.variant})" if run.variant not in (None, "gru") else ""
        for measure, read in MEASURES.items():
            row = _Row("cost", run.dataset, run.level, run.method, measure + other, run.preset)
            groups.setdefault((row, device), {})[run.seed] = read(run)
    made = []
    for (row, device), values in groups.items():
        name = {"lg2ar": "LG2AR", **BASELINES}.get(row.method, "")
        printed = look_up(rows, row.dataset, row.variant or "", name)
        made.append(_cell(row, device, None, values, {}, printed))
    return made


def _cell(
    row: _Row,
    protocol: str,
    selection: str | None,
    values: Mapping[int, float],
    before: Mapping[int, float],
    printed: Published | None,
) -> Cell:
    after = list(values.values())
    paired = [seed for seed in values if seed in before]
    gains = [values[seed] - before[seed] for seed in paired]
    return Cell(
        dataset=row.dataset,
        level=row.level,
        method=row.method,
        variant=name_variant(row.table, row.variant, row.preset),
        protocol=protocol,
        selection=selection,
        runs=len(after),
        mean=statistics.fmean(after),
        std=statistics.stdev(after) if len(after) > 1 else None,
        ci95=interval(after),
        published_mean=printed.mean if printed else None,
        published_std=printed.std if printed else None,
        untrained_mean=statistics.fmean(before[seed] for seed in paired) if paired else None,
        difference=statistics.fmean(gains) if paired else None,
        difference_ci95=interval(gains),
    )


def _printed_cell(row: Published, table: str) -> Cell:
    variant = row.group if table in ("ablation", "cost") else None
    return _empty(row, method=row.method, variant=variant, protocol=PUBLISHED, runs=None)


def _not_run(made: Sequence[Cell], table: str, rows: Sequence[Published]) -> list[Cell]:
    """A cell without a result for each one of LG2AR that the paper has and the records have not."""
    present = {(cell.dataset, cell.method, cell.variant) for cell in made}
    missing = []
    for variant, (group, name) in VARIANTS[table].items():
        for row in rows:
            ours = row.method == name and group in ("", row.group)
            if ours and (row.dataset, "lg2ar", variant) not in present:
                missing.append(_empty(row, method="lg2ar", variant=variant, protocol=None, runs=0))
    return missing


def _empty(
    row: Published, *, method: str, variant: str | None, protocol: str | None, runs: int | None
) -> Cell:
    return Cell(
        dataset=row.dataset,
        level=BENCHMARKS[row.dataset].level,
        method=method,
        variant=variant,
        protocol=protocol,
        selection=None,
        runs=runs,
        mean=None,
        std=None,
        ci95=None,
        published_mean=row.mean,
        published_std=row.std,
        untrained_mean=None,
        difference=None,
        difference_ci95=None,
    )


def _order(table: str) -> Callable[[Cell], tuple[Any, ...]]:
    """By row, as the paper has them, then data set, protocol and selection."""
    datasets = {row.dataset: None for row in printed_rows(table)}

    def key(cell: Cell) -> tuple[Any, ...]:
        variant, preset = split_variant(cell.variant)
        method = cell.method if cell.method in _METHODS else ""
        return (
            (_METHODS.index(method), cell.method),
            preset,
            _place(variant or "", list(VARIANTS[table])),
            _place(cell.dataset, list(datasets)),
            protocol_place(cell.protocol or ""),
            cell.selection or "",
        )

    return key


def _place(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order), name)
