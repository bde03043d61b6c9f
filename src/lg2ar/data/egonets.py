"""Batches at node level: sub-graphs of K hops around random nodes of one large graph (A.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lg2ar.data.links import Lists, search, spread, take
from lg2ar.data.mapped import links_of
from lg2ar.distributed import own_share
from lg2ar.graph import GraphBatch

# A list so many times longer than its sub-graph has nodes is searched for them, not read.
LONG = 16


class EgoNets:
    """Draws sub-graphs of a large graph; the cost is that of the sub-graphs, not of the graph.

    The graph's edges are sorted once. A draw then touches only the edges of the nodes it reaches,
    and allocates nothing of the size of the graph. With a ``fanout`` it does not touch all edges
    of a node with very many either, so that no node makes a draw expensive.

    Args:
        graph: One large graph, features included; in memory or mapped from a disk.
        hops: Radius of the sub-graphs, ``K``; edges are walked in both directions.
        device: Where batches are to lie, and the graph if it is in memory.
        fanout: From a node with more neighbours than this so many are walked to, drawn without
            replacement; 0 walks to all.
    """

    def __init__(
        self, graph: GraphBatch, hops: int, device: torch.device | str = "cpu", fanout: int = 0
    ) -> None:
        if graph.num_graphs != 1:
            raise ValueError(f"sub-graphs are drawn from one large graph, got {graph.num_graphs}")
        self.graph = graph.to(device)
        self.hops = hops
        self.fanout = fanout
        self.links = links_of(self.graph)

    def draw(self, num_graphs: int, seed: int) -> GraphBatch:
        """Draw sub-graphs around different random nodes; ``origin`` is a node's place in the graph.

        Args:
            num_graphs: How many; at most as many as there are nodes.
            seed: Fixes the nodes, and the neighbours that are walked to.

        Returns:
            The batch; where it is shared out among processes, this one's share.
        """
        n = self.links.num_nodes
        rng = np.random.default_rng(seed)
        return self.around(own_share(rng.choice(n, size=min(num_graphs, n), replace=False)), seed)

    def around(self, centres: Sequence[int] | np.ndarray, seed: int = 0) -> GraphBatch:
        """The sub-graphs of ``hops`` hops around these nodes.

        Args:
            centres: The nodes.
            seed: Fixes which neighbours are walked to where there are more than ``fanout``; those
                of a sub-graph do not depend on the others.
        """
        n, device = self.links.num_nodes, self.links.device
        start = torch.from_numpy(np.asarray(centres, dtype=np.int64)).to(device)
        # A node of the i-th sub-graph is known by the number i * n + its place in the large graph.
        members = torch.arange(len(start), device=device) * n + start  # ascending throughout
        frontier = members
        for hop in range(self.hops):
            key = (seed, hop, start[frontier // n], frontier % n)
            place, neighbour = self._walk(frontier % n, key)
            reached = torch.unique(frontier[place] // n * n + neighbour)
            frontier = reached[~_among(reached, members)[0]]
            members = torch.cat([members, frontier]).sort().values
        return self._induced(members, len(start)).to(self.graph.device)

    def _walk(self, nodes: Tensor, key: tuple[int | Tensor, ...]) -> tuple[Tensor, Tensor]:
        """One hop: which of ``nodes`` each step is taken from, and the node it leads to.

        ``key`` fixes what is drawn for each of the nodes.
        """
        first, count = self.links.walk.spans(nodes)
        many = count > self.fanout
        if not self.fanout or not bool(many.any()):
            owner, slot = spread(first, count)
            return owner, take(self.links.walk.to, slot)
        owner, slot = spread(first, count.where(~many, 0))
        rows = many.nonzero().squeeze(1)
        own = [part if isinstance(part, int) else part[rows] for part in key]
        drawn = _choose(count[rows], self.fanout, _mixed(own))
        owner = torch.cat([owner, rows.repeat_interleave(self.fanout)])
        slot = torch.cat([slot, (first[rows].unsqueeze(1) + drawn).reshape(-1)])
        return owner, take(self.links.walk.to, slot)

    def _induced(self, members: Tensor, num_graphs: int) -> GraphBatch:
        n = self.links.num_nodes
        nodes, batch = members % n, members // n
        source, target, slot = self._edges(members, num_graphs)
        return GraphBatch(
            x=self.links.features(nodes),
            edge_index=torch.stack([source, target]),
            batch=batch,
            num_graphs=num_graphs,
            edge_weight=self.links.weights(slot),
            origin=nodes,
            edge_attr=self.links.attributes(slot),
        )

    def _edges(self, members: Tensor, num_graphs: int) -> tuple[Tensor, Tensor, Tensor]:
        """All edges between members of the same sub-graph: source, target, and its slot."""
        n, out = self.links.num_nodes, self.links.out
        nodes, batch = members % n, members // n
        first, count = out.spans(nodes)
        if not self.fanout:  # then a step may cost what all neighbours do
            return _listed(out, first, count, members, n)
        sizes = torch.bincount(batch, minlength=num_graphs)
        long = count > LONG * sizes[batch]
        if not bool(long.any()):
            return _listed(out, first, count, members, n)
        short = _listed(out, first, count.where(~long, 0), members, n)
        found = _looked_up(out, long.nonzero().squeeze(1), first, count, members, n, sizes)
        source, target, slot = (torch.cat(pair) for pair in zip(short, found, strict=True))
        # By source, then slot: as they would come had all lists been read.
        order = slot.argsort(stable=True)
        order = order[source[order].argsort(stable=True)]
        return source[order], target[order], slot[order]


def _listed(
    out: Lists, first: Tensor, count: Tensor, members: Tensor, n: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Edges to members, found by reading the lists of all members."""
    source, slot = spread(first, count)
    inside, target = _among(members[source] // n * n + take(out.to, slot), members)
    kept = inside.nonzero().squeeze(1)
    return source[kept], target[kept], slot[kept]


def _looked_up(
    out: Lists, rows: Tensor, first: Tensor, count: Tensor, members: Tensor, n: int, sizes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Edges to members, found by looking every member up in the long lists."""
    graph = members[rows] // n
    place, target = spread((sizes.cumsum(0) - sizes)[graph], sizes[graph])
    source, wanted = rows[place], members[target] % n
    low, high = first[source], (first + count)[source]
    before = search(out.to, low, high, wanted, after=False)
    behind = search(out.to, before, high, wanted, after=True)
    pair, slot = spread(before, behind - before)
    return source[pair], target[pair], slot


def _mixed(parts: Sequence[int | Tensor]) -> np.ndarray:
    """Numbers that look like drawn ones, the same for the same parts (SplitMix64)."""
    mixed = np.zeros(1, dtype=np.uint64)
    for part in parts:
        if isinstance(part, int):
            given = np.array([part % 2**64], dtype=np.uint64)
        else:
            given = part.cpu().numpy().astype(np.uint64)
        mixed = _scrambled(mixed ^ given)
    return mixed


def _scrambled(x: np.ndarray) -> np.ndarray:
    x = x + np.uint64(0x9E3779B97F4A7C15)  # beyond 2^64 it begins again, as it is meant to
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    last: np.ndarray = x ^ (x >> np.uint64(31))
    return last


def _choose(count: Tensor, number: int, key: np.ndarray) -> Tensor:
    """``number`` different places below each count, every set of them as likely as any other.

    Floyd's algorithm for all rows at once: the cost does not depend on the counts. Each row is
    drawn by its own key alone.
    """
    high = count.cpu().numpy()
    chosen = np.empty((len(high), number), dtype=np.int64)
    for column in range(number):
        last = high - number + column
        key = _scrambled(key)
        part = (key >> np.uint64(11)).astype(np.float64) / 2**53  # from 0 to below 1
        pick = np.minimum((part * (last + 1)).astype(np.int64), last)
        taken = (chosen[:, :column] == pick[:, None]).any(1)
        chosen[:, column] = np.where(taken, last, pick)
    return torch.from_numpy(chosen).to(count.device)


def _among(values: Tensor, ascending: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each value is in the ascending list, and where."""
    place = torch.searchsorted(ascending, values).clamp(max=len(ascending) - 1)
    return ascending[place] == values, place
