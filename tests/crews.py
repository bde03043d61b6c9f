"""Workers for the tests of engines, light enough for a process to start in no time."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

Job = tuple[str, Any]


class Hand:
    """Does what a job says, and tells which process did it, how often it was called, and with what.

    Args:
        name: Whatever; it has to arrive.
    """

    def __init__(self, name: str = "hand") -> None:
        self.name, self.calls = name, 0

    def __call__(self, job: Job) -> dict[str, Any]:
        self.calls += 1
        what, value = job
        if what == "sleep":
            time.sleep(value)
        elif what == "die":
            die()
        elif what == "die once":
            die_once(Path(value))
        elif what == "raise":
            raise KeyError(value)
        keys = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
        found = {key: os.environ.get(key) for key in keys}
        return {"name": self.name, "calls": self.calls, "process": os.getpid(), **found}


def die() -> None:
    """End this process as a lack of memory does: at once, without a word."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def die_once(mark: Path) -> None:
    """End this process, unless one was ended here before."""
    if not mark.exists():
        mark.touch()
        die()


def children(process: int) -> list[int]:
    """The processes that one has started, where the system tells (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        if int(fields[1]) == process and fields[0] != "Z":
            found.append(int(path.parent.name))
    return sorted(found)
