"""RBF kernels as rows, and the choice among kinds of SVM inside the training folds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import Tensor

from lg2ar.probes import C_GRID, chosen_probe_accuracy, nested_accuracy, rbf_rows
from lg2ar.probes import kernel as kernels
from lg2ar.splits import stratified_folds


def rings(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two classes that no plane tells apart: a ball within a shell."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.randn(n, 4, generator=draw)
    return x / x.norm(dim=1, keepdim=True) * (1 + y)[:, None] + 0.1 * x, y


@pytest.mark.parametrize("gamma", [0.1, 1.0])
def test_inner_products_are_the_kernel_of_scikit_learn(gamma: float) -> None:
    x = rings(50)[0] * torch.logspace(-1, 1, 4)
    x = torch.cat([x, torch.full((50, 1), 3.0)], dim=1)  # a constant feature says nothing
    rows = rbf_rows(x, gamma)
    scaled = StandardScaler().fit_transform(x[:, :4].double())
    assert torch.allclose(rows @ rows.T, torch.from_numpy(rbf_kernel(scaled, gamma=gamma / 4)))


def test_rows_without_any_difference_have_one_direction() -> None:
    assert rbf_rows(torch.ones(5, 3)).tolist() == [[1.0]] * 5


def test_of_many_rows_the_longest_directions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rings(60)[0]
    whole = rbf_rows(x)
    monkeypatch.setattr(kernels, "MANY", 59)
    monkeypatch.setattr(kernels, "KEPT", 12)
    monkeypatch.setattr(kernels, "SHARE", 0.0)
    rows = rbf_rows(x)
    u, s, v = torch.linalg.svd(whole @ whole.T)
    assert rows.shape == (60, 12)
    share = s[:20].sum() / s.sum()
    monkeypatch.setattr(kernels, "SHARE", float(share) - 1e-9)
    assert rbf_rows(x).shape == (60, 20)  # more where these are not enough
    assert torch.allclose(rows @ rows.T, u[:, :12] * s[:12] @ v[:12])  # the nearest of rank 12
    monkeypatch.setattr(kernels, "MANY", 60)
    assert torch.equal(rbf_rows(x), whole)


def test_a_kernel_machine_is_the_linear_machine_of_its_training_rows_alone() -> None:
    """What test rows add to the map changes no decision: it is the same kernel matrix."""
    x, y = rings(60)
    test = np.arange(0, 60, 5)
    train = np.setdiff1d(np.arange(60), test)
    rows = rbf_rows(x).numpy()
    kernel = rows @ rows.T
    length, direction = np.linalg.eigh(kernel[np.ix_(train, train)])
    kept = length > 1e-10
    back = direction[:, kept] / np.sqrt(length[kept])
    small = kernel[:, train] @ back  # the map made of the training rows alone
    by_all, by_some = (
        LinearSVC(C=1.0, dual=False, tol=1e-10, max_iter=100_000)
        .fit(features[train], y[train])
        .decision_function(features[test])
        for features in (rows, small)
    )
    assert np.allclose(by_all, by_some, atol=1e-4)


def test_the_probe_is_chosen_inside_the_training_folds() -> None:
    x, y = rings(80)
    folds = stratified_folds(y.numpy(), 4, seed=0)
    accuracy, names = chosen_probe_accuracy(x, y, folds, inner=3)
    assert all(name.startswith("rbf") for name in names)
    linear = nested_accuracy(x, y, folds, inner=3, scale=True).accuracy
    assert accuracy.mean() > 90 > 70 > linear.mean()
    for place, test in enumerate(folds):  # by scikit-learn, one outer fold after the other
        train = np.setdiff1d(np.arange(80), test)
        best = ("", -1.0, 0.0)
        for gamma in (0.1, 0.3, 1.0):
            rows, svm = (
                rbf_rows(x, gamma).numpy(),
                LinearSVC(max_iter=100_000, tol=1e-8, dual=False),
            )
            search = GridSearchCV(svm, {"C": C_GRID}, cv=3).fit(rows[train], y[train])
            if search.best_score_ > best[1] + 1e-12:
                right = 100 * search.score(rows[test], y[test])
                best = (f"rbf {gamma:g}", float(search.best_score_), float(right))
        assert names[place] == best[0]
        assert accuracy[place] == pytest.approx(best[2])


def test_labels_of_test_rows_do_not_choose_the_probe() -> None:
    """With these labels the other way round, what was right is wrong, and nothing else changes."""
    x, y = rings(60, seed=1)
    x += 0.5 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    differ = False
    for test in stratified_folds(y.numpy(), 4, seed=0):
        wrong = y.clone()
        wrong[test] = 1 - wrong[test]
        accuracy, names = chosen_probe_accuracy(x, y, [test], inner=3)
        reverse, same = chosen_probe_accuracy(x, wrong, [test], inner=3)
        assert names == same
        assert accuracy + reverse == pytest.approx(100)
        linear = nested_accuracy(x, y, [test], inner=3, scale=True).accuracy
        differ |= not np.allclose(accuracy, linear)
    assert differ


def test_a_plane_is_enough_where_it_is() -> None:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 2
    x = torch.randn(60, 3, generator=draw) + 8 * y[:, None]
    accuracy, names = chosen_probe_accuracy(x, y, stratified_folds(y.numpy(), 3, seed=0), inner=3)
    assert set(names) == {"linear"}
    assert accuracy.mean() == 100
