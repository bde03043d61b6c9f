"""What the nodes of drawings are coloured by, and the names of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lg2ar.data.chemistry import ATOM, atom_features
from lg2ar.data.dataset import Dataset

WIDEST = 256  # features among which a single one is looked for

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Kinds:
    """What the nodes of drawings are coloured by.

    Attributes:
        what: What the kinds are, in words; empty where there is nothing to tell nodes apart by.
        names: Of each kind.
        codes: The kind of each node of the batch, shape ``[N]``.
    """

    what: str
    names: tuple[str, ...]
    codes: Integers


def node_kinds(dataset: Dataset, most: int = 10) -> Kinds:
    """Kinds of nodes: their label, the first column of categories, or the feature that is one.

    Atoms of molecules are told apart by their element.
    """
    if dataset.level == "node" and dataset.y is not None and not dataset.y.is_floating_point():
        return _kinds("label", label_names(dataset), most)
    for column in dataset.node_columns:
        if column.kind == "category":
            texts = ["missing" if text is None else str(text) for text in column.values.tolist()]
            return _kinds(column.name, texts, most)
    x = dataset.graph.x
    elements = [*ATOM["element"], "other"]
    if x.size(1) == len(atom_features()) and _is_one_hot(x[:, : len(elements)]):
        atoms = x[:, : len(elements)].argmax(1).tolist()
        return _kinds("element", [elements[k] for k in atoms], most)
    if 1 < x.size(1) <= WIDEST and _is_one_hot(x):
        return _kinds("feature", [str(k) for k in x.argmax(1).tolist()], most)
    return Kinds("", (), np.zeros(dataset.graph.num_nodes, np.int64))


def _is_one_hot(x: Tensor) -> bool:
    return bool(((x == 0) | (x == 1)).all()) and bool((x.sum(1) == 1).all())


def label_names(dataset: Dataset) -> list[str]:
    """The label of each row as text, by its name where it has one."""
    assert dataset.y is not None
    values = dataset.y.tolist()
    if dataset.classes is None:
        return [str(value) for value in values]
    known = dict(enumerate(dataset.classes))
    return [known.get(int(value), str(value)) for value in values]


def _kinds(what: str, texts: Sequence[str], most: int) -> Kinds:
    """The most frequent ones; the rest share a kind."""
    names, codes, counts = np.unique(np.array(texts, str), return_inverse=True, return_counts=True)
    if len(names) > most:
        kept = np.sort(np.argsort(-counts, kind="stable")[: most - 1])
        table = np.full(len(names), most - 1)
        table[kept] = np.arange(len(kept))
        return Kinds(what, (*names[kept].tolist(), "other"), table[codes])
    ranked = sorted(range(len(names)), key=lambda k: _in_legend(str(names[k]), int(counts[k])))
    table = np.empty(len(names), np.int64)
    table[ranked] = np.arange(len(names))
    return Kinds(what, tuple(str(names[k]) for k in ranked), table[codes])


def _in_legend(text: str, number: int) -> tuple[int, float, str]:
    """Sorts numbers by size, and words behind them by how frequent they are."""
    kind, size, _ = in_order(text)
    return kind, -float(number) if kind else size, text


def in_order(text: str) -> tuple[int, float, str]:
    """Sorts numbers by size, before words."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
