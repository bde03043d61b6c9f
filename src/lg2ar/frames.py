"""Tables of results as files: a row per graph or node, with its id."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lg2ar.errors import InputError
from lg2ar.files import write_bytes

if TYPE_CHECKING:
    import pandas as pd

    from lg2ar.data.dataset import Dataset

FORMATS = (".csv", ".parquet", ".npz")


def row_ids(dataset: Dataset) -> np.ndarray:
    """What each graph (or node) is called; where the data does not say, its place."""
    if dataset.ids is None or len(dataset.ids) != len(dataset):
        return np.arange(len(dataset))
    return np.array(dataset.ids, dtype=object)


def check_format(path: Path, formats: tuple[str, ...] = FORMATS) -> None:
    """Refuse a file name whose ending says nothing we write, before any work is done."""
    if path.suffix not in formats:
        raise InputError(f"{path}: a table is written as {', '.join(formats)}; choose one.")


def write_frame(path: Path, table: pd.DataFrame) -> None:
    """Write a table whole or not at all; the file's ending says how."""
    check_format(path)
    content = io.BytesIO()
    if path.suffix == ".csv":
        table.to_csv(content, index=False)
    elif path.suffix == ".parquet":
        table.to_parquet(content, index=False)
    else:
        write_arrays(path, {str(name): table[name].to_numpy() for name in table})
        return
    write_content(path, content.getvalue())


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an ``.npz`` file whole or not at all; words are stored as Unicode, not as objects."""
    content = io.BytesIO()
    np.savez_compressed(content, **{name: _plain(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    write_content(path, content.getvalue())


def write_content(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, its folder too where that is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None


def _plain(values: np.ndarray) -> np.ndarray:
    return values if values.dtype.kind in "biuf" else values.astype(str)
