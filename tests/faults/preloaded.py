"""Everything that a command imports, once, in the process that children are forked from.

Much is imported only when it is first used, so all of it is used here once.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch_geometric.datasets as datasets

import lg2ar.cli as cli
import lg2ar.data.conversion as conversion
import lg2ar.study.runner as runner
from lg2ar.data.toy import toy_graphs
from lg2ar.experiment import pretrain
from lg2ar.finetuning import finetune
from lg2ar.tuning import tune

__all__ = ["cli", "conversion", "datasets", "runner"]

SETTINGS: dict[str, Any] = {"hidden": 2, "layers": 1, "epochs": 1, "batch_size": 4}


def _use() -> None:
    torch.set_num_threads(1)
    graphs = toy_graphs(12)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = pretrain(graphs, SETTINGS, out=Path(folder) / "run", device="cpu")
        finetune(run, graphs, out=Path(folder) / "tuned", epochs=1, floor=False)
        tune(graphs, Path(folder) / "study", trials=3, settings=SETTINGS, device="cpu")


_use()
