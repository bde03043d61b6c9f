"""Run folders: whole or not there, checked on reading, and never unpickled."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lg2ar import checkpoint
from lg2ar.checkpoint import Checkpoint
from lg2ar.config import Config
from lg2ar.errors import InputError
from lg2ar.records import EpochRecord
from sealing import write_sealed


def record(epoch: int) -> dict[str, Any]:
    return EpochRecord(
        epoch=epoch,
        steps=1,
        base_steps=1,
        loss=1.0 / epoch,
        draws=[[1]],
        probabilities=[1.0],
        mean_edge_weight=1.0,
        seconds=0.1,
        peak_memory=1,
    ).to_dict()


def state(epochs: int = 2) -> Checkpoint:
    return Checkpoint(
        config=Config.make(hidden=8),
        recipe={"name": "constant", "given": 0, "cap": 100},
        data={"name": "toy", "fingerprint": "abc"},
        versions={"torch": "x"},
        progress={"best_epoch": 0, "history": [record(k + 1) for k in range(epochs)]},
        finished=False,
        model={"weight": torch.full((2, 3), float(epochs)), "count": torch.tensor(epochs)},
        training={"model.weight": torch.arange(6.0).view(3, 2).T},
    )


def model_file(folder: Path) -> Path:
    return next(folder.glob("model-*.safetensors"))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "run", state())
    held = checkpoint.read(tmp_path / "run", with_training=True)
    assert held.config == state().config
    assert held.recipe == state().recipe
    assert held.progress == state().progress
    assert held.finished is False
    assert torch.equal(held.model["weight"], torch.full((2, 3), 2.0))
    assert held.model["count"].item() == 2
    assert torch.equal(held.training["model.weight"], torch.arange(6.0).view(3, 2).T)


def test_training_state_is_read_only_when_asked_for(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state())
    assert checkpoint.read(tmp_path).training == {}


def test_a_new_state_replaces_the_old_files(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state(2))
    checkpoint.write(tmp_path, state(5))
    assert len(list(tmp_path.iterdir())) == 3
    assert torch.equal(checkpoint.read(tmp_path).model["weight"], torch.full((2, 3), 5.0))


def test_a_run_that_is_being_trained_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint comes between its run.json and the weights that this one names."""
    checkpoint.write(tmp_path, state(2))
    seen: list[dict[str, Any]] = []
    whole = checkpoint.read_head

    def read_head(*given: Any) -> dict[str, Any]:
        head = whole(*given)
        if not seen:
            checkpoint.write(tmp_path, state(3))
        seen.append(head)
        return head

    monkeypatch.setattr(checkpoint, "read_head", read_head)
    assert len(checkpoint.read(tmp_path).progress["history"]) == 3
    assert len(seen) == 2


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    others = [tmp_path / "model-00001-of-00002.safetensors", tmp_path / "training-data.safetensors"]
    for path in others:
        path.write_bytes(b"not ours")
    checkpoint.write(tmp_path, state(2))
    checkpoint.write(tmp_path, state(5))
    assert all(path.read_bytes() == b"not ours" for path in others)


@pytest.mark.parametrize("survivors", [0, 1, 2])
@pytest.mark.parametrize("epochs", [2, 5])
def test_a_death_between_two_files_leaves_the_old_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survivors: int, epochs: int
) -> None:
    checkpoint.write(tmp_path, state(2))
    new = replace(state(epochs), model={"weight": torch.full((2, 3), -1.0)})
    real, done = os.replace, 0

    def dying(source: Any, target: Any) -> None:
        nonlocal done
        if done == survivors:
            raise KeyboardInterrupt
        done += 1
        real(source, target)

    monkeypatch.setattr(os, "replace", dying)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.write(tmp_path, new)
    monkeypatch.undo()
    held = checkpoint.read(tmp_path, with_training=True)
    assert len(held.progress["history"]) == 2
    assert torch.equal(held.model["weight"], torch.full((2, 3), 2.0))
    assert not list(tmp_path.glob(".*.part"))


def test_a_missing_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no run here"):
        checkpoint.read(tmp_path / "nowhere")
    assert not checkpoint.exists(tmp_path / "nowhere")


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_truncated_weight_file_is_named(tmp_path: Path, keep: float) -> None:
    checkpoint.write(tmp_path, state())
    path = model_file(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(InputError, match=r"model-\w+\.safetensors: damaged or truncated"):
        checkpoint.read(tmp_path)


def test_one_flipped_bit_is_noticed(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state())
    path = model_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        checkpoint.read(tmp_path)


def test_a_missing_weight_file_is_named(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state())
    model_file(tmp_path).unlink()
    with pytest.raises(InputError, match=r"model-\w+\.safetensors: missing"):
        checkpoint.read(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"format": 99}', "null", '{"format": 1}'])
def test_a_damaged_run_file_is_named(tmp_path: Path, text: str) -> None:
    checkpoint.write(tmp_path, state())
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json"):
        checkpoint.read(tmp_path)


def test_a_weight_file_outside_the_run_is_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state())
    path = tmp_path / "run.json"
    head = json.loads(path.read_text())
    head["files"]["model"]["name"] = f"../{model_file(tmp_path).name}"
    write_sealed(path, head)
    with pytest.raises(InputError, match="outside the run"):
        checkpoint.read(tmp_path)


def test_a_pickle_in_place_of_weights_is_not_opened(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state())
    torch.save({"weight": torch.zeros(2)}, model_file(tmp_path))
    with pytest.raises(InputError, match="damaged"):
        checkpoint.read(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match="cannot be written"):
        checkpoint.write(tmp_path / "file", state())
