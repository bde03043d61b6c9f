"""A fine-tuning that is gone on with: what is there is the same one, or it is said or replaced."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import lg2ar
from commands import Command
from faults.fuzz import seeds
from faults.test_changed_runs import Change, changed, drop, put
from lg2ar import checkpoint
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import InputError
from lg2ar.finetuning import FineTuned, finetune, load_finetuned
from lg2ar.finetuning.early_stopping import TunedEpoch
from lg2ar.finetuning.progress import BEGUN
from lg2ar.finetuning.saved import FILE

OLDER = Path(__file__).parents[1] / "golden" / "format-1"
HOW: dict[str, Any] = {**seeds.TUNING, "floor": False}


def tuned(out: Path, **more: Any) -> FineTuned:
    run, data = seeds.to_fine_tune()
    return finetune(run, data, out=out, **{**HOW, **more})


def stopped(out: Path, **more: Any) -> None:
    """Begin one and stop it after an epoch."""

    def stop(name: str, record: TunedEpoch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuned(out, on_epoch=stop, **more)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Replacing what is there, taken up again.


def test_one_that_was_to_replace_another_is_begun_anew(tmp_path: Path) -> None:
    """Killed before its first state: the model to be replaced is all that is there."""
    tuned(tmp_path, seed=1)
    with pytest.raises(InputError, match=r"seed = 1, not 0; .* replace it \(--replace\)"):
        tuned(tmp_path, resume=True)
    found = tuned(tmp_path, resume=True, overwrite=True)
    assert found.settings.seed == load_finetuned(tmp_path, "cpu").settings.seed == 0
    before = content(tmp_path)
    tuned(tmp_path, resume=True, overwrite=True)  # once more: it is the one that was asked for
    assert content(tmp_path) == before


@pytest.mark.parametrize("damaged", [False, True])
def test_what_was_begun_otherwise_is_replaced(tmp_path: Path, damaged: bool) -> None:
    tuned(tmp_path, seed=1)
    stopped(tmp_path, seed=2, overwrite=True)
    if damaged:
        (tmp_path / BEGUN).write_text("{")
    with pytest.raises(InputError, match="damaged" if damaged else "seed = 2, not 0"):
        tuned(tmp_path, resume=True)
    assert tuned(tmp_path, resume=True, overwrite=True).settings.seed == 0
    assert len(content(tmp_path)) == 2


def test_what_was_begun_as_asked_is_gone_on_with(tmp_path: Path) -> None:
    tuned(tmp_path, seed=1)
    stopped(tmp_path, overwrite=True)
    epochs: list[int] = []
    tuned(
        tmp_path,
        resume=True,
        overwrite=True,
        on_epoch=lambda name, record: epochs.append(record.epoch),
    )
    assert epochs == [2]


def test_a_damaged_model_is_replaced(tmp_path: Path) -> None:
    tuned(tmp_path)
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        tuned(tmp_path, resume=True)
    assert tuned(tmp_path, resume=True, overwrite=True).scores


# Models of the first format, which do not say what they were made from.


def older(folder: Path, **more: Any) -> FineTuned:
    run = lg2ar.load(OLDER / "run", "cpu")
    how: dict[str, Any] = {"epochs": 2, "hidden": 4, "floor": False, **more}
    return finetune(run, how.pop("data", toy_graphs(20)), out=folder, resume=True, **how)


@pytest.fixture
def older_model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLDER / "finetuned", tmp_path / "finetuned"))


def test_an_older_model_is_given_back_where_it_is_the_one_asked_for(older_model: Path) -> None:
    before = content(older_model)
    assert older(older_model).rows["held out"] == 4
    assert content(older_model) == before


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"epochs": 3}, "epochs = 2, not 3"),
        ({"seed": 7}, "seed = 0, not 7"),
        ({"learning_rate": 0.1}, "learning_rate = 0.001, not 0.1"),
        ({"task": "regression"}, "task = 'classification', not 'regression'"),
        ({"floor": True}, "floor = False, not True"),
        ({"fraction": 0.7}, "rows learned from = 13, not"),
        ({"test": 0.4}, "rows learned from = 13, not"),
        ({"data": toy_graphs(20, seed=3)}, "data = "),
    ],
    ids=lambda held: next(iter(held)) if isinstance(held, dict) else "",
)
def test_an_older_model_of_something_else_is_not(
    more: dict[str, Any], told: str, older_model: Path
) -> None:
    with pytest.raises(InputError, match=f"finetuned: was begun with {told}"):
        older(older_model, **more)


def test_an_older_model_of_another_run_or_column_is_not(older_model: Path) -> None:
    head = json.loads((older_model / FILE).read_text())
    for place, key in (("config", "dropout"), ("target", "column")):
        other = {**head, place: {**head[place], key: {"dropout": 0.1, "column": "z"}[key]}}
        (older_model / FILE).write_text(json.dumps(other))
        with pytest.raises(InputError, match=r"the run's dropout = 0\.1|labels = 'z'"):
            older(older_model)


# One that another hand has changed.

HOSTILE: list[tuple[str, Any]] = [
    ("asked", []),
    ("asked", None),
    ("asked.run", [1]),
    ("histories", []),
    ("histories", None),
    ("histories.pretrained", None),
    ("histories.pretrained", [[]]),
    ("histories.pretrained", {"epoch": 1}),
    ("histories.pretrained.0", {}),
    ("histories.pretrained.0.epoch", "1"),
    ("histories.pretrained.0.epoch", -(10**30)),
    ("histories.pretrained.0.loss", None),
    ("histories.pretrained.0.validation_loss", "low"),
    ("histories.pretrained.0.validation_loss", 10**400),
    ("histories.other", []),
    ("files", []),
    ("files.untrained", 3),
    ("files.untrained.name", None),
]


@pytest.mark.parametrize(("place", "value"), HOSTILE)
def test_a_changed_state_is_refused(place: str, value: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    changed(seeds.fine_tuning(), BEGUN, place, value, out)
    with pytest.raises(InputError, match=r"out.*(--replace|train again)"):
        tuned(out, resume=True, floor=True)


def test_an_encoder_of_another_name_is_not_written_elsewhere(tmp_path: Path) -> None:
    """Weight files are called by the encoder's name, which would lead out of the folder."""
    out = tmp_path / "out"
    out.mkdir()
    files = dict(seeds.fine_tuning())
    head = json.loads(files[BEGUN])
    for part in ("histories", "files"):
        head[part]["../elsewhere"] = head[part]["untrained"]
    files[BEGUN] = seeds.json_bytes(head)
    for name, held in files.items():
        (out / name).write_bytes(held)
    with pytest.raises(InputError, match="damaged"):
        tuned(out, resume=True, floor=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def with_tensors(folder: Path, change: Change) -> None:
    """A state whose tensors were changed, and their checksum with them."""
    for name, held in seeds.fine_tuning().items():
        (folder / name).write_bytes(held)
    head = checkpoint.read_head(folder, BEGUN, "")
    parts = {stage: checkpoint.read_part(folder, BEGUN, head, stage) for stage in head["files"]}
    change(parts["pretrained"])
    kept = {key: head[key] for key in ("asked", "histories")}
    checkpoint.write_folder(folder, BEGUN, kept, parts)


CHANGES: dict[str, Change] = {
    "a weight is missing": drop("network."),
    "a best weight is missing": drop("best."),
    "a moment is missing": drop("optimizer."),
    "another part": lambda tensors: tensors.update(other=torch.zeros(1)),
    "another weight": lambda tensors: tensors.update({"network.more": torch.zeros(1)}),
    "a weight of another shape": put("network.", "weight", lambda held: held[:1]),
    "a best weight of another shape": put("best.", "weight", lambda held: held.flatten()),
    "a shorter moment": put("optimizer.", "exp_avg", lambda held: held[:0]),
    "a moment of another type": put("optimizer.", "exp_avg_sq", lambda held: held.long()),
    "no step": put("optimizer.", "step", lambda held: torch.tensor(-1.0)),
    "steps without end": put("optimizer.", "step", lambda held: torch.tensor(torch.inf)),
    "many steps": put("optimizer.", "step", lambda held: torch.ones(3)),
    "a moment of no weight": lambda tensors: tensors.update({"optimizer.999.step": torch.ones(())}),
    "a place that is none": lambda tensors: tensors.update({"optimizer.a.step": torch.ones(())}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changed_tensors_are_refused(what: str, tmp_path: Path) -> None:
    with_tensors(tmp_path, CHANGES[what])
    with pytest.raises(InputError, match=r"finetuning\.json: what it holds to go on from does not"):
        tuned(tmp_path, resume=True, floor=True)


def test_an_unchanged_state_is_gone_on_with(tmp_path: Path) -> None:
    with_tensors(tmp_path, lambda tensors: None)
    assert tuned(tmp_path, resume=True, floor=True).scores


def test_the_command_line_says_it_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, lg2ar_ = tmp_path / "out", Command(monkeypatch, capsys)
    small = ["--set", "hidden=2", "--set", "layers=1", "--set", "epochs=1", "--device", "cpu"]
    lg2ar_.ok("pretrain", "toy-graphs", "--out", tmp_path / "run", *small)
    command: list[str | Path] = [
        "finetune",
        tmp_path / "run",
        "toy-graphs",
        "--out",
        out,
        "--set",
        "epochs=1",
    ]
    out.mkdir()
    with_tensors(out, lambda tensors: None)
    assert "was begun with" in lg2ar_.refused(*command, "--resume")
    changed(seeds.fine_tuning(), BEGUN, "asked", [], out)
    assert "damaged" in lg2ar_.refused(*command, "--resume")
    lg2ar_.ok(*command, "--resume", "--replace")
