"""From ids of any kind to numbers: which graphs and nodes tables speak of, and which edges join."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lg2ar.data.columns import Column
from lg2ar.data.table_files import Table
from lg2ar.errors import InputError

# What pandas makes of its index when it writes a table.
UNNAMED = ("", "Unnamed: 0")


@dataclass(frozen=True, eq=False)
class Ids:
    """A table, and its columns of ids where it has them.

    Attributes:
        table: The table.
        graph: Column that says which graph a row belongs to.
        node: Column with the id of a node (of nodes alone).
        source: Column with the id of an edge's source (of edges alone).
        target: Column with the id of its target (of edges alone).
        categories: Columns whose values are categories, whatever they look like.
    """

    table: Table
    graph: str | None = None
    node: str | None = None
    source: str | None = None
    target: str | None = None
    categories: tuple[str, ...] = ()

    @property
    def others(self) -> list[str]:
        """The columns that hold no ids; one without a name is a row number that was left."""
        ids = (self.graph, self.node, self.source, self.target)
        names = self.table.names
        return [name for name in names if name not in ids and name not in UNNAMED]

    def column(self, name: str) -> Column:
        """A column as numbers or categories."""
        return self.table.column(name, category=name in self.categories)


@dataclass(frozen=True, eq=False)
class Numbered:
    """Nodes and graphs by number.

    Attributes:
        graph: The number of each node's graph, ascending, ``[N]``.
        ids: What each node is called, ``[N]``.
        graph_ids: What each graph is called, ``[B]``; None where there is one without a name.
        row: The row of each node in the table of nodes, ``[N]``; None without such a table.
        source: A node for each row of the table of edges.
        target: Another one.
        notes: What was taken for granted.
    """

    graph: np.ndarray
    ids: np.ndarray
    graph_ids: np.ndarray | None
    row: np.ndarray | None
    source: np.ndarray
    target: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def num_graphs(self) -> int:
        """How many graphs there are."""
        return 1 if self.graph_ids is None else len(self.graph_ids)


def number_nodes(edges: Ids, nodes: Ids | None, graphs: Ids | None) -> Numbered:
    """Number graphs, nodes and the ends of edges.

    Graphs come in the order of their table, else of that of nodes, else of that of edges; so do
    the nodes of a graph.

    Raises:
        InputError: Where an id is there twice, or names what is not there.
    """
    if nodes is None:
        return _from_edges(edges, graphs)
    if nodes.graph is None and edges.graph is not None:
        raise InputError(
            f"{nodes.table.name}: has no column of graph ids, though {edges.table.name} has "
            f"'{edges.graph}'; add it, or name it with --column graph=NAME."
        )
    home, graph_ids = _graph_numbers(nodes, graphs)
    notes: tuple[str, ...] = ()
    if nodes.node is not None:
        ids = nodes.table.texts(nodes.node)
    elif nodes.graph is None:
        ids = np.array([str(place) for place in range(len(nodes.table))], dtype=object)
        notes = (f"{nodes.table.name}: has no column of ids; its rows are numbered from 0.",)
    else:
        raise InputError(
            f"{nodes.table.name}: line 1 names no column of node ids (such as node_id); add it, or "
            "name it with --column node=NAME."
        )
    order = np.argsort(home, kind="stable")
    source, target = _ends(edges, nodes, home, ids, graph_ids)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Numbered(
        graph=home[order],
        ids=ids[order],
        graph_ids=graph_ids,
        row=order,
        source=place[source],
        target=place[target],
        notes=notes,
    )


def _from_edges(edges: Ids, graphs: Ids | None) -> Numbered:
    """The nodes are those that the edges name."""
    import pandas as pd

    table = edges.table
    if not len(table):
        raise InputError(
            f"{table.name}: has no rows after line 1, and there is no table of nodes; add edges, "
            "or the nodes."
        )
    home, graph_ids = _graph_numbers(edges, graphs)
    both = np.stack([table.texts(edges.source or ""), table.texts(edges.target or "")], axis=1)
    names, values = pd.factorize(both.reshape(-1))
    keys = np.repeat(home, 2) * len(values) + names
    ends, first = pd.factorize(keys)  # nodes in order of appearance
    graph = first // len(values)
    order = np.argsort(graph, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    ends = place[ends].reshape(-1, 2)
    return Numbered(
        graph=graph[order],
        ids=np.asarray(values, dtype=object)[first[order] % len(values)],
        graph_ids=graph_ids,
        row=None,
        source=ends[:, 0],
        target=ends[:, 1],
    )


def _graph_numbers(rows: Ids, graphs: Ids | None) -> tuple[np.ndarray, np.ndarray | None]:
    """The number of each row's graph, and what graphs are called."""
    import pandas as pd

    table = rows.table
    if graphs is None:
        if rows.graph is None:
            return np.zeros(len(table), dtype=np.int64), None
        home, names = pd.factorize(table.texts(rows.graph))
        return home.astype(np.int64), np.asarray(names, dtype=object)
    if graphs.graph is None:
        raise InputError(
            f"{graphs.table.name}: line 1 names no column of graph ids (such as graph_id); add it, "
            "or name it with --column graph=NAME."
        )
    names = graphs.table.texts(graphs.graph)
    _refuse_twice(graphs.table, names, "graph")
    if rows.graph is None:
        if len(names) == 1:
            return np.zeros(len(table), dtype=np.int64), names
        raise InputError(
            f"{table.name}: has no column of graph ids, though {graphs.table.name} lists "
            f"{len(names)} graphs; add it, or name it with --column graph=NAME."
        )
    texts = table.texts(rows.graph)
    home = pd.Index(names, dtype=object).get_indexer(pd.Index(texts, dtype=object))
    _refuse_unknown(table, home, texts, "graph", graphs.table)
    empty = np.flatnonzero(np.bincount(home, minlength=len(names)) == 0)
    if len(empty):
        raise InputError(
            f"{graphs.table.place(int(empty[0]))} lists graph '{_short(names[empty[0]])}', which "
            f"has no row in {table.name}; remove it, or add its nodes."
        )
    return home.astype(np.int64), names


def _ends(
    edges: Ids, nodes: Ids, home: np.ndarray, ids: np.ndarray, graph_ids: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The row of the table of nodes that each end of each edge is."""
    import pandas as pd

    table = edges.table
    texts = table.texts(edges.source or ""), table.texts(edges.target or "")
    names, values = pd.factorize(np.concatenate([ids, *texts]))
    n, e = len(ids), len(table)
    own, ends = names[:n].astype(np.int64), names[n:].reshape(2, e).astype(np.int64)
    if edges.graph is not None and graph_ids is not None:
        graphs = table.texts(edges.graph)
        where = pd.Index(graph_ids, dtype=object).get_indexer(pd.Index(graphs, dtype=object))
        _refuse_unknown(table, where, graphs, "graph", nodes.table)
        ends = where * len(values) + ends
        own = home * len(values) + own
        _refuse_twice(nodes.table, own, "node", ids)
    elif len(np.unique(own)) < n:
        _refuse_twice(nodes.table, home * len(values) + own, "node", ids)
        row = int(np.flatnonzero(pd.Series(own).duplicated())[0])
        raise InputError(
            f"{nodes.table.place(row)} lists node '{_short(ids[row])}' of a second graph, and "
            f"{table.name} has no column of graph ids to tell them apart; add it."
        )
    place = pd.Index(own)
    found = [place.get_indexer(pd.Index(end)) for end in ends]
    for end, text in zip(found, texts, strict=True):
        _refuse_unknown(table, end, text, "node", nodes.table)
    crossing = np.flatnonzero(home[found[0]] != home[found[1]])
    if len(crossing):
        row = int(crossing[0])
        raise InputError(
            f"{table.place(row)} joins node '{_short(texts[0][row])}' and node "
            f"'{_short(texts[1][row])}' of two different graphs; remove it."
        )
    return found[0], found[1]


def _refuse_unknown(
    table: Table, place: np.ndarray, texts: np.ndarray, what: str, other: Table
) -> None:
    lost = np.flatnonzero(place < 0)
    if len(lost):
        row = int(lost[0])
        more = f", and {len(lost) - 1} more rows do so" if len(lost) > 1 else ""
        raise InputError(
            f"{table.place(row)} names {what} '{_short(texts[row])}', which is not in "
            f"{other.name}{more}; add it there, or remove the row."
        )


def _refuse_twice(table: Table, keys: np.ndarray, what: str, ids: np.ndarray | None = None) -> None:
    import pandas as pd

    again = np.flatnonzero(pd.Series(keys).duplicated().to_numpy())
    if len(again):
        row = int(again[0])
        name = (keys if ids is None else ids)[row]
        raise InputError(
            f"{table.place(row)} lists {what} '{_short(name)}' for the second time; give every "
            f"{what} an id of its own, or remove the row."
        )


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
