"""Graphs in .npz files and PyG objects, good and bad."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from lg2ar.data.arrays import read_arrays, write_arrays
from lg2ar.data.dataset import Dataset
from lg2ar.data.sources import open_source
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError

GOOD: dict[str, Any] = {
    "x": np.ones((4, 2), dtype=np.float32),
    "edge_index": np.array([[0, 1, 2, 3], [1, 0, 3, 2]]),
    "batch": np.array([0, 0, 1, 1]),
    "y": np.array([0, 1]),
}


def write(folder: Path, **changes: Any) -> Path:
    arrays = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    path = folder / "graphs.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("make", [toy_graphs, toy_nodes])
def test_a_data_set_round_trips(tmp_path: Path, make: Any) -> None:
    dataset = make()
    write_arrays(tmp_path / "toy.npz", dataset)
    back = read_arrays(tmp_path / "toy.npz")
    assert back.level == dataset.level
    assert back.fingerprint() == dataset.fingerprint()


def test_integers_of_any_width_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        edge_index=GOOD["edge_index"].astype(np.int32),
        batch=GOOD["batch"].astype(np.uint8),
        x=np.ones((4, 2), dtype=np.int16),
    )
    dataset = read_arrays(path)
    assert dataset.graph.x.dtype == torch.float32
    assert dataset.graph.num_graphs == 2
    assert len(dataset) == 2


def test_without_batch_it_is_one_large_graph(tmp_path: Path) -> None:
    dataset = read_arrays(write(tmp_path, batch=None, y=None))
    assert dataset.level == "node"
    assert len(dataset) == 4


def test_edge_attributes_are_read_and_written(tmp_path: Path) -> None:
    dataset = read_arrays(write(tmp_path, edge_attr=np.array([[1], [2], [3], [4]])))
    assert dataset.graph.edge_attr is not None
    assert dataset.graph.edge_attr.tolist() == [[1.0], [2.0], [3.0], [4.0]]
    write_arrays(tmp_path / "again.npz", dataset)
    again = read_arrays(tmp_path / "again.npz").graph.edge_attr
    assert again is not None
    assert torch.equal(again, dataset.graph.edge_attr)
    assert read_arrays(write(tmp_path)).graph.edge_attr is None


def test_without_features_there_are_none(tmp_path: Path) -> None:
    assert read_arrays(write(tmp_path, x=None)).graph.x.shape == (4, 0)


NAN = np.array([[1, 1], [1, np.nan], [1, 1], [1, 1]], dtype=np.float32)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"x": NAN}, r"features of node 1 \(graph 0\) are not all finite"),
    ({"x": np.array([["a", "b"]] * 4)}, "x must hold numbers, not <U1"),
    ({"x": np.ones(4)}, r"x must be a matrix"),
    ({"x": np.empty((0, 2)), "batch": None}, "holds no nodes"),
    ({"edge_index": np.array([[0, 9], [1, 0]])}, "edge 1 names node 9, outside 0 to 3"),
    ({"edge_index": np.array([[0, -1], [1, 0]])}, "edge 1 names node -1"),
    ({"edge_index": np.array([[0.5], [1.0]])}, "edge_index must hold whole numbers, not float64"),
    ({"edge_index": np.array([0, 1])}, r"edge_index must be an int64 matrix \[2, edges\]"),
    ({"edge_index": np.array([[0], [2]])}, "edge 0 joins two different graphs"),
    ({"edge_index": None}, "has no array 'edge_index'"),
    ({"batch": np.array([0, 0, 2, 2])}, "graph 1 has no nodes"),
    ({"batch": np.array([0, 1, 0, 1])}, "batch must be ascending"),
    ({"batch": np.array([0, 0, 1])}, "one int64 graph number per node"),
    ({"x": None, "batch": None}, "neither 'x' nor 'batch'"),
    ({"y": np.array([0, 1, 2])}, r"y has shape \[3\], expected \[2\]"),
    ({"edge_weight": np.array([1.0, np.inf, 1, 1])}, "weight of edge 1 is not finite"),
    ({"edge_weight": np.array(["a"] * 4)}, "edge_weight must hold numbers"),
    ({"x": np.full((4, 2), 1e300)}, "are not all finite"),
    ({"batch": np.array([0, 0, 1, 10**15])}, "graph 2 has no nodes"),
    ({"batch": np.array([0, 0, 1, 2**63 - 1])}, "graph 2 has no nodes"),
    ({"y": np.array(["a", "b"])}, "y must hold numbers"),
    ({"edge_weight": np.ones(3)}, "edge_weight must hold one floating-point number per edge"),
    ({"edge_attr": np.ones((3, 2))}, "edge_attr must be a floating-point matrix with one row"),
    ({"edge_attr": np.array([["a"]] * 4)}, "edge_attr must hold numbers"),
    ({"edge_attr": np.array([[0.0], [np.nan], [0], [0]])}, "attributes of edge 1 are not all"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_arrays_are_named_with_their_file(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(InputError, match=message) as caught:
        read_arrays(path)
    assert str(path) in str(caught.value)


def test_files_that_are_no_archive_are_named(tmp_path: Path) -> None:
    missing, text, cut = (tmp_path / name for name in ("none.npz", "text.npz", "cut.npz"))
    text.write_text("hello")
    cut.write_bytes(write(tmp_path).read_bytes()[:200])
    for path, message in [(missing, "no such file"), (text, "not a readable"), (cut, "not a read")]:
        with pytest.raises(InputError, match=message):
            read_arrays(path)


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "objects.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object), edge_index=GOOD["edge_index"])
    with pytest.raises(InputError, match="not a readable"):
        read_arrays(path)
    with pytest.raises(InputError, match="is a pickle"):
        open_source(tmp_path / "graphs.pt")


def test_unknown_names_get_the_nearest_known_one() -> None:
    with pytest.raises(InputError, match="did you mean 'toy-graphs'"):
        open_source("toy-graph")


def test_pyg_graphs_are_taken_with_their_labels() -> None:
    graphs = [Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3, y=k) for k in range(2)]
    dataset = open_source(graphs)
    assert dataset.level == "graph"
    assert dataset.graph.x.shape == (6, 0)
    assert dataset.y is not None
    assert dataset.y.tolist() == [0, 1]
    large = open_source(Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0], [1]])))
    assert large.level == "node"
    assert large.y is None


def test_an_empty_list_and_many_graphs_at_node_level_are_refused() -> None:
    with pytest.raises(InputError, match="holds no graphs"):
        open_source([])
    graphs = [Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]))] * 2
    with pytest.raises(InputError, match="node level takes one large one"):
        Dataset.from_pyg(graphs, level="node")


def test_different_data_has_a_different_fingerprint() -> None:
    assert toy_graphs(seed=0).fingerprint() == toy_graphs(seed=0).fingerprint()
    assert toy_graphs(seed=0).fingerprint() != toy_graphs(seed=1).fingerprint()


def test_damage_anywhere_in_an_archive_is_one_sentence(tmp_path: Path) -> None:
    write_arrays(tmp_path / "good.npz", toy_graphs(num_graphs=5))
    content = (tmp_path / "good.npz").read_bytes()
    rng = np.random.default_rng(0)
    path, whole = tmp_path / "damaged.npz", 0
    for _ in range(300):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), size=3):
            damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with contextlib.suppress(InputError):  # and nothing else
            read_arrays(path)
            whole += 1
    assert whole < 100


def test_a_single_array_is_no_archive(tmp_path: Path) -> None:
    with open(tmp_path / "one.npz", "wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(InputError, match="not a readable"):
        read_arrays(tmp_path / "one.npz")


def test_labels_may_be_numbers_of_any_kind(tmp_path: Path) -> None:
    dataset = read_arrays(write(tmp_path, y=np.array([0.5, 1.5])))
    assert dataset.y is not None
    assert dataset.y.tolist() == [0.5, 1.5]
