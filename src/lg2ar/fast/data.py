"""A data set on the device in the form the captured step reads, and batches of it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lg2ar.fast.kernels import collation
from lg2ar.fast.network import HUB
from lg2ar.fast.structure import Structure
from lg2ar.graph import GraphBatch

# Sizes of padded batches are whole multiples of these.
NODES, PAIRS = 64, 64


class PairData:
    """All graphs of a data set by their joined pairs of nodes.

    Args:
        graph: All graphs, features included: undirected, without loops, repetitions or weights.
        ratio: Share of nodes that node dropping keeps.
        device: Where they are to lie.
    """

    def __init__(self, graph: GraphBatch, ratio: float, device: torch.device) -> None:
        graph = graph.to(device)  # where sorting is quick
        self.x = graph.x.float().contiguous()
        ptr = graph.ptr
        source, target = graph.edge_index
        up = source < target
        u, v = source[up], target[up]
        home = graph.batch[u]
        first = ptr[home]
        key = (v - first) * (v - first - 1) // 2 + (u - first)
        most = graph.sizes.max() ** 2
        order = (home * most + key).argsort()
        u, v, home, key, first = (value[order] for value in (u, v, home, key, first))
        graphs = torch.arange(graph.num_graphs + 1, device=device)
        pair_ptr = torch.searchsorted(home, graphs)
        rank = torch.arange(len(u), device=device) - pair_ptr[home]
        # Entries of the rows: every pair at both of its ends.
        at, other = torch.cat([u, v]), torch.cat([v, u])
        order = (at * graph.num_nodes + other).argsort()
        home_of_entry = home.repeat(2)[order]
        nodes = torch.arange(graph.num_nodes, device=device)
        start = torch.searchsorted(at[order].contiguous(), nodes) - 2 * pair_ptr[graph.batch]

        def small(value: Tensor) -> Tensor:
            return value.to(torch.int32).contiguous()

        self.ptr, self.pair_ptr = small(ptr), small(pair_ptr)
        self.start = small(start)
        self.u, self.v, self.gap = small(u - first), small(v - first), small(key - rank)
        self.col = small(other[order] - ptr[home_of_entry])
        self.pair = small(rank.repeat(2)[order])
        sizes = graph.sizes
        wanted = (ratio * sizes.double() - 1e-9).ceil().long().clamp(min=1)
        self.wanted = small(wanted)
        self.num_nodes = sizes.cpu().numpy()
        self.num_pairs = pair_ptr.diff().cpu().numpy()
        self.largest_degree = int(torch.bincount(at, minlength=1).max()) if len(at) else 0
        self.search = max(1, math.ceil(math.log2(int(self.num_pairs.max(initial=1)) + 1)) + 1)
        self.device = device

    def batch(
        self, order: Tensor, ptr: Tensor, pair_ptr: Tensor, nodes: int, pairs: int
    ) -> tuple[Tensor, Structure]:
        """Features and structure of the chosen graphs of every run.

        Args:
            order: Places of the graphs, ``[S, B]``.
            ptr: Where their nodes begin, ``[S, B + 1]``.
            pair_ptr: Where their pairs begin, ``[S, B + 1]``.
            nodes: Rows to pad the nodes to.
            pairs: Places to pad the pairs to.
        """
        runs, graphs = order.shape
        width = self.x.size(1)
        x = self.x.new_empty(runs, nodes, width)

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.int32, device=self.device)

        home, row = empty(runs, nodes), empty(runs, nodes + 1)
        u, v, gap, graph_of_pair = (empty(runs, pairs) for _ in range(4))
        col, pair = (empty(runs, 2 * pairs) for _ in range(2))
        block = min(128, 1 << (max(1, width) - 1).bit_length())
        collation.collate_nodes[(runs, graphs + 1)](
            order,
            ptr,
            self.ptr,
            self.x,
            self.start,
            pair_ptr,
            x,
            home,
            row,
            nodes,
            graphs,
            width,
            BR=32,
            BD=block,
        )
        collation.collate_pairs[(runs, graphs + 1, 8)](
            order,
            ptr,
            pair_ptr,
            self.pair_ptr,
            self.u,
            self.v,
            self.gap,
            self.col,
            self.pair,
            u,
            v,
            gap,
            graph_of_pair,
            col,
            pair,
            pairs,
            graphs,
            PARTS=8,
            BP=256,
        )
        sizes = ptr.diff(dim=1).float().contiguous()
        structure = Structure(
            ptr,
            home,
            sizes,
            row,
            col,
            pair,
            u,
            v,
            graph_of_pair,
            pair_ptr,
            gap,
            order,
            hubs=self.largest_degree > HUB,
        )
        return x, structure
