"""Archives cannot write outside of their folder, expand without bound, or follow links.

The same for other files that are larger when they are read than on the disk.
"""

from __future__ import annotations

import io
import json
import sqlite3
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from faults.fuzz import seeds
from faults.fuzz.guard import new_peak, peak
from lg2ar.data import archives, downloads, planetoid, table_files
from lg2ar.data.archives import read_npz, read_zip
from lg2ar.data.conversion import write_on_disk
from lg2ar.data.mapped import read_mapped
from lg2ar.data.mapping import write_mapped
from lg2ar.data.on_disk import read_on_disk
from lg2ar.data.sources import read
from lg2ar.data.sparse_arrays import dense
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.embeddings import read_embeddings
from lg2ar.errors import InputError
from lg2ar.experiment import pretrain
from lg2ar.finetuning.saved import load_finetuned
from lg2ar.runs import load
from lg2ar.shipping import read_encoder
from sealing import sealed, write_sealed

OUTSIDE = ("../T_A.txt", "/T_A.txt", "x/../../T_A.txt", "..\\T_A.txt", "C:\\T_A.txt", "C:T_A.txt")


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """No test in here may take more than half a gigabyte."""
    before = new_peak()
    yield
    grown = peak() - before
    assert grown < 512 << 10, f"took {grown >> 10} MiB"


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_outside_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "T.zip"
    path.write_bytes(seeds.zipped({name: b"1, 1\n"}))
    with pytest.raises(InputError, match="points outside of the archive"):
        read(path)
    assert [file.name for file in tmp_path.iterdir()] == ["T.zip"]


def test_links_are_refused_and_not_followed(tmp_path: Path) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(link("T_A.txt"), "/etc/passwd")
    path = tmp_path / "T.zip"
    path.write_bytes(held.getvalue())
    with pytest.raises(InputError, match="is a link"):
        read(path)


def test_a_member_that_grows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "T.zip"
    path.write_bytes(seeds.zipped({"T_A.txt": bytes(100 << 20)}))
    with pytest.raises(InputError, match="would grow to 104857600 bytes"):
        read(path)


def test_a_member_that_declares_too_little_is_refused(tmp_path: Path) -> None:
    content = bytearray(seeds.zipped({"T_A.txt": bytes(50 << 20)}))
    size, small = (50 << 20).to_bytes(4, "little"), (5).to_bytes(4, "little")
    assert content.count(size) >= 1
    path = tmp_path / "T.zip"
    path.write_bytes(bytes(content).replace(size, small))
    with pytest.raises(InputError, match="is damaged"):
        read(path)


def test_members_that_share_their_bytes_are_counted_each(tmp_path: Path) -> None:
    """The bomb of many names for one content."""
    content = seeds.zipped({"T_A.txt": bytes(2 << 20)})
    at = content.index(b"PK\x01\x02")
    entry = content[at : content.index(b"PK\x05\x06")]
    end = bytearray(content[content.index(b"PK\x05\x06") :])
    number = 60
    for place in (8, 10):
        end[place : place + 2] = number.to_bytes(2, "little")
    end[12:16] = (len(entry) * number).to_bytes(4, "little")
    path = tmp_path / "T.zip"
    path.write_bytes(content[:at] + entry * number + bytes(end))
    with pytest.raises(InputError, match="would grow to 125829120 bytes"):
        read(path)


def test_what_is_not_wanted_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "T.zip"
    path.write_bytes(seeds.zipped({"other": bytes(100 << 20), "T_A.txt": b"1"}))
    assert read_zip(path, lambda name: name == "T_A.txt") == {"T_A.txt": b"1"}


@pytest.mark.parametrize(
    ("reader", "name"), [(read, "edge_index"), (read_embeddings, "embedding")], ids=["data", "rows"]
)
def test_arrays_that_grow_are_refused(
    reader: Callable[[Path], Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "LARGE_ARRAYS", 1 << 20)
    path = tmp_path / "some.npz"
    np.savez_compressed(path, **{name: np.zeros((2, 1 << 18))})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="would grow"):
        reader(path)
    np.savez(path, **{name: np.zeros((2, 1 << 18))})  # type: ignore[arg-type]
    assert read_npz(path, [name])[name].shape == (2, 1 << 18)


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20), (-1,), (2, -2), (1 << 70,)])
def test_arrays_that_claim_to_be_large_are_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    held = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(held, header)
    path = tmp_path / "some.npz"
    path.write_bytes(seeds.zipped({"edge_index.npy": held.getvalue() + bytes(16)}))
    with pytest.raises(InputError, match="not a readable"):
        read(path)


def test_a_parquet_table_of_equal_values_is_refused_where_it_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "edges.parquet"
    pd.DataFrame({"source": ["a"] * 200_000, "target": ["b"] * 200_000}).to_parquet(path)
    assert len(read(path)) == 2
    assert path.stat().st_size < 5000
    monkeypatch.setattr(table_files, "SMALL_CELLS", 1000)
    with pytest.raises(InputError, match="to 200000 rows of 2 columns, which is refused"):
        read(path)


def test_sparse_matrices_that_claim_to_be_large_are_refused() -> None:
    empty, none = np.empty(0), np.empty(0, dtype=np.int64)
    with pytest.raises(ValueError, match="a matrix of"):
        dense(empty, none, np.zeros(10**6 + 1, dtype=np.int64), (10**6, 10**6))
    with pytest.raises(ValueError, match="outside of the matrix"):
        dense(np.ones(1), np.array([7]), np.array([0, 1]), (1, 7))
    with pytest.raises(ValueError, match="do not follow"):
        dense(np.ones(1), np.array([0]), np.array([0, 9, 1]), (2, 7))


SPOILT = {
    "a view": "CREATE VIEW graphs AS SELECT * FROM rows",
    "a computed column": "CREATE TABLE graphs (id INTEGER PRIMARY KEY, COL_num_nodes INTEGER, "
    "COL_num_edges INTEGER, COL_edge_index BLOB AS (zeroblob(900000000)) VIRTUAL)",
    "a virtual table": "CREATE VIRTUAL TABLE graphs USING fts5(id, COL_num_nodes, COL_num_edges)",
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_database_shows_what_is_stored_and_nothing_else(what: str, tmp_path: Path) -> None:
    path = tmp_path / "some.sqlite"
    path.write_bytes(seeds.sqlite())
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE graphs")
    try:
        connection.execute(SPOILT[what])
    except sqlite3.OperationalError as error:
        connection.close()
        pytest.skip(f"this SQLite cannot make {what}: {error}")
    connection.execute("PRAGMA wal_checkpoint")
    connection.commit()
    connection.close()
    with pytest.raises(InputError, match=r"its tables are not there|a computed column"):
        read(path)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("config", {"hidden": 65536, "layers": 64}),
        ("recipe", {"name": "one-hot-degree", "cap": 10**12}),
        ("recipe", {"given": 10**12}),
        ("recipe", {"edges_given": 10**12}),
    ],
)
def test_settings_that_claim_a_large_model_are_refused(
    part: str, change: dict[str, Any], tmp_path: Path
) -> None:
    files = seeds.run()[1]
    head = json.loads(files["run.json"])
    head[part].update(change)
    for name, content in {**files, "run.json": seeds.json_bytes(head)}.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="weights do not fit its settings"):
        load(tmp_path, device="cpu")
    with pytest.raises(InputError, match="weights do not fit its settings"):
        pretrain(seeds.tables(), None, out=tmp_path, resume=True, device="cpu")
    files = seeds.fine_tuned()
    head = json.loads(files["finetuned.json"])
    head[part].update(change)
    for name, content in {**files, "finetuned.json": seeds.json_bytes(head)}.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="does not fit the rest"):
        load_finetuned(tmp_path, device="cpu")


def test_a_shipped_encoder_that_claims_to_be_large_is_refused(tmp_path: Path) -> None:
    content = seeds.shipped()
    path = tmp_path / "some.safetensors"
    small, large = b'hidden\\": 4, ', b'hidden\\": 65536, '
    assert content.count(small) == 1
    size = int.from_bytes(content[:8], "little") + len(large) - len(small)
    path.write_bytes(sealed(size.to_bytes(8, "little") + content[8:].replace(small, large)))
    with pytest.raises(InputError, match="another shape"):
        read_encoder(path)


def test_a_downloaded_archive_writes_its_own_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {f"TINY/TINY_{part}.txt": content for part, content in seeds.TU.items()}
    whole = {**texts, "TINY/README.txt": b"hello", "TINY/.bashrc": b"evil"}
    monkeypatch.setattr(downloads, "fetch", lambda _: seeds.zipped(whole))
    downloads.download("TUDataset", "TINY", tmp_path / "raw")
    written = {path.name for path in (tmp_path / "raw").iterdir()}
    assert written == {f"TINY_{part}.txt" for part in seeds.TU}
    for name in OUTSIDE:
        spoilt = {**texts, name.replace("T_A", "TINY_A"): b"evil"}
        monkeypatch.setattr(downloads, "fetch", lambda _, held=spoilt: seeds.zipped(held))
        with pytest.raises(ValueError, match="points outside"):
            downloads.download("TUDataset", "TINY", tmp_path / "other")
    assert [path.name for path in tmp_path.rglob("*") if "evil" in _text(path)] == []


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def test_lists_that_nodes_share_are_refused() -> None:
    """Or some kilobytes of pickle would become gigabytes of edges."""
    shared = [0, 1]
    with pytest.raises(ValueError, match="several nodes share"):
        planetoid._edges({0: shared, 1: shared}, 2)
    assert planetoid._edges({0: [1], 1: [0]}, 2).tolist() == [[0, 1], [1, 0]]


def test_a_matrix_of_many_repeated_places_is_refused() -> None:
    places = np.zeros(2_000_000, dtype=np.int64)
    begins = np.zeros(100_001, dtype=np.int64)
    begins[1:] = len(places)
    with pytest.raises(ValueError, match="a matrix of 100000 times 20000 numbers"):
        dense(np.ones(len(places)), places, begins, (100_000, 20_000))


def test_arrays_outside_of_a_mapped_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a.graph"
    write_mapped(folder, toy_nodes(20))
    manifest = json.loads((folder / "graph.json").read_text())
    manifest["arrays"]["../secret"] = manifest["arrays"]["to"]
    write_sealed(folder / "graph.json", manifest)
    with pytest.raises(InputError, match="arrays that no conversion writes"):
        read_mapped(folder)


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE checks (id INTEGER, sums AS (zeroblob(9)))",
        "CREATE VIRTUAL TABLE checks USING fts5(id, sums)",
    ],
)
def test_checksums_that_are_made_up_are_refused(made: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    write_on_disk(path, toy_graphs(5))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE checks")
        connection.execute(made)
        connection.commit()
    with pytest.raises(InputError, match="'checks'"):
        read_on_disk(path)
