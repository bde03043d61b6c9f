"""The discriminators equal their formulas for every pair, all at once or in blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lg2ar import discriminators
from lg2ar.discriminators import DISCRIMINATORS, Discriminator
from reference import assert_agree, score_of, table, vector

HIDDEN = 3


def make(name: str, seed: int = 0) -> Discriminator:
    torch.manual_seed(seed)
    return DISCRIMINATORS[name](HIDDEN).double()


def encodings(rows: int, graphs: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, graphs and the probabilities that multiply them, all of them leaves."""
    h = torch.randn(rows, HIDDEN, dtype=torch.float64, requires_grad=True)
    g = torch.randn(graphs, HIDDEN, dtype=torch.float64, requires_grad=True)
    p = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    q = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    return h, g, p, q


def slow(name: str, module: Discriminator, h: Tensor, g: Tensor, p: Tensor, q: Tensor) -> Tensor:
    score = score_of(name, module)
    scores = [score(row, graph, p, q) for row in table(h) for graph in table(g)]
    return vector(scores).view(h.size(0), g.size(0))


@pytest.mark.parametrize("name", DISCRIMINATORS)
@pytest.mark.parametrize(("rows", "graphs"), [(1, 1), (4, 4), (7, 2), (2, 5)])
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_is_scored_by_the_formula(name: str, rows: int, graphs: int, seed: int) -> None:
    module = make(name, seed)
    h, g, p, q = encodings(rows, graphs)
    inputs = [h, g, p, q, *module.parameters()]
    assert_agree(module(h, g, p, q), slow(name, module, h, g, p, q), inputs, 1e-12)


@pytest.mark.parametrize("name", DISCRIMINATORS)
def test_scales_are_one_unless_given(name: str) -> None:
    module = make(name)
    h, g, _, _ = encodings(4, 3)
    one = torch.ones((), dtype=torch.float64)
    assert_agree(module(h, g), slow(name, module, h, g, one, one), [h, g], 1e-12)
    assert_agree(module.paired(h, h), module(h, h).diagonal(), [h], 1e-12)


@pytest.mark.parametrize("name", DISCRIMINATORS)
@pytest.mark.parametrize("rows", [1, 5])
def test_paired_is_the_diagonal(name: str, rows: int) -> None:
    module = make(name)
    h, g, p, q = encodings(rows, rows)
    inputs = [h, g, p, q, *module.parameters()]
    assert_agree(module.paired(h, g, p, q), module(h, g, p, q).diagonal(), inputs, 1e-12)


@pytest.mark.parametrize("block", [1, HIDDEN * 4 * 2, HIDDEN * 4 * 3 + 1, HIDDEN * 4 * 7])
def test_mlp_in_blocks_equals_mlp_at_once(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    module = make("mlp")
    h, g, p, q = encodings(8, 4)
    inputs = [h, g, p, q, *module.parameters()]
    at_once = module(h, g, p, q)
    monkeypatch.setattr(discriminators, "BLOCK", block)
    assert_agree(module(h, g, p, q), at_once, inputs, 1e-12)
    with torch.no_grad():
        assert_agree(module(h, g, p, q), at_once.detach(), [], 1e-12)


def test_mlp_in_blocks_does_not_keep_its_hidden_layer_for_the_backward_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, graphs = 64, 8
    module = make("mlp")
    h, g, p, q = encodings(rows, graphs)

    def numbers_kept() -> int:
        kept: list[int] = []

        def remember(value: Tensor) -> Tensor:
            kept.append(value.numel())
            return value

        with torch.autograd.graph.saved_tensors_hooks(remember, lambda value: value):
            module(h, g, p, q)
        return sum(kept)

    everything = rows * graphs * HIDDEN
    assert numbers_kept() >= everything
    monkeypatch.setattr(discriminators, "BLOCK", everything // 16)
    assert numbers_kept() < everything


def test_cosine_keeps_the_scales_that_carry_the_policys_gradient() -> None:
    module = make("cosine")
    h, g, p, q = encodings(3, 3)
    for gradient in torch.autograd.grad(module(h, g, p, q).square().sum(), [p, q]):
        assert gradient.abs() > 1e-3
    assert (module(h, g).abs() <= 1 + 1e-12).all()
    torch.testing.assert_close(module(5 * h, 0.1 * g), module(h, g))


@pytest.mark.parametrize("name", DISCRIMINATORS)
def test_an_encoding_of_zeros_has_a_finite_score_and_gradient(name: str) -> None:
    module = make(name)
    _, g, p, q = encodings(1, 3)
    h = torch.zeros(2, HIDDEN, dtype=torch.float64, requires_grad=True)
    scores = module(h, g, p, q)
    assert scores.isfinite().all()
    for gradient in torch.autograd.grad(scores.sum(), [h, g], materialize_grads=True):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("name", DISCRIMINATORS)
def test_devices_agree_on_the_scores(name: str, device: torch.device) -> None:
    module = make(name)
    h, g, p, q = encodings(6, 4)
    expected = slow(name, module, h, g, p, q)
    moved = [value.detach().to(device) for value in (h, g, p, q)]
    scores = module.to(device)(*moved)
    torch.testing.assert_close(scores.cpu(), expected, rtol=1e-10, atol=1e-10)
