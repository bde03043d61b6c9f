"""One very large graph that stays on its disk: time and memory of steps and of embeddings."""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lg2ar.bench.measure import (
    GIGABYTE,
    Epochs,
    forget_peak,
    peak_memory,
    record,
    settings,
    spread,
)
from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.disk_layout import Layout
from lg2ar.data.edge_sorting import EdgeSorter, Part, write_lists
from lg2ar.data.mapped import read_mapped
from lg2ar.data.mapping import FolderWriter, writing
from lg2ar.experiment import pretrain
from lg2ar.records import EpochRecord

SIZES = (100_000, 1_000_000, 10_000_000)
LINKS = 10  # edges for each node
WIDTH = 64

# Any of it can be changed.
SETTINGS = {
    "level": "node",
    "hidden": 64,
    "layers": 2,
    "hops": 2,
    "fanout": 10,
    "batch_size": 16,
}

# Edges, and nodes, that are drawn at a time.
STEP = 1 << 20

# As many more edges are drawn as are expected to be drawn twice.
AGAIN = 1.04


def make_huge(path: Path, num_nodes: int, links: int = LINKS, seed: int = 0) -> None:
    """Write a graph with a skewed distribution of degrees; no more than a part is in memory.

    One end of an edge is any node, the other one is node ``u^3 N`` for a random ``u`` between 0
    and 1, so that few nodes have very many edges. They are scattered over all numbers. Features are
    random.

    Args:
        path: The folder, ``something.graph``.
        num_nodes: How many nodes.
        links: Edges for each node, about; each is listed in both directions.
        seed: Fixes it.
    """
    rng = np.random.default_rng(seed)
    with writing(path) as writer, EdgeSorter(writer.folder, "edges", both_ways=True) as sorter:
        scatter = _coprime(num_nodes)
        left = round(num_nodes * links * AGAIN)
        while left:
            count = min(left, STEP)
            any_node = rng.integers(0, num_nodes, count)
            rank = (num_nodes * rng.random(count) ** 3).astype(np.int64)
            other = rank * scatter % num_nodes
            kept = any_node != other
            sorter.add(any_node[kept], other[kept])
            left -= count
        parts = (part.distinct() for part in sorter.parts(num_nodes))
        _finish(writer, parts, num_nodes, rng)


def _finish(
    writer: FolderWriter, parts: Iterator[Part], num_nodes: int, rng: np.random.Generator
) -> None:
    written = write_lists(writer, parts, num_nodes)
    x = writer.array("x", "<f4", WIDTH)
    for first in range(0, num_nodes, STEP):
        rows = min(STEP, num_nodes - first)
        x.append(rng.standard_normal((rows, WIDTH), dtype=np.float32))
    writer.finish(
        name=f"mapped graph of {num_nodes:.0e} nodes".replace("e+0", "e"),
        num_nodes=num_nodes,
        num_edges=written.entries,
        layout=Layout(num_features=WIDTH, num_edge_features=0, weighted=False),
    )


def _coprime(number: int) -> int:
    """A number near the golden section of another that has no divisor in common with it."""
    found = round(0.618 * number) | 1
    while np.gcd(found, number) != 1:
        found += 2
    return found


def measure_huge(
    device: torch.device,
    *,
    sizes: tuple[int, ...] = SIZES,
    folder: Path | None = None,
    keep: bool = False,
    changes: Mapping[str, Any] | None = None,
    steps: int = 50,
    part: int = 1000,
    whole_up_to: int = SIZES[1],
) -> Iterator[dict[str, Any]]:
    """Generate graphs, train some steps, embed a part, and the whole of those that are not huge.

    Args:
        device: Where to.
        sizes: Nodes of each graph.
        folder: Where graphs are written, and looked for; None is a temporary folder.
        keep: Whether to leave them there.
        changes: Settings other than :data:`SETTINGS`.
        steps: Steps to time, after five that are not counted.
        part: Nodes that are embedded by their neighbourhood.
        whole_up_to: Graphs of no more nodes are embedded as a whole, too.

    Yields:
        For each size a record of making the graph, one of steps and the part, and one of the whole.
    """
    config = Config.make({**SETTINGS, **(changes or {})})
    home = Path(tempfile.mkdtemp(prefix="lg2ar-huge-")) if folder is None else folder
    try:
        for num_nodes in sizes:
            path = home / f"{num_nodes}.graph"
            try:
                yield from _measure(path, device, config, num_nodes, steps, part, whole_up_to)
            finally:
                if not keep:
                    shutil.rmtree(path, ignore_errors=True)
    finally:
        if folder is None:
            shutil.rmtree(home, ignore_errors=True)


def _measure(
    path: Path,
    device: torch.device,
    config: Config,
    num_nodes: int,
    steps: int,
    part: int,
    whole_up_to: int,
) -> Iterator[dict[str, Any]]:
    limit: dict[str, Any] = {"limit_gb": memory_limit()}
    if not path.exists():
        with _watched() as seen:
            make_huge(path, num_nodes)
        more = settings(config, dataset := read_mapped(path))
        size = sum(file.stat().st_size for file in path.iterdir()) / GIGABYTE
        yield record(
            "huge", dataset.name, "made", device, disk_gb=size, **seen.told(), **limit, **more
        )
    dataset = read_mapped(path)
    more = settings(config, dataset) | limit
    epochs, cpu = _train(dataset, config, device, steps)
    run = pretrain(dataset, config.replace(epochs=0), device=device)
    nodes = np.random.default_rng(1).choice(num_nodes, part, replace=False)
    with _watched() as seen:
        run.embed(dataset, only=nodes, scratch=path.parent)
    of_part = {f"part_{key}": value for key, value in seen.told().items()}
    yield record(
        "huge", dataset.name, "lg2ar", device, epochs=epochs, part=part, **cpu, **of_part, **more
    )
    if num_nodes <= whole_up_to:
        with _watched() as seen:
            run.embed(dataset, scratch=path.parent)
        yield record("huge", dataset.name, "all nodes", device, **seen.told(), **more)


def _train(
    dataset: Dataset, config: Config, device: torch.device, steps: int
) -> tuple[Epochs, dict[str, Any]]:
    """Steps by the clock, and the processor's time for them, which others' work does not change."""
    seen, cpu = Epochs(steps=1), []
    before, warmup = time.process_time(), 5

    def look(epoch: EpochRecord) -> None:
        nonlocal before
        if epoch.epoch > warmup:
            cpu.append(1e3 * (time.process_time() - before))
            seen.seconds.append(epoch.seconds)
            seen.losses.append(epoch.loss)
            seen.peak = max(seen.peak, epoch.peak_memory)
        before = time.process_time()

    with _watched() as watched:
        wanted = config.replace(epochs=warmup + steps, patience=0, checkpoint_every=1000)
        pretrain(dataset, wanted, device=device, on_epoch=look)
    told = {f"train_{key}": value for key, value in watched.told().items()}
    return seen, {"step_cpu_ms": statistics.median(cpu), "cpu_ms": spread(cpu), **told}


@dataclass
class _Seen:
    """Time and memory of some work.

    Attributes:
        seconds: Wall time.
        cpu: Time of the processor, all threads together.
        resident: Gigabytes at most, pages mapped from files included, which the system may drop.
        own: Gigabytes at most without those.
    """

    seconds: float = 0.0
    cpu: float = 0.0
    resident: float = 0.0
    own: float = 0.0

    def told(self) -> dict[str, Any]:
        """As a record has it."""
        names = {"seconds": self.seconds, "cpu_seconds": self.cpu}
        return names | {"resident_gb": self.resident, "own_gb": self.own}


@contextmanager
def _watched() -> Iterator[_Seen]:
    """Measure what is done meanwhile; its own memory is polled, as the system tells no peak."""
    seen, done, most = _Seen(), threading.Event(), 0

    def watch() -> None:
        nonlocal most
        while True:
            most = max(most, _own_memory())
            if done.wait(0.02):
                return

    forget_peak(torch.device("cpu"))
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start, cpu = time.perf_counter(), time.process_time()
    try:
        yield seen
    finally:
        seen.seconds, seen.cpu = time.perf_counter() - start, time.process_time() - cpu
        done.set()
        watcher.join()
        seen.resident = peak_memory(torch.device("cpu")) / GIGABYTE
        seen.own = most / GIGABYTE


def _own_memory() -> int:
    """Bytes of this process that are not mapped from files; 0 where it is not told."""
    with suppress(OSError, StopIteration), open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))
    return 0


def memory_limit() -> float | None:
    """Gigabytes of its own memory that this process is limited to; None where it is not.

    It is RLIMIT_DATA, set with ``ulimit -d``: pages mapped from files, which can be dropped, do not
    count.
    """
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return None if limit == resource.RLIM_INFINITY else limit / GIGABYTE
