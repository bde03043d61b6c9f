"""The curve of weak scaling, as one SVG file that stands for itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lg2ar.report.svg import escape

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 22, 96, 56

STYLE = """
text{font:13px system-ui,sans-serif;fill:#17202a}
.soft{fill:#566270}
.paper{fill:#fff}
.grid{stroke:#dde3e9;fill:none}
.bound{stroke:#566270;stroke-dasharray:2 4;fill:none;stroke-width:1.5}
.clock{stroke:#0072b2;fill:none;stroke-width:2}
.work{stroke:#d55e00;fill:none;stroke-width:2;stroke-dasharray:7 3}
circle.clock{fill:#0072b2}
circle.work{fill:#d55e00;stroke-dasharray:none}
@media(prefers-color-scheme:dark){text{fill:#e6ebf0}.soft{fill:#a0acb8}.paper{fill:#171e26}
.grid{stroke:#26313c}.bound{stroke:#a0acb8}}
"""

Point = tuple[float, float]


def scaling_chart(records: Mapping[int, Mapping[str, Any]]) -> str:
    """Share of the ideal by number of processes: by the clock, and of the processor's time.

    The ideal takes the time of one process, whatever their number. By the clock no more can be had
    than there are cores for each process, which is drawn too. Bars go from the slowest to the
    fastest epoch.

    Args:
        records: What ``lg2ar bench scaling`` measured, by number of processes; 1 must be there.
    """
    one, largest = records[1], max(records)
    cores = one["cores"]

    def place(processes: float, share: float) -> Point:
        across = math.log2(processes) / max(1.0, math.log2(largest))
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM),
        )

    seconds = one["seconds_per_epoch"]
    clock = {n: seconds / r["seconds_per_epoch"] for n, r in records.items()}
    work = {n: one["cpu_ms"] / r["cpu_ms"] for n, r in records.items()}
    along = sorted({*records, *(n for n in (cores,) if n < largest)})
    parts = [
        *_frame(list(records), place, one),
        _line("bound", [place(n, min(1.0, cores / n)) for n in along]),
        *(_spread(n, r, seconds, place) for n, r in records.items()),
        _line("work", [place(n, share) for n, share in work.items()]),
        _line("clock", [place(n, share) for n, share in clock.items()]),
        *_points("work", work, place),
        *_points("clock", clock, place),
        *_legend(cores),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _frame(numbers: list[int], place: Any, one: Mapping[str, Any]) -> list[str]:
    label = "Weak scaling: share of the ideal, by number of processes"
    note = f"{one['batch_size']} graphs of a batch in each process; {one['device']}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        f'<text x="16" y="26" font-weight="600">{label}</text>',
        f'<text class="soft" x="16" y="46">{escape(note)}</text>',
    ]
    for percent in range(0, 101, 25):
        y = place(1, percent / 100)[1]
        parts += [
            f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>',
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>',
        ]
    for number in numbers:
        x, y = place(number, 0)
        parts.append(f'<text x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle">{number}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">processes</text>')
    return parts


def _line(kind: str, points: list[Point]) -> str:
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{kind}" d="M{steps}"/>'


def _spread(number: int, record: Mapping[str, Any], seconds: float, place: Any) -> str:
    spread = record["spread"]["seconds_per_epoch"]
    ends = (min(1.1, seconds / spread[key]) for key in ("max", "min"))  # not into the legend
    return _line("clock", [place(number, end) for end in ends])


def _points(kind: str, shares: Mapping[int, float], place: Any) -> list[str]:
    parts = []
    for number, share in shares.items():
        x, y = place(number, share)
        tip = f"{number} processes: {100 * share:.0f} %"
        parts.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{tip}</title></circle>'
        )
    return parts


def _legend(cores: int) -> list[str]:
    names = {
        "clock": "by the clock",
        "work": "of the processor's time",
        "bound": f"most that {cores} cores allow",
    }
    parts, x = [], 16
    for kind, name in names.items():
        parts.append(f'<path class="{kind}" d="M{x} 68H{x + 26}"/>')
        parts.append(f'<text x="{x + 32}" y="72">{escape(name)}</text>')
        x += 52 + round(6.4 * len(name))
    return parts
