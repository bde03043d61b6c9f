"""One of several processes fails or is killed: the others end with a sentence, nothing is lost."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from launches import run
from lg2ar import processes
from lg2ar.distributed import Team, everyone, together
from lg2ar.distributed.alarm import FOLLOWING, Alarm
from lg2ar.errors import InputError, LostProcessError, Terminated
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
    ended = run(*TORCHRUN, program, *WORDS, f"--out={out}", FAULT="interrupted 1")
    assert ended.code != 0
    assert ended.sentences == ["lg2ar: interrupted; the last checkpoint is kept, --resume goes on."]
    assert len(load(out, "cpu").history) == 1


def work_and_stop(team: Team, ranks: list[int], kind: type[KeyboardInterrupt]) -> tuple[str, int]:
    """Exchange rows until some are stopped; how this process ends, and with which code."""
    processes = Processes(team, torch.device("cpu"))
    try:
        with processes.guarding(), together(team):
            for number in range(10**6):
                if team.rank in ranks and number == 50:
                    raise kind
                everyone(torch.ones(1))
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 0
        return type(error).__name__, int(code or 0)
    return "went on", 0


@pytest.mark.parametrize("ranks", [[0], [1], [0, 1, 2]])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated])
def test_whoever_is_stopped_the_first_ends_as_if_it_had_been_and_the_others_without_a_word(
    ranks: list[int], kind: type[KeyboardInterrupt]
) -> None:
    first, *others = run_team(3, work_and_stop, ranks, kind, meet=False)
    assert first == (kind.__name__, 0)
    assert others == [("SystemExit", 143 if kind is Terminated else 130)] * 2


def stop_while_ending(team: Team) -> tuple[str, float]:
    """Two signals for all: the second comes while they end because of the first."""
    alarm = Alarm(team)
    whole, begun = alarm._close, time.monotonic()

    def close(error: BaseException | None) -> None:
        alarm._close = whole  # type: ignore[method-assign]
        raise KeyboardInterrupt

    alarm._close = close  # type: ignore[method-assign]
    try:
        with alarm.guarding():
            raise KeyboardInterrupt
    except BaseException as error:
        return type(error).__name__, time.monotonic() - begun
    return "went on", 0.0


def test_a_signal_while_they_end_lets_nobody_wait_for_ever() -> None:
    ends = run_team(2, stop_while_ending, meet=False)
    assert [name for name, _ in ends] == ["KeyboardInterrupt", "SystemExit"]
    assert max(seconds for _, seconds in ends) < FOLLOWING


def never_look_up(team: Team) -> float:
    """The second process does not notice that the first is stopped; how long the first waits."""
    begun = time.monotonic()
    with suppress(KeyboardInterrupt), Alarm(team).guarding():
        if team.rank == 0:
            raise KeyboardInterrupt
        time.sleep(60)
    return time.monotonic() - begun


def test_one_that_does_not_look_up_is_ended_and_not_waited_for() -> None:
    with pytest.raises(AssertionError, match="process 1 ended without a word") as failed:
        run_team(2, never_look_up, meet=False)
    assert "said nothing" not in str(failed.value)


def join_again(team: Team) -> str:
    wanted = Processes(team, torch.device("cpu"))
    processes._joined = ("cpu", 2, 1), wanted
    assert processes.join(wanted.device, 2) is wanted
    with suppress(InputError, LostProcessError, SystemExit), wanted.guarding():
        raise InputError("its file is gone.")
    try:
        processes.join(wanted.device, 2)
    except InputError as error:
        return str(error)
    return "joined those who are gone"


def test_those_who_have_failed_are_not_joined_again() -> None:
    for sentence in run_team(2, join_again, meet=False):
        assert sentence.startswith("the 2 processes that trained together were stopped")
        assert sentence.endswith("start the program again.")
