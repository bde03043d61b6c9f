"""The search for settings of each data set, in the paper's ranges, away from the reported folds.

Optuna need not be where the runs are made: it is asked for settings here, these are run anywhere,
and what they scored is kept as records. From these Optuna goes on, and the preset ``searched`` is
read from them.

python benchmarks/presets.py ask mutag,proteins --trials 8 --jobs jobs.jsonl
python benchmarks/presets.py run jobs.jsonl --out results/search.jsonl --seconds 500
python benchmarks/presets.py again cora --most 4 --seeds 4 --steps 800 --jobs jobs.jsonl
python benchmarks/presets.py best                 # rows of hyperparameters.toml

The criterion is the accuracy of the protocol ``strict`` with seeds from 1000 on that no table has:
their initial weights, draws, **folds and random splits** are others than those that are reported.
At node level it is the accuracy on the validation nodes, the mean of ``strict`` and ``paper``;
public splits are the same for all seeds. ``probe_epochs`` says how long the layer was trained that
read them, 300 where a record does not say; values of different ones are not compared. The labels
are the same, as in every search of the field; a table of searched settings says so.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from lg2ar.benchmarks import hyperparameters
from lg2ar.config import Config
from lg2ar.data.benchmarks import find_benchmark
from lg2ar.data.dataset import Dataset
from lg2ar.data.sources import open_source
from lg2ar.devices import choose_device, device_name
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.experiment import pretrain_many
from lg2ar.probes.linear_layer import EPOCHS, linear_layer_accuracy
from lg2ar.protocols import EPOCH_GRID, OLDER_EPOCHS, Memory, Reader
from lg2ar.records import versions
from lg2ar.tuning.space import SPACES, Choice, Range

RECORDS = Path("results/search.jsonl")
FIRST_SEED = 1000
# At node level an epoch is a step, and how many there are is chosen from these.
STEPS = (50, 100, 200, 400, 800, 1600)
# Sizes of batches stay the preset's, and widths at graph level: with them the cost of a run would
# differ tenfold.
SEARCHED = ("layers", "learning_rate", "hops", "temperature", "ratio", "dropout")
# The lower part of the paper's range: at 0.03 nothing is learned (docs/findings.md).
LEARNING_RATES = Range(1e-4, 1e-2, log=True)


@dataclass(frozen=True)
class Names:
    """One of several words: what the paper leaves open, and data sets may differ in."""

    values: tuple[str, ...]

    def suggest(self, trial: Any, name: str) -> str:
        """A word for an Optuna trial."""
        word: str = trial.suggest_categorical(name, list(self.values))
        return word

    def nearest(self, value: str) -> str:
        """The word itself, or the first one."""
        return value if value in self.values else self.values[0]


@dataclass(frozen=True)
class Switch:
    """On or off."""

    def suggest(self, trial: Any, name: str) -> bool:
        """One of both for an Optuna trial."""
        on: bool = trial.suggest_categorical(name, [False, True])
        return on

    def nearest(self, value: bool) -> bool:
        """The value itself."""
        return value


Space = dict[str, Choice | Range | Names | Switch]
# Of the paper's ranges the lower part of hops (beyond, sub-graphs grow large and nothing was gained
# by it) and what the encoder of nodes depends on; the rest it leaves open. Two layers are the
# paper's, one is that of docs/findings.md.
NODE_SPACE: Space = {
    "learning_rate": Range(3e-4, 5e-3, log=True),
    "hidden": Choice((256, 512)),
    "hops": Choice((1, 2, 3)),
    "ratio": SPACES["node"]["ratio"],
    "dropout": SPACES["node"]["dropout"],
    "base_layers": Choice((1, 2)),
    "gcn_output": Names(("last", "layers", "features-and-layers")),
    "smoothing": Choice((0, 1, 2, 3)),
    "averaged_features": Choice((0, 1, 2)),
    "norm": Switch(),
    "bound_temperature": Range(0.1, 2.0, log=True),
}
WITH_FEATURES = Names(("given", "one-hot-degree", "walks"))
WITHOUT_FEATURES = Names(("constant", "one-hot-degree", "degree-and-one-hot"))

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


@app.command()
def ask(
    names: Annotated[str, typer.Argument(help="Data sets, separated by commas.")],
    jobs: Annotated[Path, typer.Option(help="Where settings to be run are written.")],
    trials: Annotated[int, typer.Option(help="How many for each data set.")] = 8,
    base: Annotated[str, typer.Option(help="The preset that the rest is taken from.")] = "findings",
    records: Annotated[Path, typer.Option(help="What was run already.")] = RECORDS,
    seeds: Annotated[int, typer.Option(help="Of each; 0 are two, four of small sets.")] = 0,
    steps: Annotated[int, typer.Option(help="At most, at node level.")] = STEPS[-1],
) -> None:
    """Let Optuna choose settings that are worth a run, after those that were run."""
    with jobs.open("a") as lines:
        for name in names.split(","):
            for settings in proposals(name, base, trials, read(records)):
                lines.write(json.dumps(job_of(name, base, settings, seeds, steps)) + "\n")


@app.command()
def again(
    names: Annotated[str, typer.Argument(help="Data sets, separated by commas.")],
    jobs: Annotated[Path, typer.Option(help="Where settings to be run are written.")],
    most: Annotated[int, typer.Option(help="How many for each data set.")] = 4,
    base: Annotated[str, typer.Option(help="The preset that the rest is taken from.")] = "findings",
    records: Annotated[Path, typer.Option(help="What was run already.")] = RECORDS,
    seeds: Annotated[int, typer.Option(help="Of each.")] = 4,
    steps: Annotated[int, typer.Option(help="At most, at node level.")] = STEPS[-1],
) -> None:
    """List the best settings so far for more seeds and steps than they had."""
    with jobs.open("a") as lines:
        for name in names.split(","):
            own = [r for r in read(records) if (r["dataset"], r["base"]) == (name, base)]
            own.sort(key=lambda r: (-probe_of(r), -float(r["value"])))
            # Each once, at the best that it was worth.
            tried = {json.dumps(r["settings"], sort_keys=True): r["settings"] for r in own}
            for settings in list(tried.values())[:most]:
                lines.write(json.dumps(job_of(name, base, settings, seeds, steps)) + "\n")


@app.command()
def run(
    jobs: Annotated[Path, typer.Argument(help="What ``ask`` and ``again`` wrote.")],
    out: Annotated[Path, typer.Option(help="Records are appended to it.")] = RECORDS,
    seconds: Annotated[float, typer.Option(help="No run is begun after these.")] = 1e9,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    only: Annotated[str, typer.Option(help="These data sets, separated by commas.")] = "",
) -> None:
    """Run settings that have no record yet."""
    begin, memory = time.monotonic(), Memory()
    done = {key(record) for record in read(out)}
    for job in map(as_of_now, read(jobs)):
        if key(job) in done or time.monotonic() - begin > seconds:
            continue
        if only and job["dataset"] not in only.split(","):
            continue
        record = measure(job, choose_device(device), memory)
        with out.open("a") as lines:
            lines.write(json.dumps(record) + "\n")
        done.add(key(job))
        print(job["dataset"], record["value"], record["epochs"], job["settings"], flush=True)


@app.command()
def best(records: Annotated[Path, typer.Option(help="What was run.")] = RECORDS) -> None:
    """The best settings of each data set, as rows of the preset ``searched``."""
    found = read(records)
    for name in dict.fromkeys(record["dataset"] for record in found):
        for base in dict.fromkeys(r["base"] for r in found if r["dataset"] == name):
            print(row(name, winner(name, base, found)))


def proposals(
    name: str, base: str, trials: int, records: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Settings for a data set: first the preset's own, then what Optuna makes of the records."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = space_of(name, base)
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(
            seed=zlib.crc32(name.encode()) + len(records),
            n_startup_trials=6,
            multivariate=True,
            constant_liar=True,
        ),
    )
    probe = optuna.create_study().ask()
    for setting, kind in space.items():
        kind.suggest(probe, setting)
    preset = Config.make({"level": find_benchmark(name).level, **hyperparameters(name, base)})
    own = {key: preset.to_dict()[key] for key in space}
    past = [
        record
        for record in comparable([r for r in records if (r["dataset"], r["base"]) == (name, base)])
        # Else it was worth what it was by others.
        if all(k in space and space[k].nearest(v) == v for k, v in record["settings"].items())
    ]
    for record in past:
        settings = {**own, **record["settings"]}  # what it does not name was the preset's
        values = {k: kind.nearest(settings[k]) for k, kind in space.items()}
        trial = optuna.trial.create_trial(
            params=values, distributions=probe.distributions, value=record["value"]
        )
        study.add_trial(trial)
    found = []
    if not past:
        found.append({k: kind.nearest(own[k]) for k, kind in space.items()})
    while len(found) < trials:
        trial = study.ask()
        found.append({k: short(kind.suggest(trial, k)) for k, kind in space.items()})
    return found


def space_of(name: str, base: str) -> Space:
    """What is searched: at graph level hops only where something is cut by them."""
    level = find_benchmark(name).level
    heads = hyperparameters(name, base).get("heads", ["sub-graph"])
    if level == "node":
        return NODE_SPACE
    space: Space = {key: SPACES[level][key] for key in SEARCHED}
    space["learning_rate"] = LEARNING_RATES
    if "sub-graph" not in heads:
        del space["hops"]
    has_some = open_source(name).graph.num_features
    space["features"] = WITH_FEATURES if has_some else WITHOUT_FEATURES
    return space


def job_of(
    name: str, base: str, settings: dict[str, Any], seeds: int, steps: int
) -> dict[str, Any]:
    """What is to be run."""
    many = seeds or len(seeds_of(open_source(name)))
    job: dict[str, Any] = {"dataset": name, "base": base, "settings": settings}
    job["seeds"] = list(range(FIRST_SEED, FIRST_SEED + many))
    if find_benchmark(name).level == "node":
        job["steps"] = steps
    return as_of_now(job)


def as_of_now(job: dict[str, Any]) -> dict[str, Any]:
    """A job, also one that does not say so, with how long the layer that reads nodes is trained."""
    node = find_benchmark(job["dataset"]).level == "node"
    return {**job, "probe_epochs": EPOCHS} if node else job


def seeds_of(dataset: Dataset) -> tuple[int, ...]:
    """Two; four of small sets, whose runs cost little and scatter more."""
    small = dataset.level == "graph" and len(dataset) < 2000
    return tuple(range(FIRST_SEED, FIRST_SEED + (4 if small else 2)))


def measure(job: dict[str, Any], device: torch.device, memory: Memory) -> dict[str, Any]:
    """The job with what it scored after each number of epochs, the best of which is its value."""
    dataset, begin = open_source(job["dataset"]), time.monotonic()
    level = dataset.level
    settings = {"level": level, **hyperparameters(job["dataset"], job["base"]), **job["settings"]}
    config = Config.make(settings)
    grid = [steps for steps in STEPS if steps <= job.get("steps", STEPS[-1])]
    if level == "graph":
        grid = [epochs for epochs in EPOCH_GRID if epochs < config.epochs] + [config.epochs]
    seeds = tuple(job.get("seeds", seeds_of(dataset)))
    if min(seeds) < FIRST_SEED:
        raise InputError(f"seeds {list(seeds)}: the search has those from {FIRST_SEED} on alone.")
    readers = [Reader(dataset, seed, device) for seed in seeds]
    curve: dict[int, list[float]] = {}

    def read_at(place: int, epoch: int, rows: torch.Tensor) -> None:
        score = criterion(readers[place], rows, memory)
        curve.setdefault(epoch, []).append(round(score, 3))

    failed = None
    try:
        pretrain_many(
            dataset,
            config.replace(epochs=grid[-1], patience=0),
            seeds,
            device=device,
            embed_at=[0, *grid],
            on_embeddings=read_at,
        )
    except NonFiniteLossError as error:  # what breaks down is no good setting, no more
        failed = f"{type(error).__name__}: {error}"[:200]
    whole = {n: float(np.mean(curve[n])) for n in grid if len(curve.get(n, ())) == len(seeds)}
    epochs = max(whole, key=whole.__getitem__) if whole and not failed else 0
    return {
        **as_of_now(job),
        "seeds": seeds,
        "curve": curve,
        "epochs": epochs,
        "value": whole.get(epochs, 0.0),
        "failed": failed,
        "seconds": round(time.monotonic() - begin, 1),
        "device": device_name(device),
        "versions": versions(),
    }


def criterion(reader: Reader, rows: torch.Tensor, memory: Memory) -> float:
    """Accuracy under ``strict`` in the folds of this seed; at node level on validation nodes.

    There it is the mean of ``strict`` and ``paper``, with scaled embeddings and with bare ones.
    """
    if reader.dataset.level == "graph":
        return float(np.mean(memory.accuracy(reader, "strict", rows)))
    both = [
        linear_layer_accuracy(
            rows, reader.labels, reader.splits, scale=scale, seed=reader.seed, device=reader.device
        )
        for scale in (True, False)
    ]
    return float(np.mean([found.validation.mean() for found in both]))


def winner(name: str, base: str, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record with the best value, of those with the most seeds."""
    own = comparable([r for r in records if (r["dataset"], r["base"]) == (name, base)])
    return max(own, key=lambda record: (len(record["seeds"]), float(record["value"])))


def comparable(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of one probe, as values that another has read are not on the same scale.

    The one whose trials have the most seeds, and of two such the longer: a single trial of a new
    probe is no reason to forget what many have shown.
    """
    most = max(((len(r.get("seeds", ())), probe_of(r)) for r in records), default=(0, 0))
    return [record for record in records if probe_of(record) == most[1]]


def probe_of(record: dict[str, Any]) -> int:
    """How long the layer of the node level was trained."""
    return int(record.get("probe_epochs", OLDER_EPOCHS))


def row(name: str, record: dict[str, Any]) -> str:
    """A row of the preset: what is not as in the one that it starts from."""
    before = {"level": find_benchmark(name).level, **hyperparameters(name, record["base"])}
    own = Config.make(before).to_dict()
    values = {**record["settings"], "epochs": record["epochs"]}
    said = [f"{k} = {json.dumps(v)}" for k, v in values.items() if v != own[k]]
    return (
        f"{name} = {{ {', '.join(said)} }}  # {record['value']:.2f}" if said else f"{name} = {{}}"
    )


def short(value: float | str | bool) -> float | str | bool:
    """Two digits say enough of a setting."""
    return float(f"{value:.2g}") if isinstance(value, float) else value


def read(path: Path) -> list[dict[str, Any]]:
    """Its lines; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key(job: dict[str, Any]) -> str:
    """What tells one job from another."""
    told = [job.get(part) for part in ("dataset", "base", "settings", "seeds", "steps")]
    return json.dumps([*told, probe_of(job)], sort_keys=True)


if __name__ == "__main__":
    app()
