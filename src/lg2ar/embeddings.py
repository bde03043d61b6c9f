"""Embeddings as files: what each row is called, its label where there is one, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lg2ar.data.archives import read_npz
from lg2ar.errors import InputError
from lg2ar.frames import write_arrays, write_frame

FORMATS = (".parquet", ".csv", ".npz")


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings as they stand in a file.

    Attributes:
        ids: What each row is called: names as text, or places as whole numbers.
        rows: The numbers, ``[rows, width]``.
        y: A label per row, as text where labels have names; None where there are none.
    """

    ids: np.ndarray
    rows: Tensor
    y: np.ndarray | None = None


def check_format(path: Path) -> None:
    """Refuse a file name whose ending says nothing we write, before any work is done."""
    if path.suffix not in FORMATS:
        raise InputError(f"{path}: embeddings are written as {', '.join(FORMATS)}; choose one.")


def write_embeddings(
    path: Path,
    rows: Tensor,
    *,
    ids: Sequence[str] | None = None,
    y: Tensor | None = None,
    classes: Sequence[str] | None = None,
) -> None:
    """Write embeddings with what each row is called and, where there are some, the labels.

    Args:
        path: File to write, whole or not at all; its ending says how.
        rows: A row per graph or node.
        ids: What each row is called; its place, where there are no names.
        y: A label per row.
        classes: Names of the labels; they are written in place of the numbers.
    """
    check_format(path)
    values = rows.numpy()
    names = np.arange(len(values)) if ids is None else np.array(ids, dtype=str)
    labels = None if y is None else y.numpy()
    if labels is not None and classes is not None:
        labels = np.array(classes, dtype=str)[labels]
    if labels is not None and len(labels) != len(values):
        labels = None  # of something else, of the nodes of a graph that is one row for example
    if path.suffix == ".npz":
        arrays = {"id": names, "embedding": values}
        write_arrays(path, arrays if labels is None else arrays | {"y": labels})
        return
    table = pd.DataFrame(values, columns=[f"e{place}" for place in range(values.shape[1])])
    if labels is not None:
        table.insert(0, "y", labels)
    table.insert(0, "id", names)
    write_frame(path, table)


def read_embeddings(path: Path) -> Embeddings:
    """Read what :func:`write_embeddings` wrote, to the last bit.

    From a CSV file ids and labels come as text if they are not all whole numbers.
    """
    check_format(path)
    try:
        if path.suffix == ".npz":
            held = read_npz(path, ("id", "embedding", "y"))
            return Embeddings(held["id"], torch.from_numpy(held["embedding"]), held.get("y"))
        table = _read_table(path)
        numbers = table[[name for name in table.columns if name not in ("id", "y")]]
        return Embeddings(
            ids=table["id"].to_numpy(),
            rows=torch.from_numpy(np.array(numbers, dtype=np.float32)),
            y=table["y"].to_numpy() if "y" in table else None,
        )
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except Exception as error:  # a damaged file can raise nearly anything
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise InputError(
            f"{path}: is not a file of embeddings ({reason}); write one with 'lg2ar embed'."
        ) from None


def _read_table(path: Path) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    from pyarrow import csv  # rounds numbers correctly, and leaves an id called NA alone

    return csv.read_csv(path).to_pandas()
