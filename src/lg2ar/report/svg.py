"""Small charts as inline SVG text: lines, shares, a heat map and a bar.

Colours are the classes ``c0`` to ``c9``, which ``page.css`` sets for light and dark backgrounds.
Lines differ also by their dashes, so that nothing is told by colour alone. Elements with a
``data-tip`` show that text when pointed at.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

COLOURS = 10
MOST_POINTS = 400  # of a line
MOST_BARS = 60  # of a chart of shares
WIDTH, HEIGHT = 400, 250

_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 28, 44
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4")
# What XML cannot hold, and halves of characters, which UTF-8 cannot.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        name: What the legend calls it.
        values: One per epoch.
    """

    name: str
    values: Sequence[float]


def escape(value: object) -> str:
    """A value as text that is safe in HTML and SVG, inside an element or a quoted attribute."""
    return html.escape(printable(value))


def printable(value: object) -> str:
    """A value as text, without what no page can hold."""
    return _UNPRINTABLE.sub("\ufffd", str(value))


def number(value: float) -> str:
    """A number to read, with four figures.

    >>> number(0.123456), number(1234.0), number(2.0)
    ('0.1235', '1234', '2')
    """
    return f"{value:.4g}"


def thin(values: Sequence[float], most: int = MOST_POINTS) -> list[float]:
    """At most ``most`` values: means of neighbours, where there are more.

    >>> thin([1, 3, 5, 7], most=2)
    [2.0, 6.0]
    """
    if len(values) <= most:
        return [float(value) for value in values]
    return [float(part.mean()) for part in np.array_split(np.asarray(values, float), most)]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round numbers from ``low`` to ``high``.

    >>> ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    # Rounded off, so that 3 * 0.2 is 0.6; the last term turns -0.0 into 0.0.
    places = [float(f"{(first + k) * step:.12g}") + 0.0 for k in range(2 * count + 2)]
    return [place for place in places if place <= high + step * 1e-6]


def line_chart(lines: Sequence[Line], *, label: str, y_label: str, from_zero: bool = False) -> str:
    """Lines over epochs, numbered from 1.

    Args:
        lines: At least one, all of the same length, not empty.
        label: What the chart shows, for those who cannot see it.
        y_label: What the values are.
        from_zero: Whether the axis starts at zero.
    """
    epochs = range(1, len(lines[0].values) + 1)
    xs = thin(epochs)
    thinned = [thin(line.values) for line in lines]
    low, high = _span([value for values in thinned for value in values], from_zero=from_zero)
    x_low, x_high = (1.0, float(len(epochs))) if len(epochs) > 1 else (0.5, 1.5)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low) * (WIDTH - _LEFT - _RIGHT)
        up = (y - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM)
        return _LEFT + across, HEIGHT - _BOTTOM - up

    parts = [f'<text class="axis-name" x="4" y="14">{escape(y_label)}</text>']
    for y in ticks(low, high):
        at = place(x_low, y)[1]
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_tick(y)}</text>')
    for x in _whole_ticks(len(epochs)):
        at = min(place(x, low)[0], WIDTH - 4.5 * len(str(x)))  # not beyond the edge
        y_at = HEIGHT - _BOTTOM + 18
        parts.append(f'<text x="{at:.1f}" y="{y_at}" text-anchor="middle">{x}</text>')
    parts.append(_epoch_name())
    for k, values in enumerate(thinned):
        points = [place(x, y) for x, y in zip(xs, values, strict=True)]
        parts.append(_polyline(points, k))
    across = [place(x, low)[0] for x in xs]
    edges = [_LEFT, *((a + b) / 2 for a, b in pairwise(across)), WIDTH - _RIGHT]
    shown = [Line(line.name, values) for line, values in zip(lines, thinned, strict=True)]
    parts += _strips(shown, edges, len(epochs))
    return drawing(WIDTH, HEIGHT, label, parts)


def heat_map(shares: NDArray[np.float64], names: Sequence[str], *, label: str) -> str:
    """A square of shares with the numbers, in percent, in its cells.

    Args:
        shares: Rows are first draws, columns second draws, shape ``[T, T]``.
        names: What the rows and columns are called.
        label: What the chart shows, for those who cannot see it.
    """
    left, top = 144, 26
    side = min(64.0, (WIDTH - left - 8) / max(1, len(names)))
    tall = min(side, 42.0)
    bottom = top + tall * len(names)
    most = max(float(shares.max(initial=0.0)), 1e-12)
    parts = [
        f'<text class="axis-name" x="{left - 8}" y="14" text-anchor="end">first view ↓</text>',
        f'<text class="axis-name" x="{left}" y="14">second view →</text>',
    ]
    for i, name in enumerate(names):
        y = top + (i + 0.5) * tall
        x = left + (i + 0.5) * side + 4
        parts.append(
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>'
            f'<text transform="translate({x:.1f} {bottom + 14:.1f}) rotate(-38)" '
            f'text-anchor="end">{escape(name)}</text>'
        )
        for j, other in enumerate(names):
            share = float(shares[i, j])
            tip = escape(f"{name}, then {other}: {100 * share:.2f} % of all draws")
            at = f'x="{left + j * side:.1f}" y="{top + i * tall:.1f}"'
            parts.append(
                f'<g data-tip="{tip}"><rect class="cell" {at} width="{side - 2:.1f}" '
                f'height="{tall - 2:.1f}" rx="3"/><rect class="heat" {at} '
                f'width="{side - 2:.1f}" height="{tall - 2:.1f}" rx="3" '
                f'fill-opacity="{share / most:.3f}"/><text class="value" '
                f'x="{left + (j + 0.5) * side - 1:.1f}" y="{y + 3.5:.1f}" '
                f'text-anchor="middle">{_percent(share)}</text></g>'
            )
    return drawing(WIDTH, math.ceil(bottom + 92), label, parts)


def share_chart(lines: Sequence[Line], *, label: str) -> str:
    """Shares of a whole over epochs, stacked, the first line's at the bottom.

    Args:
        lines: Counts, all of the same length, not empty.
        label: What the chart shows, for those who cannot see it.
    """
    counts = np.array([thin(line.values, MOST_BARS) for line in lines])  # [T, bars]
    shares = counts / np.maximum(counts.sum(axis=0), 1e-12)
    tops = np.vstack([np.zeros(shares.shape[1]), shares.cumsum(axis=0)])
    bottom, tall = HEIGHT - _BOTTOM, HEIGHT - _TOP - _BOTTOM
    step = (WIDTH - _LEFT - _RIGHT) / shares.shape[1]
    parts = ['<text class="axis-name" x="4" y="14">share of draws (%)</text>']
    for percent in (0, 25, 50, 75, 100):
        at = bottom - percent / 100 * tall
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{percent}</text>')
    for k in range(len(lines)):
        for bar in range(shares.shape[1]):
            high = shares[k, bar] * tall
            if high > 0:
                parts.append(
                    f'<rect class="area c{k % COLOURS}" x="{_LEFT + bar * step:.1f}" '
                    f'y="{bottom - tops[k + 1, bar] * tall:.1f}" width="{step + 0.2:.1f}" '
                    f'height="{high:.1f}"/>'
                )
    total = len(lines[0].values)
    for x in _whole_ticks(total):
        at = _LEFT + (x - 0.5) / total * (WIDTH - _LEFT - _RIGHT)
        parts.append(f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{x}</text>')
    parts.append(_epoch_name())
    percents = [Line(f"{line.name}, %", (100 * shares[k]).tolist()) for k, line in enumerate(lines)]
    edges = [_LEFT + bar * step for bar in range(shares.shape[1] + 1)]
    return drawing(WIDTH, HEIGHT, label, parts + _strips(percents, edges, total))


def bar(mean: float, std: float, *, label: str, kind: int = 0) -> str:
    """A bar from 0 to 100 with a whisker of one standard deviation to each side."""

    def clip(value: float) -> float:
        return min(100.0, max(0.0, value)) if math.isfinite(value) else 0.0

    low, high = 2 * clip(mean - std), 2 * clip(mean + std)
    parts = [
        '<rect class="track" width="200" height="16" rx="3"/>',
        f'<rect class="bar c{kind % COLOURS}" width="{2 * clip(mean):.1f}" height="16" rx="3"/>',
        f'<path class="whisker" d="M{low:.1f} 8H{high:.1f}M{low:.1f} 4v8M{high:.1f} 4v8"/>',
    ]
    return drawing(200, 16, label, parts)


def line_key(kind: int, text: str) -> str:
    """The entry of a legend for the line of this place in its chart."""
    return _key(kind, text, 28, f'<path class="line" d="M1 7H27"{_dashes(kind)}/>')


def area_key(kind: int, text: str) -> str:
    """The entry of a legend for an area of this kind."""
    return _key(kind, text, 14, '<rect class="area" x="1" y="1" width="12" height="12" rx="3"/>')


def legend(keys: Sequence[str]) -> str:
    """A list of such entries; nothing, if there are none."""
    return f'<ul class="legend" aria-label="Legend">{"".join(keys)}</ul>' if keys else ""


def _key(kind: int, text: str, width: int, mark: str) -> str:
    return (
        f'<li><svg class="c{kind % COLOURS}" viewBox="0 0 {width} 14" width="{width}" height="14" '
        f'aria-hidden="true">{mark}</svg>{escape(text)}</li>'
    )


def _dashes(kind: int) -> str:
    pattern = _DASHES[kind % len(_DASHES)]
    return f' stroke-dasharray="{pattern}"' if pattern else ""


def drawing(width: int, height: int, label: str, parts: Sequence[str]) -> str:
    """An SVG element of these parts, which says what it shows."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _polyline(points: list[tuple[float, float]], kind: int) -> str:
    if len(points) == 1:
        x, y = points[0]
        return f'<circle class="point c{kind % COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="line c{kind % COLOURS}"{_dashes(kind)} points="{text}"/>'


def _epoch_name() -> str:
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    return (
        f'<text class="axis-name" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">epoch</text>'
    )


def _strips(thinned: Sequence[Line], edges: Sequence[float], total: int) -> list[str]:
    """Unseen upright strips, one per place, that tell the values there."""
    number_of = len(edges) - 1
    last = [int(part[-1]) for part in np.array_split(np.arange(1, total + 1), number_of)]
    strips = []
    for k, end in enumerate(last):
        start = last[k - 1] + 1 if k else 1
        when = f"epoch {end}" if start == end else f"epochs {start} to {end}, mean"
        told = "\n".join([when, *(f"{line.name} {number(line.values[k])}" for line in thinned)])
        strips.append(
            f'<rect class="strip" x="{edges[k]:.1f}" y="{_TOP}" '
            f'width="{edges[k + 1] - edges[k]:.1f}" height="{HEIGHT - _TOP - _BOTTOM}" '
            f'data-tip="{escape(told)}"/>'
        )
    return strips


def _span(values: Sequence[float], *, from_zero: bool) -> tuple[float, float]:
    """The ends of an axis that shows all values with some room."""
    low, high = min(values), max(values)
    if from_zero:
        low, high = min(0.0, low), max(0.0, high)
    if high - low <= 1e-6 * max(abs(low), abs(high)):  # all alike, up to rounding
        room = 0.1 * abs(high) or 1.0
        return low - room, high + room
    room = 0.06 * (high - low)
    return (low if from_zero and low == 0 else low - room), high + room


def _whole_ticks(epochs: int) -> list[int]:
    """Round epochs, and the first one."""
    if epochs == 1:
        return [1]
    return sorted({1, *(round(tick) for tick in ticks(1, epochs) if tick >= max(2, epochs / 12))})


def _tick(value: float) -> str:
    return f"{value:.6g}".replace("e+0", "e").replace("e-0", "e-")


def _percent(share: float) -> str:
    return "0" if share == 0 else "<0.1" if share < 0.0005 else f"{100 * share:.1f}"
