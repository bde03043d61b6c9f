"""Searches whose database another hand has changed: refused in one sentence, or gone on with."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from faults.fuzz import going_on
from lg2ar.errors import InputError
from lg2ar.tuning.database import database_told
from lg2ar.tuning.search import DATABASE
from lg2ar.tuning.shared import SharedStudy
from lg2ar.tuning.trials import find_optuna


def changed(folder: Path, *statements: str) -> bytes:
    """A search that was killed in its second trial, with these changes."""
    path = folder / DATABASE
    path.write_bytes(going_on.study()[1])
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path.read_bytes()


def attribute(key: str, value: str) -> str:
    """A line that a trial says of itself."""
    return f"UPDATE trial_user_attributes SET value_json = '{value}' WHERE key = '{key}'"


UNREADABLE = {
    "text that is no JSON": attribute("owner", "vm:1"),
    "an owner that is a number": attribute("owner", "1"),
    "an owner without a process": attribute("owner", '"vm"'),
    "an owner with a process of no number": attribute("owner", '"vm:x:1"'),
    "a score that is a word": (
        "INSERT INTO trial_user_attributes VALUES (99, 1, 'untrained', '\"high\"')"
    ),
    "a score beyond all numbers": (
        "INSERT INTO trial_user_attributes VALUES (99, 1, 'test', '1e999')"
    ),
    "another state": "UPDATE trials SET state = 'OVER'",
    "another number": "UPDATE trials SET number = 7 WHERE number = 1",
    "no value": "DELETE FROM trial_values",
    "a value of another objective": "UPDATE trial_values SET objective = 3",
    "a value that is a word": "UPDATE trial_values SET value = 'high'",
    "an endless value": "UPDATE trial_values SET value_type = 'INF_POS'",
    "no beginning": "UPDATE trials SET datetime_start = NULL",
    "a beginning that is no time": "UPDATE trials SET datetime_start = 'once'",
    "a sign of life at no time": "UPDATE trial_heartbeats SET heartbeat = 'once'",
    "the other direction": "UPDATE study_directions SET direction = 'MINIMIZE'",
    "no direction": "DELETE FROM study_directions",
    "another version": "UPDATE alembic_version SET version_num = 'v9'",
    "a range that is none": "UPDATE trial_params SET distribution_json = '{}'",
    "a range of no kind": (
        'UPDATE trial_params SET distribution_json = \'{"name": "os.system", "attributes": {}}\''
    ),
    "another range": (
        "UPDATE trial_params SET distribution_json = replace(distribution_json, '0.0001', '0.01')"
    ),
    "a setting that is not searched": (
        "UPDATE trial_params SET param_name = 'hidden' WHERE param_name = 'dropout'"
    ),
    "a setting out of its range": "UPDATE trial_params SET param_value = 100.0",
    "a setting that is a word": "UPDATE trial_params SET param_value = 'x'",
    "lined up out of its range": (
        "UPDATE trial_system_attributes SET value_json = '{\"layers\": 1000000}'"
    ),
    "lined up with nothing known": (
        "UPDATE trial_system_attributes SET value_json = '{\"other\": 1}'"
    ),
    "lined up with a word": "UPDATE trial_system_attributes SET value_json = '[1]'",
    "a setting of the next trial": "UPDATE trial_params SET trial_id = 3 WHERE trial_id = 2",
    "words of the next trial": "UPDATE trial_user_attributes SET trial_id = 3 WHERE trial_id = 2",
    "a table that is gone": "DROP TABLE trial_values",
    "another study": "UPDATE studies SET study_name = 'other'",
    "a trigger": (
        "CREATE TRIGGER t AFTER INSERT ON trials BEGIN UPDATE trials SET number = 9; END"
    ),
    "a view": "CREATE VIEW v AS SELECT * FROM trials",
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_changed_study_is_refused(what: str, tmp_path: Path) -> None:
    data = changed(tmp_path, UNREADABLE[what])
    if what == "another study":  # beside which one of ours is made
        assert going_on.read_study(data, tmp_path).finished == 2
        return
    with pytest.raises(InputError, match=r"tuning\.db: is no (study that can be|storage)"):
        going_on.read_study(data, tmp_path)


# What stands in the statements that make the tables, what stands there instead, what is said.
LAYOUTS = {
    "a column more": ('"key" VARCHAR(512),', '"key" VARCHAR(512), step INTEGER NOT NULL,', "step"),
    "a column that may be empty more": ("number INTEGER,", "number INTEGER, n INTEGER,", "columns"),
    "a column less": ("number INTEGER, ", "", "trials has other columns: number"),
    "a key that is no number of a row": (
        "study_user_attribute_id INTEGER NOT",
        "study_user_attribute_id INTEGER A NOT",
        "another column study_user_attribute_id",
    ),
    "no key": ("PRIMARY KEY (trial_value_id)", "UNIQUE (trial_value_id)", "trial_value_id"),
    "a key of two": ("PRIMARY KEY (trial_id)", "PRIMARY KEY (trial_id, number)", "column number"),
    "numbers where text belongs": ("value_json TEXT", "value_json INTEGER", "value_json"),
    "a default": ("number INTEGER", "number INTEGER DEFAULT 7", "column number"),
    "a computed column": ("number INTEGER", "number INTEGER AS (trial_id)", "column number"),
    "what must be given": ("number INTEGER", "number INTEGER NOT NULL", "must have number"),
    "what may be twice": ('UNIQUE (trial_id, "key")', "CHECK (1)", "other unique columns"),
    "what may not be twice": ("number INTEGER", "number INTEGER UNIQUE", "other unique columns"),
    "what may not be twice at times": (
        "CREATE INDEX ix_trials_study_id ON trials (study_id)",
        "CREATE UNIQUE INDEX ix_trials_study_id ON trials (study_id) WHERE number > 1",
        "trials has other unique columns",
    ),
    "rows without a number": (
        'FOREIGN KEY(study_id) REFERENCES studies (study_id)\n);\nINSERT INTO "trials"',
        'CHECK (1)\n) WITHOUT ROWID;\nINSERT INTO "trials"',
        "trials has other unique columns",
    ),
    # Nothing but writing shows these.
    "a bound on values": ("trial_id INTEGER, ", "trial_id INTEGER CHECK (trial_id < 3),", "CHECK"),
    "a bound on names": (
        '"key" VARCHAR(512)',
        '"key" VARCHAR CHECK ("key" <> \'repeats\')',
        "CHECK",
    ),
    "no end of a trial": (
        "state VARCHAR(8)",
        "state VARCHAR(8) CHECK (state <> 'COMPLETE' OR trial_id = 1)",
        "it keeps no end of trial 2",
    ),
    "no end of a trial that was cut off": (
        "state VARCHAR(8)",
        "state VARCHAR(8) CHECK (state <> 'FAIL')",
        "it keeps no end of trial 1",
    ),
    "rows that are passed over": (
        "state VARCHAR(8)",
        "state VARCHAR(8) CHECK (state <> 'WAITING')",
        "CHECK",
    ),
}


@pytest.mark.parametrize("what", LAYOUTS)
def test_tables_that_optuna_does_not_make_are_refused(what: str, tmp_path: Path) -> None:
    old, new, said = (part.encode() for part in LAYOUTS[what])
    text = going_on.study()[0]
    assert old in text
    with pytest.raises(InputError, match=rf"tuning\.db: is no .*{said.decode()}.*; restore it"):
        going_on.read_study(text.replace(old, new), tmp_path)


def test_a_study_of_an_old_version_that_was_upgraded_is_gone_on_with(tmp_path: Path) -> None:
    """Its tables have another order, and let columns be empty that new ones do not."""
    from alembic import command

    optuna = find_optuna()
    url = f"sqlite:///{tmp_path / DATABASE}"
    manager = object.__new__(optuna.storages._rdb.storage._VersionManager)
    manager.url = url
    command.upgrade(manager._create_alembic_config(), "head")
    connection = sqlite3.connect(tmp_path / DATABASE)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(trials)")]
    connection.close()
    assert columns[-1] == "number"  # which is the second of those made anew
    assert going_on.read_study((tmp_path / DATABASE).read_bytes(), tmp_path).finished == 2


def test_tables_in_the_making_are_waited_for(tmp_path: Path) -> None:
    """Another process has made a table, and is about to make its index."""
    path = tmp_path / DATABASE
    index = "CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name)"
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute(
        "CREATE TABLE studies (study_id INTEGER NOT NULL PRIMARY KEY, "
        "study_name VARCHAR(512) NOT NULL)"
    )
    later = threading.Timer(0.5, lambda: connection.execute(index))
    later.start()
    try:
        with SharedStudy(f"sqlite:///{path}", "study", 0) as study:
            assert study.created
    finally:
        later.join()
        connection.close()


def test_a_table_whose_index_a_kill_left_out_gets_it(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    url = f"sqlite:///{path}"
    with SharedStudy(url, "study", 0):
        pass
    connection = sqlite3.connect(path, isolation_level=None)
    indexes = "SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY name"
    whole = connection.execute(indexes).fetchall()
    for name in ("studies", "trials"):
        connection.execute(f"DROP INDEX ix_{name}_study_{'name' if name == 'studies' else 'id'}")
    with pytest.raises(InputError, match=r"studies has other unique columns.*; restore it"):
        SharedStudy(url, "study", 0)  # that holds one: who took its index may have done more
    assert connection.execute(indexes).fetchall() != whole
    for table in ("studies", "study_directions"):
        connection.execute(f"DELETE FROM {table}")
    with SharedStudy(url, "study", 0) as study:
        assert study.created
    assert connection.execute(indexes).fetchall() == whole
    connection.close()


def test_tables_of_others_get_no_index(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE studies (study_id INTEGER PRIMARY KEY, study_name, school)")
    with pytest.raises(InputError, match="studies has other columns: school"):
        SharedStudy(f"sqlite:///{path}", "study", 0)
    made = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND tbl_name = 'studies'"
    assert connection.execute(made).fetchall() == []
    connection.close()


def test_a_database_that_another_process_writes_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lg2ar.tuning.shared.PATIENCE", 0.0)
    path = tmp_path / DATABASE
    with SharedStudy(f"sqlite:///{path}", "study", 0):
        pass
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")
    later = threading.Timer(0.5, lambda: connection.execute("COMMIT"))
    later.start()
    try:
        with SharedStudy(f"sqlite:///{path}", "study", 0) as study:
            study.begin({"data": 1}, {}, "study")
            assert len(study.trials()) == 1
    finally:
        later.join()
        connection.close()


def test_errors_of_a_database_are_told_and_slips_are_not(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    with SharedStudy(f"sqlite:///{path}", "study", 0) as study:
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM studies")
        connection.close()
        said = r"here: is no study .*Record does not exist"
        with pytest.raises(InputError, match=said) as told, database_told("here"):
            study.trials()
    assert isinstance(told.value.__cause__, KeyError)
    with pytest.raises(KeyError, match="a slip"), database_told("here"):
        raise KeyError("a slip")
    with pytest.raises(ZeroDivisionError), database_told("here"):
        _slip()
    with pytest.raises(InputError, match=r"^a sentence$"), database_told("here"):
        raise InputError("a sentence")
    said = r"here: cannot be written \(No room\); make room"
    with pytest.raises(InputError, match=said), database_told("here"):
        raise OSError("No room")


def _slip() -> float:
    return 1 / 0


def test_a_database_that_stays_locked_is_told(tmp_path: Path) -> None:
    import sqlalchemy

    path = tmp_path / DATABASE
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0})
    said = r"here: cannot be written \(database is locked\); make room"
    with (
        pytest.raises(InputError, match=said),
        database_told("here"),
        engine.connect() as other,
    ):
        other.execute(sqlalchemy.text("CREATE TABLE t (x)"))
    engine.dispose()
    connection.close()


def test_an_unchanged_study_is_gone_on_with(tmp_path: Path) -> None:
    assert going_on.read_study(changed(tmp_path), tmp_path).finished == 2


@pytest.mark.skipif("sys.platform != 'linux'", reason="counts open files as Linux tells them")
def test_a_search_leaves_no_file_open(tmp_path: Path) -> None:
    data = changed(tmp_path)

    def opened() -> list[str]:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        found = [os.path.realpath(link) for link in links]
        return [name for name in found if DATABASE in name and str(tmp_path) in name]

    gc.disable()  # which would close them some time
    try:
        going_on.read_study(data, tmp_path)
        assert opened() == []
    finally:
        gc.enable()
