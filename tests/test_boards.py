"""TensorBoard: each epoch's numbers arrive; nothing is written where it is not asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import lg2ar
from commands import Command
from lg2ar.boards import Board, write_record
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import InputError
from lg2ar.records import EpochRecord

RECORD = EpochRecord(
    epoch=3,
    steps=4,
    base_steps=3,
    loss=1.5,
    draws=[[1, 0], [2, 1]],
    probabilities=[0.25, 0.75],
    mean_edge_weight=0.5,
    seconds=2.0,
    peak_memory=2**21,
)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


class Listening:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, tuple[float, int]] = {}

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.told[name] = (value, step)


def test_a_record_is_its_numbers() -> None:
    writer = Listening()
    write_record(writer, RECORD, ("identity", "sub-graph"))
    assert writer.told == {
        "loss": (1.5, 3),
        "speed/steps per second": (2.0, 3),
        "speed/seconds per epoch": (2.0, 3),
        "memory/peak in MiB": (2.0, 3),
        "views/mean edge weight": (0.5, 3),
        "encoders/share of base steps": (0.75, 3),
        "policy/probability of identity": (0.25, 3),
        "policy/probability of sub-graph": (0.75, 3),
        "draws/share of identity": (4 / 8, 3),
        "draws/share of sub-graph": (4 / 8, 3),
    }
    unnamed = Listening()
    write_record(unnamed, RECORD)
    assert "policy/probability of 1" in unnamed.told


def read(folder: Path) -> Any:
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = loading.EventAccumulator(str(folder))
    events.Reload()
    return events


def test_tensorboard_reads_what_training_told(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    settings = {"hidden": 8, "layers": 2, "epochs": 3}
    with Board(tmp_path) as board:
        run = lg2ar.pretrain(toy_graphs(20), settings, device="cpu", on_epoch=board.on_epoch)
    found = read(tmp_path).Scalars("loss")
    assert [event.step for event in found] == [1, 2, 3]
    assert [event.value for event in found] == pytest.approx([r.loss for r in run.history])


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Board(None) as board:
        board.on_epoch(RECORD)
    assert list(tmp_path.iterdir()) == []


def test_without_tensorboard_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'lg2ar\[board\]'"):
        Board("folder")


def test_the_flag(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    small = ["--set", "hidden=8", "--set", "layers=2", "--set", "epochs=2", "--device", "cpu"]
    told = tmp_path / "board"
    command.ok("pretrain", "toy-graphs", "--out", tmp_path / "run", "--tensorboard", told, *small)
    events = read(told)
    assert [event.step for event in events.Scalars("loss")] == [1, 2]
    assert "policy/probability of sub-graph" in events.Tags()["scalars"]
