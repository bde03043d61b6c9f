"""Gradients of all processes, added up."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from lg2ar.distributed.team import current


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Give every process the sum of all gradients, in one exchange.

    All processes ran the same two heads, so the weights without a gradient are the same ones
    everywhere, and stay without. Should a part have a gradient in some processes only (one that
    looks at the data before it uses a weight), it counts as zero in the others.
    """
    team, weights = current(), list(parameters)
    if team is None or not weights:
        return
    given = [p.grad is not None for p in weights]
    flat = torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in weights]
        + [weights[0].new_tensor(given)]
    )
    summed = team.add_up(flat, "gradients")
    *parts, has = torch.split(summed, [*(p.numel() for p in weights), len(weights)])
    for p, part, some in zip(weights, parts, has.tolist(), strict=True):
        if some:
            p.grad = part.view_as(p)
