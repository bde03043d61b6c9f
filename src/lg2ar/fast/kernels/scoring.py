"""Node scores of the heads, and the Jensen-Shannon bound with its gradient."""

from __future__ import annotations

import triton.language as tl

from lg2ar.fast.kernels.compiling import kernel


@kernel
def node_scores(
    z,
    graphs,
    home,
    last,
    last_bias,
    out,
    N,
    B,
    D,
    z_stride,
    graph_stride,
    K: tl.constexpr,
    BR: tl.constexpr,
    BD: tl.constexpr,
):
    """``w . relu(z_v + z_g) + c`` of every node, for ``K`` heads side by side in ``z``."""
    sk = tl.program_id(1).to(tl.int64)
    s = sk // K
    k = sk % K
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    there = r < N
    b = tl.load(home + s * N + r, mask=there, other=B)
    real = b < B
    total = tl.zeros((BR,), tl.float32)
    for start in range(0, D, BD):
        d = start + tl.arange(0, BD)
        col = d < D
        use = real[:, None] & col[None, :]
        rows = (s * N + r.to(tl.int64))[:, None] * z_stride
        h = tl.load(z + rows + k * D + d[None, :], mask=use, other=0.0)
        place = (s * B + b)[:, None] * graph_stride + k * D + d[None, :]
        h = tl.maximum(h + tl.load(graphs + place, mask=use, other=0.0), 0.0)
        w = tl.load(last + sk * D + d, mask=col, other=0.0)
        total += tl.sum(h * w[None, :], 1)
    total += tl.load(last_bias + sk)
    tl.store(out + sk * N + r, tl.where(real, total, 0.0), mask=there)


@kernel
def node_scores_backward(
    z,
    graphs,
    home,
    last,
    g,
    dz,
    part,
    N,
    B,
    D,
    C,
    z_stride,
    graph_stride,
    K: tl.constexpr,
    BR: tl.constexpr,
    BD: tl.constexpr,
):
    """Gradient of ``z`` (a graph's part is the sum over its nodes), and chunks of the weights'."""
    sk = tl.program_id(0).to(tl.int64)
    s = sk // K
    k = sk % K
    c = tl.program_id(1)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    col = d < D
    w = tl.load(last + sk * D + d, mask=col, other=0.0)
    rows = tl.cdiv(tl.cdiv(N, C), BR) * BR
    total = tl.zeros((BD,), tl.float32)
    for at in range(c * rows, min((c + 1) * rows, N), BR):
        r = at + tl.arange(0, BR)
        there = r < N
        b = tl.load(home + s * N + r, mask=there, other=B)
        real = b < B
        use = real[:, None] & col[None, :]
        row = (s * N + r.to(tl.int64))[:, None]
        h = tl.load(z + row * z_stride + k * D + d[None, :], mask=use, other=0.0)
        place = (s * B + b)[:, None] * graph_stride + k * D + d[None, :]
        h += tl.load(graphs + place, mask=use, other=0.0)
        grad = tl.load(g + sk * N + r, mask=real, other=0.0)
        live = use & (h > 0)
        total += tl.sum(tl.where(live, grad[:, None] * h, 0.0), 0)
        tl.store(
            dz + row * (K * D) + k * D + d[None, :],
            tl.where(live, grad[:, None] * w[None, :], 0.0),
            mask=there[:, None] & col[None, :],
        )
    tl.store(part + (sk * C + c) * D + d, total, mask=col)


@kernel
def jensen_shannon(
    scores,
    home,
    weight,
    share_joint,
    share_product,
    part,
    first,
    rows,
    R,
    B,
    T,
    V: tl.constexpr,
    BR: tl.constexpr,
    BB: tl.constexpr,
):
    """Sums of the bound over a block of rows; the scores become their own gradients.

    The scores are those of ``rows`` rows from ``first`` on, ``[SV, rows, B]``. ``share_joint`` and
    ``share_product`` tell what a unit of row weight counts in the bound.
    """
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    t = tl.program_id(0)
    own_row = t * BR + tl.arange(0, BR)
    there = own_row < rows
    r = first + own_row
    w = tl.load(weight + sv * R + r, mask=there, other=0.0)
    own = tl.load(home + s * R + r, mask=there, other=-1)
    joint = tl.load(share_joint + sv)
    product = tl.load(share_product + sv)
    total = tl.zeros((BR,), tl.float32)
    for start in range(0, B, BB):
        c = start + tl.arange(0, BB)
        use = there[:, None] & (c < B)[None, :]
        at = scores + (sv * rows + own_row.to(tl.int64))[:, None] * B + c[None, :]
        x = tl.load(at, mask=use, other=0.0)
        positive = own[:, None] == c[None, :]
        signed = tl.where(positive, x, -x)
        tail = tl.exp(-tl.abs(signed))
        log_sigmoid = tl.minimum(signed, 0.0) - tl.log(1 + tail)
        count = w[:, None] * tl.where(positive, joint, product)
        count = tl.where(use & (count != 0), count, 0.0)
        total += tl.sum(tl.where(count != 0, count * log_sigmoid, 0.0), 1)
        slope = tl.where(signed > 0, tail, 1.0) / (1 + tail)  # sigmoid(-signed)
        grad = count * slope
        tl.store(at, tl.where(positive, grad, -grad), mask=use)
    tl.store(part + sv * T + t, tl.sum(total, 0))


@kernel
def pair_scores(
    left,
    right,
    last,
    last_bias,
    out,
    R,
    B,
    D,
    weight_stride,
    V: tl.constexpr,
    BR: tl.constexpr,
    BB: tl.constexpr,
    BD: tl.constexpr,
):
    """``w . relu(left_r + right_b) + c`` of every row with every graph: the MLP discriminator."""
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    b = tl.program_id(2) * BB + tl.arange(0, BB)
    total = tl.zeros((BR, BB), tl.float32) + tl.load(last_bias + s * weight_stride)
    for start in range(0, D, BD):
        d = start + tl.arange(0, BD)
        col = d < D
        x = tl.load(
            left + (sv * R + r)[:, None] * D + d[None, :],
            mask=(r < R)[:, None] & col[None, :],
            other=0.0,
        )
        y = tl.load(
            right + (sv * B + b)[:, None] * D + d[None, :],
            mask=(b < B)[:, None] & col[None, :],
            other=0.0,
        )
        w = tl.load(last + s * weight_stride + d, mask=col, other=0.0)
        h = tl.maximum(x[:, None, :] + y[None, :, :], 0.0)
        total += tl.sum(h * w[None, None, :], 2)
    at = (sv * R + r)[:, None] * B + b[None, :]
    tl.store(out + at, total, mask=(r < R)[:, None] & (b < B)[None, :])


@kernel
def pair_scores_backward(
    left,
    right,
    last,
    g,
    out,
    part,
    R,
    B,
    D,
    g_rows,
    g_columns,
    weight_stride,
    V: tl.constexpr,
    WEIGHTS: tl.constexpr,
    BR: tl.constexpr,
    BB: tl.constexpr,
    BD: tl.constexpr,
):
    """Gradient of ``left``, and with ``WEIGHTS`` a block of rows' share of the weights'.

    With both sides exchanged, and the strides of ``g`` with them, it is the gradient of ``right``.
    """
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    block = tl.program_id(0)
    r = block * BR + tl.arange(0, BR)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    col = d < D
    use = (r < R)[:, None] & col[None, :]
    place = (sv * R + r)[:, None] * D + d[None, :]
    x = tl.load(left + place, mask=use, other=0.0)
    w = tl.load(last + s * weight_stride + d, mask=col, other=0.0)
    total = tl.zeros((BR, BD), tl.float32)
    output = tl.zeros((BD,), tl.float32)
    for start in range(0, B, BB):
        b = start + tl.arange(0, BB)
        y = tl.load(
            right + (sv * B + b)[:, None] * D + d[None, :],
            mask=(b < B)[:, None] & col[None, :],
            other=0.0,
        )
        grad = tl.load(
            g + sv * R * B + r[:, None] * g_rows + b[None, :] * g_columns,
            mask=(r < R)[:, None] & (b < B)[None, :],
            other=0.0,
        )
        h = x[:, None, :] + y[None, :, :]
        live = tl.where(h > 0, grad[:, :, None], 0.0)
        total += tl.sum(live, 1)
        if WEIGHTS:
            output += tl.sum(tl.sum(live * h, 1), 0)
    tl.store(out + place, total * w[None, :], mask=use)
    if WEIGHTS:
        tl.store(part + (sv * tl.num_programs(0) + block) * D + d, output, mask=col)
