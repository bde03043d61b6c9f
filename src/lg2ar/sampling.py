"""Everything that is drawn at random, and the seeds that fix it.

Every function takes a ``generator``. Noise is drawn where the generator lives and then moved, so a
CPU generator makes a CUDA run draw what a CPU run draws; without one, the device's own is used.
Where a batch is shared out among processes, each draws the noise of the whole batch and takes that
of its own rows (:mod:`lg2ar.distributed`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lg2ar.distributed import alone, before, own_rows
from lg2ar.graph import GraphBatch
from lg2ar.ops import (
    joined_pairs,
    pair_from_number,
    pair_offsets,
    segment_rank,
)


@contextmanager
def private_randomness() -> Iterator[None]:
    """Leave the caller's random state as it was, on the CPU and on every CUDA device."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


@contextmanager
def repeatable(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Have a CUDA device use algorithms that repeat themselves; the CPU's do anyway."""
    if not wanted or device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS refuses to
    before = torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    # Or every new tensor would be filled first, although none is read before it is written.
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filled


@contextmanager
def float32() -> Iterator[None]:
    """Have cuDNN's recurrent layers multiply in float32; it rounds to fewer bits unless told."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def seed_from(*parts: int | str) -> int:
    """One well-mixed seed from several parts, such as a run's seed and an epoch.

    >>> seed_from(0, 1) == seed_from(0, 1), seed_from(0, 1) == seed_from(1, 0)
    (True, False)
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def uniform(
    *shape: int,
    device: torch.device,
    dtype: torch.dtype = torch.float64,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Numbers in [0, 1), for the rows of this process."""
    if alone():
        return _uniform(shape, device, dtype, generator)
    number, *rest = shape
    return own_rows(lambda rows: _uniform((rows, *rest), device, dtype, generator), number)


def _uniform(
    shape: tuple[int, ...],
    device: torch.device,
    dtype: torch.dtype,
    generator: torch.Generator | None,
) -> Tensor:
    source = device if generator is None else generator.device
    return torch.rand(shape, generator=generator, device=source, dtype=dtype).to(device)


def gumbel_noise(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    r"""Standard Gumbel noise, :math:`-\log(-\log u)`, shaped like ``like``."""
    u = uniform(*like.shape, device=like.device, dtype=like.dtype, generator=generator)
    return _gumbel(u)


def _gumbel(u: Tensor) -> Tensor:
    tiny = torch.finfo(u.dtype).tiny
    return -(-u.clamp(min=tiny).log()).log()


def gumbel_top_k(
    logits: Tensor, graph: GraphBatch, ratio: float, generator: torch.Generator | None = None
) -> Tensor:
    r"""Draw :math:`\lceil \mu n \rceil` of each graph's n nodes without replacement.

    The nodes with the largest ``logits + Gumbel noise`` of their graph are a sample without
    replacement from the categorical distribution of the logits (Kool et al., 2019).

    Args:
        logits: Logarithm of each node's weight, shape ``[N]``.
        graph: The batch.
        ratio: Share of nodes kept, :math:`\mu` in (0, 1].
        generator: Source of randomness.

    Returns:
        True at the drawn nodes, shape ``[N]``.

    Examples:
        >>> graph = GraphBatch(
        ...     x=torch.ones(7, 1),
        ...     edge_index=torch.empty(2, 0, dtype=torch.long),
        ...     batch=torch.tensor([0, 0, 0, 0, 1, 1, 1]),
        ...     num_graphs=2,
        ... )
        >>> kept = gumbel_top_k(torch.zeros(7), graph, ratio=0.5)
        >>> kept[:4].sum().item(), kept[4:].sum().item()
        (2, 2)
    """
    keys = logits.detach() + gumbel_noise(logits, generator)
    # Rounding must not add a node: 0.55 * 100 is 55.000000000000007 in floats, and 55 is meant.
    wanted = (ratio * graph.sizes.double() - 1e-9).ceil().long().clamp(min=1)
    return segment_rank(keys, graph) < wanted[graph.batch]


def sample_one(
    logits: Tensor, graph: GraphBatch, generator: torch.Generator | None = None
) -> Tensor:
    """Draw one node of each graph from the categorical distribution of the logits.

    Returns:
        True at the drawn nodes, shape ``[N]``.
    """
    keys = logits.detach() + gumbel_noise(logits, generator)
    return segment_rank(keys, graph) == 0


@dataclass(frozen=True, eq=False)
class Coins:
    """Which coin is tossed for each entry.

    Attributes:
        place: The coin of each entry.
        number: How many coins there are.
    """

    place: Tensor
    number: int


def pair_coins(graph: GraphBatch, pair: Tensor) -> Coins:
    """One coin for each pair of nodes that is joined, and one for each that might be.

    Args:
        graph: The batch.
        pair: The pair of each of its edges, shape ``[E]`` (see :class:`~lg2ar.ops.NodePairs`).

    Returns:
        The coins of the edges and then of as many non-edges, ``[2E]``.
    """
    place, edges = pair, graph.num_edges
    if not alone():
        place, edges = _pairs_of_all(graph, pair)
    return Coins(torch.cat([place, place + edges]), 2 * edges)


def _pairs_of_all(graph: GraphBatch, pair: Tensor) -> tuple[Tensor, int]:
    """The number of each pair in a batch that is shared out, and the number of its edges.

    Pairs are numbered throughout the whole batch, and its self-loops behind all of them.
    """
    loop = graph.edge_index[0] == graph.edge_index[1]
    plain, own = (int(p.max()) + 1 if p.numel() else 0 for p in (pair[~loop], pair))
    loops = max(0, own - plain)
    (pairs_before, loops_before, _), (pairs, _, edges) = before(plain, loops, graph.num_edges)
    return torch.where(loop, pairs + loops_before + pair - plain, pairs_before + pair), edges


def of_pairs(number: int, pairs: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Numbers in [0, 1) for the joined pairs of nodes, in the order of :func:`joined_pairs`.

    Args:
        number: How many to give: as many as there are edges, of which pairs are never more.
        pairs: How many pairs there are in this process's share of the batch.
        generator: Source of randomness.
    """
    first, whole = 0, number
    if not alone():
        (first, _), (_, whole) = before(int(pairs), number)
    drawn = _uniform((whole,), pairs.device, torch.float64, generator)
    return drawn[first : first + number]


def relaxed_bernoulli(
    logits: Tensor,
    temperature: float,
    generator: torch.Generator | None = None,
    share: Tensor | Coins | None = None,
) -> Tensor:
    r"""Draw :math:`\sigma((\text{logit} + \log u - \log(1 - u)) / t)`, a relaxed coin flip.

    This is Gumbel-softmax with two outcomes. It exceeds one half exactly where a Bernoulli
    variable of probability :math:`\sigma(\text{logit})` is one, whatever the temperature.

    Args:
        logits: Log-odds of one, any shape.
        temperature: :math:`t`; the lower, the closer to zero or one.
        generator: Source of randomness.
        share: For each entry of a vector of logits, whose noise it uses: entries that name the
            same place share a coin.

    Examples:
        >>> coins = relaxed_bernoulli(torch.full((1000,), 3.0), temperature=0.5)
        >>> 0.9 < (coins > 0.5).float().mean().item() < 1  # 0.953 of them
        True
    """
    if isinstance(share, Coins):
        one, other = (
            _gumbel(_uniform((share.number,), logits.device, logits.dtype, generator))
            for _ in range(2)
        )
        noise = (one - other)[share.place]
    else:
        noise = gumbel_noise(logits, generator) - gumbel_noise(logits, generator)
        noise = noise if share is None else noise[share]
    return ((logits + noise) / temperature).sigmoid()


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """The value of ``hard`` with the gradient of ``soft``.

    >>> soft = torch.tensor([0.2, 0.9], requires_grad=True)
    >>> mask = straight_through((soft > 0.5).float(), soft)
    >>> mask.tolist(), torch.autograd.grad(mask.sum(), soft)[0].tolist()
    ([0.0, 1.0], [1.0, 1.0])
    """
    return hard.detach() + (soft - soft.detach())  # in this order the value is exactly hard's


def negative_edges(
    graph: GraphBatch, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw as many non-edges as there are edges, each inside its own graph.

    Every joined pair of nodes gets one unjoined pair of the same graph, all of them different, and
    each edge the direction it has: an undirected graph stays undirected. A graph with fewer
    unjoined than joined pairs gives all it has; a self-loop gets none. The draw is exact, without
    rejection: the unjoined pairs are numbered, their numbers divided into as many ranges as are
    wanted, one drawn from each, and all shifted by one random amount, so that every unjoined pair
    is equally likely.

    Returns:
        The edges ``[2, E]``, where they are valid ``[E]``, and the pair of the edge that each
        belongs to ``[E]`` (see :class:`~lg2ar.ops.NodePairs`).
    """
    joined = joined_pairs(graph)
    offsets = pair_offsets(graph)
    taken = joined.per_graph  # [B]
    taken_before = taken.cumsum(0) - taken
    free = offsets.diff() - taken
    wanted = torch.minimum(taken, free)

    home = joined.graph  # graph of each pair, [E]
    place = torch.arange(graph.num_edges, device=graph.device)
    rank = place - taken_before[home]  # which of its graph's pairs this one is
    valid = (place < taken.sum()) & (rank < wanted[home])

    many, ranges = free[home].clamp(min=1), wanted[home].clamp(min=1)
    low = _share(rank, many, ranges)
    width = _share(rank + 1, many, ranges) - low
    draw = of_pairs(graph.num_edges, taken.sum(), generator)
    shift = uniform(graph.num_graphs, device=graph.device, generator=generator)
    shift = (shift * free).long()[home]
    unjoined = (low + (draw * width).long() + shift) % many

    # The k-th number missing from the ascending keys a_0, a_1, ... is k plus how many keys lie
    # before it, which are those with a_i - i <= k. Counted over the batch, graph after graph.
    missing = offsets[home] - taken_before[home] + unjoined
    key = missing + torch.searchsorted(joined.keys - place, missing, right=True)
    u, v = pair_from_number((key - offsets[home]).clamp(min=0))
    first = graph.ptr[home]
    pairs = torch.stack([first + u, first + v]).where(valid, 0)  # [2, E], by pair

    edges = pairs[:, joined.pair]
    source, target = graph.edge_index
    edges = edges.where(source < target, edges.flip(0))
    return edges, valid[joined.pair] & ~joined.loop, joined.pair


def _share(rank: Tensor, many: Tensor, ranges: Tensor) -> Tensor:
    """``rank * many // ranges`` without leaving 64 bits for large graphs."""
    return rank * (many // ranges) + rank * (many % ranges) // ranges


def shuffle_features(graph: GraphBatch, generator: torch.Generator | None = None) -> GraphBatch:
    """Hand each graph's feature rows to its nodes in random order (DGI's corruption)."""
    keys = uniform(graph.num_nodes, device=graph.device, generator=generator)
    place = graph.ptr[graph.batch] + segment_rank(keys, graph)
    return graph.replace(x=graph.x[place])
