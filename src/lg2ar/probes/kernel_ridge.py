"""Kernel ridge regression on a small share of the labels, of several kernels together.

Choosing the width of a kernel among some hundred labelled rows gains next to nothing and can lose
a point (docs/findings.md). So none is chosen: kernels of several widths answer together. How
strongly each is held back is chosen by what it says of every labelled row when that one is left
out, which costs no further fit. Only the shares of the classes, from which all begin, are those of
all labelled rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lg2ar.moments import scaled
from lg2ar.probes.folds import checked

Rows = NDArray[np.intp]

# Factors of one over the number of features, the kernel's usual gamma on standardised rows: from
# nearly a straight line to the nearest rows alone.
GAMMAS = (0.03, 0.1, 0.3, 1.0, 3.0)
RIDGES = tuple(10.0 ** (power / 2) for power in range(-8, 7))


def kernel_ridge_accuracy(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    parts: Sequence[tuple[Rows, Rows]],
    *,
    gammas: Sequence[float] = GAMMAS,
    device: torch.device | str = "cpu",
) -> NDArray[np.float64]:
    """Accuracy of RBF kernels that see the labelled rows alone, in percent of each split.

    Columns are scaled by all rows, whose labels are not looked at for it.

    Args:
        x: Embeddings, ``[n, d]``.
        y: Labels, ``[n]``.
        parts: Numbers of the labelled rows and of the tested ones, for each split.
        gammas: Over the number of features that vary: one kernel each.
        device: Where to compute.
    """
    given, labels = checked(x, y)
    for train, test in parts:
        if not len(train) or not len(test):
            raise ValueError(f"{len(train)} labelled and {len(test)} tested rows tell nothing")
    rows = torch.from_numpy(scaled(given)).to(device)
    kinds = torch.from_numpy(labels).to(device)
    targets = torch.nn.functional.one_hot(kinds).to(rows)  # [n, classes]
    right = torch.zeros(len(parts), dtype=torch.float64)
    for place, (train, test) in enumerate(parts):
        scores, _ = kernel_ridge_scores(rows[train], targets[train], rows[test], gammas)
        right[place] = (scores.mean(0).argmax(1) == kinds[test]).double().mean()
    found: NDArray[np.float64] = 100 * right.numpy()
    return found


def kernel_ridge_scores(
    seen: Tensor, targets: Tensor, asked: Tensor, gammas: Sequence[float] = GAMMAS
) -> tuple[Tensor, Tensor]:
    """How much speaks for each class by each kernel, ``[gammas, asked, classes]``.

    The scores of a row sum to one. They may be negative, and a class without a labelled row has 0.
    Beside them how far each kernel misses labelled rows that are left out, ``[gammas]``.

    Args:
        seen: Labelled rows, scaled, ``[m, d]``.
        targets: 1 at the class of each, ``[m, classes]``.
        asked: Rows to be told about, ``[asked, d]``.
        gammas: Over ``d``: one kernel each.
    """
    share = targets.mean(0)
    among, across = distances(seen, seen).fill_diagonal_(0), distances(asked, seen)
    scores, errors = [], []
    for gamma in gammas:
        weights, error = _weights(torch.exp(-gamma * among), targets - share)
        scores.append(torch.exp(-gamma * across) @ weights)
        errors.append(error)
    return torch.stack(scores) + share, torch.stack(errors)


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared difference of all rows of ``a`` and ``b``."""
    squares = a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * a @ b.T
    return squares.clamp_(min=0) / a.shape[1]


def _weights(kernel: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    r"""Weights ``[m, classes]`` of the ridge whose error on rows left out is the smallest, and it.

    With :math:`H = (K + \rho I)^{-1}` the weights are :math:`H t`, and a row that is left out is
    missed by :math:`(H t)_i / H_{ii}`. One decomposition of :math:`K` serves for every ridge.
    """
    length, direction = torch.linalg.eigh(kernel)  # [m], [m, m]
    ridges = torch.tensor(RIDGES, dtype=kernel.dtype, device=kernel.device)
    inverse = 1 / (length.clamp(min=0) + ridges[:, None])  # [ridges, m]
    weights = direction @ (inverse[..., None] * (direction.T @ targets))  # [ridges, m, classes]
    missed = weights / (inverse @ direction.square().T)[..., None]
    error, best = missed.square().sum(2).mean(1).min(0)
    return weights[best], error
