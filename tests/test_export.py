"""Encoders as files: what they take, that they agree with the run, and that nothing else stays."""

from __future__ import annotations

import builtins
import io
import json
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lg2ar
from commands import Command
from lg2ar import exporting
from lg2ar.data.dataset import Dataset
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError
from lg2ar.exporting import export_encoder
from lg2ar.graph import GraphBatch

HERE = all(find_spec(name) for name in ("onnx", "onnxruntime", "onnxscript"))
ONNX = pytest.param(".onnx", marks=pytest.mark.skipif(not HERE, reason="ONNX is not installed"))
SMALL: dict[str, Any] = {"hidden": 8, "layers": 2, "epochs": 1}


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def decorated(dataset: Dataset, width: int, weights: bool) -> Dataset:
    """With edge attributes and weights."""
    edges = dataset.graph.num_edges
    graph = dataset.graph.replace(
        edge_attr=torch.randn(edges, width) if width else None,
        edge_weight=torch.rand(edges) if weights else None,
    )
    return replace(dataset, graph=graph)


@cache
def run(level: str = "graph", width: int = 0) -> lg2ar.Run:
    torch.manual_seed(0)
    dataset = toy_graphs(20) if level == "graph" else toy_nodes(60)
    return lg2ar.pretrain(decorated(dataset, width, False), SMALL, device="cpu")


def opened(path: Path) -> Any:
    """The exported encoder as somebody without lg2ar would run it."""
    if path.suffix == ".pt2":
        program = torch.export.load(io.BytesIO(path.read_bytes())).module()
        return lambda **arrays: (
            program(**{k: torch.from_numpy(v) for k, v in arrays.items()}).detach().numpy()
        )
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes())
    assert [item.name for item in session.get_outputs()] == ["embedding"]
    return lambda **arrays: session.run(None, arrays)[0]


def arrays(graph: GraphBatch, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: getattr(graph, name).numpy() for name in names}


@pytest.mark.parametrize("ending", [ONNX, ".pt2"])
@pytest.mark.parametrize(
    ("level", "width", "weights"),
    [("graph", 0, False), ("graph", 3, True), ("node", 0, True), ("node", 3, False)],
)
def test_a_file_gives_the_runs_embeddings_of_other_graphs(
    tmp_path: Path, ending: str, level: str, width: int, weights: bool
) -> None:
    trained = run(level, width)
    made = export_encoder(trained, tmp_path / f"encoder{ending}", weighted=weights)
    names = ["x", "edge_index", *(["batch"] if level == "graph" else [])]
    names += [*(["edge_weight"] if weights else []), *(["edge_attr"] if width else [])]
    assert made.inputs == tuple(names)
    encoder = opened(made.path)
    other = toy_graphs(33, seed=5) if level == "graph" else toy_nodes(211, seed=5)
    other = decorated(other, width, weights)
    found = encoder(**arrays(trained.recipe.apply(other), made.inputs))
    wanted = trained.embed(other).numpy()
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.skipif(not HERE, reason="ONNX is not installed")
@pytest.mark.parametrize("readout", ["sum", "mean"])
def test_an_onnx_file_gives_the_same_with_many_threads(tmp_path: Path, readout: str) -> None:
    """onnxruntime loses sums of rows that meet where they are written as ScatterND."""
    import onnxruntime

    trained = lg2ar.pretrain(toy_graphs(20), {**SMALL, "readout": readout}, device="cpu")
    made = export_encoder(trained, tmp_path / "encoder.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 8
    session = onnxruntime.InferenceSession(made.path.read_bytes(), options)
    many = toy_graphs(600, seed=1)
    wanted = trained.embed(many).numpy()
    for _ in range(20):
        found = session.run(None, arrays(trained.recipe.apply(many), made.inputs))[0]
        assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("ending", [ONNX, ".pt2"])
@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("scale", ["unit", "standard"])
def test_a_file_scales_as_the_run_does(tmp_path: Path, ending: str, level: str, scale: str) -> None:
    dataset, other = toy_graphs(20), toy_graphs(33, seed=5)
    if level == "node":
        dataset, other = toy_nodes(60), toy_nodes(211, seed=5)
    trained = lg2ar.pretrain(dataset, {**SMALL, "embedding_scale": scale}, device="cpu")
    made = export_encoder(trained, tmp_path / f"encoder{ending}")
    found = opened(made.path)(**arrays(trained.recipe.apply(other), made.inputs))
    wanted = trained.embed(other).numpy()
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("ending", [ONNX, ".pt2"])
def test_after_the_projection_and_with_another_readout(tmp_path: Path, ending: str) -> None:
    settings = {**SMALL, "embedding": "after", "readout": "log-sum", "feature_projection": "shared"}
    trained = lg2ar.pretrain(toy_graphs(20), settings, device="cpu")
    made = export_encoder(trained, tmp_path / f"encoder{ending}", toy_graphs(20))
    assert made.rows >= 20
    found = opened(made.path)(**arrays(toy_graphs(5).graph, made.inputs))
    assert np.allclose(found, trained.embed(toy_graphs(5)).numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("ending", [ONNX, ".pt2"])
def test_the_recipe_is_in_the_file(tmp_path: Path, ending: str) -> None:
    path = export_encoder(run(), tmp_path / f"encoder{ending}").path
    if ending == ".pt2":
        held = {"lg2ar": ""}
        torch.export.load(io.BytesIO(path.read_bytes()), extra_files=held)
        text = held["lg2ar"]
    else:
        import onnx

        model = onnx.load_from_string(path.read_bytes())
        text = next(item.value for item in model.metadata_props if item.key == "lg2ar")
    about = json.loads(text)
    assert about["recipe"] == run().recipe.to_dict()
    assert about["inputs"] == ["x", "edge_index", "batch"]
    assert about["config"]["hidden"] == 8


@pytest.mark.parametrize("ending", [ONNX, ".pt2"])
def test_a_file_that_disagrees_is_not_kept(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"encoder{ending}"
    path.write_text("what was there")
    monkeypatch.setattr(exporting, "pass_messages", lambda x, *_: x)  # no neighbour is heard
    with pytest.raises(InputError, match="differ from the run's own"):
        export_encoder(run(), path)
    assert path.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [path]


def test_the_run_is_left_as_it_is(tmp_path: Path) -> None:
    before = {key: value.clone() for key, value in run().model.state_dict().items()}
    export_encoder(run(), tmp_path / "encoder.pt2")
    after = run().model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert all(parameter.requires_grad for parameter in run().model.parameters())


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"written as \.onnx or \.pt2"):
        export_encoder(run(), tmp_path / "encoder.bin")
    original = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("onnx"):
            raise ImportError(name=name)
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"needs onnx; .* pip install 'lg2ar\[export\]'"):
        export_encoder(run(), tmp_path / "encoder.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_command(command: Command, tmp_path: Path) -> None:
    small = ["--set", "hidden=8", "--set", "layers=2", "--set", "epochs=0", "--device", "cpu"]
    command.ok("pretrain", "toy-graphs", "--out", tmp_path / "run", *small)
    told = command.ok("export", tmp_path / "run", "--out", tmp_path / "e.pt2")
    assert "x, edge_index, batch in, embedding out" in told
    assert "of made-up graphs agree" in told
    told = command.ok("export", tmp_path / "run", "toy-graphs", "--out", tmp_path / "f.pt2")
    assert "307 embeddings of made-up graphs and toy-graphs agree" in told
    assert "written as .onnx or .pt2" in command.refused(
        "export", tmp_path / "run", "--out", tmp_path / "e.txt"
    )
    assert "there is no run here" in command.refused("export", tmp_path, "--out", "e.pt2")
