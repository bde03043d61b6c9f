"""Files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

from lg2ar.errors import InputError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is seen whole or not at all, and survives a power cut."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def append_line(path: Path, line: str) -> None:
    """Append one line to a file in a single write, so that lines never interleave.

    Where a power cut left the last line without its end, the new one begins a line of its own.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+", buffering=0) as file:
            start = b""
            if file.tell():
                file.seek(-1, os.SEEK_END)
                start = b"" if file.read(1) == b"\n" else b"\n"
            file.write(start + line.encode() + b"\n")
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None
