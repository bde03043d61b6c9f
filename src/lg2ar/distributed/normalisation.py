"""Batch normalisation over the rows of all processes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lg2ar.distributed.rows import one_of_each, rows_by_rank
from lg2ar.distributed.team import Team


def normalise(x: Tensor, norm: nn.BatchNorm1d, team: Team) -> Tensor:
    r"""What batch normalisation in training makes of the rows of a batch that is shared out.

    Every process tells the mean :math:`m_r` of its :math:`n_r` rows and the sum :math:`s_r` of
    their squared distances from it; with :math:`m = \sum_r n_r m_r / n` the sum for all of them is
    :math:`\sum_r s_r + n_r (m_r - m)^2`, in which no large numbers cancel.

    PyTorch's own ``SyncBatchNorm`` is for GPUs only.

    Args:
        x: Rows of this process, shape ``[N, d]``; there may be none.
        norm: Weights and running statistics, which all processes have alike.
        team: The processes.
    """
    numbers = rows_by_rank(len(x), team)
    n = sum(numbers)
    if n < 2:  # one row has no variance: see lg2ar.layers.BatchNorm
        return F.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        )
    own_mean = x.sum(0) / max(1, len(x))
    own_squares = (x - own_mean).square().sum(0)
    table = one_of_each(torch.cat([own_mean, own_squares]), "normalisation", team)  # [P, 2 d]
    means, squares = table.chunk(2, dim=1)
    n_r = x.new_tensor(numbers).unsqueeze(1)
    mean = (means * n_r).sum(0) / n
    variance = (squares + n_r * (means - mean).square()).sum(0) / n
    _remember(norm, mean.detach(), variance.detach() * (n / (n - 1)))
    scale: Tensor = norm.weight * (variance + norm.eps).rsqrt()
    return (x - mean) * scale + norm.bias


def _remember(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics, as PyTorch does."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.num_batches_tracked.add_(1)
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance, norm.momentum)
