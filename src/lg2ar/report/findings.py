"""What a run makes of data: embeddings, maps, scores, and views of examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from lg2ar.data.batches import Store, as_store
from lg2ar.data.dataset import Dataset
from lg2ar.devices import sensible_threads
from lg2ar.evaluation import calibrate, embed
from lg2ar.methods import build
from lg2ar.records import Score
from lg2ar.report.examples import Example, make_examples
from lg2ar.report.explorer import MOST_MAPPED, Atlas, make_atlas
from lg2ar.report.kinds import node_kinds
from lg2ar.report.samples import drawn_rows, take
from lg2ar.report.scores import probe
from lg2ar.runs import Run


@dataclass(frozen=True, eq=False)
class Findings:
    """What the page shows beside what the run folder holds.

    Attributes:
        scores: By encoder.
        scores_note: What to know about them, or why there are none.
        atlas: The map, where there is one.
        examples: Graphs with the views cut of them.
        notes: Sentences about the data, or about what is missing.
    """

    scores: Mapping[str, Score] = field(default_factory=dict)
    scores_note: str = ""
    atlas: Atlas | None = None
    examples: Sequence[Example] = ()
    notes: Sequence[str] = ()


def find(
    run: Run,
    dataset: Dataset,
    *,
    colour_by: str | None = None,
    examples: int = 3,
    scores: Mapping[str, Score] | None = None,
    notes: Sequence[str] = (),
) -> Findings:
    """Embed data with a run, trained and untrained, and find what there is to show.

    Args:
        run: The run.
        dataset: What it was trained on, or other data of the same kind.
        colour_by: The column that the map's points are coloured by first.
        examples: How many graphs to show views of.
        scores: Results that are known already; None computes them.
        notes: Sentences about the data.

    Raises:
        InputError: For data that does not fit the run, or a column that is not there.
    """
    trained = run.embed(dataset)
    graph = run.recipe.apply(dataset, tell=False)  # the line before has told it
    store = as_store(graph)
    with sensible_threads(graph, run.config, next(run.model.parameters()).device):
        embedded = {"untrained": untrained_embeddings(run, store)}
    if run.history:
        embedded = {"trained": trained, **embedded}
    rows = drawn_rows(len(dataset), MOST_MAPPED, run.config.seed)
    places, shown = rows, dataset
    if dataset.level == "graph":  # all else is done with these graphs alone
        places, shown = np.arange(len(rows)), take(dataset, rows)
        graph = store.select(rows)
    kinds = node_kinds(shown)
    atlas = make_atlas(
        shown,
        places,
        {name: values.numpy()[rows] for name, values in embedded.items()},
        kinds,
        total=len(dataset),
        colour_by=colour_by,
        seed=run.config.seed,
    )
    scored, note = (scores, "") if scores is not None else probe(dataset, embedded)
    cut = make_examples(run.model, run.config, shown, graph, kinds, examples) if examples else []
    return Findings(scored, note, atlas, cut, notes)


def untrained_embeddings(run: Run, graphs: Store) -> Tensor:
    """What the run's encoder made of graphs before training, with statistics taken from them."""
    fresh = build(run.config, run.recipe.width, run.recipe.edge_width)
    encoder = fresh.to(next(run.model.parameters()).device).eval().base_encoder
    if run.config.calibrate:
        calibrate(encoder, graphs)
    return embed(encoder, graphs, run.config.level, projected=run.config.embedding == "after")
