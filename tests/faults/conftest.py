"""What tests of faults share: a data folder, the harness that kills, and a summary of it all.

A test says what it survived with the fixture ``tally``; the sums are printed at the end of a run,
with the tests that failed as violations. ``make soak`` is made to end with it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lg2ar.data.sources import open_source
from tiny import write_graphs

Tally = Callable[..., None]

_SUMS: Counter[str] = Counter()
_HERE = Path(__file__).parent.name


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Called with a name, such as ``kills survived``, and a number; the summary adds them up."""

    def add(name: str, number: int = 1) -> None:
        # A report carries these from worker processes too.
        request.node.user_properties.append(("tally", [name, number]))

    return add


@pytest.fixture
def data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with one small data set, ``tu:TINY``."""
    root = tmp_path / "data"
    write_graphs(root)
    monkeypatch.setenv("LG2AR_DATA", str(root))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        open_source("tu:TINY")  # which makes its cache
    return root


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if f"{_HERE}/" not in report.nodeid:
        return
    if report.failed:
        _SUMS["violations"] += 1
    if report.when == "teardown":
        for key, value in report.user_properties:
            if key == "tally" and isinstance(value, list):
                _SUMS[str(value[0])] += int(value[1])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    named = sorted(name for name in _SUMS if name != "violations")
    if not named:
        return
    terminalreporter.section("faults")
    for name in [*named, "violations"]:
        terminalreporter.write_line(f"{name}: {_SUMS[name]}")
