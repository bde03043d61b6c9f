"""The demonstration: train on the embedded graphs and show what was learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from lg2ar import checkpoint
from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import InputError
from lg2ar.experiment import pretrain
from lg2ar.probes import few_label_accuracy
from lg2ar.records import RunRecord, Score
from lg2ar.runs import Run
from lg2ar.training import OnEpoch

NAME = "toy-graphs (demonstration)"
SETTINGS = {
    "hidden": 32,
    "layers": 2,
    "readout": "mean",
    "norm_place": "after",
    "batch_size": 64,
    "epochs": 100,
    "learning_rate": 3e-3,
}


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What the demonstration has to show.

    Attributes:
        run: The trained run.
        dataset: The graphs.
        untrained: Embeddings of the initialised encoder.
        trained: Embeddings of the trained encoder.
        labels: The label of each graph.
        untrained_score: How well few labels read the untrained embeddings.
        trained_score: How well they read the trained ones.
    """

    run: Run
    dataset: Dataset
    untrained: Tensor
    trained: Tensor
    labels: Tensor
    untrained_score: Score
    trained_score: Score

    def record(self) -> RunRecord:
        """The result as a line of a records file."""
        scores = {"untrained": self.untrained_score, "trained": self.trained_score}
        return self.run.record(scores)


def run_demo(
    out: Path,
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    *,
    on_start: Callable[[Config, int], None] | None = None,
    on_epoch: OnEpoch | None = None,
) -> DemoResult:
    """Train on the embedded graphs; an earlier demonstration in the folder is replaced.

    Args:
        out: Folder for the run.
        settings: What is to differ from the demonstration's own settings, the seed for example.
        device: ``auto``, ``cpu`` or ``cuda``.
        on_start: Called with the settings and the number of epochs already done.
        on_epoch: Called with each epoch's record.

    Raises:
        InputError: Where the folder holds a run that no demonstration made.
    """
    dataset = replace(toy_graphs(), name=NAME)
    if checkpoint.exists(out) and checkpoint.read(out).data.get("name") != NAME:
        raise InputError(f"{out}: holds a run that is not a demonstration; choose another --out.")
    chosen = {**SETTINGS, **(settings or {})}
    untrained = pretrain(dataset, {**chosen, "epochs": 0}, device=device).embed(dataset)
    run = pretrain(
        dataset,
        chosen,
        out=out,
        replace=True,
        device=device,
        on_start=on_start,
        on_epoch=on_epoch,
    )
    trained = run.embed(dataset)
    assert dataset.y is not None
    labels = dataset.y
    return DemoResult(
        run=run,
        dataset=dataset,
        untrained=untrained,
        trained=trained,
        labels=labels,
        untrained_score=few_label_accuracy(untrained.numpy(), labels.numpy()),
        trained_score=few_label_accuracy(trained.numpy(), labels.numpy()),
    )
