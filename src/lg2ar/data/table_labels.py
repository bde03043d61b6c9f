"""Labels and other columns that no feature is made of."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from lg2ar.config import Level
from lg2ar.data.columns import Column
from lg2ar.data.table_nodes import Ids, Numbered
from lg2ar.errors import InputError

# What a column of labels is called, where nothing is said.
LABELS = ("label", "labels", "y", "class", "target")


def label_column(tables: Mapping[str, Ids], level: Level, asked: str | None) -> str | None:
    """The name of the column of labels; None where there is none.

    Of graphs it is in their table, of the nodes of one graph in that of nodes. If it is asked for,
    labels of graphs may also stand in the tables of nodes or edges, the same all over a graph.
    """
    part = "graphs" if level == "graph" else "nodes"
    if asked is not None:
        if level == "graph" or (part in tables and asked in tables[part].table.names):
            return asked
        raise InputError(
            f"{', '.join(held.table.name for held in tables.values())}: the labels '{asked}' are "
            "to be a column of the table of nodes, as nodes are embedded; add it there, or choose "
            "--level graph."
        )
    if part not in tables:
        return None
    held = tables[part]
    known = {name.lower(): name for name in reversed(held.others)}
    found = next((known[word] for word in LABELS if word in known), None)
    if (
        found is not None
        and level == "node"
        and _are_names(held.table.column(found, category=True))
    ):
        return None  # what others show beside a node
    return found


def _are_names(column: Column) -> bool:
    """Whether most words are there but once: such are names or remarks, not classes."""
    import pandas as pd

    words = pd.Series(column.values, dtype=object).dropna()
    numbers = pd.to_numeric(words, errors="coerce")
    return bool(numbers.isna().any()) and words.nunique() > max(len(words) / 2, 1)


def read_targets(
    tables: Mapping[str, Ids], nodes: Numbered, level: Level, labels: str | None, ignored: set[str]
) -> dict[str, np.ndarray]:
    """Columns with a value per graph (or node) that no feature is made of.

    At graph level all of the table of graphs; at node level the labels, and what is to be ignored,
    of the table of nodes.
    """
    targets: dict[str, np.ndarray]
    if level == "node":
        if "nodes" not in tables or nodes.row is None:
            return {}
        held, targets = tables["nodes"], {}
        for name in held.table.names:
            if name == labels:
                targets[name] = held.column(name).values[nodes.row]
            elif name in ignored and name in held.others:
                with suppress(InputError):  # it may be ignored because it cannot be read
                    targets[name] = held.column(name).values[nodes.row]
        return targets
    targets = {}
    if "graphs" in tables:
        held = tables["graphs"]
        left_out = ignored - {labels}
        targets = {name: held.column(name).values for name in held.others if name not in left_out}
    if labels is not None and labels not in targets:
        targets[labels] = _of_graphs(tables, nodes, labels)
    return targets


def _of_graphs(tables: Mapping[str, Ids], nodes: Numbered, labels: str) -> np.ndarray:
    """Labels of graphs out of the table of nodes or of edges, where a graph has but one."""
    import pandas as pd

    part = next(part for part in ("nodes", "edges") if _has(tables, part, labels))
    table, values = tables[part].table, tables[part].column(labels).values
    if part == "nodes" and nodes.row is not None:
        rows, graph = nodes.row, nodes.graph
    else:
        rows, graph = np.arange(len(table)), nodes.graph[nodes.source]
    kinds = pd.factorize(values, use_na_sentinel=False)[0]
    first = np.full(nodes.num_graphs, -1)
    first[graph[::-1]] = rows[::-1]
    odd = np.flatnonzero(kinds[rows] != kinds[first[graph]])
    if len(odd):
        row, other = int(rows[odd[0]]), int(first[graph[odd[0]]])
        raise InputError(
            f"{table.place(row)}: column '{labels}' holds '{values[row]}' where another row of the "
            f"same graph holds '{values[other]}'; give a graph one label."
        )
    found: np.ndarray = values[first]
    found[first < 0] = np.nan if values.dtype.kind == "f" else None  # no row tells
    return found


def _has(tables: Mapping[str, Ids], part: str, name: str) -> bool:
    return part in tables and name in tables[part].table.names


def as_labels(values: np.ndarray) -> tuple[Tensor | None, tuple[str, ...] | None]:
    """Targets as ``y`` and the names of classes; nothing where some are missing.

    Words are classes in the order of the alphabet, whole numbers stay what they are, other
    numbers are amounts to predict.
    """
    import pandas as pd

    if pd.isna(values).any():
        return None, None
    if values.dtype == object:
        places, names = pd.factorize(values, sort=True)
        return torch.from_numpy(places.astype(np.int64)), tuple(str(name) for name in names)
    if (values == np.round(values)).all() and (np.abs(values) < 2**53).all():
        return torch.from_numpy(values.astype(np.int64)), None
    return torch.from_numpy(values.astype(np.float32)), None
