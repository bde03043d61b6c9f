"""Files that are whole or not there, and that two processes do not write at the same time."""

from __future__ import annotations

import errno
import functools
import glob
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from lg2ar.errors import InputError

LOCK_FILE = ".lg2ar-lock"

P = ParamSpec("P")
R = TypeVar("R")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that it is seen whole or not at all, and survives a power cut."""
    with written_beside(path) as part, open(part, "wb") as file:
        file.write(content)


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A file beside another one, which takes its place at the end, once it is on the disk.

    Where an error comes first it is removed, and what was there before stays. What killed processes
    left behind is removed too.
    """
    remove_leftovers(path.parent, glob.escape(path.name))
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        with open(part, "rb+") as file:
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


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove what killed processes have left of files that they had not written to their end.

    Args:
        folder: Where to look.
        pattern: What the files would have been called.
    """
    for left in folder.glob(f".{pattern}.*.part"):
        if not is_at_work(left.name.split(".")[-2]):
            with suppress(OSError):
                left.unlink()


def is_at_work(process: str) -> bool:
    """Whether another process of that number is running; where that is not told, the file says."""
    if os.name != "posix":
        return False  # what another process has open cannot be removed there
    try:
        os.kill(int(process), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return int(process) != os.getpid()


def is_unwritable(error: BaseException) -> bool:
    """Whether an error says that a disk is full or read-only; PyTorch says it in its own words."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
    return "failed writing file" in str(error)


@contextmanager
def alone_in(folder: str | Path) -> Iterator[None]:
    """Be the only process that writes to a folder; see :func:`alone_with`."""
    folder = Path(folder)
    new = not folder.exists()
    try:
        with _locked(folder / LOCK_FILE, folder):
            yield
    finally:
        if new:
            with suppress(OSError):  # which it is unless nothing came of it
                folder.rmdir()


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Be the only process that writes a file; a lock goes with the process that holds it.

    Raises:
        InputError: Where another process writes it, or nothing can be written there.
    """
    with _locked(path.with_name(f".{path.name}{LOCK_FILE}"), path):
        yield


@contextmanager
def _locked(file: Path, what: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
        if not file.exists():  # removed by the one that held it a moment ago
            raise Timeout(str(file))
    except Timeout:
        raise InputError(
            f"{what}: another process is writing there; wait until it ends, or choose another."
        ) from None
    except OSError as error:
        raise InputError(f"{what}: cannot be written ({error}).") from None
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()
        lock.release()


def writes_alone(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function that is given a folder as ``out`` be alone in it."""

    @functools.wraps(function)
    def alone(*args: P.args, **named: P.kwargs) -> R:
        out = named.get("out")
        with nullcontext() if out is None else alone_in(str(out)):
            return function(*args, **named)

    return alone


def append_line(path: Path, line: str) -> None:
    """Append one line of JSON to a file, alone among all processes that do, and see it on the disk.

    The line is there whole or not at all: what a kill in the middle of an earlier one left is cut
    off first, and so is this one where the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+", buffering=0) as file, _alone_with(file):
            start = _mend(file)
            end = file.seek(0, os.SEEK_END)
            try:
                _write_all(file, start + line.encode() + b"\n")
                os.fsync(file.fileno())
            except BaseException:
                with suppress(OSError):
                    file.truncate(end)
                raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None


def _write_all(file: IO[bytes], content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def mend_lines(path: Path) -> None:
    """Cut off a last line that is the beginning of a JSON object without its end."""
    try:
        with open(path, "rb+") as file, _alone_with(file):
            _mend(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None


def _mend(file: IO[bytes]) -> bytes:
    """Cut off a last record that lacks its end; what a new one must begin with."""
    size = file.seek(0, os.SEEK_END)
    tail = _last_line(file, size)
    if not tail:
        return b""
    try:
        json.loads(tail)
    except (ValueError, RecursionError):
        if tail.startswith(b"{"):  # anything else is not ours to cut
            file.truncate(size - len(tail))
            return b""
    return b"\n"  # the end of the line, which is all it lacks


def _last_line(file: IO[bytes], size: int) -> bytes:
    """What stands behind the last end of a line; files of records are long, so from their end."""
    step = 1 << 16
    while True:
        start = max(0, size - step)
        file.seek(start)
        content = file.read(size - start)
        found = content.rfind(b"\n")
        if found >= 0 or start == 0:
            return content[found + 1 :]
        step *= 4


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
