"""A training step and an epoch on the benchmark data sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from lg2ar.bench.measure import Epochs, Plan, kernels, record, settings, train
from lg2ar.bench.targets import targets
from lg2ar.benchmarks import hyperparameters
from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.sources import BUILT_IN, open_source
from lg2ar.errors import InputError

SHAPES = ("preset", "pygcl")


def configure(
    dataset: Dataset, method: str, preset: str, shape: str, changes: Mapping[str, Any]
) -> Config:
    """Settings of one measurement.

    Args:
        dataset: What will be trained on.
        method: ``lg2ar`` or a control.
        preset: Named settings to start from; an embedded data set has the defaults instead.
        shape: ``preset``, or ``pygcl`` for the width, layers and batch its numbers are at.
        changes: Settings that win over all of these.
    """
    if shape not in SHAPES:
        raise InputError(f"'{shape}' is not a shape; there are {', '.join(SHAPES)}.")
    known = {} if dataset.name in BUILT_IN else hyperparameters(dataset.name, preset)
    wanted = targets()["pygcl"]["shape"] if shape == "pygcl" else {}
    level = {"level": dataset.level}
    return Config.make({**level, **known, **wanted, "method": method, **changes})


def measure_steps(
    names: Sequence[str],
    methods: Sequence[str],
    device: torch.device,
    *,
    preset: str = "paper",
    shape: str = "preset",
    changes: Mapping[str, Any] | None = None,
    repeat: int | None = None,
    warmup: int | None = None,
    bench: str = "step",
    profiled: bool = False,
    whole: bool = False,
    against_pyg: bool = False,
) -> Iterator[dict[str, Any]]:
    """Time training on each data set with each method, a record each.

    On CUDA ``step`` runs some epochs again under the profiler, for the time of the kernels.

    Args:
        names: Data sets.
        methods: ``lg2ar`` and controls.
        device: Where to train.
        preset: Named settings.
        shape: See :func:`configure`.
        changes: Settings that win.
        repeat: Epochs to time.
        warmup: Epochs before these.
        bench: ``step`` or ``epoch``.
        profiled: Whether the records hold the largest kernels (or operations) as ``top``.
        whole: Whether to train all epochs of the preset, first to last: ``run_seconds``.
        against_pyg: Whether PyG's own expression of LG2AR is timed as well, CPU only.
    """
    if against_pyg and device.type != "cpu":
        raise InputError("the comparison with plain PyG is one of CPUs; use --device cpu.")
    plan = Plan.usual(device, repeat, warmup)
    for name in names:
        dataset = open_source(name)
        for method in methods:
            config = configure(dataset, method, preset, shape, changes or {})
            told = {"preset": preset, "shape": shape, **settings(config, dataset)}
            once = Plan(plan.warmup, max(1, config.epochs - plan.warmup)) if whole else plan
            epochs = train(dataset, config, device, once)
            if whole:
                told |= {"run_seconds": epochs.run_seconds, "run_epochs": once.warmup + once.repeat}
            work = None
            if profiled or (bench == "step" and device.type == "cuda"):
                work = kernels(dataset, config, device, Plan(plan.warmup, min(plan.repeat, 5)))
                told["top"] = work.top[:12] if profiled else None
            yield record(
                bench,
                dataset.name,
                method,
                device,
                epochs=epochs,
                work=work if device.type == "cuda" else None,
                **told,
            )
            if against_pyg and method == "lg2ar":
                yield from _plain(dataset, config, plan, told)


def _plain(
    dataset: Dataset, config: Config, plan: Plan, told: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The same settings through PyG's own parts: the batch at once, and graph by graph."""
    from lg2ar.bench.plain_pyg import PlainTrainer

    recipe = FeatureRecipe.of(config, dataset)
    graph = recipe.apply(dataset)
    told = {key: value for key, value in told.items() if not key.startswith(("run_", "top"))}
    for method, alone in (("pyg", False), ("pyg, graph by graph", True)):
        trainer = PlainTrainer(graph, config, graph_by_graph=alone)
        seen = Epochs()
        for epoch, (seconds, loss, steps) in enumerate(trainer.timed(plan.warmup + plan.repeat)):
            if epoch >= plan.warmup:
                seen.seconds.append(seconds)
                seen.losses.append(loss)
                seen.steps = steps
        made = record("step", dataset.name, method, torch.device("cpu"), epochs=seen, **told)
        yield {**made, "peak_gb": None, "working_gb": None}


def top_table(made: Mapping[str, Any]) -> list[str]:
    """The largest kernels or operations of a record in lines to print."""
    what = "operation" if made["device"].startswith("cpu") else "kernel"
    lines = [f"{'ms a step':>10} {'calls':>8}  {what}"]
    lines += [f"{ms:10.3f} {calls:8.1f}  {name[:80]}" for name, ms, calls in made["top"]]
    return lines
