"""What is written down about a run: one record per epoch, one score per evaluation."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lg2ar.version import __version__


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch of training.

    Attributes:
        epoch: Its number, from 1.
        steps: How many batches it had.
        base_steps: In how many of them the base encoder was stepped; the coin's other side was
            the augmentation encoder.
        loss: Mean over its steps.
        draws: How often each pair of augmentations was drawn, ``draws[i][j]``, by place in
            ``heads``.
        probabilities: The policy's distribution over the augmentations, mean over the steps.
        mean_edge_weight: Mean weight of the edges of all views (docs/paper.md, D7).
        seconds: Wall time.
        peak_memory: Bytes during the epoch: allocated on the CUDA device, or held by the process.
    """

    epoch: int
    steps: int
    base_steps: int
    loss: float
    draws: list[list[int]]
    probabilities: list[float]
    mean_edge_weight: float
    seconds: float
    peak_memory: int

    @classmethod
    def from_dict(cls, held: Mapping[str, Any], heads: int) -> EpochRecord:
        """The record that :meth:`to_dict` wrote.

        Args:
            held: As JSON has it.
            heads: How many augmentations there are.

        Raises:
            TypeError: When it is something else.
        """
        record = cls(**held)
        whole = (record.epoch, record.steps, record.base_steps, record.peak_memory)
        rows: list[Any] = [record.probabilities, *record.draws]
        shape = [len(row) for row in rows] == [heads] * (heads + 1)
        numbers = [record.loss, record.mean_edge_weight, record.seconds]
        numbers += [number for row in rows for number in row]
        if not shape or not all(type(number) is int for number in whole):
            raise TypeError("an epoch of no known kind")
        most = sys.float_info.max  # whole numbers of JSON may be beyond it
        if not all(isinstance(n, int | float) and abs(n) <= most for n in numbers):
            raise TypeError("an epoch of no known kind")
        return record

    def most_drawn(self) -> tuple[int, int]:
        """The pair of augmentations drawn most often, by place in ``heads``."""
        pairs = [(i, j) for i in range(len(self.draws)) for j in range(len(self.draws))]
        return max(pairs, key=lambda pair: self.draws[pair[0]][pair[1]])

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON has it."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Score:
    """A result, which cannot be stated without how it came about.

    Attributes:
        mean: Accuracy in percent.
        std: Standard deviation over ``runs`` in percent.
        protocol: How it was evaluated, by name.
        runs: Number of values behind the mean.
        selection: How the epoch was chosen.
    """

    mean: float
    std: float
    protocol: str
    runs: int
    selection: str

    def __post_init__(self) -> None:
        if not self.protocol or not self.selection or self.runs < 1:
            raise ValueError(
                "a score names its protocol, how its epoch was selected and at least one run, got "
                f"protocol={self.protocol!r}, selection={self.selection!r}, runs={self.runs}"
            )

    def to_dict(self) -> dict[str, Any]:
        """The score as JSON has it."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A finished run with its scores: one JSON line of a records file.

    Attributes:
        config: All settings, the seed among them.
        data: What was trained on, with its fingerprint.
        versions: What it was made with.
        device: The processor it ran on.
        seconds: Wall time of training.
        peak_memory: Bytes, the largest of all epochs.
        epochs: How many epochs were trained.
        loss: Of the first and the last epoch.
        draws: How often each pair of augmentations was drawn over the whole run.
        scores: By name, the untrained encoder's beside the trained one's.
    """

    config: dict[str, Any]
    data: dict[str, Any]
    versions: dict[str, str]
    device: str
    seconds: float
    peak_memory: int
    epochs: int
    loss: tuple[float, float]
    draws: list[list[int]]
    scores: dict[str, Score]

    def to_json(self) -> str:
        """The record as one line."""
        return json.dumps(asdict(self), allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class Task:
    """Which cell of a study a run belongs to.

    Attributes:
        table: Of the paper: ``graph``, ``node``, ``semi``, ``ablation`` or ``cost``.
        dataset: By name.
        level: ``graph`` or ``node``.
        method: ``lg2ar`` or a control.
        variant: Which LG2AR it is, such as ``gru`` or ``bound=nce``; None for controls.
        preset: Which named settings it started from, and what was changed in them by hand.
        seed: Of everything that is drawn, folds included.
    """

    table: str
    dataset: str
    level: str
    method: str
    variant: str | None
    preset: str
    seed: int

    def __str__(self) -> str:
        return f"{self.table} {self.dataset} {self.variant or self.method} seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What an encoder was worth after one epoch.

    Attributes:
        protocol: How it was read, by name.
        epoch: Of pre-training; 0 is the untrained encoder.
        selection: What was selected within this evaluation; None where nothing was.
        accuracy: Percent in each fold or split.
    """

    protocol: str
    epoch: int
    selection: str | None
    accuracy: list[float]


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """A finished run of a study: one JSON line.

    Attributes:
        task: Which cell it belongs to.
        config: All settings, the seed among them.
        data: What was trained on, with its fingerprint.
        versions: What it was made with.
        device: The processor it ran on.
        cost: ``seconds`` of training, ``seconds_per_epoch`` (median, the first one left out where
            there are more), ``peak_memory`` in bytes, ``evaluation_seconds``. Of runs that were
            trained ``together``, seconds are a run's share, memory is that of all.
        epochs: How many epochs were trained.
        heads: The augmentations, in the order of ``draws`` and ``probabilities``.
        losses: Of each epoch.
        draws: How often each pair of augmentations was drawn over the whole run.
        probabilities: The policy's distribution in the last epoch.
        evaluations: Under each protocol, after each evaluated epoch.
    """

    task: Task
    config: dict[str, Any]
    data: dict[str, Any]
    versions: dict[str, str]
    device: str
    cost: dict[str, float]
    epochs: int
    heads: list[str]
    losses: list[float]
    draws: list[list[int]]
    probabilities: list[float]
    evaluations: list[Evaluation]

    def to_json(self) -> str:
        """The record as one line."""
        return json.dumps(asdict(self), allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class FailedRecord:
    """A run of a study that failed: one JSON line, which tables leave out.

    Attributes:
        task: Which cell it belongs to.
        config: All settings, the seed among them.
        versions: What it was tried with.
        device: The processor it was tried on.
        failed: Why, in one sentence.
    """

    task: Task
    config: dict[str, Any]
    versions: dict[str, str]
    device: str
    failed: str

    def to_json(self) -> str:
        """The record as one line."""
        return json.dumps(asdict(self), allow_nan=False)


@cache
def code_print() -> str:
    """The first digits of a SHA-256 of this package's files: which code made a record."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.toml")]):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def versions() -> dict[str, str]:
    """What a run was made with."""
    names = ("torch", "torch-geometric", "numpy", "scikit-learn", "safetensors")
    found = {"python": platform.python_version(), "lg2ar": __version__, "code": code_print()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
