"""TU folders and archives: the same graphs as PyG reads, and one sentence for what is wrong."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset

import tiny
from lg2ar import experiment
from lg2ar.data.benchmarks import open_benchmark
from lg2ar.data.dataset import Dataset
from lg2ar.data.sources import open_source
from lg2ar.data.tu import is_tu, read_tu
from lg2ar.errors import InputError

BRIEF = {"hidden": 8, "layers": 2, "epochs": 1, "batch_size": 64}


def pyg_reads(root: Path, name: str) -> Dataset:
    """What PyG makes of the raw files in ``root/name/raw``."""
    graphs: list[Data] = list(TUDataset(str(root), name, use_node_attr=True, use_edge_attr=True))
    return Dataset.from_pyg(graphs, name=name)


def write_rich(root: Path) -> Path:
    """Graphs with all that the format has, edges listed twice and loops among them."""
    draw = np.random.default_rng(1)
    sizes = [3, 5, 4, 6]
    first = np.cumsum([0, *sizes])
    pairs = []
    for graph, size in enumerate(sizes):
        ends = draw.integers(0, size, (12, 2)) + first[graph] + 1
        pairs += [*ends.tolist(), *ends[:, ::-1].tolist()]
    nodes = sum(sizes)
    lines = {
        "A": [f"{i}, {j}" for i, j in pairs],
        "graph_indicator": np.repeat([1, 2, 3, 4], sizes).tolist(),
        "node_labels": [f"{a}, {b}" for a, b in draw.integers(2, 5, (nodes, 2))],
        "node_attributes": [f"{a:.4f},{b:.3e}" for a, b in draw.normal(size=(nodes, 2))],
        "edge_labels": draw.integers(-1, 2, len(pairs)).tolist(),
        "edge_attributes": [f"{a:.5f}" for a in draw.normal(size=len(pairs))],
        "graph_labels": [3, -1, 3, 7],
    }
    raw = root / "RICH" / "raw"
    raw.mkdir(parents=True)
    for part, rows in lines.items():
        (raw / f"RICH_{part}.txt").write_text("".join(f"{row}\n" for row in rows))
    return raw


def pack(raw: Path, target: Path, folder: str = "") -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(raw.iterdir()):
            archive.write(file, folder + file.name)
    return target


def edit(raw: Path, part: str, change: Callable[[list[str]], list[str]]) -> None:
    file = next(raw.glob(f"*_{part}.txt"))
    lines = file.read_text().splitlines()
    file.write_text("".join(f"{line}\n" for line in change(lines)))


def test_all_that_the_format_has_is_read_as_pyg_reads_it(tmp_path: Path) -> None:
    raw = write_rich(tmp_path)
    ours = read_tu(raw)
    theirs = pyg_reads(tmp_path, "RICH")
    assert ours.graph.num_edge_features == 4
    assert torch.equal(ours.graph.x, theirs.graph.x)
    assert torch.equal(ours.graph.edge_index, theirs.graph.edge_index)
    assert theirs.graph.edge_attr is not None
    assert ours.graph.edge_attr is not None
    torch.testing.assert_close(ours.graph.edge_attr, theirs.graph.edge_attr)
    assert torch.equal(ours.graph.batch, theirs.graph.batch)
    assert ours.y is not None
    assert ours.y.tolist() == [1, 0, 1, 2]
    assert ours.classes == ("-1", "3", "7")


def test_folder_file_and_archive_hold_the_same(tmp_path: Path) -> None:
    raw = write_rich(tmp_path)
    expected = read_tu(raw).fingerprint()
    sources = [
        raw.parent,
        raw / "RICH_A.txt",
        pack(raw, tmp_path / "flat.zip"),
        pack(raw, tmp_path / "deep.zip", "some/RICH/"),
    ]
    for source in sources:
        assert is_tu(source)
        assert read_tu(source).fingerprint() == expected
        assert open_source(str(source)).fingerprint() == expected
    assert not is_tu(tmp_path)


def test_nodes_in_any_order_and_graphs_without_edges(tmp_path: Path) -> None:
    (tmp_path / "T_A.txt").write_text("1, 3\r\n3, 1\r\n")  # lines as Windows ends them
    (tmp_path / "T_graph_indicator.txt").write_text("2\n1\n2\n3")
    (tmp_path / "T_node_attributes.txt").write_text("1\n2\n3\n4\n")
    dataset = read_tu(tmp_path)
    assert dataset.graph.batch.tolist() == [0, 1, 1, 2]
    assert dataset.graph.x[:, 0].tolist() == [2, 1, 3, 4]
    assert dataset.graph.edge_index.tolist() == [[1, 2], [2, 1]]
    assert dataset.y is None


def test_no_edges_at_all(tmp_path: Path) -> None:
    (tmp_path / "T_A.txt").write_text("")
    (tmp_path / "T_graph_indicator.txt").write_text("1\n2\n")
    assert read_tu(tmp_path).graph.num_edges == 0


def test_attributes_of_graphs_are_amounts_to_predict(tmp_path: Path) -> None:
    tiny.write_graphs(tmp_path, graphs=3)
    raw = tmp_path / "TINY" / "raw"
    (raw / "TINY_graph_attributes.txt").write_text("0.5\n1.5\n2.5\n")
    one = read_tu(raw)
    assert one.y is not None
    assert one.y.tolist() == [0.5, 1.5, 2.5]
    assert one.targets["label"].tolist() == [0, 1, 0]
    (raw / "TINY_graph_attributes.txt").write_text("1,2\n3,4\n5,6\n")
    two = read_tu(raw)
    assert two.y is not None
    assert two.y.tolist() == [0, 1, 0]
    assert two.targets["attribute_1"].tolist() == [2, 4, 6]


def need_mutag() -> Path:
    """The raw files of MUTAG, where they are."""
    root = os.environ.get("LG2AR_DATA")
    if not root or not (Path(root) / "MUTAG" / "raw").is_dir():
        pytest.skip("needs the benchmark data: set LG2AR_DATA to its root")
    return Path(root) / "MUTAG"


def test_mutag_has_the_embeddings_of_the_benchmark(tmp_path: Path) -> None:
    folder = need_mutag()
    benchmark = open_benchmark("mutag")
    expected = experiment.pretrain(benchmark, BRIEF, device="cpu").embed(benchmark)
    for source in (folder, pack(folder / "raw", tmp_path / "MUTAG.zip", "MUTAG/")):
        dataset = read_tu(source)
        plain = replace(dataset, graph=dataset.graph.replace(edge_attr=None))
        assert torch.equal(experiment.pretrain(plain, BRIEF, device="cpu").embed(plain), expected)


def test_mutag_with_bonds_has_the_embeddings_of_what_pyg_reads(tmp_path: Path) -> None:
    folder = need_mutag()
    (tmp_path / "MUTAG").mkdir()
    (tmp_path / "MUTAG" / "raw").symlink_to(folder / "raw")
    theirs, ours = pyg_reads(tmp_path, "MUTAG"), read_tu(folder)
    assert ours.graph.num_edge_features == 4
    assert ours.fingerprint() == theirs.fingerprint()
    rows = [experiment.pretrain(d, BRIEF, device="cpu").embed(d) for d in (ours, theirs)]
    assert torch.equal(rows[0], rows[1])


def lines(*rows: str) -> Callable[[list[str]], list[str]]:
    """Put these in the place of the first lines."""
    return lambda old: [*rows, *old[len(rows) :]]


@pytest.mark.parametrize(
    ("part", "change", "expected"),
    [
        ("A", lines("1, 2", "1"), "RICH_A.txt: line 2 has 1 numbers where line 1 has 2"),
        ("A", lines("1, 2, 3"), "RICH_A.txt: line 2 has 2 numbers where line 1 has 3"),
        ("A", lambda old: ["1", "2"], "RICH_A.txt: line 1 has 1 numbers; an edge is two nodes"),
        ("A", lines("1, 2", "1, x"), "RICH_A.txt: line 2 holds '1, x', which is not a whole numb"),
        ("A", lines("1, 2", ""), "RICH_A.txt: line 2 has 1 numbers where line 1 has 2"),
        ("A", lines("1, 1.5"), "RICH_A.txt: line 1 holds '1, 1.5', which is not a whole number"),
        ("A", lines("1, 2", "2, 999"), "line 2 names node 999, but RICH_graph_indicator.txt lists"),
        ("A", lines("0, 1"), "line 1 names node 0"),
        ("A", lines("1, 2", "1, 4"), "line 2 joins a node of graph 1 to one of graph 2"),
        ("A", lines(f"1, {2**70}"), "line 1 holds"),
        (
            "A",
            lambda old: old[:-1],
            "edge_attributes.txt: has 96 lines where there are 95 edges in",
        ),
        ("graph_indicator", lambda old: [], "graph_indicator.txt: holds no nodes"),
        ("graph_indicator", lines("0"), "line 1 names graph 0; graphs are numbered from 1"),
        ("graph_indicator", lambda old: [*old[:-1], "9"], "line 18 names graph 9, but graph 8 has"),
        ("graph_indicator", lines("1, 1"), "graph_indicator.txt: line 2 has 1 numbers"),
        ("graph_indicator", lambda old: old[:-6], "names node"),
        ("node_attributes", lines("1,2", "nan,2"), "line 2 holds a number that is not finite"),
        ("node_attributes", lines("1,1e60"), "line 1 holds a number that is not finite"),
        ("node_attributes", lambda old: old[:4], "has 4 lines where there are 18 nodes in RICH_gr"),
        ("node_labels", lines("1, 99999999"), "labels run from 2 to 99999999 (line 1)"),
        (
            "edge_labels",
            lambda old: [*old, "0"],
            "edge_labels.txt: has 97 lines where there are 96",
        ),
        (
            "graph_labels",
            lambda old: old[1:],
            "graph_labels.txt: has 3 lines where there are 4 gra",
        ),
        ("graph_labels", lines("a"), "graph_labels.txt: line 1 holds 'a'"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    tmp_path: Path, part: str, change: Callable[[list[str]], list[str]], expected: str
) -> None:
    raw = write_rich(tmp_path)
    edit(raw, part, change)
    with pytest.raises(InputError) as caught:
        read_tu(raw)
    assert expected in str(caught.value)
    assert str(raw) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["1\n".encode("utf-16"), b"\x00\x01\x02", b"\xff1\n"])
def test_other_encodings_are_named(tmp_path: Path, content: bytes) -> None:
    raw = write_rich(tmp_path)
    (raw / "RICH_graph_indicator.txt").write_bytes(content)
    with pytest.raises(InputError, match=r"graph_indicator.txt: line 1 holds .* not a whole"):
        read_tu(raw)


def test_a_missing_part_and_two_data_sets_are_named(tmp_path: Path) -> None:
    raw = write_rich(tmp_path)
    (raw / "RICH_graph_indicator.txt").rename(raw / "RICH_other.txt")
    with pytest.raises(InputError, match=r"has no file RICH_graph_indicator\.txt"):
        read_tu(raw)
    (raw / "MORE_A.txt").write_text("1, 2\n")
    with pytest.raises(InputError, match="holds 2 data sets"):
        read_tu(raw)
    with pytest.raises(InputError, match=r"holds no file that ends in _A\.txt"):
        read_tu(tmp_path)
    with pytest.raises(InputError, match="there is no such file"):
        read_tu(tmp_path / "nothing.zip")


def hostile(kind: str, path: Path) -> Path:
    """Archives that somebody made in bad faith."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("T_graph_indicator.txt", "1\n")
        if kind == "bomb":
            archive.writestr("T_A.txt", b"1, 1\n" * (20 << 20))
            return path
        archive.writestr("T_A.txt", "1, 1\n")
        if kind == "traversal":
            archive.writestr("../../evil_A.txt", "1, 1\n")
        if kind == "absolute":
            archive.writestr("/etc/evil.txt", "1, 1\n")
        if kind == "backslashes":
            archive.writestr("..\\evil.txt", "1, 1\n")
        if kind == "link":
            info = zipfile.ZipInfo("T_node_labels.txt")
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, "/etc/passwd")
    if kind == "locked":
        content = bytearray(path.read_bytes())
        for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            at = content.find(mark)
            content[at + place] |= 1
        path.write_bytes(content)
    if kind == "lying":  # declares fewer bytes than it holds
        content = bytearray(path.read_bytes())
        at = content.find(b"PK\x01\x02", content.find(b"PK\x01\x02") + 1)
        content[at + 24 : at + 28] = struct.pack("<I", 2)
        path.write_bytes(content)
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:-30])
    if kind == "changed":
        content = bytearray(path.read_bytes())
        content[len("T_graph_indicator.txt") + 31] ^= 0xFF
        path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bomb", "would grow to 104857602 bytes"),
        ("traversal", "'../../evil_A.txt' points outside of the archive"),
        ("absolute", "'/etc/evil.txt' points outside"),
        ("backslashes", "points outside"),
        ("link", "'T_node_labels.txt' is a link"),
        ("locked", "is locked with a password"),
        ("lying", "is damaged"),
        ("cut", "is damaged, or no zip archive"),
        ("changed", "is damaged"),
    ],
)
def test_hostile_archives_are_refused(tmp_path: Path, kind: str, expected: str) -> None:
    path = hostile(kind, tmp_path / "T.zip")
    with pytest.raises(InputError) as caught:
        read_tu(path)
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["T.zip"]


def test_an_honest_archive_of_the_same_kind_is_read(tmp_path: Path) -> None:
    assert read_tu(hostile("none", tmp_path / "T.zip")).graph.num_nodes == 1
