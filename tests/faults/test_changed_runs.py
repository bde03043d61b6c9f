"""Run folders that another hand has changed: what fuzzing found, and what is like it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faults.fuzz import seeds
from lg2ar.errors import InputError
from lg2ar.finetuning.saved import load_finetuned
from lg2ar.runs import load


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
    with pytest.raises(InputError):
        load(tmp_path, device="cpu")


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
        ("recipe.given", -1),
    ],
)
def test_of_a_fine_tuned_network(place: str, value: Any, tmp_path: Path) -> None:
    changed(seeds.fine_tuned(), "finetuned.json", place, value, tmp_path)
    with pytest.raises(InputError):
        load_finetuned(tmp_path, device="cpu")
