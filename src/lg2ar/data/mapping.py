"""One large graph into a folder that is mapped, which is there whole or not at all."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from lg2ar.data import prints
from lg2ar.data.columns import ColumnRecipe, Columns
from lg2ar.data.conversion import Tally, encoded
from lg2ar.data.dataset import Dataset
from lg2ar.data.disk_layout import Layout
from lg2ar.data.mapped_folder import MappedFolder
from lg2ar.data.mapped_layout import MANIFEST, SUFFIX, ArrayFile, Manifest
from lg2ar.errors import InputError
from lg2ar.files import bring_back, folder_beside, tidy, write_bytes

# Bytes of a file's header: the shape, which is known at the end only, is written into it then.
HEADER = 128

# Values that are turned and written at a time.
STEP = 1 << 20


class ArrayWriter:
    """Writes a ``.npy`` file row by row; how many rows it has is known at the end.

    Args:
        path: The file.
        kind: Type of the numbers, as NumPy writes it.
        width: Numbers in a row; None where a row is a single one.
    """

    def __init__(self, path: Path, kind: str, width: int | None = None) -> None:
        self.rows = 0
        self._kind, self._width = np.dtype(kind), width
        self._digest = hashlib.sha256()
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close
        self._file.write(bytes(HEADER))

    def append(self, rows: np.ndarray) -> None:
        """Write further rows."""
        held = np.ascontiguousarray(rows, dtype=self._kind)
        if held.shape[1:] != (() if self._width is None else (self._width,)):
            raise ValueError(f"rows of another width: {held.shape}")
        plain = held.reshape(-1).view(np.uint8)
        self._digest.update(plain.data)
        self._file.write(plain.data)
        self.rows += len(held)

    def close(self) -> ArrayFile:
        """Finish the file, see it on the disk, and say what it is."""
        shape = (self.rows,) if self._width is None else (self.rows, self._width)
        told = f"{{'descr': '{self._kind.str}', 'fortran_order': False, 'shape': {shape}, }}"
        self._file.seek(0)
        self._file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", HEADER - 10))
        self._file.write(told.encode().ljust(HEADER - 11) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return ArrayFile(self._kind.str, shape, self._digest.hexdigest())

    def abandon(self) -> None:
        """Close the file as it is; it is of no use."""
        self._file.close()


class FolderWriter:
    """Writes the arrays of a folder beside its place, to be moved there when it is whole.

    Args:
        folder: Where it is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, ArrayWriter] = {}
        self._done: dict[str, ArrayFile] = {}

    def array(self, name: str, kind: str, width: int | None = None) -> ArrayWriter:
        """Begin an array."""
        self._open[name] = ArrayWriter(self.folder / f"{name}.npy", kind, width)
        return self._open[name]

    def write(self, name: str, values: np.ndarray, kind: str | None = None) -> None:
        """Write a whole array, some rows at a time."""
        width = values.shape[1] if values.ndim == 2 else None
        writer = self.array(name, kind or values.dtype.newbyteorder("<").str, width)
        for first in range(0, len(values), STEP):
            writer.append(values[first : first + STEP])

    def write_texts(self, name: str, texts: Iterable[str]) -> None:
        """Write words as UTF-8, and where each of them ends."""
        content, ends = self.array(name, "|u1"), self.array(f"{name}_ends", "<i8")
        for some in _some(texts):
            encoded = [text.encode() for text in some]
            last = content.rows
            content.append(np.frombuffer(b"".join(encoded), dtype=np.uint8))
            ends.append(last + np.cumsum([len(text) for text in encoded]))

    def flushed(self, *names: str) -> dict[str, ArrayFile]:
        """Finish some arrays before the others, to be read again; what they are."""
        self._done |= {name: self._open.pop(name).close() for name in names}
        return {name: self._done[name] for name in names}

    def finish(self, *, fingerprint: str | None = None, **known: Any) -> Manifest:
        """Close all arrays and write the manifest.

        Args:
            fingerprint: That of the data; None makes one of the arrays' checksums.
            **known: The rest of the :class:`~lg2ar.data.mapped_layout.Manifest`.
        """
        self._done |= {name: writer.close() for name, writer in self._open.items()}
        self._open = {}
        if fingerprint is None:
            sums = "".join(f"{name} {file.sha256}\n" for name, file in sorted(self._done.items()))
            fingerprint = hashlib.sha256(sums.encode()).hexdigest()
        manifest = Manifest(fingerprint=fingerprint, arrays=self._done, **known)
        manifest.check()
        write_bytes(self.folder / MANIFEST, manifest.to_bytes())
        return manifest

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for writer in self._open.values():
            writer.abandon()


def write_mapped(
    path: str | Path, dataset: Dataset, *, replace: bool = False, made_of: str = ""
) -> Manifest:
    """Write one large graph as a folder that :func:`~lg2ar.data.mapped.read_mapped` opens.

    The graph is in memory here; :func:`~lg2ar.data.mapped_tables.map_tables` does without.

    Args:
        path: The folder, ``something.graph``.
        dataset: The graph.
        replace: Whether to write it anew where there is one.
        made_of: The print of what the graph was read from, where that is tables; else it is that of
            the graph (:mod:`lg2ar.data.prints`).

    Raises:
        InputError: When it is there already or cannot be written, or when there are many graphs.
    """
    path = Path(path)
    check_folder(path, replace=replace)
    if dataset.level != "node" or dataset.graph.num_graphs != 1:
        raise InputError(
            f"{dataset.name}: is not one large graph; a folder {SUFFIX} is for one, call OUT "
            "something.sqlite."
        )
    with writing(path) as writer:
        tallies = _write_graph(writer, dataset)
        made_of = made_of or prints.of_dataset(dataset)
        return finish_dataset(writer, dataset, tallies, made_of=made_of)


def check_folder(path: Path, *, replace: bool) -> None:
    """Refuse a folder that could not be written, or is not to be.

    Raises:
        InputError: Saying why.
    """
    if path.suffix != SUFFIX:
        raise InputError(f"{path}: a folder of one large graph is called something{SUFFIX}.")
    bring_back(path)
    if path.exists() and not replace:
        raise InputError(f"{path}: is there already; --replace it, or choose another name.")
    if path.exists() and not (path / MANIFEST).is_file():
        raise InputError(
            f"{path}: is something else than a folder of one large graph and is not replaced; "
            "choose another name."
        )


def holds_already(path: Path, made_of: str, *, replace: bool) -> Manifest | None:
    """What a folder holds that was made of the same source with the same options; else None.

    Args:
        path: The folder; it need not be there.
        made_of: The print of the source (:mod:`lg2ar.data.prints`).
        replace: Whether another one, or a damaged one, is to be written anew.

    Raises:
        InputError: When it is another one or damaged, and not to be replaced.
    """
    tidy(path)
    if not path.exists():
        return None
    try:
        manifest = MappedFolder(path).manifest
    except InputError:
        if replace:
            return None
        raise
    if manifest.made_of == made_of:
        return manifest
    if replace:
        return None
    what = (
        "was made of another source, or with other options"
        if manifest.made_of
        else "does not say what it was made of, as an earlier version wrote it"
    )
    raise InputError(f"{path}: is there already and {what}; --replace it, or choose another name.")


@contextmanager
def writing(path: Path) -> Iterator[FolderWriter]:
    """A folder to write into, which takes its place at the end if nothing went wrong."""
    try:
        with folder_beside(path) as part, FolderWriter(part) as writer:
            yield writer
    except (OSError, OverflowError) as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None


def finish_dataset(
    writer: FolderWriter,
    dataset: Dataset,
    tallies: dict[str, list[Tally]],
    *,
    num_edges: int | None = None,
    weighted: bool | None = None,
    fingerprint: str | None = None,
    made_of: str = "",
) -> Manifest:
    """Write labels, names and further columns, and say what the folder holds.

    Args:
        writer: Has the arrays of the graph itself.
        dataset: What is known besides.
        tallies: What was counted of raw columns.
        num_edges: Where the data set's own graph has no edges, as they went another way.
        weighted: The same of weights.
        fingerprint: The same; else the data set's own.
        made_of: The print of what it is made of.
    """
    graph = dataset.graph
    if dataset.y is not None and len(dataset.y) == graph.num_nodes:
        kind = "<f4" if dataset.y.is_floating_point() else "<i8"
        writer.write("y", dataset.y.cpu().numpy(), kind)
    if dataset.ids is not None:
        writer.write_texts("ids", dataset.ids)
    for place, values in enumerate(dataset.targets.values()):
        if values.dtype.kind in "biuf":
            writer.write(f"target_{place}", values)
        else:
            writer.write_texts(
                f"target_{place}", ("" if value is None else str(value) for value in values)
            )
    columns = {"nodes": dataset.node_columns, "edges": dataset.edge_columns}
    layout = Layout(
        num_features=graph.num_features,
        num_edge_features=graph.num_edge_features,
        weighted=graph.edge_weight is not None if weighted is None else weighted,
        nodes=tuple(tally.settled() for tally in tallies["nodes"]),
        edges=tuple(tally.settled() for tally in tallies["edges"]),
    )
    return writer.finish(
        name=dataset.name,
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges if num_edges is None else num_edges,
        layout=layout,
        fingerprint=dataset.fingerprint() if num_edges is None else fingerprint,
        rules={
            of: ColumnRecipe.learn(held, f"{dataset.name}, {of}").to_dict()
            for of, held in columns.items()
            if held
        },
        targets=tuple(dataset.targets),
        classes=dataset.classes,
        notes=tuple(dataset.notes),
        reading=dict(dataset.reading),
        made_of=made_of,
    )


def _write_graph(writer: FolderWriter, dataset: Dataset) -> dict[str, list[Tally]]:
    """Lists of neighbours, features, weights, attributes and raw columns."""
    graph, n = dataset.graph, dataset.graph.num_nodes
    source, target = graph.edge_index.cpu().numpy()
    there = np.lexsort((target, source))  # stable: edges between the same nodes stay in order
    back = np.lexsort((source, target))
    small = node_kind(n)
    writer.write("start", starts(source, n))
    writer.write("to", target[there], small)
    if graph.num_features:
        writer.write("x", graph.x.cpu().numpy(), "<f4")
    raw: dict[str, np.ndarray] = {}
    for name in ("edge_weight", "edge_attr"):
        value = getattr(graph, name)
        if value is not None:
            raw[name] = value.cpu().numpy()
    tallies = write_columns(writer, "nodes", dataset.node_columns, None)
    edges, held = encode_columns("edges", dataset.edge_columns)
    raw |= held
    for name, values in raw.items():
        writer.write(name, values[there])
    mutual = (
        np.array_equal(source[there], target[back])
        and np.array_equal(target[there], source[back])
        and all(np.array_equal(v[there], v[back], equal_nan=True) for v in raw.values())
    )
    if not mutual:
        slot = np.empty_like(there)
        slot[there] = np.arange(len(there))
        writer.write("in_start", starts(target, n))
        writer.write("in_from", source[back], small)
        writer.write("in_slot", slot[back], node_kind(len(there)))
    pairs = source[there] * n + target[there]
    if not mutual or (pairs[1:] == pairs[:-1]).any():
        walk = np.unique(np.concatenate([pairs, target * n + source]))
        writer.write("walk_start", starts(walk // n, n))
        writer.write("walk_to", walk % n, small)
    return {"nodes": tallies, "edges": edges}


def write_columns(
    writer: FolderWriter, of: str, columns: Columns, order: np.ndarray | None
) -> list[Tally]:
    """Write raw columns as the tensors they are kept in; what was counted of them is returned."""
    tallies, held = encode_columns(of, columns)
    for name, values in held.items():
        writer.write(name, values if order is None else values[order])
    return tallies


def encode_columns(of: str, columns: Columns) -> tuple[list[Tally], dict[str, np.ndarray]]:
    """Raw columns as the tensors they are kept in, and what was counted of them."""
    tallies = [Tally(column.name, column.kind) for column in columns]
    return tallies, encoded(of, columns, tallies)


def starts(nodes: np.ndarray, num_nodes: int) -> np.ndarray:
    """Where the list of each node begins, given the node of each entry in any order."""
    counts = np.bincount(nodes, minlength=num_nodes)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def node_kind(count: int) -> str:
    """The type of numbers below a count."""
    return "<i4" if count < 2**31 else "<i8"


def _some(texts: Iterable[str]) -> Iterator[list[str]]:
    """Words in lists of some."""
    held: list[str] = []
    for text in texts:
        held.append(text)
        if len(held) == STEP:
            yield held
            held = []
    if held:
        yield held
