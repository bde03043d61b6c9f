"""A lack of memory, said in one sentence that names the settings to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lg2ar.errors import MemoryShortageError

# What PyTorch says on CPUs and on CUDA devices, and the libraries that it calls.
WORDS = (
    "DefaultCPUAllocator",
    "not enough memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "out of memory",
    "ALLOC_FAILED",
)


def is_shortage(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice."""
    if isinstance(error, MemoryError | MemoryShortageError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS)


@contextmanager
def naming_settings(device: object, **settings: int) -> Iterator[None]:
    """Say which settings to lower where memory does not suffice.

    Args:
        device: Whose memory is used.
        **settings: What it grows with, the most telling first.

    Raises:
        MemoryShortageError: In place of whatever said so.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error) or isinstance(error, MemoryShortageError):
            raise
        *first, last = (f"{name} (now {value})" for name, value in settings.items())
        raise MemoryShortageError(
            f"out of memory on {device}: lower {', '.join(first)} or {last}."
        ) from None
