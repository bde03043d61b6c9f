"""What each part of the method is worth: variants against the method itself, seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lg2ar.report.cells import FEATURES, check_alike, interval
from lg2ar.report.questions import NONE, PROTOCOL, before_and_after, gain
from lg2ar.report.rows import VARIANTS, in_papers_order
from lg2ar.report.runs import Run, evaluations, read_runs

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
    base = {name: _itself(scores, name) for name in datasets}
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


def _itself(scores: _Scores, dataset: str) -> dict[int, tuple[float, float]]:
    """The method itself, whatever it was called, by seed."""
    found: dict[int, tuple[float, float]] = {}
    for name in ITSELF:
        found = scores.get((name, dataset), {}) | found
    return found


def _gains(
    changed: Mapping[int, tuple[float, float]], base: Mapping[int, tuple[float, float]]
) -> list[float]:
    return [changed[seed][1] - base[seed][1] for seed in sorted(changed.keys() & base.keys())]


def _values(name: str, base: Mapping[str, Mapping[int, tuple[float, float]]], *, place: int) -> str:
    means = [statistics.fmean(score[place] for score in own.values()) for own in base.values()]
    shown = [f"{value:.1f}" for value in means]
    return f"| {name} | {' | '.join(shown)} | {statistics.fmean(means):.2f} |"


def network_gains(
    records: Iterable[Mapping[str, Any]], protocol: str, bare: Mapping[str, str], trained: str
) -> str:
    """What a network gains on features that are read without one, before and after training.

    Differences are paired by seed, to the best of the readings without a network; data sets that
    have none are left out.

    Args:
        records: Finished runs of the table ``graph`` or ``node``.
        protocol: How all are read.
        bare: By what to call them, presets that features were read with, without a network.
        trained: The preset of the learned policy's runs.
    """
    features: dict[tuple[str, str], dict[int, float]] = {}
    networks: dict[str, dict[int, tuple[float, float]]] = {}
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in read_runs(records):
        read = {e.epoch: e.value for e in evaluations(run) if e.protocol == protocol}
        score = before_and_after(run, protocol)
        if run.method == FEATURES and run.preset in bare.values() and read:
            features.setdefault((run.dataset, run.preset), {})[run.seed] = read[0]
        elif (run.method, run.variant, run.preset) == ("lg2ar", "gru", trained) and score:
            networks.setdefault(run.dataset, {})[run.seed] = score
        else:
            continue
        groups.setdefault((run.method, run.dataset, run.preset), []).append(run)
    for runs in groups.values():
        check_alike(runs)
    head = ["data set", *bare, "untrained", "trained", "untrained - features", "trained - features"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for dataset in in_papers_order(name for name, _ in features):
        own = networks.get(dataset, {})
        found = {name: features.get((dataset, preset), {}) for name, preset in bare.items()}
        means = {name: statistics.fmean(v.values()) for name, v in found.items() if v}
        best = found[max(means, key=means.__getitem__)]
        shared = sorted(own.keys() & best.keys())
        if not shared:
            continue
        shown = [
            f"{means[name]:.1f} ({len(found[name])})" if name in means else NONE for name in bare
        ]
        for place in (0, 1):
            mean = statistics.fmean(score[place] for score in own.values())
            shown.append(f"{mean:.1f} ({len(own)})")
        for place in (0, 1):
            gained = gain([own[seed][place] - best[seed] for seed in shared])
            shown.append(f"{gained} ({len(shared)})")
        lines.append(f"| {dataset} | {' | '.join(shown)} |")
    return "\n".join(lines) if len(lines) > 2 else "*not run yet*"
