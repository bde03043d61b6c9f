"""Edges as a table lists them, made what the method reads: each direction listed, none twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lg2ar.data.columns import Column


@dataclass(frozen=True, eq=False)
class SettledEdges:
    """Edges without loops and repetitions, sorted by source, then target.

    Attributes:
        index: Source and target, ``[2, E]``; an undirected edge is there in both directions.
        row: The row of the table that each of them is from, ``[E]``.
        directed: Whether they point one way.
        notes: What was detected and left out.
    """

    index: np.ndarray
    row: np.ndarray
    directed: bool
    notes: tuple[str, ...]


def settle_edges(
    source: np.ndarray,
    target: np.ndarray,
    num_nodes: int,
    columns: Sequence[Column] = (),
    directed: bool | None = None,
) -> SettledEdges:
    """Settle direction, and leave out loops and repetitions.

    A node hears of itself anyway, so loops are left out. Two rows that join the same nodes with
    the same attributes (weight among them) are one edge; with other attributes they are two
    edges, and both stay. Unless it is said, edges are taken to be undirected, except where two
    nodes are joined both ways with different attributes.

    Args:
        source: A node per row of the table.
        target: Another one.
        num_nodes: How many nodes there are.
        columns: Attributes of the rows.
        directed: Whether edges point one way; None finds out.
    """
    rows = np.flatnonzero(source != target)
    notes = _counted(len(source) - len(rows), "join a node with itself")
    u, v, kind = source[rows], target[rows], _kinds(columns, len(source))[rows]
    pair, turned = _numbered(u * num_nodes + v, v * num_nodes + u)
    kinds = int(kind.max(initial=0)) + 1
    there, back = _numbered(pair * kinds + kind, turned * kinds + kind)
    first = _first(there)
    notes += _counted(len(rows) - len(first), "repeat another one")
    if directed is None:
        directed, found = _detect(pair, turned, there, back)
        notes.append(found)
    if directed:
        rows = rows[first]
        index = np.stack([source[rows], target[rows]])
    else:  # an edge and the same one turned round are one; it is listed both ways
        rows = rows[_first(np.minimum(there, back))]
        index = np.stack([source[rows], target[rows]])
        index = np.concatenate([index, index[::-1]], axis=1)
        rows = np.concatenate([rows, rows])
    order = np.lexsort((rows, index[1], index[0]))
    return SettledEdges(index[:, order], rows[order], directed, tuple(notes))


def _detect(
    pair: np.ndarray, turned: np.ndarray, there: np.ndarray, back: np.ndarray
) -> tuple[bool, str]:
    """Whether edges point one way, and what to say about it.

    Args:
        pair: A number for the two nodes of each edge, in their order.
        turned: The number of the same two in the other order.
        there: A number for each edge, its attributes included.
        back: The number of the same edge turned round.
    """
    if not len(pair):
        return False, "There are no edges."
    answered = _among(back, there)  # listed the other way as well, with the same attributes
    if answered.all():
        return False, "Edges are undirected: all are listed both ways."
    if (_among(turned, pair) & ~answered).any():
        return True, (
            "Edges are directed: some are listed both ways with different attributes; ask for "
            "undirected if they are not."
        )
    some = f", {int(answered.sum())} of {len(pair)} both ways" if answered.any() else ""
    return False, (
        f"Edges are taken to be undirected: they are listed once{some}; ask for directed if they "
        "point one way."
    )


def _numbered(there: np.ndarray, back: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keys as small numbers, the same for the same key in both lists."""
    import pandas as pd

    numbers = pd.factorize(np.concatenate([there, back]))[0].astype(np.int64)
    return numbers[: len(there)], numbers[len(there) :]


def _among(numbers: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whether each of some small numbers is one of the others."""
    there = np.zeros(2 * len(numbers) + 1, dtype=bool)
    there[others] = True
    return np.asarray(there[numbers])


def _first(numbers: np.ndarray) -> np.ndarray:
    """Where each of some small numbers comes for the first time, ascending."""
    first = np.full(2 * len(numbers) + 1, -1)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return np.sort(first[first >= 0])


def _kinds(columns: Sequence[Column], rows: int) -> np.ndarray:
    """A number per row, the same for rows with the same values in all columns."""
    import pandas as pd

    kind = np.zeros(rows, dtype=np.int64)
    for column in columns:
        places, values = pd.factorize(column.values, use_na_sentinel=False)
        kind = pd.factorize(kind * max(len(values), 1) + places)[0]
    return np.asarray(kind)


def _counted(number: int, what: str) -> list[str]:
    return [f"Left out are {number} edge(s) that {what}."] if number else []
