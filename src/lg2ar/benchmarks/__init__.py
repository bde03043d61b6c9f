"""The paper's tables as data: its settings, its numbers, and the questions it leaves open."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lg2ar.data.benchmarks import find_benchmark
from lg2ar.errors import InputError


@dataclass(frozen=True)
class Published:
    """One cell of a table of the paper.

    Attributes:
        table: ``graph``, ``node``, ``mix``, ``semi``, ``ablation`` or ``cost``.
        dataset: Our name of the data set.
        method: The row, as printed; in ``ablation`` what LG2AR was changed to.
        mean: Percent; in ``cost`` seconds or gigabytes.
        std: Standard deviation; None where none is printed, as in ``cost``.
        group: The block of rows it stands in, such as ``unsupervised`` or ``discriminator``; in
            ``cost`` what was measured.
        note: What to know about the cell; mostly nothing.
    """

    table: str
    dataset: str
    method: str
    mean: float
    std: float | None
    group: str = ""
    note: str = ""


@dataclass(frozen=True)
class Question:
    """Something the paper leaves open, and what is compared with its settings to answer it.

    Attributes:
        name: In a few words.
        text: As a sentence.
        place: The decision in ``docs/paper.md``.
        setting: The setting whose value is in question.
        variants: The other answers, as settings joined by ``+`` that change the level's base.
        levels: Where it arises.
        decision: What the answers led to; nothing while it is open.
    """

    name: str
    text: str
    place: str
    setting: str
    variants: tuple[str, ...]
    levels: tuple[str, ...]
    decision: str = ""


def hyperparameters(name: str, preset: str = "paper") -> dict[str, Any]:
    """Settings for a benchmark data set, as :meth:`lg2ar.config.Config.make` takes them.

    Args:
        name: The data set, as :func:`~lg2ar.data.benchmarks.find_benchmark` takes it.
        preset: ``paper`` for the paper's own table; see :func:`presets` for others.

    Raises:
        InputError: For a preset or data set that has no row.
    """
    known = presets()
    if preset not in known:
        raise InputError(f"'{preset}' is not a known preset; known are {', '.join(known)}.")
    benchmark = find_benchmark(name)
    dataset = benchmark.name
    chosen = _read("hyperparameters.toml")["preset"][preset]
    rows = chosen["datasets"]
    if dataset not in rows and not chosen.get("any"):
        raise InputError(
            f"preset '{preset}' has no settings for '{dataset}'; it has some for {', '.join(rows)}."
        )
    base = hyperparameters(name, chosen["base"]) if "base" in chosen else {}
    return {**base, **chosen.get(benchmark.level, {}), **rows.get(dataset, {})}


def presets() -> dict[str, str]:
    """The named sets of settings, each with the reason why there is one."""
    return {
        key: str(value["reason"]) for key, value in _read("hyperparameters.toml")["preset"].items()
    }


def published() -> list[Published]:
    """All numbers of the paper's result tables, in the paper's order."""
    tables = dict(_read("published.toml"))
    order, notes = tables.pop("caption"), tables.pop("note")
    texts = {(n["table"], n["group"], n["method"], n["dataset"]): n["text"] for n in notes}
    return [
        Published(
            table=table,
            dataset=dataset,
            method=method,
            mean=float(cell[0]),
            std=float(cell[1]) if len(cell) == 2 else None,
            group=group,
            note=texts.get((table, group, method, dataset), ""),
        )
        for table in order
        for group, rows in tables[table].items()
        for method, row in rows.items()
        for dataset, cell in row.items()
    ]


def published_since(few_labels: bool = False) -> dict[str, tuple[str, float]]:
    """The highest accuracy of others since about the paper, and its method, by data set.

    Args:
        few_labels: Whether with a tenth of the labels.
    """
    rows = _read("published.toml")["since-few-labels" if few_labels else "since"]
    return {dataset: (str(method), float(mean)) for dataset, (method, mean) in rows.items()}


def questions() -> list[Question]:
    """What the paper leaves open, as comparisons with its settings."""
    return [
        Question(
            name=row["name"],
            text=row["text"],
            place=row["place"],
            setting=row["setting"],
            variants=tuple(row["variants"]),
            levels=tuple(row.get("levels", ("graph", "node"))),
            decision=" ".join(row.get("decision", "").split()),
        )
        for row in _read("questions.toml")["question"]
    ]


def base_variant(level: str) -> str:
    """What the answers to questions are compared with at a level."""
    return str(_read("questions.toml")["base"][level])


def against_base(variant: str, level: str) -> str:
    """The whole of a variant that changes some settings of the level's base.

    >>> against_base("hops=1", "graph")
    'hops=1'
    >>> "hops=3" in base_variant("node"), "hops=1" in against_base("hops=1", "node")
    (True, True)
    """
    base = base_variant(level)
    if "=" not in base or "=" not in variant:
        return variant
    settings = dict(part.split("=", 1) for part in f"{base}+{variant}".split("+"))
    return "+".join(f"{key}={value}" for key, value in settings.items())


def captions() -> dict[str, str]:
    """The paper's captions of its result tables, by table."""
    return dict(_read("published.toml")["caption"])


@cache
def _read(file: str) -> dict[str, Any]:
    return tomllib.loads(files(__name__).joinpath(file).read_text(encoding="utf-8"))
