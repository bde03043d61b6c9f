"""Graphs that lie on a disk and are read into memory when somebody asks for a tensor of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor

from lg2ar.data.disk_layout import Layout
from lg2ar.graph import GraphBatch


class HeldElsewhere(GraphBatch):
    """A batch whose counts are known, and whose tensors are those of :attr:`whole`."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Widths, and what is known of raw columns."""

    @property
    @abstractmethod
    def whole(self) -> GraphBatch:
        """All of it, read into memory."""

    def replace(self, **changes: Any) -> GraphBatch:
        """A copy in memory with some fields changed."""
        return self.whole.replace(**changes)

    @property
    def x(self) -> Tensor:
        """See :class:`~lg2ar.graph.GraphBatch`; as all that follows, it is in memory then."""
        return self.whole.x

    @property
    def edge_index(self) -> Tensor:
        """See :class:`~lg2ar.graph.GraphBatch`."""
        return self.whole.edge_index

    @property
    def batch(self) -> Tensor:
        """See :class:`~lg2ar.graph.GraphBatch`."""
        return self.whole.batch

    @property
    def edge_weight(self) -> Tensor | None:
        """See :class:`~lg2ar.graph.GraphBatch`."""
        return self.whole.edge_weight if self.layout.weighted else None

    @property
    def edge_attr(self) -> Tensor | None:
        """See :class:`~lg2ar.graph.GraphBatch`."""
        return self.whole.edge_attr if self.num_edge_features else None

    @property
    def origin(self) -> None:
        """It was not cut from anything."""
        return
