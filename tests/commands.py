"""Runs the command line in this process, for the tests of its commands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lg2ar import cli


class Command:
    """Runs the command line in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        self._monkeypatch.setattr(sys, "argv", ["lg2ar", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = self._capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    def ok(self, *arguments: str | Path) -> str:
        """What a command printed that must not fail."""
        code, out, error = self(*arguments)
        assert code == 0, error
        return out

    def refused(self, *arguments: str | Path) -> str:
        """The one sentence of a command that must end with 2."""
        code, _, error = self(*arguments)
        assert code == 2
        assert error.startswith("lg2ar: ")
        assert error.count("\n") == 1, error
        assert "Traceback" not in error
        return error
