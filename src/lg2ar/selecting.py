"""Which graphs or nodes of a data set a person means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lg2ar.data.dataset import Dataset
from lg2ar.errors import InputError

# Names that are looked through at a time.
STEP = 1 << 18


def read_places(text: str, dataset: Dataset) -> np.ndarray:
    """The places of some graphs (or nodes) of a data set.

    Args:
        text: A file with an id per line, or ``FIRST:LAST``: places from 0, the last not included;
            either may be left out.
        dataset: What they are of.

    Raises:
        InputError: When there is no such file, or no graph (or node) of that name or place.
    """
    total = len(dataset)
    span = re.fullmatch(r"(\d{0,18}):(\d{0,18})", text)
    if span is None:
        return _named(Path(text), dataset)
    first, last = int(span[1] or 0), int(span[2] or total)
    if not first < last <= total:
        raise InputError(
            f"{text}: {dataset.name} has {total} {dataset.level}s, at places 0 to {total - 1}; "
            "give a range within."
        )
    return np.arange(first, last)


def checked_places(only: Sequence[int] | np.ndarray, dataset: Dataset) -> np.ndarray:
    """Places of graphs (or nodes) as numbers, once it is clear that there are such.

    Raises:
        InputError: When one is not there.
    """
    total = len(dataset)
    places = np.asarray(only, dtype=np.int64).reshape(-1)
    wrong = places[(places < 0) | (places >= total)]
    if len(wrong):
        raise InputError(
            f"{dataset.name}: there is no {dataset.level} {int(wrong[0])}, as they are numbered "
            f"from 0 to {total - 1}; ask for others."
        )
    return places


def _named(path: Path, dataset: Dataset) -> np.ndarray:
    """The places of the ids in a file, in its order."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise InputError(
            f"{path}: there is no such file; give one with an id per line, or a range FIRST:LAST."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error}).") from None
    wanted = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not wanted:
        raise InputError(f"{path}: is empty; give an id per line.")
    places = _places({name for _, name in wanted}, dataset)
    for number, name in wanted:
        if name not in places:
            raise InputError(
                f"{path}: line {number} names '{name[:40]}', which is no {dataset.level} of "
                f"{dataset.name}; correct it, or remove the line."
            )
    return np.array([places[name] for _, name in wanted])


def _places(names: set[str], dataset: Dataset) -> dict[str, int]:
    """Where names are found; without names of its own, a row is called by its place."""
    ids, total = dataset.ids, len(dataset)
    if ids is None or len(ids) != total:
        whole = {name for name in names if re.fullmatch(r"0|[1-9]\d{0,17}", name)}
        return {name: int(name) for name in whole if int(name) < total}
    found: dict[str, int] = {}
    for first in range(0, total, STEP):
        for place, name in enumerate(ids[first : first + STEP], start=first):
            if name in names:
                found.setdefault(name, place)
    return found
