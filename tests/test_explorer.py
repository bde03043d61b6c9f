from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lg2ar.data.chemistry import atom_features
from lg2ar.data.columns import Column
from lg2ar.data.dataset import Dataset
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch
from lg2ar.report.colours import colourings
from lg2ar.report.explorer import MOST_MAPPED, Atlas, as_json, atlas_section, make_atlas
from lg2ar.report.kinds import node_kinds
from lg2ar.report.outlines import MOST_EDGES, MOST_NODES, Outliner
from lg2ar.report.samples import drawn_rows, take
from lg2ar.report.scores import probe

EVIL = "</script><script>alert('x')</script><!--"


def graph_of(sizes: list[int], pairs: list[tuple[int, int]]) -> GraphBatch:
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return GraphBatch(torch.ones(sum(sizes), 1), edges, batch, len(sizes))


def test_outline_holds_each_pair_once() -> None:
    # Both ways, twice, a loop and one way only; the last node is alone.
    graph = graph_of([2, 4], [(0, 1), (1, 0), (0, 1), (2, 2), (2, 3), (4, 3)])
    outliner = Outliner(graph)
    assert outliner.degrees.tolist() == [1, 1, 1, 2, 1, 0]
    assert outliner.num_pairs().tolist() == [1, 2]
    second = outliner.graph(1)
    assert second.nodes.tolist() == [2, 3, 4, 5]
    assert second.pairs.tolist() == [[0, 1], [1, 2]]
    assert (second.centre, second.num_nodes, second.num_pairs) == (None, 4, 2)


def test_large_graph_is_drawn_around_its_hub() -> None:
    star = [(0, k) for k in range(1, 400)]
    outline = Outliner(graph_of([1000], [*star, *((k, k + 1) for k in range(400, 999))])).graph(0)
    assert len(outline.nodes) == MOST_NODES
    assert outline.nodes[outline.centre or 0] == 0
    assert outline.num_nodes == 1000
    assert {tuple(pair) for pair in outline.pairs} == {(0, k) for k in range(1, MOST_NODES)}


def test_dense_graph_shows_some_edges() -> None:
    dense = [(a, b) for a in range(40) for b in range(a)]
    outline = Outliner(graph_of([40], dense)).graph(0)
    assert len(outline.pairs) == MOST_EDGES
    assert outline.num_pairs == 780


def test_surroundings_of_a_node() -> None:
    path = graph_of([9], [(k, k + 1) for k in range(8)])
    outline = Outliner(path).node(4)
    assert sorted(outline.nodes.tolist()) == [2, 3, 4, 5, 6]
    assert outline.nodes[outline.centre or 0] == 4
    assert len(outline.pairs) == 4
    alone = Outliner(graph_of([3], [])).node(1)
    assert alone.nodes.tolist() == [1]


def test_outlines_agree_with_networkx() -> None:
    import networkx as nx

    graph = nx.gnp_random_graph(300, 0.02, seed=1)
    outliner = Outliner(graph_of([300], list(graph.edges())))
    for centre in range(0, 300, 37):
        outline = outliner.node(centre)
        near = nx.ego_graph(graph, centre, radius=2)
        nodes = outline.nodes.tolist()
        assert set(nodes) <= set(near)
        assert len(nodes) == min(len(near), MOST_NODES)
        found = {frozenset((nodes[a], nodes[b])) for a, b in outline.pairs}
        inside = {frozenset(edge) for edge in graph.subgraph(nodes).edges()}
        assert found == inside if len(inside) <= MOST_EDGES else found < inside


def test_kinds_of_nodes() -> None:
    data = toy_graphs(5)
    kinds = node_kinds(data)
    assert (kinds.what, kinds.names) == ("feature", ("0", "1", "2", "3", "4", "5"))
    assert kinds.codes.tolist() == data.graph.x.argmax(1).tolist()
    nodes = toy_nodes(40)
    assert nodes.y is not None
    assert node_kinds(nodes).codes.tolist() == nodes.y.tolist()
    assert node_kinds(replace(nodes, y=None)).what == ""
    column = Column.categories("element", ["Q", None, "N", "Q", "Zz"])
    graph = graph_of([5], [])
    found = node_kinds(Dataset(name="m", level="graph", graph=graph, node_columns=(column,)))
    assert (found.what, found.names) == ("element", ("Q", "N", "Zz", "missing"))  # Q comes twice
    assert found.codes.tolist() == [0, 3, 1, 0, 2]


def test_atoms_are_told_apart_by_element() -> None:
    names = atom_features()
    x = torch.zeros(3, len(names))
    x[:, names.index("charge 0")] = 1
    for atom, element in enumerate(("C", "Br", "other")):
        x[atom, names.index(f"element {element}")] = 1
    graph = graph_of([3], [(0, 1)]).replace(x=x)
    kinds = node_kinds(Dataset(name="m", level="graph", graph=graph))
    assert kinds.what == "element"
    assert [kinds.names[k] for k in kinds.codes] == ["C", "Br", "other"]


def test_rare_kinds_share_a_colour() -> None:
    texts = [str(k) for k in range(30)] + ["20"] * 5
    column = Column.categories("many", texts)
    data = Dataset(name="m", level="graph", graph=graph_of([35], []), node_columns=(column,))
    kinds = node_kinds(data)
    assert len(kinds.names) == 10
    assert kinds.names[-1] == "other"
    assert kinds.names[kinds.codes[20]] == "20"
    assert kinds.codes.max() == 9


def small() -> Dataset:
    """Six pairs of nodes, with columns of all kinds."""
    graph = graph_of([2] * 6, [(2 * k, 2 * k + 1) for k in range(6)])
    return Dataset(
        name="small",
        level="graph",
        graph=graph,
        y=torch.tensor([0, 1, 0, 1, 0, 1]),
        ids=("a", "b", EVIL, "d", "e", "f" * 500),
        classes=("no", EVIL),
        targets={
            "weight": np.array([1.5, np.nan, np.inf, 4.0, 5.0, 6.0]),
            "few": np.array([1, 2, 1, 2, 1, 2]),
            "words": np.array(["x", None, "z", "x", "x", EVIL], dtype=object),
            "flags": np.array([True, False] * 3),
            EVIL: np.arange(6) % 3,
        },
    )


def test_columns_to_colour_by() -> None:
    data = small()
    found = {c.name: c for c in colourings(data, np.array([5, 1, 2]), Outliner(data.graph))}
    assert list(found) == ["label", "weight", "few", "words", "flags", EVIL, "nodes", "edges"]
    assert found["label"].names == tuple(sorted([EVIL, "no"]))
    assert [found["label"].names[int(k)] for k in found["label"].values] == [EVIL, EVIL, "no"]
    assert found["weight"].kind == "number"
    np.testing.assert_array_equal(found["weight"].values, [6, np.nan, np.nan])
    assert found["few"].kind == "category"
    assert found["words"].values.tolist() == [0, -1, 1]
    assert found["flags"].names == ("False", "True")
    assert found["nodes"].values.tolist() == [2, 2, 2]
    nodes = toy_nodes(30)
    (label, degree) = colourings(nodes, np.arange(30), Outliner(nodes.graph))
    assert (label.name, degree.name) == ("label", "degree")
    numbers = replace(nodes, y=torch.rand(30))
    assert colourings(numbers, np.arange(30), Outliner(nodes.graph))[0].kind == "number"


def test_labels_are_called_by_their_column() -> None:
    data = replace(small(), reading={"labels": "few"})
    found = colourings(data, np.arange(6), Outliner(data.graph))
    assert [c.name for c in found] == ["few", "weight", "words", "flags", EVIL, "nodes", "edges"]
    assert set(found[0].names) == {EVIL, "no"}
    assert atlas_of(data, colour_by="label").colour == 0


def test_many_categories_are_called_other() -> None:
    data = replace(small(), targets={"id": np.array([f"w{k}" for k in range(6)])})
    wide = replace(
        data,
        graph=graph_of([1] * 100, []),
        y=None,
        ids=None,
        targets={"word": np.array([f"w{k}" for k in range(100)])},
    )
    (word, *_) = colourings(wide, np.arange(100), Outliner(wide.graph))
    assert len(word.names) == 40
    assert word.names[-1] == "other"


def embedded(data: Dataset, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(len(data), 4)) for name in ("trained", "untrained")}


def atlas_of(data: Dataset, values: dict[str, np.ndarray] | None = None, **more: Any) -> Atlas:
    rows = np.arange(len(data))
    given = {"total": len(data), **more}
    return make_atlas(data, rows, values or embedded(data), node_kinds(data), **given)


def content(html: str) -> dict[str, object]:
    (text,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.S)
    found: dict[str, object] = json.loads(text)
    return found


def test_map_holds_its_points_and_their_graphs() -> None:
    data = small()
    atlas = atlas_of(data, colour_by="few")
    html = atlas_section(atlas)
    assert html.count("<script") == 1  # what comes from the data stays text
    assert html.count("</script") == 1
    assert "alert('x')" not in html.replace("\\u003c/script\\u003e", "").split("<script")[0]
    held = content(html)
    assert held["ids"] == ["a", "b", EVIL, "d", "e", "f" * 79 + "…"]
    assert held["colour"] == 2
    maps = held["maps"]
    assert isinstance(maps, list)
    assert [item["name"] for item in maps] == ["trained", "untrained"]
    assert [item["name"] for item in maps[0]["layouts"]] == ["PCA"]  # too few for t-SNE
    assert len(maps[0]["layouts"][0]["points"]) == 12
    assert all(0 <= value <= 10_000 for value in maps[0]["layouts"][0]["points"])
    packed = base64.b64decode(str(held["graphs"]))
    record = [2, 1, 0, 0, 0, 255, 0, 0, 0, 0, 1]
    assert list(packed) == record * 6
    columns = held["columns"]
    assert isinstance(columns, list)
    assert columns[1]["values"] == [1.5, None, None, 4.0, 5.0, 6.0]


def test_neighbours_are_those_of_the_trained_encoder() -> None:
    data = toy_graphs(30)
    rows = embedded(data)
    rows["trained"][7] = rows["trained"][21] + 1e-6
    places, distances = atlas_of(data, rows).neighbours
    assert places[7, 0] == 21
    assert places[21, 0] == 7
    assert distances[7, 0] < 1e-4


def test_many_rows_are_drawn_at_random_and_that_is_said() -> None:
    data = toy_nodes(400)
    data = replace(data, ids=tuple(f"n{k}" for k in range(400)))
    rows = drawn_rows(400, 50, seed=3)
    assert len(set(rows.tolist())) == 50
    assert drawn_rows(400, 50, seed=3).tolist() == rows.tolist()
    assert drawn_rows(50, 50, seed=3).tolist() == list(range(50))
    values = {name: given[rows] for name, given in embedded(data).items()}
    atlas = make_atlas(data, rows, values, node_kinds(data), total=400)
    assert atlas.ids == [f"n{row}" for row in rows]
    assert [int(o.nodes[o.centre or 0]) for o in atlas.outlines] == rows.tolist()
    html = atlas_section(atlas)
    assert "50 of 400 nodes, drawn at random" in html
    assert "among the points shown" in html


def test_some_graphs_are_taken_with_all_that_belongs_to_them() -> None:
    column = Column.categories("kind", [f"k{k}" for k in range(12)])
    data = replace(small(), node_columns=(column,))
    part = take(data, np.array([1, 4]))
    assert part.ids == ("b", "e")
    assert part.y is not None
    assert part.y.tolist() == [1, 0]
    assert part.targets["weight"].tolist()[1] == 5.0
    assert part.node_columns[0].values.tolist() == ["k2", "k3", "k8", "k9"]
    assert part.graph.edge_index.tolist() == [[0, 2], [1, 3]]
    assert take(replace(data, ids=None), np.array([4])).ids == ("4",)


def test_page_stays_small() -> None:
    n = MOST_MAPPED
    dense = [(a, b) for a in range(MOST_NODES) for b in range(a)]
    one = np.array(dense)
    edges = np.concatenate([one + k * MOST_NODES for k in range(40)])
    graph = graph_of([MOST_NODES] * 40, [tuple(pair) for pair in edges.tolist()])
    data = Dataset(name="dense", level="graph", graph=graph)
    html = atlas_section(atlas_of(data))
    assert len(html) / 40 * n < 2_500_000


def test_unknown_column_is_refused() -> None:
    data = small()
    with pytest.raises(InputError, match=r"--colour-by: there is no column 'lable'; there are lab"):
        atlas_of(data, colour_by="lable")


def test_json_cannot_end_its_element() -> None:
    text = as_json({"a": EVIL, "b": "\u2028&\ud800"})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"a": EVIL, "b": "\u2028&\ud800"}
    with pytest.raises(ValueError, match="JSON compliant"):
        as_json([float("nan")])


def test_probe_names_its_protocol_and_its_floor() -> None:
    data = toy_graphs(80)
    rows = {name: torch.from_numpy(values) for name, values in embedded(data).items()}
    rows["trained"][:, 0] += 20 * data.y  # type: ignore[operator]
    scores, note = probe(data, rows)
    assert list(scores) == ["trained", "untrained"]
    assert note == ""
    assert scores["trained"].mean > 80 > scores["untrained"].mean
    assert scores["trained"].protocol.startswith("strict")
    assert scores["trained"].runs == 10


def test_probe_of_rare_classes_nodes_and_nothing() -> None:
    data = toy_graphs(80)
    assert data.y is not None
    rows = {"trained": torch.from_numpy(embedded(data)["trained"])}
    rare = data.y.clone()
    rare[:3] = 9
    scores, note = probe(replace(data, y=rare), rows)
    assert scores["trained"].protocol.startswith("logistic regression on 10% of the labels")
    assert note == "Classes of fewer than ten graphs are left out: 1 of them."
    for y, told in (
        (None, "There are no labels of graphs"),
        (torch.rand(80), "numbers, not classes"),
        (torch.zeros(80, dtype=torch.long), "All labels are the same"),
        (torch.arange(80), "No two classes have ten graphs each"),
    ):
        scores, note = probe(replace(data, y=y), rows)
        assert scores == {}
        assert told in note
