"""What labels say about the embeddings, the untrained encoder's beside the trained one's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from lg2ar.data.dataset import Dataset
from lg2ar.errors import InputError
from lg2ar.probes import ConvergenceError, few_label_accuracy
from lg2ar.protocols import Reader
from lg2ar.records import Score
from lg2ar.report import svg
from lg2ar.report.document import section
from lg2ar.report.svg import escape
from lg2ar.report.words import count

MOST_FOLDED = 2000  # graphs above which ten folds of SVMs take too long for a page
MOST_PROBED = 5000  # rows that any probe sees

STRICT = "strict: linear SVM, scaled and tuned inside the training folds, 10 folds"


def probe(
    dataset: Dataset, embedded: Mapping[str, Tensor], *, seed: int = 0
) -> tuple[dict[str, Score], str]:
    """Read embeddings by their labels, all on the same folds or splits.

    Graphs are read under the protocol ``strict`` where there are not too many; nodes, many graphs
    and rare classes by a logistic regression on a tenth of the labels.

    Args:
        dataset: With or without labels.
        embedded: Embeddings of all its rows, by encoder.
        seed: Fixes folds, splits and which rows are read where there are too many.

    Returns:
        Scores by encoder, none where there is nothing to read; and what to know about them.
    """
    labels = dataset.y
    if labels is None or len(labels) != len(dataset):
        return {}, f"There are no labels of {dataset.level}s, so nothing was scored."
    if labels.is_floating_point():
        return {}, "The labels are numbers, not classes, so no accuracy was computed."
    if len(labels.unique()) < 2:  # type: ignore[no-untyped-call]
        return {}, "All labels are the same, which leaves nothing to tell apart."
    if dataset.level == "graph" and len(dataset) <= MOST_FOLDED:
        try:
            return _strict(dataset, embedded, seed), ""
        except (InputError, ConvergenceError):
            pass  # a class that is too rare for ten folds
    return _few(labels.cpu().numpy(), embedded, seed, dataset.level)


def _strict(dataset: Dataset, embedded: Mapping[str, Tensor], seed: int) -> dict[str, Score]:
    reader = Reader(dataset, seed, torch.device("cpu"))
    found = {}
    for name, rows in embedded.items():
        accuracy = np.array(reader.accuracy("strict", rows))
        found[name] = Score(
            mean=float(accuracy.mean()),
            std=float(accuracy.std()),
            protocol=STRICT,
            runs=len(accuracy),
            selection="fixed beforehand",
        )
    return found


def _few(
    labels: np.ndarray, embedded: Mapping[str, Tensor], seed: int, level: str
) -> tuple[dict[str, Score], str]:
    rows = np.arange(len(labels))
    note = ""
    if len(rows) > MOST_PROBED:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_PROBED, replace=False))
        note = f"Read on {count(MOST_PROBED)} of {count(len(labels))} {level}s, drawn at random. "
    _, place, sizes = np.unique(labels[rows], return_inverse=True, return_counts=True)
    often = sizes >= 10  # a tenth of fewer is none
    if not often.all():
        note += f"Classes of fewer than ten {level}s are left out: {int((~often).sum())} of them."
        rows = rows[often[place]]
    if often.sum() < 2:
        return {}, f"No two classes have ten {level}s each, too few to score."
    found = {
        name: few_label_accuracy(values.numpy()[rows], labels[rows], seed=seed)
        for name, values in embedded.items()
    }
    return found, note


def scores_section(scores: Mapping[str, Score], note: str = "") -> str:
    """The part of the page that shows them."""
    told = f"<p class='note'>{escape(note)}</p>" if note else ""
    if not scores:
        return section("Probe scores", told or "<p>The embeddings were not evaluated.</p>")
    heads = ("Encoder", "Accuracy", "0 to 100 %", "Protocol", "Runs", "Epoch chosen by")
    rows = []
    for name, score in scores.items():
        value = f"{score.mean:.1f} ± {score.std:.1f} %"
        kind = 9 if name == "untrained" else 0  # a grey and a blue
        bar = svg.bar(score.mean, score.std, label=f"{name}: {value}", kind=kind)
        cells = (
            escape(name),
            f"<strong>{value}</strong>",
            bar,
            escape(score.protocol),
            str(score.runs),
            escape(score.selection),
        )
        pairs = zip(heads, cells, strict=True)
        rows.append("".join(f'<td data-head="{head}">{cell}</td>' for head, cell in pairs))
    head = "".join(f'<th scope="col">{head}</th>' for head in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    table = f'<table class="scores"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    more = (
        "<p class='note'>Mean ± one standard deviation over the runs; the whisker shows it. "
        "Training saw no label; the untrained encoder is the floor that a trained one has to "
        "beat.</p>"
    )
    return section("Probe scores", table + told + more)
