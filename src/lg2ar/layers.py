"""The learned layers that all encoders and heads are made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lg2ar.adjacency import has_product
from lg2ar.distributed import alone, own_rows
from lg2ar.distributed.normalisation import normalise
from lg2ar.distributed.team import current
from lg2ar.graph import GraphBatch
from lg2ar.ops import segment_sum

# Numbers that one block of messages may hold when no gradient is wanted: 256 MiB in float32.
BLOCK = 1 << 26


def aggregate(x: Tensor, graph: GraphBatch, edge_weight: Tensor | None) -> Tensor:
    r"""Sum of the neighbours' rows, :math:`\sum_{j \to i} w_{ji} x_j`.

    A sparse product where there is one, otherwise by messages.

    Args:
        x: Node rows, shape ``[N, d]``.
        graph: Whose edges to follow.
        edge_weight: Weights, shape ``[E]``, or None for ones.
    """
    if has_product(x):
        return graph.adjacency.product(x, edge_weight)
    return pass_messages(x, graph.edge_index, edge_weight)


def pass_messages(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    """The same sum, one message an edge."""
    source, target = edge_index

    def message(block: slice) -> Tensor:
        rows = x.index_select(0, source[block])
        return rows if edge_weight is None else rows * edge_weight[block].unsqueeze(-1)

    return sum_messages(message, target, torch.zeros_like(x))


def sum_messages(message: Callable[[slice], Tensor], target: Tensor, start: Tensor) -> Tensor:
    """Add the messages that each node hears.

    While a gradient is wanted all messages are made at once. Without one, at inference, they are
    made in blocks of edges, so that memory does not grow with the number of edges.

    Args:
        message: Makes the messages of a range of edges, shape ``[edges, d]``.
        target: The node that hears each edge, shape ``[E]``.
        start: What they are added to, shape ``[N, d]``; it is left as it is.
    """
    if torch.is_grad_enabled():
        return start.index_add(0, target, message(slice(None)))
    total = start.clone()
    step = max(1, BLOCK // max(1, start.size(1)))
    for first in range(0, target.numel(), step):
        block = slice(first, first + step)
        total.index_add_(0, target[block], message(block))
    return total


def attributes_of(graph: GraphBatch, width: int) -> Tensor:
    """The edge attributes ``[E, width]`` that a layer of this width reads.

    Raises:
        ValueError: When the graph has others, or none.
    """
    if graph.edge_attr is None or graph.num_edge_features != width:
        raise ValueError(
            f"made for {width} edge attributes, got a batch with {graph.num_edge_features}"
        )
    return graph.edge_attr


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Set a share ``p`` of the numbers to zero while training, and scale the others up.

    On a CPU 16 bits decide for each number, a fraction of what PyTorch draws: there, drawing takes
    as long as the products around it. The share is then a whole number of 65,536ths.
    """
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        if alone():
            return F.dropout(x, p)
        return x * own_rows(lambda rows: F.dropout(x.new_ones(rows, *x.shape[1:]), p), len(x))
    dropped = round(p * 2**16)
    kept = (own_rows(lambda rows: _bits(rows, *x.shape[1:]), len(x)) >= dropped - 2**15).to(x.dtype)
    return x * kept.mul_(2**16 / (2**16 - dropped))


def _bits(*shape: int) -> Tensor:
    """Sixteen random bits for each number."""
    number = math.prod(shape)
    words = torch.empty((number + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[:number].view(shape)


class MLP(nn.Module):
    """``layers`` linear layers with ReLU between them.

    The first layer is apart from the rest, so that a caller whose input is ``[a || b]`` can
    multiply the two parts by their own columns of ``first.weight`` before joining them.

    Args:
        in_features: Width of the input.
        hidden: Width between the layers.
        out_features: Width of the output.
        layers: Number of linear layers.
    """

    def __init__(self, in_features: int, hidden: int, out_features: int, layers: int = 2) -> None:
        super().__init__()
        widths = [in_features, *[hidden] * (layers - 1), out_features]
        self.first = nn.Linear(widths[0], widths[1])
        self.rest = nn.Sequential()
        for narrow, wide in itertools.pairwise(widths[1:]):
            self.rest.extend([nn.ReLU(), nn.Linear(narrow, wide)])

    @property
    def inner(self) -> list[nn.Linear]:
        """The layers whose rows go through a ReLU into the next one: all but the last."""
        return [self.first, *(part for part in self.rest if isinstance(part, nn.Linear))][:-1]

    def forward(self, x: Tensor) -> Tensor:
        """Map rows ``[..., in_features]`` to ``[..., out_features]``."""
        y: Tensor = self.rest(self.first(x))
        return y


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that a batch of a single row does not break.

    One row has no variance: it is normalised by the running statistics, and leaves them alone.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name nn.BatchNorm1d uses
        """Normalise each column, shape ``[N, d]``, over the whole batch."""
        team = current()
        if self.training and team is not None:
            return normalise(input, self, team)
        if self.training and input.size(0) < 2:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)


class UnitRows(nn.Module):
    """Divides each row by its length; rows of zeros stay as they are."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale rows ``[N, d]``."""
        return F.normalize(x, dim=-1)


class StandardRows(BatchNorm):
    """Brings each column to mean 0 and deviation 1, by the running statistics alone.

    A column that did not vary where they were taken is moved only: a small difference elsewhere
    would become an enormous one.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, affine=False)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name nn.BatchNorm1d uses
        """Scale rows ``[N, d]``."""
        assert self.running_mean is not None
        assert self.running_var is not None
        still = self.running_var <= (1e-6 * self.running_mean).square()
        return (input - self.running_mean) / self.running_var.masked_fill(still, 1.0).sqrt()


class Convolution(Protocol):
    """A layer in the parts that it is done in where a graph is too large to be done at once.

    ``finish(collect(h, h, graph, scale), scale)`` with ``h = send(x, scale)`` is the layer.
    ``scale`` is what a GCN takes from the degrees; other layers do not look at it.
    """

    @property
    def sends_rows(self) -> bool:
        """Whether :meth:`send` gives rows as they are."""
        ...

    def send(self, x: Tensor, scale: Tensor | None) -> Tensor:
        """What nodes say, of their rows."""
        ...

    def collect(
        self, start: Tensor, sent: Tensor, graph: GraphBatch, scale: Tensor | None
    ) -> Tensor:
        """Add what nodes hear to ``start``; edges may come in several goes.

        Args:
            start: What has been heard so far, at first what the node itself says; nodes that hear
                nothing and come behind all others may be left out of it.
            sent: What all nodes of the graph say.
            graph: Whose edges to follow.
            scale: Of all nodes of the graph.
        """
        ...

    def finish(self, total: Tensor, scale: Tensor | None) -> Tensor:
        """The layer's rows, of all that was heard."""
        ...


class WeightedGINConv(nn.Module):
    r"""Graph isomorphism layer with edge weights.

    .. math::
        h_i' = \mathrm{MLP}\Big(h_i + \sum_{j \to i} w_{ji} h_j\Big)

    PyG's ``GINConv`` takes no weights, and the heads' gradient flows through the weights.

    Args:
        in_features: Width of the input.
        out_features: Width of the output and of the MLP's hidden layer.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.mlp = MLP(in_features, out_features, out_features, layers=2)

    def forward(self, x: Tensor, graph: GraphBatch) -> Tensor:
        """Encode node rows ``[N, in_features]`` along the edges of ``graph``."""
        h = self.send(x, None)
        return self.finish(self.collect(h, h, graph, None), None)

    @property
    def sends_rows(self) -> bool:
        """Whether nodes say their rows as they are: see :class:`Convolution`."""
        return self.mlp.first.in_features <= self.mlp.first.out_features

    def send(self, x: Tensor, scale: Tensor | None) -> Tensor:
        """What nodes say: see :class:`Convolution`."""
        # A sum is multiplied before it is taken where that makes rows narrower.
        return x if self.sends_rows else F.linear(x, self.mlp.first.weight)

    def collect(
        self, start: Tensor, sent: Tensor, graph: GraphBatch, scale: Tensor | None
    ) -> Tensor:
        """Add up what nodes hear: see :class:`Convolution`."""
        heard = aggregate(sent, graph, graph.edge_weight)
        return start + (heard if start is sent else heard[: start.size(0)])

    def finish(self, total: Tensor, scale: Tensor | None) -> Tensor:
        """The rows ``[N, out_features]``: see :class:`Convolution`."""
        first = self.mlp.first(total) if self.sends_rows else total + self.mlp.first.bias
        return cast(Tensor, self.mlp.rest(first))


class WeightedGINEConv(nn.Module):
    r"""Graph isomorphism layer with edge weights and edge attributes (Hu et al., 2020).

    .. math::
        h_i' = \mathrm{MLP}\Big(h_i + \sum_{j \to i} w_{ji}\,
        \mathrm{ReLU}(h_j + W_e e_{ji} + b_e)\Big)

    The ReLU is what ties an attribute to the neighbour it leads to: a plain sum would add up
    neighbours and attributes apart.

    Args:
        in_features: Width of the input.
        out_features: Width of the output and of the MLP's hidden layer.
        num_edge_features: Width of the edge attributes, ``d_e``.
    """

    def __init__(self, in_features: int, out_features: int, num_edge_features: int) -> None:
        super().__init__()
        self.mlp = MLP(in_features, out_features, out_features, layers=2)
        self.edges = nn.Linear(num_edge_features, in_features)

    def forward(self, x: Tensor, graph: GraphBatch) -> Tensor:
        """Encode node rows ``[N, in_features]`` along the edges of ``graph``."""
        return self.finish(self.collect(x, x, graph, None), None)

    sends_rows = True

    def send(self, x: Tensor, scale: Tensor | None) -> Tensor:
        """What nodes say: see :class:`Convolution`."""
        return x

    def collect(
        self, start: Tensor, sent: Tensor, graph: GraphBatch, scale: Tensor | None
    ) -> Tensor:
        """Add up what nodes hear: see :class:`Convolution`."""
        attributes = attributes_of(graph, self.edges.in_features)
        source, target = graph.edge_index
        weight = graph.edge_weight

        def message(block: slice) -> Tensor:
            rows = F.relu(sent.index_select(0, source[block]) + self.edges(attributes[block]))
            return rows if weight is None else rows * weight[block].unsqueeze(-1)

        return sum_messages(message, target, start)

    def finish(self, total: Tensor, scale: Tensor | None) -> Tensor:
        """The rows ``[N, out_features]``: see :class:`Convolution`."""
        h: Tensor = self.mlp(total)
        return h


class Smoothing(nn.Module):
    r"""The sum of a node and its neighbours as a graph convolution weighs it; nothing is learned.

    .. math::
        h_i' = \sum_{j \to i} \frac{\hat w_{ji}}{\sqrt{\hat d_j \hat d_i}} h_j,
        \qquad \hat d_i = \sum_{j \to i} \hat w_{ji}

    where the weights :math:`\hat w` are those of the graph and a self-loop of weight one at each
    node. A self-loop that the graph has already is added to it.
    """

    def forward(self, x: Tensor, graph: GraphBatch) -> Tensor:
        """Encode node rows ``[N, in_features]`` along the edges of ``graph``."""
        w = graph.weights().to(x.dtype)
        scale = self.scale_of(1 + segment_sum(w, graph.edge_index[1], x.size(0)))
        h = self.send(x, scale)
        return self.finish(self.collect(h, h, graph, scale), scale)  # h: the self-loop

    @staticmethod
    def scale_of(degree: Tensor) -> Tensor:
        """What rows are scaled by, given the degrees with self-loops, ``[N]``."""
        # A degree of zero or less, from negative weights, scales to zero as in PyG.
        positive = degree > 0
        return degree.where(positive, 1).rsqrt().where(positive, 0)

    sends_rows = False

    def send(self, x: Tensor, scale: Tensor | None) -> Tensor:
        """What nodes say: see :class:`Convolution`."""
        assert scale is not None
        return x * scale.unsqueeze(-1)

    def collect(
        self, start: Tensor, sent: Tensor, graph: GraphBatch, scale: Tensor | None
    ) -> Tensor:
        """Add up what nodes hear: see :class:`Convolution`."""
        heard = aggregate(sent, graph, graph.weights().to(sent.dtype))
        return start + (heard if start is sent else heard[: start.size(0)])

    def finish(self, total: Tensor, scale: Tensor | None) -> Tensor:
        """The rows: see :class:`Convolution`."""
        assert scale is not None
        return total * scale.unsqueeze(-1)


class WeightedGCNConv(Smoothing):
    r"""Graph convolution with edge weights (Kipf & Welling, 2017).

    .. math::
        h_i' = b + \sum_{j \to i} \frac{\hat w_{ji}}{\sqrt{\hat d_j \hat d_i}} W h_j

    with the weights and degrees of :class:`Smoothing`. With edge attributes
    :math:`W h_j` becomes :math:`W h_j + W_e e_{ji}`; the self-loop has none (docs/paper.md, D17).

    Args:
        in_features: Width of the input.
        out_features: Width of the output.
        num_edge_features: Width of the edge attributes, ``d_e``; 0 does not look at them.
    """

    def __init__(self, in_features: int, out_features: int, num_edge_features: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_features))
        self.edges: nn.Linear | None = None
        if num_edge_features:
            self.edges = nn.Linear(num_edge_features, out_features, bias=False)

    def send(self, x: Tensor, scale: Tensor | None) -> Tensor:
        """What nodes say: see :class:`Convolution`."""
        return super().send(self.linear(x), scale)  # narrow first: messages are out_features wide

    def collect(
        self, start: Tensor, sent: Tensor, graph: GraphBatch, scale: Tensor | None
    ) -> Tensor:
        """Add up what nodes hear: see :class:`Convolution`."""
        total = super().collect(start, sent, graph, scale)
        if self.edges is not None:
            assert scale is not None
            source, target = graph.edge_index
            e = attributes_of(graph, self.edges.in_features)
            share = graph.weights().to(sent.dtype) * scale.index_select(0, source)

            def message(block: slice) -> Tensor:
                return e[block] * share[block].unsqueeze(-1)

            # Summed before they are multiplied by W_e: messages are as narrow as the attributes.
            total = total + self.edges(
                sum_messages(message, target, e.new_zeros(start.size(0), e.size(1)))
            )
        return total

    def finish(self, total: Tensor, scale: Tensor | None) -> Tensor:
        """The rows ``[N, out_features]``: see :class:`Convolution`."""
        return super().finish(total, scale) + self.bias


def initialise(module: nn.Module) -> None:
    """Xavier initialisation of every weight matrix; biases start at zero (A.3)."""
    for part in module.modules():
        if isinstance(part, BatchNorm):
            part.reset_parameters()
            continue
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.dim() < 2:
                if "bias" in name:
                    nn.init.zeros_(parameter)
            elif isinstance(part, nn.GRU):
                for gate in parameter.chunk(3):  # reset, update and new gate lie on one another
                    nn.init.xavier_uniform_(gate)
            else:
                nn.init.xavier_uniform_(parameter)
