"""Runs: a trained model and all that belongs to it, read from its folder, and its embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from lg2ar import checkpoint as checkpoints
from lg2ar.checkpoint import Checkpoint
from lg2ar.config import Config
from lg2ar.data.batches import Store
from lg2ar.data.dataset import Dataset
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.sources import Source, open_source
from lg2ar.devices import choose_device, device_name, sensible_threads
from lg2ar.errors import InputError
from lg2ar.evaluation import embed
from lg2ar.graph import GraphBatch
from lg2ar.methods import build
from lg2ar.model import Method
from lg2ar.records import EpochRecord, RunRecord, Score
from lg2ar.sampling import repeatable
from lg2ar.selecting import checked_places

# Rows that are looked at at a time for what is not finite.
LOOKED_AT = 1 << 16


@dataclass(frozen=True, eq=False)
class Run:
    """A trained model and all that belongs to it.

    Attributes:
        config: The settings.
        recipe: How features are made.
        model: The model; its ``base_encoder`` alone is used for embeddings.
        history: One record per epoch.
        data: What was trained on.
        versions: What it was trained with.
    """

    config: Config
    recipe: FeatureRecipe
    model: Method
    history: list[EpochRecord]
    data: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def embed(
        self,
        source: Source,
        *,
        only: Sequence[int] | np.ndarray | None = None,
        scratch: str | Path | None = None,
    ) -> Tensor:
        """Embed graphs (or the nodes of one large graph), seen in training or not.

        Args:
            source: See :func:`~lg2ar.data.sources.open_source`.
            only: Places of those that are wanted, from 0; None wants all. Of a graph that is
                mapped from a disk only what these nodes hear of is then read.
            scratch: Folder for what does not fit into memory, of such a graph; None is the
                system's for temporary files.

        Returns:
            A row per graph (or node), on the CPU.
        """
        dataset = open_source(source, self.config.level, usual=self.reading)
        if self.config.level == "node" and dataset.graph.num_graphs != 1:
            raise InputError(
                f"{dataset.name} holds {dataset.graph.num_graphs} graphs, but the model embeds "
                "the nodes of one large graph; give it one."
            )
        graph = self.recipe.apply(dataset)
        places = None if only is None else checked_places(only, dataset)
        folder = None if scratch is None else Path(scratch)
        with sensible_threads(graph, self.config, next(self.model.parameters()).device):
            return embed_rows(self, graph, dataset.name, places, folder)

    @property
    def reading(self) -> dict[str, Any]:
        """Options that unseen data is read with, as the data was that was trained on."""
        held = self.data.get("reading", {})
        return {name: value for name, value in held.items() if name not in ("labels", "ignore")}

    def record(self, scores: Mapping[str, Score]) -> RunRecord:
        """The run and its scores as a line of a records file."""
        heads = range(len(self.config.heads))
        return RunRecord(
            config=self.config.to_dict(),
            data=self.data,
            versions=self.versions,
            device=device_name(next(self.model.parameters()).device),
            seconds=sum(record.seconds for record in self.history),
            peak_memory=max((record.peak_memory for record in self.history), default=0),
            epochs=len(self.history),
            loss=(self.history[0].loss, self.history[-1].loss) if self.history else (0.0, 0.0),
            draws=[[sum(r.draws[i][j] for r in self.history) for j in heads] for i in heads],
            scores=dict(scores),
        )


def load(folder: str | Path, device: str = "auto") -> Run:
    """Read a run folder.

    Args:
        folder: What :func:`lg2ar.pretrain` wrote.
        device: Where the model is to be.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from lg2ar import pretrain
        >>> from lg2ar.data.toy import toy_graphs
        >>> settings = {"epochs": 1, "hidden": 8, "layers": 2}
        >>> with TemporaryDirectory() as folder:
        ...     run = pretrain(toy_graphs(20), settings, out=folder, device="cpu")
        ...     again = load(folder, device="cpu")
        >>> bool((again.embed(toy_graphs(5)) == run.embed(toy_graphs(5))).all())
        True
    """
    held = checkpoints.read(folder)
    try:
        recipe = recipe_that_fits(held)
        model = build(held.config, recipe.width, recipe.edge_width)
        model.load_state_dict(held.model)
        heads = len(held.config.heads)
        history = [EpochRecord.from_dict(record, heads) for record in held.progress["history"]]
    except InputError:
        raise
    except (TypeError, KeyError, ValueError, AttributeError, RuntimeError):
        raise InputError(
            f"{folder}: its weights do not fit its settings; restore the folder or train again."
        ) from None
    return Run(
        config=held.config,
        recipe=recipe,
        model=model.to(choose_device(device)).eval(),
        history=history,
        data=held.data,
        versions=held.versions,
    )


def recipe_that_fits(held: Checkpoint) -> FeatureRecipe:
    """The recipe of a run, once it is clear that its weights fit its settings."""
    recipe = FeatureRecipe.from_dict(held.recipe)
    checkpoints.check_fit(lambda: build(held.config, recipe.width, recipe.edge_width), held.model)
    return recipe


def describe(dataset: Dataset) -> dict[str, Any]:
    """What a record says of the data."""
    columns = {
        "node_columns": [column.name for column in dataset.node_columns],
        "edge_columns": [column.name for column in dataset.edge_columns],
        "reading": dict(dataset.reading),
        "source": dataset.source,
    }
    return {
        "name": dataset.name,
        "level": dataset.level,
        "num_graphs": dataset.graph.num_graphs,
        "num_nodes": dataset.graph.num_nodes,
        "num_edges": dataset.graph.num_edges,
        "num_features": dataset.graph.num_features,
        "fingerprint": dataset.fingerprint(),
        **{name: value for name, value in columns.items() if value},
    }


def embed_rows(
    run: Run,
    graph: GraphBatch | Store,
    name: str,
    only: np.ndarray | None = None,
    scratch: Path | None = None,
) -> Tensor:
    """Embed graphs with features as the run takes them; see :meth:`Run.embed`.

    Raises:
        InputError: For an embedding that is not finite.
    """
    encoder, projected = run.model.base_encoder, run.config.embedding == "after"
    with repeatable(next(encoder.parameters()).device, run.config.deterministic):
        rows = embed(
            encoder, graph, run.config.level, projected=projected, only=only, scratch=scratch
        )
    for first in range(0, len(rows), LOOKED_AT):
        broken = (~rows[first : first + LOOKED_AT].isfinite()).any(1).nonzero()
        if broken.numel():
            place = first + int(broken[0])
            place = place if only is None else int(only[place])
            raise InputError(
                f"{name}: the embedding of {run.config.level} {place} is not finite; its features "
                "or edge weights are far outside what was trained on."
            )
    return rows
