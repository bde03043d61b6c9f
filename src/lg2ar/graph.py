"""A batch of graphs as flat tensors, and what an encoder makes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lg2ar.adjacency import Adjacency
from lg2ar.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch_geometric.data import Batch, Data


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """Graphs side by side: inputs and augmented views alike.

    A *view* is a batch like any other; ``origin`` says where its nodes came from. Nothing here is
    ever changed in place: a head that cuts a view makes a new batch.

    Attributes:
        x: Node features, shape ``[N, d_x]``.
        edge_index: Source and target of every edge, shape ``[2, E]``; an undirected edge is listed
            in both directions.
        batch: The graph of each node, ascending, shape ``[N]``.
        num_graphs: How many graphs there are, ``B``.
        edge_weight: Weight of each edge, shape ``[E]``; None means that all weigh one.
        origin: For each node its index in the batch (or the large graph) this one was cut from,
            shape ``[N]``; None when it was not cut from anything.
        edge_attr: Attributes of each edge, shape ``[E, d_e]``; None when edges have none. Both
            directions of an undirected edge have the same.

    Examples:
        >>> graph = GraphBatch(  # two nodes that are joined, and one alone
        ...     x=torch.ones(3, 1),
        ...     edge_index=torch.tensor([[0, 1], [1, 0]]),
        ...     batch=torch.tensor([0, 0, 1]),
        ...     num_graphs=2,
        ... )
        >>> graph.sizes.tolist(), graph.num_edges
        ([2, 1], 2)
    """

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    num_graphs: int
    edge_weight: Tensor | None = None
    origin: Tensor | None = None
    edge_attr: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs together, ``N``."""
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        """Number of listed edges of all graphs together, ``E``."""
        return self.edge_index.size(1)

    @property
    def num_features(self) -> int:
        """Width of the node features, ``d_x``."""
        return self.x.size(1)

    @property
    def num_edge_features(self) -> int:
        """Width of the edge attributes, ``d_e``; zero where there are none."""
        return 0 if self.edge_attr is None else self.edge_attr.size(1)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.x.device

    @cached_property
    def ptr(self) -> Tensor:
        """Where each graph's nodes begin, and the end of the last, shape ``[B + 1]``."""
        graphs = torch.arange(self.num_graphs + 1, device=self.device)
        return torch.searchsorted(self.batch, graphs)

    @cached_property
    def sizes(self) -> Tensor:
        """Number of nodes of each graph, shape ``[B]``."""
        return self.ptr.diff()

    @cached_property
    def adjacency(self) -> Adjacency:
        """The edges as compressed rows, for products with node rows."""
        return Adjacency(self.edge_index, self.num_nodes)

    def weights(self) -> Tensor:
        """The edge weights, ones where none were given, shape ``[E]``."""
        if self.edge_weight is None:
            return self.x.new_ones(self.num_edges)
        return self.edge_weight

    def replace(self, **changes: Any) -> GraphBatch:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> GraphBatch:
        """A copy on another device, and with floating-point tensors of another type."""

        def index(value: Tensor | None) -> Tensor | None:
            return None if value is None else value.to(device)

        def floating(value: Tensor | None) -> Tensor | None:
            return None if value is None else value.to(device, dtype)

        return self.replace(
            x=floating(self.x),
            edge_index=index(self.edge_index),
            batch=index(self.batch),
            edge_weight=floating(self.edge_weight),
            origin=index(self.origin),
            edge_attr=floating(self.edge_attr),
        )

    def validate(self, name: str = "the batch") -> GraphBatch:
        """Check everything the method relies on; meant for the borders, as it reads values back.

        Args:
            name: What to call the data in a message.

        Returns:
            The batch itself.

        Raises:
            InputError: Naming what is wrong, where, and what to do.
        """
        _check_types(self, name)
        _check_structure(self, name)
        _check_values(self, name)
        return self

    @classmethod
    def from_pyg(cls, data: Data | Batch, name: str = "the batch") -> GraphBatch:
        """Read a PyG ``Data`` (one graph) or ``Batch`` (many) without a loop over graphs.

        Node count is PyG's own, so isolated nodes stay. A graph without features gets a constant
        one; ``edge_weight`` and ``edge_attr`` are taken along where there are some.
        """
        num_nodes = data.num_nodes
        if num_nodes is None:
            raise InputError(f"{name} does not say how many nodes it has; set num_nodes or x.")
        x, edge_index, batch = data.x, data.edge_index, getattr(data, "batch", None)
        device = next((value.device for value in (x, edge_index) if value is not None), None)
        if edge_index is None:
            edge_index = torch.empty(2, 0, dtype=torch.long, device=device)
        if x is None:
            x = torch.ones(num_nodes, 1, device=device)
        if batch is None:
            batch = torch.zeros(num_nodes, dtype=torch.long, device=device)
        counted = int(batch.max()) + 1 if batch.numel() else 0
        num_graphs = int(getattr(data, "num_graphs", counted))  # a plain Data does not tell
        attributes = getattr(data, "edge_attr", None)
        graph = cls(
            x=_columns(x),
            edge_index=edge_index,
            batch=batch,
            num_graphs=num_graphs,
            edge_weight=getattr(data, "edge_weight", None),
            edge_attr=None if attributes is None else _columns(attributes),
        )
        return graph.validate(name)

    @classmethod
    def from_data_list(cls, graphs: Sequence[Data], name: str = "the batch") -> GraphBatch:
        """Read a list of PyG graphs; PyG's own collation puts them side by side."""
        return cls.from_pyg(collate(graphs, name), name)

    def to_pyg(self) -> Batch:
        """The same graphs as a PyG ``Batch``, which ``to_data_list`` takes apart again."""
        from torch_geometric.data import Batch

        # PyG slices a batch by where each graph's rows begin, so edges must lie graph by graph.
        edge_graph = self.batch[self.edge_index[0]]
        order = edge_graph.argsort(stable=True)
        edge_ptr = torch.searchsorted(
            edge_graph[order], torch.arange(self.num_graphs + 1, device=self.device)
        )
        ptr, offset = self.ptr, torch.zeros(self.num_graphs, dtype=torch.long)
        fields = {"x": self.x, "edge_index": self.edge_index[:, order]}
        slices, increments = {"x": ptr, "edge_index": edge_ptr}, {"x": offset, "edge_index": ptr}
        for name in ("edge_weight", "edge_attr"):
            value = getattr(self, name)
            if value is not None:
                fields[name] = value[order]
                slices[name], increments[name] = edge_ptr, offset
        if self.origin is not None:
            fields["origin"] = self.origin
            slices["origin"], increments["origin"] = ptr, offset
        batch = Batch(batch=self.batch, ptr=ptr, **fields)
        batch._num_graphs = self.num_graphs
        batch._slice_dict = {key: value.cpu() for key, value in slices.items()}
        batch._inc_dict = {key: value.cpu() for key, value in increments.items()}
        return batch


@dataclass(frozen=True, eq=False)
class Encoding:
    """What an encoder makes of a batch.

    Attributes:
        nodes: One row per node, shape ``[N, d_h]``.
        graphs: One row per graph, shape ``[B, d_h]``.
    """

    nodes: Tensor
    graphs: Tensor


def collate(graphs: Sequence[Data], name: str = "the batch") -> Batch:
    """Put PyG graphs side by side, once it is clear that they have the same fields.

    PyG itself goes by the first graph: what only a later one has would be lost without a word.
    """
    from torch_geometric.data import Batch

    graphs = list(graphs)
    if not graphs:
        raise InputError(f"{name} holds no graphs; give at least one.")
    first = _fields(graphs[0])
    for place, graph in enumerate(graphs):
        for what, value in _fields(graph).items():
            if value != first[what]:
                raise InputError(
                    f"{name}: graph {place} has {what}: {value}, graph 0 has {first[what]}; "
                    "make them alike."
                )
    read = ("x", "edge_index", "edge_weight", "edge_attr", "y", "num_nodes")
    unread = {key for graph in graphs for key in graph.keys() if key not in read}  # noqa: SIM118
    return Batch.from_data_list(graphs, exclude_keys=sorted(unread))


def _fields(graph: Data) -> dict[str, str]:
    """What must be the same in all graphs of a list."""
    return {
        "node features": str(_width(graph.x)),
        "edges": "none" if graph.edge_index is None else "some or an empty list",
        "edge weights": "none" if graph.get("edge_weight") is None else "one per edge",
        "edge attributes": str(_width(graph.get("edge_attr"))),
        "labels": "none" if graph.get("y") is None else "some",
    }


def _width(rows: Tensor | None) -> int:
    """Numbers in each row of what PyG holds, where a plain list is rows of one."""
    return 0 if rows is None else 1 if rows.dim() == 1 else rows.size(1)


def _columns(rows: Tensor) -> Tensor:
    """A matrix of what PyG holds, where a plain list is rows of one."""
    return rows.unsqueeze(-1) if rows.dim() == 1 else rows


def _check_types(graph: GraphBatch, name: str) -> None:
    x, edge_index, batch = graph.x, graph.edge_index, graph.batch
    if x.dim() != 2 or not x.is_floating_point():
        raise InputError(
            f"{name}: x must be a floating-point matrix [nodes, features], not {_kind(x)}; "
            "convert it with x.float()."
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype != torch.long:
        raise InputError(
            f"{name}: edge_index must be an int64 matrix [2, edges], not {_kind(edge_index)}; "
            "turn it that way, and convert it with edge_index.long()."
        )
    if batch.dtype != torch.long or batch.shape != (graph.num_nodes,):
        raise InputError(
            f"{name}: batch must hold one int64 graph number per node ({graph.num_nodes}), "
            f"not {_kind(batch)}."
        )
    weight = graph.edge_weight
    if weight is not None and (
        not weight.is_floating_point() or weight.shape != (graph.num_edges,)
    ):
        raise InputError(
            f"{name}: edge_weight must hold one floating-point number per edge "
            f"({graph.num_edges}), not {_kind(weight)}."
        )
    attributes = graph.edge_attr
    if attributes is not None and (
        not attributes.is_floating_point()
        or attributes.dim() != 2
        or attributes.size(0) != graph.num_edges
    ):
        raise InputError(
            f"{name}: edge_attr must be a floating-point matrix with one row per edge "
            f"({graph.num_edges}), not {_kind(attributes)}; convert it with edge_attr.float()."
        )


def _check_structure(graph: GraphBatch, name: str) -> None:
    batch, edge_index = graph.batch, graph.edge_index
    if graph.num_graphs < 1:
        raise InputError(f"{name} holds no graphs; give at least one.")
    if batch.numel() and bool((batch.diff() < 0).any()):
        raise InputError(f"{name}: batch must be ascending; sort the nodes by graph.")
    if batch.numel() and not 0 <= int(batch[0]) <= int(batch[-1]) < graph.num_graphs:
        raise InputError(
            f"{name}: batch holds graph numbers {int(batch[0])} to {int(batch[-1])}, "
            f"outside 0 to {graph.num_graphs - 1}."
        )
    # Found without a list of all graph numbers, which a damaged file may let grow at will.
    before = torch.cat([batch.new_tensor([-1]), batch])
    gaps = (before.diff() > 1).nonzero()
    missing = int(before[gaps[0] if gaps.numel() else -1]) + 1
    if missing < graph.num_graphs:
        raise InputError(f"{name}: graph {missing} has no nodes; remove it.")
    if graph.num_edges == 0:
        return
    low, high = int(edge_index.min()), int(edge_index.max())
    if low < 0 or high >= graph.num_nodes:
        outside = (edge_index < 0) | (edge_index >= graph.num_nodes)
        edge = int(outside.any(0).nonzero()[0])
        node = int(edge_index[outside[:, edge], edge][0])
        raise InputError(
            f"{name}: edge {edge} names node {node}, outside 0 to {graph.num_nodes - 1}; "
            "correct edge_index."
        )
    crossing = (batch[edge_index[0]] != batch[edge_index[1]]).nonzero()
    if crossing.numel():
        raise InputError(f"{name}: edge {int(crossing[0])} joins two different graphs; remove it.")


def _check_values(graph: GraphBatch, name: str) -> None:
    bad = (~graph.x.isfinite()).any(1).nonzero()
    if bad.numel():
        node = int(bad[0])
        raise InputError(
            f"{name}: the features of node {node} (graph {int(graph.batch[node])}) are not all "
            "finite; replace NaN and infinity, or drop that node."
        )
    if graph.edge_weight is not None:
        bad = (~graph.edge_weight.isfinite()).nonzero()
        if bad.numel():
            raise InputError(f"{name}: the weight of edge {int(bad[0])} is not finite; replace it.")
    if graph.edge_attr is not None:
        bad = (~graph.edge_attr.isfinite()).any(1).nonzero()
        if bad.numel():
            raise InputError(
                f"{name}: the attributes of edge {int(bad[0])} are not all finite; replace NaN and "
                "infinity, or drop that edge."
            )


def _kind(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
