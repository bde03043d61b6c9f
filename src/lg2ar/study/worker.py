"""What does the runs of a study, in this process or in another one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from lg2ar.data.dataset import Dataset
from lg2ar.data.sources import open_source
from lg2ar.devices import choose_device, device_name
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.study.plan import Planned
from lg2ar.study.runner import Runner

LONGEST = 300  # letters of why a run failed


@dataclass(frozen=True)
class StudyJob:
    """Runs to be done at the same time: one, or some that differ in their seeds alone.

    Attributes:
        runs: The runs.
        protocols: How each is to be read.
        again: Whether their worker was lost once.
    """

    runs: tuple[Planned, ...]
    protocols: tuple[str, ...]
    again: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a job.

    Attributes:
        lines: A record of each run, where all went well.
        room: Where it was not done: how many of its runs are best done at the same time.
        failure: Where it failed: why.
        unopened: Whether that is because the data could not be opened.
        device: The processor it was done on.
    """

    lines: list[str] = field(default_factory=list)
    room: int = 0
    failure: str = ""
    unopened: bool = False
    device: str = ""


class StudyWorker:
    """Does jobs of a study; what it opens it keeps for the next job.

    Args:
        device: ``auto``, ``cpu``, ``cuda`` or one CUDA device.
        data: Folder of the data sets; None looks where this process would.
        runner: What does the runs; None makes one where the first job is done.
    """

    def __init__(self, device: str, data: str | None = None, runner: Runner | None = None) -> None:
        self._device, self._folder, self._runner = device, data, runner
        self._opened = _Opened()

    def __getstate__(self) -> dict[str, Any]:
        return {"_device": self._device, "_folder": self._folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_device"], state["_folder"])  # type: ignore[misc]

    def __call__(self, job: StudyJob) -> Outcome:
        """Do the runs of a job; whatever goes wrong is said, not raised."""
        first = job.runs[0]
        device = ""
        try:
            runner = self._make_runner()
            device = device_name(runner.device)
            dataset = self._opened.get(first.task.dataset)
        except Exception as error:
            return Outcome(failure=reason(error), unopened=True, device=device)
        try:
            if len(job.runs) == 1:
                lines = [runner.run(first, dataset, job.protocols).to_json()]
                return Outcome(lines=lines, device=device)
            room = runner.room(first, dataset, job.protocols)
            if len(job.runs) > room:
                return Outcome(room=room)
            return _together(job, dataset, runner, device)
        except Exception as error:  # a lack of memory is a RuntimeError of PyTorch
            return Outcome(failure=reason(error), device=device)

    def _make_runner(self) -> Runner:
        if self._runner is None:
            if self._folder is not None:
                os.environ["LG2AR_DATA"] = self._folder
            self._runner = Runner(choose_device(self._device))
        return self._runner


def _together(job: StudyJob, dataset: Dataset, runner: Runner, device: str) -> Outcome:
    """Do runs at the same time; where one breaks down, each is to be done by itself."""
    try:
        records = runner.run_together(job.runs, dataset, job.protocols)
    except Exception:
        return Outcome(room=1)
    return Outcome(lines=[record.to_json() for record in records], device=device)


def reason(error: Exception) -> str:
    """Why something failed, in one line."""
    text = " ".join(str(error).split())[:LONGEST]
    if isinstance(error, MemoryError):
        return "out of memory; lower hidden, batch_size or degree_cap."
    if text and isinstance(error, InputError | NonFiniteLossError | RuntimeError):
        return text
    return f"{type(error).__name__}: {text}"


class _Opened:
    """The data set in hand: runs come data set by data set, and some are large.

    One that cannot be opened is not tried again for every run.
    """

    def __init__(self) -> None:
        self._name = ""
        self._found: Dataset | None = None
        self._failure: Exception | None = None

    def get(self, name: str) -> Dataset:
        if name != self._name:
            self._name, self._found, self._failure = name, None, None
            try:
                self._found = open_source(name)
            except Exception as error:
                self._failure = error
        if self._found is None:
            assert self._failure is not None
            raise self._failure
        return self._found
