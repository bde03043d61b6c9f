"""Conversions of one large graph as jobs that are killed and resumed; see ``jobs``."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from faults.harness import Commands
from faults.jobs import Job
from lg2ar.data.mapped import read_mapped
from lg2ar.data.mapped_layout import check_sums
from lg2ar.data.mapping import write_mapped
from lg2ar.data.toy import toy_nodes


class Map(Job):
    """A table of edges into a folder."""

    name = "map"

    def __init__(self, folder: Path, shared: Path) -> None:
        super().__init__(folder, shared)
        self.out = folder / "large.graph"

    def prepare(self, commands: Commands) -> None:
        if not (self.shared / "edges.csv").exists():
            ends = np.random.default_rng(5).integers(0, 20_000, (150_000, 2))
            rows = "".join(f"{a},{b}\n" for a, b in ends.tolist())
            (self.shared / "edges.csv").write_text("source,target\n" + rows)

    def command(self) -> list[str | Path]:
        return ["convert", self.shared / "edges.csv", self.out, "--undirected"]

    def check(self) -> None:
        if self.out.exists():
            check_sums(self.out)

    def result(self) -> Any:
        assert [path.name for path in self.folder.iterdir()] == [self.out.name]
        return {path.name: _digest(path) for path in sorted(self.out.iterdir())}


class Remap(Map):
    """The same in the place of another graph."""

    name = "remap"

    def __init__(self, folder: Path, shared: Path) -> None:
        super().__init__(folder, shared)
        self._lay_down()

    def prepare(self, commands: Commands) -> None:
        super().prepare(commands)
        write_mapped(self.shared / "old.graph", toy_nodes(50))
        self._lay_down()

    def command(self) -> list[str | Path]:
        return [*super().command(), "--replace"]

    def check(self) -> None:
        dataset = read_mapped(self.out)  # at any moment the one or the other, wherever it lies
        assert dataset.graph.num_nodes in (50, 20_000)
        check_sums(self.out)

    def _lay_down(self) -> None:
        if (self.shared / "old.graph").exists():
            shutil.copytree(self.shared / "old.graph", self.out)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


FOLDER_JOBS: dict[str, type[Job]] = {job.name: job for job in (Map, Remap)}
