"""GraphML, GEXF, node-link JSON and NetworkX: the same graphs whichever way they come."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.utils import from_networkx as pyg_from_networkx

from lg2ar import experiment
from lg2ar.data.benchmarks import open_benchmark
from lg2ar.data.dataset import Dataset
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.interchange import from_networkx, read_networkx_file
from lg2ar.data.sources import open_source
from lg2ar.data.tu import read_tu
from lg2ar.errors import InputError

BRIEF = {"hidden": 8, "layers": 2, "epochs": 1, "batch_size": 64}
WRITERS: dict[str, Callable[[nx.Graph, Path], Any]] = {
    ".graphml": nx.write_graphml,
    ".gexf": nx.write_gexf,
    ".json": lambda graph, path: path.write_text(json.dumps(nx.node_link_data(graph))),
}


def people(kind: type[nx.Graph] = nx.Graph) -> nx.Graph:
    """A graph with ids of letters, and attributes of every kind; one node stands alone."""
    graph = kind()
    for name, age, town, member in (
        ("ann", 31, "Rome", True),
        ("bob", 4.5, "Oslo", False),
        ("cät", 70, "Rome", True),
        ("dan", 22, "Kyiv", False),
    ):
        graph.add_node(name, age=float(age), town=town, member=member)
    graph.add_edge("ann", "bob", since=1999, how="work")
    graph.add_edge("cät", "ann", since=2001, how="school")
    return graph


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph])
def test_a_file_holds_what_networkx_wrote(
    tmp_path: Path, suffix: str, kind: type[nx.Graph]
) -> None:
    graph = people(kind)
    path = tmp_path / f"people{suffix}"
    WRITERS[suffix](graph, path)
    dataset = read_networkx_file(path)
    assert dataset.level == "node"
    assert dataset.ids == ("ann", "bob", "cät", "dan")
    columns = {column.name: column for column in dataset.node_columns}
    assert columns["age"].values.tolist() == [31, 4.5, 70, 22]
    assert columns["town"].values.tolist() == ["Rome", "Oslo", "Rome", "Kyiv"]
    assert columns["member"].values.tolist() == ["True", "False", "True", "False"]
    assert columns["member"].kind == "category"
    edges = list(map(tuple, dataset.graph.edge_index.T.tolist()))
    one_way = [(0, 1), (2, 0)]
    assert edges == (one_way if kind is nx.DiGraph else [(0, 1), (0, 2), (1, 0), (2, 0)])
    since = dict(zip(edges, dataset.edge_columns[0].values.tolist(), strict=True))
    assert {since[edge] for edge in edges if set(edge) == {0, 1}} == {1999}
    assert any(
        ("undirected" in note) == (kind is nx.Graph) and "directed" in note
        for note in dataset.notes
    )
    assert dataset.fingerprint() == from_networkx(graph).fingerprint()
    assert dataset.fingerprint() == open_source(str(path)).fingerprint()


@pytest.mark.parametrize("suffix", [".graphml", ".gexf"])
def test_xml_is_read_as_networkx_reads_it(tmp_path: Path, suffix: str) -> None:
    draw = np.random.default_rng(3)
    graph = nx.gnp_random_graph(40, 0.1, seed=2, directed=True)
    for node in graph:
        graph.nodes[node]["size"] = float(draw.normal())
        graph.nodes[node]["count"] = int(draw.integers(9))
        graph.nodes[node]["kind"] = str(draw.choice(["a & b", "<c>", '"d"']))
    for edge in graph.edges:
        graph.edges[edge]["strength"] = float(draw.random())
    path = tmp_path / f"random{suffix}"
    WRITERS[suffix](graph, path)
    theirs = (nx.read_graphml if suffix == ".graphml" else nx.read_gexf)(path)
    for _, row in theirs.nodes(data=True):
        row.pop("label", None)  # GEXF wants one; it repeats the id
    for *_, row in theirs.edges(data=True):
        row.pop("id", None)  # and numbers edges
    ours = read_networkx_file(path)
    assert [column.name for column in ours.node_columns] == ["size", "count", "kind"]
    assert ours.fingerprint() == from_networkx(theirs).fingerprint()


def test_lists_of_numbers_are_features_as_pyg_has_them() -> None:
    graph = nx.cycle_graph(5)
    for node in graph:
        graph.nodes[node]["x"] = [float(node), 1.0, 0.25]
    for i, j in graph.edges:
        graph.edges[i, j]["edge_attr"] = (float(i), float(j))
    theirs = pyg_from_networkx(graph)
    ours = from_networkx(graph)
    assert torch.equal(ours.graph.x, theirs.x.float())
    order = (theirs.edge_index[0] * 5 + theirs.edge_index[1]).argsort()
    assert torch.equal(ours.graph.edge_index, theirs.edge_index[:, order])
    assert ours.graph.edge_attr is not None
    assert torch.equal(ours.graph.edge_attr, theirs.edge_attr.float()[order])


def test_many_graphs_with_labels_and_targets(tmp_path: Path) -> None:
    graphs = [nx.path_graph(3), nx.star_graph(4), nx.cycle_graph(3), nx.path_graph(2)]
    for place, graph in enumerate(graphs):
        graph.graph.update(name=f"g{place}", label=["low", "high"][place % 2], mass=place / 2)
    ours = from_networkx(graphs)
    assert ours.level == "graph"
    assert ours.ids == ("g0", "g1", "g2", "g3")
    assert ours.classes == ("high", "low")
    assert ours.y is not None
    assert ours.y.tolist() == [1, 0, 1, 0]
    assert ours.targets["mass"].tolist() == [0, 0.5, 1, 1.5]
    assert from_networkx(graphs, labels="mass").y is not None
    path = tmp_path / "all.json"
    path.write_text(json.dumps([nx.node_link_data(graph) for graph in graphs]))
    assert read_networkx_file(path).fingerprint() == ours.fingerprint()
    for place, graph in enumerate(graphs):
        graph.graph.pop("name")
        nx.write_graphml(graph, tmp_path / f"g{place}.graphml")
    path.unlink()
    folder = open_source(str(tmp_path))
    assert folder.ids == ("g0", "g1", "g2", "g3")
    assert folder.fingerprint() == ours.fingerprint()


@pytest.mark.parametrize(
    ("first", "second"),
    [([1, [2]], [3, 4]), ([[1, 2]], [3]), ([[1], [2, 3]], [[4], [5]]), ([], [1, [2]])],
)
def test_lists_within_lists_are_kept_as_text(first: list[Any], second: list[Any]) -> None:
    graphs = [nx.path_graph(3), nx.path_graph(2)]
    for graph, spectrum in zip(graphs, (first, second), strict=True):
        graph.graph.update(label="x", spectrum=spectrum)
    assert from_networkx(graphs).targets["spectrum"].tolist() == [str(first), str(second)]


def test_labels_of_nodes_are_no_features(tmp_path: Path) -> None:
    graph = people()
    dataset = from_networkx(graph, labels="town", categories=["age"], ignore=["member"])
    assert dataset.classes == ("Kyiv", "Oslo", "Rome")
    assert [(column.name, column.kind) for column in dataset.node_columns] == [("age", "category")]
    assert set(dataset.targets) == {"town", "member"}
    assert dataset.reading["labels"] == "town"
    with pytest.raises(InputError, match=r"nodes have no column 'city' .* there are 'age', 'town'"):
        from_networkx(graph, labels="city")
    with pytest.raises(InputError, match="categories names 'height'"):
        from_networkx(graph, categories="height")


def test_names_of_nodes_are_not_taken_for_labels() -> None:
    graph = nx.path_graph(6)
    nx.set_node_attributes(graph, {node: f"person {node}" for node in graph}, "label")
    assert from_networkx(graph).y is None
    nx.set_node_attributes(graph, {node: "ab"[node % 2] for node in graph}, "label")
    assert from_networkx(graph).classes == ("a", "b")


def test_parallel_edges_and_loops_are_settled_and_counted(tmp_path: Path) -> None:
    graph = nx.MultiGraph()
    graph.add_edges_from([("a", "b"), ("a", "b"), ("b", "c"), ("c", "c")])
    dataset = from_networkx(graph)
    assert dataset.graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert any("1 edge(s) that repeat another" in note for note in dataset.notes)
    assert any("1 edge(s) that join a node with itself" in note for note in dataset.notes)
    path = tmp_path / "multi.json"
    path.write_text(json.dumps(nx.node_link_data(graph)))
    assert read_networkx_file(path).fingerprint() == dataset.fingerprint()
    for i, edge in enumerate(graph.edges):
        graph.edges[edge]["kind"] = str(i)
    assert from_networkx(graph).graph.num_edges == 6  # of different kinds: both stay


def test_weights_are_detected_and_asked_for() -> None:
    graph = nx.path_graph(3)
    nx.set_edge_attributes(graph, {(0, 1): 2.0, (1, 2): 3.0}, "weight")
    found = from_networkx(graph)
    assert found.graph.edge_weight is not None
    assert found.graph.edge_weight.tolist() == [2, 2, 3, 3]
    assert not found.edge_columns
    nx.set_edge_attributes(graph, {(0, 1): -2.0, (1, 2): 3.0}, "weight")
    other = from_networkx(graph)
    assert other.graph.edge_weight is None
    assert [column.name for column in other.edge_columns] == ["weight"]
    with pytest.raises(InputError, match="'weight' of edges is to hold weights"):
        from_networkx(graph, weight="weight")


def test_direction_can_be_asked_for() -> None:
    graph = people(nx.DiGraph)
    assert from_networkx(graph, directed=False).graph.num_edges == 4
    assert from_networkx(people(), directed=True).graph.num_edges == 2


def test_nodes_of_several_graphs_are_one_graph_at_node_level() -> None:
    dataset = from_networkx([people(), people()], level="node")
    assert dataset.graph.num_graphs == 1
    assert dataset.ids is not None
    assert dataset.ids[0] == "0/ann"
    assert len(set(dataset.ids)) == 8


def test_d3_files_name_edges_links_and_nodes_by_place(tmp_path: Path) -> None:
    path = tmp_path / "d3.json"
    path.write_text('{"nodes": [{"g": 1}, {"g": 2}], "links": [{"source": 0, "target": 1}]}')
    dataset = read_networkx_file(path)
    assert dataset.ids == ("0", "1")
    assert dataset.graph.num_edges == 2


def test_gexf_may_mix_directions_and_have_defaults(tmp_path: Path) -> None:
    path = tmp_path / "mixed.gexf"
    path.write_text(
        """<?xml version="1.0" encoding="UTF-8"?>
<gexf xmlns="http://gexf.net/1.3" xmlns:viz="http://gexf.net/1.3/viz" version="1.3">
<graph defaultedgetype="directed">
<attributes class="node"><attribute id="0" title="rank" type="integer"><default>7</default>
</attribute></attributes>
<nodes>
<node id="a" label="a"><attvalues><attvalue for="0" value="1"/></attvalues>
<viz:node id="drawn"/></node>
<node id="b" label="b"/><node id="c" label="c"/>
</nodes>
<edges><edge id="0" source="a" target="b"/>
<edge id="1" source="b" target="c" type="undirected" weight="2.5"/></edges>
</graph></gexf>"""
    )
    dataset = read_networkx_file(path)
    assert dataset.graph.edge_index.tolist() == [[0, 1, 2], [1, 2, 1]]
    assert dataset.node_columns[0].values.tolist() == [1, 7, 7]
    assert any("Some edges are directed and some undirected" in note for note in dataset.notes)
    # One edge has no weight, so it is an attribute with a missing value.
    assert dataset.edge_columns[0].values[1:].tolist() == [2.5, 2.5]


def test_unseen_files_are_embedded_with_the_recipe_of_the_first(tmp_path: Path) -> None:
    run = experiment.pretrain(from_networkx([people(), people()] * 4), BRIEF, device="cpu")
    graph = people()
    graph.nodes["ann"]["town"] = "Lima"  # never seen
    nx.write_graphml(graph, tmp_path / "new.graphml")
    rows = run.embed(str(tmp_path / "new.graphml"))
    assert rows.shape[0] == 1
    assert rows.isfinite().all()


def need_mutag() -> Path:
    """The raw files of MUTAG, where they are."""
    root = os.environ.get("LG2AR_DATA")
    if not root or not (Path(root) / "MUTAG" / "raw").is_dir():
        pytest.skip("needs the benchmark data: set LG2AR_DATA to its root")
    return Path(root) / "MUTAG"


def as_networkx(dataset: Dataset, *, bonds: bool, words: bool) -> list[nx.Graph]:
    """The graphs with features as words (or lists), and bonds as attributes of edges."""
    graph, made = dataset.graph, []
    assert dataset.y is not None
    assert graph.edge_attr is not None
    first = graph.ptr.tolist()
    for place in range(graph.num_graphs):
        one = nx.Graph(y=int(dataset.y[place]))
        for node in range(first[place], first[place + 1]):
            kind = str(int(graph.x[node].argmax()))
            row = {"atom": kind} if words else {"x": graph.x[node].tolist()}
            one.add_node(f"atom {node - first[place]}", **row)
        made.append(one)
    kinds = graph.edge_attr.argmax(1).tolist()
    for (i, j), kind in zip(graph.edge_index.T.tolist(), kinds, strict=True):
        place = int(graph.batch[i])
        ends = (f"atom {i - first[place]}", f"atom {j - first[place]}")
        made[place].add_edge(*ends, **({"bond": str(kind)} if bonds else {}))
    return made


@pytest.mark.parametrize("words", [True, False])
def test_mutag_has_the_embeddings_of_the_benchmark(tmp_path: Path, words: bool) -> None:
    graphs = as_networkx(read_tu(need_mutag()), bonds=False, words=words)
    path = tmp_path / "mutag.json"
    path.write_text(json.dumps([nx.node_link_data(graph) for graph in graphs]))
    benchmark = open_benchmark("mutag")
    dataset = open_source(str(path))
    assert torch.equal(dataset.graph.edge_index, benchmark.graph.edge_index)
    assert dataset.y is not None
    assert benchmark.y is not None
    assert torch.equal(dataset.y, benchmark.y)
    rows = [
        experiment.pretrain(data, BRIEF, device="cpu").embed(data) for data in (dataset, benchmark)
    ]
    assert torch.equal(rows[0], rows[1])


def test_mutag_with_bonds_has_the_embeddings_of_the_tu_folder(tmp_path: Path) -> None:
    expected = read_tu(need_mutag())
    graphs = as_networkx(expected, bonds=True, words=True)
    for place, graph in enumerate(graphs):
        nx.write_graphml(graph, tmp_path / f"{place:03}.graphml")
    dataset = read_networkx_file(tmp_path)
    settled = FeatureRecipe.settle("auto", dataset).apply(dataset)
    assert settled.edge_attr is not None
    assert expected.graph.edge_attr is not None
    assert torch.equal(settled.edge_attr, expected.graph.edge_attr)
    rows = [
        experiment.pretrain(data, BRIEF, device="cpu").embed(data)
        for data in (dataset, replace(expected, y=None))
    ]
    assert torch.equal(rows[0], rows[1])


GRAPHML = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n{}\n</graphml>'
GEXF = '<gexf xmlns="http://gexf.net/1.3">\n<graph>\n{}\n</graph></gexf>'
LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE graphml [
<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;">
]>
<graphml><graph><node id="&c;"/></graph></graphml>"""
OUTSIDE = """<?xml version="1.0"?>
<!DOCTYPE gexf [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<gexf><graph><nodes><node id="&x;"/></nodes></graph></gexf>"""


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.graphml", "", "line 1 is not XML as it should be (no element found)"),
        ("a.graphml", "<graphml>\n<graph>\n</graphml>", "line 3 is not XML as it should be (mism"),
        ("a.graphml", "<html/>", "line 1 begins with <html>, not with <graphml>"),
        ("a.graphml", GRAPHML.format(""), "holds no graph"),
        ("a.graphml", GRAPHML.format("<graph/>"), "has no nodes"),
        ("a.graphml", LAUGHS, "line 2 declares a document type"),
        ("a.gexf", OUTSIDE, "line 2 declares a document type"),
        (
            "a.graphml",
            GRAPHML.format('<graph>\n<node id="a"/>\n<node id="a"/></graph>'),
            "line 4 lists node 'a' for the second time",
        ),
        (
            "a.graphml",
            GRAPHML.format('<graph>\n<node id="a"/>\n<edge source="a" target="b"/></graph>'),
            "line 4 names node 'b', which is not listed",
        ),
        ("a.graphml", GRAPHML.format("<graph><node/></graph>"), "line 2 has a <node> without 'id'"),
        (
            "a.graphml",
            GRAPHML.format('<graph><node id="a"><data key="d0">1</data></node></graph>'),
            "line 2 has data for the key 'd0', which no <key> declares",
        ),
        (
            "a.graphml",
            GRAPHML.format(
                '<key id="d0" for="node" attr.name="n" attr.type="int"/>\n'
                '<graph><node id="a">\n<data key="d0">one</data></node></graph>'
            ),
            "line 4 holds 'one', which is not of the type 'int'",
        ),
        (
            "a.graphml",
            GRAPHML.format('<graph><node id="a"><graph><node id="b"/></graph></node></graph>'),
            "line 2 has a graph inside of a node",
        ),
        ("a.graphml", GRAPHML.format("<graph><hyperedge/></graph>"), "line 2 has a hyperedge"),
        ("a.graphml", "<graphml>" + "<a>" * 1000, "line 1 is nested 100 deep"),
        ("a.graphml", '<?xml version="1.0" encoding="nonsense"?><graphml/>', "line 1"),
        ("a.gexf", GEXF.format('<nodes><node id="a"/><node id="a"/></nodes>'), "line 3 lists node"),
        (
            "a.gexf",
            GEXF.format(
                '<nodes><node id="a"/></nodes>\n<edges><edge source="a" target="z"/></edges>'
            ),
            "line 4 names node 'z'",
        ),
        (
            "a.gexf",
            GEXF.format('<nodes><node id="a"><attvalue for="9" value="1"/></node></nodes>'),
            "line 3 has a value for '9', which no <attribute> of nodes declares",
        ),
        ("a.json", "", "line 1 is not JSON (expecting value)"),
        ("a.json", '{"nodes": [\n{"id": 1},]}', "line 2 is not JSON"),
        ("a.json", "[" * 200_000, "is nested too deep"),
        ("a.json", "[]", "is an empty list"),
        ("a.json", "3", "is no node-link graph"),
        ("a.json", '{"edges": []}', "has no list 'nodes'"),
        ("a.json", '{"nodes": [], "edges": []}', "has no nodes"),
        ("a.json", '{"nodes": [{"id": 1}], "edges": {}}', "has no list 'edges'"),
        ("a.json", '{"nodes": [3]}', "nodes[0] is not an object"),
        ("a.json", '{"nodes": [{"id": {}}]}', "nodes[0] has an id that is neither"),
        ("a.json", '{"nodes": [{"id": 1}, {"id": 1}]}', "nodes[1] lists node 1 for the second"),
        ("a.json", '{"nodes": [{"id": 1}], "links": [{"source": 1}]}', "links[0] has no 'source'"),
        (
            "a.json",
            '{"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}',
            "links[0] names node 2, which is not listed",
        ),
        ("a.json", '[{"nodes": [{"id": 1}]}, {"nodes": 1}]', "graph 1: has no list 'nodes'"),
        ("a.json", '{"nodes": [{"id": "a", "w": 1e999}]}', "node 'a' has infinity in 'w'"),
        (
            "a.json",
            '{"nodes": [{"id": "a", "x": [1, 2]}, {"id": "b", "x": [1]}]}',
            "node 'b' has 1 numbers in 'x' where the first one has 2",
        ),
        (
            "a.json",
            '{"nodes": [{"id": "a", "x": [1, NaN]}]}',
            "node 'a' has a number in 'x' that is not finite",
        ),
        ("a.json", '{"nodes": [{"id": "a", "x": [1, 2]}, {"id": "b"}]}', "node 'b' has no 'x'"),
        ("a.json", '{"directed": 1, "nodes": [{}]}', "'directed' must be true or false"),
        ("a.json", '{"nodes": [{"id": 1}, {"id": "1"}]}', "ids that are the same as text"),
        ("a.json", f'{{"nodes": [{{"id": {"9" * 5000}}}]}}', "is not JSON that can be read"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_place(
    tmp_path: Path, name: str, content: str, expected: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_networkx_file(path)
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("suffix", [".graphml", ".gexf", ".json"])
def test_other_encodings_and_missing_files_are_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b'{"nodes":\n "\xff\xfe"}')
    with pytest.raises(InputError, match=r"line [12] is not"):
        read_networkx_file(path)
    with pytest.raises(InputError, match="there is no such file"):
        read_networkx_file(tmp_path / f"b{suffix}")


def test_a_million_attributes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.json"
    row = {f"a{place}": 1 for place in range(20_000)}
    path.write_text(json.dumps({"nodes": [{"id": 1, **row}]}))
    with pytest.raises(InputError, match="more than 10000 different attributes"):
        read_networkx_file(path)


def test_what_is_neither_number_nor_word_is_left_out_and_told() -> None:
    graph = nx.path_graph(2)
    nx.set_node_attributes(graph, {0: 1.0, 1: 2.0}, "a")
    nx.set_node_attributes(graph, {0: {"shape": "round"}, 1: {"shape": "flat"}}, "style")
    dataset = from_networkx(graph)
    assert [column.name for column in dataset.node_columns] == ["a"]
    assert any("No feature is made of 'style' of nodes" in note for note in dataset.notes)


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(InputError, match=r"graphs\[1\]: is a int, not a graph of NetworkX"):
        from_networkx([nx.path_graph(2), 3])
    with pytest.raises(InputError, match="holds no graphs"):
        from_networkx([])
    with pytest.raises(InputError, match="is a pickle"):
        open_source("graph.gpickle")


TOKENS = [b"\0", b"\xff", b"<", b"&x;", b'"', b"{", b"]", b",", b"\n", b"1e999", b"NaN", b"null"]


@pytest.mark.parametrize("suffix", WRITERS)
def test_damaged_files_are_read_or_refused_in_one_sentence(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"g{suffix}"
    WRITERS[suffix](people(), path)
    whole, draw = path.read_bytes(), random.Random(5)
    refused: list[str] = []
    for _ in range(300):
        at = draw.randrange(len(whole))
        gone = draw.choice([0, 0, 1, 7, 60])
        path.write_bytes(whole[:at] + draw.choice([b"", *TOKENS]) + whole[at + gone :])
        try:
            read_networkx_file(path)
        except InputError as error:  # anything else fails the test
            refused.append(str(error))
    assert len(refused) > 100
    assert all(str(path) in sentence and "\n" not in sentence for sentence in refused)
