"""How training went: loss, policy, draws and cost, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lg2ar.checkpoint import Checkpoint
from lg2ar.records import EpochRecord
from lg2ar.report import svg
from lg2ar.report.document import facts_table, figure, section
from lg2ar.report.svg import Line, number
from lg2ar.report.words import count, duration, memory


def training_sections(held: Checkpoint, history: Sequence[EpochRecord]) -> list[str]:
    """The parts of the page that show training and what it took."""
    if not history:
        return [section("Training", "<p>No epoch was trained, so there is no curve to show.</p>")]
    losses = [record.loss for record in history]
    weights = [record.mean_edge_weight for record in history]
    lowest = int(np.argmin(losses)) + 1
    charts = [
        _curve("Loss", "loss", losses, f"{_from_to(losses)}, lowest in epoch {lowest}."),
        _policy(held, history),
        _pairs(held, history),
        _draws(held, history),
        _curve("Mean edge weight", "weight", weights, f"{_from_to(weights)}, over all views."),
        _cost(history),
    ]
    note = ""
    if len(history) > svg.MOST_POINTS:
        note = (
            f"<p class='note'>{count(len(history))} epochs are drawn as {svg.MOST_POINTS} points, "
            "each the mean of its neighbours.</p>"
        )
    steps = sum(record.steps for record in history)
    base = sum(record.base_steps for record in history)
    peak = max(record.peak_memory for record in history)
    where = "of the CUDA device, or of the process where there was none"
    facts = [
        ("Time in all", duration(sum(record.seconds for record in history))),
        ("Steps", f"{count(steps)}; the base encoder was stepped in {count(base)} of them"),
        ("Peak memory", f"{memory(peak)}, {where}" if peak else "not known"),
    ]
    curves = f'<div class="charts">{"".join(charts)}</div>{note}'
    return [section("Training", curves + facts_table(facts))]


def _curve(
    title: str, name: str, values: Sequence[float], note: str, *, from_zero: bool = False
) -> str:
    drawing = svg.line_chart(
        [Line(name, values)],
        label=f"{title} over {len(values)} epochs. {note}",
        y_label=name,
        from_zero=from_zero,
    )
    return figure(title, drawing, note)


def _from_to(values: Sequence[float]) -> str:
    return f"From {number(values[0])} to {number(values[-1])}"


def _policy(held: Checkpoint, history: Sequence[EpochRecord]) -> str:
    heads = held.config.heads
    lines = [
        Line(name, [record.probabilities[k] for record in history]) for k, name in enumerate(heads)
    ]
    last = ", ".join(f"{line.name} {number(line.values[-1])}" for line in lines)
    drawing = svg.line_chart(
        lines,
        label=f"The policy's probabilities over epochs; at the end {last}",
        y_label="probability",
        from_zero=True,
    )
    keys = [
        svg.line_key(kind, f"{line.name} {line.values[-1]:.2f}") for kind, line in enumerate(lines)
    ]
    note = "Mean over the steps of each epoch. The legend gives the last epoch's."
    return figure("The policy's probabilities", drawing + svg.legend(keys), note)


def _pairs(held: Checkpoint, history: Sequence[EpochRecord]) -> str:
    heads = held.config.heads
    counts = np.sum([record.draws for record in history], axis=0)
    total = int(counts.sum())
    shares = counts / max(1, total)
    i, j = divmod(int(np.argmax(shares)), len(heads))
    most = f"{heads[i]}, then {heads[j]}"
    drawing = svg.heat_map(
        shares, heads, label=f"Share of each pair in all draws; most often {most}"
    )
    note = (
        f"Percent of {count(total)} draws over the whole run, one pair per step; most often "
        f"{most}. (Figure 2 of the paper.)"
    )
    return figure("Pairs of augmentations drawn", drawing, note)


def _draws(held: Checkpoint, history: Sequence[EpochRecord]) -> str:
    heads = held.config.heads
    counts = np.array([record.draws for record in history])  # [epochs, T, T]
    drawn = counts.sum(axis=1) + counts.sum(axis=2)  # as first view and as second, [epochs, T]
    lines = [Line(name, drawn[:, k].tolist()) for k, name in enumerate(heads)]
    drawing = svg.share_chart(lines, label="Share of each augmentation in the draws over epochs")
    keys = [svg.area_key(kind, name) for kind, name in enumerate(heads)]
    note = "Each augmentation's share of all views drawn, either way round."
    return figure("Draws over time", drawing + svg.legend(keys), note)


def _cost(history: Sequence[EpochRecord]) -> str:
    seconds = [record.seconds for record in history]
    note = (
        f"{duration(float(np.median(seconds)))} (median); longest {duration(max(seconds))}, in "
        f"epoch {int(np.argmax(seconds)) + 1}."
    )
    return _curve("Seconds per epoch", "seconds", seconds, note, from_zero=True)
