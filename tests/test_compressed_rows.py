"""Products with compressed rows on a GPU, against messages one by one.

Without a GPU the kernels are run by Triton's interpreter (see conftest.py).
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lg2ar import adjacency
from lg2ar.adjacency import Adjacency, Pools, has_product
from lg2ar.layers import pass_messages

pytest.importorskip("triton")
from lg2ar.compressed_rows import ENTRIES, pair_products, row_sums, works_on

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# Nodes, edges, width: none, one entry more than a program reads at a time, a hub, odd widths.
SIZES = [(3, 0, 4), (1, 5, 1), (5, 40, 3), (4, 4 * ENTRIES + 1, 130), (20, 60, 257)]


def edges(nodes: int, count: int) -> Tensor:
    """Random edges, repeated ones and self-loops among them; the last node hears no one."""
    pairs = torch.randint(nodes, (2, count), device=DEVICE)
    pairs[1] = pairs[1].clamp(max=max(0, nodes - 2))
    return pairs


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("nodes", "count", "width"), SIZES)
def test_sums_and_products_are_those_of_messages(
    nodes: int, count: int, width: int, weighted: bool, ordered: bool
) -> None:
    index = edges(nodes, count)
    if ordered:
        index = index[:, index[1].argsort(stable=True)]
    x, g = (torch.randn(nodes, width, device=DEVICE) for _ in range(2))
    weight = torch.rand(count, device=DEVICE) if weighted else None
    rows = Adjacency(index, nodes).by_target
    assert (rows.order is None) == (ordered or count == 0 or nodes <= 2)
    total = row_sums(rows.start, rows.other, rows.order, weight, x)
    torch.testing.assert_close(total, pass_messages(x, index, weight))
    found = pair_products(g, x, index[1], index[0])
    torch.testing.assert_close(found, (g[index[1]] * x[index[0]]).sum(1))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's
@pytest.mark.parametrize("how", ["product", "kernel", "neither"])
@pytest.mark.parametrize(
    ("group", "groups"),
    [
        ([0, 0, 1, 2, 2, 2], 3),
        ([2, 0, 4, 0, 4, 1], 4),  # in no order, a group without rows, rows in none
        ([2, 2], 2),  # none in any
        ([1] * (2 * ENTRIES + 3) + [0, 2], 2),
    ],
)
def test_pools_are_the_sums_of_their_rows(
    monkeypatch: pytest.MonkeyPatch, group: list[int], groups: int, how: str
) -> None:
    if how == "kernel":
        monkeypatch.setattr(
            adjacency,
            "_times",
            lambda rows, weight, x: row_sums(rows.start, rows.other, rows.order, weight, x),
        )
    if how == "neither":
        monkeypatch.setattr(adjacency, "has_product", lambda x: False)
    x = torch.randn(len(group), 5, device=DEVICE, requires_grad=True)
    found = Pools(torch.tensor(group, device=DEVICE), groups).sums(x)
    wanted = torch.stack(
        [x[[k for k, own in enumerate(group) if own == place]].sum(0) for place in range(groups)]
    )
    torch.testing.assert_close(found, wanted)
    weight = torch.randn(groups, 5, device=DEVICE)
    (slope,) = torch.autograd.grad((found * weight).sum(), x)
    torch.testing.assert_close(slope, torch.autograd.grad((wanted * weight).sum(), x)[0])


def test_a_product_is_for_single_precision_on_a_gpu() -> None:
    assert has_product(torch.zeros(1, dtype=torch.float64))
    assert not has_product(torch.zeros(1, device="meta"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_gradients_on_cuda_are_those_of_messages_and_repeat_themselves() -> None:
    nodes, index = 300, edges(300, 4000)
    x = torch.randn(nodes, 70, device=DEVICE, requires_grad=True)
    weight = torch.rand(4000, device=DEVICE, requires_grad=True)
    g = torch.randn(nodes, 70, device=DEVICE)
    assert has_product(x)

    def both(total: Tensor) -> tuple[Tensor, ...]:
        return (total, *torch.autograd.grad(total, (x, weight), g))

    slow = both(pass_messages(x, index, weight))
    first, second = (both(Adjacency(index, nodes).product(x, weight)) for _ in range(2))
    for found, again, wanted in zip(first, second, slow, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        assert torch.equal(found, again)


def test_whether_kernels_work_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert works_on(DEVICE)

    def broken(*_: object) -> Tensor:
        raise RuntimeError("no compiler")

    monkeypatch.setattr("lg2ar.compressed_rows.pair_products", broken)
    works_on.cache_clear()
    assert not works_on(DEVICE)
    works_on.cache_clear()
