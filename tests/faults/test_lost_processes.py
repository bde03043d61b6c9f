"""One of several processes fails or is killed: the others end with a sentence, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from launches import run
from lg2ar.distributed import Team, everyone, together
from lg2ar.errors import InputError, LostProcessError
from lg2ar.processes import Processes
from lg2ar.runs import load
from teams import run_team

pytest.importorskip("lightning_fabric", reason="needs pip install 'lg2ar[fabric]'")

# The command line, in which one process fails at the first step of the second epoch.
PROGRAM = """
import os, signal
from lg2ar import cli, training
from lg2ar.errors import InputError

kind, rank = os.environ["FAULT"].split()
whole, steps = training.Trainer.step, []

def step(self, batch):
    steps.append(batch)
    if self.team.rank == int(rank) and len(steps) == 4:
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "interrupted":
            raise KeyboardInterrupt
        raise InputError("its file is gone; put it back.")
    return whole(self, batch)

training.Trainer.step = step
cli.main()
"""
WORDS = ["pretrain", "toy-graphs", "--device=cpu", "--set=hidden=8", "--set=layers=2"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def work_and_fail(team: Team, rank: int) -> str:
    """Exchange rows for ever, until one fails; how this process ends."""
    processes = Processes(team, torch.device("cpu"))
    try:
        with processes.guarding(), processes.guarding(), together(team):
            for number in range(10**6):
                if team.rank == rank and number == 50:
                    raise InputError("its file is gone; put it back.")
                everyone(torch.ones(1))
    except (InputError, LostProcessError) as error:
        return str(error)
    return "went on"


@pytest.mark.parametrize("rank", [0, 2])
def test_those_who_wait_for_one_that_failed_wake_up(rank: int) -> None:
    ends = run_team(3, work_and_fail, rank, meet=False)
    for other, sentence in enumerate(ends):
        gone = "its file is gone; put it back."
        assert sentence == (gone if other == rank else f"process {rank} of 3 failed: {gone}")


def fail_together(team: Team) -> str:
    try:
        with Processes(team, torch.device("cpu")).guarding():
            raise InputError("no such setting.")
    except (InputError, SystemExit) as error:
        return type(error).__name__
    return "went on"


def test_of_those_who_fail_of_the_same_one_speaks() -> None:
    assert sorted(run_team(3, fail_together, meet=False)) == [
        "InputError",
        "SystemExit",
        "SystemExit",
    ]


@pytest.mark.parametrize(("kind", "rank"), [("failed", 1), ("killed", 0), ("killed", 1)])
def test_the_others_end_with_a_sentence(tmp_path: Path, kind: str, rank: int) -> None:
    program, out = tmp_path / "program.py", tmp_path / "run"
    program.write_text(PROGRAM)
    ended = run(program, *WORDS, f"--out={out}", "--devices=2", FAULT=f"{kind} {rank}")
    assert ended.code == (-9 if (kind, rank) == ("killed", 0) else 2)
    if kind == "killed":
        who = "process 0 of 2" if rank == 0 else "one of the 2 processes"
        (sentence,) = ended.sentences
        assert sentence.startswith(f"lg2ar: {who} ended without a word;")
        assert sentence.endswith("with --resume.")
    else:
        assert sorted(ended.sentences) == [
            "lg2ar: its file is gone; put it back.",
            f"lg2ar: process {rank} of 2 failed: its file is gone; put it back.",
        ]
    assert "Traceback" not in ended.err
    # The first process keeps what was done, unless it is the one that was killed.
    assert len(load(out, "cpu").history) == (0 if (kind, rank) == ("killed", 0) else 1)


def test_under_torchrun_an_interrupt_of_one_ends_all(tmp_path: Path) -> None:
    program, out = tmp_path / "program.py", tmp_path / "run"
    program.write_text(PROGRAM)
    ended = run(*TORCHRUN, program, *WORDS, f"--out={out}", FAULT="interrupted 0")
    assert ended.code != 0
    assert sorted(ended.sentences) == [
        "lg2ar: interrupted; the last checkpoint is kept, --resume goes on.",
        "lg2ar: process 0 of 2 failed: interrupted.",
    ]
    assert len(load(out, "cpu").history) == 1
