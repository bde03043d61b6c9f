"""Nothing unpickles: a malicious pickle in the place of any input is refused and not run."""

from __future__ import annotations

import ast
import hashlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch

import lg2ar
from commands import Command
from faults.fuzz import seeds
from faults.payloads import Payload, inside, plain
from lg2ar.data.benchmarks import CACHE, open_benchmark
from lg2ar.data.planetoid import load_arrays
from lg2ar.data.raw_files import raw_files
from lg2ar.embeddings import read_embeddings
from lg2ar.errors import InputError
from sealing import sealed
from tiny import write_graphs

# Endings of sources, ours and those of pickles, and none.
ENDINGS = [
    ".csv",
    ".tsv",
    ".txt",
    ".edgelist",
    ".edges",
    ".parquet",
    ".json",
    ".graphml",
    ".gexf",
    ".smi",
    ".smiles",
    ".npz",
    ".npy",
    ".zip",
    ".sqlite",
    ".pt",
    ".pth",
    ".pkl",
    ".pickle",
    ".gpickle",
    ".joblib",
    ".bin",
    ".safetensors",
    ".gz",
    ".tar",
    ".xml",
    ".sdf",
]
KINDS = list(plain(Path("marker")))
FEW = ["pickle 2", "torch", "npy"]  # where the reader is one that is tried with all of them

_unpickled: list[str] = []
_listening = False


def _listen(event: str, details: tuple[Any, ...]) -> None:
    if _listening and event == "pickle.find_class":
        _unpickled.append(".".join(map(str, details)))


sys.addaudithook(_listen)  # Python tells of every name that a pickle looks up


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


@pytest.fixture
def evil(marker: Path) -> dict[str, bytes]:
    return plain(marker)


@pytest.fixture
def watched(marker: Path) -> Iterator[None]:
    """After the test: the payload was not run, and no pickle looked anything up."""
    global _listening
    _unpickled.clear()
    _listening = True
    yield
    _listening = False
    assert not marker.exists()
    assert _unpickled == []


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def refused(command: Command, *arguments: str | Path, by: str) -> None:
    """A command that must end with 2 and one sentence, behind the notes from reading its data.

    The sentence is of the file with the payload, or nobody had come as far as to look at it.
    """
    code, _, error = command(*arguments)
    assert code == 2, error
    assert all(line.startswith("lg2ar: ") for line in error.splitlines()), error
    assert by in error.splitlines()[-1], error


def spoilt(files: dict[str, bytes], head: str, name: str, content: bytes) -> dict[str, bytes]:
    """The files with another content of one, and its checksum made to fit: so it is looked at."""
    before, now = (hashlib.sha256(held).hexdigest() for held in (files[name], content))
    changed = sealed(files[head].replace(before.encode(), now.encode()))
    assert name == head or changed != files[head]
    return {**files, head: changed, name: content}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def tables(tmp_path: Path) -> Path:
    files = {"edges.csv": seeds.EDGES, "nodes.csv": seeds.NODES, "graphs.csv": seeds.GRAPHS}
    return write(tmp_path / "tables", files)


@pytest.mark.parametrize("kind", KINDS)
def test_the_payload_would_run(kind: str, marker: Path, evil: dict[str, bytes]) -> None:
    path = marker.with_name("evil")
    path.write_bytes(evil[kind])
    if kind.startswith("torch"):
        torch.load(path, weights_only=False)
    elif kind == "npy":
        np.load(path, allow_pickle=True)
    else:
        joblib.load(path)
    assert marker.exists()


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", KINDS)
def test_as_a_source(kind: str, tmp_path: Path, evil: dict[str, bytes], command: Command) -> None:
    for ending in ["", *ENDINGS]:
        path = tmp_path / f"edges{ending}"
        path.write_bytes(evil[kind])
        refused(command, "inspect", path, by=path.name)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", FEW)
def test_as_a_file_of_a_folder(
    kind: str, tmp_path: Path, evil: dict[str, bytes], command: Command
) -> None:
    graphs = {"edges.csv": seeds.EDGES, "nodes.csv": seeds.NODES, "graphs.csv": seeds.GRAPHS}
    texts = {f"TINY_{part}.txt": content for part, content in seeds.TU.items()}
    networks = {"a.graphml": seeds.GRAPHML, "b.json": seeds.json_bytes(seeds.LINKS)}
    for place, whole in enumerate((graphs, texts, networks)):
        for name in whole:
            folder = write(tmp_path / f"{place}-{name}", {**whole, name: evil[kind]})
            refused(command, "inspect", folder, by=f"{folder.name}/{name}")


# What is beside the data, describes it or is its name may be anything; the rest is refused.
CODES = {"zip beside": (0,), "parquet": (0, 2), "sqlite names": (0,)}


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("what", list(inside(Path("marker"))))
def test_inside_of_a_source(what: str, tmp_path: Path, marker: Path, command: Command) -> None:
    name, content = inside(marker)[what]
    path = tmp_path / name
    path.write_bytes(content)
    code, _, error = command("inspect", path)
    assert code in CODES.get(what, (2,)), error
    assert "Traceback" not in error
    if code == 0:
        command.ok("convert" if what == "zip beside" else "inspect", path, *_out(what, tmp_path))


def _out(what: str, folder: Path) -> list[Path]:
    return [folder / "out.sqlite"] if what == "zip beside" else []


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", FEW)
def test_as_an_option(kind: str, tmp_path: Path, evil: dict[str, bytes], command: Command) -> None:
    source = tables(tmp_path)
    edges, out = source / "edges.csv", tmp_path / "out"
    for ending in (".csv", ".parquet", ".pkl", ".toml", ".jsonl", ""):
        path = tmp_path / f"evil{ending}"
        path.write_bytes(evil[kind])
        for words in (
            ("inspect", edges, "--nodes", path),
            ("inspect", edges, "--graphs", path),
            ("pretrain", source, "--config", path, "--out", out),
            ("tune", source, "--config", path, "--out", out),
            ("table", "graph", "--records", path),
            ("table", "findings", "--records", path),
            ("figure", "loss", "--records", path),
            ("reproduce", "graph", "--records", path, "--datasets", "mutag"),
        ):
            refused(command, *words, by=path.name)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", KINDS)
def test_as_a_shipped_encoder(
    kind: str, tmp_path: Path, evil: dict[str, bytes], command: Command
) -> None:
    path = tmp_path / "evil.safetensors"
    path.write_bytes(evil[kind])
    refused(command, "verify", path, by=path.name)
    by_name = ("verify", "mutag", "--encoders", tmp_path)
    refused(command, *by_name, by="mutag.safetensors: there is no such encoder")
    path.rename(tmp_path / "mutag.safetensors")
    refused(command, *by_name, by="mutag.safetensors: not a shipped encoder")


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", FEW)
def test_as_a_file_of_a_run(
    kind: str, tmp_path: Path, evil: dict[str, bytes], command: Command
) -> None:
    source, files = tables(tmp_path), seeds.run()[1]
    for place, name in enumerate(files):
        whole = spoilt(files, "run.json", name, evil[kind])
        run = write(tmp_path / f"run-{place}", whole)
        refused(command, "pretrain", source, "--out", run, "--resume", by=name)
        if name.startswith("training"):  # which is there to go on with, and not read otherwise
            continue
        for words in (
            ("embed", run, source, "--out", tmp_path / "out.csv"),
            ("report", run, source, "--out", tmp_path / "page.html"),
            ("finetune", run, source, "--out", tmp_path / "tuned", "--labels", "y"),
            ("outliers", run, source),
            ("cluster", run, source),
            ("neighbours", run, source, "--query", "a"),
            ("export", run, "--out", tmp_path / "out.onnx"),
        ):
            refused(command, *words, by=name)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", FEW)
def test_as_a_file_of_a_fine_tuned_network(
    kind: str, tmp_path: Path, evil: dict[str, bytes], command: Command
) -> None:
    files = seeds.fine_tuned()
    for name in files:
        whole = spoilt(files, "finetuned.json", name, evil[kind])
        model = write(tmp_path / f"model-{name}", whole)
        out = tmp_path / "out.csv"
        refused(command, "predict", model, "toy-graphs", "--out", out, by=f"{model.name}/{name}")


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", FEW)
def test_as_a_study_or_a_data_set_to_go_on_with(
    kind: str, tmp_path: Path, evil: dict[str, bytes], command: Command
) -> None:
    source = tables(tmp_path)
    study = write(tmp_path / "study", {"tuning.db": evil[kind]})
    refused(command, "tune", source, "--out", study, "--trials", "1", by="study/tuning.db")
    disk = tmp_path / "some.sqlite"
    disk.write_bytes(evil[kind])
    refused(command, "convert", source, disk, "--append", by=disk.name)


BENCHMARKS = {
    "tu:TINY": ("TINY", [*raw_files("TUDataset", "TINY"), "TINY_node_labels.txt"]),
    "citeseer": ("CiteSeer", raw_files("Planetoid", "CiteSeer")),
    "photo": ("Photo", raw_files("Amazon", "Photo")),
    "coauthor-cs": ("CS", raw_files("Coauthor", "CS")),
    "wikics": ("WikiCS", raw_files("WikiCS", "WikiCS")),
}


def raw_content(name: str, file: str) -> bytes:
    """A raw file as it should be."""
    if name == "citeseer":
        return seeds.planetoid()[file.partition(".citeseer.")[2]]
    if name == "tu:TINY":
        return seeds.TU[file.removeprefix("TINY_").removesuffix(".txt")]
    return seeds.wikics() if name == "wikics" else seeds.amazon()


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("name", BENCHMARKS)
def test_as_a_raw_file_of_a_benchmark(name: str, tmp_path: Path, evil: dict[str, bytes]) -> None:
    folder, files = BENCHMARKS[name]
    whole = {file: raw_content(name, file) for file in files}
    for kind in KINDS:
        for file in files:
            root = tmp_path / f"{kind}-{file}"
            write(root / folder / "raw", {**whole, file: evil[kind]})
            with pytest.raises(InputError, match="is damaged"):
                open_benchmark(name, root)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", KINDS)
def test_as_what_pyg_left_beside(kind: str, tmp_path: Path, evil: dict[str, bytes]) -> None:
    write_graphs(tmp_path, graphs=4)
    names = ("data.pt", "pre_transform.pt", "pre_filter.pt", "data_undirected.pt")
    write(tmp_path / "TINY" / "processed", dict.fromkeys(names, evil[kind]))
    assert len(open_benchmark("tu:TINY", tmp_path)) == 4
    (tmp_path / "TINY" / CACHE).write_bytes(evil[kind])
    with pytest.warns(UserWarning, match="the cache is damaged"):
        assert len(open_benchmark("tu:TINY", tmp_path)) == 4


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", [".npz", ".csv", ".parquet"])
def test_as_embeddings(kind: str, ending: str, tmp_path: Path, evil: dict[str, bytes]) -> None:
    path = tmp_path / f"some{ending}"
    path.write_bytes(evil[kind])
    with pytest.raises(InputError, match="is not a file of embeddings"):
        read_embeddings(path)


@pytest.mark.usefixtures("watched")
def test_planetoid_s_pickles_are_arrays_alone(marker: Path) -> None:
    held = seeds.planetoid()
    assert load_arrays(held["y"]).shape == (4, 2)
    assert load_arrays(held["allx"]).dtype == np.float32
    assert load_arrays(held["graph"])[40] == [41]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises((pickle.UnpicklingError, ValueError)):
            load_arrays(pickle.dumps(Payload(marker), protocol))
    # Inside of what would be allowed, as an object of an array, and by an extension or from afar.
    nested = {0: [Payload(marker)], 1: [1]}
    for content in (
        pickle.dumps(nested, 2),
        pickle.dumps(np.array([Payload(marker)], dtype=object), 4),
        b"\x80\x02\x82\x01.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02cnumpy\nndarray\n}X\x01\x00\x00\x00aK\x01sb.",  # writes to what it was given
        b"\x80\x02cnumpy\nload\n.",
    ):
        with pytest.raises((pickle.UnpicklingError, ValueError)):
            load_arrays(content)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02K\x01r\xff\xff\xff\x7f.",  # a place for two thousand million objects
        b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b".",  # bytes that are not there
        b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",  # room for bytes
        pickle.dumps(np.zeros(3), 4).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85"),
    ],
)
def test_planetoid_s_pickles_cannot_ask_for_memory(content: bytes) -> None:
    import tracemalloc

    tracemalloc.start()
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        load_arrays(content)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


# What unpickles, or runs or unpacks what it is given, by its full name.
UNSAFE = {
    "torch.load",
    "torch.serialization.load",
    "torch.jit.load",
    "torch.hub.load",
    "torch.package.PackageImporter",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "joblib.load",
    "pandas.read_pickle",
    "numpy.load",
    "numpy.lib.npyio.load",
    "numpy.lib.format.read_array",
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "yaml.load",
    "shutil.unpack_archive",
    "eval",
    "exec",
    "__import__",
}
# Modules that nobody has to import: PyG's data sets unpickle what lies beside their raw files.
UNWANTED = (
    *("pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"),
    "torch_geometric.datasets",
)


def unsafe_in(source: str) -> list[str]:
    """Names of what unpickles that a module calls, hands on or imports, however it calls them."""
    tree, known = ast.parse(source), dict[str, str]()
    found: list[str] = []
    for node in ast.walk(tree):
        for alias, whole in _imported(node):
            known[alias] = whole
            found += [whole] if whole in UNSAFE or whole.startswith(UNWANTED) else []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            first, dot, rest = ast.unparse(node).partition(".")
            whole = known.get(first, first) + dot + rest
            found += [whole] if whole in UNSAFE else []
        if isinstance(node, ast.Attribute) and node.attr in ("extractall", "read_pickle"):
            found.append(ast.unparse(node))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            named = node.args[0] if node.args else None
            if isinstance(named, ast.Constant) and str(named.value).startswith(UNWANTED):
                found.append(str(named.value))
    return found


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """What a line of imports makes known: the name here, and the full one."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (
                (alias.asname or alias.name.partition(".")[0]),
                (alias.name if alias.asname else alias.name.partition(".")[0]),
            )
            yield alias.name, alias.name
    if isinstance(node, ast.ImportFrom) and not node.level:
        yield str(node.module), str(node.module)
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load(path)",
        "import torch as t\nt.load(path)",
        "from torch import load\nload(path)",
        "from torch import load as read\nread(path)",
        "from torch.serialization import load",
        "import torch\nread = torch.load",  # handed on, and called elsewhere
        "import pandas as pd\npd.read_pickle(path)",
        "import pandas\npandas.read_pickle(path)",
        "from pandas import read_pickle\nread_pickle(path)",
        "def inside():\n    from pandas import read_pickle as read\n    return read(path)",
        "def inside():\n    import pandas as pd\n    return pd.read_pickle(path)",
        "import numpy as np\nnp.load(path)",
        "from numpy import load\nload(path)",
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "from marshal import loads",
        "import joblib\njoblib.load(path)",
        "from joblib import load",
        "import torch_geometric.datasets",
        "import torch_geometric.datasets as d",
        "from torch_geometric import datasets",
        "from torch_geometric.datasets import TUDataset",
        "from torch_geometric.datasets.planetoid import Planetoid",
        "import importlib\nimportlib.import_module('torch_geometric.datasets')",
        "eval(text)",
        "archive.extractall(folder)",
        "import shutil\nshutil.unpack_archive(path)",
    ],
)
def test_what_unpickles_is_seen(source: str) -> None:
    assert unsafe_in(source)


@pytest.mark.parametrize(
    "source",
    [
        "from safetensors.torch import load\nload(content)",
        "from lg2ar.runs import load\nload(path)",
        "from torch_geometric.data import Data",
        "import json\njson.load(file)",
        "model.eval()",
        "def load(path): ...\nload(path)",
    ],
)
def test_what_does_not_is_not(source: str) -> None:
    assert unsafe_in(source) == []


def test_no_module_calls_what_unpickles() -> None:
    """Also where no test comes by.

    Planetoid's reader has an unpickler of its own, and an engine sends its own worker to a process
    that it has started itself.
    """
    root = Path(lg2ar.__file__).parent
    found = {
        f"{path.relative_to(root)}: {name}"
        for path in root.rglob("*.py")
        for name in unsafe_in(path.read_text())
    }
    assert found == {
        "data/planetoid.py: pickle",
        "engines.py: pickle",
        "engines.py: pickle.loads",
    }
