"""Embeddings as files: what each row is called, its label where there is one, and its numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lg2ar.data.archives import read_npz
from lg2ar.errors import InputError
from lg2ar.frames import write_arrays, write_frame

FORMATS = (".parquet", ".csv", ".npz")

# More numbers than this are written some rows at a time; they may be mapped from a disk.
MANY = 1 << 26
STEP = 1 << 22


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
    if rows.numel() > MANY:
        _write_many(path, values, ids, y, classes)
        return
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


def _write_many(
    path: Path,
    values: np.ndarray,
    ids: Sequence[str] | None,
    y: Tensor | None,
    classes: Sequence[str] | None,
) -> None:
    """The same, some rows at a time: beside the file's place, and moved there when it is whole."""
    labels = None if y is None or len(y) != len(values) else y.numpy()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as file:
            if path.suffix == ".npz":
                _write_npz(file, values, ids, labels, classes)
            else:
                _write_rows(file, path.suffix, _tables(values, ids, labels, classes))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None
    finally:
        part.unlink(missing_ok=True)


def _tables(
    values: np.ndarray,
    ids: Sequence[str] | None,
    labels: np.ndarray | None,
    classes: Sequence[str] | None,
) -> Iterator[pd.DataFrame]:
    """The table in parts."""
    step = max(1, STEP // values.shape[1])
    for first in range(0, len(values), step):
        last = min(first + step, len(values))
        rows = np.array(values[first:last])
        table = pd.DataFrame(rows, columns=[f"e{place}" for place in range(rows.shape[1])])
        if labels is not None:
            some = labels[first:last]
            table.insert(0, "y", some if classes is None else np.array(classes, dtype=str)[some])
        names = np.arange(first, last) if ids is None else np.array(ids[first:last], dtype=str)
        table.insert(0, "id", names)
        yield table


def _write_rows(file: BinaryIO, ending: str, tables: Iterator[pd.DataFrame]) -> None:
    if ending == ".csv":
        for place, table in enumerate(tables):
            table.to_csv(file, index=False, header=place == 0)
        return
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    for table in tables:
        held = pa.Table.from_pandas(table, preserve_index=False)
        if writer is None:
            writer = parquet.ParquetWriter(file, held.schema)
        writer.write_table(held)
    if writer is not None:
        writer.close()


def _write_npz(
    file: BinaryIO,
    values: np.ndarray,
    ids: Sequence[str] | None,
    labels: np.ndarray | None,
    classes: Sequence[str] | None,
) -> None:
    """NumPy writes an array some numbers at a time by itself; names are in memory here."""
    names = np.arange(len(values)) if ids is None else np.array(list(ids), dtype=str)
    arrays = {"id": names, "embedding": values}
    if labels is not None:
        arrays["y"] = labels if classes is None else np.array(classes, dtype=str)[labels]
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


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
