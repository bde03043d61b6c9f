"""Graphs in tables: edges, and where there are some nodes and graphs.

``edges`` has the columns source and target, ``nodes`` a column of node ids, ``graphs`` one of graph
ids; where there are several graphs, ``nodes`` and ``edges`` say which by a column of graph ids. All
other columns are features of nodes and edges, or targets of graphs. Ids are whatever text or
numbers. Files are CSV, TSV or Parquet; a list of edges alone will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lg2ar.config import Level
from lg2ar.data.columns import Column, Columns
from lg2ar.data.dataset import Dataset
from lg2ar.data.edge_lists import SettledEdges, settle_edges
from lg2ar.data.reading import ReadOptions, Role
from lg2ar.data.table_files import SUFFIXES, column_names, frame_table, load_table
from lg2ar.data.table_labels import as_labels, label_column, read_targets
from lg2ar.data.table_nodes import Ids, Numbered, number_nodes
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch

# What columns of ids are called, without regard to case and signs; the first that is there counts.
SYNONYMS: dict[Role, tuple[str, ...]] = {
    "graph": ("graphid", "graph", "gid", "graphindex", "graphindicator", "graphname"),
    "node": ("nodeid", "node", "id", "nid", "vertex", "vertexid", "nodename", "nodeindex"),
    "source": (
        *("source", "src", "from", "u", "sourceid", "srcid", "fromid", "sourcenode", "fromnode"),
        *("fromnodeid", "sourcenodeid", "node1", "nodeid1", "id1", "start"),
    ),
    "target": (
        *("target", "dst", "to", "v", "targetid", "dstid", "toid", "targetnode", "tonode"),
        *("tonodeid", "targetnodeid", "node2", "nodeid2", "id2", "end", "dest", "destination"),
    ),
}
WEIGHTS = ("weight", "edgeweight")
ROLES_OF: dict[str, tuple[Role, ...]] = {
    "edges": ("graph", "source", "target"),
    "nodes": ("graph", "node"),
    "graphs": ("graph",),
}
MOLECULES = ("smiles", "canonicalsmiles", "isomericsmiles", "smile")
PARTS = {"edges": ("edges", "edge"), "nodes": ("nodes", "node"), "graphs": ("graphs", "graph")}


def read_tables(source: Any, options: ReadOptions | None = None, **more: Any) -> Dataset:
    """Read graphs from tables.

    Args:
        source: A folder with the tables ``edges``, ``nodes`` and ``graphs``, the last two where
            there are some; or a table of edges: a file, or a frame of pandas.
        options: How to read it; see :class:`~lg2ar.data.reading.ReadOptions`.
        **more: The same by name.

    Raises:
        InputError: In one sentence, with file, line and remedy.
    """
    options = replace(options or ReadOptions(), **more)
    name, parts = find_parts(source, options)
    tables = {part: _load(part, held, options) for part, held in parts.items()}
    _check_named(tables, options)
    nodes = number_nodes(tables["edges"], tables.get("nodes"), tables.get("graphs"))
    level: Level = options.level or ("node" if nodes.num_graphs == 1 else "graph")
    labels = label_column(tables, level, options.labels)
    left_out = {*options.ignore, labels}
    notes = list(nodes.notes)
    weight, edge_columns = _edge_columns(tables["edges"], options, left_out, notes)
    edges = settle_edges(
        nodes.source,
        nodes.target,
        len(nodes.ids),
        [*edge_columns, *([] if weight is None else [weight])],
        options.directed,
    )
    notes += [f"{tables['edges'].table.name}: {note}" for note in edges.notes]
    targets = read_targets(tables, nodes, level, labels, set(options.ignore))
    y, classes = (None, None) if labels is None else as_labels(targets[labels])
    notes += _about_labels(tables, labels, options, y is None)
    if level == "node" and nodes.num_graphs > 1:
        notes.append(f"{name}: the nodes of {nodes.num_graphs} graphs are embedded as of one.")
    return Dataset(
        name=name,
        level=level,
        graph=_graph(nodes, edges, weight, level, name),
        y=y,
        ids=_names(nodes, level, name),
        node_columns=_node_columns(tables.get("nodes"), nodes, left_out),
        edge_columns=tuple(column.take(edges.row) for column in edge_columns),
        classes=classes,
        targets=targets,
        notes=tuple(notes),
        reading=options.remembered(
            directed=edges.directed,
            weight=None if weight is None else weight.name,
            labels=labels,
        ),
    )


def looks_like_molecules(path: Path) -> bool:
    """Whether a table has a column of SMILES and none that make it a list of edges."""
    if not path.is_file():
        return False
    try:
        return are_molecules(column_names(path))
    except (InputError, OSError):
        return False  # whoever reads it says what is wrong


def are_molecules(names: Iterable[str]) -> bool:
    """Whether columns of these names are those of a table of molecules."""
    plain = {plain_name(name) for name in names}
    return plain.isdisjoint(SYNONYMS["source"]) and not plain.isdisjoint(MOLECULES)


def find_parts(source: Any, options: ReadOptions) -> tuple[str, dict[str, Any]]:
    """What to call the data, and where each table is."""
    beside = {"nodes": options.nodes, "graphs": options.graphs}
    given = {part: held for part, held in beside.items() if held is not None}
    if not isinstance(source, str | Path):
        return "tables", {"edges": source, **given}
    path = Path(source)
    if not path.is_dir():
        return path.stem, {"edges": path, **given}
    found: dict[str, Path] = {}
    for part, file in _table_files(path):
        if part in given:
            continue
        if part in found:
            raise InputError(
                f"{path}: holds both {found[part].name} and {file.name}; remove the one that does "
                "not count."
            )
        found[part] = file
    if "edges" not in found:
        raise InputError(
            f"{path}: holds no graphs that are known; put in edges.csv (or .tsv, .parquet), and "
            "where there are some nodes.csv and graphs.csv, or the files of a TU data set."
        )
    return path.resolve().name, {**found, **given}


def has_tables(folder: Path) -> bool:
    """Whether a folder holds a table of edges, nodes or graphs."""
    return bool(_table_files(folder))


def _table_files(folder: Path) -> list[tuple[str, Path]]:
    parts = {stem: part for part, stems in PARTS.items() for stem in stems}
    return [
        (parts[file.stem.lower()], file)
        for file in sorted(folder.iterdir())
        if file.stem.lower() in parts and file.suffix.lower() in SUFFIXES
    ]


def _load(part: str, held: Any, options: ReadOptions) -> Ids:
    """Read a table and find its columns of ids."""

    def find(names: Sequence[str]) -> dict[str, str | None]:
        return {role: find_role(names, role, part, options) for role in ROLES_OF[part]}

    def as_text(names: Sequence[str]) -> set[str]:
        wanted = {*find(names).values(), *options.categories}
        return {name for name in names if name in wanted}

    def is_end(name: str) -> bool:
        asked = (options.columns.get("source"), options.columns.get("target"))
        return name in asked or plain_name(name) in (*SYNONYMS["source"], *SYNONYMS["target"])

    if isinstance(held, str | Path):
        table = load_table(Path(held), as_text, is_end=is_end if part == "edges" else None)
    else:
        table = frame_table(held, f"the {part}")
    if not len(table) and part != "edges":
        raise InputError(f"{table.name}: has no rows after line 1; add some, or remove the file.")
    found = find(table.names)
    for role in ("source", "target"):
        if part == "edges" and found[role] is None:
            known = ", ".join(f"'{name}'" for name in table.names[:12])
            raise InputError(
                f"{table.name}: line 1 names no column that is known to hold the {role} of an edge "
                f"(it has {known}); name it with --column {role}=NAME."
            )
    return Ids(table, categories=options.categories, **found)


def plain_name(name: str) -> str:
    """A name without regard to case and signs."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def find_role(names: Sequence[str], role: Role, part: str, options: ReadOptions) -> str | None:
    """The column with ids of this role; None where there is none."""
    asked = options.columns.get(role)
    if asked is not None and asked in names:
        return asked
    if asked is not None and role in ("source", "target"):
        return None
    known = SYNONYMS[role]
    if part == "graphs":
        known = (*known, "id", "name")
    plain = {plain_name(name): name for name in reversed(names)}
    return next((plain[word] for word in known if word in plain), None)


def _check_named(tables: Mapping[str, Ids], options: ReadOptions) -> None:
    """Refuse options that name a column which no table has."""
    there = {name for held in tables.values() for name in held.table.names}
    asked = [(f"columns, {role}", name) for role, name in options.columns.items()]
    asked += [("categories", name) for name in options.categories]
    asked += [("ignore", name) for name in options.ignore]
    asked += [(what, name) for what in ("labels", "weight") if (name := getattr(options, what))]
    for what, name in asked:
        if name not in there:
            where = " or ".join(held.table.name for held in tables.values())
            known = ", ".join(f"'{column}'" for column in sorted(there)[:12])
            raise InputError(
                f"{where}: there is no column '{name}', which was asked for ({what}); the columns "
                f"are {known}."
            )


def _edge_columns(
    edges: Ids, options: ReadOptions, left_out: set[str | None], notes: list[str]
) -> tuple[Column | None, Columns]:
    """The weights where there are some, and the attributes."""
    names = [name for name in edges.others if name not in left_out]
    asked = options.weight
    found = asked or next((name for name in names if plain_name(name) in WEIGHTS), None)
    columns = {name: edges.column(name) for name in names}
    if asked is not None and asked not in columns:
        raise InputError(
            f"{edges.table.name}: has no column '{asked}' of attributes to take the weights from; "
            "name another one."
        )
    weight = None if found is None else columns[found]
    if weight is not None:
        wrong = _no_weights(weight)
        if wrong is None:
            del columns[weight.name]
            if asked is None:
                notes.append(f"{edges.table.name}: column '{found}' is taken for edge weights.")
        elif asked is not None:
            raise InputError(
                f"{edges.table.place(wrong)}: column '{asked}' is to hold weights, numbers that "
                "are not negative; correct it, or do not ask for it."
            )
        else:
            weight = None
            notes.append(
                f"{edges.table.name}: column '{found}' is an attribute, not a weight: it is not "
                "everywhere a number that is not negative."
            )
    return weight, tuple(columns.values())


def _no_weights(column: Column) -> int | None:
    """The first row without a number that can be a weight, None where there is none."""
    if column.kind == "category":
        return 0
    wrong = np.flatnonzero(~((column.values >= 0) & (column.values < np.finfo(np.float32).max)))
    return int(wrong[0]) if len(wrong) else None


def _node_columns(nodes: Ids | None, numbered: Numbered, left_out: set[str | None]) -> Columns:
    if nodes is None or numbered.row is None:
        return ()
    names = [name for name in nodes.others if name not in left_out]
    return tuple(nodes.column(name).take(numbered.row) for name in names)


def _graph(
    nodes: Numbered, edges: SettledEdges, weight: Column | None, level: Level, name: str
) -> GraphBatch:
    batch = torch.from_numpy(nodes.graph)
    graph = GraphBatch(
        x=torch.empty(len(nodes.ids), 0),
        edge_index=torch.from_numpy(np.ascontiguousarray(edges.index)),
        batch=batch if level == "graph" else torch.zeros_like(batch),
        num_graphs=nodes.num_graphs if level == "graph" else 1,
        edge_weight=None
        if weight is None
        else torch.from_numpy(weight.values[edges.row].astype(np.float32)),
    )
    return graph.validate(name)


def _names(nodes: Numbered, level: Level, name: str) -> tuple[str, ...]:
    """What each graph or node is called; nodes of several graphs with their graph's name."""
    if level == "graph":
        return (name,) if nodes.graph_ids is None else tuple(nodes.graph_ids)
    if nodes.graph_ids is None or len(nodes.graph_ids) == 1:
        return tuple(nodes.ids)
    homes = nodes.graph_ids[nodes.graph]
    return tuple(f"{graph}/{node}" for graph, node in zip(homes, nodes.ids, strict=True))


def _about_labels(
    tables: Mapping[str, Ids], labels: str | None, options: ReadOptions, missing: bool
) -> list[str]:
    if labels is None:
        return []
    told = []
    if options.labels is None:
        told.append(f"column '{labels}' is taken for the labels; no feature is made of it.")
    if missing:
        told.append(f"column '{labels}' has no label for some; they stay without.")
    names = ", ".join(held.table.name for held in tables.values() if labels in held.table.names)
    return [f"{names}: {sentence}" for sentence in told]
