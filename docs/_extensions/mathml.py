"""Formulas as MathML, which browsers draw themselves: no script, no font, no network, no LaTeX.

The translation is the one that comes with docutils.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

_log = logging.getLogger(__name__)

# Large brackets that do not say on which side they are; docutils knows those that do.
LARGE = re.compile(r"\\(bigg|Bigg|big|Big)(?![a-zA-Z])\s*(\\[a-zA-Z]+|\\?.)")


def prepare(tex: str) -> str:
    r"""The formula in the LaTeX that docutils knows.

    >>> prepare(r"\Big[ x \Big]")
    '\\Bigl[ x \\Bigr]'
    """
    tex = tex.replace(r"\textstyle", "")  # which it wants elsewhere, and is of little use
    return LARGE.sub(lambda found: f"\\{found[1]}{_side(found[2])}{found[2]}", tex)


def _side(bracket: str) -> str:
    return "l" if bracket in ("(", "[", r"\{", r"\lfloor", r"\lceil", r"\langle") else "r"


def render(node: nodes.Element, *, block: bool) -> str:
    """A formula as MathML, or as it was written, with a warning, where it is not understood."""
    tex = prepare(node.astext())
    try:
        return str(tex2mathml(tex, as_block=block))
    except MathError as error:
        _log.warning("a formula cannot be shown: %s (%s)", error, tex, location=node)
        return f"<code>{tex}</code>"


def visit_inline(translator: Any, node: nodes.Element) -> None:
    """Write a formula within a sentence."""
    translator.body.append(f'<span class="math">{render(node, block=False)}</span>')
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Element) -> None:
    """Write a formula on its own line."""
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})</span>')
    translator.body.append(f"{render(node, block=True)}</div>")
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Make it a choice for ``html_math_renderer``."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
