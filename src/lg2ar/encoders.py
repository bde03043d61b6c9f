"""The augmentation encoder (Section 3.1) and the base encoder (Section 3.4).

Both are a graph network, a read-out and two projection heads; they share no weights.
"""

from __future__ import annotations

import itertools
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lg2ar.config import Level
from lg2ar.distributed import rows_of_nodes
from lg2ar.graph import Encoding, GraphBatch
from lg2ar.layers import (
    MLP,
    BatchNorm,
    Smoothing,
    WeightedGCNConv,
    WeightedGINConv,
    WeightedGINEConv,
    dropout,
)
from lg2ar.ops import segment_mean, segment_sum, signed_log

ReadOut = Literal["sum", "mean", "log-sum"]
Output = Literal["last", "layers", "features-and-layers"]


class GIN(nn.Module):
    """Graph isomorphism network; the encodings of all its layers side by side.

    Follows InfoGraph, which the paper follows: each layer is a two-layer MLP on the weighted sum,
    then ReLU, batch normalisation and dropout. Where edges have attributes the layers are those of
    Hu et al. (2020), on node features that are brought to ``hidden`` first (docs/paper.md, D17).

    Args:
        num_features: Width of the node features, ``d_x``.
        hidden: Width of each layer.
        layers: Number of layers.
        dropout: Share of each layer's output set to zero while training.
        norm: Whether to normalise each layer over the batch.
        norm_first: Whether that comes before the ReLU instead.
        num_edge_features: Width of the edge attributes, ``d_e``; 0 does not look at them.
    """

    def __init__(
        self,
        num_features: int,
        hidden: int,
        layers: int,
        dropout: float = 0.0,
        norm: bool = True,
        norm_first: bool = False,
        num_edge_features: int = 0,
    ) -> None:
        super().__init__()
        self.embedding: nn.Module = nn.Identity()
        if num_edge_features:
            # Features as they come would be cut off at zero with the attributes, and where there
            # is only one, all attributes would have to pass through it.
            self.embedding = nn.Linear(num_features, hidden)
            num_features = hidden
        widths = [num_features, *[hidden] * layers]
        self.convs = nn.ModuleList(
            WeightedGINEConv(before, after, num_edge_features)
            if num_edge_features
            else WeightedGINConv(before, after)
            for before, after in itertools.pairwise(widths)
        )
        self.norms = nn.ModuleList(
            BatchNorm(hidden) if norm else nn.Identity() for _ in range(layers)
        )
        self.dropout = dropout
        self.norm_first = norm_first
        self.side_by_side = True  # the encodings of all layers, not of the last alone
        self.own: Own | None = None
        self.out_features = hidden * layers

    def forward(self, graph: GraphBatch) -> Tensor:
        """Encode the nodes, shape ``[N, layers * hidden]``."""
        h, outputs = self.begin(graph.x), []
        for layer, conv in enumerate(self.convs):
            h = dropout(self.after(layer, conv(h, graph)), self.dropout, self.training)
            outputs.append(h)
        return torch.cat(outputs, dim=-1)

    def begin(self, x: Tensor) -> Tensor:
        """What the first convolution is given, of node features."""
        h: Tensor = self.embedding(x)
        return h

    def after(self, layer: int, h: Tensor) -> Tensor:
        """What a layer makes of its convolution's rows."""
        norm = self.norms[layer]
        normed: Tensor = F.relu(norm(h)) if self.norm_first else norm(F.relu(h))
        return normed


class GCN(nn.Module):
    """Graph convolutional network, the base encoder at node level (A.2).

    Args:
        num_features: Width of the node features, ``d_x``.
        hidden: Width of each layer.
        layers: Number of layers; two in the paper.
        dropout: Share of each layer's output set to zero while training.
        norm: Whether to normalise each layer over the batch.
        num_edge_features: Width of the edge attributes, ``d_e``; 0 does not look at them.
        output: What is made of the layers: the ``last`` one, as GCA has it; all ``layers`` side by
            side, as a GIN's are; or ``features-and-layers``, with what a node is by itself beside
            them, which every convolution mixes with its neighbours (docs/paper.md, D12).
        smoothing: Rounds of :class:`~lg2ar.layers.Smoothing` after the layers, read as further
            layers are.
    """

    def __init__(
        self,
        num_features: int,
        hidden: int,
        layers: int = 2,
        dropout: float = 0.0,
        norm: bool = False,
        num_edge_features: int = 0,
        output: Output = "last",
        smoothing: int = 0,
    ) -> None:
        super().__init__()
        widths = [num_features, *[hidden] * layers]
        self.convs = nn.ModuleList(
            WeightedGCNConv(before, after, num_edge_features)
            for before, after in itertools.pairwise(widths)
        )
        self.norms = nn.ModuleList(
            BatchNorm(hidden) if norm else nn.Identity() for _ in range(layers)
        )
        self.activations = nn.ModuleList(nn.PReLU() for _ in range(layers))
        self.dropout = dropout
        for _ in range(smoothing):
            self.convs.append(Smoothing())
            self.norms.append(nn.Identity())
            self.activations.append(nn.Identity())
        self.side_by_side = output != "last"
        self.own = Own(num_features, hidden) if output == "features-and-layers" else None
        read = len(self.convs) + (self.own is not None) if self.side_by_side else 1
        self.out_features = hidden * read

    def forward(self, graph: GraphBatch) -> Tensor:
        """Encode the nodes, shape ``[N, out_features]``."""
        h, outputs = self.begin(graph.x), []
        if self.own is not None:
            outputs.append(dropout(self.own(h), self.dropout, self.training))
        for layer, conv in enumerate(self.convs):
            h = self.after(layer, conv(h, graph))
            if isinstance(conv, WeightedGCNConv):  # its rows are smoothed as they are
                h = dropout(h, self.dropout, self.training)
            outputs.append(h)
        return torch.cat(outputs, dim=-1) if self.side_by_side else h

    def begin(self, x: Tensor) -> Tensor:
        """What the first convolution is given, of node features."""
        return x

    def after(self, layer: int, h: Tensor) -> Tensor:
        """What a layer makes of its convolution's rows."""
        activated: Tensor = self.activations[layer](self.norms[layer](h))
        return activated


class Own(nn.Module):
    """What a node is by itself: its features, brought to the width of a layer.

    Args:
        num_features: Width of the node features, ``d_x``.
        hidden: Width of a layer.
    """

    def __init__(self, num_features: int, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, hidden)
        self.activation = nn.PReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map features ``[N, d_x]`` to ``[N, hidden]``."""
        h: Tensor = self.activation(self.linear(x))
        return h


def smoothed(graph: GraphBatch, rounds: int) -> Tensor:
    """Features averaged over neighbours as a graph convolution does, so many times."""
    rows, smooth = graph.x, Smoothing()
    for _ in range(rounds):
        rows = smooth(rows, graph)
    return rows


def read_out(nodes: Tensor, graph: GraphBatch, kind: ReadOut) -> Tensor:
    """One row for each graph, of its nodes' rows ``[N, d]``."""
    pool = segment_mean if kind == "mean" else segment_sum
    graphs = pool(nodes, graph.batch, graph.num_graphs)
    return signed_log(graphs) if kind == "log-sum" else graphs


class Encoder(nn.Module):
    r"""Graph network, read-out and two projection heads: :math:`g_\omega` and :math:`g_\theta`.

    Args:
        network: Makes node rows of a batch; tells their width as ``out_features``.
        hidden: Width of the projected encodings, ``d_h``.
        readout: How a graph's nodes become one row: their sum, their mean, or their sum on a
            logarithmic scale.
        projection: Whether node and graph rows each pass a three-layer MLP.
        features: Applied to the features of the graphs before views are cut from them, and at
            inference: the projection shared by all views (docs/paper.md, D6).
        scale: Applied to the rows that are handed out at inference, never in training; None leaves
            them as they are (docs/paper.md, D12).
        scaled: Which rows these are, those of graphs or of nodes.
        averaged: Rounds of :class:`~lg2ar.layers.Smoothing` of the features as they come, which are
            handed out before a node's own rows, never in training; 0 hands out none.
        given: Width of these features.
    """

    def __init__(
        self,
        network: GIN | GCN,
        hidden: int,
        readout: ReadOut = "sum",
        projection: bool = True,
        features: nn.Module | None = None,
        scale: nn.Module | None = None,
        scaled: Level = "graph",
        averaged: int = 0,
        given: int = 0,
    ) -> None:
        super().__init__()
        width = network.out_features
        self.averaged, self.given = averaged, given if averaged else 0
        self.features = nn.Identity() if features is None else features
        self.network = network
        self.readout = readout
        self.node_projection: nn.Module = nn.Identity()
        self.graph_projection: nn.Module = nn.Identity()
        if projection:
            self.node_projection = MLP(width, hidden, hidden, layers=3)
            self.graph_projection = MLP(width, hidden, hidden, layers=3)
        self.out_features = hidden if projection else width
        # Behind all other parts: they are calibrated in this order, each on what those before make.
        self.node_scale: nn.Module = nn.Identity()
        self.graph_scale: nn.Module = nn.Identity()
        if scale is not None and scaled == "node":
            self.node_scale = scale
        elif scale is not None:
            self.graph_scale = scale

    def width(self, projected: bool = False) -> int:
        """How many columns embeddings of nodes have, or of graphs."""
        return self.given + (self.out_features if projected else self.network.out_features)

    def prepare(self, graph: GraphBatch) -> GraphBatch:
        """The graphs that views are cut from: features of the width the network reads."""
        return graph.replace(x=self.features(graph.x))

    def encode(self, view: GraphBatch) -> Encoding:
        """Encode nodes and graphs before the projection heads."""
        with rows_of_nodes(view.num_nodes):
            nodes = self.network(view)
        return Encoding(nodes=nodes, graphs=read_out(nodes, view, self.readout))

    def forward(self, view: GraphBatch) -> Encoding:
        """Encode nodes ``[N, d_h]`` and graphs ``[B, d_h]`` of a prepared batch or view."""
        encoding = self.encode(view)
        return Encoding(
            nodes=self.node_projection(encoding.nodes),
            graphs=self.graph_projection(encoding.graphs),
        )

    def embed(self, graph: GraphBatch, projected: bool = False) -> Encoding:
        """What evaluation reads: encodings of untouched graphs, on the scale they are wanted on.

        Args:
            graph: The batch, as it came.
            projected: Whether to read after the projection heads (docs/paper.md, D12).
        """
        prepared = self.prepare(graph)
        encoding: Encoding = self(prepared) if projected else self.encode(prepared)
        nodes = encoding.nodes
        if self.averaged:
            nodes = torch.cat([smoothed(graph, self.averaged), nodes], dim=-1)
        return Encoding(nodes=self.node_scale(nodes), graphs=self.graph_scale(encoding.graphs))
