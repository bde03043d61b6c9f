"""The learned layers that all encoders and heads are made of."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lg2ar.graph import GraphBatch
from lg2ar.ops import segment_sum

# Numbers that one block of messages may hold when no gradient is wanted: 256 MiB in float32.
BLOCK = 1 << 26


def aggregate(x: Tensor, graph: GraphBatch, edge_weight: Tensor | None) -> Tensor:
    r"""Sum of the neighbours' rows, :math:`\sum_{j \to i} w_{ji} x_j`.

    On a CPU a sparse product, on a GPU by messages.

    Args:
        x: Node rows, shape ``[N, d]``.
        graph: Whose edges to follow.
        edge_weight: Weights, shape ``[E]``, or None for ones.
    """
    if x.device.type == "cpu":
        return graph.adjacency.product(x, edge_weight)
    return pass_messages(x, graph.edge_index, edge_weight)


def pass_messages(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    """The same sum, one message an edge.

    While a gradient is wanted all messages are made at once. Without one, at inference, they are
    made in blocks of edges, so that memory does not grow with the number of edges.
    """
    source, target = edge_index
    if torch.is_grad_enabled():
        messages = x.index_select(0, source)
        if edge_weight is not None:
            messages = messages * edge_weight.unsqueeze(-1)
        return torch.zeros_like(x).index_add(0, target, messages)
    total = torch.zeros_like(x)
    step = max(1, BLOCK // max(1, x.size(1)))
    for start in range(0, source.numel(), step):
        block = slice(start, start + step)
        messages = x.index_select(0, source[block])
        if edge_weight is not None:
            messages *= edge_weight[block].unsqueeze(-1)
        total.index_add_(0, target[block], messages)
    return total


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Set a share ``p`` of the numbers to zero while training, and scale the others up.

    On a CPU 16 bits decide for each number, a fraction of what PyTorch draws: there, drawing takes
    as long as the products around it. The share is then a whole number of 65,536ths.
    """
    if not training or p == 0 or x.device.type != "cpu":
        return F.dropout(x, p, training)
    dropped = round(p * 2**16)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    kept = (bits >= dropped - 2**15).to(x.dtype)
    return x * kept.mul_(2**16 / (2**16 - dropped))


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

    def forward(self, x: Tensor) -> Tensor:
        """Map rows ``[..., in_features]`` to ``[..., out_features]``."""
        y: Tensor = self.rest(self.first(x))
        return y


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that a batch of a single row does not break.

    One row has no variance: it is normalised by the running statistics, and leaves them alone.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name nn.BatchNorm1d uses
        """Normalise each column, shape ``[N, d]``."""
        if self.training and input.size(0) < 2:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)


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
        h: Tensor = self.mlp(x + aggregate(x, graph, graph.edge_weight))
        return h


class WeightedGCNConv(nn.Module):
    r"""Graph convolution with edge weights (Kipf & Welling, 2017).

    .. math::
        h_i' = b + \sum_{j \to i} \frac{\hat w_{ji}}{\sqrt{\hat d_j \hat d_i}} W h_j,
        \qquad \hat d_i = \sum_{j \to i} \hat w_{ji}

    where the weights :math:`\hat w` are those of the graph and a self-loop of weight one at each
    node. A self-loop that the graph has already is added to it.

    Args:
        in_features: Width of the input.
        out_features: Width of the output.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x: Tensor, graph: GraphBatch) -> Tensor:
        """Encode node rows ``[N, in_features]`` along the edges of ``graph``."""
        target = graph.edge_index[1]
        w = graph.weights().to(x.dtype)
        degree = 1 + segment_sum(w, target, x.size(0))
        # A degree of zero or less, from negative weights, scales to zero as in PyG.
        positive = degree > 0
        scale = degree.where(positive, 1).rsqrt().where(positive, 0)  # [N]
        h: Tensor = self.linear(x) * scale.unsqueeze(-1)  # narrow first: messages are h wide
        total = h + aggregate(h, graph, w)  # h: the self-loop of weight one
        return total * scale.unsqueeze(-1) + self.bias


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
