"""Readers and changed inputs: a result or one sentence, in time and within memory.

Here a few inputs for each reader, and all that were once found to be read badly. Many more by
``pytest -m soak tests/faults/test_fuzz_long.py``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from faults.fuzz.changes import changed
from faults.fuzz.guard import bounds, violation
from faults.fuzz.mutations import Edit, apply
from faults.fuzz.table import shown, table
from faults.fuzz.targets import TARGETS, Target
from lg2ar.errors import InputError

CORPUS = Path(__file__).parent / "fuzz" / "corpus"  # TARGET-NAME: each was read badly once
# Of these readers, how many inputs to begin with are their own; the others fit something else.
FITTING = {"csv": 1, "recipe": 1}
SLOW = {"planetoid": 10, "amazon": 10, "study": 20}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not on a disk where there is memory."""
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    made = Path(tempfile.mkdtemp(dir=shared))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_as_they_should_be_are_read(name: str, folder: Path) -> None:
    for seed in TARGETS[name].seeds()[: FITTING.get(name)]:
        if name == "amazon":  # its data is known, and this is less
            with pytest.raises(InputError, match="nodes: 5, expected 7650"):
                TARGETS[name].read(seed, folder)
        else:
            assert TARGETS[name].read(seed, folder) is not None


@pytest.mark.parametrize("name", TARGETS)
def test_changed_inputs_are_read_or_refused(name: str, folder: Path) -> None:
    target = TARGETS[name]
    found: list[str] = []

    @settings(
        max_examples=SLOW.get(name, 50),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(changed(target.seeds()))
    def tried(data: bytes) -> None:
        what = violation(target, data, folder)
        if what is not None:
            found.append(what)

    with bounds():
        tried()
    assert found == []


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: str(path.name))
def test_what_was_once_read_badly(path: Path, folder: Path) -> None:
    target = TARGETS[path.name.rpartition("-")[0]]
    with bounds():
        assert violation(target, path.read_bytes(), folder) is None


def test_the_documentation_tells_what_was_tried() -> None:
    assert shown() == table()  # python -m faults.fuzz.table
    assert not [row for row in table().splitlines()[2:] if row.split(" | ")[3] != "0"]


def _traceback(data: bytes, folder: Path) -> None:
    raise KeyError("a slip")


class _TalkativeError(InputError):
    """One that does not keep to its line, as all others do by themselves."""

    def __str__(self) -> str:
        return "a sentence\nand another"


def _two_lines(data: bytes, folder: Path) -> None:
    raise _TalkativeError


def _no_end(data: bytes, folder: Path) -> None:
    while True:
        pass


def _much(data: bytes, folder: Path) -> None:
    bytearray(600 << 20)


def _too_much(data: bytes, folder: Path) -> None:
    bytearray(100 << 30)


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (_traceback, "KeyError: .* at test_fuzz.py"),
        (_two_lines, "refused in several lines"),
        (_no_end, "more than 0.2 s"),
        (_much, r"took [56]\d\d MiB"),
        (_too_much, "MemoryError"),
    ],
)
def test_the_guard_notices(
    read: object, what: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import re

    monkeypatch.setattr("faults.fuzz.guard.SECONDS", 0.2)
    target = Target("bad", list, read)  # type: ignore[arg-type]
    if read is _much and not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("this system does not count memory anew")
    with bounds():
        for _ in range(2):  # also where this process has had as much before
            assert re.search(what, str(violation(target, b"", folder)))


def test_changes_are_what_they_say() -> None:
    data = b'{"a": 1, "b": [2]}'
    assert apply(data, [Edit("value", 0, 0, b"")]) == b'{"a": null, "b": [2]}'
    assert apply(data, [Edit("drop", 1, 0, b"")]) == b'{"a": 1}'
    assert apply(data, [Edit("key", 0, 0, b"c")]) == b'{"b": [2], "c": 1}'
    assert apply(b"abc", [Edit("flip", 0, 0, b"")]) == b"`bc"
    assert apply(b"abc", [Edit("insert", 1, 0, b"XY")]) == b"aXYbc"
    assert apply(b"abc", [Edit("remove", 1, 0, b"")]) == b"ac"
    assert apply(b"x,y\n1,2", [Edit("value", 0, 0, b"Z")]) == b"Zx,y\n1,2"  # no JSON: bytes
