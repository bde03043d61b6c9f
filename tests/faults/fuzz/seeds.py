"""Small inputs that are as they should be, from which others are made by changing them."""

from __future__ import annotations

import io
import json
import pickle
import sqlite3
import tempfile
import zipfile
from collections import defaultdict
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from lg2ar import shipping
from lg2ar.config import Config
from lg2ar.data.benchmarks import CACHE, open_benchmark
from lg2ar.data.conversion import write_on_disk
from lg2ar.data.dataset import Dataset
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.sources import read
from lg2ar.data.toy import toy_graphs
from lg2ar.experiment import pretrain
from lg2ar.finetuning import finetune
from lg2ar.finetuning.early_stopping import TunedEpoch
from lg2ar.runs import Run, describe
from sealing import sealed
from tiny import write_graphs, write_wikics

# Between the files of an input that consists of several.
CUT = b"\n=====8<=====\n"

EDGES = b"""graph,source,target,weight,kind
a,1,2,0.5,red
a,2,3,1.5,blue
b,1,2,2,red
b,"2",3,,"gr,een"
"""
NODES = b"graph,node,size,colour\na,1,0.5,x\na,2,1.5,y\na,3,2,x\nb,1,1,x\nb,2,3,\nb,3,0,z\n"
GRAPHS = b"graph,y,price\na,yes,1.5\nb,no,2\n"
TABLES = {"edges.csv": EDGES, "nodes.csv": NODES, "graphs.csv": GRAPHS}
LIST = b"# a remark\n1 2 0.5\n2 3 1\n3  1\t2\n4 1 7\n"
TU = {
    "A": b"1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n",
    "graph_indicator": b"1\n1\n1\n2\n2\n",
    "node_labels": b"0\n1\n0\n2\n1\n",
    "node_attributes": b"0.5, 1\n1, 2\n2, 3\n1e-3, 4\n5, 6\n",
    "edge_labels": b"0\n1\n0\n1\n0\n0\n",
    "graph_labels": b"1\n-1\n",
    "graph_attributes": b"0.5\n1.5\n",
}
SMILES = b"CCO ethanol\nc1ccccc1 benzene\n[Na+].[Cl-] salt\nC[C@@H](N)C(=O)O alanine\n"
MOLECULES = b"id,smiles,y\n1,CCO,0.5\n2,c1ccccc1,1\n3,C/C=C\\C,2\n"
GRAPHML = b"""<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="node" attr.name="size" attr.type="double"><default>1.0</default></key>
<key id="d1" for="edge" attr.name="weight" attr.type="int"/>
<graph id="g" edgedefault="undirected">
<node id="a"><data key="d0">0.5</data></node><node id="b"/>
<edge id="e" source="a" target="b"><data key="d1">3</data></edge>
</graph></graphml>
"""
GEXF = b"""<?xml version="1.0" encoding="UTF-8"?>
<gexf xmlns="http://gexf.net/1.3" version="1.3"><graph defaultedgetype="undirected">
<attributes class="node"><attribute id="0" title="size" type="float"/></attributes>
<nodes><node id="a" label="A"><attvalues><attvalue for="0" value="1.5"/></attvalues></node>
<node id="b" label="B"/></nodes>
<edges><edge id="0" source="a" target="b" weight="2.0"/></edges></graph></gexf>
"""
LINKS = {
    "directed": False,
    "graph": {"name": "g", "y": 1},
    "nodes": [
        {"id": "a", "size": 1.5, "kind": "x", "v": [0, 1]},
        {"id": 2, "size": None, "v": [1, 2]},
    ],
    "links": [{"source": "a", "target": 2, "weight": 0.5}],
}
TOML = b"""level = "graph"
policy = "gru"
heads = ["identity", "node-dropping"]
hidden = 16
learning_rate = 1e-3
norm = true
"""
SETTINGS: dict[str, Any] = {
    "hidden": 4,
    "layers": 1,
    "epochs": 1,
    "batch_size": 4,
    "heads": ["identity", "node-dropping"],
}


def json_bytes(held: Any) -> bytes:
    return sealed(json.dumps(held).encode())


def many_links() -> bytes:
    return json_bytes([LINKS, {**LINKS, "directed": True}])


def zipped(files: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", kind) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return held.getvalue()


def tu_zip(kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    return zipped({f"TINY/TINY_{part}.txt": content for part, content in TU.items()}, kind)


def parquet(content: bytes = EDGES) -> bytes:
    held = io.BytesIO()
    pd.read_csv(io.BytesIO(content)).to_parquet(held)
    return held.getvalue()


def npz(**more: Any) -> bytes:
    held = io.BytesIO()
    arrays = {
        "x": np.eye(5, 2, dtype=np.float32),
        "edge_index": np.array([[0, 1, 3, 4], [1, 0, 4, 3]]),
        "batch": np.array([0, 0, 0, 1, 1]),
        "edge_weight": np.ones(4, dtype=np.float32),
        "y": np.array([0, 1]),
    }
    np.savez(held, **(more or arrays))
    return held.getvalue()


def embeddings() -> bytes:
    return npz(id=np.arange(3), embedding=np.ones((3, 2), np.float32), y=np.array(["a", "b", "a"]))


def sqlite() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.sqlite"
        write_on_disk(path, tables())
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
        connection.close()
        return path.read_bytes()


def sqlite_statements() -> bytes:
    """The database as statements, which can be changed without damage to the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.sqlite"
        path.write_bytes(sqlite())
        connection = sqlite3.connect(path)
        text = "\n".join(connection.iterdump())
        connection.close()
        return text.encode()


@cache
def tables() -> Dataset:
    """Two graphs out of tables, with numbers and categories of nodes and edges."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in TABLES.items():
            (Path(folder) / name).write_bytes(content)
        return read(folder)


@cache
def run() -> tuple[Run, dict[str, bytes]]:
    """A run on these, and the files of its folder."""
    with tempfile.TemporaryDirectory() as folder:
        made = pretrain(tables(), SETTINGS, out=folder, device="cpu")
        return made, files_of(Path(folder))


@cache
def fine_tuned() -> dict[str, bytes]:
    """The files of a folder of a fine-tuned network."""
    begun = pretrain(toy_graphs(8), SETTINGS, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        finetune(begun, toy_graphs(24), epochs=1, floor=False, out=folder, device="cpu")
        return files_of(Path(folder))


TUNING: dict[str, Any] = {"epochs": 2, "hidden": 2, "batch_size": 16, "test": 0.4}


@cache
def to_fine_tune() -> tuple[Run, Dataset]:
    """A run, and what it is fine-tuned on."""
    data = toy_graphs(12)
    return pretrain(data, {**SETTINGS, "hidden": 2}, device="cpu"), data


@cache
def fine_tuning() -> dict[str, bytes]:
    """The files of a folder of a fine-tuning that was stopped in its second encoder."""

    def stop(name: str, record: TunedEpoch) -> None:
        if name == "untrained":
            raise KeyboardInterrupt

    run, data = to_fine_tune()
    with tempfile.TemporaryDirectory() as folder:
        with suppress(KeyboardInterrupt):
            finetune(run, data, out=folder, on_epoch=stop, **TUNING)
        return files_of(Path(folder))


@cache
def shipped() -> bytes:
    """A shipped encoder."""
    made = run()[0]
    weights = made.model.base_encoder.state_dict()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.safetensors"
        encoder = shipping.ShippedEncoder(
            config=made.config,
            recipe=made.recipe,
            data=describe(tables()),
            versions={"lg2ar": "1"},
            device="cpu",
            epochs=1,
            claims=(),
            encoder=shipping._build(made.config, made.recipe, weights),
        )
        claims = [shipping.Claim("strict", [80.0, 90.0], [70.0, 75.0])]
        shipping._write(path, encoder, weights, claims)
        return path.read_bytes()


def planetoid() -> dict[str, bytes]:
    """The raw files of a small data set in Planetoid's format, by part."""
    draw = np.random.default_rng(0)
    nodes, test = 520, 6
    x = sparse.csr_matrix((draw.random((nodes, 3)) < 0.3).astype(np.float32))
    y = np.eye(2, dtype=np.int32)[draw.integers(0, 2, nodes)]
    known = nodes - test
    parts = {"x": x[:4], "tx": x[known:], "allx": x[:known]}
    parts |= {"y": y[:4], "ty": y[known:], "ally": y[:known]}
    lists = defaultdict(list, {node: [(node + 1) % nodes] for node in range(0, nodes, 40)})
    files = {part: pickle.dumps(held, 4) for part, held in {**parts, "graph": lists}.items()}
    return files | {"test.index": "".join(f"{k}\n" for k in range(known, nodes)).encode()}


def amazon() -> bytes:
    """A small archive in the format of Amazon's and Coauthor's graphs."""
    x, edges = sparse.csr_matrix(np.eye(5, 3)), sparse.csr_matrix(np.eye(5, k=1))
    held: dict[str, Any] = {"labels": np.array([0, 1, 0, 1, 0])}
    for name, matrix in (("attr", x), ("adj", edges)):
        for part in ("data", "indices", "indptr", "shape"):
            held[f"{name}_{part}"] = np.array(getattr(matrix, part))
    return npz(**held)


def wikics() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return (write_wikics(Path(folder), nodes=6) / "data.json").read_bytes()


def benchmark_cache() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_graphs(Path(folder), graphs=4)
        open_benchmark("tu:TINY", folder)
        return (Path(folder) / "TINY" / CACHE).read_bytes()


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def recipes() -> list[bytes]:
    """Feature recipes as JSON; the first is the run's."""
    names = ("auto", "degree-and-one-hot", "constant")
    return [json_bytes(FeatureRecipe.settle(name, tables(), 3).to_dict()) for name in names]


def records() -> list[bytes]:
    """Records of two runs of a study, a line each."""
    base: dict[str, Any] = {
        "config": Config.make(SETTINGS).to_dict(),
        "data": {"name": "mutag", "fingerprint": "0"},
        "versions": {"lg2ar": "1"},
        "device": "cpu",
        "cost": {
            "seconds": 1.0,
            "seconds_per_epoch": 0.5,
            "peak_memory": 1000,
            "evaluation_seconds": 0.1,
        },
        "epochs": 1,
        "heads": ["identity", "node-dropping"],
        "losses": [1.0, 0.5],
        "draws": [[1, 2], [3, 4]],
        "probabilities": [0.5, 0.5],
    }

    def line(table: str, seed: int) -> bytes:
        task = {
            "table": table,
            "dataset": "mutag",
            "level": "graph",
            "method": "lg2ar",
            "variant": "gru",
            "preset": "paper",
            "seed": seed,
        }
        evaluations = [
            {"protocol": "paper", "epoch": epoch, "selection": None, "accuracy": [80.0, 90.0]}
            for epoch in (0, 1)
        ]
        return json_bytes({"task": task, **base, "evaluations": evaluations}) + b"\n"

    return [line("graph", 0) + line("graph", 1), line("cost", 0)]
