"""What a data set holds, what may be wrong with it, and settings to begin with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from lg2ar.config import Config
from lg2ar.data.columns import LARGEST, Column, ColumnRecipe
from lg2ar.data.dataset import Dataset
from lg2ar.data.structure import Spread, Structure, measure_structure
from lg2ar.data.suggestions import Suggestion, suggest
from lg2ar.graph import GraphBatch

MOST_NAMED = 10  # values of a column that are named, the most frequent first


@dataclass(frozen=True)
class ColumnSummary:
    """A column of nodes, edges or rows.

    Attributes:
        name: What it is called.
        of: What has it: ``nodes``, ``edges``, ``graphs``.
        kind: ``number`` or ``category``.
        missing: How many are missing.
        distinct: How many different values there are.
        spread: Of numbers.
        common: The most frequent categories, and how often each is there.
        features: How many features are made of it; None where none are to be made.
    """

    name: str
    of: str
    kind: str
    missing: int
    distinct: int
    spread: Spread | None
    common: tuple[tuple[str, int], ...]
    features: int | None


@dataclass(frozen=True)
class Summary:
    """A data set described.

    Attributes:
        name: What it is called.
        level: What is to be embedded.
        rows: How many embeddings there will be.
        structure: Nodes and edges.
        columns: Raw columns of nodes and edges, and targets.
        node_features: Features the nodes have as numbers, ready for use.
        edge_features: The same of edges.
        labels: Classes and how many rows each has, the most frequent first; empty without any.
        label_spread: Of labels that are amounts.
        weights: Spread of the edge weights.
        notes: What was told while reading.
        problems: What may be wrong, a sentence each.
        suggestions: Settings to begin with.
    """

    name: str
    level: str
    rows: int
    structure: Structure
    columns: tuple[ColumnSummary, ...]
    node_features: int
    edge_features: int
    labels: tuple[tuple[str, int], ...] = ()
    label_spread: Spread | None = None
    weights: Spread | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    suggestions: tuple[Suggestion, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON has it."""
        return asdict(self)

    def config(self) -> Config:
        """The suggested settings, all others at their defaults."""
        return Config.make({item.key: item.value for item in self.suggestions})

    def toml(self) -> str:
        """The suggested settings as a file for ``lg2ar pretrain --config``."""
        lines = [f"# Settings to begin with for {_one_line(self.name)}."]
        for item in self.suggestions:
            lines += [f"# {_one_line(item.reason)}", f"{item.key} = {_toml(item.value)}"]
        return "\n".join(lines) + "\n"


def summarise(dataset: Dataset) -> Summary:
    """Describe a data set, and suggest settings for it."""
    structure = measure_structure(dataset.graph)
    columns = (
        *_columns(dataset.node_columns, "nodes"),
        *_columns(dataset.edge_columns, "edges"),
        *_targets(dataset.targets, f"{dataset.level}s"),
    )
    labels, spread = _labels(dataset)
    weight = dataset.graph.edge_weight
    width = dataset.graph.num_features + sum(c.features or 0 for c in columns if c.of == "nodes")
    return Summary(
        name=dataset.name,
        level=dataset.level,
        rows=len(dataset),
        structure=structure,
        columns=columns,
        node_features=dataset.graph.num_features,
        edge_features=dataset.graph.num_edge_features,
        labels=labels,
        label_spread=spread,
        weights=None if weight is None else Spread.of(weight.cpu().numpy()),
        notes=dataset.notes,
        problems=tuple(_problems(dataset, structure, columns, labels)),
        suggestions=tuple(suggest(dataset.level, structure, width)),
    )


def _columns(columns: Iterable[Column], of: str) -> list[ColumnSummary]:
    return [_column(column, of, ColumnRecipe.learn([column]).width) for column in columns]


def _targets(targets: Mapping[str, np.ndarray], of: str) -> list[ColumnSummary]:
    made = []
    for name, values in targets.items():
        if values.dtype.kind in "biuf":
            made.append(_column(Column.numbers(name, values), of, None))
        else:
            made.append(_column(Column.categories(name, values), of, None))
    return made


def _column(column: Column, of: str, features: int | None) -> ColumnSummary:
    import pandas as pd

    values = pd.Series(column.values)
    counts: tuple[tuple[str, int], ...] = ()
    if column.kind == "category":
        most = values.value_counts().head(MOST_NAMED)
        counts = tuple((str(value), int(number)) for value, number in most.items())
    return ColumnSummary(
        name=column.name,
        of=of,
        kind=column.kind,
        missing=int(values.isna().sum()),
        distinct=int(values.nunique()),
        spread=Spread.of(column.values) if column.kind == "number" else None,
        common=counts,
        features=features,
    )


def _labels(dataset: Dataset) -> tuple[tuple[tuple[str, int], ...], Spread | None]:
    if dataset.y is None:
        return (), None
    y = dataset.y.cpu()
    values, counts = torch.unique(y, return_counts=True)
    many = len(values) > max(100, len(y) / 10)
    if y.is_floating_point() or (dataset.classes is None and many):
        return (), Spread.of(y.numpy())
    names = [str(int(v)) if dataset.classes is None else dataset.classes[int(v)] for v in values]
    pairs = zip(names, counts.tolist(), strict=True)
    return tuple(sorted(pairs, key=lambda pair: -pair[1])), None


def _problems(
    dataset: Dataset,
    structure: Structure,
    columns: Iterable[ColumnSummary],
    labels: tuple[tuple[str, int], ...],
) -> list[str]:
    """What a person may want to know before training."""
    s, found = structure, []
    if s.self_loops:
        found.append(f"{s.self_loops} edges lead from a node to itself.")
    if s.duplicates:
        found.append(f"{s.duplicates} edges are listed again; each counts once more in a sum.")
    if s.edgeless:
        found.append(f"{s.edgeless} of {s.graphs} graphs have no edges.")
    if s.isolated and s.nodes > s.isolated:
        found.append(f"{s.isolated} of {s.nodes} nodes have no edge to another one.")
    if s.disconnected:
        of = f"{s.disconnected} of {s.graphs} graphs are" if s.graphs > 1 else "The graph is"
        found.append(f"{of} of several parts, {s.parts} in all.")
    if dataset.level == "graph" and s.graphs == 1:
        found.append("There is one graph, which has no other to be told from; try --level node.")
    found += _constant_features(dataset.graph)
    for column in columns:
        place = f"Column '{column.name}' of {column.of}"
        if column.missing:
            found.append(f"{place}: {column.missing} missing.")
        if column.features == 0 and column.kind == "number":
            found.append(f"{place} is the same everywhere; no feature is made of it.")
        elif column.features == 0:
            found.append(f"{place} holds another text nearly everywhere; no feature is made of it.")
        elif (
            column.features is not None and column.kind == "category" and column.distinct > LARGEST
        ):
            found.append(f"{place}: {column.distinct} values, the {LARGEST} most frequent count.")
    if labels and labels[-1][1] < 10:
        name, count = labels[-1]
        found.append(f"Class '{name}' has {count} rows; 10-fold evaluation wants 10.")
    return found


def _constant_features(graph: GraphBatch) -> list[str]:
    same = int((graph.x == graph.x[:1]).all(0).sum())
    return [f"{same} of {graph.num_features} node features are the same on all nodes."] * bool(same)


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
