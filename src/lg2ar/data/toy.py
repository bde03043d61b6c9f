"""Two small data sets made by code, so that everything can be tried without a download."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from lg2ar.data.dataset import Dataset
from lg2ar.graph import GraphBatch

# Four ways to colour a ring of six nodes with six colours. Each colour occurs once in all of them:
# only which colours are neighbours tells them apart.
RINGS = ((0, 1, 2, 3, 4, 5), (0, 2, 4, 1, 5, 3), (0, 3, 1, 4, 2, 5), (0, 4, 3, 5, 1, 2))
COLOURS = 6


def toy_graphs(num_graphs: int = 300, seed: int = 0) -> Dataset:
    """Random trees with coloured rings planted in them; the label is how the rings are coloured.

    Every graph is a random tree of 12 to 24 nodes with two rings of six nodes hung onto it. A
    node's features are its colour. Sizes, degrees and colours are drawn alike for all four classes,
    so none of them says anything about the label: what there is to find is the motif, the order of
    the colours around a ring.

    Args:
        num_graphs: How many graphs.
        seed: Fixes all of them.
    """
    rng = np.random.default_rng(seed)
    labels = rng.permutation(num_graphs) % len(RINGS)
    edges, colours, sizes, offset = [], [], [], 0
    for label in labels:
        joined, coloured = _planted(rng, np.array(RINGS[label]), copies=2)
        edges.append(joined + offset)
        colours.append(coloured)
        sizes.append(len(coloured))
        offset += len(coloured)
    pairs = torch.from_numpy(np.concatenate(edges)).T
    graph = GraphBatch(
        x=F.one_hot(torch.from_numpy(np.concatenate(colours)), COLOURS).float(),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        batch=torch.arange(num_graphs).repeat_interleave(torch.tensor(sizes)),
        num_graphs=num_graphs,
    )
    return Dataset(
        name="toy-graphs", level="graph", graph=graph.validate(), y=torch.from_numpy(labels)
    )


def _planted(
    rng: np.random.Generator, ring: np.ndarray, copies: int
) -> tuple[np.ndarray, np.ndarray]:
    """Edges and colours of a random tree with coloured rings, each hung by one edge onto a node."""
    tree = int(rng.integers(12, 25))
    parents = [int(rng.integers(0, child)) for child in range(1, tree)]
    edges = [np.array(list(zip(parents, range(1, tree), strict=True)))]
    colours = [rng.permutation(np.arange(tree) % COLOURS)]
    around = np.stack([np.arange(COLOURS), (np.arange(COLOURS) + 1) % COLOURS], axis=1)
    for copy in range(copies):
        first = tree + copy * COLOURS
        bridge = (int(rng.integers(0, tree)), first + int(rng.integers(0, COLOURS)))
        edges += [around + first, np.array([bridge])]
        colours.append(ring)
    return np.concatenate(edges), np.concatenate(colours)


def toy_nodes(num_nodes: int = 800, seed: int = 0) -> Dataset:
    """A block model: four communities whose features hint at them, faintly.

    A node has about eight neighbours in its own community and three elsewhere; one in ten of its
    32 binary features is on, and the eight that belong to its community twice as often.

    Args:
        num_nodes: How many nodes.
        seed: Fixes all of them.
    """
    rng = np.random.default_rng(seed)
    blocks, width = 4, 32
    labels = rng.permutation(num_nodes) % blocks
    u, v = np.triu_indices(num_nodes, k=1)
    same = labels[u] == labels[v]
    chance = np.where(same, 8 * blocks / num_nodes, 3 * blocks / (num_nodes * (blocks - 1)))
    joined = rng.random(len(u)) < chance
    pairs = torch.from_numpy(np.stack([u[joined], v[joined]]))
    own = np.arange(width) // (width // blocks) == labels[:, None]
    x = rng.random((num_nodes, width)) < np.where(own, 0.2, 0.1)
    graph = GraphBatch(
        x=torch.from_numpy(x.astype(np.float32)),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        batch=torch.zeros(num_nodes, dtype=torch.long),
        num_graphs=1,
    )
    return Dataset(
        name="toy-nodes", level="node", graph=graph.validate(), y=torch.from_numpy(labels)
    )
