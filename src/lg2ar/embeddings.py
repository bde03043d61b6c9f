"""Embeddings as files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor

from lg2ar.errors import InputError
from lg2ar.files import write_bytes

FORMATS = (".parquet", ".csv", ".npz")


def check_format(path: Path) -> None:
    """Refuse a file name whose ending says nothing we write, before any work is done."""
    if path.suffix not in FORMATS:
        raise InputError(f"{path}: embeddings are written as {', '.join(FORMATS)}; choose one.")


def write_embeddings(path: Path, rows: Tensor, y: Tensor | None = None) -> None:
    """Write embeddings with the place of each row and, where there are some, the labels.

    Args:
        path: File to write, whole or not at all; its ending says how.
        rows: A row per graph or node.
        y: A label per row.
    """
    check_format(path)
    values = rows.numpy()
    if y is not None and len(y) != len(values):
        y = None  # labels of something else, of the nodes of a graph that is one row for example
    content = io.BytesIO()
    if path.suffix == ".npz":
        arrays = {"id": np.arange(len(values)), "embedding": values}
        if y is not None:
            arrays["y"] = y.numpy()
        np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    else:
        columns = [f"e{place}" for place in range(values.shape[1])]
        table = pd.DataFrame(values, columns=columns)
        if y is not None:
            table.insert(0, "y", y.numpy())
        table.insert(0, "id", np.arange(len(values)))
        if path.suffix == ".csv":
            table.to_csv(content, index=False)
        else:
            table.to_parquet(content, index=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content.getvalue())
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None
