"""The commands of the study: reproduce the paper's tables, print them, draw its figures."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lg2ar.cli.options import (
    DataOption,
    DeviceOption,
    EngineOption,
    ResumeOption,
    SettingOption,
    WorkersOption,
    look_for_data_in,
    read_settings,
    read_words,
)
from lg2ar.cli.stopping import told_when_stopped
from lg2ar.errors import InputError

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="graph, node, semi, ablation, cost or findings.")
]


def reproduce(
    table: TableArgument,
    datasets: Annotated[
        list[str] | None,
        typer.Option(help="Data sets, comma-separated or repeated; default: the table's."),
    ] = None,
    variants: Annotated[
        list[str] | None,
        typer.Option(help="gru, infograph, bound=nce, ...; default: the table's."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each cell; default: as many as the paper's.")
    ] = None,
    first_seed: Annotated[int, typer.Option(min=0, max=2**31, help="Seed of the first run.")] = 0,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            help="paper, paper-scaled, strict, infograph-rbf, nested, nested-features, semi, "
            "semi-frozen, semi-kernel, paper-300, strict-300; default: the table's."
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Named settings to start from; default: the table's.")
    ] = None,
    setting: SettingOption = None,
    records: Annotated[
        Path | None,
        typer.Option(help="File to append runs to; default: results/TABLE.jsonl."),
    ] = None,
    resume: ResumeOption = False,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    engine: EngineOption = "processes",
    data: DataOption = None,
) -> None:
    """Do the runs of a table of the paper, or of the findings, that are not recorded yet."""
    from lg2ar.devices import choose_device
    from lg2ar.engines import Crew
    from lg2ar.study.ledger import Ledger, reproduce
    from lg2ar.study.plan import TABLES, pick, plan
    from lg2ar.study.runner import Runner

    look_for_data_in(data)
    layout = TABLES[pick(table, TABLES, "table")]
    asked = read_words(protocol)
    runs = plan(
        table,
        datasets=read_words(datasets),
        variants=read_words(variants),
        seeds=range(first_seed, first_seed + (seeds or layout.seeds)),
        protocols=asked,
        preset=preset,
        settings=read_settings(None, setting, None),
    )
    file = _records_file(table, records)
    ledger = Ledger(file)
    done = 0

    def report(record: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        print(_line(record), flush=True)

    with told_when_stopped(f"interrupted; finished runs are in {file}, the same command goes on."):
        runner = Runner(choose_device("auto" if engine == "ray" else device))
        failed = sum(
            reproduce(
                own,
                protocols,
                ledger,
                runner,
                crew=Crew(engine, workers),
                device=device,
                on_record=report,
                on_failure=lambda task, why: print(f"{task}: failed: {why}", file=sys.stderr),
            )
            for protocols, own in layout.by_protocols(runs, asked)
        )
    there = len(runs) - done - failed
    print(f"{done} runs done, {there} were there already, {failed} failed; records: {file}")
    if failed:
        raise typer.Exit(2)


def table(
    table: TableArgument,
    records: Annotated[
        list[Path] | None,
        typer.Option(help="File of runs, may be repeated; default: results/TABLE.jsonl."),
    ] = None,
    format: Annotated[  # noqa: A002 - the option's name
        str, typer.Option(help="md, csv, latex, json or summary.")
    ] = "md",
) -> None:
    """Print a table of the paper with our runs beside the published numbers, or the findings."""
    from lg2ar.report.cells import cells
    from lg2ar.report.layouts import FORMATS, render
    from lg2ar.report.questions import findings
    from lg2ar.report.tables import read_records
    from lg2ar.study.plan import TABLES, pick

    pick(table, TABLES, "table")
    pick(format, FORMATS, "format")
    files = records or [p for p in [_records_file(table, None)] if p.exists()]
    found = [r for file in files for r in read_records(file)]
    _tell_failed(found, table)
    if table == "findings":
        if format != "md":
            raise InputError(f"findings are printed as md alone, not as {format}.")
        print(findings(found))
        return
    print(render(cells(found, table), table, format))


def figure(
    name: Annotated[str, typer.Argument(metavar="FIGURE", help="policy or loss.")],
    records: Annotated[
        list[Path] | None,
        typer.Option(help="File of runs, may be repeated; default: graph's and node's."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to, without ending; default: results/figure-NAME.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Whose runs to show; default: the one with the most data sets."),
    ] = None,
) -> None:
    """Draw a figure of the paper from records: the policy's draws, or the loss, as PNG and SVG."""
    from lg2ar.report.figures import draw_loss, draw_policy
    from lg2ar.report.tables import read_records
    from lg2ar.study.plan import pick

    drawings = {"policy": draw_policy, "loss": draw_loss}
    pick(name, drawings, "figure")
    usual = [_records_file(table, None) for table in ("graph", "node")]
    files = records or [path for path in usual if path.exists()]
    if not files:
        raise InputError(
            f"{usual[0]}: there are no records; make some with 'lg2ar reproduce graph', or name "
            "a file with --records."
        )
    stem = out or Path("results") / f"figure-{name}"
    found = [r for file in files for r in read_records(file)]
    _tell_failed(found)
    for path in drawings[name](found, stem, preset):
        print(path)


def _tell_failed(records: Sequence[Mapping[str, Any]], table: str | None = None) -> None:
    """Say which runs are left out since they failed."""
    from lg2ar.report.runs import failed_runs

    failed = failed_runs(records, table)
    if failed:
        more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        named = ", ".join(failed[:3])
        print(f"lg2ar: left out, since they failed: {named}{more}", file=sys.stderr)


def _records_file(table: str, given: Path | None) -> Path:
    return given or Path("results") / f"{table}.jsonl"


def _line(record: dict[str, Any]) -> str:
    """A finished run in one line: its task, what the untrained and the trained encoder scored."""
    task, cost = record["task"], record["cost"]
    found: dict[str, list[str]] = {}
    for evaluation in record["evaluations"]:
        name = " ".join(filter(None, [evaluation["protocol"], evaluation["selection"]]))
        mean = statistics.fmean(evaluation["accuracy"])
        found.setdefault(name, []).append(f"{mean:.1f} (epoch {evaluation['epoch']})")
    scores = "; ".join(f"{name} {', '.join(values)}" for name, values in found.items())
    return (
        f"{task['table']} {task['dataset']} {task['variant'] or task['method']} seed "
        f"{task['seed']}: {scores or 'cost'}; {record['epochs']} epochs of "
        f"{cost['seconds_per_epoch']:.3f} s, evaluated in {cost['evaluation_seconds']:.1f} s"
    )
