"""Graphs on a disk: the same batches and the same weights as in memory, whole or not at all."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import SQLiteDatabase

from commands import Command
from lg2ar import experiment
from lg2ar.config import Config
from lg2ar.data.batches import GraphStore, as_store
from lg2ar.data.columns import Column
from lg2ar.data.conversion import write_on_disk
from lg2ar.data.dataset import Dataset
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.on_disk import DiskStore, GraphsOnDisk, read_on_disk
from lg2ar.data.sources import open_source
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError
from lg2ar.fast.suitability import _why_not
from lg2ar.graph import GraphBatch
from strategies import graph_batches, seeds
from watch import LargestTensor

KINDS = np.array(["ring", "tail", "bond", 'häkchen, "quoted"'], dtype=object)


def with_columns(graph: GraphBatch, seed: int = 0, name: str = "mine") -> Dataset:
    """A data set of these graphs with everything else that one may have."""
    chance = np.random.default_rng(seed)
    n, e, b = graph.num_nodes, graph.num_edges, graph.num_graphs

    def numbers(label: str, rows: int) -> Column:
        values = chance.normal(size=rows)
        values[chance.random(rows) < 0.2] = np.nan
        return Column(label, "number", values)

    def categories(label: str, rows: int) -> Column:
        values = KINDS[chance.integers(0, len(KINDS), rows)]
        values[chance.random(rows) < 0.2] = None
        return Column(label, "category", values)

    words = np.array([f"word {k % 3}" if k % 4 else None for k in range(b)], dtype=object)
    return Dataset(
        name=name,
        level="graph",
        graph=graph,
        y=torch.from_numpy(chance.integers(0, 3, b)),
        ids=tuple(f"graph {k}" for k in range(b)),
        node_columns=(numbers("a", n), categories("kind", n), numbers("b", n)),
        edge_columns=(categories("type", e), numbers("length", e)),
        classes=("one", "two", "three"),
        targets={"weight": chance.normal(size=b).astype(np.float32), "word": words},
        notes=("a note",),
        reading={"directed": False},
    )


def some_graphs(num_graphs: int = 40, width: int = 3, seed: int = 0) -> GraphBatch:
    """Random graphs of two to nine nodes, their edges not in the order of the graphs."""
    chance = torch.Generator().manual_seed(seed)
    sizes = torch.randint(2, 10, (num_graphs,), generator=chance)
    batch = torch.arange(num_graphs).repeat_interleave(sizes)
    first = (sizes.cumsum(0) - sizes)[batch]
    source = torch.arange(len(batch)).repeat(2)
    target = first.repeat(2) + torch.randint(100, (len(source),), generator=chance) % (
        sizes[batch].repeat(2)
    )
    pairs = torch.stack([source, target])[:, torch.randperm(len(source), generator=chance)]
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    return GraphBatch(
        x=torch.randn(len(batch), width, generator=chance),
        edge_index=edge_index,
        batch=batch,
        num_graphs=num_graphs,
        edge_weight=0.5 + torch.rand(pairs.size(1), generator=chance).repeat(2),
        edge_attr=torch.randn(pairs.size(1), 2, generator=chance).repeat(2, 1),
    ).validate()


def converted(tmp_path: Path, dataset: Dataset, name: str = "data") -> Dataset:
    path = tmp_path / f"{name}.sqlite"
    write_on_disk(path, dataset, replace=True)
    return read_on_disk(path)


def graphs_of(dataset: Dataset) -> GraphsOnDisk:
    assert isinstance(dataset.graph, GraphsOnDisk)
    return dataset.graph


def assert_same(one: GraphBatch, two: GraphBatch) -> None:
    assert one.num_graphs == two.num_graphs
    for name in ("x", "edge_index", "batch", "edge_weight", "edge_attr", "origin"):
        left, right = getattr(one, name), getattr(two, name)
        assert (left is None) == (right is None), name
        if left is not None:
            assert left.dtype == right.dtype, name
            assert torch.equal(left, right), name


@pytest.fixture
def never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may read all graphs into memory."""

    def refuse(_: GraphsOnDisk) -> GraphBatch:
        raise AssertionError("all graphs were read into memory")

    whole = cached_property(refuse)
    whole.__set_name__(GraphsOnDisk, "whole")
    monkeypatch.setattr(GraphsOnDisk, "whole", whole)


# The same as in memory.


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(graph=graph_batches(), seed=seeds, data=st.data())
def test_any_graphs_come_back_as_they_went(
    tmp_path: Path, graph: GraphBatch, seed: int, data: st.DataObject
) -> None:
    dataset = with_columns(graph, seed)
    back = converted(tmp_path, dataset)
    store = GraphStore(graph)
    places = data.draw(st.lists(st.integers(0, graph.num_graphs - 1), min_size=1, max_size=8))
    assert_same(DiskStore(graphs_of(back)).select(places), store.select(places))
    assert_same(back.graph.replace(), store.graph)
    order = graph.batch[graph.edge_index[0]].argsort(stable=True).numpy()
    for mine, theirs in zip(back.node_columns, dataset.node_columns, strict=True):
        assert_same_column(mine, theirs)
    for mine, theirs in zip(back.edge_columns, dataset.edge_columns, strict=True):
        assert_same_column(mine, theirs.take(order))


def assert_same_column(one: Column, two: Column) -> None:
    assert (one.name, one.kind, len(one)) == (two.name, two.kind, len(two))
    np.testing.assert_array_equal(one.values, two.values)
    assert one.values.dtype == two.values.dtype


def test_what_belongs_to_whole_graphs_comes_back(tmp_path: Path) -> None:
    dataset = with_columns(some_graphs())
    back = converted(tmp_path, dataset)
    assert (back.name, back.level, back.ids) == ("mine", "graph", dataset.ids)
    assert back.y is not None
    assert dataset.y is not None
    assert torch.equal(back.y, dataset.y)
    assert back.y.dtype == dataset.y.dtype
    assert back.classes == dataset.classes
    assert back.notes == dataset.notes
    assert back.reading == dataset.reading
    assert list(back.targets) == list(dataset.targets)
    for name, values in dataset.targets.items():
        np.testing.assert_array_equal(back.targets[name], values)
        assert back.targets[name].dtype == values.dtype
    assert back.fingerprint() == dataset.fingerprint()
    assert len(back) == len(dataset)


def test_bare_graphs_come_back_bare(tmp_path: Path) -> None:
    graph = some_graphs().replace(edge_weight=None, edge_attr=None)
    graph = graph.replace(x=torch.empty(graph.num_nodes, 0))
    back = converted(tmp_path, Dataset("bare", "graph", graph))
    assert back.y is None
    assert back.ids is None
    assert back.classes is None
    assert back.targets == {}
    assert back.node_columns == back.edge_columns == ()
    assert back.graph.edge_weight is None
    assert back.graph.edge_attr is None
    assert_same(back.graph.replace(), GraphStore(graph).graph)


@pytest.mark.parametrize("y", [torch.tensor([0.5, -1.0, torch.nan]), torch.tensor([True] * 3)])
def test_labels_of_any_kind_come_back(tmp_path: Path, y: torch.Tensor) -> None:
    back = converted(tmp_path, Dataset("few", "graph", some_graphs(3), y=y))
    assert back.y is not None
    np.testing.assert_array_equal(back.y.numpy(), y.numpy())
    assert back.y.dtype == y.dtype


@pytest.mark.usefixtures("never_whole")
def test_counts_are_known_without_reading(tmp_path: Path) -> None:
    graph = some_graphs()
    back = converted(tmp_path, Dataset("few", "graph", graph)).graph
    assert back.num_graphs == graph.num_graphs
    assert (back.num_nodes, back.num_edges) == (graph.num_nodes, graph.num_edges)
    assert (back.num_features, back.num_edge_features) == (3, 2)
    assert torch.equal(back.sizes, graph.sizes)
    assert torch.equal(back.ptr, graph.ptr)
    assert back.device == torch.device("cpu")
    with pytest.raises(AssertionError, match="into memory"):
        _ = back.x


@pytest.mark.usefixtures("never_whole")
@pytest.mark.parametrize("features", ["auto", "degree-and-one-hot", "constant", "walks"])
def test_batches_come_in_the_same_order_and_are_the_same(tmp_path: Path, features: str) -> None:
    dataset = with_columns(some_graphs())
    back = converted(tmp_path, dataset)
    recipe, other = (FeatureRecipe.settle(features, data, cap=5) for data in (dataset, back))
    assert recipe == other
    here, there = as_store(recipe.apply(dataset)), as_store(other.apply(back))
    assert isinstance(there, DiskStore)
    assert there.num_nodes.tolist() == here.num_nodes.tolist()
    for seed in range(2):
        for one, two in zip(here.epoch(7, seed), there.epoch(7, seed), strict=True):
            assert_same(two, one)
    for one, two in zip(here.chunks(100), there.chunks(100), strict=True):
        assert_same(two, one)


@pytest.mark.usefixtures("never_whole")
@pytest.mark.parametrize(
    "more", [{}, {"method": "graphcl"}, {"features": "degree", "patience": 2}], ids=str
)
def test_training_gives_the_same_weights_bit_by_bit(tmp_path: Path, more: dict[str, Any]) -> None:
    dataset = with_columns(some_graphs())
    back = converted(tmp_path, dataset)
    config = {"hidden": 8, "layers": 2, "epochs": 3, "batch_size": 16, "hops": 1, **more}
    here = experiment.pretrain(dataset, config, out=tmp_path / "here")
    there = experiment.pretrain(tmp_path / "data.sqlite", config, out=tmp_path / "there")
    assert [r.loss for r in here.history] == [r.loss for r in there.history]
    for name, weight in here.model.state_dict().items():
        assert torch.equal(there.model.state_dict()[name], weight), name
    assert here.recipe == there.recipe
    assert {**here.data, "source": str(tmp_path / "data.sqlite")} == there.data
    rows = here.embed(dataset)
    assert torch.equal(here.embed(back), rows)
    assert torch.equal(there.embed(tmp_path / "data.sqlite"), rows)


def test_a_run_is_taken_up_from_the_other_one(tmp_path: Path) -> None:
    dataset = with_columns(some_graphs())
    back = converted(tmp_path, dataset)
    config = {"hidden": 8, "layers": 1, "epochs": 2, "batch_size": 16}
    whole = experiment.pretrain(dataset, {**config, "epochs": 4})
    experiment.pretrain(back, config, out=tmp_path / "run")
    resumed = experiment.pretrain(
        dataset, {**config, "epochs": 4}, out=tmp_path / "run", resume=True
    )
    assert [r.loss for r in resumed.history] == [r.loss for r in whole.history]


# No more than a batch in memory.


def wide_graphs(num_graphs: int, width: int = 64) -> GraphBatch:
    return some_graphs(num_graphs, width)


@pytest.mark.usefixtures("never_whole")
def test_memory_is_that_of_a_batch_not_of_the_data(tmp_path: Path) -> None:
    dataset = with_columns(wide_graphs(4000))
    total = dataset.graph.x.numel() * 4
    back = converted(tmp_path, dataset)
    recipe = FeatureRecipe.settle("auto", dataset)
    del dataset
    graph = recipe.apply(back)
    with LargestTensor() as largest:
        tracemalloc.start()
        store = as_store(graph)
        nodes = [batch.num_nodes for batch in store.epoch(32, seed=0)]
        nodes += [batch.num_nodes for batch in store.chunks(2000)]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert sum(nodes) == 2 * graph.num_nodes
    assert peak < total / 5
    assert largest.numel * 4 < total / 5


@pytest.mark.usefixtures("never_whole")
def test_settling_the_recipe_takes_a_column_at_a_time(tmp_path: Path) -> None:
    graph = some_graphs(6000, width=1)
    chance = np.random.default_rng(0)
    columns = tuple(
        Column(f"c{k}", "number", chance.normal(size=graph.num_nodes)) for k in range(20)
    )
    back = converted(tmp_path, Dataset("many", "graph", graph, node_columns=columns))
    tracemalloc.start()
    recipe = FeatureRecipe.settle("auto", back)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert recipe.width == 21
    assert peak < 20 * graph.num_nodes * 8 / 4


# In parts.


def halves(dataset: Dataset, at: int) -> Iterator[Dataset]:
    """The first graphs of a data set, and the rest."""
    graph = dataset.graph
    store = GraphStore(graph)
    order = graph.batch[graph.edge_index[0]].argsort(stable=True).numpy()
    edges = np.repeat(np.arange(graph.num_graphs), store.num_edges)
    for places in (np.arange(at), np.arange(at, graph.num_graphs)):
        own = np.isin(graph.batch.numpy(), places)
        yield replace(
            dataset,
            graph=store.select(places).replace(origin=None),
            y=None if dataset.y is None else dataset.y[places],
            ids=None if dataset.ids is None else tuple(dataset.ids[int(k)] for k in places),
            node_columns=tuple(c.take(own) for c in dataset.node_columns),
            edge_columns=tuple(c.take(order[np.isin(edges, places)]) for c in dataset.edge_columns),
            targets={name: values[places] for name, values in dataset.targets.items()},
        )


def test_a_part_that_is_there_already_is_refused(tmp_path: Path) -> None:
    toy = replace(toy_graphs(num_graphs=4), ids=("a", "b", "c", "d"))
    path = tmp_path / "data.sqlite"
    write_on_disk(path, toy)
    before = path.read_bytes()
    with pytest.raises(InputError, match="graph 'a' is in the file already"):
        write_on_disk(path, toy, append=True)
    assert path.read_bytes() == before
    other = replace(toy, ids=("e", "f", "g", "d"))
    with pytest.raises(InputError, match="graph 'd' is in the file already"):
        write_on_disk(tmp_path / "both.sqlite", [toy, other])
    assert not (tmp_path / "both.sqlite").exists()
    assert write_on_disk(path, replace(other, ids=("e", "f", "g", "h")), append=True) == 8


@pytest.mark.parametrize("appended", [False, True])
def test_parts_become_one_data_set(tmp_path: Path, appended: bool) -> None:
    dataset = with_columns(some_graphs())
    path, told = tmp_path / "parts.sqlite", []
    first, second = halves(dataset, 15)
    if appended:
        assert write_on_disk(path, first, append=True) == 15
        number = write_on_disk(path, second, append=True)
    else:
        parts = (part for part in (first, second))
        number = write_on_disk(path, parts, on_graphs=lambda *count: told.append(count))
        assert told == [(15, 15), (40, 40)]
    assert number == 40
    back = read_on_disk(path)
    assert back.ids == dataset.ids
    assert back.notes == dataset.notes
    for name, values in dataset.targets.items():
        np.testing.assert_array_equal(back.targets[name], values)
    recipe, other = (FeatureRecipe.settle("auto", data) for data in (dataset, back))
    assert recipe == other
    assert_same(as_store(other.apply(back)).graph, as_store(recipe.apply(dataset)).graph)


def test_labels_keep_their_names_in_parts_that_count_them_differently(tmp_path: Path) -> None:
    one = Dataset("one", "graph", some_graphs(2), y=torch.tensor([0, 1]), classes=("a", "b"))
    two = Dataset(
        "two", "graph", some_graphs(3), y=torch.tensor([0, 1, 2]), classes=("c", "b", "d")
    )
    write_on_disk(tmp_path / "both.sqlite", [one, two])
    back = read_on_disk(tmp_path / "both.sqlite")
    assert back.classes is not None
    assert back.y is not None
    assert [back.classes[int(k)] for k in back.y] == ["a", "b", "c", "b", "d"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": None}, "labels: none, the graphs before it have int64"),
        ({"ids": None}, "names: none"),
        ({"node_columns": ()}, r"columns of nodes: none, .* a \(number\), kind \(category\)"),
        ({"targets": {}}, "further columns: none"),
        ({"graph": some_graphs(width=4)}, "node features: 4, the graphs before it have 3"),
        ({"graph": some_graphs().replace(edge_attr=None)}, "edge attributes: 0"),
        ({"graph": some_graphs().replace(edge_weight=None)}, "edge weights: none"),
    ],
)
def test_parts_that_differ_are_refused_and_nothing_changes(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = tmp_path / "data.sqlite"
    write_on_disk(path, with_columns(some_graphs()))
    before = path.read_bytes()
    with pytest.raises(InputError, match=rf"other: has {words}.*make them alike"):
        write_on_disk(
            path, replace(with_columns(some_graphs(), name="other"), **change), append=True
        )
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["data.sqlite"]


# Whole or not at all.

KILLED = """
import os, signal, sys
from lg2ar.data.conversion import write_on_disk
from lg2ar.data.toy import toy_graphs

def die(done, total):
    os.kill(os.getpid(), signal.SIGKILL)

write_on_disk(sys.argv[1], toy_graphs(num_graphs=20), replace=True, on_graphs=die)
"""


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_a_killed_conversion_leaves_what_was_there_and_can_be_started_again(
    tmp_path: Path, there: bool
) -> None:
    path = tmp_path / "toy.sqlite"
    if there:
        write_on_disk(path, toy_graphs(num_graphs=5))
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    left = [name for name in os.listdir(tmp_path) if name.endswith(".part")]
    assert len(left) == 1
    if there:
        assert len(read_on_disk(path)) == 5
    else:
        assert not path.exists()
    write_on_disk(path, toy_graphs(num_graphs=20), replace=True)
    assert len(read_on_disk(path)) == 20
    assert os.listdir(tmp_path) == ["toy.sqlite"]


def test_an_error_on_the_way_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "toy.sqlite"
    write_on_disk(path, toy_graphs(num_graphs=5))

    def parts() -> Iterator[Dataset]:
        yield toy_graphs(num_graphs=7)
        raise RuntimeError("the reader broke")

    with pytest.raises(RuntimeError, match="the reader broke"):
        write_on_disk(path, parts(), replace=True)
    assert len(read_on_disk(path)) == 5
    assert os.listdir(tmp_path) == ["toy.sqlite"]


def test_the_part_of_a_conversion_at_work_is_left_alone(tmp_path: Path) -> None:
    at_work = tmp_path / f".toy.sqlite.{os.getppid()}.part"
    finished = tmp_path / ".toy.sqlite.999999999.part"
    for file in (at_work, finished):
        file.touch()
    write_on_disk(tmp_path / "toy.sqlite", toy_graphs(num_graphs=5))
    assert at_work.exists()
    assert not finished.exists()


def test_what_cannot_be_converted_is_refused(tmp_path: Path) -> None:
    toy = toy_graphs(num_graphs=3)
    with pytest.raises(InputError, match=r"toy-nodes: is one large graph"):
        write_on_disk(tmp_path / "a.sqlite", toy_nodes(num_nodes=30))
    with pytest.raises(InputError, match=r"a\.db: .* is called something\.sqlite"):
        write_on_disk(tmp_path / "a.db", toy)
    with pytest.raises(InputError, match=r"no graphs to be written"):
        write_on_disk(tmp_path / "a.sqlite", [])
    assert os.listdir(tmp_path) == []
    write_on_disk(tmp_path / "a.sqlite", toy)
    with pytest.raises(InputError, match=r"a\.sqlite: is there already; add to it"):
        write_on_disk(tmp_path / "a.sqlite", toy)
    with pytest.raises(InputError, match=r"--append and --replace"):
        write_on_disk(tmp_path / "a.sqlite", toy, append=True, replace=True)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"b\.sqlite: cannot be written"):
        write_on_disk(tmp_path / "file" / "b.sqlite", toy)


# Files that are something else, or damaged.


def altered(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def said(path: Path, **changes: Any) -> None:
    """Change what a file says of itself."""
    connection = sqlite3.connect(path)
    ((text,),) = connection.execute("SELECT value FROM about WHERE key = 'about'")
    changed = json.dumps({**json.loads(text), **changes})
    connection.execute("UPDATE about SET value = ? WHERE key = 'about'", (changed,))
    connection.commit()
    connection.close()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def view_for_table(path: Path) -> None:
    altered(path, "ALTER TABLE graphs RENAME TO old", "CREATE VIEW graphs AS SELECT * FROM old")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("source,target\n" * 100),
    "pickle": lambda path: path.write_bytes(pickle.dumps({"x": 1})),
    "truncated": truncated,
    "another database": lambda path: altered(path, "DROP TABLE about"),
    "a view": view_for_table,
    "nothing said": lambda path: altered(path, "DELETE FROM about"),
    "no JSON": lambda path: altered(path, "UPDATE about SET value = '{'"),
    "JSON of something": lambda path: altered(path, "UPDATE about SET value = '[1]'"),
    "another format": lambda path: said(path, format=99),
    "a negative count": lambda path: said(path, num_graphs=-1),
    "more graphs than there are": lambda path: said(path, num_graphs=41),
    "a type of label": lambda path: said(path, labels="V8"),
    "a graph gone": lambda path: altered(path, "DELETE FROM graphs WHERE id = 7"),
    "another number": lambda path: altered(path, "UPDATE graphs SET id = 99 WHERE id = 7"),
    "no number of nodes": lambda path: altered(path, "UPDATE graphs SET COL_num_nodes = 'many'"),
    "no nodes": lambda path: altered(path, "UPDATE graphs SET COL_num_nodes = 0 WHERE id = 3"),
    # A file of an earlier version has no sums that would tell.
    "nodes without end": lambda path: altered(
        path,
        "DELETE FROM about WHERE key = 'sums'",
        "UPDATE graphs SET COL_num_nodes = 217298682020626435 WHERE id = 3",
    ),
    "nodes beyond counting": lambda path: altered(
        path,
        "DELETE FROM about WHERE key = 'sums'",
        "UPDATE graphs SET COL_num_nodes = 4611686018427387904 WHERE id < 4",
    ),
    "row gone": lambda path: altered(path, "DELETE FROM rows WHERE id = 7"),
    "label a word": lambda path: altered(path, "UPDATE rows SET label = 'a' WHERE id = 7"),
    "no further columns": lambda path: altered(path, "UPDATE rows SET targets = '[]'"),
    "x too short": lambda path: altered(path, "UPDATE graphs SET COL_x = x'00' WHERE id = 7"),
    "x a number": lambda path: altered(path, "UPDATE graphs SET COL_x = 7 WHERE id = 7"),
    "edges too many": lambda path: altered(
        path, "UPDATE graphs SET COL_edge_index = COL_edge_index || COL_edge_index WHERE id = 7"
    ),
    "edges to nowhere": lambda path: altered(
        path,
        "UPDATE graphs SET COL_edge_index = "
        "CAST(REPLACE(HEX(COL_edge_index), '0', '7') AS BLOB) WHERE id = 7",
    ),
    "an edge out of range": lambda path: far_edge(path),
    "a category out of range": lambda path: far_category(path),
    "column gone": lambda path: altered(path, "ALTER TABLE graphs DROP COLUMN COL_x"),
}


def far_edge(path: Path) -> None:
    connection = sqlite3.connect(path)
    query = "SELECT COL_edge_index FROM graphs WHERE id = 7"
    ((blob,),) = connection.execute(query).fetchall()
    wrong = np.frombuffer(blob, dtype="<i8").copy()
    wrong[0] = 1000
    connection.execute("UPDATE graphs SET COL_edge_index = ? WHERE id = 7", (wrong.tobytes(),))
    connection.commit()
    connection.close()


def far_category(path: Path) -> None:
    connection = sqlite3.connect(path)
    query = "SELECT COL_node_categories FROM graphs WHERE id = 7"
    ((blob,),) = connection.execute(query).fetchall()
    wrong = np.full(len(blob) // 4, 77, dtype="<i4")
    connection.execute("UPDATE graphs SET COL_node_categories = ? WHERE id = 7", (wrong.tobytes(),))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "data.sqlite"
    write_on_disk(path, with_columns(some_graphs()))
    DAMAGE[damage](path)
    with pytest.raises(
        InputError, match=r"data\.sqlite: .*; make it again with 'lg2ar convert'\.$"
    ):
        read_all(path)


def read_all(path: Path) -> None:
    dataset = read_on_disk(path)
    for column in (*dataset.node_columns, *dataset.edge_columns):
        _ = column.values
    for _ in as_store(dataset.graph).chunks(100):
        pass


def test_nodes_that_have_nothing_of_their_own_are_counted_with_care(tmp_path: Path) -> None:
    path = tmp_path / "data.sqlite"
    graph = some_graphs()
    bare = Dataset("bare", "graph", graph.replace(x=torch.empty(graph.num_nodes, 0)))
    write_on_disk(path, bare)
    read_all(path)
    without_sums = "DELETE FROM about WHERE key = 'sums'"
    altered(path, without_sums, f"UPDATE graphs SET COL_num_nodes = {2 * 10**17} WHERE id = 3")
    with pytest.raises(InputError, match="more nodes than a file of its size can be of"):
        read_all(path)


@pytest.mark.parametrize("seed", range(40))
def test_a_file_with_wrong_bytes_never_does_worse_than_be_refused(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "data.sqlite"
    write_on_disk(path, with_columns(some_graphs(8)))
    content, chance = bytearray(path.read_bytes()), np.random.default_rng(seed)
    for place in chance.integers(0, len(content), 20):
        content[place] = chance.integers(0, 256)
    path.write_bytes(content)
    with suppress(InputError):
        read_all(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.sqlite: there is no such file"):
        open_source(tmp_path / "none.sqlite")


def test_a_file_that_is_replaced_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "toy.sqlite"
    write_on_disk(path, toy_graphs(num_graphs=5))
    store = as_store(read_on_disk(path).graph)
    store.select([0])
    write_on_disk(path, toy_graphs(num_graphs=6), replace=True)
    with pytest.raises(InputError, match="was replaced while it was read; open it again"):
        store.select([0])


@pytest.mark.skipif(os.name != "posix", reason="names that other systems do not allow")
def test_a_name_with_odd_characters_is_just_a_name(tmp_path: Path) -> None:
    path = tmp_path / "50% of? [mine]#1.sqlite"
    write_on_disk(path, toy_graphs(num_graphs=5))
    assert len(read_on_disk(path)) == 5
    assert os.listdir(tmp_path) == [path.name]


def test_nothing_is_unpickled_and_the_file_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.sqlite"
    write_on_disk(path, with_columns(some_graphs()))
    before = path.read_bytes()

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was unpickled")

    for module, name in ((pickle, "load"), (pickle, "loads"), (torch, "load")):
        monkeypatch.setattr(module, name, refuse)
    path.chmod(0o400)
    read_all(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["data.sqlite"]


# What others can do with it.


def test_pyg_reads_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = with_columns(some_graphs())
    layout = graphs_of(converted(tmp_path, dataset)).file.about.layout
    shutil.copy(tmp_path / "data.sqlite", tmp_path / "copy.sqlite")  # PyG opens it for writing
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("PyG unpickled something"))
    database = SQLiteDatabase(str(tmp_path / "copy.sqlite"), "graphs", layout.schema())
    assert len(database) == 40
    places = [3, 0, 39]
    for place, row in zip(places, database.multi_get(places), strict=True):
        data = dataset.graph.to_pyg()[place]
        assert row["num_nodes"] == data.num_nodes
        for name in ("x", "edge_index", "edge_attr", "edge_weight"):
            assert torch.equal(row[name], data[name]), name
    database.close()


def test_what_is_unseen_is_counted_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As often, and in the same words, as with the graphs in memory."""
    known = with_columns(some_graphs())
    for column in (*known.node_columns, *known.edge_columns):  # nothing is missing there
        column.values[pd.isna(column.values)] = 0.5 if column.kind == "number" else KINDS[0]
    other = with_columns(some_graphs(seed=1), seed=1)
    other.node_columns[1].values[:5] = "never seen"
    recipe = FeatureRecipe.settle("auto", known)
    with caplog.at_level(logging.WARNING, "lg2ar"):
        recipe.apply(other)
        in_memory = [record.getMessage() for record in caplog.records]
        caplog.clear()
        store = as_store(recipe.apply(converted(tmp_path, other)))
        list(store.epoch(8, seed=0))
        on_the_disk = [record.getMessage() for record in caplog.records]
    assert sorted(on_the_disk) == sorted(in_memory)
    assert len(in_memory) >= 5  # each of the columns has missing values
    assert sum("'never seen'" in message for message in in_memory) == 1


def test_the_captured_step_is_not_for_graphs_on_a_disk(tmp_path: Path) -> None:
    graph = converted(tmp_path, toy_graphs(num_graphs=5)).graph
    reason = _why_not(Config.make(), graph, torch.device("cuda"))
    assert reason is not None
    assert "disk" in reason or "Triton" in reason


@pytest.mark.cuda
def test_batches_lie_on_the_device(tmp_path: Path, device: torch.device) -> None:
    back = converted(tmp_path, with_columns(some_graphs()))
    batch = as_store(back.graph, device).select([1, 2])
    assert batch.x.device.type == device.type
    assert batch.edge_attr is not None
    assert batch.edge_attr.device.type == device.type


# On the command line.


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_convert_pretrain_and_embed_from_the_command_line(tmp_path: Path, command: Command) -> None:
    out = tmp_path / "toy.sqlite"
    assert f"{out} holds 300 graphs" in command.ok("convert", "toy-graphs", out)
    small = ["--set", "epochs=1", "--set", "hidden=8", "--set", "layers=1", "--device", "cpu"]
    embedded = []
    sources: list[str | Path] = ["toy-graphs", out]
    for place, source in enumerate(sources):
        run, rows = tmp_path / f"run{place}", tmp_path / f"rows{place}.csv"
        command.ok("pretrain", source, "--out", run, *small)
        command.ok("embed", run, source, "--out", rows, "--device", "cpu")
        embedded.append(rows.read_text())
    assert embedded[0] == embedded[1]
    assert "is there already" in command.refused("convert", "toy-graphs", out)
    assert "is the source itself" in command.refused("convert", out, out, "--replace")
    assert "300 graphs" in command.ok("convert", "toy-graphs", out, "--replace")
    assert "600 graphs" in command.ok("convert", "toy-graphs", out, "--append")
    assert "one large graph" in command.refused("convert", "toy-nodes", tmp_path / "n.sqlite")
