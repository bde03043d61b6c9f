"""One run of a study: pre-train, read the embeddings under every protocol, write it down."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.features import FeatureRecipe
from lg2ar.devices import device_name, sharers
from lg2ar.encoders import Encoder, ReadOut, read_out, smoothed
from lg2ar.experiment import pretrain, pretrain_many
from lg2ar.fast.arrangement import LANES, busy, numbers_of
from lg2ar.fast.suitability import settle_step
from lg2ar.finetuning import (
    Curve,
    Split,
    fine_tune,
    select,
    semi_splits,
    supervised_splits,
)
from lg2ar.finetuning.together import can_be_together, fine_tune_together
from lg2ar.graph import GraphBatch
from lg2ar.model import build_base_encoder, initialise_parts
from lg2ar.protocols import (
    AT_BEST,
    EPOCH_GRID,
    FEW_LABELS,
    FOLDS,
    Memory,
    Reader,
    evaluated_epochs,
    node_splits,
)
from lg2ar.records import Evaluation, StudyRecord, versions
from lg2ar.runs import Run, describe
from lg2ar.sampling import private_randomness, repeatable, seed_from
from lg2ar.study.plan import Planned

# GraphCL's fine-tuning, which all semi-supervised numbers follow.
SEMI_EPOCHS = 100
SEMI_LEARNING_RATE = 1e-3

# Runs that are trained together at most, and bytes that one of them takes at most for every number
# of a batch's rows in all layers.
TOGETHER = 10
BYTES = 170
# The same of a network that is fine-tuned: no views and no second encoder, but four rows kept of
# each layer and what goes back through them, with as much again to spare.
FOLD_BYTES = 64


@dataclass(eq=False)
class Runner:
    """Does the runs of a study on one device.

    Attributes:
        device: Where to compute.
        memory: What embeddings seen before were worth.
    """

    device: torch.device
    memory: Memory = field(default_factory=Memory)

    def run(self, planned: Planned, dataset: Dataset, protocols: Sequence[str]) -> StudyRecord:
        """Do one run.

        Args:
            planned: The run.
            dataset: Its data, opened already.
            protocols: How it is to be read; none measures its cost alone.
        """
        if protocols:  # what cannot be evaluated is said before the training
            Reader(dataset, planned.config.seed, self.device)
        for name in ("semi", *FEW_LABELS):
            if name in protocols:
                semi_splits(_labels(dataset), validation=name == "semi")
        if planned.task.method == "supervised":
            return self._supervised(planned, dataset, protocols)
        if planned.task.method == "features":
            return self._features(planned, dataset, protocols)
        return self._pretrained(planned, dataset, protocols)

    def _pretrained(
        self, planned: Planned, dataset: Dataset, protocols: Sequence[str]
    ) -> StudyRecord:
        config = planned.config
        reading = _Reading(self, planned, dataset, protocols)
        run = pretrain(
            dataset,
            config,
            device=self.device,
            embed_at=reading.looked_at,
            on_embeddings=reading,
        )
        if len(run.history) in reading.between:  # stopped early, where only `paper` has looked
            reading.stopped_early(len(run.history), run.embed(dataset))
        evaluations, clock = reading.evaluations, reading.clock
        if "semi" in protocols:
            with clock:
                evaluations += self._semi(run, dataset)
        return _record(planned, run, dataset, evaluations, clock.seconds)

    def room(self, planned: Planned, dataset: Dataset, protocols: Sequence[str]) -> int:
        """How many runs of these settings are best trained together.

        One, unless the captured step does it; as many as there are lanes where a run by itself
        keeps the device busy; and no more than fit half of the memory that is free.
        """
        config = planned.config
        frozen = protocols and "semi" not in protocols
        trained = planned.task.method not in ("supervised", "features")
        if self.device.type != "cuda" or not trained or not frozen:
            return 1
        settled = settle_step(config, dataset.graph, self.device)
        if settled.step != "captured" or config.patience:
            return 1
        most = LANES if busy(config, dataset.graph) else TOGETHER
        each = BYTES * numbers_of(config, dataset.graph)
        return max(1, min(most, int(_free(self.device) / 2 / sharers() / each)))

    def run_together(
        self, planned: Sequence[Planned], dataset: Dataset, protocols: Sequence[str]
    ) -> list[StudyRecord]:
        """Do runs that differ in their seeds alone at the same time."""
        readings = [_Reading(self, one, dataset, protocols) for one in planned]
        runs = pretrain_many(
            dataset,
            planned[0].config,
            [one.config.seed for one in planned],
            device=self.device,
            embed_at=readings[0].looked_at,
            on_embeddings=lambda place, epoch, rows: readings[place](epoch, rows),
        )
        return [
            _record(one, run, dataset, reading.evaluations, reading.clock.seconds, len(planned))
            for one, run, reading in zip(planned, runs, readings, strict=True)
        ]

    def _semi(self, run: Run, dataset: Dataset) -> Iterator[Evaluation]:
        """Fine-tune the untrained encoder and the trained one with a tenth of the labels."""
        graph = run.recipe.apply(dataset)
        start = pretrain(dataset, run.config.replace(epochs=0), device=self.device)
        encoders = {0: start.model.base_encoder, len(run.history): run.model.base_encoder}
        config = run.config.replace(epochs=SEMI_EPOCHS, learning_rate=SEMI_LEARNING_RATE)
        splits = {
            validation: semi_splits(_labels(dataset), validation=validation)
            for validation in (False, True)
        }
        pairs = [(encoder, folds) for encoder in encoders.values() for folds in splits.values()]
        every = iter(self._fine_tune(pairs, graph, dataset, config))
        for epoch in encoders:
            plain, validated = next(every), next(every)
            found = {
                "test-max": _percent(select(plain, "test-max").accuracy),
                "last epoch": _percent(select(plain, "last").accuracy),
                "validation": _percent(select(validated, "validation").accuracy),
            }
            for selection, accuracy in found.items():
                yield Evaluation(
                    protocol="semi", epoch=epoch, selection=selection, accuracy=accuracy
                )

    def _features(
        self, planned: Planned, dataset: Dataset, protocols: Sequence[str]
    ) -> StudyRecord:
        """No network: what is given to one, smoothed and read out as its rows would be."""
        config = planned.config
        graph = FeatureRecipe.of(config, dataset).apply(dataset).to(self.device)
        with repeatable(self.device, config.deterministic):
            rows = smoothed(graph, config.smoothing)
            if config.level == "graph":
                rows = read_out(rows, graph, cast(ReadOut, config.readout))
        reading = _Reading(self, planned, dataset, protocols)
        reading(0, rows.cpu())
        return _without_training(
            planned, dataset, self.device, reading.evaluations, reading.clock.seconds
        )

    def _supervised(
        self, planned: Planned, dataset: Dataset, protocols: Sequence[str]
    ) -> StudyRecord:
        """The same encoder with a classification head, trained on all training labels."""
        config = planned.config
        recipe = FeatureRecipe.of(config, dataset)
        graph = recipe.apply(dataset)
        with private_randomness():
            encoder = build_base_encoder(config, graph.num_features, graph.num_edge_features)
            initialise_parts({"base encoder": encoder}, config.seed)
        clock = _Clock()
        with clock:
            splits = _supervised_splits(dataset, config.seed)
            (curves,) = self._fine_tune([(encoder, splits)], graph, dataset, config)
        evaluations = [
            Evaluation(
                protocol=protocol,
                epoch=epoch,
                selection="validation" if config.level == "node" else None,
                accuracy=accuracy,
            )
            for protocol in protocols
            for epoch, accuracy in _supervised_accuracy(curves, config, protocol)
        ]
        return StudyRecord(
            task=planned.task,
            config=config.to_dict(),
            data=describe(dataset),
            versions=versions(),
            device=device_name(self.device),
            cost={
                "seconds": clock.seconds,
                "seconds_per_epoch": clock.seconds / len(splits) / max(1, config.epochs),
                "peak_memory": 0,
                "evaluation_seconds": 0.0,
            },
            epochs=config.epochs,
            heads=[],
            losses=[
                float(np.mean([curve.train_loss[epoch] for curve in curves]))
                for epoch in range(config.epochs)
            ],
            draws=[],
            probabilities=[],
            evaluations=evaluations,
        )

    def _fine_tune(
        self,
        pairs: Sequence[tuple[Encoder, Sequence[Split]]],
        graph: GraphBatch,
        dataset: Dataset,
        config: Config,
    ) -> list[list[Curve]]:
        """Fine-tune each encoder on each of its folds; on a GPU many of these at once."""
        jobs = [
            (encoder, split, seed_from(config.seed, place))
            for encoder, splits in pairs
            for place, split in enumerate(splits)
        ]
        settings: dict[str, Any] = {
            "epochs": config.epochs,
            "learning_rate": config.learning_rate,
            "batch_size": config.batch_size,
            "dropout": config.dropout,
            "hidden": config.hidden,
            "device": self.device,
        }
        # A captured step says that its kernels suit the graphs.
        captured = config.precision if config.step == "captured" else None
        labels, curves = _labels(dataset), []
        most = self._folds_at_once(config, graph, pairs[0][0])
        step = max(1, most)
        for first in range(0, len(jobs), step):
            encoders, splits, seeds = zip(*jobs[first : first + step], strict=True)
            if most:  # also for one, whose kernels are faster than the plain layers
                curves += fine_tune_together(
                    encoders, graph, labels, splits, seeds, captured=captured, **settings
                )
            else:
                one = encoders[0], graph, labels, splits[0]
                curves.append(fine_tune(*one, seed=seeds[0], level=config.level, **settings))
        each = iter(curves)
        return [list(itertools.islice(each, len(splits))) for _, splits in pairs]

    def _folds_at_once(self, config: Config, graph: GraphBatch, encoder: Encoder) -> int:
        """As many as fit half of the memory that is free; 0 where there is no way side by side."""
        if self.device.type != "cuda" or config.level == "node":
            return 0
        if not can_be_together(encoder, graph):
            return 0
        each = FOLD_BYTES * numbers_of(config, graph)
        return max(1, int(_free(self.device) / 2 / sharers() / each))


class _Reading:
    """Reads a run's embeddings under every protocol, as training comes to the epochs to look at.

    Attributes:
        looked_at: These epochs.
        between: Those of them where only the paper's protocol looks.
        evaluations: What was found.
        clock: How long it took.
    """

    def __init__(
        self, runner: Runner, planned: Planned, dataset: Dataset, protocols: Sequence[str]
    ) -> None:
        config = planned.config
        self._memory = runner.memory
        self._frozen = [name for name in protocols if name != "semi"]
        self._reader = Reader(dataset, config.seed, runner.device) if self._frozen else None
        self._threads = torch.get_num_threads()
        self.looked_at = evaluated_epochs(self._frozen, config) if self._frozen else ()
        self.between = set(self.looked_at) - {0, config.epochs}
        self.evaluations: list[Evaluation] = []
        self.clock = _Clock()

    def __call__(self, epoch: int, rows: Tensor) -> None:
        everywhere = epoch not in self.between
        names = [name for name in self._frozen if everywhere or name in AT_BEST]
        self._read(epoch, rows, names)

    def stopped_early(self, epoch: int, rows: Tensor) -> None:
        """The last epoch turned out to be one where only protocols like the paper's have looked."""
        self._read(epoch, rows, [name for name in self._frozen if name not in AT_BEST])

    def _read(self, epoch: int, rows: Tensor, protocols: Sequence[str]) -> None:
        with self.clock, _threads(self._threads):
            for protocol in protocols:
                assert self._reader is not None
                accuracy = self._memory.accuracy(self._reader, protocol, rows)
                self.evaluations.append(
                    Evaluation(protocol=protocol, epoch=epoch, selection=None, accuracy=accuracy)
                )


def _supervised_splits(dataset: Dataset, seed: int) -> list[Split]:
    if dataset.level == "graph":
        return supervised_splits(_labels(dataset), folds=FOLDS, seed=seed)
    splits = node_splits(dataset, seed)
    parts = zip(splits.train, splits.validation, splits.test, strict=True)
    return [Split(*(part.nonzero()[:, 0].numpy() for part in masks)) for masks in parts]


def _supervised_accuracy(
    curves: Sequence[Curve], config: Config, protocol: str
) -> Iterator[tuple[int, list[float]]]:
    """Accuracy after some epochs; at node level, each split's at its best validation epoch."""
    if config.level == "node":
        best = [select([curve], "validation").accuracy for curve in curves]
        yield config.epochs, _percent(np.concatenate(best))
        return
    grid = [epoch for epoch in EPOCH_GRID if epoch < config.epochs] if protocol == "paper" else []
    for epoch in [*grid, config.epochs]:
        yield epoch, _percent(np.array([curve.test[epoch - 1] for curve in curves]))


def _without_training(
    planned: Planned,
    dataset: Dataset,
    device: torch.device,
    evaluations: list[Evaluation],
    evaluation_seconds: float,
) -> StudyRecord:
    return StudyRecord(
        task=planned.task,
        config=planned.config.to_dict(),
        data=describe(dataset),
        versions=versions(),
        device=device_name(device),
        cost={
            "seconds": 0.0,
            "seconds_per_epoch": 0.0,
            "peak_memory": 0,
            "evaluation_seconds": evaluation_seconds,
        },
        epochs=0,
        heads=[],
        losses=[],
        draws=[],
        probabilities=[],
        evaluations=evaluations,
    )


def _record(
    planned: Planned,
    run: Run,
    dataset: Dataset,
    evaluations: list[Evaluation],
    evaluation_seconds: float,
    together: int = 1,
) -> StudyRecord:
    history, heads = run.history, range(len(run.config.heads))
    seconds = [record.seconds for record in history]
    return StudyRecord(
        task=planned.task,
        config=run.config.to_dict(),
        data=describe(dataset),
        versions=run.versions,
        device=device_name(next(run.model.parameters()).device),
        cost={
            "seconds": sum(seconds),
            # The first epoch warms up.
            "seconds_per_epoch": statistics.median(seconds[1:] or seconds or [0.0]),
            "peak_memory": max((record.peak_memory for record in history), default=0),
            "evaluation_seconds": evaluation_seconds,
            "together": together,
        },
        epochs=len(history),
        heads=list(run.config.heads),
        losses=[record.loss for record in history],
        draws=[[sum(record.draws[i][j] for record in history) for j in heads] for i in heads],
        probabilities=history[-1].probabilities if history else [],
        evaluations=evaluations,
    )


def _percent(accuracy: NDArray[np.float64]) -> list[float]:
    return [round(float(value), 6) for value in accuracy]


def _free(device: torch.device) -> int:
    """Bytes of a CUDA device that are free, those that PyTorch holds for later included."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _labels(dataset: Dataset) -> Tensor:
    assert dataset.y is not None
    return dataset.y


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Use so many threads: probes work on larger matrices than a small batch's training."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Clock:
    """Adds up the time spent inside it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start
