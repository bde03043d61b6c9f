"""The named protocols: what they read, on which folds, and what they leave alone."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError
from lg2ar.finetuning import semi_splits
from lg2ar.probes import chosen_probe_accuracy, linear_layer_accuracy, validated_accuracy
from lg2ar.protocols import (
    EPOCH_GRID,
    PROTOCOLS,
    Memory,
    Reader,
    check_protocol,
    evaluated_epochs,
    node_splits,
    read_by,
)
from lg2ar.splits import random_splits
from tiny import write_wikics

CPU = torch.device("cpu")
C = [10.0**k for k in range(-3, 4)]


def noisy_rows(dataset: Dataset, scale: float = 1.0, width: int = 6) -> torch.Tensor:
    """Rows that say a little about the label, of very different scales."""
    draw = np.random.default_rng(0)
    assert dataset.y is not None
    y = dataset.y.numpy()
    x = draw.standard_normal((len(y), width)) + 0.8 * draw.standard_normal((y.max() + 1, width))[y]
    return torch.from_numpy(x * scale * np.geomspace(0.1, 10, width)).float()


def grid_search(rows: torch.Tensor, reader: Reader, protocol: str) -> list[float]:
    """What a protocol says, by scikit-learn, fold after fold."""
    probe = {
        "paper": make_pipeline(LinearSVC(max_iter=100_000, tol=1e-8, dual=False)),
        "strict": make_pipeline(
            StandardScaler(), LinearSVC(max_iter=100_000, tol=1e-8, dual=False)
        ),
        "infograph-rbf": make_pipeline(SVC()),
    }[{"paper-scaled": "strict"}.get(protocol, protocol)]
    key = f"{probe.steps[-1][0]}__C"
    x, y, found = rows.double().numpy(), reader.labels, []
    for test in reader.folds:
        train = np.setdiff1d(np.arange(len(y)), test)
        search = GridSearchCV(probe, {key: C}, cv=5).fit(x[train], y[train])
        found.append(100 * search.score(x[test], y[test]))
    return found


@pytest.mark.parametrize("protocol", ["paper", "paper-scaled", "strict", "infograph-rbf"])
def test_graph_level_is_the_grid_search_of_scikit_learn(protocol: str) -> None:
    dataset = toy_graphs(num_graphs=120)
    reader, rows = Reader(dataset, 3, CPU), noisy_rows(dataset)
    assert reader.accuracy(protocol, rows) == pytest.approx(
        grid_search(rows, reader, protocol), abs=1e-4
    )


def negative_brier(model: LogisticRegression, x: np.ndarray, y: np.ndarray) -> float:
    chances = model.predict_proba(x)
    truth = y[:, None] == model.classes_
    return -float(((chances - truth) ** 2).sum(1).mean())


@pytest.mark.parametrize("width", [6, 40])  # fewer columns than labelled rows, and more
def test_frozen_semi_is_a_grid_search_on_the_labelled_tenth(width: int) -> None:
    dataset = toy_graphs(num_graphs=240)
    reader, rows = Reader(dataset, 3, CPU), noisy_rows(dataset, width=width)
    x, y = StandardScaler().fit_transform(rows.double().numpy()), reader.labels
    # Columns that are constant but for rounding are no noise to be blown up.
    near = 1e3 * (1 + 1e-7 * torch.from_numpy(np.random.default_rng(1).random((240, 30))))
    rows = torch.cat([rows, near.float(), torch.ones(240, 1)], dim=1)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    expected = []
    for split in semi_splits(y):
        assert len(split.train) < 25
        search = GridSearchCV(
            LogisticRegression(solver="newton-cholesky", tol=1e-8),
            {"C": C},
            cv=folds,
            scoring=negative_brier,
        ).fit(x[split.train], y[split.train])
        answers = search.best_estimator_.predict(x[split.test])
        expected.append(100 * float(np.mean(answers == y[split.test])))
    found = reader.accuracy("semi-frozen", rows)
    assert found == pytest.approx(expected, abs=1e-4)
    assert found == Reader(dataset, 4, CPU).accuracy("semi-frozen", rows)  # GraphCL's folds
    rows[7, 2] = torch.nan
    with pytest.raises(ValueError, match="must be finite"):
        reader.accuracy("semi-frozen", rows)


def test_scaling_inside_the_folds_is_what_strict_adds() -> None:
    dataset = toy_graphs(num_graphs=120)
    reader = Reader(dataset, 0, CPU)
    rows, shifted = noisy_rows(dataset), noisy_rows(dataset) * 1000 + 7
    assert reader.accuracy("strict", rows) == pytest.approx(reader.accuracy("strict", shifted))
    assert reader.accuracy("paper", rows) != reader.accuracy("paper", rows / 1000)


def test_folds_are_of_the_seed_alone() -> None:
    dataset = toy_graphs(num_graphs=60)
    one, two, other = (Reader(dataset, seed, CPU).folds for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert sorted(np.concatenate(one).tolist()) == list(range(60))


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(("protocol", "scale"), [("paper", False), ("strict", True)])
def test_node_level_reads_the_test_nodes_of_twenty_random_splits(
    protocol: str, scale: bool, seed: int
) -> None:
    dataset = toy_nodes()
    reader, rows = Reader(dataset, seed, CPU), noisy_rows(dataset)
    splits = random_splits(len(dataset), count=20, seed=seed)
    layer = linear_layer_accuracy(rows, reader.labels, splits, scale=scale, seed=seed)
    accuracy = reader.accuracy(protocol, rows)
    assert accuracy == pytest.approx(layer.test, abs=1e-5)
    assert accuracy != pytest.approx(layer.validation, abs=1e-5)
    assert np.mean(accuracy) > 100 / (int(reader.labels.max()) + 1) + 10
    assert bool((reader.splits.train.sum(1) == round(len(dataset) * 0.1)).all())


@pytest.mark.parametrize("protocol", ["paper", "strict"])
def test_nodes_can_be_read_as_they_were_before(protocol: str) -> None:
    dataset = toy_nodes()
    rows = noisy_rows(dataset) / 100  # so small that the layer is not done after 300 epochs
    reader = Reader(dataset, 0, CPU)
    before = linear_layer_accuracy(
        rows, reader.labels, reader.splits, epochs=300, patience=0, scale=protocol == "strict"
    )
    assert reader.accuracy(f"{protocol}-300", rows) == pytest.approx(before.test, abs=1e-5)
    if protocol == "paper":
        assert reader.accuracy("paper", rows) != reader.accuracy("paper-300", rows)
    with pytest.raises(InputError, match=f"'{protocol}-300' is not for graph level"):
        check_protocol(f"{protocol}-300", "graph")


def test_a_benchmark_without_public_splits_has_those_of_the_seed() -> None:
    nodes = toy_nodes()
    dataset = Dataset(name="amazon-photo", level="node", graph=nodes.graph, y=nodes.y)
    for seed in (0, 5):
        found, expected = node_splits(dataset, seed), random_splits(len(nodes), count=20, seed=seed)
        assert torch.equal(found.train, expected.train)
        assert torch.equal(found.test, expected.test)


def test_nested_chooses_among_kinds_of_svm() -> None:
    dataset = toy_graphs(num_graphs=60)
    reader, rows = Reader(dataset, 1, CPU), noisy_rows(dataset)
    found = reader.accuracy("nested", rows)
    assert found == pytest.approx(chosen_probe_accuracy(rows, reader.labels, reader.folds)[0])
    assert found != pytest.approx(reader.accuracy("strict", rows))


def test_nested_chooses_on_the_validation_nodes_of_the_same_splits() -> None:
    dataset = toy_nodes()
    reader, rows = Reader(dataset, 3, CPU), noisy_rows(dataset)
    found = reader.accuracy("nested", rows)
    chosen = validated_accuracy(rows, reader.labels, random_splits(len(dataset), seed=3))
    assert found == pytest.approx(chosen.test, abs=1e-5)
    assert found != pytest.approx(chosen.validation, abs=1e-5)
    assert len(found) == 20
    assert np.mean(found) > 100 / (int(reader.labels.max()) + 1) + 10
    x, (source, target) = dataset.graph.x, dataset.graph.edge_index
    near = torch.eye(len(x)).index_put((target, source), torch.ones(()), accumulate=True)
    near = near / (near.sum(1, keepdim=True) * near.sum(1)).sqrt()  # as a GCN weighs neighbours
    features = [x, near @ x, near @ near @ x]
    beside = validated_accuracy(rows, reader.labels, reader.splits, features=features)
    assert reader.accuracy("nested-features", rows) == pytest.approx(beside.test, abs=1e-5)
    assert not np.array_equal(beside.test, chosen.test)
    bare = dataclasses.replace(dataset, graph=dataset.graph.replace(x=dataset.graph.x[:, :0]))
    with pytest.raises(InputError, match="has no node features; use protocol 'nested'"):
        Reader(bare, 3, CPU).accuracy("nested-features", rows)


def test_wikics_is_read_on_its_twenty_public_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lg2ar.data.benchmarks import open_benchmark, open_split

    write_wikics(tmp_path)
    monkeypatch.setenv("LG2AR_DATA", str(tmp_path))
    dataset = open_benchmark("wikics")
    public = open_split("wikics")
    assert public is not None
    for seed in (0, 1):
        assert torch.equal(node_splits(dataset, seed).test, public.test)
    rows = torch.eye(3)[dataset.y] if dataset.y is not None else torch.empty(0)
    assert Reader(dataset, 0, CPU).accuracy("strict", rows) == [100.0] * 20


def test_cora_is_read_on_its_public_split() -> None:
    root = os.environ.get("LG2AR_DATA")
    if not root or not (Path(root) / "Cora").is_dir():
        pytest.skip("needs cora under LG2AR_DATA")
    from lg2ar.data.benchmarks import open_benchmark

    dataset = open_benchmark("cora")
    reader = Reader(dataset, 0, CPU)
    assert [int(m.sum()) for m in (reader.splits.train[0], reader.splits.test[0])] == [140, 1000]
    # The features alone are known to give 47.9 % (Velickovic et al., 2019).
    (accuracy,) = reader.accuracy("paper", dataset.graph.x)
    assert accuracy == pytest.approx(47.9, abs=2)


def test_what_is_remembered_is_what_was_computed() -> None:
    dataset = toy_graphs(num_graphs=60)
    reader, memory, rows = Reader(dataset, 0, CPU), Memory(), noisy_rows(dataset)
    first = memory.accuracy(reader, "strict", rows)
    assert memory.accuracy(reader, "strict", rows.clone()) is first
    assert memory.accuracy(reader, "strict", rows.flip(1) * 2 + 1) is not first
    assert memory.accuracy(reader, "paper", rows) is not first
    assert memory.accuracy(Reader(dataset, 1, CPU), "strict", rows) is not first


def test_the_same_rows_of_another_data_set_are_read_anew() -> None:
    memory, rows = Memory(), torch.zeros(60, 3)
    one = toy_graphs(num_graphs=60)
    assert one.y is not None
    two = Dataset(name="other", level="graph", graph=one.graph, y=one.y.flip(0))
    first = memory.accuracy(Reader(one, 0, CPU), "strict", rows)
    assert memory.accuracy(Reader(two, 0, CPU), "strict", rows) is not first


def test_a_public_split_that_cannot_be_read_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = toy_nodes()
    dataset = Dataset(name="cora", level="node", graph=nodes.graph, y=nodes.y)
    (tmp_path / "Cora").mkdir()
    (tmp_path / "Cora" / "lg2ar-1.safetensors").write_text("damaged")
    monkeypatch.setenv("LG2AR_DATA", str(tmp_path))
    with pytest.raises(InputError, match="the cache is damaged"):
        node_splits(dataset, 0)


def test_embeddings_are_not_read_under_semi() -> None:
    dataset = toy_graphs(num_graphs=60)
    with pytest.raises(ValueError, match="fine-tunes an encoder"):
        Reader(dataset, 0, CPU).accuracy("semi", noisy_rows(dataset))


def test_only_the_papers_protocol_looks_at_epochs_in_between() -> None:
    config = Config.make(epochs=60)
    assert evaluated_epochs(["strict", "infograph-rbf"], config) == (0, 60)
    assert evaluated_epochs(["strict", "paper"], config) == (0, 10, 20, 40, 60)
    assert evaluated_epochs(["paper-scaled"], config) == (0, 10, 20, 40, 60)
    assert evaluated_epochs(["paper"], Config.make(epochs=7)) == (0, 7)
    assert evaluated_epochs(["paper"], Config.make(epochs=0)) == (0,)
    assert evaluated_epochs(["paper"], Config.make(level="node", epochs=300)) == (0, 300)
    assert EPOCH_GRID == (10, 20, 40, 60, 100, 200)


def test_protocols_that_do_not_fit_are_refused() -> None:
    for name, levels in PROTOCOLS.items():
        for level in levels:
            check_protocol(name, level)
    with pytest.raises(InputError, match="'stric' is not a protocol; known are paper, paper-"):
        check_protocol("stric", "graph")
    with pytest.raises(InputError, match="'infograph-rbf' is not for node level; use one of paper"):
        check_protocol("infograph-rbf", "node")


def test_data_without_classes_is_refused() -> None:
    dataset = toy_graphs(num_graphs=12)
    bare = Dataset(name="mine", level="graph", graph=dataset.graph)
    with pytest.raises(InputError, match="mine has no class labels"):
        Reader(bare, 0, CPU)
    numbers = Dataset(name="mine", level="graph", graph=dataset.graph, y=torch.rand(12))
    with pytest.raises(InputError, match="mine has no class labels"):
        Reader(numbers, 0, CPU)


def test_what_was_read_before_keeps_a_name_of_its_own() -> None:
    """Records and encoders of other people, too: their settings tell when they were made."""
    before: dict[str, object] = {"hidden": 8}
    now = {**before, "embedding_scale": "as-is"}
    assert read_by("strict", "node", before) == "strict-300"
    assert read_by("paper-300", "node", before) == "paper-300"
    assert read_by("strict", "node", now) == read_by("strict", "graph", before) == "strict"
