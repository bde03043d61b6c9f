"""The processes that share out a batch, and which of them this one is."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed


@dataclass
class Traffic:
    """What this process exchanged with the others, by kind.

    Attributes:
        calls: How many exchanges.
        bytes: How much it gave into them; what a network carries of it depends on how the library
            passes it on (docs/scaling.md).
        seconds: How long it waited for them; on CUDA only until they were on their way.
    """

    calls: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def since(self, earlier: Traffic) -> Traffic:
        """What came after an earlier :meth:`copy` of it."""
        return Traffic(
            Counter({kind: self.calls[kind] - earlier.calls[kind] for kind in self.calls}),
            Counter({kind: self.bytes[kind] - earlier.bytes[kind] for kind in self.bytes}),
            {kind: self.seconds[kind] - earlier.seconds.get(kind, 0.0) for kind in self.seconds},
        )

    def copy(self) -> Traffic:
        """What it is now, whatever comes later."""
        return Traffic(Counter(self.calls), Counter(self.bytes), dict(self.seconds))


class Team:
    """The processes of the default process group, as one of them sees them.

    Args:
        device: Where this process computes. Counts and draws are exchanged by way of the CPU all
            the same, so that no one waits for a GPU to know them.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.rank = distributed.get_rank()
        self.size = distributed.get_world_size()
        self.traffic = Traffic()
        self.graphs: list[int] = []  # of the batch that is being worked on, by rank
        self.nodes: list[int] | None = None  # of the view that is being encoded, by rank
        self._counts_group: Any = None  # the default one
        if distributed.get_backend() != "gloo":
            self._counts_group = distributed.new_group(backend="gloo")

    def leave(self) -> None:
        """Give up the connections that nobody else knows of; nothing can be exchanged any more."""
        self._counts_group = None

    def add_up(self, values: Tensor, kind: str) -> Tensor:
        """The sum of a tensor over all processes; what was given is left alone."""
        summed = values.detach().clone(memory_format=torch.contiguous_format)
        with self._counted(kind, summed):
            distributed.all_reduce(summed)
        return summed

    def line_up(self, values: Tensor, kind: str) -> list[Tensor]:
        """A tensor of every process, all of the same shape, in the order of ranks."""
        values = values.detach().contiguous()
        found = [torch.empty_like(values) for _ in range(self.size)]
        with self._counted(kind, values):
            distributed.all_gather(found, values)
        return found

    def counts(self, *numbers: int) -> list[list[int]]:
        """Whole numbers of every process, in the order of ranks."""
        own = torch.tensor(numbers, dtype=torch.long)
        found = [torch.empty_like(own) for _ in range(self.size)]
        with self._counted("counts", own):
            distributed.all_gather(found, own, group=self._counts_group)
        return [row.tolist() for row in found]

    def of_the_first(self, numbers: Sequence[int]) -> list[int]:
        """The whole numbers that rank 0 has."""
        shared = torch.tensor(numbers, dtype=torch.long)
        with self._counted("draws", shared):
            distributed.broadcast(shared, 0, group=self._counts_group)
        return [int(number) for number in shared]

    @contextmanager
    def _counted(self, kind: str, given: Tensor) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.traffic.calls[kind] += 1
        self.traffic.bytes[kind] += given.numel() * given.element_size()
        self.traffic.seconds[kind] += time.perf_counter() - start


_team: Team | None = None


def current() -> Team | None:
    """The team that the batch is shared out among at this moment; None where it is not."""
    return _team


@contextmanager
def together(team: Team | None) -> Iterator[None]:
    """Share out batches among a team from here on; a team of one is none."""
    global _team
    before, _team = _team, team if team is not None and team.size > 1 else None
    try:
        yield
    finally:
        _team = before


def alone() -> bool:
    """Whether the batch is this process's own."""
    return _team is None


def size() -> int:
    """How many processes have a share of the batch."""
    return 1 if _team is None else _team.size


def same(numbers: Sequence[int]) -> list[int]:
    """What rank 0 drew, for all: they must take the same path whatever their own noise is."""
    return list(numbers) if _team is None else _team.of_the_first(numbers)


def own_share(places: np.ndarray) -> np.ndarray:
    """This process's part of a batch; parts differ by one at most, and may be empty."""
    return places if _team is None else np.array_split(places, _team.size)[_team.rank]


def announce(graphs: int) -> None:
    """Let all know how many graphs of the next batch each has; what is made of it relies on it."""
    if _team is not None:
        _team.graphs = [count for (count,) in _team.counts(graphs)]


Draw = Callable[[int], Tensor]
