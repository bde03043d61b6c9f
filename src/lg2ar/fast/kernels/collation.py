"""Batches of many runs from one data set that lies on the device."""

from __future__ import annotations

import triton.language as tl

from lg2ar.fast.kernels.compiling import kernel


@kernel
def collate_nodes(
    order,
    ptr,
    all_ptr,
    all_x,
    all_start,
    pair_ptr,
    x,
    home,
    row,
    N,
    B,
    D,
    BR: tl.constexpr,
    BD: tl.constexpr,
):
    """Features, graph and row start of every node; the last program of a run fills the rest."""
    s = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1)
    start = tl.load(ptr + s * (B + 1) + b)
    x += s * N * D
    home += s * N
    row += s * (N + 1)
    edges = 2 * tl.load(pair_ptr + s * (B + 1) + b)
    if b < B:
        end = tl.load(ptr + s * (B + 1) + b + 1)
        graph = tl.load(order + s * B + b)
        first = tl.load(all_ptr + graph)
        for at in range(start, end, BR):
            r = at + tl.arange(0, BR)
            there = r < end
            source = first + (r - start)
            tl.store(home + r, tl.zeros((BR,), tl.int32) + b, mask=there)
            row_start = tl.load(all_start + source, mask=there, other=0) + edges
            tl.store(row + r, row_start, mask=there)
            for block in range(0, D, BD):
                d = block + tl.arange(0, BD)
                use = there[:, None] & (d < D)[None, :]
                value = tl.load(all_x + source[:, None] * D + d[None, :], mask=use, other=0.0)
                tl.store(x + r[:, None] * D + d[None, :], value, mask=use)
    else:
        for at in range(start, N, BR):
            r = at + tl.arange(0, BR)
            there = r < N
            tl.store(home + r, tl.zeros((BR,), tl.int32) + B, mask=there)
            tl.store(row + r, tl.zeros((BR,), tl.int32) + edges, mask=there)
            for block in range(0, D, BD):
                d = block + tl.arange(0, BD)
                use = there[:, None] & (d < D)[None, :]
                tl.store(x + r[:, None] * D + d[None, :], 0.0, mask=use)
        tl.store(row + N, edges)


@kernel
def collate_pairs(
    order,
    ptr,
    pair_ptr,
    all_pair_ptr,
    all_u,
    all_v,
    all_gap,
    all_col,
    all_pair,
    u,
    v,
    gap,
    graph_of_pair,
    col,
    pair,
    P,
    B,
    PARTS: tl.constexpr,
    BP: tl.constexpr,
):
    """Ends and graph of every pair, and the rows' entries; the last program fills the rest."""
    s = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1)
    part = tl.program_id(2)
    start = tl.load(pair_ptr + s * (B + 1) + b)
    u += s * P
    v += s * P
    gap += s * P
    graph_of_pair += s * P
    col += s * 2 * P
    pair += s * 2 * P
    if b < B:
        end = tl.load(pair_ptr + s * (B + 1) + b + 1)
        graph = tl.load(order + s * B + b)
        first = tl.load(all_pair_ptr + graph)
        node = tl.load(ptr + s * (B + 1) + b)
        for at in range(start + part * BP, end, PARTS * BP):
            p = at + tl.arange(0, BP)
            there = p < end
            source = first + (p - start)
            tl.store(u + p, tl.load(all_u + source, mask=there, other=0) + node, mask=there)
            tl.store(v + p, tl.load(all_v + source, mask=there, other=0) + node, mask=there)
            tl.store(gap + p, tl.load(all_gap + source, mask=there, other=0), mask=there)
            tl.store(graph_of_pair + p, tl.zeros((BP,), tl.int32) + b, mask=there)
        for at in range(2 * start + part * BP, 2 * end, PARTS * BP):
            e = at + tl.arange(0, BP)
            there = e < 2 * end
            source = 2 * first + (e - 2 * start)
            tl.store(col + e, tl.load(all_col + source, mask=there, other=0) + node, mask=there)
            tl.store(pair + e, tl.load(all_pair + source, mask=there, other=0) + start, mask=there)
    else:
        for at in range(start + part * BP, P, PARTS * BP):
            p = at + tl.arange(0, BP)
            there = p < P
            nothing = tl.zeros((BP,), tl.int32)
            tl.store(u + p, nothing, mask=there)
            tl.store(v + p, nothing, mask=there)
            tl.store(gap + p, nothing, mask=there)
            tl.store(graph_of_pair + p, nothing + B, mask=there)
