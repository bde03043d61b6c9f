"""What one large graph was made of, as a short text: the same source and options give the same.

Tables are compared by their content, file by file, which takes a fraction of the time of converting
them. Anything else is in memory when it is written, and compared as that.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from lg2ar.data.dataset import Dataset
from lg2ar.data.reading import ReadOptions
from lg2ar.data.tables import find_parts
from lg2ar.errors import InputError


def of_tables(source: str | Path, options: ReadOptions) -> str:
    """The print of tables and of how they are read.

    Args:
        source: A folder of tables, or a table of edges.
        options: How they are read; a table beside the source counts by its content, too.

    Raises:
        InputError: When one of them cannot be read.
    """
    name, parts = find_parts(source, options)
    files = {part: _digest(Path(path)) for part, path in sorted(parts.items())}
    return _print("tables", [name, files, options.remembered()])


def of_dataset(dataset: Dataset) -> str:
    """The print of a graph in memory, with names and further columns."""
    ids = hashlib.sha256()
    for name in dataset.ids or ():
        ids.update(f"{name}\n".encode())
    targets = {name: values.tolist() for name, values in dataset.targets.items()}
    known = [dataset.name, dataset.fingerprint(), ids.hexdigest(), targets]
    return _print("data", [*known, dataset.classes, dataset.reading])


def _print(kind: str, what: object) -> str:
    text = json.dumps(what, sort_keys=True, default=str)
    return f"{kind} {hashlib.sha256(text.encode()).hexdigest()}"


def _digest(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None
