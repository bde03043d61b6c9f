"""Ctrl-C and SIGTERM: the work so far is saved, and how to go on is said."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

import typer

from lg2ar.errors import Terminated
from lg2ar.files import remove_unfinished

# Seconds that saving may take after SIGTERM. Folders are whole at any moment, so after them the
# process may end wherever it is; whoever sent the signal often sends SIGKILL after ten.
GRACE = 8.0

# The same for a process that has nothing to save, and may be waiting for others that do not come.
BRIEFLY = 1.0

# Seconds within which another signal is the same wish to stop: a launcher hands on to its processes
# what a terminal had sent them already, and must not disturb them while they save.
REPEAT = 2.0

POLL = 0.1

INTERRUPTED = 128 + signal.SIGINT
SIGNALS = (signal.SIGINT, signal.SIGTERM)

BEGIN_AGAIN = "interrupted; the same command begins again."
GO_ON = "stopped; the last checkpoint is kept, --resume goes on."


@dataclass
class _State:
    """What is known of the stop of this process.

    Attributes:
        number: Of the signal, as not every library hands on which interrupt it was; 0 before one.
        since: When it came; 0 where it came to another process.
        told: Whether somebody has said already how to go on.
        silent: Whether another process speaks for this one.
        limits: Seconds that each signal leaves; one that is missing here leaves any number.
        hurried: Whether other processes wait for this one to end.
        withheld: Whether signals wait for :func:`deliver`, but for those limits.
        sentence: What to say where they have passed.
    """

    number: int = 0
    since: float = 0.0
    told: threading.Event = field(default_factory=threading.Event)
    silent: bool = False
    limits: dict[int, float] = field(default_factory=dict)
    hurried: bool = False
    withheld: bool = False
    sentence: str = GO_ON


_state = _State()


def exit_code() -> int:
    """128 and the signal's number, as a shell has it: 143 after SIGTERM, 130 after Ctrl-C."""
    return 128 + (_state.number or signal.SIGINT)


@contextmanager
def told_when_stopped(sentence: str) -> Iterator[None]:
    """Say how to go on when a person or the system stops the work, and end with 130 or 143."""
    try:
        yield
    except KeyboardInterrupt as error:
        remember(error)
        _tell(sentence)
        raise typer.Exit(exit_code()) from None


def remember(error: KeyboardInterrupt) -> None:
    """Keep which signal it was, also where it was another process that had it."""
    terminated = isinstance(error, Terminated)
    _state.number = _state.number or (signal.SIGTERM if terminated else signal.SIGINT)


def tell_rest() -> int:
    """Say how to go on after an interrupt at another place; the exit code."""
    if not _state.told.is_set():
        _tell(BEGIN_AGAIN)
    return exit_code()


def _tell(sentence: str) -> None:
    _state.told.set()
    if not _state.silent:
        print(f"lg2ar: {sentence}", file=sys.stderr)


def be_silent(silent: bool) -> None:
    """Leave it to another process to say how to go on."""
    _state.silent = silent


def hurry(seconds: float | None = None, sentence: str = GO_ON) -> None:
    """Let any signal, not SIGTERM alone, leave so many seconds; other processes wait for this one.

    Args:
        seconds: How many; None is :data:`GRACE`.
        sentence: What to say where they have passed.
    """
    _state.limits = dict.fromkeys(SIGNALS, GRACE if seconds is None else seconds)
    _state.sentence, _state.hurried = sentence, True


def withhold() -> None:
    """Let signals wait for :func:`deliver`, unless it comes too late for their limits."""
    _state.withheld = True


def deliver() -> None:
    """Be stopped by a signal that waited, and by those that come."""
    _state.withheld = False
    if _state.number:
        _raise(_state.number)


def end_at_once(code: object) -> None:
    """End this process here, where it was stopped and others wait for it.

    Nothing is left to be done, and to take down all libraries takes seconds on a busy machine.
    """
    if _state.hurried and _state.number and isinstance(code, int):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def stopping_in_time(silent: bool = False) -> Iterator[None]:
    """Have SIGTERM end the work as Ctrl-C does, and in any case within :data:`GRACE` seconds.

    Args:
        silent: Whether another process is to say how to go on.
    """
    global _state
    _state = _State(silent=silent, limits={signal.SIGTERM: GRACE})
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    before = {
        number: signal.signal(number, _interrupt)
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup: a signal that is not to count
    }
    try:
        with _watched(), _not_lost():
            # Who started this process may have withheld them until now: see lg2ar.cli.parallel.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
            yield
    finally:
        for number, handler in before.items():
            # The process is about to end: what is handed on late changes nothing about how.
            signal.signal(number, signal.SIG_IGN if _state.since else handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if _state.number and now - _state.since < REPEAT:
        return
    _state.number, _state.since = _state.number or number, now
    if not _state.withheld:
        _raise(number)


def _raise(number: int) -> NoReturn:
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


@contextmanager
def _not_lost() -> Iterator[None]:
    """Raise an interrupt again that came where nothing can be raised, such as in a destructor."""
    before = sys.unraisablehook

    def again(what: sys.UnraisableHookArgs) -> None:
        if not isinstance(what.exc_value, KeyboardInterrupt):
            before(what)
        elif _state.number:
            _state.since -= REPEAT  # not the same signal over again
            soon = threading.Timer(POLL / 10, os.kill, (os.getpid(), _state.number))
            soon.daemon = True
            soon.start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


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
        if _is_late(received[0], ended):
            remove_unfinished()
            if not (_state.told.is_set() or _state.silent):
                os.write(2, f"lg2ar: {_state.sentence}\n".encode())
            os._exit(128 + received[0])


def _is_late(number: int, ended: threading.Event) -> bool:
    """Whether the process has not ended within the limit of a signal, which may change."""
    began = time.monotonic()
    while (seconds := _state.limits.get(number)) is not None:
        left = began + seconds - time.monotonic()
        if left <= 0:
            return True
        if ended.wait(min(left, POLL)):
            return False
    return False
