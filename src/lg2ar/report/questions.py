"""What the open questions of the paper came to: each answer against the paper's settings.

Runs are compared seed by seed: the same folds, the same initial encoders.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lg2ar.benchmarks import Question, questions
from lg2ar.report.cells import interval
from lg2ar.report.runs import Run, evaluations, read_runs

BASE = "gru"  # the paper's settings as they are
PROTOCOL = "strict"

# Of each data set and variant: by seed, the score before training and after it.
_Scores = dict[tuple[str, str], dict[int, tuple[float, float]]]


def findings(records: Iterable[Mapping[str, Any]]) -> str:
    """All questions that were looked into, a heading and a table each."""
    scores = _read(records)
    parts = [
        f"### {asked.name[0].upper()}{asked.name[1:]} ({asked.place})\n\n{asked.text}\n\n{table}"
        for asked in questions()
        if (table := _table(asked, scores))
    ]
    return "\n\n".join(parts) or "*not run yet*"


def finding(records: Iterable[Mapping[str, Any]], name: str) -> str:
    """The table of one question, by its name."""
    asked = {question.name: question for question in questions()}[name]
    return _table(asked, _read(records)) or "*not run yet*"


def _read(records: Iterable[Mapping[str, Any]]) -> _Scores:
    found: _Scores = {}
    for run in read_runs(records):
        score = _score(run) if run.table == "findings" else None
        if score is not None:
            found.setdefault((run.dataset, run.variant or run.method), {})[run.seed] = score
    return found


def _score(run: Run) -> tuple[float, float] | None:
    """Before training and after its last epoch; None where it was not read so."""
    read = {e.epoch: e.value for e in evaluations(run) if e.protocol == PROTOCOL}
    return (read[0], read[max(read)]) if 0 in read and len(read) > 1 else None


def _table(asked: Question, scores: _Scores) -> str:
    names = list(dict.fromkeys(dataset for dataset, _ in scores))
    names = [name for name in names if any((name, other) in scores for other in asked.variants)]
    if not names:
        return ""
    lines = [
        f"| {asked.setting} | {' | '.join(names)} |",
        f"|---{'|---' * len(names)}|",
    ]
    for variant in (BASE, *asked.variants):
        cells = [_cell(scores, name, variant) for name in names]
        lines.append(f"| {_answer(asked, variant)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _answer(asked: Question, variant: str) -> str:
    """What to call a variant where its setting stands at the head of the column."""
    if variant == BASE:
        return "as in the paper's preset"
    parts = [part.removeprefix(f"{asked.setting}=") for part in variant.split("+")]
    return f"`{', '.join(parts)}`"


def _cell(scores: _Scores, dataset: str, variant: str) -> str:
    """Trained and untrained, and what it gained on the base over the seeds that both have."""
    found = scores.get((dataset, variant))
    if not found:
        return "-"
    before, after = (statistics.fmean(values) for values in zip(*found.values(), strict=True))
    text = f"{after:.1f} (untrained {before:.1f}, {_runs(len(found))})"
    base = scores.get((dataset, BASE), {})
    shared = sorted(found.keys() & base.keys())
    if variant == BASE or not shared:
        return text
    return f"{text}; {_gain([found[seed][1] - base[seed][1] for seed in shared])}"


def _gain(values: Sequence[float]) -> str:
    half = interval(values)
    return f"{statistics.fmean(values):+.1f}" + ("" if half is None else f" ± {half:.1f}")


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
