"""Sums and softmax over the nodes of each graph; a graph's nodes lie side by side."""

from __future__ import annotations

import triton.language as tl

from lg2ar.fast.kernels.compiling import kernel


@kernel
def segment_sum(x, out, ptr, N, B, D, V: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr):
    """Sum of each graph's rows: one program a graph and block of columns."""
    place = tl.program_id(0)
    sv = (place // B).to(tl.int64)
    b = place % B
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    inside = d < D
    ptr += (sv // V) * (B + 1) + b
    start = tl.load(ptr)
    end = tl.load(ptr + 1)
    total = tl.zeros((BD,), tl.float32)
    x += sv * N * D
    for at in range(start, end, BR):
        r = at + tl.arange(0, BR)
        rows = tl.load(
            x + r[:, None] * D + d[None, :],
            mask=(r < end)[:, None] & inside[None, :],
            other=0.0,
        )
        total += tl.sum(rows, 0)
    tl.store(out + (sv * B + b) * D + d, total, mask=inside)


@kernel
def segment_softmax(logits, out, ptr, N, B, K: tl.constexpr, BR: tl.constexpr):
    """Softmax over each graph's nodes of ``K`` rows of logits for every run."""
    place = tl.program_id(0)
    sk = (place // B).to(tl.int64)
    b = place % B
    ptr += (sk // K) * (B + 1) + b
    start = tl.load(ptr)
    end = tl.load(ptr + 1)
    logits += sk * N
    out += sk * N
    highest = tl.full((BR,), float("-inf"), tl.float32)
    for at in range(start, end, BR):
        r = at + tl.arange(0, BR)
        highest = tl.maximum(highest, tl.load(logits + r, mask=r < end, other=float("-inf")))
    top = tl.max(highest, 0)
    total = tl.zeros((BR,), tl.float32)
    for at in range(start, end, BR):
        r = at + tl.arange(0, BR)
        total += tl.exp(tl.load(logits + r, mask=r < end, other=float("-inf")) - top)
    scale = 1 / tl.sum(total, 0)
    for at in range(start, end, BR):
        r = at + tl.arange(0, BR)
        p = tl.exp(tl.load(logits + r, mask=r < end, other=0.0) - top) * scale
        tl.store(out + r, p, mask=r < end)


@kernel
def segment_softmax_backward(p, g, out, ptr, N, B, K: tl.constexpr, BR: tl.constexpr):
    """``p (g - sum p g)``, the sum over each graph's nodes."""
    place = tl.program_id(0)
    sk = (place // B).to(tl.int64)
    b = place % B
    ptr += (sk // K) * (B + 1) + b
    start = tl.load(ptr)
    end = tl.load(ptr + 1)
    p += sk * N
    g += sk * N
    out += sk * N
    total = tl.zeros((BR,), tl.float32)
    for at in range(start, end, BR):
        r = at + tl.arange(0, BR)
        total += tl.load(p + r, mask=r < end, other=0.0) * tl.load(g + r, mask=r < end, other=0.0)
    mean = tl.sum(total, 0)
    for at in range(start, end, BR):
        r = at + tl.arange(0, BR)
        p_r = tl.load(p + r, mask=r < end, other=0.0)
        g_r = tl.load(g + r, mask=r < end, other=0.0)
        tl.store(out + r, p_r * (g_r - mean), mask=r < end)
