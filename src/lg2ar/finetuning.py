"""Fine-tuning: the whole base encoder and a new classification head, trained with some labels.

This is how GraphCL evaluates with few labels, and with all labels it is the supervised control.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lg2ar.config import Level
from lg2ar.data.batches import GraphStore
from lg2ar.encoders import Encoder
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.graph import GraphBatch
from lg2ar.layers import BatchNorm, initialise
from lg2ar.records import Score
from lg2ar.sampling import private_randomness, repeatable, seed_from
from lg2ar.splits import stratified_folds

Selection = Literal["test-max", "validation", "validation-loss", "last"]

# How the epoch was chosen, in words that a score carries.
SELECTIONS: dict[Selection, str] = {
    "test-max": "epoch of the best mean test accuracy over the folds",
    "validation": "each fold's epoch of the best validation accuracy",
    "validation-loss": "each fold's epoch of the lowest validation loss",
    "last": "last epoch, no choice made",
}

# What the classifier reads, and which rows of the data it is to classify.
Batch = tuple[GraphBatch, Tensor]

# Nodes and edges that are evaluated at a time at graph level.
BUDGET = 1 << 18


@dataclass(frozen=True, eq=False)
class Split:
    """Which rows are learned from, chosen by and counted; no row is in two of them.

    Attributes:
        train: Rows whose label is seen, ascending.
        validation: Rows that an epoch may be chosen by, ascending; may be empty.
        test: Rows that count, ascending.
    """

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Curve:
    """How one fold went, a number per epoch.

    Attributes:
        train_loss: Mean cross-entropy of the labelled rows while they were trained on.
        test: Accuracy on the test rows after each epoch, in percent.
        validation: The same on the validation rows; None where there are none.
        validation_loss: Mean cross-entropy there; None where there are none.
    """

    train_loss: np.ndarray
    test: np.ndarray
    validation: np.ndarray | None = None
    validation_loss: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class FineTuned:
    """What fine-tuning gave, fold by fold.

    Attributes:
        accuracy: On the test rows at the chosen epoch, in percent, shape ``[folds]``.
        epoch: The chosen epoch, counted from 1, shape ``[folds]``.
        selection: How it was chosen.
        curves: All epochs; :func:`select` makes another choice of them without training again.
    """

    accuracy: np.ndarray
    epoch: np.ndarray
    selection: Selection
    curves: list[Curve]

    def score(self, protocol: str) -> Score:
        """Mean and standard deviation over folds, with how they came about."""
        return Score(
            mean=float(self.accuracy.mean()),
            std=float(self.accuracy.std()),
            protocol=protocol,
            runs=len(self.accuracy),
            selection=SELECTIONS[self.selection],
        )


def semi_splits(
    y: Tensor | np.ndarray,
    *,
    folds: int = 10,
    share: int = 10,
    seed: int = 12345,
    validation: bool = False,
) -> list[Split]:
    """Splits with few labels, the very ones of GraphCL's code.

    Fold i is the test part; with ``validation`` the fold before it is the validation part. What is
    left is divided once more, and one ``share``-th of it is labelled: 9% of all rows, or 8%.

    Args:
        y: Labels.
        folds: How many folds.
        share: One of how many remaining rows is labelled.
        seed: Fixes the splits.
        validation: Whether to set a validation part aside.
    """
    labels = _array(y)
    splits = []
    for split in supervised_splits(labels, folds=folds, seed=seed, validation=validation):
        labelled = stratified_folds(labels[split.train], share, seed)[0]
        splits.append(Split(split.train[labelled], split.validation, split.test))
    return splits


def supervised_splits(
    y: Tensor | np.ndarray, *, folds: int = 10, seed: int = 12345, validation: bool = False
) -> list[Split]:
    """Splits with all labels: everything but the test fold (and the validation fold) is labelled.

    Args:
        y: Labels.
        folds: How many folds.
        seed: Fixes the splits.
        validation: Whether to set the fold before the test fold aside.
    """
    labels = _array(y)
    parts = stratified_folds(labels, folds, seed)
    splits = []
    for place, test in enumerate(parts):
        held_out = parts[place - 1] if validation else np.empty(0, dtype=np.int64)
        train = np.ones(len(labels), dtype=bool)
        train[test] = train[held_out] = False
        splits.append(Split(train.nonzero()[0], held_out, test))
    return splits


def _array(y: Tensor | np.ndarray) -> np.ndarray:
    return y.cpu().numpy() if isinstance(y, Tensor) else y


def fine_tune(
    encoder: Encoder,
    graph: GraphBatch,
    y: Tensor,
    split: Split,
    *,
    epochs: int = 100,
    learning_rate: float = 1e-3,
    batch_size: int = 128,
    dropout: float = 0.0,
    hidden: int = 128,
    seed: int = 0,
    device: torch.device | str | None = None,
    level: Level = "graph",
    deterministic: bool = True,
) -> Curve:
    """Train a copy of an encoder and a new head on the labelled rows, and test each epoch.

    At graph level labelled graphs come in shuffled batches; at node level every epoch is one step
    on the whole graph.

    Args:
        encoder: The base encoder; it is left as it is.
        graph: All graphs, features included.
        y: A label per graph, or per node.
        split: Which of them are seen and which count.
        epochs: Passes over the labelled rows.
        learning_rate: Adam's.
        batch_size: Graphs in a batch.
        dropout: Of the head; the encoder keeps its own.
        hidden: Width of the head's hidden layer.
        seed: Fixes the head's weights, the order of the batches and dropout.
        device: Where to train; the encoder's own device by default.
        level: Whether graphs or nodes are classified.
        deterministic: Whether a CUDA device must repeat itself bit by bit.

    Raises:
        InputError: If labels and graphs do not fit each other, or nothing is labelled or tested.
        NonFiniteLossError: When a loss is not a number.
    """
    _check(graph, y, split, level)
    if epochs < 1:
        raise InputError(f"epochs = {epochs} trains nothing; fine-tune for at least one.")
    place = torch.device(device or next(encoder.parameters()).device)
    classes, labels = torch.unique(y, return_inverse=True)
    labels = labels.to(place)
    rows = _Rows(graph, level, place)
    with private_randomness(), repeatable(place, deterministic):
        torch.manual_seed(seed_from(seed, "fine-tuning"))
        network = _Classifier(encoder, len(classes), hidden, dropout, level).to(place)
        optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
        held_out = list(rows.chunks(np.concatenate([split.validation, split.test])))
        losses, results = [], []
        for epoch in range(1, epochs + 1):
            batches = rows.shuffled(split.train, batch_size, seed_from(seed, epoch))
            losses.append(_train(network, optimizer, batches, labels))
            results.append(_evaluate(network, held_out, labels, len(split.validation)))
    return _curve(losses, results, learning_rate, validated=len(split.validation) > 0)


def fine_tuned_accuracy(
    encoder: Encoder,
    graph: GraphBatch,
    y: Tensor,
    splits: Sequence[Split],
    *,
    selection: Selection,
    seed: int = 0,
    **settings: Any,
) -> FineTuned:
    """Fine-tune on every split and choose the epoch to report.

    Args:
        encoder: The base encoder; every fold starts from it.
        graph: All graphs, features included.
        y: A label per graph, or per node.
        splits: The folds.
        selection: How the epoch is chosen, see :func:`select`.
        seed: Fixes everything, together with the number of the fold.
        **settings: Further arguments of :func:`fine_tune`.
    """
    _check_selection(selection, all(len(split.validation) for split in splits))
    curves = [
        fine_tune(encoder, graph, y, split, seed=seed_from(seed, "fold", fold), **settings)
        for fold, split in enumerate(splits)
    ]
    return select(curves, selection)


def select(curves: Sequence[Curve], selection: Selection) -> FineTuned:
    """Choose the epoch to report; where several are equally good, the first of them.

    ``test-max`` is the one epoch at which the folds' mean test accuracy is highest, which is what
    GraphCL and its successors publish; ``validation`` each fold's own with the highest
    validation accuracy; ``validation-loss`` each fold's own with the lowest validation loss, which
    is what GraphCL's code calls ``val_max``; ``last`` the last.

    Args:
        curves: One per fold, with the same number of epochs.
        selection: One of the above.

    Raises:
        InputError: For another selection, or a choice by validation rows where there are none.
    """
    _check_selection(selection, all(curve.validation is not None for curve in curves))
    test = _table(curves, "test")
    folds, epochs = test.shape
    match selection:
        case "test-max":
            chosen = np.full(folds, test.mean(0).argmax())
        case "validation":
            # Of each fold by itself: its validation rows are test rows of the fold before.
            chosen = _table(curves, "validation").argmax(1)
        case "validation-loss":
            chosen = _table(curves, "validation_loss").argmin(1)
        case "last":
            chosen = np.full(folds, epochs - 1)
    return FineTuned(test[np.arange(folds), chosen], chosen + 1, selection, list(curves))


def _table(curves: Sequence[Curve], name: str) -> np.ndarray:
    """One of the numbers of all curves, shape ``[folds, epochs]``."""
    return np.stack([getattr(curve, name) for curve in curves])


def _check_selection(selection: str, validated: bool) -> None:
    if selection not in SELECTIONS:
        raise InputError(f"selection = {selection!r} must be one of {', '.join(SELECTIONS)}.")
    if selection.startswith("validation") and not validated:
        raise InputError(
            f"selection = {selection!r} needs validation rows; make the splits with "
            "validation=True, or choose 'last'."
        )


def _check(graph: GraphBatch, y: Tensor, split: Split, level: Level) -> None:
    rows, kind = (graph.num_nodes, "nodes") if level == "node" else (graph.num_graphs, "graphs")
    if y.shape != (rows,):
        raise InputError(
            f"y has shape {list(y.shape)} where there are {rows} {kind}; give one label for each."
        )
    for name, part in (("train", split.train), ("test", split.test)):
        if not len(part):
            raise InputError(f"the split has no {name} rows; fine-tuning needs at least one.")


class _Classifier(nn.Module):
    """A copy of an encoder, and a head on its encodings before the projection.

    The head begins by normalising: sums over nodes are large, and unequal by orders of magnitude,
    which a bare linear layer takes long to get used to. It is GraphCL's without the second
    normalisation, whose running statistics lag behind a network that fits few labels in few steps.
    """

    def __init__(
        self, encoder: Encoder, num_classes: int, hidden: int, dropout: float, level: Level
    ) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.level = level
        width = encoder.network.out_features
        self.head = nn.Sequential(
            BatchNorm(width),
            nn.Linear(width, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )
        initialise(self.head)

    def forward(self, graph: GraphBatch, rows: Tensor) -> Tensor:
        """Logits of all graphs of a batch, or of these nodes of a graph, ``[R, classes]``."""
        encoding = self.encoder.embed(graph)
        x = encoding.graphs if self.level == "graph" else encoding.nodes.index_select(0, rows)
        logits: Tensor = self.head(x)
        return logits


class _Rows:
    """Batches of graphs by their numbers, or of nodes of one large graph.

    Args:
        graph: All graphs, features included.
        level: Whether rows are graphs or nodes.
        device: Where they are to lie.
    """

    def __init__(self, graph: GraphBatch, level: Level, device: torch.device) -> None:
        self.store = GraphStore(graph, device) if level == "graph" else None
        self.graph = graph.to(device) if self.store is None else self.store.graph

    def shuffled(self, rows: np.ndarray, batch_size: int, seed: int) -> Iterator[Batch]:
        """The rows in random order, in batches, none of a single graph; nodes all at once."""
        if self.store is None:
            yield self.graph, self._tensor(rows)
            return
        order = np.random.default_rng(seed).permutation(rows)
        starts = list(range(0, len(order), batch_size))
        if len(starts) > 1 and len(order) - starts[-1] == 1:
            starts.pop()  # one row cannot be normalised over the batch
        for part in np.split(order, starts[1:]):
            yield self.store.select(part), self._tensor(part)

    def chunks(self, rows: np.ndarray) -> Iterator[Batch]:
        """The rows in their own order, in batches of bounded size; nodes all at once."""
        if self.store is None:
            yield self.graph, self._tensor(rows)
            return
        start = 0
        for chunk in GraphStore(self.store.select(rows), self.graph.device).chunks(BUDGET):
            yield chunk, self._tensor(rows[start : start + chunk.num_graphs])
            start += chunk.num_graphs

    def _tensor(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows).to(self.graph.device)


def _train(
    network: _Classifier,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Batch],
    labels: Tensor,
) -> Tensor:
    """One pass over the labelled rows; their mean loss, still on the device."""
    network.train()
    total, count = torch.zeros((), device=labels.device), 0
    for graph, rows in batches:
        loss = F.cross_entropy(network(graph, rows), labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.detach() * len(rows)
        count += len(rows)
    return total / count


@torch.no_grad()
def _evaluate(
    network: _Classifier, batches: Sequence[Batch], labels: Tensor, validation: int
) -> Tensor:
    """Accuracy and loss of the first ``validation`` rows and of the rest, shape ``[2, 2]``.

    Zero where there are no rows; still on the device.
    """
    network.eval()
    logits = torch.cat([network(graph, rows) for graph, rows in batches])
    truth = labels[torch.cat([rows for _, rows in batches])]
    right = (logits.argmax(1) == truth).double()
    loss = F.cross_entropy(logits, truth, reduction="none").double()
    found = torch.stack([100 * right, loss], dim=1)  # [R, 2]
    parts = found[:validation], found[validation:]
    return torch.stack([part.sum(0) / max(1, len(part)) for part in parts])


def _curve(
    losses: list[Tensor], results: list[Tensor], learning_rate: float, validated: bool
) -> Curve:
    loss = torch.stack(losses).double().cpu().numpy()
    result = torch.stack(results).cpu().numpy()  # [epochs, 2, 2]
    broken = np.flatnonzero(~np.isfinite(loss))
    if len(broken):
        raise NonFiniteLossError(
            f"The loss became {loss[broken[0]]} in epoch {broken[0] + 1} of fine-tuning: lower "
            f"learning_rate (now {learning_rate:g})."
        )
    return Curve(
        train_loss=loss,
        test=result[:, 1, 0],
        validation=result[:, 0, 0] if validated else None,
        validation_loss=result[:, 0, 1] if validated else None,
    )
