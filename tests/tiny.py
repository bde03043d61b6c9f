"""Small data sets in the benchmarks' own formats, written into a data root."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch


def write_graphs(root: Path, name: str = "TINY", graphs: int = 40) -> None:
    """Rings and stars of five to nine nodes in TUDataset's text files; the class is the shape."""
    draw = np.random.default_rng(0)
    edges: list[str] = []
    indicator: list[int] = []
    labels: list[int] = []
    for graph in range(graphs):
        first, size = len(indicator) + 1, int(draw.integers(5, 10))
        ring = [(first + i, first + (i + 1) % size) for i in range(size)]
        star = [(first, first + i) for i in range(1, size)]
        for i, j in ring if graph % 2 else star:
            edges += [f"{i}, {j}", f"{j}, {i}"]
        indicator += [graph + 1] * size
        labels.append(graph % 2)
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    kinds = draw.integers(0, 3, len(indicator)).tolist()
    for part, lines in {
        "A": edges,
        "graph_indicator": indicator,
        "graph_labels": labels,
        "node_labels": kinds,
    }.items():
        (raw / f"{name}_{part}.txt").write_text("".join(f"{line}\n" for line in lines))


def write_wikics(root: Path, nodes: int = 30) -> Path:
    """A file in WikiCS's format: twenty splits, one test set, links one way and repeated."""
    generator = torch.Generator().manual_seed(3)

    def masks(count: int) -> list[list[bool]]:
        return (torch.rand(count, nodes, generator=generator) < 0.3).tolist()

    content = {
        "features": torch.randn(nodes, 5, generator=generator).tolist(),
        "labels": [node % 3 for node in range(nodes)],
        "links": [[(node + 1) % nodes, (node + 1) % nodes, node] for node in range(nodes)],
        "train_masks": masks(20),
        "val_masks": masks(20),
        "stopping_masks": masks(20),
        "test_mask": masks(1)[0],
    }
    raw = root / "WikiCS" / "raw"
    raw.mkdir(parents=True)
    (raw / "data.json").write_text(json.dumps(content))
    return raw
