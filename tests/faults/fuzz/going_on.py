"""Inputs to go on with: a training, a fine-tuning, a search, and one large graph on a disk.

Checksums and seals are made to fit, so that a reader gets to what is behind them. Tensors are given
as they are, or as JSON that says what they are, which can be changed and is still a weight file.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import sqlalchemy
import torch
from optuna.storages._rdb.storage import _VersionManager
from safetensors.torch import load, save

from faults.fuzz import seeds
from faults.fuzz.seeds import CUT
from lg2ar.checkpoint import RUN_FILE
from lg2ar.config import Config
from lg2ar.data.batches import as_store
from lg2ar.data.dataset import Dataset
from lg2ar.data.mapped_layout import MANIFEST, check_sums
from lg2ar.data.mapping import write_mapped
from lg2ar.data.sources import read
from lg2ar.data.toy import toy_graphs
from lg2ar.experiment import make_batches, pretrain
from lg2ar.finetuning import finetune
from lg2ar.finetuning.early_stopping import TunedEpoch
from lg2ar.finetuning.progress import BEGUN
from lg2ar.runs import Run
from lg2ar.tuning import tune
from lg2ar.tuning.search import DATABASE
from lg2ar.tuning.trials import TrialJob, TrialResult, TrialWorker
from sealing import sealed

Files = dict[str, bytes]
TYPES = {"f4": torch.float32, "f8": torch.float64, "f2": torch.float16, "i8": torch.int64}
NAMES = {kind: name for name, kind in TYPES.items()}
MOST = 1 << 16  # numbers of a tensor


# Folders with weights.


@cache
def trained() -> Files:
    """The files of a run that was stopped after one of two epochs."""
    return _stopped_run(seeds.tables(), {**seeds.SETTINGS, "hidden": 2, "patience": 3})


def _stopped_run(data: Dataset, settings: dict[str, Any]) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        pretrain(data, settings, out=folder, device="cpu")
        return seeds.files_of(Path(folder))


def inputs(files: Files, head: str, part: str) -> list[bytes]:
    """A folder's JSON file in one line and one of its weight files, in both ways."""
    weights = next(held for name, held in files.items() if name.startswith(f"{part}-"))
    line = json.dumps(json.loads(files[head])).encode()
    return [CUT.join([line, described(weights)]), CUT.join([line, weights])]


def described(weights: bytes) -> bytes:
    """A weight file as JSON: name, type, shape and one number for all of them."""
    held = {
        key: [NAMES[value.dtype], list(value.shape), value.reshape(-1)[:1].tolist()[0]]
        for key, value in load(weights).items()
    }
    return json.dumps(held).encode()


def _weights(part: bytes) -> bytes:
    """The weight file that an input means.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: When it means none.
    """
    if not part.startswith(b"{"):
        return part
    made = {}
    for key, (kind, shape, value) in json.loads(part).items():
        if not 0 <= math.prod(shape) <= MOST or len(shape) > 8:
            raise ValueError("too large for an input")
        made[key] = torch.full(tuple(shape), value, dtype=TYPES[kind])
    return save(made)


def write(data: bytes, files: Files, head: str, part: str, folder: Path) -> bool:
    """Make a folder of an input, its checksums right; whether it is one."""
    line, _, rest = data.partition(CUT)
    name = next(name for name in files if name.startswith(f"{part}-"))
    try:
        weights = _weights(rest)
    except Exception:  # of whatever library: what cannot be written is no input
        return False
    before, now = hashlib.sha256(files[name]).hexdigest(), hashlib.sha256(weights).hexdigest()
    _clear(folder)
    for other, content in files.items():
        (folder / other).write_bytes(content)
    (folder / name).write_bytes(weights)
    (folder / head).write_bytes(sealed(line.replace(before.encode(), now.encode())))
    return True


def _clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def read_training(data: bytes, folder: Path) -> Any:
    """Go on with a run for an epoch."""
    home = folder / "run"
    if not write(data, trained(), RUN_FILE, "training", home):
        return None
    return pretrain(seeds.tables(), {"epochs": 2}, out=home, resume=True, device="cpu")


@cache
def begun() -> Files:
    """The files of a fine-tuning that was stopped after one of two epochs."""

    def stop(name: str, record: TunedEpoch) -> None:
        raise KeyboardInterrupt

    run, data = seeds.to_fine_tune()
    with tempfile.TemporaryDirectory() as folder:
        with suppress(KeyboardInterrupt):
            finetune(run, data, out=folder, on_epoch=stop, floor=False, **seeds.TUNING)
        return seeds.files_of(Path(folder))


def read_fine_tuning(data: bytes, folder: Path) -> Any:
    """Go on with a fine-tuning for an epoch."""
    home = folder / "tuned"
    if not write(data, begun(), BEGUN, "pretrained", home):
        return None
    run, labelled = seeds.to_fine_tune()
    return finetune(run, labelled, out=home, resume=True, floor=False, **seeds.TUNING)


# One large graph.


LINKS = b"source,target,weight\n1,2,0.5\n2,3,1.5\n3,1,2\n4,1,1\n4,2,0.5\n"
NODES = b"node,size,colour,y,price\n1,0.5,x,a,1\n2,1.5,y,b,2\n3,2,x,a,\n4,1,,b,0.5\n"


@cache
def one_graph() -> Dataset:
    """One graph out of tables, with directions, weights, columns, ids and labels."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "edges.csv").write_bytes(LINKS)
        (Path(folder) / "nodes.csv").write_bytes(NODES)
        return read(folder, level="node", labels="y", directed=True)


@cache
def mapped() -> Files:
    """The files of the graph's folder, the manifest first and in one line."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "some.graph"
        write_mapped(home, one_graph())
        files = seeds.files_of(home)
    line = sealed(json.dumps(json.loads(files.pop(MANIFEST))).encode())
    return {MANIFEST: line, **files}


@cache
def node_run() -> Run:
    """A run on the same graph in memory."""
    settings = {"hidden": 2, "layers": 1, "epochs": 0, "level": "node", "batch_size": 2, "hops": 2}
    return pretrain(one_graph(), settings, device="cpu")


def read_mapped(data: bytes, folder: Path) -> Any:
    """Open a folder, and read everything in it in all ways."""
    home = folder / "some.graph"
    _clear(home)
    names = list(mapped())
    parts = data.split(CUT)
    for name, part in zip(names, [*parts, *[b""] * len(names)], strict=False):
        (home / name).write_bytes(sealed(part) if name == MANIFEST else part)
    dataset = read(home)
    columns = [column.values for column in (*dataset.node_columns, *dataset.edge_columns)]
    known = list(dataset.ids or ()), dict(dataset.targets), dataset.y
    run = node_run()
    rows = run.embed(dataset)
    graph = run.recipe.apply(dataset)
    drawn = list(make_batches(as_store(graph, "cpu"), run.config)(0))
    whole = dataset.graph.whole.validate(str(home))  # type: ignore[attr-defined]
    check_sums(home)
    return columns, known, rows, drawn, whole


# A search.


SEARCH: dict[str, Any] = {
    "hidden": 2,
    "epochs": 1,
    "batch_size": 4,
    "policy": "random",
    "hops": 1,
    "temperature": 1.0,
    "ratio": 0.8,
}


def _search(folder: Path, trials: int, worker: Callable[..., TrialResult]) -> Any:
    """Search without training: what is read is the study."""
    with (
        mock.patch.object(TrialWorker, "__call__", worker),
        mock.patch("lg2ar.tuning.shared.PATIENCE", 0.0),
        mock.patch("lg2ar.tuning.shared.TRIES", 1),
        mock.patch("lg2ar.tuning.search.PAUSE", 0.02),
        mock.patch.object(_VersionManager, "get_head_version", _newest),
        mock.patch("sqlalchemy.engine.create_engine", _engine),
        mock.patch("optuna.storages._rdb.storage.time", mock.Mock(spec=["sleep"])),
    ):
        return tune(_searched(), folder, trials=trials, settings=SEARCH, device="cpu", timeout=5.0)


@cache
def _searched() -> Dataset:
    return toy_graphs(6)


_engines: dict[str, Any] = {}


def _engine(url: str, **how: Any) -> Any:
    """SQLAlchemy's engine of a file, kept for the statements it has translated; not what it read.

    It opens the file anew for each input, and leaves out to wait for the disk.
    """
    if url not in _engines:
        _engines[url] = sqlalchemy.create_engine(url, **how)
        sqlalchemy.event.listen(_engines[url], "connect", _hasty)
    _engines[url].dispose()
    return _engines[url]


def _hasty(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


_find_newest = _VersionManager.get_head_version
_known: list[str] = []


def _newest(manager: Any) -> str:
    """Optuna's newest format, for which it would read ten files each time."""
    if not _known:
        _known.append(_find_newest(manager))
    return _known[0]


def _easy(worker: TrialWorker, job: TrialJob) -> TrialResult:
    Config.make({**worker._fixed, **job.chosen})
    return TrialResult(0.25)


def _stopped(worker: TrialWorker, job: TrialJob) -> TrialResult:
    if job.untrained:
        return TrialResult(0.25)
    raise KeyboardInterrupt


# One that is stopped lines its trial up again; one that is killed has no time to.
_KILLED = (
    "UPDATE trials SET state = 'RUNNING', datetime_complete = NULL WHERE state = 'FAIL'",
    "DELETE FROM trial_user_attributes WHERE trial_id = 3",
    "DELETE FROM trial_system_attributes WHERE trial_id = 3",
    "DELETE FROM trials WHERE state = 'WAITING'",
)


@cache
def study() -> list[bytes]:
    """A search that was killed in its second trial: as statements, and as the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DATABASE
        with suppress(KeyboardInterrupt):
            _search(Path(folder), 2, _stopped)
        with _connected(path) as connection:
            for statement in (*_KILLED, "PRAGMA page_size = 512", "VACUUM"):
                connection.execute(statement)
            text = ";\n".join(line.rstrip(";") for line in connection.iterdump())
        return [text.encode(), path.read_bytes()]


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def read_study(data: bytes, folder: Path) -> Any:
    """Go on with a search until it has two trials."""
    home = folder / "study"
    _clear(home)
    if data.startswith(b"SQLite format 3\0"):
        (home / DATABASE).write_bytes(data)
    else:
        make_database(data, home / DATABASE)
    return _search(home, 2, _easy)


# Nothing else than tables is made here: no other file is opened, nothing waits.
_DENIED = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_RECURSIVE)


def make_database(data: bytes, path: Path) -> None:
    """Make a database of statements; what cannot be one is passed over."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 20)
    connection.set_authorizer(lambda kind, *_: sqlite3.SQLITE_DENY if kind in _DENIED else 0)
    for statement in data.decode("utf-8", "replace").split(";\n"):
        try:
            connection.execute(statement)
        except (sqlite3.Error, sqlite3.Warning, ValueError):
            continue
    connection.close()
