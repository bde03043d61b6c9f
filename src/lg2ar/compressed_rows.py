"""Triton kernels for products with compressed rows on a GPU.

Unlike messages that are added up by index they need no memory for an entry's row, and unlike the
vendor's products they promise the same bits every time: each sum is taken by one program, in order.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

# Entries that a program reads at a time, and columns.
ENTRIES, COLUMNS = 16, 128


@triton.jit
def _row_sums(
    x,
    out,
    start,
    other,
    order,
    weight,
    D,
    HAS_ORDER: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    BE: tl.constexpr,
    BD: tl.constexpr,
) -> None:
    """``out_i = sum over the entries e of row i of weight_e * x[other_e]``."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    inside = d < D
    first = tl.load(start + row)
    end = tl.load(start + row + 1)
    total = tl.zeros((BD,), tl.float32)
    for at in range(first, end, BE):
        entry = at + tl.arange(0, BE)
        there = entry < end
        c = tl.load(other + entry, mask=there, other=0)
        values = tl.load(
            x + c[:, None] * D + d[None, :], mask=there[:, None] & inside[None, :], other=0.0
        )
        if HAS_WEIGHT:
            place = entry
            if HAS_ORDER:
                place = tl.load(order + entry, mask=there, other=0)
            values *= tl.load(weight + place, mask=there, other=0.0)[:, None]
        total += tl.sum(values, 0)
    tl.store(out + row * D + d, total, mask=inside)


@triton.jit(do_not_specialize=["E"])  # another for every batch
def _pair_products(
    a,
    b,
    left,
    right,
    out,
    E,
    D,
    BE: tl.constexpr,
    BD: tl.constexpr,
) -> None:
    """``out_e = a[left_e] . b[right_e]``."""
    entry = tl.program_id(0) * BE + tl.arange(0, BE)
    there = entry < E
    i = tl.load(left + entry, mask=there, other=0)
    j = tl.load(right + entry, mask=there, other=0)
    total = tl.zeros((BE,), tl.float32)
    for first in range(0, D, BD):
        d = first + tl.arange(0, BD)
        use = there[:, None] & (d < D)[None, :]
        u = tl.load(a + i[:, None] * D + d[None, :], mask=use, other=0.0)
        v = tl.load(b + j[:, None] * D + d[None, :], mask=use, other=0.0)
        total += tl.sum(u * v, 1)
    tl.store(out + entry, total, mask=there)


def row_sums(
    start: Tensor, other: Tensor, order: Tensor | None, weight: Tensor | None, x: Tensor
) -> Tensor:
    """Sum of weighted rows, those of the entries of each compressed row, ``[N, d]``.

    Args:
        start: Where each row's entries begin, and the end of the last, ``[N + 1]``.
        other: The row of ``x`` that each entry stands for, ``[E]``.
        order: Where each entry's weight is; None where weights lie in the entries' order.
        weight: Of each entry, ``[E]``; None for ones.
        x: Rows, ``[M, d]``.
    """
    x = x.contiguous()
    rows, width = len(start) - 1, x.size(1)
    out = torch.empty(rows, width, dtype=x.dtype, device=x.device)
    if rows and width:
        with _on(x.device):
            _row_sums[(rows, triton.cdiv(width, COLUMNS))](
                x,
                out,
                start,
                other,
                start if order is None else order,
                x if weight is None else weight.contiguous(),
                width,
                HAS_ORDER=order is not None,
                HAS_WEIGHT=weight is not None,
                BE=ENTRIES,
                BD=COLUMNS,
            )
    return out


def pair_products(a: Tensor, b: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``a[left] . b[right]`` of every pair, ``[E]``."""
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty(len(left), dtype=a.dtype, device=a.device)
    if len(left):
        with _on(a.device):
            _pair_products[(triton.cdiv(len(left), ENTRIES),)](
                a, b, left.contiguous(), right.contiguous(), out, len(left), a.size(1),
                BE=ENTRIES, BD=COLUMNS,
            )  # fmt: skip
    return out


@cache
def works_on(device: torch.device) -> bool:
    """Whether the kernels can be compiled and run on a device, found out by a small one."""
    one = torch.ones(1, 1, device=device)
    zero = torch.zeros(1, dtype=torch.long, device=device)
    try:
        return bool(pair_products(one, one, zero, zero).item() == 1)
    except Exception:  # no compiler, a device that is too old, whatever Triton says
        return False


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Launch on a device, which need not be the current one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
