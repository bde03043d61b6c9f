"""What the open questions of the paper came to: each answer against a base.

Runs are compared seed by seed: the same folds, the same initial encoders.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lg2ar.benchmarks import Question, against_base, base_variant, questions
from lg2ar.protocols import EPOCH_GRID, OLDER
from lg2ar.report.cells import check_alike, interval
from lg2ar.report.rows import in_papers_order
from lg2ar.report.runs import Run, evaluations, read_runs
from lg2ar.report.summary import marked, noted

NONE = "\N{EN DASH}"
POLICIES = ("gru", "deepset", "random")
PROTOCOL = "strict"
# Of the answers; those at node level were read before the layer was trained for longer.
ANSWERED = {"graph": PROTOCOL, "node": OLDER[PROTOCOL]}
PRESET = "paper"  # what all answers start from; runs of other settings are no answers

# Of each data set, its level and a variant: by seed, the score before training and after it.
_Scores = dict[tuple[str, str, str], dict[int, tuple[float, float]]]


def findings(records: Iterable[Mapping[str, Any]]) -> str:
    """All questions that were looked into, a heading and a table each."""
    scores = _read(records)
    parts = [
        f"### {asked.name[0].upper()}{asked.name[1:]} ({asked.place})\n\n{asked.text}\n\n{table}"
        + (f"\n\n**Decision.** {asked.decision}" if asked.decision else "")
        for asked in questions()
        if (table := _table(asked, scores))
    ]
    return "\n\n".join(parts) or "*not run yet*"


def finding(records: Iterable[Mapping[str, Any]], name: str) -> str:
    """The table of one question, by its name."""
    asked = {question.name: question for question in questions()}[name]
    return _table(asked, _read(records)) or "*not run yet*"


def policies(records: Iterable[Mapping[str, Any]], preset: str) -> str:
    """The policies under ``strict``, and what the GRU gains on random draws, seed by seed.

    All numbers of a data set are of the seeds that all of its policies have, and of one protocol:
    where more policies were read as it was before, that one, with a mark.

    Args:
        records: Finished runs of the tables ``graph`` and ``node``.
        preset: Whose settings.
    """
    found: dict[str, dict[str, dict[str, dict[int, float]]]] = {}
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in read_runs(records):
        if (run.method, run.preset) != ("lg2ar", preset) or run.variant not in POLICIES:
            continue
        for protocol in (PROTOCOL, OLDER[PROTOCOL]):
            if score := before_and_after(run, protocol):
                own = found.setdefault(run.dataset, {}).setdefault(protocol, {})
                own.setdefault(run.variant, {})[run.seed] = score[1]
                groups.setdefault((run.dataset, run.variant), []).append(run)
    for runs in groups.values():
        check_alike(runs)
    lines = [
        "| data set | runs | GRU | DeepSet | Random | GRU - Random |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    both: list[tuple[float, float]] = []
    for dataset in in_papers_order(found):
        protocol = max(found[dataset], key=lambda p: (len(found[dataset][p]), p == PROTOCOL))
        own = found[dataset][protocol]
        shared = sorted(set.intersection(*(set(scores) for scores in own.values())))
        cells = [
            f"{statistics.fmean(own[p][seed] for seed in shared):.1f}"
            if p in own and shared
            else NONE
            for p in POLICIES
        ]
        gained = NONE
        if shared and {"gru", "random"} <= own.keys():
            pairs = [(own["gru"][seed], own["random"][seed]) for seed in shared]
            gained = gain([learned - random for learned, random in pairs], figures=2)
            both.append(_means(pairs))
        name = marked(dataset, protocol)
        lines.append(f"| {name} | {len(shared)} | {' | '.join(cells)} | {gained} |")
    if both:
        first, second = _means(both)
        lines.append(f"| mean | | {first:.2f} | | {second:.2f} | {first - second:+.2f} |")
    return noted("\n".join(lines)) if found else "*not run yet*"


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    first, second = (statistics.fmean(values) for values in zip(*pairs, strict=True))
    return first, second


def probe_scaling(records: Iterable[Mapping[str, Any]], preset: str = PRESET) -> str:
    """What standardising embeddings before the linear SVM changes, after the last epoch."""
    pairs: dict[str, list[list[float]]] = {}
    for run in read_runs(records):
        if (run.table, run.variant, run.preset) != ("graph", "gru", preset):
            continue
        read = {(e.protocol, e.epoch): e.value for e in evaluations(run)}
        last = max(epoch for _, epoch in read)
        looks = [(name, epoch) for epoch in (0, last) for name in ("paper", PROTOCOL)]
        if all(look in read for look in looks):
            pairs.setdefault(run.dataset, []).append([read[look] for look in looks])
    lines = [
        "| data set | runs | untrained, as is | standardised | trained, as is | standardised |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for dataset in in_papers_order(pairs):
        rows = pairs[dataset]
        columns = list(zip(*rows, strict=True))
        cells = [f"{statistics.fmean(column):.1f}" for column in columns]
        for plain, scaled in ((0, 1), (2, 3)):
            gains = [b - a for a, b in zip(columns[plain], columns[scaled], strict=True)]
            cells[scaled] += f"; {gain(gains)}"
        lines.append(f"| {dataset} | {len(rows)} | {' | '.join(cells)} |")
    return "\n".join(lines) if pairs else "*not run yet*"


def by_epochs(records: Iterable[Mapping[str, Any]], presets: Sequence[str]) -> str:
    """What the learned policy's encoder scores the longer it is trained, read as ``strict`` reads.

    Args:
        records: Of the table ``graph``.
        presets: Whose runs, in this order.
    """
    found = _of_presets(records, presets)
    head = ["data set", "preset", "runs", "untrained", *map(str, EPOCH_GRID), "last - untrained"]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
    for dataset in in_papers_order(name for name, _ in found):
        for preset in presets:
            # The protocol that looks at all epochs; its probe is that of `strict`.
            curves = [
                {e.epoch: e.value for e in evaluations(run) if e.protocol == "paper-scaled"}
                for run in found.get((dataset, preset), ())
            ]
            curves = [curve for curve in curves if 0 in curve and len(curve) > 1]
            if not curves:
                continue
            check_alike(found[dataset, preset])
            cells = [_mean_at(curves, epoch) for epoch in (0, *EPOCH_GRID)]
            gained = gain([curve[max(curve)] - curve[0] for curve in curves])
            about = [dataset, f"`{preset}`", str(len(curves))]
            lines.append(f"| {' | '.join([*about, *cells, gained])} |")
    return "\n".join(lines) if len(lines) > 2 else "*not run yet*"


def losses_by_epochs(records: Iterable[Mapping[str, Any]], presets: Sequence[str]) -> str:
    """The learned policy's loss in the epochs of the paper's grid, where the bound is JSD.

    Args:
        records: Of the table ``graph``.
        presets: Whose runs, in this order.
    """
    found = _of_presets(records, presets)
    head = ["data set", "preset", "runs", *map(str, EPOCH_GRID)]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
    for dataset in in_papers_order(name for name, _ in found):
        for preset in presets:
            runs = found.get((dataset, preset), [])
            runs = [run for run in runs if run.setting("bound", None) == "jsd"]
            if not runs:
                continue
            check_alike(runs)
            curves = [dict(enumerate(run.fields.numbers("losses"), start=1)) for run in runs]
            cells = [_mean_at(curves, epoch, digits=2) for epoch in EPOCH_GRID]
            lines.append(f"| {' | '.join([dataset, f'`{preset}`', str(len(runs)), *cells])} |")
    return "\n".join(lines) if len(lines) > 2 else "*not run yet*"


def _of_presets(
    records: Iterable[Mapping[str, Any]], presets: Sequence[str]
) -> dict[tuple[str, str], list[Run]]:
    found: dict[tuple[str, str], list[Run]] = {}
    for run in read_runs(records):
        if (run.table, run.variant) == ("graph", "gru") and run.preset in presets:
            found.setdefault((run.dataset, run.preset), []).append(run)
    return found


def _mean_at(curves: Sequence[Mapping[int, float]], epoch: int, digits: int = 1) -> str:
    if not all(epoch in curve for curve in curves):
        return NONE
    return f"{statistics.fmean(curve[epoch] for curve in curves):.{digits}f}"


def _read(records: Iterable[Mapping[str, Any]]) -> _Scores:
    found: _Scores = {}
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in read_runs(records):
        asked = (run.table, run.preset) == ("findings", PRESET)
        score = before_and_after(run, ANSWERED[run.level]) if asked else None
        if score is not None:
            key = run.dataset, run.level, run.variant or run.method
            found.setdefault(key, {})[run.seed] = score
            groups.setdefault(key, []).append(run)
    for runs in groups.values():
        check_alike(runs)
    return found


def before_and_after(run: Run, protocol: str) -> tuple[float, float] | None:
    """Before training and after its last epoch; None where it was not read so."""
    read = {e.epoch: e.value for e in evaluations(run) if e.protocol == protocol}
    return (read[0], read[max(read)]) if 0 in read and len(read) > 1 else None


def _table(asked: Question, scores: _Scores) -> str:
    datasets = [
        (name, level)
        for name, level in dict.fromkeys((name, level) for name, level, _ in scores)
        if level in asked.levels
        and any((name, level, against_base(v, level)) in scores for v in asked.variants)
    ]
    if not datasets:
        return ""
    lines = [
        f"| {asked.setting} | {' | '.join(name for name, _ in datasets)} |",
        f"|---{'|---' * len(datasets)}|",
    ]
    for variant in ("", *asked.variants):  # the base itself first
        cells = [_cell(scores, name, level, variant) for name, level in datasets]
        lines.append(f"| {_answer(asked, variant)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _answer(asked: Question, variant: str) -> str:
    """What to call a variant where its setting stands at the head of the column."""
    if not variant:
        return "as in the base"
    if "=" not in variant:
        return "as in the paper's preset"
    parts = [part.removeprefix(f"{asked.setting}=") for part in variant.split("+")]
    return f"`{', '.join(parts)}`"


def _cell(scores: _Scores, dataset: str, level: str, variant: str) -> str:
    """Trained and untrained, and what it gained on the base over the seeds that both have."""
    of_base = base_variant(level)
    found = scores.get((dataset, level, against_base(variant, level) if variant else of_base))
    if not found:
        return "-"
    before, after = (statistics.fmean(values) for values in zip(*found.values(), strict=True))
    text = f"{after:.1f} (untrained {before:.1f}, {_runs(len(found))})"
    base = scores.get((dataset, level, of_base), {})
    shared = sorted(found.keys() & base.keys())
    if not variant or not shared:
        return text
    return f"{text}; {gain([found[seed][1] - base[seed][1] for seed in shared])}"


def gain(values: Sequence[float], figures: int = 1) -> str:
    """The mean of differences with its sign, and the half width of its interval."""
    half = interval(values)
    spread = "" if half is None else f" ± {half:.{figures}f}"
    return f"{statistics.fmean(values):+.{figures}f}{spread}"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
