"""Engines: jobs are done in other processes, lost workers are told of, nothing is left behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

from crews import Hand, Job, children
from lg2ar import engines
from lg2ar.engines import Crew, Engine, Here, Lost, OnRay, Processes, drive
from lg2ar.errors import InputError

Done = list[tuple[Job, Any]]


def do(engine: Engine[Job, Any], *jobs: Job) -> Done:
    """Do all jobs; what came of them, in the order in which they were settled."""
    waiting, done = list(jobs), []
    with engine:
        drive(
            engine,
            lambda: waiting.pop(0) if waiting else None,
            lambda job, result: done.append((job, result)),
        )
    return done


def test_this_process_does_jobs_one_after_the_other() -> None:
    jobs: list[Job] = [("count", number) for number in range(3)]
    hand = Hand("mine")
    done = do(Here(hand), *jobs)
    assert [job for job, _ in done] == jobs
    assert [result["process"] for _, result in done] == [os.getpid()] * 3
    assert hand.calls == 3


def test_processes_do_several_jobs_at_a_time_and_keep_their_worker() -> None:
    jobs: list[Job] = [("sleep", seconds) for seconds in (0.5, 0.6, 0.7, 0.8)]
    done = do(Processes(Hand("mine"), 2), *jobs)
    assert sorted(job for job, _ in done) == jobs
    by_process: dict[int, list[int]] = {}
    for _, result in done:
        assert result["name"] == "mine"
        by_process.setdefault(result["process"], []).append(result["calls"])
    assert len(by_process) == 2
    assert os.getpid() not in by_process
    for calls in by_process.values():  # the same object, not one a job
        assert calls == list(range(1, len(calls) + 1))


def test_a_lost_worker_takes_its_own_job_alone_with_it() -> None:
    """And what comes of one job may lead to others, though there was none when it began."""
    waiting: list[Job] = [("first", 0)]
    done: Done = []

    def settle(job: Job, result: Any) -> None:
        done.append((job, result))
        if job[0] == "first":
            waiting.extend([("sleep", 0.6), ("die", 0), ("sleep", 0.1), ("sleep", 0.2)])

    with Processes(Hand(), 2) as engine:
        drive(engine, lambda: waiting.pop(0) if waiting else None, settle)
    lost = [(job, result.why) for job, result in done if isinstance(result, Lost)]
    assert lost == [(("die", 0), "its worker was killed, as for a lack of memory")]
    assert len(done) == 5


def test_a_worker_lost_while_idle_is_replaced() -> None:
    hand: Processes[Job, Any] = Processes(Hand(), 1)
    with hand as engine:
        engine.submit(("count", 0))
        _, first = engine.wait()
        assert not isinstance(first, Lost)
        os.kill(first["process"], 9)
        time.sleep(0.3)
        engine.submit(("count", 1))
        _, second = engine.wait()
    if isinstance(second, Lost):  # told of with the next job, where it was not seen before
        pytest.fail(second.why)
    assert second["process"] != first["process"]


def test_nothing_is_left_behind_when_it_ends_or_is_stopped() -> None:
    before = children(os.getpid())
    start = time.monotonic()

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    jobs: list[Job] = [("count", 0), ("sleep", 60)]
    with pytest.raises(ZeroDivisionError), Processes(Hand(), 2) as engine:
        drive(engine, lambda: jobs.pop() if jobs else None, fail)
    assert time.monotonic() - start < 50
    started = set(children(os.getpid())) - set(before)
    assert [name for name in map(command, started) if "resource_tracker" not in name] == []


def command(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")


@pytest.mark.parametrize("why", [KeyboardInterrupt, SystemExit, InputError, ZeroDivisionError])
def test_whatever_ends_it_what_is_done_by_then_is_settled(why: type[BaseException]) -> None:
    waiting: list[Job] = [("raise", "odd"), ("count", 0), ("sleep", 30)]
    done: list[str] = []

    class Stopped(Processes[Job, Any]):
        def wait(self) -> tuple[Job, Any | Lost]:
            for future, (_, job) in self._running.items():
                if job[0] != "sleep":
                    futures.wait([future])
            raise why

    with pytest.raises(why), Stopped(Hand(), 3) as engine:
        drive(
            engine,
            lambda: waiting.pop(0) if waiting else None,
            lambda job, _: done.append(job[0]),
        )
    assert done == ["count"]


def test_what_ended_it_is_told_also_where_nothing_can_be_settled() -> None:
    waiting: list[Job] = [("count", 0), ("count", 1)]
    asked: list[Job] = []

    class Both(Processes[Job, Any]):
        def wait(self) -> tuple[Job, Any | Lost]:
            futures.wait(self._running)
            return super().wait()

    def settle(job: Job, _: Any) -> None:
        asked.append(job)
        raise InputError(f"the disk is full at {len(asked)}.")

    with pytest.raises(InputError, match="full at 1"), Both(Hand(), 2) as engine:
        drive(engine, lambda: waiting.pop(0) if waiting else None, settle)
    assert len(asked) == 2


def test_an_error_of_a_worker_is_not_swallowed() -> None:
    with pytest.raises(KeyError, match="odd"):
        do(Processes(Hand(), 1), ("raise", "odd"))


def test_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.externals.loky.cpu_count", lambda: 12)
    for name in engines.THREADS:
        monkeypatch.delenv(name, raising=False)
    shares = [Processes(Hand(), number)._environment(0) for number in (3, 5, 50)]
    assert [share["OMP_NUM_THREADS"] for share in shares] == ["4", "2", "1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # who says how many has his way
    ((_, result),) = do(Processes(Hand(), 1), ("count", 0))
    assert result["OMP_NUM_THREADS"] == "7"


def test_workers_share_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(gpus: int) -> list[str | None]:
        engine: Processes[Job, Any] = Processes(Hand(), 3, gpus)
        return [engine._environment(place).get("CUDA_VISIBLE_DEVICES") for place in range(3)]

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert seen(2) == ["0", "1", "0"]
    assert seen(1) == [None, None, None]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert seen(2) == ["4", "7", "4"]


def test_one_worker_is_this_process() -> None:
    assert isinstance(Crew().hire(Hand()), Here)
    assert isinstance(Crew(workers=1).hire(Hand()), Here)
    assert isinstance(Crew(workers=2).hire(Hand(), "cpu"), Processes)


def test_without_ray_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"^Ray is not installed; .*pip install 'lg2ar\[ray\]'\.$"):
        Crew("ray").hire(Hand())


@pytest.fixture
def local_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Ray of this test's own, whatever else runs on this machine."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'lg2ar[ray]'")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "0")  # others may take what memory there is
    yield
    import ray

    assert not ray.is_initialized()


@pytest.mark.usefixtures("local_ray")
def test_ray_does_jobs_and_tells_of_lost_workers(tmp_path: Path) -> None:
    jobs: list[Job] = [("count", 0), ("die once", str(tmp_path / "died")), ("count", 1)]
    engine: OnRay[Job, Any] = OnRay(Hand("far"), workers=2)
    assert (engine.machines, engine.workers) == (1, 2)
    done = do(engine, *jobs)
    lost = [(job[0], result.why) for job, result in done if isinstance(result, Lost)]
    assert [name for name, _ in lost] == ["die once"]
    assert "worker was lost" in lost[0][1]
    found = [result for _, result in done if not isinstance(result, Lost)]
    assert {result["name"] for result in found} == {"far"}
    assert os.getpid() not in {result["process"] for result in found}


@pytest.mark.usefixtures("local_ray")
def test_ray_refuses_what_cannot_be_done_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="has no GPU"):
        Crew("ray").hire(Hand(), "cuda")
    monkeypatch.setattr(engines, "code_print", lambda: "other")
    with pytest.raises(InputError, match="other code of lg2ar"):
        do(OnRay(Hand(), workers=1), ("count", 0))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(InputError, match=r"^RAY_ADDRESS=127\.0\.0\.1:1: no Ray cluster answers"):
        OnRay(Hand())
