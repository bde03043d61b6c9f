"""Runs the command line in processes that can be killed, at a moment or at a chosen call.

Processes are forked from one that has imported everything, so that a run of tenths of a second is
spent where faults are of interest. The commands are those of the command line, without a hook in
them: faults are put around the calls of the operating system that Python makes.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent

# Long enough for anything here on a busy machine.
PATIENCE = 300.0

KILLED = -signal.SIGKILL
CUT = b"cut"
# A disk without room, from a call on or for one call.
FULL = ("full", "full once")
# What the system says then; a disk may become read-only too, from a call on.
SAYS = dict.fromkeys(FULL, errno.ENOSPC) | {"read-only": errno.EROFS}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong.

    Attributes:
        kind: ``kill`` (SIGKILL), ``cut`` (the same, with the end of the file at hand not on the
            disk), ``full`` (no space left on the device from then on), ``full once`` (for that
            one call; somebody made room) or ``read-only`` (from then on).
        at: At which of the calls that write: opening, syncing, renaming, removing files.
        under: Calls for files under this folder count.
        file_size: No file may become larger; 0 sets no limit.
        memory: Megabytes of address space beyond those at the start; 0 sets no limit.
    """

    kind: str = ""
    at: int = 0
    under: str = "/"
    file_size: int = 0
    memory: int = 0


class Started:
    """A command in a process of its own."""

    def __init__(self, arguments: tuple[str, ...], log: Path, fault: Fault | None) -> None:
        self._log = log
        self._struck = log.with_suffix(".struck")
        self.process: BaseProcess = _context().Process(
            target=_child,
            args=(arguments, str(log), str(self._struck), fault, dict(os.environ)),
            daemon=True,
        )
        self.process.start()

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def end(self, seconds: float = PATIENCE) -> int | None:
        """Wait for the end; None where it does not come in time."""
        self.process.join(seconds)
        return self.process.exitcode

    def kill(self) -> int | None:
        """Kill it; what it had ended with, where it was faster."""
        self.process.kill()
        return self.end()

    @property
    def struck(self) -> bool:
        """Whether the call at which something was to go wrong has come."""
        return self._struck.exists()

    @property
    def cut(self) -> bool:
        """Whether the end of a file went with it."""
        return self.struck and self._struck.read_bytes() == CUT

    @property
    def printed(self) -> str:
        """What it printed so far."""
        return self._log.read_text() if self._log.exists() else ""


class Commands:
    """Starts commands, each with a log of its own.

    Args:
        folder: For the logs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, *arguments: str | Path, fault: Fault | None = None) -> Started:
        """Start a command."""
        self._number += 1
        log = self._folder / f"{self._number}.log"
        return Started(tuple(map(str, arguments)), log, fault)

    def run(self, *arguments: str | Path, fault: Fault | None = None) -> tuple[int | None, str]:
        """Run a command to its end: its exit code and what it printed."""
        started = self.start(*arguments, fault=fault)
        code = started.end()
        return code, started.printed

    def ok(self, *arguments: str | Path) -> str:
        """What a command printed that must not fail."""
        code, printed = self.run(*arguments)
        assert code == 0, printed
        return printed

    def refused(self, *arguments: str | Path, fault: Fault | None = None) -> str:
        """The one sentence of a command that must end with 2."""
        code, printed = self.run(*arguments, fault=fault)
        sentences = [line for line in printed.splitlines() if line.startswith("lg2ar: ")]
        assert code == 2, printed
        assert "Traceback" not in printed, printed
        assert sentences, printed
        return sentences[-1]


def wait_for(there: Callable[[], bool], started: Started) -> None:
    """Wait until something is there, while a command is running."""
    until = time.monotonic() + PATIENCE
    while not there():
        assert started.process.exitcode is None, started.printed
        assert time.monotonic() < until, started.printed
        time.sleep(0.005)


def _context() -> Any:
    # The forked processes look for lg2ar and for this file where we found them.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")]
    )
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["faults.preloaded"])
    return context


def _child(
    arguments: tuple[str, ...],
    log: str,
    struck: str,
    fault: Fault | None,
    environment: dict[str, str],
) -> None:
    os.environ.update(environment)  # what it was forked from has an older one
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    from lg2ar import cli

    if fault is not None:
        _arrange(fault, struck)
    sys.argv = ["lg2ar", *arguments]
    try:
        cli.main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _arrange(fault: Fault, struck: str) -> None:
    import resource

    if fault.file_size:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.file_size, fault.file_size))
    if fault.memory:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + fault.memory * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    if fault.kind:
        _Watch(fault, struck)


class _Watch:
    """Counts the calls that write, and lets the chosen one go wrong."""

    def __init__(self, fault: Fault, struck: str) -> None:
        self.fault, self.struck, self.seen = fault, struck, 0
        self.events = {"os.rename", "os.mkdir"}
        if fault.kind not in FULL:  # removing works on a full disk
            self.events |= {"os.remove", "os.truncate"}
        self.sync = os.fsync
        sys.addaudithook(self.look)
        os.fsync = self.fsync  # type: ignore[assignment]

    def look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
            if writes and isinstance(path, str | os.PathLike):
                self.step(os.fspath(path))
        elif event in self.events:
            self.step(str(arguments[0]))

    def fsync(self, file: int) -> None:
        if self.step(os.readlink(f"/proc/self/fd/{file}"), file):
            self.sync(file)

    def step(self, path: str, file: int | None = None) -> bool:
        if not str(path).startswith(self.fault.under):
            return True
        self.seen += 1
        again = self.fault.kind in ("full", "read-only") and self.seen > self.fault.at
        if self.seen == self.fault.at or again:
            self.go_wrong(file)
        return True

    def go_wrong(self, file: int | None) -> None:
        os.close(os.open(self.struck, os.O_WRONLY | os.O_CREAT))
        if number := SAYS.get(self.fault.kind):
            raise OSError(number, os.strerror(number))
        if self.fault.kind == "cut" and file is not None:
            size = os.fstat(file).st_size
            if size > 10 and os.path.isfile(f"/proc/self/fd/{file}"):
                os.truncate(f"/proc/self/fd/{file}", size - 10)
                with open(self.struck, "wb") as note:
                    note.write(CUT)
        os.kill(os.getpid(), signal.SIGKILL)
