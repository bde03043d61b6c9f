"""What is drawn of a graph: all of it, or the part around one node where it is too large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from lg2ar.graph import GraphBatch

MOST_NODES = 60  # of a drawing
MOST_EDGES = 150
NODE_HOPS = 2  # around a node of a large graph

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Outline:
    """A graph as it is drawn.

    Attributes:
        nodes: Places of the drawn nodes in the batch, shape ``[n]``.
        pairs: Which of them are joined, each pair once, without loops, shape ``[m, 2]``.
        centre: The node it was cut around, or None.
        num_nodes: Nodes that the graph has.
        num_pairs: Joined pairs that the graph has among the drawn nodes, or in all where all
            nodes are drawn.
    """

    nodes: Integers
    pairs: Integers
    centre: int | None
    num_nodes: int
    num_pairs: int


class Outliner:
    """Cuts outlines out of a batch of graphs, or out of one large graph.

    Args:
        graph: The batch; the direction of edges is not looked at.
    """

    def __init__(self, graph: GraphBatch) -> None:
        source, target = graph.edge_index.cpu().numpy()
        n = graph.num_nodes
        joined = coo_array((np.ones(len(source), bool), (source, target)), shape=(n, n)).tocsr()
        both = (joined + joined.T).tocsr()
        both.setdiag(False)
        both.eliminate_zeros()
        both.sort_indices()
        self._first = both.indptr.astype(np.int64)
        self._joined = both.indices.astype(np.int64)
        self._ptr = graph.ptr.cpu().numpy()

    @property
    def degrees(self) -> Integers:
        """With how many others each node is joined, shape ``[N]``."""
        return np.asarray(np.diff(self._first))

    def num_pairs(self) -> Integers:
        """How many pairs of nodes each graph joins, shape ``[B]``."""
        ends = np.concatenate([[0], self.degrees.cumsum()])
        return np.asarray(np.diff(ends[self._ptr]) // 2)

    def graph(self, place: int) -> Outline:
        """A graph of the batch; a large one around the node with most neighbours."""
        first, last = self._ptr[place], self._ptr[place + 1]
        nodes = np.arange(first, last)
        if len(nodes) <= MOST_NODES:
            return self._outline(nodes, None, len(nodes))
        hub = int(first + self.degrees[first:last].argmax())
        return self._outline(self.around(hub, len(nodes)), hub, len(nodes))

    def node(self, place: int, hops: int = NODE_HOPS) -> Outline:
        """What lies around a node of a large graph."""
        return self._outline(self.around(place, hops), place, int(self._ptr[-1]))

    def around(self, centre: int, hops: int, most: int = MOST_NODES) -> Integers:
        """The nodes nearest to this one, itself first, at most so many hops away."""
        found, edge = {centre: None}, [centre]
        for _ in range(hops):
            further: list[int] = []
            for node in edge:
                # No more than there is room for: a node may have a million neighbours.
                start, room = self._first[node], most + 1
                near = self._joined[start : min(start + room, self._first[node + 1])]
                further += [other for other in near.tolist() if other not in found]
                found.update(dict.fromkeys(near.tolist()))
                if len(found) >= most:
                    return np.array(list(found), dtype=np.int64)[:most]
            edge = further
            if not edge:
                break
        return np.array(list(found), dtype=np.int64)

    def _outline(self, nodes: Integers, centre: int | None, num_nodes: int) -> Outline:
        pairs = self._pairs(nodes)
        shown = pairs
        if len(pairs) > MOST_EDGES:
            shown = pairs[np.linspace(0, len(pairs) - 1, MOST_EDGES).astype(int)]
        local = None if centre is None else int(np.flatnonzero(nodes == centre)[0])
        return Outline(nodes, shown, local, num_nodes, len(pairs))

    def _pairs(self, nodes: Integers) -> Integers:
        """The joined pairs among some nodes, by their places in the list."""
        order = np.argsort(nodes)
        ascending = nodes[order]
        found = []
        for place, node in enumerate(nodes.tolist()):
            near = self._joined[self._first[node] : self._first[node + 1]]
            if len(near) > 50 * len(nodes):  # look up the few in the many
                at = np.searchsorted(near, ascending).clip(max=len(near) - 1)
                others = order[near[at] == ascending]
            else:
                at = np.searchsorted(ascending, near).clip(max=len(nodes) - 1)
                others = order[at[ascending[at] == near]]
            others = others[others > place]
            found.append(np.stack([np.full_like(others, place), others], axis=1))
        return np.concatenate(found) if found else np.zeros((0, 2), np.int64)
