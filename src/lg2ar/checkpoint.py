"""Run folders: weights as safetensors, the rest as JSON, each file whole or not there.

A run folder holds ``run.json`` and the weight files it names. Weight files are named by their
content, so new ones never take the place of old ones; replacing ``run.json`` is what makes them
the run's, and the files that the old one named go only after that. So whatever moment a process
dies at, the folder holds a complete state. Nothing is ever unpickled, and nobody else's file is
touched.

Weight files are checked against the SHA-256 in the JSON file, and that one against its own seal
(:mod:`lg2ar.seals`). Folders of format 1, which had no seal, are read as before.

Other models are kept the same way under a JSON file of another name (:func:`write_folder`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from lg2ar import seals
from lg2ar.config import Config
from lg2ar.errors import InputError, newer_format
from lg2ar.files import remove_leftovers, write_bytes

FORMAT = 2
UNSEALED = 1  # the format before this one
RUN_FILE = "run.json"
DIGITS = 16  # of the SHA-256 of a weight file, in its name
_OURS = re.compile(rf"[a-z]+-[0-9a-f]{{{DIGITS}}}\.safetensors")

Tensors = dict[str, torch.Tensor]
Read = TypeVar("Read")


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = _own_files(folder, file, list(parts))
        for part in parts:
            remove_leftovers(folder, f"{part}-*.safetensors")
        files = {part: _write_tensors(folder, part, held) for part, held in parts.items()}
        whole = {"format": FORMAT, seals.KEY: seals.OPEN, **head, "files": files}
        content = json.dumps(whole, indent=1, allow_nan=False).encode()
        write_bytes(folder / file, seals.close(content))
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


def remove_folder(folder: str | Path, file: str, parts: list[str]) -> None:
    """Remove a folder's JSON file and then its weight files; what else is in the folder stays."""
    folder = Path(folder)
    own = _own_files(folder, file, parts)
    try:
        for name in (file, *sorted(own)):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{folder / file}: cannot be removed ({error}).") from None


def read(folder: str | Path, *, with_training: bool = False) -> Checkpoint:
    """Read a run folder, checking every file against its recorded SHA-256.

    It may be one that is being trained.

    Args:
        folder: The run folder.
        with_training: Whether to read also what training needs to go on.

    Raises:
        InputError: Naming the file that is missing, damaged or of another format.
    """
    folder = Path(folder)
    return read_steadily(folder / RUN_FILE, lambda: _read(folder, with_training))


def read_steadily(path: Path, read: Callable[[], Read]) -> Read:
    """Read a folder, and again where its JSON file was replaced before its weights were read.

    Args:
        path: The JSON file.
        read: Reads it, and what it names.
    """
    while True:
        before = _content(path)
        try:
            return read()
        except InputError:
            if _content(path) == before:
                raise


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _read(folder: Path, with_training: bool) -> Checkpoint:
    head = read_head(folder, RUN_FILE, "lg2ar pretrain")
    try:
        config = Config.stored(head["config"])
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
        content = path.read_bytes()
        text = content.decode("utf-8")
        head: dict[str, Any] = json.loads(text, parse_constant=_finite, parse_float=_finite)
    except FileNotFoundError:
        raise InputError(
            f"{folder}: there is no run here ({file} is missing); name a folder that "
            f"'{command}' wrote."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: damaged, cannot be read ({error}); restore the file or train again."
        ) from None
    _check_format(path, head, content)
    return head


def _check_format(path: Path, head: Any, content: bytes) -> None:
    """Refuse a JSON file of a version that is not known here, or that is not as it was written."""
    found = head.get("format") if isinstance(head, dict) else None
    if told := newer_format(found, FORMAT):
        raise InputError(f"{path}: {told}")
    sealed = seals.has_seal(content)
    if found not in (FORMAT, UNSEALED) or sealed != (found == FORMAT):
        raise InputError(
            f"{path}: damaged, or not of lg2ar (format {found!r:.20}, this version reads "
            f"{UNSEALED} and {FORMAT}); restore the file or train again."
        )
    if sealed and not seals.is_whole(content):
        raise InputError(
            f"{path}: damaged (its SHA-256 is not the recorded one); restore the file or train "
            "again."
        )


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
    """The weight files that a folder's JSON file names, if there is one; no other files."""
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"].values()
        return {item["name"] for item in files if _OURS.fullmatch(item["name"])}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return set()


def _own_files(folder: Path, file: str, parts: list[str]) -> set[str]:
    """Weight files that a JSON file names, and those that a killed process had no time to name.

    Nobody else's are called so: a part, and the first digits of the SHA-256 of what is inside.
    """
    own = _named_files(folder / file)
    for part in parts:
        for path in folder.glob(f"{part}-{'[0-9a-f]' * DIGITS}.safetensors"):
            with suppress(OSError):
                if path.name in own or _digest(path.read_bytes())[:DIGITS] in path.name:
                    own.add(path.name)
    return own


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write_tensors(folder: Path, part: str, tensors: Tensors) -> dict[str, str]:
    plain = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    content = save(plain)
    digest = _digest(content)
    name = f"{part}-{digest[:DIGITS]}.safetensors"
    write_bytes(folder / name, content)
    return {"name": name, "sha256": digest}


def _read_tensors(folder: Path, file: str, item: dict[str, str]) -> Tensors:
    name = item["name"]
    path = folder / name
    if Path(name).name != name or "\0" in name:
        raise InputError(f"{folder / file}: names a weight file outside the run ({name!r}).")
    try:
        content = path.read_bytes()
        if _digest(content) != item["sha256"]:
            raise InputError(
                f"{path}: damaged or truncated (its SHA-256 is not the recorded one); restore the "
                "file or train again."
            )
        return load(content)
    except FileNotFoundError:
        raise InputError(f"{path}: missing; restore the file or train again.") from None
    except (OSError, SafetensorError, UnicodeEncodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); train again.") from None
