"""Whether what a folder holds to go on from fits what is trained, before it is believed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

# What Adam keeps of every weight.
_KEPT = {"step", "exp_avg", "exp_avg_sq"}


def check_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """See that weights are a module's, by name, shape and type.

    Raises:
        ValueError: When they are not.
    """
    expected = {key: (value.shape, value.dtype) for key, value in module.state_dict().items()}
    if expected != {key: (value.shape, value.dtype) for key, value in weights.items()}:
        raise ValueError("weights of another shape")


def check_moments(optimizer: torch.optim.Adam, moments: Mapping[int, Mapping[str, Tensor]]) -> None:
    """See that moments are an optimiser's; PyTorch would read beyond the end of shorter ones.

    Args:
        optimizer: What they are for.
        moments: By the place of the weight; one that had no gradient yet has none.

    Raises:
        ValueError: When they are not.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for place, held in moments.items():
        if not 0 <= place < len(weights) or held.keys() != _KEPT:
            raise ValueError("moments of no weight")
        weight, step = weights[place], held["step"]
        alike = [(held[name].shape, held[name].dtype) for name in ("exp_avg", "exp_avg_sq")]
        if alike != [(weight.shape, weight.dtype)] * 2:
            raise ValueError("moments of another shape")
        if step.shape != () or step.dtype != torch.float32 or not 1 <= float(step) < torch.inf:
            raise ValueError("a count of steps that is none")
