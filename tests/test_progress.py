"""Progress bars: what they show in a terminal, and that they are silent elsewhere."""

from __future__ import annotations

import io
from functools import partial

import pytest
import rich.console
import typer

import lg2ar
from lg2ar.cli.progress import counting, progress
from lg2ar.data.toy import toy_graphs


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal shows."""
    screen = io.StringIO()
    console = partial(rich.console.Console, file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(rich.console, "Console", lambda **_: console())
    return screen


def test_training_shows_loss_rate_and_time_left(terminal: io.StringIO) -> None:
    settings = {"hidden": 8, "layers": 2, "epochs": 2}
    with progress() as (on_start, on_epoch):
        run = lg2ar.pretrain(
            toy_graphs(20), settings, device="cpu", on_start=on_start, on_epoch=on_epoch
        )
    shown = terminal.getvalue()
    assert "2/2" in shown
    assert f"loss {run.history[-1].loss:.4f}" in shown
    assert "steps/s" in shown
    assert "--:--" in shown or "00:0" in shown


def test_work_in_pieces_is_counted(terminal: io.StringIO) -> None:
    with counting("stopped") as tell:
        tell(3, 8, "three of eight")
    assert "3/8" in terminal.getvalue()
    assert "three of eight" in terminal.getvalue()


def test_without_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with counting("stopped") as tell:
        tell(3, 8, "three of eight")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_an_interrupt_is_told_and_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, counting("stopped; all is kept."):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "lg2ar: stopped; all is kept.\n"
