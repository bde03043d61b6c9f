"""Ctrl-C and SIGTERM: what was done is saved, how to go on is said, and going on is exact."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.conftest import Tally
from faults.harness import Commands, wait_for
from faults.jobs import JOBS, SMALL, Job

pytest.importorskip("optuna")

pytestmark = pytest.mark.skipif("sys.platform == 'win32'", reason="there are no such signals")


def epochs_done(job: Job) -> int:
    path = job.out / "run.json"
    return len(json.loads(path.read_text())["progress"]["history"]) if path.exists() else 0


def records_done(job: Job) -> int:
    return job.out.read_text().count("\n") if job.out.exists() else 0


# How to see that a job is in the midst of its work, and what it says when it is stopped.
BEGUN: dict[str, tuple[Callable[[Job], bool], str]] = {
    "pretrain": (
        lambda job: epochs_done(job) > 0,
        "interrupted; the last checkpoint is kept, --resume goes on.",
    ),
    "finetune": (
        lambda job: (job.out / "finetuning.json").exists(),
        "interrupted; what was done is kept, --resume goes on.",
    ),
    "reproduce": (
        lambda job: records_done(job) > 0,
        "interrupted; finished runs are in ",
    ),
    "tune": (
        lambda job: (job.out / "best.toml").exists(),
        "interrupted; the same command goes on.",
    ),
}
LONGER = {
    "pretrain": ["--set", "epochs=4000"],
    "finetune": ["--set", "epochs=4000", "--set", "patience=4000"],
    "reproduce": ["--seeds", "500"],
    "tune": ["--trials", "500"],
}


# One of the two for each command in the fast tests, but for the first both.
FAST = [
    ("pretrain", signal.SIGINT),
    ("pretrain", signal.SIGTERM),
    ("finetune", signal.SIGTERM),
    ("reproduce", signal.SIGINT),
    ("tune", signal.SIGTERM),
]
ALL = [(name, number) for name in BEGUN for number in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize(
    ("name", "number"),
    [pytest.param(*case, marks=() if case in FAST else pytest.mark.soak) for case in ALL],
)
def test_a_stop_saves_and_says_how_to_go_on(
    name: str, number: signal.Signals, tmp_path: Path, data_root: Path, tally: Tally
) -> None:
    commands = Commands(tmp_path / "logs")
    (tmp_path / "shared").mkdir()
    job = JOBS[name](tmp_path / "job", tmp_path / "shared")
    job.prepare(commands)
    there, sentence = BEGUN[name]
    started = commands.start(*job.command(), *LONGER[name])
    wait_for(lambda: there(job), started)
    asked = time.monotonic()
    started.signal(number)
    assert started.end(30) == 128 + number, started.printed
    assert time.monotonic() - asked < 10
    assert f"lg2ar: {sentence}" in started.printed
    assert "Traceback" not in started.printed
    job.check()
    tally("stops survived")


def test_a_stopped_run_goes_on_exactly(tmp_path: Path, data_root: Path) -> None:
    """A stop saves the last whole epoch, between two checkpoints, and loses nothing else."""
    commands = Commands(tmp_path / "logs")
    rare = ["--set", "epochs=300", "--set", "checkpoint_every=1000"]
    whole, stopped = (JOBS["pretrain"](tmp_path / name, tmp_path) for name in ("a", "b"))
    started = commands.start(*stopped.command(), *rare)
    wait_for(lambda: (stopped.out / "run.json").exists(), started)
    time.sleep(0.5)
    started.signal(signal.SIGTERM)
    assert started.end() == 143
    assert 0 < epochs_done(stopped) < 300
    commands.ok(*stopped.command(), *rare, "--resume")
    commands.ok(*whole.command(), *rare)
    assert stopped.result() == whole.result()


def test_a_stop_while_data_is_read(tmp_path: Path, data_root: Path) -> None:
    """Before there is anything to save; as a process of its own, with its own imports."""
    command = [sys.executable, "-c", SLOW_TO_OPEN, "pretrain", "toy-graphs", "--out", "x", *SMALL]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "opening\n"
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert rest.strip() == "lg2ar: interrupted; the same command begins again."


SLOW_TO_OPEN = """
import sys, time
import lg2ar.data.sources as sources
def slow(*_):
    print("opening", file=sys.stderr, flush=True)
    time.sleep(60)
sources.open_source = slow
from lg2ar.cli import main
main()
"""


def test_a_computation_that_does_not_look_up_is_ended(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    time.sleep(0.5)  # it says so just before
    asked = time.monotonic()
    process.send_signal(signal.SIGTERM)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert time.monotonic() - asked < 10
    assert "lg2ar: stopped; the last checkpoint is kept" in error


# One call of C, with nothing between that could notice a signal.
BUSY = """
import hashlib, threading
from lg2ar.cli import stopping
stopping.GRACE = 1.0
with stopping.stopping_in_time():
    threading.Timer(1, print, ["busy"], {"flush": True}).start()  # by then it is inside the call
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**9)
"""


def test_an_interrupt_where_nothing_can_be_raised_is_not_lost(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_DESTRUCTOR], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped once\n", "")


# Python only prints what a destructor raises, and goes on.
IN_A_DESTRUCTOR = """
import os, signal, time
from lg2ar.cli import stopping

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)

with stopping.stopping_in_time():
    last = Last()
    try:
        del last
        time.sleep(5)
        print("went on")
    except KeyboardInterrupt:
        print("stopped once", flush=True)
        time.sleep(0.1)
"""
