"""The Jensen-Shannon bound of many runs, and the scores of the MLP discriminator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lg2ar.fast.dense import block_of, outer
from lg2ar.fast.kernels import scoring

# Scores that are kept at a time: 256 MiB in float32. A batch of more is taken block by block, and
# its scores are computed again for the gradient, so that memory grows with rows and not with pairs.
BLOCK = 1 << 26
ROWS = 256  # a block is a whole multiple of these


@dataclass(frozen=True, eq=False)
class _Counting:
    """What every row counts, and where its own graph is."""

    home: Tensor
    weight: Tensor
    joint: Tensor
    product: Tensor

    def bound(self, scores: Tensor, first: int, views: int) -> Tensor:
        """The block's share of the bound ``[S]``; the scores become their own gradients."""
        both, rows, graphs = scores.shape
        blocks = -(-rows // 16)
        part = scores.new_empty(both // views, views * blocks)
        scoring.jensen_shannon[(blocks, both)](
            scores,
            self.home,
            self.weight,
            self.joint,
            self.product,
            part,
            first,
            rows,
            self.weight.size(-1),
            graphs,
            blocks,
            V=views,
            BR=16,
            BB=block_of(graphs),
        )
        return part.sum(1)


class _JensenShannon(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, graphs: Tensor, counting: _Counting, block: int) -> Tensor:
        views = rows.size(1)
        flat, others = rows.flatten(0, 1), graphs.flatten(0, 1)
        ctx.starts = range(0, rows.size(2), block)
        value, scores = rows.new_zeros(rows.size(0)), None
        for start in ctx.starts:
            scores = _scores(flat, others, start, block)
            value = value + counting.bound(scores, start, views)
        kept = (scores,) if len(ctx.starts) == 1 else ()
        ctx.save_for_backward(flat, others, *kept)
        ctx.counting, ctx.block, ctx.views = counting, block, views
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        flat, others, *kept = ctx.saved_tensors
        scale = g.repeat_interleave(ctx.views).view(-1, 1, 1)
        scaled = others * scale
        if kept:
            d_rows, d_others = torch.bmm(kept[0], scaled), outer(kept[0], flat)
        else:
            d_rows, d_others = torch.empty_like(flat), torch.zeros_like(others)
            for start in ctx.starts:
                own = slice(start, start + ctx.block)
                slopes = _scores(flat, others, start, ctx.block)
                ctx.counting.bound(slopes, start, ctx.views)
                d_rows[:, own] = torch.bmm(slopes, scaled)
                d_others += outer(slopes, flat[:, own])
        runs = len(g)
        d_graphs = (d_others * scale).view(runs, ctx.views, *others.shape[1:])
        return d_rows.view(runs, ctx.views, *flat.shape[1:]), d_graphs, None, None


def _scores(rows: Tensor, graphs: Tensor, start: int, block: int) -> Tensor:
    return torch.bmm(rows[:, start : start + block], graphs.transpose(1, 2))


def jensen_shannon(
    rows: Tensor, graphs: Tensor, home: Tensor, weight: Tensor, positive_share: float
) -> Tensor:
    """The Jensen-Shannon bound of every run, views added up, ``[S]``.

    Args:
        rows: What is told apart, ``[S, V, R, h]``.
        graphs: What it is told apart by, ``[S, V, B, h]``.
        home: The graph of each row, ``[S, R]``.
        weight: What each row counts, ``[S, V, R]``.
        positive_share: How much of the whole the positive pairs count.
    """
    total = weight.sum(-1)
    number = max(1, graphs.size(2) - 1)
    counting = _Counting(
        home=home,
        weight=weight.contiguous(),
        joint=(2 * positive_share / total).contiguous(),
        product=(2 * (1 - positive_share) / (total * number)).contiguous(),
    )
    fitting = BLOCK // (rows.size(0) * rows.size(1) * graphs.size(2))
    block = max(ROWS, fitting // ROWS * ROWS)
    value: Tensor = _JensenShannon.apply(  # type: ignore[no-untyped-call]
        rows, graphs, counting, block
    )
    return value


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, last: Tensor, last_bias: Tensor) -> Tensor:
        runs, views, rows, width = left.shape
        graphs = right.size(2)
        left, right = left.contiguous(), right.contiguous()
        scores = left.new_empty(runs, views, rows, graphs)
        scoring.pair_scores[(-(-rows // 16), runs * views, -(-graphs // 16))](
            left,
            right,
            last,
            last_bias,
            scores,
            rows,
            graphs,
            width,
            last.stride(0),
            V=views,
            BR=16,
            BB=16,
            BD=16,
        )
        ctx.save_for_backward(left, right, last, last_bias)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        left, right, last, last_bias = ctx.saved_tensors
        runs, views, rows, width = left.shape
        graphs, g = right.size(2), g.contiguous()
        d_left, d_right = torch.empty_like(left), torch.empty_like(right)
        blocks = -(-rows // 16)
        part = left.new_empty(runs, views * blocks, width)
        columns = -(-width // 16)
        for first, second, out, number, others, strides, weights in (
            (left, right, d_left, rows, graphs, (graphs, 1), True),
            (right, left, d_right, graphs, rows, (1, graphs), False),
        ):
            scoring.pair_scores_backward[(-(-number // 16), runs * views, columns)](
                first,
                second,
                last,
                g,
                out,
                part,
                number,
                others,
                width,
                *strides,
                last.stride(0),
                V=views,
                WEIGHTS=weights,
                BR=16,
                BB=16,
                BD=16,
            )
        d_last = part.sum(1).view_as(last)
        return d_left, d_right, d_last, g.sum((1, 2, 3)).view_as(last_bias)


def pair_scores(left: Tensor, right: Tensor, last: Tensor, last_bias: Tensor) -> Tensor:
    """``w . relu(left_r + right_b) + c`` of every row with every graph, ``[S, V, R, B]``.

    Args:
        left: The rows' part of the first layer, ``[S, V, R, h]``.
        right: The graphs' part, bias included, ``[S, V, B, h]``.
        last: The second layer's weight, ``[S, 1, h]``.
        last_bias: Its bias, ``[S, 1]``.
    """
    scores: Tensor = _PairScores.apply(  # type: ignore[no-untyped-call]
        left, right, last, last_bias
    )
    return scores
