"""Graphs in the text files of TUDataset, in a folder or a zip archive.

``NAME_A.txt`` lists edges, ``NAME_graph_indicator.txt`` the graph of each node; all numbers begin
with one. Beside them may lie ``node_labels``, ``node_attributes``, ``edge_labels``,
``edge_attributes``, ``graph_labels`` and ``graph_attributes``, a line per node, edge or graph. What
is made of them is what PyG's ``TUDataset(use_node_attr=True, use_edge_attr=True)`` makes, without
its pickled files.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lg2ar.config import Level
from lg2ar.data.archives import read_zip
from lg2ar.data.dataset import Dataset
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch

PARTS = (
    "A",
    "graph_indicator",
    "node_labels",
    "node_attributes",
    "edge_labels",
    "edge_attributes",
    "graph_labels",
    "graph_attributes",
)

# Labels become columns of zeros and ones, as many as there are numbers from lowest to highest.
MOST_LABELS = 65536
FEW_LABELS = 1024
MOST_ONES = 1 << 28  # of more labels than a few


def read_tu(path: str | Path, *, level: Level | None = None) -> Dataset:
    """Read graphs in the files of TUDataset.

    Node features are the attributes, then the labels one-hot; edge attributes likewise. Edges lie
    sorted, loops are dropped, and edges listed twice become one with the sum of their attributes:
    all as PyG does. A label per graph becomes ``y``, numbered in ascending order; an attribute
    per graph is a number to predict and goes first, several are ``targets``.

    Args:
        path: The folder (or the one above its ``raw``), the zip archive, or the file
            ``NAME_A.txt``.
        level: What is to be embedded; graphs, unless it is told.

    Raises:
        InputError: Naming file and line.
    """
    path = Path(path)
    name, files = _open(path)
    for part in ("A", "graph_indicator"):
        if part not in files:
            raise InputError(f"{path}: has no file {name}_{part}.txt, so it is not a TU data set.")
    batch, order = _read_graphs(files["graph_indicator"])
    num_graphs = int(batch[-1]) + 1
    edges, edge_attr = _read_edges(files, batch, order)
    graph = GraphBatch(
        x=_features(files, "node", files["graph_indicator"], len(batch))[order],
        edge_index=edges,
        batch=torch.from_numpy(batch),
        num_graphs=num_graphs,
        edge_attr=edge_attr if edge_attr.size(1) else None,
    )
    level = level or "graph"
    labels = _read_labels(files, num_graphs) if level == "graph" else {}
    return Dataset(name=name, level=level, graph=graph.validate(str(path)), **labels)


def is_tu(path: Path) -> bool:
    """Whether a path looks like graphs in the files of TUDataset."""
    if path.is_dir():
        return any(any(folder.glob("*_A.txt")) for folder in (path, path / "raw"))
    return path.name.endswith("_A.txt") or path.suffix.lower() == ".zip"


@dataclass(frozen=True)
class _File:
    """One text file of numbers: where it is, for messages, and its bytes."""

    where: str
    content: bytes

    @cached_property
    def name(self) -> str:
        return PurePosixPath(self.where.replace("\\", "/")).name

    def numbers(self, kind: type[np.generic], rows: int | None = None, of: str = "") -> np.ndarray:
        """All numbers, a row per line.

        Args:
            kind: Of the numbers.
            rows: How many lines there must be.
            of: What a line stands for and who says how many there are.

        Returns:
            Array of shape ``[lines, numbers in a line]``.
        """
        content = self.content.removeprefix(b"\xef\xbb\xbf").rstrip()
        if not content:
            values = np.empty((0, 0), dtype=kind)
        else:
            fast = _fast_numbers(content, kind)
            values = self._slow_numbers(content, kind) if fast is None else fast
        if rows is not None and len(values) != rows:
            raise InputError(
                f"{self.where}: has {len(values)} lines where there are {rows} {of}; it was cut "
                "short, or belongs to other data."
            )
        return values

    def column(self, kind: type[np.generic], rows: int | None = None, of: str = "") -> np.ndarray:
        """The numbers of a file with one in each line."""
        values = self.numbers(kind, rows, of)
        if len(values) and values.shape[1] != 1:
            raise InputError(f"{self.where}: line 1 has {values.shape[1]} numbers, expected one.")
        return values.reshape(-1)

    def _slow_numbers(self, content: bytes, kind: type[np.generic]) -> np.ndarray:
        """Line by line, to find the one that is wrong."""
        what = "whole number" if kind is np.int64 else "number"
        rows: list[list[Any]] = []
        for place, line in enumerate(content.splitlines(), start=1):
            words = [word.strip() for word in line.split(b",")]
            if rows and len(words) != len(rows[0]):
                raise InputError(
                    f"{self.where}: line {place} has {len(words)} numbers where line 1 has "
                    f"{len(rows[0])}."
                )
            try:
                rows.append([kind(word.decode("ascii")) for word in words])
            except (ValueError, OverflowError):
                text = line.decode("utf-8", "backslashreplace").replace("\0", "\\0")[:40]
                raise InputError(
                    f"{self.where}: line {place} holds '{text}', which is not a {what}."
                ) from None
        return np.array(rows, dtype=kind)


def _fast_numbers(content: bytes, kind: type[np.generic]) -> np.ndarray | None:
    """All numbers at once; None where some line is not as it should be."""
    lines = len(content.splitlines()) if b"\r" in content else content.count(b"\n") + 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = np.loadtxt(
                io.BytesIO(content), dtype=kind, delimiter=",", comments=None, ndmin=2
            )
    except (ValueError, OverflowError, Warning):
        return None
    return values if len(values) == lines else None  # blank lines were passed over


def _open(path: Path) -> tuple[str, dict[str, _File]]:
    """The name of the data set, and its files by part."""
    if path.is_dir():
        return _open_folder(path)
    if path.name.endswith("_A.txt") and path.is_file():
        return _open_folder(path.parent, path.name.removesuffix("_A.txt"))
    members = read_zip(path, lambda member: _part(member) is not None)
    name, folder = _only_name(path, members)
    where = {part: f"{folder}{name}_{part}.txt" for part in PARTS}
    found = {part: _File(f"{path}/{w}", members[w]) for part, w in where.items() if w in members}
    return name, found


def _open_folder(path: Path, name: str | None = None) -> tuple[str, dict[str, _File]]:
    if name is None:
        names = [str(file.relative_to(path)) for file in path.glob("*_A.txt")]
        if not names and (path / "raw").is_dir():
            return _open_folder(path / "raw")
        name, _ = _only_name(path, names)
    files = {part: path / f"{name}_{part}.txt" for part in PARTS}
    return name, {part: _read(file) for part, file in files.items() if file.is_file()}


def _read(path: Path) -> _File:
    try:
        return _File(str(path), path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None


def _only_name(path: Path, names: Mapping[str, Any] | list[str]) -> tuple[str, str]:
    """The name of the one data set among these files, and the folder it lies in."""
    firsts = sorted(file for file in names if _part(file) == "A")
    if not firsts:
        raise InputError(
            f"{path}: holds no file that ends in _A.txt, so it is not a TU data set; give the "
            "folder with NAME_A.txt and NAME_graph_indicator.txt."
        )
    if len(firsts) > 1:
        raise InputError(
            f"{path}: holds {len(firsts)} data sets, {firsts[0]} and others; give one of these "
            "files, or a folder or archive with one of them."
        )
    file = PurePosixPath(firsts[0])
    return file.name.removesuffix("_A.txt"), firsts[0].removesuffix(file.name)


def _part(file: str) -> str | None:
    """Which part of a data set a file is, from its name."""
    name = PurePosixPath(file).name
    if name.startswith((".", "__MACOSX")) or file.startswith("__MACOSX"):
        return None
    return next((part for part in PARTS if name.endswith(f"_{part}.txt")), None)


def _read_graphs(file: _File) -> tuple[np.ndarray, np.ndarray]:
    """The graph of each node, ascending from zero; and in which order nodes must be taken."""
    graphs = file.column(np.int64) - 1
    if not len(graphs):
        raise InputError(f"{file.where}: holds no nodes; it should have a line for each.")
    low = int(graphs.argmin())
    if graphs[low] < 0:
        raise InputError(
            f"{file.where}: line {low + 1} names graph {graphs[low] + 1}; graphs are numbered "
            "from 1."
        )
    order = graphs.argsort(kind="stable")
    batch = graphs[order]
    gaps = np.flatnonzero(np.diff(batch, prepend=-1) > 1)
    if len(gaps):
        raise InputError(
            f"{file.where}: line {order[gaps[0]] + 1} names graph {batch[gaps[0]] + 1}, but graph "
            f"{batch[gaps[0]]} has no nodes; number the graphs without gaps."
        )
    return batch, order


def _read_edges(
    files: dict[str, _File], batch: np.ndarray, order: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Edges between nodes in their new order, and their attributes."""
    file = files["A"]
    pairs = file.numbers(np.int64)
    if len(pairs) and pairs.shape[1] != 2:
        raise InputError(
            f"{file.where}: line 1 has {pairs.shape[1]} numbers; an edge is two nodes."
        )
    pairs = pairs.reshape(-1, 2) - 1
    bad = np.flatnonzero(((pairs < 0) | (pairs >= len(batch))).any(1))
    if len(bad):
        nodes = pairs[bad[0]]
        node = nodes[(nodes < 0) | (nodes >= len(batch))][0] + 1
        raise InputError(
            f"{file.where}: line {bad[0] + 1} names node {node}, but "
            f"{files['graph_indicator'].name} lists nodes 1 to {len(batch)}."
        )
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    pairs = place[pairs]
    crossing = np.flatnonzero(batch[pairs[:, 0]] != batch[pairs[:, 1]])
    if len(crossing):
        one, other = batch[pairs[crossing[0]]] + 1
        raise InputError(
            f"{file.where}: line {crossing[0] + 1} joins a node of graph {one} to one of graph "
            f"{other}."
        )
    attributes = _features(files, "edge", file, len(pairs))
    return _simple(pairs, attributes, len(batch))


def _simple(pairs: np.ndarray, attributes: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Edges sorted, without loops, each once, attributes of equal ones added up."""
    kept = torch.from_numpy(pairs[:, 0] != pairs[:, 1])
    key = torch.from_numpy(pairs[:, 0] * num_nodes + pairs[:, 1])[kept]
    if attributes.size(1):
        key, slot = torch.unique(key, return_inverse=True)
        summed = attributes.new_zeros(len(key), attributes.size(1))
        summed.index_add_(0, slot, attributes[kept])
    else:
        key = torch.unique(key)
        summed = attributes.new_zeros(len(key), 0)
    return torch.stack([key // num_nodes, key % num_nodes]), summed


def _features(files: dict[str, _File], of: str, counted: _File, rows: int) -> Tensor:
    """Attributes, then labels one-hot, of nodes or edges, ``[rows, features]``."""
    said = f"{of}s in {counted.name}"
    parts = [torch.empty(rows, 0)]
    if f"{of}_attributes" in files:
        file = files[f"{of}_attributes"]
        values = file.numbers(np.float64, rows, said)
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite
            narrow = values.astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(narrow).all(1))
        if len(bad):
            raise InputError(
                f"{file.where}: line {bad[0] + 1} holds a number that is not finite; replace NaN "
                "and infinity."
            )
        parts.append(torch.from_numpy(narrow))
    if f"{of}_labels" in files:
        file = files[f"{of}_labels"]
        labels = file.numbers(np.int64, rows, said)
        parts += [_one_hot(file, column) for column in labels.T if rows]
    return torch.cat(parts, dim=1)


def _one_hot(file: _File, labels: np.ndarray) -> Tensor:
    low, high = int(labels.min()), int(labels.max())
    width = high - low + 1
    many = width > FEW_LABELS and width * len(labels) > MOST_ONES
    if width > MOST_LABELS or many:
        raise InputError(
            f"{file.where}: labels run from {low} to {high} (line {labels.argmax() + 1}), too far "
            "for a column each; number them without gaps, or give them as attributes."
        )
    rows = torch.zeros(len(labels), width)
    rows[torch.arange(len(labels)), torch.from_numpy(labels - low)] = 1
    return rows


def _read_labels(files: dict[str, _File], graphs: int) -> dict[str, Any]:
    """Labels and targets of the graphs, under the names that a data set has for them."""
    said = f"graphs in {files['graph_indicator'].name}"
    found: dict[str, Any] = {"targets": {}}
    if "graph_labels" in files:
        file = files["graph_labels"]
        labels = file.numbers(np.int64, graphs, said)
        if labels.shape[1] == 1:
            names, y = np.unique(labels[:, 0], return_inverse=True)
            found |= {"y": torch.from_numpy(y), "classes": tuple(str(name) for name in names)}
        found["targets"] |= _named("label", labels)
    if "graph_attributes" in files:
        values = files["graph_attributes"].numbers(np.float64, graphs, said)
        if values.shape[1] == 1:
            found |= {"y": torch.from_numpy(values[:, 0]).float(), "classes": None}
        found["targets"] |= _named("attribute", values)
    return found


def _named(word: str, values: np.ndarray) -> dict[str, np.ndarray]:
    if values.shape[1] == 1:
        return {word: values[:, 0]}
    return {f"{word}_{place}": column for place, column in enumerate(values.T)}
