"""A study of settings with Optuna: it can be stopped, and goes on where it was."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.reading import ReadOptions
from lg2ar.data.sources import Source, open_source
from lg2ar.devices import choose_device
from lg2ar.engines import Crew, Engine, Lost, drive
from lg2ar.errors import InputError
from lg2ar.files import among_others
from lg2ar.frames import write_content, write_frame
from lg2ar.tuning.chart import importance_chart
from lg2ar.tuning.checking import check_chosen, check_readable
from lg2ar.tuning.criteria import LabelCriterion, LabelFree, make_criterion
from lg2ar.tuning.database import database_told
from lg2ar.tuning.shared import SharedStudy, absolute
from lg2ar.tuning.space import SPACES, Space
from lg2ar.tuning.trials import TrialJob, TrialResult, TrialWorker, find_optuna, quiet

_log = logging.getLogger("lg2ar")

# Seconds between two looks at what other processes do.
PAUSE = 1.0

# Another name than that of the lock of a folder's one writer: several may search.
LOCK = ".lg2ar-search"

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
        broken: How many of these because they broke down, such as for a lack of memory.
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
    crew: Crew | None = None,
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
        seed: Fixes what is drawn; once settings are learned from, as far as one process alone
            works on the study.
        device: ``auto``, ``cpu`` or ``cuda``.
        crew: Who does the trials; None does one after the other in this process.
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
    crew = crew or Crew()
    if not crew.on_ray:
        choose_device(device)  # what is not there is said now
    folder = _make(Path(out))
    where = storage or str(folder / DATABASE)
    url = absolute(storage or f"sqlite:///{folder / DATABASE}")
    with (
        database_told(where),
        among_others(folder / LOCK) as alone,
        SharedStudy(url, where, seed, alone=alone and storage is None) as shared,
    ):
        usual = {key: kind.nearest(getattr(config, key)) for key, kind in searched.items()}
        check_readable(shared.storage, shared.study, where)
        shared.begin(_about(dataset, measure.name, fixed, searched), usual, str(folder))
        check_chosen(shared.study, searched, where)
        until = None if timeout is None else time.monotonic() + timeout

        def take() -> TrialJob | None:
            late = until is not None and time.monotonic() >= until
            return None if late else shared.claim(trials, searched)

        def settle(job: TrialJob, result: TrialResult | Lost) -> None:
            trial = shared.settle(job, result)
            if isinstance(result, Lost):
                _log.warning("a trial: %s%s", result.why, "." if trial else "; it is done again.")
            if trial is None:
                return
            found = shared.trials()
            best = _best(found)
            if best is not None and best.number == trial.number:
                _write_best(folder, found, best, fixed, measure.name)
            if on_trial is not None:
                on_trial(_done(found), trials, None if best is None else best.value)

        if shared.done() < trials:
            own = shared.study if crew.alone else None
            worker = TrialWorker(dataset, measure, fixed, str(device), url, own)
            with crew.hire(worker, str(device)) as engine:
                _check_reach(url, where, engine.machines)
                _work(engine, shared, take, settle, trials, until)
        return _told(shared.study, folder, fixed, measure)


def _work(
    engine: Engine[TrialJob, TrialResult],
    shared: SharedStudy,
    take: Callable[[], TrialJob | None],
    settle: Callable[[TrialJob, TrialResult | Lost], None],
    trials: int,
    until: float | None,
) -> None:
    """Do trials until there are enough; those that others are at are waited for."""
    told = False
    while True:
        drive(engine, take, settle)
        if shared.done() >= trials or (until is not None and time.monotonic() >= until):
            return
        if not told:
            _log.warning("waiting for trials that other processes are at.")
            told = True
        time.sleep(PAUSE)


def _check_reach(url: str, where: str, machines: int) -> None:
    if machines > 1 and url.startswith("sqlite"):
        raise InputError(
            f"{where}: is a file, which {machines} machines cannot share; give a database with "
            "--storage, such as postgresql://."
        )


def _make(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error}).") from None
    return folder


def _open(source: Source, labels: str | None, reading: Mapping[str, Any]) -> Dataset:
    own = {} if labels is None or isinstance(source, Dataset) else {"labels": labels}
    return open_source(source, options=ReadOptions.make({**reading, **own}))


def _about(
    dataset: Dataset, criterion: str, fixed: Mapping[str, Any], space: Space
) -> dict[str, Any]:
    """What a study is of: it goes on with the same data, criterion, settings and ranges only."""
    return {
        "data": dataset.fingerprint(),
        "criterion": criterion,
        "settings": {key: _plain(value) for key, value in fixed.items()},
        "space": {key: repr(value) for key, value in space.items()},
    }


def _best(trials: Sequence[Any]) -> Any:
    """The trial with the highest value, the first of several; None where none came to its end."""
    completed = [trial for trial in trials if trial.state.name == "COMPLETE"]
    return max(completed, key=lambda trial: trial.value, default=None)


def _counted(trials: Sequence[Any]) -> list[Any]:
    """The trials that count, in their order: all but those that were cut off."""
    return [trial for trial in trials if trial.state.name != "FAIL"]


def _place(trials: Sequence[Any], number: int) -> int:
    """The place of a trial among those that count, from 0."""
    return sum(trial.number < number for trial in _counted(trials))


def _done(trials: Sequence[Any]) -> int:
    """Trials that are over; one that was interrupted does not count."""
    return sum(trial.state.name in ("COMPLETE", "PRUNED") for trial in trials)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _told(
    study: Any, folder: Path, fixed: Mapping[str, Any], measure: LabelFree | LabelCriterion
) -> Tuned:
    """The result, and its files."""
    everything = study.trials
    trials, best = _counted(everything), _best(everything)
    states = [trial.state.name for trial in trials]
    if best is None:
        broken = [t.user_attrs["broken"] for t in everything if "broken" in t.user_attrs]
        why = f" (the last: {broken[-1].rstrip('.')})" if broken else ""
        raise InputError(
            f"{folder}: none of {len(states)} trials came to its end{why}; narrow the ranges or "
            "give more time."
        )
    first = _usual(everything)
    importance = _importance(study, everything)
    _write_best(folder, everything, best, fixed, measure.name)
    with quiet():
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
        trial=_place(everything, best.number),
        usual=None if first.state.name != "COMPLETE" else float(first.value),
        untrained=first.user_attrs.get("untrained"),
        test=test,
        finished=states.count("COMPLETE"),
        pruned=states.count("PRUNED"),
        broken=sum("broken" in trial.user_attrs for trial in trials),
        importance=importance,
        folder=folder,
    )


def _usual(trials: Sequence[Any]) -> Any:
    """The trial with the usual settings; where it was cut off and done again, the last."""
    marked = [trial for trial in trials if "usual" in trial.user_attrs]
    return next((t for t in reversed(marked) if t.state.name != "FAIL"), trials[0])


def _importance(study: Any, trials: Sequence[Any]) -> dict[str, float]:
    """Shares of the settings in how the criterion varies (fANOVA); none for too few trials."""
    optuna = find_optuna()
    values = {trial.value for trial in trials if trial.state.name == "COMPLETE"}
    if len(values) < 3:
        return {}
    with quiet():
        found = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
        )
    return {key: float(value) for key, value in found.items()}


def _write_best(
    folder: Path, trials: Sequence[Any], best: Any, fixed: Mapping[str, Any], criterion: str
) -> None:
    lines = [
        f"# Best of {_done(trials)} trials by the criterion '{criterion}': "
        f"{best.value:.6g} (trial {_place(trials, best.number)}).",
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
