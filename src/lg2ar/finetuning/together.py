"""Fine-tuning on many folds at once: their networks side by side, a leading dimension of weights.

One fold's batch is some hundred rows, which leaves a GPU idle for most of a step. Here the batches
of all folds are one, ``K`` blocks of rows that are padded to the longest, and a linear layer is one
batched product. Adam treats each weight by itself and the loss is a sum over folds, so that each
network becomes what it would have become alone, up to rounding and the draws of dropout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lg2ar.adjacency import Adjacency, Pools, has_product
from lg2ar.data.batches import Store, as_store
from lg2ar.encoders import GIN, Encoder
from lg2ar.finetuning.network import Network, shuffled_parts
from lg2ar.finetuning.selection import Curve, curve_of
from lg2ar.graph import GraphBatch
from lg2ar.layers import BatchNorm, pass_messages
from lg2ar.ops import signed_log
from lg2ar.sampling import private_randomness, repeatable, seed_from
from lg2ar.splits import Split

# Nodes and edges of all folds that are evaluated at a time.
BUDGET = 1 << 21
# Numbers in the rows of one of them, a quarter of what 32 bits count, as graphs are of unequal
# size; and graphs.
NUMBERS, GRAPHS = 1 << 29, 1 << 15


def can_be_together(encoder: Encoder, graph: GraphBatch) -> bool:
    """Whether there is a way to train such networks side by side: plain GINs on plain edges."""
    network = encoder.network
    return (
        isinstance(network, GIN)
        and isinstance(network.embedding, nn.Identity)
        and isinstance(encoder.features, nn.Identity)
        and graph.edge_attr is None
    )


def fine_tune_together(
    encoders: Sequence[Encoder],
    graph: GraphBatch,
    y: Tensor,
    splits: Sequence[Split],
    seeds: Sequence[int],
    *,
    epochs: int = 100,
    learning_rate: float = 1e-3,
    batch_size: int = 128,
    dropout: float = 0.0,
    hidden: int = 128,
    device: torch.device | str = "cpu",
    deterministic: bool = True,
    captured: str | None = None,
) -> list[Curve]:
    """Fine-tune a copy of each encoder on its split.

    It does what :func:`~lg2ar.finetuning.folds.fine_tune` does for one.

    Args:
        encoders: One for each network; they are left as they are, and differ in weights alone.
        graph: All graphs, features included.
        y: A label per graph.
        splits: One for each network.
        seeds: One for each network: its head's weights and the order of its batches.
        epochs: Passes over the labelled graphs.
        learning_rate: Adam's.
        batch_size: Graphs in a batch of one network.
        dropout: Of the heads; the encoders keep their own.
        hidden: Width of the heads' hidden layer.
        device: Where to train.
        deterministic: Whether a CUDA device must repeat itself bit by bit.
        captured: ``tf32`` or ``float32``, which products are in, where the kernels of the captured
            step are to encode; None takes the plain layers. The kernels want graphs that this step
            is suitable for; dropout draws from another source there.
    """
    place = torch.device(device)
    classes, labels = torch.unique(y, return_inverse=True)
    labels = labels.to(place)
    source, precision = _source(graph, place, captured)
    curves: list[Curve | None] = [None] * len(splits)
    # Networks that take as many steps in an epoch go together: one more graph may make one more.
    steps = [len(shuffled_parts(split.train, batch_size, 0)) for split in splits]
    with private_randomness(), repeatable(place, deterministic), precision:
        for number in sorted(set(steps)):
            chosen = [k for k, own in enumerate(steps) if own == number]
            networks = []
            for k in chosen:
                torch.manual_seed(seed_from(seeds[k], "fine-tuning"))
                networks.append(Network(encoders[k], len(classes), hidden, dropout, "graph"))
            side_by_side = SideBySide(networks, place)
            found = _train(
                side_by_side,
                source,
                labels,
                [splits[k] for k in chosen],
                [seeds[k] for k in chosen],
                epochs=epochs,
                learning_rate=learning_rate,
                batch_size=batch_size,
            )
            for k, curve in zip(chosen, found, strict=True):
                curves[k] = curve
    return [curve for curve in curves if curve is not None]


class Batches(Protocol):
    """Batches of ``K`` networks, padded to ``g`` graphs each."""

    @property
    def graphs(self) -> Tensor:
        """How many graphs each block has, ``[K]``."""
        ...

    @property
    def rows(self) -> Tensor:
        """The number of each graph in the data, zero for what pads, ``[K, g]``."""
        ...

    def encoded(
        self,
        encoder: Encoder,
        weights: Mapping[str, Tensor],
        statistics: Mapping[str, Tensor],
        training: bool,
    ) -> Tensor:
        """Rows of all graphs, ``[K, g, d]``; statistics follow while training."""
        ...


class Source(Protocol):
    """What batches are taken from."""

    @property
    def num_nodes(self) -> np.ndarray:
        """Of each graph."""
        ...

    @property
    def num_edges(self) -> np.ndarray:
        """Of each graph."""
        ...

    def blocks(self, parts: Sequence[np.ndarray], keys: Iterable[int]) -> Batches:
        """The graphs at these places, a block for each network, and the keys of their dropout."""
        ...


def _source(
    graph: GraphBatch, device: torch.device, captured: str | None
) -> tuple[Source, AbstractContextManager[None]]:
    """What batches are taken from, and what to multiply in."""
    if captured is None:
        return Plain(as_store(graph, device)), nullcontext()
    from lg2ar.fast.dense import products_in  # needs Triton
    from lg2ar.fast.finetuning import PairStore

    return PairStore(graph, device), products_in(captured)


class Plain:
    """Batches for any graphs.

    Args:
        store: All graphs.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.num_nodes, self.num_edges = store.num_nodes, store.num_edges

    def blocks(self, parts: Sequence[np.ndarray], keys: Iterable[int]) -> Blocks:
        """The graphs at these places; dropout takes from PyTorch's own source."""
        return Blocks.of(self._store, parts)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Batches of ``K`` networks, padded to ``n`` nodes and ``g`` graphs each.

    Attributes:
        x: Features, zero for what pads, ``[K, n, d_x]``.
        adjacency: Of all nodes, those that pad included.
        edge_weight: Of each edge, or None.
        pools: The nodes of each graph, of all ``K * g``; what pads is in none.
        nodes: How many nodes each block has, ``[K]``.
        graphs: How many graphs each block has, ``[K]``.
        rows: The number of each graph in the data, zero for what pads, ``[K, g]``.
    """

    x: Tensor
    adjacency: Adjacency
    edge_weight: Tensor | None
    pools: Pools
    nodes: Tensor
    graphs: Tensor
    rows: Tensor

    @classmethod
    def of(cls, store: Store, parts: Sequence[np.ndarray]) -> Blocks:
        """The graphs at these places, a block for each network."""
        batch = store.select(np.concatenate(parts))
        device = batch.device
        nodes = np.array([int(store.num_nodes[part].sum()) for part in parts])
        graphs = np.array([len(part) for part in parts])
        n, g = int(nodes.max()), int(graphs.max())
        place = _places(nodes, n, device)  # where each node is among K * n
        home = _places(graphs, g, device)  # where each graph is among K * g
        many = len(parts)
        x = batch.x.new_zeros(many * n, batch.x.size(1)).index_copy(0, place, batch.x)
        graph = torch.full((many * n,), many * g, device=device)
        rows = np.concatenate(parts)
        return cls(
            x=x.view(many, n, -1),
            adjacency=Adjacency(place[batch.edge_index], many * n),
            edge_weight=batch.edge_weight,
            pools=Pools(graph.index_copy(0, place, home[batch.batch]), many * g),
            nodes=torch.from_numpy(nodes).to(device),
            graphs=torch.from_numpy(graphs).to(device),
            rows=torch.zeros(many * g, dtype=torch.long, device=device)
            .index_copy(0, home, torch.from_numpy(rows).to(device))
            .view(many, g),
        )

    def encoded(
        self,
        encoder: Encoder,
        weights: Mapping[str, Tensor],
        statistics: Mapping[str, Tensor],
        training: bool,
    ) -> Tensor:
        """Rows of all graphs, ``[K, g, d]``; statistics follow while training."""
        network, h, layers = encoder.network, self.x, []
        assert isinstance(network, GIN)
        for layer, norm in enumerate(network.norms):
            conv, after = f"encoder.network.convs.{layer}.mlp", f"encoder.network.norms.{layer}"
            h = F.relu(_linear(f"{conv}.first", weights, h + self.heard(h)))
            h = _linear(f"{conv}.rest.1", weights, h)
            h = h if network.norm_first else F.relu(h)
            if isinstance(norm, BatchNorm):
                h = _normalise(after, norm, weights, statistics, h, self.nodes, training)
            h = F.relu(h) if network.norm_first else h
            h = F.dropout(h, network.dropout, training)
            layers.append(self.pooled(h))
        rows = torch.cat(layers, dim=-1)
        if encoder.readout == "mean":
            return rows / self.sizes()
        return signed_log(rows) if encoder.readout == "log-sum" else rows

    def heard(self, x: Tensor) -> Tensor:
        """Sums of the neighbours' rows, ``[K, n, d]``."""
        flat = x.reshape(-1, x.size(-1))
        weight = None if self.edge_weight is None else self.edge_weight.to(x.dtype)
        if has_product(flat):
            return self.adjacency.product(flat, weight).view(x.shape)
        return pass_messages(flat, self.adjacency.edge_index, weight).view(x.shape)

    def pooled(self, x: Tensor) -> Tensor:
        """Sums of each graph's nodes, ``[K, g, d]``."""
        many, g = self.rows.shape
        return self.pools.sums(x.reshape(-1, x.size(-1))).view(many, g, -1)

    def sizes(self) -> Tensor:
        """Nodes of each graph, at least one, ``[K, g, 1]``."""
        ones = self.x.new_ones(*self.x.shape[:2], 1)
        return self.pooled(ones).clamp(min=1)


def _places(counts: np.ndarray, width: int, device: torch.device) -> Tensor:
    """Of rows that come block after block, their places where each block has ``width``."""
    shift = np.arange(len(counts)) * width - (counts.cumsum() - counts)
    return torch.from_numpy(np.arange(counts.sum()) + shift.repeat(counts)).to(device)


def _there(counts: Tensor, width: int) -> Tensor:
    """1 for rows, 0 for what pads, ``[K, width, 1]``."""
    return (torch.arange(width, device=counts.device) < counts[:, None])[..., None]


class SideBySide:
    """Networks of one shape, their weights stacked.

    Args:
        networks: What they begin from; they are left as they are.
        device: Where the stack lies.
    """

    def __init__(self, networks: Sequence[Network], device: torch.device) -> None:
        weights, statistics = torch.func.stack_module_state(list(networks))
        self._weights = {
            name: value.detach().to(device).requires_grad_() for name, value in weights.items()
        }
        self._statistics = {name: value.to(device) for name, value in statistics.items()}
        self._network = networks[0]
        self.many = len(networks)
        self.width = networks[0].encoder.network.out_features

    def trained(self) -> list[Tensor]:
        """The stacked weights."""
        return list(self._weights.values())

    def __call__(self, blocks: Batches, training: bool) -> Tensor:
        """Outputs for all graphs, ``[K, g, classes]``."""
        weights, statistics = self._weights, self._statistics
        rows = blocks.encoded(self._network.encoder, weights, statistics, training)
        norm, _, _, drop, _ = self._network.head
        assert isinstance(norm, BatchNorm)
        assert isinstance(drop, nn.Dropout)
        rows = _normalise("head.0", norm, weights, statistics, rows, blocks.graphs, training)
        rows = F.dropout(F.relu(_linear("head.1", weights, rows)), drop.p, training)
        return _linear("head.4", weights, rows)


def _linear(name: str, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return torch.baddbmm(bias[:, None], x, weight.mT)


def _normalise(
    name: str,
    norm: BatchNorm,
    weights: Mapping[str, Tensor],
    statistics: Mapping[str, Tensor],
    x: Tensor,
    counts: Tensor,
    training: bool,
) -> Tensor:
    """Batch normalisation of each block by its own rows."""
    mean, var = (statistics[f"{name}.running_{kind}"] for kind in ("mean", "var"))
    if training:
        there, count = _there(counts, x.size(1)), counts[:, None].to(x.dtype)
        now = x.where(there, 0).sum(1) / count
        spread = (x - now[:, None]).where(there, 0).square().sum(1) / count
        # A single row has no variance: it leaves the statistics alone and is read by them.
        several = count > 1
        with torch.no_grad():
            share = several.to(x.dtype) * (norm.momentum or 0.0)
            mean.lerp_(now, share)
            var.lerp_(spread * count / (count - 1).clamp(min=1), share)
        mean, var = now.where(several, mean), spread.where(several, var)
    scale = weights[f"{name}.weight"] * (var + norm.eps).rsqrt()
    shift = weights[f"{name}.bias"] - mean * scale
    return torch.addcmul(shift[:, None], x, scale[:, None])


def _train(
    networks: SideBySide,
    source: Source,
    labels: Tensor,
    splits: Sequence[Split],
    seeds: Sequence[int],
    *,
    epochs: int,
    learning_rate: float,
    batch_size: int,
) -> list[Curve]:
    """Train all networks, and test each epoch."""
    adam = torch.optim.Adam(networks.trained(), lr=learning_rate)
    held_out = [np.concatenate([split.validation, split.test]) for split in splits]
    seen, parts_of = list(_chunks(source, held_out, networks.width)), _parts(splits, labels.device)
    losses, results = [], []
    for epoch in range(1, epochs + 1):
        orders = [
            shuffled_parts(split.train, batch_size, seed_from(seed, epoch))
            for split, seed in zip(splits, seeds, strict=True)
        ]
        total = torch.zeros(networks.many, dtype=torch.float64, device=labels.device)
        for step, parts in enumerate(zip(*orders, strict=True)):
            keys = [seed_from(seed, epoch, step, "dropout") for seed in seeds]
            blocks = source.blocks(parts, keys)
            loss = _losses(networks(blocks, training=True), blocks, labels)  # [K], sums
            adam.zero_grad(set_to_none=True)
            (loss / blocks.graphs).sum().backward()  # type: ignore[no-untyped-call]
            adam.step()
            total += loss.detach()
        losses.append(total / torch.tensor([len(s.train) for s in splits], device=labels.device))
        results.append(_tested(networks, seen, labels, parts_of))
    loss, result = torch.stack(losses, dim=1), torch.stack(results, dim=1)  # [K, epochs, ...]
    return [
        curve_of(loss[k], result[k], learning_rate, validated=len(split.validation) > 0)
        for k, split in enumerate(splits)
    ]


def _chunks(source: Source, rows: Sequence[np.ndarray], width: int) -> Iterator[Batches]:
    """Rows in their own order, in blocks of bounded size; a network may have none left."""
    size = source.num_nodes + source.num_edges
    cost = sum(int(size[own].sum()) for own in rows)
    longest = max(len(own) for own in rows)
    most = max(int(source.num_nodes[own].sum()) for own in rows) * width
    shares = BUDGET / max(BUDGET, cost), NUMBERS / max(NUMBERS, most)
    step = max(1, min(int(longest * min(shares)), GRAPHS))
    for first in range(0, longest, step):
        yield source.blocks([own[first : first + step] for own in rows], [0] * len(rows))


def _losses(logits: Tensor, blocks: Batches, labels: Tensor) -> Tensor:
    """Sum of the cross-entropy of each network's graphs, ``[K]``."""
    each = F.cross_entropy(logits.mT, labels[blocks.rows], reduction="none")
    return each.where(_there(blocks.graphs, each.size(1))[..., 0], 0).sum(1)


@torch.no_grad()
def _tested(
    networks: SideBySide, chunks: Sequence[Batches], labels: Tensor, parts: Tensor
) -> Tensor:
    """Accuracy and loss of validation and test rows, zero where there are none, ``[K, 2, 2]``.

    Args:
        networks: The networks.
        chunks: Their rows, those of validation first.
        labels: Of all graphs.
        parts: 1 where a row is for validation, or a test: ``[K, 2, rows]``.
    """
    found = []
    for blocks in chunks:
        logits, truth = networks(blocks, training=False), labels[blocks.rows]
        loss = F.cross_entropy(logits.mT, truth, reduction="none")
        right = 100 * (logits.argmax(2) == truth).double()
        found.append(torch.stack([right, loss.double()], dim=2))
    return parts @ torch.cat(found, dim=1) / parts.sum(2, keepdim=True).clamp(min=1)


def _parts(splits: Sequence[Split], device: torch.device) -> Tensor:
    """Which held-out rows are for validation and which for the test, ``[K, 2, rows]``."""
    first = torch.tensor([len(split.validation) for split in splits])[:, None]
    last = first + torch.tensor([len(split.test) for split in splits])[:, None]
    row = torch.arange(int(last.max()))
    return torch.stack([row < first, (row >= first) & (row < last)], dim=1).double().to(device)
