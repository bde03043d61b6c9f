"""Embeddings from a frozen base encoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lg2ar.config import Level
from lg2ar.data.batches import Store, as_store
from lg2ar.encoders import Encoder
from lg2ar.graph import GraphBatch
from lg2ar.layers import BatchNorm

# Nodes and edges that are embedded at a time at graph level: what fits a processor's caches, and
# what keeps a GPU busy.
BUDGET = {"cpu": 1 << 18, "cuda": 1 << 22}


@torch.no_grad()
def embed(
    encoder: Encoder,
    graph: GraphBatch | Store,
    level: Level,
    *,
    projected: bool = False,
    budget: int | None = None,
) -> Tensor:
    """Embed every graph, or every node of one large graph.

    Memory is bounded: graphs are encoded a budget of nodes and edges at a time; a large graph is
    encoded layer by layer with its messages made in blocks.

    Args:
        encoder: The base encoder.
        graph: All graphs, features included; as a store where there is one already.
        level: Whether graphs or nodes are wanted.
        projected: Whether to read after the projection heads.
        budget: Nodes and edges encoded at a time at graph level.

    Returns:
        Embeddings on the CPU, a row per graph (or node).
    """
    device = next(encoder.parameters()).device
    training = encoder.training
    encoder.eval()
    try:
        if level == "node":
            whole = graph.graph if isinstance(graph, Store) else graph
            return encoder.embed(whole.to(device), projected).nodes.cpu()
        store = as_store(graph)
        rows = [
            encoder.embed(chunk.to(device), projected).graphs
            for chunk in store.chunks(budget or BUDGET[device.type])
        ]
        return torch.cat(rows).cpu()
    finally:
        encoder.train(training)


@torch.no_grad()
def calibrate(encoder: Encoder, graph: GraphBatch | Store, *, budget: int | None = None) -> None:
    """Set the running statistics of batch normalisation to those of the untouched graphs.

    During training they are those of views, which differ from what inference sees; and an
    untrained encoder has none at all. No label and no weight takes part. Layer by layer, each on
    what the calibrated layers before it make, the mean and variance are those of all nodes.

    Args:
        encoder: The base encoder.
        graph: All graphs, features included; as a store where there is one already.
        budget: Nodes and edges encoded at a time.
    """
    norms = [part for part in encoder.modules() if isinstance(part, BatchNorm)]
    device, training = next(encoder.parameters()).device, encoder.training
    store = as_store(graph)
    encoder.eval()
    try:
        for norm in norms:
            moments = _Moments()
            hook = norm.register_forward_pre_hook(moments)
            for chunk in store.chunks(budget or BUDGET[device.type]):
                encoder.embed(chunk.to(device))
            hook.remove()
            moments.give_to(norm)
    finally:
        encoder.train(training)


class _Moments:
    """Mean and variance of the columns of all rows that pass, in double precision."""

    def __init__(self) -> None:
        self._count, self._mean, self._spread = 0, torch.zeros(()), torch.zeros(())

    def __call__(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        rows = inputs[0].double()
        mean = rows.mean(0)
        spread = (rows - mean).square().sum(0)
        before, here = self._count, rows.size(0)
        shift = mean - self._mean.to(mean)
        self._count = before + here
        self._spread = self._spread.to(mean) + spread + shift**2 * (before * here / self._count)
        self._mean = self._mean.to(mean) + shift * (here / self._count)

    def give_to(self, norm: BatchNorm) -> None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        if self._count > 1:  # one node has no variance
            norm.running_mean.copy_(self._mean)
            norm.running_var.copy_(self._spread / (self._count - 1))
