"""Who is joined to whom in one large graph, wherever it lies: what sub-graphs are cut out of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lg2ar.graph import GraphBatch

# Of a tensor in memory, or of an array that is mapped from a disk.
Numbers = Tensor | np.ndarray


@dataclass(frozen=True, eq=False)
class Lists:
    """The neighbours of every node, one list after the other, each ascending.

    Attributes:
        start: Where the list of each node begins, and the end of the last, ``[N + 1]``.
        to: The nodes in the lists.
    """

    start: Numbers
    to: Numbers

    def spans(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Where the lists of some nodes begin, and how long they are."""
        first = take(self.start, nodes)
        return first, take(self.start, nodes + 1) - first


class Links(ABC):
    """One large graph as lists of neighbours.

    Attributes:
        num_nodes: ``N``.
        out: The nodes that edges lead to, by the node they come from; an entry is called a slot.
        walk: The neighbours in either direction, each once.
    """

    num_nodes: int
    out: Lists
    walk: Lists

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where lists are looked up."""

    @abstractmethod
    def features(self, nodes: Tensor) -> Tensor:
        """The features of some nodes, ``[nodes, d_x]``."""

    @abstractmethod
    def weights(self, slots: Tensor) -> Tensor | None:
        """The weights of some edges; None where edges have none."""

    @abstractmethod
    def attributes(self, slots: Tensor) -> Tensor | None:
        """The attributes of some edges; None where edges have none."""


class LinksInMemory(Links):
    """The links of a graph whose tensors are all there; they are sorted once, here.

    Args:
        graph: One large graph, features included.
    """

    def __init__(self, graph: GraphBatch) -> None:
        self.graph = graph
        self.num_nodes = n = graph.num_nodes
        source, target = graph.edge_index
        self._order = (source * n + target).argsort(stable=True)  # by source, then target
        self.out = Lists(_starts(source[self._order], n), target[self._order])
        walkable = torch.unique(torch.cat([source * n + target, target * n + source]))
        self.walk = Lists(_starts(walkable // n, n), walkable % n)

    @property
    def device(self) -> torch.device:
        """See :class:`Links`."""
        return self.graph.device

    def features(self, nodes: Tensor) -> Tensor:
        """See :class:`Links`."""
        return self.graph.x.index_select(0, nodes)

    def weights(self, slots: Tensor) -> Tensor | None:
        """See :class:`Links`."""
        held = self.graph.edge_weight
        return None if held is None else held.index_select(0, self._order[slots])

    def attributes(self, slots: Tensor) -> Tensor | None:
        """See :class:`Links`."""
        held = self.graph.edge_attr
        return None if held is None else held.index_select(0, self._order[slots])


def take(values: Numbers, index: Tensor) -> Tensor:
    """The values at some places, as whole numbers of 64 bits."""
    if isinstance(values, Tensor):
        return values[index]
    return torch.from_numpy(values[index.numpy()]).long()


def spread(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """``first[i] .. first[i] + count[i]`` one after the other, and the ``i`` of each."""
    owner = torch.arange(len(count), device=count.device).repeat_interleave(count)
    before = count.cumsum(0) - count
    return owner, torch.arange(len(owner), device=count.device) + (first - before)[owner]


def search(values: Numbers, low: Tensor, high: Tensor, wanted: Tensor, *, after: bool) -> Tensor:
    """Where each wanted number stands in an ascending range of its own, ``low`` to ``high``.

    Args:
        values: What the ranges are of.
        low: Where each range begins.
        high: Where it ends.
        wanted: A number for each range.
        after: Whether to go behind equal ones instead of before them.
    """
    while bool((open_ := low < high).any()):
        middle = (low + high) >> 1
        held = take(values, middle.where(open_, 0))
        lower = ((held <= wanted) if after else (held < wanted)) & open_
        low, high = (middle + 1).where(lower, low), middle.where(open_ & ~lower, high)
    return low


def _starts(ascending: Tensor, num_rows: int) -> Tensor:
    """Where each row's entries begin in a list sorted by row, and the end, ``[num_rows + 1]``."""
    return torch.searchsorted(ascending, torch.arange(num_rows + 1, device=ascending.device))
