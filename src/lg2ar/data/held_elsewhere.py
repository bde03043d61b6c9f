"""Graphs and raw columns that lie on a disk, to be read when somebody asks for their values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from lg2ar.data.columns import Column
from lg2ar.data.dataset import Dataset
from lg2ar.data.disk_layout import About, Layout, RawColumn
from lg2ar.graph import GraphBatch

if TYPE_CHECKING:
    from lg2ar.data.features import FeatureRecipe
    from lg2ar.data.mapped_layout import Manifest


def described_by(about: About | Manifest, **parts: Any) -> Dataset:
    """A data set on a disk.

    Args:
        about: What the conversion said of it.
        **parts: The rest of the :class:`~lg2ar.data.dataset.Dataset`.
    """
    dataset = Dataset(
        name=about.name,
        classes=about.classes,
        notes=about.notes,
        reading=about.reading,
        **parts,
    )
    # Known from the conversion: to find it out again, everything would have to be read.
    object.__setattr__(dataset, "_fingerprint", about.fingerprint)
    return dataset


class ColumnElsewhere(Column):
    """A raw column that is read each time its values are asked for, and not kept.

    Args:
        raw: What is known of it.
        total: How many values it has.
        read: Reads all of them.
    """

    def __init__(self, raw: RawColumn, total: int, read: Callable[[], Column]) -> None:
        known = {"name": raw.name, "kind": raw.kind, "_total": total, "_read": read}
        for name, value in known.items():
            object.__setattr__(self, name, value)

    _total: int
    _read: Callable[[], Column]

    def __len__(self) -> int:
        return self._total

    @property
    def values(self) -> np.ndarray:
        """All values; see :class:`~lg2ar.data.columns.Column`."""
        return self._read().values


class HeldElsewhere(GraphBatch):
    """A batch whose counts are known, and whose tensors are those of :attr:`whole`.

    Attributes:
        recipe: What makes features of it, when they are read; None leaves them as they are.
    """

    recipe: FeatureRecipe | None

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Widths, and what is known of raw columns."""

    @property
    @abstractmethod
    def whole(self) -> GraphBatch:
        """All of it, read into memory."""

    @property
    def num_features(self) -> int:
        """Width of the node features, ``d_x``."""
        return self.layout.num_features if self.recipe is None else self.recipe.width

    @property
    def num_edge_features(self) -> int:
        """Width of the edge attributes, ``d_e``; zero where there are none."""
        return self.layout.num_edge_features if self.recipe is None else self.recipe.edge_width

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
