"""Looking for settings: the paper's ranges, the criteria, studies that go on."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch

import lg2ar
from commands import Command
from lg2ar.benchmarks import hyperparameters
from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.tuning import (
    SPACES,
    Choice,
    LabelCriterion,
    Range,
    neighbour_stability,
    search,
    tune,
)
from lg2ar.tuning import trials as trying
from lg2ar.tuning.chart import importance_chart
from lg2ar.tuning.criteria import LabelFree, disturbed
from lg2ar.tuning.shared import SharedStudy
from lg2ar.tuning.trials import TrialJob, TrialResult

optuna = pytest.importorskip("optuna")

SPACE: dict[str, Choice | Range] = {
    "hidden": Choice((4, 8)),
    "learning_rate": Range(1e-4, 1e-1, log=True),
    "epochs": Choice((1, 6)),
}
FIXED: dict[str, Any] = {"layers": 1, "batch_size": 32}


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@cache
def graphs() -> Dataset:
    return toy_graphs(40)


def small(folder: Path, **more: Any) -> search.Tuned:
    arguments = {"trials": 3, "settings": FIXED, "space": SPACE, "device": "cpu", **more}
    return tune(graphs(), folder, **arguments)


# The ranges.


@pytest.mark.parametrize("level", ["graph", "node"])
def test_the_usual_settings_lie_in_the_ranges(level: Any) -> None:
    config = Config.make(level=level)
    for name, kind in SPACES[level].items():
        assert kind.nearest(getattr(config, name)) == getattr(config, name)


@pytest.mark.parametrize("name", ["mutag", "collab", "pubmed", "coauthor-cs"])
def test_what_the_paper_selected_lies_in_its_ranges(name: str) -> None:
    settings = hyperparameters(name)
    level = "node" if name in ("pubmed", "coauthor-cs") else "graph"
    for key, kind in SPACES[level].items():  # type: ignore[index]
        if key in settings:
            assert kind.nearest(settings[key]) == settings[key], (key, settings[key])


def test_values_outside_are_brought_inside() -> None:
    assert Choice((1, 5, 9)).nearest(6) == 5
    assert Range(0.5, 2.0).nearest(7) == 2.0
    assert Range(0.5, 2.0).nearest(0.1) == 0.5


# The criterion without labels.


def cloud(number: int = 60, width: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(number, width))


def stability_by_hand(rows: np.ndarray, copy: np.ndarray, k: int) -> float:
    """The definition, pair by pair."""

    def nearest(x: np.ndarray, place: int) -> set[int]:
        angles = {}
        for other in range(len(x)):
            lengths = np.linalg.norm(x[place]) * np.linalg.norm(x[other])
            angles[other] = x[place] @ x[other] / lengths
        del angles[place]
        return set(sorted(angles, key=lambda other: -angles[other])[:k])

    mean, scale = rows.mean(0), rows.std(0)
    first, second = (rows - mean) / scale, (copy - mean) / scale
    kept = [len(nearest(first, p) & nearest(second, p)) / k for p in range(len(rows))]
    chance = k / (len(rows) - 1)
    return float((np.mean(kept) - chance) / (1 - chance))


def test_stability_is_that_of_its_definition() -> None:
    rows = cloud()
    copies = [rows + 0.3 * cloud(seed=seed) for seed in (1, 2)]
    expected = np.mean([stability_by_hand(rows, copy, 7) for copy in copies])
    assert 0.2 < expected < 0.9
    assert neighbour_stability(rows, copies, 7) == pytest.approx(expected)


def test_stability_is_one_for_no_change_and_zero_for_noise_and_collapse() -> None:
    rows = cloud(200)
    assert neighbour_stability(rows, [rows]) == 1
    assert neighbour_stability(rows, [cloud(200, seed=1)]) == pytest.approx(0, abs=0.05)
    # All alike, or two heaps only: ties, which nothing tells apart, must not look stable.
    alike = np.ones((200, 4))
    assert neighbour_stability(alike, [alike]) == pytest.approx(0, abs=0.05)
    heaps = np.repeat([[0.0, 1.0], [1.0, 0.0]], 100, axis=0)
    assert neighbour_stability(heaps, [heaps]) == pytest.approx(0.05, abs=0.05)
    assert neighbour_stability(np.full((9, 2), np.nan), [np.ones((9, 2))]) == 0
    assert neighbour_stability(np.ones((2, 2)), [np.ones((2, 2))]) == 0


def test_stability_does_not_depend_on_units_or_repeated_columns() -> None:
    rows = cloud()
    copy = rows + 0.3 * cloud(seed=1)
    value = neighbour_stability(rows, [copy])
    units = np.array([1, 10, 1000, 0.1])
    assert neighbour_stability(rows * units, [copy * units]) == pytest.approx(value)
    wide = neighbour_stability(np.tile(rows, 50), [np.tile(copy, 50)])
    assert wide == pytest.approx(value)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_disturbed_copies_lack_a_tenth(level: Any) -> None:
    graph = graphs().graph if level == "graph" else toy_nodes(200).graph
    copy = disturbed(graph, level, seed=0)
    if level == "graph":
        assert 0.85 < copy.num_nodes / graph.num_nodes < 0.95
        assert copy.num_graphs == graph.num_graphs
        assert bool((copy.sizes >= 1).all())
        lonely = graph.replace(
            x=graph.x[:5],
            edge_index=graph.edge_index[:, :0],
            batch=torch.arange(5),
            num_graphs=5,
        )
        assert disturbed(lonely, level, seed=0, share=0.99).num_nodes == 5
    else:
        assert copy.num_nodes == graph.num_nodes
        assert 0.85 < copy.num_edges / graph.num_edges < 0.95
        pairs = set(map(tuple, copy.edge_index.T.tolist()))
        assert all((b, a) in pairs for a, b in pairs)
    assert torch.equal(copy.edge_index, disturbed(graph, level, seed=0).edge_index)
    other = disturbed(graph, level, seed=1).edge_index
    assert other.shape != copy.edge_index.shape or not torch.equal(other, copy.edge_index)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_the_criterion_reads_a_run_and_looks_at_no_label(level: str) -> None:
    dataset = graphs() if level == "graph" else toy_nodes(100)
    run = lg2ar.pretrain(dataset, {**FIXED, "hidden": 8, "epochs": 1}, device="cpu")
    value = LabelFree(dataset)(run)
    assert 0 < value < 1
    assert LabelFree(replace(dataset, y=None))(run) == value


# The criterion with labels.


def test_labels_kept_apart_are_never_looked_at() -> None:
    dataset = toy_graphs(60)
    run = lg2ar.pretrain(dataset, {**FIXED, "hidden": 8, "epochs": 1}, device="cpu")
    values = np.linspace(0, 1, 60) ** 2
    measure = LabelCriterion(replace(dataset, targets={"c": values}), "c")
    seen, apart = measure.parts
    assert len(apart) == 12
    assert sorted([*seen.tolist(), *apart.tolist()]) == list(range(60))
    wrong = values.copy()
    wrong[apart] += 100
    other = LabelCriterion(replace(dataset, targets={"c": wrong}), "c")
    assert other(run) == measure(run)
    assert other.test(run) != measure.test(run)


def test_labels_are_read_better_than_by_chance() -> None:
    dataset = toy_graphs(120)
    run = lg2ar.pretrain(dataset, {"layers": 2, "hidden": 16, "epochs": 1}, device="cpu")
    measure = LabelCriterion(dataset)
    assert measure(run) > 45  # of four classes
    assert measure.test(run) > 35
    lonely = LabelCriterion(replace(dataset, y=(torch.arange(120) == 7).long()))
    with pytest.raises(InputError, match="too few rows to compare settings by"):
        _ = lonely.parts


# Studies.


def test_a_study_finds_settings_and_goes_on(tmp_path: Path) -> None:
    seen: list[tuple[int, int, float | None]] = []
    first = small(tmp_path, on_trial=lambda *told: seen.append(told))
    assert (first.finished, first.pruned) == (3, 0)
    assert [done for done, _, _ in seen] == [1, 2, 3]
    assert first.usual is not None
    assert first.untrained is not None
    assert first.value == max(best for _, _, best in seen if best is not None) >= first.usual
    trials = pd.read_csv(tmp_path / "trials.csv")
    assert trials.loc[0, "params_hidden"] == 8  # the usual settings, as near as the ranges have
    assert trials.loc[0, "params_learning_rate"] == pytest.approx(1e-3)
    assert first.value == pytest.approx(trials["value"].max())
    more = small(tmp_path, trials=5)
    assert more.finished + more.pruned == 5
    assert more.value >= first.value
    again = pd.read_csv(tmp_path / "trials.csv")
    assert again["value"][:3].tolist() == pytest.approx(trials["value"].tolist())
    assert len(again["params_learning_rate"].unique()) == 5  # it does not draw the same again
    assert small(tmp_path, trials=2).finished == more.finished  # enough already


def test_the_best_settings_are_a_config_that_gives_its_value(tmp_path: Path) -> None:
    found = small(tmp_path)
    config = Config.from_toml(tmp_path / "best.toml")
    assert tomllib.loads((tmp_path / "best.toml").read_text()) == found.settings
    run = lg2ar.pretrain(graphs(), config, device="cpu")
    assert LabelFree(graphs())(run) == pytest.approx(found.value)


def test_settings_of_any_kind_become_toml(tmp_path: Path) -> None:
    settings = {
        **FIXED,
        "norm": False,
        "policy": "deepset",
        "heads": ["identity", "node-dropping"],
        "clip": 1.5,
    }
    found = small(tmp_path, trials=1, settings=settings)
    held = tomllib.loads((tmp_path / "best.toml").read_text())
    assert settings.items() <= held.items()
    assert Config.make(held) == Config.make(found.settings)


def test_what_is_fixed_is_not_searched_for(tmp_path: Path) -> None:
    found = small(tmp_path, settings={**FIXED, "hidden": 6})
    assert found.settings["hidden"] == 6
    assert "params_hidden" not in pd.read_csv(tmp_path / "trials.csv").columns
    everything = {**FIXED, "hidden": 4, "learning_rate": 1e-3, "epochs": 1}
    with pytest.raises(InputError, match="nothing to search for"):
        small(tmp_path / "other", settings=everything)


def test_a_study_of_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    small(tmp_path, trials=1)
    with pytest.raises(InputError, match="other settings"):
        small(tmp_path, settings={**FIXED, "layers": 2})
    with pytest.raises(InputError, match="other criterion"):
        small(tmp_path, criterion="labels")
    with pytest.raises(InputError, match="other space"):
        small(tmp_path, space={"hidden": Choice((4, 8))})
    with pytest.raises(InputError, match="other data"):
        tune(toy_graphs(41), tmp_path, trials=2, settings=FIXED, space=SPACE, device="cpu")


def test_with_labels_the_part_kept_apart_is_told_at_the_end(tmp_path: Path) -> None:
    # Numbers, which no two encoders read equally well.
    dataset = replace(graphs(), targets={"size": graphs().graph.sizes.numpy() ** 1.5})
    more: dict[str, Any] = {"settings": FIXED, "space": SPACE, "device": "cpu"}
    found = tune(dataset, tmp_path, trials=3, criterion="labels", labels="size", **more)
    assert set(found.test) == {"best", "usual", "untrained"}
    assert found.criterion == "labels"
    measure = LabelCriterion(dataset, "size")
    run = lg2ar.pretrain(dataset, Config.from_toml(tmp_path / "best.toml"), device="cpu")
    assert measure(run) == pytest.approx(found.value)
    assert measure.test(run) == pytest.approx(found.test["best"])
    first = pd.read_csv(tmp_path / "trials.csv").loc[0]
    usual = {key: kind.nearest(first[f"params_{key}"]) for key, kind in SPACE.items()} | FIXED
    trained, untrained = (
        lg2ar.pretrain(dataset, {**usual, **less}, device="cpu") for less in ({}, {"epochs": 0})
    )
    assert (found.usual, found.untrained) == pytest.approx((measure(trained), measure(untrained)))
    assert found.test["usual"] == pytest.approx(measure.test(trained))
    assert found.test["untrained"] == pytest.approx(measure.test(untrained))
    assert found.test["untrained"] != pytest.approx(found.test["usual"])


def test_trials_that_fall_behind_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A criterion that falls from trial to trial: all after the first five are worse by epoch 5."""
    values: Iterator[float] = iter(range(1000, 0, -1))
    epochs: list[int] = []
    original = lg2ar.pretrain

    def counted(dataset: Any, config: Config, **more: Any) -> lg2ar.Run:
        run = original(dataset, config, **more)
        epochs.append(len(run.history))
        return run

    monkeypatch.setattr(LabelFree, "__call__", lambda self, run: float(next(values)))
    monkeypatch.setattr(trying, "pretrain", counted)
    found = small(tmp_path, trials=9, settings={**FIXED, "epochs": 6})
    assert (found.finished, found.pruned) == (5, 4)
    assert epochs == [6] * 5  # those given up did not come to their end
    assert found.trial == 0


def test_trials_that_break_down_are_counted_and_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = lg2ar.pretrain
    calls = 0

    def breaking(*arguments: Any, **more: Any) -> lg2ar.Run:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise NonFiniteLossError("the loss became nan")
        return original(*arguments, **more)

    monkeypatch.setattr(trying, "pretrain", breaking)
    found = small(tmp_path)
    assert (found.finished, found.pruned, found.broken) == (2, 1, 1)
    monkeypatch.setattr(trying, "pretrain", lambda *_, **__: (_ for _ in ()).throw(
        NonFiniteLossError("the loss became nan")
    ))  # fmt: skip
    with pytest.raises(InputError, match="none of 2 trials came to its end"):
        small(tmp_path / "all", trials=2)


def test_an_interrupted_trial_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = lg2ar.pretrain
    calls = 0

    def interrupted(*arguments: Any, **more: Any) -> lg2ar.Run:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return original(*arguments, **more)

    monkeypatch.setattr(trying, "pretrain", interrupted)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path)
    assert (tmp_path / "best.toml").exists()  # the best so far
    assert small(tmp_path).finished == 3


@pytest.mark.parametrize("after", ["enqueue_trial", "tell"])
def test_a_kill_while_a_trial_is_given_up_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """Giving one up is two entries; the process may be gone after either of them."""
    space: dict[str, Choice | Range] = {"learning_rate": Range(1e-4, 1e-1, log=True)}
    url = f"sqlite:///{tmp_path / 'study.db'}"

    class Killed(BaseException):
        pass

    def claimed(study: SharedStudy) -> TrialJob:
        job = study.claim(9, space)
        assert job is not None
        return job

    killed = SharedStudy(url, "study", 0, alone=True)
    killed.begin({}, {"learning_rate": 0.01}, "study")
    killed.settle(claimed(killed), TrialResult(1.0))
    lost = claimed(killed)
    killed.settle(claimed(killed), TrialResult(2.0))  # from now on, others would be drawn
    whole = getattr(killed.study, after)

    def then_killed(*arguments: Any, **more: Any) -> None:
        whole(*arguments, **more)
        raise Killed

    monkeypatch.setattr(killed.study, after, then_killed)
    with pytest.raises(Killed):
        killed._give_up(1)
    again = SharedStudy(url, "study", 0, alone=True)
    assert claimed(again).chosen == lost.chosen
    assert claimed(again).chosen != lost.chosen
    assert [trial.state.name for trial in again.trials()] == [
        "COMPLETE", "FAIL", "COMPLETE", "RUNNING", "RUNNING",
    ]  # fmt: skip


def test_an_interrupt_while_the_database_is_read_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = SharedStudy(f"sqlite:///{tmp_path / 'study.db'}", "study", 0)
    connection = study.storage.engine.connect()
    cursor = connection.connection.cursor()
    connection.invalidate()  # as an interrupt does in the midst of a statement
    connection._safe_close_cursor(cursor)
    assert not caplog.records


def test_a_trial_that_two_processes_line_up_again_is_done_once(tmp_path: Path) -> None:
    space: dict[str, Choice | Range] = {"learning_rate": Range(1e-4, 1e-1, log=True)}
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = SharedStudy(url, "study", 0, alone=True)
    study.begin({}, {"learning_rate": 0.01}, "study")
    job = study.claim(2, space)
    assert job is not None
    trial = study.trials()[0]
    for _ in range(2):  # as two of them do who saw it at the same time
        study._line_up(trial, lost=True)
    study._give_up(0, lost=True)
    assert len(study._counted()) == 1
    first, second = (study.claim(2, space) for _ in range(2))
    assert first is not None
    assert first.chosen == job.chosen
    assert second is None
    third = study.claim(2, space)
    assert third is not None
    assert third.chosen != job.chosen
    assert study.claim(2, space) is None


def test_a_storage_of_ones_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'mine.db'}"
    small(tmp_path / "out", storage=url)
    assert not (tmp_path / "out" / "tuning.db").exists()
    assert small(tmp_path / "elsewhere", storage=url, trials=3).finished == 3
    with pytest.raises(InputError, match="is no storage"):
        small(tmp_path / "bad", storage="nonsense://here")


def test_nodes_are_tuned_too(tmp_path: Path) -> None:
    space: dict[str, Choice | Range] = {"hidden": Choice((4, 8)), "hops": Choice((1, 2))}
    settings = {"epochs": 30, "patience": 2}
    found = tune(toy_nodes(80), tmp_path, trials=2, space=space, settings=settings, device="cpu")
    assert found.settings["level"] == "node"
    assert found.finished == 2


def test_without_optuna_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setitem(sys.modules, "sqlalchemy.exc", None)  # which comes with it
    with pytest.raises(InputError, match=r"pip install 'lg2ar\[tune\]'"):
        small(tmp_path)


def test_what_mattered_is_drawn(tmp_path: Path) -> None:
    found = small(tmp_path, trials=4)
    assert sum(found.importance.values()) == pytest.approx(1)
    drawn = ElementTree.parse(tmp_path / "importance.svg").getroot()
    bars = [part for part in drawn.iter() if part.get("class") == "bar"]
    assert len(bars) == len(SPACE)
    chart = importance_chart({"small": 0.25, "<large>": 0.75}, "note & more")
    texts = [part.text for part in ElementTree.fromstring(chart).iter() if part.text]
    assert "<large>" in texts
    assert texts.index("<large>") < texts.index("small")
    assert "75 %" in texts


def test_the_command(command: Command, tmp_path: Path) -> None:
    fixed = ["--set", "hidden=4", "--set", "layers=1", "--set", "epochs=1", "--device", "cpu"]
    told = command.ok("tune", "toy-graphs", "--out", tmp_path, "--trials", "2", *fixed)
    assert "2 trials finished" in told
    assert "usual" in told
    assert "untrained" in told
    best = tmp_path / "best.toml"
    assert f"--config {best}" in told
    command.ok("pretrain", "toy-graphs", "--out", tmp_path / "run", "--config", best)
    told = command.ok(
        "tune", "toy-graphs", "--out", tmp_path / "l", "--trials", "1", "--criterion", "labels",
        *fixed,
    )  # fmt: skip
    assert "on labels kept apart" in told
    assert "other criterion" in command.refused(
        "tune", "toy-graphs", "--out", tmp_path, "--trials", "2", "--criterion", "labels", *fixed
    )
