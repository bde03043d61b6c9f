"""Files that would run code if they were unpickled: they write a marker, and nothing else."""

from __future__ import annotations

import gzip
import io
import pickle
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from faults.fuzz import seeds


class Payload:
    """Whose pickle touches a file when it is opened."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, (f"open({str(self.marker)!r}, 'w').close()",))


def plain(marker: Path) -> dict[str, bytes]:
    """The payload as every kind of pickle that is in use."""
    evil = Payload(marker)
    objects = np.array([evil, evil], dtype=object)
    return {
        "pickle 0": pickle.dumps(evil, 0),
        "pickle 2": pickle.dumps(evil, 2),
        "pickle 5": pickle.dumps(evil, 5),
        "gzip": gzip.compress(pickle.dumps(evil)),
        "torch": _written(lambda file: torch.save(evil, file)),
        "torch, old": _written(
            lambda file: torch.save(evil, file, _use_new_zipfile_serialization=False)
        ),
        "joblib": _written(lambda file: joblib.dump(evil, file)),
        "joblib, packed": _written(lambda file: joblib.dump(evil, file, compress=3)),
        "npy": _written(lambda file: np.save(file, objects, allow_pickle=True)),
    }


def inside(marker: Path) -> dict[str, tuple[str, bytes]]:
    """The payload inside of files that are otherwise as they should be: name and content."""
    evil = Payload(marker)
    raw = pickle.dumps(evil)
    objects = np.array([evil, evil], dtype=object)
    arrays = {
        "x": np.ones((2, 1)),
        "edge_index": np.array([[0, 1], [1, 0]]),
        "batch": np.array([0, 1]),
        "y": np.array([0, 1]),
    }
    made = {
        f"npz {name}": ("some.npz", _written(lambda file, n=name: _savez(file, arrays, n, objects)))
        for name in arrays
    }
    return made | {
        "npz of a pickle": ("some.npz", seeds.zipped({"edge_index.npy": raw, "x.npy": raw})),
        "zip member": ("TINY.zip", seeds.zipped(_tu(raw))),
        "zip beside": (
            "TINY.zip",
            seeds.zipped({**_tu(seeds.TU["node_labels"]), "TINY/data.pt": raw, "data.pkl": raw}),
        ),
        "parquet": ("edges.parquet", _parquet(raw)),
        "sqlite tensors": (
            "some.sqlite",
            _sqlite("UPDATE graphs SET COL_edge_index = :raw, COL_node_numbers = :raw", raw),
        ),
        "sqlite names": ("some.sqlite", _sqlite("UPDATE rows SET name = :raw", raw)),
        "sqlite columns": ("some.sqlite", _sqlite("UPDATE rows SET targets = :raw", raw)),
    }


def _tu(labels: bytes) -> dict[str, bytes]:
    held = {**seeds.TU, "node_labels": labels}
    return {f"TINY/TINY_{part}.txt": content for part, content in held.items()}


def _written(write: Any) -> bytes:
    held = io.BytesIO()
    write(held)
    return held.getvalue()


def _savez(file: Any, arrays: dict[str, Any], name: str, objects: np.ndarray) -> None:
    np.savez(file, **{**arrays, name: objects})  # objects are pickled


def _parquet(raw: bytes) -> bytes:
    """A table with a column of an extension type whose description is a pickle, as Arrow had it."""
    marks = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": raw,
    }
    fields = [
        pa.field("source", pa.string()),
        pa.field("target", pa.string()),
        pa.field("size", pa.int64(), metadata=marks),
        pa.field("object", pa.binary()),
    ]
    columns = [pa.array(["a", "b"]), pa.array(["b", "c"]), pa.array([1, 2]), pa.array([raw, raw])]
    table = pa.table(columns, schema=pa.schema(fields, metadata={b"pandas": raw}))
    return _written(lambda file: parquet.write_table(table, file))


def _sqlite(statement: str, raw: bytes) -> bytes:
    """An on-disk data set with pickles in it, as PyG stores tensors without a schema.

    It has no checksums, as earlier versions wrote it, which would show that it was changed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.sqlite"
        path.write_bytes(seeds.sqlite())
        connection = sqlite3.connect(path)
        connection.execute(statement, {"raw": raw})
        connection.execute("DELETE FROM about WHERE key = 'sums'")
        connection.execute("DROP TABLE checks")
        connection.commit()
        connection.close()
        return path.read_bytes()
