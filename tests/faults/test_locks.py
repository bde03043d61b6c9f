"""Two processes and one folder or file: one waits or is told, and nothing is mixed up."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from faults.conftest import Tally
from faults.harness import KILLED, Commands, wait_for
from faults.jobs import JOBS
from lg2ar import files
from lg2ar.errors import InputError
from lg2ar.files import LOCK_FILE, alone_in, alone_with, among_others, append_line, in_turn

pytest.importorskip("optuna")
fcntl = pytest.importorskip("fcntl")

pytestmark = pytest.mark.skipif("sys.platform != 'linux'", reason="kills as Linux does")


@pytest.mark.parametrize("name", ["pretrain", "finetune"])
def test_a_second_writer_is_told_and_a_dead_one_does_not_block(
    name: str, tmp_path: Path, data_root: Path, tally: Tally
) -> None:
    commands = Commands(tmp_path / "logs")
    (tmp_path / "shared").mkdir()
    job = JOBS[name](tmp_path / "job", tmp_path / "shared")
    job.prepare(commands)
    long = ["--set", "epochs=9000"] + (["--set", "patience=9000"] if name == "finetune" else [])
    first = commands.start(*job.command(), *long)
    begun = "run.json" if name == "pretrain" else "finetuning.json"
    wait_for(lambda: (job.out / begun).exists(), first)
    before = (job.out / begun).stat().st_mtime_ns
    said = commands.refused(*job.command(), "--resume")
    assert said == (
        f"lg2ar: {job.out}: another process is writing there; wait until it ends, or choose "
        "another."
    )
    wait_for(lambda: (job.out / begun).stat().st_mtime_ns != before, first)  # it was not disturbed
    assert first.kill() == KILLED
    before = (job.out / begun).stat().st_mtime_ns
    started = commands.start(*job.command(), *long, "--resume")
    wait_for(lambda: (job.out / begun).stat().st_mtime_ns != before, started)
    started.signal(signal.SIGTERM)
    assert started.end() == 143, started.printed
    job.check()
    tally("second writers told")


def test_a_folder_is_free_again_and_tidy(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with alone_in(folder):
        with pytest.raises(InputError, match="another process is writing there"), alone_in(folder):
            pass
        (folder / "something").write_text("")
    with alone_in(folder):
        pass
    assert [path.name for path in folder.iterdir()] == ["something"]
    with pytest.raises(KeyError), alone_in(tmp_path / "other"):
        raise KeyError
    assert not (tmp_path / "other").exists()  # nothing came of it
    with (
        alone_with(folder / "data.sqlite"),
        pytest.raises(InputError, match=r"data\.sqlite: another process"),
        alone_with(folder / "data.sqlite"),
    ):
        pass


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who held it removed it after we had opened it: we have locked a file that has no name."""
    before, seen = fcntl.flock, list[int]()

    def late(file: Any, how: int) -> None:
        if not seen:
            (tmp_path / LOCK_FILE).unlink()
        before(file, how)
        seen.append(how)

    monkeypatch.setattr(fcntl, "flock", late)
    with alone_in(tmp_path):
        assert len(seen) == 2
        with pytest.raises(InputError, match="another process"), alone_in(tmp_path):
            pass
    assert not list(tmp_path.iterdir())


def test_a_lock_that_another_made_anew_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, before, theirs = tmp_path / LOCK_FILE, fcntl.flock, list[Any]()

    def late(file: Any, how: int) -> None:
        if not theirs:
            path.unlink()
            theirs.append(open(path, "wb"))  # noqa: SIM115
            before(theirs[0], fcntl.LOCK_EX)
        before(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(InputError, match="another process is writing there"), alone_in(tmp_path):
        pass
    assert path.exists()  # not ours to remove
    theirs[0].close()
    with alone_in(tmp_path):
        pass


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_lock_file_that_cannot_be_made_is_told(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: Any, *_: Any) -> Any:
        raise OSError(number, os.strerror(number), str(file))

    monkeypatch.setattr(files, "open", refuse, raising=False)
    with pytest.raises(InputError) as told, alone_with(tmp_path / "a.graph"):
        pass
    assert str(told.value) == (
        f"{tmp_path}/a.graph: cannot be written, as {tmp_path} takes no lock file "
        f"({os.strerror(number)}); make that folder writable, or choose another."
    )


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_disk_without_locks_is_written_to_without(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with alone_in(tmp_path):
        append_line(tmp_path / "records.jsonl", "{}")
    assert (tmp_path / "records.jsonl").read_text() == "{}\n"
    with among_others(tmp_path / "lock") as alone:
        assert not alone  # nobody knows


def test_the_first_among_others_was_alone(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with among_others(file) as first:
        with among_others(file) as second, among_others(file) as third:
            assert (first, second, third) == (True, False, False)
        with among_others(file) as again:  # the first is still there
            assert not again
    with among_others(file) as last:
        assert last


def wait_in_turn(folder: str, log: str) -> None:
    with in_turn(Path(folder), "do something else."):
        with open(log, "a") as file:
            file.write("begin\n")
        time.sleep(0.05)
        with open(log, "a") as file:
            file.write("end\n")


def test_who_waits_in_turn_is_alone(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    call = (str(tmp_path / "data"), str(tmp_path / "log"))
    started = [context.Process(target=wait_in_turn, args=call, daemon=True) for _ in range(4)]
    for process in started:
        process.start()
    for process in started:
        process.join()
        assert process.exitcode == 0
    assert (tmp_path / "log").read_text() == "begin\nend\n" * 4
    (tmp_path / "file").write_text("")
    told = r"file/data: cannot be written \(.*\); do something else\.$"
    with (
        pytest.raises(InputError, match=told),
        in_turn(tmp_path / "file" / "data", "do something else."),
    ):
        pass


def append_many(path: str, writer: int, lines: int) -> None:
    for number in range(lines):
        append_line(Path(path), json.dumps({"writer": writer, "number": number, "x": "y" * 9000}))


def check_lines(path: Path, writers: int, lines: int) -> None:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for writer in range(writers):
        own = [record["number"] for record in found if record["writer"] == writer]
        assert own == list(range(lines))
    assert len(found) == writers * lines


@pytest.mark.parametrize(
    ("writers", "lines"), [(4, 25), pytest.param(8, 1000, marks=pytest.mark.soak)]
)
def test_records_of_many_processes_are_whole_lines(
    writers: int, lines: int, tmp_path: Path, tally: Tally
) -> None:
    path = tmp_path / "records.jsonl"
    context = multiprocessing.get_context("fork")
    started = [
        context.Process(target=append_many, args=(str(path), writer, lines), daemon=True)
        for writer in range(writers)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
        assert process.exitcode == 0
    check_lines(path, writers, lines)
    tally("lines appended at once", writers * lines)


def test_a_kill_in_the_middle_of_a_line_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"a": 1}\n{"b": ')
    append_line(path, '{"c": 3}')
    assert path.read_text() == '{"a": 1}\n{"c": 3}\n'
    path.write_text('{"a": 1}')  # its end alone is missing
    append_line(path, '{"c": 3}')
    assert path.read_text() == '{"a": 1}\n{"c": 3}\n'
    path.write_text("not ours")
    append_line(path, '{"c": 3}')
    assert path.read_text() == 'not ours\n{"c": 3}\n'


def test_two_studies_into_one_file(tmp_path: Path, data_root: Path) -> None:
    """Both append to it at once; every run is there, each in a line of its own."""
    commands = Commands(tmp_path / "logs")
    job = JOBS["reproduce"](tmp_path / "job", tmp_path)
    one = commands.start(*job.command(), "--first-seed", "0")
    two = commands.start(*job.command(), "--first-seed", "10")
    assert (one.end(), two.end()) == (0, 0), one.printed + two.printed
    job.check()
    seeds = [json.loads(line)["task"]["seed"] for line in job.out.read_text().splitlines()]
    assert sorted(seeds) == [0, 1, 2, 10, 11, 12]
