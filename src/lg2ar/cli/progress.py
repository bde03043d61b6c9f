"""A progress bar for training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from lg2ar.config import Config
    from lg2ar.records import EpochRecord


@contextmanager
def progress() -> Iterator[tuple[Callable[[Config, int], None], Callable[[EpochRecord], None]]]:
    """A progress bar with loss, draws and speed; silent where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from lg2ar.report.figures import SHORT

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.completed}/{task.total}"),
        BarColumn(bar_width=10),
        TextColumn("loss {task.fields[loss]}  {task.fields[drawn]}  {task.fields[speed]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, loss="-", drawn="-", speed="")
        heads: tuple[str, ...] = ()

        def on_start(config: Config, done: int) -> None:
            nonlocal heads
            heads = config.heads
            bar.update(task, total=config.epochs, completed=done)

        def on_epoch(record: EpochRecord) -> None:
            i, j = record.most_drawn()
            bar.update(
                task,
                completed=record.epoch,
                loss=f"{record.loss:.4f}",
                drawn=f"{SHORT[heads[i]]} + {SHORT[heads[j]]}",
                speed=f"{record.steps / max(record.seconds, 1e-9):.0f} steps/s",
            )

        try:
            yield on_start, on_epoch
        except KeyboardInterrupt:
            message = "lg2ar: interrupted; the last checkpoint is kept, --resume goes on."
            print(message, file=sys.stderr)
            raise typer.Exit(130) from None
