"""How long the graph-level study takes, put together from measured parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lg2ar.benchmarks import hyperparameters
from lg2ar.config import Config
from lg2ar.protocols import evaluated_epochs

POLICIES = 3


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
) -> list[Part]:
    """What the study takes on the data sets that were measured.

    Args:
        names: Data sets.
        seeds: The record of ``lg2ar bench seeds`` of each.
        probes: Seconds of one full score, by data set and whether features are scaled.
    """
    parts = []
    for name in names:
        told = seeds.get(name)
        if told is None or (name, True) not in probes or (name, False) not in probes:
            continue
        config = Config.make(hyperparameters(name, "paper"))
        together = _run(told, "many", config.epochs)
        apart = told["seeds"] * _run(told, "one", config.epochs)
        looks = evaluated_epochs(["paper", "strict"], config)
        trained = len([epoch for epoch in looks if epoch])
        runs = POLICIES * told["seeds"]
        evaluation = probes[name, False] * (runs * trained + told["seeds"])
        evaluation += probes[name, True] * (runs + told["seeds"])
        parts.append(Part(name, runs, POLICIES * min(together, apart), evaluation))
    return parts


def _run(told: Mapping[str, Any], which: str, epochs: int) -> float:
    """Seconds of whole runs: what they take besides their epochs, and the epochs."""
    each = told[f"{which}_seconds"]
    besides = told[f"{which}_run_seconds"] - told["config"]["epochs"] * each
    return float(max(0.0, besides) + epochs * each)
