"""Where the nodes of small graphs are drawn: distances on paper follow those in the graph.

The positions minimise the stress of Kamada and Kawai by majorisation (Gansner, Koren and North,
2004), many graphs at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

ROUNDS = 40
TOGETHER = 64  # graphs placed at a time
TRIALS = 6  # starts at most, for a graph whose edges cross
SPARSE = 1.5  # edges per node up to which that is tried

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def place(sizes: Sequence[int], pairs: Sequence[Integers]) -> list[Floats]:
    """Find a place for every node.

    Args:
        sizes: Number of nodes of each graph.
        pairs: The joined nodes of each graph, shape ``[m, 2]``.

    Returns:
        For each graph coordinates, shape ``[n, 2]``, within a box of longest side 1 that begins at
        zero; it is at least as wide as high.
    """
    places: list[Floats] = [np.zeros((0, 2))] * len(sizes)
    order = np.argsort(sizes, kind="stable")  # graphs of about one size share their padding
    for start in range(0, len(order), TOGETHER):
        chosen = order[start : start + TOGETHER]
        distances = [_distances(sizes[k], pairs[k]) for k in chosen]
        found = _untangled(distances, [pairs[k] for k in chosen])
        for k, x in zip(chosen, found, strict=True):
            places[k] = _boxed(x)
    return places


def crossings(x: Floats, pairs: Integers) -> int:
    """How many pairs of edges cross."""
    a, b = x[pairs[:, 0]], x[pairs[:, 1]]

    def side(u: Floats, v: Floats, w: Floats) -> Floats:
        """On which side of the line from u to v w lies."""
        ahead, across = v - u, w - u
        return np.sign(ahead[..., 0] * across[..., 1] - ahead[..., 1] * across[..., 0])

    p, q, r, s = a[:, None], b[:, None], a[None], b[None]
    cross = (side(p, q, r) * side(p, q, s) < 0) & (side(r, s, p) * side(r, s, q) < 0)
    return int(cross.sum()) // 2


def _untangled(distances: Sequence[Floats], pairs: Sequence[Integers]) -> list[Floats]:
    """Places with few crossings: graphs that are nearly trees are tried from several starts."""
    found = _majorised(distances, noise=0.1, seed=0)
    sparse = [k for k, own in enumerate(pairs) if len(own) <= SPARSE * len(distances[k])]
    best = {k: crossings(found[k], pairs[k]) for k in sparse}
    for seed in range(1, TRIALS):
        again = [k for k in sparse if best[k]]
        if not again:
            break
        tried = _majorised([distances[k] for k in again], noise=0.6, seed=seed)
        for k, x in zip(again, tried, strict=True):
            number = crossings(x, pairs[k])
            if number < best[k]:
                found[k], best[k] = x, number
    return found


def _distances(size: int, pairs: Integers) -> Floats:
    """Hops between nodes, shape ``[n, n]``; parts that are not joined lie side by side."""
    ones = np.ones(len(pairs))
    joined = csr_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(size, size))
    hops: Floats = shortest_path(joined, directed=False, unweighted=True)
    apart = ~np.isfinite(hops)
    if apart.any():
        radius = np.where(apart, 0.0, hops).max(axis=1) / 2
        hops = np.where(apart, radius[:, None] + radius[None, :] + 1.5, hops)
    return hops


def _majorised(distances: Sequence[Floats], noise: float, seed: int) -> list[Floats]:
    sizes = np.array([len(each) for each in distances])
    most = int(sizes.max(initial=1))
    d = np.zeros((len(sizes), most, most))
    for k, each in enumerate(distances):
        d[k, : len(each), : len(each)] = each
    there = np.arange(most) < sizes[:, None]  # [B, n], False at padding
    both = there[:, :, None] & there[:, None, :]
    weight = np.divide(1.0, d**2, out=np.zeros_like(d), where=d > 0)
    # The Laplacian of the weights, made invertible: a shift of all nodes changes nothing, and
    # padding is a node by itself.
    laplacian = _laplacian(weight) + both / sizes[:, None, None]
    laplacian += np.eye(most) * ~there[:, :, None]
    inverse = np.linalg.inv(laplacian)
    x = _scaled(d, there, sizes, noise, seed)
    stretched = weight * d
    for _ in range(ROUNDS):
        square = (x**2).sum(axis=2)
        apart = square[:, :, None] + square[:, None, :] - 2 * x @ x.transpose(0, 2, 1)
        pull = stretched / np.sqrt(np.maximum(apart, 1e-12))
        # The Laplacian of the pulls times the places, without making it.
        x = inverse @ (pull.sum(axis=2)[:, :, None] * x - pull @ x)
    return [x[k, :size] for k, size in enumerate(sizes)]


def _laplacian(weight: Floats) -> Floats:
    return np.asarray(np.eye(weight.shape[1]) * weight.sum(axis=2)[:, :, None] - weight)


def _scaled(
    d: Floats, there: NDArray[np.bool_], sizes: Integers, noise: float, seed: int
) -> Floats:
    """Classical scaling, to begin with; noise parts nodes that it cannot tell apart."""
    centre = np.eye(d.shape[1]) * there[:, :, None]
    centre = centre - (there[:, :, None] & there[:, None, :]) / sizes[:, None, None]
    values, vectors = np.linalg.eigh(-0.5 * centre @ d**2 @ centre)
    x = vectors[:, :, -2:] * np.sqrt(np.maximum(values[:, None, -2:], 0))
    if x.shape[2] < 2:  # graphs of a single node
        x = np.zeros((len(d), d.shape[1], 2))
    drawn = np.random.default_rng(seed).normal(size=x.shape)
    return np.asarray((x + noise * drawn) * there[:, :, None])


def _boxed(x: Floats) -> Floats:
    """Turned to lie flat, the same way on every machine, and fitted into the unit box."""
    if len(x) < 2:
        return np.zeros_like(x)
    x = x - x.mean(axis=0)
    axes = np.linalg.svd(x, full_matrices=False)[2]
    x = x @ axes.T
    # Which way round is open: by the third moment, so that graphs that are alike look alike.
    x = x * np.where((x**3).sum(axis=0) < 0, -1.0, 1.0)
    x = x - x.min(axis=0)
    if x[:, 1].max() > x[:, 0].max():  # the longer way may still be the shorter side
        x = x[:, ::-1]
    return np.asarray(x / max(float(x.max()), 1e-9))
