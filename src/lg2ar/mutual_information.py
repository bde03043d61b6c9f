r"""Bounds on mutual information, as functions of a matrix of scores (Section 3.5).

Row r of the scores holds one positive pair, drawn from the joint distribution :math:`p`, where
``positive`` is True, and negative pairs, drawn from the product of marginals
:math:`p \times \tilde p`, where it is False. ``weight`` tells how much each row counts: Eq. 1
averages over a graph's nodes first and over graphs then, so there a node weighs one over the size
of its graph; None weighs all rows alike.

All bounds are to be maximised; the training loss is their negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def _mean(values: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean; zero where nothing weighs anything."""
    total = weight.sum()
    return (values * weight).sum() / total.where(total > 0, 1)


def _pair_weights(positive: Tensor, weight: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor]:
    rows = like.new_ones(1) if weight is None else weight.to(like.dtype)
    joint = rows.unsqueeze(-1) * positive
    product = rows.unsqueeze(-1) * ~positive
    return joint, product


def jensen_shannon(
    scores: Tensor,
    positive: Tensor,
    weight: Tensor | None = None,
    *,
    positive_share: float = 0.5,
) -> Tensor:
    r"""Jensen-Shannon estimate of the mutual information.

    .. math::
        I = \mathbb E_{p}[-\log(1 + e^{-\mathcal D})]
          - \mathbb E_{p \times \tilde p}[\log(1 + e^{\mathcal D})]

    Args:
        scores: ``D(h_v, h_G)`` of every row with every candidate, shape ``[R, C]``.
        positive: True where the pair comes from the joint distribution, shape ``[R, C]``.
        weight: How much each row counts, shape ``[R]``.
        positive_share: How much of the whole the first expectation counts; one half weighs both
            alike, ``1 / B`` is Algorithm 1's mean over all pairs of graphs.

    Paper:
        Section 3.5. The second term is printed with an extra minus sign; we follow the cited
        estimator (docs/paper.md, D1).

    Examples:
        >>> scores = torch.tensor([[4.0, -4.0], [-4.0, 4.0]])
        >>> own = torch.eye(2, dtype=torch.bool)
        >>> round(jensen_shannon(scores, own).item(), 4)  # zero is the most there is
        -0.0363
        >>> round(jensen_shannon(scores, ~own).item(), 4)
        -8.0363
    """
    rows = scores.new_ones(scores.size(0)) if weight is None else weight.to(scores.dtype)
    count = positive.sum(1)
    agree = 2 * positive_share / _total(rows, count)
    disagree = 2 * (1 - positive_share) / _total(rows, scores.size(1) - count)
    value: Tensor = _JensenShannon.apply(  # type: ignore[no-untyped-call]
        scores, positive, rows, agree, disagree
    )
    return value


def _total(rows: Tensor, count: Tensor) -> Tensor:
    """The weight of all pairs; one where nothing weighs anything."""
    total = (rows * count).sum()
    return total.where(total > 0, 1)


class _JensenShannon(torch.autograd.Function):
    """Its own gradient is at hand where its value is computed: nothing else has to be kept."""

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        positive: Tensor,
        rows: Tensor,
        agree: Tensor,
        disagree: Tensor,
    ) -> Tensor:
        signed = scores.where(positive, -scores)
        # logsigmoid, not softplus: softplus turns linear above 20, off by up to 2e-9.
        logs = F.logsigmoid(signed)
        # Sums before products, so that a row that weighs nothing may hold anything finite.
        of_positive = logs.where(positive, 0).sum(1)
        of_negative = logs.where(~positive, 0).sum(1)
        value = agree * (rows @ of_positive) + disagree * (rows @ of_negative)
        slopes = signed.neg_().sigmoid_().mul_(rows.unsqueeze(1))
        slopes *= torch.where(positive, agree, -disagree)
        ctx.save_for_backward(slopes, rows, agree, disagree, of_positive, of_negative)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        slopes, rows, agree, disagree, of_positive, of_negative = ctx.saved_tensors
        for_rows = g * (agree * of_positive + disagree * of_negative)
        return slopes * g, None, for_rows, g * (rows @ of_positive), g * (rows @ of_negative)


def info_nce(scores: Tensor, positive: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Noise-contrastive estimate (van den Oord et al., 2018).

    .. math::
        I = \mathbb E_p\Big[\mathcal D_r^+ - \log \frac1C \sum_c e^{\mathcal D_{rc}}\Big]

    Args:
        scores: Scores of every row with every candidate, shape ``[R, C]``.
        positive: True at each row's one positive pair, shape ``[R, C]``.
        weight: How much each row counts, shape ``[R]``.

    Examples:
        >>> scores = torch.tensor([[4.0, -4.0], [-4.0, 4.0]])
        >>> own = torch.eye(2, dtype=torch.bool)
        >>> round(info_nce(scores, own).item(), 4)  # at most log C
        0.6928
    """
    joint, _ = _pair_weights(positive, weight, scores)
    return _mean(F.log_softmax(scores, dim=1), joint) + math.log(scores.size(1))


def nt_xent(
    scores: Tensor, positive: Tensor, weight: Tensor | None = None, *, temperature: float = 0.5
) -> Tensor:
    r"""Normalised temperature-scaled cross-entropy (Chen et al., 2020).

    .. math::
        I = \mathbb E_p\Big[\mathcal D_r^+ / \tau - \log \sum_c e^{\mathcal D_{rc} / \tau}\Big]

    Normalised when the discriminator is: choose ``cosine`` for the loss of the cited paper.

    Args:
        scores: Scores of every row with every candidate, shape ``[R, C]``.
        positive: True at each row's one positive pair, shape ``[R, C]``.
        weight: How much each row counts, shape ``[R]``.
        temperature: :math:`\tau`.

    Examples:
        >>> scores = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> own = torch.eye(2, dtype=torch.bool)
        >>> round(nt_xent(scores, own, temperature=0.5).item(), 4)
        -0.0181
    """
    joint, _ = _pair_weights(positive, weight, scores)
    return _mean(F.log_softmax(scores / temperature, dim=1), joint)


def donsker_varadhan(scores: Tensor, positive: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Donsker-Varadhan representation of the KL divergence.

    .. math::
        I = \mathbb E_p[\mathcal D] - \log \mathbb E_{p \times \tilde p}[e^{\mathcal D}]

    Without any negative pair the second term is taken as zero.

    Args:
        scores: Scores of every row with every candidate, shape ``[R, C]``.
        positive: True where the pair comes from the joint distribution, shape ``[R, C]``.
        weight: How much each row counts, shape ``[R]``.

    Examples:
        >>> scores = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> own = torch.eye(2, dtype=torch.bool)
        >>> donsker_varadhan(scores, own).item()
        1.0
    """
    joint, product = _pair_weights(positive, weight, scores)
    product = product.expand_as(scores)
    total = product.sum()
    shares = (product / total.where(total > 0, 1)).where(~positive, 1)  # 1: no log of zero below
    logs = (scores + shares.log()).masked_fill(positive, float("-inf"))
    # Where there is no negative, logsumexp would be -inf and its gradient NaN.
    logs = logs.where(total > 0, 0)
    return _mean(scores, joint) - logs.flatten().logsumexp(0).where(total > 0, 0)


Bound = Callable[..., Tensor]

BOUNDS: dict[str, Bound] = {
    "jsd": jensen_shannon,
    "nce": info_nce,
    "nt-xent": nt_xent,
    "dv": donsker_varadhan,
}
