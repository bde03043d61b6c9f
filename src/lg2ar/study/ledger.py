"""A records file as a study sees it: what is there is not done again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.sources import open_source
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.experiment import device_name
from lg2ar.files import append_line, check_writable, mend_lines
from lg2ar.records import Task
from lg2ar.report.tables import read_records
from lg2ar.study.plan import Planned
from lg2ar.study.runner import Runner


class Ledger:
    """Runs that are done, one JSON line each; a new one is written the moment it is finished.

    Args:
        path: The records file; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: dict[str, list[dict[str, Any]]] = {}
        if path.exists():
            for number, record in enumerate(read_records(path), start=1):
                try:
                    self._remember(record)
                except (KeyError, TypeError):
                    raise InputError(
                        f"{path}, line {number}: is not a record of a study; choose another "
                        "--records file."
                    ) from None
            mend_lines(path)
        check_writable(path)  # before the work, not after it

    def missing(self, planned: Planned, protocols: Sequence[str]) -> list[str]:
        """The protocols under which no run with these settings was read yet."""
        done = self._done(planned)
        return [name for name in protocols if name not in done]

    def has(self, planned: Planned, protocols: Sequence[str], device: str) -> bool:
        """Whether a run with these settings is there, for this very cell, under all protocols.

        One without any protocol measures the cost, which is that of a device.
        """
        task = asdict(planned.task)
        own = [record for record in self._same(planned) if record["task"] == task]
        if not protocols:
            return any(record["device"] == device for record in own)
        read = {e["protocol"] for record in own for e in record["evaluations"]}
        return bool(own) and set(protocols) <= read

    def relabel(self, planned: Planned, protocols: Sequence[str]) -> dict[str, Any]:
        """Enter a run that is there already under another cell, such as another table's."""
        done = self._done(planned)
        record = dict(done[protocols[0]], task=asdict(planned.task))
        record["evaluations"] = [
            evaluation
            for name in protocols
            for evaluation in done[name]["evaluations"]
            if evaluation["protocol"] == name
        ]
        return self.append(json.dumps(record, allow_nan=False))

    def append(self, line: str) -> dict[str, Any]:
        """Write a finished run down."""
        append_line(self.path, line)
        record: dict[str, Any] = json.loads(line)
        self._remember(record)
        return record

    def _remember(self, record: dict[str, Any]) -> None:
        Task(**record["task"])
        for evaluation in record["evaluations"]:
            _ = evaluation["protocol"], evaluation["accuracy"]
        key = _key(record["task"]["dataset"], record["config"])
        self._records.setdefault(key, []).append(record)

    def _same(self, planned: Planned) -> list[dict[str, Any]]:
        config = planned.config
        found = self._records.get(_key(planned.task.dataset, config.to_dict()), [])
        if config.step == "auto":  # however it was done
            return found
        return [run for run in found if _as_asked(config, run["config"])]

    def _done(self, planned: Planned) -> dict[str, dict[str, Any]]:
        """The last record of each protocol with these settings."""
        return {
            e["protocol"]: record for record in self._same(planned) for e in record["evaluations"]
        }


# Settings that say how steps are done, which a run settles itself where it is left open.
HOW = ("step", "precision")


def _as_asked(config: Config, done: Mapping[str, Any]) -> bool:
    """Whether steps were done as settings want them, or as they had to be instead."""
    step = done.get("step", "plain")  # before there was a choice
    if config.step == "plain":
        return bool(step == "plain")
    return bool(step == "plain" or done["precision"] == config.precision)


def _key(dataset: str, config: dict[str, Any]) -> str:
    # Through Config, so that a record written before a setting existed has its default.
    with suppress(InputError):  # settings of another version: they match nothing
        config = Config.make(config).to_dict()
    what = {key: value for key, value in config.items() if key not in HOW}
    return json.dumps([dataset, what], sort_keys=True)


def reproduce(
    runs: Sequence[Planned],
    protocols: Sequence[str],
    ledger: Ledger,
    runner: Runner,
    *,
    on_record: Callable[[dict[str, Any]], None] | None = None,
    on_skip: Callable[[Planned], None] | None = None,
    on_failure: Callable[[str, str], None] | None = None,
) -> int:
    """Do the runs that are not in the ledger yet.

    A data set that cannot be opened, or a run that breaks down, is reported and passed over.

    Args:
        runs: What there is to do, data set by data set.
        protocols: How each run is to be read.
        ledger: Where finished runs are written.
        runner: What does them.
        on_record: Called with each new record.
        on_skip: Called with each run that is there already.
        on_failure: Called with what failed and why.

    Returns:
        How many runs failed.
    """
    failed, data, device = 0, _Opened(), device_name(runner.device)

    def fail(planned: Planned, error: Exception) -> None:
        nonlocal failed
        failed += 1
        if on_failure is not None and error is not data.known_failure:
            on_failure(str(planned.task), str(error))
        data.known_failure = data.failure

    def enter(record: dict[str, Any]) -> None:
        if on_record is not None:
            on_record(record)

    for _, family in itertools.groupby(runs, key=_family):
        waiting, together = list(family), True
        while waiting:
            planned = waiting[0]
            missing = ledger.missing(planned, protocols)
            if ledger.has(planned, protocols, device):
                if on_skip is not None:
                    on_skip(planned)
                del waiting[0]
                continue
            if protocols and not missing:
                enter(ledger.relabel(planned, protocols))
                del waiting[0]
                continue
            try:
                dataset = data.get(planned.task.dataset)
                room = runner.room(planned, dataset, missing) if together else 1
                group = _alike(waiting, missing, ledger, protocols, device)[:room]
                if len(group) > 1:
                    lines = _together(group, dataset, missing, runner)
                    together = bool(lines)  # where one broke down, each is done by itself
                else:
                    lines = [runner.run(planned, dataset, missing).to_json()]
            # Of PyTorch, RuntimeError is also what a lack of memory is; LinAlgError is one.
            except (InputError, NonFiniteLossError, RuntimeError, MemoryError) as error:
                fail(waiting.pop(0), error)
                continue
            del waiting[: len(lines)]
            for line in lines:
                enter(ledger.append(line))  # where this fails, nothing that follows could be kept
    return failed


def _alike(
    waiting: Sequence[Planned],
    missing: Sequence[str],
    ledger: Ledger,
    protocols: Sequence[str],
    device: str,
) -> list[Planned]:
    """The first of some runs, and those right after it that are to be done just like it."""
    group: list[Planned] = []
    for one in waiting:
        known = {done.config.seed for done in group}
        same = ledger.missing(one, protocols) == missing and not ledger.has(one, protocols, device)
        if not same or one.config.seed in known:
            break
        group.append(one)
    return group


def _together(
    group: Sequence[Planned], dataset: Dataset, missing: Sequence[str], runner: Runner
) -> list[str]:
    """Do some runs at the same time; nothing where one breaks down or memory does not suffice."""
    with suppress(InputError, NonFiniteLossError, RuntimeError, MemoryError):
        return [record.to_json() for record in runner.run_together(group, dataset, missing)]
    return []


def _family(planned: Planned) -> str:
    """The same for runs that differ in their seeds alone."""
    config = {**planned.config.to_dict(), "seed": None}
    return json.dumps([planned.task.dataset, planned.task.method, config], sort_keys=True)


class _Opened:
    """The data set in hand: runs come data set by data set, and some are large.

    One that cannot be opened is not tried again for every run, and told about once.

    Attributes:
        failure: Why the data set in hand could not be opened, if so.
        known_failure: The one that was told.
    """

    def __init__(self) -> None:
        self._name = ""
        self._found: Dataset | None = None
        self.failure: InputError | None = None
        self.known_failure: InputError | None = None

    def get(self, name: str) -> Dataset:
        if name != self._name:
            self._name, self._found, self.failure = name, None, None
            try:
                self._found = open_source(name)
            except InputError as error:
                self.failure = error
        if self._found is None:
            assert self.failure is not None
            raise self.failure
        return self._found
