"""What is fine-tuned, what it reads, and one pass over the labelled rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from lg2ar.config import Level
from lg2ar.data.batches import as_store
from lg2ar.encoders import Encoder
from lg2ar.graph import GraphBatch
from lg2ar.layers import BatchNorm, initialise

# What the network reads, and which rows of the data it is to tell something about: graphs, or for
# a frozen encoder their encodings.
Batch = tuple[GraphBatch | Tensor, Tensor]

# Mean over some rows of how far outputs [R, outputs] are from what they should be [R].
Loss = Callable[[Tensor, Tensor], Tensor]

# Nodes and edges that are evaluated at a time at graph level.
BUDGET = 1 << 18


class Network(nn.Module):
    """A copy of an encoder, and a head on its encodings before the projection.

    The head begins by normalising: sums over nodes are large, and unequal by orders of magnitude,
    which a bare linear layer takes long to get used to. It is GraphCL's without the second
    normalisation, whose running statistics lag behind a network that fits few labels in few steps.

    Args:
        encoder: The base encoder; it is left as it is.
        outputs: One a class, or a single number.
        hidden: Width of the head's hidden layer.
        dropout: Of the head; the encoder keeps its own.
        level: Whether rows are graphs or nodes.
        frozen: Whether the encoder stays as it is.
    """

    def __init__(
        self,
        encoder: Encoder,
        outputs: int,
        hidden: int,
        dropout: float,
        level: Level,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.level = level
        self.frozen = frozen
        width = encoder.network.out_features
        self.head = nn.Sequential(
            BatchNorm(width),
            nn.Linear(width, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, outputs),
        )
        initialise(self.head)

    def trained(self) -> list[nn.Parameter]:
        """The weights that fine-tuning changes."""
        return list((self.head if self.frozen else self).parameters())

    def encode(self, graph: GraphBatch, rows: Tensor) -> Tensor:
        """Encodings of all graphs of a batch, or of these nodes of a graph, ``[R, width]``."""
        # On their own scale, whatever they are handed out on: the head normalises them anyway.
        encoding = self.encoder.encode(self.encoder.prepare(graph))
        return encoding.graphs if self.level == "graph" else encoding.nodes.index_select(0, rows)

    def forward(self, batch: GraphBatch | Tensor, rows: Tensor) -> Tensor:
        """Outputs for all graphs of a batch, or for these nodes of a graph, ``[R, outputs]``.

        A frozen encoder's encodings may be given in the graphs' place.
        """
        x = self.encode(batch, rows) if isinstance(batch, GraphBatch) else batch
        outputs: Tensor = self.head(x)
        return outputs


class Rows:
    """Batches of graphs by their numbers, or of nodes of one large graph.

    Args:
        graph: All graphs, features included.
        level: Whether rows are graphs or nodes.
        device: Where they are to lie.
    """

    def __init__(self, graph: GraphBatch, level: Level, device: torch.device) -> None:
        self.device = device
        self._store = as_store(graph, device) if level == "graph" else None
        self._graph = graph.to(device) if self._store is None else None

    def shuffled(
        self, rows: np.ndarray, batch_size: int, seed: int
    ) -> Iterator[tuple[GraphBatch, Tensor]]:
        """The rows in random order, in batches, none of a single graph; nodes all at once."""
        if self._graph is not None:
            yield self._graph, self._tensor(rows)
            return
        for part in shuffled_parts(rows, batch_size, seed):
            yield self._select(part)

    def chunks(self, rows: np.ndarray) -> Iterator[tuple[GraphBatch, Tensor]]:
        """The rows in their own order, in batches of bounded size; nodes all at once."""
        if self._store is None:
            assert self._graph is not None
            yield self._graph, self._tensor(rows)
            return
        start, used = 0, 0
        costs = self._store.num_nodes[rows] + self._store.num_edges[rows]
        for place, cost in enumerate(costs.tolist()):
            if place > start and used + cost > BUDGET:
                yield self._select(rows[start:place])
                start, used = place, 0
            used += cost
        yield self._select(rows[start:])

    def _select(self, rows: np.ndarray) -> tuple[GraphBatch, Tensor]:
        assert self._store is not None
        return self._store.select(rows), self._tensor(rows)

    def _tensor(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows).to(self.device)


class EncodedRows:
    """The same for an encoder that stays as it is: every row is encoded once.

    Args:
        rows: The graphs or nodes.
        network: Whose encoder is frozen.
        used: Numbers of the rows that will be asked for.
    """

    def __init__(self, rows: Rows, network: Network, used: np.ndarray) -> None:
        network.eval()
        with torch.no_grad():
            parts = [network.encode(graph, chosen) for graph, chosen in rows.chunks(used)]
        self.encodings = torch.cat(parts)
        self._place = np.zeros(int(used.max(initial=0)) + 1, dtype=np.int64)
        self._place[used] = np.arange(len(used))

    def shuffled(self, rows: np.ndarray, batch_size: int, seed: int) -> Iterator[Batch]:
        """The rows in random order, in batches, none of a single row."""
        for part in shuffled_parts(rows, batch_size, seed):
            yield self._batch(part)

    def chunks(self, rows: np.ndarray) -> Iterator[Batch]:
        """The rows in their own order, all at once."""
        yield self._batch(rows)

    def _batch(self, rows: np.ndarray) -> Batch:
        device = self.encodings.device
        places = torch.from_numpy(self._place[rows]).to(device)
        return self.encodings.index_select(0, places), torch.from_numpy(rows).to(device)


def shuffled_parts(rows: np.ndarray, batch_size: int, seed: int) -> list[np.ndarray]:
    """Rows in random order, cut into batches, none of a single row where there are others."""
    order = np.random.default_rng(seed).permutation(rows)
    starts = list(range(0, len(order), batch_size))
    if len(starts) > 1 and len(order) - starts[-1] == 1:
        starts.pop()  # one row cannot be normalised over the batch
    return np.split(order, starts[1:])


def train(
    network: Network,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    targets: Tensor,
    loss_of: Loss,
) -> Tensor:
    """One pass over the labelled rows; their mean loss, still on the device.

    Args:
        network: What is trained.
        optimizer: Of its weights.
        batches: The labelled rows.
        targets: What the outputs should be, of all rows of the data.
        loss_of: Mean over a batch.
    """
    network.train()
    if network.frozen:
        network.encoder.eval()
    total, count = torch.zeros((), device=targets.device), 0
    for graph, rows in batches:
        loss = loss_of(network(graph, rows), targets[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.detach() * len(rows)
        count += len(rows)
    return total / count


@torch.no_grad()
def outputs_of(network: Network, batches: Iterable[Batch]) -> Tensor:
    """The network's outputs for these rows, one under the other, ``[R, outputs]``."""
    network.eval()
    return torch.cat([network(graph, rows) for graph, rows in batches])
