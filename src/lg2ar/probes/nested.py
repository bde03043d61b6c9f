"""Nested cross-validation of linear SVMs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lg2ar.probes.basis import Basis
from lg2ar.probes.folds import C_GRID, NestedAccuracy, as_numpy, cut_all, inner_means, row_numbers
from lg2ar.probes.linear_svm import LEFT_OUT, ConvergenceError, fit
from lg2ar.probes.newton import GRADIENT
from lg2ar.probes.scaling import standardise


def nested_accuracy(
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    folds: Sequence[ArrayLike],
    *,
    C: Sequence[float] = C_GRID,
    inner: int = 5,
    scale: bool = False,
    seed: int | None = None,
    device: torch.device | str = "cpu",
    tolerance: float = 1e-5,
    max_steps: int = 300,
    strict: bool = True,
) -> NestedAccuracy:
    """Test accuracy of a linear SVM whose ``C`` is chosen inside each outer training part.

    The same numbers as ``GridSearchCV(LinearSVC(), {"C": C}, cv=inner)`` in every outer fold, with
    every SVM converged; with ``scale``, as of a pipeline that begins with ``StandardScaler``.

    Args:
        x: Embeddings, ``[n, d]``.
        y: Labels, ``[n]``.
        folds: Row numbers of each outer fold's test part.
        C: Values to choose from. Of equally good ones the smallest is taken.
        inner: Number of inner folds, stratified.
        scale: Whether features are standardised, each time by the training rows alone.
        seed: Shuffles the inner folds; without it they are cut in the order of the rows.
        device: Where to compute.
        tolerance: Largest relative duality gap of every SVM.
        max_steps: Newton steps at most.
        strict: Raise where an SVM misses it and its gradient is not small either, instead of
            saying so in ``converged``.

    Raises:
        ConvergenceError: If ``strict`` and an SVM did not converge.
    """
    rows = torch.as_tensor(x).detach().to(device, torch.float64)
    classes, labels = np.unique(as_numpy(y), return_inverse=True)
    _check_rows(rows, labels, len(classes))
    tests = [row_numbers(fold, len(labels)) for fold in folds]
    train, held_out = cut_all(labels, tests, inner, seed)  # [outer * (1 + inner), n], refits first
    masks, held = torch.from_numpy(train).to(device), torch.from_numpy(held_out).to(device)
    target = torch.from_numpy(labels).to(device)
    # Two classes need one classifier: the other is its mirror image.
    positive = torch.arange(len(classes))[-1 if len(classes) == 2 else 0 :]
    groups = positive.repeat_interleave(len(masks))  # [Q], class by class
    fold = torch.arange(len(masks)).repeat(len(positive))
    signs = (target == groups.to(device)[:, None]).to(rows) * 2 - 1
    scaling = None
    if scale:
        # No fold's scaled features change by this; the shared preconditioner needs it.
        rows = standardise(rows, torch.ones_like(masks[:1])).scaled(rows)[0]
        scaling = standardise(rows, masks)
    grid = sorted(C)
    basis = Basis(rows, scaling=scaling, fold=fold, C=grid[-1], error=LEFT_OUT * tolerance)
    many = None if scaling is None else scaling.select(fold.to(device))
    # A class without training rows is none that scikit-learn would predict.
    seen = torch.stack([masks[:, target == k].any(1) for k in range(len(classes))])
    solution, right, gap, residual = None, [], 0.0, 0.0
    for value in grid:
        solution = fit(
            rows,
            signs,
            masks[fold.to(device)],
            value,
            scaling=many,
            groups=groups,
            start=solution,
            basis=basis,
            tolerance=tolerance,
            max_steps=max_steps,
            strict=False,
        )
        decision = solution.decision(rows, many).view(len(positive), *masks.shape)
        hit = (_predict(decision, seen) == target) & held
        right.append(hit.sum(1).double() / held.sum(1))
        worst = solution.residual.masked_fill(solution.converged, 0.0)
        gap = max(gap, solution.gap.max().item())
        residual = max(residual, worst.max().item())
    if strict and not residual <= GRADIENT:
        raise ConvergenceError(
            f"a linear SVM was solved to a relative duality gap of {gap:.2g} and a gradient of "
            f"{residual:.2g} of its start only; scale the features or use smaller values of C."
        )
    share = torch.stack(right, dim=1).cpu().numpy()  # [outer * (1 + inner), C]
    outer = len(tests)
    within = inner_means(share[outer:], inner)
    best = within.argmax(1)
    return NestedAccuracy(
        accuracy=100 * share[:outer][np.arange(outer), best],
        C=np.asarray(grid)[best],
        inner=100 * within,
        gap=gap,
        residual=residual,
        converged=residual <= GRADIENT,
        problems=len(signs) * len(grid),
    )


def _predict(decision: Tensor, seen: Tensor) -> Tensor:
    """Classes ``[problems, n]`` from decision values ``[classifiers, problems, n]``."""
    if len(decision) == 1:
        decision = torch.cat([torch.zeros_like(decision), decision])
    return decision.masked_fill(~seen[..., None], -math.inf).argmax(0)


def _check_rows(x: Tensor, labels: NDArray[np.intp], classes: int) -> None:
    if x.dim() != 2 or labels.shape != (len(x),):
        raise ValueError(f"expected x [n, d] and y [n], got {list(x.shape)} and {labels.shape}")
    if classes < 2:
        raise ValueError(f"a classifier needs at least two classes, got {classes}")
    if not bool(x.isfinite().all()):
        raise ValueError("x holds values that are not finite numbers")
