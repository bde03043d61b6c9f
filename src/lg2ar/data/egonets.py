"""Batches at node level: sub-graphs of K hops around random nodes of one large graph (A.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lg2ar.distributed import own_share
from lg2ar.graph import GraphBatch


class EgoNets:
    """Draws sub-graphs of a large graph; the cost is that of the sub-graphs, not of the graph.

    The graph's edges are sorted once. A draw then touches only the edges of the nodes it reaches,
    and allocates nothing of the size of the graph.

    Args:
        graph: One large graph, features included.
        hops: Radius of the sub-graphs, ``K``; edges are walked in both directions.
        device: Where the graph is to lie.
    """

    def __init__(self, graph: GraphBatch, hops: int, device: torch.device | str = "cpu") -> None:
        if graph.num_graphs != 1:
            raise ValueError(f"sub-graphs are drawn from one large graph, got {graph.num_graphs}")
        self.graph = graph.to(device)
        self.hops = hops
        source, target = self.graph.edge_index
        n = self.graph.num_nodes
        self._order = (source * n + target).argsort()  # edges by source, then target
        self._out = _rows(source[self._order], n)
        walkable = torch.unique(torch.cat([source * n + target, target * n + source]))
        self._walk = _rows(walkable // n, n)
        self._walk_to = walkable % n

    def draw(self, num_graphs: int, seed: int) -> GraphBatch:
        """Draw sub-graphs around different random nodes; ``origin`` is a node's place in the graph.

        Args:
            num_graphs: How many; at most as many as there are nodes.
            seed: Fixes the nodes.

        Returns:
            The batch; where it is shared out among processes, this one's share.
        """
        n = self.graph.num_nodes
        rng = np.random.default_rng(seed)
        return self.around(own_share(rng.choice(n, size=min(num_graphs, n), replace=False)))

    def around(self, centres: Sequence[int] | np.ndarray) -> GraphBatch:
        """The sub-graphs of ``hops`` hops around these nodes."""
        n, device = self.graph.num_nodes, self.graph.device
        start = torch.from_numpy(np.asarray(centres, dtype=np.int64)).to(device)
        # A node of the i-th sub-graph is known by the number i * n + its place in the large graph.
        members = torch.arange(len(start), device=device) * n + start  # ascending throughout
        frontier = members
        for _ in range(self.hops):
            place, edge = _neighbours(self._walk, frontier % n)
            reached = torch.unique(frontier[place] // n * n + self._walk_to[edge])
            frontier = reached[~_among(reached, members)[0]]
            members = torch.cat([members, frontier]).sort().values
        return self._induced(members, len(start))

    def _induced(self, members: Tensor, num_graphs: int) -> GraphBatch:
        n = self.graph.num_nodes
        nodes, batch = members % n, members // n
        source, slot = _neighbours(self._out, nodes)
        edge = self._order[slot]
        inside, target = _among(batch[source] * n + self.graph.edge_index[1, edge], members)
        kept = inside.nonzero().squeeze(1)
        chosen = edge[kept]

        def of_kept(values: Tensor | None) -> Tensor | None:
            return None if values is None else values.index_select(0, chosen)

        return GraphBatch(
            x=self.graph.x.index_select(0, nodes),
            edge_index=torch.stack([source[kept], target[kept]]),
            batch=batch,
            num_graphs=num_graphs,
            edge_weight=of_kept(self.graph.edge_weight),
            origin=nodes,
            edge_attr=of_kept(self.graph.edge_attr),
        )


def _rows(ascending: Tensor, num_rows: int) -> Tensor:
    """Where each row's entries begin in a list sorted by row, and the end, ``[num_rows + 1]``."""
    return torch.searchsorted(ascending, torch.arange(num_rows + 1, device=ascending.device))


def _neighbours(rows: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of these nodes' rows: which of ``nodes`` each belongs to, and its place."""
    first = rows[nodes]
    count = rows[nodes + 1] - first
    owner = torch.arange(len(nodes), device=nodes.device).repeat_interleave(count)
    before = count.cumsum(0) - count
    return owner, torch.arange(len(owner), device=nodes.device) + (first - before)[owner]


def _among(values: Tensor, ascending: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each value is in the ascending list, and where."""
    place = torch.searchsorted(ascending, values).clamp(max=len(ascending) - 1)
    return ascending[place] == values, place
