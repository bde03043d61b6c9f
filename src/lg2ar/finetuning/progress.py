"""What a fine-tuning has come to so far, kept in its folder so that it can be gone on with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from lg2ar import checkpoint as checkpoints
from lg2ar.errors import InputError
from lg2ar.finetuning.early_stopping import State, TunedEpoch
from lg2ar.finetuning.saved import FILE

BEGUN = "finetuning.json"  # gone when the result is there

# The encoders that are fine-tuned one after the other, which is what the weight files are called.
STAGES = ["pretrained", "untrained"]


class Progress:
    """The states of the encoders that are fine-tuned, in memory and in the folder.

    Args:
        folder: Where to; None keeps nothing.
        asked: What is to be done, as JSON has it: a fine-tuning goes on with the same only.
        resume: Whether to begin with what the folder holds.
        overwrite: Whether what it holds is to be replaced, so that what was begun with something
            else in mind is nothing to go on with.
    """

    def __init__(
        self,
        folder: Path | None,
        asked: Mapping[str, Any],
        resume: bool,
        overwrite: bool = False,
    ) -> None:
        self._folder, self._asked = folder, dict(asked)
        self._states: dict[str, State] = {}
        if folder is not None and resume and (folder / BEGUN).exists():
            try:
                self._states = self._read(folder)
            except InputError:
                if not overwrite:
                    raise

    def state(self, stage: str) -> State | None:
        """What an encoder had come to."""
        return self._states.get(stage)

    def save(self, stage: str, state: State) -> None:
        """Keep what an encoder has come to; the others stay as they are."""
        self._states[stage] = state
        if self._folder is None:
            return
        histories = {
            name: [asdict(record) for record in held.history] for name, held in self._states.items()
        }
        head = {"asked": self._asked, "histories": histories}
        tensors = {name: held.tensors for name, held in self._states.items()}
        checkpoints.write_folder(self._folder, BEGUN, head, tensors)

    def remove(self) -> None:
        """Remove it from the folder: the result is there."""
        if self._folder is not None:
            checkpoints.remove_folder(self._folder, BEGUN, STAGES)

    def _read(self, folder: Path) -> dict[str, State]:
        head = checkpoints.read_head(folder, BEGUN, "lg2ar finetune")
        try:
            check_asked(folder, head["asked"], self._asked)
            histories = {
                stage: TunedEpoch.read(records) for stage, records in head["histories"].items()
            }
            if not histories.keys() <= set(STAGES):  # files are called so
                raise KeyError("an encoder of no known name")
            return {
                stage: State(
                    checkpoints.read_part(folder, BEGUN, head, stage), history, str(folder / BEGUN)
                )
                for stage, history in histories.items()
            }
        except (KeyError, TypeError, AttributeError):
            raise InputError(
                f"{folder / BEGUN}: damaged, a part of it is missing or of the wrong kind; begin "
                "again (--replace)."
            ) from None


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a fine-tuned model, or one that is not finished."""
    if (folder / FILE).exists():
        raise InputError(
            f"{folder}: already holds a fine-tuned model; replace it or choose another."
        )
    if (folder / BEGUN).exists():
        raise InputError(
            f"{folder}: holds a fine-tuning that was stopped; go on with it (--resume), replace it "
            "or choose another."
        )


def check_asked(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """A fine-tuning goes on with the same run, data and settings only.

    Args:
        folder: Where it is.
        before: What it was begun with, as far as that is known.
        now: What is asked for.
    """
    for key, value in now.items():
        if before.get(key, value) != value:
            raise InputError(
                f"{folder}: was begun with {key} = {before[key]!r:.100}, not {value!r}; go on with "
                "the same, replace it (--replace) or choose another folder."
            )


def print_of(module: nn.Module) -> str:
    """The first digits of a SHA-256 of a module's weights."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
