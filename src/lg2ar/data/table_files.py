"""One table, out of a text file, a Parquet file, or a frame of pandas."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lg2ar.data.columns import Column
from lg2ar.data.text_tables import (
    MISSING,
    MOST_COLUMNS,
    PLAIN,
    AsText,
    Layout,
    read_text,
    refuse_names,
    sniff,
)
from lg2ar.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

# The description of a Parquet file with so many columns is far smaller than this.
LARGEST_FOOTER = 1 << 24

# Equal values take next to no room in a Parquet file: so many cells are read from any, and so many
# for each byte of a larger one.
SMALL_CELLS = 1 << 26
CELLS_PER_BYTE = 64

SUFFIXES = (".csv", ".tsv", ".parquet", *PLAIN)


@dataclass(frozen=True, eq=False)
class Table:
    """A table, and how to speak about its rows.

    Attributes:
        name: What messages call it: a path, or ``the edges``.
        data: Its columns, of different names.
        layout: How the text file is laid out; None for Parquet and frames.
    """

    name: str
    data: pa.Table
    layout: Layout | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.data.column_names)

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def place(self, row: int) -> str:
        """Where a row stands, for a message: ``edges.csv: line 12``."""
        if self.layout is None:
            return f"{self.name}: row {row + 1}"
        return f"{self.name}: line {self.layout.line(row)}"

    def texts(self, name: str) -> np.ndarray:
        """A column of ids as text: whole numbers without a point, no spaces around.

        Raises:
            InputError: Where one is missing.
        """
        values = _texts(self.data.column(name))
        empty = np.flatnonzero(_is_none(values) | (values == ""))
        if len(empty):
            raise InputError(
                f"{self.place(int(empty[0]))}: column '{name}' is empty, where an id is expected; "
                "fill it in, or remove the row."
            )
        return values

    def column(self, name: str, *, category: bool = False) -> Column:
        """A column as numbers or categories.

        Args:
            name: Of the column.
            category: Whether its values are categories, whatever they look like.

        Raises:
            InputError: Where it holds infinity, lists, or a word among numbers.
        """
        import pandas as pd
        import pyarrow as pa

        data = self.data.column(name)
        kind = data.type
        words = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        words = words or pa.types.is_dictionary(kind) or pa.types.is_boolean(kind)
        try:
            if not words and not category:
                return self._numbers(name, data)
            values = _texts(data)
        except (pa.ArrowException, TypeError):
            raise InputError(
                f"{self.name}: column '{name}' holds {str(kind)[:80]}, which is not read; spread "
                "it over columns of numbers or words, or leave it out with --ignore."
            ) from None
        values[pd.Series(values, dtype=object).isin(MISSING)] = None
        if self.layout is not None and not category and not pa.types.is_boolean(kind):
            self._refuse_slips(name, values)
        return Column(name, "category", values)

    def _numbers(self, name: str, data: pa.ChunkedArray) -> Column:
        import pyarrow as pa

        if pa.types.is_nested(data.type) or pa.types.is_binary(data.type):
            raise TypeError("no numbers")
        if pa.types.is_temporal(data.type):
            data = _seconds(data)
        elif pa.types.is_decimal(data.type):
            data = data.cast(pa.float64())
        values = np.array(data.to_numpy(), dtype=np.float64)
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            raise InputError(
                f"{self.place(int(infinite[0]))}: column '{name}' holds infinity; replace it, or "
                "leave the place empty."
            )
        return Column(name, "number", values)

    def _refuse_slips(self, name: str, values: np.ndarray) -> None:
        """Refuse a column of numbers with a few words in it: more likely a slip than categories."""
        import pandas as pd

        there = np.flatnonzero(~_is_none(values))
        comma = re.compile(r"[+-]?\d+,\d+")
        if len(there) and all(comma.fullmatch(values[row]) for row in there[:20]):
            raise InputError(
                f"{self.place(int(there[0]))}: column '{name}' holds '{values[there[0]]}'; write "
                f"numbers with a point, or take it as categories with --category {name}."
            )
        places, different = pd.factorize(values[there])
        known = pd.to_numeric(pd.Series(different, dtype=object), errors="coerce")
        words = there[known.isna().to_numpy()[places]]
        if 0 < len(words) <= len(there) / 10:
            raise InputError(
                f"{self.place(int(words[0]))}: column '{name}' holds '{values[words[0]][:40]}' "
                "where nearly all others are numbers; correct it, leave it empty, or take all as "
                f"categories with --category {name}."
            )


def load_table(
    path: Path, as_text: AsText, *, is_end: Callable[[str], bool] | None = None
) -> Table:
    """Read a file.

    Args:
        path: The file; its ending says what it is.
        as_text: Which columns to take as text; others are what they look like.
        is_end: Whether a name is that of an end of an edge. A file without a line of names is then
            taken for a list of edges; without it such a file is refused.

    Raises:
        InputError: Naming file and line.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    try:
        if path.suffix.lower() == ".parquet":
            return Table(str(path), _read_parquet(path))
        layout, names = sniff(path, is_end)
        refuse_names(f"{path}: line {layout.skipped + 1}", names)
        return Table(str(path), read_text(layout, names, as_text), layout)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}).") from None


def frame_table(frame: Any, name: str) -> Table:
    """A frame of pandas as a table."""
    import pyarrow as pa

    names = [str(column) for column in frame.columns[: MOST_COLUMNS + 1]]
    refuse_names(name, names)
    columns = []
    for place in range(len(names)):
        values = frame.iloc[:, place]
        try:
            columns.append(pa.array(values, from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError):  # of several kinds, as ids may be
            columns.append(pa.array(Column.categories("", values).values, pa.string()))
    return Table(name, pa.table(columns, names=names))


def column_names(path: Path) -> list[str]:
    """The names of a file's columns, without reading more."""
    if path.suffix.lower() == ".parquet":
        return list(parquet_file(path).schema_arrow.names)
    return sniff(path, None)[1]


def parquet_file(path: Path) -> Any:
    """Open a Parquet file, once it is clear that it can be read."""
    import pyarrow as pa
    from pyarrow import parquet

    size = path.stat().st_size
    if not size:
        raise InputError(f"{path}: is empty; write the table anew.")
    with open(path, "rb") as file:
        file.seek(max(size - 8, 0))
        footer = int.from_bytes(file.read(4), "little")
    if LARGEST_FOOTER < footer < size:
        raise InputError(
            f"{path}: the description of its columns takes {footer >> 20} MB, so there are too "
            f"many; at most {MOST_COLUMNS} are read."
        )
    try:
        held = parquet.ParquetFile(path)
        names = held.schema_arrow.names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: is not a readable Parquet file ({str(error).splitlines()[0][:200]})."
        ) from None
    refuse_names(str(path), names)
    rows = int(held.metadata.num_rows)
    if not 0 <= rows * len(names) <= max(SMALL_CELLS, CELLS_PER_BYTE * size):
        raise InputError(
            f"{path}: would grow from {size} bytes to {rows} rows of {len(names)} columns, which "
            "is refused; leave out columns that are the same everywhere, or write it as .csv."
        )
    return held


def _read_parquet(path: Path) -> pa.Table:
    import pyarrow as pa

    held = parquet_file(path)
    try:
        table = held.read()
        table.validate(full=True)  # text that is none, for example
        return table
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path}: is damaged ({str(error).splitlines()[0][:200]}); write the table anew."
        ) from None


def _texts(data: pa.ChunkedArray) -> np.ndarray:
    """Values as text in an object array of its own, None where one is missing."""
    import pyarrow as pa
    from pyarrow import compute

    kind = data.type
    if pa.types.is_dictionary(kind):
        data = data.cast(kind.value_type)
        kind = data.type
    if pa.types.is_floating(kind):
        values = np.asarray(data.to_numpy(), dtype=np.float64)
        return Column.categories("", values).values
    if pa.types.is_boolean(kind):
        return Column.categories("", data.to_numpy()).values
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        data = data.cast(pa.string())
    trimmed = compute.utf8_trim_whitespace(data)
    return np.array(trimmed.to_numpy(), dtype=object)


def _is_none(values: np.ndarray) -> np.ndarray:
    import pandas as pd

    return np.asarray(pd.isna(values))


def _seconds(data: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates and times as seconds, whatever they were counted in."""
    import pyarrow as pa

    kind = data.type
    if pa.types.is_time(kind):
        return data.cast(pa.time32("s"), safe=False).cast(pa.int32())
    if pa.types.is_duration(kind):
        return data.cast(pa.duration("s"), safe=False).cast(pa.int64())
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    return data.cast(pa.timestamp("s", zone), safe=False).cast(pa.int64())
