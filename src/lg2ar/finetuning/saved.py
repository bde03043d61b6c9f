"""A fine-tuned network with all that its predictions need, in memory and in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lg2ar import checkpoint as checkpoints
from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.reading import ReadOptions
from lg2ar.data.sources import Source, open_source
from lg2ar.devices import choose_device, sensible_threads
from lg2ar.errors import InputError
from lg2ar.finetuning.early_stopping import TunedEpoch, TuningSettings, predict_rows
from lg2ar.finetuning.network import Network, Rows
from lg2ar.finetuning.targets import Target
from lg2ar.frames import row_ids, write_arrays, write_frame
from lg2ar.methods import build

if TYPE_CHECKING:
    import pandas as pd

FILE = "finetuned.json"


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a fine-tuned network tells about graphs (or nodes).

    Attributes:
        ids: What they are called, ``[n]``.
        values: Names of classes, or numbers, ``[n]``.
        probabilities: Of each class, ``[n, classes]``; None where numbers are predicted.
        classes: Names of the classes.
    """

    ids: NDArray[Any]
    values: NDArray[Any]
    probabilities: NDArray[np.float64] | None = None
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def frame(self) -> pd.DataFrame:
        """As a table: ``id``, ``prediction`` and, for classes, ``p(NAME)`` of each."""
        import pandas as pd

        columns: dict[str, NDArray[Any]] = {"id": self.ids, "prediction": self.values}
        if self.probabilities is not None:
            for place, name in enumerate(self.classes):
                columns[f"p({name})"] = self.probabilities[:, place]
        return pd.DataFrame(columns)

    def write(self, path: str | Path) -> None:
        """Write a ``.csv``, ``.parquet`` or ``.npz`` file, whole or not at all.

        In an ``.npz`` file ``probability`` is one array ``[n, classes]`` beside ``classes``.
        """
        if Path(path).suffix != ".npz" or self.probabilities is None:
            write_frame(Path(path), self.frame())
            return
        arrays = {"id": self.ids, "prediction": self.values, "probability": self.probabilities}
        write_arrays(Path(path), arrays | {"classes": np.array(self.classes)})


@dataclass(frozen=True, eq=False)
class FineTuned:
    """A fine-tuned network and all that belongs to it.

    Attributes:
        config: The settings of the run it began as.
        recipe: How features are made.
        target: What it tells.
        network: Encoder and head.
        settings: How it was fine-tuned.
        history: One record per epoch.
        scores: On held-out rows, by name: ``pretrained``, and beside it what a linear ``probe`` of
            the encoder as it was reaches, where labels are few, what an ``untrained`` encoder that
            was fine-tuned the same way does, and ``no graph``, a guess from the labels alone.
        rows: How many rows were learned from, stopped training, were held out.
        data: What it was fine-tuned on.
        versions: What it was made with.
        reading: How its sources are read, as the run remembers it.
        asked: What it was made from and how, by which a fine-tuning that goes on knows its own.
    """

    config: Config
    recipe: FeatureRecipe
    target: Target
    network: Network
    settings: TuningSettings
    history: list[TunedEpoch]
    scores: dict[str, dict[str, float]]
    rows: dict[str, int]
    data: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """The epoch whose weights were kept: the one of the lowest validation loss."""
        return min(self.history, key=lambda record: record.validation_loss).epoch

    def predict(self, source: Source, **options: Any) -> Predictions:
        """Predict the classes or numbers of graphs (or nodes), seen before or not.

        Args:
            source: Where they come from.
            **options: How the source is to be read.
        """
        dataset = open_source(source, self.config.level, ReadOptions.make(options), self.reading)
        graph = self.recipe.apply(check_level(dataset, self.config))
        device = next(self.network.parameters()).device
        with sensible_threads(graph, self.config, device):
            rows = Rows(graph, self.config.level, device)
            every = np.arange(len(dataset))
            told = predict_rows(self.network, rows, every, self.target, self.config.deterministic)
        ids = row_ids(dataset)
        broken = np.flatnonzero(~np.isfinite(told.reshape(len(told), -1)).all(1))
        if len(broken):
            raise InputError(
                f"{dataset.name}: what is told about {self.config.level} {ids[broken[0]]} is not "
                "finite; its features or edge weights are far outside what was trained on."
            )
        if self.target.task == "regression":
            return Predictions(ids, told)
        names = np.array(self.target.classes, dtype=object)
        return Predictions(ids, names[told.argmax(1)], told, self.target.classes)

    def made_from(self) -> dict[str, Any]:
        """What it was made from and how; of one of an earlier version, what can be seen of it."""
        return {
            "data": self.data.get("fingerprint"),
            "labels": self.target.column,
            "task": self.target.task,
            "floor": "untrained" in self.scores,
            **self.settings.to_dict(),
            **made_as(self.config, self.rows),
            **self.asked,
        }

    def save(self, folder: str | Path) -> None:
        """Keep it in a folder; what is there stays until the new one is whole."""
        head = {
            "config": self.config.to_dict(),
            "recipe": self.recipe.to_dict(),
            "target": self.target.to_dict(),
            "settings": self.settings.to_dict(),
            "history": [asdict(record) for record in self.history],
            "scores": self.scores,
            "rows": self.rows,
            "data": self.data,
            "versions": self.versions,
            "reading": dict(self.reading),
            "asked": dict(self.asked),
        }
        parts = {"network": self.network.state_dict()}
        checkpoints.write_folder(folder, FILE, head, parts)


def load_finetuned(folder: str | Path, device: str | torch.device = "auto") -> FineTuned:
    """Read a folder that :meth:`FineTuned.save` wrote, checking it against its SHA-256.

    Args:
        folder: The folder.
        device: Where the network is to be.

    Raises:
        InputError: Naming what is missing, damaged or of another format.
    """
    path, place = Path(folder) / FILE, choose_device(device)
    return checkpoints.read_steadily(path, lambda: _read(folder, place))


def _read(folder: str | Path, place: torch.device) -> FineTuned:
    head = checkpoints.read_head(folder, FILE, "lg2ar finetune")
    try:
        config = Config.stored(head["config"])
        recipe = FeatureRecipe.from_dict(head["recipe"])
        target = Target.from_dict(head["target"])
        settings = TuningSettings(**head["settings"])
        asked = head.get("asked", {})  # which earlier versions did not write down
        weights = checkpoints.read_part(folder, FILE, head, "network")
        objects = ("scores", "rows", "data", "versions", "reading")
        if not all(isinstance(item, dict) for item in (*map(head.get, objects), asked)):
            raise TypeError("a part of the wrong kind")
        checkpoints.check_fit(lambda: make_network(config, recipe, target, settings), weights)
        network = make_network(config, recipe, target, settings)
        network.load_state_dict(weights)
        return FineTuned(
            config=config,
            recipe=recipe,
            target=target,
            network=network.to(place).eval(),
            settings=settings,
            history=TunedEpoch.read(head["history"]),
            scores=head["scores"],
            rows=head["rows"],
            data=head["data"],
            versions=head["versions"],
            reading=head["reading"],
            asked=asked,
        )
    except InputError as error:
        if str(error).startswith(str(Path(folder))):
            raise
        raise InputError(f"{Path(folder) / FILE}: {error}") from None  # settings do not say whose
    except (KeyError, TypeError, AttributeError, RuntimeError):
        raise InputError(
            f"{Path(folder) / FILE}: damaged, a part of it is missing or does not fit the rest; "
            "restore the folder or fine-tune again."
        ) from None


def make_network(
    config: Config, recipe: FeatureRecipe, target: Target, settings: TuningSettings
) -> Network:
    """The network that settings describe, on an encoder as it is before any training."""
    encoder = build(config, recipe.width, recipe.edge_width).base_encoder
    return Network(
        encoder,
        target.outputs,
        settings.hidden,
        settings.dropout,
        config.level,
        frozen=settings.freeze,
    )


def made_as(config: Config, rows: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the run, and numbers of rows, in the words of an error."""
    return {f"the run's {key}": value for key, value in config.to_dict().items()} | {
        f"rows {key}": number for key, number in rows.items()
    }


def check_level(dataset: Dataset, config: Config) -> Dataset:
    """The data set, once it is clear that a network of this level can read it."""
    if config.level == "node" and dataset.graph.num_graphs != 1:
        raise InputError(
            f"{dataset.name} holds {dataset.graph.num_graphs} graphs, but the model reads the "
            "nodes of one large graph; give it one."
        )
    return dataset
