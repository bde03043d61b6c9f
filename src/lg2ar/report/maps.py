"""Embeddings laid out in the plane, and which of them are near each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]

LEAST = 8  # rows below which neighbourhoods say nothing
COMPONENTS = 50  # that the neighbour map starts from


def standardised(rows: NDArray[Any]) -> Rows:
    """Columns of mean 0 and standard deviation 1; those that do not vary are left out.

    Args:
        rows: One embedding per row, shape ``[n, d]``.

    Raises:
        ValueError: For values that are not finite.
    """
    rows = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("embeddings must be finite, got NaN or infinity")
    if len(rows) < 2:
        return np.zeros((len(rows), 0))
    rows = rows[:, np.ptp(rows, axis=0) > 1e-6 * np.abs(rows).max(axis=0)]
    return np.asarray((rows - rows.mean(axis=0)) / rows.std(axis=0))


def components(rows: NDArray[Any], most: int) -> Rows:
    """The first principal components of standardised embeddings, shape ``[n, at most most]``."""
    standard = standardised(rows)
    width = min(most, *standard.shape)
    if not width:
        return np.zeros((len(standard), 0))
    if standard.shape[1] > len(standard):  # the same axes, from the smaller side
        left, size, _ = np.linalg.svd(standard, full_matrices=False)
        found = left[:, :width] * size[:width]
    else:
        axes = np.linalg.eigh(standard.T @ standard)[1][:, ::-1]  # the largest first
        found = standard @ axes[:, :width]
    # The sign of an axis is open: its largest entry is made positive, on every machine.
    largest = np.abs(found).argmax(axis=0)
    return np.asarray(found * np.where(found[largest, np.arange(width)] < 0, -1.0, 1.0))


def project(rows: NDArray[Any]) -> Rows:
    """Lay embeddings out in the plane: standardise, then the first two principal components.

    Args:
        rows: One embedding per row, shape ``[n, d]``. Columns that do not vary, up to rounding,
            are left out.

    Returns:
        Coordinates, shape ``[n, 2]``; zeros where there is nothing left to tell rows apart.
    """
    plane = np.zeros((len(rows), 2))
    found = components(rows, 2)
    plane[:, : found.shape[1]] = found
    return plane


def neighbour_map(rows: NDArray[Any], seed: int = 0) -> Rows | None:
    """Lay embeddings out so that near ones stay near: t-SNE of their principal components.

    These are brought to length one, so that near means what it means in :func:`nearest`.

    Args:
        rows: One embedding per row; time grows a little faster than their number, two thousand
            take some seconds.
        seed: Fixes what is drawn.

    Returns:
        Coordinates, shape ``[n, 2]``; None where there are too few different rows.
    """
    found = components(rows, COMPONENTS)
    if len(found) < LEAST or found.shape[1] < 2 or len(np.unique(found, axis=0)) < LEAST:
        return None
    from sklearn.manifold import TSNE

    start = found[:, :2] / found[:, 0].std() * 1e-4
    found = _unit(found)
    model = TSNE(
        perplexity=min(30.0, (len(found) - 1) / 3),
        init=start,
        max_iter=500,
        random_state=seed,
    )
    return np.asarray(model.fit_transform(found), dtype=np.float64)


def nearest(rows: NDArray[Any], number: int) -> tuple[NDArray[np.int64], Rows]:
    """The nearest other rows of each, by the cosine distance of standardised embeddings.

    These are the neighbours that ``lg2ar neighbours`` lists, of all rows at once.

    Returns:
        Their places and distances, nearest first, both of shape ``[n, at most number]``.
    """
    standard = standardised(rows)
    n = len(standard)
    number = min(number, max(0, n - 1))
    places = np.zeros((n, number), np.int64)
    distances = np.zeros((n, number))
    unit = _unit(standard)
    for start in range(0, n if number else 0, 512):  # so that memory stays linear
        part = slice(start, min(n, start + 512))
        apart = 1 - unit[part] @ unit.T
        apart[np.arange(part.stop - start), np.arange(start, part.stop)] = np.inf
        places[part] = np.argsort(apart, axis=1, kind="stable")[:, :number]
        distances[part] = np.take_along_axis(apart, places[part], 1).clip(min=0)
    return places, distances


def _unit(rows: Rows) -> Rows:
    """Rows of length one; those of length zero stay."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, length, out=np.zeros_like(rows), where=length > 0))


def framed(points: Rows, aspect: float = 1.0) -> Rows:
    """Points turned to lie flat and fitted into the middle of a frame, both axes scaled alike.

    Args:
        points: Shape ``[n, 2]``.
        aspect: Height of the frame by its width.

    Returns:
        Coordinates from 0 to 1 of the frame's width and height.
    """
    if not len(points):
        return points
    centred = points - points.mean(axis=0)
    turned = centred @ np.linalg.eigh(centred.T @ centred)[1][:, ::-1]
    turned = turned * np.where((turned**3).sum(axis=0) < 0, -1.0, 1.0)  # the way round is open
    low, high = turned.min(axis=0), turned.max(axis=0)
    frame = np.array([1.0, aspect])
    scale = max(float(((high - low) / frame).max()), 1e-12)
    return np.asarray(0.5 + (turned - (low + high) / 2) / scale / frame)
