"""Killed at any moment and resumed, every long command ends as if nothing had happened."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from faults.conftest import Tally
from faults.folder_jobs import FOLDER_JOBS
from faults.harness import KILLED, Commands, Fault, Started
from faults.jobs import JOBS, Job

pytest.importorskip("optuna")

pytestmark = pytest.mark.skipif("sys.platform != 'linux'", reason="kills as Linux does")

# Kills of one job at most, before it is let go to its end: in the fast tests, and in the long ones.
FEW, MANY = 2, 6


class Bench:
    """Does a job once without a fault, and then as often as wanted with some."""

    def __init__(self, kind: type[Job], folder: Path) -> None:
        self.kind, self.folder, self.number = kind, folder, 0
        self.commands = Commands(folder / "logs")
        (folder / "shared").mkdir()
        job = self.fresh()
        job.prepare(self.commands)
        self.commands.ok("version")  # the first process waits for all that is imported
        start = time.monotonic()
        self.commands.ok(*job.command())
        self.seconds = time.monotonic() - start
        self.expected = job.result()

    def fresh(self) -> Job:
        """The job in a folder of its own."""
        self.number += 1
        return self.kind(self.folder / str(self.number), self.folder / "shared")

    def finish(self, job: Job) -> None:
        """Resume a job and compare; then once more, which must change nothing."""
        self.commands.ok(*job.command(), "--resume")
        job.check()
        assert job.result() == self.expected
        before = left_in(job.folder)
        self.commands.ok(*job.command(), "--resume")
        assert left_in(job.folder) == before

    def killed_at_random(self, draw: random.Random, most: int) -> int:
        """Kill a job at random moments, resume it each time; how often it was killed."""
        job, kills = self.fresh(), 0
        while kills < most:
            started = self.commands.start(*job.command(), "--resume")
            code = started.end(draw.uniform(0, self.seconds))
            if code is None and started.kill() == KILLED:
                kills += 1
                job.check()
                continue
            assert started.end() == 0, started.printed
            break
        self.finish(job)
        return kills

    def killed_at_call(self, at: int, kind: str) -> Started | None:
        """Kill a job at one of its calls that write, and resume it; None where it came not so far.

        Returns:
            The killed one, which tells whether the end of a file went with it.
        """
        job = self.fresh()
        fault = Fault(kind=kind, at=at, under=str(job.folder))
        started = self.commands.start(*job.command(), "--resume", fault=fault)
        code = started.end()
        assert code == (KILLED if started.struck else 0), started.printed
        if started.struck:
            job.check()
        self.finish(job)
        return started if started.struck else None


def left_in(folder: Path) -> dict[str, bytes]:
    """All files in a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=[*JOBS, *FOLDER_JOBS])
def bench(request: pytest.FixtureRequest, tmp_path: Path, data_root: Path) -> Bench:
    """Each command in turn."""
    return Bench((JOBS | FOLDER_JOBS)[request.param], tmp_path / "bench")


@pytest.mark.slow
def test_a_few_kills(bench: Bench, tally: Tally) -> None:
    draw = random.Random(3)
    for _ in range(20):
        kills = bench.killed_at_random(draw, FEW)
        tally("kills survived", kills)
        if kills:
            return
    pytest.fail("every job was faster than its kill")


@pytest.mark.soak
def test_many_kills(bench: Bench, tally: Tally) -> None:
    draw, kills = random.Random(time.time_ns()), 0
    while kills < 24:
        kills += bench.killed_at_random(draw, MANY)
    tally("kills survived", kills)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["kill", "cut"])
def test_a_kill_at_every_call_that_writes(bench: Bench, kind: str, tally: Tally) -> None:
    at, cuts = 1, 0
    while killed := bench.killed_at_call(at, kind):
        at, cuts = at + 1, cuts + killed.cut
    assert at > 1
    assert (cuts > 0) == (kind == "cut")
    tally("kills at calls that write survived", at - 1)


@pytest.mark.parametrize(
    ("name", "places"),
    [("pretrain", {17: "kill", 46: "cut"}), ("reproduce", {5: "cut"})],  # cuts: while it is synced
    ids=["pretrain", "reproduce"],
)
def test_a_kill_at_some_calls_that_write(
    name: str, places: dict[int, str], tmp_path: Path, data_root: Path, tally: Tally
) -> None:
    bench = Bench(JOBS[name], tmp_path / "bench")
    for at, kind in places.items():
        killed = bench.killed_at_call(at, kind)
        assert killed is not None
        assert killed.cut == (kind == "cut")
        tally("kills at calls that write survived")


def test_a_real_process_killed_while_it_starts(tmp_path: Path, data_root: Path) -> None:
    """Without the process that everything is forked from: as a person starts it."""
    import subprocess
    import sys

    bench = Bench(JOBS["pretrain"], tmp_path / "bench")
    job = bench.fresh()
    command: list[Any] = [sys.executable, "-m", "lg2ar", *job.command(), "--resume"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while not (job.out / "run.json").exists() and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == KILLED
    job.check()
    bench.finish(job)
