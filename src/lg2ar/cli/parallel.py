"""Options of commands that train in several processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

_PANEL = "Several devices (docs/scaling.md)"

DevicesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        rich_help_panel=_PANEL,
        help="Processes on each machine, a device each, that share out every batch.",
    ),
]
NodesOption = Annotated[
    int | None, typer.Option(min=1, rich_help_panel=_PANEL, help="Number of machines.")
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
