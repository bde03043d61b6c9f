"""Which of our runs stand for which of the paper's rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lg2ar.benchmarks import Published, published
from lg2ar.data.benchmarks import BENCHMARKS
from lg2ar.report.runs import Run

TABLES = ("graph", "node", "semi", "ablation", "cost")

# Our variants of LG2AR and the rows they are printed as: (group, or "" where there is one such
# row, and name).
POLICIES = {
    "gru": ("", "LG2AR + GRU"),
    "deepset": ("", "LG2AR + DeepSet"),
    "random": ("", "LG2AR + Random"),
}
VARIANTS: dict[str, dict[str, tuple[str, str]]] = {
    "graph": POLICIES,
    "node": POLICIES,
    "semi": {"gru": ("", "LG2AR")},
    "ablation": {
        "bound=jsd": ("bound", "JSD"),
        "bound=nce": ("bound", "NCE"),
        "bound=nt-xent": ("bound", "NT-Xent"),
        "bound=dv": ("bound", "DV"),
        "discriminator=dot": ("discriminator", "Dot Product"),
        "discriminator=cosine": ("discriminator", "Cosine"),
        "discriminator=bilinear": ("discriminator", "Bilinear"),
        "discriminator=mlp": ("discriminator", "MLP"),
        "augmentations=all": ("augmentations", "All"),
        "augmentations=structure": ("augmentations", "Structure"),
        "augmentations=feature": ("augmentations", "Feature"),
        "augmentations=node": ("augmentations", "Node"),
        "augmentations=edge": ("augmentations", "Edge"),
        "augmentations=sub-graph": ("augmentations", "SubGraph"),
    },
    "cost": {
        "seconds-per-epoch": ("seconds-per-epoch", "LG2AR"),
        "gigabytes": ("gigabytes", "LG2AR"),
    },
}
BASELINES = {"features": "Raw Features", "infograph": "InfoGraph", "graphcl": "GraphCL"}

# Settings that go without saying.
PRESETS = {"graph": "paper", "node": "paper", "semi": "semi", "ablation": "paper", "cost": "paper"}


def printed_rows(table: str) -> list[Published]:
    """The paper's numbers that belong to a table of ours: its mixed table is split by level."""
    return [
        row
        for row in published()
        if row.table == table or (row.table == "mix" and row.group == table)
    ]


def name_variant(table: str, variant: str | None, preset: str) -> str | None:
    """A variant with its preset, where that is not the table's usual one.

    >>> name_variant("graph", "gru", "paper"), name_variant("graph", "gru", "wide")
    ('gru', 'gru, preset=wide')
    """
    if preset == PRESETS[table]:
        return variant
    return f"{variant}, preset={preset}" if variant else f"preset={preset}"


def split_variant(variant: str | None) -> tuple[str | None, str]:
    """Undo :func:`name_variant`; the usual preset is empty.

    >>> split_variant("gru, preset=wide"), split_variant("preset=wide"), split_variant("gru")
    (('gru', 'wide'), (None, 'wide'), ('gru', ''))
    """
    before, mark, preset = (variant or "").rpartition("preset=")
    return (before.removesuffix(", ") or None, preset) if mark else (variant, "")


def label(table: str, method: str, variant: str | None) -> tuple[str, str]:
    """The group and the name of a row of ours, in the paper's words where it has some.

    >>> label("graph", "lg2ar", "gru"), label("ablation", "lg2ar", "bound=nce")
    (('', 'LG2AR + GRU'), ('bound', 'NCE'))
    >>> label("node", "graphcl", "preset=wide"), label("node", "lg2ar", "mean")
    (('', 'GraphCL, preset wide'), ('', 'LG2AR, mean'))
    """
    rest, preset = split_variant(variant)
    after = f", preset {preset}" if preset else ""
    name = {"lg2ar": "LG2AR", "untrained": "Untrained", "supervised": "Supervised", **BASELINES}
    if table == "cost":
        return rest or "", name.get(method, method) + after
    if method == "lg2ar" and rest in VARIANTS[table]:
        group, printed = VARIANTS[table][rest]
        return group, printed + after
    return "", name.get(method, method) + (f", {rest}" if rest else "") + after


def find_printed(rows: Sequence[Published], table: str, run: Run) -> Published | None:
    """What the paper printed for such a run."""
    group, name = "", BASELINES.get(run.method, "")
    if run.method == "features" and run.setting("smoothing", 0):
        return None  # the paper's are not smoothed
    if run.method == "lg2ar":
        group, name = VARIANTS[table].get(run.variant or "", ("", ""))
    elif run.method == "supervised":
        usual = "gin" if run.level == "graph" else "gcn"
        name = str(run.setting("base_encoder", usual)).upper()
    return look_up(rows, run.dataset, group, name)


def look_up(rows: Sequence[Published], dataset: str, group: str, name: str) -> Published | None:
    """The paper's number in a row; an empty ``group`` stands for any."""
    for row in rows:
        if (row.dataset, row.method) == (dataset, name) and group in ("", row.group):
            return row
    return None


def in_papers_order(names: Iterable[str]) -> list[str]:
    """Data sets, each once: the paper's in its order, then others as they come.

    >>> in_papers_order(["mine", "cora", "dd", "mutag", "dd"])
    ['mutag', 'dd', 'cora', 'mine']
    """
    given = dict.fromkeys(names)
    known = [name for name in BENCHMARKS if name in given]
    return known + [name for name in given if name not in BENCHMARKS]
