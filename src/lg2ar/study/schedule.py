"""Which runs of a study are done next, and what becomes of what was done."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lg2ar.engines import Lost
from lg2ar.study.plan import Planned
from lg2ar.study.worker import Outcome, StudyJob

if TYPE_CHECKING:
    from lg2ar.study.ledger import Ledger

_log = logging.getLogger("lg2ar")


class Schedule:
    """Hands out what is not in the ledger yet, and enters what comes back.

    Runs of equal settings, which stand in several cells, are done once: those after the first wait
    for it. A run whose worker was lost is done once more, by itself; lost again, it failed.

    Args:
        runs: What there is to do, data set by data set.
        protocols: How each run is to be read.
        ledger: Where finished and failed runs are written.
        device: The processor, as records name it.
        on_record: Called with each new record.
        on_skip: Called with each run that is there already.
        on_failure: Called with what failed and why.

    Attributes:
        failed: How many runs failed.
    """

    def __init__(
        self,
        runs: Sequence[Planned],
        protocols: Sequence[str],
        ledger: Ledger,
        device: str,
        on_record: Callable[[dict[str, Any]], None],
        on_skip: Callable[[Planned], None],
        on_failure: Callable[[str, str], None],
    ) -> None:
        self.failed = 0
        self._protocols, self._ledger, self._device = protocols, ledger, device
        self._on_record, self._on_skip, self._on_failure = on_record, on_skip, on_failure
        self._fresh = deque(runs)
        self._again: deque[StudyJob] = deque()
        self._followers: dict[str, list[Planned]] = {}  # of runs under way, by their settings
        self._unopened: set[tuple[str, str]] = set()

    def take(self) -> StudyJob | None:
        """The next job, or None where there is none at the moment."""
        if self._again:
            return self._again.popleft()
        while self._fresh:
            planned = self._fresh.popleft()
            key = self._ledger.key(planned)
            if key in self._followers:
                self._followers[key].append(planned)
            elif not self._is_there(planned):
                missing = self._ledger.missing(planned, self._protocols)
                return self._begin([planned, *self._alike(planned, missing)], missing)
        return None

    def settle(self, job: StudyJob, outcome: Outcome | Lost) -> None:
        """Enter what came of a job, or see that it is done otherwise."""
        if isinstance(outcome, Lost):
            self._settle_lost(job, outcome)
        elif outcome.room:
            self._cut(job, outcome.room)
        elif outcome.failure:
            for planned in job.runs:
                self._fail(planned, outcome)
        else:
            for planned, line in zip(job.runs, outcome.lines, strict=True):
                # Where this fails, nothing that follows could be kept.
                self._on_record(self._ledger.append(line))
                self._end(planned)

    def _is_there(self, planned: Planned) -> bool:
        """Whether nothing has to be done for a run; what is there may need another label."""
        if self._ledger.has(planned, self._protocols, self._device):
            self._on_skip(planned)
            return True
        if self._protocols and not self._ledger.missing(planned, self._protocols):
            self._on_record(self._ledger.relabel(planned, self._protocols))
            return True
        return False

    def _alike(self, first: Planned, missing: Sequence[str]) -> list[Planned]:
        """The runs right after one that are to be done just like it, but for their seeds."""
        group: list[Planned] = []
        known, family = {first.config.seed}, _family(first)
        while self._fresh:
            one = self._fresh[0]
            same = (
                _family(one) == family
                and one.config.seed not in known
                and self._ledger.key(one) not in self._followers
                and not self._ledger.has(one, self._protocols, self._device)
                and self._ledger.missing(one, self._protocols) == missing
            )
            if not same:
                break
            known.add(one.config.seed)
            group.append(self._fresh.popleft())
        return group

    def _begin(self, group: Sequence[Planned], missing: Sequence[str]) -> StudyJob:
        for planned in group:
            self._followers[self._ledger.key(planned)] = []
        return StudyJob(tuple(group), tuple(missing))

    def _end(self, planned: Planned) -> None:
        """Those that waited for a run are next: they find it there, or are tried themselves."""
        self._fresh.extendleft(reversed(self._followers.pop(self._ledger.key(planned))))

    def _cut(self, job: StudyJob, size: int) -> None:
        """Do a job in parts, before anything else."""
        starts = range(0, len(job.runs), size)
        parts = [replace(job, runs=job.runs[at : at + size]) for at in starts]
        self._again.extendleft(reversed(parts))

    def _settle_lost(self, job: StudyJob, lost: Lost) -> None:
        for planned in job.runs:
            if job.again:
                self._fail(planned, Outcome(failure=f"{lost.why}, twice."))
                continue
            self._again.append(StudyJob((planned,), job.protocols, again=True))
            _log.warning("%s: %s; it is done once more.", planned.task, lost.why)

    def _fail(self, planned: Planned, outcome: Outcome) -> None:
        self.failed += 1
        known = planned.task.dataset, outcome.failure
        if not outcome.unopened:  # else nothing was run, and there is nothing to keep
            self._ledger.fail(planned, outcome.failure, outcome.device or self._device)
        if not (outcome.unopened and known in self._unopened):
            self._on_failure(str(planned.task), outcome.failure)
        if outcome.unopened:
            self._unopened.add(known)
        self._end(planned)


def _family(planned: Planned) -> str:
    """The same for runs that differ in their seeds alone."""
    config = {**planned.config.to_dict(), "seed": None}
    return json.dumps([planned.task.dataset, planned.task.method, config], sort_keys=True)
