"""Which runs a table of the paper consists of."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lg2ar.benchmarks import against_base, base_variant, hyperparameters, questions
from lg2ar.config import HEAD_NAMES, Config, parse_setting
from lg2ar.data.benchmarks import BENCHMARKS, find_benchmark
from lg2ar.errors import InputError
from lg2ar.protocols import check_protocol
from lg2ar.records import Task


@dataclass(frozen=True)
class Variant:
    """A method with what distinguishes it, as settings on top of a preset.

    Attributes:
        method: ``lg2ar`` or a control.
        settings: What it is by; nothing changes these.
        defaults: What it takes instead of the preset's, unless asked for something else.
    """

    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    Attributes:
        datasets: Its columns.
        variants: Our rows.
        seeds: How many runs a cell has.
        protocols: How they are read.
        preset: Which named settings they start from.
        at_nodes: How nodes are read, where that is otherwise.
    """

    datasets: tuple[str, ...]
    variants: tuple[str, ...]
    seeds: int
    protocols: tuple[str, ...]
    preset: str = "paper"
    at_nodes: tuple[str, ...] = ()

    def read_as(self, level: str) -> tuple[str, ...]:
        """The protocols of a level."""
        return self.at_nodes if self.at_nodes and level == "node" else self.protocols

    def by_protocols(
        self, runs: Sequence[Planned], asked: Sequence[str] = ()
    ) -> list[tuple[tuple[str, ...], list[Planned]]]:
        """Runs with how they are read: as asked for, otherwise as this table's are."""
        groups: dict[tuple[str, ...], list[Planned]] = {}
        for run in runs:
            groups.setdefault(tuple(asked) or self.read_as(run.task.level), []).append(run)
        return list(groups.items())


@dataclass(frozen=True)
class Planned:
    """A run to be done: its place in the study and its settings."""

    task: Task
    config: Config


_AUGMENTATIONS: dict[str, tuple[str, ...]] = {
    "all": HEAD_NAMES,
    "structure": ("node-dropping", "edge-perturbation", "sub-graph"),
    "feature": ("feature-masking",),
    "node": ("node-dropping",),
    "edge": ("edge-perturbation",),
    "sub-graph": ("sub-graph",),
}

VARIANTS: dict[str, Variant] = {
    **{policy: Variant("lg2ar", {"policy": policy}) for policy in ("gru", "deepset", "random")},
    "untrained": Variant("untrained", {"method": "lg2ar", "epochs": 0}),
    "infograph": Variant(
        "infograph",
        {
            "method": "infograph",
            "policy": "random",
            "heads": ("identity",),
            "contrast": "local-global",
            "bound": "jsd",
            "discriminator": "dot",
        },
    ),
    "graphcl": Variant(
        "graphcl",
        {
            "method": "graphcl",
            "policy": "random",
            "contrast": "global-global",
            "bound": "nt-xent",
            "discriminator": "cosine",
        },
        {"ratio": 0.8, "bound_temperature": 0.2},
    ),
    # No network at all: what any encoder has to be above.
    "features": Variant(
        "features",
        {"method": "features", "epochs": 0, "patience": 0, "embedding_scale": "as-is"},
        {"smoothing": 0, "averaged_features": 0},
    ),
    # The paper's numbers of epochs are for pre-training; a classifier wants more.
    "supervised": Variant(
        "supervised",
        {"method": "supervised", "patience": 0},
        {"epochs": 100, "learning_rate": 1e-3},
    ),
    **{
        f"bound={name}": Variant("lg2ar", {"bound": name})
        for name in ("jsd", "nce", "nt-xent", "dv")
    },
    **{
        f"discriminator={name}": Variant("lg2ar", {"discriminator": name})
        for name in ("dot", "cosine", "bilinear", "mlp")
    },
    **{
        f"augmentations={name}": Variant("lg2ar", {"heads": heads})
        for name, heads in _AUGMENTATIONS.items()
    },
}

# The variants that answer the open questions at each level, what they are compared with first.
_ASKED = {
    level: tuple(
        dict.fromkeys(
            [
                base_variant(level),
                *(
                    against_base(name, level)
                    for asked in questions()
                    if level in asked.levels
                    for name in asked.variants
                ),
            ]
        )
    )
    for level in ("graph", "node")
}

_GRAPH = tuple(name for name, item in BENCHMARKS.items() if item.level == "graph")
_NODE = tuple(name for name, item in BENCHMARKS.items() if item.level == "node")
_CONTROLS = ("features", "untrained", "infograph", "graphcl", "supervised")

TABLES: dict[str, Table] = {
    "graph": Table(_GRAPH, ("gru", "deepset", "random", *_CONTROLS), 10, ("strict", "paper")),
    "node": Table(
        _NODE,
        ("gru", "deepset", "random", "features", "untrained", "infograph", "supervised"),
        20,
        ("strict", "paper"),
    ),
    "semi": Table(
        ("proteins", "dd", "collab", "reddit-binary", "reddit-multi-5k"),
        ("gru", "infograph", "graphcl"),
        5,
        ("semi", "semi-frozen", "semi-kernel"),
        "semi",
    ),
    "ablation": Table(
        _GRAPH[1:],
        tuple(name for name in VARIANTS if "=" in name),
        5,
        ("strict", "paper"),
    ),
    "cost": Table(_GRAPH, ("gru", "infograph"), 1, ()),
    # A molecule's, a protein's, a social network's graphs, and nodes.
    "findings": Table(
        ("mutag", "proteins", "imdb-binary", "cora"),
        tuple(dict.fromkeys([*_ASKED["graph"], *_ASKED["node"]])),
        5,
        ("strict",),
        at_nodes=("strict-300",),  # answers are compared with those that were read so
    ),
}

# In which tables a variant stands for the data sets of some level alone.
_LEVELS = {
    name: tuple(level for level, asked in _ASKED.items() if name in asked)
    for name in TABLES["findings"].variants
}

# Epochs that the cost of one is measured on, after one that warms up.
COST_EPOCHS = 6


def plan(
    table: str,
    *,
    datasets: Sequence[str] = (),
    variants: Sequence[str] = (),
    seeds: Iterable[int] | None = None,
    protocols: Collection[str] = (),
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Planned]:
    """The runs of a table, data set by data set.

    Args:
        table: One of :data:`TABLES`.
        datasets: Some of its data sets, or others; all of its own by default.
        variants: Some of :data:`VARIANTS`; the table's own by default.
        seeds: As many as the table has runs by default.
        protocols: Only checked here: whether they are for the level of each data set.
        preset: Named settings to start from; the table's own by default.
        settings: What is to differ from them, in all runs.

    Raises:
        InputError: For a name that is not known, naming the nearest that is.
    """
    layout = TABLES[pick(table, TABLES, "table")]
    names = [_canonical(name) for name in datasets or layout.datasets]
    chosen = _fitting(
        [_known(name) for name in variants or layout.variants],
        protocols or layout.protocols,
        timed=not layout.protocols,
        asked=bool(variants),
    )
    for name in names:
        level = find_benchmark(name).level
        for protocol in protocols or layout.read_as(level):
            check_protocol(protocol, level)
    return [
        _planned(table, name, variant, preset or layout.preset, seed, settings or {})
        for name in names
        for variant in chosen
        if variants or find_benchmark(name).level in _LEVELS.get(variant, ("graph", "node"))
        for seed in (range(layout.seeds) if seeds is None else seeds)
    ]


def _fitting(
    names: Sequence[str], protocols: Collection[str], *, timed: bool, asked: bool
) -> list[str]:
    """Leave out what cannot be read so.

    ``supervised`` is not for protocols of encoders that saw no labels, and ``features`` have no
    network that could be fine-tuned.
    """
    unfit: dict[str, str] = {}
    if not protocols or not set(protocols) <= {"paper", "strict"}:
        unfit["supervised"] = "is read under the protocols paper and strict alone; ask for those"
    if timed or "semi" in protocols:
        unfit["features"] = "has no network to fine-tune or to time; ask for something else"
    for name, why in unfit.items():
        if asked and name in names:
            raise InputError(f"variant '{name}' {why}, or leave it out.")
    return [name for name in names if name not in unfit]


def _known(name: str) -> str:
    """The name of a variant, or settings joined by ``+`` that make one; an error for others."""
    if name not in VARIANTS and "=" in name:
        find_variant(name)
        return name
    return pick(name, VARIANTS, "variant")


def find_variant(name: str) -> Variant:
    """A variant by name, or the GRU's with settings of one's own: ``readout=mean+norm=false``."""
    if name in VARIANTS:
        return VARIANTS[name]
    settings = dict(parse_setting(part) for part in name.split("+"))
    Config.make(settings)  # names what is not a setting, or not a value of it
    return Variant("lg2ar", {"policy": "gru", **settings})


def pick(name: str, known: Collection[str], what: str) -> str:
    """A name out of some; an error that names the nearest where it is none of them."""
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}."
    raise InputError(f"'{name}' is not a {what}; {hint}")


def _canonical(name: str) -> str:
    """Our name of a data set; the one given where ours alone would not find it again."""
    ours = find_benchmark(name).name
    try:
        find_benchmark(ours)
    except InputError:  # a data set behind "tu:" that no list has
        return name
    return ours


def _planned(
    table: str, dataset: str, name: str, preset: str, seed: int, settings: Mapping[str, Any]
) -> Planned:
    variant = find_variant(name)
    level = find_benchmark(dataset).level
    cost = {"epochs": COST_EPOCHS, "patience": 0} if table == "cost" else {}
    changes = dict(variant.settings)
    if level == "node" and "heads" in changes:
        changes["heads"] = tuple(head for head in changes["heads"] if head != "sub-graph")
    # How long others are trained may be asked for all the same where this one is not.
    about = {"seed", "level", "method", *changes} - {"epochs", "patience"}
    fixed = sorted(settings.keys() & about)
    if fixed:
        raise InputError(f"{fixed[0]} is what variant '{name}' is about; leave it out of --set.")
    known = {"level": level, **hyperparameters(dataset, preset), **variant.defaults, **cost}
    config = Config.make({**known, **settings, **changes}, seed=seed)
    task = Task(
        table=table,
        dataset=dataset,
        level=level,
        method=variant.method,
        variant=name if variant.method == "lg2ar" else None,
        preset=" ".join([preset, *(f"{key}={value}" for key, value in sorted(settings.items()))]),
        seed=seed,
    )
    return Planned(task, config)
