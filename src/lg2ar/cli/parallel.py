"""Options of commands that train in several processes."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from lg2ar.data.reading import ReadOptions
from lg2ar.errors import InputError

_PANEL = "Several devices (docs/scaling.md)"

DevicesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        rich_help_panel=_PANEL,
        help="Processes on each machine, a device each, that share out every batch.",
    ),
]
MachinesOption = Annotated[
    int | None,
    typer.Option(
        min=1, rich_help_panel=_PANEL, help="Number of machines; --nodes with a number says it too."
    ),
]
StrategyOption = Annotated[
    Literal["ddp"] | None,
    typer.Option(rich_help_panel=_PANEL, help="How they work together; there is one way."),
]
PrecisionOption = Annotated[
    Literal["32", "bf16-mixed"] | None,
    typer.Option(
        rich_help_panel=_PANEL,
        help="bf16-mixed: linear layers multiply in bfloat16; default: as the settings say.",
    ),
]


def machines_of(reading: ReadOptions, machines: int | None) -> tuple[ReadOptions, int | None]:
    """How SOURCE is read, and on how many machines.

    ``--nodes`` is a table of nodes to all commands that read a source. A number that is no file is
    what launchers call nodes.
    """
    given = reading.nodes
    if given is None or not str(given).isdecimal() or Path(given).exists():
        return reading, machines
    if int(str(given)) < 1 or machines is not None:
        raise InputError(f"--nodes {given}: give the number of machines once, from 1 on.")
    return dataclasses.replace(reading, nodes=None), int(str(given))


@contextmanager
def joined(
    device: str, devices: int | None, nodes: int | None, strategy: str | None
) -> Iterator[bool]:
    """Start or join the processes that were asked for, if any.

    Gives whether this process is the one that writes and speaks. Where one fails all end.
    """
    from lg2ar.devices import choose_device
    from lg2ar.processes import join

    processes = join(choose_device(device), devices, nodes, strategy)
    if not processes.main:
        logging.getLogger("lg2ar").setLevel(logging.ERROR)
    with processes.guarding():
        yield processes.main
