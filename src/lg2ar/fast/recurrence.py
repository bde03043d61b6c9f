"""The GRU of many runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lg2ar.fast.arrangement import UNITS, processors_of
from lg2ar.fast.dense import block_of, multiply, outer
from lg2ar.fast.kernels import recurrence


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, lanes: int, x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> Tensor:
        runs, steps, hidden = x.size(0), x.size(1), w_hh.size(2)
        inputs = multiply(x, w_ih.transpose(1, 2)) + b_ih.unsqueeze(1)
        states = x.new_zeros(runs, steps + 1, hidden)
        saved = x.new_empty(runs, steps, 4, hidden)
        for wave, units, programs in _waves(runs, hidden, x.device, lanes):
            counter = torch.zeros(runs, dtype=torch.int32, device=x.device)
            recurrence.recur[((wave.stop - wave.start) * programs,)](
                inputs[wave],
                w_hh[wave],
                b_hh[wave],
                states[wave],
                saved[wave],
                counter,
                steps,
                hidden,
                w_hh.stride(0),
                b_hh.stride(0),
                G=programs,
                U=units,
                BH=block_of(hidden, 1 << 20),
                num_warps=8 if hidden >= 256 else 4,
            )
        ctx.save_for_backward(x, w_ih, w_hh, states, saved)
        ctx.lanes = lanes
        return states[:, -1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w_ih, w_hh, states, saved = ctx.saved_tensors
        runs, steps, hidden = x.size(0), x.size(1), w_hh.size(2)
        g = g.contiguous()
        from_inputs, from_states = (x.new_empty(runs, steps, 3 * hidden) for _ in range(2))
        for wave, units, programs in _waves(runs, hidden, x.device, ctx.lanes):
            counter = torch.zeros(runs, dtype=torch.int32, device=x.device)
            recurrence.recur_backward[((wave.stop - wave.start) * programs,)](
                w_hh[wave],
                states[wave],
                saved[wave],
                g[wave],
                from_inputs[wave],
                from_states[wave],
                counter,
                steps,
                hidden,
                w_hh.stride(0),
                G=programs,
                U=units,
                BH=block_of(hidden, 1 << 20),
                num_warps=8 if hidden >= 256 else 4,
            )
        d_x = multiply(from_inputs, w_ih) if ctx.needs_input_grad[1] else None
        return (
            None,
            d_x,
            outer(from_inputs, x),
            outer(from_states, states[:, :-1]),
            from_inputs.sum(1),
            from_states.sum(1),
        )


def _waves(
    runs: int, hidden: int, device: torch.device, lanes: int
) -> list[tuple[slice, int, int]]:
    """Which runs to launch together, how many units a program has, how many programs a run.

    All programs of all lanes must find room at the same time, as they wait for each other.
    """
    if device.type == "cuda":
        processors, units = max(1, processors_of(device) // lanes), UNITS
        while -(-hidden // units) > processors:
            units *= 2
        programs = -(-hidden // units)
    else:  # the interpreter runs one program after another, so one must do
        processors, units, programs = 1, block_of(hidden, 1 << 20), 1
    many = max(1, processors // programs)
    return [(slice(at, min(at + many, runs)), units, programs) for at in range(0, runs, many)]


def gru(lanes: int, x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    """The last state of a GRU over ``[S, T, d]``, ``[S, h]``, with so many lanes on the device."""
    last: Tensor = _GRU.apply(lanes, x, w_ih, w_hh, b_ih, b_hh)  # type: ignore[no-untyped-call]
    return last
