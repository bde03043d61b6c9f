"""``lg2ar inspect``: what it says is what a slow look finds, and its settings can be trained."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given

import strategies
from commands import Command
from lg2ar.config import Config
from lg2ar.data.columns import Column
from lg2ar.data.dataset import Dataset
from lg2ar.data.interchange import from_networkx
from lg2ar.data.structure import Spread, Structure
from lg2ar.data.suggestions import suggest
from lg2ar.data.summary import summarise
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.graph import GraphBatch


@pytest.fixture
def lg2ar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def batch_of(edges: list[tuple[int, int]], batch: list[int], x: list[float]) -> GraphBatch:
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    return GraphBatch(torch.tensor(x).view(-1, 1), index, torch.tensor(batch), max(batch) + 1)


def test_every_count_by_hand() -> None:
    edges = [(0, 1), (1, 0), (0, 1), (2, 2), (3, 4), (6, 7), (7, 6)]
    graph = batch_of(edges, [0, 0, 0, 1, 1, 2, 3, 3], [1.0] * 8)
    structure = summarise(Dataset("t", "graph", graph)).structure
    assert structure == Structure(
        graphs=4,
        nodes=8,
        edges=6,  # directed: every listed edge counts, once
        nodes_a_graph=Spread(1, 2, 2, 3),
        edges_a_graph=Spread(0, 1.5, 1.5, 3),
        degree=Spread(0, 1, 0.75, 1),
        directed=True,
        one_way=1,
        self_loops=1,
        duplicates=1,
        isolated=2,
        edgeless=1,
        disconnected=1,
        parts=5,
    )


@given(graph=strategies.graph_batches())
def test_counts_are_those_of_networkx(graph: GraphBatch) -> None:
    found = summarise(Dataset("t", "graph", graph)).structure
    edges = list(map(tuple, graph.edge_index.T.tolist()))
    whole = nx.Graph(edges)
    whole.add_nodes_from(range(graph.num_nodes))
    assert found.parts == nx.number_connected_components(whole)
    assert found.self_loops == nx.number_of_selfloops(whole)
    assert found.duplicates == len(edges) - len(set(edges))
    assert found.one_way == sum((j, i) not in edges for i, j in set(edges))
    assert found.isolated == sum(set(whole[node]) <= {node} for node in whole)
    if not found.directed:
        assert found.edges == whole.number_of_edges()
    sizes = graph.batch.bincount(minlength=graph.num_graphs)
    assert found.nodes_a_graph is not None
    assert found.nodes_a_graph.high == int(sizes.max())


def test_columns_labels_and_problems_are_told() -> None:
    graph = nx.path_graph(60)
    for node in graph:
        row = {"age": float(node), "same": 1.0, "town": "ab"[node % 2], "y": int(node > 55)}
        graph.nodes[node].update(row, name=f"person {node}" if node else "person 1")
    graph.nodes[3]["age"] = None
    graph.nodes[4]["town"] = None
    summary = summarise(from_networkx(graph))
    columns = {column.name: column for column in summary.columns}
    assert columns["age"].missing == 1
    there = [number for number in range(60) if number != 3]
    assert columns["age"].spread == Spread(0, 30, sum(there) / 59, 59)
    assert columns["age"].features == 2
    assert columns["town"].common == (("b", 30), ("a", 29))
    assert columns["y"].features is None
    assert summary.labels == (("0", 56), ("1", 4))
    text = " ".join(summary.problems)
    assert "Column 'age' of nodes: 1 missing." in text
    assert "Column 'same' of nodes is the same everywhere" in text
    assert "Class '1' has 4 rows" in text


def test_a_column_of_names_is_told() -> None:
    graph = batch_of([], [0] * 200, [0.0] * 200)
    names = Column.categories("name", [f"n{place}" for place in range(200)])
    many = Column.categories("town", [f"t{place % 80}" for place in range(200)])
    summary = summarise(Dataset("t", "node", graph, node_columns=(names, many)))
    text = " ".join(summary.problems)
    assert "Column 'name' of nodes holds another text nearly everywhere" in text
    assert "Column 'town' of nodes: 80 values, the 64 most frequent count." in text
    assert "1 of 1 node features are the same on all nodes" in text


def test_amounts_as_labels_are_spread() -> None:
    dataset = toy_graphs(num_graphs=20)
    amounts = Dataset("t", "graph", dataset.graph, y=torch.linspace(0, 1, 20))
    summary = summarise(amounts)
    assert summary.labels == ()
    assert summary.label_spread is not None
    assert summary.label_spread.high == 1


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("width", [0, 7, 5000])
@pytest.mark.parametrize(
    ("graphs", "nodes", "degree"),
    [(1, 1, 0), (1, 10, 0), (2, 5, 2), (188, 3371, 2.2), (5000, 372474, 66), (10, 10**7, 40)],
)
def test_suggestions_are_settings_for_any_data(
    level: str, width: int, graphs: int, nodes: int, degree: float
) -> None:
    spread = Spread(0, degree, degree, 10 * degree)
    structure = Structure(
        graphs, nodes, int(nodes * degree), spread, spread, spread, False, 0, 0, 0, 0, 0, 0, graphs
    )
    made = suggest(level, structure, width)
    config = Config.make({item.key: item.value for item in made})
    assert config.level == level
    assert all(item.reason.endswith(".") for item in made)
    assert 1 <= config.hops <= 6
    assert 2 <= config.layers <= 6
    assert (config.features == "given") == (width > 0)


def test_suggestions_follow_the_paper_where_it_has_a_rule() -> None:
    """Settings of a few of its own data sets, by their printed sizes."""

    def settings(level: str, graphs: int, nodes: float, degree: float) -> dict[str, object]:
        size, spread = Spread(nodes, nodes, nodes, nodes), Spread(0, degree, degree, 50)
        total = round(graphs * nodes)
        edges = round(total * degree / 2)
        structure = Structure(
            graphs, total, edges, size, size, spread, False, 0, 0, 0, 0, 0, 0, graphs
        )
        return {item.key: item.value for item in suggest(level, structure, 4)}

    assert settings("graph", 1113, 39.06, 3.73)["layers"] == 3  # PROTEINS
    assert settings("graph", 2000, 429.63, 2.32)["layers"] == 6  # REDDIT-BINARY
    assert settings("graph", 1000, 19.77, 9.77)["layers"] == 2  # IMDB-BINARY
    assert settings("node", 1, 19717, 4.5)["hops"] == 4  # PubMed
    assert settings("node", 1, 2708, 3.9)["hidden"] == 512  # Cora


def test_the_command_shows_tables_and_its_settings_are_trained(
    lg2ar: Command, tmp_path: Path
) -> None:
    out = lg2ar.ok("inspect", "toy-graphs", "--config-out", tmp_path / "new" / "c.toml")
    for words in ("toy-graphs: 300 graphs to embed", "4 classes", "undirected", "batch_size"):
        assert words in out
    settings = tomllib.loads((tmp_path / "new" / "c.toml").read_text())
    assert Config.make(settings) == summarise(toy_graphs()).config()
    assert (tmp_path / "new" / "c.toml").read_text().count("#") == len(settings) + 1
    lg2ar.ok(
        *("pretrain", "toy-graphs", "--config", tmp_path / "new" / "c.toml"),
        *("--out", tmp_path / "run", "--set", "epochs=1", "--set", "hidden=8"),
        *("--device", "cpu"),
    )
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert saved["config"]["batch_size"] == settings["batch_size"]


def test_the_command_gives_json(lg2ar: Command) -> None:
    told = json.loads(lg2ar.ok("inspect", "toy-nodes", "--json"))
    assert told["structure"]["nodes"] == 800
    assert told["labels"] == [["0", 200], ["1", 200], ["2", 200], ["3", 200]]
    keys = {item["key"] for item in told["suggestions"]}
    assert {"level", "batch_size", "hidden", "layers", "hops", "epochs", "features"} <= keys


def test_problems_of_a_file_come_with_their_lines(lg2ar: Command, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    path = tmp_path / "m.csv"
    path.write_text("smiles,y\nCCO,1\nnonsense,0\n[Na+].[Cl-],0\nCC(=O)O,1\n")
    out = " ".join(lg2ar.ok("inspect", path).split())
    assert "1 of 4 molecules cannot be read" in out
    assert "line 3 'nonsense': is not SMILES" in out
    assert "1 of 3 graphs are of several parts" in out
    assert "line 3" in lg2ar.refused("inspect", path, "--strict")


def test_words_of_a_file_are_shown_as_they_are(lg2ar: Command, tmp_path: Path) -> None:
    graph = nx.path_graph(4)
    nx.set_node_attributes(graph, dict.fromkeys(graph, "[red]:smile:[/red]"), "[bold]word")
    nx.write_graphml(graph, tmp_path / "g.graphml")
    out = lg2ar.ok("inspect", tmp_path / "g.graphml")
    assert "[bold]word" in out
    assert "[red]:smile:[/red]" in out


def test_a_file_that_cannot_be_written_is_named(lg2ar: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sentence = lg2ar.refused("inspect", "toy-nodes", "--config-out", tmp_path / "file" / "c.toml")
    assert "cannot be written" in sentence
    assert "there is no" in lg2ar.refused("inspect", tmp_path / "nothing.csv")


def test_weights_and_features_of_edges_are_shown(lg2ar: Command, tmp_path: Path) -> None:
    graph = nx.cycle_graph(5)
    nx.set_edge_attributes(graph, {edge: i for i, edge in enumerate(graph.edges)}, "weight")
    nx.set_edge_attributes(graph, {edge: "ab"[i % 2] for i, edge in enumerate(graph.edges)}, "kind")
    nx.write_gexf(graph, tmp_path / "g.gexf")
    out = lg2ar.ok("inspect", tmp_path / "g.gexf")
    assert "edge weights" in out
    assert "0 to 4" in out
    assert "kind" in out


def test_one_graph_at_graph_level_is_told() -> None:
    whole = toy_nodes(num_nodes=50)
    summary = summarise(Dataset("t", "graph", whole.graph))
    assert any("try --level node" in problem for problem in summary.problems)


def test_no_loop_over_graphs() -> None:
    """A hundred thousand graphs take a second or two, not minutes."""
    number = 100_000
    pairs = np.arange(2 * number).reshape(-1, 2).T
    graph = GraphBatch(
        x=torch.empty(2 * number, 0),
        edge_index=torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1)),
        batch=torch.arange(number).repeat_interleave(2),
        num_graphs=number,
    )
    assert summarise(Dataset("t", "graph", graph)).structure.parts == number
