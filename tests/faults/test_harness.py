"""The harness itself: it runs what it should, and its faults come where they should."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lg2ar
from faults.harness import KILLED, SAYS, Commands, Fault
from lg2ar.records import code_print


def test_the_code_of_this_tree_is_run(tmp_path: Path) -> None:
    assert f'"code": "{code_print()}"' in Commands(tmp_path).ok("version")
    assert Path(lg2ar.__file__).is_relative_to(Path(__file__).parents[2] / "src")


@pytest.mark.skipif("sys.platform != 'linux'", reason="breaks as Linux does")
@pytest.mark.parametrize("kind", ["kill", "cut", *SAYS])
def test_faults_come_where_they_should(kind: str, tmp_path: Path) -> None:
    """At a call in the midst, and not at one that never comes, or in another folder."""
    commands, codes = Commands(tmp_path / "logs"), dict[tuple[int, str], int | None]()
    for at, under in ((4, "a"), (10**6, "b"), (4, "elsewhere")):
        folder = tmp_path / f"{at}-{under}"
        fault = Fault(kind=kind, at=at, under=str(folder if under != "elsewhere" else "/elsewhere"))
        started = commands.start("convert", "toy-graphs", folder / "g.sqlite", fault=fault)
        codes[at, under] = started.end()
        assert started.struck == ((at, under) == (4, "a")), started.printed
        if kind in SAYS and started.struck:
            assert os.strerror(SAYS[kind]) in started.printed
    assert codes == {(4, "a"): 2 if kind in SAYS else KILLED, (10**6, "b"): 0, (4, "elsewhere"): 0}
