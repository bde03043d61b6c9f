"""The bounds equal their formulas, and stay finite where exponentials do not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import reference
from lg2ar.mutual_information import (
    BOUNDS,
    donsker_varadhan,
    info_nce,
    jensen_shannon,
    nt_xent,
)
from reference import assert_agree, row, table

Problem = tuple[Tensor, Tensor, Tensor]


def problem(rows: int, candidates: int, seed: int = 0, scale: float = 1.0) -> Problem:
    """Scores, one positive per row, and row weights."""
    torch.manual_seed(seed)
    scores = scale * torch.randn(rows, candidates, dtype=torch.float64)
    own = torch.randint(candidates, (rows, 1))
    positive = torch.zeros(rows, candidates, dtype=torch.bool).scatter(1, own, True)
    weight = 0.1 + torch.rand(rows, dtype=torch.float64)
    return scores.requires_grad_(), positive, weight.requires_grad_()


def slow(name: str, scores: Tensor, positive: Tensor, weight: Tensor, **more: float) -> Tensor:
    return reference.BOUNDS[name](table(scores), positive.tolist(), row(weight), **more)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("rows", "candidates"), [(1, 2), (3, 3), (7, 4), (5, 1), (2, 6)])
def test_bound_equals_its_formula(name: str, rows: int, candidates: int, seed: int) -> None:
    scores, positive, weight = problem(rows, candidates, seed)
    ones = torch.ones(rows, dtype=torch.float64)
    assert_agree(
        BOUNDS[name](scores, positive), slow(name, scores, positive, ones), [scores], 1e-12
    )
    assert_agree(
        BOUNDS[name](scores, positive, weight),
        slow(name, scores, positive, weight),
        [scores, weight],
        1e-12,
    )


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_positive_share_weighs_the_two_terms_of_jensen_shannon(share: float) -> None:
    scores, positive, weight = problem(6, 3)
    assert_agree(
        jensen_shannon(scores, positive, weight, positive_share=share),
        slow("jsd", scores, positive, weight, positive_share=share),
        [scores, weight],
        1e-12,
    )


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0, 7.0])
def test_temperature_divides_the_scores_of_nt_xent(temperature: float) -> None:
    scores, positive, weight = problem(6, 3)
    assert_agree(
        nt_xent(scores, positive, weight, temperature=temperature),
        slow("nt-xent", scores, positive, weight, temperature=temperature),
        [scores, weight],
        1e-12,
    )


def test_jensen_shannon_of_one_pair_each_is_what_a_pocket_calculator_says() -> None:
    scores = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
    positive = torch.tensor([[True, False]])
    expected = -math.log(1 + math.exp(-1)) - math.log(1 + math.exp(-2))
    assert float(jensen_shannon(scores, positive)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("name", BOUNDS)
def test_bound_rewards_positives_and_punishes_negatives(name: str) -> None:
    scores, positive, _ = problem(6, 4)
    (gradient,) = torch.autograd.grad(BOUNDS[name](scores, positive), scores)
    assert (gradient[positive] > 0).all()
    assert (gradient[~positive] < 0).all()


@pytest.mark.parametrize("name", BOUNDS)
def test_only_the_proportions_of_the_row_weights_count(name: str) -> None:
    scores, positive, weight = problem(5, 3)
    torch.testing.assert_close(
        BOUNDS[name](scores, positive, weight), BOUNDS[name](scores, positive, 7 * weight)
    )


@pytest.mark.parametrize("name", BOUNDS)
def test_a_row_of_weight_zero_does_not_count(name: str) -> None:
    scores, positive, _ = problem(5, 3)
    weight = torch.tensor([1.0, 0.0, 2.0, 3.0, 0.0], dtype=torch.float64)
    kept = weight > 0
    fast = BOUNDS[name](scores, positive, weight)
    assert_agree(fast, BOUNDS[name](scores[kept], positive[kept], weight[kept]), [scores])


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_large_scores_stay_finite(name: str, dtype: torch.dtype, scale: float) -> None:
    _, positive, weight = problem(6, 4)
    signs = torch.randn(6, 4).sign().to(dtype)
    scores = (scale * signs).requires_grad_()
    value = BOUNDS[name](scores, positive, weight)
    (gradient,) = torch.autograd.grad(value, scores)
    assert value.isfinite()
    assert gradient.isfinite().all()


def test_large_scores_give_the_limits_of_the_formulas() -> None:
    s = 1e4
    scores = torch.tensor([[s, -s], [s, -s]], dtype=torch.float64)
    own = torch.tensor([[True, False], [True, False]])
    right: dict[Callable[..., Tensor], float] = {
        jensen_shannon: 0.0,
        info_nce: math.log(2),
        nt_xent: 0.0,
        donsker_varadhan: 2 * s,
    }
    wrong: dict[Callable[..., Tensor], float] = {
        jensen_shannon: -2 * s,
        info_nce: -2 * s + math.log(2),
        nt_xent: -4 * s,
        donsker_varadhan: -2 * s,
    }
    for bound, expected in right.items():
        assert float(bound(scores, own)) == pytest.approx(expected, abs=1e-9)
    for bound, expected in wrong.items():
        assert float(bound(scores, ~own)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("rows", [1, 4])
def test_without_negatives_value_and_gradient_are_finite(name: str, rows: int) -> None:
    scores = torch.randn(rows, 1, dtype=torch.float64, requires_grad=True)
    positive = torch.ones(rows, 1, dtype=torch.bool)
    weight = torch.ones(rows, dtype=torch.float64)
    value = BOUNDS[name](scores, positive)
    assert value.isfinite()
    assert_agree(value, slow(name, scores, positive, weight), [scores])


@pytest.mark.parametrize("name", BOUNDS)
def test_where_no_row_weighs_anything_value_and_gradient_are_finite(name: str) -> None:
    scores, positive, _ = problem(4, 3)
    value = BOUNDS[name](scores, positive, torch.zeros(4))
    (gradient,) = torch.autograd.grad(value, scores)
    assert value.isfinite()
    assert gradient.eq(0).all()


def test_info_nce_never_exceeds_the_logarithm_of_the_number_of_candidates() -> None:
    scores, positive, _ = problem(8, 5)
    best = scores.detach().masked_fill(positive, 60.0)
    assert float(info_nce(best, positive)) == pytest.approx(math.log(5))
    assert float(info_nce(torch.zeros(8, 5), positive)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", BOUNDS)
def test_devices_agree_on_the_bounds(name: str, device: torch.device) -> None:
    scores, positive, weight = problem(9, 5)
    there = scores.detach().to(device).requires_grad_()
    value = BOUNDS[name](there, positive.to(device), weight.detach().to(device))
    assert value.device.type == device.type
    (gradient,) = torch.autograd.grad(value, there)
    expected = slow(name, scores, positive, weight)
    torch.testing.assert_close(value.cpu(), expected, rtol=1e-12, atol=1e-12)
    (slow_gradient,) = torch.autograd.grad(expected, scores)
    torch.testing.assert_close(gradient.cpu(), slow_gradient, rtol=1e-12, atol=1e-12)
