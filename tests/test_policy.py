"""Policies give the transcribed distribution, ignore the order of graphs, and draw from it."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch
from torch import Generator, Tensor, nn

import reference
from lg2ar.policy import POLICIES, DeepSetPolicy, GRUPolicy, Policy, RandomPolicy
from lg2ar.recurrence import last_state
from reference import assert_agree, table, vector

HIDDEN = 5
LEARNED = ["gru", "deepset"]


def make(
    name: str, heads: int = 4, temperature: float = 1.0, replacement: bool = True, seed: int = 0
) -> Policy:
    torch.manual_seed(seed)
    policy = POLICIES[name](HIDDEN, heads, temperature, replacement).double()
    for parameter in policy.parameters():
        with torch.no_grad():
            parameter.normal_(std=0.8)
    return policy


def encodings(number: int, seed: int = 0) -> Tensor:
    chance = Generator().manual_seed(seed)
    graphs = torch.randn(number, HIDDEN, dtype=torch.float64, generator=chance)
    return graphs.requires_grad_()


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("number", [1, 2, 5, 8])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_distribution_equals_its_transcription(
    name: str, number: int, seed: int, temperature: float
) -> None:
    policy = make(name, temperature=temperature, seed=seed)
    graphs = encodings(number, seed)
    draw = policy(graphs, Generator().manual_seed(seed))
    slow = vector(reference.policy_probabilities(policy, table(graphs), temperature))
    inputs = [graphs, *policy.parameters()]
    assert_agree(draw.probabilities, slow, inputs, 1e-11)
    assert_agree(draw.p_i, slow[draw.i], inputs, 1e-11)
    assert_agree(draw.p_j, slow[draw.j], inputs, 1e-11)


@pytest.mark.parametrize("name", POLICIES)
def test_order_of_the_graphs_does_not_matter(name: str) -> None:
    policy, graphs = make(name), encodings(6)
    expected = policy(graphs).probabilities
    for seed in range(5):
        order = torch.randperm(6, generator=Generator().manual_seed(seed))
        torch.testing.assert_close(policy(graphs[order]).probabilities, expected)


@pytest.mark.parametrize("name", LEARNED)
def test_other_graphs_give_another_distribution(name: str) -> None:
    policy = make(name)
    left, right = policy(encodings(6, 0)).probabilities, policy(encodings(6, 1)).probabilities
    assert (left - right).abs().max() > 1e-3


@pytest.mark.parametrize("name", POLICIES)
def test_temperature_divides_the_logits(name: str) -> None:
    graphs = encodings(5)
    cold, warm = make(name, temperature=0.5), make(name, temperature=3.0)
    logits = cold.logits(graphs)
    torch.testing.assert_close(cold(graphs).probabilities, (logits / 0.5).softmax(0))
    torch.testing.assert_close(warm(graphs).probabilities, (logits / 3.0).softmax(0))


@pytest.mark.parametrize("name", ["deepset", "random"])
@pytest.mark.parametrize("replacement", [True, False])
def test_pairs_are_drawn_as_often_as_their_probabilities_say(name: str, replacement: bool) -> None:
    trials = 4000
    policy, graphs = make(name, heads=3, replacement=replacement, temperature=2.0), encodings(4)
    chance = Generator().manual_seed(1)
    draws = [policy(graphs, chance) for _ in range(trials)]
    counts = Counter((draw.i, draw.j) for draw in draws)
    p = draws[0].probabilities.tolist()
    everything = 0.0
    for i, j in itertools.product(range(3), repeat=2):
        expected = p[i] * p[j]
        if not replacement:
            expected = 0.0 if i == j else expected / (1 - p[i])
        sigma = math.sqrt(trials * expected * (1 - expected))
        assert abs(counts[i, j] - trials * expected) <= 4 * sigma
        everything += expected
    assert everything == pytest.approx(1)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("heads", [2, 5])
def test_without_replacement_the_draws_differ(name: str, heads: int) -> None:
    policy, graphs = make(name, heads=heads, replacement=False), encodings(3)
    chance = Generator().manual_seed(0)
    for _ in range(60):
        draw = policy(graphs, chance)
        assert draw.i != draw.j
        assert {draw.i, draw.j} <= set(range(heads))


def test_a_policy_that_is_sure_draws_any_of_the_others_second() -> None:
    policy, graphs = make("deepset", heads=4, replacement=False), encodings(3)
    assert isinstance(policy, DeepSetPolicy)
    with torch.no_grad():  # so sure that in float32 nothing is left for the others
        policy.batch.rest[1].get_parameter("bias").copy_(torch.tensor([500.0, 0, 0, 0]))
    chance = Generator().manual_seed(0)
    draws = [policy.float()(graphs.float(), chance) for _ in range(300)]
    assert draws[0].probabilities.tolist() == [1, 0, 0, 0]
    assert {draw.i for draw in draws} == {0}
    counts = [sum(draw.j == j for draw in draws) for j in range(4)]
    assert counts[0] == 0
    assert min(counts[1:]) > 60


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("replacement", [True, False])
def test_a_single_augmentation_is_drawn_twice(name: str, replacement: bool) -> None:
    draw = make(name, heads=1, replacement=replacement)(encodings(3))
    assert (draw.i, draw.j) == (0, 0)
    assert draw.probabilities.tolist() == [1.0]


def test_a_policy_over_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one augmentation, got 0"):
        GRUPolicy(HIDDEN, 0)


@pytest.mark.parametrize("name", LEARNED)
def test_the_probabilities_of_the_draw_carry_gradient(name: str) -> None:
    policy, graphs = make(name), encodings(4)
    draw = policy(graphs)
    for p in (draw.p_i, draw.p_j):
        gradients = torch.autograd.grad(p, [graphs, *policy.parameters()], retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert gradients[0].abs().sum() > 0
        assert sum(bool(gradient.abs().sum() > 0) for gradient in gradients[1:]) >= 4


def test_the_random_policy_is_uniform_and_learns_nothing() -> None:
    policy = RandomPolicy(HIDDEN, 5, temperature=0.1)
    assert list(policy.parameters()) == []
    draw = policy(encodings(3))
    assert draw.probabilities.tolist() == [0.2] * 5
    assert not draw.p_i.requires_grad


def test_the_gru_reads_graphs_from_the_shortest_to_the_longest() -> None:
    policy = make("gru")
    assert isinstance(policy, GRUPolicy)
    direction = torch.ones(1, HIDDEN, dtype=torch.float64)
    graphs = torch.tensor([[3.0], [-1.0], [2.0]], dtype=torch.float64) * direction
    expected = policy.gru(graphs[[1, 2, 0]])[1].flatten()
    torch.testing.assert_close(policy.logits(graphs), policy.output(expected))


def test_the_deepset_averages_so_that_repeated_batches_are_alike() -> None:
    policy, graphs = make("deepset"), encodings(3)
    assert isinstance(policy, DeepSetPolicy)
    torch.testing.assert_close(policy.logits(graphs.repeat(4, 1)), policy.logits(graphs))


@pytest.mark.parametrize("name", POLICIES)
def test_large_logits_give_a_finite_distribution(name: str) -> None:
    draw = make(name, temperature=1e-6)(encodings(3))
    assert draw.probabilities.isfinite().all()
    assert float(draw.probabilities.detach().sum()) == pytest.approx(1)


@pytest.mark.parametrize("name", POLICIES)
def test_a_cpu_generator_draws_the_same_on_every_device(name: str, device: torch.device) -> None:
    policy, graphs = make(name), encodings(5)
    here = [policy(graphs, Generator().manual_seed(seed)) for seed in range(10)]
    policy.to(device)
    moved = graphs.detach().to(device)
    there = [policy(moved, Generator().manual_seed(seed)) for seed in range(10)]
    assert [(draw.i, draw.j) for draw in there] == [(draw.i, draw.j) for draw in here]
    assert there[0].probabilities.device.type == device.type
    torch.testing.assert_close(
        there[0].probabilities.cpu(), here[0].probabilities, rtol=1e-9, atol=1e-9
    )


def test_equal_norms_do_not_let_the_order_through() -> None:
    torch.manual_seed(0)
    policy = GRUPolicy(2, 3).double()
    graphs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    for order in ([1, 0, 2], [2, 1, 0], [0, 2, 1]):
        assert torch.equal(policy.logits(graphs), policy.logits(graphs[order]))


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_the_last_state_is_that_of_pytorchs_gru(steps: int) -> None:
    gru = nn.GRU(4, 5).double()
    x = torch.randn(steps, 4, dtype=torch.float64, requires_grad=True)
    weights = list(gru.parameters())
    target = torch.randn(5, dtype=torch.float64)
    found = last_state(x, *weights)
    expected = gru(x.unsqueeze(1))[1].flatten()
    torch.testing.assert_close(found, expected)
    ours = torch.autograd.grad(found @ target, [x, *weights])
    theirs = torch.autograd.grad(expected @ target, [x, *weights])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
