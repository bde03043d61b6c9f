"""Where to compute: the device of a name, and how many threads."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lg2ar.config import Config
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch

# Numbers in one layer's rows of a batch, nodes and edges, below which one thread is as fast as two.
SMALL_BATCH = 1 << 20
# How many processes compute on a GPU at the same time (under NVIDIA's Multi-Process Service).
SHARERS = "LG2AR_PROCESSES_PER_GPU"


def choose_device(name: str | torch.device = "auto") -> torch.device:
    """The device of that name; ``auto`` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device = '{name}' must be auto, cpu or cuda.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count() or "no"
        raise InputError(
            f"device = '{name}': this machine has {found} CUDA device; use cpu or auto."
        )
    return device


def device_name(device: torch.device) -> str:
    """What a record calls the device: the GPU's own name, or the processor's kind."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.machine()})"


def sharers() -> int:
    """How many processes compute on a GPU at the same time, as far as it is known."""
    told = os.environ.get(SHARERS, "")
    return max(1, int(told)) if told.isdigit() else 1


@contextmanager
def sensible_threads(graph: GraphBatch, config: Config, device: torch.device) -> Iterator[None]:
    """Use one thread where batches are small.

    There a second thread gains nothing, and where other programs use the cores the two wait for
    each other at every operation: the demonstration then takes minutes instead of seconds.
    """
    graphs = 1 if config.level == "node" else min(config.batch_size, graph.num_graphs)
    rows = (graph.num_nodes + graph.num_edges) * graphs / graph.num_graphs
    before = torch.get_num_threads()
    if device.type == "cpu" and rows * config.hidden < SMALL_BATCH:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
