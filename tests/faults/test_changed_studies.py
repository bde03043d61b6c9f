"""Searches whose database another hand has changed: refused in one sentence, or gone on with."""

from __future__ import annotations

import gc
import os
import sqlite3
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from faults.fuzz import going_on
from lg2ar.errors import InputError
from lg2ar.tuning.search import DATABASE


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


@pytest.mark.parametrize("table", ["trials", "trial_values"])
def test_a_table_without_a_key_is_refused(table: str, tmp_path: Path) -> None:
    data = changed(
        tmp_path,
        f"CREATE TABLE other AS SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE other RENAME TO {table}",
    )
    with pytest.raises(InputError, match=f"{table} has no key"):
        going_on.read_study(data, tmp_path)


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
