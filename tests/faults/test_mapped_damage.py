"""Damaged folders of one large graph: one sentence that names the file, wherever it is noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Command
from lg2ar import experiment
from lg2ar.data.mapped_layout import check_sums
from lg2ar.data.mapping import write_mapped
from lg2ar.data.toy import toy_nodes
from lg2ar.errors import InputError
from sealing import write_sealed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_mapped(tmp_path / "g.graph", toy_nodes(60))
    return tmp_path / "g.graph"


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    held = json.loads((folder / "graph.json").read_text())
    edit(held)
    write_sealed(folder / "graph.json", held)


def overwrite(folder: Path, name: str, place: int, value: float) -> None:
    array = np.load(folder / f"{name}.npy", mmap_mode="r+")
    array.reshape(-1)[place] = value
    array.flush()


def cut(folder: Path, name: str) -> None:
    path = folder / f"{name}.npy"
    os.truncate(path, path.stat().st_size - 4)


def lengthen(folder: Path, name: str) -> None:
    with open(folder / f"{name}.npy", "ab") as file:
        file.write(b"more")


def of_another_type(folder: Path, name: str) -> None:
    np.save(folder / f"{name}.npy", np.load(folder / f"{name}.npy").astype(np.float64))


def pickled(folder: Path, name: str) -> None:
    np.save(folder / f"{name}.npy", np.array([print, None], dtype=object), allow_pickle=True)


AT_ONCE: dict[str, Callable[[Path], Any]] = {
    "x.npy is missing": lambda folder: (folder / "x.npy").unlink(),
    "to.npy is missing": lambda folder: (folder / "to.npy").unlink(),
    "graph.json is missing": lambda folder: (folder / "graph.json").unlink(),
    "to.npy: has": lambda folder: cut(folder, "to"),
    "x.npy: has": lambda folder: lengthen(folder, "x"),
    "y.npy: holds": lambda folder: of_another_type(folder, "y"),
    "x.npy: holds": lambda folder: pickled(folder, "x"),
    "start.npy: ": lambda folder: (folder / "start.npy").write_bytes(b"nothing"),
    "start.npy does not end": lambda folder: overwrite(folder, "start", -1, 7),
    "another format": lambda folder: change(folder, lambda held: held.update(format=0)),
    "graph.json: ": lambda folder: (folder / "graph.json").write_text('{"format": 1'),
    "a count is not": lambda folder: change(folder, lambda held: held.update(num_nodes=-1)),
    "start is <i8": lambda folder: change(folder, lambda held: held.update(num_nodes=10**12)),
}


@pytest.mark.parametrize("told", AT_ONCE)
def test_damage_is_told_in_one_sentence(
    folder: Path, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    AT_ONCE[told](folder)
    lg2ar = Command(monkeypatch, capsys)
    sentence = lg2ar.refused("pretrain", folder, "--out", folder.parent / "run")
    assert told in sentence
    assert str(folder) in sentence
    assert "make it again with 'lg2ar convert'" in sentence
    assert not (folder.parent / "run").exists()


WHEN_READ: dict[str, Callable[[Path], Any]] = {
    "to.npy holds 60, outside 0 to 59": lambda folder: overwrite(folder, "to", 30, 60),
    "to.npy holds -3, outside 0 to 59": lambda folder: overwrite(folder, "to", 30, -3),
    "start.npy is not ascending": lambda folder: overwrite(folder, "start", 5, 10**2),
    "start.npy holds 1000000000": lambda folder: overwrite(folder, "start", 5, 10**9),
    "are not finite": lambda folder: overwrite(folder, "x", 30, np.nan),
}


@pytest.mark.parametrize("told", WHEN_READ)
def test_damage_inside_is_noticed_where_it_is_read(folder: Path, told: str) -> None:
    run = experiment.pretrain(folder, {"epochs": 0, "hidden": 8}, device="cpu")
    WHEN_READ[told](folder)
    with pytest.raises(InputError, match=told):
        run.embed(folder)
    with pytest.raises(InputError, match=told):
        experiment.pretrain(folder, {"epochs": 60, "patience": 0, "hidden": 8}, device="cpu")


@pytest.mark.parametrize("name", ["start", "to", "x", "y"])
def test_checksums_are_compared_on_demand(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lg2ar = Command(monkeypatch, capsys)
    assert "are what was written" in lg2ar.ok("inspect", folder, "--check")
    overwrite(folder, name, 1, 2)
    assert f"{name}.npy is not what was written" in lg2ar.refused("inspect", folder, "--check")
    with pytest.raises(InputError, match="checksum"):
        check_sums(folder)
    assert "has no checksums" in lg2ar.refused("inspect", "toy-nodes", "--check")


KILLED = """
import sys, time
from pathlib import Path
from lg2ar.data import mapping
from lg2ar.data.toy import toy_nodes
before = mapping.FolderWriter.finish
def slow(self, **known):
    Path(sys.argv[2]).write_text("now")
    time.sleep(60)
    return before(self, **known)
mapping.FolderWriter.finish = slow
mapping.write_mapped(sys.argv[1], toy_nodes(80), replace=True)
"""


def test_a_killed_conversion_leaves_what_was_there(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    sign = folder.parent / "sign"
    source = str(Path(experiment.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), str(sign)],
        env={**os.environ, "PYTHONPATH": source},
    )
    while not sign.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert len(list(folder.parent.glob(".g.graph.*.part"))) == 1
    write_mapped(folder, toy_nodes(80), replace=True)
    check_sums(folder)
    assert not list(folder.parent.glob(".*"))


def test_a_folder_that_was_about_to_be_replaced_comes_back(folder: Path) -> None:
    """Killed between the two renames: the old folder is beside its place."""
    folder.rename(folder.with_name(".g.graph.999999999.old"))
    with pytest.raises(InputError, match="is there already"):
        write_mapped(folder, toy_nodes(20))
    folder.rename(folder.with_name(".g.graph.999999999.old"))
    with pytest.raises(InputError, match="not one large graph"):
        write_mapped(folder, toy_graphs_dataset(), replace=True)
    folder.rename(folder.with_name(".g.graph.999999999.old"))
    with pytest.raises(InputError, match="cannot be written"):
        with_full_disk(folder)
    assert experiment.pretrain(folder, {"epochs": 0, "hidden": 8}, device="cpu").data


def toy_graphs_dataset() -> Any:
    from lg2ar.data.toy import toy_graphs

    return toy_graphs(4)


def with_full_disk(folder: Path) -> None:
    """Write where there is no room."""
    from lg2ar.data import mapping

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapping.ArrayWriter, "append", full)
        write_mapped(folder, toy_nodes(20), replace=True)
