"""The same step as PyG's own parts express it, to be measured beside ours.

Written as a user of PyG would write it: ``DataLoader`` collates a list of graphs, messages are made
by ``MessagePassing``, views are cut by PyG's functions, which loop over graphs in Python where
nothing vectorised is there (negative edges), and one backward pass serves all parts. Widths,
layers, heads and loss are those of ``lg2ar.model`` with the settings of the paper; settings that
choose something else are not read.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import RelaxedBernoulli
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MessagePassing, global_add_pool
from torch_geometric.nn.pool.select.topk import topk
from torch_geometric.utils import (
    batched_negative_sampling,
    degree,
    k_hop_subgraph,
    softmax,
    subgraph,
    to_undirected,
    unbatch,
)

from lg2ar.config import Config
from lg2ar.graph import GraphBatch
from lg2ar.layers import initialise

# Features, edges, their weights (None: ones) and the graph of each node.
View = tuple[Tensor, Tensor, Tensor | None, Tensor]


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    parts: list[nn.Module] = []
    for narrow, wide in itertools.pairwise(widths):
        parts += [nn.Linear(narrow, wide), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class WeightedGIN(MessagePassing):  # type: ignore[misc]  # PyG is not typed
    """PyG's ``GINConv`` with a weight on each message."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(aggr="add")
        self.mlp = mlp(in_features, out_features, out_features)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        """Encode node rows along the edges."""
        heard = self.propagate(edge_index, x=x, edge_weight=edge_weight)
        h: Tensor = self.mlp(x + heard)
        return h

    def message(self, x_j: Tensor, edge_weight: Tensor | None) -> Tensor:
        """What an edge carries."""
        return x_j if edge_weight is None else x_j * edge_weight.view(-1, 1)


class Encoder(nn.Module):
    """GIN, its layers side by side, sum over nodes, two projection heads."""

    def __init__(self, num_features: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        widths = [num_features, *[hidden] * layers]
        self.convs = nn.ModuleList(itertools.starmap(WeightedGIN, itertools.pairwise(widths)))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers))
        self.dropout = dropout
        self.node_projection = mlp(layers * hidden, hidden, hidden, hidden)
        self.graph_projection = mlp(layers * hidden, hidden, hidden, hidden)

    def forward(self, view: View, num_graphs: int) -> tuple[Tensor, Tensor]:
        """Encode nodes and graphs."""
        h, edge_index, edge_weight, batch = view
        outputs = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = norm(F.relu(conv(h, edge_index, edge_weight)))
            h = F.dropout(h, self.dropout, self.training)
            outputs.append(h)
        nodes = torch.cat(outputs, dim=-1)
        graphs = global_add_pool(nodes, batch, size=num_graphs)
        return self.node_projection(nodes), self.graph_projection(graphs)


class Identity(nn.Module):
    """The graphs as they are."""

    def forward(self, data: Data, nodes: Tensor, graphs: Tensor) -> View:
        """Cut a view."""
        return data.x, data.edge_index, None, data.batch


class NodeDropping(nn.Module):
    """Gumbel-Top-K by PyG's ``topk``, then ``subgraph``."""

    def __init__(self, hidden: int, ratio: float) -> None:
        super().__init__()
        self.mlp = mlp(2 * hidden, hidden, 1)
        self.ratio = ratio

    def forward(self, data: Data, nodes: Tensor, graphs: Tensor) -> View:
        """Cut a view."""
        logits = self.mlp(torch.cat([nodes, graphs[data.batch]], dim=-1)).squeeze(-1)
        noisy = logits.detach() - torch.empty_like(logits).exponential_().log()
        kept = topk(noisy, self.ratio, data.batch)
        return _induced(data, logits, kept.sort().values)


class SubGraph(nn.Module):
    """One centre a graph, then ``k_hop_subgraph``."""

    def __init__(self, hidden: int, hops: int) -> None:
        super().__init__()
        self.mlp = mlp(2 * hidden, hidden, 1)
        self.hops = hops

    def forward(self, data: Data, nodes: Tensor, graphs: Tensor) -> View:
        """Cut a view."""
        logits = self.mlp(torch.cat([nodes, graphs[data.batch]], dim=-1)).squeeze(-1)
        noisy = logits.detach() - torch.empty_like(logits).exponential_().log()
        centres = topk(noisy, 1, data.batch)
        kept, _, _, _ = k_hop_subgraph(
            centres, self.hops, data.edge_index, num_nodes=data.num_nodes
        )
        return _induced(data, logits, kept)


def _induced(data: Data, logits: Tensor, kept: Tensor) -> View:
    """The sub-graph of the kept nodes, with the weights of Algorithms 2 and 3."""
    p = softmax(logits, data.batch)
    p = p * degree(data.batch)[data.batch] / 2
    weight = p[data.edge_index[0]] + p[data.edge_index[1]]
    edge_index, weight = subgraph(
        kept, data.edge_index, weight, relabel_nodes=True, num_nodes=data.num_nodes
    )
    return data.x[kept], edge_index, weight, data.batch[kept]


class EdgePerturbation(nn.Module):
    """``batched_negative_sampling``, a coin for each pair of nodes, ``to_undirected``."""

    def __init__(self, hidden: int, temperature: float) -> None:
        super().__init__()
        self.mlp = mlp(hidden + 1, hidden, 1)
        self.temperature = torch.tensor(temperature)

    def forward(self, data: Data, nodes: Tensor, graphs: Tensor) -> View:
        """Cut a view."""
        negatives = batched_negative_sampling(data.edge_index, data.batch, force_undirected=True)
        there, absent = (pairs[:, pairs[0] < pairs[1]] for pairs in (data.edge_index, negatives))
        edge_index = torch.cat([there, absent], dim=1)
        exists = torch.zeros(edge_index.size(1), 1)
        exists[: there.size(1)] = 1
        both = nodes[edge_index[0]] + nodes[edge_index[1]]
        logits = self.mlp(torch.cat([both, exists], dim=-1)).squeeze(-1)
        kept = RelaxedBernoulli(self.temperature, logits=logits.detach()).rsample() > 0.5
        edge_index, weight = to_undirected(
            edge_index[:, kept], logits.sigmoid()[kept], num_nodes=data.num_nodes
        )
        return data.x, edge_index, weight, data.batch


class FeatureMasking(nn.Module):
    """Projected features times a relaxed mask, rounded."""

    def __init__(self, num_features: int, hidden: int, temperature: float) -> None:
        super().__init__()
        self.mlp = mlp(hidden, hidden, num_features)
        self.projection = nn.Linear(num_features, num_features)
        self.temperature = torch.tensor(temperature)

    def forward(self, data: Data, nodes: Tensor, graphs: Tensor) -> View:
        """Cut a view."""
        soft = RelaxedBernoulli(self.temperature, logits=self.mlp(nodes)).rsample()
        mask = (soft > 0.5).float() + soft - soft.detach()
        return self.projection(data.x) * mask, data.edge_index, None, data.batch


class PlainLG2AR(nn.Module):
    """Algorithm 1 on a PyG batch.

    Args:
        config: Widths, layers and the heads' settings are read.
        num_features: Width of the node features, ``d_x``.
        graph_by_graph: Whether heads are given one graph after the other, as published code for
            augmentations does, instead of the whole batch.
    """

    def __init__(self, config: Config, num_features: int, graph_by_graph: bool = False) -> None:
        super().__init__()
        self.graph_by_graph = graph_by_graph
        hidden = config.hidden
        shape = num_features, hidden, config.layers, config.dropout
        self.augmentation_encoder = Encoder(*shape)
        self.base_encoder = Encoder(*shape)
        self.gru = nn.GRU(hidden, hidden)
        self.output = nn.Linear(hidden, 5)
        self.temperature = config.temperature
        self.heads = nn.ModuleList(
            [
                Identity(),
                NodeDropping(hidden, config.ratio),
                EdgePerturbation(hidden, config.temperature),
                SubGraph(hidden, config.hops),
                FeatureMasking(num_features, hidden, config.temperature),
            ]
        )
        initialise(self)

    def forward(self, data: Data) -> Tensor:
        """The loss of a batch."""
        cut = _graph_by_graph if self.graph_by_graph else _at_once
        untouched = data.x, data.edge_index, None, data.batch
        nodes, graphs = self.augmentation_encoder(untouched, data.num_graphs)
        p = self._policy(graphs)
        i, j = torch.multinomial(p.detach(), 2, replacement=True).tolist()
        view_i = cut(self.heads[i], data, nodes, graphs)
        view_j = cut(self.heads[j], data, nodes, graphs)
        nodes_i, graphs_i = self.base_encoder(view_i, data.num_graphs)
        nodes_j, graphs_j = self.base_encoder(view_j, data.num_graphs)
        there = _jensen_shannon(nodes_i @ (graphs_j * p[j]).t(), view_i[3])
        back = _jensen_shannon(nodes_j @ (graphs_i * p[i]).t(), view_j[3])
        return -(there + back)

    def _policy(self, graphs: Tensor) -> Tensor:
        ordered = graphs[graphs.norm(dim=-1).argsort()]
        _, last = self.gru(ordered.unsqueeze(1))
        p: Tensor = (self.output(last.flatten()) / self.temperature).softmax(-1)
        return p


def _at_once(head: nn.Module, data: Data, nodes: Tensor, graphs: Tensor) -> View:
    view: View = head(data, nodes, graphs)
    return view


def _graph_by_graph(head: nn.Module, data: Data, nodes: Tensor, graphs: Tensor) -> View:
    """Take the batch apart, cut a view of each graph, and collate them."""
    views = []
    parts = zip(data.to_data_list(), unbatch(nodes, data.batch), graphs.unsqueeze(1), strict=True)
    for one, its_nodes, its_row in parts:
        one.batch = torch.zeros(one.num_nodes, dtype=torch.long)
        x, edge_index, edge_weight, _ = head(one, its_nodes, its_row)
        views.append(Data(x=x, edge_index=edge_index, edge_weight=edge_weight))
    joined = Batch.from_data_list(views)
    return joined.x, joined.edge_index, joined.get("edge_weight"), joined.batch


def _jensen_shannon(scores: Tensor, batch: Tensor) -> Tensor:
    """The bound of Section 3.5; every graph weighs the same, whatever its size."""
    positive = F.one_hot(batch, scores.size(1)).bool()
    weight = (1 / degree(batch, scores.size(1))[batch]).view(-1, 1)
    joint, product = weight * positive, weight * ~positive
    agree = (F.logsigmoid(scores) * joint).sum() / joint.sum()
    disagree = (F.logsigmoid(-scores) * product).sum() / product.sum()
    bound: Tensor = agree + disagree
    return bound


class PlainTrainer:
    """Epochs of Algorithm 1 with PyG's loader and PyTorch's Adam.

    Args:
        graph: All graphs, features included.
        config: The settings.
        graph_by_graph: See :class:`PlainLG2AR`.
    """

    def __init__(self, graph: GraphBatch, config: Config, *, graph_by_graph: bool = False) -> None:
        torch.manual_seed(config.seed)
        graphs = graph.to_pyg().to_data_list()
        self.loader = DataLoader(graphs, batch_size=config.batch_size, shuffle=True)
        self.model = PlainLG2AR(config, graph.num_features, graph_by_graph)
        model = self.model
        self.augmentation = torch.optim.Adam(
            model.augmentation_encoder.parameters(), lr=config.learning_rate
        )
        self.base = torch.optim.Adam(model.base_encoder.parameters(), lr=config.learning_rate)
        rest = [*model.gru.parameters(), *model.output.parameters(), *model.heads.parameters()]
        self.always = torch.optim.Adam(rest, lr=config.learning_rate)

    def epoch(self) -> tuple[float, int]:
        """One pass over the graphs: its mean loss and its number of steps."""
        self.model.train()
        losses = [self._step(data) for data in self.loader]
        return math.fsum(losses) / len(losses), len(losses)

    def _step(self, data: Data) -> float:
        optimizers = self.augmentation, self.base, self.always
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = self.model(data)
        loss.backward()
        (self.base if torch.rand(()) < 0.5 else self.augmentation).step()
        self.always.step()
        return float(loss.detach())

    def timed(self, epochs: int) -> Iterator[tuple[float, float, int]]:
        """Seconds, loss and steps of each epoch."""
        for _ in range(epochs):
            start = time.perf_counter()
            loss, steps = self.epoch()
            yield time.perf_counter() - start, loss, steps
