"""The directive ``modules``: the reference of modules and of all that is below packages.

What is there is found when the site is built, so that a new module cannot be forgotten. Names of
packages that collect what their modules define are told in the package's own words only.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

# Commands have a page of their own; kernels are written in a language of their own.
LEFT_OUT = ("lg2ar.cli", "lg2ar.fast.kernels", "lg2ar.__main__", "lg2ar.version")


def below(name: str) -> Iterator[tuple[str, bool]]:
    """A module and all public ones below it, and whether each is a package."""
    found = find_spec(name)
    inside = None if found is None else found.submodule_search_locations
    yield name, inside is not None
    for part in pkgutil.iter_modules(inside or []):
        path = f"{name}.{part.name}"
        if not part.name.startswith("_") and path not in LEFT_OUT:
            yield from below(path)


class Modules(SphinxDirective):
    """A section for each module."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Let autodoc write a section for each module."""
        sections: list[nodes.Node] = []
        tops = " ".join(self.content).split()
        for name, is_package in [held for top in tops for held in below(top)]:
            section = nodes.section(ids=[nodes.make_id(name)], names=[name])
            section += nodes.title(name, name)
            lines = [f".. automodule:: {name}"]
            if is_package and hasattr(import_module(name), "__all__"):
                lines.append("   :no-members:")
            self.state.nested_parse(StringList(lines, name), 0, section)
            sections.append(section)
        return sections


def setup(app: Any) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("modules", Modules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
