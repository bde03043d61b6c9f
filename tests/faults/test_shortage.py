"""Memory that does not suffice, and losses that are no numbers: a sentence says what to do."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import lg2ar
from commands import Command
from faults.conftest import Tally
from faults.harness import Commands, Fault
from faults.jobs import JOBS
from lg2ar import checkpoint
from lg2ar.data.arrays import write_arrays
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import MemoryShortageError, NonFiniteLossError
from lg2ar.finetuning.targets import Target
from lg2ar.model import LG2AR
from lg2ar.shortage import is_shortage, naming_settings
from lg2ar.tuning import Choice, Range, tune

pytest.importorskip("optuna")

SETTINGS: dict[str, Any] = {"hidden": 4, "layers": 1, "batch_size": 10, "epochs": 4}
WORDS = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
]


def break_after(steps: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the model fail with an error after so many steps."""
    forward, seen = LG2AR.forward, 0

    def failing(self: LG2AR, *args: Any, **named: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen > steps:
            raise error
        return forward(self, *args, **named)

    monkeypatch.setattr(LG2AR, "forward", failing)


@pytest.mark.parametrize("error", WORDS, ids=lambda error: type(error).__name__)
def test_a_lack_of_memory_names_the_settings(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_shortage(error)
    whole = lg2ar.pretrain(toy_graphs(20), SETTINGS, device="cpu")
    break_after(5, error, monkeypatch)  # in the third epoch
    words = r"out of memory on cpu: lower batch_size \(now 10\), hidden \(now 4\) or layers \(now 1"
    with pytest.raises(MemoryShortageError, match=words):
        lg2ar.pretrain(toy_graphs(20), SETTINGS, out=tmp_path / "run", device="cpu")
    monkeypatch.undo()
    assert len(checkpoint.read(tmp_path / "run").progress["history"]) == 2
    run = lg2ar.pretrain(toy_graphs(20), None, out=tmp_path / "run", resume=True, device="cpu")
    assert all(
        torch.equal(value, run.model.state_dict()[key])
        for key, value in whole.model.state_dict().items()
    )


def test_other_errors_are_not_taken_for_it() -> None:
    for error in (RuntimeError("a shape does not fit"), ValueError("out of memory")):
        assert not is_shortage(error)
        with pytest.raises(type(error), match=str(error)), naming_settings("cpu", hidden=1, b=2):
            raise error


@pytest.mark.skipif("sys.platform != 'linux'", reason="limits memory as Linux does")
@pytest.mark.parametrize("name", ["pretrain", "finetune", "reproduce"])
def test_memory_that_really_does_not_suffice(
    name: str, tmp_path: Path, data_root: Path, tally: Tally
) -> None:
    commands = Commands(tmp_path / "logs")
    (tmp_path / "shared").mkdir()
    job = JOBS[name](tmp_path / "job", tmp_path / "shared")
    job.prepare(commands)
    if name == "finetune":
        wide, memory = ["--set", "hidden=400000", "--set", "batch_size=64"], 100
    else:
        wide, memory = ["--set", "hidden=8192"], 400
    code, printed = commands.run(*job.command(), *wide, fault=Fault(memory=memory))
    assert code == 2, printed
    assert "Traceback" not in printed
    assert "out of memory on cpu: lower " in printed
    assert "hidden (now " in printed
    tally("lacks of memory survived")


def test_a_search_passes_over_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = LG2AR.forward

    def failing(self: LG2AR, *args: Any, **named: Any) -> Any:
        if self.base_encoder.network.out_features > 8:
            raise MemoryError
        return forward(self, *args, **named)

    monkeypatch.setattr(LG2AR, "forward", failing)
    fixed = {"layers": 1, "epochs": 1, "batch_size": 10}
    space: dict[str, Choice | Range] = {
        "hidden": Choice((4, 64)),
        "learning_rate": Range(1e-3, 1e-2, log=True),
    }
    found = tune(toy_graphs(20), tmp_path, trials=6, settings=fixed, space=space, device="cpu")
    assert found.settings["hidden"] == 4
    assert found.broken


def test_a_loss_that_is_no_number_keeps_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, seen = LG2AR.forward, 0

    def broken(self: LG2AR, *args: Any, **named: Any) -> Any:
        nonlocal seen
        seen += 1
        output = forward(self, *args, **named)
        if seen > 5:
            output.loss.data.fill_(math.nan)
        return output

    monkeypatch.setattr(LG2AR, "forward", broken)
    words = r"The loss became nan in epoch 3, step 2: lower learning_rate .* epoch 2 is kept"
    with pytest.raises(NonFiniteLossError, match=words):
        lg2ar.pretrain(toy_graphs(20), SETTINGS, out=tmp_path, device="cpu")
    assert len(checkpoint.read(tmp_path, with_training=True).progress["history"]) == 2


def test_fine_tuning_that_breaks_down_keeps_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = lg2ar.pretrain(toy_graphs(40), SETTINGS, device="cpu")
    how: dict[str, Any] = {"epochs": 6, "patience": 6, "batch_size": 64, "floor": False}
    whole = lg2ar.finetune(run, toy_graphs(40), **how)
    loss, seen = Target.loss, 0

    def broken(self: Target, *args: Any) -> Any:
        nonlocal seen
        seen += 1
        value = loss(self, *args)
        return value * math.nan if seen > 6 else value  # two an epoch: learning, then checking

    monkeypatch.setattr(Target, "loss", broken)
    words = r"The loss became nan in epoch 4 of fine-tuning: lower learning_rate"
    with pytest.raises(NonFiniteLossError, match=words):
        lg2ar.finetune(run, toy_graphs(40), out=tmp_path, **how)
    monkeypatch.undo()
    head = json.loads((tmp_path / "finetuning.json").read_text())
    assert len(head["histories"]["pretrained"]) == 3
    again = lg2ar.finetune(run, toy_graphs(40), out=tmp_path, resume=True, **how)
    assert again.history == whole.history
    assert again.scores == whole.scores


def test_numbers_beyond_all_bounds_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs = toy_graphs(20)
    huge = replace(graphs, graph=graphs.graph.replace(x=torch.full_like(graphs.graph.x, 3e38)))
    write_arrays(tmp_path / "huge.npz", huge)
    small = ["--set", "hidden=4", "--set", "layers=1", "--device", "cpu"]
    command = Command(monkeypatch, capsys)
    said = command.refused("pretrain", tmp_path / "huge.npz", "--out", tmp_path / "run", *small)
    assert "lower learning_rate" in said
    assert "The state of epoch 0 is kept." in said
    checkpoint.read(tmp_path / "run", with_training=True)


def test_a_study_passes_over_what_breaks_down(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It is told, the other runs are done, and the next start does it again."""
    job, command = JOBS["reproduce"](tmp_path / "job", tmp_path), Command(monkeypatch, capsys)
    forward = LG2AR.forward
    calls = 0

    def broken(self: LG2AR, *args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        output = forward(self, *args, **named)
        if calls == 1:
            output.loss.data.fill_(math.nan)
        if calls == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return output

    monkeypatch.setattr(LG2AR, "forward", broken)
    code, out, error = command(*job.command())
    assert code == 2
    assert "1 runs done, 0 were there already, 2 failed" in out
    assert "lower learning_rate" in error
    assert "out of memory on cpu: lower batch_size" in error
    assert "2 runs done, 1 were there already, 0 failed" in command.ok(*job.command())
