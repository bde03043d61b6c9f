"""One trial: train a run with some settings, and compare it; in this process or in another one."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.devices import choose_device
from lg2ar.errors import InputError
from lg2ar.experiment import pretrain
from lg2ar.runs import Run
from lg2ar.tuning.criteria import LabelCriterion, LabelFree

NAME = "lg2ar"

# After these epochs a trial is looked at, and given up where others were better by then.
LOOKS = {"graph": (5, 10, 20, 40, 60, 100, 200), "node": (25, 50, 100, 200, 400, 800)}

# Trials before any is given up, and before the sampler begins to learn from them.
FIRST = 5

# Seconds between two signs of life of a trial, and without one until it counts as lost.
BEAT, GRACE = 15, 60


@dataclass(frozen=True)
class TrialJob:
    """A trial to be done.

    Attributes:
        trial: Its id in the database.
        chosen: What was drawn for it.
        untrained: Whether the untrained encoder is looked at as well.
    """

    trial: int
    chosen: Mapping[str, Any]
    untrained: bool = False


@dataclass(frozen=True)
class TrialResult:
    """What came of a trial.

    Attributes:
        value: What the criterion says; None for a trial that was given up.
        broken: Why it broke down, if so.
    """

    value: float | None
    broken: str = ""


class TrialWorker:
    """Does trials of a study; where others stand it reads from the study's database.

    Args:
        dataset: The graphs.
        measure: The criterion.
        fixed: Settings that are not searched for.
        device: ``auto``, ``cpu`` or ``cuda``.
        url: The database.
        study: The study, where this process has it open.
    """

    def __init__(
        self,
        dataset: Dataset,
        measure: LabelFree | LabelCriterion,
        fixed: Mapping[str, Any],
        device: str,
        url: str,
        study: Any = None,
    ) -> None:
        self._dataset, self._measure, self._fixed = dataset, measure, dict(fixed)
        self._device, self._url, self._study = device, url, study

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_study": None}

    def __call__(self, job: TrialJob) -> TrialResult:
        """Train, look, and give up where others were better."""
        optuna = find_optuna()
        with quiet():
            if self._study is None:
                self._study = optuna.load_study(
                    study_name=NAME, storage=open_storage(self._url), pruner=pruner()
                )
            trial = optuna.trial.Trial(self._study, job.trial)
            try:
                config = Config.make({**self._fixed, **job.chosen})
            except InputError as error:
                return TrialResult(None, broken=str(error))
            try:
                return self._try(trial, job, config)
            except optuna.TrialPruned:
                return TrialResult(None)
            except InputError:
                raise  # of the data, such as a file that is gone: no other trial would go better
            except Exception as error:  # given up like others, so that it is learned from
                told = " ".join(str(error).split())[:300]
                return TrialResult(None, broken=told or type(error).__name__)

    def _try(self, trial: Any, job: TrialJob, config: Config) -> TrialResult:
        looks = {epoch for epoch in LOOKS[config.level] if epoch < config.epochs} | {config.epochs}
        seen: dict[int, float] = {}

        def look(epoch: int, run: Run) -> None:
            seen[epoch] = self._measure(run)
            if epoch == 0:
                trial.set_user_attr("untrained", seen[0])
                self._test(trial, run, "untrained test")
                return
            trial.report(seen[epoch], epoch)
            if epoch < config.epochs and trial.should_prune():
                raise find_optuna().TrialPruned

        run = pretrain(
            self._dataset,
            config,
            device=choose_device(self._device),
            embed_at=looks | ({0} if job.untrained else set()),
            on_run=look,
        )
        self._test(trial, run, "test")
        trial.set_user_attr("epochs", len(run.history))
        return TrialResult(seen[max(seen)])

    def _test(self, trial: Any, run: Run, name: str) -> None:
        """Write down the score on the labels kept apart; nothing is chosen by it."""
        if isinstance(self._measure, LabelCriterion):
            trial.set_user_attr(name, self._measure.test(run))


def open_storage(url: str) -> Any:
    """The database of a study; a process that dies stops to give signs of life there."""
    optuna = find_optuna()
    # It would log with a traceback that an interrupt reached it while it read; that is told anyway.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    # SQLite has one writer at a time; the others wait for it, and longer than they usually would.
    more = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    return optuna.storages.RDBStorage(
        url, engine_kwargs=more, heartbeat_interval=BEAT, grace_period=GRACE
    )


def pruner() -> Any:
    """What decides that a trial is given up."""
    return find_optuna().pruners.MedianPruner(n_startup_trials=FIRST)


def find_optuna() -> Any:
    """Optuna, without its own messages."""
    try:
        import optuna
    except ImportError:
        raise InputError(
            "Optuna is not installed; install it with pip install 'lg2ar[tune]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Optuna warns of every part of it that may change one day."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="optuna")
        warnings.filterwarnings("ignore", message=".*(xperimental|heartbeat).*")
        yield
