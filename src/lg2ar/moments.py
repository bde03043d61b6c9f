"""Mean and variance of rows, also of such as come in parts."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class Moments:
    """Mean and variance of the columns of all rows that pass, in double precision."""

    def __init__(self) -> None:
        self._count, self._mean, self._spread = 0, torch.zeros(()), torch.zeros(())

    def __call__(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Take in the rows ``[N, d]`` that a module is given: a hook before its forward."""
        rows = inputs[0].double()
        mean = rows.mean(0)
        spread = (rows - mean).square().sum(0)
        before, here = self._count, rows.size(0)
        shift = mean - self._mean.to(mean)
        self._count = before + here
        self._spread = self._spread.to(mean) + spread + shift**2 * (before * here / self._count)
        self._mean = self._mean.to(mean) + shift * (here / self._count)

    def give_to(self, norm: nn.BatchNorm1d) -> None:
        """Make them the running statistics of a batch normalisation."""
        assert norm.running_mean is not None
        assert norm.running_var is not None
        if self._count > 1:  # one node has no variance
            norm.running_mean.copy_(self._mean)
            norm.running_var.copy_(self._spread / (self._count - 1))


def scaled(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Bring every column to mean 0 and standard deviation 1; leave out those that do not vary.

    Args:
        rows: Embeddings, ``[n, d]``.

    Returns:
        Shape ``[n, varying columns]``, or one column of zeros where nothing varies.
    """
    x = np.asarray(rows, dtype=np.float64)
    spread = x.std(axis=0)
    varies = spread > 1e-6 * np.abs(x).max(axis=0, initial=0.0)
    if not varies.any():
        return np.zeros((len(x), 1))
    found: NDArray[np.float64] = (x[:, varies] - x[:, varies].mean(axis=0)) / spread[varies]
    return found
