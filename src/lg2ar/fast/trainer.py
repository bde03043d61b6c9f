"""Trainers whose runs share an engine: the life of a run, its epochs done by captured steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from lg2ar.config import Config
from lg2ar.fast.arrangement import arrange, lane_of, lanes_on
from lg2ar.fast.data import PairData
from lg2ar.fast.engine import Engine, Tally, peak_of, run_epoch_beside
from lg2ar.graph import GraphBatch
from lg2ar.model import Method
from lg2ar.records import EpochRecord
from lg2ar.sampling import private_randomness
from lg2ar.training import Batches, Snapshot, Trainer, peak_memory


class CapturedTrainer(Trainer):
    """Trains one of an engine's runs.

    Args:
        model: The run's model, which gets its weights whenever somebody looks at them.
        engine: What trains.
        place: The run's place in the engine.
        config: The settings.
    """

    def __init__(self, model: Method, engine: Engine, place: int, config: Config) -> None:
        super().__init__(
            model,
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            clip=config.clip,
            patience=config.patience,
            seed=config.seed,
            # The kernels repeat themselves anyway.
            deterministic=False,
        )
        self.engine, self.place = engine, place

    def _run_epoch(self, batches: Batches) -> EpochRecord:
        assert len(self.engine.seeds) == 1, "runs of one engine are trained together"
        return run_epoch_together([self])[0]

    def take(self, tally: Tally, seconds: float, peak: int) -> EpochRecord:
        """Enter an epoch that the engine has done.

        Raises:
            NonFiniteLossError: When a loss or a weight is not a number.
        """
        number = self.epoch + 1
        weight = tally.mean_edge_weight if tally.finite else float("nan")
        self._check(number, tally.losses, weight)
        record = EpochRecord(
            epoch=number,
            steps=len(tally.losses),
            base_steps=tally.base_steps,
            loss=sum(tally.losses) / len(tally.losses),
            draws=tally.draws,
            probabilities=tally.probabilities,
            mean_edge_weight=tally.mean_edge_weight,
            seconds=seconds,
            peak_memory=peak,
        )
        self.history.append(record)
        if self.patience and record.loss < self.best_loss:
            self.engine.give(self.place, self.model)
        self._remember_best()
        return record

    def _weights_finite(self) -> bool:
        return True  # the engine has looked

    def result(self) -> dict[str, Tensor]:
        """The weights to keep."""
        self.engine.give(self.place, self.model)
        return super().result()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that a later epoch depends on."""
        self._fetch()
        return super().state()

    def restore(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Go back to a state that :meth:`state` gave."""
        super().restore(tensors, progress)
        self._hand_over()

    def _fetch(self) -> None:
        """Bring model and optimisers to where the engine is."""
        self.engine.give(self.place, self.model)
        moments = self.engine.moments(self.place)
        for name, modules in self.parts.items():
            if name not in self.optimizers:
                continue
            own = self._names(modules)
            state = {i: moments[key] for i, key in enumerate(own) if key in moments}
            groups = self.optimizers[name].state_dict()["param_groups"]
            self.optimizers[name].load_state_dict({"state": state, "param_groups": groups})

    def _hand_over(self) -> None:
        """Bring the engine to where model and optimisers are."""
        self.engine.load(self.place, self.model)
        moments: dict[str, dict[str, Tensor]] = {}
        for name, optimizer in self.optimizers.items():
            own = self._names(self.parts[name])
            state = optimizer.state_dict()["state"]
            moments |= {own[i]: values for i, values in state.items()}
        self.engine.load_moments(self.place, moments)

    def _names(self, modules: Sequence[torch.nn.Module]) -> list[str]:
        known = {id(p): name for name, p in self.model.named_parameters()}
        return [known[id(p)] for module in modules for p in module.parameters()]

    def _snapshot(self) -> Snapshot:
        return self.engine.snapshot(), self.epoch, self.best_epoch, self.best_loss

    def _roll_back(self, snapshot: Snapshot) -> None:
        state, epoch, self.best_epoch, self.best_loss = snapshot
        self.engine.restore(state)
        del self.history[epoch:]


def run_epoch_together(trainers: Sequence[CapturedTrainer]) -> list[EpochRecord]:
    """Train all runs of some engines for one epoch."""
    engines, number = list(dict.fromkeys(t.engine for t in trainers)), trainers[0].epoch + 1
    start = time.perf_counter()
    tallies = dict(zip(engines, run_epoch_beside(engines, number), strict=True))
    seconds = time.perf_counter() - start
    peak = peak_of(engines) or peak_memory(engines[0].device)
    return [
        trainer.take(tallies[trainer.engine][trainer.place], seconds / len(trainers), peak)
        for trainer in trainers
    ]


def captured_trainers(
    models: Sequence[Method], configs: Sequence[Config], graph: GraphBatch, device: torch.device
) -> list[CapturedTrainer]:
    """Trainers of some runs, alike but for their seeds, that share engines."""
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    stacks = arrange(len(models), configs[0], graph)
    lanes = lanes_on(device, configs[0].hidden)
    data = PairData(graph, configs[0].ratio, device)
    every = iter(zip(models, configs, strict=True))
    trainers = []
    for at, runs in enumerate(stacks):
        own, settings = zip(*islice(every, runs), strict=True)
        seeds = [config.seed for config in settings]
        with private_randomness():
            engine = Engine(own, configs[0], seeds, data, lane_of(at, len(stacks), lanes))
        trainers += [
            CapturedTrainer(model, engine, place, config)
            for place, (model, config) in enumerate(zip(own, settings, strict=True))
        ]
    return trainers
