"""Kernel ridge regression on few labels, beside scikit-learn's and rows left out one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from lg2ar.data.toy import toy_graphs
from lg2ar.probes import kernel_ridge_accuracy, kernel_ridge_scores
from lg2ar.probes.kernel_ridge import GAMMAS, RIDGES
from lg2ar.protocols import Reader
from lg2ar.splits import semi_splits


def rings(n: int, seed: int = 0, classes: int = 2) -> tuple[Tensor, Tensor]:
    """Shells around each other, which no plane tells apart, and a column of noise."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    x = torch.randn(n, 4, generator=draw, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True) * (1 + y)[:, None] + 0.1 * x
    return torch.cat([x, torch.randn(n, 1, generator=draw, dtype=torch.float64)], dim=1), y


def one_hot(y: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(y, classes).double()


def slow_scores(
    seen: Tensor, targets: Tensor, asked: Tensor, gammas: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """The same by scikit-learn, leaving out one row after the other for every ridge."""
    x, t, new = seen.numpy(), targets.numpy(), asked.numpy()
    share, scores, least = t.mean(0), [], []
    for gamma in gammas:

        def machine(ridge: float, gamma: float = gamma) -> KernelRidge:
            return KernelRidge(alpha=ridge, kernel="rbf", gamma=gamma / x.shape[1])

        errors = []
        for ridge in RIDGES:
            missed = 0.0
            for out in range(len(x)):
                kept = np.arange(len(x)) != out
                told = machine(ridge).fit(x[kept], (t - share)[kept]).predict(x[[out]])[0]
                missed += float(np.square(told - (t - share)[out]).sum())
            errors.append(missed / len(x))
        best = RIDGES[int(np.argmin(errors))]
        scores.append(machine(best).fit(x, t - share).predict(new) + share)
        least.append(min(errors))
    return np.stack(scores), np.array(least)


@pytest.mark.parametrize(("classes", "gammas"), [(2, GAMMAS), (3, GAMMAS), (3, (0.5,))])
def test_scores_are_those_of_leaving_out_row_after_row(
    classes: int, gammas: Sequence[float]
) -> None:
    x, y = rings(45, classes=classes)
    targets = one_hot(y, classes)
    scores, errors = kernel_ridge_scores(x[:24], targets[:24], x[24:], gammas)
    expected, least = slow_scores(x[:24], targets[:24], x[24:], gammas)
    assert np.allclose(scores.numpy(), expected, atol=1e-9)
    assert np.allclose(errors.numpy(), least)
    assert torch.allclose(scores.sum(2), torch.ones(len(gammas), 21, dtype=torch.float64))


def test_all_kernels_answer_together() -> None:
    x, y = rings(90, classes=3)
    parts = [(np.arange(30), np.arange(30, 90))]
    scaled = (x - x.mean(0)) / x.std(0, correction=0)
    scores, _ = kernel_ridge_scores(scaled[:30], one_hot(y, 3)[:30], scaled[30:])
    right = (scores.mean(0).argmax(1) == y[30:]).double().mean()
    assert kernel_ridge_accuracy(x, y, parts) == pytest.approx(100 * float(right))
    alone = [kernel_ridge_accuracy(x, y, parts, gammas=(gamma,))[0] for gamma in GAMMAS]
    each = (scores.argmax(2) == y[30:]).double().mean(1)
    assert alone == pytest.approx((100 * each).tolist())
    assert len(set(alone)) > 1  # they do not all say the same


def test_what_no_plane_tells_apart_is_learned_from_few_rows() -> None:
    x, y = rings(400)
    parts = [(np.arange(60), np.arange(60, 400)), (np.arange(340, 400), np.arange(340))]
    found = kernel_ridge_accuracy(x, y, parts)
    assert found.shape == (2,)
    assert (found > 90).all()
    mixed = y[torch.randperm(400, generator=torch.Generator().manual_seed(1))]
    assert (kernel_ridge_accuracy(x, mixed, parts) < 60).all()  # where nothing is to be learned


def test_only_labelled_rows_are_learned_from() -> None:
    x, y = rings(120)
    parts = [(np.arange(40), np.arange(40, 80))]
    found = kernel_ridge_accuracy(x, y, parts)
    other = y.clone()
    other[80:] = 1 - other[80:]
    assert kernel_ridge_accuracy(x, other, parts) == found
    other = y.clone()
    other[40:80] = 1 - other[40:80]  # tested ones: what was right is wrong
    assert kernel_ridge_accuracy(x, other, parts) == pytest.approx(100 - found)


def test_scale_and_still_columns_say_nothing() -> None:
    x, y = rings(120, classes=3)
    parts = [(np.arange(40), np.arange(40, 120))]
    stretched = torch.cat([x * torch.logspace(-2, 3, 5) + 7, torch.full((120, 2), 5.0)], dim=1)
    assert kernel_ridge_accuracy(stretched, y, parts) == kernel_ridge_accuracy(x, y, parts)
    still = kernel_ridge_accuracy(
        torch.ones(120, 3), y, [(np.array([0, 1, 3, 4, 6]), np.arange(6))]
    )
    assert still == pytest.approx(100 / 3)  # all are told to be of the most frequent class, 0


def test_a_class_without_a_labelled_row_is_never_answered() -> None:
    x, y = rings(60, classes=3)
    known = np.flatnonzero(y.numpy() < 2)[:20]
    rest = np.setdiff1d(np.arange(60), known)
    scores, _ = kernel_ridge_scores(x[known], one_hot(y, 3)[known], x[rest])
    assert (scores[..., 2] == 0).all()
    at_most = 100 * float((y[rest] < 2).double().mean())
    assert at_most / 2 < kernel_ridge_accuracy(x, y, [(known, rest)])[0] <= at_most


def test_one_labelled_class_is_the_answer_for_all() -> None:
    x, y = rings(30)
    tested = np.arange(20, 30)
    for known in (np.arange(0, 20, 2), np.array([4])):
        assert kernel_ridge_accuracy(x, y, [(known, tested)]) == pytest.approx(50)


def test_bad_rows_are_refused() -> None:
    x, y = rings(20)
    with pytest.raises(ValueError, match=r"expected x \[n, d\] and y \[n\], got"):
        kernel_ridge_accuracy(x, y[:-1], [])
    assert kernel_ridge_accuracy(x, y, []).shape == (0,)
    with pytest.raises(ValueError, match="0 labelled and 5 tested rows tell nothing"):
        kernel_ridge_accuracy(x, y, [(np.arange(0), np.arange(5))])
    with pytest.raises(ValueError, match="5 labelled and 0 tested rows tell nothing"):
        kernel_ridge_accuracy(x, y, [(np.arange(5), np.arange(0))])
    x[3, 1] = torch.inf
    with pytest.raises(ValueError, match="must be finite"):
        kernel_ridge_accuracy(x, y, [(np.arange(10), np.arange(10, 20))])


def test_the_protocol_reads_graphcls_folds_with_rows_on_one_scale() -> None:
    dataset = toy_graphs(num_graphs=240)
    reader = Reader(dataset, 3, torch.device("cpu"))
    y = torch.from_numpy(reader.labels)
    rows = one_hot(y, 4) + torch.randn(240, 4, generator=torch.Generator().manual_seed(0))
    x = torch.from_numpy(StandardScaler().fit_transform(rows))
    expected = []
    for split in semi_splits(y):
        scores, _ = kernel_ridge_scores(x[split.train], one_hot(y, 4)[split.train], x[split.test])
        expected.append(100 * float((scores.mean(0).argmax(1) == y[split.test]).double().mean()))
    assert reader.accuracy("semi-kernel", rows) == pytest.approx(expected, abs=1e-5)
    assert Reader(dataset, 4, torch.device("cpu")).accuracy("semi-kernel", rows) == (
        reader.accuracy("semi-kernel", rows)  # the same folds for all seeds
    )
