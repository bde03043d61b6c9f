"""Memory of a CUDA device that really does not suffice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import lg2ar
from faults.conftest import Tally
from lg2ar import checkpoint
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import MemoryShortageError

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]
SETTINGS = {"hidden": 16, "layers": 1, "batch_size": 100, "epochs": 2}


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Let this process have 1 GiB of the device."""
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2**30 / whole)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.parametrize("step", ["plain", "captured"])
def test_the_settings_are_named_and_the_run_goes_on(
    step: str, tmp_path: Path, little_memory: None, tally: Tally
) -> None:
    graphs = toy_graphs(100)
    wide = {**SETTINGS, "step": step, "hidden": 8192}
    words = r"out of memory on cuda.*: lower batch_size \(now 100\), hidden \(now 8192\) or layers"
    with pytest.raises(MemoryShortageError, match=words):
        lg2ar.pretrain(graphs, wide, out=tmp_path / "wide", device="cuda")
    # The device serves the next run, which fits.
    narrow = {**SETTINGS, "step": step}
    run = lg2ar.pretrain(graphs, narrow, out=tmp_path / "narrow", device="cuda")
    assert len(run.history) == len(checkpoint.read(tmp_path / "narrow").progress["history"]) == 2
    tally("lacks of memory survived")
