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
from faults.harness import FULL, SAYS, Commands, Fault, Started
from faults.jobs import JOBS, Job, study_of
from lg2ar import checkpoint
from lg2ar.data.conversion import write_on_disk
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import InputError
from lg2ar.files import append_line
from lg2ar.finetuning.progress import BEGUN

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


def check_told(said: str, job: Job, *words: str) -> None:
    """See that a sentence names what could not be written, and says why in one of these words."""
    assert str(job.out) in said
    rest = said.replace(str(job.folder), "")  # the folders of these tests have such names
    assert any(word in rest for word in words), said


def test_no_file_may_grow(job: Job, commands: Commands, tally: Tally) -> None:
    """The limit is too low for the first weight file, database or record."""
    said = commands.refused(*job.command(), fault=Fault(file_size=1000))
    job.check()
    check_told(said, job, "File too large", "disk")
    tally("full disks survived")


def test_a_full_disk(resumed: Job, commands: Commands, small_disk: Path, tally: Tally) -> None:
    """Then there is room again, and the same command goes on."""
    disk = type(resumed)(small_disk / "job", resumed.shared)
    filler = small_disk / "filler"
    with suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
    said = commands.refused(*disk.command())
    check_told(said, disk, "No space left", "disk")
    disk.check()
    filler.unlink()
    commands.ok(*disk.command(), "--resume")
    disk.check()
    disk.result()
    tally("full disks survived")


def full_at(at: int, kind: str, job: Job, commands: Commands) -> tuple[Started, Any]:
    """A job on a disk that is full or read-only at some call, and gone on with where it ended.

    Returns:
        The one that may have ended, and what is left.
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
    return started, job.result()


@pytest.mark.parametrize(("at", "kind"), [(12, "full"), (25, "full once"), (30, "read-only")])
def test_a_full_disk_at_some_calls_that_write(
    at: int, kind: str, commands: Commands, tmp_path: Path, data_root: Path, tally: Tally
) -> None:
    """Or one that becomes read-only there."""
    done, again = (JOBS["pretrain"](tmp_path / name, tmp_path) for name in ("done", "again"))
    commands.ok(*done.command())
    started, left = full_at(at, kind, again, commands)
    assert started.struck
    assert started.end() == 2
    check_told(started.printed, again, os.strerror(SAYS[kind]))
    assert left == done.result()
    tally("read-only disks survived" if kind == "read-only" else "full disks survived")


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
        started, left = full_at(at, kind, again, commands)
        assert left == expected, at
        told += started.end() == 2
        if not started.struck:
            break
    assert told > 0
    tally("full disks survived", at - 1)


def test_a_read_only_disk(job: Job, commands: Commands, small_disk: Path, tally: Tally) -> None:
    disk = type(job)(small_disk / "job", job.shared)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    said = commands.refused(*disk.command())
    check_told(said, disk, "Read-only", "read-only", "unable to open")
    tally("read-only disks survived")


def test_a_disk_that_becomes_read_only(
    commands: Commands, small_disk: Path, data_root: Path
) -> None:
    """Before a run is gone on with: it is kept as it was, and gone on with later."""
    job = JOBS["pretrain"](small_disk / "job", small_disk)
    commands.ok(*job.command())
    before = content(job.out)
    more = [*job.command(), "--resume", "--set", "epochs=20"]
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    check_told(commands.refused(*more), job, "Read-only")
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    commands.ok(*job.command(), "--resume")
    assert content(job.out) == before
    commands.ok(*more)
    assert len(checkpoint.read(job.out).progress["history"]) == 20


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


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
    kept = checkpoint.read_head(out, BEGUN, "")["histories"]
    assert {name: len(epochs) for name, epochs in kept.items()} == {"pretrained": 6, "untrained": 3}
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
    assert len(study_of(tmp_path / "broken" / "tuning.db")) == 2
    shutil.move(aside, path)
    again = tune(path, tmp_path / "broken", **how)
    assert (again.settings, again.value, again.trial) == (whole.settings, whole.value, whole.trial)
