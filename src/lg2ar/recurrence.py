"""The last state of a GRU on a CPU, without a graph of operations for every element."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _LastState(torch.autograd.Function):
    """Saves gates and states; gradients of weights are one product over the whole sequence."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> Tensor:
        steps, hidden = x.size(0), w_hh.size(1)
        inputs = torch.addmm(b_ih, x, w_ih.t())
        states = x.new_zeros(steps + 1, hidden)
        gates = x.new_empty(steps, 2 * hidden)  # reset and update
        new, heard = x.new_empty(steps, hidden), x.new_empty(steps, hidden)
        for t in range(steps):
            h = torch.addmv(b_hh, w_hh, states[t])
            torch.sigmoid(inputs[t, : 2 * hidden] + h[: 2 * hidden], out=gates[t])
            reset, update = gates[t, :hidden], gates[t, hidden:]
            heard[t] = h[2 * hidden :]
            torch.tanh(torch.addcmul(inputs[t, 2 * hidden :], reset, heard[t]), out=new[t])
            torch.lerp(new[t], states[t], update, out=states[t + 1])
        ctx.save_for_backward(x, w_ih, w_hh, states, gates, new, heard)
        return states[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w_ih, w_hh, states, gates, new, heard = ctx.saved_tensors
        hidden = w_hh.size(1)
        reset, update = gates[:, :hidden], gates[:, hidden:]
        # What the gradient of a state is multiplied by, for all elements at once.
        by_new = (1 - update) * (1 - new * new)
        by_update = (states[:-1] - new) * update * (1 - update)
        by_reset = by_new * heard * reset * (1 - reset)
        factors = torch.cat([by_reset, by_update, by_new * reset], dim=1)
        from_states = torch.empty_like(factors)
        from_new, back = torch.empty_like(new), w_hh.t().contiguous()
        for t in range(x.size(0) - 1, -1, -1):
            torch.mul(by_new[t], g, out=from_new[t])
            torch.mul(factors[t].view(3, -1), g, out=from_states[t].view(3, -1))
            g = torch.addmv(g * update[t], back, from_states[t])
        from_inputs = torch.cat([from_states[:, : 2 * hidden], from_new], dim=1)
        return (
            from_inputs @ w_ih if ctx.needs_input_grad[0] else None,
            from_inputs.t() @ x,
            from_states.t() @ states[:-1],
            from_inputs.sum(0),
            from_states.sum(0),
        )


def last_state(x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor) -> Tensor:
    """The last state of a one-layer GRU over a sequence ``[T, d]``, ``[h]``; differentiable once.

    Args:
        x: The sequence.
        w_ih: Weights of the inputs, as in ``nn.GRU``.
        w_hh: Weights of the states.
        b_ih: Bias of the inputs.
        b_hh: Bias of the states.
    """
    last: Tensor = _LastState.apply(x, w_ih, w_hh, b_ih, b_hh)  # type: ignore[no-untyped-call]
    return last
