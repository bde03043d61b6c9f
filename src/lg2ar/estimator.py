"""The scikit-learn front door: graphs in, embeddings out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from lg2ar import checkpoint as checkpoints
from lg2ar.config import Level
from lg2ar.data.dataset import Dataset
from lg2ar.data.reading import ReadOptions
from lg2ar.data.sources import open_source
from lg2ar.errors import InputError
from lg2ar.experiment import pretrain
from lg2ar.runs import Run, load

# Settings that are parameters of the estimator itself, so that a grid may run over them.
OWN = ("epochs", "hidden", "layers", "batch_size", "learning_rate", "features")


class LG2AREmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Embeds graphs, or the nodes of one large graph, as a scikit-learn transformer.

    ``X`` may be

    - a list (or an object array) of PyG or NetworkX graphs, or of SMILES: a sample each, so that
      cross-validation may slice it;
    - one PyG or NetworkX graph, whose nodes are the samples;
    - tables: a path, a frame of edges, or a tuple of frames ``(nodes, edges)`` or
      ``(nodes, edges, graphs)``;
    - anything else that :func:`lg2ar.read` reads, and an :class:`lg2ar.Dataset`.

    Labels are never looked at. To try many classifiers on one embedding, give the pipeline a
    ``memory``, or wrap a fitted embedder in :class:`sklearn.frozen.FrozenEstimator`.

    Args:
        level: ``graph`` or ``node``; None follows the data.
        epochs: See :class:`lg2ar.Config`, for this and the five below; None is the usual value.
        hidden: Width of the encodings.
        layers: Layers of the encoders.
        batch_size: Graphs in a batch.
        learning_rate: Adam's.
        features: How node features are made.
        settings: Further settings by key.
        reading: How ``X`` is read, by option: see :func:`lg2ar.read`.
        pretrained: A run folder; fitting then reads it, and trains nothing.
        device: ``auto``, ``cpu`` or ``cuda``.
        random_state: Fixes everything that is drawn.

    Attributes:
        run_: The :class:`lg2ar.Run`.
        n_features_out_: Width of an embedding.

    Examples:
        >>> from lg2ar import LG2AREmbedder
        >>> from lg2ar.data.toy import toy_graphs
        >>> embedder = LG2AREmbedder(epochs=1, hidden=8, layers=2, device="cpu")
        >>> embedder.fit_transform(toy_graphs(20)).shape
        (20, 16)
    """

    def __init__(
        self,
        *,
        level: Level | None = None,
        epochs: int | None = None,
        hidden: int | None = None,
        layers: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        features: str | None = None,
        settings: Mapping[str, Any] | None = None,
        reading: Mapping[str, Any] | None = None,
        pretrained: str | Path | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.level = level
        self.epochs = epochs
        self.hidden = hidden
        self.layers = layers
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.features = features
        self.settings = settings
        self.reading = reading
        self.pretrained = pretrained
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn embeddings of graphs without labels.

        Args:
            X: Graphs, see above.
            y: Not looked at.
        """
        if self.pretrained is not None:
            self.run_ = load(self.pretrained, self.device)
        else:
            dataset = self._read(X, self.level)
            self.run_ = pretrain(dataset, self._settings(dataset), device=self.device)
        self.n_features_out_ = _width(self.run_)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Embed graphs, seen in training or not.

        Args:
            X: Graphs, see above.

        Returns:
            A row per graph (or node).
        """
        check_is_fitted(self, "run_")
        rows: NDArray[np.float32] = self.run_.embed(
            self._read(X, self.run_.config.level, self.run_.reading)
        ).numpy()
        return rows

    def save(self, folder: str | Path) -> None:
        """Keep what was learned as a run folder, which every command of ``lg2ar`` reads.

        What is there stays until the new run is whole.
        """
        check_is_fitted(self, "run_")
        save_run(folder, self.run_)

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Self:
        """An embedder fitted with a run folder, whoever wrote it."""
        return cls(pretrained=folder, device=device).fit(None)

    @property
    def _n_features_out(self) -> int:
        """What get_feature_names_out counts."""
        return self.n_features_out_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # a sample is a graph
        tags.input_tags.string = True  # or a SMILES
        tags.no_validation = True  # by scikit-learn: what graphs must be is checked while reading
        tags.transformer_tags.preserves_dtype = []  # embeddings are float32, whatever graphs are
        return tags

    def _settings(self, dataset: Dataset) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in OWN if getattr(self, name) is not None}
        more = dict(self.settings or {})
        for name in more:
            if name in ("seed", "level", *OWN):
                said = "random_state" if name == "seed" else name
                raise InputError(f"settings hold '{name}'; give it as {said} instead.")
        state = self.random_state
        seed = state if isinstance(state, int | np.integer) else _drawn(state)
        return {"level": self.level or dataset.level, "seed": int(seed), **own, **more}

    def _read(self, X: Any, level: Level | None, usual: Mapping[str, Any] | None = None) -> Dataset:
        """Graphs of whatever kind as a data set, a row of which is a sample."""
        options = dict(self.reading or {})
        if isinstance(X, Dataset):
            return open_source(X, level)
        if isinstance(X, tuple) and 2 <= len(X) <= 3 and all(_is_frame(part) for part in X):
            options |= {"nodes": X[0], **({"graphs": X[2]} if len(X) == 3 else {})}
            X = X[1]
        elif _is_collection(X):
            X = list(X)
            level = level or "graph"  # even where it is but one
            if not X:
                raise InputError("the list of graphs is empty; give at least one.")
            if all(isinstance(item, str) for item in X):
                options.setdefault("strict", True)  # or rows would not belong to samples
        return open_source(X, level, ReadOptions.make(options), usual)


def save_run(folder: str | Path, run: Run) -> None:
    """Write a run to a folder; it can be used there, but not trained further."""
    checkpoints.write(
        folder,
        checkpoints.Checkpoint(
            config=run.config,
            recipe=run.recipe.to_dict(),
            data=run.data,
            versions=run.versions,
            progress={
                "best_epoch": len(run.history),
                "best_loss": None,
                "history": [record.to_dict() for record in run.history],
            },
            finished=True,
            model=run.model.state_dict(),
            training={},
        ),
    )


def _width(run: Run) -> int:
    return run.model.base_encoder.width(projected=run.config.embedding == "after")


def _drawn(state: np.random.RandomState | None) -> int:
    return int(check_random_state(state).randint(2**31))


def _is_frame(thing: Any) -> bool:
    return hasattr(thing, "columns") and hasattr(thing, "iloc")


def _is_collection(X: Any) -> bool:
    """Whether it is one sample after the other, and no single graph, table or path."""
    if isinstance(X, list | tuple):
        return True
    array = isinstance(X, np.ndarray) and X.dtype.kind in "OU" and X.ndim == 1
    series = hasattr(X, "iloc") and not hasattr(X, "columns")
    return array or series
