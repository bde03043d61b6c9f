"""Fine-tuning for people: what the labels are, honest splits, early stopping, saved models."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import f1_score, r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler

import lg2ar
from commands import Command
from lg2ar.data.conversion import write_on_disk
from lg2ar.data.dataset import Dataset
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.finetuning import Split, held_out_split, load_finetuned
from lg2ar.finetuning.early_stopping import TuningSettings
from lg2ar.finetuning.network import EncodedRows, Network, Rows
from lg2ar.finetuning.probe import probed
from lg2ar.finetuning.targets import Target, read_labels
from lg2ar.probes import C_GRID
from sealing import write_sealed

SMALL: dict[str, Any] = {"hidden": 8, "layers": 2, "epochs": 1}
QUICK: dict[str, Any] = {"epochs": 25, "learning_rate": 1e-2, "hidden": 16, "batch_size": 32}
ABC = ("a", "b", "c")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@cache
def graphs() -> Dataset:
    """Toy graphs with a class in words, sizes to predict, and a column with gaps."""
    dataset = toy_graphs(num_graphs=120)
    assert dataset.y is not None
    names = np.array(["oak", "ash", "elm", "fir"], dtype=object)[dataset.y.numpy()]
    sizes = dataset.graph.sizes.numpy().astype(float)
    gaps = names.copy()
    gaps[::3] = None
    targets = {"tree": names, "log size": np.log(sizes), "gaps": gaps, "same": np.ones(120)}
    ids = tuple(f"g{place}" for place in range(120))
    return replace(dataset, targets=targets, ids=ids)


@cache
def run() -> lg2ar.Run:
    return lg2ar.pretrain(graphs(), SMALL, device="cpu")


# What the labels are.


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["b", "a", "b", "a"] * 3, "classification", ("a", "b")),
        ([True, False, True] * 3, "classification", ("False", "True")),
        ([3, 1, 10, 3] * 3, "classification", ("1", "3", "10")),
        ([3.0, 1.0, np.nan, 3.0] * 3, "classification", ("1", "3")),
        ([0.5, 1.5, 2.5, 3.5] * 3, "regression", ()),
        (list(range(30)), "regression", ()),
    ],
)
def test_classes_and_numbers_are_told_apart(
    values: list[Any], task: str, classes: tuple[str, ...]
) -> None:
    dataset = replace(toy_graphs(len(values)), targets={"c": np.array(values)})
    labels = read_labels(dataset, "c")
    assert (labels.target.task, labels.target.classes) == (task, classes)
    for row in labels.known:
        told = labels.values[row]
        if classes:
            assert classes[told] == str(values[row]).removesuffix(".0")
        else:
            assert told == values[row]
    assert len(labels.known) == sum(value == value for value in values)


def test_the_task_can_be_forced() -> None:
    dataset = replace(toy_graphs(12), targets={"c": np.array([1, 2, 3] * 4)})
    assert read_labels(dataset, "c", "regression").target.task == "regression"
    dataset = replace(toy_graphs(12), targets={"c": np.array([0.5, 1.5] * 6)})
    assert read_labels(dataset, "c", "classification").target.classes == ("0.5", "1.5")


@pytest.mark.parametrize(
    ("column", "values", "task", "words"),
    [
        ("c", ["a"] * 12, None, "single class 'a'"),
        ("c", [f"id{k}" for k in range(12)], None, "12 classes for 12 labelled rows"),
        ("c", ["a", "b"] * 6, "regression", "holds classes, such as 'a'"),
        ("c", [np.nan] * 12, None, "no graph has a label"),
        ("c", [np.inf, 0.5] * 6, None, "is infinite in row 0"),
        ("d", ["a", "b"] * 6, None, "has no column 'd'"),
        ("cc", ["a", "b"] * 6, None, "did you mean 'c'"),
        ("c", ["a", "b"] * 6, "guessing", "must be classification or regression"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(
    column: str, values: list[Any], task: Any, words: str
) -> None:
    dataset = replace(toy_graphs(12), y=None, targets={"c": np.array(values)})
    with pytest.raises(InputError, match=words):
        read_labels(dataset, column, task)


def test_scores_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    two = Target("c", "classification", ("a", "b"))
    truth, told = rng.integers(0, 2, 50), rng.random(50)
    found = two.scores(truth, np.stack([1 - told, told], axis=1))
    assert found["accuracy"] == pytest.approx(100 * ((told > 0.5) == truth).mean())
    assert found["F1"] == pytest.approx(100 * f1_score(truth, told > 0.5, average="macro"))
    assert found["ROC-AUC"] == pytest.approx(100 * roc_auc_score(truth, told))
    three = Target("c", "classification", ("a", "b", "c"))
    assert "ROC-AUC" not in three.scores(truth, rng.random((50, 3)))
    number = Target("c", "regression")
    sizes, guess = rng.normal(size=50), rng.normal(size=50)
    found = number.scores(sizes, guess)
    assert found["R2"] == pytest.approx(r2_score(sizes, guess))
    assert found["MAE"] == pytest.approx(np.abs(sizes - guess).mean())
    assert found["RMSE"] == pytest.approx(np.sqrt(((sizes - guess) ** 2).mean()))


# Splits.


@pytest.mark.parametrize("fraction", [1.0, 0.5, 0.1])
def test_a_fraction_of_the_labels_is_all_that_is_used(fraction: float) -> None:
    rows = np.arange(3, 1003)
    classes = np.repeat([0, 1], [800, 200])
    split = held_out_split(rows, classes, fraction=fraction, seed=4)
    used = len(split.train) + len(split.validation)
    assert (len(split.test), used) == (200, 800 * fraction)
    assert len(split.validation) == pytest.approx(0.2 * used, abs=1)
    parts = (split.train, split.validation, split.test)
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    assert set(together) <= set(rows.tolist())
    for part in parts:
        assert (classes[part - 3] == 1).mean() == pytest.approx(0.2, abs=1 / len(part))
    again = held_out_split(rows, classes, fraction=fraction, seed=4)
    other = held_out_split(rows, classes, fraction=fraction, seed=5)
    assert again.test.tolist() == split.test.tolist() != other.test.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_every_class_has_a_row_to_be_learned_from(seed: int) -> None:
    classes = np.repeat([0, 1, 2, 3], [40, 2, 1, 1])
    split = held_out_split(np.arange(44), classes, fraction=0.5, seed=seed)
    assert set(classes[split.train]) == {0, 1, 2, 3}
    together = np.concatenate([split.train, split.validation, split.test])
    assert len(np.unique(together)) == len(together)
    assert len(split.test) == 9


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"fraction": 0.0}, "fraction = 0 must be"),
        ({"fraction": 1.5}, "fraction = 1.5 must be"),
        ({"test": 1.0}, "test = 1 must be"),
        ({"validation": 0.0}, "validation = 0 must be"),
        ({"fraction": 0.01}, "leave 0 to learn from, where at least 2 are needed"),
    ],
)
def test_shares_that_leave_nothing_are_refused(shares: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        held_out_split(np.arange(20), None, **shares)


# Training.


def test_classes_are_learned_and_compared_with_honest_floors() -> None:
    """Guessing one of four classes gets 25%."""
    tuned = lg2ar.finetune(run(), graphs(), "tree", **QUICK)
    assert tuned.target.classes == ("ash", "elm", "fir", "oak")
    assert list(tuned.scores) == ["pretrained", "probe", "untrained", "no graph"]
    assert tuned.scores["pretrained"]["accuracy"] > 60
    assert tuned.scores["no graph"]["accuracy"] == pytest.approx(25, abs=5)
    assert tuned.rows == {
        "labelled": 120,
        "learned from": 77,
        "stopped by": 19,
        "held out": 24,
    }


def test_the_floor_is_the_encoder_that_training_began_with() -> None:
    settings = {**QUICK, "epochs": 5}
    tuned = lg2ar.finetune(run(), graphs(), "log size", **settings)
    start = lg2ar.pretrain(graphs(), {**SMALL, "epochs": 0}, device="cpu")
    alone = lg2ar.finetune(start, graphs(), "log size", floor=False, **settings)
    assert tuned.scores["untrained"] == alone.scores["pretrained"] != tuned.scores["pretrained"]
    assert tuned.scores["no graph"] == alone.scores["no graph"]


def test_numbers_are_learned_in_their_own_units() -> None:
    tuned = lg2ar.finetune(run(), graphs(), "log size", floor=False, **{**QUICK, "epochs": 80})
    assert tuned.target.task == "regression"
    assert list(tuned.scores) == ["pretrained", "probe", "no graph"]
    assert tuned.scores["pretrained"]["R2"] > 0.7
    assert tuned.scores["no graph"]["R2"] < 0.1
    told = tuned.predict(graphs())
    truth = graphs().targets["log size"]
    assert told.probabilities is None
    assert np.abs(told.values - truth).mean() < np.abs(truth - truth.mean()).mean() / 1.5


def test_nodes_are_classified_too() -> None:
    dataset = toy_nodes(num_nodes=200)
    trained = lg2ar.pretrain(dataset, SMALL, device="cpu")
    tuned = lg2ar.finetune(trained, dataset, **{**QUICK, "epochs": 60})
    assert tuned.target.column == "y"
    assert tuned.scores["pretrained"]["accuracy"] > 45  # of four
    assert tuned.scores["probe"]["accuracy"] > 35
    assert len(tuned.predict(dataset)) == 200


@pytest.mark.parametrize("column", ["tree", "log size"])
def test_the_probe_is_a_linear_model_of_the_embeddings(column: str) -> None:
    """It learns from all labels that are not held out, those that stop training included."""
    dataset = graphs()
    tuned = lg2ar.finetune(run(), dataset, column, floor=False, **QUICK)
    held = read_labels(dataset, column)
    classes = held.values if column == "tree" else None
    split = held_out_split(held.known, classes)
    x = StandardScaler().fit_transform(run().embed(dataset).numpy().astype(float))
    seen = np.concatenate([split.train, split.validation])
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    logistic = LogisticRegression(solver="newton-cholesky", tol=1e-8)
    model = (
        GridSearchCV(logistic, {"C": C_GRID}, scoring=brier, cv=folds)
        if column == "tree"
        else RidgeCV(alphas=[10.0**k for k in range(-2, 6)])
    ).fit(x[seen], held.values[seen])
    told, truth = model.predict(x[split.test]), held.values[split.test]
    if column == "tree":
        expected = {"accuracy": 100 * float(np.mean(told == truth))}
    else:
        expected = {"MAE": float(np.abs(told - truth).mean())}
    for name, value in expected.items():
        assert tuned.scores["probe"][name] == pytest.approx(value, rel=1e-4)


def brier(model: Any, x: np.ndarray, y: np.ndarray) -> float:
    chances = model.predict_proba(x)
    return -float(((chances - (y[:, None] == model.classes_)) ** 2).sum(1).mean())


def test_the_probe_is_left_out_where_labels_are_many_or_rows_are_not_finite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: dict[str, Any] = {**QUICK, "epochs": 1, "floor": False}
    monkeypatch.setattr("lg2ar.finetuning.from_run.MOST", 95)
    tuned = lg2ar.finetune(run(), graphs(), "tree", **settings)
    assert list(tuned.scores) == ["pretrained", "no graph"]  # with 96 labels
    monkeypatch.setattr("lg2ar.finetuning.from_run.MOST", 96)
    tuned = lg2ar.finetune(run(), graphs(), "tree", **settings)
    assert list(tuned.scores) == ["pretrained", "probe", "no graph"]
    encode = EncodedRows.__init__

    def broken(self: EncodedRows, *given: Any) -> None:
        encode(self, *given)
        self.encodings[3, 1] = torch.inf

    monkeypatch.setattr(EncodedRows, "__init__", broken)
    tuned = lg2ar.finetune(run(), graphs(), "tree", **settings)
    assert list(tuned.scores) == ["pretrained", "no graph"]


def test_a_probe_of_very_few_rows() -> None:
    """A row of each class leaves nothing to choose by; of rows alike, the smallest C is taken."""
    rows = np.array([[0.0, 3.0], [3.0, 0.0], [-3.0, 0.0], [2.5, 0.1], [0.3, 2.0], [-2.0, 0.5]])
    split = Split(np.array([0, 1]), np.array([2]), np.array([3, 4, 5]))
    told = probed(rows, np.array([2, 0, 1, 9, 9, 9]), split, Target("kind", "classification", ABC))
    assert told.argmax(1).tolist() == [0, 2, 1]
    assert np.allclose(told.sum(1), 1)
    more = Split(np.array([0, 1]), np.array([2, 3]), np.array([4, 5]))
    told = probed(rows, np.array([2, 0, 1, 0, 9, 9]), more, Target("kind", "classification", ABC))
    assert told.argmax(1).tolist() == [2, 1]


@pytest.mark.parametrize("freeze", [False, True])
def test_freezing_leaves_the_encoder_alone(freeze: bool) -> None:
    before = {k: v.clone() for k, v in run().model.base_encoder.state_dict().items()}
    tuned = lg2ar.finetune(run(), graphs(), "tree", freeze=freeze, floor=False, **QUICK)
    after = tuned.network.encoder.state_dict()
    changed = [k for k in before if not torch.equal(before[k], after[k])]
    assert bool(changed) != freeze
    now = run().model.base_encoder.state_dict()
    assert all(torch.equal(before[k], now[k]) for k in before)  # the run's own, in any case
    assert tuned.scores["pretrained"]["accuracy"] > 40


def test_a_frozen_encoder_is_read_once_and_rightly() -> None:
    dataset = graphs()
    network = Network(run().model.base_encoder, 2, 4, 0.0, "graph", frozen=True)
    rows = Rows(run().recipe.apply(dataset), "graph", torch.device("cpu"))
    used = np.array([5, 99, 17, 3])
    encoded = EncodedRows(rows, network, used)
    expected = run().embed(dataset)
    for wanted in (np.array([17, 5]), np.array([3, 99, 5])):
        ((found, numbers),) = encoded.chunks(wanted)
        assert isinstance(found, torch.Tensor)
        assert numbers.tolist() == wanted.tolist()
        assert torch.allclose(found, expected[wanted], atol=1e-5)


def test_training_stops_when_the_validation_loss_stops_falling() -> None:
    """Labels drawn at random: nothing can be learned, and the best epoch is an early one."""
    noise = np.random.default_rng(0).choice(np.array(["a", "b"], dtype=object), 120)
    dataset = replace(graphs(), targets={"noise": noise})
    settings = {**QUICK, "epochs": 200, "patience": 5}
    tuned = lg2ar.finetune(run(), dataset, "noise", floor=False, **settings)
    assert len(tuned.history) == tuned.epoch + 5 < 100
    losses = [record.validation_loss for record in tuned.history]
    assert losses[tuned.epoch - 1] == min(losses)


def test_the_weights_kept_are_those_of_the_best_epoch() -> None:
    settings = {**QUICK, "epochs": 30, "patience": 30, "learning_rate": 0.05}
    tuned = lg2ar.finetune(run(), graphs(), "tree", floor=False, **settings)
    shorter = {**settings, "epochs": tuned.epoch}
    again = lg2ar.finetune(run(), graphs(), "tree", floor=False, **shorter)
    assert tuned.epoch < 30
    one, two = tuned.network.state_dict(), again.network.state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_the_seed_fixes_everything_and_the_random_state_is_left_alone() -> None:
    def told(seed: int) -> list[float]:
        tuned = lg2ar.finetune(
            run(),
            graphs(),
            "tree",
            floor=False,
            seed=seed,
            **{**QUICK, "epochs": 3, "dropout": 0.3},
        )
        probabilities = tuned.predict(graphs()).probabilities
        assert probabilities is not None
        return [float(value) for value in probabilities[:, 0]]

    first = told(1)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert told(1) == first
    assert torch.equal(state, torch.get_rng_state())
    assert told(2) != first


def test_rows_without_a_label_are_predicted_but_not_learned_from() -> None:
    tuned = lg2ar.finetune(run(), graphs(), "gaps", floor=False, **QUICK)
    assert tuned.rows["labelled"] == 80
    assert len(tuned.predict(graphs())) == 120


def test_held_out_labels_change_no_weight() -> None:
    values = graphs().targets["log size"]
    held_out = held_out_split(np.arange(120), None, seed=0).test
    wrong = values.copy()
    wrong[held_out] += 100
    settings = {**QUICK, "epochs": 3, "floor": False}
    one = lg2ar.finetune(run(), graphs(), "log size", **settings)
    two = lg2ar.finetune(run(), replace(graphs(), targets={"c": wrong}), "c", **settings)
    first, second = one.network.state_dict(), two.network.state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert two.scores["pretrained"]["MAE"] > 90 > one.scores["pretrained"]["MAE"]


def test_a_label_that_is_a_feature_is_refused(tmp_path: Path) -> None:
    import networkx as nx

    graph = nx.random_regular_graph(3, 40, seed=0)
    for node in graph:
        graph.nodes[node]["kind"] = "ab"[node % 2]
        graph.nodes[node]["size"] = float(node % 7)
    trained = lg2ar.pretrain(graph, SMALL, device="cpu")  # kind is a feature here
    with pytest.raises(InputError, match="'kind' is a feature of the run"):
        lg2ar.finetune(trained, graph, "kind", **QUICK)
    clean = lg2ar.pretrain(lg2ar.read(graph, labels="kind"), SMALL, device="cpu")
    tuned = lg2ar.finetune(clean, graph, "kind", floor=False, **{**QUICK, "epochs": 2})
    assert tuned.target.classes == ("a", "b")
    assert len(tuned.predict(graph)) == 40  # where the column is no feature either


def test_bad_settings_are_refused() -> None:
    for settings, words in (
        ({"epochs": 0}, "epochs = 0 must be"),
        ({"epochs": 1.5}, "epochs = 1.5 must be"),
        ({"learning_rate": -1.0}, "learning_rate = -1.0 must be"),
        ({"dropout": 1.0}, "dropout = 1.0 must be"),
        ({"freeze": 1}, "freeze = 1 must be"),
        ({"seed": -1}, "seed = -1 must be"),
        ({"epoch": 3}, "'epoch' is no setting"),
    ):
        with pytest.raises(InputError, match=words):
            lg2ar.finetune(run(), graphs(), "tree", **settings)
    assert TuningSettings(dropout=0).dropout == 0


def test_a_loss_that_is_no_number_is_named() -> None:
    broken = replace(graphs(), graph=graphs().graph.replace(x=graphs().graph.x * float("nan")))
    with pytest.raises(NonFiniteLossError, match="lower learning_rate"):
        lg2ar.finetune(run(), broken, "tree", **QUICK)


# Folders and predictions.


@pytest.mark.parametrize("column", ["tree", "log size"])
def test_a_saved_model_predicts_the_same(tmp_path: Path, column: str) -> None:
    settings = {**QUICK, "epochs": 2}
    tuned = lg2ar.finetune(run(), graphs(), column, out=tmp_path, floor=False, **settings)
    again = load_finetuned(tmp_path, "cpu")
    one, two = tuned.predict(graphs()), again.predict(graphs())
    assert one.frame().equals(two.frame())
    assert one.ids.tolist()[:2] == ["g0", "g1"]
    assert (again.target, again.settings) == (tuned.target, tuned.settings)
    assert (again.history, again.scores) == (tuned.history, tuned.scores)
    assert not list(tmp_path.glob("*.pt"))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_one_graph_is_predicted_as_it_is_among_others() -> None:
    tuned = lg2ar.finetune(run(), graphs(), "tree", floor=False, **{**QUICK, "epochs": 2})
    whole = tuned.predict(toy_graphs(20)).probabilities
    few = tuned.predict(toy_graphs(20).graph.to_pyg().to_data_list()[:3], level="graph")
    assert whole is not None
    assert few.probabilities is not None
    assert np.allclose(whole[:3], few.probabilities, atol=1e-5)
    assert few.probabilities.sum(1) == pytest.approx(1)
    best = [few.classes[place] for place in few.probabilities.argmax(1)]
    assert few.values.tolist() == best


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    settings = {**QUICK, "epochs": 1}
    lg2ar.finetune(run(), graphs(), "tree", out=tmp_path, floor=False, **settings)
    with pytest.raises(InputError, match="already holds a fine-tuned model"):
        lg2ar.finetune(run(), graphs(), "tree", out=tmp_path, **settings)
    head = json.loads((tmp_path / "finetuned.json").read_text())
    weights = tmp_path / head["files"]["network"]["name"]
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(InputError, match="damaged or truncated"):
        load_finetuned(tmp_path)
    weights.write_bytes(whole)
    for part in ("config", "recipe", "target", "settings", "files", "scores"):
        rest = {key: value for key, value in head.items() if key != part}
        write_sealed(tmp_path / "finetuned.json", rest)
        with pytest.raises(InputError, match=r"finetuned\.json: damaged"):
            load_finetuned(tmp_path)
    head["settings"]["hidden"] = 17
    write_sealed(tmp_path / "finetuned.json", head)
    with pytest.raises(InputError, match="damaged"):
        load_finetuned(tmp_path)


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_the_commands_from_labels_to_predictions(
    command: Command, tmp_path: Path, ending: str
) -> None:
    base = ["--device", "cpu"]
    small = ["--set", "hidden=8", "--set", "layers=2", "--set", "epochs=1"]
    command.ok("pretrain", "toy-graphs", "--out", tmp_path / "run", *small, *base)
    told = command.ok(
        "finetune", tmp_path / "run", "toy-graphs", "--out", tmp_path / "tuned",
        "--fraction", "0.3", "--set", "epochs=15", "--set", "learning_rate=0.01", *base,
    )  # fmt: skip
    assert "'y' is 4 classes (classification)" in told
    assert "learned from 58 of 300 labels" in told
    for row in ("pretrained", "probe", "untrained", "no graph"):
        assert row in told
    out = tmp_path / f"told.{ending}"
    told = command.ok("predict", tmp_path / "tuned", "toy-graphs", "--out", out, *base)
    assert "300 predictions of 'y'" in told
    if ending == "npz":
        held = np.load(out, allow_pickle=False)
        assert held["probability"].shape == (300, 4)
        assert held["classes"].tolist() == ["0", "1", "2", "3"]
        assert held["prediction"].tolist() == [
            held["classes"][k] for k in held["probability"].argmax(1)
        ]
        return
    table = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    assert list(table.columns) == ["id", "prediction", "p(0)", "p(1)", "p(2)", "p(3)"]
    assert table["id"].tolist() == list(range(300))
    assert np.allclose(table.iloc[:, 2:].to_numpy().sum(1), 1)


def test_tables_with_words_and_gaps_from_files_to_predictions(
    command: Command, tmp_path: Path
) -> None:
    """A folder of CSV files whose labels are words, some of them missing."""
    dataset = graphs()
    graph, once = dataset.graph, dataset.graph.edge_index[0] < dataset.graph.edge_index[1]
    names = np.array(dataset.ids)
    tables = {
        "nodes": {
            "graph": names[graph.batch],
            "node": np.arange(graph.num_nodes),
            "colour": [f"c{place}" for place in graph.x.argmax(1).tolist()],
        },
        "edges": {
            "graph": names[graph.batch[graph.edge_index[0, once]]],
            "source": graph.edge_index[0, once],
            "target": graph.edge_index[1, once],
        },
        "graphs": {"graph": names, **{k: dataset.targets[k] for k in ("gaps", "log size")}},
    }
    source, small = tmp_path / "mine", ["--set", "epochs=2", "--device", "cpu"]
    source.mkdir()
    for name, columns in tables.items():
        pd.DataFrame(columns).to_csv(source / f"{name}.csv", index=False)
    shape = ["--set", "hidden=8", "--set", "layers=2"]
    command.ok("pretrain", source, "--out", tmp_path / "run", *shape, *small)
    tune: list[str | Path] = ["finetune", tmp_path / "run", source, *small]
    told = command.ok(*tune, "--labels", "gaps", "--out", tmp_path / "kind", "--no-floor")
    assert "'gaps' is 4 classes (classification)" in told
    assert "of 80 labels" in told
    told = command.ok(*tune, "--labels", "log size", "--out", tmp_path / "size", "--freeze")
    assert "'log size' is a number (regression); head alone" in told
    assert "MAE" in told
    command.ok("predict", tmp_path / "kind", source, "--out", tmp_path / "told.csv")
    before = (source / "graphs.csv").read_text()
    told = command.refused("predict", tmp_path / "kind", source, "--out", source / "graphs.csv")
    assert "is the source itself" in told
    assert (source / "graphs.csv").read_text() == before
    table = pd.read_csv(tmp_path / "told.csv")
    assert table["id"].tolist() == list(names)
    assert set(table["prediction"]) <= {"oak", "ash", "elm", "fir"}
    assert "name one of" in command.refused(*tune, "--out", tmp_path / "none")
    again = lg2ar.finetune(
        tmp_path / "run", source, "gaps", epochs=2, floor=False, device="cpu"
    ).predict(source)
    assert again.values.tolist() == table["prediction"].tolist()


def test_graphs_on_a_disk_are_learned_from_like_those_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "graphs.sqlite"
    write_on_disk(path, toy_graphs(40))
    trained = lg2ar.pretrain(toy_graphs(40), SMALL, device="cpu")
    settings = {**QUICK, "epochs": 2, "floor": False}
    memory = lg2ar.finetune(trained, toy_graphs(40), **settings)
    disk = lg2ar.finetune(trained, lg2ar.read(path), **settings)
    assert disk.scores == memory.scores
    assert disk.predict(path).frame().equals(memory.predict(toy_graphs(40)).frame())


def test_the_commands_refuse_in_one_sentence(command: Command, tmp_path: Path) -> None:
    small = ["--set", "hidden=8", "--set", "layers=2", "--set", "epochs=0", "--device", "cpu"]
    made = tmp_path / "run"
    command.ok("pretrain", "toy-graphs", "--out", made, *small)
    tune: list[str | Path] = ["finetune", made, "toy-graphs", "--out", tmp_path / "tuned"]
    assert "says nothing about" in command.refused(*tune, "--labels", "tree")
    assert "epochs = 0" in command.refused(*tune, "--set", "epochs=0")
    assert "fraction = 3" in command.refused(*tune, "--fraction", "3")
    assert "there is no run here" in command.refused(
        "finetune", tmp_path, "toy-graphs", "--out", tmp_path / "tuned"
    )
    assert "lg2ar finetune" in command.refused(
        "predict", made, "toy-graphs", "--out", tmp_path / "p.csv"
    )
    assert ".docx: a table is written as" in command.refused(
        "predict", made, "toy-graphs", "--out", tmp_path / "p.docx"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    (tmp_path / "file").write_text("in the way")
    blocked: list[str | Path] = [
        "finetune",
        made,
        "toy-graphs",
        "--out",
        tmp_path / "file" / "tuned",
    ]
    assert "cannot be written" in command.refused(*blocked)
