"""Embeddings as files: written and read back to the last bit, with ids and labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lg2ar.embeddings import FORMATS, read_embeddings, write_embeddings
from lg2ar.errors import InputError

IDS = ("ann", "1", 'b, "c"', "NA")


def rows() -> torch.Tensor:
    values = torch.randn(4, 3)
    values[0, 0], values[1, 1], values[2, 2] = 1 / 3, 1e-38, 3e38
    return values


@pytest.mark.parametrize("ending", FORMATS)
def test_ids_numbers_and_labels_come_back(tmp_path: Path, ending: str) -> None:
    path, values = tmp_path / f"e{ending}", rows()
    write_embeddings(path, values, ids=IDS, y=torch.tensor([1, 0, 1, 1]), classes=("no", "yes"))
    held = read_embeddings(path)
    assert torch.equal(held.rows, values)
    assert held.ids.tolist() == list(IDS)
    assert held.y is not None
    assert held.y.tolist() == ["yes", "no", "yes", "yes"]


@pytest.mark.parametrize("ending", FORMATS)
def test_without_names_rows_are_numbered_and_labels_stay_numbers(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"e{ending}"
    write_embeddings(path, rows(), y=torch.tensor([0.5, 2, 3, 4]))
    held = read_embeddings(path)
    assert held.ids.tolist() == [0, 1, 2, 3]
    assert held.y is not None
    assert held.y.tolist() == [0.5, 2, 3, 4]
    write_embeddings(path, rows())
    assert read_embeddings(path).y is None


def test_labels_of_something_else_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "e.npz"
    write_embeddings(path, rows(), y=torch.tensor([1, 2]), classes=("a", "b", "c"))
    assert read_embeddings(path).y is None


@pytest.mark.parametrize("ending", FORMATS)
def test_what_is_no_file_of_embeddings_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"e{ending}"
    with pytest.raises(InputError, match="no such file"):
        read_embeddings(path)
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(InputError, match=r"is not a file of embeddings.*lg2ar embed"):
        read_embeddings(path)
    with pytest.raises(InputError, match=r"written as \.parquet, \.csv, \.npz"):
        read_embeddings(tmp_path / "e.txt")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", id=np.array([{}], dtype=object), embedding=np.ones((1, 1)))
    with pytest.raises(InputError, match="is not a file of embeddings"):
        read_embeddings(tmp_path / "e.npz")
