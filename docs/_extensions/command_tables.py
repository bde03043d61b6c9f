"""The directive ``commands``: every command with its arguments and options, as ``--help`` has them.

All is read from the code. Options that say how SOURCE is read are the same for many commands and
are told once, by the directive ``reading-options``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective
from typer.models import ArgumentInfo, OptionInfo

from lg2ar.cli import app as command_line

READING = "How SOURCE is read"


@dataclass(frozen=True)
class Parameter:
    """An argument or option of a command."""

    name: str
    kind: Any
    info: ArgumentInfo | OptionInfo
    default: Any

    @property
    def is_reading(self) -> bool:
        """Whether it says how a source is read."""
        return self.info.rich_help_panel == READING

    def usage(self) -> str:
        """How it is typed."""
        if isinstance(self.info, ArgumentInfo):
            return f"``{self.info.metavar or self.name.upper()}``"
        word = self.name.replace("_", "-")
        # Typer keeps the first name of an annotated option in the place of its default.
        first = self.info.default
        own = [first] if isinstance(first, str) and first.startswith("-") else []
        names = [*own, *(self.info.param_decls or ())]
        if bool in plain_types(self.kind):
            return f"``{' '.join(names or [f'--{word}/--no-{word}'])}``"
        names = names or [f"--{word}"]
        return f"``{' '.join(names)} {self.info.metavar or self._values()}``"

    def _values(self) -> str:
        choices = [str(c) for kind in members(self.kind) for c in choices_of(kind)]
        return "|".join(choices) or self.name.upper()

    def meaning(self) -> str:
        """What it is for, and its default where it has one."""
        text = " ".join((self.info.help or "").split()).replace("*", r"\*")
        if self.default not in (None, inspect.Parameter.empty, False, True):
            text += f" Default: ``{self.default}``."
        if self.info.envvar:
            text += f" Also as the environment variable ``{self.info.envvar}``."
        return text


def members(kind: Any) -> tuple[Any, ...]:
    """The parts of a union."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def choices_of(kind: Any) -> tuple[Any, ...]:
    """The values of a literal type."""
    return get_args(kind) if get_origin(kind) is Literal else ()


def plain_types(kind: Any) -> set[Any]:
    """The plain classes of a type."""
    return {part for part in members(kind) if isinstance(part, type)}


def parameters(command: Callable[..., Any]) -> list[Parameter]:
    """What a command takes, in order."""
    found = []
    for name, held in inspect.signature(command, eval_str=True).parameters.items():
        kind, info = held.annotation.__origin__, held.annotation.__metadata__[0]
        found.append(Parameter(name, kind, info, held.default))
    return found


def commands(app: typer.Typer, path: str = "lg2ar") -> Iterator[tuple[str, Callable[..., Any]]]:
    """The commands of an app, by what is typed."""
    for held in app.registered_commands:
        if held.callback is not None and not held.hidden:
            yield f"{path} {held.name or held.callback.__name__.replace('_', '-')}", held.callback
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from commands(group.typer_instance, f"{path} {group.name}")


def described(chosen: list[Parameter]) -> list[str]:
    """Parameters as a definition list."""
    return [line for item in chosen for line in (item.usage(), f"    {item.meaning()}", "")]


class Commands(SphinxDirective):
    """All commands, a section each."""

    def run(self) -> list[nodes.Node]:
        """Write a section for each command."""
        sections: list[nodes.Node] = []
        for path, command in sorted(commands(command_line), key=lambda held: " bench " in held[0]):
            section = nodes.section(ids=[nodes.make_id(path)], names=[path])
            section += nodes.title(path, path)
            lines = inspect.cleandoc(command.__doc__ or "").replace("*", r"\*").splitlines()
            takes = parameters(command)
            lines += ["", *described([item for item in takes if not item.is_reading])]
            if any(item.is_reading for item in takes):
                lines += ["And the options that say `how SOURCE is read <#how-source-is-read>`__."]
            self.state.nested_parse(StringList(lines, path), 0, section)
            sections.append(section)
        return sections


class ReadingOptions(SphinxDirective):
    """The options that say how a source is read."""

    def run(self) -> list[nodes.Node]:
        """Write them as a definition list."""
        takes = (parameters(command) for _, command in commands(command_line))
        shared = next(p for p in takes if any(item.is_reading for item in p))
        holder = nodes.container()
        lines = described([item for item in shared if item.is_reading])
        self.state.nested_parse(StringList(lines, READING), 0, holder)
        return holder.children


def setup(app: Any) -> dict[str, bool]:
    """Add the directives."""
    app.add_directive("commands", Commands)
    app.add_directive("reading-options", ReadingOptions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
