"""Trained encoders to hand on: one small file each, with the scores that can be computed again.

A shipped encoder is a safetensors file: the base encoder's weights (matrices in half precision,
projection heads only where embeddings are read after them), and in its header the settings, the
feature recipe, what it was trained on, with what, and what it scored. The scores are those of the
weights in the file, not of those before rounding.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from lg2ar import seals
from lg2ar.benchmarks import hyperparameters
from lg2ar.checkpoint import check_fit
from lg2ar.config import Config
from lg2ar.data.benchmarks import find_benchmark
from lg2ar.data.dataset import Dataset
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.sources import open_source
from lg2ar.devices import choose_device, device_name
from lg2ar.encoders import Encoder
from lg2ar.errors import InputError, newer_format
from lg2ar.evaluation import embed
from lg2ar.experiment import pretrain
from lg2ar.files import write_bytes
from lg2ar.model import build_base_encoder
from lg2ar.protocols import Reader, read_by
from lg2ar.records import versions
from lg2ar.runs import describe
from lg2ar.training import OnEpoch

FORMAT = 2
UNSEALED = 1  # the format before this one, without a checksum
PROTOCOLS = ("strict", "paper")

# Weights that embeddings before the projection heads do not need.
PROJECTIONS = ("node_projection.", "graph_projection.")

# Another device or version adds up in another order, and a graph at the border of two classes may
# change sides: by how many points a mean over folds may differ before it is not the same.
TOLERANCE = 0.5


@dataclass(frozen=True)
class Claim:
    """What a shipped encoder scored.

    Attributes:
        protocol: How it was read, by name.
        accuracy: Percent in each fold or split.
        untrained: The same of the encoder before training.
    """

    protocol: str
    accuracy: list[float]
    untrained: list[float]

    @property
    def mean(self) -> float:
        """Percent, over folds."""
        return statistics.fmean(self.accuracy)


@dataclass(frozen=True, eq=False)
class ShippedEncoder:
    """A base encoder by itself.

    Attributes:
        config: The settings it was trained with.
        recipe: How its features are made.
        data: What it was trained on.
        versions: What it was trained with.
        device: Where.
        epochs: How many it was trained.
        claims: What it scored.
        encoder: The encoder, ready to embed.
    """

    config: Config
    recipe: FeatureRecipe
    data: dict[str, Any]
    versions: dict[str, str]
    device: str
    epochs: int
    claims: tuple[Claim, ...]
    encoder: Encoder

    def embed(self, dataset: Dataset) -> Tensor:
        """Embed graphs (or the nodes of one large graph), a row each, on the CPU."""
        graph = self.recipe.apply(dataset)
        projected = self.config.embedding == "after"
        return embed(self.encoder, graph, self.config.level, projected=projected)


@dataclass(frozen=True)
class Check:
    """A recorded score beside the one that was computed again.

    Attributes:
        protocol: How both were read.
        recorded: Percent, mean over folds.
        found: Percent, mean over folds.
    """

    protocol: str
    recorded: float
    found: float

    @property
    def holds(self) -> bool:
        """Whether they are the same, but for rounding."""
        return abs(self.recorded - self.found) <= TOLERANCE


def ship(
    name: str,
    path: str | Path,
    *,
    preset: str = "paper",
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    on_start: Callable[[Config, int], None] | None = None,
    on_epoch: OnEpoch | None = None,
) -> ShippedEncoder:
    """Train an encoder on a benchmark data set and write it down with its scores.

    It is the one after the last epoch (node level: of the lowest loss); nothing is selected by a
    score.

    Args:
        name: The data set.
        path: The file to write.
        preset: Named settings to start from.
        settings: What is to differ from them.
        seed: Of everything that is drawn, folds included.
        device: ``auto``, ``cpu`` or ``cuda``.
        on_start: Called with the settings and the number of epochs already done, none.
        on_epoch: Called with each epoch's record.
    """
    level = find_benchmark(name).level
    known = {"level": level, **hyperparameters(name, preset), **(settings or {})}
    config = Config.make(known, seed=seed)
    dataset, target = open_source(name), choose_device(device)
    reader = Reader(dataset, seed, target)
    start = pretrain(dataset, config.replace(epochs=0), device=target)
    before = start.embed(dataset)
    run = pretrain(dataset, config, device=target, on_start=on_start, on_epoch=on_epoch)
    weights = {
        key: _small(value)
        for key, value in run.model.base_encoder.state_dict().items()
        if config.embedding == "after" or not key.startswith(PROJECTIONS)
    }
    shipped = ShippedEncoder(
        config=run.config,
        recipe=run.recipe,
        data={**describe(dataset), "source": name},
        versions=versions(),
        device=device_name(target),
        epochs=len(run.history),
        claims=(),
        encoder=_build(run.config, run.recipe, weights).to(target),
    )
    rows = shipped.embed(dataset)
    claims = [
        Claim(protocol, reader.accuracy(protocol, rows), reader.accuracy(protocol, before))
        for protocol in PROTOCOLS
    ]
    _write(Path(path), shipped, weights, claims)
    return read_encoder(path)


def read_encoder(path: str | Path) -> ShippedEncoder:
    """Read a shipped encoder.

    Raises:
        InputError: Naming the file, where it is not one or is damaged.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        with safe_open(path, framework="pt") as file:
            head = json.loads((file.metadata() or {})["lg2ar"])
        weights = load(content)
        _check_whole(head["format"], content)
        config, recipe = Config.stored(head["config"]), FeatureRecipe.from_dict(head["recipe"])
        return ShippedEncoder(
            config=config,
            recipe=recipe,
            data=head["data"],
            versions=head["versions"],
            device=head["device"],
            epochs=head["epochs"],
            claims=tuple(_claim(claim, head["config"]) for claim in head["claims"]),
            encoder=_build(config, recipe, weights),
        )
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such encoder; make it with 'lg2ar ship'.") from None
    except (
        OSError,
        SafetensorError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:
        if isinstance(error, InputError):
            raise InputError(f"{path}: {error}") from None
        raise InputError(f"{path}: not a shipped encoder, or a damaged one ({error}).") from None


def _claim(told: Mapping[str, Any], config: Mapping[str, Any]) -> Claim:
    claim = Claim(**told)
    return replace(claim, protocol=read_by(claim.protocol, str(config.get("level")), config))


def _check_whole(found: object, content: bytes) -> None:
    if told := newer_format(found, FORMAT):
        raise InputError(told)
    sealed = seals.has_seal(content)
    if found not in (FORMAT, UNSEALED) or sealed != (found == FORMAT):
        raise InputError(f"not a shipped encoder, or a damaged one (format {found!r:.20}).")
    if sealed and not seals.is_whole(content):
        raise InputError(
            "damaged (its SHA-256 is not the recorded one); restore the file, or make it again "
            "with 'lg2ar ship'."
        )


def verify(path: str | Path, *, device: str = "auto") -> list[Check]:
    """Compute the scores of a shipped encoder again and put them beside the recorded ones.

    Raises:
        InputError: Where the data is not what the encoder was scored on.
    """
    shipped, target = read_encoder(path), choose_device(device)
    name = str(shipped.data.get("source"))
    dataset = open_source(name)
    if dataset.fingerprint() != shipped.data.get("fingerprint"):
        raise InputError(
            f"{path}: was scored on other data than the '{name}' that is here; see "
            "'lg2ar datasets --check'."
        )
    shipped.encoder.to(target)
    rows = shipped.embed(dataset)
    reader = Reader(dataset, shipped.config.seed, target)
    return [
        Check(
            claim.protocol,
            claim.mean,
            statistics.fmean(reader.accuracy(claim.protocol, rows)),
        )
        for claim in shipped.claims
    ]


def _small(value: Tensor) -> Tensor:
    """A matrix in half precision; what it could not hold, and statistics, as they are."""
    value = value.detach().cpu().contiguous()
    half = value.is_floating_point() and value.dim() > 1 and float(value.abs().max()) < 6e4
    return value.half() if half else value


def _build(config: Config, recipe: FeatureRecipe, weights: Mapping[str, Tensor]) -> Encoder:
    if config.embedding == "before" and not any(key.startswith(PROJECTIONS) for key in weights):
        config = config.replace(projection=False)
    check_fit(lambda: build_base_encoder(config, recipe.width, recipe.edge_width), weights)
    encoder = build_base_encoder(config, recipe.width, recipe.edge_width)
    encoder.load_state_dict(
        {
            key: value.float() if value.is_floating_point() else value
            for key, value in weights.items()
        }
    )
    return encoder.eval()


def _write(
    path: Path,
    shipped: ShippedEncoder,
    weights: Mapping[str, Tensor],
    claims: Sequence[Claim],
) -> None:
    head = {
        "format": FORMAT,
        "config": shipped.config.to_dict(),
        "recipe": shipped.recipe.to_dict(),
        "data": shipped.data,
        "versions": shipped.versions,
        "device": shipped.device,
        "epochs": shipped.epochs,
        "claims": [asdict(claim) for claim in claims],
    }
    about = {"lg2ar": json.dumps(head, allow_nan=False), seals.KEY: seals.OPEN}
    content = save(dict(weights), metadata=about)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, seals.close(content))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None
