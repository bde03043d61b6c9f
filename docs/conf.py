"""The documentation site; it needs no network.

Built by ``sphinx-build -W --keep-going -b html docs OUT``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from docutils import nodes

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "docs" / "_extensions"), str(ROOT / "src")]

import lg2ar  # noqa: E402

project = "lg2ar"
release = version = lg2ar.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "command_tables",
    "mathml",
    "module_reference",
    "setting_tables",
]
exclude_patterns = ["_extensions", "_build"]
nitpicky = True
nitpick_ignore_regex = [
    # Other people's names and our own shorthands for types; there is no network to look them up.
    (r"py:.*", r"(?!lg2ar\.).*"),
    (r"py:.*", r"lg2ar\..*\._\w+"),
    # These stand for any type.
    (r"py:.*", r"lg2ar\.engines\.(Job|Result)"),
    (r"py:.*", r"lg2ar\.checkpoint\.Read"),
]
# A type that is called alike in two modules leads to neither.
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 3
smartquotes_action = "qe"  # quotes and ellipses; two hyphens begin an option

autodoc_default_options = {"members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_mock_imports = ["triton"]  # which is not everywhere
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Paper"]

copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"  # not what is printed

html_theme = "furo"
html_title = f"lg2ar {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def is_front_door(name: str, thing: object) -> bool:
    """Whether it is documented as ``lg2ar.NAME`` already, on the first page of the reference."""
    return name in lg2ar.__all__ and getattr(lg2ar, name) is thing


def skip_front_door(
    app: Any, what: str, name: str, thing: object, skip: bool, options: Any
) -> bool | None:
    """Document names of the front door once."""
    return True if what == "module" and is_front_door(name.rpartition(".")[2], thing) else None


def find_front_door(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Lead from where a name is defined, ``lg2ar.config.Config``, to ``lg2ar.Config``."""
    words = node.get("reftarget", "").split(".")
    for place, word in enumerate(words[1:], start=1):
        if words[0] == "lg2ar" and word in lg2ar.__all__ and place > 1:
            short = ".".join(["lg2ar", *words[place:]])
            domain = env.get_domain("py")
            return domain.resolve_xref(
                env, node["refdoc"], app.builder, node["reftype"], short, node, content
            )
    return None


def leave_out_object(app: Any, page: nodes.document) -> None:
    """Do not tell of a class that it is an object."""
    for paragraph in list(page.findall(nodes.paragraph)):
        if paragraph.astext() == "Bases: object":
            paragraph.parent.remove(paragraph)


def setup(app: Any) -> None:
    """What Sphinx calls first."""
    app.connect("autodoc-skip-member", skip_front_door)
    app.connect("doctree-read", leave_out_object)
    app.connect("missing-reference", find_front_door)
