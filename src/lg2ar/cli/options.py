"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from lg2ar.errors import InputError

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="toy-graphs, toy-nodes, a benchmark by name (see lg2ar datasets), or an .npz file.",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        envvar="LG2AR_DATA", help="Folder of the benchmark data sets; default: the user's cache."
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting; may be repeated."),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def read_settings(file: Path | None, pairs: list[str] | None, seed: int | None) -> dict[str, Any]:
    """Settings from a TOML file, with single ones that win over it."""
    from lg2ar.config import parse_setting, read_toml

    settings = {} if file is None else read_toml(file)
    settings |= dict(parse_setting(pair) for pair in pairs or [])
    if seed is not None:
        settings["seed"] = seed
    return settings


def look_for_data_in(folder: Path | None) -> None:
    """Take benchmark data from this folder from now on."""
    if folder is not None:
        os.environ["LG2AR_DATA"] = str(folder)


def read_words(values: list[str] | None) -> list[str]:
    """The words of an option that takes several, comma-separated or repeated."""
    words = [word.strip() for value in values or [] for word in value.split(",") if word.strip()]
    if values and not words:
        raise InputError("an empty list was given; name something, or leave the option out.")
    return words
