"""One large graph on a disk: the same sub-graphs, weights and embeddings as in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands import Command
from lg2ar import embeddings, experiment, layerwise
from lg2ar.bench.huge import WIDTH, make_huge
from lg2ar.bench.huge_tables import Huge
from lg2ar.config import Config
from lg2ar.data.columns import Column
from lg2ar.data.dataset import Dataset
from lg2ar.data.egonets import EgoNets
from lg2ar.data.features import RECIPES, FeatureRecipe
from lg2ar.data.mapped import MappedGraph, read_mapped
from lg2ar.data.mapped_layout import check_sums
from lg2ar.data.mapping import write_mapped
from lg2ar.data.sources import open_source
from lg2ar.data.toy import toy_nodes
from lg2ar.embeddings import read_embeddings, write_embeddings
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch
from strategies import graph_batches

KINDS = np.array(["ring", "tail", 'häkchen, "quoted"'], dtype=object)


def one_graph(graph: GraphBatch) -> GraphBatch:
    return graph.replace(batch=torch.zeros_like(graph.batch), num_graphs=1)


def with_columns(graph: GraphBatch, seed: int = 0) -> Dataset:
    """One large graph with everything else that there may be."""
    chance = np.random.default_rng(seed)
    n, e = graph.num_nodes, graph.num_edges

    def numbers(label: str, rows: int) -> Column:
        values = chance.normal(size=rows)
        values[chance.random(rows) < 0.2] = np.nan
        return Column(label, "number", values)

    def categories(label: str, rows: int) -> Column:
        values = KINDS[chance.integers(0, len(KINDS), rows)]
        values[chance.random(rows) < 0.2] = None
        return Column(label, "category", values)

    words = np.array([f"word {k % 3}" if k % 4 else None for k in range(n)], dtype=object)
    return Dataset(
        name="mine",
        level="node",
        graph=graph,
        y=torch.from_numpy(chance.integers(0, 3, n)),
        ids=tuple(f"nöde {k}" if k % 3 else "" for k in range(n)),
        node_columns=(numbers("a", n), categories("kind", n), numbers("b", n)),
        edge_columns=(categories("type", e), numbers("length", e)),
        classes=("one", "two", "three"),
        targets={"amount": chance.normal(size=n).astype(np.float32), "word": words},
        notes=("a note",),
        reading={"directed": False},
    )


def assert_same(ours: GraphBatch, theirs: GraphBatch) -> None:
    for name in ("x", "edge_index", "batch", "edge_weight", "edge_attr", "origin"):
        one, other = getattr(ours, name), getattr(theirs, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert one.dtype == other.dtype
            assert torch.equal(one, other), name


def mapped(folder: Path, dataset: Dataset) -> Dataset:
    write_mapped(folder / "g.graph", dataset, replace=True)
    return open_source(folder / "g.graph")


def as_mapped(graph: GraphBatch) -> MappedGraph:
    assert isinstance(graph, MappedGraph)
    return graph


relaxed = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)


@relaxed
@given(
    several=graph_batches(),
    hops=st.integers(0, 3),
    fanout=st.integers(0, 3),
    features=st.sampled_from([name for name in RECIPES if name != "walks"]),
    bare=st.booleans(),
)
def test_the_same_sub_graphs_are_drawn(
    tmp_path: Path, several: GraphBatch, hops: int, fanout: int, features: str, bare: bool
) -> None:
    graph = one_graph(several)
    dataset = Dataset("bare", "node", graph) if bare else with_columns(graph)
    there = mapped(tmp_path, dataset)
    recipe = FeatureRecipe.settle(features, dataset, 3)
    assert FeatureRecipe.settle(features, there, 3) == recipe
    here_graph, there_graph = recipe.apply(dataset), recipe.apply(there)
    assert there_graph.num_features == here_graph.num_features
    assert there_graph.num_edge_features == here_graph.num_edge_features
    ours = EgoNets(there_graph, hops, fanout=fanout).draw(4, seed=3)
    assert_same(ours, EgoNets(here_graph, hops, fanout=fanout).draw(4, seed=3))
    ours.validate()


@pytest.mark.parametrize("seed", range(5))
def test_edges_between_the_same_nodes_are_one_way_to_walk(tmp_path: Path, seed: int) -> None:
    graph = toy_nodes(40).graph
    pairs = graph.edge_index
    twice = graph.replace(
        edge_index=torch.cat([pairs, pairs[:, ::3], pairs.flip(0)[:, ::3]], dim=1),
        edge_weight=torch.cat(
            [torch.ones(pairs.size(1)), torch.full((2 * len(pairs[0, ::3]),), 2.0)]
        ),
    )
    there = mapped(tmp_path, Dataset("twice", "node", twice))
    assert "walk_to" in as_mapped(there.graph).folder.arrays
    assert "in_from" not in as_mapped(there.graph).folder.arrays
    ours = EgoNets(there.graph, 2, fanout=2).draw(6, seed)
    assert_same(ours, EgoNets(twice, 2, fanout=2).draw(6, seed))


def test_what_is_known_besides_comes_back(tmp_path: Path) -> None:
    dataset = with_columns(toy_nodes(60).graph)
    back = mapped(tmp_path, dataset)
    assert (back.name, back.level, back.classes) == ("mine", "node", dataset.classes)
    assert back.ids is not None
    assert dataset.ids is not None
    assert tuple(back.ids) == dataset.ids
    assert (back.ids[4], back.ids[-1], back.ids[3:7]) == (
        dataset.ids[4],
        dataset.ids[-1],
        dataset.ids[3:7],
    )
    assert back.y is not None
    assert dataset.y is not None
    assert torch.equal(back.y, dataset.y)
    assert back.fingerprint() == dataset.fingerprint()
    assert (back.notes, dict(back.reading)) == (dataset.notes, dataset.reading)
    assert np.array_equal(back.targets["amount"], dataset.targets["amount"])
    assert back.targets["word"].tolist() == dataset.targets["word"].tolist()
    for ours, theirs in zip(back.node_columns, dataset.node_columns, strict=True):
        assert (ours.name, ours.kind) == (theirs.name, theirs.kind)
        same = ours.values == theirs.values
        assert (same | (ours.values != ours.values)).all() or ours.kind == "category"
    assert replace(back, level="node").graph.num_nodes == 60
    order = np.lexsort(dataset.graph.edge_index.numpy()[::-1])
    assert torch.equal(back.graph.edge_index, dataset.graph.edge_index[:, order])


@pytest.mark.parametrize("fanout", [0, 3])
def test_training_is_the_same_bit_by_bit(tmp_path: Path, fanout: int) -> None:
    dataset = with_columns(toy_nodes(80).graph)
    config = Config.make(
        level="node", hidden=8, layers=2, epochs=8, batch_size=5, fanout=fanout, seed=4
    )
    here = experiment.pretrain(dataset, config, device="cpu")
    there = experiment.pretrain(mapped(tmp_path, dataset), config, device="cpu")
    assert [r.loss for r in there.history] == [r.loss for r in here.history]
    ours, theirs = there.model.state_dict(), here.model.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert there.data["fingerprint"] == here.data["fingerprint"]


@pytest.mark.parametrize("edges", ["plain", "weighted", "attributes", "directed"])
@pytest.mark.parametrize(
    "base",
    ["gcn", "gcn, features", "gcn, smoothed", "gcn, both", "gcn, averaged", "gin", "gin, averaged"],
)
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("budget", [40, 1 << 26])
def test_embeddings_in_chunks_are_those_in_memory(
    tmp_path: Path, edges: str, base: str, norm: bool, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = toy_nodes(90)
    graph = dataset.graph
    chance = torch.Generator().manual_seed(1)
    if edges == "weighted":
        graph = graph.replace(edge_weight=torch.rand(graph.num_edges, generator=chance))
    if edges == "attributes":
        graph = graph.replace(edge_attr=torch.rand(graph.num_edges, 3, generator=chance))
    if edges == "directed":
        graph = graph.replace(edge_index=graph.edge_index[:, ::3])
    dataset = replace(dataset, graph=graph)
    network, _, output = base.partition(", ")
    settings = {"base_encoder": network, "base_layers": 2}
    settings |= {"smoothing": 2} if output in ("smoothed", "both") else {}
    settings |= {"gcn_output": "features-and-layers"} if output in ("features", "both") else {}
    settings |= {"averaged_features": 2} if output == "averaged" else {}
    config = Config.make(
        settings, level="node", hidden=8, epochs=3, batch_size=4, norm=norm, dropout=0.1
    )
    monkeypatch.setattr(layerwise, "SMALL", 300)
    monkeypatch.setattr(layerwise, "BUDGET", budget)
    here = experiment.pretrain(dataset, config, device="cpu")
    there = experiment.pretrain(mapped(tmp_path, dataset), config, device="cpu")
    wanted = here.embed(dataset)
    monkeypatch.setattr(MappedGraph, "whole", property(refuse))
    torch.testing.assert_close(there.embed(tmp_path / "g.graph"), wanted, rtol=1e-4, atol=1e-5)
    only = np.array([5, 88, 5, 0])
    found = there.embed(tmp_path / "g.graph", only=only)
    torch.testing.assert_close(found, wanted[only], rtol=1e-4, atol=1e-5)
    assert torch.equal(here.embed(dataset, only=only), wanted[only])


@pytest.mark.parametrize("scale", ["unit", "standard"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"norm": True}, {"gcn_output": "features-and-layers"}, {"averaged_features": 1}],
)
@pytest.mark.parametrize("budget", [40, 1 << 26])
def test_scaled_embeddings_in_chunks_are_those_in_memory(
    tmp_path: Path,
    scale: str,
    settings: dict[str, Any],
    budget: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset = toy_nodes(90)
    small = {"level": "node", "hidden": 8, "epochs": 3, "batch_size": 4}
    config = Config.make(small, embedding_scale=scale, **settings)
    monkeypatch.setattr(layerwise, "SMALL", 300)
    monkeypatch.setattr(layerwise, "BUDGET", budget)
    wanted = experiment.pretrain(dataset, config, device="cpu").embed(dataset)
    monkeypatch.setattr(MappedGraph, "whole", property(refuse))
    there = experiment.pretrain(mapped(tmp_path, dataset), config, device="cpu")
    torch.testing.assert_close(there.embed(tmp_path / "g.graph"), wanted, rtol=1e-3, atol=1e-4)
    only = np.array([5, 88, 5, 0])
    found = there.embed(tmp_path / "g.graph", only=only)
    torch.testing.assert_close(found, wanted[only], rtol=1e-3, atol=1e-4)


def refuse(_: MappedGraph) -> GraphBatch:
    raise AssertionError("the whole graph was read")


def test_what_would_not_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = mapped(tmp_path, toy_nodes(40))
    monkeypatch.setattr("lg2ar.data.mapped._free_memory", lambda: 100)
    with pytest.raises(InputError, match="needs the whole graph in memory"):
        _ = dataset.graph.x


def test_a_step_reads_no_more_of_a_larger_graph(tmp_path: Path) -> None:
    """Entries of the lists that are looked at, and rows of features, whatever the graph."""
    seen = []
    for num_nodes in (2_000, 20_000):
        make_huge(tmp_path / f"{num_nodes}.graph", num_nodes)
        graph = as_mapped(read_mapped(tmp_path / f"{num_nodes}.graph").graph)
        counted = Counter(graph.folder.arrays)
        graph.folder.arrays = counted
        nets = EgoNets(graph, hops=2, fanout=4)
        for seed in range(5):
            nets.draw(8, seed)
        seen.append(counted.read)
    assert seen[1] < 1.5 * seen[0]
    assert seen[1] < 5 * 8 * 21 * (WIDTH + 100)  # nodes of all sub-graphs, and some lists


class Counter(dict[str, np.ndarray]):
    """Arrays that count what is read of them."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        super().__init__({name: self._counting(array) for name, array in arrays.items()})
        self.read = 0

    def _counting(self, array: np.ndarray) -> np.ndarray:
        owner = self

        class Counting(np.ndarray):
            def __getitem__(self, index: Any) -> Any:
                found = super().__getitem__(index)
                owner.read += np.size(found)
                return np.asarray(found)

        return array.view(Counting)


def test_batches_and_embeddings_on_each_device(tmp_path: Path, device: torch.device) -> None:
    dataset = with_columns(toy_nodes(80).graph)
    config = Config.make(level="node", hidden=8, epochs=3, batch_size=5, fanout=3)
    there = mapped(tmp_path, dataset)
    run = experiment.pretrain(there, config, device=device)
    same = experiment.pretrain(dataset, config, device=device)
    assert [r.loss for r in run.history] == [r.loss for r in same.history]
    torch.testing.assert_close(run.embed(there), same.embed(dataset), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
@pytest.mark.parametrize("named", [False, True])
def test_many_embeddings_are_written_in_parts(
    tmp_path: Path, ending: str, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.randn(50, 3)
    y, classes = torch.arange(50) % 2, ("no", "yes")
    ids = [f"n{k}" for k in range(50)] if named else None
    one, other = tmp_path / f"one{ending}", tmp_path / f"other{ending}"
    write_embeddings(one, rows, ids=ids, y=y, classes=classes)
    monkeypatch.setattr(embeddings, "MANY", 10)
    monkeypatch.setattr(embeddings, "STEP", 20)
    write_embeddings(other, rows, ids=ids, y=y, classes=classes)
    ours, theirs = read_embeddings(other), read_embeddings(one)
    assert torch.equal(ours.rows, theirs.rows)
    assert ours.ids.tolist() == theirs.ids.tolist()
    assert ours.y is not None
    assert theirs.y is not None
    assert ours.y.tolist() == theirs.y.tolist()
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([one.name, other.name])


def test_the_bench_measures_steps_a_part_and_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lg2ar = Command(monkeypatch, capsys)
    out = tmp_path / "huge.jsonl"
    sizes = ("--nodes", "300", "--nodes", "900")
    told = lg2ar.ok(
        *("bench", "huge", *sizes, "--folder", tmp_path / "graphs", "--steps", "2"),
        *("--part", "10", "--whole-up-to", "500", "--set", "hidden=8", "--out", out),
        *("--device", "cpu"),
    )
    assert told.count("ms a step") == 2
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["method"] for r in records] == ["made", "lg2ar", "all nodes", "made", "lg2ar"]
    assert all(0 < r["num_edges"] < 2 * 12 * r["num_nodes"] for r in records)
    assert not list((tmp_path / "graphs").iterdir())
    tables = Huge(records)
    assert "| 300 | " in tables.steps()
    assert "not run yet" in tables.steps()  # the whole of the larger one
    assert "| 900 | 57 | " in tables.projection()
    assert tables.memory().count("(") >= 7
    assert Huge([]).steps() == Huge([]).memory() == "*not run yet*"


def test_the_generated_graph_is_skewed_and_sound(tmp_path: Path) -> None:
    make_huge(tmp_path / "g.graph", 3_000)
    check_sums(tmp_path / "g.graph")
    graph = read_mapped(tmp_path / "g.graph").graph
    as_mapped(graph).whole.validate()
    source, target = graph.edge_index
    assert torch.equal(
        (source * 3_000 + target).sort().values, (target * 3_000 + source).sort().values
    )
    assert not bool((source == target).any())
    degree = torch.bincount(source)
    assert int(degree.max()) > 20 * float(degree.float().median())
