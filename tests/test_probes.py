"""Linear layers of all splits at once, and the RBF SVM, against one after the other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor, nn

from lg2ar.errors import InputError
from lg2ar.probes import (
    few_label_accuracy,
    few_labels,
    linear_layer,
    linear_layer_accuracy,
    rbf_accuracy,
)
from lg2ar.probes.linear_layer import initial_weights
from lg2ar.splits import Splits, random_splits, stratified_folds


def blobs(n: int, d: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    middle = torch.randn(classes, d, generator=draw)
    x = torch.randn(n, d, generator=draw) + 0.7 * middle[y]
    return x * torch.logspace(-0.5, 0.5, d), y


def one_layer(
    x: Tensor, y: Tensor, weight: Tensor, masks: list[Tensor], *, epochs: int, scale: bool
) -> tuple[float, float, int]:
    """The probe as anyone would write it: one nn.Linear, one split."""
    train, validation, test = masks
    if scale:
        x = torch.from_numpy(StandardScaler().fit(x[train].double()).transform(x.double())).float()
    layer = nn.Linear(*weight.shape)
    with torch.no_grad():
        layer.weight.copy_(weight.T)
        layer.bias.zero_()
    adam = torch.optim.Adam(layer.parameters(), lr=1e-2)
    best = (-1.0, 0.0, 0)
    for epoch in range(1, epochs + 1):
        adam.zero_grad()
        F.cross_entropy(layer(x[train]), y[train]).backward()  # type: ignore[no-untyped-call]
        adam.step()
        if epoch % 20 == 0 or epoch == epochs:
            right = (layer(x).argmax(1) == y).double()
            found = 100 * right[validation].mean().item(), 100 * right[test].mean().item()
            if found[0] > best[0] + 1e-9:
                best = (*found, epoch)
    return best


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("chunk", [2**28, 200])
def test_layers_of_all_splits_are_those_of_each(
    scale: bool, chunk: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lg2ar.probes.linear_layer._CHUNK", chunk)
    x, y = blobs(120, 6, 3)
    splits = random_splits(120, count=5, seed=2, shares=(0.2, 0.2, 0.6))
    found = linear_layer_accuracy(x, y, splits, epochs=90, scale=scale, seed=3, device=device)
    weights = initial_weights(5, 6, 3, 3)
    for place in range(5):
        masks = [part[place] for part in (splits.train, splits.validation, splits.test)]
        best = one_layer(x, y, weights[place], masks, epochs=90, scale=scale)
        assert found.validation[place] == pytest.approx(best[0], abs=1e-4)
        assert found.test[place] == pytest.approx(best[1], abs=1e-4)
        assert found.epoch[place] == best[2]


def test_splits_of_different_sizes_go_together() -> None:
    x, y = blobs(60, 4, 2)
    number = torch.arange(60)
    train = torch.stack([number < 6, number < 30])
    validation = torch.stack([(number >= 6) & (number < 20), (number >= 30) & (number < 40)])
    test = torch.stack([number >= 20, number >= 40])
    both = linear_layer_accuracy(x, y, Splits(train, validation, test), epochs=60, seed=1)
    weights = initial_weights(2, 4, 2, 1)
    for place in range(2):
        masks = [train[place], validation[place], test[place]]
        best = one_layer(x, y, weights[place], masks, epochs=60, scale=False)
        assert both.test[place] == pytest.approx(best[1], abs=1e-4)


def test_nothing_is_lost_by_ending_where_nothing_improves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = blobs(80, 5, 2)
    splits = random_splits(80, count=3, seed=0, shares=(0.2, 0.2, 0.6))
    steps: list[int] = []
    plain = linear_layer._Layers.loss

    def counted(layers: linear_layer._Layers) -> Tensor:
        steps.append(1)
        return plain(layers)

    monkeypatch.setattr(linear_layer._Layers, "loss", counted)
    whole = linear_layer_accuracy(x, y, splits, epochs=900, patience=0)
    assert len(steps) == 900
    ended = linear_layer_accuracy(x, y, splits, epochs=900, patience=200)
    assert len(steps) - 900 == ended.epoch.max() + 200 < 900
    assert np.array_equal(ended.test, whole.test)
    assert np.array_equal(ended.validation, whole.validation)
    assert np.array_equal(ended.epoch, whole.epoch)


def test_a_split_ends_at_its_own_first_pause_whoever_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = blobs(120, 6, 3)
    splits = random_splits(120, count=8, seed=2, shares=(0.2, 0.2, 0.6))
    often: dict[str, Any] = {"epochs": 200, "check_every": 5, "seed": 3}
    found = linear_layer_accuracy(x, y, splits, patience=15, **often)
    paused = linear_layer_accuracy(x, y, splits, patience=0, **often).epoch > found.epoch
    assert paused.any()  # what they would have come to afterwards does not count
    assert not paused.all()
    monkeypatch.setattr("lg2ar.probes.linear_layer._CHUNK", 1)
    alone = linear_layer_accuracy(x, y, splits, patience=15, **often)
    assert np.array_equal(found.epoch, alone.epoch)
    np.testing.assert_allclose(found.test, alone.test)
    np.testing.assert_allclose(found.validation, alone.validation)


def test_patience_is_not_negative() -> None:
    x, y = blobs(80, 5, 2)
    splits = random_splits(80, count=3, seed=0, shares=(0.2, 0.2, 0.6))
    with pytest.raises(ValueError, match="patience must not be negative, got -1"):
        linear_layer_accuracy(x, y, splits, patience=-1)


def test_test_labels_do_not_choose() -> None:
    x, y = blobs(80, 5, 2)
    splits = random_splits(80, count=3, seed=0, shares=(0.2, 0.2, 0.6))
    before = linear_layer_accuracy(x, y, splits)
    wrong = y.clone()
    hidden = splits.test.all(0)
    wrong[hidden] = 1 - wrong[hidden]
    after = linear_layer_accuracy(x, wrong, splits)
    assert np.array_equal(before.epoch, after.epoch)
    assert np.array_equal(before.validation, after.validation)
    assert not np.array_equal(before.test, after.test)


def test_a_split_without_rows_is_refused() -> None:
    x, y = blobs(20, 3, 2)
    none, some = torch.zeros(1, 20, dtype=torch.bool), torch.ones(1, 20, dtype=torch.bool)
    with pytest.raises(InputError):
        linear_layer_accuracy(x, y, Splits(none, some, some))


def grid_search(x: NDArray[Any], y: NDArray[Any], folds: list[NDArray[Any]]) -> tuple[Any, Any]:
    accuracy, chosen = [], []
    for test in folds:
        train = np.setdiff1d(np.arange(len(y)), test)
        search = GridSearchCV(SVC(), {"C": [10.0**k for k in range(-3, 4)]}, cv=5)
        search.fit(x[train], y[train])
        accuracy.append(100 * search.score(x[test], y[test]))
        chosen.append(search.best_params_["C"])
    return np.array(accuracy), np.array(chosen)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("jobs", [1, 2])
def test_rbf_is_scikit_learns_grid_search(classes: int, jobs: int) -> None:
    x, y = blobs(90, 5, classes)
    folds = stratified_folds(y, 5, 0)
    found = rbf_accuracy(x, y, folds, jobs=jobs)
    accuracy, chosen = grid_search(x.double().numpy(), y.numpy(), folds)
    assert np.allclose(found.accuracy, accuracy)
    assert np.array_equal(found.C, chosen)


def test_rbf_on_real_data() -> None:
    root = os.environ.get("LG2AR_DATA")
    if not root or not (Path(root) / "MUTAG").is_dir():
        pytest.skip("needs mutag under LG2AR_DATA")
    from lg2ar.data.benchmarks import open_benchmark
    from lg2ar.ops import segment_sum

    dataset = open_benchmark("mutag")
    graph = dataset.graph
    assert dataset.y is not None
    rows = segment_sum(graph.x, graph.batch, graph.num_graphs)  # how many atoms of each kind
    folds = stratified_folds(dataset.y, 10, 0)
    found = rbf_accuracy(rows, dataset.y, folds)
    accuracy, chosen = grid_search(rows.double().numpy(), dataset.y.numpy(), folds)
    assert np.allclose(found.accuracy, accuracy)
    assert np.array_equal(found.C, chosen)
    assert 80 < found.accuracy.mean() < 92


def test_few_labels_are_read_by_what_is_seen_alone() -> None:
    x, y = (part.double().numpy() for part in blobs(100, 5, 2))
    x[:3] *= 50  # rows that would change the scale of all others
    accuracy = []
    for seen, rest in StratifiedShuffleSplit(6, train_size=0.2, random_state=4).split(x, y):
        scaler = StandardScaler().fit(x[seen])
        reader = LogisticRegression(max_iter=2000).fit(scaler.transform(x[seen]), y[seen])
        accuracy.append(100 * reader.score(scaler.transform(x[rest]), y[rest]))
    found = few_label_accuracy(x, y, share=0.2, splits=6, seed=4)
    assert (found.mean, found.std) == pytest.approx((np.mean(accuracy), np.std(accuracy)))
    assert found.protocol == "logistic regression on 20% of the labels, 6 splits"


def test_splits_of_few_labels_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side they multiply with no more threads than there are cores."""
    seen: list[int] = []

    def watched(rows: Any, labels: Any, train: Any, test: Any, *_: Any) -> tuple[Any, float]:
        pools = threadpool_info()
        seen.extend(pool["num_threads"] for pool in pools if pool["user_api"] == "blas")
        return np.zeros((len(test), 2)), 1.0

    monkeypatch.setattr(few_labels, "chosen_logistic_chances", watched)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    x, y = blobs(40, 5, 2)
    half = np.arange(20), np.arange(20, 40)
    with threadpool_limits(8, user_api="blas"):
        few_labels.chosen_logistic_accuracy(x, y, [half, half])
    assert seen
    assert set(seen) == {3}
    seen.clear()
    with threadpool_limits(2, user_api="blas"):  # what this process may take: no more
        few_labels.chosen_logistic_accuracy(x, y, [half, half])
    assert set(seen) == {2}
    with pytest.raises(ValueError, match="no splits to learn from"):
        few_labels.chosen_logistic_accuracy(x, y, [])
