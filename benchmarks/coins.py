"""What ten runs together could gain if their coins always fell alike.

In a step, one run computes the gradients of one encoder; runs of a stack compute those of both, as
their coins differ. They could be put into two groups by their coins, each with a step of its own.
Here all runs are given the same coin, so that this is what such groups would take at best, without
what grouping costs. Where runs are not stacked (lg2ar.fast.arrangement) there is nothing to gain.

python benchmarks/coins.py results/bench/h200.jsonl --datasets mutag,proteins,dd
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import torch
import typer

from lg2ar.bench.measure import record, settings
from lg2ar.bench.seeds import many_seeds, one_seed
from lg2ar.bench.step import configure
from lg2ar.data.sources import open_source
from lg2ar.devices import choose_device
from lg2ar.fast.engine import Engine

NAMES = "mutag,proteins,imdb-binary,imdb-multi,dd"
COINS = ("base", "augmentation")


def measure(
    out: Annotated[Path, typer.Argument(help="Records are appended to it.")],
    datasets: Annotated[str, typer.Option(help="Separated by commas.")] = NAMES,
    stacks: Annotated[str, typer.Option(help="Numbers of runs together.")] = "10",
    epochs: Annotated[int, typer.Option(help="Of each run.")] = 15,
    warmup: Annotated[int, typer.Option(help="Of these, not counted.")] = 5,
    alike: Annotated[bool, typer.Option(help="Also with the same coin for all.")] = True,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Seconds an epoch of one run, of several, and of several with the same coin."""
    place = choose_device(device)
    for name in datasets.split(","):
        dataset = open_source(name)
        config = configure(dataset, "lg2ar", "paper", "preset", {}).replace(epochs=epochs)
        one_seed(dataset, config, place, warmup)  # pays for what is made once in a process
        alone = one_seed(dataset, config.replace(seed=1), place, warmup)[0]
        for runs in map(int, stacks.split(",")):
            seconds: dict[str | None, float] = {}
            for coin in (None, *(COINS if alike else ())):
                with same_coin(coin):
                    seconds[coin] = many_seeds(dataset, config, range(runs), place, warmup)[0]
            told = record(
                "coins",
                name,
                "lg2ar",
                place,
                seeds=runs,
                one_seconds=alone,
                many_seconds=seconds[None],
                same_coin_seconds={coin: seconds[coin] for coin in COINS if alike},
                warmup=warmup,
                **settings(config, dataset),
            ) | {"seconds_per_epoch": seconds[None]}
            with out.open("a") as lines:
                lines.write(json.dumps(told) + "\n")
            print(name, runs, alone, seconds, flush=True)


@contextmanager
def same_coin(coin: str | None) -> Iterator[None]:
    """Let all runs compute the gradients of one encoder alone: their times are right, no more."""
    leaves = Engine._leaves

    def forced(self: Engine, mode: str) -> dict[str, torch.Tensor]:
        return leaves(self, coin or mode)

    Engine._leaves = forced  # type: ignore[method-assign]
    try:
        yield
    finally:
        Engine._leaves = leaves  # type: ignore[method-assign]


if __name__ == "__main__":
    typer.run(measure)
