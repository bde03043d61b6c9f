"""One page that shows a run: data, scores, curves, draws and maps, in a single HTML file.

The page needs nothing beside itself: no network, no library, no other file. Its only script shows
hover texts and switches between light and dark; a content security policy lets no other one run.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lg2ar import checkpoint
from lg2ar.checkpoint import Checkpoint
from lg2ar.errors import InputError
from lg2ar.files import write_bytes
from lg2ar.records import EpochRecord, Score
from lg2ar.report import svg
from lg2ar.report.document import document, facts_table, figure, section
from lg2ar.report.maps import EmbeddingMap
from lg2ar.report.svg import Line, escape, number

REPORT_FILE = "report.html"
MOST_MAPPED = 3000  # points of a map
MOST_NAMED = 40  # labels in a legend


def write_page(
    folder: str | Path,
    *,
    scores: Mapping[str, Score] | None = None,
    maps: Mapping[str, EmbeddingMap] | None = None,
) -> Path:
    """Write ``report.html`` into a run folder.

    Args:
        folder: What :func:`~lg2ar.experiment.pretrain` wrote.
        scores: Results to show, by name.
        maps: Embeddings to show side by side, by name.

    Returns:
        Where the page is.

    Raises:
        InputError: When the folder holds no run, or cannot be read or written.
    """
    folder = Path(folder)
    held = checkpoint.read(folder)
    try:
        history = [EpochRecord(**record) for record in held.progress["history"]]
    except (KeyError, TypeError):
        raise InputError(
            f"{folder / checkpoint.RUN_FILE}: its history is damaged; train again."
        ) from None
    sections = [
        _overview(held, history),
        _scores(scores or {}),
        _maps(maps or {}, held.config.level),
        *_training(held, history),
        _next_step(folder, held),
        _settings(held),
    ]
    path = folder / REPORT_FILE
    try:
        write_bytes(path, document(str(held.data.get("name", "")), sections).encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None
    return path


def _overview(held: Checkpoint, history: Sequence[EpochRecord]) -> str:
    data, config = held.data, held.config
    done = len(history)
    tiles = [
        ("to embed", f"{config.level}s"),
        ("epochs", f"{done} of {config.epochs}"),
        ("policy", config.policy),
    ]
    if history:
        tiles.append(("loss", f"{number(history[0].loss)} → {number(history[-1].loss)}"))
        tiles.append(("time", _duration(sum(record.seconds for record in history))))
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles
    )
    facts = [
        ("Data", data.get("name", "?")),
        ("Graphs", _count(data.get("num_graphs"))),
        ("Nodes", _count(data.get("num_nodes"))),
        ("Edges", f"{_count(data.get('num_edges'))}, each direction counted by itself"),
        ("Node features", _recipe(held)),
        ("State", _state(held, done)),
        ("Weights kept", _kept(held, done)),
        ("Fingerprint of the data", data.get("fingerprint", "?")),
    ]
    return section("What was trained", f'<dl class="tiles">{shown}</dl>{facts_table(facts)}')


def _scores(scores: Mapping[str, Score]) -> str:
    if not scores:
        return section("Scores", "<p>The embeddings were not evaluated.</p>")
    heads = ("Embeddings", "Accuracy", "0 to 100 %", "Protocol", "Runs", "Epoch chosen by")
    rows = []
    for name, score in scores.items():
        value = f"{score.mean:.1f} ± {score.std:.1f} %"
        bar = svg.bar(score.mean, score.std, label=f"{name}: {value}")
        cells = (
            escape(name),
            f"<strong>{value}</strong>",
            bar,
            escape(score.protocol),
            str(score.runs),
            escape(score.selection),
        )
        told = zip(heads, cells, strict=True)
        rows.append("".join(f'<td data-head="{head}">{cell}</td>' for head, cell in told))
    head = "".join(f'<th scope="col">{head}</th>' for head in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    note = "<p class='note'>Mean ± one standard deviation over the runs; the whisker shows it.</p>"
    table = f'<table class="scores"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return section("Scores", table + note)


def _maps(maps: Mapping[str, EmbeddingMap], level: str) -> str:
    if not maps:
        return ""
    texts = {name: _texts(item.labels) for name, item in maps.items()}
    names = sorted({text for labels in texts.values() for text in labels or []}, key=_in_order)
    kinds = {text: kind for kind, text in enumerate(names)}
    figures = [_map(name, item, texts[name], kinds, level) for name, item in maps.items()]
    legend = [svg.point_key(kind, f"label {text}") for text, kind in kinds.items()]
    if len(legend) > MOST_NAMED:
        legend = [*legend[:MOST_NAMED], f"<li>and {len(legend) - MOST_NAMED} more</li>"]
    return section(
        "Maps of the embeddings",
        f'<div class="charts">{"".join(figures)}</div>{svg.legend(legend)}',
    )


def _map(
    name: str, item: EmbeddingMap, labels: list[str] | None, kinds: Mapping[str, int], level: str
) -> str:
    total = len(item.points)
    shown = np.unique(np.linspace(0, total - 1, min(total, MOST_MAPPED)).astype(int))
    if labels is None:
        tips, chosen = [f"{level} {k}" for k in shown], [0] * len(shown)
    else:
        tips = [f"{level} {k}, label {labels[k]}" for k in shown]
        chosen = [kinds[labels[k]] for k in shown]
    what = f"{_count(total)} {level}s"
    if len(shown) < total:
        what = f"{_count(len(shown))} of {what}, evenly chosen"
    label = f"Scatter of {what}, {name}"
    drawing = svg.scatter(item.points[shown].astype(float), chosen, tips, label=label)
    return figure(name, drawing, f"{what}; each axis is stretched to fill the square.")


def _training(held: Checkpoint, history: Sequence[EpochRecord]) -> list[str]:
    if not history:
        return [section("Training", "<p>No epoch was trained, so there is no curve to show.</p>")]
    losses = [record.loss for record in history]
    weights = [record.mean_edge_weight for record in history]
    lowest = int(np.argmin(losses)) + 1
    charts = [
        _curve("Loss", "loss", losses, f"{_from_to(losses)}, lowest in epoch {lowest}."),
        _policy(held, history),
        _draws(held, history),
        _curve("Mean edge weight", "weight", weights, f"{_from_to(weights)}, over all views."),
    ]
    note = ""
    if len(history) > svg.MOST_POINTS:
        note = (
            f"<p class='note'>{_count(len(history))} epochs are drawn as {svg.MOST_POINTS} points, "
            "each the mean of its neighbours.</p>"
        )
    curves = f'<div class="charts">{"".join(charts)}</div>{note}'
    return [section("Training", curves), _cost(history)]


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


def _draws(held: Checkpoint, history: Sequence[EpochRecord]) -> str:
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
        f"Percent of {_count(total)} draws over the whole run, one pair per step; most often "
        f"{most}."
    )
    return figure("Pairs of augmentations drawn", drawing, note)


def _cost(history: Sequence[EpochRecord]) -> str:
    seconds = [record.seconds for record in history]
    steps = sum(record.steps for record in history)
    base = sum(record.base_steps for record in history)
    facts = [
        ("Time in all", _duration(sum(seconds))),
        ("Time per epoch", f"{_duration(float(np.median(seconds)))} (median)"),
        ("Peak memory", _memory(max(record.peak_memory for record in history))),
        ("Steps", f"{_count(steps)}; the base encoder was stepped in {_count(base)} of them"),
    ]
    note = f"Longest: {_duration(max(seconds))} in epoch {int(np.argmax(seconds)) + 1}."
    chart = _curve("Seconds per epoch", "seconds", seconds, note, from_zero=True)
    return section("Cost", f'<div class="charts"><div>{facts_table(facts)}</div>{chart}</div>')


def _next_step(folder: Path, held: Checkpoint) -> str:
    run = shlex.quote(str(folder))
    steps = [
        f"<p>Embed the same {held.config.level}s, or new ones:</p>",
        f"<pre><code>{escape(f'lg2ar embed {run} SOURCE --out embeddings.parquet')}</code></pre>",
    ]
    if not held.finished:
        again = f"lg2ar pretrain SOURCE --out {run} --resume"
        steps.append("<p>The run is not at its end. With the same settings, this goes on:</p>")
        steps.append(f"<pre><code>{escape(again)}</code></pre>")
    return section("Going on", "".join(steps))


def _settings(held: Checkpoint) -> str:
    settings = [
        (key, ", ".join(value) if isinstance(value, list) else str(value))
        for key, value in held.config.to_dict().items()
    ]
    return section(
        "Settings and versions",
        f"<details><summary>All {len(settings)} settings</summary>{facts_table(settings)}</details>"
        f"<details><summary>Versions</summary>{facts_table(held.versions.items())}</details>",
    )


def _recipe(held: Checkpoint) -> str:
    """In words, how node features were made."""
    name, given = held.recipe.get("name", "?"), held.recipe.get("given", "?")
    if name == "given":
        return f"given: the data's own {given}"
    if name == "constant":
        return "constant: a single one for every node"
    text = f"{name}, beside {given} of the data's own" if given else str(name)
    if "one-hot" in text:
        text += f"; degrees are told apart up to {held.recipe.get('cap', '?')}"
    return text


def _state(held: Checkpoint, done: int) -> str:
    if not held.finished:
        return "not at its end yet"
    if done < held.config.epochs:
        return f"stopped early: no lower loss for {held.config.patience} epochs"
    return "finished"


def _kept(held: Checkpoint, done: int) -> str:
    best = held.progress.get("best_epoch", 0)
    if not done:
        return "those it was initialised with"
    if held.config.patience and best:
        return f"those of epoch {best}, the one with the lowest loss"
    return f"those of the last epoch, {done}"


def _texts(labels: NDArray[Any] | None) -> list[str] | None:
    return None if labels is None else [str(label) for label in labels.tolist()]


def _in_order(text: str) -> tuple[int, float, str]:
    """Sorts numbers by size, before words."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _memory(size: int) -> str:
    if not size:
        return "not known"
    shown = f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
    return f"{shown}, of the CUDA device, or of the process where there was none"
