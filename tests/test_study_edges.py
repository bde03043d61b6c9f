"""What a study refuses, what it must not mix, and what it survives."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lg2ar.data.sources import open_source
from lg2ar.errors import InputError
from lg2ar.records import StudyRecord, versions
from lg2ar.report.cells import cells
from lg2ar.report.tables import read_records
from lg2ar.study.ledger import Ledger
from lg2ar.study.plan import Planned, plan
from lg2ar.study.runner import Runner
from test_study import SMALL, done, epochs, run_all, some
from tiny import write_graphs


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graphs(tmp_path)
    monkeypatch.setenv("LG2AR_DATA", str(tmp_path))


def test_supervised_is_not_read_as_an_encoder_without_labels() -> None:
    with pytest.raises(InputError, match="'supervised' is read under the protocols paper and str"):
        some(variants=["gru", "supervised"], protocols=["infograph-rbf"])
    kept = plan("graph", datasets=["mutag"], seeds=[0], protocols=["infograph-rbf"])
    assert "supervised" not in {run.task.method for run in kept}
    with pytest.raises(InputError, match="'supervised' is read under"):
        plan("cost", datasets=["mutag"], variants=["supervised"])


@pytest.mark.parametrize("key", ["policy", "seed", "level", "method"])
def test_what_a_variant_is_about_cannot_be_set(key: str) -> None:
    with pytest.raises(InputError, match=f"{key} is what variant 'gru' is about"):
        some(settings={key: 1})


def test_settings_by_hand_are_named_in_any_order() -> None:
    (one,) = some(settings={"hidden": 8, "epochs": 2})
    (two,) = some(settings={"epochs": 2, "hidden": 8})
    assert one.task.preset == two.task.preset == "default epochs=2 hidden=8"


def test_a_run_that_stops_at_an_evaluated_epoch_is_read_under_all_protocols(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lg2ar.protocols.EPOCH_GRID", tuple(range(1, 500)))
    settings = {**SMALL, "epochs": 500, "patience": 1}
    (planned,) = some(settings=settings, protocols=["strict", "paper"])
    record = done(planned, ["strict", "paper"])
    assert record.epochs < 500
    assert epochs(record, "strict") == [0, record.epochs]
    assert epochs(record, "paper") == list(range(record.epochs + 1))


def test_data_that_cannot_be_evaluated_is_refused_before_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("lg2ar.study.runner.pretrain")
    (planned,) = some("semi", protocols=["semi"])
    dataset = open_source("tu:TINY")
    runner = Runner(torch.device("cpu"))
    with pytest.raises(InputError, match="has no class labels"):
        runner.run(planned, dataclasses.replace(dataset, y=None), ["semi"])
    with pytest.raises(InputError, match="has a single class"):
        runner.run(planned, dataclasses.replace(dataset, y=torch.zeros(40).long()), ["strict"])
    few = torch.arange(40) % 20  # two graphs of each class
    with pytest.raises(InputError, match=r"cannot be divided|too few"):
        runner.run(planned, dataclasses.replace(dataset, y=few), ["semi"])


def test_a_record_says_which_code_made_it() -> None:
    made = versions()["code"]
    assert len(made) == 12
    assert made == versions()["code"]


@pytest.mark.parametrize("text", ["my precious notes", "one\ntwo", '{"a": 1}\n[1'])
def test_a_file_that_is_not_ours_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=r"notes\.txt, line \d: "):
        Ledger(path)
    assert path.read_text() == text


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        Ledger(tmp_path / "taken" / "records.jsonl")
    with pytest.raises(InputError, match="cannot be read"):
        Ledger(tmp_path)


def test_a_table_passes_over_a_record_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    run_all(some(seeds=[0, 1]), path)
    path.write_bytes(path.read_bytes()[:-40])
    assert [r["task"]["seed"] for r in read_records(path)] == [0]


def test_runs_of_different_settings_are_not_averaged(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    run_all(some(seeds=[0, 1]), path)
    assert cells(read_records(path), "graph")
    first, second = path.read_text().splitlines()
    path.write_text(first + "\n" + second.replace('"hidden": 8', '"hidden": 9') + "\n")
    with pytest.raises(InputError, match=r"line 2: config\.hidden = 9, where .*line 1"):
        cells(read_records(path), "graph")
    other = json.loads(second)
    other["data"]["fingerprint"] = "0"
    path.write_text(first + "\n" + json.dumps(other) + "\n")
    with pytest.raises(InputError, match=r"line 2: data\.fingerprint = '0'"):
        cells(read_records(path), "graph")


def test_cost_is_measured_on_each_device(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    runs = some("cost", protocols=[])
    made, _, _ = run_all(runs, path, [])
    assert len(made) == 1
    _, skipped, _ = run_all(runs, path, [])
    assert len(skipped) == 1
    path.write_text(path.read_text().replace(made[0]["device"], "another device"))
    again, _, _ = run_all(runs, path, [])
    assert len(again) == 1


def test_a_crash_of_one_run_does_not_end_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Runner, planned: Planned, *rest: Any) -> StudyRecord:
        raise RuntimeError("singular")  # as PyTorch does, of which LinAlgError is one

    monkeypatch.setattr(Runner, "run", broken)
    _, _, failures = run_all(some(seeds=[0, 1]), tmp_path / "records.jsonl")
    assert [text.split(": ")[1] for text in failures] == ["singular", "singular"]
