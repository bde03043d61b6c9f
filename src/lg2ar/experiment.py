"""From a source of graphs to a trained run, and from a run to embeddings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lg2ar import checkpoint as checkpoints
from lg2ar.checkpoint import Checkpoint
from lg2ar.config import Config
from lg2ar.data.batches import Store, as_store
from lg2ar.data.dataset import Dataset
from lg2ar.data.egonets import EgoNets
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.sources import Source, open_source
from lg2ar.devices import choose_device, sensible_threads
from lg2ar.errors import InputError
from lg2ar.evaluation import calibrate
from lg2ar.fast.suitability import settle_step
from lg2ar.files import alone_in
from lg2ar.graph import GraphBatch
from lg2ar.methods import build
from lg2ar.processes import PRECISIONS, Processes, join, multiply_in_bfloat16
from lg2ar.records import EpochRecord, versions
from lg2ar.runs import Run, describe, embed_rows, recipe_that_fits
from lg2ar.sampling import repeatable
from lg2ar.shortage import naming_settings
from lg2ar.training import Batches, OnEpoch, Trainer

# Settings that may differ when a run is taken up again: they say how long, not what.
RESUMABLE = ("epochs", "patience", "checkpoint_every")

# Given an epoch's number and the embeddings that the run would give then.
OnEmbeddings = Callable[[int, Tensor], None]
# Given an epoch's number and the run as it is then.
OnRun = Callable[[int, "Run"], None]


def pretrain(
    source: Source,
    config: Config | Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    replace: bool = False,
    device: str | torch.device = "auto",
    on_epoch: OnEpoch | None = None,
    on_start: Callable[[Config, int], None] | None = None,
    embed_at: Collection[int] = (),
    on_embeddings: OnEmbeddings | None = None,
    on_run: OnRun | None = None,
    devices: int | None = None,
    nodes: int | None = None,
    strategy: str | None = None,
    precision: str | None = None,
) -> Run:
    """Learn embeddings of graphs, or of the nodes of one large graph, without labels.

    Args:
        source: Where the graphs come from: see :func:`~lg2ar.data.sources.open_source`.
        config: The settings, as a :class:`~lg2ar.config.Config` or by key. ``level`` follows the
            source where it is not given.
        out: Folder to keep the run in; None keeps nothing.
        resume: Go on with the run in ``out``, if there is one; settings that are not given are
            then the run's own.
        replace: Put this run in the place of the one in ``out``, if there is one.
        device: ``auto``, ``cpu`` or ``cuda``.
        on_epoch: Called with each epoch's record.
        on_start: Called with the settings and the number of epochs already done.
        embed_at: Epochs at whose end embeddings are wanted; 0 is before the first one. What
            training does afterwards does not depend on it.
        on_embeddings: Called with each of these epochs and its embeddings.
        on_run: Called with each of these epochs and the run as it is then.
        devices: How many processes on each machine share out every batch (docs/scaling.md); they
            are started unless ``torchrun`` or SLURM did so. Only the first of them writes to
            ``out`` and makes these calls; all return the run.
        nodes: On how many machines.
        strategy: ``ddp``, the only one there is.
        precision: ``32``, or ``bf16-mixed`` for linear layers, and nothing else, that multiply in
            bfloat16; None leaves it to the settings.

    Returns:
        The run, its model on the device it was trained on.

    Raises:
        InputError: When source, settings or folder cannot be worked with.
        NonFiniteLossError: When training broke down; ``out`` then holds the last good state.
        MemoryShortageError: When memory did not suffice; the same holds.
        LostProcessError: When another of the processes failed.

    Examples:
        >>> from lg2ar.data.toy import toy_graphs
        >>> settings = {"epochs": 1, "hidden": 8, "layers": 2}
        >>> run = pretrain(toy_graphs(20), settings, device="cpu")
        >>> run.embed(toy_graphs(5)).shape  # graphs it may not have seen
        torch.Size([5, 16])
    """
    processes = join(choose_device(device), devices, nodes, strategy)
    writes = out is not None and processes.main
    with processes.guarding(), alone_in(str(out)) if writes else nullcontext():
        return _pretrain(
            open_source(source),
            _with_precision(config, precision),
            processes,
            out=out,
            resume=resume,
            replace=replace,
            on_epoch=on_epoch,
            on_start=on_start,
            embed_at=embed_at,
            on_embeddings=on_embeddings,
            on_run=on_run,
        )


def _pretrain(
    dataset: Dataset,
    config: Config | Mapping[str, Any] | None,
    processes: Processes,
    *,
    out: str | Path | None,
    resume: bool,
    replace: bool,
    on_epoch: OnEpoch | None,
    on_start: Callable[[Config, int], None] | None,
    embed_at: Collection[int],
    on_embeddings: OnEmbeddings | None,
    on_run: OnRun | None,
) -> Run:
    """Train as one of some processes, of which the first writes and makes the calls."""
    target, main = processes.device, processes.main
    earlier = _earlier_run(out, resume=resume, replace=replace) if main or resume else None
    config = _complete(config, dataset, earlier)
    if earlier is not None:
        config = _as_begun(config, earlier)
        _check_same(str(out), earlier, config, dataset)
    recipe = FeatureRecipe.of(config, dataset)
    graph = recipe.apply(dataset)
    settled = settle_step(config, graph, target, processes.size)
    if earlier is not None and settled.step != config.step:
        raise InputError(
            f"{out}: was trained with step = '{config.step}', which cannot be done here; resume it "
            "where it was begun, or choose another folder."
        )
    config = settled
    with naming_settings(target, **_memory(config)):
        trainer = _make_trainers([config], graph, target)[0]
    trainer.team = processes.team
    if earlier is not None:
        _take_up(str(out), trainer, earlier, config.epochs)
    processes.agree("settings", config.to_json())
    processes.agree("data", dataset.fingerprint())
    processes.agree(f"state of the run ({out})", trainer.epoch, trainer.best_loss)
    if on_start is not None and main:
        on_start(config, trainer.epoch)
    run = _new_run(config, recipe, dataset, trainer)

    def save() -> None:
        if out is not None and main:
            try:
                _update(run, trainer, store)
            finally:  # what training needs to go on is kept even where the data is gone by now
                _save(out, run, trainer)

    def look(epoch: int) -> None:
        if main and epoch in embed_at and (on_embeddings is not None or on_run is not None):
            _update(run, trainer, store)
            show(epoch)

    def show(epoch: int) -> None:
        if on_embeddings is not None:
            on_embeddings(epoch, embed_rows(run, store, dataset.name))
        if on_run is not None:
            on_run(epoch, run)

    def after_epoch(record: EpochRecord) -> None:
        if on_epoch is not None and main:
            on_epoch(record)
        look(record.epoch)

    with sensible_threads(graph, config, target), naming_settings(target, **_memory(config)):
        store = as_store(graph, target)
        if earlier is None:
            save()  # so that a folder that cannot be written is found now, not after the work
            look(0)
        trainer.fit(
            make_batches(store, config),
            config.epochs,
            on_epoch=after_epoch,
            on_checkpoint=save,
            checkpoint_every=config.checkpoint_every,
        )
        if out is None or not main:
            _update(run, trainer, store)
        if main and trainer.stopped_early and trainer.epoch not in embed_at:
            show(trainer.epoch)
    return run


def _with_precision(
    config: Config | Mapping[str, Any] | None, precision: str | None
) -> Config | Mapping[str, Any] | None:
    """The settings with the precision that was asked for."""
    if precision is None:
        return config
    if precision not in PRECISIONS:
        raise InputError(f"precision = '{precision}' must be one of {', '.join(PRECISIONS)}.")
    wanted = {"precision": PRECISIONS[precision]}
    return config.replace(**wanted) if isinstance(config, Config) else {**(config or {}), **wanted}


def pretrain_many(
    source: Source,
    config: Config | Mapping[str, Any] | None,
    seeds: Sequence[int],
    *,
    device: str | torch.device = "auto",
    on_epoch: Callable[[int, EpochRecord], None] | None = None,
    embed_at: Collection[int] = (),
    on_embeddings: Callable[[int, int, Tensor], None] | None = None,
) -> list[Run]:
    """Train runs of one setting that differ in their seeds; nothing is kept in folders.

    With the captured step they are trained together, which takes far less time than one after the
    other; each becomes what it would have become alone (docs/performance.md).

    Args:
        source: Where the graphs come from.
        config: The settings.
        seeds: One a run; the config's own does not count.
        device: ``auto``, ``cpu`` or ``cuda``.
        on_epoch: Called with the place of a run among ``seeds`` and each of its epochs' record.
        embed_at: Epochs at whose end embeddings are wanted; 0 is before the first one.
        on_embeddings: Called with the place of a run, each of these epochs and its embeddings.

    Returns:
        The runs, in the order of the seeds.

    Raises:
        InputError: When source or settings cannot be worked with.
        NonFiniteLossError: When one of them broke down, which ends them all.
    """
    dataset = open_source(source)
    target = choose_device(device)
    config = _complete(config, dataset, None)
    recipe = FeatureRecipe.of(config, dataset)
    graph = recipe.apply(dataset)
    settled = settle_step(config, graph, target)
    configs = [settled.replace(seed=seed) for seed in seeds]
    if not configs:
        return []
    if configs[0].step != "captured" or configs[0].patience or len(configs) == 1:
        return [
            pretrain(
                dataset,
                own,
                device=target,
                on_epoch=None if on_epoch is None else partial(on_epoch, place),
                embed_at=embed_at,
                on_embeddings=None if on_embeddings is None else partial(on_embeddings, place),
            )
            for place, own in enumerate(configs)
        ]
    trainers = _make_trainers(configs, graph, target)
    runs = [
        _new_run(own, recipe, dataset, trainer)
        for own, trainer in zip(configs, trainers, strict=True)
    ]
    store = as_store(graph, target)

    def look(epoch: int) -> None:
        if on_embeddings is not None and epoch in embed_at:
            for place, (run, trainer) in enumerate(zip(runs, trainers, strict=True)):
                _update(run, trainer, store)
                on_embeddings(place, epoch, embed_rows(run, store, dataset.name))

    from lg2ar.fast.trainer import CapturedTrainer, run_epoch_together

    together = [trainer for trainer in trainers if isinstance(trainer, CapturedTrainer)]
    look(0)
    for epoch in range(1, config.epochs + 1):
        for place, record in enumerate(run_epoch_together(together)):
            if on_epoch is not None:
                on_epoch(place, record)
        look(epoch)
    for run, trainer in zip(runs, trainers, strict=True):
        _update(run, trainer, store)
    return runs


def _memory(config: Config) -> dict[str, int]:
    """The settings that a step's memory grows with."""
    names = ["batch_size", "hidden", "layers"] + (["hops"] if config.level == "node" else [])
    return {name: getattr(config, name) for name in names}


def _new_run(config: Config, recipe: FeatureRecipe, dataset: Dataset, trainer: Trainer) -> Run:
    """What a trainer's run is going to be; its model is brought up to date when it is looked at."""
    return Run(
        config=config,
        recipe=recipe,
        model=build(config, recipe.width, recipe.edge_width).to(trainer.device).eval(),
        history=trainer.history,
        data=describe(dataset),
        versions=versions(),
    )


def _make_trainers(
    configs: Sequence[Config], graph: GraphBatch, device: torch.device
) -> list[Trainer]:
    widths = graph.num_features, graph.num_edge_features
    models = [build(config, *widths).to(device) for config in configs]
    if configs[0].precision == "bf16-mixed":
        for model in models:
            multiply_in_bfloat16(model, device)
    if configs[0].step == "captured" and configs[0].epochs:
        from lg2ar.fast.trainer import captured_trainers  # needs Triton

        return list(captured_trainers(models, configs, graph, device))
    return [
        Trainer(
            model,
            learning_rate=config.learning_rate,
            weight_decay=config.weight_decay,
            clip=config.clip,
            patience=config.patience,
            seed=config.seed,
            deterministic=config.deterministic,
        )
        for model, config in zip(models, configs, strict=True)
    ]


def make_batches(store: Store, config: Config) -> Batches:
    """What an epoch consists of: all graphs in batches, or one batch of sub-graphs (A.2)."""
    if config.level == "node":
        nets = EgoNets(store.graph, config.hops, store.graph.device, config.fanout)
        return lambda seed: [nets.draw(config.batch_size, seed)]
    return lambda seed: store.epoch(config.batch_size, seed)


def _complete(
    config: Config | Mapping[str, Any] | None, dataset: Dataset, earlier: Checkpoint | None
) -> Config:
    """Fill in what was not given, from an earlier run or the data, and see that it fits."""
    if not isinstance(config, Config):
        known = {"level": dataset.level} if earlier is None else earlier.config.to_dict()
        config = Config.make({**known, **(config or {})})
    if config.level == "node" and dataset.graph.num_graphs != 1:
        raise InputError(
            f"{dataset.name} holds {dataset.graph.num_graphs} graphs; level = 'node' takes one "
            "large one."
        )
    units = dataset.graph.num_graphs if config.level == "graph" else dataset.graph.num_nodes
    if units < 2 and config.negatives == "graphs":
        raise InputError(
            f"{dataset.name} holds one {config.level} only, which leaves no other to contrast it "
            "with; give it more, or set negatives = 'shuffled'."
        )
    return config


def _earlier_run(out: str | Path | None, *, resume: bool, replace: bool) -> Checkpoint | None:
    if out is None or not checkpoints.exists(out) or replace:
        return None
    if not resume:
        raise InputError(f"{out}: already holds a run; resume it (--resume) or choose another.")
    held = checkpoints.read(out, with_training=True)
    try:
        recipe_that_fits(held)
    except (TypeError, KeyError, ValueError, AttributeError, RuntimeError):
        raise InputError(
            f"{out}: its weights do not fit its settings; restore the folder or train again."
        ) from None
    return held


def _as_begun(config: Config, earlier: Checkpoint) -> Config:
    """Take steps as the run did so far, unless told otherwise; plainly, if it does not say."""
    if config.step != "auto":
        return config
    if earlier.config.step != "captured":
        return config.replace(step="plain", precision=earlier.config.precision)
    return config.replace(step="captured")


def _check_same(out: str, earlier: Checkpoint, config: Config, dataset: Dataset) -> None:
    old, new = earlier.config.to_dict(), config.to_dict()
    if old["step"] == "auto":  # written before there was a choice
        old |= {"step": new["step"], "precision": new["precision"]}
    changed = [key for key in new if key not in RESUMABLE and old[key] != new[key]]
    if changed:
        key = changed[0]
        raise InputError(
            f"{out}: was trained with {key} = {old[key]!r}, not {new[key]!r}; resume it with the "
            "same settings, or choose another folder."
        )
    if earlier.data.get("fingerprint") != dataset.fingerprint():
        raise InputError(
            f"{out}: was trained on other data ({earlier.data.get('name')}); resume it with the "
            "same, or choose another folder."
        )


def _take_up(out: str, trainer: Trainer, earlier: Checkpoint, epochs: int) -> None:
    try:
        trainer.restore(earlier.training, earlier.progress)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError):
        raise InputError(
            f"{out}: what it holds to resume from does not fit its settings; restore the folder or "
            "train again."
        ) from None
    if trainer.epoch > epochs:
        raise InputError(f"{out}: has {trainer.epoch} epochs already; epochs = {epochs} is fewer.")


def _update(run: Run, trainer: Trainer, store: Store) -> None:
    """Bring the run's own model to what the trainer has to show so far."""
    run.model.load_state_dict(trainer.result())
    if run.config.calibrate:
        with repeatable(trainer.device, run.config.deterministic):
            calibrate(run.model.base_encoder, store)


def _save(out: str | Path, run: Run, trainer: Trainer) -> None:
    tensors, progress = trainer.state()
    checkpoints.write(
        out,
        Checkpoint(
            config=run.config,
            recipe=run.recipe.to_dict(),
            data=run.data,
            versions=run.versions,
            progress=progress,
            finished=trainer.epoch >= run.config.epochs or trainer.stopped_early,
            model=run.model.state_dict(),
            training=tensors,
        ),
    )
