"""What each part of the method is worth: variants against the method itself, seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lg2ar.report.cells import check_alike, interval
from lg2ar.report.questions import NONE, PROTOCOL, before_and_after, gain
from lg2ar.report.rows import VARIANTS, in_papers_order
from lg2ar.report.runs import Run, read_runs

TABLE = "ablation"
# Variants that are the method itself.
ITSELF = ("bound=jsd", "discriminator=dot", "augmentations=all")

# Of each variant and data set: by seed, the score before training and after it.
_Scores = dict[tuple[str, str], dict[int, tuple[float, float]]]


def part_gains(records: Iterable[Mapping[str, Any]], preset: str) -> str:
    """What is gained under ``strict`` by changing one part, on each data set and in the mean.

    Differences are paired by seed, so by folds and initial weights, with the half width of their
    95 % interval; that of the mean over data sets is of the data sets' own means. A last line
    counts the cells whose interval is clear of zero, of which chance alone would make a twentieth.

    Args:
        records: Finished runs of the table ``ablation``.
        preset: Whose settings.
    """
    scores = _read(records, preset)
    datasets = in_papers_order(name for variant, name in scores if variant in ITSELF)
    if not datasets:
        return "*not run yet*"
    base = {name: scores[itself, name] for name in datasets for itself in _there(scores, name)}
    lines = [
        f"| changed | {' | '.join(datasets)} | mean |",
        f"|---|{'---:|' * (len(datasets) + 1)}",
        _values("untrained", base, place=0),
        _values("nothing", base, place=1),
    ]
    cells: list[Sequence[float]] = []
    for variant in (name for name in VARIANTS[TABLE] if name not in ITSELF):
        found = {name: _gains(scores.get((variant, name), {}), base[name]) for name in datasets}
        if not any(found.values()):
            continue
        means = [statistics.fmean(gains) for gains in found.values() if gains]
        shown = [gain(gains) if gains else NONE for gains in found.values()]
        part, value = VARIANTS[TABLE][variant]
        mean = gain(means, figures=2) if len(means) == len(datasets) else NONE
        lines.append(f"| {part}: {value} | {' | '.join(shown)} | {mean} |")
        cells += [gains for gains in found.values() if len(gains) > 1]
    clear = [gains for gains in cells if abs(statistics.fmean(gains)) > (interval(gains) or 0.0)]
    better = sum(statistics.fmean(gains) > 0 for gains in clear)
    lines.append(
        f"\nOf {len(cells)} cells {len(clear)} have an interval clear of zero: {better} above it "
        f"and {len(clear) - better} below; chance alone would make {len(cells) / 20:.0f}."
    )
    return "\n".join(lines)


def _read(records: Iterable[Mapping[str, Any]], preset: str) -> _Scores:
    found: _Scores = {}
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in read_runs(records):
        asked = (run.table, run.preset, run.method) == (TABLE, preset, "lg2ar")
        score = before_and_after(run, PROTOCOL) if asked else None
        if score is not None:
            key = str(run.variant), run.dataset
            found.setdefault(key, {})[run.seed] = score
            groups.setdefault(key, []).append(run)
    for runs in groups.values():
        check_alike(runs)
    return found


def _there(scores: _Scores, name: str) -> list[str]:
    """Under which of its names the method itself was run."""
    return [variant for variant in ITSELF if (variant, name) in scores]


def _gains(
    changed: Mapping[int, tuple[float, float]], base: Mapping[int, tuple[float, float]]
) -> list[float]:
    return [changed[seed][1] - base[seed][1] for seed in sorted(changed.keys() & base.keys())]


def _values(name: str, base: Mapping[str, Mapping[int, tuple[float, float]]], *, place: int) -> str:
    means = [statistics.fmean(score[place] for score in own.values()) for own in base.values()]
    shown = [f"{value:.1f}" for value in means]
    return f"| {name} | {' | '.join(shown)} | {statistics.fmean(means):.2f} |"
