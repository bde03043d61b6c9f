"""Targets, and what others were measured to take, as data."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def targets() -> dict[str, dict[str, Any]]:
    """By source: ``trial``, ``pygcl``, ``h200``, ``cpu``; each says in words where it is from."""
    return tomllib.loads(files(__package__).joinpath("targets.toml").read_text(encoding="utf-8"))
