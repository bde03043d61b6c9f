"""One large graph that stays on a disk: what is looked at is read, and nothing else.

``lg2ar convert`` writes such a folder (:mod:`lg2ar.data.mapping`). What is learned from it is, bit
by bit, what is learned from the same graph in memory: the same sub-graphs come in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from lg2ar.data.batches import Store
from lg2ar.data.columns import CategoryRule, Column, ColumnRecipe, Columns, NumberRule
from lg2ar.data.dataset import Dataset
from lg2ar.data.disk_layout import RAW, RawColumn
from lg2ar.data.links import Links, LinksInMemory, Lists
from lg2ar.data.mapped_layout import damaged, open_array, read_manifest
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch

if TYPE_CHECKING:
    from lg2ar.data.features import FeatureRecipe

Of = Literal["nodes", "edges"]


def read_mapped(path: str | Path) -> Dataset:
    """Open a folder of one large graph; nothing but its description is read.

    Args:
        path: What ``lg2ar convert`` wrote.

    Raises:
        InputError: When it is no such folder, or not a whole one.
    """
    folder = MappedFolder(Path(path))
    manifest = folder.manifest
    dataset = Dataset(
        name=manifest.name,
        level="node",
        graph=MappedGraph(folder),
        y=folder.labels(),
        ids=folder.texts("ids") if "ids" in manifest.arrays else None,
        node_columns=folder.columns("nodes"),
        edge_columns=folder.columns("edges"),
        classes=manifest.classes,
        targets=MappedTargets(folder),
        notes=manifest.notes,
        reading=manifest.reading,
    )
    # Known from the conversion: to find it out again, everything would have to be read.
    object.__setattr__(dataset, "_fingerprint", manifest.fingerprint)
    return dataset


class MappedFolder:
    """The arrays of a folder, mapped.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        self.arrays = {
            name: open_array(path, name, file) for name, file in self.manifest.arrays.items()
        }
        for name, entries in (("start", "to"), ("walk_start", "walk_to"), ("in_start", "in_from")):
            if name in self.arrays:
                start = self.arrays[name]
                if int(start[0]) != 0 or int(start[-1]) != len(self.arrays[entries]):
                    raise damaged(path, f"{name}.npy does not end where {entries}.npy does")

    def lists(self, start: str, to: str) -> Lists:
        """Lists of nodes, which are looked at before they are believed."""
        nodes = _Checked(self, to, self.manifest.num_nodes)
        return _MappedLists(_Checked(self, start, len(self.arrays[to]) + 1), nodes)

    def labels(self) -> Tensor | None:
        """A label per node; the file is mapped, and not to be written to."""
        if "y" not in self.arrays:
            return None
        file = self.manifest.arrays["y"]
        # Copied where somebody writes to it, and nowhere else: a tensor cannot be read-only.
        mapped = np.memmap(self.path / "y.npy", file.kind, "c", self._offset("y"), file.shape)
        return torch.from_numpy(np.asarray(mapped))

    def _offset(self, name: str) -> int:
        return (self.path / f"{name}.npy").stat().st_size - self.arrays[name].nbytes

    def texts(self, name: str) -> MappedTexts:
        """What each node is called, or another word for each."""
        return MappedTexts(self, name)

    def columns(self, of: Of) -> Columns:
        """The raw columns of nodes or of edges."""
        raws = self.manifest.layout.columns(of)
        rules = ColumnRecipe.from_dict(self.manifest.rules[of]).rules if raws else ()
        return tuple(
            MappedColumn(self, of, raw, rule) for raw, rule in zip(raws, rules, strict=True)
        )

    def part(self, of: Of, raw: RawColumn, index: np.ndarray | slice) -> Column:
        """Some values of a raw column."""
        name = next(name for owner, kind, name, _ in RAW if (owner, kind) == (of, raw.kind))
        alike = [other for other in self.manifest.layout.columns(of) if other.kind == raw.kind]
        held = self.arrays[name][:, alike.index(raw)][index]
        if raw.kind == "number":
            return Column(raw.name, "number", np.array(held, dtype=np.float64))
        if held.size and not -1 <= held.min() <= held.max() < len(raw.values):
            raise damaged(self.path, f"a value that column '{raw.name}' does not have")
        known = np.array([*raw.values, None], dtype=object)  # -1, the last, is missing
        return Column(raw.name, "category", known[held])


class _Checked:
    """A mapped array of whole numbers below a bound; what is read is looked at.

    Args:
        folder: Where it is.
        name: Of the array.
        bound: What its numbers are below.
    """

    def __init__(self, folder: MappedFolder, name: str, bound: int) -> None:
        self._folder, self._name, self._bound = folder, name, bound
        self._array = folder.arrays[name]

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> np.ndarray:
        held = np.array(self._array[index], dtype=np.int64)
        if held.size and not 0 <= held.min() <= held.max() < self._bound:
            wrong = held[(held < 0) | (held >= self._bound)].reshape(-1)[0]
            raise damaged(
                self._folder.path,
                f"{self._name}.npy holds {wrong}, outside 0 to {self._bound - 1}",
            )
        return held


class _MappedLists(Lists):
    """Lists in which a damaged start is noticed."""

    def __init__(self, start: _Checked, to: _Checked) -> None:
        # What has the arrays' way of looking things up will do in their place.
        super().__init__(start, to)  # type: ignore[arg-type]
        object.__setattr__(self, "_checked", start)

    _checked: _Checked

    def spans(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        first, count = super().spans(nodes)
        if count.numel() and int(count.min()) < 0:
            raise damaged(self._checked._folder.path, f"{self._checked._name}.npy is not ascending")
        return first, count


class MappedTexts(Sequence[str]):
    """Words that are read when somebody asks for them.

    Args:
        folder: Where they are.
        name: Of their array.
    """

    def __init__(self, folder: MappedFolder, name: str) -> None:
        self._folder, self._name = folder, name
        self._bytes, self._ends = folder.arrays[name], folder.arrays[f"{name}_ends"]

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step == 1:
                return tuple(self._range(first, max(first, last)))
            return tuple(self[place] for place in range(first, last, step))
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return next(iter(self._range(place, place + 1)))

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), 1 << 16):
            yield from self._range(first, min(first + (1 << 16), len(self)))

    def _range(self, first: int, last: int) -> list[str]:
        if first == last:
            return []
        begin = int(self._ends[first - 1]) if first else 0
        ends = np.asarray(self._ends[first:last]) - begin
        starts = np.concatenate([[0], ends[:-1]])
        if (ends < starts).any() or not 0 <= begin <= begin + int(ends[-1]) <= len(self._bytes):
            raise damaged(self._folder.path, f"{self._name}_ends.npy is not ascending")
        content = self._bytes[begin : begin + int(ends[-1])].tobytes()
        try:
            return [
                content[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
            ]
        except UnicodeDecodeError:
            raise damaged(self._folder.path, f"{self._name}.npy is not text") from None


class MappedTargets(Mapping[str, np.ndarray]):
    """Further columns, read when somebody asks for them.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: MappedFolder) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._folder.manifest.targets:
            raise KeyError(name)
        file = f"target_{self._folder.manifest.targets.index(name)}"
        if f"{file}_ends" not in self._folder.arrays:
            return self._folder.arrays[file]
        return np.array([text or None for text in self._folder.texts(file)], dtype=object)

    def __iter__(self) -> Iterator[str]:
        return iter(self._folder.manifest.targets)

    def __len__(self) -> int:
        return len(self._folder.manifest.targets)


class MappedColumn(Column):
    """A raw column that is read each time its values are asked for, and not kept.

    Args:
        folder: Where it is.
        of: Whether it has a value per node or per edge.
        raw: What is known of it.
        rule: What was learned of it when it was written.
    """

    def __init__(
        self, folder: MappedFolder, of: Of, raw: RawColumn, rule: NumberRule | CategoryRule
    ) -> None:
        total = folder.manifest.num_nodes if of == "nodes" else folder.manifest.num_edges
        for name, value in {"_folder": folder, "_of": of, "_raw": raw, "_total": total}.items():
            object.__setattr__(self, name, value)
        for name, value in {"name": raw.name, "kind": raw.kind, "rule": rule}.items():
            object.__setattr__(self, name, value)

    _folder: MappedFolder
    _of: Of
    _raw: RawColumn
    _total: int
    rule: NumberRule | CategoryRule

    def __len__(self) -> int:
        return self._total

    def take(self, index: np.ndarray) -> Column:
        """The values at these places; no others are read."""
        return self._folder.part(self._of, self._raw, index)

    @property
    def values(self) -> np.ndarray:
        """All values; see :class:`~lg2ar.data.columns.Column`."""
        return self._folder.part(self._of, self._raw, slice(None)).values


class MappedGraph(GraphBatch):
    """One large graph on a disk, counted but not read.

    Sub-graphs are cut out of it and its nodes are embedded without reading it as a whole. Whoever
    asks for a tensor gets it, and with it everything is read into memory, where that has room.

    Args:
        folder: Where it is.
        recipe: What makes features of it, node by node; None leaves them as they are.
        device: Where what is cut out of it is to lie.
    """

    def __init__(
        self,
        folder: MappedFolder,
        recipe: FeatureRecipe | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        object.__setattr__(self, "folder", folder)
        object.__setattr__(self, "recipe", recipe)
        object.__setattr__(self, "_device", torch.device(device))
        object.__setattr__(self, "num_graphs", 1)

    folder: MappedFolder
    recipe: FeatureRecipe | None
    _device: torch.device

    def prepared(self, recipe: FeatureRecipe) -> MappedGraph:
        """The graph with the features that a recipe makes, which is done when they are read."""
        return MappedGraph(self.folder, recipe, self._device)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> GraphBatch:
        """The same graph, what is cut out of it on another device."""
        if dtype not in (None, torch.float32):
            return self.whole.to(device, dtype)
        return MappedGraph(self.folder, self.recipe, device)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, ``N``."""
        return self.folder.manifest.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of listed edges, ``E``."""
        return self.folder.manifest.num_edges

    @property
    def num_features(self) -> int:
        """Width of the node features, ``d_x``."""
        layout = self.folder.manifest.layout
        return layout.num_features if self.recipe is None else self.recipe.width

    @property
    def num_edge_features(self) -> int:
        """Width of the edge attributes, ``d_e``; zero where there are none."""
        layout = self.folder.manifest.layout
        return layout.num_edge_features if self.recipe is None else self.recipe.edge_width

    @property
    def device(self) -> torch.device:
        """Where what is cut out of it lies."""
        return self._device

    @cached_property
    def sizes(self) -> Tensor:
        """Number of nodes of the one graph, shape ``[1]``."""
        return torch.tensor([self.num_nodes], device=self._device)

    @cached_property
    def ptr(self) -> Tensor:
        """Where its nodes begin and end, shape ``[2]``."""
        return torch.tensor([0, self.num_nodes], device=self._device)

    @cached_property
    def links(self) -> MappedLinks:
        """Who is joined to whom."""
        return MappedLinks(self)

    @cached_property
    def whole(self) -> GraphBatch:
        """The graph, read into memory.

        Raises:
            InputError: When there is not enough memory for it.
        """
        self._check_room()
        n = self.num_nodes
        nodes, slots = torch.arange(n), torch.arange(self.num_edges)
        start = torch.from_numpy(np.array(self.folder.arrays["start"]))
        target = torch.from_numpy(self.links.out.to[slice(None)])  # type: ignore[arg-type]
        return GraphBatch(
            x=self.links.features(nodes),
            edge_index=torch.stack([nodes.repeat_interleave(start.diff()), target]),
            batch=torch.zeros(n, dtype=torch.long),
            num_graphs=1,
            edge_weight=self.links.weights(slots),
            edge_attr=self.links.attributes(slots),
        ).to(self._device)

    def _check_room(self) -> None:
        rows = 4 * (self.num_features + 2) * self.num_nodes
        need = rows + (24 + 4 * self.num_edge_features) * self.num_edges
        room = _free_memory()
        if room is not None and need > room:
            raise InputError(
                f"{self.folder.path}: this needs the whole graph in memory, {need / 1e9:.1f} GB "
                f"where {room / 1e9:.1f} GB are free; use pretrain and embed, which do not."
            )

    def replace(self, **changes: Any) -> GraphBatch:
        """A copy in memory with some fields changed."""
        return self.whole.replace(**changes)

    @property
    def x(self) -> Tensor:
        """See :class:`~lg2ar.graph.GraphBatch`; as all that follows, it is in memory then."""
        return self.whole.x

    @property
    def edge_index(self) -> Tensor:
        """See :class:`~lg2ar.graph.GraphBatch`."""
        return self.whole.edge_index

    @property
    def batch(self) -> Tensor:
        """See :class:`~lg2ar.graph.GraphBatch`."""
        return self.whole.batch

    @property
    def edge_weight(self) -> Tensor | None:
        """See :class:`~lg2ar.graph.GraphBatch`."""
        return self.whole.edge_weight if self.folder.manifest.layout.weighted else None

    @property
    def edge_attr(self) -> Tensor | None:
        """See :class:`~lg2ar.graph.GraphBatch`."""
        return self.whole.edge_attr if self.num_edge_features else None

    @property
    def origin(self) -> None:
        """It was not cut from anything."""
        return


class MappedLinks(Links):
    """The links of a mapped graph, with what its recipe makes of nodes and edges.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: MappedGraph) -> None:
        folder = graph.folder
        self._graph, self._folder = graph, folder
        self.num_nodes = graph.num_nodes
        self.out = folder.lists("start", "to")
        walk = "walk_start" in folder.arrays
        self.walk = folder.lists("walk_start", "walk_to") if walk else self.out
        self._turned = "in_start" in folder.arrays
        self.incoming = folder.lists("in_start", "in_from") if self._turned else self.out
        if self._turned:
            self._slots = _Checked(folder, "in_slot", max(graph.num_edges, 1))

    @property
    def device(self) -> torch.device:
        """See :class:`Links`: a disk is read by the processor."""
        return torch.device("cpu")

    def slots_of_incoming(self, places: np.ndarray) -> Tensor:
        """The slots of edges by their places among the incoming ones.

        Where all edges go both ways, an edge and the same one turned round have the same weight
        and attributes, so either will do.
        """
        return torch.from_numpy(self._slots[places] if self._turned else places)

    def features(self, nodes: Tensor) -> Tensor:
        """See :class:`Links`."""
        index, manifest = nodes.numpy(), self._folder.manifest
        held = self._folder.arrays.get("x")
        x = torch.empty(len(index), 0)
        if held is not None:
            x = torch.from_numpy(held[index].astype(np.float32))
            if not bool(x.isfinite().all()):
                node = int(index[int((~x.isfinite()).any(1).nonzero()[0])])
                raise damaged(self._folder.path, f"the features of node {node} are not finite")
        recipe = self._graph.recipe
        if recipe is None:
            return x
        columns = tuple(
            self._folder.part("nodes", raw, index)
            for raw in manifest.layout.nodes
            if recipe.nodes is not None
        )
        degree = None
        if recipe.needs_degree:
            degree = self.incoming.spans(nodes)[1]
        return recipe.node_rows(x, columns, degree, manifest.name)

    def weights(self, slots: Tensor) -> Tensor | None:
        """See :class:`Links`."""
        held = self._folder.arrays.get("edge_weight")
        return None if held is None else torch.from_numpy(held[slots.numpy()])

    def attributes(self, slots: Tensor) -> Tensor | None:
        """See :class:`Links`."""
        index, manifest = slots.numpy(), self._folder.manifest
        held = self._folder.arrays.get("edge_attr")
        given = None if held is None else torch.from_numpy(held[index])
        recipe = self._graph.recipe
        if recipe is None:
            return given
        columns = tuple(
            self._folder.part("edges", raw, index)
            for raw in manifest.layout.edges
            if recipe.edges is not None
        )
        return recipe.edge_rows(given, columns, len(index), manifest.name)


class MappedStore(Store):
    """A mapped graph where a store of graphs is asked for.

    Args:
        graph: The graph.
        device: Where what is cut out of it is to lie.
    """

    def __init__(self, graph: MappedGraph, device: torch.device | str = "cpu") -> None:
        self._graph = graph.to(device)
        self.num_nodes, self.num_edges = np.array([graph.num_nodes]), np.array([graph.num_edges])

    @property
    def graph(self) -> GraphBatch:
        """The graph, still on its disk."""
        return self._graph

    def select(self, index: Sequence[int] | np.ndarray | Tensor) -> GraphBatch:
        """The graph as a whole, in memory, as often as it is asked for."""
        if np.asarray(index).tolist() != [0]:
            raise ValueError(f"there is one graph, got {index}")
        assert isinstance(self._graph, MappedGraph)
        return self._graph.whole


def links_of(graph: GraphBatch) -> Links:
    """Who is joined to whom in a graph, wherever it lies."""
    return graph.links if isinstance(graph, MappedGraph) else LinksInMemory(graph)


def _free_memory() -> int | None:
    """Bytes that could be had; None where the system does not tell."""
    try:
        with open("/proc/meminfo") as file:
            line = next(line for line in file if line.startswith("MemAvailable"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
