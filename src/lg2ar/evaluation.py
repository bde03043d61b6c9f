"""Embeddings from a frozen base encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lg2ar.config import Level
from lg2ar.data.batches import Store, as_store
from lg2ar.data.mapped import MappedGraph, MappedStore
from lg2ar.encoders import Encoder
from lg2ar.graph import GraphBatch
from lg2ar.layers import BatchNorm
from lg2ar.layerwise import calibrate_in_chunks, embed_in_chunks
from lg2ar.moments import Moments

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
    only: np.ndarray | None = None,
    scratch: Path | None = None,
) -> Tensor:
    """Embed every graph, or every node of one large graph, or some of them.

    Memory is bounded: graphs are encoded a budget of nodes and edges at a time; a large graph is
    encoded layer by layer with its messages made in blocks. A graph that is mapped from a disk
    stays there (``lg2ar.layerwise``).

    Args:
        encoder: The base encoder.
        graph: All graphs, features included; as a store where there is one already.
        level: Whether graphs or nodes are wanted.
        projected: Whether to read after the projection heads.
        budget: Nodes and edges encoded at a time at graph level.
        only: Places of the graphs (or nodes) that are wanted; None wants all.
        scratch: Folder for what does not fit into memory, of a mapped graph.

    Returns:
        Embeddings on the CPU, a row per graph (or node).
    """
    device = next(encoder.parameters()).device
    training = encoder.training
    encoder.eval()
    try:
        if level == "node":
            whole = graph.graph if isinstance(graph, Store) else graph
            if isinstance(whole, MappedGraph):
                return embed_in_chunks(encoder, whole, only, projected=projected, scratch=scratch)
            nodes = encoder.embed(whole.to(device), projected).nodes.cpu()
            return nodes if only is None else nodes[torch.from_numpy(only)]
        store = as_store(graph)
        if only is not None:
            store = as_store(store.select(only).replace(origin=None))
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
    whole = graph.graph if isinstance(graph, MappedStore) else graph
    if norms and isinstance(whole, MappedGraph):
        calibrate_in_chunks(encoder, whole)
        return
    store = as_store(graph)
    encoder.eval()
    try:
        for norm in norms:
            moments = Moments()
            hook = norm.register_forward_pre_hook(moments)
            for chunk in store.chunks(budget or BUDGET[device.type]):
                encoder.embed(chunk.to(device))
            hook.remove()
            moments.give_to(norm)
    finally:
        encoder.train(training)
