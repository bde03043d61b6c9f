"""One split of labelled rows: which are learned from, which stop training, and which count."""

from __future__ import annotations

import numpy as np

from lg2ar.errors import InputError
from lg2ar.splits import Split


def held_out_split(
    rows: np.ndarray,
    classes: np.ndarray | None = None,
    *,
    test: float = 0.2,
    fraction: float = 1.0,
    validation: float = 0.2,
    seed: int = 0,
) -> Split:
    """One split of labelled rows: what counts, what is learned from, what stops training.

    Of the rows that are not tested on, ``fraction`` may be seen at all, and of these the share
    ``validation`` stops training. So with a tenth of the labels, a tenth is used in any way.

    Parts have nearly the same shares of the classes, and every class has a row to be learned from.

    Args:
        rows: Numbers of the rows that have a label.
        classes: The class of each of them; None where labels are numbers.
        test: Share held out.
        fraction: Share of the others that is seen.
        validation: Share of those that stops training.
        seed: Fixes the split.

    Raises:
        InputError: For shares that are none, or that leave a part empty.
    """
    for name, share in (("test", test), ("validation", validation)):
        if not 0 < share < 1:
            raise InputError(f"{name} = {share:g} must be a share above 0 and below 1.")
    if not 0 < fraction <= 1:
        raise InputError(f"fraction = {fraction:g} must be a share above 0 and up to 1.")
    order = _mixed(classes, len(rows), np.random.default_rng(seed))
    tested = max(1, round(test * len(rows)))
    seen = max(0, round(fraction * (len(rows) - tested)))
    stopping = max(1, round(validation * seen))
    kinds = 1 if classes is None else len(np.unique(classes))
    if seen - stopping < max(2, kinds):
        raise InputError(
            f"{len(rows)} labelled rows leave {max(0, seen - stopping)} to learn from, where at "
            f"least {max(2, kinds)} are needed; give more labels, or a larger fraction."
        )
    part = np.full(len(rows), -1)
    part[order[:tested]] = 2
    part[order[tested : tested + stopping]] = 1
    part[order[tested + stopping : tested + seen]] = 0
    if classes is not None:
        _give_each_class_a_row(part, classes, order)
    return Split(*(np.sort(rows[part == place]) for place in range(3)))


def _mixed(classes: np.ndarray | None, number: int, rng: np.random.Generator) -> np.ndarray:
    """A random order any stretch of which has about the same shares of the classes."""
    order = rng.permutation(number)
    if classes is None:
        return order
    key = np.empty(number)
    for kind in np.unique(classes):
        members = order[classes[order] == kind]
        key[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return order[np.argsort(key[order], kind="stable")]


def _give_each_class_a_row(part: np.ndarray, classes: np.ndarray, order: np.ndarray) -> None:
    """Learn from a row of every class, in exchange for one of a class that has another."""
    for kind in np.unique(classes):
        learned = (part == 0) & (classes == kind)
        if learned.any():
            continue
        held = np.unique(classes[part == 0], return_counts=True)
        spare = [k for k, count in zip(*held, strict=True) if count > 1]
        here = next(row for row in order[::-1] if classes[row] == kind)
        there = next(row for row in order[::-1] if part[row] == 0 and classes[row] in spare)
        part[here], part[there] = part[there], part[here]
