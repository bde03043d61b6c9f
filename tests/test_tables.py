"""Graphs in tables: what is read, what is said about it, and what is refused with its line."""

from __future__ import annotations

import csv
import io
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import lg2ar
from lg2ar.data.benchmarks import data_root, find_benchmark, open_benchmark, present
from lg2ar.data.columns import Column
from lg2ar.data.dataset import Dataset
from lg2ar.data.edge_lists import settle_edges
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.sources import open_source
from lg2ar.errors import InputError

NODES = """graph_id,node_id,kind,size
ring,a,x,1
star,a,x,3
ring,b,y,
ring,c,,2
star,b,y,4
"""
EDGES = """graph_id,source,target,bond,weight
ring,a,b,single,1
ring,b,c,double,2
star,b,a,single,0.5
"""
GRAPHS = """graph_id,label,energy
star,no,1.5
ring,yes,
"""


def write(folder: Path, **files: str | bytes) -> Path:
    """Write files whose names have ``_`` for the point."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("_", ".")).write_bytes(raw)
    return folder


def whole(folder: Path) -> Path:
    return write(folder, nodes_csv=NODES, edges_csv=EDGES, graphs_csv=GRAPHS)


def edges_of(dataset: Dataset) -> list[tuple[int, int]]:
    return [(u, v) for u, v in dataset.graph.edge_index.T.tolist()]


def values_of(columns: tuple[Column, ...]) -> dict[str, list[Any]]:
    return {
        column.name: [None if v is None or v != v else v for v in column.values.tolist()]
        for column in columns
    }


def noted(dataset: Dataset, *words: str) -> bool:
    return any(all(word in note for word in words) for note in dataset.notes)


def test_three_tables_become_graphs(tmp_path: Path) -> None:
    dataset = lg2ar.read(whole(tmp_path / "mine"))
    assert (dataset.name, dataset.level) == ("mine", "graph")
    assert dataset.ids == ("star", "ring")  # as the table of graphs has them
    assert dataset.graph.batch.tolist() == [0, 0, 1, 1, 1]
    assert edges_of(dataset) == [(0, 1), (1, 0), (2, 3), (3, 2), (3, 4), (4, 3)]
    assert values_of(dataset.node_columns) == {
        "kind": ["x", "y", "x", "y", None],
        "size": [3, 4, 1, None, 2],
    }
    assert values_of(dataset.edge_columns) == {"bond": [*["single"] * 4, *["double"] * 2]}
    assert dataset.graph.edge_weight is not None
    assert dataset.graph.edge_weight.tolist() == [0.5, 0.5, 1, 1, 2, 2]
    assert dataset.y is not None
    assert dataset.y.tolist() == [0, 1]
    assert dataset.classes == ("no", "yes")
    assert dataset.targets["label"].tolist() == ["no", "yes"]
    assert dataset.targets["energy"][0] == 1.5
    assert np.isnan(dataset.targets["energy"][1])
    assert dataset.reading == {"directed": False, "weight": "weight", "labels": "label"}
    assert noted(dataset, "edges.csv", "taken to be undirected", "listed once")
    assert noted(dataset, "edges.csv", "'weight' is taken for edge weights")
    assert noted(dataset, "graphs.csv", "'label' is taken for the labels")


def test_a_list_of_edges_is_enough(tmp_path: Path) -> None:
    folder = write(tmp_path, edges_csv="source,target\nzoe,adam\nadam,7\n")
    for source in (folder, folder / "edges.csv"):
        dataset = lg2ar.read(source)
        assert dataset.level == "node"
        assert dataset.ids == ("zoe", "adam", "7")
        assert edges_of(dataset) == [(0, 1), (1, 0), (1, 2), (2, 1)]
        assert dataset.graph.x.shape == (3, 0)
    assert lg2ar.read(folder, level="graph").ids == (tmp_path.name,)


def test_edges_of_several_graphs_may_be_mixed(tmp_path: Path) -> None:
    edges = "graph,source,target\n2,a,b\n1,b,c\n2,c,a\n1,a,b\n"
    dataset = lg2ar.read(write(tmp_path, edges_csv=edges))
    assert dataset.ids == ("2", "1")
    assert dataset.graph.batch.tolist() == [0, 0, 0, 1, 1, 1]
    # Nodes as they appear: a, b, c of the one, b, c, a of the other.
    assert edges_of(dataset)[:4] == [(0, 1), (0, 2), (1, 0), (2, 0)]
    assert edges_of(dataset)[4:] == [(3, 4), (3, 5), (4, 3), (5, 3)]
    nodes = lg2ar.read(tmp_path, level="node")
    assert nodes.ids == ("2/a", "2/b", "2/c", "1/b", "1/c", "1/a")


def test_isolated_nodes_and_graphs_without_edges_stay(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        nodes_csv="graph,node\n1,a\n1,b\n2,c\n",
        edges_csv="graph,src,dst\n",
    )
    dataset = lg2ar.read(folder)
    assert dataset.graph.sizes.tolist() == [2, 1]
    assert dataset.graph.num_edges == 0
    assert dataset.ids == ("1", "2")


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_the_same_tables_in_any_format_are_the_same_data(tmp_path: Path, ending: str) -> None:
    expected = lg2ar.read(whole(tmp_path / "csv"))
    folder = tmp_path / "other"
    folder.mkdir()
    for name, text in {"nodes": NODES, "edges": EDGES, "graphs": GRAPHS}.items():
        table = pd.read_csv(io.StringIO(text))
        path = folder / f"{name}.{ending}"
        if ending == "parquet":
            table.to_parquet(path, index=False)
        else:
            table.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    assert lg2ar.read(folder).fingerprint() == expected.fingerprint()


def test_frames_of_pandas_are_a_source(tmp_path: Path) -> None:
    expected = lg2ar.read(whole(tmp_path))
    nodes, edges, graphs = (pd.read_csv(io.StringIO(text)) for text in (NODES, EDGES, GRAPHS))
    dataset = lg2ar.read(edges, nodes=nodes, graphs=graphs)
    assert dataset.fingerprint() == expected.fingerprint()
    mixed = pd.DataFrame({"source": [1, "a"], "target": ["a", 1.5]})
    assert lg2ar.read(mixed).ids == ("1", "a", "1.5")
    with pytest.raises(InputError, match="the edges: row 2 names node 'x', which is not in the no"):
        lg2ar.read(
            pd.DataFrame({"u": ["a", "x"], "v": ["a", "a"]}),
            nodes=pd.DataFrame({"id": "a"}, index=[0]),
        )


def test_files_beside_a_list_of_edges(tmp_path: Path) -> None:
    expected = lg2ar.read(whole(tmp_path))
    folder = write(tmp_path / "apart", links_csv=EDGES, people_csv=NODES, groups_csv=GRAPHS)
    dataset = lg2ar.read(
        folder / "links.csv", nodes=folder / "people.csv", graphs=folder / "groups.csv"
    )
    assert dataset.fingerprint() == expected.fingerprint()
    assert dataset.name == "links"


def test_ids_of_any_kind_are_told_apart_as_text(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        nodes_csv='id,v\n007,1\n7,2\n"a, b",3\nNA,4\n  ß ,5\n',
        edges_csv='from,to\n7,007\n"a, b",NA\n7,ß\n',
    )
    dataset = lg2ar.read(folder)
    assert dataset.ids == ("007", "7", "a, b", "NA", "ß")
    assert edges_of(dataset) == [(0, 1), (1, 0), (1, 4), (2, 3), (3, 2), (4, 1)]


def test_whole_numbers_in_parquet_and_in_text_are_the_same_ids(tmp_path: Path) -> None:
    nodes = pd.DataFrame({"node_id": [1, 2], "v": [0.5, 1.5]})
    nodes.to_parquet(tmp_path / "nodes.parquet")
    floats = pd.DataFrame({"source": [1.0, 2.0], "target": [2.0, 1.0]})
    floats.to_parquet(tmp_path / "edges.parquet")
    assert edges_of(lg2ar.read(tmp_path)) == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    "header", ["source,target", "SRC,Dst", "from,to", "u,v", "Source ID,target_id", "node1,node2"]
)
def test_ends_of_edges_go_by_many_names(tmp_path: Path, header: str) -> None:
    dataset = lg2ar.read(write(tmp_path, edges_csv=f"{header}\na,b\n"))
    assert edges_of(dataset) == [(0, 1), (1, 0)]


def test_columns_of_ids_can_be_named(tmp_path: Path) -> None:
    folder = write(
        tmp_path, nodes_csv="who,id\nann,1\nbob,2\n", edges_csv="caller,called\nann,bob\n"
    )
    columns = {"node": "who", "source": "caller", "target": "called"}
    dataset = lg2ar.read(folder, columns=columns)
    assert dataset.ids == ("ann", "bob")
    assert values_of(dataset.node_columns) == {"id": [1, 2]}
    assert dataset.reading["columns"] == columns


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.txt", "# a list of edges\n# From To\n0\t1\n1   2\n"),
        ("e.edgelist", "0 1\n1 2\n"),
        ("e.csv", "0,1\n1,2\n"),
        ("e.tsv", "0\t1\n1\t2\n"),
        ("e.txt", "0;1\r\n1;2\r\n"),
        ("e.csv", "\ufeffsource,target\n0,1\n\n1,2"),
        ("e.csv", "source|target\r0|1\r1|2\r"),
    ],
)
def test_plain_lists_of_edges_need_no_names(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode())
    dataset = lg2ar.read(tmp_path / name)
    assert dataset.ids == ("0", "1", "2")
    assert edges_of(dataset) == [(0, 1), (1, 0), (1, 2), (2, 1)]


def test_a_third_column_without_a_name_is_an_attribute(tmp_path: Path) -> None:
    (tmp_path / "e.edgelist").write_text("ann bob 0.5\nbob  cid 2\n")
    assert values_of(lg2ar.read(tmp_path / "e.edgelist").edge_columns) == {
        "column 3": [0.5, 0.5, 2, 2]
    }
    weighted = lg2ar.read(tmp_path / "e.edgelist", weight="column 3")
    assert weighted.graph.weights().tolist() == [0.5, 0.5, 2, 2]


def test_nodes_without_ids_are_numbered(tmp_path: Path) -> None:
    folder = write(tmp_path, nodes_csv="age\n30\n40\n", edges_csv="source,target\n1,0\n")
    dataset = lg2ar.read(folder)
    assert dataset.ids == ("0", "1")
    assert noted(dataset, "nodes.csv", "numbered from 0")


def test_several_graphs_are_one_at_node_level(tmp_path: Path) -> None:
    dataset = lg2ar.read(whole(tmp_path), level="node")
    assert dataset.graph.num_graphs == 1
    assert dataset.ids == ("star/a", "star/b", "ring/a", "ring/b", "ring/c")
    assert dataset.y is None
    assert noted(dataset, "2 graphs are embedded as of one")


# Direction, loops and repetitions


@pytest.mark.parametrize(
    ("rows", "directed", "expected", "words"),
    [
        ("a,b,1\nb,c,1\n", False, [(0, 1), (1, 0), (1, 2), (2, 1)], "listed once;"),
        ("a,b,1\nb,a,1\n", False, [(0, 1), (1, 0)], "all are listed both ways"),
        ("a,b,1\nb,a,1\nb,c,1\n", False, [(0, 1), (1, 0), (1, 2), (2, 1)], "2 of 3 both ways"),
        ("a,b,1\nb,a,2\n", True, [(0, 1), (1, 0)], "different attributes"),
        ("a,b,1\na,b,1\na,b,2\n", False, [(0, 1), (0, 1), (1, 0), (1, 0)], "1 edge(s) that repeat"),
        ("a,a,1\na,b,1\n", False, [(0, 1), (1, 0)], "1 edge(s) that join a node with itself"),
    ],
)
def test_direction_is_detected_and_said(
    tmp_path: Path, rows: str, directed: bool, expected: list[tuple[int, int]], words: str
) -> None:
    dataset = lg2ar.read(write(tmp_path, edges_csv=f"source,target,kind\n{rows}"))
    assert dataset.reading["directed"] is directed
    assert edges_of(dataset) == expected
    assert noted(dataset, words)


def test_direction_can_be_asked_for(tmp_path: Path) -> None:
    folder = write(tmp_path, edges_csv="source,target,kind\na,b,1\nb,a,2\nb,c,1\n")
    one_way = lg2ar.read(folder, directed=True)
    assert edges_of(one_way) == [(0, 1), (1, 0), (1, 2)]
    both = lg2ar.read(folder, directed=False)
    assert edges_of(both) == [(0, 1), (0, 1), (1, 0), (1, 0), (1, 2), (2, 1)]
    assert values_of(both.edge_columns) == {"kind": [1, 2, 1, 2, 1, 1]}


Listed = list[tuple[int, int, str | None]]


def settled_by_hand(rows: Listed, directed: bool | None) -> tuple[bool, list[tuple[int, int, Any]]]:
    """Edge by edge, as the rules are written down."""
    kept = list(dict.fromkeys(row for row in rows if row[0] != row[1]))
    if directed is None:
        listed = set(kept)
        unanswered = [(u, v) for u, v, kind in kept if (v, u, kind) not in listed]
        pairs = {(u, v) for u, v, _ in kept}
        directed = any((v, u) in pairs for u, v in unanswered)
    if not directed:
        seen = []
        for u, v, kind in kept:
            if (u, v, kind) not in seen and (v, u, kind) not in seen:
                seen.append((u, v, kind))
        kept = [edge for u, v, kind in seen for edge in ((u, v, kind), (v, u, kind))]
    return directed, kept


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from(["s", "d", None])),
        max_size=14,
    ),
    directed=st.sampled_from([None, True, False]),
)
def test_settled_edges_are_those_found_one_by_one(rows: Listed, directed: bool | None) -> None:
    source, target = (np.array([row[k] for row in rows], dtype=np.int64) for k in (0, 1))
    kinds = [row[2] for row in rows]
    edges = settle_edges(source, target, 5, [Column.categories("kind", kinds)], directed)
    expected_direction, expected = settled_by_hand(rows, directed)
    assert edges.directed is expected_direction
    found = [
        (u, v, kinds[row]) for (u, v), row in zip(edges.index.T.tolist(), edges.row, strict=True)
    ]
    assert Counter(found) == Counter(expected)
    assert [edge[:2] for edge in found] == sorted(edge[:2] for edge in expected)
    for (u, v), row in zip(edges.index.T.tolist(), edges.row, strict=True):
        assert {u, v} == {rows[row][0], rows[row][1]}


# Random tables against a reading with loops

ids = st.sampled_from(["a", "b", "1", "01", "x y", 'q"', "ü", "NA"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of nodes (graph, node, size, kind) and of edges (graph, source, target, bond)."""
    nodes = []
    for graph in draw(st.lists(ids, min_size=1, max_size=3, unique=True)):
        for node in draw(st.lists(ids, min_size=1, max_size=5, unique=True)):
            size = draw(st.sampled_from(["", "1", "2.5", "-3", "1e3"]))
            nodes.append([graph, node, size, draw(st.sampled_from(["", "red", "blue", "green"]))])
    nodes = draw(st.permutations(nodes))
    edges = []
    for _ in range(draw(st.integers(0, 8))):
        graph, node, *_ = draw(st.sampled_from(nodes))
        other = draw(st.sampled_from([row[1] for row in nodes if row[0] == graph]))
        edges.append([graph, node, other, draw(st.sampled_from(["s", "d"]))])
    return nodes, edges


def text(header: str, rows: list[list[str]]) -> str:
    content = io.StringIO(newline="")
    writer = csv.writer(content)
    writer.writerows([header.split(","), *rows])
    return content.getvalue()


@given(made=tables())
def test_random_tables_are_read_as_they_are_written(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[list[list[str]], list[list[str]]]
) -> None:
    nodes, edges = made
    folder = write(
        tmp_path_factory.mktemp("tables"),
        nodes_csv=text("graph_id,node_id,size,kind", nodes),
        edges_csv=text("graph_id,source,target,bond", edges),
    )
    dataset = lg2ar.read(folder, directed=True, level="graph")
    order = list(dict.fromkeys(row[0] for row in nodes))
    ranked = sorted(nodes, key=lambda row: order.index(row[0]))  # stable
    place = {(row[0], row[1]): number for number, row in enumerate(ranked)}
    assert dataset.ids == tuple(order)
    assert dataset.graph.batch.tolist() == [order.index(row[0]) for row in ranked]
    kept = {(place[g, u], place[g, v], bond) for g, u, v, bond in edges if u != v}
    bonds = dataset.edge_columns[0].values.tolist()
    assert len(bonds) == len(kept)
    assert {(u, v, bond) for (u, v), bond in zip(edges_of(dataset), bonds, strict=True)} == kept
    # A column without a single value is one of numbers, which are all missing.
    columns = values_of(dataset.node_columns)
    assert columns["size"] == [float(row[2]) if row[2] else None for row in ranked]
    assert columns["kind"] == [row[3] or None for row in ranked]


# Labels, weights, categories


def test_labels_of_nodes_are_a_column_of_theirs(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        nodes_csv="id,label,team\na,2,red\nb,0,blue\nc,1,red\n",
        edges_csv="source,target\na,b\n",
    )
    dataset = lg2ar.read(folder)
    assert dataset.y is not None
    assert dataset.y.tolist() == [2, 0, 1]
    assert dataset.classes is None
    assert list(values_of(dataset.node_columns)) == ["team"]
    other = lg2ar.read(folder, labels="team", ignore=["label"])
    assert other.classes == ("blue", "red")
    assert other.node_columns == ()
    assert sorted(other.targets) == ["label", "team"]  # to colour by
    # At graph level what nodes are labelled with is a feature of theirs.
    assert list(values_of(lg2ar.read(folder, level="graph").node_columns)) == ["label", "team"]


def test_names_that_others_show_beside_a_node_are_no_labels(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        nodes_csv="Id,Label\n1,Ann\n2,Bob\n3,Cid\n",
        edges_csv="Source,Target\n1,2\n",
    )
    assert lg2ar.read(folder).y is None


def test_labels_of_graphs_may_stand_with_their_nodes(tmp_path: Path) -> None:
    nodes = "graph,node,toxic\n1,a,yes\n1,b,yes\n2,a,no\n"
    folder = write(tmp_path, nodes_csv=nodes, edges_csv="graph,u,v\n1,a,b\n")
    dataset = lg2ar.read(folder, labels="toxic")
    assert dataset.targets["toxic"].tolist() == ["yes", "no"]
    assert dataset.node_columns == ()
    write(tmp_path, nodes_csv=nodes.replace("b,yes", "b,no"))
    with pytest.raises(
        InputError, match=r"nodes.csv: line 3: column 'toxic' holds 'no' where .*'y"
    ):
        lg2ar.read(folder, labels="toxic")


def test_labels_may_be_anything_that_is_asked_for(tmp_path: Path) -> None:
    folder = whole(tmp_path)
    assert lg2ar.read(folder, labels="label", ignore=["label"]).classes == ("no", "yes")
    assert lg2ar.read(folder, labels="graph_id").targets["graph_id"].tolist() == ["star", "ring"]
    nodes = lg2ar.read(folder, labels="node_id", level="node")
    assert nodes.targets["node_id"].tolist() == ["a", "b", "a", "b", "c"]
    bonds = EDGES.replace("double", "single")
    edges = lg2ar.read(write(folder, edges_csv=bonds), labels="bond")
    assert edges.targets["bond"].tolist() == ["single", "single"]
    assert edges.edge_columns == ()


def test_missing_labels_leave_no_label_but_the_column(tmp_path: Path) -> None:
    graphs = "graph,y\n1,3\n2,\n"
    folder = write(tmp_path, graphs_csv=graphs, edges_csv="graph,u,v\n1,a,b\n2,a,b\n")
    dataset = lg2ar.read(folder)
    assert dataset.y is None
    assert dataset.targets["y"][0] == 3
    assert noted(dataset, "'y' has no label for some")


@pytest.mark.parametrize(
    ("values", "y", "classes"),
    [
        (["1", "-1"], [1, -1], None),
        (["0.5", "2"], [0.5, 2.0], None),
        (["true", "false"], [1, 0], ("False", "True")),
        (["b", "a"], [1, 0], ("a", "b")),
    ],
)
def test_labels_of_every_kind(
    tmp_path: Path, values: list[str], y: list[float], classes: tuple[str, ...] | None
) -> None:
    graphs = "graph,y\n" + "".join(f"{k},{value}\n" for k, value in enumerate(values))
    folder = write(tmp_path, graphs_csv=graphs, edges_csv="graph,u,v\n0,a,b\n1,a,b\n")
    dataset = lg2ar.read(folder)
    assert dataset.y is not None
    assert dataset.y.tolist() == y
    assert dataset.classes == classes


def test_weights_must_be_numbers_that_are_not_negative(tmp_path: Path) -> None:
    folder = write(tmp_path, edges_csv="source,target,weight\na,b,1\nb,c,-1\n")
    dataset = lg2ar.read(folder)
    assert dataset.graph.edge_weight is None
    assert values_of(dataset.edge_columns) == {"weight": [1, 1, -1, -1]}
    assert noted(dataset, "'weight' is an attribute, not a weight")
    with pytest.raises(InputError, match=r"edges.csv: line 3: column 'weight' is to hold weights"):
        lg2ar.read(folder, weight="weight")
    assert lg2ar.read(folder, ignore="weight").edge_columns == ()


def test_kinds_of_columns(tmp_path: Path) -> None:
    nodes = "id,code,flag,when,text,blank,Unnamed: 0\n" + "".join(
        f"{k},{k % 3},{'TRUE' if k % 2 else 'false'},2024-01-0{k + 1},t{k},,{k}\n" for k in range(4)
    )
    folder = write(tmp_path, nodes_csv=nodes, edges_csv="source,target\n0,1\n")
    columns = {column.name: column for column in lg2ar.read(folder).node_columns}
    assert {name: column.kind for name, column in columns.items()} == {
        "code": "number",
        "flag": "category",
        "when": "number",
        "text": "category",
        "blank": "number",
    }
    assert columns["flag"].values.tolist() == ["False", "True"] * 2
    assert np.diff(columns["when"].values).tolist() == [86400] * 3
    asked = lg2ar.read(folder, categories=["code"]).node_columns[0]
    assert asked.values.tolist() == ["0", "1", "2", "0"]


def test_parquet_columns_of_every_type(tmp_path: Path) -> None:
    pd.DataFrame({"source": ["a"], "target": ["b"]}).to_parquet(tmp_path / "edges.parquet")
    table = pa.table(
        {
            "id": pa.array(["a", "b"]).dictionary_encode(),
            "small": pa.array([1, None], pa.int8()),
            "decimal": pa.array([1, 2], pa.decimal128(5, 2)),
            "moment": pa.array([0, 10**9], pa.timestamp("ns")),
            "kind": pa.array(["x", None]).dictionary_encode(),
            "yes": pa.array([True, None]),
            "nothing": pa.nulls(2),
            "long": pa.array(["p", "q"], pa.large_string()),
        }
    )
    parquet.write_table(table, tmp_path / "nodes.parquet")
    assert values_of(lg2ar.read(tmp_path).node_columns) == {
        "small": [1, None],
        "decimal": [1, 2],
        "moment": [0, 1],
        "kind": ["x", None],
        "yes": ["True", None],
        "nothing": [None, None],
        "long": ["p", "q"],
    }
    lists = pa.table({"id": ["a", "b"], "vector": [[1.0], [2.0]]})
    parquet.write_table(lists, tmp_path / "nodes.parquet")
    with pytest.raises(
        InputError, match=r"column 'vector' holds list<.*leave it out with --ignore"
    ):
        lg2ar.read(tmp_path)
    assert lg2ar.read(tmp_path, ignore=["vector"]).targets == {}


# Bad files


BAD: dict[str, tuple[dict[str, str | bytes], dict[str, Any], str]] = {
    "short row": ({"edges_csv": "source,target\na,b\n\nc\n"}, {}, "edges.csv: line 4 has 1 cells"),
    "long row": ({"nodes_csv": "id,v\na,1\nb,2,3\n"}, {}, "nodes.csv: line 3 has 3 cells where"),
    "after a line break": (
        {"nodes_csv": 'id,v\n"a\nb",1\nc,2,3\n'},
        {},
        "nodes.csv: line 4 has 3 cells",
    ),
    "open quote": ({"nodes_csv": 'id,v\na,1\nb,"2\nc,3\n'}, {}, "nodes.csv: after line 2 a quot"),
    "Latin-1": (
        {"nodes_csv": "id,v\na,1\né,2\n".encode("latin-1")},
        {},
        "line 3 holds the byte 0xe9",
    ),
    "UTF-16": ({"nodes_csv": "id,v\na,1\n".encode("utf-16")}, {}, "line 1 is not UTF-8 text"),
    "an image": ({"nodes_csv": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"}, {}, "line 1"),
    "node twice": (
        {"nodes_csv": "id,v\na,1\nb,2\na,3\n"},
        {},
        "line 4 lists node 'a' for the second",
    ),
    "edge to nowhere": (
        {"nodes_csv": "id,v\na,1\n", "edges_csv": "source,target\na,a\na,b\nc,a\n"},
        {},
        "edges.csv: line 4 names node 'c', which is not in .*nodes.csv",
    ),
    "no id": (
        {"edges_csv": "source,target\na,b\na,\n"},
        {},
        "edges.csv: line 3: column 'target' is em",
    ),
    "unknown graph": (
        {"graphs_csv": GRAPHS, "nodes_csv": NODES.replace("star,b", "disc,b")},
        {},
        "nodes.csv: line 6 names graph 'disc', which is not in .*graphs.csv",
    ),
    "unknown graph of an edge": (
        {"nodes_csv": NODES, "edges_csv": EDGES.replace("star", "disc")},
        {},
        "edges.csv: line 4 names graph 'disc'",
    ),
    "empty graph": (
        {"graphs_csv": GRAPHS + "disc,no,1\n", "nodes_csv": NODES, "edges_csv": EDGES},
        {},
        "graphs.csv: line 4 lists graph 'disc', which has no row in .*nodes.csv",
    ),
    "graph twice": (
        {"graphs_csv": GRAPHS + "star,no,1\n", "nodes_csv": NODES, "edges_csv": EDGES},
        {},
        "graphs.csv: line 4 lists graph 'star' for the second time",
    ),
    "two graphs joined": (
        {"nodes_csv": "graph,id\n1,a\n2,b\n", "edges_csv": "source,target\na,b\n"},
        {},
        "edges.csv: line 2 joins node 'a' and node 'b' of two different graphs",
    ),
    "which of two nodes": (
        {"nodes_csv": "graph,id\n1,a\n2,a\n", "edges_csv": "source,target\na,a\n"},
        {},
        "nodes.csv: line 3 lists node 'a' of a second graph, and .*edges.csv has no column",
    ),
    "no graph of nodes": (
        {"nodes_csv": "id\na\n", "edges_csv": EDGES},
        {},
        "nodes.csv: has no column of g",
    ),
    "no graph of edges": (
        {"graphs_csv": GRAPHS, "edges_csv": "source,target\na,b\n"},
        {},
        "edges.csv: has no column of graph ids, though .*graphs.csv lists 2",
    ),
    "no graph of graphs": (
        {"graphs_csv": "label\nx\n", "edges_csv": EDGES},
        {},
        "graphs.csv: line 1 names no column of graph ids",
    ),
    "no node of nodes": (
        {"nodes_csv": "graph,v\n1,2\n", "edges_csv": "source,target\na,b\n"},
        {},
        "nodes.csv: line 1 names no column of node ids",
    ),
    "a million columns": (
        {"nodes_csv": ",".join(f"c{k}" for k in range(1_000_000)) + "\n"},
        {},
        "nodes.csv: line 1 names .* columns or more, at most 10000",
    ),
    "ten thousand and one": (
        {"nodes_csv": ",".join(f"c{k}" for k in range(10_001)) + "\n"},
        {},
        "nodes.csv: line 1 names 10001 columns",
    ),
    "infinity": (
        {"nodes_csv": "id,v\na,1\nb,-inf\n"},
        {},
        "nodes.csv: line 3: column 'v' holds inf",
    ),
    "too large": (
        {"nodes_csv": "id,v\na,1\nb,1e999\n"},
        {},
        "nodes.csv: line 3: column 'v' holds inf",
    ),
    "a word among numbers": (
        {"nodes_csv": "id,v\n" + "".join(f"{k},{k}\n" for k in range(20)) + "a,oops\nb,\n"},
        {},
        "nodes.csv: line 22: column 'v' holds 'oops' where nearly all others are numbers",
    ),
    "decimal commas": (
        {"nodes_csv": "id;v\na;1,5\nb;2,5\n"},
        {},
        "nodes.csv: line 2: column 'v' hol",
    ),
    "empty file": ({"nodes_csv": b""}, {}, "nodes.csv: is empty"),
    "empty line": ({"nodes_csv": "\n\n"}, {}, "nodes.csv: line 1 is empty"),
    "names alone": ({"nodes_csv": "id,v\n"}, {}, "nodes.csv: has no rows after line 1"),
    "no edges and no nodes": ({"edges_csv": "source,target\n"}, {}, "edges.csv: has no rows after"),
    "no names": ({"nodes_csv": "1,2\n3,4\n"}, {}, "nodes.csv: line 1 holds numbers, where the col"),
    "a name twice": (
        {"nodes_csv": "id,v,v\na,1,2\n"},
        {},
        "nodes.csv: line 1 names column 'v' twice",
    ),
    "no source": (
        {"edges_csv": "here,target\na,b\n"},
        {},
        "line 1 names no column .* the source of an e",
    ),
    "no target": ({"edges_csv": "source,there\na,b\n"}, {}, "--column target=NAME"),
    "no such labels": ({}, {"labels": "taste"}, "there is no column 'taste', .*asked for .labels."),
    "no such category": ({}, {"categories": ["taste"]}, "'taste'.*categories"),
    "no such role": ({}, {"columns": {"source": "here"}}, "source of an edge"),
    "labels elsewhere": (
        {"edges_csv": "source,target,q\na,b,1\n"},
        {"labels": "q"},
        "--level graph",
    ),
    "weights elsewhere": (
        {"nodes_csv": "id,w\na,1\nb,2\n"},
        {"weight": "w"},
        "edges.csv: has no column 'w' of attributes to take the weights from",
    ),
    "damaged Parquet": (
        {"nodes_parquet": b"PAR1" + b"\0" * 50 + b"PAR1"},
        {},
        "is not a readable Parq",
    ),
    "empty Parquet": ({"nodes_parquet": b""}, {}, "nodes.parquet: is empty"),
    "two of one": ({"edges_tsv": "source\ttarget\n"}, {}, "holds both edges.csv and edges.tsv"),
    "nothing at all": ({"edges_csv": b"", "notes_md": "hello"}, {}, "edges.csv: is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_answered_with_one_sentence_and_the_line(tmp_path: Path, case: str) -> None:
    files, options, message = BAD[case]
    folder = write(tmp_path, **({"edges_csv": "source,target\na,b\n"} | files))
    with pytest.raises(InputError, match=message) as caught:
        lg2ar.read(folder, **options)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(sentence) < 500


def test_a_folder_without_tables_says_what_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no graphs that are known; put in edges.csv"):
        lg2ar.read(tmp_path)
    with pytest.raises(InputError, match=r"none.csv: there is no such file"):
        lg2ar.read(tmp_path / "none.csv")


def test_a_million_columns_are_refused_before_they_are_read(tmp_path: Path) -> None:
    names = ",".join(f"c{k}" for k in range(1_000_000))
    folder = write(tmp_path, edges_csv="source,target\na,b\n", nodes_csv=f"{names}\n{names}\n" * 3)
    tracemalloc.start()
    with pytest.raises(InputError, match="at most 10000"):
        lg2ar.read(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6
    wide = pa.table({f"c{k}": [0] for k in range(10_002)})
    parquet.write_table(wide, folder / "nodes.parquet")
    (folder / "nodes.csv").unlink()
    with pytest.raises(InputError, match="names 10002 columns"):
        lg2ar.read(folder)


def test_one_long_cell_does_not_widen_all_others(tmp_path: Path) -> None:
    nodes = "id,text\n" + "".join(f"{k},{'x' * (10**6 if k == 7 else 1)}\n" for k in range(2000))
    folder = write(tmp_path, nodes_csv=nodes, edges_csv="source,target\n1,2\n")
    tracemalloc.start()
    lg2ar.read(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6


def test_a_million_edges_are_read_in_seconds(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.integers(0, 200_000, (1_000_000, 2)), columns=["source", "target"])
    table.to_parquet(tmp_path / "edges.parquet")
    start = time.perf_counter()
    dataset = lg2ar.read(tmp_path)
    assert time.perf_counter() - start < 30  # two to four where nothing else runs
    assert dataset.graph.num_edges > 1_900_000


def test_damage_anywhere_is_one_sentence_or_none(tmp_path: Path) -> None:
    folder = whole(tmp_path)
    draw = np.random.default_rng(0)
    for place in range(150):
        name = ("nodes.csv", "edges.csv", "graphs.csv")[place % 3]
        content = bytearray((folder / name).read_bytes())
        good = bytes(content)
        for spot in draw.integers(0, len(content), size=2):
            content[spot] = int(draw.integers(0, 256))
        (folder / name).write_bytes(content)
        try:
            lg2ar.read(folder)
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
        (folder / name).write_bytes(good)


# The same graphs as PyG reads them


def export(dataset: Dataset, folder: Path, *, both_ways: bool = True) -> Path:
    """A benchmark as tables: the place of the one in one-hot features is a category."""
    folder.mkdir()
    graph = dataset.graph
    nodes = pd.DataFrame(
        {
            "graph_id": [f"g{k}" for k in graph.batch.tolist()],
            "node_id": [f"n{k}" for k in range(graph.num_nodes)],
            "atom": graph.x.argmax(1).numpy(),
        }
    )
    u, v = graph.edge_index.numpy()
    kept = np.full(len(u), True) if both_ways else u < v
    order = np.random.default_rng(0).permutation(np.flatnonzero(kept))
    edges = pd.DataFrame({"source": [f"n{k}" for k in u], "target": [f"n{k}" for k in v]})
    assert dataset.y is not None
    graphs = pd.DataFrame({"graph_id": nodes["graph_id"].unique(), "label": dataset.y.numpy()})
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges.iloc[order].to_csv(folder / "edges.csv", index=False)
    graphs.to_csv(folder / "graphs.csv", index=False)
    return folder


@pytest.mark.parametrize("both_ways", [True, False])
def test_a_benchmark_as_tables_gives_the_same_embeddings(tmp_path: Path, both_ways: bool) -> None:
    if not present(find_benchmark("mutag")):
        pytest.skip(f"MUTAG is not in {data_root()}; set LG2AR_DATA")
    expected = open_benchmark("mutag")
    folder = export(expected, tmp_path / "mutag", both_ways=both_ways)
    dataset = open_source(folder, options=lg2ar.data.reading.ReadOptions(categories=("atom",)))
    graph = FeatureRecipe.settle("auto", dataset).apply(dataset)
    assert torch.equal(graph.x, expected.graph.x)
    assert torch.equal(graph.edge_index, expected.graph.edge_index)
    assert torch.equal(graph.batch, expected.graph.batch)
    assert dataset.y is not None
    assert expected.y is not None
    assert torch.equal(dataset.y, expected.y)
    settings = {"hidden": 8, "layers": 2, "epochs": 1}
    runs = [lg2ar.pretrain(data, settings, device="cpu") for data in (dataset, expected)]
    assert torch.equal(runs[0].embed(dataset), runs[1].embed(expected))
    assert torch.equal(runs[0].embed(folder), runs[1].embed(expected))  # as it remembers to read it
