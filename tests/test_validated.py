"""Kernel ridge regression chosen by validation rows, beside scikit-learn's, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler, normalize
from torch import Tensor

from lg2ar.errors import InputError
from lg2ar.probes import Candidate, validated_accuracy
from lg2ar.probes.kernel_ridge import distances
from lg2ar.probes.validated import GAMMAS, RIDGES, unit_rows
from lg2ar.splits import Splits, random_splits


def shells(n: int, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Shells around each other, blurred, of columns that differ in scale."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=draw)
    x = torch.randn(n, 4, generator=draw, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True) * (1 + y)[:, None] + 0.2 * x + 0.5
    return x * torch.logspace(-0.3, 0.3, 4), y


def directions(n: int, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes that differ in direction, while lengths differ at random and by much."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=draw)
    middle = torch.randn(classes, 6, generator=draw, dtype=torch.float64)
    x = middle[y] + 0.6 * torch.randn(n, 6, generator=draw, dtype=torch.float64)
    return x * torch.randn(n, 1, generator=draw, dtype=torch.float64).mul(2).exp(), y


def halves(n: int, count: int = 4) -> Splits:
    return random_splits(n, count=count, seed=2, shares=(0.3, 0.2, 0.5))


def features_beside(
    x: Tensor,
    y: Tensor,
    masks: tuple[Tensor, Tensor, Tensor],
    features: Sequence[Tensor],
    gamma: float,
    together: int,
) -> tuple[float, tuple[Candidate, ...]]:
    """What is best in one split of kernels of rows, with features beside them and without."""
    train, validation, test = (mask.numpy() for mask in masks)
    truth = np.eye(int(y.max()) + 1)[y.numpy()]
    share, found = truth[train].mean(0), []
    a, b = (rbf_kernel(unit_rows(each).numpy(), gamma=1 / each.shape[1]) for each in features)
    scales = {"standard": StandardScaler().fit_transform(x.numpy()), "unit": unit_rows(x).numpy()}
    for scale, rows in scales.items():
        own = rbf_kernel(rows, gamma=gamma / rows.shape[1])
        mixed = {(): own, (0,): (own + a) / 2, (1,): (own + b) / 2, (0, 1): (own + a + b) / 3}
        for beside, kernel in mixed.items():
            for ridge in RIDGES:
                held = kernel[np.ix_(train, train)] + ridge * np.eye(train.sum())
                told = kernel[:, train] @ np.linalg.solve(held, truth[train] - share) + share
                wrong = float((told.argmax(1) != y.numpy())[validation].mean())
                error = float(np.square(told - truth)[validation].sum(1).mean())
                found.append((wrong, error, told, Candidate(scale, gamma, ridge, beside)))
    best = sorted(found, key=lambda each: each[:2])[:together]
    right = sum(each[2] for each in best).argmax(1) == y.numpy()
    return 100 * float(right[test].mean()), tuple(each[3] for each in best)


def slow(
    x: Tensor,
    y: Tensor,
    masks: tuple[Tensor, Tensor, Tensor],
    gammas: Sequence[float],
    together: int,
) -> tuple[float, float, tuple[Candidate, ...]]:
    """What is chosen in one split, by scikit-learn."""
    train, validation, test = (mask.numpy() for mask in masks)
    unit = normalize(x.numpy())
    unit = (unit - unit.mean(0)) / np.sqrt(((unit - unit.mean(0)) ** 2).mean())
    truth = np.eye(int(y.max()) + 1)[y.numpy()]
    share, found = truth[train].mean(0), []
    for scale, rows in (("standard", StandardScaler().fit_transform(x.numpy())), ("unit", unit)):
        d = rows.shape[1]
        for gamma in gammas:
            for ridge in RIDGES:
                # A product that is not divided by d is held back as much by a ridge d times as big.
                machine = (
                    KernelRidge(alpha=ridge, kernel="rbf", gamma=gamma / d)
                    if gamma
                    else KernelRidge(alpha=ridge * d, kernel="linear")
                )
                told = machine.fit(rows[train], truth[train] - share).predict(rows) + share
                wrong = float((told.argmax(1) != y.numpy())[validation].mean())
                error = float(np.square(told - truth)[validation].sum(1).mean())
                found.append((wrong, error, told, Candidate(scale, gamma, ridge)))
    best = sorted(found, key=lambda each: each[:2])[:together]
    right = sum(each[2] for each in best).argmax(1) == y.numpy()
    chosen = tuple(each[3] for each in best)
    return 100 * float(right[test].mean()), 100 * float(right[validation].mean()), chosen


@pytest.mark.parametrize("made", [shells, directions])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("gammas", "together"), [(GAMMAS, 1), (GAMMAS, 5), ((0.0,), 1)])
@pytest.mark.parametrize("chunk", [4096, 7])
def test_it_is_the_best_of_scikit_learns_machines(
    made: Callable[[int, int], tuple[Tensor, Tensor]],
    classes: int,
    gammas: Sequence[float],
    together: int,
    chunk: int,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lg2ar.probes.validated._CHUNK", chunk)
    x, y = made(160, classes)
    splits = halves(160)
    found = validated_accuracy(x, y, splits, gammas=gammas, together=together, device=device)
    for place, masks in enumerate(zip(splits.train, splits.validation, splits.test, strict=True)):
        test, validation, candidates = slow(x, y, masks, gammas, together)
        assert found.chosen[place] == candidates
        assert found.test[place] == pytest.approx(test)
        assert found.validation[place] == pytest.approx(validation)


@pytest.mark.parametrize("together", [1, 5])
@pytest.mark.parametrize("chunk", [4096, 7])
def test_features_may_stand_beside_the_rows(
    together: int, chunk: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lg2ar.probes.validated._CHUNK", chunk)
    (x, y), splits = shells(160), halves(160)
    known = torch.nn.functional.one_hot(y, 6)
    # What the two tell of the classes differs, so that one, the other or both may serve.
    telling = [directions(160, seed=seed)[0] + 0.3 * known for seed in (5, 6)]
    found = validated_accuracy(
        x, y, splits, features=telling, gammas=[0.3], together=together, device=device
    )
    for place, masks in enumerate(zip(splits.train, splits.validation, splits.test, strict=True)):
        test, candidates = features_beside(x, y, masks, telling, 0.3, together)
        assert found.chosen[place] == candidates
        assert found.test[place] == pytest.approx(test)
    used = {each.beside for best in found.chosen for each in best}
    assert {(), (0, 1)} < used  # and one of the two alone


def test_linear_kernels_leave_features_aside() -> None:
    (x, y), splits = shells(160), halves(160)
    found = validated_accuracy(x, y, splits, features=[directions(160)[0]], gammas=[0.0])
    assert np.array_equal(found.test, validated_accuracy(x, y, splits, gammas=[0.0]).test)


def test_features_are_made_use_of_where_they_tell_something() -> None:
    (x, y), splits = shells(160), halves(160)
    nothing, told = torch.ones(160, 2), directions(160)[0]
    before = validated_accuracy(x, y, splits).test.mean()
    assert abs(validated_accuracy(x, y, splits, features=[nothing]).test.mean() - before) < 3
    assert validated_accuracy(x, y, splits, features=[told]).test.mean() - before > 10


def test_each_scale_and_kernel_is_chosen_where_it_serves() -> None:
    x, y = directions(300)
    assert {best[0].scale for best in validated_accuracy(x, y, halves(300)).chosen} == {"unit"}
    x, y = shells(300)
    found = validated_accuracy(x, y, halves(300))
    assert {best[0].scale for best in found.chosen} == {"standard"}
    assert min(best[0].gamma for best in found.chosen) > 0
    flat = validated_accuracy(x, y, halves(300), gammas=[0.0])
    assert (found.test > flat.test + 20).all()  # no plane tells shells apart


@pytest.mark.parametrize("beside", [0, 2])
def test_test_labels_do_not_choose(beside: int) -> None:
    x, y = shells(160)
    splits = halves(160)
    features = [x[:, :1], x.square()][:beside]
    before = validated_accuracy(x, y, splits, features=features)
    wrong = y.clone()
    hidden = splits.test.all(0)
    assert hidden.any()
    wrong[hidden] = (wrong[hidden] + 1) % 3
    after = validated_accuracy(x, wrong, splits, features=features)
    assert after.chosen == before.chosen
    assert any(each.beside for best in after.chosen for each in best) == bool(beside)
    assert np.array_equal(after.validation, before.validation)
    assert (after.test < before.test).any()


def test_equally_many_right_ones_leave_it_to_the_error() -> None:
    x = torch.tensor([[-1.0], [1.0], [-1.1], [1.1], [-0.9], [0.9]], dtype=torch.float64)
    y = torch.tensor([0, 1, 0, 1, 0, 1])
    number = torch.arange(6)[None]
    splits = Splits(number < 2, (number >= 2) & (number < 4), number >= 4)
    for ridges in ([1e-3, 10.0], [10.0, 1e-3]):
        found = validated_accuracy(x, y, splits, ridges=ridges, together=1)
        assert found.validation.tolist() == found.test.tolist() == [100]
        assert found.chosen[0][0].ridge == 1e-3


def test_unit_rows_have_no_length_and_one_spread() -> None:
    x = directions(50)[0]
    rows = unit_rows(x)
    assert torch.allclose(rows.mean(0), torch.zeros(6).double())
    assert float(rows.square().mean()) == pytest.approx(1)
    plain = normalize(x.numpy())
    assert np.allclose(rows * np.sqrt(plain.var(0).mean()), plain - plain.mean(0))
    stretch = torch.logspace(-2, 2, 50)[:, None]
    assert torch.allclose(unit_rows(x * stretch), rows)
    alike = torch.tensor([[1.0], [2], [3], [7]]).double() * torch.ones(3)  # one direction
    assert not unit_rows(alike).any()
    assert unit_rows(torch.cat([x, torch.zeros(1, 6)])).isfinite().all()
    assert not unit_rows(torch.zeros(3, 2)).any()


def test_what_says_nothing_is_told_to_be_of_the_most_frequent_class() -> None:
    y = torch.tensor([0, 0, 1] * 20)
    splits = halves(60, count=2)
    found = validated_accuracy(torch.ones(60, 3), y, splits)
    flat = validated_accuracy(torch.ones(60, 3), y, splits, gammas=[0.0], together=1)
    assert flat.chosen == ((Candidate("standard", 0.0, 1e-3),),) * 2  # the first of all alike
    for place in range(2):
        assert found.test[place] == pytest.approx(
            100 * float((y[splits.test[place]] == 0).double().mean())
        )


def test_a_class_that_is_not_trained_on_is_never_answered() -> None:
    x, y = shells(120)
    train = (torch.arange(120) < 60) & (y < 2)
    rest = torch.arange(120) >= 60
    splits = Splits(train[None], rest[None], rest[None])
    (found,) = validated_accuracy(x, y, splits).test
    at_most = 100 * float((y[rest] < 2).double().mean())
    assert at_most / 2 < found <= at_most


def test_no_kernel_of_all_rows_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lg2ar.probes.validated._CHUNK", 16)
    shapes = set()

    def seen(a: Tensor, b: Tensor) -> Tensor:
        shapes.add((len(a), len(b)))
        return distances(a, b)

    monkeypatch.setattr("lg2ar.probes.validated.distances", seen)
    x, y = shells(160)
    validated_accuracy(x, y, halves(160, count=1))
    assert shapes == {(48, 48), (32, 48), (16, 48)}  # training, validation, parts of the test rows


def test_bad_input_is_refused() -> None:
    x, y = shells(40)
    splits = halves(40)
    with pytest.raises(ValueError, match=r"expected x \[n, d\] and y \[n\], got"):
        validated_accuracy(x, y[:-1], splits)
    with pytest.raises(ValueError, match=r"expected masks \[S, 40\], got \[4, 50\]"):
        validated_accuracy(x, y, halves(50))
    none = torch.zeros_like(splits.train)
    for name, parts in {
        "train": (none, splits.validation, splits.test),
        "validation": (splits.train, none, splits.test),
        "test": (splits.train, splits.validation, none),
    }.items():
        with pytest.raises(InputError, match=f"Split 0 has no {name} rows"):
            validated_accuracy(x, y, Splits(*parts))
    with pytest.raises(ValueError, match=r"expected features \[40, d_x\], got \[39, 2\]"):
        validated_accuracy(x, y, splits, features=[torch.ones(39, 2)])
    with pytest.raises(ValueError, match="features must be finite"):
        validated_accuracy(x, y, splits, features=[torch.full((40, 2), torch.inf)])
    with pytest.raises(ValueError, match=r"features must have columns, got \[40, 0\]"):
        validated_accuracy(x, y, splits, features=[torch.ones(40, 0)])
    with pytest.raises(ValueError, match=r"ridges some positive ones, got \[0.1\] and \[0\]"):
        validated_accuracy(x, y, splits, gammas=[0.1], ridges=[0])
    with pytest.raises(ValueError, match=r"none negative.* got \[-1\] and"):
        validated_accuracy(x, y, splits, gammas=[-1])
    with pytest.raises(ValueError, match="together must be positive, got 0"):
        validated_accuracy(x, y, splits, together=0)
    x[3, 1] = torch.nan
    with pytest.raises(ValueError, match="must be finite"):
        validated_accuracy(x, y, splits)
