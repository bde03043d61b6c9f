"""Embeddings from a frozen base encoder, and how good they are."""

from __future__ import annotations

import torch
from torch import Tensor

from lg2ar.config import Level
from lg2ar.data.batches import GraphStore
from lg2ar.encoders import Encoder
from lg2ar.graph import GraphBatch
from lg2ar.layers import BatchNorm

# Nodes and edges that are embedded at a time at graph level.
BUDGET = 1 << 18


@torch.no_grad()
def embed(
    encoder: Encoder,
    graph: GraphBatch,
    level: Level,
    *,
    projected: bool = False,
    budget: int = BUDGET,
) -> Tensor:
    """Embed every graph, or every node of one large graph.

    Memory is bounded: graphs are encoded a budget of nodes and edges at a time; a large graph is
    encoded layer by layer with its messages made in blocks.

    Args:
        encoder: The base encoder.
        graph: All graphs, features included.
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
            return encoder.embed(graph.to(device), projected).nodes.cpu()
        store = GraphStore(graph)
        rows = [
            encoder.embed(chunk.to(device), projected).graphs.cpu()
            for chunk in store.chunks(budget)
        ]
        return torch.cat(rows)
    finally:
        encoder.train(training)


@torch.no_grad()
def calibrate(encoder: Encoder, graph: GraphBatch, *, budget: int = BUDGET) -> None:
    """Set the running statistics of batch normalisation to those of the untouched graphs.

    During training they are those of views, which differ from what inference sees; and an
    untrained encoder has none at all. No label and no weight takes part.

    Args:
        encoder: The base encoder.
        graph: All graphs, features included.
        budget: Nodes and edges encoded at a time.
    """
    norms = [part for part in encoder.modules() if isinstance(part, BatchNorm)]
    if not norms:
        return
    device = next(encoder.parameters()).device
    training, momenta = encoder.training, [norm.momentum for norm in norms]
    encoder.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over the batches that follow
        norm.train()
    try:
        for chunk in GraphStore(graph).chunks(budget):
            encoder.embed(chunk.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        encoder.train(training)
