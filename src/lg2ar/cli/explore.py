"""The commands that look around among embeddings: neighbours, outliers and cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lg2ar.cli.labels import RunArgument
from lg2ar.cli.options import (
    DataOption,
    DeviceOption,
    SourceArgument,
    check_not_source,
    look_for_data_in,
    open_and_tell,
    read_words,
    reads_source,
)
from lg2ar.data.reading import ReadOptions
from lg2ar.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from lg2ar.data.dataset import Dataset

OutOption = Annotated[
    Path | None, typer.Option(help="File to write (.csv, .parquet, .npz); default: print a table.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Fixes what is drawn.")]


@reads_source
def neighbours(
    run: RunArgument,
    source: SourceArgument,
    reading: ReadOptions,
    query: Annotated[
        list[str], typer.Option(metavar="ID", help="Id to look from; may be repeated.")
    ],
    k: Annotated[int, typer.Option(min=1, help="How many neighbours.")] = 10,
    metric: Annotated[
        Literal["cosine", "euclidean"], typer.Option(help="How distance is measured.")
    ] = "cosine",
    out: OutOption = None,
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """List the graphs (or nodes) whose embeddings are nearest to those of --query."""
    from lg2ar.exploring import neighbours

    rows, ids, dataset = _embedded(run, source, reading, out, device, data)
    table = neighbours(rows, ids, read_words(query), k, metric)
    labels = _labels(dataset)
    if labels is not None:
        by_id = dict(zip(ids.tolist(), labels, strict=True))
        table["label"] = [by_id[name] for name in table["id"]]
    _write_or_print(table, out, f"{len(table)} neighbours")


@reads_source
def outliers(
    run: RunArgument,
    source: SourceArgument,
    reading: ReadOptions,
    method: Annotated[
        Literal["local", "forest"],
        typer.Option(help="Local outlier factor (1 is ordinary), or isolation forest (0.5 is)."),
    ] = "local",
    top: Annotated[int, typer.Option(min=1, help="How many to print.")] = 10,
    seed: SeedOption = 0,
    out: OutOption = None,
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Score how unusual the embedding of each graph (or node) is, most unusual first."""
    from lg2ar.exploring import outliers

    rows, ids, _ = _embedded(run, source, reading, out, device, data)
    table = outliers(rows, ids, method, seed=seed)
    _write_or_print(table, out, f"{len(table)} scores", top)


@reads_source
def cluster(
    run: RunArgument,
    source: SourceArgument,
    reading: ReadOptions,
    clusters: Annotated[
        str, typer.Option(metavar="K", help="How many, or auto: 2 to 12 by their silhouette.")
    ] = "auto",
    method: Annotated[
        Literal["k-means", "agglomerative", "hdbscan"], typer.Option(help="How they are found.")
    ] = "k-means",
    smallest: Annotated[
        int, typer.Option(min=2, help="Rows of a cluster at least, for hdbscan.")
    ] = 5,
    seed: SeedOption = 0,
    out: OutOption = None,
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Find groups of graphs (or nodes) with similar embeddings."""
    from lg2ar.exploring import cluster

    number = None if clusters == "auto" else _whole(clusters)
    rows, ids, _ = _embedded(run, source, reading, out, device, data)
    found = cluster(rows, number, method, smallest=smallest, seed=seed)
    table = found.frame(ids)
    print(_clusters_told(found, table))
    if out is not None:
        _write_or_print(table, out, f"Clusters of {len(table)} rows")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--clusters {text}: give a whole number, or auto.") from None


def _clusters_told(found: Any, table: pd.DataFrame) -> str:
    fit = "" if found.silhouette is None else f", silhouette {found.silhouette:.2f}"
    chosen = f", chosen among {min(found.tried)} to {max(found.tried)}" if found.tried else ""
    lines = [f"{len(found.sizes)} clusters{fit}{chosen}"]
    for number, size in enumerate(found.sizes):
        own = table[table["cluster"] == number].sort_values("place")
        typical = ", ".join(str(name) for name in own["id"].head(3))
        lines.append(f"  {number}: {size} rows, most typical {typical}")
    lost = int((found.cluster < 0).sum())
    return "\n".join([*lines, *([f"  {lost} rows belong to none"] if lost else [])])


def _embedded(
    run: Path,
    source: str,
    reading: ReadOptions,
    out: Path | None,
    device: str,
    data: Path | None,
) -> tuple[np.ndarray, np.ndarray, Dataset]:
    """Embeddings, what each row is called, and the data."""
    from lg2ar.frames import check_format, row_ids
    from lg2ar.runs import load

    look_for_data_in(data)
    if out is not None:
        check_format(out)
        check_not_source(out, source, reading)
    trained = load(run, device)
    dataset = open_and_tell(source, reading, trained.config.level, trained.reading)
    return trained.embed(dataset).numpy(), row_ids(dataset), dataset


def _labels(dataset: Dataset) -> list[str] | None:
    if dataset.y is None or len(dataset.y) != len(dataset):
        return None
    values = dataset.y.tolist()
    return [dataset.classes[v] if dataset.classes is not None else f"{v:g}" for v in values]


def _write_or_print(
    table: pd.DataFrame, out: Path | None, what: str, top: int | None = None
) -> None:
    from lg2ar.frames import write_frame

    if out is None:
        shown = table if top is None else table.head(top)
        print(shown.to_string(index=False, float_format=lambda value: f"{value:.4f}"))
        return
    write_frame(out, table)
    print(f"{what} written to {out}")
