"""Linear layers of many runs, each with its own weights, and what they are made of.

The kernels take one stride for all that is added to columns of one width: weights are views of one
flat buffer, a row a run, or each has rows of its own, one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from lg2ar.fast.kernels import dense


def block_of(width: int, most: int = 128) -> int:
    """Columns that a program takes at a time."""
    return min(int(triton.next_power_of_2(max(1, width))), most)


def chunks_of(rows: int, programs: int, most: int = 64) -> int:
    """Into how many chunks to cut rows: enough to keep a device busy, few enough to add up."""
    wanted = max(1, min(rows // 64, 1024 // max(1, programs), most))
    return 1 << (wanted.bit_length() - 1)


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Multiply matrices in this precision, ``tf32`` or ``float32``."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """Matrix products run by run; a single run's is a plain one, which is faster."""
    if left.size(0) == 1 and left.is_cuda:
        return torch.mm(left[0], right[0]).unsqueeze(0)
    return torch.bmm(left, right)


def outer(left: Tensor, right: Tensor) -> Tensor:
    """``left^T right`` over many rows, ``[S, R, a]`` and ``[S, R, b]`` to ``[S, a, b]``.

    Few large sums would keep few processors busy, so the rows are cut into chunks.
    """
    runs, rows, a = left.shape
    b = right.size(2)
    tiles = runs * -(-a // 128) * -(-b // 128)
    chunks = 1
    while rows % (2 * chunks) == 0 and rows // (2 * chunks) >= 256 and tiles * chunks < 128:
        chunks *= 2
    if chunks == 1:
        return multiply(left.transpose(1, 2), right)
    parts = torch.bmm(
        left.reshape(runs * chunks, -1, a).transpose(1, 2), right.reshape(runs * chunks, -1, b)
    )
    return parts.view(runs, chunks, a, b).sum(1)


def bias_gradient(y: Tensor, g: Tensor, relu: bool) -> tuple[Tensor, Tensor]:
    """Gradient before bias and ReLU, and the bias's."""
    runs, rows, width = g.shape
    g = g.contiguous()
    chunks = chunks_of(rows, runs * -(-width // 64), most=256)
    dz = torch.empty_like(g) if relu else g
    part = g.new_empty(runs, chunks, width)
    block = block_of(width, 64)
    dense.bias_relu_backward[(runs, chunks, -(-width // block))](
        y, g, dz, part, rows, width, chunks, RELU=relu, BR=32, BD=block
    )
    return dz, part.sum(1)


def linear_forward(x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """``relu(x W' + b)``, not differentiable."""
    if x.size(0) == 1 and x.is_cuda:  # the product itself adds the bias
        add = torch._addmm_activation if relu else torch.addmm
        y: Tensor = add(bias[0], x[0], weight[0].t())
        return y.unsqueeze(0)
    y = multiply(x, weight.transpose(1, 2))
    runs, rows, width = y.shape
    block = block_of(width)
    dense.bias_relu[(-(-rows // 32), runs, -(-width // block))](
        y, bias, rows, width, bias.stride(0), RELU=relu, BR=32, BD=block
    )
    return y


class _Linear(torch.autograd.Function):
    """``relu(x W' + b)``, for every run with its own weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y = linear_forward(x, weight, bias, relu)
        ctx.save_for_backward(x, weight, y)
        ctx.relu = relu
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        dz, d_bias = bias_gradient(y, g, ctx.relu)
        d_x = multiply(dz, weight) if ctx.needs_input_grad[0] else None
        d_weight = outer(dz, x) if ctx.needs_input_grad[1] else None
        return d_x, d_weight, d_bias if ctx.needs_input_grad[2] else None, None


def linear(x: Tensor, weight: Tensor, bias: Tensor, relu: bool = False) -> Tensor:
    """``x W' + b`` for rows ``[S, R, a]``, with a ReLU behind it where asked for."""
    y: Tensor = _Linear.apply(x, weight, bias, relu)  # type: ignore[no-untyped-call]
    return y


class _Product(torch.autograd.Function):
    """``x W'``, for every run with its own weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, weight.transpose(1, 2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        d_x = multiply(g, weight) if ctx.needs_input_grad[0] else None
        return d_x, outer(g.contiguous(), x) if ctx.needs_input_grad[1] else None


def product(x: Tensor, weight: Tensor) -> Tensor:
    """``x W'`` for rows ``[S, R, a]``."""
    y: Tensor = _Product.apply(x, weight)  # type: ignore[no-untyped-call]
    return y
