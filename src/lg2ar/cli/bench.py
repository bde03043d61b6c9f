"""The commands that measure: how long a step, an epoch, a probe take, and how that grows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from lg2ar.cli.options import (
    DataOption,
    DeviceOption,
    SettingOption,
    look_for_data_in,
    read_settings,
    read_words,
)
from lg2ar.errors import InputError

bench = typer.Typer(
    help="Measure time and memory: of a step, an epoch, the probe, growing data, many seeds.",
    no_args_is_help=True,
)

DatasetsOption = Annotated[
    list[str] | None,
    typer.Option(help="Data sets, comma-separated or repeated; default: the paper's eight."),
]
MethodsOption = Annotated[
    list[str] | None,
    typer.Option(help="lg2ar, infograph, graphcl, comma-separated or repeated; default: lg2ar."),
]
PresetOption = Annotated[str, typer.Option(help="Named settings to start from.")]
ShapeOption = Annotated[
    str, typer.Option(help="preset, or pygcl: hidden 256, 3 layers, batches of 128 everywhere.")
]
RepeatOption = Annotated[
    int | None, typer.Option(min=1, help="Epochs to time; default: 5 on a CPU, 20 on CUDA.")
]
WarmupOption = Annotated[
    int | None, typer.Option(min=0, help="Epochs before these; default: 2 on a CPU, 10 on CUDA.")
]
ProfileOption = Annotated[
    bool, typer.Option("--profile", help="Show the largest kernels (CPU: operations) too.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON lines, for scripts.")]
OutOption = Annotated[
    Path | None, typer.Option(help="File to append the results to, a JSON line each.")
]


@bench.command()
def step(
    datasets: DatasetsOption = None,
    methods: MethodsOption = None,
    device: DeviceOption = "auto",
    preset: PresetOption = "paper",
    shape: ShapeOption = "preset",
    setting: SettingOption = None,
    repeat: RepeatOption = None,
    warmup: WarmupOption = None,
    profile: ProfileOption = False,
    against: Annotated[
        str | None, typer.Option(help="pyg: time PyG's own expression of the step too (CPU).")
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    data: DataOption = None,
) -> None:
    """Time a training step: wall clock, and on CUDA the sum of its kernels and their number."""
    from lg2ar.bench.step import measure_steps, top_table
    from lg2ar.bench.tables import ORDER
    from lg2ar.devices import choose_device

    if against not in (None, "pyg"):
        raise InputError(f"--against {against}: there is nothing but pyg to compare with.")
    look_for_data_in(data)
    made = measure_steps(
        read_words(datasets) or ORDER,
        read_words(methods) or ["lg2ar"],
        choose_device(device),
        preset=preset,
        shape=shape,
        changes=read_settings(None, setting, None),
        repeat=repeat,
        warmup=warmup,
        profiled=profile,
        against_pyg=against == "pyg",
    )
    for told in _told(made, as_json, out):
        if profile and not as_json and told.get("top"):
            print("\n".join(top_table(told)), flush=True)


@bench.command()
def epoch(
    datasets: DatasetsOption = None,
    methods: MethodsOption = None,
    device: DeviceOption = "auto",
    preset: PresetOption = "paper",
    shape: ShapeOption = "preset",
    setting: SettingOption = None,
    repeat: RepeatOption = None,
    warmup: WarmupOption = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Train all epochs of the preset and time the run.")
    ] = False,
    as_json: JsonOption = False,
    out: OutOption = None,
    data: DataOption = None,
) -> None:
    """Time epochs alone, or a whole run from the settings to the trained encoder."""
    from lg2ar.bench.step import measure_steps
    from lg2ar.bench.tables import ORDER
    from lg2ar.devices import choose_device

    look_for_data_in(data)
    made = measure_steps(
        read_words(datasets) or ORDER,
        read_words(methods) or ["lg2ar"],
        choose_device(device),
        preset=preset,
        shape=shape,
        changes=read_settings(None, setting, None),
        repeat=repeat,
        warmup=warmup,
        bench="epoch",
        whole=whole,
    )
    for _ in _told(made, as_json, out):
        pass


@bench.command()
def probe(
    datasets: Annotated[
        list[str] | None,
        typer.Option(help="Data sets whose untrained embeddings are read, as with --real."),
    ] = None,
    device: DeviceOption = "auto",
    real: Annotated[
        bool, typer.Option("--real", help="Embeddings of the graph sets that are here.")
    ] = False,
    folds: Annotated[
        int, typer.Option(min=1, max=10, help="Folds that scikit-learn is timed on.")
    ] = 1,
    rows: Annotated[int, typer.Option(min=60, help="Generated rows; COLLAB has 5000.")] = 5000,
    width: Annotated[int, typer.Option(min=1, help="Their width.")] = 512,
    as_json: JsonOption = False,
    out: OutOption = None,
    data: DataOption = None,
) -> None:
    """Time the linear SVM of the protocols, against scikit-learn or on real embeddings."""
    from lg2ar.bench.probe import compare, measure_embeddings
    from lg2ar.devices import choose_device

    look_for_data_in(data)
    target, names = choose_device(device), read_words(datasets)
    if names or real:
        made = measure_embeddings(names, target)
    else:
        made = compare(target, folds=folds, num_rows=rows, width=width)
    for _ in _told(made, as_json, out):
        pass


@bench.command()
def growth(
    what: Annotated[
        list[str] | None,
        typer.Option(help="graphs, memory, nodes, comma-separated; default: all three."),
    ] = None,
    largest: Annotated[
        int | None,
        typer.Option(help="Stop at so many nodes and edges (graphs) or nodes (nodes)."),
    ] = None,
    device: DeviceOption = "auto",
    setting: SettingOption = None,
    repeat: Annotated[int, typer.Option(min=1, help="Epochs to time, at least.")] = 3,
    figure: Annotated[
        Path | None, typer.Option(help="Where to draw the curves, without ending (PNG and SVG).")
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Time epochs of growing collections and steps on growing graphs, and fit straight lines."""
    from lg2ar.bench import growth as measured
    from lg2ar.devices import choose_device

    target, changes = choose_device(device), read_settings(None, setting, None)
    wanted = read_words(what) or ["graphs", "memory", "nodes"]
    unknown = [word for word in wanted if word not in ("graphs", "memory", "nodes")]
    if unknown:
        raise InputError(f"'{unknown[0]}' does not grow; there are graphs, memory, nodes.")
    bound = {} if largest is None else {"largest": largest}
    made: list[dict[str, Any]] = []
    if "graphs" in wanted:
        found = measured.measure_graphs(target, changes=changes, repeat=repeat, **bound)
        made += _told(found, as_json, out)
    if "memory" in wanted:
        made += _told(measured.measure_memory(target, changes=changes), as_json, out)
    if "nodes" in wanted:
        made += _told(measured.measure_nodes(target, changes=changes, **bound), as_json, out)
    if figure is not None:
        for path in measured.draw_growth(made, figure):
            typer.echo(path, err=as_json)


@bench.command()
def seeds(
    datasets: DatasetsOption = None,
    number: Annotated[int, typer.Option("--seeds", min=1, help="Seeds trained together.")] = 10,
    epochs: Annotated[int, typer.Option(min=1, help="Of each run.")] = 20,
    warmup: Annotated[int, typer.Option(min=1, help="Epochs not counted.")] = 5,
    device: DeviceOption = "auto",
    preset: PresetOption = "paper",
    shape: ShapeOption = "preset",
    setting: SettingOption = None,
    profile: ProfileOption = False,
    as_json: JsonOption = False,
    out: OutOption = None,
    data: DataOption = None,
) -> None:
    """Time many seeds of one setting in one process against one, and compare their losses."""
    from lg2ar.bench.seeds import measure_seeds
    from lg2ar.bench.step import top_table
    from lg2ar.bench.tables import ORDER
    from lg2ar.devices import choose_device

    look_for_data_in(data)
    made = measure_seeds(
        read_words(datasets) or ORDER,
        choose_device(device),
        seeds=number,
        epochs=epochs,
        warmup=warmup,
        preset=preset,
        shape=shape,
        changes=read_settings(None, setting, None),
        profiled=profile,
    )
    for told in _told(made, as_json, out):
        if profile and not as_json:
            print("\n".join(top_table(told)), flush=True)


@bench.command()
def huge(
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            "--nodes", help="Nodes of a graph; may be repeated; default: 10^5, 10^6, 10^7."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where graphs are written (10^7 nodes: 4 GB and as much again)."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave them in --folder.")] = False,
    steps: Annotated[int, typer.Option(min=1, help="Steps to time.")] = 50,
    part: Annotated[int, typer.Option(min=1, help="Nodes to embed by their neighbourhood.")] = 1000,
    whole_up_to: Annotated[
        int, typer.Option(help="Embed all nodes of graphs up to so many.")
    ] = 1_000_000,
    device: DeviceOption = "auto",
    setting: SettingOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Time steps and embeddings of one very large graph that stays on its disk."""
    from lg2ar.bench.huge import SIZES, measure_huge
    from lg2ar.devices import choose_device

    made = measure_huge(
        choose_device(device),
        sizes=tuple(sizes or SIZES),
        folder=folder,
        keep=keep,
        changes=read_settings(None, setting, None),
        steps=steps,
        part=part,
        whole_up_to=whole_up_to,
    )
    for _ in _told(made, as_json, out):
        pass


@bench.command()
def scaling(
    processes: Annotated[
        list[str] | None, typer.Option(help="How many, comma-separated; default: 1,2,4.")
    ] = None,
    setting: SettingOption = None,
    repeat: Annotated[int, typer.Option(min=1, help="Epochs to time.")] = 5,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Time training in several CPU processes, as many graphs in each (weak scaling)."""
    from lg2ar.bench.scaling import PROCESSES, measure_scaling

    words = read_words(processes)
    wrong = [word for word in words if not word.isdecimal() or int(word) < 1]
    if wrong:
        raise InputError(f"--processes {wrong[0]}: give numbers from 1 on, such as 1,2,4.")
    made = measure_scaling(
        [int(word) for word in words] or PROCESSES,
        changes=read_settings(None, setting, None),
        repeat=repeat,
    )
    for _ in _told(made, as_json, out):
        pass


def _told(
    made: Iterable[dict[str, Any]], as_json: bool, out: Path | None
) -> Iterable[dict[str, Any]]:
    """Print each record, and append it to the file, the moment it is there."""
    from lg2ar.bench.lines import line
    from lg2ar.files import append_line, check_writable

    if out is not None:
        check_writable(out)  # before hours of work, not after
    for told in made:
        text = json.dumps(told)
        print(text if as_json else line(told), flush=True)
        if out is not None:
            append_line(out, text)
        yield told
