"""Training with labels until rows that are not learned from say stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.finetuning.network import EncodedRows, Network, Rows, outputs_of, train
from lg2ar.finetuning.splits import Split
from lg2ar.finetuning.targets import Target
from lg2ar.sampling import repeatable, seed_from


@dataclass(frozen=True, kw_only=True)
class TuningSettings:
    """How a network is fine-tuned.

    Attributes:
        epochs: Passes over the labelled rows, at most; at node level, steps.
        patience: Epochs without a lower validation loss before stopping.
        learning_rate: Adam's.
        batch_size: Graphs in a batch.
        hidden: Width of the head's hidden layer.
        dropout: Of the head; the encoder keeps its own.
        freeze: Whether the encoder stays as it is and the head alone is trained.
        seed: Fixes the split, the head's weights, the order of the batches and dropout.
    """

    epochs: int = 200
    patience: int = 30
    learning_rate: float = 1e-3
    batch_size: int = 64
    hidden: int = 128
    dropout: float = 0.0
    freeze: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "hidden"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InputError(f"{name} = {value!r} must be a whole number of at least 1.")
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise InputError(f"seed = {self.seed!r} must be a whole number from 0.")
        for name, low, high in (("learning_rate", 0.0, 10.0), ("dropout", -1e-9, 0.99)):
            value = getattr(self, name)
            if type(value) not in (int, float) or not low < value <= high:
                raise InputError(
                    f"{name} = {value!r} must be a number {'above' if low == 0 else 'from'} 0 to "
                    f"{high:g}."
                )
        if not isinstance(self.freeze, bool):
            raise InputError(f"freeze = {self.freeze!r} must be true or false.")

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON has them."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class TunedEpoch:
    """One pass over the labelled rows.

    Attributes:
        epoch: Its number, from 1.
        loss: Mean over the rows that were learned from, while they were.
        validation_loss: Mean over those that stop training, afterwards.
    """

    epoch: int
    loss: float
    validation_loss: float


OnTunedEpoch = Callable[[TunedEpoch], None]


def fit(
    network: Network,
    rows: Rows,
    wanted: Tensor,
    split: Split,
    target: Target,
    settings: TuningSettings,
    on_epoch: OnTunedEpoch | None = None,
) -> list[TunedEpoch]:
    """Train a network, and leave it as it was when the validation loss was lowest.

    Args:
        network: What is trained, on the device of the rows.
        rows: All graphs or nodes.
        wanted: The place of each class, or numbers, of all rows.
        split: Which rows are learned from and which stop training.
        target: What the network is to tell.
        settings: How.
        on_epoch: Called with each epoch's record.

    Returns:
        A record per epoch.

    Raises:
        NonFiniteLossError: When a loss is not a number.
    """
    used = np.concatenate([split.train, split.validation])
    source = EncodedRows(rows, network, used) if network.frozen else rows
    optimizer = torch.optim.Adam(network.trained(), lr=settings.learning_rate)
    checked = list(source.chunks(split.validation))
    truth = wanted[torch.from_numpy(split.validation).to(wanted.device)]
    history: list[TunedEpoch] = []
    best, weights = math.inf, _copied(network)
    stop_after = settings.patience
    for epoch in range(1, settings.epochs + 1):
        torch.manual_seed(seed_from(settings.seed, "dropout", epoch))
        batches = source.shuffled(split.train, settings.batch_size, seed_from(settings.seed, epoch))
        loss = float(train(network, optimizer, batches, wanted, target.loss))
        validation_loss = float(target.loss(outputs_of(network, checked), truth))
        if not math.isfinite(loss):
            raise NonFiniteLossError(
                f"The loss became {loss} in epoch {epoch} of fine-tuning: lower learning_rate "
                f"(now {settings.learning_rate:g})."
            )
        record = TunedEpoch(epoch=epoch, loss=loss, validation_loss=_finite(validation_loss))
        history.append(record)
        if on_epoch is not None:
            on_epoch(record)
        if record.validation_loss < best:
            best, weights = record.validation_loss, _copied(network)
            stop_after = epoch + settings.patience
        if epoch >= stop_after:
            break
    network.load_state_dict(weights)
    network.eval()
    return history


def predict_rows(
    network: Network, rows: Rows, which: np.ndarray, target: Target, deterministic: bool = True
) -> np.ndarray:
    """What a network tells about these rows, see :meth:`Target.read`."""
    with repeatable(rows.device, deterministic):
        return target.read(outputs_of(network, rows.chunks(which)))


def _copied(network: Network) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def _finite(loss: float) -> float:
    """A validation loss beyond all numbers is a very bad one; JSON has no word for it."""
    return loss if math.isfinite(loss) else 1e300
