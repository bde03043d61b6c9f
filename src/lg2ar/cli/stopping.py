"""Ctrl-C and SIGTERM: the work so far is saved, and how to go on is said."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from lg2ar.files import remove_unfinished

# Seconds that saving may take after SIGTERM. Folders are whole at any moment, so after them the
# process may end wherever it is; whoever sent the signal often sends SIGKILL after ten.
GRACE = 8.0

INTERRUPTED = 128 + signal.SIGINT


class Terminated(KeyboardInterrupt):
    """The system asked the process to end (SIGTERM)."""


# Whether it did, as not every library hands on which interrupt it was; and whether somebody has
# said already how to go on.
_asked, _told = threading.Event(), threading.Event()


def exit_code() -> int:
    """128 and the signal's number, as a shell has it: 143 after SIGTERM, 130 after Ctrl-C."""
    return 128 + signal.SIGTERM if _asked.is_set() else INTERRUPTED


@contextmanager
def told_when_stopped(sentence: str) -> Iterator[None]:
    """Say how to go on when a person or the system stops the work, and end with 130 or 143."""
    try:
        yield
    except KeyboardInterrupt:
        _tell(sentence)
        raise typer.Exit(exit_code()) from None


def tell_rest() -> int:
    """Say how to go on after an interrupt at another place; the exit code."""
    if not _told.is_set():
        _tell("interrupted; the same command begins again.")
    return exit_code()


def _tell(sentence: str) -> None:
    _told.set()
    print(f"lg2ar: {sentence}", file=sys.stderr)


@contextmanager
def stopping_in_time() -> Iterator[None]:
    """Have SIGTERM end the work as Ctrl-C does, and in any case within :data:`GRACE` seconds."""
    _asked.clear()
    _told.clear()
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with _watched():
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    _asked.set()
    raise Terminated


@contextmanager
def _watched() -> Iterator[None]:
    """End the process where it does not itself, because a long computation does not look up."""
    out, into = os.pipe()
    os.set_blocking(into, False)
    before = signal.set_wakeup_fd(into, warn_on_full_buffer=False)
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(out, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        os.close(into)
        watcher.join()
        os.close(out)


def _watch(out: int, ended: threading.Event) -> None:
    while received := os.read(out, 1):
        if received[0] == signal.SIGTERM and not ended.wait(GRACE):
            remove_unfinished()
            sentence = "lg2ar: stopped; the last checkpoint is kept, --resume goes on.\n"
            os.write(2, sentence.encode())
            os._exit(128 + signal.SIGTERM)
