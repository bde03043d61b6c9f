"""Batches and views of many runs, padded to the same size.

Leading dimensions are runs ``S`` and views ``V``: node rows are ``[S, V, N, d]``. Rows beyond a
run's own number of nodes, and rows that a view has dropped, are zero in what a layer gives and get
no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Structure:
    """A batch of graphs of every run, padded to the same size.

    Attributes:
        ptr: Where each graph's nodes begin, ``[S, B + 1]``.
        home: The graph of each node, ``B`` for padding, ``[S, N]``.
        sizes: Number of nodes of each graph, ``[S, B]``.
        row: Where each node's entries begin, ``[S, N + 1]``.
        col: The neighbour of each entry, ``[S, 2 P]``.
        pair: The pair of each entry, ``[S, 2 P]``.
        u: One end of each pair, ``[S, P]``.
        v: The other end.
        graph_of_pair: The graph of each pair, ``B`` for padding, ``[S, P]``.
        pair_ptr: Where each graph's pairs begin, ``[S, B + 1]``.
        gap: Number of each pair less its rank within its graph, ``[S, P]``.
        order: Place of each graph in the data set, ``[S, B]``.
        hubs: Whether there may be nodes of more than ``HUB`` neighbours.
    """

    ptr: Tensor
    home: Tensor
    sizes: Tensor
    row: Tensor
    col: Tensor
    pair: Tensor
    u: Tensor
    v: Tensor
    graph_of_pair: Tensor
    pair_ptr: Tensor
    gap: Tensor
    order: Tensor
    hubs: bool = False

    @property
    def S(self) -> int:  # noqa: N802 - the letters of the shapes
        """Number of runs."""
        return self.home.size(0)

    @property
    def N(self) -> int:  # noqa: N802
        """Number of node rows, padding included."""
        return self.home.size(1)

    @property
    def P(self) -> int:  # noqa: N802
        """Number of pairs, padding included."""
        return self.u.size(1)

    @property
    def B(self) -> int:  # noqa: N802
        """Number of graphs of a batch."""
        return self.sizes.size(1)


@dataclass(frozen=True, eq=False)
class NewPairs:
    """Pairs that edge perturbation adds to views.

    Attributes:
        u: One end of each, ``[S, V, P]``.
        v: The other end.
        valid: Where there is one, ``[S, V, P]``.
        row: Where the kept ones of each node begin, in all views' entries, ``[S, V, N + 1]``.
        col: The neighbour of each entry, ``[S * V * 2 P]``.
        pair: The pair of each entry.
    """

    u: Tensor
    v: Tensor
    valid: Tensor
    row: Tensor
    col: Tensor
    pair: Tensor


@dataclass(frozen=True, eq=False)
class Cut:
    """What views leave of a batch.

    Attributes:
        mask: One at the nodes a view has, ``[S, V, N]``.
        weight: Of every pair, zero where it is cut, ``[S, V, P]``; None where all weigh one.
        new_weight: Of every new pair, ``[S, V, P]``.
        new: The new pairs, where there are any.
        learned: Whether the weights of a view carry a gradient, ``[S, V]``.
    """

    mask: Tensor
    weight: Tensor | None = None
    new_weight: Tensor | None = None
    new: NewPairs | None = None
    learned: Tensor | None = None
