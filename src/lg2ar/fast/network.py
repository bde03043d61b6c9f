"""The graph isomorphism network of many runs and views, with its gradients written out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lg2ar.fast.dense import (
    bias_gradient,
    block_of,
    chunks_of,
    linear_forward,
    multiply,
    outer,
)
from lg2ar.fast.kernels import aggregation, dense, segments
from lg2ar.fast.structure import Cut, Structure

# Neighbours from which on a node's sum is shared out among programs.
HUB = 256


def aggregate(x: Tensor, structure: Structure, cut: Cut, views: int) -> Tensor:
    """``x_i + sum_j w_ij x_j`` for rows ``[S, V, N, d]`` whose last stride is one."""
    width, stride = x.size(-1), x.stride(2)
    out = x.new_empty(*x.shape)
    block = block_of(width)
    weight, new = cut.weight, cut.new
    sizes = (structure.N, structure.col.size(1), structure.P, width, stride)
    aggregation.aggregate[(structure.S * views * structure.N, -(-width // block))](
        x,
        out,
        structure.row,
        structure.col,
        structure.pair,
        x if weight is None else weight,
        structure.row if new is None else new.row,
        structure.row if new is None else new.col,
        structure.row if new is None else new.pair,
        x if cut.new_weight is None else cut.new_weight,
        *sizes,
        V=views,
        HAS_W=weight is not None,
        HAS_NEW=new is not None,
        BE=8,
        LONG=32,
        HUB=HUB if structure.hubs else 0,
        BD=block,
        num_warps=2,
    )
    if structure.hubs:
        rows, narrow = 32, block_of(width, 32)
        aggregation.aggregate_hubs[
            (-(-structure.N // rows), structure.S * views, -(-width // narrow))
        ](
            x,
            out,
            structure.row,
            structure.col,
            structure.pair,
            x if weight is None else weight,
            *sizes,
            V=views,
            HAS_W=weight is not None,
            HUB=HUB,
            BR=rows,
            BE=128,
            BD=narrow,
        )
    return out


def _add_pair_products(
    out: Tensor,
    x: Tensor,
    g: Tensor,
    ends: tuple[Tensor, Tensor],
    weight: Tensor,
    learned: Tensor,
    *,
    shared: bool,
    first: bool,
) -> None:
    runs, views, nodes, width = x.shape
    pairs = out.size(-1)
    aggregation.pair_products[(-(-pairs // 16), runs * views)](
        x,
        g,
        *ends,
        weight,
        learned,
        out,
        nodes,
        pairs,
        width,
        x.stride(2),
        V=views,
        SHARED=shared,
        ADD=not first,
        BP=16,
        BD=block_of(width),
    )


@dataclass(frozen=True)
class Shape:
    """What a graph network is like.

    Attributes:
        layers: Number of layers.
        norm: Whether each is normalised.
        norm_first: Whether that comes before the ReLU.
        dropout: Share of its output that is dropped.
        site: Where its noise begins.
        mean: Whether the read-out is a mean.
    """

    layers: int
    norm: bool
    norm_first: bool
    dropout: float
    site: int
    mean: bool = False


# Weights of a layer, in this order; the last two only with normalisation.
LAYER = ("mlp.first.weight", "mlp.first.bias", "mlp.rest.1.weight", "mlp.rest.1.bias")
NORM_EPS, NORM_MOMENTUM = 1e-5, 0.1


class _GIN(torch.autograd.Function):
    """All layers of a graph isomorphism network and the read-out."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        new_weight: Tensor | None,
        structure: Structure,
        cut: Cut,
        keys: Tensor,
        shape: Shape,
        running: list[tuple[Tensor, Tensor]],
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        runs, views, nodes = cut.mask.shape
        per_layer = 6 if shape.norm else 4
        hidden = weights[0].size(1)
        wide = hidden * shape.layers
        outputs = x.new_empty(runs, views, nodes, wide)
        saved: list[Tensor] = []
        h = x
        for layer in range(shape.layers):
            w1, b1, w2, b2, *affine = weights[layer * per_layer : (layer + 1) * per_layer]
            total, inner, z = _convolve(h, structure, cut, w1, b1, w2)
            statistics = (
                _normalise(z, b2, cut.mask, running[layer], shape.norm_first)
                if shape.norm
                else (z, z, z)
            )
            h = outputs[..., layer * hidden : (layer + 1) * hidden]
            _finish(h, z, b2, affine, statistics, cut, keys, shape, layer)
            saved += [total, inner, z, *statistics]
        graphs, count = _read_out(outputs, structure, cut, shape)
        ctx.save_for_backward(x, outputs, count, *weights)
        ctx.saved = saved  # neither inputs nor outputs: let go of layer by layer
        ctx.structure, ctx.cut, ctx.keys, ctx.shape = structure, cut, keys, shape
        ctx.set_materialize_grads(False)
        return outputs, graphs

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, from_nodes: Tensor | None, from_graphs: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        structure, cut, shape = ctx.structure, ctx.cut, ctx.shape
        runs, views, nodes = cut.mask.shape
        per_layer = 6 if shape.norm else 4
        x, outputs, count, *weights = ctx.saved_tensors
        saved = ctx.saved
        hidden, wide = weights[0].size(1), outputs.size(-1)
        from_nodes = None if from_nodes is None else from_nodes.contiguous()
        if from_graphs is not None:
            from_graphs = from_graphs.contiguous()
            if count is not None:
                from_graphs = from_graphs / count.unsqueeze(-1)
        learn = any(ctx.needs_input_grad[8:])
        want_weight = ctx.needs_input_grad[1]
        d_weights: list[Tensor | None] = [None] * len(weights)
        d_weight = torch.empty_like(cut.weight) if want_weight else None
        d_new = torch.empty_like(cut.new_weight) if want_weight and cut.new is not None else None
        from_next: Tensor | None = None
        for layer in reversed(range(shape.layers)):
            w1, _, w2, b2, *affine = weights[layer * per_layer : (layer + 1) * per_layer]
            total, inner, z, number, centre, rstd = saved[-6:]
            del saved[-6:]
            columns = slice(layer * hidden, (layer + 1) * hidden)
            dz, d_b2, d_affine = _layer_backward(
                z,
                b2,
                (number, centre, rstd),
                (affine[0], affine[1]) if affine else (b2, b2),
                None if from_nodes is None else from_nodes[..., columns],
                None if from_graphs is None else from_graphs[..., columns],
                from_next,
                wide,
                ctx.keys,
                structure,
                cut,
                shape,
                layer,
            )
            del z
            d_inner, d_b1 = bias_gradient(inner, multiply(dz, w2), True)
            if learn:
                at = layer * per_layer
                d_weights[at : at + 4] = [outer(d_inner, total), d_b1, outer(dz, inner), d_b2]
                if affine:
                    d_weights[at + 4 : at + 6] = d_affine
            if layer == 0 and not (ctx.needs_input_grad[0] or want_weight):
                from_next = None
                break
            del total, inner, dz
            g = multiply(d_inner, w1).view(runs, views, nodes, -1)
            del d_inner
            before = x if layer == 0 else outputs[..., columns.start - hidden : columns.start]
            if d_weight is not None:
                first = layer == shape.layers - 1
                _add_pair_products(
                    d_weight,
                    before,
                    g,
                    (structure.u, structure.v),
                    cut.weight,
                    cut.learned,
                    shared=True,
                    first=first,
                )
                if d_new is not None:
                    _add_pair_products(
                        d_new,
                        before,
                        g,
                        (cut.new.u, cut.new.v),
                        cut.new_weight,
                        cut.learned,
                        shared=False,
                        first=first,
                    )
            from_next = None
            if layer > 0 or ctx.needs_input_grad[0]:
                from_next = aggregate(g, structure, cut, views)
        return from_next, d_weight, d_new, None, None, None, None, None, *d_weights


def _convolve(
    h: Tensor, structure: Structure, cut: Cut, w1: Tensor, b1: Tensor, w2: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What a layer adds up, its inner rows, and what it gives but for the last bias."""
    runs, views, nodes, _ = h.shape
    total = aggregate(h, structure, cut, views).view(runs, views * nodes, -1)
    inner = linear_forward(total, w1, b1, True)
    return total, inner, multiply(inner, w2.transpose(1, 2))


def _finish(
    out: Tensor,
    z: Tensor,
    bias: Tensor,
    affine: list[Tensor],
    statistics: tuple[Tensor, Tensor, Tensor],
    cut: Cut,
    keys: Tensor,
    shape: Shape,
    layer: int,
) -> None:
    """Bias, ReLU, normalisation and dropout of a layer."""
    runs, views, nodes = cut.mask.shape
    width = z.size(-1)
    gamma, beta = affine or (bias, bias)
    block = block_of(width)
    dense.layer_output[(-(-nodes // 32), runs * views, -(-width // block))](
        z,
        bias,
        cut.mask,
        statistics[1],
        statistics[2],
        gamma,
        beta,
        keys,
        out,
        nodes,
        width,
        out.stride(2),
        bias.stride(0),
        shape.site + 2 * layer,
        shape.dropout,
        V=views,
        NORM=shape.norm,
        FIRST=shape.norm and shape.norm_first,
        DROP=shape.dropout > 0,
        BR=32,
        BD=block,
    )


def _read_out(
    outputs: Tensor, structure: Structure, cut: Cut, shape: Shape
) -> tuple[Tensor, Tensor | None]:
    """Graph rows, and the number of nodes they are the mean of, if they are."""
    graphs = segment_rows(outputs, structure)
    if not shape.mean:
        return graphs, None
    count = view_sizes(cut, structure).clamp(min=1)
    return graphs / count.unsqueeze(-1), count


def _normalise(
    z: Tensor, bias: Tensor, mask: Tensor, running: tuple[Tensor, Tensor], norm_first: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Number, mean and reciprocal deviation of each view's rows, ``[S * V, d]``."""
    runs, views, nodes = mask.shape
    width = z.size(-1)
    block = block_of(width, 64)
    chunks = chunks_of(nodes, runs * views * -(-width // block))
    count, mean, spread = (z.new_empty(runs * views, chunks, width) for _ in range(3))
    dense.moments[(runs * views, chunks, -(-width // block))](
        z,
        bias,
        mask,
        count,
        mean,
        spread,
        nodes,
        width,
        chunks,
        bias.stride(0),
        V=views,
        FIRST=norm_first,
        BR=32,
        BD=block,
    )
    number, centre, rstd = (z.new_empty(runs * views, width) for _ in range(3))
    dense.settle_moments[(runs, -(-width // block))](
        count,
        mean,
        spread,
        number,
        centre,
        rstd,
        *running,
        width,
        chunks,
        NORM_EPS,
        NORM_MOMENTUM,
        running[0].stride(0),
        V=views,
        BC=chunks,
        BD=block,
    )
    return number, centre, rstd


def _layer_backward(
    z: Tensor,
    bias: Tensor,
    statistics: tuple[Tensor, Tensor, Tensor],
    affine: tuple[Tensor, Tensor],
    from_nodes: Tensor | None,
    from_graphs: Tensor | None,
    from_next: Tensor | None,
    wide: int,
    keys: Tensor,
    structure: Structure,
    cut: Cut,
    shape: Shape,
    layer: int,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Gradients of a layer's ``z``, its bias, and normalisation's weight and bias."""
    runs, views, nodes = cut.mask.shape
    width = z.size(-1)
    block = block_of(width, 64)
    chunks = chunks_of(nodes, runs * views * -(-width // block))
    grid = (runs * views, chunks, -(-width // block))
    number, centre, rstd = statistics
    sources = (
        z if from_nodes is None else from_nodes,
        z if from_graphs is None else from_graphs,
        z if from_next is None else from_next,
        structure.home,
    )
    flags = {
        "V": views,
        "FIRST": shape.norm and shape.norm_first,
        "DROP": shape.dropout > 0,
        "HAS_NODES": from_nodes is not None,
        "HAS_GRAPHS": from_graphs is not None,
        "HAS_NEXT": from_next is not None,
        "BR": 32,
        "BD": block,
    }
    sizes = (
        nodes,
        structure.B,
        width,
        chunks,
        wide,
        bias.stride(0),
        shape.site + 2 * layer,
        shape.dropout,
    )
    parts, totals = [z, z], z
    if shape.norm:
        parts = [z.new_empty(runs * views, chunks, width) for _ in range(2)]
        totals = z.new_empty(2, runs, views, width)
        dense.layer_sums[grid](
            z, bias, cut.mask, centre, rstd, *affine, keys, *sources, *parts, *sizes, **flags
        )
    dz = torch.empty_like(z)
    part = z.new_empty(runs * views, chunks, width)
    dense.layer_gradient[grid](
        z,
        bias,
        cut.mask,
        number,
        centre,
        rstd,
        *affine,
        keys,
        *sources,
        *parts,
        totals,
        dz,
        part,
        *sizes,
        NORM=shape.norm,
        BC=chunks,
        **flags,
    )
    d_bias = part.view(runs, -1, width).sum(1)
    d_affine = list(totals.sum(2).unbind(0)) if shape.norm else []
    return dz, d_bias, d_affine


def gin(
    x: Tensor,
    structure: Structure,
    cut: Cut,
    keys: Tensor,
    shape: Shape,
    running: list[tuple[Tensor, Tensor]],
    weights: list[Tensor],
) -> tuple[Tensor, Tensor]:
    """Encode views ``[S, V, N, d_x]``: node rows ``[S, V, N, L h]`` and graph rows."""
    nodes, graphs = _GIN.apply(  # type: ignore[no-untyped-call]
        x, cut.weight, cut.new_weight, structure, cut, keys, shape, running, *weights
    )
    return nodes, graphs


@torch.no_grad()
def gin_at_rest(
    x: Tensor,
    structure: Structure,
    cut: Cut,
    keys: Tensor,
    shape: Shape,
    running: list[tuple[Tensor, Tensor]],
    weights: list[Tensor],
) -> Tensor:
    """Graph rows ``[S, 1, B, L h]`` of one view, normalised by the running statistics."""
    per_layer = 6 if shape.norm else 4
    hidden, (runs, views, nodes) = weights[0].size(1), cut.mask.shape
    outputs = x.new_empty(runs, views, nodes, hidden * shape.layers)
    h = x
    for layer in range(shape.layers):
        w1, b1, w2, b2, *affine = weights[layer * per_layer : (layer + 1) * per_layer]
        _, _, z = _convolve(h, structure, cut, w1, b1, w2)
        statistics = z, z, z
        if shape.norm:
            mean, var = running[layer]
            statistics = z, mean, (var + NORM_EPS).rsqrt()
        h = outputs[..., layer * hidden : (layer + 1) * hidden]
        _finish(h, z, b2, affine, statistics, cut, keys, shape, layer)
    return _read_out(outputs, structure, cut, shape)[0]


def segment_rows(x: Tensor, structure: Structure) -> Tensor:
    """Sum of each graph's rows, ``[S, V, N, d]`` to ``[S, V, B, d]``."""
    runs, views, nodes, width = x.shape
    out = x.new_empty(runs, views, structure.B, width)
    block = block_of(width, 32)  # narrow, so that a large graph is shared out among programs
    segments.segment_sum[(runs * views * structure.B, -(-width // block))](
        x, out, structure.ptr, nodes, structure.B, width, V=views, BR=128, BD=block
    )
    return out


def view_sizes(cut: Cut, structure: Structure) -> Tensor:
    """Number of nodes of each graph of each view, ``[S, V, B]``."""
    return segment_rows(cut.mask.float().unsqueeze(-1), structure).squeeze(-1)
