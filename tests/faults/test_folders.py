"""Folders of one large graph: made of what, sealed, and there at any moment while replaced."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lg2ar
from commands import Command
from faults.conftest import Tally
from faults.harness import Commands, wait_for
from lg2ar import files
from lg2ar.data import disk_sums, edge_sorting, mapping
from lg2ar.data.conversion import write_on_disk
from lg2ar.data.edge_sorting import EdgeSorter
from lg2ar.data.mapped import read_mapped
from lg2ar.data.mapped_layout import check_sums, read_manifest
from lg2ar.data.mapping import write_mapped
from lg2ar.data.on_disk import read_on_disk
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError
from sealing import write_sealed

SOURCE = str(Path(lg2ar.__file__).parent.parent)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def tables(folder: Path, edges: int = 30) -> Path:
    """A graph of some nodes with a number and a label each."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{k % 20},{(k * 7 + 1) % 20}\n" for k in range(edges))
    (folder / "edges.csv").write_text("source,target\n" + rows)
    rows = "".join(f"{k},{k / 3},{k % 2}\n" for k in range(20))
    (folder / "nodes.csv").write_text("node,size,label\n" + rows)
    return folder


# What it was made of.


@pytest.mark.parametrize("kind", ["tables", "arrays", "name"])
def test_resume_does_nothing_for_the_same_source_alone(
    kind: str, tmp_path: Path, command: Command
) -> None:
    from lg2ar.data.arrays import write_arrays

    sources: dict[str, Any] = {"tables": tmp_path / "t", "arrays": "g.npz", "name": "toy-nodes"}
    source, out = sources[kind], tmp_path / "x.graph"
    if kind == "tables":
        tables(source)
    elif kind == "arrays":
        source = tmp_path / "g.npz"
        write_arrays(source, toy_nodes(40))
    command.ok("convert", source, out, "--resume")
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert "nodes already" in command.ok("convert", source, out, "--resume")
    assert "nodes already" in command.ok("convert", source, out, "--resume", "--replace")
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before
    other = tables(tmp_path / "other", edges=31)
    told = command.refused("convert", other, out, "--resume", "--undirected")
    assert f"{out}: is there already and was made of another source, or with other options" in told
    command.ok("convert", other, out, "--resume", "--replace", "--undirected")
    assert read_mapped(out).name == "other"


def test_resume_looks_at_the_content_of_tables(tmp_path: Path, command: Command) -> None:
    source, out = tables(tmp_path / "t"), tmp_path / "x.graph"
    command.ok("convert", source, out, "--labels", "label", "--undirected")
    again = ("convert", source, out, "--resume", "--labels", "label", "--undirected")
    command.ok(*again)
    shutil.copytree(source, tmp_path / "copy" / "t")  # the same elsewhere, at another time
    os.utime(tmp_path / "copy" / "t" / "edges.csv", (1, 1))
    command.ok("convert", tmp_path / "copy" / "t", *again[2:])
    # Of the same length, and not looked at by the clock.
    for file, old, new in (("edges.csv", "3,2\n", "3,4\n"), ("nodes.csv", "4,1.3", "4,1.4")):
        text, times = (source / file).read_text(), (source / file).stat()
        assert old in text
        (source / file).write_text(text.replace(old, new, 1))
        os.utime(source / file, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert "another source" in command.refused(*again)
        (source / file).write_text(text)
        command.ok(*again)
    for options in ((), ("--directed",), ("--undirected", "--category", "size")):
        told = command.refused("convert", source, out, "--resume", "--labels", "label", *options)
        assert "with other options" in told


def test_an_older_folder_does_not_say_what_it_was_made_of(tmp_path: Path, command: Command) -> None:
    source, out = tables(tmp_path / "t"), tmp_path / "x.graph"
    command.ok("convert", source, out, "--undirected")
    make_older(out)
    told = command.refused("convert", source, out, "--undirected", "--resume")
    assert "does not say what it was made of" in told
    command.ok("convert", source, out, "--undirected", "--resume", "--replace")
    assert read_manifest(out).made_of


def test_a_damaged_folder_is_not_taken_for_done(tmp_path: Path, command: Command) -> None:
    source, out = tables(tmp_path / "t"), tmp_path / "x.graph"
    command.ok("convert", source, out, "--undirected")
    os.truncate(out / "to.npy", 140)
    assert "to.npy: has 140" in command.refused("convert", source, out, "--undirected", "--resume")
    command.ok("convert", source, out, "--undirected", "--resume", "--replace")
    check_sums(out)


# The seal, and formats.


def make_older(folder: Path) -> None:
    """As the version before seals wrote it."""
    held = json.loads((folder / "graph.json").read_text())
    del held["seal"], held["made_of"]
    (folder / "graph.json").write_text(json.dumps(held | {"format": 1}, indent=1))


@pytest.mark.parametrize("tries", [60, pytest.param(5000, marks=pytest.mark.soak)])
def test_a_changed_byte_of_the_description_is_found(
    tries: int, tmp_path: Path, tally: Tally
) -> None:
    folder, draw = tmp_path / "g.graph", random.Random(4)
    write_mapped(folder, toy_nodes(30))
    whole = (folder / "graph.json").read_bytes()
    for _ in range(tries):
        place = draw.randrange(len(whole))
        other = whole[place] ^ draw.randrange(1, 256)
        (folder / "graph.json").write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
        with pytest.raises(InputError, match=r"graph\.json"):
            read_mapped(folder)
        tally("damages found")
    (folder / "graph.json").write_bytes(whole)
    assert read_mapped(folder).graph.num_nodes == 30


def test_values_that_fit_but_are_others_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "g.graph"
    write_mapped(folder, toy_nodes(30))
    held = json.loads((folder / "graph.json").read_text())
    for other in (
        held | {"fingerprint": "0" * 64},
        held | {"format": 1},
        {key: value for key, value in held.items() if key != "seal"},
    ):
        (folder / "graph.json").write_text(json.dumps(other, indent=1))
        with pytest.raises(InputError, match=r"graph\.json: not what was written, its checksum"):
            read_mapped(folder)


def test_an_older_folder_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "g.graph"
    write_mapped(folder, toy_nodes(30))
    make_older(folder)
    assert np.array_equal(read_mapped(folder).graph.x.numpy(), toy_nodes(30).graph.x.numpy())
    check_sums(folder)


def test_a_newer_folder_says_what_to_do(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "g.graph"
    write_mapped(folder, toy_nodes(30))
    held = json.loads((folder / "graph.json").read_text())
    write_sealed(folder / "graph.json", held | {"format": 3, "something": "new"})
    told = command.refused("inspect", folder)
    assert told == (
        f"lg2ar: {folder}/graph.json: is of format 3, written by a newer lg2ar; this version "
        "reads formats up to 2: install the newer lg2ar.\n"
    )


def test_a_newer_collection_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "all.sqlite"
    write_on_disk(path, toy_graphs(5))
    with closing(sqlite3.connect(path)) as connection:
        about = dict(connection.execute("SELECT key, value FROM about"))
        newer = json.dumps(json.loads(about["about"]) | {"format": 2})
        sums = json.loads(about["sums"]) | {"about": disk_sums.of_text(newer)}
        for key, value in (("about", newer), ("sums", json.dumps(sums))):
            connection.execute("UPDATE about SET value = ? WHERE key = ?", (value, key))
        connection.commit()
    told = r"all\.sqlite: is of format 2, written by a newer .*: install the newer lg2ar\.$"
    with pytest.raises(InputError, match=told):
        read_on_disk(path)


# Replaced.

KILLED = """
import os, signal, sys
from lg2ar.data.mapping import write_mapped
from lg2ar.data.toy import toy_nodes
seen = 0
def look(event, arguments):
    global seen
    if event == "os.rename" and ".graph." in str(arguments[0]) + str(arguments[1]):
        seen += not str(arguments[1]).endswith(".json")
        if seen == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(look)
write_mapped(sys.argv[1], toy_nodes(80), replace=True)
"""


@pytest.mark.skipif("sys.platform != 'linux'", reason="kills as Linux does")
@pytest.mark.parametrize(("at", "there", "nodes"), [(1, True, 50), (2, False, 80), (3, True, 80)])
def test_killed_between_the_renames_the_folder_is_there_at_the_next_start(
    at: int, there: bool, nodes: int, tmp_path: Path, command: Command, tally: Tally
) -> None:
    """Before the old folder goes, before the new one comes, and before the old one is removed."""
    folder = tmp_path / "killed" / "g.graph"
    write_mapped(folder, toy_nodes(50))
    call = [sys.executable, "-c", KILLED, str(folder), str(at)]
    ended = subprocess.run(call, env={**os.environ, "PYTHONPATH": SOURCE}, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert folder.exists() == there
    for way in ("read", "inspect", "resume", "refuse", "replace"):
        shutil.copytree(folder.parent, tmp_path / way)
        start_next(way, tmp_path / way / folder.name, nodes, command)
        tally("kills at calls that write survived")


def start_next(way: str, folder: Path, nodes: int, command: Command) -> None:
    if way == "read":
        assert read_mapped(folder).graph.num_nodes == nodes
    elif way == "inspect":
        command.ok("inspect", folder, "--check")
        assert f"{nodes}" in command.ok("inspect", folder)
    elif way == "resume":
        command.refused("convert", "toy-nodes", folder, "--resume")
    elif way == "refuse":
        with pytest.raises(InputError, match="is there already"):
            write_mapped(folder, toy_nodes(20))
    else:
        write_mapped(folder, toy_nodes(20), replace=True)
        nodes = 20
        assert not list(folder.parent.glob(".*"))
    check_sums(folder)
    assert read_mapped(folder).graph.num_nodes == nodes


def test_what_a_killed_process_left_is_removed_whoever_has_its_number_now(tmp_path: Path) -> None:
    folder = tmp_path / "g.graph"
    write_mapped(folder, toy_nodes(50))
    folder.rename(tmp_path / f".g.graph.{os.getppid()}.old")  # somebody of that number is running
    (tmp_path / ".g.graph.1.part").mkdir()
    assert read_mapped(folder).graph.num_nodes == 50
    write_mapped(folder, toy_nodes(20), replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["g.graph"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_interrupted_between_the_renames_the_old_folder_is_back_at_once(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, before = tmp_path / "g.graph", Path.rename
    write_mapped(folder, toy_nodes(50))

    def rename(path: Path, to: Path) -> Path:
        if path.name.endswith(".part"):
            raise error
        return before(path, to)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises((KeyboardInterrupt, InputError)):
        write_mapped(folder, toy_nodes(80), replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["g.graph"]
    assert read_mapped(folder).graph.num_nodes == 50


def test_a_folder_is_not_brought_back_while_somebody_replaces_it(tmp_path: Path) -> None:
    folder = tmp_path / "g.graph"
    write_mapped(folder, toy_nodes(50))
    folder.rename(tmp_path / ".g.graph.999999999.old")
    with (
        files.alone_with(folder),
        pytest.raises(InputError, match="another process is writing there"),
    ):
        read_mapped(folder)
    assert read_mapped(folder).graph.num_nodes == 50


# Files for sorting.


def many_parts(folder: Path, values: bool = False) -> EdgeSorter:
    """Edges that are sorted in some two hundred parts."""
    kinds = {"weight": "<f8"} if values else {}
    sorter = EdgeSorter(folder, "e", kinds, both_ways=True, most=5)
    ends = np.random.default_rng(2).integers(0, 300, (2, 500))
    sorter.add(*ends, **({"weight": np.arange(500.0)} if values else {}))
    return sorter


@pytest.mark.skipif("sys.platform == 'win32'", reason="there is no such limit")
def test_however_many_files_there_are_few_are_open(tmp_path: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number) for number in os.listdir("/dev/fd"))
    with many_parts(tmp_path, values=True) as sorter:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, limits[1]))
        try:
            parts = list(sorter.parts(300))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(parts) > 100
    assert sum(len(part.first) for part in parts) == 1000


def test_files_of_a_sort_are_removed_after_a_failure(tmp_path: Path) -> None:
    with many_parts(tmp_path) as sorter:
        next(sorter.parts(300))
        assert len(list(tmp_path.iterdir())) > 100
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, InputError])
def test_a_conversion_that_fails_leaves_nothing(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lg2ar.data.mapped_tables import map_tables

    source, out = tables(tmp_path / "t"), tmp_path / "out" / "x.graph"

    def fail(*_: Any) -> None:
        assert list(out.parent.glob(".x.graph.*.part/.edges-*"))
        raise error("something")

    monkeypatch.setattr(edge_sorting.EdgeSorter, "_read", fail)
    with pytest.raises((KeyboardInterrupt, InputError), match="something"):
        map_tables(out, source)
    assert not list(out.parent.iterdir())


@pytest.mark.skipif("sys.platform != 'linux'", reason="stops as Linux does")
def test_a_conversion_that_is_stopped_leaves_nothing(tmp_path: Path, tally: Tally) -> None:
    ends = np.random.default_rng(5).integers(0, 100_000, (1_000_000, 2))
    np.savetxt(tmp_path / "edges.csv", ends, "%d", ",", header="source,target", comments="")
    out, commands = tmp_path / "out" / "x.graph", Commands(tmp_path / "logs")
    started = commands.start("convert", tmp_path / "edges.csv", out, "--undirected")
    wait_for(lambda: bool(list(out.parent.glob(".x.graph.*.part/.edges-*"))), started)
    asked = time.monotonic()
    started.signal(signal.SIGTERM)
    assert started.end(30) == 143, started.printed
    assert time.monotonic() - asked < 10
    assert "lg2ar: interrupted; nothing was written" in started.printed
    assert not list(out.parent.iterdir())
    tally("stops survived")


# One call of C, with nothing between that could notice a signal.
BUSY = """
import hashlib, sys, threading
from pathlib import Path
from lg2ar.cli import stopping
from lg2ar.files import folder_beside, written_beside
stopping.GRACE = 0.5
out = Path(sys.argv[1])
with stopping.stopping_in_time(), folder_beside(out) as part, written_beside(out / "f") as file:
    (part / "large").write_text("much")
    file.write_text("more")
    threading.Timer(1, print, ["busy"], {"flush": True}).start()  # by then it is inside the call
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**9)
"""


@pytest.mark.skipif("sys.platform == 'win32'", reason="there are no such signals")
def test_a_computation_that_does_not_look_up_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.graph").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, str(tmp_path / "x.graph")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": SOURCE},
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    assert list(tmp_path.glob(".x.graph.*.part/large"))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    assert not list(tmp_path.glob(".x.graph.*.part"))
    assert not list((tmp_path / "x.graph").iterdir())


@pytest.mark.skipif("sys.platform != 'linux'", reason="a file without a name is Linux's")
def test_rows_of_a_layer_are_in_a_file_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends the process, nothing of it stays."""
    import lg2ar.layerwise as layerwise

    monkeypatch.setattr(layerwise, "SMALL", 10)
    scratch, before = tmp_path / "scratch", layerwise._Layerwise.table
    seen: list[list[Path]] = []
    nameless: list[bool] = []

    def table(work: Any, nodes: Any, width: int, make: Any, *, edges: bool) -> Any:
        def look(some: Any) -> Any:  # while the rows are written
            seen.append(list(scratch.iterdir()))
            nameless.append(any(f"{scratch}/" in link for link in open_files()))
            return make(some)

        return before(work, nodes, width, look, edges=edges)

    monkeypatch.setattr(layerwise._Layerwise, "table", table)
    scratch.mkdir()
    mapping.write_mapped(tmp_path / "g.graph", toy_nodes(50))
    run = lg2ar.pretrain(tmp_path / "g.graph", {"epochs": 0, "hidden": 8}, device="cpu")
    run.embed(tmp_path / "g.graph", scratch=scratch)
    assert any(nameless)
    assert not any(seen)


def open_files() -> list[str]:
    """What this process has open, as Linux tells it."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return [os.readlink(link) for link in links if os.path.lexists(link)]
