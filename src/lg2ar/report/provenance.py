"""How to make the run again and what to do with it: the exact commands, settings and versions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lg2ar.checkpoint import Checkpoint
from lg2ar.config import Config
from lg2ar.data.benchmarks import BENCHMARKS
from lg2ar.data.sources import BUILT_IN
from lg2ar.report.document import facts_table, section
from lg2ar.report.svg import escape
from lg2ar.report.words import shortened


def recorded_source(data: Mapping[str, Any]) -> str:
    """What a run says it was trained on, as a command takes it."""
    name = data.get("source") or data.get("name") or "SOURCE"
    return str(name).removesuffix(" (demonstration)")


def pretrain_command(config: Config, source: str, out: str) -> list[str]:
    """The command that trains with these settings: those that are not the default are given."""
    usual = Config.make(level=config.level).to_dict()
    words = ["lg2ar", "pretrain", source, "--out", out]
    for key, value in config.to_dict().items():
        if value != usual[key]:
            text = ",".join(value) if isinstance(value, list) else _toml(value)
            words += ["--set", f"{key}={text}"]
    if config.level == "node":
        words += ["--set", "level=node"]
    return words


def reading_options(reading: Mapping[str, Any]) -> list[str]:
    """The options of the command line that say how data was read."""
    words: list[str] = []
    for name, value in reading.items():
        if name == "directed":
            words.append("--directed" if value else "--undirected")
        elif name == "columns":
            for role, column in value.items():
                words += ["--column", f"{role}={column}"]
        else:
            flag = {"categories": "--category"}.get(name, f"--{name}")
            for each in value if isinstance(value, list) else [value]:
                words += [flag, str(each)]
    return words


def _toml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def provenance_section(
    folder: Path, held: Checkpoint, command: Sequence[str] | None, made_with: Mapping[str, str]
) -> str:
    """The last part of the page.

    Args:
        folder: The run folder.
        held: What it holds.
        command: What the page was made with, word by word; None where it was not by a command.
        made_with: Versions that the page was made with.
    """
    source, run = recorded_source(held.data), str(folder)
    named = source == held.data.get("source") or source in BUILT_IN or source in BENCHMARKS
    if not named:
        source = "SOURCE"  # what it is called is not always where it lies
    reading = reading_options(held.data.get("reading") or {})
    train = [*pretrain_command(held.config, source, run), *reading]
    parts = ["<p>This trains the same run again, on the same device with the same result:</p>"]
    parts.append(_code(train))
    if not named:
        called = shortened(held.data.get("name", "not known"), 300)
        parts.append(f"<p class='note'>SOURCE is the data, which is called {escape(called)}.</p>")
    if not held.finished:
        parts.append("<p>The run is not at its end. With the same settings, this goes on:</p>")
        parts.append(_code([*train, "--resume"]))
    parts.append(f"<p>Embed the same {held.config.level}s, or new ones:</p>")
    parts.append(_code(["lg2ar", "embed", run, "SOURCE", "--out", "embeddings.parquet"]))
    if command is not None:
        parts.append("<p>This page was made by:</p>")
        parts.append(_code(command))
    settings = [
        (key, ", ".join(value) if isinstance(value, list) else str(value))
        for key, value in held.config.to_dict().items()
    ]
    parts.append(
        f"<details><summary>All {len(settings)} settings</summary>{facts_table(settings)}</details>"
        "<details><summary>Versions</summary><h3>Trained with</h3>"
        f"{facts_table(held.versions.items())}<h3>Page made with</h3>"
        f"{facts_table(made_with.items())}</details>"
    )
    return section("Commands, settings and versions", "".join(parts), name="commands")


def _code(words: Sequence[str]) -> str:
    """A command; a long one has an option per line."""
    text = shlex.join(words)
    if len(text) > 80:
        text = text.replace(" --", " \\\n  --")
    return f"<pre><code>{escape(text)}</code></pre>"
