"""Run folders that another hand has changed: what fuzzing found, and what is like it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from faults.fuzz import going_on, seeds
from lg2ar import checkpoint
from lg2ar.errors import InputError
from lg2ar.experiment import pretrain
from lg2ar.finetuning.saved import load_finetuned
from lg2ar.runs import load

Tensors = dict[str, Tensor]
Change = Callable[[Tensors], None]


def changed(files: dict[str, bytes], file: str, place: str, value: Any, folder: Path) -> None:
    """Write a folder with one value of its JSON file changed; the place is dotted."""
    head = json.loads(files[file])
    *keys, last = [int(key) if key.isdigit() else key for key in place.split(".")]
    owner = head
    for key in keys:
        owner = owner[key]
    owner[last] = value
    for name, content in {**files, file: seeds.json_bytes(head)}.items():
        (folder / name).write_bytes(content)


@contextmanager
def refused(folder: Path) -> Iterator[None]:
    """A refusal that names the folder, and is not of the seal: that one fits what was changed."""
    with pytest.raises(InputError, match=re.escape(str(folder))) as told:
        yield
    assert "SHA-256" not in str(told.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("data", "text"),
        ("data.reading", 5),
        ("versions", []),
        ("recipe", None),
        ("recipe.name", "other"),
        ("recipe.nodes.rules.0.std", None),
        ("files.model.name", "\ud800"),
        ("files.model.name", "../run.json"),
        ("progress", 3),
        ("progress.history.0.loss", float("nan")),
        ("progress.history.0.loss", "1"),
        ("progress.history.0.draws", [[1]]),
        ("progress.history.0.probabilities", []),
        ("config.hidden", 10**6),
        ("config.heads", [[]]),
    ],
)
def test_of_a_run(place: str, value: Any, tmp_path: Path) -> None:
    changed(seeds.run()[1], "run.json", place, value, tmp_path)
    with refused(tmp_path):
        load(tmp_path, device="cpu")


@pytest.mark.parametrize("name", ["notes.txt", "a\0b", "\ud800", "model-notes.txt"])
def test_what_a_run_names_is_not_removed(name: str, tmp_path: Path) -> None:
    """A run folder that calls somebody's notes its weights, written to again."""
    for own in ("notes.txt", "model-notes.txt"):
        (tmp_path / own).write_text("mine")
    files = going_on.trained()
    changed(files, "run.json", "files.other", {"name": name, "sha256": "0"}, tmp_path)
    pretrain(seeds.tables(), {"epochs": 2}, out=tmp_path, resume=True, device="cpu")
    left = {path.name for path in tmp_path.iterdir()}
    assert {"notes.txt", "model-notes.txt"} < left
    assert len(left) == 5


TRAINING: list[tuple[str, Any]] = [
    ("progress.history", 3),
    ("progress.history", [[]]),
    ("progress.history", []),  # fewer epochs than the best one
    ("progress.history.0.epoch", 2),
    ("progress.history.0.draws", None),
    ("progress.history.0.loss", 10**400),
    ("progress.best_epoch", "1"),
    ("progress.best_epoch", -1),
    ("progress.best_epoch", 10**30),
    ("progress.best_loss", "low"),
    ("progress.best_loss", None),
    ("files.training", None),
    ("files.training.name", "\0"),
]


@pytest.mark.parametrize(("place", "value"), TRAINING)
def test_of_a_run_that_is_gone_on_with(place: str, value: Any, tmp_path: Path) -> None:
    changed(going_on.trained(), "run.json", place, value, tmp_path)
    with refused(tmp_path):
        pretrain(seeds.tables(), {"epochs": 2}, out=tmp_path, resume=True, device="cpu")


def drop(start: str) -> Change:
    def change(held: Tensors) -> None:
        del held[next(key for key in sorted(held) if key.startswith(start))]

    return change


def put(start: str, end: str, value: Callable[[Tensor], Tensor]) -> Change:
    def change(held: Tensors) -> None:
        # sorted: safetensors promises no order, and the test must not depend on it
        key = next(key for key in sorted(held) if key.startswith(start) and key.endswith(end))
        held[key] = value(held[key])

    return change


CHANGES: dict[str, Change] = {
    "a weight is missing": drop("model."),
    "a best weight is missing": drop("best."),
    "a moment is missing": drop("optimizer.base."),
    "a weight of another shape": put("model.", "weight", lambda held: torch.cat([held, held])),
    "a weight of another type": put("model.", "weight", lambda held: held.double()),
    "a weight that is no number": put("model.", "weight", lambda held: held * torch.nan),
    "a best weight of another shape": put("best.", "weight", lambda held: held[:0]),
    "a shorter moment": put("optimizer.", "exp_avg", lambda held: held[:0]),
    "a shorter moment of the other kind": put("optimizer.", "exp_avg_sq", lambda held: held[:0]),
    "no step": put("optimizer.", "step", lambda held: held * 0),
    "many steps": put("optimizer.", "step", lambda held: torch.ones(3)),
    "another optimiser": lambda held: held.update({"optimizer.x.0.step": torch.ones(())}),
    "a weight too many": lambda held: held.update({"optimizer.base.999.step": torch.ones(())}),
    "another part": lambda held: held.update(other=torch.zeros(1)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_tensors_of_a_run_that_is_gone_on_with(what: str, tmp_path: Path) -> None:
    """PyTorch does not look: it would read and write beyond the end of a shorter moment."""
    for name, content in going_on.trained().items():
        (tmp_path / name).write_bytes(content)
    held = checkpoint.read(tmp_path, with_training=True)
    CHANGES[what](held.training)
    checkpoint.write(tmp_path, held)
    with pytest.raises(InputError, match="what it holds to resume from does not fit"):
        pretrain(seeds.tables(), {"epochs": 2}, out=tmp_path, resume=True, device="cpu")


@pytest.mark.parametrize(
    ("name", "value"),
    [("directed", "yes"), ("weight", 3), ("categories", [1]), ("columns", {"source": None})],
)
def test_how_its_data_was_read(name: str, value: Any, tmp_path: Path) -> None:
    changed(seeds.run()[1], "run.json", "data.reading", {name: value}, tmp_path)
    run = load(tmp_path, device="cpu")
    for file, content in seeds.TABLES.items():
        (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} = .*, which the model was trained with, cannot"):
        run.embed(tmp_path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("target.mean", None),
        ("target.scale", "1"),
        ("target.task", "other"),
        ("target.task", "regression"),
        ("target.classes", [1, 2, 3, 4]),
        ("settings.hidden", 10**12),
        ("settings.dropout", "much"),
        ("config.hidden", 10**6),
        ("recipe.given", -1),
    ],
)
def test_of_a_fine_tuned_network(place: str, value: Any, tmp_path: Path) -> None:
    changed(seeds.fine_tuned(), "finetuned.json", place, value, tmp_path)
    with refused(tmp_path):
        load_finetuned(tmp_path, device="cpu")
