"""The page of promises names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"


def test_every_promise_names_tests_that_are_there() -> None:
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE.read_text())
    assert len(named) > 30
    for file, name in named:
        tree = ast.parse((HERE / file).read_text())
        found = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert name in found, f"{file}::{name}"
