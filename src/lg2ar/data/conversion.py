"""Graphs from anywhere into an on-disk data set, which is there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lg2ar.data import disk_sums
from lg2ar.data.batches import GraphStore
from lg2ar.data.columns import Column, Columns
from lg2ar.data.dataset import Dataset
from lg2ar.data.disk_layout import RAW, SUFFIX, About, Layout, RawColumn
from lg2ar.data.on_disk import DiskFile
from lg2ar.errors import InputError
from lg2ar.files import alone_with, written_beside

# Graphs that are written at a time.
STEP = 500

# Called with how many graphs of how many are written; of how many is 0 where that is not known.
OnGraphs = Callable[[int, int], None]


def write_on_disk(
    path: str | Path,
    data: Dataset | Iterable[Dataset],
    *,
    append: bool = False,
    replace: bool = False,
    on_graphs: OnGraphs | None = None,
) -> int:
    """Write graphs as an on-disk data set that :func:`~lg2ar.data.on_disk.read_on_disk` opens.

    It is written beside its place and moved there when it is whole: a conversion that is stopped,
    by whatever, leaves what was there before, and can be started again.

    Args:
        path: The file, ``.sqlite``.
        data: The graphs; parts of them one after the other, where they do not fit into memory
            together. All parts have the same features and columns.
        append: Whether to add the graphs to those that the file has.
        replace: Whether to write the file anew where there is one.
        on_graphs: Called now and then with how many are written.

    Returns:
        How many graphs the file holds.

    Raises:
        InputError: When the file is there already or cannot be written, when the parts do not fit
            each other, or when the data is one large graph.
    """
    path = Path(path)
    check_out(path, append=append, replace=replace)
    parts = [data] if isinstance(data, Dataset) else data
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone_with(path), written_beside(path) as beside:
            held = DiskFile(path) if append and path.exists() else None
            if held is not None:
                shutil.copyfile(path, beside)
            number = _write(beside, parts, held, on_graphs)
    except (OSError, OverflowError, sqlite3.Error) as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None
    return number


def check_out(path: Path, *, append: bool, replace: bool) -> None:
    """Refuse a file that could not be written, or is not to be.

    Raises:
        InputError: Saying why.
    """
    if path.suffix != SUFFIX:
        raise InputError(f"{path}: an on-disk data set is called something{SUFFIX}; rename it.")
    if append and replace:
        raise InputError("--append and --replace cannot both be meant; leave one out.")
    if path.exists() and not (append or replace):
        raise InputError(f"{path}: is there already; add to it (--append) or --replace it.")


def holds_already(path: Path, part: Dataset, *, append: bool) -> int:
    """How many graphs a file holds where these are among them, or are all; else 0.

    Args:
        path: The file; it need not be there.
        part: The graphs.
        append: Whether they may have been added to others.
    """
    if not path.exists():
        return 0
    with alone_with(path):  # nobody is at it, and what a killed one left goes
        held = DiskFile(path)
        own, parts = part.fingerprint(), held.parts()
    return held.about.num_graphs if (own in parts if append else parts == [own]) else 0


def _write(
    beside: Path, parts: Iterable[Dataset], held: DiskFile | None, on_graphs: OnGraphs | None
) -> int:
    connection = sqlite3.connect(beside, isolation_level=None)
    try:
        # Of no use to anybody before it is whole, so nothing is done for it to survive a crash.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        writer = _Writer(connection, held)
        known = set() if held is None else set(held.names() or ())
        for part in parts:
            writer.add(part, on_graphs)  # which refuses what does not fit at all
            _check_new(part, known)
        about = writer.finish()
        connection.execute("COMMIT")
    finally:
        connection.close()
    return about.num_graphs


def _check_new(part: Dataset, known: set[str]) -> None:
    """Refuse graphs whose names are there already: most likely the same part a second time."""
    names = part.ids or ()
    again = next((name for name in names if name in known), None)
    if again is not None:
        raise InputError(
            f"{part.name}: graph '{again}' is in the file already; leave out what was added "
            "before, or give the graphs other ids."
        )
    known.update(names)


@dataclass
class Tally:
    """What is counted of a raw column while it is written."""

    name: str
    kind: Literal["number", "category"]
    missing: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)

    def encode(self, column: Column) -> np.ndarray:
        """The column as numbers: itself, or the codes of its categories, -1 where missing."""
        if self.kind == "number":
            self.missing += int(np.isnan(column.values).sum())
            return column.values
        import pandas as pd

        places, values = pd.factorize(column.values)  # -1 where missing
        codes = np.array([self.codes.setdefault(v, len(self.codes)) for v in values], dtype="<i4")
        self.counts += [0] * (len(self.codes) - len(self.counts))
        counts = np.bincount(places[places >= 0], minlength=len(values))
        for code, count in zip(codes, counts, strict=True):
            self.counts[code] += int(count)
        self.missing += int((places < 0).sum())
        encoded: np.ndarray = np.append(codes, np.int32(-1))[places]
        return encoded

    def settled(self) -> RawColumn:
        """What is known of the column."""
        return RawColumn(self.name, self.kind, self.missing, tuple(self.codes), tuple(self.counts))

    @classmethod
    def taken_up(cls, raw: RawColumn) -> Tally:
        """Go on counting a column."""
        codes = {value: code for code, value in enumerate(raw.values)}
        return cls(raw.name, raw.kind, raw.missing, codes, list(raw.counts))


def encoded(of: str, columns: Columns, tallies: Sequence[Tally]) -> dict[str, np.ndarray]:
    """Raw columns as the tensors they are kept in, each counted by its tally."""
    found: dict[str, np.ndarray] = {}
    for owner, kind, name, numbers in RAW:
        pairs = zip(tallies, columns, strict=True) if owner == of else ()
        parts = [tally.encode(column) for tally, column in pairs if tally.kind == kind]
        if parts:
            found[name] = np.stack(parts, axis=1).astype(numbers)
    return found


class _Writer:
    """Adds parts of the data to a file, and says at the end what it has become.

    Args:
        connection: The file that is written.
        held: What it begins with, where it is a copy of another.
    """

    def __init__(self, connection: sqlite3.Connection, held: DiskFile | None) -> None:
        self._connection = connection
        self._about = None if held is None else held.about
        self._parts = [] if held is None else held.parts()
        # Of a file without checksums, which an earlier version wrote, none are begun in the middle.
        self._summed = held is None or bool(held.sums)
        self._sums = {} if held is None else dict(held.sums)
        self._tallies: dict[str, list[Tally]] = {"nodes": [], "edges": []}
        if self._about is not None:
            for of in ("nodes", "edges"):
                raws = self._about.layout.nodes if of == "nodes" else self._about.layout.edges
                self._tallies[of] = [Tally.taken_up(raw) for raw in raws]

    def add(self, part: Dataset, on_graphs: OnGraphs | None) -> None:
        """Write all graphs of a part behind those that are there."""
        if part.level != "graph":
            raise InputError(
                f"{part.name}: is one large graph, and a file .sqlite is for many; call it "
                "something.graph, which is written as a folder."
            )
        about = self._about
        about = self._begin(part) if about is None else self._go_on(about, part)
        first = about.num_graphs
        self._write_rows(about, part, first)
        total = first + part.graph.num_graphs
        for done in self._write_graphs(about.layout, part, first):
            if on_graphs is not None:
                on_graphs(done, total)
        self._about = replace(about, num_graphs=total)
        self._parts.append(part.fingerprint())

    def finish(self) -> About:
        """Write what is known of all graphs together."""
        if self._about is None:
            raise InputError("there are no graphs to be written; give at least one.")
        layout = replace(
            self._about.layout,
            nodes=tuple(tally.settled() for tally in self._tallies["nodes"]),
            edges=tuple(tally.settled() for tally in self._tallies["edges"]),
        )
        about = replace(self._about, layout=layout)
        self._connection.executemany(
            "INSERT OR REPLACE INTO about VALUES (?, ?)",
            [
                ("about", about.to_json()),
                ("fingerprint", about.fingerprint),
                ("parts", json.dumps(self._parts)),
                *([("sums", json.dumps(self._all_sums(about)))] if self._summed else []),
            ],
        )
        return about

    def _all_sums(self, about: About) -> dict[str, int]:
        return {**self._sums, "about": disk_sums.of_text(about.to_json())}

    def _begin(self, part: Dataset) -> About:
        """Make the tables for data like this."""
        about = _about(part)
        self._tallies = {
            of: [Tally(raw.name, raw.kind) for raw in about.layout.columns(of)]
            for of in ("nodes", "edges")
        }
        columns = ", ".join(
            f"COL_{name} {'INTEGER' if kind is int else 'BLOB'} NOT NULL"
            for name, kind in about.layout.schema().items()
        )
        for statement in (
            f"CREATE TABLE graphs (id INTEGER PRIMARY KEY, {columns})",
            "CREATE TABLE rows (id INTEGER PRIMARY KEY, name TEXT, label, targets TEXT)",
            "CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT)",
            disk_sums.TABLE,
        ):
            self._connection.execute(statement)
        return about

    def _go_on(self, about: About, part: Dataset) -> About:
        """What is known of the data with another part, once it is clear that it fits."""
        new = _about(part)
        for what, ours, theirs in _differences(about, new):
            raise InputError(
                f"{part.name}: has {what}: {theirs}, the graphs before it have {ours}; make them "
                "alike."
            )
        classes = about.classes
        if classes is not None and new.classes is not None:
            classes = tuple(dict.fromkeys((*classes, *new.classes)))
        digest = hashlib.sha256(f"{about.fingerprint}{new.fingerprint}".encode()).hexdigest()
        notes = tuple(dict.fromkeys((*about.notes, *new.notes)))
        return replace(about, classes=classes, fingerprint=digest, notes=notes)

    def _write_rows(self, about: About, part: Dataset, first: int) -> None:
        """Names, labels and further columns."""
        number = part.graph.num_graphs
        labels: list[Any] = [None] * number if part.y is None else part.y.tolist()
        if about.classes is not None and part.classes is not None:  # they may count differently
            places = [about.classes.index(name) for name in part.classes]
            labels = [places[label] for label in labels]
        names = [None] * number if part.ids is None else part.ids
        columns = [[_plain(value) for value in part.targets[name]] for name in about.targets]
        targets = [json.dumps([column[place] for column in columns]) for place in range(number)]
        for name, values in zip(disk_sums.COLUMNS, (names, labels, targets), strict=True):
            self._sums |= disk_sums.of_values(name, values, self._sums)
        rows = zip(range(first, first + number), names, labels, targets, strict=True)
        self._connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)

    def _write_graphs(self, layout: Layout, part: Dataset, first: int) -> Iterator[int]:
        """The tensors, some graphs at a time; yields how many graphs are written."""
        graph = part.graph
        store = GraphStore(graph)
        # Edges graph by graph, and raw columns of edges in the same order.
        order = graph.batch[graph.edge_index[0]].argsort(stable=True).cpu().numpy()
        held: dict[str, np.ndarray] = {"x": store.graph.x.cpu().numpy()}
        for name in ("edge_attr", "edge_weight"):
            value = getattr(store.graph, name)
            held[name] = np.empty(0) if value is None else value.cpu().numpy()
        for of, columns in (("nodes", part.node_columns), ("edges", part.edge_columns)):
            for name, values in encoded(of, columns, self._tallies[of]).items():
                held[name] = values[order] if of == "edges" else values
        fields = layout.fields()
        arrays = {f.name: np.ascontiguousarray(held[f.name], dtype=f.kind) for f in fields}
        ends = {"nodes": np.cumsum(store.num_nodes), "edges": np.cumsum(store.num_edges)}
        sizes = {"nodes": store.num_nodes, "edges": store.num_edges}
        edge_index = store.graph.edge_index.cpu().numpy()
        marks = ", ".join("?" * (1 + len(layout.names())))
        self._sums |= disk_sums.of_sizes(store.num_nodes, store.num_edges, self._sums)

        def row(place: int) -> tuple[Any, ...]:
            nodes, edges = (
                slice(ends[of][place] - sizes[of][place], ends[of][place])
                for of in ("nodes", "edges")
            )
            own = np.ascontiguousarray(edge_index[:, edges] - nodes.start, dtype="<i8")
            tensors = (arrays[f.name][nodes if f.of == "nodes" else edges] for f in fields)
            counts = int(sizes["nodes"][place]), int(sizes["edges"][place])
            return (first + place, *counts, own.tobytes(), *(t.tobytes() for t in tensors))

        for start in range(0, len(store), STEP):
            end = min(start + STEP, len(store))
            rows = [row(place) for place in range(start, end)]
            self._connection.executemany(f"INSERT INTO graphs VALUES ({marks})", rows)
            if self._summed:
                sums = [(place, disk_sums.of_tensors(blobs)) for place, _, _, *blobs in rows]
                self._connection.executemany("INSERT INTO checks VALUES (?, ?)", sums)
            yield first + end


def _about(part: Dataset) -> About:
    """What is known of a part of the data, before its columns are counted."""
    graph = part.graph
    layout = Layout(
        num_features=graph.num_features,
        num_edge_features=graph.num_edge_features,
        weighted=graph.edge_weight is not None,
        nodes=tuple(RawColumn(column.name, column.kind) for column in part.node_columns),
        edges=tuple(RawColumn(column.name, column.kind) for column in part.edge_columns),
    )
    return About(
        name=part.name,
        layout=layout,
        num_graphs=0,
        fingerprint=part.fingerprint(),
        labels=None if part.y is None else str(part.y.cpu().numpy().dtype),
        named=part.ids is not None,
        targets={name: _kind(values) for name, values in part.targets.items()},
        classes=part.classes,
        notes=part.notes,
        reading=part.reading,
    )


def _differences(ours: About, theirs: About) -> Iterator[tuple[str, str, str]]:
    """In what two parts of the data do not fit each other: what, here and there."""

    def columns(raws: tuple[RawColumn, ...]) -> str:
        return ", ".join(f"{raw.name} ({raw.kind})" for raw in raws) or "none"

    def described(about: About) -> dict[str, str]:
        return {
            "node features": str(about.layout.num_features),
            "edge attributes": str(about.layout.num_edge_features),
            "edge weights": "some" if about.layout.weighted else "none",
            "columns of nodes": columns(about.layout.nodes),
            "columns of edges": columns(about.layout.edges),
            "labels": about.labels or "none",
            "names of labels": "none" if about.classes is None else "some",
            "names": "some" if about.named else "none",
            "further columns": ", ".join(f"{n} ({k})" for n, k in about.targets.items()) or "none",
        }

    for (what, here), there in zip(
        described(ours).items(), described(theirs).values(), strict=True
    ):
        if here != there:
            yield what, here, there


def _kind(values: np.ndarray) -> str:
    """The type of a further column; texts may be of any length."""
    return "O" if values.dtype.kind in "OUS" else str(values.dtype)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
