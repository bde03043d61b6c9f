"""How fast the linear SVM of the protocols is, and that it finds what scikit-learn finds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

from lg2ar.bench.measure import record
from lg2ar.benchmarks import hyperparameters
from lg2ar.data.benchmarks import BENCHMARKS, find_benchmark, present
from lg2ar.data.sources import open_source
from lg2ar.experiment import pretrain
from lg2ar.probes.folds import C_GRID
from lg2ar.probes.nested import nested_accuracy
from lg2ar.splits import stratified_folds


def generated_rows(
    num_rows: int = 5000, width: int = 512, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Heavy-tailed rows that say a little about three classes; by default of COLLAB's size."""
    draw = np.random.default_rng(seed)
    y = draw.permutation(np.arange(num_rows) % 3)
    x = draw.standard_normal((num_rows, width)) + 0.1 * draw.standard_normal((3, width))[y]
    return x * np.exp(0.5 * draw.standard_normal((num_rows, 1))), y


def ours(x: Any, y: Any, *, scale: bool, device: torch.device) -> dict[str, Any]:
    """One full nested score: 10 folds, 5 inner folds each, 7 values of C, all classes."""
    folds = stratified_folds(y, 10, 0)
    start = time.perf_counter()
    found = nested_accuracy(x, y, folds, scale=scale, device=device, strict=False)
    return {
        "solver": "lg2ar",
        "scale": scale,
        "seconds": time.perf_counter() - start,
        "accuracy": found.accuracy.tolist(),
        "gap": found.gap,
        "problems": found.problems,
    }


def scikit_learn(x: NDArray[np.float64], y: NDArray[np.int64], folds: int) -> dict[str, Any]:
    """The same score by scikit-learn's grid search, on the first so many of the ten folds."""
    seconds, accuracy = 0.0, []
    for test in stratified_folds(y, 10, 0)[:folds]:
        train = np.setdiff1d(np.arange(len(y)), test)
        probe = LinearSVC(dual=False, tol=1e-4, max_iter=10_000)
        search = GridSearchCV(probe, {"C": list(C_GRID)}, cv=StratifiedKFold(5), n_jobs=1)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            search.fit(x[train], y[train])
        seconds += time.perf_counter() - start
        accuracy.append(100 * search.score(x[test], y[test]))
    return {
        "solver": f"scikit-learn, {folds} of 10 folds, seconds times {10 / folds:g}",
        "scale": False,
        "seconds": seconds * 10 / folds,
        "accuracy": accuracy,
    }


def compare(
    device: torch.device, *, folds: int = 1, num_rows: int = 5000, width: int = 512
) -> Iterator[dict[str, Any]]:
    """Both on the same rows, in one process, on as many threads as there are."""
    x, y = generated_rows(num_rows, width)
    named = "COLLAB-sized" if (num_rows, width) == (5000, 512) else "generated"
    size = f"{named}: {num_rows} x {width}, 3 classes"
    for result in (ours(x, y, scale=False, device=device), scikit_learn(x, y, folds)):
        yield record("probe", named, "linear-svm", device, data=size, **result)


def measure_embeddings(names: Sequence[str], device: torch.device) -> Iterator[dict[str, Any]]:
    """Untrained embeddings of graph sets in the paper's settings; none named means all here."""
    here = [b.name for b in BENCHMARKS.values() if b.level == "graph" and present(b)]
    for name in names or here:
        benchmark = find_benchmark(name)
        dataset = open_source(benchmark.name)
        settings = {**hyperparameters(benchmark.name), "epochs": 0}
        rows = pretrain(dataset, settings, device=device).embed(dataset)
        size = f"{benchmark.name}: {rows.shape[0]} x {rows.shape[1]}, {benchmark.classes} classes"
        for scale in (True, False):
            result = ours(rows, dataset.y, scale=scale, device=device)
            yield record("probe", benchmark.name, "linear-svm", device, data=size, **result)
