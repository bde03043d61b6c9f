"""Encoders that are handed on: small, whole, and worth what they say."""

from __future__ import annotations

import json
import os
import statistics
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from lg2ar import shipping
from lg2ar.benchmarks import hyperparameters
from lg2ar.cli import app
from lg2ar.config import HOW, Config
from lg2ar.data.benchmarks import BENCHMARKS, find_benchmark, present
from lg2ar.data.dataset import Dataset
from lg2ar.data.sources import open_source
from lg2ar.errors import InputError
from lg2ar.experiment import pretrain
from lg2ar.model import build_base_encoder
from lg2ar.protocols import Reader
from lg2ar.shipping import Check, read_encoder, ship, verify
from sealing import save_sealed
from tiny import write_graphs, write_wikics

# Read once: tests change the environment.
DATA = os.environ.get("LG2AR_DATA")
SMALL: dict[str, Any] = {"hidden": 8, "layers": 2, "epochs": 3, "batch_size": 16}


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graphs(tmp_path)
    write_wikics(tmp_path, nodes=60)
    monkeypatch.setenv("LG2AR_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def make(name: str = "tu:TINY", **more: Any) -> Path:
    path = Path("encoders") / "some.safetensors"
    ship(name, path, preset="default", settings={**SMALL, **more}, seed=3, device="cpu")
    return path


@pytest.mark.parametrize("name", ["tu:TINY", "wikics"])
def test_what_is_shipped_scores_what_it_says(name: str) -> None:
    path = make(name, epochs=8, learning_rate=0.05)  # enough for the coin to fall on both sides
    shipped = read_encoder(path)
    dataset = open_source(name)
    reader = Reader(dataset, 3, torch.device("cpu"))
    rows = shipped.embed(dataset)
    before = pretrain(dataset, shipped.config.replace(epochs=0), device="cpu").embed(dataset)
    for claim in shipped.claims:
        assert claim.accuracy == reader.accuracy(claim.protocol, rows)
        assert claim.untrained == reader.accuracy(claim.protocol, before) != claim.accuracy
    assert [claim.protocol for claim in shipped.claims] == ["strict", "paper"]
    checks = verify(path, device="cpu")
    assert all(check.holds and check.recorded == check.found for check in checks)
    assert checks[0].recorded == statistics.fmean(shipped.claims[0].accuracy)


@pytest.mark.parametrize("scale", ["unit", "standard"])
def test_a_shipped_encoder_scales_as_its_run_did(scale: str) -> None:
    path, dataset = make(embedding_scale=scale), open_source("tu:TINY")
    shipped = read_encoder(path)
    run = pretrain(dataset, shipped.config, device="cpu")
    torch.testing.assert_close(shipped.embed(dataset), run.embed(dataset), rtol=0.02, atol=0.05)
    assert ("graph_scale.running_var" in load_file(path)) == (scale == "standard")
    assert all(check.recorded == check.found for check in verify(path, device="cpu"))


def test_matrices_are_stored_in_half_the_bytes() -> None:
    weights = load_file(make())
    assert {value.dtype for value in weights.values() if value.dim() > 1} == {torch.float16}
    # Statistics of the data can be larger than half precision holds.
    assert weights["network.norms.0.running_var"].dtype == torch.float32
    big = torch.full((2, 2), 1e5)
    assert shipping._small(big).dtype == torch.float32


def test_projection_heads_are_shipped_where_embeddings_come_after_them() -> None:
    path, dataset = make(), open_source("tu:TINY")
    shipped = read_encoder(path)
    rows = shipped.embed(dataset)
    assert not any("projection" in key for key in load_file(path))
    # A file of before has them all the same.
    every = build_base_encoder(shipped.config, shipped.recipe.width, 0).state_dict()
    shipping._write(path, shipped, {**every, **load_file(path)}, shipped.claims)
    assert any("projection" in key for key in load_file(path))
    assert torch.equal(read_encoder(path).embed(dataset), rows)
    make(embedding="after")
    assert any("graph_projection" in key for key in load_file(path))
    assert read_encoder(path).embed(dataset).shape[1] == SMALL["hidden"]


def test_other_weights_are_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(features="degree")
    with safe_open(path, framework="pt") as file:
        head = file.metadata()
    weights = {key: torch.zeros_like(value) for key, value in load_file(path).items()}
    save_sealed(weights, tmp_path / "other.safetensors", head)
    checks = verify(tmp_path / "other.safetensors", device="cpu")
    assert not all(check.holds for check in checks)
    code = app(["verify", str(tmp_path / "other.safetensors")], standalone_mode=False)
    assert code == 2
    assert "NOT THE SAME" in capsys.readouterr().out


def test_rounding_is_allowed_and_no_more() -> None:
    assert Check("strict", 80.0, 80.4).holds
    assert not Check("strict", 80.0, 79.4).holds


def _head(path: Path, **changes: Any) -> None:
    with safe_open(path, framework="pt") as file:
        head = json.loads(file.metadata()["lg2ar"])
    head |= changes
    save_sealed(load_file(path), path, {"lg2ar": json.dumps(head)})


def test_claims_of_before_say_how_they_were_read() -> None:
    path = make("wikics")
    with safe_open(path, framework="pt") as file:
        config = json.loads(file.metadata()["lg2ar"])["config"]
    del config["embedding_scale"]
    _head(path, config=config)
    assert [claim.protocol for claim in read_encoder(path).claims] == ["strict-300", "paper-300"]


def test_other_data_is_refused() -> None:
    path = make()
    held = read_encoder(path)
    _head(path, data={**held.data, "fingerprint": "0" * 64})
    with pytest.raises(InputError, match="scored on other data than the 'tu:TINY'"):
        verify(path)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "there is no such encoder; make it with 'lg2ar ship'"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "damaged"),
        (lambda path: path.write_bytes(b""), "damaged"),
        (lambda path: save_file({"a": torch.ones(1)}, path), "not a shipped encoder"),
        (lambda path: _head(path, format=9), "is of format 9, written by a newer lg2ar"),
        (lambda path: _head(path, config={"hiden": 3}), "unknown setting 'hiden'"),
        (lambda path: _head(path, config={"hidden": 16}), "damaged"),
        (lambda path: _head(path, claims=[{"a": 1}]), "damaged"),
        (lambda path: _head(path, claims=None), "damaged"),
    ],
)
def test_what_is_not_an_encoder_is_refused(spoil: Any, words: str) -> None:
    path = make()
    spoil(path)
    with pytest.raises(InputError, match=words) as caught:
        read_encoder(path)
    assert str(path) in str(caught.value)


def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    options = [f"--set={key}={value}" for key, value in SMALL.items()]
    code = app(
        ["ship", "tu:TINY", "--preset", "default", *options, "--device", "cpu"],
        standalone_mode=False,
    )
    assert not code
    out = capsys.readouterr().out
    assert "strict: " in out
    assert "(untrained " in out
    assert not app(["verify", "tu:TINY", "--device", "cpu"], standalone_mode=False)
    assert capsys.readouterr().out.count("the same") == 2


def test_an_encoder_embeds_graphs_by_themselves() -> None:
    shipped = read_encoder(make())
    dataset = open_source("tu:TINY")
    few = Dataset.from_pyg(dataset.graph.to_pyg().to_data_list()[:5])
    assert torch.allclose(shipped.embed(few), shipped.embed(dataset)[:5], atol=1e-6)


ENCODERS = sorted((Path(__file__).parents[1] / "results" / "encoders").glob("*.safetensors"))


@pytest.mark.parametrize("path", ENCODERS, ids=[path.stem for path in ENCODERS])
def test_encoders_of_the_project_are_whole_and_made_with_a_preset(path: Path) -> None:
    shipped = read_encoder(path)
    assert shipped.data["source"] == path.stem
    level = find_benchmark(path.stem).level
    made_with = []
    for preset in ("findings", "searched", "long", "third"):
        with suppress(InputError):  # not every preset is for every data set
            settings = {"level": level, **hyperparameters(path.stem, preset)}
            made_with.append(Config.make(settings, seed=10))
    ours = {**shipped.config.to_dict(), **dict.fromkeys(HOW)}
    assert ours in [{**config.to_dict(), **dict.fromkeys(HOW)} for config in made_with]


def test_an_encoder_of_the_project_scores_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    if not DATA or not present(BENCHMARKS["mutag"], DATA):
        pytest.skip("LG2AR_DATA does not name a folder of data sets that has MUTAG")
    monkeypatch.setenv("LG2AR_DATA", DATA)
    path = next(path for path in ENCODERS if path.stem == "mutag")
    assert all(check.holds for check in verify(path, device="cpu"))
