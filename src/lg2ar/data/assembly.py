"""Graphs as a file or a library lists them, with attributes of any kind, made one data set."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from lg2ar.config import Level
from lg2ar.data.attributes import (
    Row,
    Sorter,
    as_target,
    gather,
    label_name,
    settle_labels,
    short,
    spread_targets,
)
from lg2ar.data.columns import Column
from lg2ar.data.dataset import Dataset
from lg2ar.data.edge_lists import SettledEdges, settle_edges
from lg2ar.data.reading import ReadOptions
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch


@dataclass
class ListedGraph:
    """One graph as it is listed.

    Attributes:
        where: What to call it in messages: a file, a place in it.
        name: What it is called itself; None where nothing says.
        directed: Whether its edges point one way, unless one says otherwise.
        nodes: The attributes of each node by its id.
        edges: Source, target, attributes, whether it points one way, and its place in the file.
        attributes: Of the graph itself.
        edge_place: How a message calls an edge at that place.
    """

    where: str
    name: str | None = None
    directed: bool = False
    nodes: dict[Hashable, Row] = field(default_factory=dict)
    edges: list[tuple[Hashable, Hashable, Row, bool, int]] = field(default_factory=list)
    attributes: Row = field(default_factory=dict)
    edge_place: str = "line {}"

    def add_node(self, name: Hashable, row: Row, place: str) -> None:
        """Add a node.

        Args:
            name: Its id.
            row: Its attributes.
            place: Where it is listed, for a message: ``line 3``.
        """
        if name in self.nodes:
            raise InputError(
                f"{self.where}: {place} lists node {short(name)} for the second time; give every "
                "node an id of its own."
            )
        self.nodes[name] = row

    def ends(self) -> np.ndarray:
        """Source and target of each edge as places in the list of nodes, ``[edges, 2]``."""
        place = {name: number for number, name in enumerate(self.nodes)}
        try:
            flat = [place[end] for edge in self.edges for end in edge[:2]]
        except KeyError:
            source, target, *_, where = next(
                edge for edge in self.edges if edge[0] not in place or edge[1] not in place
            )
            lost = source if source not in place else target
            raise InputError(
                f"{self.where}: {self.edge_place.format(where)} names node {short(lost)}, which "
                "is not listed; list it, or remove the edge."
            ) from None
        return np.array(flat, dtype=np.int64).reshape(-1, 2)


def assemble(graphs: Sequence[ListedGraph], name: str, options: ReadOptions, where: str) -> Dataset:
    """Put listed graphs side by side.

    Attributes of nodes and edges become columns; lists of numbers of one length become features
    as they are. Attributes of graphs (at node level: the attribute with the labels) become targets
    and labels. What becomes of edges, weights and labels is the same as for tables.

    Args:
        graphs: At least one.
        name: What to call the data.
        options: How to read it.
        where: What to call it in messages.
    """
    for graph in graphs:
        if not graph.nodes:
            raise InputError(f"{graph.where}: has no nodes; give it one, or remove it.")
    level = options.level or ("node" if len(graphs) == 1 else "graph")
    notes: list[str] = []
    nodes = gather([row for graph in graphs for row in graph.nodes.values()], "nodes", where)
    edges = gather([edge[2] for graph in graphs for edge in graph.edges], "edges", where)
    owned = nodes
    if level == "graph":
        owned = gather([graph.attributes for graph in graphs], "graphs", where)
    labels = label_name(options.labels, owned, where, f"{level}s")
    kept = [key for key in owned if level == "graph" or key in (labels, *options.ignore)]
    targets = {key: as_target(values) for key, values in spread_targets(owned, kept).items()}
    if labels is not None and level == "node":
        del nodes[labels]
    columns = Sorter(where, options, notes)
    weight = columns.weight(edges)
    node_columns, x = columns.sort(nodes, "nodes", *_rows(graphs, "nodes"))
    edge_columns, edge_attr = columns.sort(edges, "edges", *_rows(graphs, "edges"))
    columns.tell_unused()
    settled = _settle(graphs, options.directed, [*edge_columns, *weight, *_as_columns(edge_attr)])
    notes[:0] = settled.notes
    y, classes = settle_labels(labels, options.labels, targets, notes)
    return Dataset(
        name=name,
        level=level,
        graph=_batch(graphs, level, x, settled, weight, edge_attr).validate(where),
        y=y,
        ids=_ids(graphs, level),
        node_columns=node_columns,
        edge_columns=tuple(column.take(settled.row) for column in edge_columns),
        classes=classes,
        targets=targets,
        notes=tuple(f"{where}: {note}" for note in notes),
        reading=options.remembered(labels=labels, weight=weight[0].name if weight else None),
    )


def _batch(
    graphs: Sequence[ListedGraph],
    level: Level,
    x: Tensor,
    settled: SettledEdges,
    weight: Sequence[Column],
    edge_attr: Tensor,
) -> GraphBatch:
    """The graphs as tensors; at node level several are one graph of several parts."""
    sizes = torch.tensor([len(graph.nodes) for graph in graphs])
    batch = torch.arange(len(graphs)).repeat_interleave(sizes)
    one = level == "node"
    return GraphBatch(
        x=x,
        edge_index=torch.from_numpy(np.ascontiguousarray(settled.index)),
        batch=torch.zeros_like(batch) if one else batch,
        num_graphs=1 if one else len(graphs),
        edge_weight=torch.from_numpy(weight[0].values[settled.row]).float() if weight else None,
        edge_attr=edge_attr[torch.from_numpy(settled.row)] if edge_attr.size(1) else None,
    )


def _settle(
    graphs: Sequence[ListedGraph], directed: bool | None, columns: Sequence[Column]
) -> SettledEdges:
    """The edges of all graphs as the method wants them, each in the direction it says."""
    sizes = np.array([len(graph.nodes) for graph in graphs])
    counts = np.array([len(graph.edges) for graph in graphs])
    first = np.repeat(sizes.cumsum() - sizes, counts)
    source, target = (np.concatenate([graph.ends() for graph in graphs]) + first[:, None]).T
    one_way = np.array([edge[3] for graph in graphs for edge in graph.edges], dtype=bool)
    total, told = int(sizes.sum()), "as asked for"
    if directed is None and one_way.any() and not one_way.all():
        # Those that lead both ways are listed once more, turned round.
        back = np.flatnonzero(~one_way)
        row = np.concatenate([np.arange(len(source)), back])
        ends = np.concatenate([[source, target], [target[back], source[back]]], axis=1)
        listed = [column.take(row) for column in columns]
        made = settle_edges(ends[0], ends[1], total, listed, directed=True)
        note = "Some edges are directed and some undirected, as they are marked."
        return replace(made, row=row[made.row], notes=(note, *made.notes))
    if directed is None:
        told = "as they are marked"
        directed = bool(one_way.all()) if len(one_way) else graphs[0].directed
    made = settle_edges(source, target, total, columns, directed=directed)
    how = "directed" if directed else "undirected"
    return replace(made, notes=(f"Edges are {how}, {told}.", *made.notes))


def _as_columns(rows: Tensor) -> list[Column]:
    return [Column.numbers(str(place), values) for place, values in enumerate(rows.numpy().T)]


def _rows(graphs: Sequence[ListedGraph], what: str) -> tuple[int, Callable[[int], str]]:
    """How many nodes or edges there are, and what to call one of them in a message."""
    sizes = [len(graph.nodes if what == "nodes" else graph.edges) for graph in graphs]

    def name(row: int) -> str:
        for graph, size in zip(graphs, sizes, strict=True):
            if row < size:
                if what == "nodes":
                    return f"{graph.where}: node {short(list(graph.nodes)[row])}"
                return f"{graph.where}: {graph.edge_place.format(graph.edges[row][4])}"
            row -= size
        return "the data"

    return sum(sizes), name


def _ids(graphs: Sequence[ListedGraph], level: str) -> tuple[str, ...] | None:
    if level == "graph":
        names = [graph.name for graph in graphs]
        if None in names or len(set(names)) < len(names):
            return None
        return tuple(str(name) for name in names)
    if len(graphs) > 1:
        homes = [graph.name or str(place) for place, graph in enumerate(graphs)]
        pairs = zip(homes, graphs, strict=True)
        return tuple(f"{home}/{node}" for home, graph in pairs for node in graph.nodes)
    ids = tuple(str(name) for name in graphs[0].nodes)
    if len(set(ids)) < len(ids):
        raise InputError(
            f"{graphs[0].where}: two nodes have ids that are the same as text (1 and '1' for "
            "example); give every node an id of its own."
        )
    return ids
