"""How fast the linear SVM of the protocols is, and that it finds what scikit-learn finds.

    python benchmarks/probes.py --out results/probes.jsonl            # against scikit-learn, CPU
    python benchmarks/probes.py --device cuda --real --out FILE       # the eight graph sets

Every result is appended to the file as one JSON line the moment it is there.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

from lg2ar.benchmarks import hyperparameters
from lg2ar.data.benchmarks import BENCHMARKS, present
from lg2ar.data.sources import open_source
from lg2ar.experiment import choose_device, device_name, pretrain
from lg2ar.files import append_line
from lg2ar.probes.folds import C_GRID
from lg2ar.probes.nested import nested_accuracy
from lg2ar.records import versions
from lg2ar.splits import stratified_folds


def collab_sized(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """5,000 heavy-tailed rows of width 512 that say a little about three classes."""
    draw = np.random.default_rng(seed)
    y = draw.permutation(np.arange(5000) % 3)
    x = draw.standard_normal((5000, 512)) + 0.1 * draw.standard_normal((3, 512))[y]
    return x * np.exp(0.5 * draw.standard_normal((5000, 1))), y


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


def comparison(device: torch.device, folds: int) -> Iterator[dict[str, Any]]:
    """Both on the same rows, in one process, on as many threads as there are."""
    x, y = collab_sized()
    for result in (ours(x, y, scale=False, device=device), scikit_learn(x, y, folds)):
        yield {"data": "COLLAB-sized: 5000 x 512, 3 classes", **result}


def real(device: torch.device) -> Iterator[dict[str, Any]]:
    """Untrained embeddings of the graph sets that are here, in the paper's settings."""
    for name, benchmark in BENCHMARKS.items():
        if benchmark.level != "graph" or not present(benchmark):
            continue
        dataset = open_source(name)
        settings = {**hyperparameters(name), "epochs": 0}
        rows = pretrain(dataset, settings, device=device).embed(dataset)
        size = f"{name}: {rows.shape[0]} x {rows.shape[1]}, {benchmark.classes} classes"
        for scale in (True, False):
            yield {"data": size, **ours(rows, dataset.y, scale=scale, device=device)}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--real", action="store_true", help="the graph sets under LG2AR_DATA")
    parser.add_argument("--folds", type=int, default=1, help="folds that scikit-learn is timed on")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = choose_device(given.device)
    known: dict[str, Any] = {"versions": versions(), "device": device_name(device)}
    known["threads"] = torch.get_num_threads()
    for result in real(device) if given.real else comparison(device, given.folds):
        gap = f", gap {result['gap']:.1e}" if "gap" in result else ""
        first = np.mean(result["accuracy"][: given.folds])
        print(
            f"{result['data']}; {result['solver']}; scaled: {result['scale']}; "
            f"{result['seconds']:.2f} s; accuracy {np.mean(result['accuracy']):.2f} "
            f"(first {given.folds}: {first:.2f}){gap}",
            flush=True,
        )
        if given.out is not None:
            append_line(given.out, json.dumps({**result, **known}))


if __name__ == "__main__":
    main()
