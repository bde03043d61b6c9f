"""What an on-disk data set is made of: a table of PyG's ``SQLiteDatabase``, and two small ones.

``graphs`` has a row per graph in the layout of :class:`torch_geometric.data.SQLiteDatabase` with a
schema of tensors (:meth:`Layout.schema`), so that PyG can read it: numbers as raw bytes, nothing
pickled. It is written and read with ``sqlite3`` itself, because PyG opens every file for writing,
makes the table where there is none, and unpickles where it is told no schema.

``rows`` holds what belongs to a whole graph: its name, its label, further columns. ``about`` holds
everything else as JSON.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from lg2ar.data.columns import Column, Kind
from lg2ar.errors import InputError, newer_format

FORMAT = 1
SUFFIX = ".sqlite"
TABLES = ("graphs", "rows", "about")

Of = Literal["nodes", "edges"]


@dataclass(frozen=True)
class Field:
    """A tensor of each graph.

    Attributes:
        name: What it is called.
        kind: Its type, as NumPy writes it.
        of: What it has rows of: ``nodes`` or ``edges``.
        width: Numbers in a row; None where a row is a single number.
    """

    name: str
    kind: str
    of: Of
    width: int | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes that a row takes."""
        return np.dtype(self.kind).itemsize * (1 if self.width is None else self.width)

    def read(self, blobs: list[bytes]) -> np.ndarray:
        """The rows of several graphs, one after the other."""
        rows = np.frombuffer(bytearray().join(blobs), dtype=self.kind)
        return rows if self.width is None else rows.reshape(-1, self.width)


@dataclass(frozen=True)
class RawColumn:
    """A raw column of nodes or edges, and what is known of it without reading it.

    Attributes:
        name: What it is called.
        kind: ``number``, or ``category``.
        missing: How many values are missing.
        values: The values of a category, in the order of their codes.
        counts: How often each of them comes.
    """

    name: str
    kind: Kind
    missing: int = 0
    values: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> RawColumn:
        """The column as JSON has it, which another hand may have changed.

        Raises:
            TypeError, KeyError: When it is something else.
        """
        raw = cls(**{**held, "values": tuple(held["values"]), "counts": tuple(held["counts"])})
        words = all(isinstance(word, str) for word in (raw.name, *raw.values))
        counts = all(type(count) is int and count >= 0 for count in (raw.missing, *raw.counts))
        if not words or not counts or raw.kind not in ("number", "category"):
            raise TypeError("a column of no known kind")
        if len(raw.values) != len(raw.counts) or len(set(raw.values)) != len(raw.values):
            raise TypeError("a column whose values are not counted")
        return raw

    def column(self, held: np.ndarray) -> Column:
        """The column, of the numbers or of the codes of categories that are kept.

        Raises:
            ValueError: When there is a code of no category.
        """
        if self.kind == "number":
            return Column(self.name, "number", np.array(held, dtype=np.float64))
        if held.size and not -1 <= held.min() <= held.max() < len(self.values):
            raise ValueError(f"a value that column '{self.name}' does not have")
        known = np.array([*self.values, None], dtype=object)  # -1, the last, is missing
        return Column(self.name, "category", known[held])


@dataclass(frozen=True)
class Layout:
    """The tensors that each graph has.

    Attributes:
        num_features: Width of the node features, ``d_x``.
        num_edge_features: Width of the edge attributes, ``d_e``; 0 where there are none.
        weighted: Whether edges have weights.
        nodes: Raw columns of nodes.
        edges: Raw columns of edges.
    """

    num_features: int
    num_edge_features: int
    weighted: bool
    nodes: tuple[RawColumn, ...] = ()
    edges: tuple[RawColumn, ...] = ()

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Layout:
        """The layout as JSON has it.

        Raises:
            TypeError, KeyError: When it is something else.
        """
        raws = {
            of: tuple(RawColumn.from_dict(raw) for raw in held[of]) for of in ("nodes", "edges")
        }
        return cls(**{**held, **raws})

    def columns(self, of: Of) -> tuple[RawColumn, ...]:
        """The raw columns of nodes or of edges."""
        return self.nodes if of == "nodes" else self.edges

    def place(self, of: Of, raw: RawColumn) -> tuple[str, int]:
        """The tensor that holds a raw column, and the column's place in it."""
        name = next(name for owner, kind, name, _ in RAW if (owner, kind) == (of, raw.kind))
        alike = [other for other in self.columns(of) if other.kind == raw.kind]
        return name, alike.index(raw)

    def check_counts(self, *counts: object) -> None:
        """Refuse widths, and further counts, that are no whole numbers.

        Raises:
            ValueError: When there is such.
        """
        for count in (*counts, self.num_features, self.num_edge_features):
            if type(count) is not int or count < 0:
                raise ValueError("a count is not a whole number")

    def fields(self) -> list[Field]:
        """The tensors, in the order of the table; those without numbers are left out."""
        fields = [
            Field("x", "<f4", "nodes", self.num_features),
            Field("edge_attr", "<f4", "edges", self.num_edge_features),
        ]
        for of, kind, name, numbers in RAW:
            count = sum(column.kind == kind for column in self.columns(of))
            fields.append(Field(name, numbers, of, count))
        fields = [found for found in fields if found.width]
        if self.weighted:
            fields.append(Field("edge_weight", "<f4", "edges"))
        return fields

    def schema(self) -> dict[str, Any]:
        """The table ``graphs`` as PyG's ``SQLiteDatabase`` wants it told."""
        schema: dict[str, Any] = {
            "num_nodes": int,
            "num_edges": int,
            "edge_index": {"dtype": torch.long, "size": (2, -1)},
        }
        for found in self.fields():
            size = (-1,) if found.width is None else (-1, found.width)
            schema[found.name] = {"dtype": TYPES[found.kind], "size": size}
        return schema

    def names(self) -> list[str]:
        """The columns of the table behind the graph's number."""
        return [f"COL_{name}" for name in self.schema()]


# Where raw columns of each kind are kept, and as what.
RAW: tuple[tuple[Of, Kind, str, str], ...] = (
    ("nodes", "number", "node_numbers", "<f8"),
    ("nodes", "category", "node_categories", "<i4"),
    ("edges", "number", "edge_numbers", "<f8"),
    ("edges", "category", "edge_categories", "<i4"),
)
TYPES = {"<f4": torch.float32, "<f8": torch.float64, "<i4": torch.int32, "<i8": torch.int64}


@dataclass(frozen=True)
class About:
    """What is known of all graphs together.

    Attributes:
        name: What the data is called.
        layout: The tensors of each graph.
        num_graphs: How many graphs there are.
        fingerprint: That of the data.
        labels: Type of the labels; None where there are none.
        named: Whether graphs have names.
        targets: Type of each further column, by name.
        classes: Names of the labels.
        notes: Sentences from reading.
        reading: Options that the data was read with.
    """

    name: str
    layout: Layout
    num_graphs: int
    fingerprint: str
    labels: str | None = None
    named: bool = False
    targets: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As it stands in the file."""
        return json.dumps({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> About:
        """What :meth:`to_json` wrote; see :func:`read_description`."""
        held = read_description(text, (FORMAT,), ("classes", "notes"))
        del held["format"]
        about = cls(**held)
        about.check()
        return about

    def check(self) -> None:
        """Refuse what no conversion writes, before anything is done by it.

        Raises:
            ValueError: When there is such.
        """
        self.layout.check_counts(self.num_graphs)
        for column in (*self.layout.nodes, *self.layout.edges):
            if column.kind not in ("number", "category"):
                raise ValueError("a column of no known kind")
            if not all(isinstance(value, str) for value in column.values):
                raise ValueError("a category that is no text")
        kinds = [self.labels, *self.targets.values()]
        if any(kind is not None and np.dtype(kind).kind not in "biufUO" for kind in kinds):
            raise ValueError("labels of no known kind")


def read_description(
    text: str | bytes, formats: tuple[int, ...], lists: tuple[str, ...]
) -> dict[str, Any]:
    """What a conversion wrote of its work as JSON, with its layout and its lists made of it.

    Args:
        text: The JSON.
        formats: Those that are known, the newest last.
        lists: The keys of what is a tuple in memory, or None.

    Raises:
        NewerFormatError: When a newer version wrote it.
        ValueError, TypeError, KeyError, AttributeError: When it is something else.
    """
    held: dict[str, Any] = json.loads(text)
    found = held["format"]
    if told := newer_format(found, formats[-1]):
        raise NewerFormatError(told)
    if type(found) is not int or found not in formats:
        raise ValueError("another format")
    held["layout"] = Layout.from_dict(held["layout"])
    return held | {key: None if held[key] is None else tuple(held[key]) for key in lists}


class NewerFormatError(InputError):
    """Written by a newer version; says so without naming the file."""


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can read and nothing else, closed again at the end.

    Raises:
        InputError: When the file cannot be read, or turns out to be damaged on the way.
    """
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot be opened ({error}).") from None
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        # Nothing in a file is longer than the file; what an expression makes could be.
        longest = min(max(path.stat().st_size, 1 << 20), (1 << 31) - 1)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        yield connection
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from None
    finally:
        connection.close()


def check_tables(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file without our tables, or whose tables are not what is stored in it.

    A virtual table or a computed column makes up what it shows, as much as it likes.

    Raises:
        InputError: When it is such a file.
    """
    marks = ", ".join("?" * len(TABLES))
    query = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
    try:
        found = connection.execute(f"{query} AND name IN ({marks})", TABLES).fetchone()
    except MemoryError:  # so SQLite calls some descriptions of tables that it cannot make out
        raise damaged(path, "its tables cannot be made out") from None
    if found != (len(TABLES),):
        raise damaged(path, "its tables are not there")
    virtual = "SELECT COUNT(*) FROM sqlite_master WHERE name = 'checks' AND rootpage = 0"
    if connection.execute(virtual).fetchone() != (0,):
        raise damaged(path, "its table 'checks' is not stored in it")
    for name in (*TABLES, "checks"):  # the last is not there in files of earlier versions
        if any(column[6] for column in connection.execute(f"PRAGMA table_xinfo({name})")):
            raise damaged(path, f"a computed column in its table '{name}'")


def damaged(path: Path, what: str) -> InputError:
    """The sentence about a file that is not what a conversion wrote."""
    return InputError(
        f"{path}: not a whole on-disk data set ({what}); make it again with 'lg2ar convert'."
    )
