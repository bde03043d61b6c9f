"""In which stacks ten runs of a setting are trained soonest: one, two beside each other, or more.

A stack's runs have one step in common; stacks run beside each other on streams of their own, five
at a time at most (lg2ar.fast.arrangement).

python benchmarks/lanes.py results/bench/h200.jsonl --datasets proteins,dd
"""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Annotated

import torch
import typer

from lg2ar.bench.measure import record, settings
from lg2ar.bench.seeds import many_seeds, one_seed
from lg2ar.bench.step import configure
from lg2ar.data.sources import open_source
from lg2ar.devices import choose_device
from lg2ar.fast import trainer

NAMES = "mutag,proteins,dd,collab,imdb-binary,imdb-multi,reddit-binary,reddit-multi-5k"


def measure(
    out: Annotated[Path, typer.Argument(help="Records are appended to it.")],
    datasets: Annotated[str, typer.Option(help="Separated by commas.")] = NAMES,
    stacks: Annotated[str, typer.Option(help="Runs of a stack, separated by commas.")] = "10,5,1",
    runs: Annotated[int, typer.Option(help="In all.")] = 10,
    epochs: Annotated[int, typer.Option(help="Of each run.")] = 8,
    warmup: Annotated[int, typer.Option(help="Of these, not counted.")] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Seconds an epoch of one run, and of several in stacks of different sizes."""
    place = choose_device(device)
    for name in datasets.split(","):
        dataset = open_source(name)
        config = configure(dataset, "lg2ar", "paper", "preset", {}).replace(epochs=epochs)
        one_seed(dataset, config, place, warmup)  # pays for what is made once in a process
        alone = one_seed(dataset, config.replace(seed=1), place, warmup)[0]
        for each in map(int, stacks.split(",")):
            arrangement = [min(each, runs - first) for first in range(0, runs, each)]
            before, trainer.arrange = trainer.arrange, lambda *_, own=arrangement: own
            try:
                seconds = many_seeds(dataset, config, range(runs), place, warmup)[0]
            finally:
                trainer.arrange = before
            told = record(
                "lanes",
                name,
                "lg2ar",
                place,
                seeds=runs,
                stack=each,
                one_seconds=alone,
                many_seconds=seconds,
                ratio=seconds / alone,
                warmup=warmup,
                **settings(config, dataset),
            ) | {"seconds_per_epoch": seconds}
            with out.open("a") as lines:
                lines.write(json.dumps(told) + "\n")
            print(
                f"{name}: {runs} in stacks of {each}: {seconds / alone:.2f} times one", flush=True
            )
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    typer.run(measure)
