"""Chances that random walks come back, against walking step by step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lg2ar.config import Config
from lg2ar.data import walks
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.toy import toy_nodes
from lg2ar.data.walks import return_chances
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch
from strategies import graph_batches
from test_mapped import mapped


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "_kept", {})


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each walk that was computed, not taken from what was kept."""
    lengths: list[int] = []

    def counting(graph: GraphBatch, length: int, name: str) -> Tensor:
        lengths.append(length)
        return compute(graph, length, name)

    compute = walks._computed
    monkeypatch.setattr(walks, "_computed", counting)
    return lengths


def walked(graph: GraphBatch, length: int) -> list[list[float]]:
    """Where walkers from each node are, edge by edge."""
    ahead: dict[int, list[int]] = {node: [] for node in range(graph.num_nodes)}
    for source, target in graph.edge_index.t().tolist():
        ahead[source].append(target)
    rows = []
    for start in range(graph.num_nodes):
        there, row = {start: 1.0}, []
        for _ in range(length):
            after: dict[int, float] = {}
            for node, chance in there.items():
                for target in ahead[node]:
                    after[target] = after.get(target, 0.0) + chance / len(ahead[node])
            there = after
            row.append(there.get(start, 0.0))
        rows.append(row[1:])
    return rows


def rings(*sizes: int) -> GraphBatch:
    edges: list[tuple[int, int]] = []
    batch: list[int] = []
    for place, n in enumerate(sizes):
        first = len(batch)
        for v in range(n):
            edges += [(first + v, first + (v + 1) % n), (first + (v + 1) % n, first + v)]
        batch += [place] * n
    return GraphBatch(
        x=torch.zeros(len(batch), 0),
        edge_index=torch.tensor(edges).t(),
        batch=torch.tensor(batch),
        num_graphs=len(sizes),
    )


@given(graph=graph_batches(), length=st.integers(2, 9), budget=st.sampled_from([1, 40, 1 << 24]))
def test_chances_are_those_of_walking_step_by_step(
    graph: GraphBatch, length: int, budget: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walks, "_kept", {})
        patch.setattr(walks, "BUDGET", budget)  # how many graphs are done together changes nothing
        found = return_chances(graph, length)
    wanted = torch.tensor(walked(graph, length)).view(graph.num_nodes, length - 1)
    torch.testing.assert_close(found, wanted.to(found.dtype), rtol=1e-5, atol=1e-6)


def test_rings_are_told_apart_by_their_size() -> None:
    found = return_chances(rings(3, 5, 6, 5), 6)
    three, five, six = (found[node] for node in (0, 3, 8))
    # Once round a ring, either way: twice a half to the power of its size.
    assert three[1].item() == pytest.approx(2 / 8)
    assert five[[1, 3]].tolist() == pytest.approx([0, 2 / 32])
    assert six[[1, 3]].tolist() == [0, 0]
    assert torch.equal(found[-5:], found[3:8])  # whatever stands beside it in the batch


def test_walks_go_along_edges_and_each_listed_edge_counts() -> None:
    graph = GraphBatch(
        x=torch.zeros(4, 0),
        # 0 to 1 twice and to 2 once; 1 back to 0; 2 nowhere; 3 is alone with a loop.
        edge_index=torch.tensor([[0, 0, 0, 1, 3], [1, 1, 2, 0, 3]]),
        batch=torch.zeros(4, dtype=torch.long),
        num_graphs=1,
    )
    expected = torch.tensor([[2 / 3, 0], [2 / 3, 0], [0, 0], [1, 1]])
    torch.testing.assert_close(return_chances(graph, 3), expected)


def test_graphs_of_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(walks, "LARGEST", 5)
    with pytest.raises(InputError, match=r"^mine has a graph of 6 nodes.*up to 5; choose"):
        return_chances(rings(3, 6), 4, "mine")
    recipe = FeatureRecipe.of(Config.make(features="walks"), toy_nodes(30))
    with pytest.raises(InputError, match="stays on its disk, and features = 'walks'"):
        recipe.apply(mapped(tmp_path, toy_nodes(30)))


def test_the_same_graphs_are_walked_on_once(computed: list[int]) -> None:
    first = return_chances(rings(3, 5), 6)
    wanted = first.clone()
    first.zero_()  # what is handed out is the caller's own
    again = return_chances(rings(3, 5).replace(x=torch.ones(8, 2)), 6)
    assert torch.equal(again, wanted)
    assert computed == [6]


def test_other_graphs_and_lengths_are_walked_on_anew(computed: list[int]) -> None:
    graph = rings(4, 4)
    before = return_chances(graph, 4)
    graph.edge_index[1, 0] = 0  # in place: a loop where there was none
    assert not torch.equal(return_chances(graph, 4), before)
    return_chances(graph, 5)
    one = graph.replace(batch=torch.zeros(8, dtype=torch.long), num_graphs=1)
    return_chances(one, 5)
    assert return_chances(one.replace(x=one.x.double()), 5).dtype == torch.float64
    assert computed == [4, 4, 5, 5, 5]


def test_what_was_asked_for_longest_ago_makes_room(
    computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "KEPT", 4 * 6 * 4)  # six numbers at each node of a ring of four
    graph = rings(4)
    for length in (4, 3, 4, 2):  # 12, 8 and 4 numbers
        return_chances(graph, length)
    assert computed == [4, 3, 2]
    assert [found.size(1) for found in walks._kept.values()] == [2, 3, 1]
    return_chances(graph, 5)  # 16
    assert [found.size(1) for found in walks._kept.values()] == [1, 4]
    return_chances(graph, 8)  # 28: more than is kept at all
    assert not walks._kept


def test_few_batches_are_kept_however_small(computed: list[int]) -> None:
    batches = [rings(3 + place) for place in range(walks.MOST + 1)]
    for graph in [*batches, *reversed(batches)]:
        return_chances(graph, 4)
    # Of all, only the first had made room.
    assert len(computed) == len(batches) + 1
    assert len(walks._kept) == walks.MOST
