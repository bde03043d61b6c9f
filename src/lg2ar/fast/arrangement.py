"""How runs of one setting share a device: in stacks, and stacks in lanes beside each other.

Runs of a *stack* have one step in common, with one more dimension: small runs fill a device that
way. Each *lane* replays the steps of a stack on a stream of its own: where a run by itself keeps
the device busy most of the time, another one fills the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lg2ar.config import Config
from lg2ar.devices import sharers
from lg2ar.graph import GraphBatch

# Lanes side by side at most, and runs in all from which on small ones are put into two stacks. Five
# lanes and two stacks of five were measured (docs/performance.md), what lies between was not.
LANES = 5
SPLIT = 4
# Numbers in the rows of a batch, in all layers, from which on a run is no longer stacked.
BUSY = 5e6
# Units of a GRU that a program has where there is room enough.
UNITS = 16


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


def lane_of(place: int, stacks: int, lanes: int) -> Lane:
    """The lane of a stack by its place among all, where there may be so many lanes."""
    return Lane(place % lanes, min(lanes, stacks))


def lanes_on(device: torch.device, hidden: int) -> int:
    """How many lanes there may be: the programs of all GRUs must find room at the same time."""
    if device.type != "cuda":
        return LANES
    return max(1, min(LANES, processors_of(device) // -(-hidden // UNITS)))


def processors_of(device: torch.device) -> int:
    """Processors of a CUDA device that this process may count on."""
    every = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, every // sharers())
