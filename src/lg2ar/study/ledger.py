"""A records file as a study sees it: what is there is not done again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lg2ar.config import HOW, Config
from lg2ar.devices import device_name
from lg2ar.engines import Crew, drive
from lg2ar.errors import InputError
from lg2ar.files import append_line, check_writable, mend_lines
from lg2ar.protocols import read_by
from lg2ar.records import FailedRecord, Task, versions
from lg2ar.report.tables import read_records
from lg2ar.study.plan import Planned
from lg2ar.study.runner import Runner
from lg2ar.study.schedule import Schedule
from lg2ar.study.worker import StudyWorker


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

    def fail(self, planned: Planned, why: str, device: str) -> None:
        """Write down that a run failed; it does not count as done."""
        record = FailedRecord(
            task=planned.task,
            config=planned.config.to_dict(),
            versions=versions(),
            device=device,
            failed=why,
        )
        append_line(self.path, record.to_json())

    def key(self, planned: Planned) -> str:
        """The same for runs of equal settings, whatever cell they stand in."""
        return _key(planned.task.dataset, planned.config.to_dict())

    def _remember(self, record: dict[str, Any]) -> None:
        Task(**record["task"])
        if "failed" in record:
            return
        for evaluation in record["evaluations"]:
            _ = evaluation["accuracy"]
            evaluation["protocol"] = read_by(
                evaluation["protocol"], record["task"]["level"], record["config"]
            )
        key = _key(record["task"]["dataset"], record["config"])
        self._records.setdefault(key, []).append(record)

    def _same(self, planned: Planned) -> list[dict[str, Any]]:
        found = self._records.get(self.key(planned), [])
        return [run for run in found if _as_asked(planned.config, run["config"])]

    def _done(self, planned: Planned) -> dict[str, dict[str, Any]]:
        """The last record of each protocol with these settings."""
        return {
            e["protocol"]: record for record in self._same(planned) for e in record["evaluations"]
        }


def _as_asked(config: Config, done: Mapping[str, Any]) -> bool:
    """Whether steps were done as settings want them, or as they had to be instead."""
    step, precision = done.get("step", "plain"), done.get("precision", "float32")
    if "bf16-mixed" in (config.precision, precision):
        return bool(precision == config.precision)
    if config.step == "plain":
        return bool(step == "plain")
    if config.step == "auto" and config.precision == "tf32":  # nobody asked for either
        return True
    return bool(step == "plain" or precision == config.precision)


def _key(dataset: str, config: dict[str, Any]) -> str:
    # Through Config, so that a record written before a setting existed has what was done then.
    with suppress(InputError):  # settings of another version: they match nothing
        config = Config.stored(config).to_dict()
    what = {key: value for key, value in config.items() if key not in HOW}
    return json.dumps([dataset, what], sort_keys=True)


def reproduce(
    runs: Sequence[Planned],
    protocols: Sequence[str],
    ledger: Ledger,
    runner: Runner,
    *,
    crew: Crew | None = None,
    device: str = "auto",
    on_record: Callable[[dict[str, Any]], None] | None = None,
    on_skip: Callable[[Planned], None] | None = None,
    on_failure: Callable[[str, str], None] | None = None,
) -> int:
    """Do the runs that are not in the ledger yet.

    A data set that cannot be opened is told of and passed over. A run that breaks down is written
    down as failed; asked for again, it is tried again.

    Args:
        runs: What there is to do, data set by data set.
        protocols: How each run is to be read.
        ledger: Where finished runs are written, by this process alone.
        runner: What does them in this process.
        crew: Who does them; None does one after the other in this process.
        device: Where others than this process compute.
        on_record: Called with each new record.
        on_skip: Called with each run that is there already.
        on_failure: Called with what failed and why.

    Returns:
        How many runs failed.
    """
    crew = crew or Crew()
    if not protocols and not crew.alone:
        raise InputError(
            "what a run costs is measured by itself; leave --workers and --engine out."
        )
    schedule = Schedule(
        runs,
        protocols,
        ledger,
        device_name(runner.device),
        on_record or _ignore,
        on_skip or _ignore,
        on_failure or _ignore,
    )
    worker = StudyWorker(device, os.environ.get("LG2AR_DATA"), runner if crew.alone else None)
    with crew.hire(worker, device) as engine:
        drive(engine, schedule.take, schedule.settle)
    return schedule.failed


def _ignore(*_: object) -> None:
    pass
