"""What mattered, as one SVG file that stands for itself."""

from __future__ import annotations

from collections.abc import Mapping

from lg2ar.report.svg import escape

WIDTH, LEFT, ROW = 560, 140, 30

STYLE = """
text{font:13px system-ui,sans-serif;fill:#17202a}
.soft{fill:#566270}
.bar{fill:#0072b2}
.track{fill:#eef2f5}
.paper{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#e6ebf0}.soft{fill:#a0acb8}.bar{fill:#3d94d6}
.track{fill:#26313c}.paper{fill:#171e26}}
"""


def importance_chart(importance: Mapping[str, float], note: str) -> str:
    """Bars, longest first: the share of each setting in how the criterion varies.

    Args:
        importance: Shares that sum to one, by setting.
        note: A line under the title.
    """
    height = 64 + ROW * len(importance) + 12
    room = WIDTH - LEFT - 70
    label = "Which settings mattered"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{label}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>',
        f'<text x="16" y="26" font-weight="600">{label}</text>',
        f'<text class="soft" x="16" y="46">{escape(note)}</text>',
    ]
    ordered = sorted(importance.items(), key=lambda item: -item[1])
    for place, (name, share) in enumerate(ordered):
        y = 64 + ROW * place
        parts += [
            f'<text x="{LEFT - 10}" y="{y + 16}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="track" x="{LEFT}" y="{y + 2}" width="{room}" height="20" rx="3"/>',
            f'<rect class="bar" x="{LEFT}" y="{y + 2}" width="{room * share:.1f}" height="20" '
            'rx="3"/>',
            f'<text x="{LEFT + room + 10}" y="{y + 16}">{100 * share:.0f} %</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
