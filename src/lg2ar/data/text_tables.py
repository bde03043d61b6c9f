"""Tables in text files: CSV and its relatives, and plain lists of edges.

Bad files are answered with the line that is wrong. The line is looked for only then, so that good
files are read at full speed.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lg2ar.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

# More columns than this are refused before they are read: they are rows that were meant.
MOST_COLUMNS = 10_000
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "-NaN", "NULL", "null", "None")
PLAIN = (".txt", ".edgelist", ".edges")  # often without a line that names the columns

# Given the names of the columns, those to be read as text.
AsText = Callable[[Sequence[str]], Collection[str]]


@dataclass(frozen=True)
class Layout:
    """How a text file is laid out.

    Attributes:
        path: The file.
        delimiter: Between columns; a space stands for any number of spaces and tabs.
        skipped: How many lines of remarks come first.
        header: Whether the first line after them names the columns.
    """

    path: Path
    delimiter: str
    skipped: int
    header: bool

    def records(self, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of each record, the header too; empty lines are passed over.

        Args:
            strict: Whether quotation marks that do not fit end with ``csv.Error``.
        """
        csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
        with open(self.path, encoding="utf-8-sig", errors="replace", newline="") as file:
            for _ in range(self.skipped):
                file.readline()
            lines: Any = file
            if self.delimiter == " ":
                lines = (" ".join(line.split()) for line in file)
            reader = csv.reader(lines, delimiter=self.delimiter, strict=strict)
            first = 1
            for cells in reader:
                if cells:
                    yield self.skipped + first, cells
                first = reader.line_num + 1

    def line(self, row: int) -> int:
        """The line that a row of data begins in."""
        wanted = row + self.header
        with suppress(csv.Error):
            for place, (line, _) in enumerate(self.records()):
                if place == wanted:
                    return line
        return self.skipped + wanted + 1


def sniff(path: Path, is_end: Callable[[str], bool] | None) -> tuple[Layout, list[str]]:
    """How a text file is laid out, and what its columns are called."""
    plain = path.suffix.lower() in PLAIN
    skipped, line = 0, ""
    with open(path, "rb") as file:
        line = _first_line(path, file)
        while plain and line.startswith(("#", "%")):
            skipped += 1
            line = _first_line(path, file)
    if not line.strip():
        raise InputError(f"{path}: line {skipped + 1} is empty, where the columns are to be named.")
    delimiter = _delimiter(path, line)
    cells = line.split() if delimiter == " " else next(csv.reader([line], delimiter=delimiter))
    cells = [cell.strip() for cell in cells]
    if len(cells) > MOST_COLUMNS:
        raise _too_many(f"{path}: line {skipped + 1}", len(cells))
    named = is_end is not None and sum(is_end(cell) for cell in cells) >= 2
    bare = all(map(_is_number, cells)) or (plain and is_end is not None and len(cells) > 1)
    header = named or not bare
    if not header:
        if is_end is None or len(cells) < 2:
            raise InputError(
                f"{path}: line {skipped + 1} holds numbers, where the columns are to be named; add "
                "a line with their names."
            )
        cells = ["source", "target", *(f"column {k + 1}" for k in range(2, len(cells)))]
    return Layout(path, delimiter, skipped, header), cells


def _first_line(path: Path, file: io.BufferedReader) -> str:
    """The next line, as long as it may be the line of names of a table we would read."""
    parts: list[bytes] = []
    found = 0
    while not parts or not (parts[-1].endswith(b"\n") or b"\r" in parts[-1]):
        parts.append(file.readline(1 << 16))
        if not parts[-1]:
            break
        found += max(parts[-1].count(delimiter) for delimiter in (b",", b"\t", b";", b"|", b" "))
        if found > 4 * MOST_COLUMNS or len(parts) > 1 << 8:
            raise _too_many(f"{path}: line 1", found)
    raw = b"".join(parts)
    if not raw and not file.tell():
        raise InputError(f"{path}: is empty; its first line is to name the columns.")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in raw:
        raise InputError(
            f"{path}: line 1 is not UTF-8 text (UTF-16, or no text); save it as UTF-8."
        )
    try:
        line = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, raw, error.start) from None
    line = re.split("\r\n|\r|\n", line, maxsplit=1)[0]
    if line.count('"') % 2:
        raise InputError(f"{path}: line 1 opens a quotation mark and does not close it; close it.")
    return line


def _delimiter(path: Path, line: str) -> str:
    if path.suffix.lower() == ".tsv":
        return "\t"
    bare = re.sub(r'"[^"]*"', "", line)
    best = max((",", "\t", ";", "|"), key=bare.count)
    if bare.count(best) and not (best == "\t" and path.suffix.lower() in PLAIN):
        return best
    return " " if len(line.split()) > 1 and path.suffix.lower() != ".csv" else ","


def read_text(layout: Layout, names: list[str], as_text: AsText) -> pa.Table:
    """Read a text file; columns are whole numbers, numbers, dates or text, as all rows agree."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    content = layout.path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    _check_text(layout, content)
    delimiter = layout.delimiter
    if delimiter == " ":
        content = single_spaces(content)
    skip = layout.skipped + int(layout.header)
    limit = (1 << 31) - 1
    try:
        return arrow.read_csv(
            pa.BufferReader(content),
            read_options=arrow.ReadOptions(
                skip_rows=skip,
                column_names=names,
                use_threads=False,
                block_size=min(max(len(content), 1), limit),  # so that all rows tell the type
            ),
            parse_options=arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=arrow.ConvertOptions(
                column_types={name: pa.string() for name in as_text(names)},
                null_values=list(MISSING),
            ),
        )
    except pa.ArrowInvalid as error:
        if next(_after(layout), None) is None:  # names and nothing else
            return pa.table({name: pa.array([], pa.string()) for name in names})
        raise ragged(layout, len(names), str(error)) from None


def single_spaces(content: bytes) -> bytes:
    """Lines with one space between words and none around them."""
    content = content.translate(bytes.maketrans(b"\t", b" "))
    while b"  " in content:
        content = content.replace(b"  ", b" ")
    for end in (b"\n", b"\r"):
        content = content.replace(b" " + end, end).replace(end + b" ", end)
    return content.strip(b" ")


def _after(layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """The records after the line of names."""
    records = layout.records()
    if layout.header:
        next(records, None)
    return records


def _check_text(layout: Layout, content: bytes) -> None:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(layout.path, content, error.start) from None
    if content.count(b'"') % 2:
        _refuse_open_quote(layout)


def _refuse_open_quote(layout: Layout) -> None:
    """Refuse a cell that begins with a quotation mark and does not end, but swallows the rest."""
    line = layout.skipped
    try:
        for begun, _ in layout.records(strict=True):
            line = begun
    except csv.Error as error:
        if "unexpected end" not in str(error):
            return
        raise InputError(
            f"{layout.path}: after line {line} a quotation mark is opened and never closed; close "
            "it, or leave it out."
        ) from None


def _not_utf8(path: Path, content: bytes, place: int) -> InputError:
    line = content.count(b"\n", 0, place) + 1
    return InputError(
        f"{path}: line {line} holds the byte 0x{content[place]:02x}, which is not UTF-8 text; save "
        "the file as UTF-8."
    )


def ragged(layout: Layout, width: int, reason: str) -> InputError:
    """The sentence about a row with too many or too few cells, or else the reason."""
    what = "the line with the names" if layout.header else "the first line"
    with suppress(csv.Error):
        for line, cells in _after(layout):
            if len(cells) != width:
                return InputError(
                    f"{layout.path}: line {line} has {len(cells)} cells where {what} has {width}; "
                    "add or remove cells, and quote those that hold the character between columns."
                )
    return InputError(f"{layout.path}: cannot be read ({reason.splitlines()[0][:200]}).")


def refuse_names(place: str, names: Sequence[str]) -> None:
    """Refuse too many columns, and two of one name."""
    if len(names) > MOST_COLUMNS:
        raise _too_many(place, len(names))
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{place} names column '{name}' twice; give them different names.")
        seen.add(name)


def _too_many(place: str, found: int) -> InputError:
    return InputError(
        f"{place} names {found} columns or more, at most {MOST_COLUMNS} are read; if these are "
        "rows, turn the table, else leave columns out."
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
