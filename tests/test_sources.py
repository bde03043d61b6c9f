"""Whatever graphs come as, they are found out and read; options that say nothing are refused."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import lg2ar
from lg2ar.data.arrays import write_arrays
from lg2ar.data.reading import ReadOptions
from lg2ar.data.sources import open_source
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import InputError
from tiny import write_graphs

needs_rdkit = pytest.mark.skipif(importlib.util.find_spec("rdkit") is None, reason="needs RDKit")


def paths(*sizes: int) -> list[nx.Graph]:
    return [nx.path_graph(size) for size in sizes]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The same kind of thing as files of every format, two graphs each where there are several."""
    write_graphs(tmp_path, "TINY", graphs=2)
    made = {"TU folder": tmp_path / "TINY", "TU raw": tmp_path / "TINY" / "raw"}
    made["zip"] = Path(
        shutil.make_archive(str(tmp_path / "tiny"), "zip", tmp_path / "TINY" / "raw")
    )
    made["npz"] = tmp_path / "toy.npz"
    write_arrays(made["npz"], toy_graphs(num_graphs=2))
    made["tables"] = tmp_path / "tables"
    made["tables"].mkdir()
    (made["tables"] / "edges.csv").write_text("graph,u,v\n1,a,b\n2,a,b\n")
    made["table"] = made["tables"] / "edges.csv"
    made["graphs"] = tmp_path / "graphs"
    made["graphs"].mkdir()
    for place, graph in enumerate(paths(2, 3)):
        nx.write_graphml(graph, made["graphs"] / f"{place}.graphml")
    return made


KINDS = ("TU folder", "TU raw", "zip", "npz", "tables", "table", "graphs")


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_folders_of_every_kind_are_read(files: dict[str, Path], kind: str) -> None:
    for source in (files[kind], str(files[kind])):
        dataset = lg2ar.read(source)
        assert dataset.level == "graph"
        assert len(dataset) == 2


def test_one_graph_of_a_file_is_its_nodes_unless_told(files: dict[str, Path]) -> None:
    one = files["graphs"] / "1.graphml"
    assert len(lg2ar.read(one)) == 3
    assert len(lg2ar.read(one, level="graph")) == 1


def test_objects_of_other_libraries_are_read() -> None:
    assert len(lg2ar.read(paths(2, 3, 4))) == 3
    assert len(lg2ar.read(nx.path_graph(5))) == 5
    edges = torch.tensor([[0, 1], [1, 0]])
    pyg = [Data(x=torch.ones(2, 1), edge_index=edges, edge_attr=torch.ones(2, 3)) for _ in range(2)]
    dataset = lg2ar.read(pyg)
    assert len(dataset) == 2
    assert dataset.graph.num_edge_features == 3
    assert lg2ar.read(pd.DataFrame({"u": [1], "v": [2]})).ids == ("1", "2")
    assert lg2ar.read(dataset) is dataset


def test_a_data_set_in_double_precision_is_taken_in_single(files: dict[str, Path]) -> None:
    dataset = lg2ar.read(files["npz"])
    double = dataset.graph.to("cpu", torch.float64)
    from dataclasses import replace

    assert lg2ar.read(replace(dataset, graph=double)).graph.x.dtype == torch.float32


@needs_rdkit
def test_molecules_are_found_by_the_name_of_a_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"SMILES": ["CCO", "c1ccccc1"], "structure": ["C", "CC"]})
    frame.to_csv(tmp_path / "m.csv", index=False)
    (tmp_path / "m.smi").write_text("CCO\nc1ccccc1\n")
    for source in (tmp_path / "m.csv", tmp_path / "m.smi", frame, ["CCO", "c1ccccc1"]):
        assert lg2ar.read(source).graph.sizes.tolist() == [3, 6]
    other = lg2ar.read(tmp_path / "m.csv", smiles="structure")
    assert other.graph.sizes.tolist() == [1, 2]
    # A run that was trained so reads other tables so.
    again = open_source(tmp_path / "m.csv", usual=other.reading)
    assert again.graph.sizes.tolist() == [1, 2]


@pytest.mark.parametrize("ending", ["pt", "pth", "pkl", "pickle", "gpickle"])
def test_pickles_are_refused_unopened(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"g.{ending}").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(InputError, match="is a pickle, which can run code"):
        lg2ar.read(tmp_path / f"g.{ending}")


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    (tmp_path / "g.docx").write_text("hello")
    with pytest.raises(
        InputError, match=r"g.docx: files of this kind are not read; known are .csv"
    ):
        lg2ar.read(tmp_path / "g.docx")
    with pytest.raises(InputError, match="'nothing' is neither a known data set nor a file"):
        lg2ar.read("nothing")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lables": "y"}, "'lables' is no option of reading; did you mean 'labels'"),
        ({"level": "edge"}, "level = 'edge' must be graph or node"),
        ({"columns": {"middle": "m"}}, "'middle' must be one of graph, node, source, target"),
        ({"labels": "y"}, "toy-graphs: the option 'labels' says nothing about a source of this"),
        ({"directed": False}, "the option 'directed' says nothing"),
        ({"strict": True}, "the option 'strict' says nothing"),
    ],
)
def test_options_that_say_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        lg2ar.read("toy-graphs", **options)


def test_remembered_options_apply_where_they_can_and_are_not_said() -> None:
    told = ReadOptions.make({"directed": True, "categories": "code", "level": "graph"})
    held = told.remembered(weight="w", labels=None)
    assert held == {"directed": True, "categories": ["code"], "weight": "w"}
    assert open_source("toy-graphs", usual=held).name == "toy-graphs"  # none says anything here
    filled = ReadOptions.make({"directed": False}).filled(
        held, ("directed", "weight", "categories")
    )
    assert (filled.directed, filled.weight, filled.categories) == (False, "w", ("code",))
