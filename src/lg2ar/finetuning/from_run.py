"""From a run and labelled graphs to a fine-tuned network, with honest scores beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from lg2ar.data.dataset import Dataset
from lg2ar.data.reading import ReadOptions
from lg2ar.data.sources import Source, open_source
from lg2ar.devices import choose_device, sensible_threads
from lg2ar.encoders import Encoder
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.evaluation import calibrate
from lg2ar.files import writes_alone
from lg2ar.finetuning.early_stopping import (
    TunedEpoch,
    TuningSettings,
    fit,
    predict_rows,
)
from lg2ar.finetuning.network import EncodedRows, Network, Rows
from lg2ar.finetuning.probe import MOST, probed
from lg2ar.finetuning.progress import BEGUN, Progress, check_asked, check_free, print_of
from lg2ar.finetuning.saved import FILE, FineTuned, check_level, load_finetuned, made_as
from lg2ar.finetuning.splits import held_out_split
from lg2ar.finetuning.targets import Labels, Target, Task, read_labels
from lg2ar.graph import GraphBatch
from lg2ar.methods import build
from lg2ar.records import versions
from lg2ar.runs import Run, describe, load
from lg2ar.sampling import private_randomness, repeatable, seed_from
from lg2ar.shortage import naming_settings
from lg2ar.splits import Split


class OnEpoch(Protocol):
    """Called with which encoder is fine-tuned, and the record of an epoch."""

    def __call__(self, name: str, record: TunedEpoch) -> None:
        """See above."""


@writes_alone
def finetune(
    run: Run | str | Path,
    source: Source,
    labels: str | None = None,
    *,
    task: Task | None = None,
    fraction: float = 1.0,
    test: float = 0.2,
    validation: float = 0.2,
    floor: bool = True,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    device: str | torch.device = "auto",
    on_epoch: OnEpoch | None = None,
    reading: Mapping[str, Any] | None = None,
    **settings: Any,
) -> FineTuned:
    """Train a run's encoder and a new head with labels, and score it on rows held out.

    >>> import lg2ar
    >>> run = lg2ar.pretrain("toy-graphs", {"hidden": 8, "layers": 1, "epochs": 1}, device="cpu")
    >>> tuned = finetune(run, "toy-graphs", epochs=1, floor=False)
    >>> len(tuned.predict("toy-graphs").ids)
    300

    Args:
        run: A run, or its folder.
        source: Where the labelled graphs (or the graph of labelled nodes) come from.
        labels: Column of the labels; None for the data's own. Rows without a label are left out.
        task: ``classification`` or ``regression``; None finds out.
        fraction: Share of the labels that are not held out that is used at all.
        test: Share of the labels held out for the scores.
        validation: Share of the labels used that stops training and is not learned from.
        floor: Whether to fine-tune an untrained encoder the same way, to compare with.
        out: Folder to keep the result in; None keeps nothing.
        overwrite: Put the result in the place of the one in ``out``, if there is one.
        resume: Go on with what was begun in ``out``, if there is something; what comes out is what
            would have come out without a break. A result that is there is given back. With
            ``overwrite``, what was made or begun of something else is replaced.
        device: ``auto``, ``cpu`` or ``cuda``; a run that is loaded stays where it is.
        on_epoch: Called with ``pretrained`` or ``untrained`` and each epoch's record.
        reading: How the source is to be read, by option: see :func:`lg2ar.read`.
        **settings: See :class:`~lg2ar.finetuning.early_stopping.TuningSettings`: ``epochs``,
            ``patience``, ``learning_rate``, ``batch_size``, ``hidden``, ``dropout``, ``freeze``,
            ``seed``.

    Raises:
        InputError: When run, source, labels or settings cannot be worked with.
        NonFiniteLossError: When training broke down; ``out`` then holds the last good state.
        MemoryShortageError: When memory did not suffice; the same holds.
    """
    chosen = _settings(settings)
    folder = None if out is None else Path(out)
    if folder is not None and not overwrite and not resume:
        check_free(folder)
    if not isinstance(run, Run):
        run = load(run, str(choose_device(device)))
    dataset, held = _open(run, source, labels, task, reading or {})
    classes = held.values[held.known] if held.target.task == "classification" else None
    split = held_out_split(
        held.known, classes, test=test, fraction=fraction, validation=validation, seed=chosen.seed
    )
    asked = {
        "run": print_of(run.model.base_encoder),
        "data": dataset.fingerprint(),
        "labels": held.target.column,
        "task": held.target.task,
        **{"fraction": fraction, "test": test, "validation": validation, "floor": floor},
        **chosen.to_dict(),
    }
    rows = {
        "labelled": len(held.known),
        "learned from": len(split.train),
        "stopped by": len(split.validation),
        "held out": len(split.test),
    }
    progress = Progress(folder, asked, resume, overwrite)
    if folder is not None and resume and _is_finished(folder):
        try:
            tuned = load_finetuned(folder, next(run.model.parameters()).device)
            check_asked(folder, tuned.made_from(), {**asked, **made_as(run.config, rows)})
            progress.remove()  # what a kill at the last moment left
            return tuned
        except InputError:
            if not overwrite:
                raise
    work = _Work(run, run.recipe.apply(dataset), held, split, chosen, progress)
    network, history = work.fit("pretrained", run.model.base_encoder, on_epoch)
    scores = {"pretrained": work.score(network)}
    if len(split.train) + len(split.validation) <= MOST:
        scores |= work.probe()
    if floor:
        other, _ = work.fit("untrained", work.untrained(), on_epoch)
        scores["untrained"] = work.score(other)
    learned = held.values[split.train]
    guess = work.target.floor(learned, len(split.test))
    scores["no graph"] = work.target.scores(held.values[split.test], guess)
    tuned = FineTuned(
        config=run.config,
        recipe=run.recipe,
        target=work.target,
        network=network,
        settings=chosen,
        history=history,
        scores=scores,
        rows=rows,
        data=describe(dataset),
        versions=versions(),
        reading=run.reading,
        asked=asked,
    )
    if folder is not None:
        tuned.save(folder)
        progress.remove()
    return tuned


def _is_finished(folder: Path) -> bool:
    return (folder / FILE).exists() and not (folder / BEGUN).exists()


def _settings(given: dict[str, Any]) -> TuningSettings:
    try:
        return TuningSettings(**given)
    except TypeError:
        known = TuningSettings.__dataclass_fields__
        unknown = next((name for name in given if name not in known), "")
        raise InputError(
            f"'{unknown}' is no setting of fine-tuning; there are {', '.join(known)}."
        ) from None


def _open(
    run: Run, source: Source, column: str | None, task: Task | None, reading: Mapping[str, Any]
) -> tuple[Dataset, Labels]:
    """The data and its labels, once it is clear that these are no feature of the run."""
    own = {} if column is None or isinstance(source, Dataset) else {"labels": column}
    options = ReadOptions.make({**reading, **own})
    dataset = check_level(open_source(source, run.config.level, options, run.reading), run.config)
    held = read_labels(dataset, column, task)
    nodes = run.recipe.nodes
    if nodes is not None and any(rule.name == held.target.column for rule in nodes.rules):
        raise InputError(
            f"{dataset.name}: column '{held.target.column}' is a feature of the run, which would "
            f"tell the labels; pretrain with --labels {held.target.column} first."
        )
    return dataset, held


class _Work:
    """What all encoders that are fine-tuned for one comparison have in common."""

    def __init__(
        self,
        run: Run,
        graph: GraphBatch,
        held: Labels,
        split: Split,
        settings: TuningSettings,
        progress: Progress,
    ) -> None:
        self.progress = progress
        self.run, self.graph, self.split, self.settings = run, graph, split, settings
        self.device = next(run.model.parameters()).device
        self.rows = Rows(graph, run.config.level, self.device)
        self.target = _measured(held, split)
        self.values = held.values
        self.wanted = torch.from_numpy(held.values).to(self.device)

    def fit(
        self, name: str, encoder: Encoder, on_epoch: OnEpoch | None
    ) -> tuple[Network, list[TunedEpoch]]:
        """Fine-tune a copy of an encoder."""
        config, settings = self.run.config, self.settings
        tell = None if on_epoch is None else partial(on_epoch, name)
        with (
            private_randomness(),
            repeatable(self.device, config.deterministic),
            sensible_threads(self.graph, config, self.device),
            naming_settings(self.device, batch_size=settings.batch_size, hidden=settings.hidden),
        ):
            torch.manual_seed(seed_from(settings.seed, "fine-tuning"))
            network = Network(
                encoder,
                self.target.outputs,
                settings.hidden,
                settings.dropout,
                config.level,
                settings.freeze,
            ).to(self.device)
            history = fit(
                network,
                self.rows,
                self.wanted,
                self.split,
                self.target,
                settings,
                tell,
                earlier=self.progress.state(name),
                on_state=partial(self.progress.save, name),
            )
        return network, history

    def score(self, network: Network) -> dict[str, float]:
        """How good a network is on the rows held out."""
        rows, config = self.split.test, self.run.config
        with sensible_threads(self.graph, config, self.device):
            told = predict_rows(network, self.rows, rows, self.target, config.deterministic)
        if not np.isfinite(told).all():
            raise NonFiniteLossError(
                "What the network tells of the rows held out is not finite: lower learning_rate "
                f"(now {self.settings.learning_rate:g})."
            )
        return self.target.scores(self.values[rows], told)

    def probe(self) -> dict[str, dict[str, float]]:
        """How good a linear model on the encoder is, as pre-training left it."""
        config, split = self.run.config, self.split
        used = np.concatenate([split.train, split.validation, split.test])
        with repeatable(self.device, config.deterministic), private_randomness():
            network = Network(self.run.model.base_encoder, 1, 1, 0.0, config.level, frozen=True)
            with sensible_threads(self.graph, config, self.device):
                encodings = EncodedRows(self.rows, network.to(self.device), used).encodings
        if not encodings.isfinite().all():
            return {}  # a linear model has nothing to say about such rows
        told = probed(encodings.cpu().numpy(), self.values, split, self.target)
        return {"probe": self.target.scores(self.values[split.test], told)}

    def untrained(self) -> Encoder:
        """The encoder that the run's training began with."""
        config, recipe = self.run.config, self.run.recipe
        encoder = build(config, recipe.width, recipe.edge_width).base_encoder.to(self.device)
        if config.calibrate:
            with repeatable(self.device, config.deterministic):
                calibrate(encoder, self.graph)
        return encoder


def _measured(held: Labels, split: Split) -> Target:
    """The target with the mean and scale of the numbers that are learned from."""
    if held.target.task == "classification":
        return held.target
    learned = held.values[split.train]
    spread = float(learned.std())
    return replace(held.target, mean=float(learned.mean()), scale=spread if spread > 0 else 1.0)
