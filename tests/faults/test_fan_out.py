"""Studies and searches over several processes: the same results, and nothing lost with a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from crews import children, die, die_once
from lg2ar.engines import Crew, Lost
from lg2ar.report.cells import cells
from lg2ar.report.runs import failed_runs
from lg2ar.report.tables import read_records
from lg2ar.study import ledger
from lg2ar.study.ledger import Ledger, reproduce
from lg2ar.study.plan import Planned, plan
from lg2ar.study.runner import Runner
from lg2ar.study.schedule import Schedule
from lg2ar.study.worker import Outcome, StudyJob, StudyWorker
from lg2ar.tuning import search
from lg2ar.tuning.trials import TrialJob, TrialResult, TrialWorker
from tiny import write_graphs

SMALL: dict[str, Any] = {"hidden": 8, "layers": 2, "epochs": 2, "batch_size": 16}
COMMAND = [sys.executable, "-m", "lg2ar"]
FLAGS = [
    "graph", "--datasets", "tu:TINY", "--preset", "default", "--protocol", "strict", "--device",
    "cpu", *[word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")],
]  # fmt: skip


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graphs(tmp_path)
    (tmp_path / "TINY" / "raw" / "TINY_node_labels.txt").unlink()  # so that some settings fail
    monkeypatch.setenv("LG2AR_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    # What this process imports from, also where it is not what is installed.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


def some(*variants: str, seeds: int = 1, **more: Any) -> list[Planned]:
    settings = {**SMALL, **more}
    return plan(
        "graph",
        datasets=["tu:TINY"],
        variants=variants or ["gru"],
        seeds=range(seeds),
        preset="default",
        settings=settings,
        protocols=["strict"],
    )


def done(
    runs: list[Planned], path: Path, crew: Crew | None = None
) -> tuple[list[str], list[dict[str, Any]]]:
    """What failed, and the records file."""
    failures: list[str] = []
    reproduce(
        runs,
        ["strict"],
        Ledger(path),
        Runner(torch.device("cpu")),
        crew=crew,
        device="cpu",
        on_failure=lambda task, why: failures.append(f"{task}: {why}"),
    )
    return failures, list(read_records(path))


def compared(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without what they cost, in an order of their own."""
    kept = [{key: value for key, value in r.items() if key != "cost"} for r in records]
    return sorted(kept, key=lambda record: json.dumps(record["task"], sort_keys=True))


class Roomy(Runner):
    """Trains seeds of LG2AR together, as on a GPU."""

    def room(self, planned: Planned, *_: Any) -> int:
        return 2 if planned.task.variant == "gru" else 1


class Fragile(StudyWorker):
    """Its process is killed at seed 0 of `infograph` the first time, at seed 1 always."""

    def _make_runner(self) -> Runner:
        if self._runner is None:
            self._runner = Roomy(super()._make_runner().device)
        return self._runner

    def __call__(self, job: StudyJob) -> Outcome:
        first = job.runs[0]
        if len(job.runs) == 1 and first.task.method == "infograph":
            if first.task.seed == 1:
                die()
            die_once(Path(os.environ["LG2AR_DATA"]) / "died")
        return super().__call__(job)


def test_workers_give_the_records_of_one_process_and_outlive_their_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One table with runs that go well, that break down, that stand in two cells, and two kills."""
    same = "augmentations=all"  # which is what `gru` is
    runs = some("gru", same, "infograph", "features=given", seeds=2)
    alone, expected = done(runs, tmp_path / "alone.jsonl")
    assert len(alone) == 2
    assert all("features=given" in failure for failure in alone)
    monkeypatch.setattr(ledger, "StudyWorker", Fragile)
    path = tmp_path / "several.jsonl"
    failures, records = done(runs, path, Crew(workers=2))
    killed = "its worker was killed, as for a lack of memory"
    assert f"graph tu:TINY infograph seed 1: {killed}, twice." in failures
    assert sorted(alone) == sorted(f for f in failures if "infograph" not in f)
    assert caplog.text.count(f"seed 0: {killed}; it is done once more.") == 1

    lost = [r for r in records if "failed" in r and r["task"]["method"] == "infograph"]
    assert [(r["task"]["seed"], r["failed"]) for r in lost] == [(1, f"{killed}, twice.")]
    asked = next(run.config for run in runs if str(run.task).endswith("infograph seed 1"))
    assert lost[0]["config"] == json.loads(json.dumps(asked.to_dict()))
    rest = [r for r in expected if (r["task"]["method"], r["task"]["seed"]) != ("infograph", 1)]
    assert compared([r for r in records if r not in lost]) == compared(rest)

    together = [r["cost"]["together"] for r in records if r["task"]["variant"] == "gru"]
    assert together == [2, 2]

    # Tables leave failed runs out and say so; asked for again they are tried again.
    ours = {c.method: c.runs for c in cells(records, "graph") if c.runs}
    assert (ours["lg2ar"], ours["infograph"]) == (2, 1)
    assert len(failed_runs(records)) == 3
    monkeypatch.undo()
    monkeypatch.setenv("LG2AR_DATA", str(tmp_path))
    again, records = done(runs, path)
    assert sorted(again) == sorted(alone)
    assert len(failed_runs(records)) == 2
    good = [r for r in records if "failed" not in r]
    assert compared(good) == compared([r for r in expected if "failed" not in r])


def test_a_run_is_lost_twice_only_if_it_was_lost_twice(tmp_path: Path) -> None:
    """Of two runs of equal settings in two cells, the second has a chance of its own."""
    failed: list[str] = []
    schedule = Schedule(
        some("gru", "augmentations=all"),
        ["strict"],
        Ledger(tmp_path / "records.jsonl"),
        "cpu",
        on_record=lambda _: None,
        on_skip=lambda _: None,
        on_failure=lambda task, why: failed.append(f"{task}: {why}"),
    )

    def lose() -> str | None:
        job = schedule.take()
        assert job is not None
        schedule.settle(job, Lost("gone"))
        (run,) = job.runs
        return run.task.variant

    assert [lose(), lose()] == ["gru", "gru"]
    assert failed == ["graph tu:TINY gru seed 0: gone, twice."]
    assert [lose(), lose()] == ["augmentations=all"] * 2
    assert len(failed) == 2
    assert schedule.take() is None


def start(*words: str | Path, command: Sequence[str] = COMMAND) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that a signal can reach it and its workers, not this process
    )


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts commands, and ends what is left of them."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*words: str | Path, **more: Any) -> subprocess.Popen[str]:
        begun.append(start(*words, **more))
        return begun[-1]

    yield begin
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(what: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    for _ in range(1200):
        if found := what():
            return found
        if process is not None and process.poll() is not None:
            pytest.fail(f"ended with {process.poll()}: {process.communicate()}")
        time.sleep(0.1)
    return pytest.fail("it takes too long")


def workers(process: subprocess.Popen[str]) -> list[int]:
    """The worker processes of a command."""
    found = []
    for child in children(process.pid):
        words = Path(f"/proc/{child}/cmdline").read_bytes().decode()
        if "popen_loky_posix" in words:
            found.append(child)
    return found


def written(path: Path, number: int) -> Callable[[], bool]:
    return lambda: path.exists() and path.read_text().count("\n") >= number


linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")


@linux
def test_kills_and_interrupts_from_outside_lose_nothing_that_is_done(
    tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    path = tmp_path / "records.jsonl"
    words = ["reproduce", *FLAGS, "--variants", "gru", "--seeds", "16", "--set", "epochs=20"]
    process = started(*words, "--records", path, "--workers", "2")
    wait_for(written(path, 1), process)
    first = workers(process)
    os.kill(first[0], signal.SIGKILL)
    crew = wait_for(lambda: (now := workers(process)) != first and len(now) == 2 and now, process)
    wait_for(written(path, 3), process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it: to all of them
    out, error = process.communicate()
    kept = list(read_records(path))
    assert process.returncode == 130
    once_more, interrupted = error.splitlines()
    assert once_more.endswith("as for a lack of memory; it is done once more.")
    told = f"lg2ar: interrupted; finished runs are in {path}, the same command goes on."
    assert interrupted == told
    assert out.count("\n") == len(kept)
    assert not any(Path(f"/proc/{worker}").exists() for worker in crew)
    assert 3 <= len(kept) < 16
    begun = some(seeds=len(kept) + 2, epochs=20)  # two were under way
    _, records = done(begun, path)
    assert records[: len(kept)] == kept
    _, expected = done(begun, tmp_path / "alone.jsonl")
    assert compared(records) == compared(expected)


@linux
@pytest.mark.soak
def test_workers_end_with_the_process_that_they_work_for(
    tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    path = tmp_path / "records.jsonl"
    words = ["reproduce", *FLAGS, "--variants", "gru", "--seeds", "6", "--set", "epochs=20"]
    process = started(*words, "--records", path, "--workers", "2")
    wait_for(written(path, 1), process)
    crew = workers(process)
    assert len(crew) == 2
    process.kill()
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in crew))
    kept = list(read_records(path))
    _, records = done(some(seeds=6, epochs=20), path)
    assert records[: len(kept)] == kept
    assert sorted(r["task"]["seed"] for r in records) == list(range(6))


def trials(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "trials.csv").sort_values("number", ignore_index=True)


TUNE = [
    "tune", "tu:TINY", "--device", "cpu",
    *[word for key in ("layers=1", "epochs=2", "hidden=4") for word in ("--set", key)],
]  # fmt: skip


# The command line, which waits for a sign when all of it is loaded, which takes seconds.
AT_A_SIGN = """
import os, time
from pathlib import Path
from lg2ar import cli
from lg2ar.tuning import search
search.find_optuna()
Path(f"ready-{os.getpid()}").touch()
while not Path("go").exists():
    time.sleep(0.01)
cli.main()
"""


def test_two_processes_share_a_study_without_repeating_a_trial(
    tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    pytest.importorskip("optuna")
    storage = f"sqlite:///{tmp_path / 'shared.db'}"
    sign = [sys.executable, "-c", AT_A_SIGN]  # or one of them may be done before the other begins
    both = [
        started(
            *TUNE, "--trials", "9", "--out", tmp_path / name, "--storage", storage, command=sign
        )
        for name in ("one", "two")
    ]
    wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == 2, both[0])
    (tmp_path / "go").touch()
    for process in both:
        out, error = process.communicate()
        assert process.returncode == 0, error
        assert "9 trials finished, 0 given up" in out
    found = trials(tmp_path / "one")
    counted = found[found["state"] == "COMPLETE"]
    assert len(counted) == 9
    assert counted["params_learning_rate"].nunique() == 9  # no draw was done twice
    owners = counted["user_attrs_owner"].value_counts()
    assert len(owners) == 2, "both took part"
    assert counted["user_attrs_usual"].sum() == 1
    pd.testing.assert_frame_equal(found, trials(tmp_path / "two"))


HIGH = 0.05  # of learning rates


class FragileTrials(TrialWorker):
    """Its process is killed at the first trial once, and at those of a high learning rate."""

    def __call__(self, job: TrialJob) -> TrialResult:
        if job.chosen["learning_rate"] > HIGH:
            die()
        if job.untrained:
            die_once(Path(os.environ["LG2AR_DATA"]) / "died")
        return super().__call__(job)


def test_a_search_outlives_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("optuna")
    fixed = {"layers": 1, "epochs": 2, "hidden": 4}

    def tuned(name: str, number: int, crew: Crew | None = None) -> search.Tuned:
        return search.tune(
            "tu:TINY", tmp_path / name, trials=number, settings=fixed, device="cpu", crew=crew
        )

    tuned("alone", 5)
    expected = trials(tmp_path / "alone")
    high = expected["params_learning_rate"] > HIGH
    assert 0 < high.sum() < 5, "draws that make the test mean something"
    monkeypatch.setattr(search, "TrialWorker", FragileTrials)
    found = tuned("several", 5, Crew(workers=2))
    assert (found.finished, found.pruned, found.broken) == (5 - high.sum(), high.sum(), high.sum())
    assert found.usual == pytest.approx(expected["value"][0])
    assert found.untrained is not None
    assert caplog.text.count("it is done again") == 1 + high.sum()
    table = trials(tmp_path / "several")
    best = table[table["state"] == "COMPLETE"].set_index("params_learning_rate")["value"]
    wanted = expected[~high].set_index("params_learning_rate")["value"]
    pd.testing.assert_series_equal(best.sort_index(), wanted.sort_index())
    assert set(table["user_attrs_broken"].dropna()) == {
        "its worker was killed, as for a lack of memory, twice."
    }


@linux
def test_a_search_that_is_killed_goes_on_with_the_trials_it_would_have_had(
    tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    pytest.importorskip("optuna")
    words = [*TUNE, "--trials", "4", "--out"]
    process = started(*words, tmp_path / "killed")
    wait_for(lambda: (tmp_path / "killed" / "best.toml").exists(), process)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    fixed = {"layers": 1, "epochs": 2, "hidden": 4}
    for name in ("killed", "whole"):
        search.tune("tu:TINY", tmp_path / name, trials=4, settings=fixed, device="cpu")
    columns = ["value", "params_learning_rate", "params_ratio", "params_hops"]
    killed, whole = trials(tmp_path / "killed"), trials(tmp_path / "whole")
    killed = killed[killed["state"] == "COMPLETE"].reset_index()
    pd.testing.assert_frame_equal(killed[columns], whole[columns], check_dtype=False)
