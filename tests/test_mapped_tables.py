"""Tables of one large graph into a mapped folder, some rows at a time: the same as all at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands import Command
from lg2ar.data import edge_sorting, edge_streams
from lg2ar.data.edge_sorting import EdgeSorter
from lg2ar.data.mapped_folder import MappedFolder
from lg2ar.data.mapped_tables import map_tables
from lg2ar.data.mapping import write_mapped
from lg2ar.data.reading import ReadOptions
from lg2ar.data.sources import open_source
from lg2ar.errors import InputError

relaxed = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts so small that all of it comes in several."""
    monkeypatch.setattr(edge_sorting, "MOST", 7)
    monkeypatch.setattr(edge_sorting, "STEP", 5)
    monkeypatch.setattr(edge_streams, "BLOCK", 40)
    monkeypatch.setattr(edge_streams, "ROWS", 4)


def assert_same_folder(ours: Path, theirs: Path) -> None:
    one, other = MappedFolder(ours), MappedFolder(theirs)
    more = set(one.arrays) - set(other.arrays)
    # Directed edges that all go both ways by chance: found out only where all are in memory.
    assert not more or more == {"in_start", "in_from", "in_slot", "walk_start", "walk_to"}
    assert not more or one.manifest.reading["directed"]
    assert set(other.arrays) <= set(one.arrays)
    if more:
        assert np.array_equal(one.arrays["in_from"], other.arrays["to"])
        assert np.array_equal(one.arrays["walk_start"], other.arrays["start"])
    for name in other.arrays:
        array = one.arrays[name]
        assert array.dtype == other.arrays[name].dtype, name
        assert np.array_equal(array, other.arrays[name], equal_nan=array.dtype.kind == "f"), name
        assert one.manifest.arrays[name] == other.manifest.arrays[name]
    for what in ("name", "num_nodes", "num_edges", "layout", "rules", "targets", "classes"):
        assert getattr(one.manifest, what) == getattr(other.manifest, what)
    assert one.manifest.reading == other.manifest.reading


@relaxed
@given(
    pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40),
    words=st.booleans(),
    nodes=st.booleans(),
    weighted=st.booleans(),
    directed=st.sampled_from([None, False, True]),
    ending=st.sampled_from([".csv", ".parquet", ".txt"]),
)
def test_the_folder_is_the_same_as_of_tables_read_at_once(
    tmp_path: Path,
    pairs: list[tuple[int, int]],
    words: bool,
    nodes: bool,
    weighted: bool,
    directed: bool | None,
    ending: str,
) -> None:
    for left in tmp_path.glob("*.*"):
        if left.is_file():
            left.unlink()
    called = [f"n{k:02}" if words else str(k + 5) for k in range(10)]
    table = pd.DataFrame([(called[u], called[v]) for u, v in pairs], columns=["source", "target"])
    if weighted:
        given_weight = directed is not None
        table["weight"] = [(k % 3) / 2 if given_weight else 0.5 for k in range(len(pairs))]
    edges = tmp_path / f"edges{ending}"
    if ending == ".parquet":
        table.to_parquet(edges, index=False)
    else:
        table.to_csv(edges, index=False, sep=" " if ending == ".txt" else ",")
    options: dict[str, object] = {"directed": directed}
    if nodes:
        chance = np.random.default_rng(0)
        about = pd.DataFrame({"id": called[::-1], "size": chance.normal(size=10)})
        about["kind"] = ["a", "b", None, "a", "c", "a", "a", "b", "b", "a"]
        about["label"] = ["x", "y"] * 5
        about.to_csv(tmp_path / "nodes.csv", index=False)
        options["nodes"] = tmp_path / "nodes.csv"
    read = ReadOptions.make(options)
    manifest = map_tables(tmp_path / "a.graph", edges, read, replace=True)
    assert manifest is not None
    write_mapped(tmp_path / "b.graph", open_source(edges, options=read), replace=True)
    assert_same_folder(tmp_path / "a.graph", tmp_path / "b.graph")
    assert not [file for file in (tmp_path / "a.graph").iterdir() if file.name.startswith(".")]


@given(
    pairs=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=80),
    both_ways=st.booleans(),
)
@relaxed
def test_edges_come_back_sorted(
    tmp_path: Path, pairs: list[tuple[int, int]], both_ways: bool
) -> None:
    sorter = EdgeSorter(tmp_path, "s", {"row": "<i8"}, both_ways=both_ways, most=6)
    rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    for start in range(0, len(rows), 9):
        some = rows[start : start + 9]
        sorter.add(some[:, 0], some[:, 1], row=np.arange(start, start + len(some)))
    found = []
    for part in sorter.parts(31):
        assert all(int(node) in part.nodes for node in part.first)
        found += list(zip(part.first, part.second, part.values["row"], strict=True))
    wanted = [(u, v, row) for row, (u, v) in enumerate(pairs)]
    if both_ways:
        wanted += [(v, u, row) for row, (u, v) in enumerate(pairs)]
    assert [tuple(map(int, edge)) for edge in found] == sorted(wanted)
    assert not list(tmp_path.glob(".s-*"))


def test_the_command_writes_a_folder_that_is_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lg2ar = Command(monkeypatch, capsys)
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\n" + "".join(f"{k},{k + 1}\n" for k in range(19)))
    out = tmp_path / "my.graph"
    told = lg2ar.ok("convert", edges, out, "--undirected")
    assert "holds one graph of 20 nodes" in told
    assert "is there already" in lg2ar.refused("convert", edges, out)
    assert "20 nodes already" in lg2ar.ok("convert", edges, out, "--undirected", "--resume")
    assert not list(tmp_path.glob(".my.graph*"))
    lg2ar.ok("convert", edges, out, "--undirected", "--replace")
    assert "cannot be added to" in lg2ar.refused("convert", edges, out, "--append")
    assert "is the source itself" in lg2ar.refused("convert", out, out, "--replace")
    assert "one large graph" in lg2ar.refused("convert", "toy-nodes", tmp_path / "a.sqlite")
    assert "not one large graph" in lg2ar.refused("convert", "toy-graphs", tmp_path / "t.graph")
    lg2ar.ok("pretrain", out, "--out", tmp_path / "run", "--set", "epochs=2", "--set", "hidden=8")
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("3\n17\n")
    lg2ar.ok("embed", tmp_path / "run", out, "--out", tmp_path / "all.parquet")
    lg2ar.ok("embed", tmp_path / "run", out, "--only", wanted, "--out", tmp_path / "two.csv")
    lg2ar.ok("embed", tmp_path / "run", out, "--only", "5:8", "--out", tmp_path / "range.parquet")
    every = pd.read_parquet(tmp_path / "all.parquet").set_index("id")
    two = pd.read_csv(tmp_path / "two.csv", dtype={"id": str}).set_index("id")
    np.testing.assert_allclose(two, every.loc[["3", "17"]], rtol=1e-4, atol=1e-6)
    some = pd.read_parquet(tmp_path / "range.parquet").set_index("id")
    np.testing.assert_allclose(some, every.iloc[5:8], rtol=1e-4, atol=1e-6)
    wanted.write_text("3\nnobody\n")
    refused = lg2ar.refused(
        "embed", tmp_path / "run", out, "--only", wanted, "--out", tmp_path / "x.csv"
    )
    assert "'nobody'" in refused
    refused = lg2ar.refused(
        "embed", tmp_path / "run", out, "--only", "5:99", "--out", tmp_path / "x.csv"
    )
    assert "5:99" in refused


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("source,target\n1,2\n3\n", "line 3 has 1 cells"),
        ("source,target\n1,2\n3,\n", "line 3: column 'target' is empty"),
        ("source,target,weight\n1,2,1\n3,4,-1\n", "line 3: column 'weight' is to hold weights"),
        ("source,target\n", "has no rows after line 1"),
        ("source,target,weight\n1,2,1\n2,1,2\n", "different weights"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, told: str) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_text(text)
    with pytest.raises(InputError, match=told):
        map_tables(tmp_path / "a.graph", edges)
    assert [file.name for file in tmp_path.iterdir()] == ["edges.csv"]


def test_an_unknown_node_is_refused(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\na,b\na,c\n")
    (tmp_path / "nodes.csv").write_text("id,size\na,1\nb,2\n")
    with pytest.raises(InputError, match="line 3 names node 'c', which is not in"):
        map_tables(tmp_path / "a.graph", tmp_path)


def test_attributes_of_edges_are_left_to_reading_at_once(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target,kind\na,b,x\na,c,y\n")
    assert map_tables(tmp_path / "a.graph", tmp_path / "edges.csv") is None
