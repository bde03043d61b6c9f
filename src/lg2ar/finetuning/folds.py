"""Fine-tuning on folds: how GraphCL evaluates with few labels; with all labels, the control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lg2ar.config import Level
from lg2ar.encoders import Encoder
from lg2ar.errors import InputError
from lg2ar.finetuning.network import Batch, Network, Rows, outputs_of, train
from lg2ar.finetuning.selection import (
    Curve,
    FoldAccuracy,
    Selection,
    check_selection,
    curve_of,
    select,
)
from lg2ar.graph import GraphBatch
from lg2ar.sampling import private_randomness, repeatable, seed_from
from lg2ar.splits import Split


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
    rows = Rows(graph, level, place)
    with private_randomness(), repeatable(place, deterministic):
        torch.manual_seed(seed_from(seed, "fine-tuning"))
        network = Network(encoder, len(classes), hidden, dropout, level).to(place)
        optimizer = torch.optim.Adam(network.trained(), lr=learning_rate)
        held_out = list(rows.chunks(np.concatenate([split.validation, split.test])))
        losses, results = [], []
        for epoch in range(1, epochs + 1):
            batches = rows.shuffled(split.train, batch_size, seed_from(seed, epoch))
            losses.append(train(network, optimizer, batches, labels, F.cross_entropy))
            results.append(_evaluate(network, held_out, labels, len(split.validation)))
    return curve_of(
        torch.stack(losses),
        torch.stack(results),
        learning_rate,
        validated=len(split.validation) > 0,
    )


def fine_tuned_accuracy(
    encoder: Encoder,
    graph: GraphBatch,
    y: Tensor,
    splits: Sequence[Split],
    *,
    selection: Selection,
    seed: int = 0,
    **settings: Any,
) -> FoldAccuracy:
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
    check_selection(selection, all(len(split.validation) for split in splits))
    curves = [
        fine_tune(encoder, graph, y, split, seed=seed_from(seed, "fold", fold), **settings)
        for fold, split in enumerate(splits)
    ]
    return select(curves, selection)


def _check(graph: GraphBatch, y: Tensor, split: Split, level: Level) -> None:
    rows, kind = (graph.num_nodes, "nodes") if level == "node" else (graph.num_graphs, "graphs")
    if y.shape != (rows,):
        raise InputError(
            f"y has shape {list(y.shape)} where there are {rows} {kind}; give one label for each."
        )
    for name, part in (("train", split.train), ("test", split.test)):
        if not len(part):
            raise InputError(f"the split has no {name} rows; fine-tuning needs at least one.")


def _evaluate(
    network: Network, batches: Sequence[Batch], labels: Tensor, validation: int
) -> Tensor:
    """Accuracy and loss of the first ``validation`` rows and of the rest, shape ``[2, 2]``.

    Zero where there are no rows; still on the device.
    """
    logits = outputs_of(network, batches)
    truth = labels[torch.cat([rows for _, rows in batches])]
    right = (logits.argmax(1) == truth).double()
    loss = F.cross_entropy(logits, truth, reduction="none").double()
    found = torch.stack([100 * right, loss], dim=1)  # [R, 2]
    parts = found[:validation], found[validation:]
    return torch.stack([part.sum(0) / max(1, len(part)) for part in parts])
