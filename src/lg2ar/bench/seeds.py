"""Many seeds of one setting at once, against one after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from lg2ar import experiment
from lg2ar.bench.measure import Kernels, Plan, by_kind, kernels, record, settings
from lg2ar.bench.step import configure
from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.sources import open_source
from lg2ar.errors import InputError
from lg2ar.records import EpochRecord

# A learning rate that leaves weights where they are.
RESTING = 1e-12


class Seen(NamedTuple):
    """What was seen of one training.

    Attributes:
        pace: Seconds an epoch.
        losses: Of every seed, its epochs'.
        whole: Seconds in all.
        steps: Batches of an epoch.
    """

    pace: float
    losses: list[list[float]]
    whole: float
    steps: int


def measure_seeds(
    names: Sequence[str],
    device: torch.device,
    *,
    seeds: int = 10,
    epochs: int = 20,
    warmup: int = 5,
    checked: int = 2,
    preset: str = "paper",
    shape: str = "preset",
    changes: Mapping[str, Any] | None = None,
    profiled: bool = False,
) -> Iterator[dict[str, Any]]:
    """Train one seed, then several in one process, and compare time and results.

    Args:
        names: Data sets.
        device: Where to train.
        seeds: How many seeds are trained together: 0, 1, ...
        epochs: Of each run.
        warmup: The first so many are not counted in the time of an epoch.
        checked: How many of the seeds are trained alone as well, to compare their losses.
        preset: Named settings.
        shape: See :func:`lg2ar.bench.step.configure`.
        changes: Settings that win.
        profiled: Whether some epochs of all seeds are trained once more under the profiler.

    Yields:
        A record each, with ``one_seconds`` and ``many_seconds`` of an epoch, their ``ratio``,
        ``one_step_ms`` and ``step_ms`` of a step of one and of all, those of the whole calls
        (``one_run_seconds``, ``many_run_seconds``) and ``largest_difference`` between a seed's
        losses alone and among others, relative to them; ``resting_difference`` is the same with a
        learning rate that leaves the weights alone.

        Profiled, also ``kernel_ms``, ``copies_ms``, ``launches``, the ``top`` kernels and their
        ``kinds``, all of a step as :func:`lg2ar.bench.measure.kernels` counts it. Seeds beside each
        other on streams share the time: the sum of their kernels may be above ``step_ms``. On a CPU
        it is of operations, those of the last seed alone, where ``step_ms`` is of all.
    """
    if not 1 <= warmup < epochs:
        raise InputError(f"warmup = {warmup} must be from 1 to below the {epochs} epochs timed.")
    for name in names:
        dataset = open_source(name)
        config = configure(dataset, "lg2ar", preset, shape, changes or {})
        config = config.replace(epochs=epochs, patience=0)
        train = partial(_both, dataset, device, warmup, max(1, min(checked, seeds)), seeds)
        # Weights that hardly move: the same losses but for rounding. Moving, they part in time, as
        # Adam's first steps go by the signs of gradients, the smallest included.
        resting = _difference(*train(config.replace(epochs=warmup + 1, learning_rate=RESTING)))
        alone, joint = train(config)
        together, steps = joint.pace, joint.steps
        one = alone[-1].pace  # the first one may have paid for what is made once in a process
        work: Kernels | None = None
        more: dict[str, Any] = {}
        if profiled:
            plan = Plan(warmup, min(epochs - warmup, 5))
            work = kernels(dataset, config, device, plan, range(seeds))
            more = {"top": work.top[:12], "kinds": by_kind(work)}
        yield record(
            "seeds",
            dataset.name,
            "lg2ar",
            device,
            work=work,
            preset=preset,
            shape=shape,
            seeds=seeds,
            seconds_per_epoch=together,
            steps=steps,
            step_ms=1e3 * together / steps,
            one_step_ms=1e3 * one / steps,
            one_seconds=one,
            many_seconds=together,
            ratio=together / one,
            one_run_seconds=alone[-1].whole,
            many_run_seconds=joint.whole,
            resting_difference=resting,
            largest_difference=_difference(alone, joint),
            final_losses={
                "alone": [seen.losses[0][-1] for seen in alone],
                "joint": [own[-1] for own in joint.losses],
            },
            **settings(config, dataset),
            **more,
        )


def _both(
    dataset: Dataset, device: torch.device, warmup: int, checked: int, seeds: int, config: Config
) -> tuple[list[Seen], Seen]:
    """Some seeds alone, and all together."""
    alone = [
        one_seed(dataset, config.replace(seed=seed), device, warmup) for seed in range(checked)
    ]
    return alone, many_seeds(dataset, config, range(seeds), device, warmup)


def _difference(alone: Sequence[Seen], joint: Seen) -> float:
    """The largest between a seed's losses alone and among others, relative to them."""
    return max(
        abs(a - b) / max(abs(a), 1e-12)
        for seen, among in zip(alone, joint.losses, strict=False)
        for a, b in zip(seen.losses[0], among, strict=True)
    )


def one_seed(dataset: Dataset, config: Config, device: torch.device, warmup: int) -> Seen:
    """One seed alone."""
    clock = _Clock(1, warmup)
    experiment.pretrain(dataset, config, device=device, on_epoch=partial(clock.look, 0))
    return clock.seen()


def many_seeds(
    dataset: Dataset, config: Config, seeds: Sequence[int], device: torch.device, warmup: int
) -> Seen:
    """Several seeds together; an epoch is one of all of them."""
    clock = _Clock(len(seeds), warmup)
    experiment.pretrain_many(dataset, config, list(seeds), device=device, on_epoch=clock.look)
    return clock.seen()


class _Clock:
    """Adds up the time that leads to epochs after the warm-up.

    The time from one report to the next belongs to the later one. So it does not matter whether
    seeds go side by side or, where they cannot, one after the other.
    """

    def __init__(self, seeds: int, warmup: int) -> None:
        self.losses: list[list[float]] = [[] for _ in range(seeds)]
        self._warmup = warmup
        self._start = self._last = time.perf_counter()
        self._seconds = 0.0
        self._steps = 0

    def look(self, place: int, seen: EpochRecord) -> None:
        now = time.perf_counter()
        if seen.epoch > self._warmup:
            self._seconds += now - self._last
        self._last = now
        self.losses[place].append(seen.loss)
        self._steps = seen.steps

    def seen(self) -> Seen:
        """What there is to say at the end."""
        return Seen(
            pace=self._seconds / (len(self.losses[0]) - self._warmup),
            losses=self.losses,
            whole=time.perf_counter() - self._start,
            steps=self._steps,
        )
