"""The RBF kernel for linear machines: rows whose inner products are the kernel's values.

A kernel machine is a linear machine of such rows, so the batched, certified linear SVMs serve for
it too, on CPU or GPU. The rows of all graphs are made at once, without labels, as the encoder
itself was trained on all of them; which of them a machine learns from is up to its masks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lg2ar.probes.nested import nested_accuracy

# Factors of one over the number of features, the kernel's usual gamma on standardised rows.
GAMMAS = (0.1, 0.3, 1.0)

# Directions of the kernel with less than this share of the largest one's length are rounding.
_NOTHING = 1e-10

# Of more rows than these the longest directions alone are kept, so many, or as many more as this
# share of the kernel's trace needs: the cost of a machine grows with their square.
MANY, KEPT, SHARE = 2000, 1000, 0.999


def rbf_rows(x: Tensor, gamma: float = 1.0) -> Tensor:
    """Rows ``[n, r]``, ``r <= n``: their inner products are ``exp(-gamma |a - b|^2 / d)``.

    Distances are those of the standardised rows of ``x``. Of more than 2,000 rows the 1,000 longest
    directions are kept, or as many as have 99.9 % of the trace; the products are then the nearest
    to the kernel's that so many can have.

    >>> rows = rbf_rows(torch.tensor([[0.0], [1.0], [5.0]]))
    >>> rows.square().sum(1).allclose(torch.ones(3, dtype=torch.float64))
    True

    Args:
        x: Embeddings, ``[n, d]``.
        gamma: Over the number of features that differ at all.
    """
    x = x.double() - x.double().mean(0)
    spread = x.square().mean(0).sqrt()
    x = x[:, spread > 0] / spread[spread > 0]
    if x.shape[1] == 0:
        return x.new_ones(len(x), 1)
    square = x.square().sum(1)
    distance = (square[:, None] + square - 2 * x @ x.T).clamp(min=0).fill_diagonal_(0)
    length, direction = torch.linalg.eigh(torch.exp(-gamma / x.shape[1] * distance))
    kept = length > _NOTHING * length[-1]
    if len(x) > MANY:
        within = length.clamp(min=0).flip(0).cumsum(0)  # they come by length, the longest last
        needed = int((within < SHARE * within[-1]).sum()) + 1
        kept[: -max(KEPT, needed)] = False
    rows: Tensor = direction[:, kept] * length[kept].sqrt()
    return rows


def chosen_probe_accuracy(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    folds: Sequence[ArrayLike],
    *,
    gammas: Sequence[float] = GAMMAS,
    inner: int = 5,
    device: torch.device | str = "cpu",
) -> tuple[NDArray[np.float64], list[str]]:
    """Test accuracy of the SVM, linear or of a kernel, that is best inside each training part.

    Kind, ``gamma`` and ``C`` are chosen together for each outer fold by its inner folds; of equally
    good ones the linear SVM is taken, then the widest kernel.

    Args:
        x: Embeddings, ``[n, d]``.
        y: Labels, ``[n]``.
        folds: Row numbers of each outer fold's test part.
        gammas: Of the kernels.
        inner: Number of inner folds, stratified.
        device: Where to compute.

    Returns:
        Percent of each outer fold, and the name of what was chosen there.
    """
    rows = torch.as_tensor(x).to(device)
    found = {"linear": nested_accuracy(rows, y, folds, inner=inner, scale=True, device=device)}
    for gamma in sorted(gammas):
        found[f"rbf {gamma:g}"] = nested_accuracy(
            rbf_rows(rows, gamma), y, folds, inner=inner, device=device
        )
    best = np.stack([probe.inner.max(1) for probe in found.values()]).argmax(0)  # [folds]
    accuracy = np.stack([probe.accuracy for probe in found.values()])
    names = list(found)
    return accuracy[best, np.arange(len(best))], [names[place] for place in best]
