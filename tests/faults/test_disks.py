"""Disks that are full or read-only, and data that vanishes: one sentence, and nothing is lost."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import lg2ar
from faults.conftest import Tally
from faults.harness import FULL, Commands, Fault
from faults.jobs import JOBS, Job
from lg2ar import checkpoint
from lg2ar.data.conversion import write_on_disk
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import InputError
from lg2ar.files import append_line

pytest.importorskip("optuna")

pytestmark = pytest.mark.skipif("sys.platform != 'linux'", reason="breaks as Linux does")


@pytest.fixture(params=list(JOBS))
def job(request: pytest.FixtureRequest, tmp_path: Path, data_root: Path) -> Job:
    """Each command in turn."""
    (tmp_path / "shared").mkdir()
    made = JOBS[request.param](tmp_path / "job", tmp_path / "shared")
    made.prepare(Commands(tmp_path / "before"))
    return made


@pytest.fixture(params=["pretrain", "tune"])
def resumed(request: pytest.FixtureRequest, tmp_path: Path, data_root: Path) -> Job:
    """Some commands; the long tests have them all, at every call."""
    return JOBS[request.param](tmp_path / "job", tmp_path)


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path / "logs")


def mounted(folder: Path, *options: str) -> bool:
    """Whether a file system was mounted; root alone may."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    with suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    folder = tmp_path / "disk"
    if not mounted(folder, "size=8m"):
        pytest.skip("mounting a small file system takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_no_file_may_grow(job: Job, commands: Commands, tally: Tally) -> None:
    """The limit is too low for the first weight file, database or record."""
    said = commands.refused(*job.command(), fault=Fault(file_size=1000))
    assert str(job.out) in said
    job.check()
    assert "File too large" in said or "disk" in said, said
    tally("full disks survived")


def test_a_full_disk(resumed: Job, commands: Commands, small_disk: Path, tally: Tally) -> None:
    """Then there is room again, and the same command goes on."""
    disk = type(resumed)(small_disk / "job", resumed.shared)
    filler = small_disk / "filler"
    with suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
    said = commands.refused(*disk.command())
    assert str(disk.out) in said
    assert "No space left" in said or "disk" in said, said
    disk.check()
    filler.unlink()
    commands.ok(*disk.command(), "--resume")
    disk.check()
    disk.result()
    tally("full disks survived")


def full_at(at: int, kind: str, job: Job, commands: Commands) -> tuple[int | None, bool, Any]:
    """A job on a disk that is full at some call, and gone on with where it ended.

    Returns:
        Its exit code, whether it came as far as that call, and what is left.
    """
    fault = Fault(kind=kind, at=at, under=str(job.folder))
    started = commands.start(*job.command(), fault=fault)
    code = started.end()
    assert "Traceback" not in started.printed, started.printed
    assert code in (0, 2), started.printed
    job.check()
    if code == 2:
        assert "lg2ar: " in started.printed, started.printed
        commands.ok(*job.command(), "--resume")
    return code, started.struck, job.result()


@pytest.mark.parametrize(("at", "kind"), [(12, "full"), (25, "full once")])
def test_a_full_disk_at_some_calls_that_write(
    at: int, kind: str, commands: Commands, tmp_path: Path, data_root: Path, tally: Tally
) -> None:
    done, again = (JOBS["pretrain"](tmp_path / name, tmp_path) for name in ("done", "again"))
    commands.ok(*done.command())
    code, struck, left = full_at(at, kind, again, commands)
    assert struck
    assert code == 2
    assert left == done.result()
    tally("full disks survived")


@pytest.mark.soak
@pytest.mark.parametrize("kind", FULL)
def test_a_full_disk_at_every_call_that_writes(
    job: Job, kind: str, commands: Commands, tmp_path: Path, tally: Tally
) -> None:
    """A call that nothing depends on may fail unnoticed; what the job leaves is the same."""
    commands.ok(*job.command())
    expected, told = job.result(), 0
    for at in itertools.count(1):
        again = type(job)(tmp_path / f"job-{at}", job.shared)
        code, struck, left = full_at(at, kind, again, commands)
        assert left == expected, at
        told += code == 2
        if not struck:
            break
    assert told > 0
    tally("full disks survived", at - 1)


def test_a_read_only_disk(job: Job, commands: Commands, small_disk: Path, tally: Tally) -> None:
    disk = type(job)(small_disk / "job", job.shared)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    said = commands.refused(*disk.command())
    assert str(disk.out) in said
    assert "Read-only" in said or "read-only" in said or "unable to open" in said, said
    tally("read-only disks survived")


def test_a_disk_that_becomes_read_only(
    commands: Commands, small_disk: Path, data_root: Path
) -> None:
    """In the midst of a run: what was saved before is there."""
    job = JOBS["pretrain"](small_disk / "job", small_disk)
    commands.ok(*job.command())
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    said = commands.refused(*job.command(), "--resume", "--set", "epochs=20")
    assert "Read-only" in said
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    commands.ok(*job.command(), "--resume")
    job.result()


def test_a_line_that_does_not_fit_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    append_line(path, '{"a": 1}')

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"records\.jsonl: cannot be written .*No space"):
        append_line(path, '{"b": 2}')
    monkeypatch.undo()
    assert path.read_text() == '{"a": 1}\n'
    with pytest.raises(InputError, match=r"/dev/full: cannot be written .*No space"):
        append_line(Path("/dev/full"), '{"b": 2}')


SETTINGS: dict[str, Any] = {"hidden": 4, "layers": 1, "batch_size": 10, "epochs": 4}


def test_data_that_vanishes_in_the_midst_of_training(tmp_path: Path) -> None:
    path, aside, out = tmp_path / "graphs.sqlite", tmp_path / "aside", tmp_path / "run"
    write_on_disk(path, toy_graphs(40))
    whole = lg2ar.pretrain(path, SETTINGS, device="cpu")

    def vanish(record: Any) -> None:
        if record.epoch == 2:
            shutil.move(path, aside)

    with pytest.raises(InputError, match=r"graphs\.sqlite: cannot be opened"):
        lg2ar.pretrain(path, SETTINGS, out=out, device="cpu", on_epoch=vanish)
    assert len(checkpoint.read(out).progress["history"]) == 2
    shutil.move(aside, path)
    again = lg2ar.pretrain(path, SETTINGS, out=out, device="cpu", resume=True)
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[key])


def test_data_that_vanishes_in_the_midst_of_fine_tuning(tmp_path: Path) -> None:
    path, aside, out = tmp_path / "graphs.sqlite", tmp_path / "aside", tmp_path / "tuned"
    write_on_disk(path, toy_graphs(40))
    run = lg2ar.pretrain(path, SETTINGS, device="cpu")
    how: dict[str, Any] = {"epochs": 6, "patience": 6, "batch_size": 10}
    whole = lg2ar.finetune(run, path, **how)

    def vanish(name: str, record: Any) -> None:
        if (name, record.epoch) == ("untrained", 3) and path.exists():
            shutil.move(path, aside)

    with pytest.raises(InputError, match=r"graphs\.sqlite: cannot be opened"):
        lg2ar.finetune(run, path, out=out, on_epoch=vanish, **how)
    shutil.move(aside, path)
    again = lg2ar.finetune(run, path, out=out, resume=True, **how)
    assert again.scores == whole.scores
    assert again.history == whole.history


def test_data_that_vanishes_in_the_midst_of_a_search(tmp_path: Path) -> None:
    from lg2ar.tuning import tune

    path, aside = tmp_path / "graphs.sqlite", tmp_path / "aside"
    write_on_disk(path, toy_graphs(40))
    how: dict[str, Any] = {"trials": 3, "settings": SETTINGS, "device": "cpu"}
    whole = tune(path, tmp_path / "whole", **how)

    def vanish(done: int, total: int, best: float | None) -> None:
        if done == 2 and not aside.exists():
            shutil.move(path, aside)

    with pytest.raises(InputError, match=r"graphs\.sqlite: cannot be opened"):
        tune(path, tmp_path / "broken", on_trial=vanish, **how)
    shutil.move(aside, path)
    again = tune(path, tmp_path / "broken", **how)
    assert (again.settings, again.value, again.trial) == (whole.settings, whole.value, whole.trial)
