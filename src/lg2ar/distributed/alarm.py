"""How a process tells the others that it failed, so that none waits for it for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from torch import distributed

from lg2ar.distributed.team import Team
from lg2ar.errors import LostProcessError, Terminated

# Seconds that processes which know of a failure give each other to save what they have.
PATIENCE = 20.0
# The same where somebody wants them to stop: the first saves within SAVING, the others have nothing
# to save and follow it within FOLLOWING. All of it has to be over within ten.
SAVING, FOLLOWING = 8.0, 3.0
# Seconds within which one that fails can be expected to have said so.
NOTICE = 1.0
POLL = 0.05
# Seconds between two looks of a process that works.
LOOK = 2.0

# How processes tell each other of a wish to stop, and what the first of them raises then.
STOPS: dict[str, type[KeyboardInterrupt]] = {
    "interrupted.": KeyboardInterrupt,
    "terminated.": Terminated,
}


class Alarm:
    """One sentence that the first process to fail leaves for the others.

    It is left in the store that the processes met by. Whoever fails then closes its connections, so
    that those who wait for it wake up, look into the store, and end with that sentence. All of them
    wait for each other before they go: the store lives in one of them.

    A wish to stop (Ctrl-C, SIGTERM) may reach all of them at once, or any one. Whoever has it, the
    first process alone ends as if it had been its own, and the others without a word.

    Args:
        team: The processes.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        store = distributed.distributed_c10d._get_default_store()
        self._store = distributed.distributed_c10d.PrefixStore("lg2ar alarm", store)
        self._over = threading.Event()
        self._guards = 0
        self._counted = False

    @property
    def over(self) -> bool:
        """Whether it was raised: the processes are no team any more."""
        return self._over.is_set()

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """End the other processes if this one fails here, and this one if another does.

        Raises:
            LostProcessError: Where another process failed, in place of what that led to here.
            KeyboardInterrupt: In the first process, where this one or another is to stop.
            SystemExit: Where it failed of the same, or is to stop with the first: it has been said.
        """
        with self._watched():
            try:
                yield
            except BaseException as error:
                if self.over or self._team.size == 1:
                    raise
                told = self._end(error)
                if told is error:
                    raise
                raise told from None

    def _end(self, error: BaseException) -> BaseException:
        """Tell the others, and wait for them; what to end with."""
        self._over.set()
        try:
            return self._end_with(error)
        except KeyboardInterrupt as interrupt:  # which may come at any moment, also here
            return self._end_with(interrupt)

    def _end_with(self, error: BaseException) -> BaseException:
        told = self._tell(error)
        self._close(error)
        self._wait_for_all(stopped=isinstance(told, KeyboardInterrupt))
        return told

    def _close(self, error: BaseException | None) -> None:
        """Close the connections, also those that an error's variables hold."""
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__context__
        self._team.leave()
        with suppress(Exception):
            distributed.destroy_process_group()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Have a thread look after this process while the outermost guard stands."""
        self._guards += 1
        over, thread = threading.Event(), threading.Thread()
        if self._guards == 1 and self._team.size > 1:
            thread = threading.Thread(target=self._watch, args=[over], daemon=True)
            thread.start()
        try:
            yield
        finally:
            self._guards -= 1
            over.set()
            if thread.ident is not None:
                thread.join(NOTICE)

    def _tell(self, error: BaseException) -> BaseException:
        """What to end with: the error itself, or that another process failed before."""
        own = f"{self._team.rank} {one_line(error)}"
        try:
            if _is_consequence(error) and not self._told_within(NOTICE):
                self._store.add("lost", 1)
                return LostProcessError(
                    f"one of the {self._team.size} processes ended without a word; look at what "
                    "the system says of it, and go on from the last checkpoint with --resume."
                )
            first = self._store.compare_set("failed", "", own).decode()
        except RuntimeError:  # the store is gone, and with it the process that has it
            if isinstance(error, KeyboardInterrupt):
                return self._stopped(error, type(error))
            return LostProcessError(
                f"process 0 of {self._team.size} ended without a word; go on from the last "
                "checkpoint with --resume."
            )
        rank, _, sentence = first.partition(" ")
        if sentence in STOPS:
            return self._stopped(error, STOPS[sentence])
        if first == own:
            return error
        if sentence == one_line(error):
            return SystemExit(2)
        return LostProcessError(f"process {rank} of {self._team.size} failed: {sentence}")

    def _stopped(self, error: BaseException, kind: type[KeyboardInterrupt]) -> BaseException:
        """What to end with where somebody wants all to stop."""
        if self._team.rank != 0:
            return SystemExit(exit_code(kind))
        return error if isinstance(error, KeyboardInterrupt) else kind()

    def _told_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self._store.check(["failed"]):
            if time.monotonic() > end:
                return False
            time.sleep(POLL)
        return True

    def _wait_for_all(self, *, stopped: bool) -> None:
        """Stay until all have ended their work; not where one will never say so.

        Args:
            stopped: Whether this is the first process, which is to stop: the others follow it.
        """
        with suppress(RuntimeError):
            if not self._counted:
                self._counted = True
                self._store.add("ended", 1)
            end = time.monotonic() + (LOOK + FOLLOWING if stopped else PATIENCE)
            while self._store.add("ended", 0) < self._team.size and time.monotonic() < end:
                if self._store.check(["lost"]):
                    end = min(end, time.monotonic() + NOTICE)
                time.sleep(POLL)

    def _watch(self, over: threading.Event) -> None:
        """End this process where it does not wake up: on a GPU one may wait for a lost one."""
        with suppress(RuntimeError):
            while not self._store.check(["failed"]):
                if over.wait(LOOK):
                    return
            rank, _, sentence = self._store.get("failed").decode().partition(" ")
            kind = STOPS.get(sentence)
            follows = kind is not None and self._team.rank != 0
            patience = PATIENCE if kind is None else FOLLOWING if follows else SAVING
            if not over.wait(patience) and not self.over:
                if not follows:
                    text = f"lg2ar: process {rank} of {self._team.size} failed: {sentence}"
                    print(text, file=sys.stderr, flush=True)
                self._store.add("ended", 1)  # nobody has to wait for this one
                os._exit(2 if kind is None else exit_code(kind))


def one_line(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, KeyboardInterrupt):
        return next(line for line, kind in reversed(STOPS.items()) if isinstance(error, kind))
    text = " ".join(str(error).split()) or "no more is known"
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def exit_code(kind: type[KeyboardInterrupt]) -> int:
    """What a shell has for a process that was stopped so."""
    return 128 + (signal.SIGTERM if issubclass(kind, Terminated) else signal.SIGINT)


def _is_consequence(error: BaseException) -> bool:
    """Whether this is how a process learns that another one is gone."""
    words = ("Connection closed", "Connection reset", "Broken pipe", "closed by peer", "NCCL")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)
