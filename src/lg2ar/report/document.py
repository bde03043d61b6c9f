"""The frame of the page: sections, tables, style and the one small script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from lg2ar.report import svg
from lg2ar.report.svg import escape


def section(title: str, body: str) -> str:
    """A titled part of the page; ``body`` is HTML."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


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
    """The whole page; a policy lets no script run but ours."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>lg2ar run on {escape(name)}</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>lg2ar run on <b>{escape(name)}</b></h1>
<button id="theme" type="button" hidden>Light or dark</button></header>
<main>
{"".join(sections)}
</main>
<div id="tip" role="tooltip" hidden></div>
<script>{SCRIPT}</script>
</body>
</html>
"""


STYLE = f"""
*{{box-sizing:border-box}}
body{{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}}
header,main{{max-width:1060px;margin:auto;padding:0 16px}}
header{{display:flex;gap:16px;justify-content:space-between;align-items:center;padding-top:20px}}
h1{{font-size:1.5rem;font-weight:400;margin:0;overflow-wrap:anywhere}}
h2{{font-size:1.15rem;margin:0 0 12px}}
h3{{font-size:1rem;margin:0 0 6px;overflow-wrap:anywhere}}
button{{font:inherit;font-size:.85rem;color:inherit;background:var(--card);padding:6px 12px;
border:1px solid var(--rule);border-radius:8px;cursor:pointer;white-space:nowrap}}
section{{background:var(--card);border:1px solid var(--rule);border-radius:12px;
padding:18px;margin:16px 0}}
section>:last-child{{margin-bottom:0}}
p{{margin:10px 0}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(135px,1fr));gap:10px;
margin:0 0 14px}}
.tiles div{{background:var(--paper);border-radius:8px;padding:8px 12px}}
dt,figcaption,.note{{color:var(--soft);font-size:.85rem}}
dd{{margin:0;font-size:1.05rem;font-weight:600;overflow-wrap:anywhere}}
table{{border-collapse:collapse;width:100%;font-size:.92rem}}
th,td{{text-align:left;vertical-align:top;padding:5px 14px 5px 0;
border-top:1px solid var(--rule);overflow-wrap:anywhere}}
tr:first-child>*{{border-top:0}}
.facts th{{width:12em;font-weight:400;color:var(--soft)}}
.scores td{{border-top:1px solid var(--rule)}}
.scores th{{font-weight:400;color:var(--soft)}}
.scores th,.scores strong{{white-space:nowrap}}
.scores svg{{width:180px;height:auto;vertical-align:middle}}
.charts{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr));
gap:24px}}
figure{{margin:0;max-width:470px}}
figure>svg{{display:block;width:100%;height:auto;margin-bottom:6px}}
details{{margin:6px 0}}
summary{{cursor:pointer}}
pre{{background:var(--paper);border-radius:8px;padding:10px 12px;margin:8px 0;
white-space:pre-wrap;overflow-wrap:anywhere}}
#tip{{position:fixed;pointer-events:none;max-width:min(320px,80vw);background:var(--ink);
color:var(--card);padding:4px 9px;border-radius:6px;font-size:.85rem;
overflow-wrap:anywhere;white-space:pre-line}}
{svg.STYLE}@media(max-width:640px){{
section{{padding:14px}}
.facts th{{width:8.5em}}
.scores thead{{display:none}}
.scores tr{{display:block;border-top:1px solid var(--rule);padding:8px 0}}
.scores tr:first-child{{border-top:0}}
.scores td{{display:flex;gap:12px;border:0;padding:2px 0}}
.scores td::before{{content:attr(data-head);flex:0 0 8.5em;color:var(--soft)}}
}}
"""

SCRIPT = """
const tip = document.getElementById("tip"), root = document.documentElement;
for (const kind of ["pointerover", "pointermove"]) document.addEventListener(kind, (event) => {
  const told = event.target.closest("[data-tip]");
  tip.hidden = !told;
  if (!told) return;
  tip.textContent = told.dataset.tip;
  const left = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8);
  tip.style.left = Math.max(4, left) + "px";
  tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 4) + "px";
});
const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
"""
