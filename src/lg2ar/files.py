"""Files that are whole or not there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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
    """Append one line to a file, alone among all processes that do, and see it on the disk.

    Where a power cut left the last line without its end, the new one begins a line of its own.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+") as file, _alone_with(file):
            start = b""
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                start = b"" if file.read(1) == b"\n" else b"\n"
            file.write(start + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None


def mend_lines(path: Path) -> None:
    """Cut off a last line that is the beginning of a JSON object without its end."""
    try:
        with open(path, "rb+") as file, _alone_with(file):
            content = file.read()
            whole = content.rfind(b"\n") + 1
            try:
                json.loads(content[whole:] or "{}")
            except (ValueError, RecursionError):
                file.truncate(whole)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None


def check_writable(path: Path) -> None:
    """Refuse a file that nothing could be appended to; one that is not there is made, empty."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        open(path, "ab").close()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None


@contextmanager
def _alone_with(file: IO[bytes]) -> Iterator[None]:
    """Hold a file's lock, where the system has such; it is given back when the file is closed."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
    yield
