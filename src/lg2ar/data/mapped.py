"""One large graph that stays on a disk: what is looked at is read, and nothing else.

``lg2ar convert`` writes such a folder (:mod:`lg2ar.data.mapping`). What is learned from it is, bit
by bit, what is learned from the same graph in memory: the same sub-graphs come in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lg2ar.data.batches import Store
from lg2ar.data.dataset import Dataset
from lg2ar.data.disk_layout import Layout
from lg2ar.data.held_elsewhere import HeldElsewhere, described_by
from lg2ar.data.links import Links, LinksInMemory
from lg2ar.data.mapped_folder import Checked, MappedFolder, MappedTargets
from lg2ar.data.mapped_layout import damaged
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch

if TYPE_CHECKING:
    from lg2ar.data.features import FeatureRecipe


def read_mapped(path: str | Path) -> Dataset:
    """Open a folder of one large graph; nothing but its description is read.

    Args:
        path: What ``lg2ar convert`` wrote.

    Raises:
        InputError: When it is no such folder, or not a whole one.
    """
    folder = MappedFolder(Path(path))
    manifest = folder.manifest
    return described_by(
        manifest,
        level="node",
        graph=MappedGraph(folder),
        y=folder.labels(),
        ids=folder.texts("ids") if "ids" in manifest.arrays else None,
        node_columns=folder.columns("nodes"),
        edge_columns=folder.columns("edges"),
        targets=MappedTargets(folder),
    )


class MappedGraph(HeldElsewhere):
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
    def layout(self) -> Layout:
        """Widths, and what is known of raw columns."""
        return self.folder.manifest.layout

    @property
    def num_nodes(self) -> int:
        """Number of nodes, ``N``."""
        return self.folder.manifest.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of listed edges, ``E``."""
        return self.folder.manifest.num_edges

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
        target = torch.from_numpy(self.links.out.to[slice(None)])
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
            self._slots = Checked(folder, "in_slot", max(graph.num_edges, 1))

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
        columns = () if recipe.nodes is None else self._folder.parts("nodes", index)
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
        columns = () if recipe.edges is None else self._folder.parts("edges", index)
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
