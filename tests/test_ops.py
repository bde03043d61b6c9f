"""Segment arithmetic, walks and cuts equal loops over sets and lists."""

from __future__ import annotations

import pytest
import torch

import reference
from lg2ar.ops import (
    induced_subgraph,
    joined_pairs,
    k_hop,
    keep_edges,
    pair_from_number,
    pair_offsets,
    segment_log_softmax,
    segment_mean,
    segment_rank,
    segment_softmax,
    segment_sum,
    with_candidates,
)
from reference import SHAPES, assert_agree, edges, make_graph, members, row, table, vector


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("how", ["sum", "mean"])
def test_rows_of_each_graph_are_pooled(name: str, how: str) -> None:
    graph = make_graph(name)
    pool = segment_sum if how == "sum" else segment_mean
    slow = reference.matrix(reference.read_out(table(graph.x), graph, how))
    assert_agree(pool(graph.x, graph.batch, graph.num_graphs), slow, [graph.x])


def test_an_empty_segment_pools_to_zero() -> None:
    values = torch.ones(3, 2)
    segment = torch.tensor([0, 2, 2])
    assert segment_sum(values, segment, 4).tolist() == [[1, 1], [0, 0], [2, 2], [0, 0]]
    assert segment_mean(values, segment, 4).tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]


def test_segments_need_no_order() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    segment = torch.tensor([1, 0, 1, 0])
    assert segment_sum(values, segment, 2).tolist() == [6, 4]
    assert segment_mean(values, segment, 2).tolist() == [3, 2]
    shares = segment_softmax(values, segment, 2)
    expected = torch.stack([values[[0, 2]].softmax(0), values[[1, 3]].softmax(0)], dim=1).flatten()
    torch.testing.assert_close(shares, expected)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_softmax_is_taken_within_each_graph(name: str, seed: int) -> None:
    graph = make_graph(name, seed=seed)
    logits = graph.x[:, 0].detach().requires_grad_()
    slow = vector(reference.segment_softmax(row(logits), graph))
    assert_agree(segment_softmax(logits, graph.batch, graph.num_graphs), slow, [logits])
    assert_agree(segment_log_softmax(logits, graph.batch, graph.num_graphs), slow.log(), [logits])


def test_softmax_of_large_logits_stays_finite() -> None:
    logits = torch.tensor([1e4, 0.0, -1e4, -1e4, -1e4 - 1], requires_grad=True)
    segment = torch.tensor([0, 0, 0, 1, 1])
    logs = segment_log_softmax(logits, segment, 3)
    assert logs[:3].tolist() == [0, -1e4, -2e4]
    torch.testing.assert_close(logs[3:], torch.tensor([0.0, -1.0]).log_softmax(0))
    (gradient,) = torch.autograd.grad(segment_softmax(logits, segment, 3)[3], logits)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", SHAPES)
def test_rank_counts_the_larger_keys_of_the_own_graph(name: str) -> None:
    graph = make_graph(name)
    keys = graph.x[:, 0].tolist()
    ranks = [sum(keys[u] > keys[v] for u in nodes) for nodes in members(graph) for v in nodes]
    assert segment_rank(graph.x[:, 0], graph).tolist() == ranks


def test_equal_keys_rank_in_the_order_of_their_nodes() -> None:
    graph = make_graph("random sparse")
    assert segment_rank(torch.zeros(13), graph).tolist() == [0, 1, 2, 3, 0, 1, 2, *range(6)]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("hops", range(5))
def test_k_hop_equals_breadth_first_search(name: str, hops: int) -> None:
    graph = make_graph(name)
    for seed in range(3):
        torch.manual_seed(seed)
        centres = [nodes[int(torch.randint(len(nodes), ()))] for nodes in members(graph)]
        start = torch.zeros(graph.num_nodes, dtype=torch.bool)
        start[centres] = True
        expected = set().union(*(reference.breadth_first(graph, v, hops) for v in centres))
        assert set(k_hop(graph, start, hops).nonzero().flatten().tolist()) == expected
        assert start.nonzero().flatten().tolist() == centres


def test_k_hop_walks_one_edge_at_a_time_along_a_long_path() -> None:
    path = make_graph("one graph", copies=4)
    chain = torch.arange(20)
    path = path.replace(
        edge_index=torch.stack([chain[1:], chain[:-1]]),
        edge_weight=None,
        batch=torch.zeros(20, dtype=torch.long),
        num_graphs=1,
    )
    for hops in (0, 1, 2, 7, 19, 30):
        assert int(k_hop(path, chain == 0, hops).sum()) == min(hops + 1, 20)
        assert int(k_hop(path, chain == 19, hops).sum()) == min(hops + 1, 20)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_induced_subgraph_equals_sets(name: str, weighted: bool, seed: int) -> None:
    graph = make_graph(name, weighted=weighted, attributes=seed)
    torch.manual_seed(seed)
    kept = torch.rand(graph.num_nodes) < 0.6
    kept[[nodes[0] for nodes in members(graph)]] = True
    view = induced_subgraph(graph, kept)
    chosen = set(kept.nonzero().flatten().tolist())
    slow = reference.cut(graph, chosen, reference.weights(graph))
    assert view.origin is not None
    assert view.origin.tolist() == sorted(chosen)
    assert edges(view) == edges(slow)
    assert view.batch.tolist() == slow.batch.tolist()
    assert view.num_graphs == graph.num_graphs
    assert_agree(view.x, slow.x, [graph.x])
    if graph.edge_weight is None:
        assert view.edge_weight is None
    else:
        assert view.edge_weight is not None
        assert slow.edge_weight is not None
        assert_agree(view.edge_weight, slow.edge_weight, [graph.edge_weight])
    assert (view.edge_attr is None) == (seed == 0)
    if graph.edge_attr is not None:
        assert view.edge_attr is not None
        assert slow.edge_attr is not None
        assert_agree(view.edge_attr, slow.edge_attr, [graph.edge_attr])


@pytest.mark.parametrize("name", SHAPES)
def test_kept_edges_keep_their_weights_and_all_nodes_stay(name: str) -> None:
    graph = make_graph(name)
    kept = torch.rand(graph.num_edges) < 0.5
    view = keep_edges(graph, kept)
    places = [e for e in range(graph.num_edges) if kept[e]]
    assert edges(view) == [edges(graph)[e] for e in places]
    assert view.edge_weight is not None
    assert view.edge_weight.tolist() == [reference.weights(graph)[e].item() for e in places]
    assert view.x is graph.x
    assert view.batch is graph.batch
    assert keep_edges(graph.replace(edge_weight=None), kept).edge_weight is None
    assert view.edge_attr is None
    attributed = make_graph(name, attributes=2)
    assert attributed.edge_attr is not None
    kept_attributes = keep_edges(attributed, kept).edge_attr
    assert kept_attributes is not None
    expected = reference.rows_of(attributed.edge_attr, places)
    assert_agree(kept_attributes, expected, [attributed.edge_attr])


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("attributes", [0, 2])
def test_candidates_take_weight_and_attributes_of_the_edge_in_their_place(
    name: str, weighted: bool, attributes: int
) -> None:
    graph = make_graph(name, weighted=weighted, attributes=attributes)
    others = graph.edge_index.flip(1)
    both = with_candidates(graph, others)
    assert edges(both) == [*edges(graph), *edges(graph)[::-1]]
    assert (both.edge_weight is None) == (not weighted)
    assert both.num_edge_features == attributes
    E = graph.num_edges
    for half in (slice(0, E), slice(E, 2 * E)):
        if both.edge_weight is not None and graph.edge_weight is not None:
            assert torch.equal(both.edge_weight[half], graph.edge_weight)
        if both.edge_attr is not None and graph.edge_attr is not None:
            assert torch.equal(both.edge_attr[half], graph.edge_attr)


@pytest.mark.parametrize("name", SHAPES)
def test_edges_between_the_same_nodes_are_one_pair(name: str) -> None:
    graph = make_graph(name)
    joined = joined_pairs(graph)
    unordered = [(min(e), max(e)) for e in edges(graph)]
    pair = joined.pair.tolist()
    assert len(set(zip(pair, unordered, strict=True))) == len(set(pair)) == len(set(unordered))
    assert sorted(set(pair)) == list(range(len(set(unordered))))
    assert joined.loop.tolist() == [u == v for u, v in unordered]
    proper = {e for e in unordered if e[0] != e[1]}
    expected = [sum(e[0] in nodes for e in proper) for nodes in members(graph)]
    assert joined.per_graph.tolist() == expected
    home = graph.batch.tolist()
    for place, (u, _) in zip(pair, unordered, strict=True):
        assert int(joined.graph[place]) == home[u]


@pytest.mark.parametrize("name", SHAPES)
def test_pairs_are_numbered_graph_by_graph(name: str) -> None:
    graph = make_graph(name)
    numbers: dict[tuple[int, int], int] = {}
    for nodes in members(graph):
        for v in nodes:
            for u in nodes:
                if u < v:
                    numbers[u, v] = len(numbers)
    proper = {(min(e), max(e)) for e in edges(graph) if e[0] != e[1]}
    keys = joined_pairs(graph).keys.tolist()
    assert keys[: len(proper)] == sorted(numbers[e] for e in proper)
    assert all(key >= len(numbers) for key in keys[len(proper) :])
    sizes = [len(nodes) for nodes in members(graph)]
    offsets = [sum(n * (n - 1) // 2 for n in sizes[:k]) for k in range(len(sizes) + 1)]
    assert pair_offsets(graph).tolist() == offsets


def test_a_pairs_number_gives_back_its_nodes() -> None:
    expected = [(u, v) for v in range(60) for u in range(v)]
    u, v = pair_from_number(torch.arange(len(expected)))
    assert list(zip(u.tolist(), v.tolist(), strict=True)) == expected


@pytest.mark.parametrize("size", [10**4, 30_000_001, 3 * 10**9])
def test_numbers_of_pairs_in_huge_graphs_are_exact(size: int) -> None:
    numbers, expected = [], []
    for v in range(size - 50, size):
        for u in (0, 1, v // 2, v - 2, v - 1):
            numbers.append(v * (v - 1) // 2 + u)
            expected.append((u, v))
    first, second = pair_from_number(torch.tensor(numbers))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == expected


@pytest.mark.parametrize("name", ["random sparse", "self-loops", "no edges"])
def test_devices_agree_on_cuts(name: str, device: torch.device) -> None:
    graph = make_graph(name)
    there = graph.to(device)
    keys = graph.x[:, 0].detach()
    rank = segment_rank(keys, graph)
    assert segment_rank(keys.to(device), there).tolist() == rank.tolist()
    reached = k_hop(graph, rank == 0, 1)
    assert k_hop(there, (rank == 0).to(device), 1).tolist() == reached.tolist()
    here, moved = induced_subgraph(graph, reached), induced_subgraph(there, reached.to(device))
    assert edges(moved) == edges(here)
    assert moved.x.tolist() == here.x.tolist()
    shares = segment_softmax(keys.to(device), there.batch, there.num_graphs)
    torch.testing.assert_close(shares.cpu(), segment_softmax(keys, graph.batch, graph.num_graphs))
