"""Graphs of any number and size, made by index arithmetic."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from lg2ar.data.dataset import Dataset
from lg2ar.graph import GraphBatch

COLOURS = 8

# Nodes and listed edges of a graph of a collection, on average: 20 nodes, 19 edges of a tree and
# 10 more, each listed in both directions.
PER_GRAPH = 20 + 2 * (19 + 10)


def collection(size: int, seed: int = 0) -> Dataset:
    """Graphs of 10 to 30 nodes with about ``size`` nodes and edges in all: trees with shortcuts.

    More of them is all that a larger size means; the graphs are drawn alike.
    """
    rng = np.random.default_rng(seed)
    num_graphs = max(4, round(size / PER_GRAPH))
    sizes = rng.integers(10, 31, num_graphs)
    batch = np.repeat(np.arange(num_graphs), sizes)
    first = (sizes.cumsum() - sizes)[batch]
    place = np.arange(len(batch)) - first  # within its graph
    parent = (rng.random(len(batch)) * place).astype(np.int64)
    tree = np.stack([first + parent, np.arange(len(batch))])[:, place > 0]
    # A shortcut leads to another node of the same graph; every second node has one.
    start = np.flatnonzero(rng.random(len(batch)) < 0.5)
    away = 1 + (rng.random(len(start)) * (sizes[batch[start]] - 1)).astype(np.int64)
    end = first[start] + (place[start] + away) % sizes[batch[start]]
    every = np.sort(np.concatenate([tree, np.stack([start, end])], axis=1), axis=0)
    number = np.unique(every[0] * len(batch) + every[1])  # a shortcut may be there already
    pairs = torch.from_numpy(np.stack(np.divmod(number, len(batch))))
    graph = GraphBatch(
        x=F.one_hot(torch.from_numpy(rng.integers(0, COLOURS, len(batch))), COLOURS).float(),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        batch=torch.from_numpy(batch),
        num_graphs=num_graphs,
    )
    return Dataset(name=f"collection of {_short(size)}", level="graph", graph=graph)


def large_graph(num_nodes: int, links: int = 10, seed: int = 0, width: int = 32) -> Dataset:
    """One graph of ``num_nodes`` nodes with ``links`` links each to random others.

    A link is one edge listed in both directions: with ten of them a node has twenty neighbours.
    """
    rng = np.random.default_rng(seed)
    start = np.repeat(np.arange(num_nodes), links)
    away = rng.integers(1, num_nodes, len(start))
    pairs = torch.from_numpy(np.stack([start, (start + away) % num_nodes]))
    graph = GraphBatch(
        x=torch.from_numpy(rng.standard_normal((num_nodes, width), dtype=np.float32)),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        batch=torch.zeros(num_nodes, dtype=torch.long),
        num_graphs=1,
    )
    return Dataset(name=f"graph of {_short(num_nodes)} nodes", level="node", graph=graph)


def _short(size: int) -> str:
    """1e5 and 3e5 rather than 100000 and 300000."""
    return f"{size:.0e}".replace("e+0", "e") if size >= 1000 else str(size)
