"""Every reader of what others wrote: how it is called, and inputs to begin with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.fuzz import going_on, seeds
from faults.fuzz.seeds import CUT
from lg2ar.checkpoint import RUN_FILE
from lg2ar.config import Config, parse_setting
from lg2ar.data.benchmarks import CACHE, open_benchmark
from lg2ar.data.raw_files import raw_files
from lg2ar.data.reading import REMEMBERED, ReadOptions
from lg2ar.data.sources import read
from lg2ar.data.toy import toy_graphs
from lg2ar.embeddings import read_embeddings
from lg2ar.finetuning.progress import BEGUN
from lg2ar.finetuning.saved import FILE, load_finetuned
from lg2ar.runs import load
from lg2ar.shipping import read_encoder
from sealing import sealed

Read = Callable[[bytes, Path], Any]


@dataclass(frozen=True)
class Target:
    """A reader under test.

    Attributes:
        name: What it is called.
        seeds: Makes inputs that are as they should be.
        read: Reads an input, which it may write into a folder first.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    read: Read


def _as_file(name: str, **options: Any) -> Read:
    """Write the input to a file of this name, and read it as a source."""

    def reader(data: bytes, folder: Path) -> Any:
        path = folder / name
        path.write_bytes(data)
        return read(path, **options)

    return reader


def _as_files(*names: str, source: str | None = None) -> Read:
    """The same for an input that consists of several files."""

    def reader(data: bytes, folder: Path) -> Any:
        parts = data.split(CUT)
        for name, part in zip(names, [*parts, *[b""] * len(names)], strict=False):
            (folder / name).write_bytes(part)
        return read(folder if source is None else folder / source)

    return reader


def _read_disk(data: bytes, folder: Path) -> Any:
    path = folder / "some.sqlite"
    path.write_bytes(data)
    return _through(path)


def _read_statements(data: bytes, folder: Path) -> Any:
    """Make a database of these statements first; what cannot be one is not an input."""
    path = folder / "made.sqlite"
    going_on.make_database(data, path)
    return _through(path)


def _through(path: Path) -> Any:
    """Open an on-disk data set and read everything in it."""
    dataset = read(path)
    values = [column.values for column in (*dataset.node_columns, *dataset.edge_columns)]
    return dataset.graph.whole.validate(str(path)), values  # type: ignore[attr-defined]


def _read_config(data: bytes, folder: Path) -> Any:
    path = folder / "some.toml"
    path.write_bytes(data)
    return Config.from_toml(path)


def _read_setting(data: bytes, folder: Path) -> Any:
    return Config.make(dict([parse_setting(data.decode("utf-8", "surrogateescape"))]))


def _with_weights(files: dict[str, bytes], head: str, folder: Path) -> None:
    for name, content in files.items():
        if name != head and not (folder / name).exists():
            (folder / name).write_bytes(content)


def _use(folder: Path) -> Any:
    """Read a run, write its record, and embed what it was trained on."""
    run = load(folder, device="cpu")
    reading = ReadOptions().filled(run.reading, REMEMBERED)  # as another source would be read
    return run.record({}).to_json(), reading, run.embed(seeds.tables())


def _read_run(data: bytes, folder: Path) -> Any:
    _with_weights(seeds.run()[1], RUN_FILE, folder)
    (folder / RUN_FILE).write_bytes(sealed(data))
    return _use(folder)


def _read_tuned(data: bytes, folder: Path) -> Any:
    _with_weights(seeds.fine_tuned(), FILE, folder)
    (folder / FILE).write_bytes(sealed(data))
    return load_finetuned(folder, device="cpu").predict(toy_graphs(2))


def _read_weights(data: bytes, folder: Path) -> Any:
    """Weights whose checksum is right: what a person could write who wanted to."""
    head = json.loads(seeds.run()[1][RUN_FILE])
    head["files"]["model"] = {"name": "w", "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "w").write_bytes(data)
    (folder / RUN_FILE).write_bytes(seeds.json_bytes(head))
    return _use(folder)


def _weights() -> list[bytes]:
    files = seeds.run()[1]
    return [content for name, content in files.items() if name.startswith("model")]


def _read_shipped(data: bytes, folder: Path) -> Any:
    path = folder / "some.safetensors"
    path.write_bytes(sealed(data))
    return read_encoder(path).embed(seeds.tables())


def _read_recipe(data: bytes, folder: Path) -> Any:
    """A recipe as a run folder holds it."""
    head = json.loads(seeds.run()[1][RUN_FILE])
    try:
        head["recipe"] = json.loads(data)
    except (ValueError, RecursionError):
        return None
    _with_weights(seeds.run()[1], RUN_FILE, folder)
    (folder / RUN_FILE).write_bytes(seeds.json_bytes(head))
    return _use(folder)


def _read_records(data: bytes, folder: Path) -> Any:
    from lg2ar.report.cells import cells
    from lg2ar.report.layouts import render
    from lg2ar.report.questions import findings
    from lg2ar.report.tables import read_records
    from lg2ar.study.ledger import Ledger

    path = folder / "some.jsonl"
    path.write_bytes(data)
    found = read_records(path)
    made = [render(cells(found, table), table, "md") for table in ("graph", "cost")]
    return made, findings(found), Ledger(path)


def _read_embeddings(name: str) -> Read:
    def reader(data: bytes, folder: Path) -> Any:
        path = folder / name
        path.write_bytes(data)
        return read_embeddings(path)

    return reader


def _read_benchmark(name: str, folder_name: str, *files: str) -> Read:
    """Raw files, or the cache, of a benchmark data set under the data root."""

    def reader(data: bytes, folder: Path) -> Any:
        home = folder / folder_name
        (home / "raw").mkdir(parents=True, exist_ok=True)
        (home / CACHE).unlink(missing_ok=True)
        parts = data.split(CUT)
        for file, part in zip(files, [*parts, *[b""] * len(files)], strict=False):
            (home / file).write_bytes(part)
        return open_benchmark(name, folder)

    return reader


PLANETOID = tuple(f"raw/{file}" for file in raw_files("Planetoid", "CiteSeer"))
AMAZON = f"raw/{raw_files('Amazon', 'Photo')[0]}"


def _planetoid() -> list[bytes]:
    held = seeds.planetoid()
    return [_bundle(*(held[file.partition(".citeseer.")[2]] for file in PLANETOID))]


def _bundle(*parts: bytes) -> bytes:
    return CUT.join(parts)


TU_FILES = tuple(f"TINY_{part}.txt" for part in seeds.TU)

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("csv", lambda: [seeds.EDGES, seeds.LIST], _as_file("edges.csv")),
        Target("tsv", lambda: [seeds.EDGES.replace(b",", b"\t")], _as_file("edges.tsv")),
        Target(
            "tables",
            lambda: [_bundle(seeds.EDGES, seeds.NODES, seeds.GRAPHS)],
            _as_files("edges.csv", "nodes.csv", "graphs.csv"),
        ),
        Target("parquet", lambda: [seeds.parquet()], _as_file("edges.parquet")),
        Target("edge-list", lambda: [seeds.LIST, seeds.EDGES], _as_file("some.edgelist")),
        Target("tu-folder", lambda: [_bundle(*seeds.TU.values())], _as_files(*TU_FILES)),
        Target("tu-zip", lambda: [seeds.tu_zip(), seeds.tu_zip(0)], _as_file("TINY.zip")),
        Target(
            "node-link",
            lambda: [seeds.json_bytes(seeds.LINKS), seeds.many_links()],
            _as_file("some.json"),
        ),
        Target("graphml", lambda: [seeds.GRAPHML], _as_file("some.graphml")),
        Target("gexf", lambda: [seeds.GEXF], _as_file("some.gexf")),
        Target("smiles", lambda: [seeds.SMILES], _as_file("some.smi")),
        Target("molecules", lambda: [seeds.MOLECULES], _as_file("molecules.csv", smiles="smiles")),
        Target("npz", lambda: [seeds.npz()], _as_file("some.npz")),
        Target("sqlite", lambda: [seeds.sqlite()], _read_disk),
        Target("sqlite-statements", lambda: [seeds.sqlite_statements()], _read_statements),
        Target(
            "graph-folder", lambda: [_bundle(*going_on.mapped().values())], going_on.read_mapped
        ),
        Target("planetoid", _planetoid, _read_benchmark("citeseer", "CiteSeer", *PLANETOID)),
        Target("amazon", lambda: [seeds.amazon()], _read_benchmark("photo", "Photo", AMAZON)),
        Target(
            "wikics",
            lambda: [seeds.wikics()],
            _read_benchmark("wikics", "WikiCS", "raw/data.json"),
        ),
        Target(
            "benchmark-cache",
            lambda: [seeds.benchmark_cache()],
            _read_benchmark("tu:TINY", "TINY", CACHE),
        ),
        Target("config", lambda: [seeds.TOML], _read_config),
        Target("setting", lambda: [b"hidden=64", b"heads=identity,node-dropping"], _read_setting),
        Target("run", lambda: [seeds.run()[1][RUN_FILE]], _read_run),
        Target("weights", _weights, _read_weights),
        Target(
            "training",
            lambda: going_on.inputs(going_on.trained(), RUN_FILE, "training"),
            going_on.read_training,
        ),
        Target("fine-tuned", lambda: [seeds.fine_tuned()[FILE]], _read_tuned),
        Target(
            "fine-tuning",
            lambda: going_on.inputs(going_on.begun(), BEGUN, "pretrained"),
            going_on.read_fine_tuning,
        ),
        Target("study", going_on.study, going_on.read_study),
        Target("shipped", lambda: [seeds.shipped()], _read_shipped),
        Target("recipe", seeds.recipes, _read_recipe),
        Target("records", seeds.records, _read_records),
        Target("embeddings-npz", lambda: [seeds.embeddings()], _read_embeddings("some.npz")),
        Target("embeddings-csv", lambda: [b"id,y,e0\na,1,0.5\n"], _read_embeddings("some.csv")),
    )
}
