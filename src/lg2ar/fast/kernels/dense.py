"""What stands between the matrix products: bias, ReLU, normalisation over a view, dropout."""

from __future__ import annotations

import triton
import triton.language as tl

from lg2ar.fast.kernels.compiling import kernel


@kernel
def bias_relu(z, bias, R, D, bias_stride, RELU: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr):
    """``relu(z + b)`` in place, for matrices ``[S, R, D]``."""
    s = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    use = (r < R)[:, None] & (d < D)[None, :]
    at = z + s * R * D + r.to(tl.int64)[:, None] * D + d[None, :]
    b = tl.load(bias + s * bias_stride + d, mask=d < D, other=0.0)
    y = tl.load(at, mask=use, other=0.0) + b[None, :]
    if RELU:
        y = tl.maximum(y, 0.0)
    tl.store(at, y, mask=use)


@kernel
def bias_relu_backward(
    y, g, dz, part, R, D, C, RELU: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr
):
    """Gradient before the ReLU, and sums of its columns over a chunk of rows ``[S, C, D]``."""
    s = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    rows = tl.cdiv(tl.cdiv(R, C), BR) * BR
    total = tl.zeros((BD,), tl.float32)
    for at in range(c * rows, min((c + 1) * rows, R), BR):
        r = at + tl.arange(0, BR)
        use = (r < R)[:, None] & (d < D)[None, :]
        place = s * R * D + r.to(tl.int64)[:, None] * D + d[None, :]
        grad = tl.load(g + place, mask=use, other=0.0)
        if RELU:
            grad = tl.where(tl.load(y + place, mask=use, other=0.0) > 0, grad, 0.0)
            tl.store(dz + place, grad, mask=use)
        total += tl.sum(grad, 0)
    tl.store(part + (s * C + c) * D + d, total, mask=d < D)


@kernel
def moments(
    z,
    bias,
    mask,
    count,
    mean,
    spread,
    N,
    D,
    C,
    bias_stride,
    V: tl.constexpr,
    FIRST: tl.constexpr,
    BR: tl.constexpr,
    BD: tl.constexpr,
):
    """Count, mean and spread of what is normalised over the kept rows of each chunk of a view.

    That is ``relu(z + b)``, or with ``FIRST`` ``z + b``.
    """
    sv = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    b = tl.load(bias + (sv // V) * bias_stride + d, mask=d < D, other=0.0)
    rows = tl.cdiv(tl.cdiv(N, C), BR) * BR
    number = tl.zeros((BD,), tl.float32)
    average = tl.zeros((BD,), tl.float32)
    squares = tl.zeros((BD,), tl.float32)
    for at in range(c * rows, min((c + 1) * rows, N), BR):
        r = at + tl.arange(0, BR)
        kept = tl.load(mask + sv * N + r, mask=r < N, other=0) != 0
        use = kept[:, None] & (d < D)[None, :]
        place = sv * N * D + r.to(tl.int64)[:, None] * D + d[None, :]
        h = tl.load(z + place, mask=use, other=0.0) + b[None, :]
        if FIRST == 0:
            h = tl.maximum(h, 0.0)
        here = tl.sum(kept.to(tl.float32), 0)
        mean_here = tl.sum(tl.where(use, h, 0.0), 0) / tl.maximum(here, 1.0)
        off = tl.where(use, h - mean_here[None, :], 0.0)
        shift = mean_here - average
        both = number + here
        share = here / tl.maximum(both, 1.0)
        average += shift * share
        squares += tl.sum(off * off, 0) + shift * shift * number * share
        number = both
    place = (sv * C + c) * D + d
    tl.store(mean + place, average, mask=d < D)
    tl.store(spread + place, squares, mask=d < D)
    tl.store(count + place, number, mask=d < D)


@kernel
def settle_moments(
    count,
    mean,
    spread,
    number,
    centre,
    rstd,
    running_mean,
    running_var,
    D,
    C,
    eps,
    momentum,
    running_stride,
    V: tl.constexpr,
    BC: tl.constexpr,
    BD: tl.constexpr,
):
    """Join the chunks of each view, and let the running statistics follow, view after view."""
    s = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    c = tl.arange(0, BC)
    use = (c < C)[:, None] & (d < D)[None, :]
    kept_mean = tl.load(running_mean + s * running_stride + d, mask=d < D, other=0.0)
    kept_var = tl.load(running_var + s * running_stride + d, mask=d < D, other=0.0)
    for v in range(V):
        sv = s * V + v
        place = sv * C * D + c[:, None] * D + d[None, :]
        n = tl.load(count + place, mask=use, other=0.0)
        m = tl.load(mean + place, mask=use, other=0.0)
        q = tl.load(spread + place, mask=use, other=0.0)
        total = tl.maximum(tl.sum(n, 0), 1.0)
        average = tl.sum(n * m, 0) / total
        off = m - average[None, :]
        squares = tl.sum(q + n * off * off, 0)
        tl.store(number + sv * D + d, total, mask=d < D)
        tl.store(centre + sv * D + d, average, mask=d < D)
        tl.store(rstd + sv * D + d, 1 / tl.sqrt(squares / total + eps), mask=d < D)
        kept_mean += momentum * (average - kept_mean)
        kept_var += momentum * (squares / tl.maximum(total - 1, 1.0) - kept_var)
    tl.store(running_mean + s * running_stride + d, kept_mean, mask=d < D)
    tl.store(running_var + s * running_stride + d, kept_var, mask=d < D)


@triton.jit
def _kept_by_dropout(keys, s, site, r, d, D, dropout):
    """Where dropout keeps an entry: decided by run, place in the network, node and column."""
    key = tl.load(keys + s) + site
    return tl.rand(key, r[:, None] * D + d[None, :]) >= dropout


@kernel
def layer_output(
    z,
    bias,
    mask,
    centre,
    rstd,
    gamma,
    beta,
    keys,
    out,
    N,
    D,
    out_stride,
    bias_stride,
    site,
    dropout,
    V: tl.constexpr,
    NORM: tl.constexpr,
    FIRST: tl.constexpr,
    DROP: tl.constexpr,
    BR: tl.constexpr,
    BD: tl.constexpr,
):
    """``dropout(norm(relu(z + b)))``, or the norm first; zero at nodes the view does not have."""
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    col = d < D
    kept = tl.load(mask + sv * N + r, mask=r < N, other=0) != 0
    use = kept[:, None] & col[None, :]
    b = tl.load(bias + s * bias_stride + d, mask=col, other=0.0)
    place = sv * N * D + r.to(tl.int64)[:, None] * D + d[None, :]
    y = tl.load(z + place, mask=use, other=0.0) + b[None, :]
    if FIRST == 0:
        y = tl.maximum(y, 0.0)
    if NORM:
        mean = tl.load(centre + sv * D + d, mask=col, other=0.0)
        scale = tl.load(rstd + sv * D + d, mask=col, other=0.0)
        scale *= tl.load(gamma + s * bias_stride + d, mask=col, other=0.0)
        shift = tl.load(beta + s * bias_stride + d, mask=col, other=0.0)
        y = (y - mean[None, :]) * scale[None, :] + shift[None, :]
    if FIRST:
        y = tl.maximum(y, 0.0)
    if DROP:
        lives = _kept_by_dropout(keys, s, site + sv % V, r, d, D, dropout)
        y = tl.where(lives, y / (1 - dropout), 0.0)
    y = tl.where(use, y, 0.0)
    at = (sv * N + r.to(tl.int64))[:, None] * out_stride + d[None, :]
    tl.store(out + at, y, mask=(r < N)[:, None] & col[None, :])


@triton.jit
def _incoming(
    from_nodes,
    from_graphs,
    from_next,
    home,
    sv,
    s,
    r,
    d,
    use,
    N,
    B,
    D,
    wide,
    HAS_NODES: tl.constexpr,
    HAS_GRAPHS: tl.constexpr,
    HAS_NEXT: tl.constexpr,
):
    """Gradient of a layer's output: from its place among the outputs, its graph, the next layer."""
    grad = tl.zeros(use.shape, tl.float32)
    rows = sv * N + r.to(tl.int64)
    if HAS_NODES:
        grad += tl.load(from_nodes + rows[:, None] * wide + d[None, :], mask=use, other=0.0)
    if HAS_GRAPHS:
        b = tl.load(home + s * N + r, mask=r < N, other=0)
        b = tl.minimum(b, B - 1)  # rows of no graph are masked
        place = (sv * B + b)[:, None] * wide + d[None, :]
        grad += tl.load(from_graphs + place, mask=use, other=0.0)
    if HAS_NEXT:
        grad += tl.load(from_next + rows[:, None] * D + d[None, :], mask=use, other=0.0)
    return grad


@kernel
def layer_sums(
    z,
    bias,
    mask,
    centre,
    rstd,
    gamma,
    beta,
    keys,
    from_nodes,
    from_graphs,
    from_next,
    home,
    sum_g,
    sum_gx,
    N,
    B,
    D,
    C,
    wide,
    bias_stride,
    site,
    dropout,
    V: tl.constexpr,
    FIRST: tl.constexpr,
    DROP: tl.constexpr,
    HAS_NODES: tl.constexpr,
    HAS_GRAPHS: tl.constexpr,
    HAS_NEXT: tl.constexpr,
    BR: tl.constexpr,
    BD: tl.constexpr,
):
    """Sums over a chunk of ``g`` and of ``g`` times the normalised value: normalisation's own."""
    sv = tl.program_id(0).to(tl.int64)
    s = sv // V
    c = tl.program_id(1)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    col = d < D
    b = tl.load(bias + s * bias_stride + d, mask=col, other=0.0)
    mean = tl.load(centre + sv * D + d, mask=col, other=0.0)
    scale = tl.load(rstd + sv * D + d, mask=col, other=0.0)
    rows = tl.cdiv(tl.cdiv(N, C), BR) * BR
    total = tl.zeros((BD,), tl.float32)
    product = tl.zeros((BD,), tl.float32)
    for at in range(c * rows, min((c + 1) * rows, N), BR):
        r = at + tl.arange(0, BR)
        kept = tl.load(mask + sv * N + r, mask=r < N, other=0) != 0
        use = kept[:, None] & col[None, :]
        g = _incoming(
            from_nodes,
            from_graphs,
            from_next,
            home,
            sv,
            s,
            r,
            d,
            use,
            N,
            B,
            D,
            wide,
            HAS_NODES,
            HAS_GRAPHS,
            HAS_NEXT,
        )
        if DROP:
            lives = _kept_by_dropout(keys, s, site + sv % V, r, d, D, dropout)
            g = tl.where(lives, g / (1 - dropout), 0.0)
        place = sv * N * D + r.to(tl.int64)[:, None] * D + d[None, :]
        y = tl.load(z + place, mask=use, other=0.0) + b[None, :]
        if FIRST == 0:
            y = tl.maximum(y, 0.0)
        x = (y - mean[None, :]) * scale[None, :]
        if FIRST:
            weight = tl.load(gamma + s * bias_stride + d, mask=col, other=0.0)
            shift = tl.load(beta + s * bias_stride + d, mask=col, other=0.0)
            g = tl.where(x * weight[None, :] + shift[None, :] > 0, g, 0.0)
        total += tl.sum(g, 0)
        product += tl.sum(tl.where(use, g * x, 0.0), 0)
    tl.store(sum_g + (sv * C + c) * D + d, total, mask=col)
    tl.store(sum_gx + (sv * C + c) * D + d, product, mask=col)


@kernel
def layer_gradient(
    z,
    bias,
    mask,
    number,
    centre,
    rstd,
    gamma,
    beta,
    keys,
    from_nodes,
    from_graphs,
    from_next,
    home,
    part_g,
    part_gx,
    totals,
    dz,
    part,
    N,
    B,
    D,
    C,
    wide,
    bias_stride,
    site,
    dropout,
    V: tl.constexpr,
    NORM: tl.constexpr,
    FIRST: tl.constexpr,
    DROP: tl.constexpr,
    HAS_NODES: tl.constexpr,
    HAS_GRAPHS: tl.constexpr,
    HAS_NEXT: tl.constexpr,
    BC: tl.constexpr,
    BR: tl.constexpr,
    BD: tl.constexpr,
):
    """Gradient of ``z`` ``[SV, N, D]``, and sums of its columns over a chunk (the bias's).

    The chunks' sums are added up here, and kept in ``totals`` ``[2, SV, D]``.
    """
    sv = tl.program_id(0).to(tl.int64)
    s = sv // V
    c = tl.program_id(1)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    col = d < D
    b = tl.load(bias + s * bias_stride + d, mask=col, other=0.0)
    rows = tl.cdiv(tl.cdiv(N, C), BR) * BR
    total = tl.zeros((BD,), tl.float32)
    if NORM:
        k = tl.arange(0, BC)
        chunk = sv * C * D + k[:, None] * D + d[None, :]
        every = (k < C)[:, None] & col[None, :]
        sum_g = tl.sum(tl.load(part_g + chunk, mask=every, other=0.0), 0)
        sum_gx = tl.sum(tl.load(part_gx + chunk, mask=every, other=0.0), 0)
        if c == 0:  # the gradients of normalisation's own weights
            tl.store(totals + sv * D + d, sum_gx, mask=col)
            tl.store(totals + (tl.num_programs(0) + sv) * D + d, sum_g, mask=col)
        mean = tl.load(centre + sv * D + d, mask=col, other=0.0)
        scale = tl.load(rstd + sv * D + d, mask=col, other=0.0)
        n = tl.load(number + sv * D + d, mask=col, other=1.0)
        g_mean = sum_g / n
        gx_mean = sum_gx / n
        weight = tl.load(gamma + s * bias_stride + d, mask=col, other=0.0) * scale
    for at in range(c * rows, min((c + 1) * rows, N), BR):
        r = at + tl.arange(0, BR)
        kept = tl.load(mask + sv * N + r, mask=r < N, other=0) != 0
        use = kept[:, None] & col[None, :]
        g = _incoming(
            from_nodes,
            from_graphs,
            from_next,
            home,
            sv,
            s,
            r,
            d,
            use,
            N,
            B,
            D,
            wide,
            HAS_NODES,
            HAS_GRAPHS,
            HAS_NEXT,
        )
        if DROP:
            lives = _kept_by_dropout(keys, s, site + sv % V, r, d, D, dropout)
            g = tl.where(lives, g / (1 - dropout), 0.0)
        place = sv * N * D + r.to(tl.int64)[:, None] * D + d[None, :]
        before = tl.load(z + place, mask=use, other=0.0) + b[None, :]
        if NORM:
            y = before
            if FIRST == 0:
                y = tl.maximum(y, 0.0)
            x = (y - mean[None, :]) * scale[None, :]
            if FIRST:
                own = tl.load(gamma + s * bias_stride + d, mask=col, other=0.0)
                shift = tl.load(beta + s * bias_stride + d, mask=col, other=0.0)
                g = tl.where(x * own[None, :] + shift[None, :] > 0, g, 0.0)
            g = weight[None, :] * (g - g_mean[None, :] - x * gx_mean[None, :])
        g = tl.where(use, g, 0.0)
        if FIRST == 0:
            g = tl.where(before > 0, g, 0.0)
        tl.store(dz + place, g, mask=(r < N)[:, None] & col[None, :])
        total += tl.sum(g, 0)
    tl.store(part + (sv * C + c) * D + d, total, mask=col)
