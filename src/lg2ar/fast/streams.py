"""Streams of a device, each made once: a stream brings working memory of its own with it."""

from __future__ import annotations

from functools import cache

import torch


@cache
def stream_beside(device: torch.device, purpose: str, lane: int = 0) -> torch.cuda.Stream:
    """The stream for a purpose, such as capturing; each lane has its own."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
