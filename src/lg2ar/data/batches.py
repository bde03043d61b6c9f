"""Batches of many graphs, and of graphs that lie on the device by index arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from lg2ar.distributed import own_share
from lg2ar.graph import GraphBatch


class Store(ABC):
    """All graphs of a data set, any of which become a batch.

    Attributes:
        num_nodes: Number of nodes of each graph, shape ``[B]``.
        num_edges: Number of listed edges of each graph, shape ``[B]``.
    """

    num_nodes: np.ndarray
    num_edges: np.ndarray

    def __len__(self) -> int:
        return len(self.num_nodes)

    @property
    @abstractmethod
    def graph(self) -> GraphBatch:
        """All graphs side by side, in memory."""

    @abstractmethod
    def select(self, index: Sequence[int] | np.ndarray | Tensor) -> GraphBatch:
        """The graphs at these places, in this order; ``origin`` points into the store."""

    def epoch(self, batch_size: int, seed: int) -> Iterator[GraphBatch]:
        """All graphs in random order, in batches; never a batch of one, which has no negatives.

        Of a batch that is shared out among processes, this one's share.
        """
        for places in epoch_batches(len(self), batch_size, seed):
            yield self.select(own_share(places))

    def chunks(self, budget: int) -> Iterator[GraphBatch]:
        """All graphs in their own order, in batches of at most ``budget`` nodes and edges.

        A graph larger than the budget is a batch by itself.
        """
        start, used = 0, 0
        for place, cost in enumerate((self.num_nodes + self.num_edges).tolist()):
            if place > start and used + cost > budget:
                yield self.select(np.arange(start, place))
                start, used = place, 0
            used += cost
        yield self.select(np.arange(start, len(self)))


def as_store(graph: GraphBatch | Store, device: torch.device | str = "cpu") -> Store:
    """Graphs that batches can be made of, with the batches on this device.

    Graphs on a disk stay there; a store is returned as it is.
    """
    from lg2ar.data.mapped import MappedGraph, MappedStore
    from lg2ar.data.on_disk import DiskStore, GraphsOnDisk

    if isinstance(graph, Store):
        return graph
    if isinstance(graph, MappedGraph):
        return MappedStore(graph, device)
    return (
        DiskStore(graph, device) if isinstance(graph, GraphsOnDisk) else GraphStore(graph, device)
    )


class GraphStore(Store):
    """All graphs of a data set on one device; any of them become a batch without a loop.

    How large each graph is is also known on the host, so that no size is read back.

    Args:
        graph: All graphs, features included.
        device: Where they are to lie.
    """

    def __init__(self, graph: GraphBatch, device: torch.device | str = "cpu") -> None:
        edge_graph = graph.batch[graph.edge_index[0]]
        order = edge_graph.argsort(stable=True)
        weight, attributes = graph.edge_weight, graph.edge_attr
        self._graph = graph.replace(
            edge_index=graph.edge_index[:, order],
            edge_weight=None if weight is None else weight[order],
            edge_attr=None if attributes is None else attributes[order],
        ).to(device)
        graphs = torch.arange(graph.num_graphs + 1, device=graph.device)
        node_ptr, edge_ptr = graph.ptr, torch.searchsorted(edge_graph[order], graphs)
        self.num_nodes = node_ptr.diff().cpu().numpy()  # of each graph
        self.num_edges = edge_ptr.diff().cpu().numpy()
        self._node_ptr, self._edge_ptr = node_ptr.to(device), edge_ptr.to(device)

    @property
    def graph(self) -> GraphBatch:
        """All graphs side by side, their edges graph by graph."""
        return self._graph

    def select(self, index: Sequence[int] | np.ndarray | Tensor) -> GraphBatch:
        """The graphs at these places, in this order; ``origin`` points into the store."""
        places = np.asarray(index, dtype=np.int64)
        chosen = torch.from_numpy(places).to(self.graph.device)
        nodes, batch, node_shift = _ranges(
            self._node_ptr, chosen, int(self.num_nodes[places].sum())
        )
        edges, edge_batch, _ = _ranges(self._edge_ptr, chosen, int(self.num_edges[places].sum()))
        weight, attributes = self.graph.edge_weight, self.graph.edge_attr
        return GraphBatch(
            x=self.graph.x.index_select(0, nodes),
            edge_index=self.graph.edge_index.index_select(1, edges) + node_shift[edge_batch],
            batch=batch,
            num_graphs=len(places),
            edge_weight=None if weight is None else weight.index_select(0, edges),
            origin=nodes,
            edge_attr=None if attributes is None else attributes.index_select(0, edges),
        )


def none_of(graph: GraphBatch) -> GraphBatch:
    """A batch of no graphs that is otherwise like this one."""
    weight, origin, attributes = graph.edge_weight, graph.origin, graph.edge_attr
    return graph.replace(
        x=graph.x[:0],
        edge_index=graph.edge_index[:, :0],
        batch=graph.batch[:0],
        num_graphs=0,
        edge_weight=None if weight is None else weight[:0],
        origin=None if origin is None else origin[:0],
        edge_attr=None if attributes is None else attributes[:0],
    )


def epoch_batches(number: int, batch_size: int, seed: int) -> list[np.ndarray]:
    """So many graphs in random order, in batches; never a batch of one."""
    order = np.random.default_rng(seed).permutation(number)
    starts = list(range(0, number, batch_size))
    if len(starts) > 1 and number - starts[-1] == 1:
        starts.pop()
    return [order[start:end] for start, end in zip(starts, [*starts[1:], number], strict=True)]


def _ranges(ptr: Tensor, chosen: Tensor, total: int) -> tuple[Tensor, Tensor, Tensor]:
    """Concatenate the ranges ``ptr[c] .. ptr[c + 1]`` of the chosen segments.

    Returns:
        The indices ``[total]``, the place of the segment each belongs to ``[total]``, and how far
        each segment moved ``[len(chosen)]``.
    """
    count = ptr[chosen + 1] - ptr[chosen]
    new_start = count.cumsum(0) - count
    shift = new_start - ptr[chosen]
    places = torch.arange(len(chosen), device=ptr.device)
    segment = places.repeat_interleave(count, output_size=total)
    return torch.arange(total, device=ptr.device) - shift[segment], segment, shift
