"""Whether the captured step can be used; known without importing what it is made of."""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec

import torch

from lg2ar.config import Config
from lg2ar.graph import GraphBatch

# Nodes of the largest graph whose nodes are ranked by counting.
LARGEST = 1 << 14


def unsuitable(graph: GraphBatch, device: torch.device) -> str | None:
    """Why a data set cannot be read as joined pairs of nodes, or None if it can.

    Args:
        graph: All graphs.
        device: Where to look.
    """
    if graph.edge_weight is not None:
        return "the edges have weights of their own"
    source, target = graph.edge_index.to(device)
    if bool((source == target).any()):
        return "there are self-loops"
    n = graph.num_nodes
    there, back = (source * n + target).sort().values, (target * n + source).sort().values
    if not torch.equal(there, back):
        return "there are edges in one direction only"
    if bool((there.diff() == 0).any()):
        return "there are repeated edges"
    if int(graph.sizes.max()) > LARGEST:
        return f"there is a graph of more than {LARGEST} nodes"
    return None


def settle_step(config: Config, graph: GraphBatch, device: torch.device) -> Config:
    """Say in the settings how steps are going to be done.

    The captured step where it can be; where it cannot be on a GPU, or was asked for, the reason is
    told once.
    """
    if config.step == "plain":
        return config.replace(precision="float32")
    reason = _why_not(config, graph, device)
    if reason is None:
        return config.replace(step="captured")
    if config.step == "captured" or device.type == "cuda":
        _say(f"The plain step is used instead of the captured one: {reason}.")
    return config.replace(step="plain", precision="float32")


@cache
def _say(text: str) -> None:
    logging.getLogger("lg2ar").warning(text)


def _why_not(config: Config, graph: GraphBatch, device: torch.device) -> str | None:
    """Why the captured step cannot be used, or None."""
    checks: list[tuple[bool, str]] = [
        (device.type != "cuda", "it needs a CUDA device"),
        (find_spec("triton") is None, "it needs Triton, which is not installed"),
        (config.level != "graph", "it is for graph level"),
        (config.method not in ("lg2ar", "infograph"), f"it does not know '{config.method}'"),
        (config.base_encoder != "gin", f"it does not know base_encoder = '{config.base_encoder}'"),
        (config.negatives != "graphs", f"it does not know negatives = '{config.negatives}'"),
        (config.discriminator == "mlp", "it does not know discriminator = 'mlp'"),
        (config.hidden > 2048, "hidden is above 2048"),
    ]
    for failed, reason in checks:
        if failed:
            return reason
    where = device if torch.cuda.is_available() else torch.device("cpu")
    return unsuitable(graph, where)
