"""Chances that a random walk comes back: features of structure for graphs of moderate size."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator
from threading import Lock

import torch
from torch import Tensor

from lg2ar.adjacency import Adjacency
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch

# A graph is a matrix of its nodes here, of 512 MiB for the largest; three powers of it are held.
LARGEST = 8192
# Numbers in the matrices of the graphs that are done at a time: 128 MiB.
BUDGET = 1 << 24
# What is kept of what was computed last: so many bytes, of so many batches. Those of graphs on a
# disk never come again, and must not fill the memory.
KEPT = 1 << 28
MOST = 8

_kept: dict[str, Tensor] = {}  # what was asked for last is the last
_keeping = Lock()


def return_chances(graph: GraphBatch, length: int, name: str = "the data") -> Tensor:
    r"""Chance that a walk from a node is there again after 2, 3, ... ``length`` steps.

    A step takes any edge that leaves a node with the same chance, :math:`P = D^{-1} A`, and the
    chances are the diagonals of its powers from :math:`P^2` on. They tell rings apart by their
    size, and nodes in dense parts from those on chains. A walk that cannot go on does not return.

    Graphs of about the same size are done together. Only half of the powers are computed, as
    :math:`(P^{a+b})_{ii} = \sum_j (P^a)_{ij} (P^b)_{ji}`, and each of them edge by edge: a step
    leads to few nodes, even where its powers lead everywhere.

    The same graphs come again with every run on them, and for embedding or fine-tuning after it:
    what was computed last is kept, by its edges.

    Args:
        graph: The batch.
        length: The longest walk.
        name: What to call the data in a message.

    Returns:
        A row per node, ``[N, length - 1]``.

    Raises:
        InputError: For a graph of more than ``LARGEST`` nodes.
    """
    device, graph = graph.x.device, graph.to(torch.device("cpu"))  # in double precision
    key = _key(graph, length)
    found = _kept.get(key)
    if found is None:
        found = _computed(graph, length, name)
    _keep(key, found)
    return found.to(device, copy=True)


def _key(graph: GraphBatch, length: int) -> str:
    """What chances depend on, in short."""
    digest = hashlib.sha256(f"{length} {graph.num_graphs} {graph.x.dtype}".encode())
    for tensor in (graph.edge_index, graph.batch):
        array = tensor.contiguous().numpy()
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _keep(key: str, found: Tensor) -> None:
    """Keep this, and of what was asked for before as much as there is room for."""
    with _keeping:
        _kept.pop(key, None)
        _kept[key] = found
        while len(_kept) > MOST or sum(chances.nbytes for chances in _kept.values()) > KEPT:
            del _kept[next(iter(_kept))]


def _computed(graph: GraphBatch, length: int, name: str) -> Tensor:
    """Chances of graphs in the processor's memory."""
    sizes, starts = graph.sizes, graph.ptr
    largest = int(sizes.max()) if graph.num_graphs else 0
    if largest > LARGEST:
        raise InputError(
            f"{name} has a graph of {largest} nodes, and features = 'walks' are made of graphs of "
            f"up to {LARGEST}; choose features = 'degree' or 'one-hot-degree'."
        )
    chances = graph.x.new_zeros(graph.num_nodes, length - 1)
    order = sizes.argsort(stable=True)
    rank = torch.empty_like(order).scatter(0, order, torch.arange(len(order)))
    home = rank[graph.batch[graph.edge_index[0]]]  # the place of each edge's graph in that order
    edges = home.argsort(stable=True)
    home = home[edges]
    for first, last, nodes in _parts(sizes[order].tolist()):
        begin, end = torch.searchsorted(home, torch.tensor([first, last]))
        some, place = edges[begin:end], home[begin:end] - first
        offset = starts[order[first:last]]
        source, target = graph.edge_index[:, some] - offset[place]
        found = _chances(place, source, target, last - first, nodes, length)
        within = torch.arange(nodes) < sizes[order[first:last], None]
        row = offset[:, None] + torch.arange(nodes)
        chances[row[within]] = found[within].to(chances.dtype)
    return chances


def _parts(sizes: list[int]) -> Iterator[tuple[int, int, int]]:
    """First and last of graphs that are done together, and the nodes of the largest of them.

    Args:
        sizes: Nodes of each, ascending.
    """
    last = len(sizes)
    while last:
        nodes = sizes[last - 1]
        many = max(1, BUDGET // max(1, nodes * nodes))
        # Graphs of less than half the size would mostly be padding.
        first = max(last - many, bisect_left(sizes, nodes // 2))
        yield first, last, nodes
        last = first


def _chances(
    place: Tensor, source: Tensor, target: Tensor, graphs: int, nodes: int, length: int
) -> Tensor:
    """Diagonals of the powers of :math:`P`, ``[graphs, nodes, length - 1]``.

    Args:
        place: The graph of each edge.
        source: Where it begins, counted within its graph.
        target: Where it ends.
        graphs: How many there are.
        nodes: Of the largest of them.
        length: The longest walk.
    """
    row, column = place * nodes + source, place * nodes + target
    # In double precision, so that what a graph stands beside is not seen after rounding.
    leaving = torch.zeros(graphs * nodes, dtype=torch.float64)
    chance = 1 / leaving.index_add(0, row, leaving.new_ones(len(row)))[row]
    # Walks there and, transposed, walks back: rows of both are then multiplied as they lie.
    there, back = leaving.new_zeros(graphs * nodes, nodes), leaving.new_zeros(graphs * nodes, nodes)
    there.index_put_((row, target), chance, accumulate=True)
    back.index_put_((column, source), chance, accumulate=True)
    ahead = Adjacency(torch.stack([column, row]), graphs * nodes)
    behind = Adjacency(torch.stack([row, column]), graphs * nodes)
    found = []
    for steps in range(2, length + 1):
        if steps % 2:
            back = behind.product(back, chance)
        elif steps > 2:
            there = ahead.product(there, chance)
        found.append(torch.einsum("ij,ij->i", there, back).view(graphs, nodes))
    return torch.stack(found, dim=2)
