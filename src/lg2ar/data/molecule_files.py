"""Where SMILES are listed: a table, a ``.smi`` file, a frame of pandas, or a plain list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lg2ar.data.chemistry import parse_smiles, quiet
from lg2ar.data.table_files import Table, frame_table, load_table
from lg2ar.errors import InputError

SMILES_NAMES = ("smiles", "canonical_smiles", "isomeric_smiles", "smile", "structure")
ID_NAMES = ("id", "name", "mol_id", "molecule_id", "compound_id", "identifier")


@dataclass(frozen=True)
class Listing:
    """Molecules as they are listed.

    Attributes:
        where: What to call the source in messages.
        name: What to call the data.
        smiles: The text of each molecule.
        place: What to call a molecule's place in messages.
        ids: What each molecule is called.
        column: What the column of SMILES is called.
        named: Whether it has that name in the source.
        columns: All other columns.
        notes: What is to be told about them.
    """

    where: str
    name: str
    smiles: list[Any]
    place: Callable[[int], str]
    ids: list[str]
    column: str = "smiles"
    named: bool = False
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def list_molecules(source: Any, column: str | None) -> Listing:
    """List the molecules of a source.

    Args:
        source: As :func:`~lg2ar.data.molecules.read_smiles` takes it.
        column: Column of the SMILES; found by its name or by what it holds, if not given.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if path.suffix.lower() in (".smi", ".smiles"):
            return _read_lines(path)
        table = load_table(path, lambda names: [n for n in names if _is_text(n, column)])
        return _from_table(table, column, path.stem)
    if type(source).__module__.partition(".")[0] == "pandas":
        return _from_table(frame_table(source, "the frame"), column, "molecules")
    smiles = list(source)
    ids = [str(place) for place in range(len(smiles))]
    return Listing("the list", "molecules", smiles, lambda i: f"molecule {i}", ids)


def _is_text(name: str, column: str | None) -> bool:
    return name == column or name.lower() in (*SMILES_NAMES, *ID_NAMES)


def _read_lines(path: Path) -> Listing:
    """A ``.smi`` file: SMILES in each line, then perhaps a name."""
    smiles: list[str] = []
    names: list[str] = []
    lines: list[int] = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        word, _, name = line.strip().replace("\t", " ").partition(" ")
        if not smiles and word.lower() in SMILES_NAMES:
            continue  # a line of headings
        smiles.append(word)
        names.append(name.strip())
        lines.append(number)
    ids = names if all(names) and len(set(names)) == len(names) else map(str, range(len(smiles)))
    return Listing(str(path), path.stem, smiles, lambda i: f"line {lines[i]}", list(ids))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}: line {line} is not UTF-8 text; save the file as that.") from None


def _from_table(table: Table, asked: str | None, name: str) -> Listing:
    column = _smiles_column(table, asked)
    smiles = table.data.column(column).to_pylist()
    ids = [str(place) for place in range(len(smiles))]
    named = next((key for key in table.names if key != column and _names_rows(table, key)), None)
    if named is not None:
        ids = [str(value) for value in table.data.column(named).to_pylist()]
    columns, notes = {}, []
    for key in table.names:
        if key in (column, named):
            continue
        kind = str(table.data.column(key).type)
        if "list" in kind or "struct" in kind or "binary" in kind or "map" in kind:
            notes.append(f"Column '{key}' holds {kind} and is left out.")
            continue
        words = kind in ("string", "large_string", "bool") or "dictionary" in kind
        columns[key] = table.column(key, category=words).values
    return Listing(
        where=table.name,
        name=name,
        smiles=smiles,
        place=lambda i: table.place(i).removeprefix(f"{table.name}: "),
        ids=ids,
        column=column,
        named=True,
        columns=columns,
        notes=notes,
    )


def _names_rows(table: Table, key: str) -> bool:
    """Whether a column is called like one of ids, and gives each row another one."""
    if key.lower() not in ID_NAMES:
        return False
    values = table.data.column(key).to_pylist()
    return None not in values and len(set(map(str, values))) == len(values)


def _smiles_column(table: Table, asked: str | None) -> str:
    """The column of SMILES: by name, or the first whose words are molecules."""
    known = ", ".join(f"'{key}'" for key in table.names[:8])
    if asked is not None:
        if asked in table.names:
            return asked
        raise InputError(f"{table.name}: has no column '{asked}'; there are {known}.")
    for wanted in SMILES_NAMES:
        for key in table.names:
            if key.lower() == wanted:
                return key
    with quiet():
        for key in table.names:
            if _are_molecules(table.data.column(key).slice(0, 1000).to_pylist()):
                return key
    raise InputError(
        f"{table.name}: no column holds SMILES, of {known}; name it with --smiles COLUMN."
    )


def _are_molecules(values: Sequence[Any], tried: int = 20) -> bool:
    words = [value for value in values if isinstance(value, str) and value.strip()][:tried]
    read = [parse_smiles(word)[0] for word in words]
    good = [molecule for molecule in read if molecule is not None]
    return len(good) > len(words) / 2 and any(m.GetNumAtoms() > 2 for m in good)
