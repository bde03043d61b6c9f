"""A study in a database, which several processes may work on, also on several machines.

Every process claims a trial, has it done, and enters what came of it. What a trial draws depends on
the seed and on how many trials there were before it, not on who draws it; a trial that was cut off
is done again with the settings that it had. So a study that is interrupted, and one that several
work on, begin with the same trials as any other.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lg2ar.engines import Lost
from lg2ar.errors import InputError
from lg2ar.files import is_at_work
from lg2ar.sampling import seed_from
from lg2ar.tuning.database import check_layout, damaged, finish_tables, first_line
from lg2ar.tuning.space import Space
from lg2ar.tuning.trials import (
    BEAT,
    FIRST,
    GRACE,
    NAME,
    TrialJob,
    TrialResult,
    find_optuna,
    open_storage,
    pruner,
    quiet,
)

# Seconds that another process may take from making a study to entering its first trial.
PATIENCE = 10.0

# How often a database is tried that another process may be setting up at the same moment.
TRIES = 5
_IN_THE_MAKING = ("OperationalError", "IntegrityError", "OtherLayoutError")


def absolute(url: str) -> str:
    """The address of a database; that of an SQLite file also for processes in other folders."""
    kind, sign, path = url.partition(":///")
    if sign and kind.startswith("sqlite") and path not in ("", ":memory:"):
        return f"{kind}{sign}{Path(path).absolute()}"
    return url


class SharedStudy:
    """A study that others may be working on as well.

    Args:
        url: Its database.
        where: What to call it in errors.
        seed: Fixes what is drawn.
        alone: Whether no other process works on it now.

    Attributes:
        storage: Optuna's own.
        study: The same.
        created: Whether it was not there before.
    """

    def __init__(self, url: str, where: str, seed: int, *, alone: bool = False) -> None:
        self.url, self._where, self._seed, self._alone = url, where, seed, alone
        self._owner = _mark(os.getpid())
        self._running: dict[int, Any] = {}
        self._stop = threading.Event()
        with quiet():
            self.storage, self.study, self.created = _open(url, where)

    def __enter__(self) -> SharedStudy:
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._beats.join()
        try:
            for trial in list(self._running.values()):  # interrupted: to be done when it goes on
                self._give_up(trial.number)
        finally:
            self.storage.remove_session()
            self.storage.engine.dispose()  # or its files stay open until somebody tidies up

    def begin(self, about: Mapping[str, Any], first: Mapping[str, Any], where: str) -> None:
        """Make sure that the study is the one that is wanted, and has its first trial.

        Args:
            about: What it is a study of; one of something else is not gone on with.
            first: The settings of the first trial.
            where: What to call it in errors.
        """
        until = time.monotonic() + PATIENCE
        while not self.created and not self.trials() and time.monotonic() < until:
            time.sleep(0.1)  # another process made it just now
        known = self.study.user_attrs
        for key, value in about.items():
            before = known.get(key)
            if before is None:
                self.study.set_user_attr(key, value)
            elif before != value:
                raise InputError(
                    f"{where}: holds a study with other {key}; go on with the same, or choose "
                    "another folder or storage."
                )
        # Also where it was cut off, and then who was about to line it up again.
        marked = [t for t in self._counted() if "usual" in t.user_attrs or t.number == 0]
        if not marked:
            new = not self.trials()
            self.study.enqueue_trial(dict(first), user_attrs={"usual": True}, skip_if_exists=new)

    def trials(self, *states: str) -> list[Any]:
        """All trials, or those in some states."""
        found: list[Any] = self.study.get_trials(deepcopy=False)
        return [trial for trial in found if not states or trial.state.name in states]

    def done(self) -> int:
        """Trials that are over; one that was interrupted or lost does not count."""
        return len(self.trials("COMPLETE", "PRUNED"))

    def _counted(self) -> list[Any]:
        """Trials that are over, under way or lined up; of those that two lined up, the first."""
        trials = self.trials()
        doubles = _doubles(trials)
        return [t for t in trials if t.state.name != "FAIL" and t.number not in doubles]

    def claim(self, trials: int, space: Space) -> TrialJob | None:
        """The next trial to do; None where ``trials`` are done, or done by others just now."""
        with quiet():
            self._tend()
            self._alone = False  # from now on others may have come
            counted = self._counted()
            waits = any(trial.state.name == "WAITING" for trial in counted[:trials])
            if len(counted) >= trials and not waits:
                return None
            trial = self.study.ask()
            try:
                self.storage.record_heartbeat(trial._trial_id)
                trial.set_user_attr("owner", self._owner)
            except find_optuna().exceptions.UpdateFinishedTrialError:
                return None  # another process took it for one that was cut off
            self._running[trial._trial_id] = trial
            counted = self._counted()
            before = sum(one.number < trial.number for one in counted)
            own = any(one.number == trial.number for one in counted)
            if before >= trials or not own:  # another process was faster
                self._tell(trial, state="FAIL")
                return None
            self.study.sampler = self._sampler(before)
            chosen = {key: value.suggest(trial, key) for key, value in space.items()}
            trial.set_user_attr("drawn", True)
            usual = trial.number == 0 or "usual" in trial.user_attrs
            return TrialJob(trial._trial_id, chosen, untrained=usual)

    def settle(self, job: TrialJob, result: TrialResult | Lost) -> Any:
        """Enter what came of a trial; gives the trial where it is over."""
        trial = self._running[job.trial]
        with quiet():
            if isinstance(result, Lost):
                if "again" not in trial.user_attrs:
                    self._give_up(trial.number, lost=True)
                    return None
                result = TrialResult(None, broken=f"{result.why}, twice.")
            if result.broken:
                # One that others gave up meanwhile takes no more notes.
                with suppress(find_optuna().exceptions.UpdateFinishedTrialError):
                    trial.set_user_attr("broken", result.broken)
            if result.value is None:
                self._tell(trial, state="PRUNED")
            else:
                self._tell(trial, value=result.value)
        return trial

    def _sampler(self, before: int) -> Any:
        return find_optuna().samplers.TPESampler(
            seed=seed_from(self._seed, "trial", before) % 2**32,
            n_startup_trials=2 * FIRST,
            constant_liar=True,  # or those who draw at the same time draw the same
        )

    def _tell(self, trial: Any, *, state: str | None = None, value: float | None = None) -> None:
        states = find_optuna().trial.TrialState
        # One that seemed lost to another process was ended by that one.
        given = None if state is None else states[state]
        self.study.tell(trial.number, value, state=given, skip_if_finished=True)
        self._running.pop(trial._trial_id, None)
        self._check_ended(trial)

    def _check_ended(self, trial: Any) -> None:
        """Optuna passes over an end that the database refuses, and it would be waited for."""
        if not self.storage.get_trial(trial._trial_id).state.is_finished():
            raise damaged(self._where, ValueError(f"it keeps no end of trial {trial.number}"))

    def _give_up(self, number: int, *, lost: bool = False) -> None:
        """End a trial that was cut off, and line it up again: if it was lost, once only.

        It is lined up first, so that a kill between the two loses nothing. Whoever comes next ends
        it then, and finds what it repeats lined up.
        """
        optuna = find_optuna()
        trials = self.trials()
        trial = trials[number]
        self._running.pop(trial._trial_id, None)
        repeated = any(one.user_attrs.get("repeats") == number for one in trials)
        if not repeated and not (lost and "again" in trial.user_attrs):
            self._line_up(trial, lost=lost)
        # Where this fails, another process ended it; if that was the one who did it after all, then
        # one trial more is done than was asked for.
        with suppress(ValueError, optuna.exceptions.UpdateFinishedTrialError):
            self.study.tell(number, state=optuna.trial.TrialState.FAIL)
        self._check_ended(trial)

    def _line_up(self, trial: Any, *, lost: bool) -> None:
        kept = {key: True for key in ("usual", "again") if key in trial.user_attrs}
        if lost:
            kept["again"] = True
        # One that was cut off while it drew draws from the beginning, or it would draw otherwise.
        params = trial.system_attrs.get("fixed_params", {})
        params = trial.params if "drawn" in trial.user_attrs else params
        self.study.enqueue_trial(params, user_attrs={**kept, "repeats": trial.number})

    def _tend(self) -> None:
        """Line up again what others had begun who are gone."""
        stale = set(self.storage._get_stale_trial_ids(self.study._study_id))
        for trial in self.trials("RUNNING"):
            if trial._trial_id not in self._running and (
                trial._trial_id in stale or self._is_orphan(trial)
            ):
                # Where nobody was left, the search as a whole was stopped, however often.
                self._give_up(trial.number, lost=not self._alone)

    def _is_orphan(self, trial: Any) -> bool:
        """Whether the process is gone that did a trial, as far as can be seen from here."""
        owner = trial.user_attrs.get("owner")
        if owner is None:  # cut off between two lines, or by an old version
            late = datetime.now() - trial.datetime_start > timedelta(seconds=GRACE)
            return self._alone or bool(late)
        host, process, _ = owner.rsplit(":", 2)
        if host != socket.gethostname() or sys.platform == "win32":
            return False
        return owner == self._owner or owner != _mark(int(process)) or not is_at_work(process)

    def _beat(self) -> None:
        """Give signs of life for all trials under way."""
        while not self._stop.wait(BEAT):
            for trial in list(self._running):
                try:
                    self.storage.record_heartbeat(trial)
                except Exception:  # a database that is busy or away: there is a next time
                    break


def _doubles(trials: Sequence[Any]) -> set[int]:
    """Trials that repeat what an earlier one repeats: two processes lined it up at a time."""
    first: dict[int, int] = {}
    for trial in trials:
        if "repeats" in trial.user_attrs:
            first.setdefault(trial.user_attrs["repeats"], trial.number)
    return {
        trial.number
        for trial in trials
        if first.get(trial.user_attrs.get("repeats"), trial.number) != trial.number
    }


def _mark(process: int) -> str:
    """A process by its machine, its number and, as numbers are given out again, its beginning."""
    began = "?"
    with suppress(OSError, IndexError):  # where the system tells
        began = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{socket.gethostname()}:{process}:{began}"


def _open(url: str, where: str) -> tuple[Any, Any, bool]:
    """The storage, the study, and whether it was made now."""
    optuna = find_optuna()
    for left in reversed(range(TRIES)):
        try:
            storage = open_storage(url)
            if not left:  # nobody is making them: who was has been killed
                finish_tables(storage)
            check_layout(storage)
            how = {"storage": storage, "study_name": NAME, "pruner": pruner()}
            try:
                return storage, optuna.create_study(direction="maximize", **how), True
            except optuna.exceptions.DuplicatedStudyError:
                return storage, optuna.load_study(**how), False
        except Exception as error:  # of whatever database
            # Two processes that set up a new one at the same time: one of them fails, or finds
            # tables that are not all there yet.
            if left and type(error).__name__ in _IN_THE_MAKING:
                time.sleep(0.3)
                continue
            raise InputError(
                f"{where}: is no storage that Optuna can work with ({first_line(error)}); restore "
                "it, or choose another folder or storage."
            ) from error
    raise AssertionError
