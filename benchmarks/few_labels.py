"""How a frozen encoder is best read with a tenth of the labels.

How strongly a logistic regression should be held back, and how to find out; and what kernels of
several widths say, each by itself and together.

python benchmarks/few_labels.py proteins,dd --preset semi-findings --epochs 40 --out FILE

Folds are of other seeds than those that the protocols ``semi``, ``semi-frozen`` and ``semi-kernel``
report.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from lg2ar.benchmarks import hyperparameters
from lg2ar.config import Config
from lg2ar.data.benchmarks import open_benchmark
from lg2ar.devices import choose_device, device_name
from lg2ar.experiment import pretrain
from lg2ar.moments import scaled
from lg2ar.probes import C_GRID
from lg2ar.probes.kernel_ridge import GAMMAS, kernel_ridge_scores
from lg2ar.records import versions
from lg2ar.splits import Split, semi_splits

FOLDS = (777, 778)
CRITERIA = ("squared error", "logarithm", "wrong answers")

Array = NDArray[np.float64]


def costs(train: Array, kinds: Array, test: Array, truth: Array, value: float) -> list[float]:
    """What each criterion says of a ``C`` on held-out rows; less is better."""
    model = LogisticRegression(C=value, solver="newton-cg", max_iter=1000).fit(train, kinds)
    chances, right = model.predict_proba(test), truth[:, None] == model.classes_
    own = (chances * right).sum(1).clip(min=1e-15)
    wrong = model.predict(test) != truth
    return [
        float(np.square(chances - right).sum(1).mean()),
        float(-np.log(own).mean()),
        float(wrong.mean()),
    ]


def read(rows: Array, y: Array, split: Split) -> tuple[Array, Array]:
    """Accuracy with each ``C``, and with the one that each criterion chooses."""
    train, test = split.train, split.test
    turned = rows @ np.linalg.svd(rows[train], full_matrices=False)[2].T
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(train, y[train]))
    found = [
        [
            costs(turned[train[i]], y[train[i]], turned[train[j]], y[train[j]], value)
            for i, j in folds
        ]
        for value in C_GRID
    ]
    wrong = [costs(turned[train], y[train], turned[test], y[test], value)[2] for value in C_GRID]
    accuracy = 100 * (1 - np.array(wrong))
    return accuracy, accuracy[np.mean(found, axis=1).argmin(0)]


def kernels(rows: Array, y: Array, splits: Sequence[Split]) -> dict[str, float]:
    """Accuracy with kernels of all widths together, with the one chosen, and with each."""
    x, places = torch.from_numpy(rows), torch.from_numpy(np.unique(y, return_inverse=True)[1])
    targets = torch.nn.functional.one_hot(places).double()
    right = []
    for split in splits:
        scores, errors = kernel_ridge_scores(x[split.train], targets[split.train], x[split.test])
        every = torch.stack([scores.mean(0), scores[errors.argmin()], *scores])
        right.append((every.argmax(2) == places[split.test]).double().mean(1))
    means = 100 * torch.stack(right).mean(0)
    names = ["together", "chosen", *(f"{gamma:g}" for gamma in GAMMAS)]
    return dict(zip(names, means.numpy().round(2).tolist(), strict=True))


def measure(
    name: str, preset: str, epochs: int, seed: int, root: str | None
) -> Iterator[dict[str, Any]]:
    """Train, and read the untrained encoder and the trained one in all folds."""
    device = choose_device("auto")
    dataset = open_benchmark(name, root)
    assert dataset.y is not None
    settings = {**hyperparameters(name, preset), "seed": seed, "epochs": epochs}
    seen: dict[int, Array] = {}
    run = pretrain(
        dataset,
        Config.make(settings),
        device=device,
        embed_at=sorted({0, epochs}),
        on_embeddings=lambda epoch, rows: seen.update({epoch: scaled(rows.numpy())}),
    )
    y = dataset.y.numpy()
    for epoch, rows in seen.items():
        for folds in FOLDS:
            splits = semi_splits(y, seed=folds)
            every = [read(rows, y, split) for split in splits]
            fixed, chosen = (
                np.mean(part, axis=0).round(2).tolist() for part in zip(*every, strict=True)
            )
            yield {
                "bench": "few labels",
                "dataset": name,
                "preset": preset,
                "config": run.config.to_dict(),
                "epoch": epoch,
                "seed": seed,
                "folds": folds,
                "C": list(C_GRID),
                "fixed": fixed,
                "chosen": dict(zip(CRITERIA, chosen, strict=True)),
                "kernels": kernels(rows, y, splits),
                "device": device_name(device),
                "versions": versions(),
            }


def main() -> None:
    """Measure what is asked for, and append it to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", help="comma-separated")
    parser.add_argument("--preset", default="findings")
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    for name in asked.datasets.split(","):
        for record in measure(name, asked.preset, asked.epochs, asked.seed, asked.data):
            print(name, record["epoch"], record["folds"], record["fixed"], record["chosen"])
            print(record["kernels"], flush=True)
            with asked.out.open("a") as file:
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
