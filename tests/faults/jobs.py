"""The long commands as jobs: what to call, what must hold after a kill, what to compare.

Every job is done once without a fault; what it leaves is what a killed and resumed one must leave.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tomllib
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd

from faults.harness import KILLED, Commands, Fault
from lg2ar import checkpoint
from lg2ar.data.arrays import write_arrays
from lg2ar.data.conversion import write_on_disk
from lg2ar.data.mapped import read_mapped
from lg2ar.data.mapped_layout import check_sums
from lg2ar.data.mapping import write_mapped
from lg2ar.data.on_disk import read_on_disk
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.finetuning import load_finetuned
from lg2ar.finetuning.progress import BEGUN
from lg2ar.finetuning.saved import FILE

SMALL = ["--set", "hidden=4", "--set", "layers=1", "--device", "cpu"]
FLEETING = ("seconds", "peak_memory", "versions", "cost", "datetime", "duration", "device", "seal")


class Job(ABC):
    """A command that is killed and resumed.

    Args:
        folder: Where it works; what it needs is made there first.
        shared: Where what several jobs need is kept.
    """

    name = ""

    def __init__(self, folder: Path, shared: Path) -> None:
        self.folder, self.shared = folder, shared
        self.out = folder / "out"
        folder.mkdir(parents=True, exist_ok=True)

    def prepare(self, commands: Commands) -> None:  # noqa: B027 - most need nothing
        """Make what the command reads."""

    @abstractmethod
    def command(self) -> list[str | Path]:
        """The command, without ``--resume``."""

    @abstractmethod
    def check(self) -> None:
        """What must hold at any moment: nothing that is visible is half a file."""

    @abstractmethod
    def result(self) -> Any:
        """What must be the same in the end, to the last bit."""


class Pretrain(Job):
    """Pre-training, with a checkpoint after every epoch."""

    name = "pretrain"

    def __init__(self, folder: Path, shared: Path) -> None:
        super().__init__(folder, shared)
        self.history: list[Any] = []

    def command(self) -> list[str | Path]:
        more = ["--set", "epochs=12", "--set", "checkpoint_every=1", "--set", "dropout=0.1"]
        return ["pretrain", "tu:TINY", "--out", self.out, *SMALL, *more]

    def check(self) -> None:
        if checkpoint.exists(self.out):
            held = checkpoint.read(self.out, with_training=True)
            found = held.progress["history"]  # with the seconds that each epoch took
            assert found[: len(self.history)] == self.history, "what was done is done again"
            self.history = found
        check_weight_files(self.out)

    def result(self) -> Any:
        held = checkpoint.read(self.out, with_training=True)
        assert held.finished
        assert len(list(self.out.iterdir())) == 3, list(self.out.iterdir())
        return lasting({"history": held.progress, "files": files_of(self.out, "run.json")})


class Finetune(Job):
    """Fine-tuning of a run, with the untrained encoder beside it."""

    name = "finetune"

    def prepare(self, commands: Commands) -> None:
        if not (self.shared / "run").exists():
            epochs = ["--set", "epochs=2"]
            commands.ok("pretrain", "tu:TINY", "--out", self.shared / "run", *SMALL, *epochs)

    def command(self) -> list[str | Path]:
        settings = ["--set", "epochs=40", "--set", "patience=40", "--set", "batch_size=8"]
        settings += ["--set", "dropout=0.2"]
        run = self.shared / "run"
        return ["finetune", run, "tu:TINY", "--out", self.out, "--device", "cpu", *settings]

    def check(self) -> None:
        if (self.out / FILE).exists():
            load_finetuned(self.out, "cpu")
        if (self.out / BEGUN).exists():
            head = checkpoint.read_head(self.out, BEGUN, "")
            for part in head["files"]:
                checkpoint.read_part(self.out, BEGUN, head, part)
        check_weight_files(self.out)

    def result(self) -> Any:
        head = checkpoint.read_head(self.out, FILE, "")
        assert len(list(self.out.iterdir())) == 2, list(self.out.iterdir())
        return lasting(head)


class FinetuneReplace(Finetune):
    """Fine-tuning in the place of another model, beside which yet another one was begun."""

    name = "finetune --replace"

    def __init__(self, folder: Path, shared: Path) -> None:
        super().__init__(folder, shared)
        self.take_older()

    def check(self) -> None:
        super().check()
        load_finetuned(self.out, "cpu")  # at any moment the one or the other

    def take_older(self) -> None:
        """What is there before the command."""
        if (self.shared / "older").exists():
            shutil.copytree(self.shared / "older", self.out, dirs_exist_ok=True)

    def prepare(self, commands: Commands) -> None:
        super().prepare(commands)
        older = self.shared / "older"
        if not older.exists():
            other = ["--set", "epochs=2", "--no-floor", "--device", "cpu"]
            command: list[str | Path] = [
                "finetune",
                self.shared / "run",
                "tu:TINY",
                "--out",
                older,
                *other,
            ]
            commands.ok(*command)
            fault = Fault(kind="kill", at=20, under=str(older))
            more = ["--replace", "--seed", "5", "--set", "epochs=40"]
            assert commands.run(*command, *more, fault=fault)[0] == KILLED
            assert (older / BEGUN).exists()
        self.take_older()

    def command(self) -> list[str | Path]:
        return [*super().command(), "--replace"]


class Reproduce(Job):
    """Three runs of a study; finished ones are not done again."""

    name = "reproduce"

    def __init__(self, folder: Path, shared: Path) -> None:
        super().__init__(folder, shared)
        self.out = folder / "records.jsonl"
        self.finished: list[str] = []

    def command(self) -> list[str | Path]:
        what = ["--datasets", "tu:TINY", "--variants", "gru", "--seeds", "3", "--preset", "default"]
        more = ["--protocol", "strict", "--set", "epochs=4", "--records", str(self.out)]
        return ["reproduce", "graph", *what, *SMALL, *more]

    def check(self) -> None:
        if not self.out.exists():
            assert not self.finished
            return
        *lines, rest = self.out.read_text().split("\n")
        assert lines[: len(self.finished)] == self.finished
        assert all(json.loads(line) for line in lines)
        assert not rest or rest.startswith("{")
        self.finished = lines

    def result(self) -> Any:
        self.check()
        records = [json.loads(line) for line in self.finished]
        return lasting(sorted(records, key=lambda record: int(record["task"]["seed"])))


class Tune(Job):
    """A study of settings: a trial that was killed is done again."""

    name = "tune"

    def __init__(self, folder: Path, shared: Path) -> None:
        super().__init__(folder, shared)
        self.finished: list[Any] = []

    def command(self) -> list[str | Path]:
        fixed = [f"{key}={value}" for key, value in FIXED.items()]
        settings = [part for pair in fixed for part in ("--set", pair)]
        return ["tune", "tu:TINY", "--out", self.out, "--trials", "6", "--device", "cpu", *settings]

    def check(self) -> None:
        if (self.out / "best.toml").exists():
            tomllib.loads((self.out / "best.toml").read_text())
        if (self.out / "trials.csv").exists():
            pd.read_csv(self.out / "trials.csv")
        found = ends_of_trials(self.out / "tuning.db")
        assert found[: len(self.finished)] == self.finished, "what was done is done again"
        self.finished = found

    def result(self) -> Any:
        return {
            "best": (self.out / "best.toml").read_text(),
            "chart": (self.out / "importance.svg").read_text(),
            "trials": study_of(self.out / "tuning.db"),
        }


class Convert(Job):
    """Graphs into an SQLite file."""

    name = "convert"

    def __init__(self, folder: Path, shared: Path) -> None:
        super().__init__(folder, shared)
        self.out = folder / "graphs.sqlite"

    def command(self) -> list[str | Path]:
        return ["convert", self.shared / "many.npz", self.out]

    def prepare(self, commands: Commands) -> None:
        if not (self.shared / "many.npz").exists():
            write_arrays(self.shared / "many.npz", toy_graphs(3000))

    def check(self) -> None:
        if self.out.exists():
            assert read_on_disk(self.out).graph.x.shape[0]

    def result(self) -> Any:
        assert [path.name for path in self.folder.iterdir() if path.is_file()] == [self.out.name]
        return hashlib.sha256(self.out.read_bytes()).hexdigest()


class ConvertReplace(Convert):
    """Graphs into an SQLite file, in the place of others."""

    name = "convert --replace"

    def __init__(self, folder: Path, shared: Path) -> None:
        super().__init__(folder, shared)
        write_on_disk(self.out, toy_graphs(20))

    def command(self) -> list[str | Path]:
        return [*super().command(), "--replace"]

    def check(self) -> None:
        assert len(read_on_disk(self.out)) in (20, 3000)  # at any moment the one or the other


class Map(Job):
    """One large graph into a folder, in the place of another."""

    name = "convert --replace, a folder"

    def __init__(self, folder: Path, shared: Path) -> None:
        super().__init__(folder, shared)
        self.out = folder / "one.graph"
        write_mapped(self.out, toy_nodes(20))

    def command(self) -> list[str | Path]:
        return ["convert", self.shared / "one.npz", self.out, "--replace"]

    def prepare(self, commands: Commands) -> None:
        if not (self.shared / "one.npz").exists():
            write_arrays(self.shared / "one.npz", toy_nodes(4000))

    def check(self) -> None:
        dataset = read_mapped(self.out)  # at any moment the one or the other, wherever it lies
        assert dataset.graph.num_nodes in (20, 4000)
        check_sums(self.out)

    def result(self) -> Any:
        assert [path.name for path in self.folder.iterdir()] == [self.out.name]
        return {path.name: path.read_bytes() for path in self.out.iterdir()}


# A search of two settings in short trials.
FIXED: dict[str, Any] = {
    "hidden": 4,
    "layers": 1,
    "batch_size": 16,
    "epochs": 6,
    "policy": "random",
    "discriminator": "dot",
    "bound": "jsd",
}
JOBS: dict[str, type[Job]] = {
    job.name: job
    for job in (
        Pretrain,
        Finetune,
        FinetuneReplace,
        Reproduce,
        Tune,
        Convert,
        ConvertReplace,
        Map,
    )
}


def lasting(value: Any) -> Any:
    """A record without what differs from run to run."""
    if isinstance(value, dict):
        return {key: lasting(held) for key, held in value.items() if key not in FLEETING}
    return [lasting(held) for held in value] if isinstance(value, list) else value


def files_of(folder: Path, file: str) -> Any:
    """The weight files that a JSON file names; they are called by their content."""
    return json.loads((folder / file).read_text())["files"]


def check_weight_files(folder: Path) -> None:
    """Every weight file that can be seen is whole: it is called by what is inside."""
    for path in folder.glob("*.safetensors"):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert path.stem.rpartition("-")[2] == digest[:16], path


def study_of(database: Path) -> list[Any]:
    """The trials of a study that count: state, what was chosen, and what came out."""
    connection = sqlite3.connect(database)
    try:
        trials = connection.execute(
            "SELECT trial_id, state FROM trials WHERE state IN ('COMPLETE', 'PRUNED') "
            "ORDER BY number"
        ).fetchall()
        return [
            (state, *(connection.execute(query, (trial,)).fetchall() for query in DETAILS))
            for trial, state in trials
        ]
    finally:
        connection.close()


def ends_of_trials(database: Path) -> list[Any]:
    """Which trials of a study came to their end, and when; nothing where it has no tables yet."""
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as connection:
        if not connection.execute("PRAGMA table_info(trials)").fetchall():
            return []
        return connection.execute(
            "SELECT number, trial_id, datetime_complete FROM trials "
            "WHERE state IN ('COMPLETE', 'PRUNED') ORDER BY datetime_complete"
        ).fetchall()


DETAILS = (
    "SELECT param_name, param_value FROM trial_params WHERE trial_id = ? ORDER BY param_name",
    "SELECT objective, value FROM trial_values WHERE trial_id = ? ORDER BY objective",
    "SELECT step, intermediate_value FROM trial_intermediate_values WHERE trial_id = ? "
    "ORDER BY step",
)
