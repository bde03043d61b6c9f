"""The search for presets: what is asked, run, remembered and chosen."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import lg2ar.benchmarks
from lg2ar.benchmarks import hyperparameters
from lg2ar.config import Config, Level
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.probes import linear_layer_accuracy
from lg2ar.protocols import Memory, Reader
from lg2ar.study.plan import TABLES
from lg2ar.tuning.space import SPACES

PRESETS = Path(lg2ar.benchmarks.__file__).parent / "hyperparameters.toml"
SMALL = {"hidden": 8, "layers": 1, "epochs": 40, "heads": ["identity", "node-dropping"]}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / "presets.py"
    spec = importlib.util.spec_from_file_location("presets", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "presets", module)  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def search(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with small settings and toy data in the place of the benchmarks'."""
    module = script
    toys = {"mutag": toy_graphs(40), "cora": toy_nodes(80)}
    small = search_space(module.NODE_SPACE, hidden=module.Choice((8, 16)))
    monkeypatch.setattr(module, "NODE_SPACE", small)
    monkeypatch.setattr(module, "hyperparameters", lambda name, preset: dict(SMALL))
    monkeypatch.setattr(module, "open_source", toys.__getitem__)
    monkeypatch.setattr(module, "STEPS", (10, 25))
    return module


def search_space(space: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**space, **changes}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("name", "at"), [("mutag", [10, 20, 40]), ("cora", [10, 25])])
def test_settings_are_asked_for_run_once_and_chosen(
    search: ModuleType, tmp_path: Path, name: str, at: list[int]
) -> None:
    jobs, out = tmp_path / "jobs.jsonl", tmp_path / "out.jsonl"

    def call(*words: str) -> str:
        result = CliRunner().invoke(search.app, list(words), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    asking = ["ask", name, "--trials", "2", "--base", "paper", "--jobs", str(jobs)]
    call(*asking, "--records", str(out))
    first, second = lines(jobs)
    level: Level = "graph" if name == "mutag" else "node"
    own = "layers" if level == "graph" else "hidden"
    assert first["settings"][own] == SMALL[own]  # the preset's own come first
    assert ("hops" in first["settings"]) == (level == "node")  # no head here cuts by hops
    for setting, value in second["settings"].items():
        known = {
            **SPACES["graph"],
            "learning_rate": search.LEARNING_RATES,
            "features": search.WITH_FEATURES,
        }
        kind = (search.NODE_SPACE if level == "node" else known)[setting]
        assert kind.nearest(value) == value
    call("run", str(jobs), "--out", str(out), "--device", "cpu")
    records = lines(out)
    assert [record["settings"] for record in records] == [first["settings"], second["settings"]]
    for record in records:
        assert sorted(map(int, record["curve"])) == [0, *at]
        means = {epoch: fmean(record["curve"][str(epoch)]) for epoch in at}
        assert means[record["epochs"]] == max(means.values()) == pytest.approx(record["value"])
        assert record["failed"] is None
    call("run", str(jobs), "--out", str(out), "--device", "cpu")
    assert lines(out) == records  # nothing is run twice
    call(*asking, "--records", str(out))
    assert all(job["settings"] != first["settings"] for job in lines(jobs)[2:])
    best = max(records, key=lambda record: float(record["value"]))
    printed = tomllib.loads(call("best", "--records", str(out)))[name]
    chosen = {**best["settings"], "epochs": best["epochs"]}
    before = Config.make({"level": level, **SMALL}).to_dict()
    assert printed == {key: value for key, value in chosen.items() if value != before[key]}


def test_the_best_are_run_again_with_more_seeds_and_steps(
    search: ModuleType, tmp_path: Path
) -> None:
    jobs, out = tmp_path / "jobs.jsonl", tmp_path / "out.jsonl"
    tried = [{"hidden": 8, "learning_rate": rate} for rate in (0.001, 0.002, 0.003)]
    old = [
        {**search.job_of("cora", "paper", settings, 1, steps), "value": value, "epochs": 10}
        for settings, value, steps in [
            (tried[0], 70.0, 10),
            (tried[1], 90.0, 10),
            (tried[1], 85.0, 25),
            (tried[2], 80.0, 10),
        ]
    ]
    out.write_text("".join(json.dumps(record) + "\n" for record in old))
    asking = ["again", "cora", "--most", "2", "--base", "paper", "--seeds", "2", "--steps", "25"]
    told = ["--jobs", str(jobs), "--records", str(out)]
    assert CliRunner().invoke(search.app, [*asking, *told], catch_exceptions=False).exit_code == 0
    wanted = lines(jobs)
    assert [job["settings"] for job in wanted] == [tried[1], tried[2]]
    assert all((job["seeds"], job["steps"]) == ([1000, 1001], 25) for job in wanted)
    worse = {**wanted[1], "value": 75.0, "epochs": 25}
    assert search.winner("cora", "paper", [*old, worse]) == worse  # what more seeds have borne out
    older = {**worse, "value": 99.0}
    del older["probe_epochs"]  # read by a layer of 300 epochs
    assert search.winner("cora", "paper", [*old, older, worse]) == worse
    more = {**older, "seeds": [1000, 1001, 1002]}  # one trial does not outweigh them
    assert search.winner("cora", "paper", [*old, more, older, worse]) == more
    assert search.winner("cora", "paper", [older, {**older, "value": 98.0}]) == older
    assert search.key(older) != search.key({**older, "probe_epochs": 3000})
    jobs.write_text(2 * jobs.read_text())  # asked for twice, run once
    told = ["run", str(jobs), "--out", str(out), "--device", "cpu"]
    assert CliRunner().invoke(search.app, told, catch_exceptions=False).exit_code == 0
    assert [sorted(map(int, record["curve"])) for record in lines(out)[4:]] == [[0, 10, 25]] * 2


def test_the_last_epoch_is_read_where_the_papers_grid_does_not_have_it(search: ModuleType) -> None:
    job = {"dataset": "mutag", "base": "paper", "settings": {"epochs": 25}, "seeds": [1000]}
    record = search.measure(job, search.choose_device("cpu"), Memory())
    assert list(record["curve"]) == [0, 10, 20, 25]


@pytest.mark.parametrize("name", ["mutag", "cora"])
def test_the_reported_seeds_and_folds_are_not_looked_at(
    search: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seeds: dict[str, list[int]] = {"read": [], "trained": []}

    def trained(dataset: Any, config: Any, used: Any, *, on_embeddings: Any, **_: Any) -> None:
        seeds["trained"] += used
        for place in range(len(used)):
            on_embeddings(place, 10, torch.empty(0))

    def read(reader: Reader, *_: object) -> float:
        seeds["read"].append(reader.seed)
        return 50.0

    monkeypatch.setattr(search, "pretrain_many", trained)
    monkeypatch.setattr(search, "criterion", read)
    job = {"dataset": name, "base": "paper", "settings": {"layers": 1}}
    record = search.measure(job, search.choose_device("cpu"), Memory())
    assert record["value"] == 50
    assert seeds["read"] == seeds["trained"] == list(record["seeds"])
    assert min(record["seeds"]) >= 1000 > 10 + max(table.seeds for table in TABLES.values())
    with pytest.raises(InputError, match="from 1000 on"):
        search.measure({**job, "seeds": [10, 1000]}, search.choose_device("cpu"), Memory())


def test_settings_are_compared_by_strict_folds_or_by_validation_nodes(search: ModuleType) -> None:
    draw = torch.Generator().manual_seed(0)
    for dataset in (toy_graphs(60), toy_nodes(80)):
        reader = Reader(dataset, 1000, torch.device("cpu"))
        assert dataset.y is not None
        rows = torch.randn(len(dataset), 5, generator=draw) + dataset.y[:, None] / 2
        found = search.criterion(reader, rows, Memory())
        if dataset.level == "graph":
            assert found == pytest.approx(fmean(reader.accuracy("strict", rows)))
            continue
        both = [
            linear_layer_accuracy(rows, reader.labels, reader.splits, scale=scale, seed=1000)
            for scale in (True, False)
        ]
        assert found == pytest.approx(fmean(float(one.validation.mean()) for one in both))
        assert found != pytest.approx(fmean(float(one.test.mean()) for one in both), abs=0.1)


def test_settings_that_break_down_are_recorded_as_worth_nothing(
    search: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise NonFiniteLossError("NaN")

    monkeypatch.setattr(search, "pretrain_many", broken)
    job = {"dataset": "mutag", "base": "paper", "settings": {"layers": 1}}
    record = search.measure(job, search.choose_device("cpu"), search.Memory())
    assert (record["value"], record["failed"]) == (0.0, "NonFiniteLossError: NaN")

    def out_of_order(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(search, "pretrain_many", out_of_order)
    with pytest.raises(RuntimeError, match="CUDA"):  # says nothing of the settings
        search.measure(job, search.choose_device("cpu"), search.Memory())


def test_the_preset_is_what_the_records_say(script: ModuleType) -> None:
    records = lines(Path(__file__).parents[1] / "results" / "search.jsonl")
    assert min(seed for record in records for seed in record["seeds"]) >= 1000
    names = {record["dataset"] for record in records}
    assert names == {name for table in ("graph", "node") for name in TABLES[table].datasets} - {
        "wikics"
    }
    for name in names:
        row = tomllib.loads(script.row(name, script.winner(name, "findings", records)))[name]
        assert hyperparameters(name, "searched") == {**hyperparameters(name, "findings"), **row}


@pytest.mark.parametrize(
    ("preset", "file", "earlier"),
    [
        ("long", "search-long.jsonl", ["search.jsonl"]),
        ("third", "search-third.jsonl", ["search.jsonl", "search-long.jsonl"]),
    ],
)
def test_a_later_round_is_taken_where_it_is_above_those_before(
    script: ModuleType, preset: str, file: str, earlier: list[str]
) -> None:
    results = Path(__file__).parents[1] / "results"
    trials, before = lines(results / file), [lines(results / own) for own in earlier]
    assert min(seed for record in trials for seed in record["seeds"]) >= 1000
    taken = set()
    for name in {record["dataset"] for record in trials}:
        best = script.winner(name, "findings", trials)
        if best["value"] > worth_before(script, name, trials, before):
            taken.add(name)
            row = tomllib.loads(script.row(name, best))[name]
            assert hyperparameters(name, preset) == {**hyperparameters(name, "findings"), **row}
    assert taken == set(tomllib.loads(PRESETS.read_text())["preset"][preset]["datasets"])


def run_again(
    script: ModuleType, record: dict[str, Any], trials: list[dict[str, Any]]
) -> dict[str, Any]:
    """The same settings in a later round, where they have more seeds there."""

    def kind(one: dict[str, Any]) -> list[Any]:
        return [one["dataset"], one["settings"], script.probe_of(one)]

    again = [one for one in trials if kind(one) == kind(record)]
    return max([record, *again], key=lambda one: len(one["seeds"]))


def worth_before(
    script: ModuleType, name: str, trials: list[dict[str, Any]], earlier: list[list[dict[str, Any]]]
) -> float:
    """What the best of the rounds before was worth, as this one's probe reads it."""
    best = script.winner(name, "findings", trials)
    held = [records for records in earlier if any(record["dataset"] == name for record in records)]
    before = [script.winner(name, "findings", records) for records in held]
    before = [run_again(script, record, trials) for record in before]
    alike = [record for record in before if script.probe_of(record) == script.probe_of(best)]
    if not alike:
        # Values of two probes cannot be compared: the first's settings as this round read them.
        own = {**hyperparameters(name, "searched"), "epochs": None}
        alike = [
            record
            for record in trials
            if record["dataset"] == name
            and {**hyperparameters(name, "findings"), **record["settings"], "epochs": None} == own
        ]
        alike = [script.winner(name, "findings", alike)] if alike else [best]
    return max(float(record["value"]) for record in alike)


def test_optuna_hears_only_of_trials_in_its_space(script: ModuleType) -> None:
    inside = {key: kind.nearest(1) for key, kind in script.NODE_SPACE.items()} | {"norm": False}
    record = {"dataset": "cora", "base": "findings", "value": 50.0}
    plain = script.proposals("cora", "findings", 2, [])
    strange = [{**record, "settings": {**inside, "row_normalise": True}}]
    assert script.proposals("cora", "findings", 1, strange) == plain[:1]  # still the preset's first
    beyond = [{**record, "settings": {**inside, "smoothing": 4}}]
    assert script.proposals("cora", "findings", 1, beyond) == plain[:1]
    known = script.proposals("cora", "findings", 1, [{**record, "settings": inside}])
    assert known != plain[:1]
    older = {key: value for key, value in inside.items() if key != "gcn_output"}
    assert inside["gcn_output"] == hyperparameters("cora", "findings").get("gcn_output", "last")
    assert script.proposals("cora", "findings", 1, [{**record, "settings": older}]) == known
