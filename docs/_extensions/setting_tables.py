"""The directive ``settings``: every setting of ``lg2ar.Config`` with its default and its range.

Names follow, to show some only. Defaults, ranges and meanings are read from the code, so that the
page cannot say anything else.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from lg2ar.config import NODE_LEVEL, Config


def meanings() -> dict[str, str]:
    """What the docstring of ``Config`` says of each setting."""
    text = (Config.__doc__ or "").partition("Attributes:")[2]
    found = re.findall(r"^ {8}(\w+): (.*?)(?=^ {8}\w|\Z)", text, flags=re.DOTALL | re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in found}


def values(item: dataclasses.Field[Any]) -> str:
    """What a setting may be, in words."""
    if "choices" in item.metadata:
        return ", ".join(f"``{choice}``" for choice in item.metadata["choices"])
    if "range" in item.metadata:
        low, high, above = item.metadata["range"]
        return f"{'above' if above else 'from'} {low:g} to {high:g}"
    return "``true``, ``false``" if isinstance(item.default, bool) else "a word"


def shown(value: Any) -> str:
    """A value as TOML has it, more or less."""
    if isinstance(value, tuple):
        return "all" if len(value) > 4 else "all but ``sub-graph``"
    return f"``{str(value).lower() if isinstance(value, bool) else value}``"


def default(item: dataclasses.Field[Any]) -> str:
    """The default, and the one at node level where that differs."""
    text = shown(item.default)
    if item.name in NODE_LEVEL:
        text += f"; node level {shown(NODE_LEVEL[item.name])}"
    return text


class Settings(SphinxDirective):
    """A list of settings."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Write the list as a definition list."""
        known, fields = meanings(), {item.name: item for item in dataclasses.fields(Config)}
        lines: list[str] = []
        for name in " ".join(self.content).split() or fields:
            item = fields[name]
            lines += [f"``{name}``: {default(item)}", f"    {known[name]}"]
            lines += [f"    *Values:* {values(item)}.", ""]
        holder = nodes.container()
        self.state.nested_parse(StringList(lines, "settings"), 0, holder)
        return holder.children


def setup(app: Any) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("settings", Settings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
