"""Molecules: the graphs PyG makes of the same SMILES, and what becomes of those that are none."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from lg2ar import experiment
from lg2ar.data.chemistry import ATOM, BOND
from lg2ar.data.dataset import Dataset
from lg2ar.data.molecules import atom_features, bond_features, read_smiles
from lg2ar.data.reading import ReadOptions
from lg2ar.data.sources import open_source
from lg2ar.errors import InputError

pytest.importorskip("rdkit")
from rdkit import Chem, RDConfig
from torch_geometric.utils import from_smiles
from torch_geometric.utils.smiles import e_map, x_map

BRIEF = {"hidden": 8, "layers": 2, "epochs": 1, "batch_size": 64}

# A ring closed, charges, isotopes, both kinds of stereo, radicals, metals, salts, single atoms.
SAMPLE = [
    "CCO",
    "c1ccccc1C(=O)O",
    "[Na+].[Cl-]",
    "C",
    "F/C=C/F",
    "F/C=C\\F",
    "C[C@H](N)C(=O)O",
    "C[C@@H](N)C(=O)O",
    "N#N",
    "[CH3]",
    "[O-][N+](=O)c1ccc(cc1)O",
    "CC(=O)[O-].[Fe+2].CC(=O)[O-]",
    "[U]",
    "[2H]O[2H]",
    "FS(F)(F)(F)(F)F",
    "OC1CC2CC1C=C2",
]


def nci(number: int = 1000) -> list[str]:
    """Real molecules that come with RDKit."""
    path = Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi"
    if not path.is_file():
        pytest.skip("this RDKit comes without its data")
    return [line.split()[0] for line in path.read_text().splitlines()[:number]]


def told(rows: torch.Tensor, properties: dict[str, tuple[str, ...]]) -> list[dict[str, str]]:
    """What one-hot features say, in words."""
    said: list[dict[str, str]] = [{} for _ in rows]
    first = 0
    for name, values in properties.items():
        width = len(values) + 1 if values else 1
        part = rows[:, first : first + width]
        first += width
        for row, numbers in zip(said, part.tolist(), strict=True):
            if values:
                assert sum(numbers) == 1
                row[name] = (*values, "other")[numbers.index(1)]
            else:
                row[name] = str(bool(numbers[0]))
    assert first == rows.size(1)
    return said


def edges_of(dataset: Dataset, graph: int) -> torch.Tensor:
    inside = dataset.graph.batch[dataset.graph.edge_index[0]] == graph
    return inside.nonzero().squeeze(1)


def test_graphs_and_features_are_those_pyg_makes() -> None:
    smiles = [*SAMPLE, *nci(200)]
    dataset = read_smiles(smiles)
    assert dataset.graph.num_graphs == len(smiles)
    assert dataset.graph.edge_attr is not None
    atoms, bonds = told(dataset.graph.x, ATOM), told(dataset.graph.edge_attr, BOND)
    table = Chem.GetPeriodicTable()
    first = dataset.graph.ptr.tolist()
    for place, text in enumerate(smiles):
        theirs = from_smiles(text)
        edges = edges_of(dataset, place)
        ends = dataset.graph.edge_index[:, edges] - first[place]
        assert torch.equal(ends, theirs.edge_index)
        for atom, row in zip(
            atoms[first[place] : first[place + 1]], theirs.x.tolist(), strict=True
        ):
            number, chirality, degree, charge, hydrogens, radicals, hybrid, aromatic, ring = row
            element = table.GetElementSymbol(number)
            assert atom["element"] == (element if element in ATOM["element"] else "other")
            assert atom["chirality"] == x_map["chirality"][chirality]
            kind = x_map["hybridization"][hybrid]
            assert atom["hybridisation"] == (kind if kind in ATOM["hybridisation"] else "other")
            assert atom["degree"] == str(degree)
            assert atom["charge"] == str(charge - 5)
            assert atom["hydrogens"] == str(hydrogens)
            assert atom["radical electrons"] == (str(radicals) if radicals < 3 else "other")
            assert atom["aromatic"] == str(bool(aromatic))
            assert atom["in a ring"] == str(bool(ring))
        for edge, row in zip(edges.tolist(), theirs.edge_attr.tolist(), strict=True):
            kind = e_map["bond_type"][row[0]]
            assert bonds[edge]["bond"] == (kind if kind in BOND["bond"] else "other")
            assert bonds[edge]["stereo"] == e_map["stereo"][row[1]]
            assert bonds[edge]["conjugated"] == str(bool(row[2]))


def test_a_carbon_of_ethanol_by_hand() -> None:
    dataset = read_smiles(["CCO"])
    atom = told(dataset.graph.x, ATOM)[1]
    assert atom == {
        "element": "C",
        "chirality": "CHI_UNSPECIFIED",
        "degree": "4",
        "charge": "0",
        "hydrogens": "2",
        "radical electrons": "0",
        "hybridisation": "SP3",
        "aromatic": "False",
        "in a ring": "False",
    }
    assert dataset.graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert len(atom_features()) == dataset.graph.num_features
    assert len(bond_features()) == dataset.graph.num_edge_features


def test_features_do_not_depend_on_what_else_is_there() -> None:
    alone, among = read_smiles(["c1ccncc1"]), read_smiles(["c1ccncc1", *SAMPLE])
    assert torch.equal(alone.graph.x, among.graph.x[:6])
    single = read_smiles(["[Xe]"])
    assert single.graph.num_features == alone.graph.num_features
    assert single.graph.num_edge_features == alone.graph.num_edge_features


def test_a_thousand_molecules_take_seconds() -> None:
    smiles = nci()
    start = time.process_time()
    dataset = read_smiles(smiles)
    assert time.process_time() - start < 10
    assert dataset.graph.num_graphs == 1000


def test_molecules_that_cannot_be_read_are_listed_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(
        'smiles,activity,mass\nCCO,active,46\nC1CC,active,1\n"C(C)(C)(C)(C)C",no,2\n,no,3\nCC,no,30\n'
    )
    dataset = read_smiles(path)
    assert dataset.graph.sizes.tolist() == [3, 2]
    assert dataset.ids == ("0", "4")
    assert dataset.targets["mass"].tolist() == [46, 30]
    assert dataset.targets["activity"].tolist() == ["active", "no"]
    assert dataset.targets["smiles"].tolist() == ["CCO", "CC"]
    (note,) = dataset.notes
    assert note.startswith(f"{path}: 3 of 5 molecules cannot be read and are left out: ")
    assert "line 3 'C1CC': is not SMILES" in note
    assert "line 4 'C(C)(C)(C)(C)C': Explicit valence for atom # 0 C, 5" in note
    assert "line 5" in note
    with pytest.raises(InputError, match=r"m\.csv: line 3 'C1CC': is not SMILES; correct it"):
        read_smiles(path, strict=True)


def test_rdkit_itself_says_nothing() -> None:
    # In a process of its own: PyG silences RDKit for good in this one.
    code = "from lg2ar.data.molecules import read_smiles; read_smiles(['C', 'C1CC', 'CF(C)C'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


def test_tables_of_all_kinds_hold_the_same(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "name": [f"mol {place}" for place in range(len(SAMPLE))],
            "Drug": SAMPLE,
            "y": [place % 2 for place in range(len(SAMPLE))],
            "logp": np.linspace(-1, 1, len(SAMPLE)),
        }
    )
    frame.to_csv(tmp_path / "m.csv", index=False)
    frame.to_csv(tmp_path / "m.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "m.parquet", index=False)
    expected = read_smiles(frame, column="Drug")
    assert expected.ids == tuple(frame["name"])
    assert expected.y is not None
    assert expected.y.tolist() == frame["y"].tolist()
    for name in ("m.csv", "m.tsv", "m.parquet"):
        found = read_smiles(tmp_path / name)  # the column is found by what it holds
        assert found.fingerprint() == expected.fingerprint()
        assert found.ids == expected.ids
        np.testing.assert_allclose(found.targets["logp"], frame["logp"])
        assert found.reading["smiles"] == "Drug"
        named = open_source(str(tmp_path / name), options=ReadOptions(smiles="Drug"))
        assert named.fingerprint() == expected.fingerprint()
    amounts = read_smiles(frame, labels="logp", column="Drug").y
    assert amounts is not None
    assert amounts.is_floating_point()
    assert torch.equal(open_source(SAMPLE).graph.x, expected.graph.x)


def test_smi_files_have_names_remarks_and_headings(tmp_path: Path) -> None:
    path = tmp_path / "m.smi"
    path.write_text("# remark\nsmiles name\nCCO\tethanol\nC methane gas\n\nbad! worse\n")
    dataset = open_source(str(path))
    assert dataset.ids == ("ethanol", "methane gas")
    assert "line 6 'bad!'" in dataset.notes[0]


def test_words_as_labels_and_missing_ones() -> None:
    frame = pd.DataFrame({"smiles": ["C", "CC", "CCC", "CO", "N"], "label": list("ababa")})
    assert read_smiles(frame).classes == ("a", "b")
    frame["label"] = ["a", None, "a", "b", "a"]
    dataset = read_smiles(frame)
    assert dataset.y is None
    assert dataset.targets["label"].tolist() == ["a", None, "a", "b", "a"]
    assert any("has no label for some" in note for note in dataset.notes)


def test_unseen_molecules_are_embedded(tmp_path: Path) -> None:
    run = experiment.pretrain(read_smiles(SAMPLE), BRIEF, device="cpu")
    rows = run.embed(["[Xe]", "CCBr"])
    assert rows.shape[0] == 2
    assert rows.isfinite().all()
    again = run.embed(["CCBr", "[Xe]"])
    torch.testing.assert_close(rows[0], again[1])


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"smiles,y\n", "holds no molecules"),
        ("a.csv", b"smiles,y\nC,1\nC,1,2\n", "line 3 has 3 cells"),
        ("a.csv", b"smiles,y\nC\n", "line 2 has 1 cells"),
        ("a.csv", b"smiles,y\n\xff\xfe,1\n", "line 2 holds the byte 0xff"),
        ("a.csv", b"smiles,smiles\nC,C\n", "names column 'smiles' twice"),
        ("a.csv", b"a,b\nx,y\nz,w\n", "no column holds SMILES, of 'a', 'b'"),
        ("a.csv", b"smiles\nxx\nzz\n", "none of the 2 molecules can be read, to begin with line 2"),
        ("a.smi", b"", "holds no molecules"),
        ("a.smi", b"C\n\xff\n", "line 2 is not UTF-8 text"),
        ("a.parquet", b"PAR1nonsense", "is not a readable Parquet file"),
        ("a.smi", b"C" * 20_000, "has 20000 characters"),
        ("a.smi", b"C" + b"(" * 5000, "is not SMILES"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_smiles(path)
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_that_is_not_there_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("smiles\nC\n")
    with pytest.raises(InputError, match="has no column 'mol'; there are 'smiles'"):
        read_smiles(path, column="mol")
    with pytest.raises(InputError, match="no column 'z' for their labels"):
        read_smiles(path, labels="z")
    for name in ("b.csv", "b.smi", "b.parquet"):
        with pytest.raises(InputError, match="there is no such file"):
            read_smiles(tmp_path / name)
    with pytest.raises(InputError, match="the list: holds no molecules"):
        read_smiles([])


def test_without_rdkit_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(InputError, match=r"install it with pip install 'lg2ar\[chem\]'"):
        read_smiles(["C"])


def test_lists_in_parquet_are_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pd.DataFrame({"smiles": ["C", "CC"], "bits": [[1, 2], [3, 4]]}).to_parquet(path)
    dataset = read_smiles(path)
    assert set(dataset.targets) == {"smiles"}
    assert any("Column 'bits' holds list" in note for note in dataset.notes)


def test_many_bad_molecules_are_counted_and_the_first_named(tmp_path: Path) -> None:
    with open(tmp_path / "a.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles"])
        writer.writerows([["C"], *[["nonsense"]] * 50])
    (note,) = read_smiles(tmp_path / "a.csv").notes
    assert "50 of 51 molecules" in note
    assert "line 22" in note
    assert "and 30 more" in note
    assert os.linesep not in note
