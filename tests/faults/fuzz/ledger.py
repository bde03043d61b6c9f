"""What a fuzzing process has done so far, in shared memory: it is known even when it crashes."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

LARGEST = 1 << 16  # bytes of an input


class Ledger:
    """Counts, and the input that is being read.

    Args:
        path: The file that both processes map.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(24 + LARGEST))
        with open(path, "r+b") as file:
            self._held = mmap.mmap(file.fileno(), 24 + LARGEST)

    def begin(self, data: bytes) -> None:
        """An input is about to be read."""
        kept = data[:LARGEST]
        self._held[16:24] = struct.pack("<Q", len(kept))
        self._held[24 : 24 + len(kept)] = kept
        self._add(0)

    def violated(self) -> None:
        """It was not read as it should be."""
        self._add(8)

    @property
    def inputs(self) -> int:
        """How many were begun."""
        return int(struct.unpack("<Q", self._held[0:8])[0])

    @property
    def violations(self) -> int:
        """How many were not read as they should be."""
        return int(struct.unpack("<Q", self._held[8:16])[0])

    @property
    def current(self) -> bytes:
        """The last one begun."""
        (size,) = struct.unpack("<Q", self._held[16:24])
        return bytes(self._held[24 : 24 + size])

    def _add(self, place: int) -> None:
        (number,) = struct.unpack("<Q", self._held[place : place + 8])
        self._held[place : place + 8] = struct.pack("<Q", number + 1)
