"""Options of commands that train in several processes."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from lg2ar.cli.stopping import (
    BEGIN_AGAIN,
    BRIEFLY,
    SIGNALS,
    be_silent,
    deliver,
    hurry,
    remember,
    withhold,
)
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
        help="bf16-mixed: nn.Linear layers, and nothing else, multiply in bfloat16; GRU, message "
        "sums, normalisation, scores and loss stay in float32; default: as the settings say.",
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
    from lg2ar.processes import how_many, join

    several = how_many(devices, nodes) > 1
    with _meeting() if several else nullcontext():
        processes = join(choose_device(device), devices, nodes, strategy)
    if several:
        be_silent(not processes.main)
        hurry()
    if not processes.main:
        logging.getLogger("lg2ar").setLevel(logging.ERROR)
    try:
        with processes.guarding():
            deliver()  # now that the others can be told
            yield processes.main
    except KeyboardInterrupt as error:
        remember(error)  # the signal may have been another process's
        raise


# The number of the process that starts others, for them to know.
STARTER = "LG2AR_STARTED_BY"


def speaks_for_itself() -> bool:
    """Whether this process was not started to work with one that speaks for it."""
    started = STARTER in os.environ or "TORCHELASTIC_RUN_ID" in os.environ
    return not started or all(
        os.environ.get(name, "0") == "0" for name in ("RANK", "NODE_RANK", "LOCAL_RANK")
    )


@contextmanager
def _meeting() -> Iterator[None]:
    """While processes are started and wait for each other; one that is stopped then ends soon.

    It may not notice a signal while it waits, and has nothing to save. Those who are started here
    inherit that signals are withheld, until they know what to do (``stopping_in_time``).
    """
    starter = os.environ.get(STARTER)
    met = threading.Event()
    hurry(BRIEFLY, BEGIN_AGAIN)
    withhold()
    if starter is None:
        os.environ[STARTER] = str(os.getpid())
        # By SLURM or, on another machine, by a person.
        one_of_many = any(os.environ.get(n, "0") != "0" for n in ("SLURM_PROCID", "NODE_RANK"))
        be_silent(one_of_many or not speaks_for_itself())
    else:
        threading.Thread(target=_end_with, args=(int(starter), met), daemon=True).start()
    withheld = SIGNALS if os.name == "posix" else ()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, withheld) if withheld else set()
    try:
        yield
    except InputError:
        if starter is not None and _is_gone(int(starter)):
            raise SystemExit(1) from None  # it has said why
        raise
    finally:
        met.set()
        if withheld:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if starter is None:
            del os.environ[STARTER]


def _end_with(starter: int, met: threading.Event) -> None:
    """End this process if the one that started it is gone before they met."""
    while os.getppid() == starter:
        if met.wait(0.5):
            return
    os._exit(1)


def _is_gone(starter: int) -> bool:
    """Whether the process that started this one ends at this moment."""
    for _ in range(20):
        if os.getppid() != starter:
            return True
        time.sleep(0.1)
    return False
