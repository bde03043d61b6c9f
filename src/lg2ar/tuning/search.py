"""A study of settings with Optuna: it can be stopped, and goes on where it was."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.reading import ReadOptions
from lg2ar.data.sources import Source, open_source
from lg2ar.errors import InputError, MemoryShortageError, NonFiniteLossError
from lg2ar.experiment import Run, choose_device, pretrain
from lg2ar.frames import write_content, write_frame
from lg2ar.tuning.chart import importance_chart
from lg2ar.tuning.criteria import LabelCriterion, LabelFree, make_criterion
from lg2ar.tuning.going_on import at_work, begin, counted, fail_dead, place_of
from lg2ar.tuning.space import SPACES, Space

NAME = "lg2ar"

# After these epochs a trial is looked at, and given up where others were better by then.
LOOKS = {"graph": (5, 10, 20, 40, 60, 100, 200), "node": (25, 50, 100, 200, 400, 800)}

# Trials before any is given up, and before the sampler begins to learn from them.
FIRST = 5

BEST, TRIALS, CHART, DATABASE = "best.toml", "trials.csv", "importance.svg", "tuning.db"


@dataclass(frozen=True, eq=False)
class Tuned:
    """What a study found.

    Attributes:
        settings: The best settings, as :class:`~lg2ar.config.Config` takes them.
        value: What the criterion says of them.
        criterion: Its name.
        trial: The place of the best trial among those that count, from 0.
        usual: What the criterion says of the usual settings; None where that trial was not
            finished.
        untrained: What it says of an untrained encoder of the usual settings.
        test: With labels: the score on those kept apart, of the ``best``, the ``usual`` and the
            ``untrained`` encoder, as far as they are known.
        finished: Trials that came to their end.
        pruned: Trials that were given up.
        broken: How many of these because their loss was no number any more.
        importance: The share of each setting in how the criterion varies, largest first; empty
            where there are too few trials to tell.
        folder: Where the files are.
    """

    settings: dict[str, Any]
    value: float
    criterion: str
    trial: int
    usual: float | None
    untrained: float | None
    test: dict[str, float]
    finished: int
    pruned: int
    broken: int
    importance: dict[str, float] = field(default_factory=dict)
    folder: Path | None = None


def tune(
    source: Source,
    out: str | Path,
    *,
    trials: int = 30,
    criterion: str | None = None,
    labels: str | None = None,
    settings: Mapping[str, Any] | None = None,
    space: Space | None = None,
    storage: str | None = None,
    timeout: float | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    reading: Mapping[str, Any] | None = None,
    on_trial: Callable[[int, int, float | None], None] | None = None,
) -> Tuned:
    """Look for good settings in the paper's ranges.

    The first trial has the usual settings, so that there is something to compare with. Called
    again with the same folder or storage it goes on until there are ``trials`` in all; several
    processes may share a storage.

    Args:
        source: Where the graphs come from.
        out: Folder for the best settings (``best.toml``, for ``lg2ar pretrain --config``), all
            trials (``trials.csv``), what mattered (``importance.svg``) and, where no other storage
            is named, the study itself (``tuning.db``).
        trials: How many trials in all; those given up count.
        criterion: ``label-free`` or ``labels``, see :mod:`lg2ar.tuning.criteria`; None takes
            labels where ``labels`` names some.
        labels: Column of the labels.
        settings: Settings that stay as they are; they are not searched for.
        space: What is searched for; None takes the paper's ranges.
        storage: URL of a database, as Optuna takes it; None keeps SQLite in ``out``.
        timeout: Seconds after which no further trial is begun.
        seed: Fixes what is drawn, as far as one process alone works on the study.
        device: ``auto``, ``cpu`` or ``cuda``.
        reading: How the source is to be read, by option: see :func:`lg2ar.read`.
        on_trial: Called with how many trials are done, how many there will be, and the best value.

    Raises:
        InputError: When source, settings or storage cannot be worked with, or no trial came to
            its end.
    """
    if trials < 1:
        raise InputError(f"trials = {trials} try nothing; ask for at least one.")
    dataset = _open(source, labels, reading or {})
    name = criterion or ("labels" if labels is not None else "label-free")
    measure = make_criterion(name, dataset, labels, seed)
    fixed = {"level": dataset.level, "seed": seed, **(settings or {})}
    config = Config.make(fixed)  # what cannot be is said now, not in every trial
    searched = {
        key: value for key, value in (space or SPACES[config.level]).items() if key not in fixed
    }
    if not searched:
        raise InputError("every setting is given, which leaves nothing to search for.")
    folder = Path(out)
    study = _study(storage, folder)
    _check_same(study, folder, dataset, measure.name, fixed, searched)
    search = _Search(dataset, measure, fixed, searched, choose_device(device), seed)

    def after(study: Any, trial: Any) -> None:
        done = _done(study)
        best = study.best_value if _completed(study) else None
        if best is not None and study.best_trial.number == trial.number:
            _write_best(folder, study, fixed, measure.name)
        if on_trial is not None:
            on_trial(done, trials, best)
        if done >= trials:
            study.stop()

    with _storage_told(storage or str(folder / DATABASE)), at_work(folder) as alone:
        fail_dead(study, alone=alone and storage is None)
        if _done(study) < trials:
            if not counted(study):
                usual = {key: kind.nearest(getattr(config, key)) for key, kind in searched.items()}
                study.enqueue_trial(usual)
            with _quiet():
                study.optimize(search, timeout=timeout, callbacks=[after])
        return _told(study, folder, fixed, measure)


def _open(source: Source, labels: str | None, reading: Mapping[str, Any]) -> Dataset:
    own = {} if labels is None or isinstance(source, Dataset) else {"labels": labels}
    return open_source(source, options=ReadOptions.make({**reading, **own}))


class _Search:
    """What Optuna calls for every trial."""

    def __init__(
        self,
        dataset: Dataset,
        measure: LabelFree | LabelCriterion,
        fixed: Mapping[str, Any],
        space: Space,
        device: torch.device,
        seed: int,
    ) -> None:
        self.dataset, self.measure = dataset, measure
        self.fixed, self.space, self.device, self.seed = fixed, space, device, seed

    def __call__(self, trial: Any) -> float:
        import optuna

        place = begin(trial, self.seed, startup=2 * FIRST)
        chosen = {key: value.suggest(trial, key) for key, value in self.space.items()}
        config = Config.make({**self.fixed, **chosen})
        looks = {epoch for epoch in LOOKS[config.level] if epoch < config.epochs} | {config.epochs}
        seen: dict[int, float] = {}

        def look(epoch: int, run: Run) -> None:
            seen[epoch] = self.measure(run)
            if epoch == 0:
                trial.set_user_attr("untrained", seen[0])
                self._test(trial, run, "untrained test")
                return
            trial.report(seen[epoch], epoch)
            if epoch < config.epochs and trial.should_prune():
                raise optuna.TrialPruned

        try:
            run = pretrain(
                self.dataset,
                config,
                device=self.device,
                embed_at=looks | ({0} if place == 0 else set()),
                on_run=look,
            )
        # Given up like others, so that it is learned from.
        except (NonFiniteLossError, MemoryShortageError) as error:
            trial.set_user_attr("broken", str(error))
            raise optuna.TrialPruned from None
        self._test(trial, run, "test")
        trial.set_user_attr("epochs", len(run.history))
        return seen[max(seen)]

    def _test(self, trial: Any, run: Run, name: str) -> None:
        """Write down the score on the labels kept apart; nothing is chosen by it."""
        if isinstance(self.measure, LabelCriterion):
            trial.set_user_attr(name, self.measure.test(run))


def _study(storage: str | None, folder: Path) -> Any:
    optuna = _optuna()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        url = storage or f"sqlite:///{folder / DATABASE}"
        with _quiet():
            # A process that dies stops to beat; what it was at is then marked as failed.
            held = optuna.storages.RDBStorage(url, heartbeat_interval=60, grace_period=180)
            pruner = optuna.pruners.MedianPruner(n_startup_trials=FIRST)
            return optuna.create_study(
                storage=held,
                study_name=NAME,
                direction="maximize",
                pruner=pruner,
                load_if_exists=True,
            )
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error}).") from None
    except Exception as error:  # of whatever database
        told = str(error).strip().partition("\n")[0]
        where = storage or str(folder / DATABASE)
        raise InputError(f"{where}: is no storage that Optuna can work with ({told}).") from None


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError(
            "Optuna is not installed; install it with pip install 'lg2ar[tune]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _check_same(
    study: Any,
    folder: Path,
    dataset: Dataset,
    criterion: str,
    fixed: Mapping[str, Any],
    space: Space,
) -> None:
    """A study goes on with the same data, criterion, settings and ranges only."""
    now = {
        "data": dataset.fingerprint(),
        "criterion": criterion,
        "settings": {key: _plain(value) for key, value in fixed.items()},
        "space": {key: repr(value) for key, value in space.items()},
    }
    for key, value in now.items():
        before = study.user_attrs.get(key)
        if before is None:
            study.set_user_attr(key, value)
        elif before != value:
            raise InputError(
                f"{folder}: holds a study with other {key}; go on with the same, or choose another "
                "folder or storage."
            )


def _completed(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.name == "COMPLETE"]


def _done(study: Any) -> int:
    """Trials that are over; one that was interrupted does not count."""
    return sum(trial.state.name in ("COMPLETE", "PRUNED") for trial in study.trials)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _told(
    study: Any, folder: Path, fixed: Mapping[str, Any], measure: LabelFree | LabelCriterion
) -> Tuned:
    """The result, and its files."""
    trials = counted(study)
    states = [trial.state.name for trial in trials]
    if not _completed(study):
        raise InputError(
            f"{folder}: none of {len(states)} trials came to its end; narrow the ranges or give "
            "more time."
        )
    best, first = study.best_trial, trials[0]
    importance = _importance(study)
    _write_best(folder, study, fixed, measure.name)
    with _quiet():
        write_frame(folder / TRIALS, study.trials_dataframe())
    if importance:
        text = importance_chart(importance, f"criterion: {measure.name}, {len(states)} trials")
        write_content(folder / CHART, text.encode())
    test = {
        name: float(held.user_attrs[key])
        for name, held, key in (
            ("best", best, "test"),
            ("usual", first, "test"),
            ("untrained", first, "untrained test"),
        )
        if key in held.user_attrs
    }
    return Tuned(
        settings={**fixed, **best.params},
        value=float(best.value),
        criterion=measure.name,
        trial=place_of(study, best.number),
        usual=None if first.state.name != "COMPLETE" else float(first.value),
        untrained=first.user_attrs.get("untrained"),
        test=test,
        finished=states.count("COMPLETE"),
        pruned=states.count("PRUNED"),
        broken=sum("broken" in trial.user_attrs for trial in trials),
        importance=importance,
        folder=folder,
    )


def _importance(study: Any) -> dict[str, float]:
    """Shares of the settings in how the criterion varies (fANOVA); none for too few trials."""
    optuna = _optuna()
    values = {trial.value for trial in _completed(study)}
    if len(values) < 3:
        return {}
    with _quiet():
        found = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
        )
    return {key: float(value) for key, value in found.items()}


def _write_best(folder: Path, study: Any, fixed: Mapping[str, Any], criterion: str) -> None:
    best = study.best_trial
    lines = [
        f"# Best of {_done(study)} trials by the criterion '{criterion}': "
        f"{best.value:.6g} (trial {place_of(study, best.number)}).",
        *(f"{key} = {_toml(value)}" for key, value in {**fixed, **best.params}.items()),
    ]
    write_content(folder / BEST, ("\n".join(lines) + "\n").encode())


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return repr(value)


@contextlib.contextmanager
def _storage_told(where: str) -> Iterator[None]:
    """Say in one sentence that the study cannot be written: a full disk, a lost connection."""
    optuna = _optuna()
    try:
        yield
    except (OSError, optuna.exceptions.StorageInternalError) as error:
        told = str(error.__cause__ or error).strip().partition("\n")[0]
        raise InputError(
            f"{where}: cannot be written ({told}); make room there, then the same command goes on."
        ) from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Optuna warns of every part of it that may change one day."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="optuna")
        warnings.filterwarnings("ignore", message=".*(xperimental|heartbeat).*")
        yield
