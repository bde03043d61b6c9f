"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton

# Numbers that differ from batch to batch: a kernel is not compiled anew for each of them.
VARYING = (
    *("B", "R", "C", "T", "W", "groups", "first", "rows", "g_rows", "g_columns"),
    *("hop", "HOPS", "site", "STEPS"),
)


def kernel(function: Callable[..., Any]) -> Any:
    """Make a Triton kernel of a function."""
    return triton.jit(do_not_specialize=VARYING)(function)
