"""Sums over neighbours, and their gradients, for the views of many runs at once.

A batch's edges lie as compressed rows, one for each node; every weight belongs to a *pair* of
nodes and counts in both directions, so the matrix is symmetric and its own transpose.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lg2ar.fast.kernels.compiling import kernel


@triton.jit
def _add_row(total, x, col, pair, weight, start, end, d, inside, stride, HAS_W, BE: tl.constexpr):
    """Add ``weight[pair] * x[col]`` of the entries from ``start`` to ``end`` of a row."""
    for at in range(start, end, BE):
        entry = at + tl.arange(0, BE)
        there = entry < end
        c = tl.load(col + entry, mask=there, other=0)
        if HAS_W:
            p = tl.load(pair + entry, mask=there, other=0)
            w = tl.load(weight + p, mask=there, other=0.0)
            there = there & (w != 0)  # a dropped edge is not read
            rows = tl.load(
                x + c[:, None] * stride + d[None, :],
                mask=there[:, None] & inside[None, :],
                other=0.0,
            )
            total += tl.sum(rows * w[:, None], 0)
        else:
            rows = tl.load(
                x + c[:, None] * stride + d[None, :],
                mask=there[:, None] & inside[None, :],
                other=0.0,
            )
            total += tl.sum(rows, 0)
    return total


@kernel
def aggregate(
    x,
    out,
    row,
    col,
    pair,
    weight,
    new_row,
    new_col,
    new_pair,
    new_weight,
    N,
    E,
    P,
    D,
    stride,
    V: tl.constexpr,
    HAS_W: tl.constexpr,
    HAS_NEW: tl.constexpr,
    BE: tl.constexpr,
    LONG: tl.constexpr,
    HUB: tl.constexpr,
    BD: tl.constexpr,
):
    """``out_i = x_i + sum_j w_ij x_j``: one program a node and block of columns.

    Nodes of more than ``HUB`` neighbours are left to :func:`aggregate_hubs`, where HUB is not 0.
    """
    place = tl.program_id(0)
    sv = (place // N).to(tl.int64)
    r = place % N
    s = sv // V
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    inside = d < D
    x += sv * N * stride
    total = tl.load(x + r.to(tl.int64) * stride + d, mask=inside, other=0.0)
    row += s * (N + 1) + r
    start = tl.load(row)
    end = tl.load(row + 1)
    w = weight + sv * P
    if HUB > 0:
        end = tl.where(end - start > HUB, start, end)
    if end - start > LONG:  # more of its neighbours at a time
        total = _add_row(
            total, x, col + s * E, pair + s * E, w, start, end, d, inside, stride, HAS_W, LONG
        )
    else:
        total = _add_row(
            total, x, col + s * E, pair + s * E, w, start, end, d, inside, stride, HAS_W, BE
        )
    if HAS_NEW:
        new_row += sv * (N + 1) + r
        start = tl.load(new_row)
        end = tl.load(new_row + 1)
        w = new_weight + sv * P
        total = _add_row(total, x, new_col, new_pair, w, start, end, d, inside, stride, True, BE)
    tl.store(out + (sv * N + r) * D + d, total, mask=inside)


@kernel
def aggregate_hubs(
    x,
    out,
    row,
    col,
    pair,
    weight,
    N,
    E,
    P,
    D,
    stride,
    V: tl.constexpr,
    HAS_W: tl.constexpr,
    HUB: tl.constexpr,
    BR: tl.constexpr,
    BE: tl.constexpr,
    BD: tl.constexpr,
):
    """Add what the nodes of more than ``HUB`` neighbours hear, in narrow blocks of columns."""
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    first = tl.program_id(0) * BR
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    inside = d < D
    row += s * (N + 1)
    x += sv * N * stride
    rows = first + tl.arange(0, BR)
    degree = tl.load(row + rows + 1, mask=rows < N, other=0) - tl.load(
        row + rows, mask=rows < N, other=0
    )
    if tl.max(degree, 0) > HUB:
        for r in range(first, tl.minimum(first + BR, N)):
            start = tl.load(row + r)
            end = tl.load(row + r + 1)
            if end - start > HUB:
                at = out + (sv * N + r) * D + d
                total = tl.load(at, mask=inside, other=0.0)
                total = _add_row(
                    total,
                    x,
                    col + s * E,
                    pair + s * E,
                    weight + sv * P,
                    start,
                    end,
                    d,
                    inside,
                    stride,
                    HAS_W,
                    BE,
                )
                tl.store(at, total, mask=inside)


@kernel
def pair_products(
    x,
    g,
    u,
    v,
    weight,
    wanted,
    out,
    N,
    P,
    D,
    stride,
    V: tl.constexpr,
    SHARED: tl.constexpr,
    ADD: tl.constexpr,
    BP: tl.constexpr,
    BD: tl.constexpr,
):
    """``g_u . x_v + g_v . x_u`` of every pair that weighs something: the weights' gradient.

    Ends of pairs are the run's (``SHARED``) or the view's own. A view that wants no gradient
    costs nothing and gets zeros.
    """
    sv = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    there = p < P
    total = tl.zeros((BP,), tl.float32)
    if tl.load(wanted + sv) != 0:
        ends = sv // V if SHARED else sv
        w = tl.load(weight + sv * P + p, mask=there, other=0.0)
        read = there & (w != 0)
        a = tl.load(u + ends * P + p, mask=read, other=0)
        b = tl.load(v + ends * P + p, mask=read, other=0)
        x += sv * N * stride
        g += sv * N * D
        for start in range(0, D, BD):
            d = start + tl.arange(0, BD)
            use = read[:, None] & (d < D)[None, :]
            g_a = tl.load(g + a[:, None] * D + d[None, :], mask=use, other=0.0)
            g_b = tl.load(g + b[:, None] * D + d[None, :], mask=use, other=0.0)
            x_a = tl.load(x + a[:, None] * stride + d[None, :], mask=use, other=0.0)
            x_b = tl.load(x + b[:, None] * stride + d[None, :], mask=use, other=0.0)
            total += tl.sum(g_a * x_b + g_b * x_a, 1)
    if ADD:
        total += tl.load(out + sv * P + p, mask=there, other=0.0)
    tl.store(out + sv * P + p, total, mask=there)
