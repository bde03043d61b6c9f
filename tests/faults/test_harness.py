"""The harness itself: it runs what it should, and its faults come where they should."""

from __future__ import annotations

from pathlib import Path

import lg2ar
from faults.harness import Commands
from lg2ar.records import code_print


def test_the_code_of_this_tree_is_run(tmp_path: Path) -> None:
    assert f'"code": "{code_print()}"' in Commands(tmp_path).ok("version")
    assert Path(lg2ar.__file__).is_relative_to(Path(__file__).parents[2] / "src")
