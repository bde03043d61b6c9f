"""What is in a source, before anything is trained on it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lg2ar.cli.options import (
    DataOption,
    SourceArgument,
    look_for_data_in,
    reads_source,
)
from lg2ar.data.reading import ReadOptions
from lg2ar.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from lg2ar.data.structure import Spread
    from lg2ar.data.summary import ColumnSummary, Summary


@reads_source
def inspect(
    source: SourceArgument,
    reading: ReadOptions,
    config_out: Annotated[
        Path | None, typer.Option(help="TOML file for the suggested settings, for pretrain.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only compare the files of a folder .graph with their checksums."
        ),
    ] = False,
    data: DataOption = None,
) -> None:
    """Describe graphs, tell what may be wrong with them, and suggest settings."""
    from lg2ar.data.sources import open_source
    from lg2ar.data.summary import summarise

    look_for_data_in(data)
    if check:
        _check(Path(source))
        return
    summary = summarise(open_source(source, options=reading))
    if as_json:
        print(json.dumps(summary.to_dict(), indent=2))
    else:
        _show(summary)
    if config_out is not None:
        _write(config_out, summary.toml())
        if not as_json:
            command = f"lg2ar pretrain {source} --config {config_out} --out RUN"
            print(f"Settings written to {config_out}; to train with them: {command}")


def _check(folder: Path) -> None:
    """Read all files of a mapped folder and compare them with what was written."""
    from lg2ar.cli.progress import counting
    from lg2ar.data.mapped_layout import check_sums, is_mapped, read_manifest

    if not is_mapped(folder):
        raise InputError(f"{folder}: has no checksums, as a folder .graph has; leave --check out.")
    with counting("interrupted; not all files were read.") as tell:
        check_sums(folder, lambda done, total: tell(done, total, "bytes"))
    number = len(read_manifest(folder).arrays)
    print(f"{folder}: all {number} files are what was written")


def _write(path: Path, text: str) -> None:
    from lg2ar.files import write_bytes

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, text.encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None


def _show(summary: Summary) -> None:
    from rich.console import Console
    from rich.padding import Padding

    width = None if sys.stdout.isatty() else 100
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    _show_structure(console, summary)
    _show_columns(console, summary.columns)
    _show_labels(console, summary)
    for title, sentences in (("While reading", summary.notes), ("To look at", summary.problems)):
        if sentences:
            console.print(f"\n{title}")
            for sentence in sentences:
                console.print(Padding(sentence, (0, 0, 0, 2)))
    _show_suggestions(console, summary)


def _show_structure(console: Console, summary: Summary) -> None:
    s = summary.structure
    kind = "directed" if s.directed else "undirected"
    table = _table(f"{summary.name}: {summary.rows} {summary.level}s to embed", "", "")
    rows = {
        "graphs": f"{s.graphs:,}",
        "nodes": f"{s.nodes:,}{_a_graph(s.nodes_a_graph, s.graphs)}",
        f"edges, {kind}": f"{s.edges:,}{_a_graph(s.edges_a_graph, s.graphs)}",
        "edges to a node": _spread(s.degree),
        "edges one way only": f"{s.one_way:,}" if s.directed else "",
        "edges to the node itself": f"{s.self_loops:,}",
        "edges listed again": f"{s.duplicates:,}",
        "nodes without edges": f"{s.isolated:,}",
        "graphs without edges": f"{s.edgeless:,}",
        "graphs of several parts": f"{s.disconnected:,}",
        "node features, as given": f"{summary.node_features:,}",
        "edge features, as given": f"{summary.edge_features:,}",
        "edge weights": _spread(summary.weights),
    }
    for name, value in rows.items():
        if value and value != "none":
            table.add_row(name, value)
    console.print(table)


def _show_columns(console: Console, columns: tuple[ColumnSummary, ...]) -> None:
    if not columns:
        return
    table = _table("Columns", "column", "of", "kind", "missing", "values", "features")
    for column in columns:
        table.add_row(
            column.name,
            column.of,
            column.kind,
            f"{column.missing:,}",
            _spread(column.spread) if column.kind == "number" else _common(column),
            "target" if column.features is None else str(column.features),
        )
    console.print(table)


def _show_labels(console: Console, summary: Summary) -> None:
    if summary.label_spread is not None:
        console.print(f"\nLabels: numbers, {_spread(summary.label_spread)}")
    if not summary.labels:
        return
    table = _table(f"Labels: {len(summary.labels)} classes", "class", "rows", "share")
    for name, count in summary.labels[:20]:
        table.add_row(name, f"{count:,}", f"{100 * count / summary.rows:.1f} %")
    if len(summary.labels) > 20:
        rest = sum(count for _, count in summary.labels[20:])
        table.add_row("others", f"{rest:,}", f"{100 * rest / summary.rows:.1f} %")
    console.print(table)


def _show_suggestions(console: Console, summary: Summary) -> None:
    table = _table("Settings to begin with", "setting", "value", "why")
    for item in summary.suggestions:
        table.add_row(item.key, str(item.value), item.reason)
    console.print(table)


def _table(title: str, *headings: str):  # type: ignore[no-untyped-def]
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", show_header=any(headings))
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    return table


def _a_graph(spread: Spread | None, graphs: int) -> str:
    return "" if spread is None or graphs == 1 else f" ({_spread(spread)} a graph)"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "none"
    if spread.low == spread.high:
        return f"always {spread.low:.4g}"
    return (
        f"{spread.low:.4g} to {spread.high:.4g}, median {spread.median:.4g}, mean {spread.mean:.4g}"
    )


def _common(column: ColumnSummary) -> str:
    named = ", ".join(f"{value[:20]} ({count})" for value, count in column.common[:5])
    more = column.distinct - min(5, len(column.common))
    return f"{column.distinct}: {named}{f', {more} more' if more > 0 else ''}"
