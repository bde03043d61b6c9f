"""Named evaluation protocols: how embeddings become a score, and what that selects on.

============== ===== ============================ =======================================
name           level probe                        what it selects on
============== ===== ============================ =======================================
paper          graph linear SVM, unscaled         C inside the training folds; the epoch
                                                  with the best mean **on the reported
                                                  folds**, as the paper does
paper-scaled   graph linear SVM, scaled inside    as ``paper``
                     the training folds
paper          node  one linear layer             its epoch on the validation nodes; the
                                                  model by its training loss
paper-300      node  as ``paper``, 300 epochs     as ``paper``: how it was before
strict         graph linear SVM, scaled inside    C inside the training folds; the epoch is
                     the training folds           fixed beforehand
strict         node  one linear layer, scaled by  its epoch on the validation nodes; the
                     the training nodes           model by its training loss
strict-300     node  as ``strict``, 300 epochs    as ``strict``: how it was before
infograph-rbf  graph RBF SVM, unscaled            C inside the training folds; the epoch is
                                                  fixed beforehand
nested         graph linear SVM as ``strict``, or kind of SVM, kernel width and C inside the
                     RBF kernels                  training folds; the epoch is fixed beforehand
nested         node  kernel ridge regression,     scale of the rows, kernel, its width and strength
                     linear or of RBF kernels;    on the validation nodes; the model by its
                     the five best together       training loss
nested-        node  as ``nested``, and kernels   as ``nested``
features             with those of the nodes'
                     own features beside them,
                     as they are and averaged
semi           graph whole network fine-tuned     ``test-max``: the epoch **on the test
                     with 10 % of the labels      folds**; ``validation``: on another fold;
                                                  ``last epoch``: nothing
semi-frozen    graph logistic regression with     C inside these labels; the epoch is fixed
                     10 % of the labels           beforehand
semi-kernel    graph RBF kernels of five widths   how strongly each is held back, inside these
                     with 10 % of the labels      labels; the epoch is fixed beforehand
============== ===== ============================ =======================================

Folds and splits are fixed by the run's seed alone, those of ``semi``, ``semi-frozen`` and
``semi-kernel`` once and for all. So all methods are read on the same ones, and a trained encoder is
compared in pairs with the untrained one of the same seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lg2ar.config import Config, Level
from lg2ar.data.benchmarks import find_benchmark, open_split
from lg2ar.data.dataset import Dataset
from lg2ar.encoders import smoothed
from lg2ar.errors import InputError
from lg2ar.probes.few_labels import chosen_logistic_accuracy
from lg2ar.probes.kernel import chosen_probe_accuracy
from lg2ar.probes.kernel_ridge import kernel_ridge_accuracy
from lg2ar.probes.linear_layer import linear_layer_accuracy
from lg2ar.probes.nested import nested_accuracy
from lg2ar.probes.rbf_svm import rbf_accuracy
from lg2ar.probes.validated import validated_accuracy
from lg2ar.splits import Splits, random_splits, semi_splits, stratified_folds

FOLDS = 10
SPLITS = 20

# The paper chooses the number of epochs from these (A.3).
EPOCH_GRID = (10, 20, 40, 60, 100, 200)

# Protocols that look at all of these at graph level, and take the best on the folds they report.
AT_BEST = ("paper", "paper-scaled")

# What protocols of the node level were before: one layer as now, but trained for this long.
OLDER = {"paper": "paper-300", "strict": "strict-300"}
OLDER_EPOCHS = 300

# Protocols that read a frozen encoder with the labels of ``semi``.
FEW_LABELS = ("semi-frozen", "semi-kernel")

# Rounds of averaging over neighbours of the features that stand beside rows of nodes.
AVERAGED = (1, 2)

PROTOCOLS: dict[str, tuple[Level, ...]] = {
    "paper": ("graph", "node"),
    "paper-scaled": ("graph",),
    "strict": ("graph", "node"),
    **dict.fromkeys(OLDER.values(), ("node",)),
    "infograph-rbf": ("graph",),
    "nested": ("graph", "node"),
    "nested-features": ("node",),
    "semi": ("graph",),
    **dict.fromkeys(FEW_LABELS, ("graph",)),
}


def read_by(protocol: str, level: str, config: Mapping[str, object]) -> str:
    """The name of what a record's evaluation was read by, also of one that was made before.

    Layers of 300 epochs had the names of today's until there was ``embedding_scale``.
    """
    before = level == "node" and "embedding_scale" not in config
    return OLDER.get(protocol, protocol) if before else protocol


def check_protocol(name: str, level: Level) -> None:
    """Refuse a protocol that is not there, or not for this level."""
    if name not in PROTOCOLS:
        raise InputError(f"'{name}' is not a protocol; known are {', '.join(PROTOCOLS)}.")
    if level not in PROTOCOLS[name]:
        fit = [other for other, levels in PROTOCOLS.items() if level in levels]
        raise InputError(
            f"protocol '{name}' is not for {level} level; use one of {', '.join(fit)}."
        )


def evaluated_epochs(protocols: Sequence[str], config: Config) -> tuple[int, ...]:
    """After which epochs a run is evaluated: 0, the untrained encoder, and the last one always.

    ``paper`` and ``paper-scaled`` at graph level also look at those of the paper's grid that come
    before.
    """
    epochs = {0, config.epochs}
    if config.level == "graph" and not set(AT_BEST).isdisjoint(protocols):
        epochs |= {epoch for epoch in EPOCH_GRID if epoch < config.epochs}
    return tuple(sorted(epochs))


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads embeddings of one data set under one seed: always the same folds and splits.

    Attributes:
        dataset: With labels.
        seed: Fixes folds, splits and the probe's initial weights.
        device: Where probes that can compute on a GPU do so.
    """

    dataset: Dataset
    seed: int
    device: torch.device

    def __post_init__(self) -> None:
        if self.dataset.y is None or self.dataset.y.is_floating_point():
            raise InputError(
                f"{self.dataset.name} has no class labels, which every protocol needs; give it a "
                f"whole number per {self.dataset.level}."
            )
        if len(self.dataset.y.unique()) < 2:  # type: ignore[no-untyped-call]
            raise InputError(
                f"{self.dataset.name} has a single class, which leaves nothing to tell apart."
            )

    @property
    def labels(self) -> NDArray[np.int64]:
        """The label of each row."""
        assert self.dataset.y is not None
        labels: NDArray[np.int64] = self.dataset.y.cpu().numpy()
        return labels

    @cached_property
    def folds(self) -> list[NDArray[np.intp]]:
        """Test rows of each of ten stratified folds."""
        return stratified_folds(self.labels, FOLDS, self.seed)

    @cached_property
    def splits(self) -> Splits:
        """The public splits where there are some, otherwise twenty random ones of 10/10/80 %."""
        return node_splits(self.dataset, self.seed)

    @cached_property
    def few_labels(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Labelled and tested rows of each of GraphCL's folds, which are the same for all seeds."""
        return [(split.train, split.test) for split in semi_splits(self.labels)]

    def accuracy(self, protocol: str, rows: Tensor) -> list[float]:
        """Percent in each fold (node level: split).

        Args:
            protocol: Any but ``semi``.
            rows: Embeddings.
        """
        check_protocol(protocol, self.dataset.level)
        if protocol == "semi":
            raise ValueError("protocol 'semi' fine-tunes an encoder; it does not read embeddings")
        scale = protocol in ("strict", "strict-300", "paper-scaled")
        if self.dataset.level == "node":
            return _rounded(self._of_nodes(protocol, rows, scale=scale))
        if protocol == "infograph-rbf":
            return _rounded(rbf_accuracy(rows.numpy(), self.labels, self.folds).accuracy)
        if protocol == "semi-frozen":
            return _rounded(chosen_logistic_accuracy(rows, self.labels, self.few_labels)[0])
        if protocol == "semi-kernel":
            return _rounded(
                kernel_ridge_accuracy(rows, self.labels, self.few_labels, device=self.device)
            )
        if protocol == "nested":
            return _rounded(
                chosen_probe_accuracy(rows, self.labels, self.folds, device=self.device)[0]
            )
        found = nested_accuracy(rows, self.labels, self.folds, scale=scale, device=self.device)
        return _rounded(found.accuracy)

    def _of_nodes(self, protocol: str, rows: Tensor, *, scale: bool) -> NDArray[np.float64]:
        """Percent of the test nodes of each split."""
        if protocol in ("nested", "nested-features"):
            features = self._features if protocol == "nested-features" else []
            return validated_accuracy(
                rows, self.labels, self.splits, features=features, device=self.device
            ).test
        older = {"epochs": OLDER_EPOCHS, "patience": 0} if protocol in OLDER.values() else {}
        return linear_layer_accuracy(
            rows,
            self.labels,
            self.splits,
            scale=scale,
            seed=self.seed,
            device=self.device,
            **older,
        ).test

    @cached_property
    def _features(self) -> list[Tensor]:
        """The nodes' own features, and averaged over neighbours once and twice."""
        graph = self.dataset.graph
        if not graph.num_features:
            raise InputError(f"{self.dataset.name} has no node features; use protocol 'nested'.")
        return [graph.x, *(smoothed(graph, rounds) for rounds in AVERAGED)]


class Memory:
    """Remembers what embeddings were worth: untrained ones come again with every variant."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[float]] = {}

    def accuracy(self, reader: Reader, protocol: str, rows: Tensor) -> list[float]:
        """As :meth:`Reader.accuracy`, computed once for the same rows, protocol and seed."""
        digest = hashlib.sha256(rows.contiguous().numpy().tobytes()).hexdigest()
        probe = "strict" if protocol == "paper-scaled" else protocol  # they differ in epochs
        key = (reader.dataset.fingerprint(), tuple(rows.shape), digest, probe, reader.seed)
        if key not in self._known:
            self._known[key] = reader.accuracy(protocol, rows)
        return self._known[key]


def node_splits(dataset: Dataset, seed: int) -> Splits:
    """The public splits of a benchmark that has some, otherwise twenty random ones."""
    try:
        name = find_benchmark(dataset.name).name
    except InputError:  # not a benchmark
        return random_splits(len(dataset), count=SPLITS, seed=seed)
    return open_split(name) or random_splits(len(dataset), count=SPLITS, seed=seed)


def _rounded(percent: NDArray[np.float64]) -> list[float]:
    # A test part has far fewer than 10^6 rows: nothing is lost, and records stay short.
    return [round(float(value), 6) for value in percent]
