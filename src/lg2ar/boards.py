"""What training tells, as TensorBoard shows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lg2ar.errors import InputError

if TYPE_CHECKING:
    from lg2ar.config import Config
    from lg2ar.records import EpochRecord


class Board:
    """Writes each epoch's record as scalars to a folder that TensorBoard watches.

    Args:
        folder: Where to; None writes nothing.

    Raises:
        InputError: Where TensorBoard is not installed, or the folder cannot be written.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self._writer = None if folder is None else _open(folder)
        self._heads: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def on_start(self, config: Config, done: int) -> None:
        """Learn what the augmentations are called."""
        self._heads = config.heads

    def on_epoch(self, record: EpochRecord) -> None:
        """Write one epoch."""
        if self._writer is not None:
            write_record(self._writer, record, self._heads)


def write_record(writer: Any, record: EpochRecord, heads: tuple[str, ...] = ()) -> None:
    """Write one epoch: loss, speed, memory, edge weights, and what the policy did."""
    number = len(record.probabilities)
    names = heads if len(heads) == number else tuple(str(place) for place in range(number))
    steps = max(1, record.steps)
    values = {
        "loss": record.loss,
        "speed/steps per second": record.steps / max(record.seconds, 1e-9),
        "speed/seconds per epoch": record.seconds,
        "memory/peak in MiB": record.peak_memory / 2**20,
        "views/mean edge weight": record.mean_edge_weight,
        "encoders/share of base steps": record.base_steps / steps,
    }
    for place, name in enumerate(names):
        drawn = sum(record.draws[place]) + sum(row[place] for row in record.draws)
        values[f"policy/probability of {name}"] = record.probabilities[place]
        values[f"draws/share of {name}"] = drawn / (2 * steps)
    for name, value in values.items():
        writer.add_scalar(name, value, record.epoch)


def _open(folder: str | Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(
            "TensorBoard is not installed; install it with pip install 'lg2ar[board]'."
        ) from None
    try:
        return SummaryWriter(str(folder))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error}).") from None
