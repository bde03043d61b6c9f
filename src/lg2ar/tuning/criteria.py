"""By what settings are compared, without labels or with a part of them.

Without labels. The loss cannot be it: its bound has another range under every temperature, batch
size and augmentation, and a policy that learns to draw two nearly equal views lowers it without any
gain. We take the **stability of neighbours**: the ten graphs nearest to a graph should still be
those when a tenth of all nodes (node level: of the edges) is gone. It is 1 where no neighbour
changes and 0 where neighbours are as good as drawn at random; an encoder that tells graphs apart by
noise scores low, and so does one that tells nothing apart, since ties are broken by lot.

Copies are disturbed in one fixed way and not by the learned heads, which differ from run to run, so
that runs can be compared; and since only the order of distances counts, encoders of any width can.
The effective rank of the embeddings (RankMe, Garrido et al., 2023) and of their discriminant matrix
(LiDAR, Thilak et al., 2024) were tried as well; docs/tuning.md has what was measured.

No criterion without labels is more than a hint. Where some labels are known, use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lg2ar.config import Level
from lg2ar.data.batches import as_store
from lg2ar.data.dataset import Dataset
from lg2ar.errors import InputError
from lg2ar.evaluation import embed
from lg2ar.finetuning.splits import held_out_split
from lg2ar.finetuning.targets import Labels, read_labels
from lg2ar.graph import GraphBatch
from lg2ar.ops import induced_subgraph, keep_edges

if TYPE_CHECKING:
    from lg2ar.runs import Run

CRITERIA = ("label-free", "labels")

VIEWS = 3  # disturbed copies of each graph
SHARE = 0.1  # of the nodes or edges that a copy lacks
ROWS = 1000  # graphs or nodes looked at, at most
NEIGHBOURS = 10  # of each of them

FOLDS = 5
TEST = 0.2  # share of the labels that tuning never sees


@dataclass(frozen=True, eq=False)
class LabelFree:
    """How many neighbours stay the same when the graphs are disturbed a little.

    Attributes:
        dataset: The graphs.
        seed: Fixes which of them are looked at, and the disturbed copies.
    """

    dataset: Dataset
    seed: int = 0
    name: str = "label-free"

    def __call__(self, run: Run) -> float:
        """See above."""
        graph, level = run.recipe.apply(self.dataset), run.config.level
        rng = np.random.default_rng(self.seed)
        rows = np.sort(rng.permutation(len(self.dataset))[:ROWS])
        if level == "graph":
            graph = as_store(graph).select(rows)

        def embedded(graph: GraphBatch) -> NDArray[np.float64]:
            encoder, after = run.model.base_encoder, run.config.embedding == "after"
            found = embed(encoder, graph, level, projected=after).double().numpy()
            return found if level == "graph" else found[rows]

        copies = [embedded(disturbed(graph, level, self.seed + view)) for view in range(VIEWS)]
        return neighbour_stability(embedded(graph), copies, seed=self.seed)


@dataclass(frozen=True, eq=False)
class LabelCriterion:
    """How well a linear probe reads the labels, by cross-validation on a part of them.

    A fifth of the labels is kept apart: tuning never sees it, and :meth:`test` tells at the end
    what the best settings are worth there.

    Attributes:
        dataset: The graphs.
        column: Of the labels; None for the data's own.
        seed: Fixes the part that is kept apart, and the folds.
    """

    dataset: Dataset
    column: str | None = None
    seed: int = 0
    name: str = "labels"

    @cached_property
    def labels(self) -> Labels:
        """The labels."""
        return read_labels(self.dataset, self.column)

    @cached_property
    def parts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows that settings are compared on, and rows kept apart."""
        known = self.labels.known
        classes = self.labels.values[known] if self._classifies else None
        split = held_out_split(known, classes, test=TEST, seed=self.seed)
        seen = np.sort(np.concatenate([split.train, split.validation]))
        if self._classifies:
            fewest = int(np.bincount(self.labels.values[seen])[np.unique(self.labels.values)].min())
            if fewest < 2:
                raise InputError(
                    f"{self.dataset.name}: a class of '{self.labels.target.column}' has too few "
                    "rows to compare settings by; leave it out, or tune without labels."
                )
        return seen, split.test

    @property
    def _classifies(self) -> bool:
        return self.labels.target.task == "classification"

    def __call__(self, run: Run) -> float:
        """Mean over the folds: accuracy in percent, or R² of numbers."""
        from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

        x, y = run.embed(self.dataset).numpy(), self.labels.values
        seen, _ = self.parts
        folds = min(FOLDS, len(seen))
        if self._classifies:
            counts = np.bincount(y[seen])
            folds = min(folds, int(counts[counts > 0].min()))
            cut: Any = StratifiedKFold(folds, shuffle=True, random_state=self.seed)
        else:
            cut = KFold(folds, shuffle=True, random_state=self.seed)
        scores = cross_val_score(self._probe(), x[seen], y[seen], cv=cut)
        return float(scores.mean()) * (100 if self._classifies else 1)

    def test(self, run: Run) -> float:
        """The same measure on the part that was kept apart."""
        x, y = run.embed(self.dataset).numpy(), self.labels.values
        seen, apart = self.parts
        score = self._probe().fit(x[seen], y[seen]).score(x[apart], y[apart])
        return float(score) * (100 if self._classifies else 1)

    def _probe(self) -> Any:
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        # Embeddings are wide and labels few: without this much regularisation the widest wins.
        reader = LogisticRegression(C=0.1, max_iter=2000) if self._classifies else Ridge(10.0)
        return make_pipeline(StandardScaler(), reader)


def disturbed(graph: GraphBatch, level: Level, seed: int, share: float = SHARE) -> GraphBatch:
    """A copy of the graphs that lacks a share of their nodes, or at node level of their edges.

    Every graph keeps its first node; both directions of an edge go together.
    """
    generator = torch.Generator().manual_seed(seed)
    if level == "graph":
        kept = torch.rand(graph.num_nodes, generator=generator) >= share
        kept = kept.to(graph.device)
        kept[graph.ptr[:-1]] = True
        return induced_subgraph(graph, kept)
    low, high = graph.edge_index.min(0).values, graph.edge_index.max(0).values
    pairs, pair = torch.unique(low * graph.num_nodes + high, return_inverse=True)
    stays = (torch.rand(len(pairs), generator=generator) >= share).to(graph.device)
    return keep_edges(graph, stays[pair])


def neighbour_stability(
    rows: NDArray[np.floating],
    copies: Sequence[NDArray[np.floating]],
    neighbours: int = NEIGHBOURS,
    seed: int = 0,
) -> float:
    """Share of each row's nearest neighbours that are its neighbours among the copies too.

    Columns are scaled to mean 0 and standard deviation 1, all by what the rows themselves have;
    distance is the angle between rows.

    Args:
        rows: Embeddings, ``[n, d]``.
        copies: Embeddings of disturbed copies, in the same order.
        neighbours: How many neighbours are looked at; fewer where there are few rows.
        seed: Fixes how ties are broken.

    Returns:
        1 where all stay, 0 where no more stay than by chance.
    """
    k = min(neighbours, (len(rows) - 1) // 2)
    everything = np.concatenate([rows, *copies])
    if k < 1 or not np.isfinite(everything).all():
        return 0.0
    spread = rows.std(axis=0)
    varies = spread > 1e-6 * np.abs(rows).max(axis=0, initial=0.0)
    mean, scale = rows.mean(axis=0)[varies], spread[varies]
    rng = np.random.default_rng(seed)
    near = [_nearest((x[:, varies] - mean) / scale, k, rng) for x in (rows, *copies)]
    kept = np.mean([(near[0] & copy).sum() / (k * len(rows)) for copy in near[1:]])
    chance = k / (len(rows) - 1)
    return float((kept - chance) / (1 - chance))


def _nearest(x: NDArray[np.float64], k: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which rows are among the ``k`` nearest of each, ``[n, n]``; ties are broken by lot."""
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    likeness = unit @ unit.T + 1e-6 * rng.random((len(x), len(x)))
    np.fill_diagonal(likeness, -np.inf)
    near = np.zeros(likeness.shape, dtype=bool)
    np.put_along_axis(near, np.argpartition(-likeness, k, axis=1)[:, :k], True, axis=1)
    return near


def make_criterion(
    name: str, dataset: Dataset, column: str | None = None, seed: int = 0
) -> LabelFree | LabelCriterion:
    """The criterion of that name, once it is clear that the data has what it needs."""
    if name not in CRITERIA:
        raise InputError(f"criterion = {name!r} must be one of {', '.join(CRITERIA)}.")
    if name == "label-free":
        return LabelFree(dataset, seed)
    made = LabelCriterion(dataset, column, seed)
    _ = made.parts
    return made
