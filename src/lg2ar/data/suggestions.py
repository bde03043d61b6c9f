"""Settings to begin with: from the paper's ranges (A.3), by the size and shape of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lg2ar.data.structure import Structure

WIDE = 2048  # features from here on make a square matrix of their width costly (D6)


@dataclass(frozen=True)
class Suggestion:
    """A setting to begin with, and why."""

    key: str
    value: Any
    reason: str


def suggest(level: str, structure: Structure, width: int) -> list[Suggestion]:
    """Suggest settings, with a reason each.

    Args:
        level: What is to be embedded.
        structure: Nodes and edges.
        width: Node features that the data has or that columns make.
    """
    rules = _for_graphs(structure) if level == "graph" else _for_nodes(structure, width)
    made = [Suggestion("level", level, f"What is embedded: {level}s."), *rules]
    return [*made, *_about_features(structure, width)]


def _for_graphs(s: Structure) -> list[Suggestion]:
    nodes, degree = s.nodes / s.graphs, max(s.degree.mean if s.degree else 0, 0)
    sizes = [size for size in (128, 64, 32) if s.graphs >= 4 * size and nodes * size <= 1 << 16]
    batch = sizes[0] if sizes else min(32, max(2, s.graphs // 2))
    steps = math.ceil(s.graphs / batch)
    epochs = min((10, 20, 40, 60, 100, 200), key=lambda number: abs(number * steps - 800))
    heavy = s.nodes + s.edges > 1_000_000
    layers = min(6, max(2, _distance(nodes, degree)))
    reach = f"a graph of {nodes:.0f} nodes with {degree:.1f} edges each is about so far across"
    return [
        Suggestion("batch_size", batch, f"{s.graphs} graphs are {steps} batches an epoch."),
        Suggestion(
            "hidden",
            128 if heavy else 256,
            "Many nodes and edges: the narrowest width of the paper's range."
            if heavy
            else "The width that the paper takes for most data of this size.",
        ),
        Suggestion("layers", layers, f"As far as a layer should see: {reach}."),
        Suggestion("hops", max(1, layers - 1), "A little less, so that sub-graphs are cut out."),
        Suggestion("epochs", epochs, f"{epochs * steps} steps; the paper's runs are 40 to 1600."),
    ]


def _for_nodes(s: Structure, width: int) -> list[Suggestion]:
    degree = max(s.degree.mean if s.degree else 0, 1.0)
    hops = max([h for h in range(1, 7) if degree**h <= min(1000, max(s.nodes / 2, 2))], default=1)
    reached = min(s.nodes, degree**hops)
    large = width > WIDE or s.nodes > 50_000
    batch = 16 if s.nodes >= 64 else max(2, s.nodes // 4)
    return [
        Suggestion(
            "batch_size", batch, "Sub-graphs in a step, in the middle of the paper's range."
        ),
        Suggestion(
            "hidden",
            256 if large else 512,
            "Many nodes or features: narrower, to save memory."
            if large
            else "The width that the paper takes for nearly all large graphs.",
        ),
        Suggestion("layers", 2, "The augmentation encoder's; the paper takes 2 or 3."),
        Suggestion(
            "hops",
            hops,
            f"With {degree:.1f} edges a node, sub-graphs of about {reached:.0f} nodes.",
        ),
        Suggestion("epochs", 1000, "Steps at most; training stops when the loss no longer falls."),
        Suggestion("patience", 50, "Steps without a lower loss, as in the paper."),
    ]


def _about_features(s: Structure, width: int) -> list[Suggestion]:
    if width > WIDE:
        return [
            Suggestion("features", "given", f"The data has {width} features of its own."),
            Suggestion(
                "feature_projection", "shared", f"{width} features are many; narrowed once for all."
            ),
        ]
    if width:
        return [Suggestion("features", "given", f"The data has {width} features of its own.")]
    highest = int(s.degree.high) if s.degree else 0
    cap = max(1, min(100, highest))
    return [
        Suggestion(
            "features", "one-hot-degree", "The data has no node features; degrees tell nodes apart."
        ),
        Suggestion(
            "degree_cap", cap, f"The highest degree is {highest}; beyond 100 they are alike."
        ),
    ]


def _distance(nodes: float, degree: float) -> int:
    """How many steps it takes to reach all nodes, if each has new neighbours."""
    return math.ceil(math.log(max(nodes, 2)) / math.log(max(degree, 1.5)) - 0.25)
