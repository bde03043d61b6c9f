"""The heads' draws and the weights of the views, for the views of many runs at once.

``kind`` tells which augmentation makes each view; work that its view does not need is skipped.
Noise is a function of a run's key, a *site* (which draw it is for) and the place in the batch:
neither padding nor the other runs beside it change what a run draws.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lg2ar.fast.kernels.compiling import kernel

# What makes a view.
IDENTITY = 0
NODE_DROPPING = 1
EDGE_PERTURBATION = 2
SUB_GRAPH = 3
FEATURE_MASKING = 4

# Sites of noise, each for up to two views; a coin takes two, two apart. Dropout's come behind them.
SITE_POLICY = 0
SITE_NODES = 2
SITE_NEGATIVE = 4
SITE_SHIFT = 6
SITE_COIN = 8
SITE_NEW_COIN = 12
SITE_FEATURES = 16
SITE_DROPOUT = 32

# The same, as kernels read them.
_DROPPING = tl.constexpr(NODE_DROPPING)
_PERTURBATION = tl.constexpr(EDGE_PERTURBATION)
_SUB_GRAPH = tl.constexpr(SUB_GRAPH)
_MASKING = tl.constexpr(FEATURE_MASKING)
_NODES = tl.constexpr(SITE_NODES)
_NEGATIVE = tl.constexpr(SITE_NEGATIVE)
_SHIFT = tl.constexpr(SITE_SHIFT)
_COIN = tl.constexpr(SITE_COIN)
_NEW_COIN = tl.constexpr(SITE_NEW_COIN)
_FEATURES = tl.constexpr(SITE_FEATURES)


@triton.jit
def gumbel(u):
    """Standard Gumbel noise of uniform numbers."""
    return -tl.log(-tl.log(tl.maximum(u, 1.1754943508222875e-38)))


@triton.jit
def logistic(key, site, index):
    """Difference of two Gumbel numbers, the noise of a relaxed coin."""
    return gumbel(tl.rand(key + site, index)) - gumbel(tl.rand(key + site + 2, index))


@kernel
def uniforms(keys, out, site, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """``COUNT`` uniform numbers for every run."""
    s = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    tl.store(out + s * COUNT + i, tl.rand(tl.load(keys + s) + site, i), mask=i < COUNT)


@kernel
def node_keys(
    logits,
    kind,
    keys,
    out,
    N,
    V: tl.constexpr,
    K: tl.constexpr,
    DROP_AT: tl.constexpr,
    SUB_AT: tl.constexpr,
    BR: tl.constexpr,
):
    """Logits plus Gumbel noise, of the head that makes the view."""
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    what = tl.load(kind + sv)
    if (what == _DROPPING) | (what == _SUB_GRAPH):
        at = tl.where(what == _DROPPING, DROP_AT, SUB_AT)
        logit = tl.load(logits + (s * K + at) * N + r, mask=r < N, other=0.0)
        noise = gumbel(tl.rand(tl.load(keys + s) + _NODES + sv % V, r))
        tl.store(out + sv * N + r, logit + noise, mask=r < N)


@kernel
def keep_nodes(
    noisy,
    kind,
    ptr,
    home,
    order,
    wanted,
    level,
    N,
    B,
    FAR,
    V: tl.constexpr,
    BR: tl.constexpr,
    BJ: tl.constexpr,
):
    """Level 0 at the nodes that are kept (or are a centre), ``FAR`` elsewhere.

    A node's rank is how many of its graph's nodes come before it, counted.
    """
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    first = tl.program_id(0) * BR
    r = first + tl.arange(0, BR)
    what = tl.load(kind + sv)
    number = tl.load(ptr + s * (B + 1) + B)
    real = r < number
    kept = real
    if ((what == _DROPPING) | (what == _SUB_GRAPH)) & (first < number):
        last = tl.minimum(first + BR, number) - 1
        home += s * N
        b = tl.load(home + r, mask=real, other=B)
        begin = tl.load(ptr + s * (B + 1) + tl.load(home + first))
        end = tl.load(ptr + s * (B + 1) + tl.load(home + last) + 1)
        mine = tl.load(noisy + sv * N + r, mask=real, other=0.0)
        rank = tl.zeros((BR,), tl.int32)
        for at in range(begin, end, BJ):
            j = at + tl.arange(0, BJ)
            there = j < end
            other = tl.load(noisy + sv * N + j, mask=there, other=0.0)
            other_home = tl.load(home + j, mask=there, other=-1)
            ahead = (other[None, :] > mine[:, None]) | (
                (other[None, :] == mine[:, None]) & (j[None, :] < r[:, None])
            )
            ahead = ahead & (other_home[None, :] == b[:, None])
            rank += tl.sum(ahead.to(tl.int32), 1)
        graph = tl.load(order + s * B + b, mask=real, other=0)
        limit = tl.where(what == _DROPPING, tl.load(wanted + graph, mask=real, other=0), 1)
        kept = real & (rank < limit)
    tl.store(level + sv * N + r, tl.where(kept, 0, FAR), mask=r < N)


@kernel
def next_hop(level, kind, ptr, row, col, hop, N, B, E, FAR, V: tl.constexpr, BE: tl.constexpr):
    """Give the nodes next to a level below ``hop`` that level; in place, as levels only differ."""
    place = tl.program_id(0)
    sv = (place // N).to(tl.int64)
    r = place % N
    s = sv // V
    if tl.load(kind + sv) == _SUB_GRAPH:
        if r < tl.load(ptr + s * (B + 1) + B):
            level += sv * N
            if tl.load(level + r) == FAR:
                start = tl.load(row + s * (N + 1) + r)
                end = tl.load(row + s * (N + 1) + r + 1)
                nearest = tl.full((BE,), 2147483647, tl.int32)
                for at in range(start, end, BE):
                    e = at + tl.arange(0, BE)
                    c = tl.load(col + s * E + e, mask=e < end, other=0)
                    near = tl.load(level + c, mask=e < end, other=2147483647)
                    nearest = tl.minimum(nearest, near)
                if tl.min(nearest, 0) < hop:
                    tl.store(level + r, hop)


@triton.jit
def _share(rank, many, ranges):
    """``rank * many // ranges`` without leaving 64 bits."""
    return rank * (many // ranges) + rank * (many % ranges) // ranges


@kernel
def negative_pairs(
    kind,
    keys,
    ptr,
    pair_ptr,
    graph_of_pair,
    gap,
    u,
    v,
    valid,
    P,
    B,
    STEPS,
    V: tl.constexpr,
    BP: tl.constexpr,
):
    """Draw an unjoined pair of the same graph for every joined one: exact, without rejection."""
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    there = p < P
    good = tl.zeros((BP,), tl.int1)
    a = tl.zeros((BP,), tl.int64)
    c = tl.zeros((BP,), tl.int64)
    if tl.load(kind + sv) == _PERTURBATION:
        b = tl.load(graph_of_pair + s * P + p, mask=there, other=B)
        real = b < B
        node = tl.load(ptr + s * (B + 1) + b, mask=real, other=0)
        n = (tl.load(ptr + s * (B + 1) + b + 1, mask=real, other=1) - node).to(tl.int64)
        begin = tl.load(pair_ptr + s * (B + 1) + b, mask=real, other=0)
        end = tl.load(pair_ptr + s * (B + 1) + b + 1, mask=real, other=0)
        taken = (end - begin).to(tl.int64)
        free = n * (n - 1) // 2 - taken
        wanted = tl.minimum(taken, free)
        rank = (p - begin).to(tl.int64)
        good = real & (rank < wanted)
        many = tl.maximum(free, 1)
        ranges = tl.maximum(wanted, 1)
        low = _share(rank, many, ranges)
        width = _share(rank + 1, many, ranges) - low
        key = tl.load(keys + s)
        draw = tl.rand(key + _NEGATIVE + sv % V, p).to(tl.float64)
        shift = tl.rand(key + _SHIFT + sv % V, b).to(tl.float64)
        missing = low + (draw * width.to(tl.float64)).to(tl.int64)
        missing = (missing + (shift * free.to(tl.float64)).to(tl.int64)) % many
        # How many joined pairs come before the k-th unjoined one: those with gap <= k.
        left = begin
        right = end
        for _ in range(STEPS):
            middle = (left + right) // 2
            go = good & (left < right)
            below = tl.load(gap + s * P + middle, mask=go, other=0).to(tl.int64) <= missing
            left = tl.where(go & below, middle + 1, left)
            right = tl.where(go & (below == 0), middle, right)
        number = missing + (left - begin).to(tl.int64)
        c = ((1 + tl.sqrt((1 + 8 * number).to(tl.float64))) / 2).to(tl.int64)
        # The root is rounded: step to the exact answer, which is at most one away.
        c = tl.where(c * (c - 1) // 2 > number, c - 1, c)
        c = tl.where(c * (c + 1) // 2 <= number, c + 1, c)
        a = tl.where(good, number - c * (c - 1) // 2 + node, 0)
        c = tl.where(good, c + node, 0)
    tl.store(u + sv * P + p, a.to(tl.int32), mask=there)
    tl.store(v + sv * P + p, c.to(tl.int32), mask=there)
    tl.store(valid + sv * P + p, good.to(tl.int8), mask=there)


@kernel
def pair_logits(
    z,
    extra,
    bias,
    last,
    last_bias,
    wanted,
    valid,
    u,
    v,
    out,
    N,
    P,
    D,
    z_stride,
    extra_stride,
    weight_stride,
    V: tl.constexpr,
    EXISTS: tl.constexpr,
    BP: tl.constexpr,
    BD: tl.constexpr,
):
    """``w . relu(z_u + z_v + e 1[exists] + b) + c`` of every pair: edge perturbation's MLP."""
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    there = p < P
    if tl.load(wanted + sv) != 0:
        if EXISTS == 0:
            there = there & (tl.load(valid + sv * P + p, mask=there, other=0) != 0)
        a = tl.load(u + sv * P + p, mask=there, other=0).to(tl.int64)
        b = tl.load(v + sv * P + p, mask=there, other=0).to(tl.int64)
        z += s * N * z_stride
        total = tl.zeros((BP,), tl.float32) + tl.load(last_bias + s * weight_stride)
        for start in range(0, D, BD):
            d = start + tl.arange(0, BD)
            col = d < D
            use = there[:, None] & col[None, :]
            add = tl.load(bias + s * weight_stride + d, mask=col, other=0.0)
            if EXISTS:
                add += tl.load(extra + s * weight_stride + d * extra_stride, mask=col, other=0.0)
            h = tl.load(z + a[:, None] * z_stride + d[None, :], mask=use, other=0.0)
            h += tl.load(z + b[:, None] * z_stride + d[None, :], mask=use, other=0.0)
            h = tl.maximum(h + add[None, :], 0.0)
            w = tl.load(last + s * weight_stride + d, mask=col, other=0.0)
            total += tl.sum(h * w[None, :], 1)
        tl.store(out + sv * P + p, total, mask=there)


@kernel
def pair_logits_to_weights(
    z,
    extra,
    bias,
    last,
    wanted,
    u,
    v,
    g,
    part_hidden,
    part_last,
    N,
    P,
    D,
    C,
    z_stride,
    extra_stride,
    weight_stride,
    V: tl.constexpr,
    EXISTS: tl.constexpr,
    BP: tl.constexpr,
    BD: tl.constexpr,
):
    """Sums over a chunk of pairs of the gradients of hidden bias and last weights."""
    sv = tl.program_id(0).to(tl.int64)
    s = sv // V
    c = tl.program_id(1)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    col = d < D
    hidden = tl.zeros((BD,), tl.float32)
    output = tl.zeros((BD,), tl.float32)
    if tl.load(wanted + sv) != 0:
        z += s * N * z_stride
        add = tl.load(bias + s * weight_stride + d, mask=col, other=0.0)
        if EXISTS:
            add += tl.load(extra + s * weight_stride + d * extra_stride, mask=col, other=0.0)
        w = tl.load(last + s * weight_stride + d, mask=col, other=0.0)
        rows = tl.cdiv(tl.cdiv(P, C), BP) * BP
        for at in range(c * rows, min((c + 1) * rows, P), BP):
            p = at + tl.arange(0, BP)
            there = p < P
            grad = tl.load(g + sv * P + p, mask=there, other=0.0)
            there = there & (grad != 0)
            a = tl.load(u + sv * P + p, mask=there, other=0).to(tl.int64)
            b = tl.load(v + sv * P + p, mask=there, other=0).to(tl.int64)
            use = there[:, None] & col[None, :]
            h = tl.load(z + a[:, None] * z_stride + d[None, :], mask=use, other=0.0)
            h += tl.load(z + b[:, None] * z_stride + d[None, :], mask=use, other=0.0)
            h += add[None, :]
            live = use & (h > 0)
            hidden += tl.sum(tl.where(live, grad[:, None] * w[None, :], 0.0), 0)
            output += tl.sum(tl.where(live, grad[:, None] * h, 0.0), 0)
    tl.store(part_hidden + (sv * C + c) * D + d, hidden, mask=col)
    tl.store(part_last + (sv * C + c) * D + d, output, mask=col)


@triton.jit
def _add_pairs(
    total, z, own, add, w, col_of, pair_of, g, start, end, d, inside, z_stride, BE: tl.constexpr
):
    for at in range(start, end, BE):
        e = at + tl.arange(0, BE)
        there = e < end
        other = tl.load(col_of + e, mask=there, other=0).to(tl.int64)
        p = tl.load(pair_of + e, mask=there, other=0)
        grad = tl.load(g + p, mask=there, other=0.0)
        there = there & (grad != 0)
        use = there[:, None] & inside[None, :]
        h = tl.load(z + other[:, None] * z_stride + d[None, :], mask=use, other=0.0)
        live = use & (h + own[None, :] + add[None, :] > 0)
        total += tl.sum(tl.where(live, grad[:, None] * w[None, :], 0.0), 0)
    return total


@kernel
def pair_logits_to_nodes(
    z,
    extra,
    bias,
    last,
    wanted,
    g,
    row,
    col,
    pair,
    new_g,
    new_row,
    new_col,
    new_pair,
    out,
    N,
    E,
    P,
    D,
    z_stride,
    extra_stride,
    weight_stride,
    V: tl.constexpr,
    BE: tl.constexpr,
    BD: tl.constexpr,
):
    """Gradient of ``z``: over a node's own pairs, and the new pairs of every view."""
    place = tl.program_id(0)
    s = (place // N).to(tl.int64)
    r = place % N
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    inside = d < D
    total = tl.zeros((BD,), tl.float32)
    if tl.load(wanted + s) != 0:
        z += s * N * z_stride
        own = tl.load(z + r.to(tl.int64) * z_stride + d, mask=inside, other=0.0)
        add = tl.load(bias + s * weight_stride + d, mask=inside, other=0.0)
        w = tl.load(last + s * weight_stride + d, mask=inside, other=0.0)
        more = tl.load(extra + s * weight_stride + d * extra_stride, mask=inside, other=0.0)
        start = tl.load(row + s * (N + 1) + r)
        end = tl.load(row + s * (N + 1) + r + 1)
        total = _add_pairs(
            total,
            z,
            own,
            add + more,
            w,
            col + s * E,
            pair + s * E,
            g + s * P,
            start,
            end,
            d,
            inside,
            z_stride,
            BE,
        )
        for v in range(V):
            sv = s * V + v
            start = tl.load(new_row + sv * (N + 1) + r)
            end = tl.load(new_row + sv * (N + 1) + r + 1)
            total = _add_pairs(
                total,
                z,
                own,
                add,
                w,
                new_col,
                new_pair,
                new_g + sv * P,
                start,
                end,
                d,
                inside,
                z_stride,
                BE,
            )
    tl.store(out + (s * N + r) * D + d, total, mask=inside)


@kernel
def pair_weights(
    kind,
    keys,
    level,
    p_drop,
    p_sub,
    size,
    logits,
    new_logits,
    valid,
    graph_of_pair,
    u,
    v,
    weight,
    new_weight,
    N,
    P,
    B,
    HOPS,
    V: tl.constexpr,
    RELATIVE: tl.constexpr,
    ONE: tl.constexpr,
    NEW: tl.constexpr,
    BP: tl.constexpr,
):
    """Weight of every pair of a view, zero where it is cut, and of every new pair."""
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    there = p < P
    what = tl.load(kind + sv)
    b = tl.load(graph_of_pair + s * P + p, mask=there, other=B)
    real = b < B
    w = real.to(tl.float32)
    new = tl.zeros((BP,), tl.float32)
    if (what == _DROPPING) | (what == _SUB_GRAPH):
        a = tl.load(u + s * P + p, mask=real, other=0)
        c = tl.load(v + s * P + p, mask=real, other=0)
        limit = tl.where(what == _SUB_GRAPH, HOPS, 0)
        kept = real & (tl.load(level + sv * N + a, mask=real, other=0) <= limit)
        kept = kept & (tl.load(level + sv * N + c, mask=real, other=0) <= limit)
        if ONE == 0:
            prob = p_drop if what == _DROPPING else p_sub
            w = tl.load(prob + s * N + a, mask=kept, other=0.0)
            w += tl.load(prob + s * N + c, mask=kept, other=0.0)
            if RELATIVE:
                w *= tl.load(size + s * B + b, mask=kept, other=0.0) * 0.5
        w = tl.where(kept, w, 0.0)
    if what == _PERTURBATION:
        key = tl.load(keys + s)
        logit = tl.load(logits + s * P + p, mask=real, other=0.0)
        kept = real & (logit + logistic(key, _COIN + sv % V, p) > 0)
        w = tl.where(kept, 1.0 if ONE else tl.sigmoid(logit), 0.0)
        if NEW:
            good = tl.load(valid + sv * P + p, mask=there, other=0) != 0
            logit = tl.load(new_logits + sv * P + p, mask=good, other=0.0)
            kept = good & (logit + logistic(key, _NEW_COIN + sv % V, p) > 0)
            new = tl.where(kept, 1.0 if ONE else tl.sigmoid(logit), 0.0)
    tl.store(weight + sv * P + p, w, mask=there)
    if NEW:
        tl.store(new_weight + sv * P + p, new, mask=there)


@kernel
def pair_weights_to_logits(
    kind,
    weight,
    new_weight,
    g,
    new_g,
    logits,
    new_logits,
    out,
    new_out,
    P,
    V: tl.constexpr,
    BP: tl.constexpr,
):
    """Gradient of edge perturbation's logits: of a run's pairs, and of each view's new ones."""
    s = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    there = p < P
    total = tl.zeros((BP,), tl.float32)
    for v in range(V):
        sv = s * V + v
        new = tl.zeros((BP,), tl.float32)
        if tl.load(kind + sv) == _PERTURBATION:
            kept = there & (tl.load(weight + sv * P + p, mask=there, other=0.0) != 0)
            q = tl.sigmoid(tl.load(logits + s * P + p, mask=kept, other=0.0))
            total += tl.load(g + sv * P + p, mask=kept, other=0.0) * q * (1 - q)
            kept = there & (tl.load(new_weight + sv * P + p, mask=there, other=0.0) != 0)
            q = tl.sigmoid(tl.load(new_logits + sv * P + p, mask=kept, other=0.0))
            new = tl.load(new_g + sv * P + p, mask=kept, other=0.0) * q * (1 - q)
        tl.store(new_out + sv * P + p, new, mask=there)
    tl.store(out + s * P + p, total, mask=there)


@kernel
def pair_weights_to_nodes(
    kind,
    weight,
    g,
    size,
    home,
    row,
    pair,
    out,
    N,
    B,
    E,
    P,
    WHAT: tl.constexpr,
    V: tl.constexpr,
    RELATIVE: tl.constexpr,
    BE: tl.constexpr,
):
    """Gradient of one head's node probabilities: the sum over the pairs of each node."""
    place = tl.program_id(0)
    s = (place // N).to(tl.int64)
    r = place % N
    total = tl.zeros((BE,), tl.float32)
    start = tl.load(row + s * (N + 1) + r)
    end = tl.load(row + s * (N + 1) + r + 1)
    for v in range(V):
        sv = s * V + v
        if tl.load(kind + sv) == WHAT:
            for at in range(start, end, BE):
                e = at + tl.arange(0, BE)
                p = tl.load(pair + s * E + e, mask=e < end, other=0)
                w = tl.load(weight + sv * P + p, mask=e < end, other=0.0)
                total += tl.load(g + sv * P + p, mask=(e < end) & (w != 0), other=0.0)
    grad = tl.sum(total, 0)
    if RELATIVE:
        b = tl.minimum(tl.load(home + s * N + r), B - 1)
        grad *= tl.load(size + s * B + b) * 0.5
    tl.store(out + s * N + r, grad)


@kernel
def mask_features(
    x,
    projected,
    logits,
    kind,
    keys,
    out,
    N,
    D,
    V: tl.constexpr,
    BR: tl.constexpr,
    BD: tl.constexpr,
):
    """Features of every view: masked where feature masking makes it, untouched elsewhere."""
    sv = tl.program_id(1).to(tl.int64)
    s = sv // V
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    use = (r < N)[:, None] & (d < D)[None, :]
    at = r[:, None] * D + d[None, :]
    place = s * N * D + at
    if tl.load(kind + sv) == _MASKING:
        logit = tl.load(logits + place, mask=use, other=0.0)
        kept = logit + logistic(tl.load(keys + s), _FEATURES + sv % V, at) > 0
        y = tl.where(kept, tl.load(projected + place, mask=use, other=0.0), 0.0)
    else:
        y = tl.load(x + place, mask=use, other=0.0)
    tl.store(out + sv * N * D + at, y, mask=use)


@kernel
def mask_features_backward(
    projected,
    logits,
    kind,
    keys,
    g,
    d_x,
    d_projected,
    d_logits,
    N,
    D,
    temperature,
    V: tl.constexpr,
    BR: tl.constexpr,
    BD: tl.constexpr,
):
    """Gradients of features, projected features and mask logits, over a run's views."""
    s = tl.program_id(1).to(tl.int64)
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    use = (r < N)[:, None] & (d < D)[None, :]
    at = r[:, None] * D + d[None, :]
    place = s * N * D + at
    to_x = tl.zeros((BR, BD), tl.float32)
    to_projected = tl.zeros((BR, BD), tl.float32)
    to_logits = tl.zeros((BR, BD), tl.float32)
    for v in range(V):
        sv = s * V + v
        grad = tl.load(g + sv * N * D + at, mask=use, other=0.0)
        if tl.load(kind + sv) == _MASKING:
            logit = tl.load(logits + place, mask=use, other=0.0)
            noisy = logit + logistic(tl.load(keys + s), _FEATURES + v, at)
            soft = tl.sigmoid(noisy / temperature)
            value = tl.load(projected + place, mask=use, other=0.0)
            to_projected += tl.where(noisy > 0, grad, 0.0)
            to_logits += grad * value * soft * (1 - soft) / temperature
        else:
            to_x += grad
    tl.store(d_x + place, to_x, mask=use)
    tl.store(d_projected + place, to_projected, mask=use)
    tl.store(d_logits + place, to_logits, mask=use)
