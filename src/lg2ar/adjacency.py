"""The edges of a batch as compressed rows: products with node rows without making messages.

A message per edge is ``[E, d]`` numbers written and read again; a sparse product reads node rows
and writes node rows. That is many times faster, and its gradients are products too. On a CPU it is
PyTorch's own, on a GPU that of :mod:`lg2ar.compressed_rows`, which repeats itself bit by bit.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_MKL = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]

# Numbers that a block of gathered rows may hold: 64 MiB in float32.
_BLOCK = 1 << 24


@cache
def _works_on(device: torch.device) -> bool:
    if importlib.util.find_spec("triton") is None:
        return False
    from lg2ar.compressed_rows import works_on

    return works_on(device)


def has_product(x: Tensor) -> bool:
    """Whether there is a product for such rows; on some devices there is none."""
    if x.device.type == "cuda":
        return x.dtype == torch.float32 and _works_on(x.device)
    return x.device.type == "cpu"


@dataclass(frozen=True, eq=False)
class _Rows:
    """Edges sorted by one of their ends.

    Attributes:
        start: Where the edges of each node begin, and the end of the last, ``[N + 1]``.
        other: The other end of each edge, ``[E]``.
        order: The number of each edge; None where they were sorted already, ``[E]``.
    """

    start: Tensor
    other: Tensor
    order: Tensor | None

    def matrix(self, values: Tensor, columns: int | None = None) -> Tensor:
        """A compressed sparse matrix with a value per edge, given in the edges' own order."""
        if self.order is not None:
            values = values.index_select(0, self.order)
        rows = len(self.start) - 1
        size = (rows, rows if columns is None else columns)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support")
            warnings.filterwarnings("ignore", "Sparse invariant checks")  # PyTorch 2.11
            return torch.sparse_csr_tensor(
                self.start, self.other, values, size, check_invariants=False
            )


class Adjacency:
    """Edges sorted by target and, for gradients, by source; each sorted once, when first needed.

    Args:
        edge_index: Source and target of every edge, ``[2, E]``.
        num_nodes: ``N``.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.edge_index = edge_index
        self.num_nodes = num_nodes

    @cached_property
    def by_target(self) -> _Rows:
        """What each node hears."""
        return self._sorted(self.edge_index[1], self.edge_index[0])

    @cached_property
    def by_source(self) -> _Rows:
        """What each node says."""
        return self._sorted(self.edge_index[0], self.edge_index[1])

    def _sorted(self, key: Tensor, other: Tensor) -> _Rows:
        key, order = key.contiguous(), None
        if not bool((key[1:] >= key[:-1]).all()):
            key, order = key.sort(stable=True)
            other = other.index_select(0, order)
        nodes = torch.arange(self.num_nodes + 1, device=key.device)
        return _Rows(torch.searchsorted(key, nodes), other.contiguous(), order)

    def product(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        r"""Sum of the neighbours' rows, :math:`\sum_{j \to i} w_{ji} x_j`, differentiable once.

        Args:
            x: Node rows, ``[N, d]``.
            weight: Of each edge, ``[E]``; None for ones.
        """
        total: Tensor = _Product.apply(x, weight, self)  # type: ignore[no-untyped-call]
        return total

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        """``a_target . b_source`` of every edge, ``[E]``."""
        if a.device.type == "cuda":
            from lg2ar.compressed_rows import pair_products

            return pair_products(a, b, self.edge_index[1], self.edge_index[0])
        rows, edges = self.by_target, self.edge_index.size(1)
        # Without MKL the sampled product is missing; and it takes no more edges than pairs.
        if _MKL and edges <= self.num_nodes**2:
            pattern = rows.matrix(a.new_zeros(edges))
            found: Tensor = torch.sparse.sampled_addmm(pattern, a, b.t(), beta=0.0).values()
        else:
            found = self._between_in_blocks(a, b)
        if rows.order is None:
            return found
        return torch.empty_like(found).index_copy_(0, rows.order, found)

    def _between_in_blocks(self, a: Tensor, b: Tensor) -> Tensor:
        rows = self.by_target
        target = self.edge_index[1]
        if rows.order is not None:
            target = target.index_select(0, rows.order)
        step = max(1, _BLOCK // max(1, a.size(1)))
        parts = [
            (a.index_select(0, t) * b.index_select(0, s)).sum(1)
            for t, s in zip(torch.split(target, step), torch.split(rows.other, step), strict=True)
        ]
        return torch.cat(parts)


class _Product(torch.autograd.Function):
    """``A x`` with the gradients ``A' g`` of ``x`` and ``g_target . x_source`` of the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, adjacency: Adjacency) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.adjacency = adjacency
        return _times(adjacency.by_target, weight, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        adjacency: Adjacency = ctx.adjacency
        gradient = gradient.contiguous()
        for_x = _times(adjacency.by_source, weight, gradient) if ctx.needs_input_grad[0] else None
        for_weight = adjacency.between(gradient, x) if ctx.needs_input_grad[1] else None
        return for_x, for_weight, None


def _times(rows: _Rows, weight: Tensor | None, x: Tensor) -> Tensor:
    if rows.other.numel() == 0 or x.size(1) == 0:
        return x.new_zeros(len(rows.start) - 1, x.size(1))
    if x.device.type == "cuda":
        from lg2ar.compressed_rows import row_sums

        weight = None if weight is None else weight.to(x.dtype)
        return row_sums(rows.start, rows.other, rows.order, weight, x)
    values = x.new_ones(rows.other.numel()) if weight is None else weight.to(x.dtype)
    total: Tensor = torch.sparse.mm(rows.matrix(values, x.size(0)), x.contiguous(), "sum")
    return total


class Pools:
    """Rows that are added up in groups, in any order; a row may be in none.

    Where sums must repeat themselves bit by bit, PyTorch adds to each group one row after the
    other, which takes long for groups of many rows. Here a group is a compressed row.

    Args:
        group: The group of each row, ``[N]``; ``groups`` for a row that is in none.
        groups: How many there are.
    """

    def __init__(self, group: Tensor, groups: int) -> None:
        self._group, self._groups = group, groups

    @cached_property
    def _rows(self) -> _Rows:
        key, place = self._group.sort(stable=True)
        starts = torch.arange(self._groups + 1, device=key.device)
        start = torch.searchsorted(key, starts)
        return _Rows(start, place[: int(start[-1])], None)

    def sums(self, x: Tensor) -> Tensor:
        """The sum of each group's rows, ``[groups, d]``, differentiable once."""
        if not has_product(x):
            every = x.new_zeros(self._groups + 1, x.size(1)).index_add(0, self._group, x)
            return every[:-1]
        total: Tensor = _Pooled.apply(x, self._rows, self._group)  # type: ignore[no-untyped-call]
        return total


class _Pooled(torch.autograd.Function):
    """Sums of groups; each row gets the gradient of its group's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: _Rows, group: Tensor) -> Tensor:
        ctx.save_for_backward(group)
        return _times(rows, None, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (group,) = ctx.saved_tensors
        none = gradient.new_zeros(1, gradient.size(1))
        return torch.cat([gradient, none]).index_select(0, group), None, None
