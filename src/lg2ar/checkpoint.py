"""Run folders: weights as safetensors, the rest as JSON, each file whole or not there.

A run folder holds ``run.json`` and the weight files it names. Weight files are named by their
content, so new ones never take the place of old ones; replacing ``run.json`` is what makes them
the run's, and the files that the old one named go only after that. So whatever moment a process
dies at, the folder holds a complete state. Nothing is ever unpickled, and nobody else's file is
touched.

Other models are kept the same way under a JSON file of another name (:func:`write_folder`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from lg2ar.config import Config
from lg2ar.errors import InputError
from lg2ar.files import write_bytes

FORMAT = 1
RUN_FILE = "run.json"

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a run folder holds.

    Attributes:
        config: The settings.
        recipe: How node features are made, as JSON has it.
        data: What was trained on: name, level, size, fingerprint.
        versions: What it was trained with.
        progress: Epochs done and their history, as the trainer's state tells it.
        finished: Whether the run reached its end.
        model: The weights to use: the whole model, the base encoder among them.
        training: What training needs to go on; empty when it was not read.
    """

    config: Config
    recipe: dict[str, Any]
    data: dict[str, Any]
    versions: dict[str, str]
    progress: dict[str, Any]
    finished: bool
    model: Tensors
    training: Tensors


def exists(folder: str | Path) -> bool:
    """Whether there is a run in this folder."""
    return (Path(folder) / RUN_FILE).is_file()


def write(folder: str | Path, checkpoint: Checkpoint) -> None:
    """Make this the state of the run folder; an earlier one stays until the new one is whole."""
    head = {
        "config": checkpoint.config.to_dict(),
        "recipe": checkpoint.recipe,
        "data": checkpoint.data,
        "versions": checkpoint.versions,
        "finished": checkpoint.finished,
        "progress": checkpoint.progress,
    }
    parts = {"model": checkpoint.model, "training": checkpoint.training}
    write_folder(folder, RUN_FILE, head, parts)


def write_folder(
    folder: str | Path, file: str, head: dict[str, Any], parts: dict[str, Tensors]
) -> None:
    """Keep tensors in a folder under a JSON file; what it held stays until this is whole.

    Args:
        folder: Where to.
        file: Name of the JSON file.
        head: Its content; the format and the names of the weight files are added.
        parts: Tensors, a weight file each.
    """
    folder = Path(folder)
    old = _named_files(folder / file)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = {part: _write_tensors(folder, part, held) for part, held in parts.items()}
        whole = {"format": FORMAT, **head, "files": files}
        write_bytes(folder / file, json.dumps(whole, indent=1, allow_nan=False).encode())
        for name in old - {item["name"] for item in files.values()}:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: the run cannot be written there ({error}).") from None


def check_fit(make: Callable[[], torch.nn.Module], tensors: Mapping[str, torch.Tensor]) -> None:
    """See that weights fit a module before it is made, which settings could make of any size.

    Args:
        make: Makes the module.
        tensors: The weights.

    Raises:
        RuntimeError: When they do not fit.
    """
    try:
        with torch.device("meta"):  # shapes without numbers
            expected = {key: value.shape for key, value in make().state_dict().items()}
    except NotImplementedError:  # a part of somebody's own that needs numbers to be made
        return
    if expected != {key: value.shape for key, value in tensors.items()}:
        raise RuntimeError("the weights are of another shape")


def make_folder(folder: str | Path) -> None:
    """Make a folder where there is none yet, or say that it cannot be."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: the run cannot be written there ({error}).") from None


def read(folder: str | Path, *, with_training: bool = False) -> Checkpoint:
    """Read a run folder, checking every file against its recorded SHA-256.

    Args:
        folder: The run folder.
        with_training: Whether to read also what training needs to go on.

    Raises:
        InputError: Naming the file that is missing, damaged or of another format.
    """
    folder = Path(folder)
    head = read_head(folder, RUN_FILE, "lg2ar pretrain")
    try:
        config = Config.make(head["config"])
        progress, data = head["progress"], head["data"]
        objects = (progress, data, data.get("reading", {}), head["versions"], head["recipe"])
        if not all(isinstance(item, dict) for item in objects):
            raise TypeError("a part of the wrong kind")
        model = read_part(folder, RUN_FILE, head, "model")
        training = read_part(folder, RUN_FILE, head, "training") if with_training else {}
        return Checkpoint(
            config=config,
            recipe=head["recipe"],
            data=data,
            versions=head["versions"],
            progress=progress,
            finished=head["finished"],
            model=model,
            training=training,
        )
    except InputError as error:
        raise InputError(f"{folder}: {str(error).removeprefix(f'{folder}/')}") from None
    except (KeyError, TypeError, AttributeError):
        raise InputError(
            f"{folder / RUN_FILE}: damaged, a part of it is missing or of the wrong kind; restore "
            "the file or train again."
        ) from None


def read_head(folder: str | Path, file: str, command: str) -> dict[str, Any]:
    """The content of a folder's JSON file.

    Args:
        folder: What :func:`write_folder` wrote.
        file: Name of the JSON file.
        command: What writes such folders, for the message where there is none.
    """
    folder = Path(folder)
    path = folder / file
    try:
        text = path.read_text(encoding="utf-8")
        head = json.loads(text, parse_constant=_finite, parse_float=_finite)
    except FileNotFoundError:
        raise InputError(
            f"{folder}: there is no run here ({file} is missing); name a folder that "
            f"'{command}' wrote."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error}); train again.") from None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        found = head.get("format") if isinstance(head, dict) else None
        raise InputError(
            f"{path}: format {found} is not {FORMAT}, the one this version reads; use the version "
            "of lg2ar that wrote it, or train again."
        )
    return head


def _finite(text: str) -> float:
    """A number of a JSON file; we write none that is infinite or not a number."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a number")
    return value


def read_part(folder: str | Path, file: str, head: dict[str, Any], part: str) -> Tensors:
    """The tensors of one weight file that a folder's JSON file names, checked against it."""
    return _read_tensors(Path(folder), file, head["files"][part])


def _named_files(path: Path) -> set[str]:
    """The weight files that a folder's JSON file names, if there is one."""
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"].values()
        return {item["name"] for item in files if Path(item["name"]).name == item["name"]}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return set()


def _write_tensors(folder: Path, part: str, tensors: Tensors) -> dict[str, str]:
    plain = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    content = save(plain)
    digest = hashlib.sha256(content).hexdigest()
    name = f"{part}-{digest[:16]}.safetensors"
    write_bytes(folder / name, content)
    return {"name": name, "sha256": digest}


def _read_tensors(folder: Path, file: str, item: dict[str, str]) -> Tensors:
    name = item["name"]
    path = folder / name
    if Path(name).name != name or "\0" in name:
        raise InputError(f"{folder / file}: names a weight file outside the run ({name!r}).")
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != item["sha256"]:
            raise InputError(
                f"{path}: damaged or truncated (its SHA-256 is not the recorded one); restore the "
                "file or train again."
            )
        return load(content)
    except FileNotFoundError:
        raise InputError(f"{path}: missing; restore the file or train again.") from None
    except (OSError, SafetensorError, UnicodeEncodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); train again.") from None
