"""Two small data sets made by code, so that everything can be tried without a download."""

from __future__ import annotations

import numpy as np
import torch

from lg2ar.data.dataset import Dataset
from lg2ar.graph import GraphBatch

# Three ways to join six nodes by seven edges so that two nodes have three neighbours and four have
# two: neither size nor degrees tell them apart, only how the nodes are arranged.
MOTIFS = {
    "two triangles and a bridge": [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)],
    "two squares sharing an edge": [(0, 1), (1, 2), (2, 3), (3, 0), (2, 4), (4, 5), (5, 3)],
    "pentagon sharing two edges": [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 5), (5, 2)],
}


def toy_graphs(num_graphs: int = 300, seed: int = 0) -> Dataset:
    """Random trees with motifs planted in them; the label is which motif.

    Every graph is a random tree of 12 to 24 nodes with three copies of one motif of six nodes and
    seven edges hung onto it. Sizes and degrees are drawn alike for all classes. There are no node
    features: what there is to learn is the arrangement of the edges.

    Args:
        num_graphs: How many graphs.
        seed: Fixes all of them.
    """
    rng = np.random.default_rng(seed)
    motifs = [np.array(edges) for edges in MOTIFS.values()]
    labels = rng.permutation(num_graphs) % len(motifs)
    edges, sizes, offset = [], [], 0
    for label in labels:
        joined, size = _planted(rng, motifs[label], copies=3)
        edges.append(joined + offset)
        sizes.append(size)
        offset += size
    pairs = torch.from_numpy(np.concatenate(edges)).T
    graph = GraphBatch(
        x=torch.empty(offset, 0),
        edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
        batch=torch.arange(num_graphs).repeat_interleave(torch.tensor(sizes)),
        num_graphs=num_graphs,
    )
    return Dataset(
        name="toy-graphs", level="graph", graph=graph.validate(), y=torch.from_numpy(labels)
    )


def _planted(rng: np.random.Generator, motif: np.ndarray, copies: int) -> tuple[np.ndarray, int]:
    """A random tree with copies of a motif, each hung by one edge onto a random tree node."""
    size = int(rng.integers(12, 25))
    parents = [int(rng.integers(0, child)) for child in range(1, size)]
    edges = [np.array(list(zip(parents, range(1, size), strict=True)))]
    tree, nodes = size, int(motif.max()) + 1
    for _ in range(copies):
        bridge = (int(rng.integers(0, tree)), size + int(rng.integers(0, nodes)))
        edges += [motif + size, np.array([bridge])]
        size += nodes
    return np.concatenate(edges), size


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
