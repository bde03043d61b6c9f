"""Views as drawings: what was dropped, added, removed and masked, and how likely it was."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lg2ar.report.kinds import Kinds
from lg2ar.report.outlines import Outline
from lg2ar.report.placing import Floats
from lg2ar.report.svg import drawing, escape
from lg2ar.report.views import Pair, View
from lg2ar.report.words import many

WIDTH, HEIGHT, EDGE = 240, 180, 14
MANY_EDGES = 60  # above which lines are slim
STEPS = 9  # of the scale of colours, the classes q0 to q8


def sketch(outline: Outline, places: Floats, kinds: Kinds, *, label: str) -> str:
    """The graph as it is, its nodes coloured by their kind."""
    at = _on_paper(places)
    parts = [_line(at, pair, "edge") for pair in _pairs(outline)]
    for k, (x, y) in enumerate(at):
        kind = int(kinds.codes[outline.nodes[k]])
        told = f"node {k}" + (f", {kinds.what} {kinds.names[kind]}" if kinds.what else "")
        colour = f"c{kind % 10}" if kinds.what else "plain"
        parts.append(_disc(x, y, _radius(outline), f"node {colour}", told))
        if k == outline.centre:
            parts.append(_ring(x, y, _radius(outline)))
    return drawing(WIDTH, HEIGHT, label, parts)


def view_sketch(outline: Outline, places: Floats, view: View, *, label: str) -> str:
    """A view, drawn over what is left out of it.

    Args:
        outline: What is drawn of the graph; its nodes are places within the graph.
        places: Where its nodes are drawn.
        view: What became of the graph.
        label: What the drawing shows, for those who cannot see it.
    """
    at = _on_paper(places)
    local = {int(node): k for k, node in enumerate(outline.nodes)}
    edges = [_ordered(int(outline.nodes[a]), int(outline.nodes[b])) for a, b in outline.pairs]
    edges += [pair for pair in sorted(view.added) if pair[0] in local and pair[1] in local]
    under, over = [], []
    for pair in edges:
        ends = local[pair[0]], local[pair[1]]
        told, state = _edge_text(pair, view)
        if pair in view.edge_p:
            broad = "likely" if len(edges) <= MANY_EDGES else "likely slim"
            under.append(_line(at, ends, f"{broad} q{share_step(view.edge_p[pair])}", told))
        over.append(_line(at, ends, f"edge {state}", told))
    parts = under + over
    for k, (x, y) in enumerate(at):
        parts.append(_node(x, y, _radius(outline), int(outline.nodes[k]), view))
    return drawing(WIDTH, HEIGHT, label, parts)


def view_text(view: View) -> str:
    """What became of the graph, in words."""
    told = []
    kept, n = int(view.kept.sum()), len(view.kept)
    if kept < n:
        told.append(f"{kept} of {many(n, 'node')} kept")
    if view.removed:
        total = len(view.removed) + len(view.stayed)
        told.append(f"{len(view.stayed)} of {many(total, 'edge')} kept")
    if view.added:
        told.append(f"{len(view.added)} added")
    if view.masked is not None:
        told.append(f"{100 * float(view.masked.mean()):.0f} % of the features masked")
    return ", ".join(told) or "nothing changed"


def share_step(p: float) -> int:
    """The step of the colour scale for a probability from 0 to 1.

    >>> share_step(0.0), share_step(0.5), share_step(1.0)
    (0, 4, 8)
    """
    return round(min(1.0, max(0.0, p)) * (STEPS - 1))


def ratio_step(ratio: float) -> int:
    """The step for how many times as likely as all alike: the middle is 1, each end 4 times.

    >>> ratio_step(0.25), ratio_step(1.0), ratio_step(2.0), ratio_step(100.0)
    (0, 4, 6, 8)
    """
    return share_step(0.5 + math.log2(max(ratio, 1e-9)) / 4)


def _node(x: float, y: float, r: float, place: int, view: View) -> str:
    told = [f"node {place}"]
    colour = "plain"
    if not view.kept[place]:
        told.append("dropped")
    if view.node_p is not None:
        ratio = float(view.node_p[place]) * len(view.node_p)
        told.append(f"p = {view.node_p[place]:.3f}, {ratio:.2f} times that of all alike")
        colour = f"q{ratio_step(ratio)}"
    if view.feature_p is not None:
        told.append(f"a feature stays with p = {view.feature_p[place]:.2f}")
        colour = f"q{share_step(float(view.feature_p[place]))}"
    text = "\n".join(told)
    if not view.kept[place]:
        mark = f'<circle class="mark {colour}" cx="{x:.1f}" cy="{y:.1f}" r="{0.45 * r:.1f}"/>'
        return _disc(x, y, r, "node dropped", text) + (mark if colour != "plain" else "")
    if view.masked is None:
        return _disc(x, y, r, f"node {colour}", text)
    share = float(view.masked[place])
    return _pie(x, y, r + 1, colour, share, f"{text}\n{100 * share:.0f} % of its features masked")


def _edge_text(pair: Pair, view: View) -> tuple[str, str]:
    """What to tell of an edge when it is pointed at, and what became of it."""
    state = "added" if pair in view.added else "removed" if pair in view.removed else "kept"
    told = f"edge {pair[0]} to {pair[1]}\n{state}"
    if pair in view.edge_p:
        told += f"\np = {view.edge_p[pair]:.2f}"
    return told, state


def _pairs(outline: Outline) -> list[Pair]:
    return [(int(a), int(b)) for a, b in outline.pairs]


def _ordered(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def _on_paper(places: Floats) -> list[tuple[float, float]]:
    """Places in the unit box, fitted into the drawing."""
    if not len(places):
        return []
    span = places.max(axis=0) - places.min(axis=0)
    room = np.array([WIDTH - 2 * EDGE, HEIGHT - 2 * EDGE])
    scale = float(np.min(room / np.maximum(span, 1e-6)))
    scale = min(scale, 120.0 if len(places) < 3 else scale)
    middle = (places.max(axis=0) + places.min(axis=0)) / 2
    at = (places - middle) * scale + np.array([WIDTH, HEIGHT]) / 2
    return [(float(x), float(y)) for x, y in at]


def _radius(outline: Outline) -> float:
    return 7.0 if len(outline.nodes) <= 24 else 5.5 if len(outline.nodes) <= 40 else 4.5


def _line(
    at: Sequence[tuple[float, float]], pair: Pair, classes: str, told: str | None = None
) -> str:
    (x, y), (u, v) = at[pair[0]], at[pair[1]]
    tip = f' data-tip="{escape(told)}"' if told else ""
    return f'<path class="{classes}" d="M{x:.1f} {y:.1f}L{u:.1f} {v:.1f}"{tip}/>'


def _disc(x: float, y: float, r: float, classes: str, told: str) -> str:
    return (
        f'<circle class="{classes}" cx="{x:.1f}" cy="{y:.1f}" r="{r}" data-tip="{escape(told)}"/>'
    )


def _ring(x: float, y: float, r: float) -> str:
    return f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="{r + 3}"/>'


def _pie(x: float, y: float, r: float, colour: str, masked: float, told: str) -> str:
    """A disc of which the masked share is empty, clockwise from the top."""
    parts = [_disc(x, y, r, f"node {colour}", told)]
    if masked >= 0.995:
        parts.append(f'<circle class="masked" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>')
    elif masked > 0.005:
        turn = 2 * math.pi * masked
        u, v = x + r * math.sin(turn), y - r * math.cos(turn)
        parts.append(
            f'<path class="masked" d="M{x:.1f} {y:.1f}V{y - r:.1f}A{r} {r} 0 {int(masked > 0.5)} 1 '
            f'{u:.1f} {v:.1f}z"/>'
        )
    return "".join(parts)
