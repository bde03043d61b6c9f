"""The database of a study: whether it is laid out as Optuna's are, and what its errors say."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from lg2ar.errors import InputError
from lg2ar.tuning.trials import find_optuna, open_storage

# Who reads and writes the database: errors out of these are told as its own.
_LIBRARIES = {"optuna", "sqlalchemy", "alembic", "sqlite3"}

_COLUMNS = """
    SELECT kind.name, held.name, held.type, held."notnull", held.dflt_value, held.pk, held.hidden
    FROM sqlite_master AS kind, pragma_table_xinfo(kind.name) AS held WHERE kind.type = 'table'
"""
_UNIQUE = """
    SELECT kind.name, list.name, list.partial, held.name
    FROM sqlite_master AS kind, pragma_index_list(kind.name) AS list,
    pragma_index_info(list.name) AS held WHERE kind.type = 'table' AND list."unique"
"""
_KINDS = "SELECT DISTINCT type FROM sqlite_master"
_INDEXES = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"


class OtherLayoutError(Exception):
    """A database is not laid out as Optuna's are."""


class _Column(NamedTuple):
    """A column of a table.

    Attributes:
        kind: Its type, without a length.
        default: What is taken where nothing is given.
        key: Its place in the table's key, from 1; 0 where it is no part of it.
        hidden: Whether it is computed.
    """

    kind: str
    default: str | None
    key: int
    hidden: int


class _Table(NamedTuple):
    """A table.

    Attributes:
        columns: Its columns by their names; their order differs between Optuna's versions.
        required: Those that cannot be left empty.
        unique: Columns that no two rows have alike; with None for what is no column.
    """

    columns: dict[str, _Column]
    required: set[str]
    unique: set[frozenset[str | None]]


def check_layout(storage: Any) -> None:
    """See that the tables of an SQLite file are laid out as Optuna's own.

    What is written to others may break anywhere: a column more has to be filled, a key that is none
    leaves rows without a number, and a trigger does what it wants. Older versions of Optuna let
    columns be empty that newer ones do not, which does no harm.

    Args:
        storage: Optuna's own.

    Raises:
        OtherLayoutError: When they are not.
    """
    from sqlalchemy import text

    if storage.engine.dialect.name != "sqlite":
        return
    with storage.engine.connect() as connection:
        kinds = set(connection.execute(text(_KINDS)).scalars())
        found = _tables(connection)
    if odd := kinds - {"table", "index"}:
        raise OtherLayoutError(f"it has a {min(odd)}")
    for name, own in _own_layout().tables.items():
        _compare(name, found.get(name, _Table({}, set(), set())), own)


def finish_tables(storage: Any) -> None:
    """Make the indexes that Optuna was about to make when it was killed.

    It passes over a table that is there, and with it over the indexes that are not. Nothing is done
    to a database that holds a study, or to a table with other columns.

    Args:
        storage: Optuna's own.
    """
    from sqlalchemy import text

    if storage.engine.dialect.name != "sqlite":
        return
    own = _own_layout()
    with storage.engine.begin() as connection:
        found = _tables(connection)
        there = {name for name, *_ in connection.execute(text(_INDEXES))}
        if connection.execute(text("SELECT 1 FROM studies LIMIT 1")).first() is not None:
            return
        for name, (table, statement) in own.indexes.items():
            if name not in there and found[table].columns == own.tables[table].columns:
                connection.execute(text(statement))


def _compare(name: str, found: _Table, own: _Table) -> None:
    if odd := found.columns.keys() ^ own.columns.keys():
        raise OtherLayoutError(f"{name} has other columns: {min(odd)}")
    for column, kind in own.columns.items():
        if found.columns[column] != kind:
            raise OtherLayoutError(f"{name} has another column {column}")
    if odd := found.required - own.required:
        raise OtherLayoutError(f"{name} must have {min(odd)}")
    if found.unique != own.unique:
        raise OtherLayoutError(f"{name} has other unique columns")


class _Layout(NamedTuple):
    """What a database holds.

    Attributes:
        tables: By their names.
        indexes: By their names, the table of each and the statement that makes it.
    """

    tables: dict[str, _Table]
    indexes: dict[str, tuple[str, str]]


@cache
def _own_layout() -> _Layout:
    """What this version of Optuna makes."""
    from sqlalchemy import text

    storage = open_storage("sqlite://")  # in memory
    with storage.engine.connect() as connection:
        tables = _tables(connection)
        indexes = {name: (table, sql) for name, table, sql in connection.execute(text(_INDEXES))}
    storage.remove_session()
    storage.engine.dispose()
    return _Layout(tables, indexes)


def _tables(connection: Any) -> dict[str, _Table]:
    from sqlalchemy import text

    made: dict[str, _Table] = {}
    for name, column, kind, required, *more in connection.execute(text(_COLUMNS)):
        table = made.setdefault(name, _Table({}, set(), set()))
        table.columns[column] = _Column(kind.partition("(")[0], *more)
        if required:
            table.required.add(column)
    groups: dict[tuple[str, str], set[str | None]] = {}
    for name, index, partial, column in connection.execute(text(_UNIQUE)):
        groups.setdefault((name, index), set()).update({column, None} if partial else {column})
    for (name, _), columns in groups.items():
        made[name].unique.add(frozenset(columns))
    return made


@contextmanager
def database_told(where: str) -> Iterator[None]:
    """Say in one sentence what a database does not do; all work on a study goes on inside of this.

    That it cannot be written now, such as on a full disk, is one thing. The other is that Optuna
    stumbles over what it holds. The error itself stays the cause of what is raised.

    Args:
        where: What to call it.

    Raises:
        InputError: In place of errors of the database, and of Optuna at work with it; others pass.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if _is_passing(error):
            raise InputError(
                f"{where}: cannot be written ({first_line(error)}); make room there, then the same "
                "command goes on."
            ) from error
        if _is_of_libraries(error):
            raise damaged(where, error) from error
        raise


def damaged(where: str, error: BaseException) -> InputError:
    """What to say of a study that an error came of."""
    return InputError(
        f"{where}: is no study that can be gone on with ({first_line(error)}); restore it, or "
        "choose another folder or storage."
    )


def first_line(error: BaseException) -> str:
    """What an error says, in short."""
    inner = _unwrapped(error)
    told = str(getattr(inner, "orig", inner)).strip().partition("\n")[0]  # the database's words
    return told[:200] or type(inner).__name__


def _is_passing(error: BaseException) -> bool:
    """Whether an error is one of the disk or the connection: full, locked, gone."""
    from sqlalchemy.exc import OperationalError

    return isinstance(_unwrapped(error), OSError | OperationalError)


def _unwrapped(error: BaseException) -> BaseException:
    """The error that says what happened, which Optuna's own only wraps."""
    wraps = isinstance(error, find_optuna().exceptions.StorageInternalError)
    return error.__cause__ if wraps and error.__cause__ is not None else error


def _is_of_libraries(error: BaseException) -> bool:
    """Whether what this package called last, before an error came, reads and writes the database.

    An error in a line of this package is a slip of its own, and not told as a damage.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    homes = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames]
    own = max(place for place, home in enumerate(homes) if home == "lg2ar")
    called = homes[own + 1 : own + 2]
    return bool({type(error).__module__.partition(".")[0], *called} & _LIBRARIES)
