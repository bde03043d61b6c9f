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
    """Append one line to a file in a single write, so that lines never interleave."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab", buffering=0) as file:
            file.write(line.encode() + b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None
