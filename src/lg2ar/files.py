"""Files and folders that are whole or not there, and that no two processes write at a time."""

from __future__ import annotations

import errno
import functools
import glob
import json
import os
import shutil
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
    with _in_the_making(_beside(path, "part")) as part:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    _sync_folder(path.parent)


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A new folder beside another one, which takes its place at the end; nobody else writes there.

    Who writes into it sees to it that its files are on the disk. A folder cannot be replaced in one
    step: :func:`bring_back` goes on where a process was killed between the two.

    Raises:
        InputError: Where another process writes it, or nothing can be written there.
    """
    with alone_with(path):
        _tidy(path)
        with _in_the_making(_beside(path, "part")) as part:
            part.mkdir()
            yield part
            _settle(part, path)


def bring_back(path: Path) -> None:
    """Put a folder to its place again that a process was killed at replacing.

    It is the new one, which was whole by then. Nothing is done where a folder is there.

    Raises:
        InputError: Where another process is at it, or nothing can be written there.
    """
    if not path.exists() and _moved_away(path):
        with alone_with(path):
            _bring_back(path)


def tidy(path: Path) -> None:
    """Bring a folder back, and remove what killed processes left beside its place.

    Raises:
        InputError: Where another process is at it, or nothing can be written there.
    """
    with alone_with(path):
        _tidy(path)


def _tidy(path: Path) -> None:
    _bring_back(path)
    remove_leftovers(path.parent, glob.escape(path.name), alone=True)


def _settle(part: Path, path: Path) -> None:
    """Move a whole folder to its place; the old one then lies where it lay, to be removed."""
    old = _beside(path, "old")
    try:
        if path.exists():
            path.rename(old)
        part.rename(path)
    except BaseException:  # an interrupt, too
        if old.exists() and not path.exists():
            old.rename(path)
        raise
    _sync_folder(path.parent)
    if old.exists():
        old.rename(part)


def _bring_back(path: Path) -> None:
    for old in _moved_away(path):
        if not path.exists():
            new = old.with_suffix(".part")
            (new if new.exists() else old).rename(path)
            _sync_folder(path.parent)
        shutil.rmtree(old, ignore_errors=True)


def _moved_away(path: Path) -> list[Path]:
    return list(path.parent.glob(f".{glob.escape(path.name)}.*.old"))


def _beside(path: Path, what: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{what}")


def _sync_folder(folder: Path) -> None:
    """See on the disk what a folder's files are called."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


# What this process is writing and nobody else has any use for.
_UNFINISHED: set[Path] = set()


@contextmanager
def _in_the_making(part: Path) -> Iterator[Path]:
    """A file or folder that is removed at the end, unless it is somewhere else by then."""
    _UNFINISHED.add(part)
    try:
        yield part
    finally:
        _remove(part)
        _UNFINISHED.discard(part)


def remove_unfinished() -> None:
    """Remove what this process is writing, as it is about to end without looking up."""
    for part in list(_UNFINISHED):
        _remove(part)


def remove_leftovers(folder: Path, pattern: str, *, alone: bool = False) -> None:
    """Remove what killed processes have left of what they had not written to its end.

    Args:
        folder: Where to look.
        pattern: What the files or folders would have been called.
        alone: Whether a lock tells that nobody is at work; else the numbers of processes do.
    """
    for left in folder.glob(f".{pattern}.*.part"):
        if alone or not is_at_work(left.name.split(".")[-2]):
            _remove(left)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


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
def in_turn(folder: Path, remedy: str) -> Iterator[None]:
    """Wait until nobody else is at work in a folder, and be at work there alone.

    Args:
        folder: The folder; it is made where it is not there.
        remedy: What to do where it cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / LOCK_FILE, "ab")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error}); {remedy}") from None
    with file, _alone_with(file):  # it stays: others may be waiting for it
        yield


@contextmanager
def among_others(file: Path) -> Iterator[bool]:
    """Hold a lock that several may hold; whether certainly nobody else did when this began.

    Its file stays: others may hold it, and all of them must hold the same one.
    """
    with open(file, "ab") as opened:
        alone = _flock(opened, alone=True, wait=False) is True
        _flock(opened, alone=False, wait=True)
        yield alone


@contextmanager
def _locked(file: Path, what: Path) -> Iterator[None]:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        give_back = _take(file)
    except OSError as error:
        raise InputError(
            f"{what}: cannot be written, as {file.parent} takes no lock file "
            f"({error.strerror or error}); make that folder writable, or choose another."
        ) from None
    if give_back is None:
        raise InputError(
            f"{what}: another process is writing there; wait until it ends, or choose another."
        )
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()
        give_back()


def _take(file: Path) -> Callable[[], None] | None:
    """Lock a file that is there for nothing else; what unlocks it, or None where another has it."""
    if sys.platform == "win32":
        from filelock import FileLock, Timeout

        lock = FileLock(file)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return None
        return lock.release
    while True:
        opened = open(file, "ab")  # noqa: SIM115 - closing it is what unlocks it
        if not _lock(opened, wait=False):
            opened.close()
            return None
        if _is_called(opened, file):
            return opened.close
        opened.close()  # who held it has removed it, and somebody may have made another


def _is_called(opened: IO[bytes], file: Path) -> bool:
    """Whether an open file is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), os.stat(file))
    except FileNotFoundError:
        return False


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
    """Hold a file's lock; it is given back when the file is closed."""
    _lock(file, wait=True)
    yield


def _lock(file: IO[bytes], *, wait: bool) -> bool:
    """Lock an open file, where the system and its disk have such; whether no other process has."""
    return _flock(file, alone=True, wait=wait) is not False


def _flock(file: IO[bytes], *, alone: bool, wait: bool) -> bool | None:
    """Lock an open file, alone or among others; whether that was given, None where none is."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        fcntl.flock(file, how if wait else how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
            raise
        return None
    return True
