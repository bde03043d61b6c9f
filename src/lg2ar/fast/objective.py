"""The Jensen-Shannon bound of many runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lg2ar.fast.dense import block_of, outer
from lg2ar.fast.kernels import scoring


class _JensenShannon(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        graphs: Tensor,
        home: Tensor,
        weight: Tensor,
        positive_share: float,
    ) -> Tensor:
        runs, views, number, width = rows.shape
        graph_count = graphs.size(2)
        flat, others = rows.reshape(-1, number, width), graphs.reshape(-1, graph_count, width)
        scores = torch.bmm(flat, others.transpose(1, 2))
        total = weight.sum(-1)
        joint = (2 * positive_share / total).contiguous()
        product = (2 * (1 - positive_share) / (total * max(1, graph_count - 1))).contiguous()
        blocks = -(-number // 16)
        part = scores.new_empty(runs, views * blocks)
        scoring.jensen_shannon[(runs * views, blocks)](
            scores,
            home,
            weight,
            joint,
            product,
            part,
            number,
            graph_count,
            blocks,
            V=views,
            BR=16,
            BB=block_of(graph_count),
        )
        ctx.save_for_backward(flat, others, scores)
        ctx.shapes = rows.shape, graphs.shape
        return part.sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        rows, graphs, slopes = ctx.saved_tensors
        row_shape, graph_shape = ctx.shapes
        scale = g.repeat_interleave(row_shape[1]).view(-1, 1, 1)
        d_rows = torch.bmm(slopes, graphs * scale).view(row_shape)
        d_graphs = (outer(slopes, rows) * scale).view(graph_shape)
        return d_rows, d_graphs, None, None, None


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
    value: Tensor = _JensenShannon.apply(  # type: ignore[no-untyped-call]
        rows, graphs, home, weight.contiguous(), positive_share
    )
    return value
