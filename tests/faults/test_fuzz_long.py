"""Many changed inputs for each reader; hours on one core, so by ``pytest -m soak`` alone.

``LG2AR_FUZZ_INPUTS`` says how many for each reader; 100,000 where it does not.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from faults.conftest import Tally
from faults.fuzz.drive import drive, has_tool
from faults.fuzz.targets import TARGETS

INPUTS = int(os.environ.get("LG2AR_FUZZ_INPUTS", "100000"))
OUT = os.environ.get("LG2AR_FUZZ_RESULTS")  # a file to append a JSON line per reader to


def try_many(name: str, tool: str, inputs: int, keep: Path, tally: Tally) -> None:
    tried = drive(name, tool, inputs, keep=keep)
    print(f"{name}, {tool}: {tried.inputs} inputs tried, {tried.violations} violations")
    tally("inputs tried", tried.inputs)
    if OUT:
        with open(OUT, "a") as file:
            file.write(json.dumps(asdict(tried)) + "\n")
    assert tried.inputs >= inputs
    assert (tried.violations, tried.kinds) == (0, []), f"see {keep}"


@pytest.mark.soak
@pytest.mark.parametrize("name", TARGETS)
def test_with_atheris(name: str, tmp_path: Path, tally: Tally) -> None:
    if not has_tool("atheris"):
        pytest.skip("atheris is not installed: pip install 'lg2ar[fuzz]'")
    try_many(name, "atheris", INPUTS, tmp_path, tally)


@pytest.mark.soak
@pytest.mark.parametrize("name", TARGETS)
def test_with_hypothesis(name: str, tmp_path: Path, tally: Tally) -> None:
    # A tenth, as it takes as long; all where it is the only one.
    try_many(name, "hypothesis", INPUTS // 10 if has_tool("atheris") else INPUTS, tmp_path, tally)
