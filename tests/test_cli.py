"""The command line: what it prints, writes, and answers to bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import Command
from lg2ar.data.arrays import write_arrays
from lg2ar.data.toy import toy_graphs

QUICK = ["--set", "hidden=8", "--set", "layers=2", "--set", "epochs=2", "--device", "cpu"]


@pytest.fixture
def lg2ar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def refused(result: tuple[int, str, str], *words: str) -> None:
    """The command ended with 2 and one sentence with these words."""
    code, _, error = result
    assert code == 2
    assert error.startswith("lg2ar: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error
    for word in words:
        assert word in error


def graphs(folder: Path, **arrays: np.ndarray) -> Path:
    path = folder / "mine.npz"
    good = {
        "x": np.ones((6, 2), dtype=np.float32),
        "edge_index": np.array([[0, 1, 2, 3], [1, 0, 3, 2]]),
        "batch": np.array([0, 0, 1, 1, 2, 2]),
    }
    np.savez(path, **{**good, **arrays})  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(("source", "rows"), [("toy-graphs", 300), ("toy-nodes", 800)])
def test_pretrain_then_embed(lg2ar: Command, tmp_path: Path, source: str, rows: int) -> None:
    run, table = tmp_path / "run", tmp_path / "embeddings.parquet"
    code, out, error = lg2ar("pretrain", source, "--out", run, "--seed", "3", *QUICK)
    assert (code, error) == (0, "")
    assert "2 epochs" in out
    assert "Policy: identity" in out
    assert json.loads((run / "run.json").read_text())["config"]["seed"] == 3
    code, out, _ = lg2ar("embed", run, source, "--out", table, "--device", "cpu")
    assert code == 0
    assert f"{rows} embeddings" in out
    read = pd.read_parquet(table)
    assert len(read) == rows
    assert list(read.columns[:3]) == ["id", "y", "e0"]
    assert np.isfinite(read.to_numpy()).all()


def test_the_same_command_gives_the_same_embeddings(lg2ar: Command, tmp_path: Path) -> None:
    for name in ("a", "b"):
        lg2ar("pretrain", "toy-graphs", "--out", tmp_path / name, *QUICK)
        lg2ar("embed", tmp_path / name, "toy-graphs", "--out", tmp_path / f"{name}.npz")
    first, second = (np.load(tmp_path / f"{name}.npz")["embedding"] for name in ("a", "b"))
    assert np.array_equal(first, second)


def test_settings_come_from_file_then_flags(lg2ar: Command, tmp_path: Path) -> None:
    config = tmp_path / "settings.toml"
    config.write_text('policy = "deepset"\nhidden = 99\nepochs = 1\n')
    code, _, error = lg2ar(
        "pretrain", "toy-graphs", "--out", tmp_path / "run", "--config", config, *QUICK
    )
    assert (code, error) == (0, "")
    held = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert (held["policy"], held["hidden"], held["epochs"]) == ("deepset", 8, 2)


def test_resume_goes_on(lg2ar: Command, tmp_path: Path) -> None:
    lg2ar("pretrain", "toy-graphs", "--out", tmp_path, *QUICK)
    longer = [*QUICK, "--set", "epochs=3"]
    refused(lg2ar("pretrain", "toy-graphs", "--out", tmp_path, *longer), "already holds a run")
    code, out, _ = lg2ar("pretrain", "toy-graphs", "--out", tmp_path, "--resume", *longer)
    assert code == 0
    assert "3 epochs" in out


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_embeddings_in_other_formats(lg2ar: Command, tmp_path: Path, ending: str) -> None:
    lg2ar("pretrain", "toy-graphs", "--out", tmp_path / "run", *QUICK, "--set", "epochs=0")
    path = tmp_path / "deep" / f"rows.{ending}"
    code, _, _ = lg2ar("embed", tmp_path / "run", "toy-graphs", "--out", path)
    assert code == 0
    rows = len(pd.read_csv(path)) if ending == "csv" else len(np.load(path)["id"])
    assert rows == 300


def test_own_arrays_are_a_source(lg2ar: Command, tmp_path: Path) -> None:
    path = graphs(tmp_path)
    code, _, error = lg2ar("pretrain", path, "--out", tmp_path / "run", *QUICK)
    assert (code, error) == (0, "")
    code, out, _ = lg2ar("embed", tmp_path / "run", path, "--out", tmp_path / "e.csv")
    assert "3 embeddings of width 16" in out
    assert list(pd.read_csv(tmp_path / "e.csv").columns[:2]) == ["id", "e0"]


NAN = np.full((6, 2), np.nan, dtype=np.float32)
BAD_GRAPHS = [
    ({"x": NAN}, "features of node 0"),
    ({"x": np.array([["a"]] * 6)}, "x must hold numbers"),
    ({"edge_index": np.array([[0.0], [1.0]])}, "edge_index must hold whole numbers"),
    ({"edge_index": np.array([[0], [77]])}, "names node 77, outside 0 to 5"),
    ({"batch": np.array([0, 0, 1, 1, 3, 3])}, "graph 2 has no nodes"),
    ({"x": np.empty((0, 2)), "batch": np.empty(0, dtype=int)}, "holds no nodes"),
]


@pytest.mark.parametrize(("arrays", "words"), BAD_GRAPHS)
def test_bad_graphs_are_refused_in_one_sentence(
    lg2ar: Command, tmp_path: Path, arrays: dict[str, np.ndarray], words: str
) -> None:
    path = graphs(tmp_path, **arrays)
    refused(lg2ar("pretrain", path, "--out", tmp_path / "run", *QUICK), str(path), words)
    assert not (tmp_path / "run").exists()


def test_features_of_another_width_are_refused(lg2ar: Command, tmp_path: Path) -> None:
    lg2ar("pretrain", graphs(tmp_path), "--out", tmp_path / "run", *QUICK)
    wide = graphs(tmp_path, x=np.ones((6, 5), dtype=np.float32))
    result = lg2ar("embed", tmp_path / "run", wide, "--out", tmp_path / "e.csv")
    refused(result, "mine has 5 node features where the model was trained on 2")
    assert not (tmp_path / "e.csv").exists()


def test_a_truncated_checkpoint_is_refused(lg2ar: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    lg2ar("pretrain", "toy-graphs", "--out", run, *QUICK)
    weights = next(run.glob("model-*.safetensors"))
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-10])
    result = lg2ar("embed", run, "toy-graphs", "--out", tmp_path / "e.csv")
    refused(result, weights.name, "damaged or truncated")
    training = next(run.glob("training-*.safetensors"))
    weights.write_bytes(whole)
    training.write_bytes(b"")
    result = lg2ar("pretrain", "toy-graphs", "--out", run, "--resume", *QUICK)
    refused(result, training.name, "damaged or truncated")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pretrain", "toy-graph", "--out", "run"], "did you mean 'toy-graphs'?"),
        (["pretrain", "none.npz", "--out", "run"], "none.npz: there is no such file"),
        (["pretrain", "toy-graphs", "--out", "run", "--set", "hiden=3"], "did you mean 'hidden'?"),
        (["pretrain", "toy-graphs", "--out", "run", "--set", "ratio=2"], "ratio = 2 must be"),
        (["pretrain", "toy-graphs", "--out", "run", "--set", "ratio"], "form key=value"),
        (["pretrain", "toy-graphs", "--out", "run", "--config", "no.toml"], "no such config"),
        (["pretrain", "toy-graphs", "--out", "run", "--device", "abacus"], "auto, cpu or cuda"),
        (["pretrain", "toy-graphs", "--out", "run", "--device", "cuda:x"], "auto, cpu or cuda"),
        (["pretrain", "toy-graphs", "--out", "run", "--set", "seed=" + "9" * 400], "seed = 999"),
        (["pretrain", "toy-graphs", "--out", "run", "--set", "seed=" + "9" * 5000], "seed = '999"),
        (["pretrain", "toy-graphs", "--out", "run", "--set", "hidden=3\nepochs=1"], "one line"),
        (["pretrain", "toy-graphs", "--out", "run", "--seed", "x"], "Invalid value for '--seed'"),
        (["pretrain", "toy-graphs"], "Missing option '--out'"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["embed", "nowhere", "toy-graphs", "--out", "e.csv"], "there is no run here"),
        (["embed", "nowhere", "toy-graphs", "--out", "e.docx"], "written as .parquet, .csv, .npz"),
    ],
)
def test_wrong_words_are_refused_in_one_sentence(
    lg2ar: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(lg2ar(*arguments), words)
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_breaks_down_ends_with_2_and_a_kept_state(
    lg2ar: Command, tmp_path: Path
) -> None:
    huge = graphs(tmp_path, x=np.full((6, 2), 3e38, dtype=np.float32))
    result = lg2ar("pretrain", huge, "--out", tmp_path / "run", *QUICK, "--set", "norm=false")
    refused(result, "became", "learning_rate", "The state of epoch 0 is kept")
    code, _, _ = lg2ar("embed", tmp_path / "run", "toy-graphs", "--out", tmp_path / "e.csv")
    assert code == 2  # the kept model reads two features; it is there and says so


def test_an_output_that_cannot_be_written_is_named(lg2ar: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = lg2ar("pretrain", "toy-graphs", "--out", tmp_path / "file" / "run", *QUICK)
    refused(result, "cannot be written")


def test_an_interrupt_says_how_to_go_on(
    lg2ar: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lg2ar.training import Trainer

    def interrupted(self: Trainer, batch: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "step", interrupted)
    code, _, error = lg2ar("pretrain", "toy-graphs", "--out", tmp_path / "run", *QUICK)
    assert code == 130
    assert "--resume goes on" in error
    # Signals mean to this process what they meant before.
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_installed_command_answers(tmp_path: Path) -> None:
    write_arrays(tmp_path / "few.npz", toy_graphs(num_graphs=6))
    command = [sys.executable, "-m", "lg2ar"]
    helped = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert "pretrain" in helped.stdout
    version = subprocess.run([*command, "version"], capture_output=True, text=True, check=True)
    assert "torch" in json.loads(version.stdout)
    broken = subprocess.run(
        [*command, "pretrain", "nothing", "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert broken.returncode == 2
    assert broken.stderr.startswith("lg2ar: 'nothing' is neither")
    assert broken.stderr.count("\n") == 1


def test_the_demonstration_replaces_itself_and_nothing_else(lg2ar: Command, tmp_path: Path) -> None:
    mine = tmp_path / "thesis.tex"
    mine.write_text("years of work")
    quick = ["--out", str(tmp_path), *QUICK]
    assert lg2ar("demo", *quick)[0] == 0
    assert lg2ar("demo", *quick)[0] == 0
    refused(lg2ar("demo", *quick, "--set", "hiden=3"), "did you mean 'hidden'?")
    assert mine.read_text() == "years of work"
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    other = tmp_path / "real"
    lg2ar("pretrain", "toy-graphs", "--out", other, *QUICK)
    refused(lg2ar("demo", "--out", other, *QUICK), "not a demonstration")


def test_the_source_is_not_overwritten(lg2ar: Command, tmp_path: Path) -> None:
    path = graphs(tmp_path)
    before = path.read_bytes()
    lg2ar("pretrain", path, "--out", tmp_path / "run", *QUICK)
    refused(lg2ar("embed", tmp_path / "run", path, "--out", path), "is the source itself")
    assert path.read_bytes() == before


def test_one_graph_is_embedded_at_the_level_of_the_run(lg2ar: Command, tmp_path: Path) -> None:
    lg2ar("pretrain", graphs(tmp_path), "--out", tmp_path / "run", *QUICK)
    single = graphs(tmp_path, batch=np.zeros(6, dtype=int), y=np.arange(6))
    code, out, _ = lg2ar("embed", tmp_path / "run", single, "--out", tmp_path / "e.csv")
    assert code == 0
    assert "1 embeddings" in out
    assert "y" not in pd.read_csv(tmp_path / "e.csv").columns


def test_the_benchmarks_are_listed(lg2ar: Command, tmp_path: Path) -> None:
    code, out, _ = lg2ar("datasets", "--data", tmp_path)
    assert code == 0
    assert out.count(" no\n") == 15
    _, text, _ = lg2ar("datasets", "--data", tmp_path, "--json")
    rows = json.loads(text)
    assert [row["name"] for row in rows][:2] == ["mutag", "proteins"]
    assert rows[0] | {"present": False} == rows[0]


def test_without_words_there_is_help(lg2ar: Command) -> None:
    code, out, _ = lg2ar()
    assert code == 2
    assert "pretrain" in out
    assert lg2ar("--help")[0] == 0


NODES = "graph_id,node_id,kind,size\n" + "".join(
    f"g{graph},n{node},{'ab'[node % 2]},{node}\n" for graph in range(6) for node in range(4)
)
EDGES = "graph_id,source,target\n" + "".join(
    f"g{graph},n{node},n{node + 1}\n" for graph in range(6) for node in range(3)
)
LABELS = "graph_id,active\n" + "".join(
    f"g{graph},{'yes' if graph % 2 else 'no'}\n" for graph in range(6)
)


def tables(folder: Path, **changes: str) -> Path:
    folder.mkdir(exist_ok=True)
    files = {"nodes": NODES, "edges": EDGES, "graphs": LABELS, **changes}
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def test_own_tables_from_files_to_embeddings(lg2ar: Command, tmp_path: Path) -> None:
    run, source = tmp_path / "run", tables(tmp_path / "mine")
    code, _, error = lg2ar("pretrain", source, "--labels", "active", "--out", run, *QUICK)
    assert code == 0
    assert error.startswith("lg2ar: ")
    assert error.count("edges.csv: Edges are taken to be undirected") == 1  # said once
    code, out, error = lg2ar(
        "embed", run, source, "--labels", "active", "--out", tmp_path / "e.parquet"
    )
    assert "6 embeddings of width 16" in out
    table = pd.read_parquet(tmp_path / "e.parquet")
    assert table["id"].tolist() == [f"g{k}" for k in range(6)]
    assert table["y"].tolist() == ["no", "yes"] * 3
    # Other tables, with a kind that was never seen, are embedded too, and that is told.
    other = tables(tmp_path / "other", nodes=NODES.replace(",b,", ",c,"))
    code, _, error = lg2ar("embed", run, other, "--out", tmp_path / "o.csv", "--device", "cpu")
    assert code == 0
    assert "lg2ar: other: column 'kind' of nodes holds 1 value(s) that were not seen" in error
    assert "taken to be undirected" not in error  # the run knows
    assert list(pd.read_csv(tmp_path / "o.csv").columns[:2]) == ["id", "e0"]


def test_options_say_how_a_source_is_read(lg2ar: Command, tmp_path: Path) -> None:
    source = tables(tmp_path / "mine")
    options = ["--directed", "--ignore", "kind", "--category", "size", "--column", "source=source"]
    run = tmp_path / "run"
    assert lg2ar("pretrain", source, "--out", run, *options, *QUICK)[0] == 0
    held = json.loads((run / "run.json").read_text())
    assert held["data"]["reading"] == {
        "directed": True,
        "categories": ["size"],
        "ignore": ["kind"],
        "columns": {"source": "source"},
    }
    assert [rule["name"] for rule in held["recipe"]["nodes"]["rules"]] == ["size"]
    assert held["recipe"]["nodes"]["rules"][0]["values"] == ["0", "1", "2", "3"]
    longer = [*QUICK, "--set", "epochs=3"]
    code, out, _ = lg2ar("pretrain", source, "--out", run, "--resume", *longer)  # read as before
    assert code == 0
    assert "3 epochs" in out
    beside = ["--nodes", str(source / "nodes.csv"), "--level", "node"]
    code, _, _ = lg2ar(
        "pretrain", source / "edges.csv", "--out", tmp_path / "nodes", *beside, *QUICK
    )
    assert code == 0
    held = json.loads((tmp_path / "nodes" / "run.json").read_text())
    assert (held["config"]["level"], held["data"]["num_nodes"]) == ("node", 24)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--column", "source"], "give it as ROLE=COLUMN"),
        (["--column", "middle=source"], "'middle' must be one of graph, node, source, target"),
        (["--labels", "colour"], "there is no column 'colour'"),
        (["--strict"], "the option 'strict' says nothing about a source of this kind"),
        (["--smiles", "kind"], "mine"),
        (["--level", "edge"], "Invalid value for '--level'"),
        (["--level", "node", "--set", "level=graph"], "--level node: the run is at graph level"),
        (["--set", "level=edge"], "level = 'edge' must be"),
        (["--nodes", "none.csv"], "none.csv: there is no such file"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    lg2ar: Command, tmp_path: Path, options: list[str], words: str
) -> None:
    source = tables(tmp_path / "mine")
    refused(lg2ar("pretrain", source, "--out", tmp_path / "run", *options, *QUICK), words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": NODES + "g9,n0\n"}, "nodes.csv: line 26 has 2 cells"),
        ({"edges": EDGES + "g0,n0,n9\n"}, "edges.csv: line 20 names node 'n9'"),
        ({"graphs": LABELS + "g0,no\n"}, "graphs.csv: line 8 lists graph 'g0' for the second"),
        ({"nodes": ""}, "nodes.csv: is empty"),
    ],
)
def test_bad_tables_are_refused_in_one_sentence(
    lg2ar: Command, tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    source = tables(tmp_path / "mine", **changes)
    refused(lg2ar("pretrain", source, "--out", tmp_path / "run", *QUICK), words)


def test_embeddings_never_become_a_table_of_the_source(lg2ar: Command, tmp_path: Path) -> None:
    source = tables(tmp_path / "mine")
    lg2ar("pretrain", source, "--out", tmp_path / "run", *QUICK)
    for name in ("nodes.csv", "graphs.parquet"):
        result = lg2ar("embed", tmp_path / "run", source, "--out", source / name)
        refused(result, "is the source itself")
        result = lg2ar("outliers", tmp_path / "run", source, "--out", source / name)
        refused(result, "is the source itself")
    for _ in range(2):
        assert lg2ar("embed", tmp_path / "run", source, "--out", source / "e.csv")[0] == 0
    assert (source / "nodes.csv").read_text() == NODES
