"""Report pages of hostile files, in a real browser: what comes from data stays text.

Everything a person can name comes from files here, by the commands: the folder, the file, ids,
labels, columns, categories, and what a run folder says of itself. See tests/test_browser.py too.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from commands import Command
from sealing import write_sealed
from test_browser import browser as browser  # the fixture
from test_browser import complaints, open_page

TAG = "<img src=x onerror='hacked = 1'>"  # without a slash, so that a file can be called so
EVIL = f"</script><script>window.hacked = 1</script>{TAG}<!--"
SMALL = ["--set", "hidden=8", "--set", "layers=1", "--set", "epochs=1"]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def write_table(path: Path, names: list[str], rows: list[list[object]]) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def write_nodes(folder: Path) -> Path:
    """One graph of nodes that are all called like a script."""
    home = folder / f"nodes {TAG}"
    home.mkdir()
    ids = [f"{k} {EVIL}" for k in range(30)]
    edges: list[list[object]] = [[ids[k], ids[(k + 1) % 30], f"{EVIL}{k % 2}"] for k in range(30)]
    nodes: list[list[object]] = [
        [name, f"{EVIL}{k % 3}", k, f"{EVIL}{k % 2}"] for k, name in enumerate(ids)
    ]
    write_table(home / "edges.csv", ["source", "target", f"kind {EVIL}"], edges)
    write_table(home / "nodes.csv", ["node", f"colour {EVIL}", f"size {EVIL}", "y"], nodes)
    return home


def write_graphs(folder: Path) -> Path:
    """Graphs that are called like a script, and so are their labels."""
    home = folder / f"graphs {TAG}"
    home.mkdir()
    names = [f"g{k} {EVIL}" for k in range(24)]
    edges: list[list[object]] = [
        [name, f"{a} {EVIL}", f"{a + 1} {EVIL}"] for name in names for a in range(4)
    ]
    graphs: list[list[object]] = [
        [name, f"{EVIL}{k % 2}", f"{EVIL}{k % 3}"] for k, name in enumerate(names)
    ]
    write_table(home / "edges.csv", ["graph", "source", "target"], edges)
    write_table(home / "graphs.csv", ["graph", "y", f"other {EVIL}"], graphs)
    return home


def spoil(run: Path) -> None:
    """Let the run folder call itself like a script too."""
    head = json.loads((run / "run.json").read_text())
    head["versions"] |= {"torch": EVIL, f"other {EVIL}": EVIL}
    head["data"] |= {"name": EVIL, "source": EVIL, "reading": {EVIL: EVIL}}
    write_sealed(run / "run.json", head)


@pytest.mark.parametrize("spoilt", [False, True], ids=["files", "run"])
@pytest.mark.parametrize("write", [write_nodes, write_graphs], ids=["nodes", "graphs"])
def test_nothing_from_files_becomes_code(
    write: Any, spoilt: bool, browser: Any, tmp_path: Path, command: Command
) -> None:
    source, run = write(tmp_path), tmp_path / "run"
    command.ok("pretrain", source, "--out", run, "--device", "cpu", *SMALL)
    if spoilt:
        spoil(run)
    page = tmp_path / "page.html"
    command.ok("report", run, source, "--out", page)
    opened = open_page(browser, page)
    assert opened.execute_script("return window.hacked") is None
    assert opened.execute_script("return document.images.length") == 0
    assert len(opened.find_elements("tag name", "script")) == 2  # ours, and the map's data
    assert TAG in opened.find_element("tag name", "h1").text  # shown, as text
    shown = opened.execute_script("return document.body.textContent")
    assert shown.count(EVIL[:30]) > 3
    for item in opened.find_elements("css selector", "select option"):
        item.click()
    assert opened.execute_script("return window.hacked") is None
    assert complaints(opened) == []
