"""Ctrl-C and SIGTERM for processes that train together: one speaks, all end, nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from crews import children
from faults.conftest import Tally
from launches import Ended, finish, run, start
from lg2ar import checkpoint
from lg2ar.runs import load

pytest.importorskip("lightning_fabric", reason="needs pip install 'lg2ar[fabric]'")

pytestmark = pytest.mark.skipif(
    not Path("/proc").is_dir(), reason="signals, and processes that are found in /proc"
)

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
LONG = 4000  # epochs that nobody waits for
SAYS = "lg2ar: interrupted; the last checkpoint is kept, --resume goes on."
BEGINS_AGAIN = "lg2ar: interrupted; the same command begins again."
SOON = 10.0  # seconds

# The command line, which leaves a mark when two epochs are done.
PROGRAM = """
from pathlib import Path
from lg2ar import cli, training

whole = training.Trainer._run_epoch

def run_epoch(self, batches):
    record = whole(self, batches)
    if record.epoch == 2 and self.team.rank == 0:
        Path(__file__).with_suffix(".mark").touch()
    return record

training.Trainer._run_epoch = run_epoch
cli.main()
"""

Start = Callable[..., subprocess.Popen[str]]
Send = Callable[[int, int], None]
EVERYBODY, LAUNCHER = os.killpg, os.kill


def words(out: Path, epochs: int = LONG) -> list[str | Path]:
    """The command; checkpoints are rare, so that what is there afterwards was saved by the stop."""
    program = out.with_suffix(".py")
    program.write_text(PROGRAM)
    small = ("hidden=8", "layers=2", "batch_size=70", "checkpoint_every=100000")
    settings = [f"--set={setting}" for setting in (*small, f"epochs={epochs}")]
    return [program, "pretrain", "toy-graphs", "--device=cpu", f"--out={out}", *settings]


@pytest.fixture
def started() -> Iterator[Start]:
    """Starts commands in a process group of their own, and ends what is left of it."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*given: str | Path) -> subprocess.Popen[str]:
        begun.append(start(*given, group=True))
        return begun[-1]

    yield begin
    for process in begun:
        for one in [*family(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        process.communicate()


def family(process: int) -> list[int]:
    """All that a process has started, directly or not."""
    own = children(process)
    return own + [one for child in own for one in family(child)]


def wait_for(there: Callable[[], Any], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 200
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def alive(processes: list[int]) -> list[int]:
    """Those of them that still run, which one that nobody asked for its exit code does not."""
    return [one for one in processes if state(one) not in ("", "Z")]


def state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def stopped(process: subprocess.Popen[str], number: signal.Signals, send: Send) -> Ended:
    """How it ended after a signal; all of it, within seconds."""
    everyone = family(process.pid)
    assert everyone, "it has started others"
    asked = time.monotonic()
    send(process.pid, number)
    ended = finish(process)  # which reads to the end of what all of them may write
    while alive(everyone) and time.monotonic() - asked < SOON:
        time.sleep(0.02)
    assert time.monotonic() - asked < SOON, ended
    return ended


def stopped_in_training(
    started: Start, out: Path, number: signal.Signals, send: Send, *, launcher: Sequence[str] = ()
) -> Ended:
    """Two processes that were stopped while they trained, between two checkpoints."""
    process = started(*launcher, *words(out), *([] if launcher else ["--devices=2"]))
    wait_for(out.with_suffix(".mark").exists, process)
    ended = stopped(process, number, send)
    assert len(checkpoint.read(out, with_training=True).progress["history"]) >= 2
    return ended


CASES = [
    pytest.param(EVERYBODY, signal.SIGTERM, id="everybody-SIGTERM"),
    pytest.param(LAUNCHER, signal.SIGINT, id="launcher-SIGINT"),
    pytest.param(LAUNCHER, signal.SIGTERM, id="launcher-SIGTERM", marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("send", "number"), CASES)
def test_a_stop_is_told_once_and_saved(
    tmp_path: Path, started: Start, send: Send, number: signal.Signals, tally: Tally
) -> None:
    ended = stopped_in_training(started, tmp_path / "run", number, send)
    assert ended.code == 128 + number, ended
    assert ended.err.splitlines() == [SAYS]
    tally("stops survived")


def test_a_stopped_run_goes_on_to_the_same_weights(
    tmp_path: Path, started: Start, tally: Tally
) -> None:
    out, whole = tmp_path / "run", tmp_path / "whole"
    ended = stopped_in_training(started, out, signal.SIGINT, EVERYBODY)
    assert (ended.code, ended.err.splitlines()) == (130, [SAYS])
    epochs = len(load(out, "cpu").history) + 2
    for folder, more in ((out, ["--resume"]), (whole, [])):
        ended = run(*words(folder, epochs), "--devices=2", *more)
        assert ended.code == 0, ended
    ours, theirs = (checkpoint.read(f, with_training=True) for f in (out, whole))
    for mine, other in ((ours.model, theirs.model), (ours.training, theirs.training)):
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[key], other[key]) for key in mine)
    tally("stops survived")


TORCHRUN_CASES = [
    pytest.param(EVERYBODY, signal.SIGINT, id="everybody-SIGINT"),
    pytest.param(EVERYBODY, signal.SIGTERM, id="everybody-SIGTERM", marks=pytest.mark.soak),
    pytest.param(LAUNCHER, signal.SIGTERM, id="launcher-SIGTERM", marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("send", "number"), TORCHRUN_CASES)
def test_a_stop_under_torchrun(
    tmp_path: Path, started: Start, send: Send, number: signal.Signals, tally: Tally
) -> None:
    """It hands the signal on to those that had it already, and ends with a code of its own."""
    ended = stopped_in_training(started, tmp_path / "run", number, send, launcher=TORCHRUN)
    assert ended.code != 0
    assert ended.sentences == [SAYS], ended
    tally("stops survived")


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("send", [EVERYBODY, LAUNCHER])
def test_a_stop_while_they_start(
    tmp_path: Path, started: Start, send: Send, number: signal.Signals, tally: Tally
) -> None:
    """From the moment on at which the first process starts the others, which takes seconds."""
    for tenths in range(0, 60, 6):
        out = tmp_path / f"run{tenths}"
        process = started(*words(out), "--devices=2")
        wait_for(partial(children, process.pid), process)
        time.sleep(tenths / 10)
        ended = stopped(process, number, send)
        assert ended.code == 128 + number, ended
        assert ended.err.splitlines() in ([SAYS], [BEGINS_AGAIN]), ended
        tally("stops survived")
