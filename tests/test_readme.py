"""README and docs tell the truth: what they show runs, and their numbers are those of records."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lg2ar.config import Config
from lg2ar.data.arrays import write_arrays
from lg2ar.data.toy import toy_graphs
from lg2ar.demo import SETTINGS
from lg2ar.report.tables import read_records
from lg2ar.study.plan import TABLES

ROOT = Path(__file__).parent.parent
PAGES = ("paper", "results", "performance", "tuning", "scaling", "large-graph", "findings")
README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    """The README's last block of code in this language."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    return found[-1]


def load_make_tables() -> ModuleType:
    """The script that writes the tables, which is not part of the package."""
    found = importlib.util.spec_from_file_location("make_tables", ROOT / "docs" / "make_tables.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *(f"docs/{name}.md" for name in PAGES),
    ],
)
def test_the_tables_come_from_the_records(page: str) -> None:
    text = (ROOT / page).read_text()
    tables = load_make_tables()
    assert len(tables.MARKED.findall(text)) == text.count("<!-- end -->") > 0
    assert tables.filled(text) == text, "run python docs/make_tables.py"


def test_the_charts_come_from_the_records() -> None:
    tables = load_make_tables()
    assert tables.CHARTS
    for file, draw in tables.CHARTS.items():
        assert file.read_text() == draw(), "run python docs/make_tables.py"
        shown = [page for page in tables.PAGES if file.name in page.read_text()]
        assert shown, f"no page shows {file.name}"


def test_the_demonstration_was_run_with_five_seeds() -> None:
    records = read_records(ROOT / "results" / "toy-graphs.jsonl")
    base = Config.make(SETTINGS).to_dict()
    seeds = [
        r["config"]["seed"] for r in records if Config.stored(r["config"], seed=0).to_dict() == base
    ]
    assert seeds == [0, 1, 2, 3, 4]


def test_records_of_the_study_are_of_the_benchmarks() -> None:
    known = json.loads((ROOT / "results" / "datasets.json").read_text())
    prints = {row["name"]: row["loaded"]["fingerprint"] for row in known if row["loaded"]}
    files = [ROOT / "results" / f"{table}.jsonl" for table in TABLES]
    records = [record for file in files if file.exists() for record in read_records(file)]
    assert records
    for record in records:
        assert record["data"]["fingerprint"] == prints[record["task"]["dataset"]]
        Config.make(record["config"])


def test_the_records_are_of_the_data_that_is_embedded() -> None:
    fingerprint = toy_graphs().fingerprint()
    for record in read_records(ROOT / "results" / "toy-graphs.jsonl"):
        assert record["data"]["fingerprint"] == fingerprint
        assert all(score["protocol"] for score in record["scores"].values())


def need_mutag() -> str:
    """The data root, where it has the raw files of MUTAG."""
    root = os.environ.get("LG2AR_DATA")
    if not root or not (Path(root) / "MUTAG" / "raw").is_dir():
        pytest.skip("needs the benchmark data: set LG2AR_DATA to its root")
    return root


def test_the_python_example_runs_on_real_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = need_mutag()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(root)
    subprocess.run([sys.executable, "-c", block("python")], check=True, capture_output=True)
    assert (tmp_path / "runs" / "mutag" / "run.json").is_file()


def test_the_shell_examples_run(tmp_path: Path) -> None:
    write_arrays(tmp_path / "mine.npz", toy_graphs(num_graphs=8))
    (tmp_path / "my.toml").write_text("hidden = 8\n")
    lines = block("sh").replace("\\\n", "").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    own = {"demo", "pretrain", "embed", "datasets"}
    study = {"reproduce", "table", "figure"}
    assert {command[1] for command in commands} == own | study
    for command in commands:
        if command[1] in own:
            brief = ["--set", "epochs=1"] if command[1] in ("pretrain", "demo") else []
            run_lg2ar([*command[1:], *brief], tmp_path)
    assert (tmp_path / "rows.parquet").is_file()
    assert (tmp_path / "runs" / "demo" / "report.html").is_file()
    need_mutag()
    for command in commands:
        if command[1] in study:
            once = ["--variants", "gru", "--seeds", "1", "--set", "epochs=1", "--set", "hidden=8"]
            run_lg2ar([*command[1:], *(once if command[1] == "reproduce" else [])], tmp_path)
    assert (tmp_path / "results" / "figure-policy.png").is_file()


def test_own_files_come_to_a_report_in_three_commands(tmp_path: Path) -> None:
    (part,) = re.findall(r"## Your own files\n(.*?)## From Python", README, flags=re.DOTALL)
    (shown,) = re.findall(r"```csv\n(.*?)```", part, flags=re.DOTALL)
    folder = tmp_path / "shops"
    folder.mkdir()
    for name, rows in _columns(shown).items():
        # The shop that is shown and those like it: the method contrasts graphs with each other.
        rows = [row for row in rows if row]
        first = [row for row in rows if row.startswith("s-01")]
        more = [row.replace("s-01", f"s-{k:02}") for k in range(3, 12) for row in first]
        (folder / name).write_text("\n".join([*rows, *more]) + "\n")
    (commands,) = re.findall(r"```sh\n(.*?)```", part, flags=re.DOTALL)
    lines = [shlex.split(line, comments=True) for line in commands.splitlines()]
    assert [line[:2] for line in lines] == [["lg2ar", c] for c in ("pretrain", "embed", "report")]
    for line in lines:
        run_lg2ar(line[1:], tmp_path)
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert rows[0].startswith("id,")
    assert len(rows) == 1 + 11
    assert "s-02" in (tmp_path / "runs" / "shops" / "report.html").read_text()


def _columns(shown: str) -> dict[str, list[str]]:
    """The files that stand side by side in a block, each under its name."""
    lines = shown.rstrip("\n").splitlines()
    starts = [found.start() for found in re.finditer(r"\w+\.csv", lines[0])]
    files = {}
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        name = lines[0][start:end].split()[0]
        files[name] = [line[start:end].replace(name, "").strip() for line in lines]
    return files


def run_lg2ar(arguments: list[str], folder: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "lg2ar", *arguments], check=True, capture_output=True, cwd=folder
    )


@pytest.mark.parametrize("script", ["graph_level.py", "node_level.py"])
def test_the_example_scripts_run(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), "2"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "untrained" in done.stdout
    assert "trained" in done.stdout


def test_every_file_named_in_the_docs_is_there() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"
    paper = (ROOT / "docs" / "paper.md").read_text()
    for name in re.findall(r"`(test_\w+\.py)`", paper):
        assert (ROOT / "tests" / name).is_file(), f"docs/paper.md names {name}"
