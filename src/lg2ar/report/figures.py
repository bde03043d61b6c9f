"""The paper's figures from records: what the policy draws, and the loss during training."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lg2ar.config import HEAD_NAMES
from lg2ar.errors import InputError
from lg2ar.files import write_bytes
from lg2ar.report.runs import Run, read_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Panels that the paper has come first, in its order.
POLICY_PANELS = ("mutag", "reddit-binary", "coauthor-cs", "pubmed")
LOSS_PANELS = ("proteins", "imdb-binary", "reddit-binary", "reddit-multi-5k", "dd", "collab")

SHORT = {
    "identity": "identity",
    "node-dropping": "nodes",
    "edge-perturbation": "edges",
    "sub-graph": "sub-graph",
    "feature-masking": "features",
}

_INK, _RULE, _LINE = "#17202a", "#dde3e9", "#0072b2"  # the blue that colour-blind readers see
_STYLE: Any = {
    "axes.edgecolor": "#566270",
    "axes.labelcolor": _INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.labelsize": 9,
    "font.size": 9,
    "savefig.dpi": 200,
    "svg.hashsalt": "lg2ar",  # ids that do not change from one drawing to the next
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


class _Shares(NamedTuple):
    heads: list[str]
    matrix: NDArray[np.float64]  # [T, T], sums to 1
    runs: int


def draw_policy(
    records: Iterable[Mapping[str, Any]], stem: str | Path, preset: str | None = None
) -> list[Path]:
    """Figure 2: how often the GRU policy drew each pair of augmentations, a panel per data set.

    Shares of all draws of all runs; rows are first views, columns second ones.

    Args:
        records: Finished runs, as :func:`~lg2ar.report.tables.read_records` reads them.
        stem: Where to, without the ending: ``STEM.png`` and ``STEM.svg`` are written.
        preset: Whose runs to show; see :func:`panels`.

    Returns:
        The files.

    Raises:
        InputError: Without matplotlib, without draws, or where a file cannot be written.
    """
    shares = {}
    preset, found = panels(records, POLICY_PANELS, preset)
    for title, runs in found.items():
        heads, matrix = pair_shares(runs)
        if matrix.any():
            shares[title] = _Shares(heads, matrix, len(runs))
    if not shares:
        raise InputError(
            "no record holds draws of LG2AR's GRU policy; run its variant 'gru' of the table "
            "'graph' or 'node' first."
        )
    with _style():
        figure, places = _figure(len(shares), width=3.1, height=3.2)
        _heat_maps(figure, places, shares)
        figure.suptitle(f"preset {preset}", fontsize=9)
        return _save(figure, stem)


def draw_loss(
    records: Iterable[Mapping[str, Any]], stem: str | Path, preset: str | None = None
) -> list[Path]:
    """Figure 3: the loss of LG2AR with the GRU policy by epoch, a panel per data set.

    The line is the mean over the runs that reached the epoch, dotted where that is not all of
    them, the band one standard deviation to each side.

    Args:
        records: Finished runs, as :func:`~lg2ar.report.tables.read_records` reads them.
        stem: Where to, without the ending: ``STEM.png`` and ``STEM.svg`` are written.
        preset: Whose runs to show; see :func:`panels`.

    Returns:
        The files.

    Raises:
        InputError: Without matplotlib, without losses, or where a file cannot be written.
    """
    curves = {}
    preset, found = panels(records, LOSS_PANELS, preset)
    for title, runs in found.items():
        losses = [run.fields.numbers("losses", least=0) for run in runs]
        if any(losses):
            curves[title] = [values for values in losses if values]
    if not curves:
        raise InputError(
            "no record holds losses of LG2AR with the GRU policy; run its variant 'gru' of the "
            "table 'graph' or 'node' first."
        )
    with _style():
        figure, places = _figure(len(curves), width=3.1, height=2.4)
        _curves(figure, places, curves)
        figure.suptitle(f"preset {preset}", fontsize=9)
        return _save(figure, stem)


def draw_lines(
    lines: Sequence[tuple[str, Sequence[float], Sequence[float], Mapping[str, float]]],
    label: str,
    stem: str | Path,
) -> list[Path]:
    """Points and the straight lines through them, a panel each.

    Axes are logarithmic where the sizes differ by more than a factor of 100.

    Args:
        lines: Title, sizes, values and the line's ``slope``, ``intercept`` and ``r2``.
        label: What the sizes are.
        stem: Where to, without the ending: ``STEM.png`` and ``STEM.svg`` are written.

    Returns:
        The files.

    Raises:
        InputError: Without matplotlib, without lines, or where a file cannot be written.
    """
    if not lines:
        raise InputError("there is no curve to draw; run 'lg2ar bench growth' first.")
    with _style():
        figure, places = _figure(len(lines), width=3.6, height=2.8)
        for axes, (title, sizes, values, line) in zip(places, lines, strict=True):
            along = np.geomspace(min(sizes), max(sizes), 100)
            axes.plot(along, line["slope"] * along + line["intercept"], color=_LINE, linewidth=1.6)
            axes.plot(sizes, values, "o", color=_INK, markersize=4)
            if max(sizes) > 100 * min(sizes):
                axes.set_xscale("log")
                axes.set_yscale("log")
            else:
                axes.set_ylim(bottom=0)
            axes.grid(color=_RULE, linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_title(title, loc="left", fontsize=9)
            axes.text(0.05, 0.9, f"R² = {line['r2']:.4f}", transform=axes.transAxes)
        figure.supxlabel(label)
        return _save(figure, stem)


def mean_and_std(
    losses: Sequence[Sequence[float]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and sample standard deviation at each epoch over the runs that reached it.

    >>> mean_and_std([[1.0, 2.0], [3.0]])[0]
    array([2., 2.])
    """
    longest = max(len(values) for values in losses)
    table = np.full((len(losses), longest), np.nan)  # [runs, epochs]
    for row, values in zip(table, losses, strict=True):
        row[: len(values)] = values
    count = np.isfinite(table).sum(axis=0)
    mean = np.nansum(table, axis=0) / count
    squares = np.nansum((table - mean) ** 2, axis=0)
    return mean, np.sqrt(squares / np.maximum(count - 1, 1))  # 0 where a single run is left


def panels(
    records: Iterable[Mapping[str, Any]], first: Sequence[str], preset: str | None = None
) -> tuple[str, dict[str, list[Run]]]:
    """Runs of the tables ``graph`` and ``node`` with the GRU policy, by data set, and their preset.

    All are of one preset: the one asked for, else the one with runs of the most data sets, the
    paper's if it is among them.
    """
    found: dict[str, dict[str, list[Run]]] = {}
    for run in read_runs(records):
        # Other tables repeat these runs, or cut them short.
        if run.table in ("graph", "node") and (run.method, run.variant) == ("lg2ar", "gru"):
            found.setdefault(run.preset, {}).setdefault(run.dataset, []).append(run)
    if preset is None:
        preset = max(found, key=lambda name: (len(found[name]), name == "paper"), default="paper")
    elif preset not in found:
        known = ", ".join(sorted(found)) or "none"
        raise InputError(f"no run of the GRU policy has preset '{preset}'; there are: {known}.")
    own = found.get(preset, {})
    order = [name for name in first if name in own]
    order += [name for name in own if name not in first]
    return preset, {name: own[name] for name in order}


def pair_shares(runs: Sequence[Run]) -> tuple[list[str], NDArray[np.float64]]:
    """The augmentations and the share of each pair in all draws, shape ``[T, T]``."""
    counts: Counter[tuple[str, str]] = Counter()
    names: dict[str, None] = {}
    for run in runs:
        heads = [str(head) for head in run.fields.items("heads", least=0)]
        names.update(dict.fromkeys(heads))
        for head, row in zip(heads, run.fields.counts("draws", len(heads)), strict=True):
            counts.update({(head, other): n for other, n in zip(heads, row, strict=True)})
    order = [head for head in HEAD_NAMES if head in names]
    order += [head for head in names if head not in order]
    matrix = np.array([[counts[a, b] for b in order] for a in order], dtype=float)
    return order, matrix / max(1.0, matrix.sum())


def _heat_maps(figure: Figure, places: Sequence[Axes], shares: Mapping[str, _Shares]) -> None:
    from matplotlib.colors import PowerNorm

    most = max(float(share.matrix.max()) for share in shares.values())
    # One scale for all, so that panels compare; its root keeps small shares apart beside large.
    norm = PowerNorm(0.5, vmin=0, vmax=100 * most)
    for axes, (title, (heads, matrix, runs)) in zip(places, shares.items(), strict=True):
        image = axes.imshow(100 * matrix, cmap="Blues", norm=norm)
        for (i, j), share in np.ndenumerate(matrix):
            colour = "white" if norm(100 * share) > 0.6 else _INK
            axes.text(j, i, _percent(share), ha="center", va="center", color=colour, fontsize=8)
        names = [SHORT.get(head, head) for head in heads]
        axes.set_xticks(range(len(names)), names, rotation=35, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(names)), names)
        axes.set_xticks(np.arange(1, len(names)) - 0.5, minor=True)
        axes.set_yticks(np.arange(1, len(names)) - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_color(_RULE)
        _title(axes, title, runs)
    figure.supxlabel("second view")
    figure.supylabel("first view")
    bar = figure.colorbar(image, ax=list(places), shrink=0.7, aspect=30)
    bar.set_label("share of all draws (%)")
    bar.outline.set_edgecolor(_RULE)


def _curves(
    figure: Figure, places: Sequence[Axes], curves: Mapping[str, Sequence[Sequence[float]]]
) -> None:
    from matplotlib.ticker import MaxNLocator

    for axes, (title, losses) in zip(places, curves.items(), strict=True):
        mean, std = mean_and_std(losses)
        epochs = np.arange(1, len(mean) + 1)
        axes.fill_between(epochs, mean - std, mean + std, color=_LINE, alpha=0.2, linewidth=0)
        all_ran = min(len(values) for values in losses)  # dotted from where some had stopped
        solid, dotted = slice(all_ran), slice(all_ran - 1, None)
        marker = "o" if len(mean) == 1 else ""
        axes.plot(epochs[solid], mean[solid], color=_LINE, linewidth=1.6, marker=marker)
        axes.plot(epochs[dotted], mean[dotted], color=_LINE, linewidth=1.6, linestyle=":")
        if len(mean) == 1:
            axes.set_xlim(0, 2)
        axes.grid(color=_RULE, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        _title(axes, title, len(losses))
    figure.supxlabel("epoch")
    figure.supylabel("loss")


def _title(axes: Axes, title: str, runs: int) -> None:
    axes.set_title(title, loc="left")
    told = f"{runs} runs" if runs > 1 else "1 run"
    axes.set_title(told, loc="right", fontsize=8, fontweight="normal")


def _percent(share: float) -> str:
    return "0" if share == 0 else "<0.1" if share < 0.0005 else f"{100 * share:.1f}"


def _style() -> AbstractContextManager[None]:
    """Our style and nothing of the user's, so that all machines draw the same."""
    try:
        from matplotlib import style
    except ImportError:
        raise InputError("figures need matplotlib: pip install 'lg2ar[figures]'.") from None
    context: AbstractContextManager[None] = style.context(["default", _STYLE])
    return context


def _figure(panels: int, *, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels, each of this size in inches."""
    from matplotlib.figure import Figure

    columns = panels if panels <= 3 else math.ceil(math.sqrt(panels))
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(width * columns + 0.6, height * rows + 0.2), layout="constrained")
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for empty in places[panels:]:
        empty.remove()
    return figure, places[:panels]


def _save(figure: Figure, stem: str | Path) -> list[Path]:
    stem = Path(stem)
    paths = []
    for ending, nothing in (("png", "Software"), ("svg", "Date")):
        content = io.BytesIO()
        figure.savefig(content, format=ending, metadata={nothing: None})
        path = stem.with_name(f"{stem.name}.{ending}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, content.getvalue())
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error}).") from None
        paths.append(path)
    return paths
