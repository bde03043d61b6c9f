"""Starts the command line the ways that people start it in several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import lg2ar

SECONDS = 240


@dataclass
class Ended:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def sentences(self) -> list[str]:
        """What lg2ar said on standard error."""
        return [line for line in self.err.splitlines() if line.startswith("lg2ar: ")]


def environment(**more: str) -> dict[str, str]:
    """Where this very source is found, and nothing tells of other processes."""
    paths = [str(Path(lg2ar.__file__).parent.parent), str(Path(__file__).parent)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "TORCHELASTIC"))}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK"):
        kept.pop(name, None)
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **more}


def start(*words: str | Path, group: bool = False, **more: str) -> subprocess.Popen[str]:
    """Start a Python program; with ``group``, one that a terminal's signals reach as a whole."""
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=group,
    )


def finish(process: subprocess.Popen[str]) -> Ended:
    """Wait for it."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"hung; said {out}\n{err}") from None
    return Ended(process.returncode, out, err)


def run(*words: str | Path, **more: str) -> Ended:
    """Run a Python program to its end."""
    return finish(start(*words, group=False, **more))
