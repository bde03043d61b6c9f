"""Whether a study is one that a search wrote, before it is gone on with."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from lg2ar.tuning.database import damaged
from lg2ar.tuning.space import Choice, Range, Space
from lg2ar.tuning.trials import find_optuna

# What trials say of themselves: numbers, and words.
_NUMBERS = ("untrained", "test", "untrained test", "epochs")
_WORDS = ("owner", "broken")

# Optuna's tables with rows that belong to trials, and how to look for one that belongs to none.
_OF_TRIALS = (
    "trial_params",
    "trial_values",
    "trial_intermediate_values",
    "trial_user_attributes",
    "trial_system_attributes",
    "trial_heartbeats",
)
_LOST = "SELECT 1 FROM {table} WHERE trial_id NOT IN (SELECT trial_id FROM trials) LIMIT 1"


def check_readable(storage: Any, study: Any, where: str) -> None:
    """See that everything that a study holds can be read.

    Args:
        storage: Optuna's own.
        study: The same.
        where: What to call it in errors.

    Raises:
        InputError: When something cannot be, or is nothing that a search writes.
    """
    try:
        _check_owners(storage)
        if [direction.name for direction in study.directions] != ["MAXIMIZE"]:
            raise ValueError("it looks for something else than the highest value")
        if not isinstance(study.user_attrs, dict):
            raise TypeError("it says nothing of itself")
        trials = study.get_trials(deepcopy=False)
        for place, trial in enumerate(trials):
            _check_trial(place, trial)
        storage._get_stale_trial_ids(study._study_id)
        if any(trial.state.name == "COMPLETE" for trial in trials):
            _ = study.best_trial
    except Exception as error:  # of whatever database, and of Optuna reading it
        raise damaged(where, error) from error


def check_chosen(study: Any, space: Space, where: str) -> None:
    """See that what the trials of a study have tried is within what is searched.

    Raises:
        InputError: When it is not.
    """
    try:
        for trial in study.get_trials(deepcopy=False):
            for held in (trial.params, trial.system_attrs.get("fixed_params", {})):
                _check_values(held, space)
            for key, found in trial.distributions.items():
                if found != _distribution(space[key]):
                    raise ValueError(f"another range of {key}")
    except Exception as error:  # of whatever database, and of Optuna reading it
        raise damaged(where, error) from error


def _check_owners(storage: Any) -> None:
    """What belongs to a trial that is not there would belong to the next one."""
    from sqlalchemy import text

    if storage.engine.dialect.name != "sqlite":  # others see to it themselves
        return
    with storage.engine.connect() as connection:
        for table in _OF_TRIALS:
            if connection.execute(text(_LOST.format(table=table))).first() is not None:
                raise ValueError(f"{table} of a trial that is not there")


def _check_trial(place: int, trial: Any) -> None:
    state, told = trial.state.name, trial.user_attrs
    if trial.number != place:
        raise ValueError(f"trial {place} has another number")
    if state == "COMPLETE" and not (len(trial.values) == 1 and _is_number(trial.values[0])):
        raise ValueError(f"trial {place} came to nothing")
    if state != "WAITING" and trial.datetime_start is None:
        raise ValueError(f"trial {place} has no beginning")
    if not all(_is_number(told[key]) for key in _NUMBERS if key in told):
        raise ValueError(f"trial {place} has a score that is no number")
    if not all(isinstance(told[key], str) for key in _WORDS if key in told):
        raise ValueError(f"trial {place} has words that are none")
    if not re.fullmatch(r".*:[0-9]{1,18}:[^:]*", told.get("owner", "?:0:?")):
        raise ValueError(f"trial {place} has an owner that is none")
    if not all(type(value) in (int, float) for value in trial.intermediate_values.values()):
        raise ValueError(f"trial {place} was somewhere that is no number")


def _check_values(held: Mapping[str, Any], space: Space) -> None:
    for key, value in held.items():
        kind = space[key]
        inside = (
            value in kind.values
            if isinstance(kind, Choice)
            else _is_number(value) and kind.low <= value <= kind.high
        )
        if not inside or isinstance(value, bool):
            raise ValueError(f"{key} is {value!r:.50}")


def _distribution(kind: Choice | Range) -> Any:
    """What is searched, as Optuna has it."""
    distributions = find_optuna().distributions
    if isinstance(kind, Choice):
        return distributions.CategoricalDistribution(kind.values)
    return distributions.FloatDistribution(kind.low, kind.high, log=kind.log)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
