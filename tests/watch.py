"""Watching what operations make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the largest tensor that any operation made anew, views of ``old`` ones left out."""

    def __init__(self, *old: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numel = 0
        self._old = {tensor.untyped_storage().data_ptr() for tensor in old}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor) and value.layout == torch.strided:
                new = value.untyped_storage().data_ptr() not in self._old
                self.numel = max(self.numel, value.numel() * new)
        return result
