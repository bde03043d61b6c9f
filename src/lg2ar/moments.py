"""Mean and variance of rows that come in parts."""

from __future__ import annotations

import torch
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
