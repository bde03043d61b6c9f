"""Folds and splits: every row once, classes evenly, fixed by the seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lg2ar.errors import InputError
from lg2ar.splits import random_splits, stratified_folds


@given(
    counts=st.lists(st.integers(10, 40), min_size=1, max_size=4),
    folds=st.integers(2, 10),
    seed=st.integers(0, 100),
)
def test_every_row_is_tested_once_and_classes_are_spread(
    counts: list[int], folds: int, seed: int
) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    parts = stratified_folds(y, folds, seed)
    assert len(parts) == folds
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(y)))
    for kind, count in enumerate(counts):
        each = [int((y[part] == kind).sum()) for part in parts]
        assert max(each) - min(each) <= 1
        assert sum(each) == count


def test_the_seed_fixes_folds_and_splits() -> None:
    y = torch.arange(50) % 3
    same = zip(stratified_folds(y, 5, 1), stratified_folds(y.numpy(), 5, 1), strict=True)
    assert all(np.array_equal(a, b) for a, b in same)
    other = zip(stratified_folds(y, 5, 1), stratified_folds(y, 5, 2), strict=True)
    assert not all(np.array_equal(a, b) for a, b in other)
    assert torch.equal(random_splits(50, seed=1).train, random_splits(50, seed=1).train)
    assert not torch.equal(random_splits(50, seed=1).train, random_splits(50, seed=2).train)


@pytest.mark.parametrize("nodes", [10, 57, 200])
def test_random_splits_part_the_nodes(nodes: int) -> None:
    splits = random_splits(nodes, count=6, seed=0)
    together = splits.train.int() + splits.validation.int() + splits.test.int()
    assert bool((together == 1).all())
    assert splits.train.shape == (6, nodes)
    assert bool((splits.train.sum(1) == nodes // 10).all())
    assert bool((splits.validation.sum(1) == nodes // 10).all())
    assert len({tuple(row.tolist()) for row in splits.train}) > 1


def test_every_node_is_as_likely_to_be_trained_on() -> None:
    share = random_splits(40, count=4000, seed=0).train.double().mean(0)
    assert bool((share - 0.1).abs().max() < 5 * (0.09 / 4000) ** 0.5)


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(InputError, match="Class 1 has 3 of the 23 rows, too few for 10 folds"):
        stratified_folds([0] * 20 + [1] * 3, 10)
    with pytest.raises(InputError, match="4 labelled rows cannot be cut into 10 folds"):
        stratified_folds([0, 1, 0, 1], 10)
    with pytest.raises(InputError, match="1 folds leave nothing"):
        stratified_folds([0, 1], 1)
    with pytest.raises(InputError, match="of 5 rows leave a part empty"):
        random_splits(5)
    with pytest.raises(InputError, match="cannot be drawn"):
        random_splits(50, shares=(0.5, 0.5, 0.5))
