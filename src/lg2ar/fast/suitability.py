"""Whether the captured step can be used; known without importing what it is made of."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import cache
from importlib.util import find_spec

import torch

from lg2ar.config import HEAD_NAMES, Config
from lg2ar.data.on_disk import GraphsOnDisk
from lg2ar.discriminators import DISCRIMINATORS
from lg2ar.graph import GraphBatch
from lg2ar.mutual_information import BOUNDS
from lg2ar.policy import POLICIES

# Nodes of the largest graph whose nodes are ranked by counting.
LARGEST = 1 << 14
# Numbers that an index of 32 bits tells apart.
INDICES = 1 << 31


def unsuitable(graph: GraphBatch, config: Config, device: torch.device) -> str | None:
    """Why a data set cannot be read as joined pairs of nodes, or None if it can.

    Args:
        graph: All graphs.
        config: The settings.
        device: Where to look.
    """
    if graph.edge_weight is not None:
        return "the edges have weights of their own"
    if graph.num_edge_features:
        return "the edges have attributes"
    sizes = graph.sizes
    if int(sizes.max()) > LARGEST:
        return f"there is a graph of more than {LARGEST} nodes"
    layers = max(config.layers, config.base_layers)
    width = max(config.hidden * layers, graph.num_features)
    most = int(sizes.topk(min(config.batch_size, graph.num_graphs)).values.sum())
    if most * width >= INDICES or graph.num_nodes * graph.num_features >= INDICES:
        return "a batch, or the features, have more numbers than it can count"
    source, target = graph.edge_index.to(device)
    if bool((source == target).any()):
        return "there are self-loops"
    n = graph.num_nodes
    there, back = (source * n + target).sort().values, (target * n + source).sort().values
    if not torch.equal(there, back):
        return "there are edges in one direction only"
    if bool((there.diff() == 0).any()):
        return "there are repeated edges"
    return None


def settle_step(
    config: Config, graph: GraphBatch, device: torch.device, processes: int = 1
) -> Config:
    """Say in the settings how steps are going to be done.

    The captured step where it can be; where it cannot be on a GPU, or was asked for, the reason is
    told once.
    """
    plain = config.precision if config.precision == "bf16-mixed" else "float32"
    if config.step == "plain":
        return config.replace(precision=plain)
    reason = _why_not(config, graph, device)
    if reason is None and processes > 1:
        reason = f"it is for one device, and there are {processes} processes"
    if reason is None:
        old = torch.cuda.is_available() and torch.cuda.get_device_capability(device) < (8, 0)
        precision = "float32" if old else config.precision  # older devices have no other
        return config.replace(step="captured", precision=precision)
    if config.step == "captured" or device.type == "cuda":
        _say(f"The plain step is used instead of the captured one: {reason}.")
    return config.replace(step="plain", precision=plain)


@cache
def _say(text: str) -> None:
    logging.getLogger("lg2ar").warning(text)


def _why_not(config: Config, graph: GraphBatch, device: torch.device) -> str | None:
    """Why the captured step cannot be used, or None."""
    checks: list[tuple[bool, str]] = [
        (device.type != "cuda", "it needs a CUDA device"),
        (find_spec("triton") is None, "it needs Triton, which is not installed"),
        (config.level != "graph", "it is for graph level"),
        (config.precision == "bf16-mixed", "it does not know precision = 'bf16-mixed'"),
        (config.method not in ("lg2ar", "infograph"), f"it does not know '{config.method}'"),
        (config.base_encoder != "gin", f"it does not know base_encoder = '{config.base_encoder}'"),
        (config.negatives != "graphs", f"it does not know negatives = '{config.negatives}'"),
        (_has_own_parts(config), "a part of one's own takes part"),
        (config.hidden > 2048, "hidden is above 2048"),
        (isinstance(graph, GraphsOnDisk), "the graphs are read from a disk"),
    ]
    for failed, reason in checks:
        if failed:
            return reason
    if not torch.cuda.is_available():  # asked about a device that is not here
        return unsuitable(graph, config, torch.device("cpu"))
    return _broken(device) or unsuitable(graph, config, device)


def _has_own_parts(config: Config) -> bool:
    """Whether the settings name a part that some other package brought along."""
    known: dict[str, Collection[str]] = {
        "policy": POLICIES,
        "discriminator": DISCRIMINATORS,
        "bound": BOUNDS,
    }
    named = any(getattr(config, key) not in parts for key, parts in known.items())
    return named or not set(config.heads) <= set(HEAD_NAMES)


@cache
def _broken(device: torch.device) -> str | None:
    """Why Triton does not work on a device, found out by the smallest of the kernels."""
    try:
        from lg2ar.fast.kernels import cutting

        with torch.cuda.device(device):
            keys = torch.zeros(1, dtype=torch.long, device=device)
            found = torch.full((1, 2), -1.0, device=device)
            cutting.uniforms[(1,)](keys, found, cutting.SITE_POLICY, COUNT=2, BLOCK=2)
            ok = bool((found >= 0).all())
    except Exception as error:  # whatever a compiler or a driver may say
        return f"Triton does not work here ({type(error).__name__})"
    return None if ok else "Triton does not work here"
