"""The command line: parse, call, print."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lg2ar.cli.bench import bench
from lg2ar.cli.convert import convert
from lg2ar.cli.explore import cluster, neighbours, outliers
from lg2ar.cli.export import export
from lg2ar.cli.inspect import inspect
from lg2ar.cli.labels import finetune, predict
from lg2ar.cli.options import (
    DataOption,
    DeviceOption,
    SettingOption,
    SourceArgument,
    check_not_source,
    look_for_data_in,
    open_and_tell,
    read_settings,
    reads_source,
)
from lg2ar.cli.parallel import (
    DevicesOption,
    MachinesOption,
    PrecisionOption,
    StrategyOption,
    joined,
    machines_of,
    speaks_for_itself,
)
from lg2ar.cli.progress import progress
from lg2ar.cli.report import report
from lg2ar.cli.shipping import ship, verify
from lg2ar.cli.stopping import INTERRUPTED, end_at_once, stopping_in_time, tell_rest
from lg2ar.cli.studies import figure, reproduce, table
from lg2ar.cli.tune import tune
from lg2ar.data.reading import ReadOptions
from lg2ar.errors import InputError, LostProcessError, MemoryShortageError, NonFiniteLossError
from lg2ar.shortage import is_shortage

if TYPE_CHECKING:
    from lg2ar.config import Level
    from lg2ar.runs import Run

app = typer.Typer(
    help="Embeddings of graphs and nodes without labels, by learned augmentations (LG2AR).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("runs/demo"),
    setting: SettingOption = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set seed=N.")] = None,
    device: DeviceOption = "auto",
    record: Annotated[
        Path | None, typer.Option(help="File to append the result to, as one JSON line.")
    ] = None,
) -> None:
    """Train on an embedded data set in about a minute and show what was learned."""
    from lg2ar.demo import run_demo
    from lg2ar.files import append_line
    from lg2ar.report.findings import find
    from lg2ar.report.page import write_page

    with progress() as (on_start, on_epoch):
        result = run_demo(
            out, read_settings(None, setting, seed), device, on_start=on_start, on_epoch=on_epoch
        )
    scores = {"untrained": result.untrained_score, "trained": result.trained_score}
    findings = find(result.run, result.dataset, scores=scores)
    page = write_page(out, findings, command=["lg2ar", *sys.argv[1:]])
    print(f"Accuracy, {result.trained_score.protocol}:")
    for name, score in scores.items():
        print(f"  {name:<10} {score.mean:.1f} ± {score.std:.1f} %")
    print(_summary(result.run, out))
    print(f"Report page: {page}")
    if record is not None:
        append_line(record, result.record().to_json())


@app.command()
@reads_source
def pretrain(
    source: SourceArgument,
    reading: ReadOptions,
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
    setting: SettingOption = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set seed=N.")] = None,
    device: DeviceOption = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to log to for TensorBoard.")
    ] = None,
    data: DataOption = None,
    devices: DevicesOption = None,
    machines: MachinesOption = None,
    strategy: StrategyOption = None,
    precision: PrecisionOption = None,
) -> None:
    """Learn embeddings of graphs, or of the nodes of one large graph, without labels."""
    from lg2ar import experiment

    look_for_data_in(data)
    settings = read_settings(config, setting, seed)
    reading, nodes = machines_of(reading, machines)
    with joined(device, devices, nodes, strategy) as main:
        level, usual = _begun(out) if resume else (None, None)
        given = settings.get("level") or level
        dataset = open_and_tell(source, reading, given, usual, quiet=not main)
        with progress(tensorboard) if main else nullcontext((None, None)) as (on_start, on_epoch):
            run = experiment.pretrain(
                dataset,
                settings,
                out=out,
                resume=resume,
                device=device,
                on_start=on_start,
                on_epoch=on_epoch,
                devices=devices,
                nodes=nodes,
                strategy=strategy,
                precision=precision,
            )
        if main:
            print(_summary(run, out))


@app.command()
@reads_source
def embed(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that pretrain wrote.")],
    source: SourceArgument,
    reading: ReadOptions,
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .npz.")],
    only: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|FIRST:LAST",
            help="Embed these alone: a file with an id per line, or places from FIRST to before "
            "LAST, counted from 0.",
        ),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Folder for rows of a mapped graph that do not fit; default: beside --out."
        ),
    ] = None,
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Embed graphs, or the nodes of one large graph, with a trained encoder."""
    from lg2ar.embeddings import check_format, write_embeddings
    from lg2ar.runs import load
    from lg2ar.selecting import read_places

    look_for_data_in(data)
    check_format(out)
    check_not_source(out, source, reading)
    trained = load(run, device)
    dataset = open_and_tell(source, reading, trained.config.level, trained.reading)
    places = None if only is None else read_places(only, dataset)
    rows = trained.embed(dataset, only=places, scratch=scratch or _folder_of(out))
    ids, y = dataset.ids, dataset.y
    if places is not None:
        ids = [str(place) if ids is None else ids[place] for place in places.tolist()]
        y = None if y is None or len(y) != len(dataset) else y[places]
    write_embeddings(out, rows, ids=ids, y=y, classes=dataset.classes)
    print(f"{len(rows)} embeddings of width {rows.size(1)} written to {out}")


@app.command()
def datasets(
    data: DataOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Load those that are here and compare their statistics.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False,
) -> None:
    """List the benchmark data sets, and which of them are here."""
    from dataclasses import asdict

    from lg2ar.data.benchmarks import BENCHMARKS, data_root, load_and_measure, present

    rows = [asdict(item) | {"present": present(item, data)} for item in BENCHMARKS.values()]
    for row in rows if check else []:
        row["loaded"] = load_and_measure(row["name"], data) if row["present"] else None
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    names = ("name", "level", "graphs", "nodes", "edges", "features", "classes", "present")
    print(f"{names[0]:<18}{names[1]:<7}" + "".join(f"{name:>10}" for name in names[2:]))
    for row in rows:
        numbers = "".join(f"{row[name]:>10g}" for name in names[2:-1])
        here = "yes" if row["present"] else "no"
        loaded = row.get("loaded")
        more = f"  as listed, loaded in {loaded['seconds']:.1f} s" if loaded else ""
        print(f"{row['name']:<18}{row['level']:<7}{numbers}{here:>10}{more}")
    print(f"Nodes and edges of many graphs are means. Data folder: {data_root(data)}")


app.command()(inspect)
app.command()(convert)
app.command()(report)
app.command()(finetune)
app.command()(predict)
app.command()(neighbours)
app.command()(outliers)
app.command()(cluster)
app.command()(export)
app.command()(tune)
app.command()(reproduce)
app.command()(table)
app.command()(figure)
app.command()(ship)
app.command()(verify)
app.add_typer(bench, name="bench")


@app.command()
def version() -> None:
    """Print the versions of lg2ar and of what it runs on."""
    from lg2ar.records import versions

    print(json.dumps(versions(), indent=2))


def main() -> NoReturn:
    """Run the command line; bad input ends with one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ± shows ?
    try:
        _run()
    except SystemExit as end:
        end_at_once(end.code)
        raise


def _run() -> NoReturn:
    try:
        with stopping_in_time(silent=not speaks_for_itself()), _telling():
            code = app(standalone_mode=False)
    except (InputError, LostProcessError, NonFiniteLossError, MemoryShortageError) as error:
        _refuse(str(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(tell_rest())
    except Exception as error:
        if hasattr(error, "format_message"):  # what typer says of a misspelt command or option
            _refuse_usage(error)
        if is_shortage(error):
            _refuse("out of memory; lower hidden, batch_size or degree_cap.")
        raise
    if code == INTERRUPTED:  # as what typer hands on every interrupt
        sys.exit(tell_rest())
    sys.exit(code if isinstance(code, int) else 0)


class _Teller(logging.Handler):
    """Prints what the library has to tell, as the command line says everything."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a sentence to what is standard error at this moment."""
        print(f"lg2ar: {record.getMessage()}", file=sys.stderr)


@contextmanager
def _telling() -> Iterator[None]:
    teller, logger = _Teller(logging.WARNING), logging.getLogger("lg2ar")
    logger.addHandler(teller)
    try:
        yield
    finally:
        logger.removeHandler(teller)


def _refuse(sentence: str) -> NoReturn:
    print(f"lg2ar: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(2)


def _refuse_usage(error: Any) -> NoReturn:
    message = error.format_message()
    if error.ctx is not None and not sys.argv[1:]:
        print(error.ctx.get_help())
        sys.exit(2)
    command = error.ctx.command_path if error.ctx is not None else "lg2ar"
    _refuse(f"{message.rstrip('.')}; see '{command} --help'.")


def _folder_of(out: Path) -> Path:
    """The folder a file is going to be in, made where it is missing."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error}).") from None
    return out.parent


def _begun(out: Path) -> tuple[Level | None, dict[str, Any] | None]:
    """The level and the reading options of the run in a folder, where there is one."""
    from lg2ar import checkpoint

    if not checkpoint.exists(out):
        return None, None
    held = checkpoint.read(out)
    return held.config.level, held.data.get("reading")


def _summary(run: Run, out: Path) -> str:
    if not run.history:
        return f"Nothing was trained (epochs = 0); the initialised model is in {out}"
    last = run.history[-1]
    policy = ", ".join(
        f"{name} {p:.2f}" for name, p in zip(run.config.heads, last.probabilities, strict=True)
    )
    seconds = sum(record.seconds for record in run.history)
    return (
        f"{last.epoch} epochs in {seconds:.1f} s, loss {run.history[0].loss:.4f} to "
        f"{last.loss:.4f}\nPolicy: {policy}\nRun folder: {out}"
    )
