"""Two processes and one folder or file: one waits or is told, and nothing is mixed up."""

from __future__ import annotations

import json
import multiprocessing
import signal
from pathlib import Path

import pytest

from faults.conftest import Tally
from faults.harness import KILLED, Commands, wait_for
from faults.jobs import JOBS
from lg2ar.errors import InputError
from lg2ar.files import alone_in, alone_with, append_line

pytest.importorskip("optuna")

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
