"""A study that was killed goes on to the same result: dead trials do not count, seeds are by place.

What a trial draws depends on the study's seed, the trial's place among those that count and the
results before it. A trial whose process died is marked as failed, and the next one takes its place.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lg2ar.sampling import seed_from

LOCK = ".lg2ar-lock"
PROCESS = "process"  # which one does a trial, in the trial's notes


@contextmanager
def at_work(folder: Path) -> Iterator[bool]:
    """Be known to work on the study of a folder; whether nobody else was when this began."""
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    # Not removed at the end: others may hold it, and all of them must hold the same one.
    with open(folder / LOCK, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except OSError:
            alone = False
        fcntl.flock(file, fcntl.LOCK_SH)
        yield alone


def fail_dead(study: Any, *, alone: bool) -> None:
    """Mark trials as failed whose process is no more.

    Args:
        study: The study.
        alone: Whether no other process on this machine works on it.
    """
    import optuna

    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        mark = trial.user_attrs.get(PROCESS)
        if (mark is None and alone) or (mark is not None and _is_dead(str(mark))):
            with suppress(Exception):  # somebody else may have been faster
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def counted(study: Any) -> list[Any]:
    """The trials that count, in their order: all but those that failed."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.name != "FAIL"]


def place_of(study: Any, number: int) -> int:
    """The place of a trial among those that count, from 0."""
    return sum(trial.number < number for trial in counted(study))


def begin(trial: Any, seed: int, startup: int) -> int:
    """Note who does a trial, and have it draw what its place says.

    Args:
        trial: What Optuna hands out.
        seed: The study's.
        startup: Trials before the sampler begins to learn from them.

    Returns:
        The trial's place among those that count.
    """
    import optuna

    trial.set_user_attr(PROCESS, _mark(os.getpid()))
    place = place_of(trial.study, trial.number)
    trial.study.sampler = optuna.samplers.TPESampler(
        seed=seed_from(seed, "trial", place) % 2**32, n_startup_trials=startup
    )
    return place


def _mark(process: int) -> str:
    return f"{socket.gethostname()} {process} {_started(process)}"


def _started(process: int) -> str:
    """When a process began, since numbers are given out again; where the system tells."""
    with suppress(OSError, IndexError):
        text = Path(f"/proc/{process}/stat").read_text()
        return text.rpartition(")")[2].split()[19]
    return "?"


def _is_dead(mark: str) -> bool:
    host, _, rest = mark.partition(" ")
    if host != socket.gethostname() or os.name != "posix":
        return False  # Optuna's heartbeat tells, later
    process = rest.partition(" ")[0]
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (ValueError, OverflowError, PermissionError):
        return False
    return mark != _mark(int(process)) or int(process) == os.getpid()
