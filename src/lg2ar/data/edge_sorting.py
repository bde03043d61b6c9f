"""Sorting more edges than fit into memory.

Edges are written to a file as they come, and how many each node has is counted. Then they are
distributed to files, each for a range of nodes with about as many edges as another, and each of
these is sorted in memory. However many files there are, no more than a few are open at a time.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal

import numpy as np

from lg2ar.data.mapping import FolderWriter, node_kind

# Edges that are sorted at a time: some 500 MB.
MOST = 1 << 23

# Edges that are read from a file at a time.
STEP = 1 << 21


@dataclass(frozen=True, eq=False)
class Part:
    """The sorted edges of a range of nodes.

    Attributes:
        nodes: The range.
        first: The node that each edge is sorted by.
        second: Its other node.
        values: What belongs to each edge, by name.
    """

    nodes: range
    first: np.ndarray
    second: np.ndarray
    values: Mapping[str, np.ndarray]

    def distinct(self) -> Part:
        """Without repetitions; of edges alike, values included, the first stays."""
        same = (self.first[1:] == self.first[:-1]) & (self.second[1:] == self.second[:-1])
        if not same.any():
            return self
        # Equal edges side by side; the sort is stable, so the first of them comes first.
        order = np.lexsort((*self.values.values(), self.second, self.first))
        again = np.ones(max(len(order) - 1, 0), dtype=bool)
        for values in (self.first, self.second, *self.values.values()):
            again &= values[order][1:] == values[order][:-1]
        kept = np.sort(order[np.concatenate([[True], ~again])])
        return self.take(kept)

    def take(self, index: np.ndarray) -> Part:
        """Some of the edges."""
        values = {name: held[index] for name, held in self.values.items()}
        return Part(self.nodes, self.first[index], self.second[index], values)

    def parallel(self) -> bool:
        """Whether two edges join the same nodes."""
        same = (self.first[1:] == self.first[:-1]) & (self.second[1:] == self.second[:-1])
        return bool(same.any())


class EdgeSorter:
    """Takes in edges in any order and gives them back sorted; to be used in a ``with`` block.

    Args:
        folder: Where files are written; they are removed as soon as they were read, and at the end.
        name: What the files are called.
        kinds: Types of the values that belong to edges, by name.
        both_ways: Whether an edge is given back once by either of its nodes.
        most: Edges to be sorted at a time.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        kinds: Mapping[str, str] | None = None,
        *,
        both_ways: bool = False,
        most: int = MOST,
    ) -> None:
        self._stem = folder / f".{name}"
        self._kinds = dict(kinds or {})
        self._both_ways, self._most = both_ways, most
        self._counts = np.zeros(0, dtype=np.int64)
        self._files = {field: self._open(f"raw-{field}") for field in self._fields("<i8")}

    def _fields(self, node: str) -> dict[str, str]:
        return {"first": node, "second": node, **self._kinds}

    def _open(self, what: str, mode: Literal["rb", "wb", "ab"] = "wb") -> BinaryIO:
        return open(f"{self._stem}-{what}", mode)

    def add(self, first: np.ndarray, second: np.ndarray, **values: np.ndarray) -> None:
        """Take in edges."""
        for nodes in (first, second) if self._both_ways else (first,):
            counts = np.bincount(nodes, minlength=len(self._counts))
            counts[: len(self._counts)] += self._counts
            self._counts = counts
        given = {"first": first, "second": second, **values}
        for field, kind in self._fields("<i8").items():
            self._files[field].write(np.ascontiguousarray(given[field], dtype=kind).data)

    def parts(self, num_nodes: int) -> Iterator[Part]:
        """All edges, sorted by first and second node and then as they came, a range at a time.

        Args:
            num_nodes: How many nodes there are.
        """
        node = node_kind(num_nodes)
        bounds = self._bounds(num_nodes)
        self._distribute(bounds, node)
        for place, (low, high) in enumerate(pairwise(bounds)):
            held = {
                field: self._read(f"{place}-{field}", kind)
                for field, kind in self._fields(node).items()
            }
            first, second = held.pop("first").astype(np.int64), held.pop("second").astype(np.int64)
            key = first * num_nodes + second
            if self._kinds:
                order = np.argsort(key, kind="stable")
                key = key[order]
                held = {field: values[order] for field, values in held.items()}
            else:  # equal keys are equal edges, so any sort will do
                key.sort()
            yield Part(range(low, high), key // num_nodes, key % num_nodes, held)

    def __enter__(self) -> EdgeSorter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the files of edges that were never given back."""
        for file in self._files.values():
            file.close()
        for left in self._stem.parent.glob(f"{glob.escape(self._stem.name)}-*"):
            left.unlink(missing_ok=True)

    def _bounds(self, num_nodes: int) -> list[int]:
        """Where ranges of nodes begin, and the end of the last."""
        counts = np.zeros(num_nodes, dtype=np.int64)
        counts[: len(self._counts)] = self._counts
        self._counts = np.zeros(0, dtype=np.int64)
        before = np.cumsum(counts) - counts
        begun = np.flatnonzero(np.diff(before // self._most)) + 1
        return [0, *begun.tolist(), num_nodes]

    def _distribute(self, bounds: list[int], node: str) -> None:
        for file in self._files.values():
            file.close()
        raw = {field: np.dtype(kind) for field, kind in self._fields("<i8").items()}
        with ExitStack() as opened:
            sources = {f: opened.enter_context(self._open(f"raw-{f}", "rb")) for f in raw}
            while True:
                some = {
                    field: np.frombuffer(sources[field].read(STEP * kind.itemsize), kind)
                    for field, kind in raw.items()
                }
                if not len(some["first"]):
                    break
                self._write_some(_turned(some) if self._both_ways else some, bounds, node)
        for field in raw:
            Path(f"{self._stem}-raw-{field}").unlink()

    def _write_some(self, some: dict[str, np.ndarray], bounds: list[int], node: str) -> None:
        place = np.searchsorted(bounds, some["first"], side="right") - 1
        order = np.argsort(place, kind="stable")
        ends = np.searchsorted(place[order], np.arange(len(bounds)))
        for field, kind in self._fields(node).items():
            values = np.ascontiguousarray(some[field][order], dtype=kind)
            for bucket in range(len(bounds) - 1):
                # Opened anew each time: there may be more of them than a process may have open.
                with self._open(f"{bucket}-{field}", "ab") as file:
                    file.write(values[ends[bucket] : ends[bucket + 1]].data)

    def _read(self, what: str, kind: str) -> np.ndarray:
        path = Path(f"{self._stem}-{what}")
        if not path.exists():  # there are no edges at all
            return np.empty(0, dtype=kind)
        values = np.fromfile(path, dtype=kind)
        path.unlink()
        return values


def _turned(some: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Each edge, and right behind it the same one turned round."""
    doubled = {field: np.repeat(values, 2) for field, values in some.items()}
    doubled["first"][1::2], doubled["second"][1::2] = some["second"], some["first"]
    return doubled


@dataclass(frozen=True)
class WrittenLists:
    """What lists that were written hold.

    Attributes:
        entries: How many edges.
        parallel: Whether two of them join the same nodes.
    """

    entries: int
    parallel: bool


def write_lists(
    writer: FolderWriter,
    parts: Iterator[Part],
    num_nodes: int,
    names: tuple[str, str] = ("start", "to"),
    kinds: Mapping[str, str] | None = None,
) -> WrittenLists:
    """Write sorted edges as lists of neighbours.

    Args:
        writer: Where to.
        parts: The edges.
        num_nodes: How many nodes there are.
        names: Of the two arrays.
        kinds: Types of the arrays that the edges' values become, by name.
    """
    start, to = writer.array(names[0], "<i8"), writer.array(names[1], node_kind(num_nodes))
    more = {name: writer.array(name, kind) for name, kind in (kinds or {}).items()}
    total, parallel = 0, False
    start.append(np.zeros(1, dtype=np.int64))
    for part in parts:
        counts = np.bincount(part.first - part.nodes.start, minlength=len(part.nodes))
        start.append(total + np.cumsum(counts))
        to.append(part.second)
        for name, array in more.items():
            array.append(part.values[name])
        total += len(part.first)
        parallel = parallel or part.parallel()
    return WrittenLists(total, parallel)
