"""The paper's fifteen benchmark data sets by name, and others of the same collections.

The raw files are read (or downloaded) once, as PyG's data set classes do, in the same folders. What
they give is kept as flat arrays in ``ROOT/NAME/lg2ar-1.safetensors``, and from then on only that
file is read. The files that PyG leaves in ``processed`` are pickles, and never looked at.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import time
import warnings
import zlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from lg2ar.config import Level
from lg2ar.data.dataset import Dataset
from lg2ar.data.raw_files import raw_files, read_raw_files
from lg2ar.errors import InputError
from lg2ar.files import in_turn, is_unwritable, write_bytes
from lg2ar.graph import GraphBatch
from lg2ar.splits import Splits

UNFIT = "the edges do not fit the nodes"
CACHE = "lg2ar-1.safetensors"  # the number is the layout's: another layout gets another file


@dataclass(frozen=True)
class Benchmark:
    """A data set that can be opened by name.

    The statistics are of what PyG loads, each undirected edge counted once. They are 0 where
    nothing is known beforehand: for data sets other than the fifteen.

    Attributes:
        name: Our name for it.
        level: Whether it is many graphs, or the nodes of one large graph.
        source: The PyG class that reads it.
        pyg_name: Its name there.
        folder: Its folder under the data root.
        graphs: Number of graphs.
        nodes: Number of nodes; at graph level the mean over graphs.
        edges: Number of undirected edges; at graph level the mean over graphs.
        features: Number of node features the data has of its own.
        classes: Number of classes.
    """

    name: str
    level: Level
    source: str
    pyg_name: str
    folder: str
    graphs: int = 0
    nodes: float = 0
    edges: float = 0
    features: int = 0
    classes: int = 0


def _graphs(name: str, *statistics: Any) -> Benchmark:
    return Benchmark(name.lower(), "graph", "TUDataset", name, name, *statistics)


def _nodes(name: str, source: str, pyg_name: str, *statistics: Any) -> Benchmark:
    return Benchmark(name, "node", source, pyg_name, pyg_name, *statistics)


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        _graphs("MUTAG", 188, 17.93, 19.79, 7, 2),
        _graphs("PROTEINS", 1113, 39.06, 72.82, 4, 2),
        _graphs("DD", 1178, 284.32, 715.66, 89, 2),
        _graphs("COLLAB", 5000, 74.49, 2457.22, 0, 3),  # 2457.78 with the loops that PyG drops
        _graphs("IMDB-BINARY", 1000, 19.77, 96.53, 0, 2),
        _graphs("IMDB-MULTI", 1500, 13.00, 65.94, 0, 3),
        _graphs("REDDIT-BINARY", 2000, 429.63, 497.75, 0, 2),
        _graphs("REDDIT-MULTI-5K", 4999, 508.52, 594.87, 0, 5),
        _nodes("cora", "Planetoid", "Cora", 1, 2708, 5278, 1433, 7),
        _nodes("pubmed", "Planetoid", "PubMed", 1, 19717, 44324, 500, 3),
        _nodes("wikics", "WikiCS", "WikiCS", 1, 11701, 216123, 300, 10),  # as the paper has it
        _nodes("amazon-computers", "Amazon", "Computers", 1, 13752, 245861, 767, 10),
        _nodes("amazon-photo", "Amazon", "Photo", 1, 7650, 119081, 745, 8),
        _nodes("coauthor-cs", "Coauthor", "CS", 1, 18333, 81894, 6805, 15),
        _nodes("coauthor-physics", "Coauthor", "Physics", 1, 34493, 247962, 8415, 5),
    )
}

# The rest of TUDataset: PyG wants the letter case exactly, and a list tells a slip from a name.
_TU_NAMES = """
AIDS BZR BZR_MD COIL-DEL COIL-RAG COLORS-3 COX2 COX2_MD Cuneiform DBLP_v1 DHFR DHFR_MD ENZYMES
ER_MD FIRSTMM_DB FRANKENSTEIN Fingerprint KKI Letter-high Letter-low Letter-med MCF-7 MCF-7H
MOLT-4 MOLT-4H MSRC_21 MSRC_21C MSRC_9 Mutagenicity NCI-H23 NCI-H23H NCI1 NCI109 OHSU OVCAR-8
OVCAR-8H P388 P388H PC-3 PC-3H PROTEINS_full PTC_FM PTC_FR PTC_MM PTC_MR Peking_1 QM9
REDDIT-MULTI-12K SF-295 SF-295H SN12C SN12CH SW-620 SW-620H SYNTHETIC SYNTHETICnew Synthie
TRIANGLES TWITTER-Real-Graph-Partial UACC257 UACC257H Yeast YeastH ZINC_full ZINC_test ZINC_train
ZINC_val alchemy_full aspirin benzene dblp_ct1 dblp_ct2 deezer_ego_nets ethanol facebook_ct1
facebook_ct2 github_stargazers highschool_ct1 highschool_ct2 infectious_ct1 infectious_ct2
malonaldehyde mit_ct1 mit_ct2 naphthalene reddit_threads salicylic_acid toluene tumblr_ct1
tumblr_ct2 twitch_egos uracil
"""

_OTHERS = (
    _nodes("citeseer", "Planetoid", "CiteSeer"),
    *(_graphs(name) for name in _TU_NAMES.split()),
)

_PREFIXES = {
    "tu": "TUDataset",
    "planetoid": "Planetoid",
    "amazon": "Amazon",
    "coauthor": "Coauthor",
}


def data_root(path: str | Path | None = None) -> Path:
    """Where data sets lie: ``path``, else ``LG2AR_DATA``, else the user's cache folder."""
    chosen = path or os.environ.get("LG2AR_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "lg2ar"


def find_benchmark(name: str) -> Benchmark:
    """Look a data set up by name, in any letter case.

    Args:
        name: One of the fifteen, PyG's name for one, the name of another data set of TUDataset,
            Planetoid, Amazon or Coauthor, or a name behind ``tu:``, ``planetoid:``, ``amazon:``
            or ``coauthor:``. Behind ``tu:`` any name goes, also that of data of one's own.

    Raises:
        InputError: For a name that is not known, with the nearest that is.
    """
    # Looked up anew each time, so that what is put into BENCHMARKS is found.
    entries = (*BENCHMARKS.values(), *_OTHERS)
    prefix, colon, rest = name.strip().rpartition(":")
    word = rest.lower()
    source = _PREFIXES.get(prefix.lower())
    if not colon or source is not None:
        for entry in entries:
            known = word in (entry.name, entry.pyg_name.lower())
            if known and source in (None, entry.source):
                return entry
    if source == "TUDataset" and re.fullmatch(r"\w[\w.-]*", rest, re.ASCII):
        return _graphs(rest)
    close = difflib.get_close_matches(word, [entry.name for entry in entries], n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(BENCHMARKS)}."
    raise InputError(f"'{name}' is not a known data set; {hint}")


def present(benchmark: Benchmark, root: str | Path | None = None) -> bool:
    """Whether a data set can be opened without a download: its raw files or its cache are there."""
    folder = data_root(root) / benchmark.folder
    return (folder / CACHE).is_file() or not _missing(benchmark, folder / "raw")


def open_benchmark(name: str, root: str | Path | None = None) -> Dataset:
    """Open a data set by name, with the features it has of its own, which may be none.

    Args:
        name: As :func:`find_benchmark` takes it.
        root: The folder of all data sets; see :func:`data_root`.

    Raises:
        InputError: Where a file is missing and cannot be downloaded, or is damaged, naming it.
    """
    benchmark = find_benchmark(name)
    stored = _load(benchmark, data_root(root), ("x", "edge_index", "sizes", "y"))
    sizes = stored["sizes"].long()
    graph = GraphBatch(
        x=stored["x"].float(),
        edge_index=stored["edge_index"].long(),
        batch=torch.repeat_interleave(torch.arange(len(sizes)), sizes),
        num_graphs=len(sizes),
    )
    # Features were checked before they were stored; to look at all again takes the most time.
    graph.replace(x=graph.x[:, :0]).validate(benchmark.name)
    y = stored.get("y")
    if y is not None:
        y = y.float() if y.is_floating_point() else y.long()
    return Dataset(name=benchmark.name, level=benchmark.level, graph=graph, y=y)


def open_split(name: str, root: str | Path | None = None) -> Splits | None:
    """The public splits of a data set: Planetoid has one, WikiCS twenty, all others none.

    Of WikiCS, ``validation`` is the set for choosing settings, not the one for early stopping.
    """
    benchmark = find_benchmark(name)
    if benchmark.source not in ("Planetoid", "WikiCS"):
        return None
    stored = _load(benchmark, data_root(root), ("train", "validation", "test"))
    return Splits(**stored)


def measure(dataset: Dataset) -> dict[str, float]:
    """The statistics of a data set, under the names that :class:`Benchmark` has for them."""
    graph = dataset.graph
    loops = int((graph.edge_index[0] == graph.edge_index[1]).sum())
    return {
        "graphs": graph.num_graphs,
        "nodes": graph.num_nodes / graph.num_graphs,
        "edges": (graph.num_edges + loops) / 2 / graph.num_graphs,
        "features": graph.num_features,
        "classes": 0 if dataset.y is None else len(set(dataset.y.tolist())),
    }


def load_and_measure(name: str, root: str | Path | None = None) -> dict[str, Any]:
    """Load one of the fifteen and see that it is what the list says.

    Returns:
        Its statistics, fingerprint, and the seconds it took to load.

    Raises:
        InputError: Where it cannot be loaded, or is of another size.
    """
    start = time.perf_counter()
    dataset = open_benchmark(name, root)
    seconds = time.perf_counter() - start
    benchmark = find_benchmark(name)
    _check(benchmark, dataset, data_root(root) / benchmark.folder / "raw")
    return {**measure(dataset), "fingerprint": dataset.fingerprint(), "seconds": seconds}


def _load(benchmark: Benchmark, root: Path, keys: Collection[str]) -> dict[str, Tensor]:
    """Some of the stored arrays, from the cache where there is one, else from the raw files."""
    path = root / benchmark.folder / CACHE
    if path.is_file():
        try:
            return _read_cache(path, keys)
        except (SafetensorError, OSError, ValueError) as error:
            damaged = f"{path}: the cache is damaged ({_reason(error)})"
            if _missing(benchmark, path.parent / "raw"):
                raise InputError(
                    f"{damaged} and the raw files are not there; remove it, and the data is "
                    "downloaded and read anew."
                ) from None
            warnings.warn(f"{damaged}; it is made anew from the raw files.", stacklevel=3)
            path.unlink(missing_ok=True)  # ours, and useless
    # Raw files may have to be downloaded first, which one process is to do.
    with in_turn(path.parent, "choose another data folder with --data or LG2AR_DATA."):
        if path.is_file():  # another process was faster
            return _read_cache(path, keys)
        stored = _read_raw(benchmark, root)
        try:
            write_bytes(path, _cache_bytes(stored))
        except OSError as error:  # the data is in hand: a full disk need not stop the run
            warnings.warn(f"{path}: cannot be written ({_reason(error)}).", stacklevel=3)
    return {key: value for key, value in stored.items() if key in keys}


def _cache_bytes(stored: dict[str, Tensor]) -> bytes:
    # One entry, as safetensors writes several in an order that changes from run to run.
    checksums = {key: _checksum(value) for key, value in stored.items()}
    return save(stored, metadata={"checksums": json.dumps(checksums)})


def _read_cache(path: Path, keys: Collection[str]) -> dict[str, Tensor]:
    with safe_open(path, framework="pt") as file:
        checksums = json.loads((file.metadata() or {}).get("checksums", "{}"))
        stored = {key: file.get_tensor(key) for key in keys if key in checksums}
    # The format itself notices a file cut short, but not a byte that has changed.
    wrong = [key for key, value in stored.items() if _checksum(value) != checksums[key]]
    lost = {"x", "edge_index", "sizes", "train", "validation", "test"} & (set(keys) - set(stored))
    if wrong or lost:
        raise ValueError(f"its array '{next(iter([*wrong, *sorted(lost)]))}' is wrong or missing")
    return stored


def _checksum(value: Tensor) -> str:
    return f"{zlib.crc32(value.flatten().view(torch.uint8).numpy().data):08x}"


def _read_raw(benchmark: Benchmark, root: Path) -> dict[str, Tensor]:
    """Read the raw files, check what they give, and pack it for the cache."""
    raw = root / benchmark.folder / "raw"
    missing = _missing(benchmark, raw)
    try:
        if missing:
            from lg2ar.data.downloads import download

            download(benchmark.source, benchmark.pyg_name, raw)
            missing = []
        found, splits = read_raw_files(benchmark.source, benchmark.pyg_name, raw)
    except MemoryError:
        raise
    except Exception as error:  # damaged data can raise nearly anything
        if is_unwritable(error):
            raise InputError(
                f"{raw.parent}: cannot be written ({_reason(error)}); make room there, or choose "
                "another data folder with --data or LG2AR_DATA."
            ) from None
        raise _explained(error, benchmark, raw, missing) from None
    dataset = replace(found, name=benchmark.name)
    _check(benchmark, dataset, raw)
    return {**_packed(dataset), **splits}


def _packed(dataset: Dataset) -> dict[str, Tensor]:
    graph, y = dataset.graph, dataset.y
    x = graph.x
    stored = {
        "x": x.byte() if bool(((x == 0) | (x == 1)).all()) else x.float(),
        "edge_index": graph.edge_index.int(),
        "sizes": graph.sizes.int(),
    }
    if y is not None:
        stored["y"] = y.float() if y.is_floating_point() else y.int()
    return {key: value.contiguous() for key, value in stored.items()}


def _missing(benchmark: Benchmark, raw: Path) -> list[Path]:
    files = raw_files(benchmark.source, benchmark.pyg_name)
    return [raw / file for file in files if not (raw / file).is_file()]


def _check(benchmark: Benchmark, dataset: Dataset, raw: Path) -> None:
    """Refuse one of the fifteen with other statistics: text cut short reads as less data."""
    # The statistics of WikiCS are the paper's, which count links; and JSON cut short is no JSON.
    if not benchmark.graphs or benchmark.source == "WikiCS":
        return
    for key, found in measure(dataset).items():
        expected = getattr(benchmark, key)
        if abs(found - expected) > 0.0051:  # means are given to two places
            kind = "mean " if benchmark.level == "graph" and key in ("nodes", "edges") else ""
            raise _other_size(
                benchmark, raw, key, f"{kind}{key}: {found:.6g}, expected {expected:g}"
            )


def _other_size(benchmark: Benchmark, raw: Path, key: str, reason: str) -> InputError:
    """Name the raw file that a statistic comes from."""
    files = raw_files(benchmark.source, benchmark.pyg_name)
    if benchmark.source != "TUDataset":
        return _damaged(raw / files[0] if len(files) == 1 else raw, raw, reason)
    part = {"edges": "A", "features": "node_labels", "classes": "graph_labels"}.get(key)
    if part is None:  # either list may be to blame
        return _damaged(*_odd_lengths(benchmark, raw, reason))
    return _damaged(raw / f"{benchmark.pyg_name}_{part}.txt", raw, reason)


def _explained(
    error: Exception, benchmark: Benchmark, raw: Path, missing: list[Path]
) -> InputError:
    """Say in one sentence why a data set could not be read, and what to do."""
    if missing:
        return InputError(
            f"{missing[0]}: is not there and could not be downloaded ({_reason(error)}); put it "
            "there, or say with --data or LG2AR_DATA which folder has the data sets."
        )
    if isinstance(error, OSError) and error.filename and error.strerror:
        return InputError(
            f"{error.filename}: {error.strerror}; choose a data folder that can be read and "
            "written with --data or LG2AR_DATA."
        )
    files = raw_files(benchmark.source, benchmark.pyg_name)
    if benchmark.source == "TUDataset":
        return _damaged_text(error, benchmark, raw)
    file = raw / files[0] if len(files) == 1 else _file_being_read(error, raw)
    return _damaged(file, raw, _reason(error))


def _damaged(file: Path, raw: Path, reason: str) -> InputError:
    what = "some file in it is" if file == raw else "is"
    return InputError(
        f"{file}: {what} damaged or incomplete ({reason}); unpack the data again, or remove the "
        f"folder {raw} to have it downloaded."
    )


def _damaged_text(error: Exception, benchmark: Benchmark, raw: Path) -> InputError:
    """Blame the file that is too short where one is, else the one that the reader names."""
    named, _, reason = str(error).partition(": ")
    file = Path(named)
    odd = _odd_lengths(benchmark, raw, reason)
    edges = file.name.removesuffix(".txt").endswith(("_A", "_graph_indicator"))
    if odd[2].startswith(UNFIT) and file.parent == raw and not edges:
        return _damaged(file, raw, reason.partition(";")[0].rstrip("."))
    return _damaged(*odd)


def _file_being_read(error: Exception, raw: Path) -> Path:
    """The raw file that was in hand when reading failed, or the folder where there was none.

    Messages do not name the file; frames do, under the name ``path``.
    """
    found, trace = raw, error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_locals.get("path")
        if isinstance(path, str) and Path(path).parent == raw:
            found = Path(path)
        trace = trace.tb_next
    return found


def _odd_lengths(benchmark: Benchmark, raw: Path, reason: str) -> tuple[Path, Path, str]:
    """Which text file of a TU data set does not fit the others, by its number of lines."""

    def file(part: str) -> Path:
        return raw / f"{benchmark.pyg_name}_{part}.txt"

    def lines(part: str) -> int:
        return file(part).read_bytes().count(b"\n")

    def last_numbers(part: str) -> list[int]:
        return [int(word) for word in re.findall(rb"\d+", file(part).read_bytes()[-1000:])[1:]]

    nodes, edges = lines("graph_indicator"), lines("A")
    graphs = max(last_numbers("graph_indicator"), default=0)
    for part, expected, other in (
        ("node_labels", nodes, "graph_indicator"),
        ("node_attributes", nodes, "graph_indicator"),
        ("graph_labels", graphs, "graph_indicator"),
        ("edge_labels", edges, "A"),
        ("edge_attributes", edges, "A"),
    ):
        found = lines(part) if file(part).is_file() else expected
        if found != expected:
            text = f"{file(part).name} has {found} lines, {file(other).name} asks for {expected}"
            return file(part if found < expected else other), raw, text
    # Edges of nodes that are not there, or none for the last graphs: either list was cut short.
    short = "graph_indicator" if max(last_numbers("A"), default=0) > nodes else "A"
    return file(short), raw, f"{UNFIT}: {reason.partition(';')[0].rstrip('.')}"


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__
