"""Progress bars with rate and time left, silent where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from lg2ar.cli.stopping import told_when_stopped

if TYPE_CHECKING:
    from pathlib import Path

    from lg2ar.config import Config
    from lg2ar.records import EpochRecord


@contextmanager
def progress(
    tensorboard: Path | None = None,
) -> Iterator[tuple[Callable[[Config, int], None], Callable[[EpochRecord], None]]]:
    """A progress bar with loss, draws and speed; silent where there is no terminal.

    Args:
        tensorboard: Folder to write the same to for TensorBoard; None writes nothing.
    """
    from lg2ar.boards import Board
    from lg2ar.report.figures import SHORT

    heads: tuple[str, ...] = ()
    epochs = 0
    stopped = "interrupted; the last checkpoint is kept, --resume goes on."
    with Board(tensorboard) as board, counting(stopped) as tell:

        def on_start(config: Config, done: int) -> None:
            nonlocal heads, epochs
            heads, epochs = config.heads, config.epochs
            board.on_start(config, done)
            tell(done, epochs, "loss -")

        def on_epoch(record: EpochRecord) -> None:
            board.on_epoch(record)
            i, j = record.most_drawn()
            speed = record.steps / max(record.seconds, 1e-9)
            drawn = " + ".join(SHORT.get(heads[k], heads[k]) for k in (i, j))
            tell(record.epoch, epochs, f"loss {record.loss:.4f}  {drawn}  {speed:.0f} steps/s")

        yield on_start, on_epoch


class Tell(Protocol):
    """Called with how many pieces of how many are done, and a few words."""

    def __call__(self, done: int, total: int, text: str = "") -> None:
        """See above."""


@contextmanager
def counting(interrupted: str) -> Iterator[Tell]:
    """A progress bar for work that comes in pieces; silent where there is no terminal.

    Args:
        interrupted: What to say when a person or the system stops it; the exit code is then 130 or
            143.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.completed}/{task.total}"),
        BarColumn(bar_width=10),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, text="")

        def tell(done: int, total: int, text: str = "") -> None:
            bar.update(task, completed=done, total=total, text=text)

        with told_when_stopped(interrupted):
            yield tell
