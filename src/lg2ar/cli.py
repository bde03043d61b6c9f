"""The command line: parse, call, print."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lg2ar.errors import InputError, NonFiniteLossError

if TYPE_CHECKING:
    from lg2ar.config import Config
    from lg2ar.experiment import Run
    from lg2ar.records import EpochRecord

app = typer.Typer(
    help="Embeddings of graphs and nodes without labels, by learned augmentations (LG2AR).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="toy-graphs, toy-nodes, a benchmark by name (see lg2ar datasets), or an .npz file.",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        envvar="LG2AR_DATA", help="Folder of the benchmark data sets; default: the user's cache."
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting; may be repeated."),
]
SHORT = {
    "identity": "identity",
    "node-dropping": "nodes",
    "edge-perturbation": "edges",
    "sub-graph": "sub-graph",
    "feature-masking": "features",
}
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


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
    from lg2ar.report.maps import EmbeddingMap, project
    from lg2ar.report.page import write_page

    with _progress() as (on_start, on_epoch):
        result = run_demo(
            out, _settings(None, setting, seed), device, on_start=on_start, on_epoch=on_epoch
        )
    labels = result.labels.numpy()
    embedded = {"untrained": result.untrained, "trained": result.trained}
    scores = {"untrained": result.untrained_score, "trained": result.trained_score}
    maps = {name: EmbeddingMap(project(rows.numpy()), labels) for name, rows in embedded.items()}
    page = write_page(out, scores=scores, maps=maps)
    print(f"Accuracy, {result.trained_score.protocol}:")
    for name, score in scores.items():
        print(f"  {name:<10} {score.mean:.1f} ± {score.std:.1f} %")
    print(_summary(result.run, out))
    print(f"Report page: {page}")
    if record is not None:
        append_line(record, result.record().to_json())


@app.command()
def pretrain(
    source: SourceArgument,
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
    setting: SettingOption = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set seed=N.")] = None,
    device: DeviceOption = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    data: DataOption = None,
) -> None:
    """Learn embeddings of graphs, or of the nodes of one large graph, without labels."""
    from lg2ar import experiment

    _look_for_data_in(data)
    settings = _settings(config, setting, seed)
    with _progress() as (on_start, on_epoch):
        run = experiment.pretrain(
            source,
            settings,
            out=out,
            resume=resume,
            device=device,
            on_start=on_start,
            on_epoch=on_epoch,
        )
    print(_summary(run, out))


@app.command()
def embed(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that pretrain wrote.")],
    source: SourceArgument,
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .npz.")],
    device: DeviceOption = "auto",
    data: DataOption = None,
) -> None:
    """Embed graphs, or the nodes of one large graph, with a trained encoder."""
    from lg2ar import experiment
    from lg2ar.data.sources import open_source
    from lg2ar.embeddings import check_format, write_embeddings

    _look_for_data_in(data)
    check_format(out)
    if out.resolve() == Path(source).resolve():
        raise InputError(f"{out}: is the source itself; choose another --out.")
    trained = experiment.load(run, device)
    dataset = open_source(source, trained.config.level)
    rows = trained.embed(dataset)
    write_embeddings(out, rows, dataset.y)
    print(f"{len(rows)} embeddings of width {rows.size(1)} written to {out}")


@app.command()
def datasets(
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False,
) -> None:
    """List the benchmark data sets, and which of them are here."""
    from dataclasses import asdict

    from lg2ar.data.benchmarks import BENCHMARKS, data_root, present

    rows = [asdict(item) | {"present": present(item, data)} for item in BENCHMARKS.values()]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    names = ("name", "level", "graphs", "nodes", "edges", "features", "classes", "present")
    print(f"{names[0]:<18}{names[1]:<7}" + "".join(f"{name:>10}" for name in names[2:]))
    for row in rows:
        numbers = "".join(f"{row[name]:>10g}" for name in names[2:-1])
        here = "yes" if row["present"] else "no"
        print(f"{row['name']:<18}{row['level']:<7}{numbers}{here:>10}")
    print(f"Nodes and edges of many graphs are means. Data folder: {data_root(data)}")


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
        code = app(standalone_mode=False)
    except (InputError, NonFiniteLossError) as error:
        _refuse(str(error))
    except Exception as error:
        if hasattr(error, "format_message"):  # what typer says of a misspelt command or option
            _refuse_usage(error)
        if isinstance(error, MemoryError) or "allocate" in str(error) or "memory" in str(error):
            _refuse("out of memory; lower hidden, batch_size or degree_cap.")
        raise
    sys.exit(code if isinstance(code, int) else 0)


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


def _settings(file: Path | None, pairs: list[str] | None, seed: int | None) -> dict[str, Any]:
    from lg2ar.config import parse_setting, read_toml

    settings = {} if file is None else read_toml(file)
    settings |= dict(parse_setting(pair) for pair in pairs or [])
    if seed is not None:
        settings["seed"] = seed
    return settings


def _look_for_data_in(folder: Path | None) -> None:
    if folder is not None:
        os.environ["LG2AR_DATA"] = str(folder)


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


@contextmanager
def _progress() -> Iterator[tuple[Callable[[Config, int], None], Callable[[EpochRecord], None]]]:
    """A progress bar with loss, draws and speed; silent where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.completed}/{task.total}"),
        BarColumn(bar_width=10),
        TextColumn("loss {task.fields[loss]}  {task.fields[drawn]}  {task.fields[speed]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, loss="-", drawn="-", speed="")
        heads: tuple[str, ...] = ()

        def on_start(config: Config, done: int) -> None:
            nonlocal heads
            heads = config.heads
            bar.update(task, total=config.epochs, completed=done)

        def on_epoch(record: EpochRecord) -> None:
            i, j = record.most_drawn()
            bar.update(
                task,
                completed=record.epoch,
                loss=f"{record.loss:.4f}",
                drawn=f"{SHORT[heads[i]]} + {SHORT[heads[j]]}",
                speed=f"{record.steps / max(record.seconds, 1e-9):.0f} steps/s",
            )

        try:
            yield on_start, on_epoch
        except KeyboardInterrupt:
            message = "lg2ar: interrupted; the last checkpoint is kept, --resume goes on."
            print(message, file=sys.stderr)
            raise typer.Exit(130) from None
