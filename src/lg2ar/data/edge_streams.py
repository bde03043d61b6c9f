"""A table of edges read some rows at a time, for tables that do not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lg2ar.data.reading import ReadOptions
from lg2ar.data.table_files import parquet_file
from lg2ar.data.tables import SYNONYMS, WEIGHTS, find_role, plain_name
from lg2ar.data.text_tables import MISSING, Layout, ragged, refuse_names, single_spaces, sniff
from lg2ar.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

# Bytes of a text file, and rows of a Parquet file, that are read at a time.
BLOCK = 1 << 25
ROWS = 1 << 20


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a table of edges.

    Attributes:
        first: The number of the first of them in the table.
        source: Ids as text, without spaces around.
        target: The same.
        weight: Weights; None where there are none.
    """

    first: int
    source: pa.Array
    target: pa.Array
    weight: np.ndarray | None


class EdgeStream:
    """A table of edges.

    Args:
        path: The file.
        options: How to read it.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        if not path.is_file():
            raise InputError(f"{path}: there is no such file.")
        self.path = path
        self.layout: Layout | None = None
        if path.suffix.lower() == ".parquet":
            self.names = list(parquet_file(path).schema_arrow.names)
        else:
            self.layout, self.names = sniff(path, lambda name: _is_end(name, options))
            refuse_names(f"{path}: line {self.layout.skipped + 1}", self.names)
        found = {
            role: find_role(self.names, role, "edges", options)
            for role in ("graph", "source", "target")
        }
        self.source, self.target = found["source"], found["target"]
        rest = [n for n in self.names if n not in found.values() and n not in options.ignore]
        by_name = next((name for name in rest if plain_name(name) in WEIGHTS), None)
        self.weight = options.weight or by_name
        # Whether rows say nothing but which nodes they join, and how much that weighs.
        self.simple = (
            found["graph"] is None
            and None not in (self.source, self.target)
            and set(rest) <= {self.weight}
            and (self.weight is None or self.weight in rest)
        )

    def place(self, row: int) -> str:
        """Where a row stands, for a message."""
        if self.layout is None:
            return f"{self.path}: row {row + 1}"
        return f"{self.path}: line {self.layout.line(row)}"

    def __iter__(self) -> Iterator[Rows]:
        import pyarrow as pa

        first = 0
        try:
            for table in self._parquet() if self.layout is None else self._text(self.layout):
                yield Rows(
                    first,
                    self._ids(table, str(self.source), first),
                    self._ids(table, str(self.target), first),
                    self._weights(table, first),
                )
                first += table.num_rows
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{self.path}: is damaged ({str(error).splitlines()[0][:200]}); write it anew."
            ) from None

    def _columns(self) -> list[str]:
        return [name for name in (self.source, self.target, self.weight) if name is not None]

    def _parquet(self) -> Iterator[Any]:
        import pyarrow as pa

        for batch in parquet_file(self.path).iter_batches(ROWS, columns=self._columns()):
            yield pa.Table.from_batches([batch])

    def _text(self, layout: Layout) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv as arrow

        kinds = {name: pa.string() for name in self.names}
        for block in _blocks(layout):
            content = single_spaces(block) if layout.delimiter == " " else block
            if not content.strip():
                continue
            try:
                yield arrow.read_csv(
                    pa.BufferReader(content),
                    read_options=arrow.ReadOptions(column_names=self.names, use_threads=False),
                    parse_options=arrow.ParseOptions(delimiter=layout.delimiter),
                    convert_options=arrow.ConvertOptions(
                        column_types=kinds, include_columns=self._columns()
                    ),
                )
            except pa.ArrowInvalid as error:
                raise ragged(layout, len(self.names), str(error)) from None

    def _ids(self, table: pa.Table, name: str, first: int) -> pa.Array:
        import pyarrow as pa
        from pyarrow import compute

        held = table.column(name).combine_chunks()
        if pa.types.is_dictionary(held.type):
            held = held.cast(held.type.value_type)
        if pa.types.is_floating(held.type):
            held = held.cast(pa.int64())  # whole numbers, or an error
        texts = compute.utf8_trim_whitespace(held.cast(pa.string()))
        missing = compute.is_in(texts, pa.array([*MISSING, None], pa.string())).to_numpy(
            zero_copy_only=False
        )
        if missing.any():
            row = first + int(np.flatnonzero(missing)[0])
            raise InputError(
                f"{self.place(row)}: column '{name}' is empty, where an id is expected; fill it "
                "in, or remove the row."
            )
        return texts

    def _weights(self, table: pa.Table, first: int) -> np.ndarray | None:
        import pandas as pd

        if self.weight is None:
            return None
        held = table.column(self.weight).to_pandas()
        values: np.ndarray = pd.to_numeric(held, errors="coerce").to_numpy(dtype=np.float64)
        wrong = np.flatnonzero(~((values >= 0) & (values < np.finfo(np.float32).max)))
        if len(wrong):
            raise InputError(
                f"{self.place(first + int(wrong[0]))}: column '{self.weight}' is to hold weights, "
                f"numbers that are not negative; correct it, or leave it out with --ignore "
                f"{self.weight}."
            )
        return values


def _is_end(name: str, options: ReadOptions) -> bool:
    asked = (options.columns.get("source"), options.columns.get("target"))
    return name in asked or plain_name(name) in (*SYNONYMS["source"], *SYNONYMS["target"])


def _blocks(layout: Layout) -> Iterator[bytes]:
    """The lines of a text file behind the names, many at a time."""
    with open(layout.path, "rb") as file:
        for _ in range(layout.skipped + int(layout.header)):
            file.readline()
        rest = b"" if file.tell() else file.read(3).removeprefix(b"\xef\xbb\xbf")
        while block := file.read(BLOCK):
            whole, end, rest = (rest + block).rpartition(b"\n")
            yield whole + end
        yield rest
