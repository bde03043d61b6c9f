"""What the heads score and draw, and the weights that gives the views, differentiable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lg2ar.fast.dense import block_of, chunks_of
from lg2ar.fast.kernels import cutting, scoring, segments
from lg2ar.fast.network import segment_rows
from lg2ar.fast.structure import NewPairs, Structure


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, structure: Structure) -> Tensor:
        runs, heads, nodes = logits.shape
        p = torch.zeros_like(logits)
        segments.segment_softmax[(runs * heads * structure.B,)](
            logits, p, structure.ptr, nodes, structure.B, K=heads, BR=128
        )
        ctx.save_for_backward(p)
        ctx.structure = structure
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, None]:
        (p,) = ctx.saved_tensors
        runs, heads, nodes = p.shape
        d_logits = torch.zeros_like(p)
        segments.segment_softmax_backward[(runs * heads * ctx.structure.B,)](
            p, g.contiguous(), d_logits, ctx.structure.ptr, nodes, ctx.structure.B, K=heads, BR=128
        )
        return d_logits, None


def node_softmax(logits: Tensor, structure: Structure) -> Tensor:
    """Softmax within each graph of logits ``[S, K, N]``; zero at padding."""
    p: Tensor = _Softmax.apply(logits, structure)  # type: ignore[no-untyped-call]
    return p


class _NodeScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, graphs: Tensor, last: Tensor, bias: Tensor, structure: Structure
    ) -> Tensor:
        runs, nodes, _ = z.shape
        heads, width = last.shape[1:]
        last = last.contiguous()
        logits = z.new_empty(runs, heads, nodes)
        scoring.node_scores[(-(-nodes // 32), runs * heads)](
            z,
            graphs,
            structure.home,
            last,
            bias.contiguous(),
            logits,
            nodes,
            structure.B,
            width,
            z.stride(1),
            graphs.stride(1),
            K=heads,
            BR=32,
            BD=block_of(width),
        )
        ctx.save_for_backward(z, graphs, last)
        ctx.structure = structure
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, graphs, last = ctx.saved_tensors
        structure = ctx.structure
        runs, nodes, _ = z.shape
        heads, width = last.shape[1:]
        g = g.contiguous()
        block = block_of(width, 64)
        chunks = chunks_of(nodes, runs * heads * -(-width // block))
        dz = z.new_empty(runs, nodes, heads * width)
        part = z.new_empty(runs * heads, chunks, width)
        scoring.node_scores_backward[(runs * heads, chunks, -(-width // block))](
            z,
            graphs,
            structure.home,
            last,
            g,
            dz,
            part,
            nodes,
            structure.B,
            width,
            chunks,
            z.stride(1),
            graphs.stride(1),
            K=heads,
            BR=32,
            BD=block,
        )
        d_graphs = segment_rows(dz.unsqueeze(1), structure).squeeze(1)
        # Padding has no part in the logits' gradient.
        real = structure.home < structure.B
        d_bias = (g * real.unsqueeze(1)).sum(2)
        return dz, d_graphs, part.sum(1).view(runs, heads, width), d_bias, None


def node_scores(
    z: Tensor, graphs: Tensor, last: Tensor, bias: Tensor, structure: Structure
) -> Tensor:
    """``w . relu(z_v + z_g) + c`` of ``K`` heads, ``[S, K, N]``.

    Args:
        z: The nodes' part of every head's first layer, ``[S, N, K h]``.
        graphs: The graphs' part, bias included, ``[S, B, K h]``.
        last: The second layers' weights, ``[S, K, h]``.
        bias: Their biases, ``[S, K]``.
        structure: The batch.
    """
    logits: Tensor = _NodeScores.apply(  # type: ignore[no-untyped-call]
        z, graphs, last, bias, structure
    )
    return logits


class _PairLogits(torch.autograd.Function):
    """Edge perturbation's MLP on the joined pairs and on every view's new ones."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        weight: Tensor,
        bias: Tensor,
        last: Tensor,
        last_bias: Tensor,
        structure: Structure,
        new: NewPairs,
        wanted: Tensor,
    ) -> tuple[Tensor, Tensor]:
        runs, views, pairs = new.u.shape
        extra = weight[..., -1]  # the column of "this pair is joined"
        any_view = wanted.amax(1).contiguous()
        logits = z.new_zeros(runs, pairs)
        new_logits = z.new_zeros(runs, views, pairs)
        for out, ends, flags, exists in (
            (logits, (structure.u, structure.v), any_view, True),
            (new_logits, (new.u, new.v), wanted, False),
        ):
            per_run = 1 if exists else views
            cutting.pair_logits[(-(-pairs // 32), runs * per_run)](
                z,
                extra,
                bias,
                last,
                last_bias,
                flags,
                new.valid,
                *ends,
                out,
                structure.N,
                pairs,
                z.size(-1),
                z.stride(1),
                extra.stride(1),
                weight.stride(0),
                V=per_run,
                EXISTS=exists,
                BP=32,
                BD=block_of(z.size(-1), 64),
            )
        ctx.save_for_backward(z, weight, bias, last, last_bias)
        ctx.structure, ctx.new, ctx.wanted, ctx.any_view = structure, new, wanted, any_view
        return logits, new_logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, new_g: Tensor) -> tuple[Tensor | None, ...]:
        z, weight, bias, last, last_bias = ctx.saved_tensors
        structure, new = ctx.structure, ctx.new
        runs, views, pairs = new.u.shape
        extra, width = weight[..., -1], z.size(-1)
        g, new_g = g.contiguous(), new_g.contiguous()
        strides = (z.stride(1), extra.stride(1), weight.stride(0))
        block = block_of(width, 64)
        sums = []
        for grad, ends, flags, exists in (
            (g, (structure.u, structure.v), ctx.any_view, True),
            (new_g, (new.u, new.v), ctx.wanted, False),
        ):
            per_run = 1 if exists else views
            chunks = chunks_of(pairs, runs * per_run * -(-width // block))
            parts = [z.new_empty(runs * per_run, chunks, width) for _ in range(2)]
            cutting.pair_logits_to_weights[(runs * per_run, chunks, -(-width // block))](
                z,
                extra,
                bias,
                last,
                flags,
                *ends,
                grad,
                *parts,
                structure.N,
                pairs,
                width,
                chunks,
                *strides,
                V=per_run,
                EXISTS=exists,
                BP=32,
                BD=block,
            )
            sums.append([part.view(runs, -1, width).sum(1) for part in parts])
        (hidden, output), (new_hidden, new_output) = sums
        d_weight = torch.zeros_like(weight)
        d_weight[..., -1] = hidden
        dz = torch.empty_like(z, memory_format=torch.contiguous_format)
        block = block_of(width)
        cutting.pair_logits_to_nodes[(runs * structure.N, -(-width // block))](
            z,
            extra,
            bias,
            last,
            ctx.any_view,
            g,
            structure.row,
            structure.col,
            structure.pair,
            new_g,
            new.row,
            new.col,
            new.pair,
            dz,
            structure.N,
            structure.col.size(1),
            pairs,
            width,
            z.stride(1),
            *strides[1:],
            V=views,
            BE=16,
            BD=block,
        )
        d_last_bias = g.sum(1) + new_g.sum((1, 2))
        return (
            dz,
            d_weight,
            hidden + new_hidden,
            (output + new_output).view_as(last),
            d_last_bias.view_as(last_bias),
            None,
            None,
            None,
        )


def pair_logits(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    last: Tensor,
    last_bias: Tensor,
    structure: Structure,
    new: NewPairs,
    wanted: Tensor,
) -> tuple[Tensor, Tensor]:
    """Logits of the joined pairs ``[S, P]`` and of every view's new ones ``[S, V, P]``.

    Args:
        z: The nodes' part of the first layer, ``[S, N, h]``.
        weight: The first layer's weight ``[S, h, h + 1]``, of whose last column is made use here.
        bias: The first layer's bias.
        last: The second layer's weight, ``[S, 1, h]``.
        last_bias: Its bias, ``[S, 1]``.
        structure: The batch.
        new: The new pairs.
        wanted: Which views are made by edge perturbation, ``[S, V]``.
    """
    logits, new_logits = _PairLogits.apply(  # type: ignore[no-untyped-call]
        z, weight, bias, last, last_bias, structure, new, wanted
    )
    return logits, new_logits


@dataclass(frozen=True)
class Weighting:
    """How probabilities become weights.

    Attributes:
        relative: Whether node probabilities are taken relative to a graph's size.
        one: Whether the weights' values are one.
    """

    relative: bool
    one: bool


class _PairWeights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        p: Tensor,
        logits: Tensor,
        new_logits: Tensor,
        structure: Structure,
        new: NewPairs | None,
        kind: Tensor,
        keys: Tensor,
        level: Tensor,
        places: tuple[int | None, int | None],
        weighting: Weighting,
        hops: int,
    ) -> tuple[Tensor, Tensor]:
        runs, views = kind.shape
        weight = level.new_empty(runs, views, structure.P, dtype=torch.float32)
        new_weight = torch.empty_like(weight)
        p_drop, p_sub = ((p if place is None else p[:, place].contiguous()) for place in places)
        cutting.pair_weights[(-(-structure.P // 128), runs * views)](
            kind,
            keys,
            level,
            p_drop,
            p_sub,
            structure.sizes,
            logits,
            new_logits,
            level if new is None else new.valid,
            structure.graph_of_pair,
            structure.u,
            structure.v,
            weight,
            new_weight,
            structure.N,
            structure.P,
            structure.B,
            hops,
            V=views,
            RELATIVE=weighting.relative,
            ONE=weighting.one,
            NEW=new is not None,
            BP=128,
        )
        ctx.save_for_backward(logits, new_logits, weight, new_weight)
        ctx.structure, ctx.new, ctx.kind = structure, new, kind
        ctx.places, ctx.weighting, ctx.shape = places, weighting, p.shape
        return weight, new_weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, new_g: Tensor) -> tuple[Tensor | None, ...]:
        logits, new_logits, weight, new_weight = ctx.saved_tensors
        structure, kind = ctx.structure, ctx.kind
        runs, views = kind.shape
        g, new_g = g.contiguous(), new_g.contiguous()
        d_logits = d_new = d_p = None
        if ctx.new is not None:
            d_logits, d_new = torch.empty_like(logits), torch.empty_like(new_logits)
            cutting.pair_weights_to_logits[(-(-structure.P // 128), runs)](
                kind,
                weight,
                new_weight,
                g,
                new_g,
                logits,
                new_logits,
                d_logits,
                d_new,
                structure.P,
                V=views,
                BP=128,
            )
        if ctx.needs_input_grad[0]:
            parts: list[Tensor] = []
            for place, what in zip(
                ctx.places, (cutting.NODE_DROPPING, cutting.SUB_GRAPH), strict=True
            ):
                if place is None:
                    continue
                out = g.new_empty(runs, structure.N)
                cutting.pair_weights_to_nodes[(runs * structure.N,)](
                    kind,
                    weight,
                    g,
                    structure.sizes,
                    structure.home,
                    structure.row,
                    structure.pair,
                    out,
                    structure.N,
                    structure.B,
                    structure.col.size(1),
                    structure.P,
                    WHAT=what,
                    V=views,
                    RELATIVE=ctx.weighting.relative,
                    BE=32,
                )
                parts.append(out)
            order = [place for place in ctx.places if place is not None]
            d_p = torch.stack([parts[order.index(k)] for k in range(ctx.shape[1])], dim=1)
        return d_p, d_logits, d_new, *[None] * 8


def pair_weights(
    p: Tensor,
    logits: Tensor,
    new_logits: Tensor,
    structure: Structure,
    new: NewPairs | None,
    kind: Tensor,
    keys: Tensor,
    level: Tensor,
    places: tuple[int | None, int | None],
    weighting: Weighting,
    hops: int,
) -> tuple[Tensor, Tensor]:
    """Weights of the pairs and new pairs of every view, ``[S, V, P]`` each.

    Args:
        p: Node probabilities of the heads that have them, ``[S, K, N]``.
        logits: Of the joined pairs, ``[S, P]``.
        new_logits: Of the new pairs, ``[S, V, P]``.
        structure: The batch.
        new: The new pairs, or None without edge perturbation.
        kind: What makes each view, ``[S, V]``.
        keys: Of every run's noise, ``[S]``.
        level: Hops from what a view keeps, ``[S, V, N]``.
        places: Of node dropping and of sub-graph inducing in ``p``.
        weighting: How probabilities become weights.
        hops: Radius of the sub-graphs.
    """
    weight, new_weight = _PairWeights.apply(  # type: ignore[no-untyped-call]
        p, logits, new_logits, structure, new, kind, keys, level, places, weighting, hops
    )
    return weight, new_weight


class _Mask(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        projected: Tensor,
        logits: Tensor,
        kind: Tensor,
        keys: Tensor,
        temperature: float,
    ) -> Tensor:
        runs, nodes, width = x.shape
        views = kind.size(1)
        out = x.new_empty(runs, views, nodes, width)
        block = block_of(width)
        cutting.mask_features[(-(-nodes // 32), runs * views, -(-width // block))](
            x,
            projected,
            logits,
            kind,
            keys,
            out,
            nodes,
            width,
            V=views,
            BR=32,
            BD=block,
        )
        ctx.save_for_backward(projected, logits, kind, keys)
        ctx.temperature = temperature
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        projected, logits, kind, keys = ctx.saved_tensors
        runs, nodes, width = projected.shape
        grads = [torch.empty_like(projected) for _ in range(3)]
        block = block_of(width)
        cutting.mask_features_backward[(-(-nodes // 32), runs, -(-width // block))](
            projected,
            logits,
            kind,
            keys,
            g.contiguous(),
            *grads,
            nodes,
            width,
            ctx.temperature,
            V=kind.size(1),
            BR=32,
            BD=block,
        )
        return *grads, None, None, None


def mask_features(
    x: Tensor, projected: Tensor, logits: Tensor, kind: Tensor, keys: Tensor, temperature: float
) -> Tensor:
    """Features of every view ``[S, V, N, d_x]``, masked where feature masking makes it."""
    out: Tensor = _Mask.apply(  # type: ignore[no-untyped-call]
        x.contiguous(), projected.contiguous(), logits.contiguous(), kind, keys, temperature
    )
    return out
