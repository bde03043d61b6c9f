"""Embeddings laid out in the plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Embeddings laid out in the plane.

    Attributes:
        points: Coordinates, shape ``[n, 2]``.
        labels: What to colour the points by, ``n`` of them, or None.
    """

    points: NDArray[Any]
    labels: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.points.shape[1] != 2:
            raise ValueError(f"points must have shape [n, 2], got {list(self.points.shape)}")
        if not np.isfinite(self.points).all():
            raise ValueError("points must be finite, got NaN or infinity")
        if self.labels is not None and len(self.labels) != len(self.points):
            raise ValueError(f"{len(self.points)} points have {len(self.labels)} labels")


def project(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Lay embeddings out in the plane: standardise, then the first two principal components.

    Args:
        rows: One embedding per row, shape ``[n, d]``. Columns that do not vary, up to rounding,
            are left out.

    Returns:
        Coordinates, shape ``[n, 2]``; zeros where there is nothing left to tell rows apart.
    """
    rows = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("embeddings must be finite, got NaN or infinity")
    plane = np.zeros((len(rows), 2))
    if len(rows) < 2:
        return plane
    rows = rows[:, np.ptp(rows, axis=0) > 1e-6 * np.abs(rows).max(axis=0)]
    width = min(2, *rows.shape)
    if width:
        standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
        axes = np.linalg.svd(standard, full_matrices=False)[2][:width]
        # The sign of an axis is open: its largest entry is made positive, on every machine.
        axes *= np.sign(axes[np.arange(width), np.abs(axes).argmax(axis=1)])[:, None]
        plane[:, :width] = standard @ axes.T
    return plane
