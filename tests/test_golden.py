"""Unchanged computation gives unchanged losses: ten steps, stored.

The file is made anew, where a change is meant, by ``python tests/test_golden.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import lg2ar
from lg2ar.data.toy import toy_graphs, toy_nodes

GOLDEN = Path(__file__).parent / "golden" / "losses.json"
SETTINGS: dict[str, dict[str, Any]] = {
    "graph": {"hidden": 16, "layers": 2, "batch_size": 30, "epochs": 2, "dropout": 0.1},
    "node": {"hidden": 16, "layers": 2, "batch_size": 8, "epochs": 10},
}


def losses(level: str) -> list[float]:
    """Of ten steps: two epochs of five batches, or ten batches of sub-graphs."""
    data = toy_graphs(num_graphs=150) if level == "graph" else toy_nodes(num_nodes=200)
    run = lg2ar.pretrain(data, SETTINGS[level], device="cpu")
    assert sum(record.steps for record in run.history) == 10
    return [record.loss for record in run.history]


@pytest.mark.parametrize("level", SETTINGS)
def test_ten_steps_give_the_stored_losses(level: str) -> None:
    """To one part in a thousand: sums are added in another order on another processor."""
    assert losses(level) == pytest.approx(json.loads(GOLDEN.read_text())[level], rel=1e-3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    GOLDEN.write_text(json.dumps({level: losses(level) for level in SETTINGS}, indent=1) + "\n")
