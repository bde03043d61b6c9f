from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from lg2ar.report.placing import crossings, place

NOTHING = np.zeros((0, 2), np.int64)


def pairs_of(graph: nx.Graph) -> np.ndarray:
    return np.array(graph.edges(), dtype=np.int64).reshape(-1, 2)


def stress(graph: nx.Graph, x: np.ndarray) -> float:
    """Of Kamada and Kawai, at the best scale, as loops."""
    hops = dict(nx.all_pairs_shortest_path_length(graph))
    pairs = [(i, j) for i in graph for j in graph if i < j]
    on_paper = {(i, j): float(np.linalg.norm(x[i] - x[j])) for i, j in pairs}
    scale: float = sum(on_paper[p] / hops[p[0]][p[1]] for p in pairs)
    scale /= sum(on_paper[p] ** 2 / hops[p[0]][p[1]] ** 2 for p in pairs)
    total: float = sum((scale * on_paper[p] / hops[p[0]][p[1]] - 1) ** 2 for p in pairs)
    return total / len(pairs)


def test_places_are_as_good_as_networkx_finds_them() -> None:
    rng = np.random.default_rng(0)
    graphs = [nx.random_labeled_tree(int(n), seed=int(n)) for n in rng.integers(8, 40, 12)]
    graphs += [nx.cycle_graph(12), nx.grid_2d_graph(4, 5), nx.path_graph(9), nx.complete_graph(6)]
    graphs = [nx.convert_node_labels_to_integers(graph) for graph in graphs]
    found = place([len(graph) for graph in graphs], [pairs_of(graph) for graph in graphs])
    for graph, x in zip(graphs, found, strict=True):
        known = nx.kamada_kawai_layout(graph)
        theirs = stress(graph, np.array([known[k] for k in range(len(graph))]))
        assert stress(graph, x) <= 1.2 * theirs + 1e-3


def test_trees_hardly_cross() -> None:
    trees = [nx.random_labeled_tree(30, seed=seed) for seed in range(20)]
    found = place([30] * 20, [pairs_of(tree) for tree in trees])
    crossed = [crossings(x, pairs_of(tree)) for x, tree in zip(found, trees, strict=True)]
    assert sum(crossed) <= 2


def test_crossings_are_counted() -> None:
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], float)
    assert crossings(square, np.array([[0, 1], [1, 2], [2, 3], [3, 0]])) == 0
    assert crossings(square, np.array([[0, 2], [1, 3]])) == 1
    assert crossings(square, NOTHING) == 0


def test_places_lie_flat_in_the_unit_box_and_repeat() -> None:
    sizes = [1, 2, 3, 7, 60]
    pairs = [NOTHING, np.array([[0, 1]]), NOTHING, pairs_of(nx.star_graph(6)), NOTHING]
    first, again = place(sizes, pairs), place(sizes, pairs)
    for n, x, y in zip(sizes, first, again, strict=True):
        assert x.shape == (n, 2)
        assert np.isfinite(x).all()
        assert x.min() >= 0
        assert x.max() <= 1 + 1e-9
        assert np.ptp(x[:, 0]) >= np.ptp(x[:, 1]) - 1e-9
        np.testing.assert_array_equal(x, y)
        if n > 1:  # no two nodes at one place
            apart = np.linalg.norm(x[:, None] - x[None], axis=-1) + np.eye(n)
            assert apart.min() > 0.02


def test_parts_that_are_not_joined_lie_apart() -> None:
    two = nx.disjoint_union(nx.cycle_graph(6), nx.cycle_graph(6))
    (x,) = place([12], [pairs_of(two)])
    within = np.linalg.norm(x[:6] - x[:6].mean(0), axis=1).max()
    assert np.linalg.norm(x[:6].mean(0) - x[6:].mean(0)) > 1.8 * within


def test_no_graphs() -> None:
    assert place([], []) == []


@pytest.mark.parametrize("seed", range(3))
def test_graphs_that_are_alike_look_alike(seed: int) -> None:
    tree = nx.random_labeled_tree(15, seed=4)
    order = np.random.default_rng(seed).permutation(15)
    renamed = order[pairs_of(tree)]
    x, y = place([15, 15], [pairs_of(tree), renamed])
    if crossings(x, pairs_of(tree)) == crossings(y, renamed) == 0:
        assert abs(np.ptp(x[:, 1]) - np.ptp(y[:, 1])) < 0.2
