"""All settings of a run: frozen, typed, with flat keys in the paper's words."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import numbers
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lg2ar import plugins
from lg2ar.errors import InputError

Level = Literal["graph", "node"]

# Settings that say how steps are done, which a run settles itself where it is left open. Runs that
# differ in them alone are of the same settings: a study may be begun on one device and ended on
# another.
HOW = ("step", "precision")

HEAD_NAMES = ("identity", "node-dropping", "edge-perturbation", "sub-graph", "feature-masking")


def _one_of(default: str, *choices: str) -> Any:
    return field(default=default, metadata={"choices": choices})


def _within(default: float, low: float, high: float, *, open_low: bool = False) -> Any:
    return field(default=default, metadata={"range": (low, high, open_low)})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a run.

    Make one with :meth:`make`, which also fills in what depends on the level. Keys that the paper
    leaves open carry the number of the decision in ``docs/paper.md``. ``policy``, ``heads``,
    ``discriminator`` and ``bound`` may also name parts of one's own (:mod:`lg2ar.plugins`).

    Attributes:
        level: ``graph`` to embed graphs, ``node`` to embed the nodes of one large graph.
        method: ``lg2ar``, or one of the controls in ``lg2ar.methods`` made from the same parts.
        policy: Which policy draws the augmentations.
        heads: The augmentations to draw from, any subset, in any order.
        contrast: Nodes of one view with graphs of the other, or graphs with graphs (D3).
        discriminator: How a pair of encodings is scored.
        bound: Which estimate of mutual information is maximised.
        negatives: What a pair is told apart from: the other graphs of the batch, or the same
            graphs with shuffled features (D16).
        normalisation: What the objective averages over: ``graphs`` first within each graph and
            then over them (Eq. 1), ``pairs`` all node-graph pairs alike (InfoGraph),
            ``graph-pairs`` all pairs of graphs, positive and negative together (Algorithm 1) (D2).
        bound_temperature: The temperature of NT-Xent.
        hidden: Width of the encodings.
        layers: Layers of the augmentation encoder, and of the base encoder at graph level.
        base_encoder: ``gin`` or ``gcn``; the level's own by default.
        base_layers: Layers of the base encoder; 0 means ``layers``.
        gcn_output: What is read of a GCN: its ``last`` layer, all its ``layers`` side by side, as
            always of a GIN, or ``features-and-layers``, with a node's own features, brought to the
            same width, beside them (D12).
        smoothing: How many times a GCN's rows are mixed with those of neighbours after its last
            layer, as in a layer but with nothing to learn (D15). A GIN has none of it.
        readout: How the base encoder makes a graph's row of its nodes; the level's own by default.
            ``log-sum`` is the sum with each number x replaced by ``sign(x) log(1 + |x|)`` (D15).
        projection: Whether the base encoder has projection heads; the level's own by default.
        embedding: Whether embeddings are read before the projection heads or after (D12).
        averaged_features: How many times features are averaged over neighbours, as a graph
            convolution does, before they are handed out beside a node's rows; 0 leaves them out.
            Training does not feel it. At node level alone (D12).
        embedding_scale: On what scale embeddings are handed out, which training does not feel:
            ``as-is``; ``unit``, each row divided by its length; or ``standard``, every column with
            mean 0 and deviation 1 over what was trained on (D12).
        norm: Whether encoders normalise over the batch (D15).
        norm_place: Whether a GIN layer normalises ``after`` its ReLU, as InfoGraph does, or
            ``before`` it (D15).
        calibrate: Whether, after training, batch normalisation takes its statistics anew from the
            untouched graphs, which inference sees, instead of from views (D15).
        feature_projection: Where feature masking's linear layer stands: in the ``head``, keeping
            the width, or ``shared`` by all views and inference; ``none`` masks features as they
            are (D6).
        edge_weighting: How a head's probabilities become edge weights (D7).
        scale_by_probability: Whether graph encodings are multiplied by their augmentation's
            probability: as ``printed``; ``straight-through``, by one with the gradient of that
            product, so that only the policy feels it; or ``off`` (D9).
        replacement: Whether both draws may be the same augmentation (D9).
        batch_size: Graphs, or sub-graphs of the large graph, in a batch.
        epochs: Passes over the graphs; at node level, steps.
        learning_rate: Adam's.
        weight_decay: Adam's.
        clip: Largest norm of the gradient; 0 leaves it alone.
        temperature: Of the policy and of the heads' relaxed draws.
        hops: Radius of the sub-graph head, and of the sub-graphs drawn at node level (D14).
        fanout: Most neighbours that are walked to from a node at each hop where sub-graphs are
            drawn at node level, drawn anew each step; 0 walks to all (D14).
        ratio: Share of nodes that node dropping keeps (D4).
        dropout: Of the encoders' layers.
        patience: Epochs (node level: steps) without a lower loss before stopping; 0 never stops.
        seed: Fixes everything that is drawn, on one device.
        features: How node features are made of what the data has.
        degree_cap: Largest degree that one-hot degree features tell apart.
        walk_length: Longest walk whose chance to end where it began is told by ``walks`` features.
        row_normalise: Whether a node's features are divided by the sum of their sizes, as DGI does
            with words (D13).
        deterministic: Whether a CUDA device must repeat itself bit by bit, at some speed.
        checkpoint_every: Epochs between two checkpoints.
        step: How a step is done: ``plain``, or ``captured``, the same method arranged for a GPU
            and replayed as a graph; ``auto`` is the latter where it can be. A run's own settings
            say which it was.
        precision: Of the captured step's matrix products: ``float32`` or ``tf32``, which rounds
            what is multiplied to 10 bits. The plain step is in float32; with
            ``bf16-mixed`` its linear layers, and nothing else, multiply in bfloat16
            (docs/scaling.md).
    """

    level: Level = _one_of("graph", "graph", "node")
    method: str = field(default="lg2ar", metadata={"word": True})
    policy: str = _one_of("gru", "gru", "deepset", "random")
    heads: tuple[str, ...] = field(default=HEAD_NAMES, metadata={"choices": HEAD_NAMES})
    contrast: str = _one_of("local-global", "local-global", "global-global")
    discriminator: str = _one_of("dot", "dot", "cosine", "bilinear", "mlp")
    bound: str = _one_of("jsd", "jsd", "nce", "nt-xent", "dv")
    negatives: str = _one_of("graphs", "graphs", "shuffled")
    normalisation: str = _one_of("graphs", "graphs", "pairs", "graph-pairs")
    bound_temperature: float = _within(0.5, 0, 100, open_low=True)
    hidden: int = _within(128, 1, 65536)
    layers: int = _within(3, 1, 64)
    base_encoder: str = _one_of("gin", "gin", "gcn")
    base_layers: int = _within(0, 0, 64)
    gcn_output: str = _one_of("last", "last", "layers", "features-and-layers")
    smoothing: int = _within(0, 0, 64)
    readout: str = _one_of("log-sum", "sum", "mean", "log-sum")
    projection: bool = True
    embedding: str = _one_of("before", "before", "after")
    averaged_features: int = _within(0, 0, 64)
    embedding_scale: str = _one_of("as-is", "as-is", "unit", "standard")
    norm: bool = True
    norm_place: str = _one_of("before", "after", "before")
    calibrate: bool = True
    feature_projection: str = _one_of("head", "head", "shared", "none")
    edge_weighting: str = _one_of("relative", "printed", "relative", "straight-through")
    scale_by_probability: str = _one_of("printed", "printed", "straight-through", "off")
    replacement: bool = True
    batch_size: int = _within(128, 1, 1_000_000)
    epochs: int = _within(20, 0, 10_000_000)
    learning_rate: float = _within(1e-3, 0, 10, open_low=True)
    weight_decay: float = _within(0.0, 0, 10)
    clip: float = _within(0.0, 0, 1e6)
    temperature: float = _within(1.0, 0, 100, open_low=True)
    hops: int = _within(3, 0, 64)
    fanout: int = _within(0, 0, 1_000_000)
    ratio: float = _within(0.8, 0, 1, open_low=True)
    dropout: float = _within(0.0, 0, 0.99)
    patience: int = _within(0, 0, 10_000_000)
    seed: int = _within(0, 0, 2**63 - 1)
    features: str = _one_of(
        "auto",
        *("auto", "given", "constant", "degree", "one-hot-degree", "degree-and-one-hot", "walks"),
    )
    degree_cap: int = _within(100, 1, 65536)
    walk_length: int = _within(8, 2, 64)
    row_normalise: bool = False
    deterministic: bool = True
    checkpoint_every: int = _within(10, 1, 10_000_000)
    step: str = _one_of("auto", "auto", "captured", "plain")
    precision: str = _one_of("tf32", "tf32", "float32", "bf16-mixed")

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            object.__setattr__(self, item.name, _checked(item, getattr(self, item.name)))
        if self.level == "node" and "sub-graph" in self.heads:
            raise InputError(
                "the sub-graph head is not used at node level, where every batch is sub-graphs "
                "already (A.2); leave it out of heads."
            )
        if self.normalisation == "graph-pairs" and self.bound != "jsd":
            raise InputError(
                f"normalisation = 'graph-pairs' is defined for bound = 'jsd' only, not "
                f"'{self.bound}'; use 'graphs' or 'pairs'."
            )
        if self.negatives == "graphs" and self.batch_size < 2:
            raise InputError(
                f"batch_size = {self.batch_size} leaves no other graph to contrast with; use at "
                "least 2, or negatives = 'shuffled'."
            )
        if self.averaged_features and self.level != "node":
            raise InputError(
                f"averaged_features = {self.averaged_features} stand beside the rows of nodes, and "
                "level = 'graph' hands out those of graphs; leave it at 0."
            )
        if self.embedding_scale == "standard" and (
            not self.calibrate or self.embedding != "before"
        ):
            raise InputError(
                "embedding_scale = 'standard' needs calibrate = true and embedding = 'before', not "
                f"{str(self.calibrate).lower()} and '{self.embedding}'; set these, or use 'unit'."
            )

    @classmethod
    def make(cls, settings: Mapping[str, Any] | None = None, /, **more: Any) -> Config:
        """Check settings and fill in the rest.

        Args:
            settings: Values by key.
            **more: Further values, which win over ``settings``.

        Raises:
            InputError: For an unknown key, naming the nearest known one; for a value of the wrong
                type or outside its range, naming the range.

        Examples:
            >>> Config.make({"hidden": 64}, level="node").base_encoder
            'gcn'
            >>> Config.make(hiden=64)
            Traceback (most recent call last):
            ...
            lg2ar.errors.InputError: unknown setting 'hiden'; did you mean 'hidden'?
        """
        given = in_todays_words({**(settings or {}), **more})
        fields = {item.name: item for item in dataclasses.fields(cls)}
        for key in given:
            if key not in fields:
                raise InputError(f"unknown setting {key!r}{_nearest(key, fields)}")
        level = _checked(fields["level"], given.get("level", "graph"))
        return cls(**{**(NODE_LEVEL if level == "node" else {}), **given})

    @classmethod
    def stored(cls, settings: Mapping[str, Any], /, **more: Any) -> Config:
        """Settings that a file holds, also one that was written before some of them existed."""
        return cls.make({**BEFORE, **settings}, **more)

    @classmethod
    def from_toml(cls, path: str | Path, /, **more: Any) -> Config:
        """Read settings from a TOML file; ``more`` wins over what it says."""
        return cls.make(read_toml(path), **more)

    def replace(self, **changes: Any) -> Config:
        """A copy with some settings changed, checked like new ones."""
        return Config.make({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """All settings by key, as JSON has them."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
        }

    def to_json(self) -> str:
        """All settings as JSON text."""
        return json.dumps(self.to_dict(), indent=2)


# What a level changes: A.2 and A.3 fix the node-level base encoder and drop the sub-graph head. The
# second half is what an encoder of nodes was found to learn with (docs/findings.md).
NODE_LEVEL: dict[str, Any] = {
    "heads": tuple(name for name in HEAD_NAMES if name != "sub-graph"),
    "base_encoder": "gcn",
    "readout": "mean",
    "projection": False,
    "norm": False,
    "hops": 2,
    "checkpoint_every": 50,
    "base_layers": 1,
    "contrast": "global-global",
    "bound": "nt-xent",
    "bound_temperature": 1.0,
    "scale_by_probability": "straight-through",
    "feature_projection": "none",
    "replacement": False,
    "batch_size": 64,
    "fanout": 10,
    "epochs": 200,
}
# Settings that files written before there were these do not have: what was done then.
BEFORE: dict[str, Any] = {
    "norm_place": "after",
    "fanout": 0,
    "gcn_output": "last",
    "smoothing": 0,
    "walk_length": 8,
    "averaged_features": 0,
    "embedding_scale": "as-is",
}


def in_todays_words(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an older file as they are called today.

    >>> in_todays_words({"scale_by_probability": False})
    {'scale_by_probability': 'off'}
    """
    scaled = settings.get("scale_by_probability")
    if isinstance(scaled, bool):
        return {**settings, "scale_by_probability": "printed" if scaled else "off"}
    return dict(settings)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file of flat settings, with a clear message where it cannot be read."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such config file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error}).") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML: {error}.") from None


def parse_setting(text: str) -> tuple[str, Any]:
    """Split ``key=value`` as given on a command line; values are TOML, or else plain words.

    >>> parse_setting("hidden=64")
    ('hidden', 64)
    >>> parse_setting("policy=deepset")
    ('policy', 'deepset')
    >>> parse_setting("heads=identity,node-dropping")
    ('heads', ['identity', 'node-dropping'])
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"{text!r} is not of the form key=value.")
    key, value = key.strip(), value.strip()
    if "\n" in value or "\r" in value:
        raise InputError(f"{key!r}: a setting is one line; give each its own --set.")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        if key == "heads":
            return key, [word.strip() for word in value.split(",")]
        return key, value


def _nearest(word: object, known: Any) -> str:
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.4)
    return f"; did you mean '{close[0]}'?" if close else f"; known are {', '.join(known)}."


def _checked(item: dataclasses.Field[Any], value: Any) -> Any:
    """The value in its proper type, or an error naming what would be accepted."""
    if item.name == "heads":
        return _checked_heads(item, value)
    if "choices" in item.metadata:
        return _choice(item.name, value, item.metadata["choices"])
    if "word" in item.metadata:  # known to a higher layer, which looks it up when it builds
        if not isinstance(value, str) or not value:
            raise InputError(f"{item.name} = {value!r} must be a word.")
        return value.lower()
    if isinstance(item.default, bool):
        if not isinstance(value, bool):
            raise InputError(f"{item.name} = {value!r} must be true or false.")
        return value
    return _number(item, value)


def _checked_heads(item: dataclasses.Field[Any], value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not words:
        raise InputError(f"heads = {value!r} must be a list with at least one augmentation.")
    heads = tuple(_choice("heads", word, item.metadata["choices"]) for word in words)
    if len(set(heads)) != len(heads):
        raise InputError(f"heads = {list(heads)} names an augmentation twice.")
    return heads


def _choice(key: str, value: Any, choices: tuple[str, ...]) -> str:
    def plain(word: str) -> str:
        return word.lower().replace("_", "").replace("-", "")

    if isinstance(value, str):
        for choice in choices:
            if plain(value) == plain(choice):
                return choice
    own = plugins.names(key) if key in plugins.GROUPS else []
    if value in own:
        return str(value)
    raise InputError(f"{key} = {value!r} must be one of {', '.join([*choices, *own])}.")


def _number(item: dataclasses.Field[Any], value: Any) -> float:
    low, high, open_low = item.metadata["range"]
    span = f"{'above' if open_low else 'from'} {low:g} {'and up to' if open_low else 'to'} {high:g}"
    whole = isinstance(item.default, int)
    if isinstance(value, numbers.Real) and not isinstance(value, int | float):
        value = int(value) if isinstance(value, numbers.Integral) else float(value)  # NumPy's
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{item.name} = {value!r} must be a number {span}.")
    if whole and value != int(value):
        raise InputError(f"{item.name} = {value!r} must be a whole number {span}.")
    if not low <= value <= high or (open_low and value == low):
        raise InputError(f"{item.name} = {value!r} must be {span}.")
    return int(value) if whole else float(value)
