"""Many runs in little time: data that travels, jobs that are done once, records that are kept."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from lg2ar.data.sources import open_source
from lg2ar.study.plan import TABLES, plan

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "campaign.py"


@pytest.fixture
def campaign(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))  # as it is where the script is run
    spec = importlib.util.spec_from_file_location("campaign", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(module: ModuleType, *words: object) -> str:
    result = CliRunner().invoke(module.app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def lines(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def needs(name: str) -> None:
    if not (Path(os.environ.get("LG2AR_DATA", "nowhere")) / name).exists():
        pytest.skip("needs the benchmark data: set LG2AR_DATA to its root")


def test_data_arrives_as_it_was(
    campaign: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("MUTAG")
    names = ("mutag", "cora")
    before = {name: open_source(name) for name in names}
    call(campaign, "pack", tmp_path / "data.npz.xz", "--names", ",".join(names))
    monkeypatch.setenv("LG2AR_DATA", str(tmp_path / "there"))
    call(campaign, "unpack", tmp_path / "data.npz.xz")
    for name in names:
        after = open_source(name)
        assert after.fingerprint() == before[name].fingerprint()
        assert torch.equal(after.graph.x, before[name].graph.x)
    assert len(list((tmp_path / "there").iterdir())) == 2  # no raw file was there, or was needed


def test_jobs_come_variant_by_variant_in_parts(campaign: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    asked = ["--datasets", "mutag,dd", "--variants", "gru,random", "--together", "4"]
    call(campaign, "jobs", file, "graph", *asked, "--first-seed", "10", "--preset", "findings")
    found = lines(file)
    assert [(job["variants"], job["dataset"], len(job["seeds"])) for job in found] == [
        ([variant], name, number)
        for variant in ("gru", "random")
        for name in ("mutag", "dd")
        for number in (4, 4, 2)
    ]
    assert found[1]["seeds"] == [14, 15, 16, 17]
    assert found[0]["preset"] == "findings"
    assert found[0]["protocols"] == list(TABLES["graph"].protocols)


def test_jobs_by_seed_have_the_variants_that_are_left(campaign: ModuleType, tmp_path: Path) -> None:
    file, kept = tmp_path / "jobs.jsonl", tmp_path / "kept.jsonl"
    (done,) = plan("graph", datasets=["dd"], variants=["random"], seeds=[1], preset="findings")
    evaluation = {"protocol": "strict", "epoch": 0, "selection": None, "accuracy": [50.0]}
    record = {"task": asdict(done.task), "config": done.config.to_dict()}
    kept.write_text(json.dumps({**record, "evaluations": [evaluation]}) + "\n")
    asked = ["--datasets", "mutag,dd", "--variants", "gru,random", "--seeds", "2", "--by-seed"]
    asked += ["--preset", "findings", "--protocols", "strict", "--records", str(kept)]
    call(campaign, "jobs", file, "graph", *asked)
    assert [(job["dataset"], job["seeds"], job["variants"]) for job in lines(file)] == [
        ("mutag", [0], ["gru", "random"]),
        ("mutag", [1], ["gru", "random"]),
        ("dd", [0], ["gru", "random"]),
        ("dd", [1], ["gru"]),
    ]


def test_workers_do_each_job_once_and_what_they_did_is_merged(
    campaign: ModuleType, tmp_path: Path
) -> None:
    needs("MUTAG")
    file, out, kept = tmp_path / "jobs.jsonl", tmp_path / "out", tmp_path / "kept.jsonl"
    # Runs without training: the work of reading them is left.
    asked = ["graph", "--datasets", "mutag", "--variants", "untrained", "--protocols", "strict"]
    asked += ["--preset", "findings"]
    call(campaign, "jobs", file, *asked, "--seeds", "4", "--together", "1")
    file.write_text('{"table": "graph"}\n' + file.read_text())  # one that cannot be done first
    call(campaign, "work", file, "--out", out, "--workers", "2", "--device", "cpu")
    made = sorted(out.glob("graph-*.jsonl"))
    assert sorted(r["task"]["seed"] for r in lines(*made)) == [0, 1, 2, 3]
    assert "4 records added" in call(campaign, "merge", kept, *made)
    assert "0 records added" in call(campaign, "merge", kept, *made)
    again = tmp_path / "again.jsonl"
    call(campaign, "jobs", again, *asked, "--seeds", "6", "--records", kept)
    assert [job["seeds"] for job in lines(again)] == [[4, 5]]


def test_settings_of_the_search_are_jobs_too(campaign: ModuleType, tmp_path: Path) -> None:
    needs("MUTAG")
    settings = {"layers": 1, "learning_rate": 0.001, "epochs": 10}
    job = {"dataset": "mutag", "base": "findings", "settings": settings, "seeds": [1000]}
    file, out, kept = tmp_path / "jobs.jsonl", tmp_path / "out", tmp_path / "kept.jsonl"
    file.write_text(json.dumps(job) + "\n")
    call(campaign, "work", file, "--out", out, "--workers", "1", "--device", "cpu")
    made = sorted(out.glob("search-*.jsonl"))
    (record,) = lines(*made)
    assert {key: record[key] for key in job} == job
    assert record["failed"] is None
    assert list(record["curve"]) == ["0", "10"]
    assert "1 records added" in call(campaign, "merge", kept, *made)
    assert "0 records added" in call(campaign, "merge", kept, *made)


def test_after_the_end_nothing_is_begun(campaign: ModuleType, tmp_path: Path) -> None:
    file, taken = tmp_path / "jobs.jsonl", tmp_path / "taken"
    file.write_text('{"table": "graph"}\n' * 2)
    taken.mkdir()
    call(campaign, "one", file, tmp_path, taken, 0, 0.0, "cpu")
    assert not list(taken.iterdir())
    call(campaign, "one", file, tmp_path, taken, 0, 1e12, "cpu")
    assert len(list(taken.iterdir())) == 2  # tried, though they cannot be done


def test_a_process_whose_time_is_over_ends_by_itself(campaign: ModuleType, tmp_path: Path) -> None:
    # A signal that kills it would do so in the midst of a kernel.
    needs("MUTAG")
    file, out, taken = tmp_path / "jobs.jsonl", tmp_path / "out", tmp_path / "taken"
    call(campaign, "jobs", file, "graph", "--datasets", "mutag", "--preset", "grid")
    for folder in (out, taken):
        folder.mkdir()
    line = [sys.executable, SCRIPT, "one", file, out, taken, "0", "1e12", "cpu"]
    process = subprocess.Popen([str(word) for word in line])
    try:
        end = time.monotonic() + 60
        while not list(taken.iterdir()):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        process.terminate()
        assert process.wait(60) == campaign.ENDED
    finally:
        process.kill()


def test_when_time_is_over_all_processes_are_ended(campaign: ModuleType, tmp_path: Path) -> None:
    needs("MUTAG")
    file, out = tmp_path / "jobs.jsonl", tmp_path / "out"
    call(campaign, "jobs", file, "graph", "--datasets", "mutag", "--preset", "grid")
    begin = time.monotonic()
    call(campaign, "work", file, "--out", out, "--workers", "2", "--device", "cpu", "--seconds", 5)
    assert time.monotonic() - begin < 5 + campaign.GRACE
    assert not lines(*out.iterdir())  # what was under way is left for another time


def test_processes_that_break_down_are_told_of(campaign: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"table": "graph"}\n')
    words = ["work", str(file), "--out", str(tmp_path / "out"), "--workers", "2"]
    result = CliRunner().invoke(campaign.app, [*words, "--device", "nonsense"])
    assert result.exit_code == 1
    assert "2 of 2 processes broke down" in result.output


def test_recorded_runs_are_no_jobs(campaign: ModuleType, tmp_path: Path) -> None:
    file, kept = tmp_path / "jobs.jsonl", tmp_path / "kept.jsonl"
    (planned, *_) = plan("graph", datasets=["mutag"], variants=["gru"], seeds=[1])
    done = [{"protocol": name, "epoch": 20, "accuracy": [50.0]} for name in ("strict", "paper")]
    record = {"task": asdict(planned.task), "config": planned.config.to_dict(), "evaluations": done}
    kept.write_text(json.dumps(record) + "\n")
    asked = ["--datasets", "mutag", "--variants", "gru", "--seeds", "3", "--records", kept]
    call(campaign, "jobs", file, "graph", *asked)
    assert [job["seeds"] for job in lines(file)] == [[0, 2]]
    call(campaign, "jobs", file, "graph", *asked, "--protocols", "strict,nested")
    found = {tuple(job["seeds"]): job["protocols"] for job in lines(file)[1:]}
    assert found == {(0, 2): ["strict", "nested"], (1,): ["nested"]}  # all that it lacks


def test_runs_that_are_read_under_no_protocol_are_jobs(
    campaign: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.jsonl"
    call(campaign, "jobs", file, "cost", "--datasets", "mutag,dd", "--together", "1")
    found = [(job["variants"], job["dataset"], job["protocols"]) for job in lines(file)]
    assert found == [
        ([variant], name, []) for variant in ("gru", "infograph") for name in ("mutag", "dd")
    ]


def test_jobs_by_seed_that_lack_other_protocols_are_apart(
    campaign: ModuleType, tmp_path: Path
) -> None:
    file, kept = tmp_path / "jobs.jsonl", tmp_path / "kept.jsonl"
    (done,) = plan("graph", datasets=["dd"], variants=["random"], seeds=[1], preset="findings")
    evaluation = {"protocol": "strict", "epoch": 0, "selection": None, "accuracy": [50.0]}
    record = {"task": asdict(done.task), "config": done.config.to_dict()}
    kept.write_text(json.dumps({**record, "evaluations": [evaluation]}) + "\n")
    asked = ["--datasets", "dd", "--variants", "gru,random,deepset", "--seeds", "2", "--by-seed"]
    asked += ["--preset", "findings", "--protocols", "strict,nested", "--records", str(kept)]
    call(campaign, "jobs", file, "graph", *asked)
    assert [(job["seeds"], job["variants"], job["protocols"]) for job in lines(file)] == [
        ([0], ["gru", "random", "deepset"], ["strict", "nested"]),
        ([1], ["gru", "deepset"], ["strict", "nested"]),
        ([1], ["random"], ["nested"]),
    ]
