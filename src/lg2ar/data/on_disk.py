"""Graphs that stay on a disk: they are read batch by batch, and never all at once.

``lg2ar convert`` writes such a file (:mod:`lg2ar.data.conversion`). What is learned from it is, bit
by bit, what is learned from the same graphs in memory: the same batches come in the same order.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lg2ar.data import disk_sums
from lg2ar.data.batches import Store, none_of
from lg2ar.data.columns import Column, Columns
from lg2ar.data.dataset import Dataset
from lg2ar.data.disk_layout import (
    About,
    Field,
    Layout,
    NewerFormatError,
    Of,
    RawColumn,
    check_tables,
    damaged,
    opened,
)
from lg2ar.data.disk_sums import TensorSums
from lg2ar.data.held_elsewhere import ColumnElsewhere, HeldElsewhere, described_by
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch

if TYPE_CHECKING:
    from lg2ar.data.features import FeatureRecipe

# Graphs that are asked for at a time.
BARE_NODES = 64  # for each byte of a file, at most
ASKED = 256


def read_on_disk(path: str | Path) -> Dataset:
    """Open an on-disk data set.

    Sizes, names, labels and further columns of graphs are read now. ``graph`` and the raw columns
    of nodes and edges are read when somebody looks at them, which training, embedding and fitting
    the feature recipe do not do, or do for one column at a time.

    Args:
        path: What ``lg2ar convert`` wrote.

    Raises:
        InputError: When it is no such file, or not a whole one.
    """
    file = DiskFile(Path(path))
    about = file.about
    return described_by(
        about,
        level="graph",
        graph=GraphsOnDisk(file),
        y=file.labels(),
        ids=file.names(),
        node_columns=file.columns("nodes"),
        edge_columns=file.columns("edges"),
        targets=file.targets(),
    )


class DiskFile:
    """An on-disk data set as it lies in its file; a connection is open only while one reads.

    Args:
        path: The file.

    Attributes:
        about: What is known of all graphs together.
        num_nodes: Number of nodes of each graph, shape ``[B]``.
        num_edges: Number of listed edges of each graph, shape ``[B]``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise InputError(f"{path}: there is no such file.")
        disk_sums.check_size(path)
        with opened(path) as connection:
            check_tables(path, connection)
            self.sums = disk_sums.read(path, _said(connection, "sums"))
            self.about = self._read_about(connection)
            self.num_nodes, self.num_edges = self._read_sizes(connection)
        self._first = np.cumsum(self.num_nodes) - self.num_nodes

    def _read_about(self, connection: sqlite3.Connection) -> About:
        said = _said(connection, "about")
        disk_sums.check(self.path, self.sums, {"about": disk_sums.of_text(str(said))})
        try:
            return About.from_json(said)
        except NewerFormatError as error:
            raise InputError(f"{self.path}: {error}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise damaged(self.path, f"what it says of itself: {error}") from None

    def _read_sizes(self, connection: sqlite3.Connection) -> tuple[np.ndarray, np.ndarray]:
        rows = connection.execute("SELECT id, COL_num_nodes, COL_num_edges FROM graphs ORDER BY id")
        try:
            numbers = np.fromiter((number for row in rows for number in row), dtype=np.int64)
        except (ValueError, TypeError):
            raise damaged(self.path, "sizes that are no numbers") from None
        places, nodes, edges = numbers.reshape(-1, 3).T.copy()
        if not 0 < len(places) == self.about.num_graphs or (places != np.arange(len(places))).any():
            raise damaged(self.path, f"{len(places)} of {self.about.num_graphs} graphs")
        if (nodes < 1).any() or (edges < 0).any():
            raise damaged(self.path, "a graph without nodes")
        disk_sums.check(self.path, self.sums, disk_sums.of_sizes(nodes, edges))
        self._check_room({"nodes": nodes, "edges": edges})
        return nodes, edges

    def _check_room(self, sizes: dict[str, np.ndarray]) -> None:
        """Refuse sizes that the file cannot hold the rows of, before memory is asked for them."""
        room = self.path.stat().st_size
        for found in (Field("edge_index", "<i8", "edges", 2), *self.about.layout.fields()):
            # As floating-point numbers, whose sum does not come out small by going round.
            if sizes[found.of].sum(dtype=np.float64) * found.row_bytes > room:
                raise damaged(self.path, f"more {found.of} than it has room for")
        # Nodes without anything of their own take no room: as many as edges may join, and more.
        if sizes["nodes"].sum(dtype=np.float64) > BARE_NODES * room:
            raise damaged(self.path, "more nodes than a file of its size can be of")

    def parts(self) -> list[str]:
        """Fingerprints of the parts that the file was made of, one after the other."""
        with opened(self.path) as connection:
            said = _said(connection, "parts")
        try:
            # A file of an earlier version does not say; all of it is then one part.
            parts = [self.about.fingerprint] if said is None else json.loads(said)
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self.path, f"its parts: {error}") from None
        return [str(part) for part in parts] if isinstance(parts, list) else []

    def names(self) -> tuple[str, ...] | None:
        """What each graph is called."""
        return tuple(map(str, self._of_rows("name"))) if self.about.named else None

    def labels(self) -> Tensor | None:
        """The label of each graph."""
        kind = self.about.labels
        if kind is None:
            return None
        held = self._of_rows("label")
        try:
            return torch.from_numpy(np.array(held, kind))
        except (ValueError, TypeError, OverflowError) as error:
            raise damaged(self.path, f"labels: {error}") from None

    def targets(self) -> dict[str, np.ndarray]:
        """Further columns with a value per graph, by name."""
        kinds = self.about.targets
        held = self._of_rows("targets") if kinds else []
        try:
            rows = [json.loads(text) for text in held]
            return {
                name: np.array([values[place] for values in rows], dtype=kind)
                for place, (name, kind) in enumerate(kinds.items())
            }
        except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
            raise damaged(self.path, f"further columns: {error}") from None

    def _of_rows(self, column: str) -> list[Any]:
        with opened(self.path) as connection:
            query = f"SELECT {column} FROM rows ORDER BY id"
            found = [row[0] for row in connection.execute(query)]
        if len(found) != self.about.num_graphs:
            raise damaged(self.path, f"{len(found)} of {self.about.num_graphs} rows")
        disk_sums.check(self.path, self.sums, disk_sums.of_values(column, found))
        return found

    def columns(self, of: Of) -> Columns:
        """The raw columns of nodes or of edges, not yet read."""
        total = int((self.num_nodes if of == "nodes" else self.num_edges).sum())
        return tuple(
            ColumnElsewhere(raw, total, partial(self.read_column, of, raw))
            for raw in self.about.layout.columns(of)
        )

    def fetch(self, places: np.ndarray, fields: Sequence[str]) -> list[tuple[Any, ...]]:
        """These columns of the graphs at these places, in this order.

        Raises:
            InputError: When the file is another one by now, or a graph is missing.
        """
        wanted = np.unique(places).tolist()
        listed = ", ".join(("id", *(f"COL_{name}" for name in fields)))
        found: dict[int, tuple[Any, ...]] = {}
        with opened(self.path) as connection:
            self._check_same(connection)
            sums = TensorSums(self.path, self.about.layout, fields, connection)
            for start in range(0, len(wanted), ASKED):
                asked = wanted[start : start + ASKED]
                marks = ", ".join("?" * len(asked))
                query = f"SELECT {listed} FROM graphs WHERE id IN ({marks})"
                rows = {row[0]: row[1:] for row in connection.execute(query, asked)}
                sums.check(rows)
                found |= rows
        if len(found) != len(wanted):
            raise damaged(self.path, "a graph is missing")
        return [found[place] for place in places.tolist()]

    def scan(self, found: Field) -> Iterator[np.ndarray]:
        """One tensor of all graphs, the rows of some of them at a time."""
        sizes = self.num_nodes if found.of == "nodes" else self.num_edges
        with opened(self.path) as connection:
            self._check_same(connection)
            cursor = connection.execute(f"SELECT id, COL_{found.name} FROM graphs ORDER BY id")
            sums = TensorSums(self.path, self.about.layout, [found.name], connection)
            for start in range(0, len(sizes), ASKED):
                rows = {row[0]: row[1:] for row in cursor.fetchmany(ASKED)}
                sums.check(rows)
                blobs = [row[0] for row in rows.values()]
                try:
                    yield _whole(found, blobs, {found.of: sizes[start : start + ASKED]})
                except (ValueError, TypeError) as error:
                    raise damaged(self.path, str(error)) from None

    def _check_same(self, connection: sqlite3.Connection) -> None:
        if _said(connection, "fingerprint") != self.about.fingerprint:
            raise InputError(f"{self.path}: was replaced while it was read; open it again.")

    def select(self, index: Sequence[int] | np.ndarray | Tensor) -> Dataset:
        """The graphs at these places, with their raw columns; ``origin`` points into the file."""
        places = np.asarray(index, dtype=np.int64)
        fields = self.about.layout.fields()
        names = ["edge_index", *(found.name for found in fields)]
        read = dict(zip(names, zip(*self.fetch(places, names), strict=True), strict=True))
        sizes = {"nodes": self.num_nodes[places], "edges": self.num_edges[places]}
        try:
            edge_index = _side_by_side(list(read["edge_index"]), sizes["nodes"], sizes["edges"])
            tensors = {found.name: _whole(found, list(read[found.name]), sizes) for found in fields}
        except (ValueError, TypeError) as error:
            raise damaged(self.path, str(error)) from None
        graph = GraphBatch(
            x=_tensor(tensors.get("x", np.empty((int(sizes["nodes"].sum()), 0), np.float32))),
            edge_index=torch.from_numpy(edge_index),
            batch=torch.from_numpy(np.repeat(np.arange(len(places)), sizes["nodes"])),
            num_graphs=len(places),
            edge_weight=_tensor(tensors["edge_weight"]) if "edge_weight" in tensors else None,
            origin=torch.from_numpy(_ranges(self._first[places], sizes["nodes"])),
            edge_attr=_tensor(tensors["edge_attr"]) if "edge_attr" in tensors else None,
        )
        return Dataset(
            name=self.about.name,
            level="graph",
            graph=graph,
            node_columns=self._columns("nodes", tensors),
            edge_columns=self._columns("edges", tensors),
        )

    def _columns(self, of: Of, tensors: dict[str, np.ndarray]) -> Columns:
        columns = []
        for raw in self.about.layout.columns(of):
            name, place = self.about.layout.place(of, raw)
            columns.append(self._column(raw, tensors[name][:, place]))
        return tuple(columns)

    def _column(self, raw: RawColumn, held: np.ndarray) -> Column:
        try:
            return raw.column(held)
        except ValueError as error:
            raise damaged(self.path, str(error)) from None

    def read_column(self, of: Of, raw: RawColumn) -> Column:
        """A raw column of all graphs."""
        name, place = self.about.layout.place(of, raw)
        found = next(f for f in self.about.layout.fields() if f.name == name)
        total = int((self.num_nodes if of == "nodes" else self.num_edges).sum())
        held, first = np.empty(total, dtype=found.kind), 0
        for rows in self.scan(found):
            held[first : first + len(rows)] = rows[:, place]
            first += len(rows)
        return self._column(raw, held)


class GraphsOnDisk(HeldElsewhere):
    """All graphs of an on-disk data set, counted but not read.

    How many graphs, nodes, edges and features there are is known. Whoever asks for a tensor gets
    it, and with it everything is read into memory.

    Args:
        file: Where they are.
        recipe: What makes features of them, batch by batch; None leaves them as they are.
    """

    def __init__(self, file: DiskFile, recipe: FeatureRecipe | None = None) -> None:
        object.__setattr__(self, "file", file)
        object.__setattr__(self, "recipe", recipe)
        object.__setattr__(self, "num_graphs", file.about.num_graphs)

    file: DiskFile

    def prepared(self, recipe: FeatureRecipe) -> GraphsOnDisk:
        """The graphs with the features that a recipe makes, which is done when they are read."""
        return GraphsOnDisk(self.file, recipe)

    @property
    def layout(self) -> Layout:
        """Widths, and what is known of raw columns."""
        return self.file.about.layout

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs together, ``N``."""
        return int(self.file.num_nodes.sum())

    @property
    def num_edges(self) -> int:
        """Number of listed edges of all graphs together, ``E``."""
        return int(self.file.num_edges.sum())

    @property
    def device(self) -> torch.device:
        """Where the tensors would be."""
        return torch.device("cpu")

    @cached_property
    def sizes(self) -> Tensor:
        """Number of nodes of each graph, shape ``[B]``."""
        return torch.from_numpy(self.file.num_nodes)

    @cached_property
    def ptr(self) -> Tensor:
        """Where each graph's nodes begin, and the end of the last, shape ``[B + 1]``."""
        return torch.cat([torch.zeros(1, dtype=torch.long), self.sizes.cumsum(0)])

    @cached_property
    def whole(self) -> GraphBatch:
        """All graphs side by side, read into memory."""
        return self.select(np.arange(self.num_graphs)).replace(origin=None)

    def select(self, index: Sequence[int] | np.ndarray | Tensor) -> GraphBatch:
        """The graphs at these places, in this order; ``origin`` points into the file."""
        part = self.file.select(index)
        return part.graph if self.recipe is None else self.recipe.apply(part, tell=False)


class DiskStore(Store):
    """Batches of graphs on a disk.

    Args:
        graph: The graphs.
        device: Where batches are to lie.
    """

    def __init__(self, graph: GraphsOnDisk, device: torch.device | str = "cpu") -> None:
        self._graph, self._device = graph, device
        self.num_nodes, self.num_edges = graph.file.num_nodes, graph.file.num_edges

    @property
    def graph(self) -> GraphBatch:
        """All graphs side by side, read into memory."""
        return self._graph.whole.to(self._device)

    def select(self, index: Sequence[int] | np.ndarray | Tensor) -> GraphBatch:
        """The graphs at these places, in this order; ``origin`` points into the store."""
        if len(index) == 0:  # as a share of a batch may be
            return none_of(self._graph.select([0]).to(self._device))
        return self._graph.select(index).to(self._device)


def unseen_in(
    layout: Layout, name: str, recipe: FeatureRecipe
) -> dict[str, Counter[tuple[str, str]]]:
    """How often values come that a recipe has not seen, by ``nodes`` and ``edges``.

    Known from what the conversion counted, without reading a graph.
    """
    found = {}
    for of, recipes, raws in (
        ("nodes", recipe.nodes, layout.nodes),
        ("edges", recipe.edges, layout.edges),
    ):
        if recipes is None or not raws:
            continue
        rows = max(1 + len(raw.values) for raw in raws) + 1
        _, unseen = recipes.apply(tuple(_sample(raw, rows) for raw in raws), f"{name}, {of}")
        counts = {
            (raw.name, value): count
            for raw in raws
            for value, count in zip((*raw.values, ""), (*raw.counts, raw.missing), strict=True)
        }
        found[of] = Counter({key: counts[key] for key in unseen if counts[key]})
    return found


def _said(connection: sqlite3.Connection, key: str) -> Any:
    """What the file says of itself under a key; None where it says nothing."""
    found = connection.execute("SELECT value FROM about WHERE key = ?", (key,)).fetchone()
    return None if found is None else found[0]


def _sample(raw: RawColumn, rows: int) -> Column:
    """A column of so many rows in which every value that there is comes, and no other."""
    if raw.kind == "category":
        kinds = np.array([*raw.values, *([None] if raw.missing else [])] or [None], dtype=object)
        return Column(raw.name, "category", np.resize(kinds, rows))
    return Column(raw.name, "number", np.resize([0.0, np.nan] if raw.missing else [0.0], rows))


def _side_by_side(blobs: list[bytes], nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The edges of several graphs ``[2, E]``, their nodes numbered one graph after the other."""
    listed = [np.frombuffer(blob, dtype="<i8").reshape(2, -1) for blob in blobs]
    if [part.shape[1] for part in listed] != edges.tolist():
        raise ValueError("a graph with too many or too few edges")
    joined = np.concatenate(listed, axis=1).astype(np.int64, copy=False)
    own = np.repeat(nodes, edges)
    if ((joined < 0) | (joined >= own)).any():
        raise ValueError("an edge to a node that is not there")
    shifted: np.ndarray = joined + np.repeat(np.cumsum(nodes) - nodes, edges)
    return shifted


def _whole(found: Field, blobs: list[bytes], sizes: dict[str, np.ndarray]) -> np.ndarray:
    """The rows of several graphs, once it is clear that each has as many as it should."""
    expected = (sizes[found.of] * found.row_bytes).tolist()
    if [len(blob) for blob in blobs] != expected:
        raise ValueError(f"{found.name} of another length than the graph")
    return found.read(blobs)


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("="), copy=False))


def _ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """``first[i] .. first[i] + counts[i]`` one after the other."""
    before = np.cumsum(counts) - counts
    ranges: np.ndarray = np.arange(int(counts.sum())) + np.repeat(first - before, counts)
    return ranges
