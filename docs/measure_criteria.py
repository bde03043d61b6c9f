"""How well criteria without labels pick settings: the table of docs/tuning.md.

Draws settings at random, small ones so that a processor will do, trains each, and compares what
each criterion says of them with the accuracy of a linear probe.

    python docs/measure_criteria.py mutag toy-graphs >> results/criteria.jsonl
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    RepeatedStratifiedKFold,
    StratifiedShuffleSplit,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lg2ar
from lg2ar.data.batches import as_store
from lg2ar.data.dataset import Dataset
from lg2ar.errors import NonFiniteLossError
from lg2ar.evaluation import embed
from lg2ar.records import versions
from lg2ar.runs import describe
from lg2ar.tuning.criteria import VIEWS, LabelFree, disturbed

TRIALS, GRAPHS = 48, 400


def opened(name: str) -> Dataset:
    """A data set, or so many graphs of it."""
    dataset = lg2ar.read(name)
    if dataset.level == "node" or len(dataset) <= GRAPHS:
        return dataset
    chosen = np.sort(np.random.default_rng(1).permutation(len(dataset))[:GRAPHS])
    graph = as_store(dataset.graph).select(chosen).replace(origin=None)
    assert dataset.y is not None
    return replace(dataset, graph=graph, y=dataset.y[torch.from_numpy(chosen)])


def drawn(level: str, rng: np.random.Generator) -> dict[str, Any]:
    """Settings at random."""
    node = level == "node"
    return {
        "layers": int(rng.integers(1, 4 if node else 6)),
        "batch_size": int(rng.choice([4, 8, 12, 16] if node else [32, 64, 128])),
        "hidden": int(rng.choice([16, 32, 64])),
        "epochs": int(rng.choice([0, 20, 60, 150] if node else [0, 3, 6, 12, 25])),
        "learning_rate": float(10 ** rng.uniform(-4, -1)),
        "hops": int(rng.integers(1, 3 if node else 7)),
        "temperature": float(rng.uniform(0.7, 1.4)),
        "ratio": float(rng.uniform(0.6, 0.9)),
        "dropout": float(rng.uniform(0, 0.2)),
    }


def entropy_rank(shares: np.ndarray) -> float:
    """How many shares there are, weighted."""
    p = shares[shares > 0] / shares.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def discriminant_rank(views: np.ndarray) -> float:
    """LiDAR: the rank of graphs' differences in units of what disturbing them does."""
    x = (views - views.mean((0, 1))) / np.maximum(views.std((0, 1)), 1e-9)
    middle = x.mean(0)
    within = (x - middle).reshape(-1, x.shape[2])
    values, axes = np.linalg.eigh(np.cov(within.T) + 1e-4 * np.eye(x.shape[2]))
    whitened = (middle - middle.mean(0)) @ (axes / np.sqrt(np.maximum(values, 1e-6)))
    return entropy_rank(np.linalg.svd(whitened, compute_uv=False) ** 2)


def accuracy(dataset: Dataset, rows: np.ndarray) -> float:
    """Of a linear probe, in percent: all other folds' labels, or a tenth of the nodes'."""
    assert dataset.y is not None
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    cut: Any = RepeatedStratifiedKFold(n_splits=5, n_repeats=4, random_state=0)
    if dataset.level == "node":
        cut = StratifiedShuffleSplit(6, train_size=0.1, random_state=0)
    return float(100 * cross_val_score(probe, rows, dataset.y.numpy(), cv=cut).mean())


def measured(dataset: Dataset, settings: dict[str, Any]) -> dict[str, float]:
    """What the criteria say of settings, and what a probe finds."""
    run = lg2ar.pretrain(dataset, settings, device="cpu")
    rows = run.embed(dataset).double().numpy()
    graph, level = run.recipe.apply(dataset), dataset.level
    encoder = run.model.base_encoder
    copies = [embed(encoder, disturbed(graph, level, seed), level) for seed in range(VIEWS)]
    return {
        "stability": LabelFree(dataset)(run),
        "rank": entropy_rank(np.linalg.svd(rows, compute_uv=False)),
        "lidar": discriminant_rank(torch.stack(copies).double().numpy()),
        "loss": -run.history[-1].loss if run.history else float("nan"),
        "accuracy": accuracy(dataset, rows),
    }


def main() -> None:
    """Measure and print a line per data set."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        dataset, rng = opened(name), np.random.default_rng(0)
        found: list[dict[str, float]] = []
        while len(found) < TRIALS:
            try:
                found.append(measured(dataset, drawn(dataset.level, rng)))
            except NonFiniteLossError:
                continue
        reached = np.array([values.pop("accuracy") for values in found])
        line: dict[str, Any] = {
            "data": describe(dataset),
            "trials": TRIALS,
            "seed": 0,
            "device": "cpu",
            "versions": versions(),
            "lowest": reached.min(),
            "highest": reached.max(),
        }
        for key in found[0]:
            values = np.array([entry[key] for entry in found])
            known = np.isfinite(values)
            picked = reached[known][values[known].argmax()]
            line[key] = {
                "spearman": round(float(spearmanr(values[known], reached[known])[0]), 2),
                "picked": round(float(picked), 1),
                "place": int((reached > picked).sum()) + 1,
            }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
