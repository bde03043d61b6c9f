"""Draws have the right sizes, the right frequencies, and nothing to do with each other's seeds.

Frequencies are counted over one large batch of equal graphs with a fixed seed, and may differ
from the probabilities by four standard deviations.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

import reference
from lg2ar.graph import GraphBatch
from lg2ar.ops import joined_pairs
from lg2ar.sampling import (
    gumbel_noise,
    gumbel_top_k,
    negative_edges,
    private_randomness,
    relaxed_bernoulli,
    repeatable,
    sample_one,
    seed_from,
    shuffle_features,
    straight_through,
    uniform,
)
from reference import SHAPES, assert_agree, edges, make_graph, members, non_edges, vector

COPIES = 5000


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def assert_frequency(count: int, trials: int, probability: float) -> None:
    sigma = math.sqrt(trials * probability * (1 - probability))
    assert abs(count - trials * probability) <= 4 * sigma + 1e-9


def logits_and_copies() -> tuple[Tensor, GraphBatch]:
    """The same four logits in many graphs of four nodes."""
    logits = torch.tensor([0.5, -1.0, 1.5, 0.0], dtype=torch.float64)
    home = torch.arange(COPIES).repeat_interleave(4)
    graph = GraphBatch(
        x=torch.zeros(4 * COPIES, 1, dtype=torch.float64),
        edge_index=torch.empty(2, 0, dtype=torch.long),
        batch=home,
        num_graphs=COPIES,
    )
    return logits, graph


# ------------------------------------------------------------------ nodes


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("ratio", [1e-9, 0.1, 0.25, 0.5, 0.6, 0.9, 1.0])
def test_top_k_keeps_the_share_of_every_graph_rounded_up(name: str, ratio: float) -> None:
    graph = make_graph(name)
    kept = gumbel_top_k(graph.x[:, 0], graph, ratio, seeded())
    for nodes in members(graph):
        assert int(kept[nodes].sum()) == math.ceil(ratio * len(nodes))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_top_k_keeps_the_largest_sums_of_logit_and_gumbel_noise(name: str, seed: int) -> None:
    graph = make_graph(name, seed=seed)
    logits = graph.x[:, 0].detach()
    u = torch.rand(graph.num_nodes, dtype=torch.float64, generator=seeded(seed)).tolist()
    noise = [reference.gumbel(value) for value in u]
    expected = reference.gumbel_top_k(logits.tolist(), noise, graph, 0.5)
    kept = gumbel_top_k(logits, graph, 0.5, seeded(seed))
    assert set(kept.nonzero().flatten().tolist()) == expected
    first = reference.gumbel_top_k(logits.tolist(), noise, graph, 1e-9)
    drawn = sample_one(logits, graph, seeded(seed))
    assert set(drawn.nonzero().flatten().tolist()) == first


def test_one_node_is_drawn_as_often_as_its_probability_says() -> None:
    logits, graph = logits_and_copies()
    drawn = sample_one(logits.repeat(COPIES), graph, seeded())
    counts = drawn.view(COPIES, 4).sum(0).tolist()
    assert sum(counts) == COPIES
    for count, p in zip(counts, logits.softmax(0).tolist(), strict=True):
        assert_frequency(count, COPIES, p)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_top_k_draws_without_replacement_from_the_softmax(number: int) -> None:
    logits, graph = logits_and_copies()
    p = logits.softmax(0).tolist()
    expected: dict[frozenset[int], float] = {}
    for order in itertools.permutations(range(4), number):
        chance, left = 1.0, 1.0
        for v in order:
            chance, left = chance * p[v] / left, left - p[v]
        expected[frozenset(order)] = expected.get(frozenset(order), 0.0) + chance
    kept = gumbel_top_k(logits.repeat(COPIES), graph, number / 4, seeded(number)).view(COPIES, 4)
    drawn = Counter(frozenset(line.nonzero().flatten().tolist()) for line in kept)
    assert sum(expected.values()) == pytest.approx(1)
    for chosen, chance in expected.items():
        assert_frequency(drawn[chosen], COPIES, chance)


def test_no_gradient_flows_through_a_choice_of_nodes() -> None:
    graph = make_graph("random sparse")
    assert not gumbel_top_k(graph.x[:, 0], graph, 0.5).requires_grad
    assert not sample_one(graph.x[:, 0], graph).requires_grad


def test_gumbel_noise_has_the_gumbel_distribution() -> None:
    noise = gumbel_noise(torch.zeros(20_000, dtype=torch.float64), seeded())
    for value in (-1.0, 0.0, 1.0, 3.0):
        assert_frequency(int((noise <= value).sum()), 20_000, math.exp(-math.exp(-value)))


# ------------------------------------------------------------------ coins


@pytest.mark.parametrize("temperature", [0.1, 1.0, 5.0])
def test_a_relaxed_coin_exceeds_one_half_as_often_as_the_bernoulli_is_one(
    temperature: float,
) -> None:
    logits = torch.tensor([-2.0, -0.3, 0.0, 1.2], dtype=torch.float64)
    coins = relaxed_bernoulli(logits.expand(20_000, 4), temperature, seeded())
    assert ((coins >= 0) & (coins <= 1)).all()
    for count, p in zip((coins > 0.5).sum(0).tolist(), logits.sigmoid().tolist(), strict=True):
        assert_frequency(count, 20_000, p)


def test_temperature_does_not_change_how_a_coin_falls() -> None:
    logits = torch.randn(1000, dtype=torch.float64)
    falls = [relaxed_bernoulli(logits, t, seeded()) > 0.5 for t in (0.1, 1.0, 10.0)]
    assert torch.equal(falls[0], falls[1])
    assert torch.equal(falls[1], falls[2])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_a_relaxed_coin_equals_its_formula(temperature: float) -> None:
    logits = torch.randn(6, dtype=torch.float64, requires_grad=True)
    chance = seeded(4)
    first, second = (
        [reference.gumbel(u) for u in torch.rand(6, dtype=torch.float64, generator=chance).tolist()]
        for _ in range(2)
    )
    slow = [
        reference.relaxed_bernoulli(logit, a, b, temperature)
        for logit, a, b in zip(logits.unbind(), first, second, strict=True)
    ]
    fast = relaxed_bernoulli(logits, temperature, seeded(4))
    assert_agree(fast, vector(slow), [logits])


def test_entries_that_share_a_place_share_a_coin() -> None:
    share = torch.tensor([2, 0, 2, 2, 1])
    own = relaxed_bernoulli(torch.zeros(5, dtype=torch.float64), 1.0, seeded())
    shared = relaxed_bernoulli(torch.zeros(5, dtype=torch.float64), 1.0, seeded(), share=share)
    assert torch.equal(shared, own[share])


def test_straight_through_has_one_value_and_another_gradient() -> None:
    soft = torch.rand(5, dtype=torch.float64, requires_grad=True)
    hard = (soft > 0.5).double()
    result = straight_through(hard, soft.square())
    torch.testing.assert_close(result, hard, rtol=0, atol=1e-15)
    (gradient,) = torch.autograd.grad(result.sum(), soft)
    torch.testing.assert_close(gradient, 2 * soft.detach())


# ------------------------------------------------------------------ negative edges


def drawn_pairs(graph: GraphBatch, seed: int) -> tuple[list[tuple[int, int]], Tensor, Tensor]:
    """The valid negative edges, the places of the edges they stand beside, and all pairs."""
    drawn, valid, pair = negative_edges(graph, seeded(seed))
    assert drawn.shape == graph.edge_index.shape
    places = valid.nonzero().flatten()
    return [(i, j) for i, j in drawn[:, places].T.tolist()], places, pair


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_negative_edges_are_distinct_non_edges_of_their_own_graph(name: str, seed: int) -> None:
    graph = make_graph(name)
    drawn, _, _ = drawn_pairs(graph, seed)
    chosen = {(min(e), max(e)) for e in drawn}
    joined = {(min(e), max(e)) for e in edges(graph) if e[0] != e[1]}
    for nodes, free in zip(members(graph), non_edges(graph), strict=True):
        inside = {e for e in chosen if e[0] in nodes}
        taken = sum(e[0] in nodes for e in joined)
        assert inside <= free
        assert len(inside) == min(taken, len(free))


@pytest.mark.parametrize("name", SHAPES)
def test_each_joined_pair_of_nodes_gets_its_own_non_edge(name: str) -> None:
    graph = make_graph(name)
    drawn, places, pair = drawn_pairs(graph, 1)
    assert torch.equal(pair, joined_pairs(graph).pair)
    partner: dict[int, tuple[int, int]] = {}
    for (i, j), place in zip(drawn, places.tolist(), strict=True):
        source, target = edges(graph)[place]
        assert (i < j) == (source < target)
        unordered = (min(i, j), max(i, j))
        assert partner.setdefault(int(pair[place]), unordered) == unordered
    assert len(set(partner.values())) == len(partner)


@pytest.mark.parametrize("name", ["random sparse", "uneven", "isolated nodes", "complete"])
def test_negative_edges_of_an_undirected_graph_come_both_ways(name: str) -> None:
    for seed in range(5):
        drawn, _, _ = drawn_pairs(make_graph(name), seed)
        assert Counter(drawn) == Counter((j, i) for i, j in drawn)


def test_negative_edges_of_a_directed_graph_come_one_way() -> None:
    graph = make_graph("directed")
    drawn, places, _ = drawn_pairs(graph, 0)
    lone = [e for e in edges(graph) if e[::-1] not in edges(graph)]
    for edge, place in zip(drawn, places.tolist(), strict=True):
        assert (edge[::-1] in drawn) == (edges(graph)[place] not in lone)


@pytest.mark.parametrize("name", ["complete", "one node", "single nodes", "no edges"])
def test_where_nothing_can_be_drawn_no_negative_edge_is_valid(name: str) -> None:
    drawn, _, _ = drawn_pairs(make_graph(name), 0)
    assert drawn == []


def test_a_self_loop_gets_no_negative_edge() -> None:
    graph = make_graph("self-loops")
    _, valid, _ = negative_edges(graph, seeded())
    assert not valid[graph.edge_index[0] == graph.edge_index[1]].any()
    assert valid[:2].all()


@pytest.mark.parametrize("name", ["uneven", "isolated nodes", "directed", "random dense"])
def test_every_non_edge_is_equally_likely(name: str) -> None:
    copies = 3000
    one, many = make_graph(name), make_graph(name, copies=copies)
    drawn, valid, _ = negative_edges(many, seeded())
    pairs = {(min(e), max(e)) for e in drawn[:, valid].T.tolist()}
    counts = Counter((u % one.num_nodes, v % one.num_nodes) for u, v in pairs)
    joined = {(min(e), max(e)) for e in edges(one) if e[0] != e[1]}
    checked = 0
    for nodes, free in zip(members(one), non_edges(one), strict=True):
        taken = sum(e[0] in nodes for e in joined)
        for pair in free:
            assert_frequency(counts[pair], copies, min(taken, len(free)) / len(free))
            checked += 1
    assert checked == sum(map(len, non_edges(one))) > 0
    assert set(counts) <= set().union(*non_edges(one))


def test_negative_edges_of_a_large_graph_are_non_edges() -> None:
    size, number = 100_000, 5000
    source = torch.randint(size, (number,), generator=seeded(1))
    target = (source + 1 + torch.randint(size - 1, (number,), generator=seeded(2))) % size
    graph = GraphBatch(
        x=torch.zeros(size, 1),
        edge_index=torch.stack([source, target]),
        batch=torch.zeros(size, dtype=torch.long),
        num_graphs=1,
    )
    drawn, _, _ = drawn_pairs(graph, 0)
    joined = {(min(e), max(e)) for e in edges(graph)}
    chosen = {(min(e), max(e)) for e in drawn}
    assert len(chosen) == len(joined)
    assert not chosen & joined
    assert all(0 <= u < v < size for u, v in chosen)


# ------------------------------------------------------------------ shuffled features


@pytest.mark.parametrize("name", SHAPES)
def test_features_are_shuffled_within_each_graph_only(name: str) -> None:
    graph = make_graph(name)
    shuffled = shuffle_features(graph, seeded())
    for nodes in members(graph):
        assert sorted(shuffled.x[nodes].tolist()) == sorted(graph.x[nodes].tolist())
    assert shuffled.edge_index is graph.edge_index
    assert shuffled.edge_weight is graph.edge_weight
    assert shuffled.batch is graph.batch


def test_every_order_of_the_features_is_equally_likely() -> None:
    copies = 3000
    graph = make_graph("unsorted edges", features=1, copies=copies)
    graph = graph.replace(x=torch.arange(3.0).repeat(2 * copies).unsqueeze(1))
    shuffled = shuffle_features(graph, seeded()).x.view(-1, 3)
    counts = Counter(tuple(line) for line in shuffled.tolist())
    for order in itertools.permutations([0.0, 1.0, 2.0]):
        assert_frequency(counts[order], 2 * copies, 1 / 6)


# ------------------------------------------------------------------ seeds and generators


def test_seeds_differ_wherever_a_number_differs() -> None:
    numbers = [(a, b) for a in range(30) for b in range(30)]
    seeds = {seed_from(a, b) for a, b in numbers}
    assert len(seeds) == len(numbers)
    assert seed_from(3, 4) == seed_from(3, 4)
    assert seed_from(3, 4) not in {seed_from(4, 3), seed_from(3, 4, 1), seed_from(3), seed_from(4)}
    assert all(0 <= seed < 2**63 for seed in seeds)
    Generator().manual_seed(max(seeds))


def test_private_randomness_restores_the_callers_state() -> None:
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    with private_randomness():
        torch.manual_seed(99)
        inside = torch.rand(4)
    assert torch.equal(torch.rand(4), expected)
    assert not torch.equal(inside, expected)


def test_private_randomness_restores_the_state_after_an_error() -> None:
    def fail() -> None:
        with private_randomness():
            torch.rand(3)
            raise RuntimeError("on purpose")

    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_private_randomness_restores_the_cuda_state() -> None:
    state = torch.cuda.get_rng_state()
    with private_randomness():
        torch.rand(3, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), state)


Sampler = Callable[[GraphBatch, Generator | None], Tensor]


def _negatives(graph: GraphBatch, generator: Generator | None) -> Tensor:
    drawn, valid, _ = negative_edges(graph, generator)
    return drawn.where(valid, -1)


SAMPLERS: dict[str, Sampler] = {
    "uniform": lambda graph, g: uniform(50, device=graph.device, generator=g),
    "gumbel noise": lambda graph, g: gumbel_noise(graph.x, g),
    "top-k": lambda graph, g: gumbel_top_k(graph.x[:, 0], graph, 0.5, g),
    "one node": lambda graph, g: sample_one(graph.x[:, 0], graph, g),
    "coins": lambda graph, g: relaxed_bernoulli(graph.x, 0.7, g),
    "negative edges": _negatives,
    "shuffled features": lambda graph, g: shuffle_features(graph, g).x,
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_generator_fixes_the_draw_and_leaves_the_global_state_alone(name: str) -> None:
    graph = make_graph("random sparse", copies=20)
    state = torch.get_rng_state()
    draw = SAMPLERS[name](graph, seeded(3))
    assert torch.equal(SAMPLERS[name](graph, seeded(3)), draw)
    assert not torch.equal(SAMPLERS[name](graph, seeded(4)), draw)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", SAMPLERS)
def test_without_a_generator_the_global_state_decides(name: str) -> None:
    graph = make_graph("random sparse", copies=20)
    torch.manual_seed(3)
    draw = SAMPLERS[name](graph, None)
    assert not torch.equal(SAMPLERS[name](graph, None), draw)
    torch.manual_seed(3)
    assert torch.equal(SAMPLERS[name](graph, None), draw)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_cpu_generator_draws_the_same_on_every_device(name: str, device: torch.device) -> None:
    graph = make_graph("random sparse", copies=20)
    expected = SAMPLERS[name](graph, seeded(3))
    draw = SAMPLERS[name](graph.to(device), seeded(3))
    assert draw.device.type == device.type
    torch.testing.assert_close(draw.cpu(), expected, rtol=1e-12, atol=1e-12)


def test_rounding_adds_no_node() -> None:
    nothing = torch.empty(2, 0, dtype=torch.long)
    graph = GraphBatch(torch.ones(100, 1), nothing, torch.zeros(100, dtype=torch.long), 1)
    assert int(gumbel_top_k(torch.zeros(100), graph, 0.55).sum()) == 55


def test_repeatable_leaves_things_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    memory: Any = torch.utils.deterministic
    asked: list[bool] = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", asked.append)
    with repeatable(torch.device("cuda")):
        assert not memory.fill_uninitialized_memory
        assert asked == [True]
    assert memory.fill_uninitialized_memory
    assert asked == [True, False]
    with repeatable(torch.device("cpu")):
        assert memory.fill_uninitialized_memory
