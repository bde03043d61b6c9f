"""How runs of one setting share a device: in stacks, and stacks in lanes beside each other.

Runs of a *stack* have one step in common, with one more dimension: small runs fill a device that
way. Each *lane* replays the steps of a stack on a stream of its own: where a run by itself keeps
the device busy most of the time, another one fills the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from lg2ar.config import Config
from lg2ar.graph import GraphBatch

# Lanes side by side at most; runs in one stack at least before there are two (docs/performance.md).
LANES = 5
SPLIT = 4
# Numbers in the rows of a batch, in all layers, from which on a run is no longer stacked.
BUSY = 5e6


@dataclass(frozen=True)
class Lane:
    """The place of a stack among those that run beside each other.

    Attributes:
        place: From 0 on; stacks with the same place take turns.
        of: How many there are: they share the device's processors.
    """

    place: int = 0
    of: int = 1


def numbers_of(config: Config, graph: GraphBatch) -> float:
    """How many numbers the rows of a large batch hold in all layers."""
    sizes, graphs = graph.sizes.double(), min(config.batch_size, graph.num_graphs)
    nodes = float(sizes.mean() * graphs + 3 * sizes.std(correction=0) * graphs**0.5)
    return nodes * config.hidden * max(config.layers, config.base_layers)


def busy(config: Config, graph: GraphBatch) -> bool:
    """Whether one run keeps a device busy most of the time."""
    return numbers_of(config, graph) > BUSY


def arrange(runs: int, config: Config, graph: GraphBatch) -> list[int]:
    """How many runs each stack has."""
    if busy(config, graph):
        return [1] * runs
    if runs < SPLIT:
        return [runs]
    return [runs - runs // 2, runs // 2]


def lane_of(place: int, stacks: int) -> Lane:
    """The lane of a stack by its place among all."""
    return Lane(place % LANES, min(LANES, stacks))
