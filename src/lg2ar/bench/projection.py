"""How long the graph-level study takes, put together from measured parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lg2ar.benchmarks import hyperparameters
from lg2ar.config import Config
from lg2ar.protocols import evaluated_epochs

POLICIES = 3
SEEDS = 10


@dataclass(frozen=True)
class Part:
    """One data set's share of the study, in seconds.

    Attributes:
        dataset: By name.
        runs: How many, all policies together.
        training: Of all runs.
        evaluation: All scores under ``paper`` and ``strict``; the untrained encoder's, the same for
            all policies, once.
    """

    dataset: str
    runs: int
    training: float
    evaluation: float


def project(
    names: Iterable[str],
    seeds: Mapping[str, Mapping[str, Any]],
    probes: Mapping[tuple[str, bool], float],
    epochs: Mapping[str, float] | None = None,
) -> list[Part]:
    """What the study takes on the data sets that were measured.

    Args:
        names: Data sets.
        seeds: The record of ``lg2ar bench seeds`` of each, of ten seeds.
        probes: Seconds of one full score, by data set and whether features are scaled.
        epochs: Seconds of one epoch of a single run. Where seeds were not measured together, they
            are trained one after the other, and take besides what the slowest of the others does.
    """
    parts = []
    besides = max((_besides(told, "one") for told in seeds.values()), default=0.0)
    for name in names:
        told, alone = seeds.get(name), (epochs or {}).get(name)
        if (told is None and alone is None) or not {(name, True), (name, False)} <= probes.keys():
            continue
        config = Config.make(hyperparameters(name, "paper"))
        if told is not None:
            together = _run(told, "many", config.epochs)
            training = min(together, SEEDS * _run(told, "one", config.epochs))
        else:
            training = SEEDS * (besides + config.epochs * (alone or 0.0))
        looks = evaluated_epochs(["paper", "strict"], config)
        trained = len([epoch for epoch in looks if epoch])
        runs = POLICIES * SEEDS
        evaluation = probes[name, False] * (runs * trained + SEEDS)
        evaluation += probes[name, True] * (runs + SEEDS)
        parts.append(Part(name, runs, POLICIES * training, evaluation))
    return parts


def _run(told: Mapping[str, Any], which: str, epochs: int) -> float:
    """Seconds of whole runs: what they take besides their epochs, and the epochs."""
    return _besides(told, which) + epochs * float(told[f"{which}_seconds"])


def _besides(told: Mapping[str, Any], which: str) -> float:
    """Seconds that whole runs take besides their epochs."""
    each, whole = told[f"{which}_seconds"], told[f"{which}_run_seconds"]
    return max(0.0, float(whole - told["config"]["epochs"] * each))
