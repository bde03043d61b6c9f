"""The GRU's recurrence as one kernel a direction.

A run's units are shared out among programs, each of which keeps its part of the recurrent weights
in registers. They meet after every element of the sequence by counting in memory, so all of them
must be on the device at the same time: the caller launches no more than it has processors.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lg2ar.fast.kernels.compiling import kernel


@triton.jit
def _meet(counter, everyone):
    """Wait until all programs of a run have come here."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release", scope="gpu")
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < everyone:
        pass
    tl.debug_barrier()


@kernel
def recur(
    inputs,
    weight,
    bias,
    states,
    saved,
    counter,
    T,
    H,
    run_stride,
    bias_stride,
    G: tl.constexpr,
    U: tl.constexpr,
    BH: tl.constexpr,
):
    """States ``h_1 .. h_T`` from ``h_0 = 0``; saves gates and the new state's recurrent part."""
    s = (tl.program_id(0) // G).to(tl.int64)
    i = (tl.program_id(0) % G) * U + tl.arange(0, U)
    k = tl.arange(0, BH)
    mine = i < H
    all_of = k < H
    weight += s * run_stride
    bias += s * bias_stride
    use = mine[:, None] & all_of[None, :]
    at = i[:, None] * H + k[None, :]
    w_r = tl.load(weight + at, mask=use, other=0.0)
    w_z = tl.load(weight + H * H + at, mask=use, other=0.0)
    w_n = tl.load(weight + 2 * H * H + at, mask=use, other=0.0)
    b_r = tl.load(bias + i, mask=mine, other=0.0)
    b_z = tl.load(bias + H + i, mask=mine, other=0.0)
    b_n = tl.load(bias + 2 * H + i, mask=mine, other=0.0)
    inputs += s * T * 3 * H
    saved += s * T * 4 * H
    states += s * (T + 1) * H
    own = tl.zeros((U,), tl.float32)
    for t in range(T):
        h = tl.load(states + t * H + k, mask=all_of, other=0.0, volatile=True)
        x = inputs + t * 3 * H
        a_r = tl.load(x + i, mask=mine, other=0.0) + tl.sum(w_r * h[None, :], 1) + b_r
        a_z = tl.load(x + H + i, mask=mine, other=0.0) + tl.sum(w_z * h[None, :], 1) + b_z
        q = tl.sum(w_n * h[None, :], 1) + b_n
        r = tl.sigmoid(a_r)
        z = tl.sigmoid(a_z)
        a_n = tl.load(x + 2 * H + i, mask=mine, other=0.0) + r * q
        n = 2 * tl.sigmoid(2 * a_n) - 1
        own = (1 - z) * n + z * own
        tl.store(states + (t + 1) * H + i, own, mask=mine)
        keep = saved + t * 4 * H
        tl.store(keep + i, r, mask=mine)
        tl.store(keep + H + i, z, mask=mine)
        tl.store(keep + 2 * H + i, n, mask=mine)
        tl.store(keep + 3 * H + i, q, mask=mine)
        if t + 1 < T:
            _meet(counter + s, (t + 1) * G)


@kernel
def recur_backward(
    weight,
    states,
    saved,
    last_gradient,
    from_inputs,
    from_states,
    counter,
    T,
    H,
    run_stride,
    G: tl.constexpr,
    U: tl.constexpr,
    BH: tl.constexpr,
):
    """Gradients before the gates' activations: of the inputs' part and of the states' part."""
    s = (tl.program_id(0) // G).to(tl.int64)
    i = (tl.program_id(0) % G) * U + tl.arange(0, U)
    k = tl.arange(0, BH)
    mine = i < H
    all_of = k < H
    weight += s * run_stride
    use = mine[:, None] & all_of[None, :]
    at = k[None, :] * H + i[:, None]  # transposed
    w_r = tl.load(weight + at, mask=use, other=0.0)
    w_z = tl.load(weight + H * H + at, mask=use, other=0.0)
    w_n = tl.load(weight + 2 * H * H + at, mask=use, other=0.0)
    states += s * (T + 1) * H
    saved += s * T * 4 * H
    from_inputs += s * T * 3 * H
    from_states += s * T * 3 * H
    g = tl.load(last_gradient + s * H + i, mask=mine, other=0.0)
    for back in range(T):
        t = T - 1 - back
        keep = saved + t * 4 * H
        r = tl.load(keep + i, mask=mine, other=0.0)
        z = tl.load(keep + H + i, mask=mine, other=0.0)
        n = tl.load(keep + 2 * H + i, mask=mine, other=0.0)
        q = tl.load(keep + 3 * H + i, mask=mine, other=0.0)
        before = tl.load(states + t * H + i, mask=mine, other=0.0)
        a_n = g * (1 - z) * (1 - n * n)
        a_z = g * (before - n) * z * (1 - z)
        a_r = a_n * q * r * (1 - r)
        d_q = a_n * r
        x = from_inputs + t * 3 * H
        tl.store(x + i, a_r, mask=mine)
        tl.store(x + H + i, a_z, mask=mine)
        tl.store(x + 2 * H + i, a_n, mask=mine)
        y = from_states + t * 3 * H
        tl.store(y + i, a_r, mask=mine)
        tl.store(y + H + i, a_z, mask=mine)
        tl.store(y + 2 * H + i, d_q, mask=mine)
        if t > 0:
            _meet(counter + s, (back + 1) * G)
            g_r = tl.load(y + k, mask=all_of, other=0.0, volatile=True)
            g_z = tl.load(y + H + k, mask=all_of, other=0.0, volatile=True)
            g_n = tl.load(y + 2 * H + k, mask=all_of, other=0.0, volatile=True)
            g = g * z + tl.sum(w_r * g_r[None, :] + w_z * g_z[None, :] + w_n * g_n[None, :], 1)
