"""Training with labels until rows that are not learned from say stop."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.finetuning.network import EncodedRows, Network, Rows, outputs_of, train
from lg2ar.finetuning.targets import Target
from lg2ar.sampling import repeatable, seed_from
from lg2ar.shortage import is_shortage
from lg2ar.splits import Split
from lg2ar.taking_up import check_moments, check_weights


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

    @classmethod
    def read(cls, held: Any) -> list[TunedEpoch]:
        """All records of a fine-tuning, as JSON has them.

        Raises:
            TypeError: When they are something else.
        """
        records = [cls(**record) for record in held]
        losses = [loss for item in records for loss in (item.loss, item.validation_loss)]
        if not all(type(loss) is float and math.isfinite(loss) for loss in losses):
            raise TypeError("a loss that is no number")
        if [record.epoch for record in records] != list(range(1, len(records) + 1)):
            raise TypeError("epochs out of their order")
        return records


OnTunedEpoch = Callable[[TunedEpoch], None]

# Epochs after which a state is kept.
KEEP_EVERY = 10


@dataclass(frozen=True, eq=False)
class State:
    """Everything that a later epoch depends on, at the end of one.

    Attributes:
        tensors: Weights, the best ones so far, and Adam's moments.
        history: One record per epoch.
        where: What to call it in errors.
    """

    tensors: dict[str, Tensor]
    history: list[TunedEpoch]
    where: str = "the earlier state"


def fit(
    network: Network,
    rows: Rows,
    wanted: Tensor,
    split: Split,
    target: Target,
    settings: TuningSettings,
    on_epoch: OnTunedEpoch | None = None,
    *,
    earlier: State | None = None,
    on_state: Callable[[State], None] | None = None,
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
        earlier: Where to go on from; what comes out is then the same.
        on_state: Called with the state now and then, and once at the end, whether that was reached
            or an error or an interrupt came first.

    Returns:
        A record per epoch.

    Raises:
        NonFiniteLossError: When a loss is not a number.
    """
    fitting = _Fitting(network, rows, wanted, split, target, settings)
    if earlier is not None:
        fitting.take_up(earlier)
    good = fitting.state()
    try:
        while not fitting.done:
            record = fitting.run_epoch()
            good = fitting.state()
            if on_epoch is not None:
                on_epoch(record)
            if on_state is not None and record.epoch % KEEP_EVERY == 0:
                on_state(good)
    except BaseException as error:
        if is_shortage(error):  # what the failed step holds is needed for what follows
            traceback.clear_frames(error.__traceback__)
        if on_state is not None:
            on_state(good)
        raise
    if on_state is not None:
        on_state(good)
    network.load_state_dict(fitting.best)
    network.eval()
    return fitting.history


class _Fitting:
    """A network while it is trained; see :func:`fit`."""

    def __init__(
        self,
        network: Network,
        rows: Rows,
        wanted: Tensor,
        split: Split,
        target: Target,
        settings: TuningSettings,
    ) -> None:
        self.network, self.settings = network, settings
        self.wanted, self.split, self.target = wanted, split, target
        used = np.concatenate([split.train, split.validation])
        self.source = EncodedRows(rows, network, used) if network.frozen else rows
        self.optimizer = torch.optim.Adam(network.trained(), lr=settings.learning_rate)
        self.checked = list(self.source.chunks(split.validation))
        self.truth = wanted[torch.from_numpy(split.validation).to(wanted.device)]
        self.history: list[TunedEpoch] = []
        self.best = _copied(network)

    @property
    def done(self) -> bool:
        """Whether all epochs are over, or the validation loss has not fallen for too long."""
        epoch, settings = len(self.history), self.settings
        if not epoch:
            return False
        best = min(self.history, key=lambda record: record.validation_loss).epoch
        return epoch >= min(settings.epochs, best + settings.patience)

    def run_epoch(self) -> TunedEpoch:
        epoch, settings = len(self.history) + 1, self.settings
        torch.manual_seed(seed_from(settings.seed, "dropout", epoch))
        order = seed_from(settings.seed, epoch)
        batches = self.source.shuffled(self.split.train, settings.batch_size, order)
        loss = float(train(self.network, self.optimizer, batches, self.wanted, self.target.loss))
        outputs = outputs_of(self.network, self.checked)
        validation_loss = float(self.target.loss(outputs, self.truth))
        if not math.isfinite(loss):
            raise NonFiniteLossError(
                f"The loss became {loss} in epoch {epoch} of fine-tuning: lower learning_rate "
                f"(now {settings.learning_rate:g})."
            )
        record = TunedEpoch(epoch=epoch, loss=loss, validation_loss=_finite(validation_loss))
        if all(record.validation_loss < other.validation_loss for other in self.history):
            self.best = _copied(self.network)
        self.history.append(record)
        return record

    def state(self) -> State:
        tensors = {f"network.{name}": value for name, value in _copied(self.network).items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        for place, moments in self.optimizer.state_dict()["state"].items():
            for name, value in moments.items():
                tensors[f"optimizer.{place}.{name}"] = value.detach().clone()
        return State(tensors, list(self.history))

    def take_up(self, state: State) -> None:
        try:
            self.restore(state)
        except (KeyError, ValueError, RuntimeError):
            raise InputError(
                f"{state.where}: what it holds to go on from does not fit the settings; begin "
                "again (--replace)."
            ) from None

    def restore(self, state: State) -> None:
        parts: dict[str, dict[str, Tensor]] = {"network": {}, "best": {}, "optimizer": {}}
        for key, value in state.tensors.items():
            part, _, name = key.partition(".")
            parts[part][name] = value.clone()
        check_weights(self.network, parts["network"])
        check_weights(self.network, parts["best"])
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in parts["optimizer"].items():
            place, _, name = key.partition(".")
            moments.setdefault(int(place), {})[name] = value
        check_moments(self.optimizer, moments)
        self.network.load_state_dict(parts["network"])
        self.best = {name: value.to(self.wanted.device) for name, value in parts["best"].items()}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.history = list(state.history)


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
