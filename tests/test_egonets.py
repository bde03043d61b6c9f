"""Sub-graphs of a large graph, compared with a plain search; cost in proportion to them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reference
from lg2ar.data import egonets
from lg2ar.data.egonets import EgoNets
from lg2ar.graph import GraphBatch
from strategies import graph_batches
from watch import LargestTensor


@given(several=graph_batches(), hops=st.integers(0, 4), data=st.data())
def test_sub_graphs_equal_a_plain_search(
    several: GraphBatch, hops: int, data: st.DataObject
) -> None:
    graph = several.replace(batch=torch.zeros_like(several.batch), num_graphs=1)
    centres = data.draw(
        st.lists(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=5, unique=True)
    )
    batch = EgoNets(graph, hops).around(centres)
    assert batch.num_graphs == len(centres)
    assert batch.origin is not None
    edges = graph.edge_index.T.tolist()
    weights = graph.weights().tolist()
    assert batch.num_edge_features == graph.num_edge_features
    for place, centre in enumerate(centres):
        inside = batch.batch == place
        nodes = batch.origin[inside].tolist()
        expected = reference.breadth_first(graph, centre, hops)
        assert sorted(nodes) == sorted(expected)
        assert torch.equal(batch.x[inside], graph.x[nodes])
        own = inside[batch.edge_index[0]]
        found = sorted(
            (u, v, w, e)
            for (u, v), w, e in zip(
                batch.origin[batch.edge_index[:, own]].T.tolist(),
                batch.weights()[own].tolist(),
                attributes(batch)[own].tolist(),
                strict=True,
            )
        )
        wanted = sorted(
            (u, v, w, e)
            for (u, v), w, e in zip(edges, weights, attributes(graph).tolist(), strict=True)
            if u in expected and v in expected
        )
        assert found == wanted
    batch.validate()


def attributes(graph: GraphBatch) -> torch.Tensor:
    return torch.empty(graph.num_edges, 0) if graph.edge_attr is None else graph.edge_attr


def ring(num_nodes: int) -> GraphBatch:
    node = torch.arange(num_nodes)
    pairs = torch.stack([node, (node + 1) % num_nodes])
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    return GraphBatch(torch.ones(num_nodes, 1), edge_index, torch.zeros_like(node), 1)


def test_a_draw_makes_nothing_of_the_size_of_the_graph() -> None:
    largest = []
    for num_nodes in (1_000, 100_000):
        nets = EgoNets(ring(num_nodes), hops=3)
        known = [value for value in vars(nets).values() if isinstance(value, torch.Tensor)]
        with LargestTensor(*known, nets.graph.edge_index, nets.graph.x) as seen:
            batch = nets.draw(8, seed=0)
        assert batch.num_nodes == 8 * 7
        largest.append(seen.numel)
    assert largest[0] == largest[1] < 1_000


def test_centres_are_different_and_fixed_by_the_seed() -> None:
    nets = EgoNets(ring(50), hops=0)

    def centres(seed: int) -> list[int]:
        origin = nets.draw(40, seed).origin
        assert origin is not None
        return origin.tolist()

    assert len(set(centres(1))) == 40
    assert centres(1) == centres(1) != centres(2)
    assert nets.draw(80, seed=0).num_graphs == 50


def test_the_same_sub_graphs_are_drawn_on_each_device(device: torch.device) -> None:
    there = EgoNets(ring(50), hops=2, device=device).draw(4, seed=3)
    here = EgoNets(ring(50), hops=2).draw(4, seed=3)
    assert torch.equal(there.edge_index.cpu(), here.edge_index)
    assert there.edge_index.device.type == device.type


def star(leaves: int, extra: int = 1) -> GraphBatch:
    """A hub with many leaves, the first of which are also joined in a row."""
    hub = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)])
    row = torch.stack([torch.arange(1, extra), torch.arange(2, extra + 1)])
    pairs = torch.cat([hub, row], dim=1)
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    batch = torch.zeros(leaves + 1, dtype=torch.long)
    return GraphBatch(torch.ones(leaves + 1, 1), edge_index, batch, 1)


@pytest.mark.parametrize("long", [0, 1, egonets.LONG])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(several=graph_batches(), hops=st.integers(0, 3), fanout=st.integers(1, 4), data=st.data())
def test_with_a_fanout_sub_graphs_are_induced_on_what_was_walked_to(
    monkeypatch: pytest.MonkeyPatch,
    long: int,
    several: GraphBatch,
    hops: int,
    fanout: int,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(egonets, "LONG", long)  # at 0 all lists are searched, none is read
    graph = several.replace(batch=torch.zeros_like(several.batch), num_graphs=1)
    centre = data.draw(st.integers(0, graph.num_nodes - 1))
    seed = data.draw(st.integers(0, 9))
    batch = EgoNets(graph, hops, fanout=fanout).around([centre], seed)
    assert batch.origin is not None
    nodes = batch.origin.tolist()
    assert centre in nodes
    assert set(nodes) <= set(reference.breadth_first(graph, centre, hops))
    assert len(nodes) <= sum(fanout**hop for hop in range(hops + 1))
    pairs = map(tuple, batch.origin[batch.edge_index].T.tolist())
    found = sorted(zip(pairs, batch.weights().tolist(), strict=True))
    listed = zip(map(tuple, graph.edge_index.T.tolist()), graph.weights().tolist(), strict=True)
    wanted = sorted(((u, v), w) for (u, v), w in listed if u in nodes and v in nodes)
    assert found == wanted
    # Edges come in the same order, by source and then target, however they were found.
    keys = (batch.edge_index[0] * batch.num_nodes + batch.edge_index[1]).tolist()
    assert keys == sorted(keys)
    batch.validate()


def test_a_large_fanout_changes_nothing() -> None:
    graph = star(30, extra=10)
    all_of_them = EgoNets(graph, 2).draw(5, seed=1)
    some = EgoNets(graph, 2, fanout=31).draw(5, seed=1)
    assert torch.equal(some.edge_index, all_of_them.edge_index)
    assert some.origin is not None
    assert all_of_them.origin is not None
    assert torch.equal(some.origin, all_of_them.origin)


def test_neighbours_are_drawn_without_preference_and_fixed_by_the_seed() -> None:
    nets = EgoNets(star(8), hops=1, fanout=3)
    counts = np.zeros(9)
    for seed in range(800):
        origin = nets.around([0], seed).origin
        assert origin is not None
        assert len(origin) == 4  # the hub and three different leaves
        counts[origin.numpy()] += 1
    # Each of eight leaves is drawn with probability 3/8; five standard deviations are 68.
    assert (np.abs(counts[1:] - 300) < 68).all()
    one, same, other = (nets.draw(9, seed).origin for seed in (5, 5, 6))
    assert one is not None
    assert same is not None
    assert other is not None
    assert one.tolist() == same.tolist() != other.tolist()


def test_what_a_sub_graph_draws_does_not_depend_on_those_beside_it() -> None:
    """So that processes that share out a batch draw what one would."""
    nets = EgoNets(star(20, extra=30), hops=2, fanout=2)
    both = nets.around([3, 7], seed=9)
    for place, centre in enumerate((3, 7)):
        alone = nets.around([centre], seed=9)
        assert both.origin is not None
        assert alone.origin is not None
        assert both.origin[both.batch == place].tolist() == alone.origin.tolist()


def test_a_hub_does_not_make_a_draw_expensive() -> None:
    """A list much longer than the sub-graph is searched, not read: nothing so long is made."""
    largest = []
    for leaves in (2_000, 200_000):
        nets = EgoNets(star(leaves, extra=50), hops=2, fanout=5)
        with LargestTensor(nets.graph.edge_index, nets.graph.x) as seen:
            batch = nets.around([1, 2, 3])
        assert batch.origin is not None
        keys = (batch.edge_index[0] * batch.num_nodes + batch.edge_index[1]).tolist()
        assert keys == sorted(keys)  # what was read and what was looked up, in one order
        assert any(origin == 0 for origin in batch.origin.tolist())
        assert batch.num_edges >= 2 * 3 * 5
        largest.append(seen.numel)
    assert max(largest) < 2_000
