"""What is tried: the ranges that the paper selected its settings from (A.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lg2ar.config import Level


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[int, ...]

    def suggest(self, trial: Any, name: str) -> int:
        """A value for an Optuna trial."""
        value: int = trial.suggest_categorical(name, list(self.values))
        return value

    def nearest(self, value: float) -> int:
        """The value that is nearest to this one."""
        return min(self.values, key=lambda own: abs(own - value))


@dataclass(frozen=True)
class Range:
    """A number between two; on a logarithmic scale where they are far apart."""

    low: float
    high: float
    log: bool = False

    def suggest(self, trial: Any, name: str) -> float:
        """A value for an Optuna trial."""
        value: float = trial.suggest_float(name, self.low, self.high, log=self.log)
        return value

    def nearest(self, value: float) -> float:
        """The value that is nearest to this one."""
        return min(self.high, max(self.low, value))


Space = Mapping[str, Choice | Range]

_BOTH: dict[str, Choice | Range] = {
    "hidden": Choice((128, 256, 512)),
    "layers": Choice((1, 2, 3, 4, 5, 6)),
    "learning_rate": Range(1e-4, 1e-1, log=True),
    "hops": Choice((1, 2, 3, 4, 5, 6)),
    "temperature": Range(0.7, 1.4),
    "ratio": Range(0.6, 0.9),
    "dropout": Range(0.0, 0.2),
}

# At node level training stops by itself (patience); at graph level its length is searched for.
SPACES: dict[Level, Space] = {
    "graph": {
        **_BOTH,
        "batch_size": Choice((32, 64, 128)),
        "epochs": Choice((10, 20, 40, 60, 100, 200)),
    },
    # 64 is ours: the default at node level.
    "node": {**_BOTH, "batch_size": Choice((4, 8, 12, 16, 32, 64))},
}
