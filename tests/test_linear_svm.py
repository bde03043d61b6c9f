"""The batched linear SVM against scikit-learn's converged LinearSVC."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import Tensor

from lg2ar.devices import SHARERS
from lg2ar.probes import linear_svm, nested_accuracy, newton
from lg2ar.probes.folds import C_GRID

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def blobs(n: int, d: int, classes: int, *, seed: int = 0, signal: float = 0.7) -> tuple[Any, Any]:
    """Heavy-tailed features that say something about the class."""
    draw = np.random.default_rng(seed)
    y = draw.permutation(np.arange(n) % classes)
    x = draw.standard_normal((n, d)) + signal * draw.standard_normal((classes, d))[y]
    return x * np.exp(0.3 * draw.standard_normal((n, 1))), y


def objective(w: Array, x: Array, signs: Array, C: float) -> float:
    """The formula as loops over floats; the last weight is that of the constant feature."""
    total = 0.5 * sum(float(a) ** 2 for a in w)
    for row, sign in zip(x, signs, strict=True):
        margin = sign * (sum(float(a) * float(b) for a, b in zip(w, row, strict=False)) + w[-1])
        total += C * max(0.0, 1.0 - margin) ** 2
    return float(total)


def tight(x: Array, signs: Array, C: float) -> Array:
    """scikit-learn's solution, far beyond its default tolerance: the better of its two solvers."""
    found = []
    for dual in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own tolerance cannot always be reached at 1e-10
            model = LinearSVC(C=C, tol=1e-10, max_iter=20_000, dual=dual, random_state=0)
            model.fit(x, signs)
        found.append(np.append(model.coef_[0], model.intercept_[0]))
    return min(found, key=lambda w: objective(w, x, signs, C))


def one_vs_rest(y: Labels, classes: int) -> Tensor:
    return torch.from_numpy(np.stack([np.where(y == k, 1.0, -1.0) for k in range(classes)]))


def weights(solution: linear_svm.Solution) -> Array:
    both = torch.cat([solution.coef, solution.intercept[:, None]], dim=1)
    return both.cpu().numpy().astype(np.float64)


def outer_folds(x: Array, y: Labels, folds: int = 4) -> list[NDArray[np.int64]]:
    cut = StratifiedKFold(folds, shuffle=True, random_state=0)
    return [test for _, test in cut.split(x, y)]


def grid_search(
    x: Array,
    y: Labels,
    folds: list[NDArray[np.int64]],
    *,
    scale: bool,
    dual: bool | None = None,
) -> tuple[Array, Array, Array]:
    """What the batched search must find: accuracies, C and inner means, one SVM at a time."""
    accuracy, chosen, inner = [], [], []
    for test in folds:
        train = np.setdiff1d(np.arange(len(y)), test)
        kind = x.shape[0] < x.shape[1] if dual is None else dual
        probe = LinearSVC(tol=1e-8, max_iter=20_000, dual=kind, random_state=0)
        steps = make_pipeline(StandardScaler(), probe) if scale else make_pipeline(probe)
        search = GridSearchCV(steps, {"linearsvc__C": list(C_GRID)}, cv=5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            search.fit(x[train], y[train])
        accuracy.append(100 * search.score(x[test], y[test]))
        chosen.append(search.best_params_["linearsvc__C"])
        inner.append(100 * search.cv_results_["mean_test_score"])
    return np.array(accuracy), np.array(chosen), np.array(inner)


@pytest.mark.parametrize(("n", "d"), [(90, 7), (40, 60), (240, 110)])
@pytest.mark.parametrize("classes", [2, 3])
def test_agrees_with_scikit_learn(n: int, d: int, classes: int) -> None:
    x, y = blobs(n, d, classes)
    signs = one_vs_rest(y, classes)
    start = None
    for C in C_GRID:
        start = linear_svm.fit(
            torch.from_numpy(x), signs, torch.ones_like(signs), C, start=start, tolerance=1e-12
        )
        for k in range(classes):
            expected = tight(x, signs[k].numpy(), C)
            value = objective(weights(start)[k], x, signs[k].numpy(), C)
            best = objective(expected, x, signs[k].numpy(), C)
            assert start.objective[k].item() == pytest.approx(value, rel=1e-9)
            assert value <= best * (1 + 1e-6)
            assert value == pytest.approx(best, rel=1e-4)
            error = np.linalg.norm(weights(start)[k] - expected)
            # Where it stopped short itself (its objective is the larger one) it is no measure.
            if abs(best - value) <= 1e-9 * best:
                assert error <= 1e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize(("n", "d"), [(60, 5), (30, 50), (250, 120)])
@pytest.mark.parametrize("scaled", [False, True])
def test_masked_problem_is_the_problem_of_its_rows(n: int, d: int, scaled: bool) -> None:
    x, y = blobs(n, d, 2)
    masks = torch.from_numpy(np.random.default_rng(1).random((6, n)) < 0.7)
    signs = one_vs_rest(y, 2)[1:].expand(6, n)
    C = torch.tensor([0.01, 1.0, 100.0] * 2, dtype=torch.float64)
    rows = torch.from_numpy(x)
    scaling = linear_svm.standardise(rows, masks) if scaled else None
    together = linear_svm.fit(rows, signs, masks, C, scaling=scaling, tolerance=1e-12)
    for p in range(6):
        own = x[masks[p].numpy()]
        own = StandardScaler().fit_transform(own) if scaled else own
        sign = signs[p, masks[p]]
        alone = linear_svm.fit(
            torch.from_numpy(own), sign[None], torch.ones(1, len(own)), float(C[p]), tolerance=1e-12
        )
        np.testing.assert_allclose(weights(together)[p], weights(alone)[0], rtol=1e-4, atol=1e-5)
        value = objective(weights(together)[p], own, sign.numpy(), float(C[p]))
        assert together.objective[p].item() == pytest.approx(value, rel=1e-9)


def test_rows_of_each_fold_or_a_scaling_of_shared_rows() -> None:
    x, y = blobs(50, 6, 3)
    folds = torch.from_numpy(np.random.default_rng(1).random((4, 50)) < 0.7)
    masks, signs = folds.repeat_interleave(3, 0), one_vs_rest(y, 3).repeat(4, 1)
    rows, scaling = torch.from_numpy(x), linear_svm.standardise(torch.from_numpy(x), masks)
    written_out = linear_svm.standardise(rows, folds).scaled(rows)  # [folds, n, d]
    a = linear_svm.fit(rows, signs, masks, 1.0, scaling=scaling, tolerance=1e-12)
    b = linear_svm.fit(written_out, signs, masks, 1.0, tolerance=1e-12)
    np.testing.assert_allclose(weights(a), weights(b), atol=1e-5)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-4])
@pytest.mark.parametrize(("n", "d"), [(80, 10), (240, 120)])
def test_gap_bounds_the_true_error(tolerance: float, n: int, d: int) -> None:
    x, y = blobs(n, d, 2, signal=0.2)
    signs = one_vs_rest(y, 2)[1:].expand(7, n)
    C, ones = torch.tensor(C_GRID, dtype=torch.float64), torch.ones(7, n)
    rows = torch.from_numpy(x)
    rough = linear_svm.fit(rows, signs, ones, C, tolerance=tolerance)
    exact = linear_svm.fit(rows, signs, ones, C, tolerance=1e-13)
    assert bool((rough.gap <= tolerance).all())
    error = (rough.objective - exact.objective) / rough.objective
    assert bool((error <= rough.gap + 1e-12).all())
    assert bool((error >= -1e-12).all())


def test_gap_is_primal_minus_dual() -> None:
    x, y = blobs(40, 5, 2)
    sign, C = np.where(y == 1, 1.0, -1.0), 0.3
    rough = linear_svm.fit(
        torch.from_numpy(x),
        torch.from_numpy(sign)[None],
        torch.ones(1, 40),
        C,
        max_steps=1,
        strict=False,
        tolerance=0.0,
    )
    w, x1 = weights(rough)[0], np.hstack([x, np.ones((40, 1))])
    alpha = 2 * C * np.maximum(0, 1 - sign * (x1 @ w))
    dual = alpha.sum() - 0.5 * np.sum((x1.T @ (alpha * sign)) ** 2) - np.sum(alpha**2) / (4 * C)
    primal = objective(w, x, sign, C)
    assert rough.gap[0].item() > 1e-6
    assert rough.gap[0].item() == pytest.approx((primal - dual) / primal, rel=1e-6)


def test_says_so_when_the_tolerance_is_missed() -> None:
    x, y = blobs(60, 5, 2, signal=0.5)
    rows, signs = torch.from_numpy(x), one_vs_rest(y, 2)
    with pytest.raises(
        linear_svm.ConvergenceError, match="2 of 2 linear SVMs missed the tolerance 1e-09"
    ):
        linear_svm.fit(rows, signs, torch.ones_like(signs), 10.0, max_steps=1, tolerance=1e-9)
    rough = linear_svm.fit(
        rows, signs, torch.ones_like(signs), 10.0, max_steps=1, tolerance=1e-9, strict=False
    )
    assert not bool(rough.converged.any())


def test_own_hessians_and_conjugate_gradients_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs(150, 20, 2, signal=0.3)
    masks = torch.from_numpy(np.random.default_rng(1).random((8, 150)) < 0.7)
    signs = one_vs_rest(y, 2)[1:].expand(8, 150)
    args = torch.from_numpy(x), signs, masks, 10.0
    direct = linear_svm.fit(*args, tolerance=1e-13)
    monkeypatch.setattr(newton, "_DIRECT_WIDTH", {"cpu": 0, "cuda": 0})
    iterative = linear_svm.fit(*args, tolerance=1e-13)
    monkeypatch.setattr(linear_svm, "_CHUNK", 16 * 170 * 3)  # three problems at a time
    np.testing.assert_allclose(weights(direct), weights(iterative), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        weights(direct), weights(linear_svm.fit(*args, tolerance=1e-13)), rtol=1e-5, atol=1e-7
    )


def test_scaling_reads_training_rows_alone() -> None:
    x, _ = blobs(30, 4, 2)
    x[:20, 3] = 7.1  # constant in training, not in the test rows
    mask = torch.arange(30)[None] < 20
    scaling = linear_svm.standardise(torch.from_numpy(x), mask)
    expected = StandardScaler().fit(x[:20])
    np.testing.assert_allclose(scaling.shift[0], expected.mean_, rtol=1e-10)
    np.testing.assert_allclose(scaling.factor[0, :3], 1 / expected.scale_[:3], rtol=1e-10)
    assert scaling.factor[0, 3] == 0
    x[20:] *= 1000
    again = linear_svm.standardise(torch.from_numpy(x), mask)
    torch.testing.assert_close(again.shift, scaling.shift, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(again.factor, scaling.factor, rtol=1e-6, atol=0)


@pytest.mark.parametrize("scale", [False, True])
def test_a_test_row_changes_only_its_own_prediction(scale: bool) -> None:
    x, y = blobs(60, 4, 2, signal=0.4)
    folds = outer_folds(x, y)
    before = nested_accuracy(x, y, folds[:1], scale=scale, tolerance=1e-10)
    x[folds[0][0]] *= 1e3
    after = nested_accuracy(x, y, folds[:1], scale=scale, tolerance=1e-10)
    np.testing.assert_allclose(after.inner, before.inner)
    assert after.C == before.C
    assert abs(after.accuracy - before.accuracy) <= 100 / len(folds[0]) + 1e-9


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(("n", "d", "classes"), [(120, 6, 2), (150, 8, 3), (60, 80, 3)])
def test_nested_search_agrees_with_scikit_learn(
    n: int, d: int, classes: int, scale: bool, device: torch.device
) -> None:
    x, y = blobs(n, d, classes, signal=0.4, seed=3)
    folds = outer_folds(x, y)
    found = nested_accuracy(x, y, folds, scale=scale, device=device, tolerance=1e-10)
    accuracy, chosen, inner = grid_search(x, y, folds, scale=scale)
    assert found.converged
    assert found.gap <= 1e-10
    np.testing.assert_array_equal(found.C, chosen)
    np.testing.assert_allclose(found.accuracy, accuracy, atol=0.1)
    np.testing.assert_allclose(found.inner, inner, atol=0.1)


@pytest.mark.parametrize("scale", [False, True])
def test_default_tolerance_is_enough(scale: bool) -> None:
    x, y = blobs(300, 120, 3, signal=0.15, seed=5)
    folds = outer_folds(x, y)
    rough = nested_accuracy(x, y, folds, scale=scale)
    exact = nested_accuracy(x, y, folds, scale=scale, tolerance=1e-12)
    assert rough.accuracy.mean() == pytest.approx(exact.accuracy.mean(), abs=0.1)
    assert rough.problems == 4 * 6 * 7 * 3


def test_ties_go_to_the_smallest_c() -> None:
    draw = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = draw.standard_normal((40, 3)) * 0.01 + 10 * y[:, None]
    found = nested_accuracy(x, y, outer_folds(x, y), C=(10.0, 1.0, 100.0))
    np.testing.assert_array_equal(found.C, 1.0)
    np.testing.assert_array_equal(found.accuracy, 100.0)


@pytest.mark.parametrize("scale", [False, True])
def test_awkward_data(scale: bool) -> None:
    x, y = blobs(80, 5, 3, seed=2)
    x[:, 0] = 3.0  # constant
    x[:, 1] = 0.0
    x[10:20] = x[10]  # duplicates, of differing labels too
    x[:, 4] = 1e3 * (y == 1)  # separable
    y[y == 2] = 0
    y[[3, 50, 70]] = 2  # fewer rows than inner folds: missing from none, rare in all
    folds = outer_folds(x, np.minimum(y, 1))
    found = nested_accuracy(x, y, folds, scale=scale, tolerance=1e-9)
    accuracy, chosen, _ = grid_search(x, y, folds, scale=scale)
    assert found.converged
    np.testing.assert_array_equal(found.C, chosen)
    np.testing.assert_allclose(found.accuracy, accuracy, atol=0.1)


def test_labels_of_any_kind_and_single_precision_rows() -> None:
    x, y = blobs(60, 4, 3)
    folds = outer_folds(x, y)
    expected = nested_accuracy(x.astype(np.float32), y, folds)
    named = np.array(["b", "a", "c"])[y]
    found = nested_accuracy(torch.from_numpy(x).float(), named, folds)
    np.testing.assert_allclose(found.accuracy, expected.accuracy)


def test_devices_agree(device: torch.device) -> None:
    x, y = blobs(200, 110, 3)
    signs = one_vs_rest(y, 3)
    args = torch.from_numpy(x), signs, torch.ones_like(signs)
    here = linear_svm.fit(
        args[0].to(device), args[1].to(device), args[2].to(device), 1.0, tolerance=1e-12
    )
    assert here.coef.device.type == device.type
    np.testing.assert_allclose(
        weights(here), weights(linear_svm.fit(*args, 1.0, tolerance=1e-12)), atol=1e-5
    )


def test_bad_input_is_named() -> None:
    x, signs = torch.zeros(4, 2, dtype=torch.float64), torch.ones(1, 4)
    with pytest.raises(ValueError, match="C must be positive, got -1"):
        linear_svm.fit(x, signs, signs, -1.0)
    with pytest.raises(ValueError, match=r"do not fit x \[4, 2\]"):
        linear_svm.fit(x, signs[:, :3], signs[:, :3], 1.0)
    with pytest.raises(ValueError, match="not finite"):
        linear_svm.fit(x / 0, signs, signs, 1.0)
    with pytest.raises(ValueError, match="two classes, got 1"):
        nested_accuracy(x, [0, 0, 0, 0], [[0]])
    with pytest.raises(ValueError, match="row numbers below 4"):
        nested_accuracy(x, [0, 0, 1, 1], [[9]])


@pytest.mark.parametrize("scale", [False, True])
def test_mutag(scale: bool, device: torch.device) -> None:
    if "LG2AR_DATA" not in os.environ:
        pytest.skip("LG2AR_DATA does not say where the data sets are")
    x, y = mutag()
    folds = outer_folds(x, y, 10)
    found = nested_accuracy(x, y, folds, scale=scale, device=device, tolerance=1e-10)
    accuracy, _, _ = grid_search(x, y, folds, scale=scale)
    assert found.accuracy.mean() == pytest.approx(accuracy.mean(), abs=0.1)


def mutag() -> tuple[Array, Labels]:
    """Sums of node labels, and of the labels of the neighbours, of each graph."""
    from lg2ar.data.benchmarks import open_benchmark

    dataset = open_benchmark("mutag")
    graph, rows = dataset.graph, []
    source, target = graph.edge_index
    around = torch.zeros_like(graph.x).index_add_(0, target, graph.x[source])
    for number in range(graph.num_graphs):
        x, near = graph.x[graph.batch == number], around[graph.batch == number]
        rows.append(torch.cat([x.sum(0), (x.T @ near).flatten(), near.square().sum(0)]))
    assert dataset.y is not None
    return torch.stack(rows).double().numpy(), dataset.y.numpy()


def untrained(name: str, hidden: int) -> tuple[Array, Labels]:
    """What a protocol reads: sums over nodes by an initialised encoder, heavy-tailed and wide."""
    from lg2ar.data.sources import open_source
    from lg2ar.experiment import pretrain

    dataset = open_source(name)
    settings = {"hidden": hidden, "layers": 3, "epochs": 0, "calibrate": False}
    rows = pretrain(dataset, settings, device="cpu").embed(dataset)
    assert dataset.y is not None
    return rows.double().numpy(), dataset.y.numpy()


@pytest.mark.parametrize("scale", [False, True])
def test_embeddings_of_real_graphs(scale: bool, device: torch.device) -> None:
    if "LG2AR_DATA" not in os.environ:
        pytest.skip("LG2AR_DATA does not say where the data sets are")
    x, y = untrained("mutag", 48)
    x /= x.std()  # one number for all: without it scikit-learn does not converge at all
    folds = outer_folds(x, y, 10)[:3]
    found = nested_accuracy(x, y, folds, scale=scale, device=device)
    accuracy, _, _ = grid_search(x, y, folds, scale=scale, dual=False)
    assert found.accuracy.mean() == pytest.approx(accuracy.mean(), abs=0.1)


def test_where_rounding_hides_the_gap_the_gradient_is_small() -> None:
    x, y = blobs(300, 12, 2, signal=0.2)
    x = x * np.geomspace(1e6, 1, 12)
    folds = outer_folds(x, y)
    found = nested_accuracy(x, y, folds, tolerance=1e-20)
    assert found.gap > 1e-20
    assert found.residual <= newton.GRADIENT
    assert found.converged
    with pytest.raises(linear_svm.ConvergenceError, match="a linear SVM was solved to"):
        nested_accuracy(x, y, folds, C=(1e3,), tolerance=1e-13, max_steps=2)


def test_processes_that_share_a_gpu_share_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {name: newton._room(torch.device(name)) for name in ("cpu", "cuda")}
    monkeypatch.setenv(SHARERS, "4")
    assert newton._room(torch.device("cuda")) == whole["cuda"] // 4
    assert newton._room(torch.device("cpu")) == whole["cpu"]
