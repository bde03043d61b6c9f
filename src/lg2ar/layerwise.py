"""Embeddings of the nodes of a graph that stays on its disk, layer by layer, some nodes at a time.

A layer is done for all nodes that the next one needs before the next one begins, so that no row is
ever made twice. Its rows are written to a file and mapped from there. In memory are the rows of
some nodes and of their neighbours: how many is bounded, and does not depend on the graph.

Where some nodes are wanted only, a layer is done for those that these nodes hear of, directly or by
others: their exact neighbourhood, all edges included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from lg2ar.data.links import take
from lg2ar.data.mapped import MappedGraph
from lg2ar.encoders import GCN, Encoder
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch
from lg2ar.layers import BatchNorm, Convolution, Smoothing
from lg2ar.moments import Moments

# Numbers in the rows that are in memory at a time: 256 MiB in float32.
BUDGET = 1 << 26

# Rows of fewer numbers stay in memory instead of a file.
SMALL = 1 << 22


@torch.no_grad()
def embed_in_chunks(
    encoder: Encoder,
    graph: MappedGraph,
    nodes: np.ndarray | None = None,
    *,
    projected: bool = False,
    scratch: Path | None = None,
    budget: int | None = None,
) -> Tensor:
    """Embed all nodes of a mapped graph, or some of them.

    Args:
        encoder: The base encoder, in evaluation mode.
        graph: The graph, features included.
        nodes: Places of the nodes that are wanted, in any order; None wants all.
        projected: Whether to read after the projection heads.
        scratch: Folder for the rows of layers; None is the system's for temporary files. The files
            have no names there, and are gone when nobody needs them any more.
        budget: Numbers in the rows that are in memory at a time.

    Returns:
        A row per node, on the CPU; where they are many, mapped from a file.
    """
    work = _Layerwise(encoder, graph, scratch, budget)
    wanted = None if nodes is None else np.unique(nodes)
    layers, beside = work.run(wanted), work.average(wanted)

    def make(some: np.ndarray) -> Tensor:
        rows = work.read(layers, some)
        rows = encoder.node_projection(rows) if projected else rows
        made: Tensor = encoder.node_scale(work.with_average(beside, some, rows))
        return made

    as_is = isinstance(encoder.node_scale, nn.Identity) and beside is None
    plain = len(layers) == 1 and not projected and as_is  # nothing is left to be done to them
    width = encoder.width(projected)
    rows = layers[0] if plain else work.table(wanted, width, make, edges=False)
    if nodes is not None:
        return rows.of(np.asarray(nodes, dtype=np.int64))
    return torch.from_numpy(rows.values)


@torch.no_grad()
def calibrate_in_chunks(
    encoder: Encoder, graph: MappedGraph, *, scratch: Path | None = None, budget: int | None = None
) -> None:
    """Set the running statistics of batch normalisation to those of all nodes.

    See :func:`lg2ar.evaluation.calibrate`.
    """
    training = encoder.training
    encoder.eval()
    try:
        work = _Layerwise(encoder, graph, scratch, budget)
        layers = work.run(None, calibrating=True)
        if isinstance(encoder.node_scale, BatchNorm):
            work.calibrate_scale(encoder.node_scale, layers, work.average(None))
    finally:
        encoder.train(training)


@dataclass(frozen=True, eq=False)
class _Rows:
    """A row for each of some nodes.

    Attributes:
        nodes: The nodes, ascending; None is all nodes.
        values: Their rows.
    """

    nodes: np.ndarray | None
    values: np.ndarray

    def of(self, nodes: np.ndarray) -> Tensor:
        """The rows of some of the nodes."""
        place = nodes if self.nodes is None else np.searchsorted(self.nodes, nodes)
        return torch.from_numpy(self.values[place])


@dataclass(frozen=True, eq=False)
class _Features:
    """The same before the first layer, made when somebody asks for them.

    Attributes:
        nodes: The nodes, ascending; None is all nodes.
        make: Makes the rows of some nodes.
    """

    nodes: np.ndarray | None
    make: Callable[[np.ndarray], Tensor]

    def of(self, nodes: np.ndarray) -> Tensor:
        """The rows of some of the nodes."""
        return self.make(nodes)


class _Layerwise:
    """The layers of an encoder on a graph.

    Args:
        encoder: The base encoder.
        graph: The graph.
        scratch: Folder for rows.
        budget: Numbers in the rows that are in memory at a time.
    """

    def __init__(
        self, encoder: Encoder, graph: MappedGraph, scratch: Path | None, budget: int | None
    ) -> None:
        self.encoder, self.network = encoder, encoder.network
        self.links = graph.links
        self.num_nodes = graph.num_nodes
        self.device = next((part.device for part in encoder.parameters()), torch.device("cpu"))
        self.graph, self.scratch, self.budget = graph, scratch, budget or BUDGET
        self.width = max(graph.num_features, encoder.width(), 1)

    def run(self, wanted: np.ndarray | None, calibrating: bool = False) -> list[_Rows]:
        """The rows of each layer, for the nodes that are needed of it."""
        levels = self._levels(wanted)
        scale = None
        rows: _Rows | _Features = _Features(levels[0], self._begin)
        if isinstance(self.network.convs[0], Smoothing):
            scale = self.table(levels[0], 1, self._scale, edges=True)
        if self.network.convs[0].sends_rows:  # each neighbour looks at them, not the node alone
            rows = self.table(levels[0], self._first_width(), self._begin, edges=False)
        outputs: list[_Rows] = []
        if self.network.own is not None:
            outputs = [self.table(wanted, self._layer_width(), self._own, edges=False)]
        for layer, needed in enumerate(levels[1:]):
            rows = self._layer(layer, rows, scale, needed, calibrating)
            outputs = [*outputs, rows] if self.network.side_by_side else [rows]
        return outputs

    def read(self, layers: list[_Rows], nodes: np.ndarray) -> Tensor:
        """The rows of some nodes before the projection, of all layers that are read."""
        return torch.cat([layer.of(nodes) for layer in layers], dim=-1).to(self.device)

    def average(self, wanted: np.ndarray | None) -> _Rows | None:
        """The averaged features that stand beside the rows of nodes; None where there are none."""
        if not self.encoder.averaged:
            return None
        given = self.encoder.given
        network = GCN(given, given, layers=0, smoothing=self.encoder.averaged)
        bare = Encoder(network, given, projection=False)
        return _Layerwise(bare, self.graph, self.scratch, self.budget).run(wanted)[0]

    def with_average(self, beside: _Rows | None, nodes: np.ndarray, rows: Tensor) -> Tensor:
        """Rows of some nodes with the averaged features before them."""
        return rows if beside is None else torch.cat([self._rows(beside, nodes), rows], dim=-1)

    def calibrate_scale(self, scale: BatchNorm, layers: list[_Rows], beside: _Rows | None) -> None:
        """Set what embeddings are scaled by to the statistics of all nodes."""
        moments = Moments()
        for some in self._chunks(None, edges=False):
            moments(scale, (self.with_average(beside, some, self.read(layers, some)),))
        moments.give_to(scale)

    def _levels(self, wanted: np.ndarray | None) -> list[np.ndarray | None]:
        """The nodes whose rows are needed before the first layer and after each; None is all."""
        levels: list[np.ndarray | None] = [wanted]
        for _ in self.network.convs:
            last = levels[0]
            levels.insert(0, None if last is None else self._heard(last))
        return levels

    def _heard(self, nodes: np.ndarray) -> np.ndarray:
        """These nodes and those that they hear, ascending."""
        found = [nodes]
        for some in self._chunks(nodes, edges=True):
            for _, sources, _ in self._edges(some):
                found.append(np.unique(sources))
            if sum(map(len, found)) > 4 * max(len(found[0]), self.budget // self.width):
                found = [np.unique(np.concatenate(found))]
        return np.unique(np.concatenate(found))

    def _begin(self, nodes: np.ndarray) -> Tensor:
        x = self.links.features(torch.from_numpy(nodes)).to(self.device)
        return self.network.begin(self.encoder.features(x))

    def _own(self, nodes: np.ndarray) -> Tensor:
        assert self.network.own is not None
        rows: Tensor = self.network.own(self._begin(nodes))
        return rows

    def _first_width(self) -> int:
        return int(self._begin(np.zeros(1, dtype=np.int64)).size(1))

    def _layer_width(self) -> int:
        width: int = self.network.out_features
        own = self.network.own is not None
        return width // (len(self.network.convs) + own) if self.network.side_by_side else width

    def _scale(self, nodes: np.ndarray) -> Tensor:
        """What a GCN scales the rows of nodes by: of all their edges, whoever else is needed."""
        index = torch.from_numpy(nodes)
        degree = torch.ones(len(nodes))
        if self.links.weights(torch.zeros(0, dtype=torch.long)) is None:
            degree = degree + self.links.incoming.spans(index)[1]
        else:
            for owner, _, slots in self._edges(nodes):
                weights = self.links.weights(slots)
                assert weights is not None
                degree = degree.index_add(0, owner, weights)
        return Smoothing.scale_of(degree).unsqueeze(-1)

    def _layer(
        self,
        layer: int,
        before: _Rows | _Features,
        scale: _Rows | None,
        needed: np.ndarray | None,
        calibrating: bool,
    ) -> _Rows:
        conv = cast(Convolution, self.network.convs[layer])
        if conv.sends_rows:
            assert isinstance(before, _Rows)
            sent = before
        else:

            def send(nodes: np.ndarray) -> Tensor:
                return conv.send(self._rows(before, nodes), self._column(scale, nodes))

            sent = self.table(before.nodes, self._layer_width(), send, edges=False)

        def hear(nodes: np.ndarray) -> Tensor:
            total = self._rows(sent, nodes)
            for owner, sources, slots in self._edges(nodes):
                total = self._collect(conv, total, sent, scale, nodes, owner, sources, slots)
            return conv.finish(total, self._column(scale, nodes))

        width = self._layer_width()
        if calibrating and isinstance(self.network.norms[layer], BatchNorm):
            return self._calibrated(layer, needed, width, hear)
        return self.table(
            needed, width, lambda nodes: self.network.after(layer, hear(nodes)), edges=True
        )

    def _calibrated(
        self, layer: int, needed: np.ndarray | None, width: int, hear: Callable[..., Tensor]
    ) -> _Rows:
        """A layer's rows, its normalisation set by what it is given of all of them."""
        norm, moments = self.network.norms[layer], Moments()
        assert isinstance(norm, BatchNorm)
        rows = self.table(needed, width, hear, edges=True)
        hook = norm.register_forward_pre_hook(moments)
        for some in self._chunks(needed, edges=False):
            self.network.after(layer, self._rows(rows, some))
        hook.remove()
        moments.give_to(norm)
        return self.table(
            needed,
            width,
            lambda nodes: self.network.after(layer, self._rows(rows, nodes)),
            edges=False,
        )

    def _collect(
        self,
        conv: Convolution,
        total: Tensor,
        sent: _Rows,
        scale: _Rows | None,
        nodes: np.ndarray,
        owner: Tensor,
        sources: np.ndarray,
        slots: Tensor,
    ) -> Tensor:
        """Add what these nodes hear over some of their edges."""
        # First the nodes themselves, then whom they hear: these hear nothing in this small graph.
        others, place = np.unique(sources, return_inverse=True)
        all_nodes = np.concatenate([nodes, others])
        edge_index = torch.stack([torch.from_numpy(place) + len(nodes), owner])
        graph = GraphBatch(
            x=torch.empty(len(all_nodes), 0),
            edge_index=edge_index,
            batch=torch.zeros(len(all_nodes), dtype=torch.long),
            num_graphs=1,
            edge_weight=self.links.weights(slots),
            edge_attr=self.links.attributes(slots),
        ).to(self.device)
        return conv.collect(
            total, self._rows(sent, all_nodes), graph, self._column(scale, all_nodes)
        )

    def _rows(self, rows: _Rows | _Features, nodes: np.ndarray) -> Tensor:
        return rows.of(nodes).to(self.device)

    def _column(self, rows: _Rows | None, nodes: np.ndarray) -> Tensor | None:
        return None if rows is None else self._rows(rows, nodes).squeeze(-1)

    def _edges(self, nodes: np.ndarray) -> Iterator[tuple[Tensor, np.ndarray, Tensor]]:
        """What nodes hear: the place among ``nodes`` of who hears, who is heard, and the slot.

        In several goes where a node hears so many that their rows would be too much.
        """
        first, count = self.links.incoming.spans(torch.from_numpy(nodes))
        ends = count.cumsum(0)
        total, most = int(count.sum()), max(1, self.budget // self.width)
        for begin in range(0, total, most):
            entry = torch.arange(begin, min(begin + most, total))
            owner = torch.searchsorted(ends, entry, right=True)
            place = entry - (ends - count)[owner] + first[owner]
            sources = take(self.links.incoming.to, place).numpy()
            yield owner, sources, self.links.slots_of_incoming(place.numpy())

    def _chunks(self, nodes: np.ndarray | None, *, edges: bool) -> Iterator[np.ndarray]:
        """Nodes in parts whose rows, and with ``edges`` those of whom they hear, are not too many.

        A node that hears more than that is a part by itself.
        """
        total = self.num_nodes if nodes is None else len(nodes)
        most = max(1, self.budget // self.width)
        for begin in range(0, total, most):
            end = min(begin + most, total)
            some = np.arange(begin, end) if nodes is None else nodes[begin:end]
            if not edges:
                yield some
                continue
            count = self.links.incoming.spans(torch.from_numpy(some))[1]
            cost = torch.cumsum(1 + count, 0).numpy()
            first = 0
            while first < len(some):
                used = int(cost[first - 1]) if first else 0
                last = max(first + 1, int(np.searchsorted(cost, used + most, side="right")))
                yield some[first:last]
                first = last

    def table(
        self,
        nodes: np.ndarray | None,
        width: int,
        make: Callable[[np.ndarray], Tensor],
        *,
        edges: bool,
    ) -> _Rows:
        """The rows that a function makes of nodes, some at a time.

        Args:
            nodes: Of which nodes; None is all.
            width: Of the rows.
            make: Makes rows of some nodes.
            edges: Whether it looks at what they hear.
        """
        total = self.num_nodes if nodes is None else len(nodes)
        parts = (make(some).cpu().numpy() for some in self._chunks(nodes, edges=edges))
        if total * width <= SMALL:
            held = list(parts)
            values = np.concatenate(held) if held else np.empty((0, width), dtype=np.float32)
            return _Rows(nodes, values)
        try:
            # Written, not mapped for writing: a full disk is then an error and no signal.
            with tempfile.TemporaryFile(dir=self.scratch) as file:
                for rows in parts:
                    file.write(np.ascontiguousarray(rows, dtype=np.float32).data)
                file.flush()
                mapped = np.memmap(file, np.float32, "r+", shape=(total, width))
        except OSError as error:
            where = self.scratch or tempfile.gettempdir()
            raise InputError(
                f"{where}: the rows of a layer cannot be written there ({error}); make room for "
                f"{4 * total * width / 1e9:.1f} GB, or choose another --scratch."
            ) from None
        return _Rows(nodes, np.asarray(mapped))
