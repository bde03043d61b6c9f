"""Rows that lie in several processes, as one tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lg2ar.distributed.team import Draw, Team, current


class _Everyone(torch.autograd.Function):
    """All rows, one under another. A row's gradient is the sum of what all made of it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: Sequence[int], team: Team, kind: str) -> Tensor:
        ctx.team, ctx.kind, ctx.first = team, kind, sum(counts[: team.rank])
        ctx.number = len(rows)
        # Libraries want the same shape of all: the missing rows are made up, and cut off again.
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        found = team.line_up(padded, kind)
        return torch.cat([part[:count] for part, count in zip(found, counts, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        summed = ctx.team.add_up(gradient, f"{ctx.kind}, gradients")
        return summed[ctx.first : ctx.first + ctx.number], None, None, None


def everyone(rows: Tensor, kind: str = "rows") -> Tensor:
    """The rows of all processes in the order of ranks; gradients find their way back.

    Args:
        rows: Those of this process, shape ``[own, ...]``; others may have more or fewer, or none.
        kind: What the exchange is counted as.

    Returns:
        Shape ``[all, ...]``, the same everywhere.
    """
    team = current()
    if team is None:
        return rows
    counts = [count for (count,) in team.counts(len(rows))]
    whole: Tensor = _Everyone.apply(rows, counts, team, kind)  # type: ignore[no-untyped-call]
    return whole


def all_graphs(rows: Tensor, kind: str = "graphs") -> Tensor:
    """The same of rows that stand for the graphs of the batch; all know how many each has."""
    team = current()
    if team is None:
        return rows
    whole: Tensor = _Everyone.apply(rows, team.graphs, team, kind)  # type: ignore[no-untyped-call]
    return whole


def graphs_before() -> int:
    """How many graphs of the batch lie in the processes before this one."""
    team = current()
    return 0 if team is None else sum(team.graphs[: team.rank])


def share_of_graphs(number: int) -> float:
    """The part of the batch's graphs that lies in this process, 1 where it has them all."""
    team = current()
    return 1.0 if team is None else number / sum(team.graphs)


@contextmanager
def rows_of_nodes(number: int) -> Iterator[None]:
    """Let all know once how many nodes each has; layers then take it that rows are nodes.

    Args:
        number: How many this process has.
    """
    team = current()
    if team is None:
        yield
        return
    before, team.nodes = team.nodes, [count for (count,) in team.counts(number)]
    try:
        yield
    finally:
        team.nodes = before


def one_of_each(row: Tensor, kind: str, team: Team) -> Tensor:
    """One row of each process, shape ``[size, ...]``; gradients find their way back."""
    counts = [1] * team.size
    rows: Tensor = _Everyone.apply(row.unsqueeze(0), counts, team, kind)  # type: ignore[no-untyped-call]
    return rows


def total(values: Tensor, kind: str = "totals") -> Tensor:
    """The sum over all processes, without a gradient where they are several."""
    team = current()
    return values if team is None else team.add_up(values, kind)


def before(*numbers: int) -> tuple[list[int], list[int]]:
    """How many of each the processes before this one have, and how many there are in all."""
    team = current()
    if team is None:
        return [0] * len(numbers), list(numbers)
    columns = list(zip(*team.counts(*numbers), strict=True))
    return [sum(column[: team.rank]) for column in columns], [sum(column) for column in columns]


def own_rows(draw: Draw, number: int) -> Tensor:
    """Noise for this process's rows, as one process would draw it for the rows of all.

    Args:
        draw: Makes the noise of so many rows. Every process calls it for all rows, so that all
            generators stay where the one of a single process would be.
        number: How many rows this process has.
    """
    team = current()
    if team is None:
        return draw(number)
    counts = rows_by_rank(number, team)
    first = sum(counts[: team.rank])
    return draw(sum(counts))[first : first + number]


def rows_by_rank(number: int, team: Team) -> list[int]:
    """How many rows each process has, where this one has ``number``."""
    return team.nodes or [count for (count,) in team.counts(number)]
