"""Checksums of an on-disk data set: what is read is what the conversion wrote.

The table ``checks`` has a row per graph with the CRC-32 of each of its tensors. In ``about``, under
``sums``, stand those of what belongs to all graphs: sizes, names, labels, further columns. Files of
earlier versions have neither, and are read without.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lg2ar.data.disk_layout import Layout, damaged

TABLE = "CREATE TABLE IF NOT EXISTS checks (id INTEGER PRIMARY KEY, sums BLOB NOT NULL)"
COLUMNS = ("name", "label", "targets")  # of the table rows


def of_tensors(blobs: Sequence[bytes]) -> bytes:
    """The checksums of a graph's tensors, four bytes each."""
    return b"".join(zlib.crc32(blob).to_bytes(4, "little") for blob in blobs)


def tensor_names(layout: Layout) -> list[str]:
    """The tensors of a graph, in the order of their checksums."""
    return ["edge_index", *(found.name for found in layout.fields())]


def of_sizes(
    nodes: np.ndarray, edges: np.ndarray, before: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Checksums of the sizes of graphs, behind those ``before`` them."""
    pairs, before = (("nodes", nodes), ("edges", edges)), before or {}
    return {
        name: zlib.crc32(values.astype("<i8").tobytes(), before.get(name, 0))
        for name, values in pairs
    }


def of_values(
    column: str, values: Iterable[Any], before: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Checksum of a column of texts and numbers, behind those ``before`` them."""
    total = (before or {}).get(column, 0)
    for value in values:
        total = zlib.crc32(_as_kept(value).encode("utf-8", "surrogatepass"), total)
    return {column: total}


def _as_kept(value: Any) -> str:
    """A value as SQLite gives it back: it has no true and false, and nothing that is no number."""
    if isinstance(value, bool):
        value = int(value)
    return repr(None if value != value else value)


def of_text(text: str) -> int:
    """The checksum of a text."""
    return zlib.crc32(text.encode())


def read(path: Path, said: str | None) -> dict[str, int]:
    """The checksums that a file has of what belongs to all graphs; none in older ones."""
    try:
        held = {} if said is None else json.loads(said)
        return {str(name): int(value) for name, value in held.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise damaged(path, "its checksums") from None


def check(path: Path, held: Mapping[str, int], found: Mapping[str, int]) -> None:
    """Compare checksums, where there are some."""
    for name, value in found.items():
        if held and held.get(name) != value:
            raise damaged(path, f"the checksum of {name} is not the recorded one")


def check_size(path: Path) -> None:
    """Refuse a file that is shorter than it says, which SQLite notices only when it gets there."""
    with open(path, "rb") as file:
        head = file.read(32)
    size = int.from_bytes(head[16:18], "big")
    pages = int.from_bytes(head[28:32], "big")
    if len(head) < 32 or path.stat().st_size < pages * (65536 if size == 1 else size):
        raise damaged(path, "it is cut short")


class TensorSums:
    """Checks tensors as they are read.

    Args:
        path: The file.
        layout: Its tensors.
        names: Which of them are read.
        connection: To the file.
    """

    def __init__(
        self, path: Path, layout: Layout, names: Sequence[str], connection: sqlite3.Connection
    ) -> None:
        self._path, self._connection, self._names = path, connection, names
        self._places = [tensor_names(layout).index(name) for name in names]
        query = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'checks'"
        self._known = connection.execute(query).fetchone() == (1,)

    def check(self, rows: dict[int, tuple[Any, ...]]) -> None:
        """Refuse graphs of which a tensor is not what was written."""
        if not self._known or not rows:
            return
        marks = ", ".join("?" * len(rows))
        query = f"SELECT id, sums FROM checks WHERE id IN ({marks})"
        for graph, sums in self._connection.execute(query, list(rows)):
            self._compare(graph, rows[graph], sums)

    def _compare(self, graph: int, blobs: tuple[Any, ...], sums: Any) -> None:
        for name, place, blob in zip(self._names, self._places, blobs, strict=True):
            whole = isinstance(sums, bytes) and isinstance(blob, bytes)
            if not whole or sums[4 * place : 4 * place + 4] != of_tensors([blob]):
                raise damaged(self._path, f"{name} of graph {graph} is not what was written")
