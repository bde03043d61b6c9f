"""The frame of the page: sections, tables, and the style and scripts it carries with it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from lg2ar.report.svg import escape
from lg2ar.report.words import shortened

STYLE = "page.css"
SCRIPTS = ("page.js", "palette.js", "sketch.js", "atlas.js")


def section(title: str, body: str, *, name: str = "") -> str:
    """A titled part of the page; ``body`` is HTML."""
    place = f' id="{name}"' if name else ""
    return f"<section{place}><h2>{escape(title)}</h2>{body}</section>"


def figure(title: str, drawing: str, note: str) -> str:
    """A drawing with a title and a note; ``drawing`` is SVG."""
    return (
        f"<figure><h3>{escape(title)}</h3>{drawing}<figcaption>{escape(note)}</figcaption></figure>"
    )


def facts_table(pairs: Iterable[tuple[str, Any]]) -> str:
    """A table of names and values."""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in pairs
    )
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def document(name: str, sections: Sequence[str]) -> str:
    """The whole page; a policy lets no script run but ours, and nothing be fetched."""
    script = "".join(read_part(part) for part in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    title = escape(shortened(name))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>lg2ar run on {title}</title>
<style>{read_part(STYLE)}</style>
</head>
<body>
<header><h1>lg2ar run on <b>{title}</b></h1>
<button id="theme" type="button" hidden></button></header>
<main>
{"".join(sections)}
</main>
<div id="tip" role="tooltip" hidden></div>
<script>{script}</script>
</body>
</html>
"""


@cache
def read_part(name: str) -> str:
    """A file of style or script that lies beside this one."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
