"""Adam on the flat weights of many runs, each of whose parts is stepped or rests."""

from __future__ import annotations

import triton.language as tl

from lg2ar.fast.kernels.compiling import kernel


@kernel
def adam(
    weights,
    grads,
    first,
    second,
    part,
    stepped,
    correct1,
    correct2,
    factor,
    W,
    groups,
    learning_rate,
    beta1,
    beta2,
    eps,
    weight_decay,
    BLOCK: tl.constexpr,
):
    """One step of Adam for the weights whose part is stepped; the others keep their moments.

    ``correct1`` and ``correct2`` are the bias corrections of each part.
    """
    s = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = i < W
    group = tl.load(part + i, mask=there, other=0).to(tl.int32)
    go = there & (tl.load(stepped + s * groups + group, mask=there, other=0) != 0)
    c1 = tl.load(correct1 + s * groups + group, mask=go, other=1.0)
    c2 = tl.load(correct2 + s * groups + group, mask=go, other=1.0)
    at = s * W + i
    p = tl.load(weights + at, mask=go, other=0.0)
    g = tl.load(grads + at, mask=go, other=0.0) * tl.load(factor + s) + weight_decay * p
    m = tl.load(first + at, mask=go, other=0.0)
    v = tl.load(second + at, mask=go, other=0.0)
    m += (g - m) * (1 - beta1)
    v = v * beta2 + (1 - beta2) * g * g
    p -= learning_rate / c1 * m / (tl.sqrt(v) / tl.sqrt(c2) + eps)
    tl.store(weights + at, p, mask=go)
    tl.store(first + at, m, mask=go)
    tl.store(second + at, v, mask=go)
