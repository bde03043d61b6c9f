"""How time and memory grow with the data."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lg2ar.bench.generated import collection, large_graph
from lg2ar.bench.measure import (
    GIGABYTE,
    Plan,
    forget_peak,
    held_memory,
    peak_memory,
    record,
    settings,
    train,
)
from lg2ar.config import Config
from lg2ar.experiment import pretrain
from lg2ar.report.figures import draw_lines

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
NODES = (10_000, 100_000, 1_000_000)
BATCH_SIZES = (32, 64, 128, 256, 512, 1024)

# Narrow, so that a processor comes far; any of it can be changed.
GRAPH_LEVEL = {"hidden": 32, "layers": 3, "batch_size": 128}
NODE_LEVEL = {
    "level": "node",
    "hidden": 32,
    "layers": 2,
    "hops": 2,
    "batch_size": 16,
    "fanout": 0,
}


def fit(sizes: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    """The straight line through some points, by relative least squares.

    Every point counts by its relative error; a plain fit would see the largest ones only.

    Returns:
        ``slope``, ``intercept``, ``r2`` (plain, of that line), ``exponent`` of a power law through
        the same points (1 is a straight line through zero), and ``largest_deviation`` of a point
        from the line, as a share of it.
    """
    x, y = np.asarray(sizes, dtype=float), np.asarray(values, dtype=float)
    columns = np.stack([x / y, 1 / y], axis=1)
    (slope, intercept), *_ = np.linalg.lstsq(columns, np.ones_like(y), rcond=None)
    line = slope * x + intercept
    total = ((y - y.mean()) ** 2).sum()
    return {
        "slope": float(slope),
        "intercept": float(intercept),
        "r2": float(1 - ((y - line) ** 2).sum() / total) if total else 1.0,
        "exponent": float(np.polyfit(np.log(x), np.log(y), 1)[0]),
        "largest_deviation": float(np.abs(y / line - 1).max()),
    }


def measure_graphs(
    device: torch.device,
    *,
    largest: int = SIZES[-1],
    changes: Mapping[str, Any] | None = None,
    repeat: int = 3,
) -> Iterator[dict[str, Any]]:
    """Time an epoch of collections from 10^4 nodes and edges on; the last record holds the fit."""
    config = Config.make({**GRAPH_LEVEL, **(changes or {})})
    sizes: list[int] = []
    seconds: list[float] = []
    for size in (s for s in SIZES if s <= largest):
        dataset = collection(size)
        plan = Plan(warmup=1, repeat=max(repeat, min(20, 300_000 // size)))
        epochs = train(dataset, config, device, plan)
        made = record(
            "growth", dataset.name, "lg2ar", device, epochs=epochs, **settings(config, dataset)
        )
        sizes.append(made["num_nodes"] + made["num_edges"])
        seconds.append(made["seconds_per_epoch"])
        yield made
    if len(sizes) > 2:
        line = fit(sizes, seconds)
        told: dict[str, Any] = {"curve": "time", "sizes": sizes, "values": seconds, "fit": line}
        yield record("growth", "time by nodes and edges", "lg2ar", device, **told)


def measure_memory(
    device: torch.device,
    *,
    largest: int = BATCH_SIZES[-1],
    changes: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Peak memory by a batch's nodes and edges; what does not grow is the line's intercept."""
    config = Config.make({**GRAPH_LEVEL, **(changes or {})})
    dataset = collection(200_000)
    each = (dataset.graph.num_nodes + dataset.graph.num_edges) / dataset.graph.num_graphs
    sizes: list[int] = []
    peaks: list[float] = []
    for batch_size in (b for b in BATCH_SIZES if b <= largest):
        now = config.replace(batch_size=batch_size)
        epochs = train(dataset, now, device, Plan(warmup=1, repeat=3))
        name = f"batches of {batch_size}"
        made = record("growth", name, "lg2ar", device, epochs=epochs, **settings(now, dataset))
        sizes.append(round(batch_size * each))
        peaks.append(made["peak_gb"])
        yield made
    if len(sizes) > 2 and min(peaks) > 0:
        told: dict[str, Any] = {
            "curve": "memory",
            "sizes": sizes,
            "values": peaks,
            "fit": fit(sizes, peaks),
        }
        yield record("growth", "memory by nodes and edges", "lg2ar", device, **told)


def measure_nodes(
    device: torch.device,
    *,
    largest: int = NODES[-1],
    changes: Mapping[str, Any] | None = None,
    repeat: int = 20,
) -> Iterator[dict[str, Any]]:
    """Time a step on graphs of 10^4 nodes and more, all drawn alike, and embed all their nodes.

    A step is one batch of sub-graphs: neither its time nor the memory it takes may grow with the
    graph.
    """
    config = Config.make({**NODE_LEVEL, **(changes or {})})
    for num_nodes in (n for n in NODES if n <= largest):
        dataset = large_graph(num_nodes)
        start = time.perf_counter()
        epochs = train(dataset, config, device, Plan(warmup=5, repeat=repeat))
        told = {"run_seconds": time.perf_counter() - start, **settings(config, dataset)}
        # Last, and once more without training, so that the peak is that of embedding alone.
        run = pretrain(dataset, config.replace(epochs=0), device=device)
        forget_peak(device)
        held = held_memory(device)
        start = time.perf_counter()
        rows = run.embed(dataset)
        told["embed_seconds"] = time.perf_counter() - start
        told["embed_gb"] = max(0, peak_memory(device) - held) / GIGABYTE
        told["embedded"] = len(rows)
        yield record("growth", dataset.name, "lg2ar", device, epochs=epochs, **told)


def draw_growth(records: Sequence[Mapping[str, Any]], stem: str | Path) -> list[Path]:
    """Both curves with their lines, time by nodes and edges and memory by those of a batch.

    Args:
        records: Those with a ``curve``; the last of each kind and device is drawn.
        stem: Where to, without the ending: ``STEM.png`` and ``STEM.svg`` are written.

    Returns:
        The files.
    """
    curves = {(r["curve"], r["device"]): r for r in records if r.get("curve")}
    labels = {"time": "seconds an epoch", "memory": "gigabytes at most"}
    panels = [
        (f"{labels[kind]}, {device}", made["sizes"], made["values"], made["fit"])
        for (kind, device), made in curves.items()
    ]
    return draw_lines(panels, "nodes and edges", stem)
