"""Parts of one's own, by entry points and by registration; the example package is a real one."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import lg2ar
from lg2ar import Config, InputError, plugins
from lg2ar.fast.suitability import settle_step
from lg2ar.methods import build

EXAMPLE = Path(__file__).parent.parent / "examples" / "plugin"
OWN = {
    "heads": ["identity", "feature-noise"],
    "policy": "linear",
    "discriminator": "distance",
    "bound": "hinge",
}
SMALL = {"hidden": 8, "layers": 2, "epochs": 2, "batch_size": 64}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example package as pip leaves it: its file and its entry points on the path."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    folder = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    folder.mkdir()
    lines = [f"Name: {project['name']}", f"Version: {project['version']}"]
    (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in parts.items())
        for group, parts in project["entry-points"].items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(points))
    module = tmp_path / "example_parts.py"
    module.write_text((EXAMPLE / "example_parts.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    plugins._offered.cache_clear()
    yield module
    plugins._offered.cache_clear()
    sys.modules.pop("example_parts", None)


@pytest.mark.usefixtures("installed")
def test_installed_parts_train_and_come_back(tmp_path: Path) -> None:
    run = lg2ar.pretrain("toy-graphs", {**OWN, **SMALL}, out=tmp_path / "run", device="cpu")
    own = {type(part).__module__ for part in (*run.model.heads, run.model.policy)}  # type: ignore[misc]
    assert own == {"lg2ar.heads.identity", "example_parts"}
    assert run.history[0].loss != run.history[1].loss
    again = lg2ar.load(tmp_path / "run", device="cpu")
    assert torch.equal(run.embed("toy-graphs"), again.embed("toy-graphs"))


@pytest.mark.usefixtures("installed")
def test_gradients_reach_every_part() -> None:
    dataset = lg2ar.read("toy-graphs")
    model = build(Config.make({**OWN, **SMALL, "heads": ["feature-noise"]}), 6)
    batch = lg2ar.GraphBatch.from_data_list(dataset.graph.to_pyg().to_data_list()[:16])
    assert batch.num_features == 6
    output = model(batch, torch.Generator().manual_seed(0))
    output.loss.backward()
    for name in ("heads.0.scale.weight", "base_encoder.network.convs.0.mlp.first.weight"):
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        assert gradient.abs().sum() > 0


@pytest.mark.usefixtures("installed")
def test_the_captured_step_leaves_them_alone() -> None:
    dataset = lg2ar.read("toy-graphs")
    for key, value in OWN.items():
        config = Config.make({key: value, "step": "captured"})
        settled = settle_step(config, dataset.graph, torch.device("cuda"))
        assert settled.step == "plain"


def test_without_the_package_a_sentence_says_what_is_known() -> None:
    with pytest.raises(InputError, match="policy = 'linear' must be one of gru, deepset, random"):
        Config.make(policy="linear")


def test_a_package_that_cannot_be_imported_is_named(installed: Path) -> None:
    installed.write_text("raise RuntimeError('half a package')")
    config = Config.make(policy="linear")
    with pytest.raises(InputError, match=r"policy = 'linear'.*example_parts.*half a package"):
        build(config, 3)


def test_a_script_registers_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_registered", {})

    def hinge(
        scores: torch.Tensor, positive: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        return scores[positive].mean() - scores[~positive].clamp(min=-1).mean()

    plugins.register("bound", "one-sided", hinge)
    assert plugins.names("bound") == ["one-sided"]
    model = build(Config.make(bound="one-sided", **SMALL), 3)
    assert model.bound is hinge
    with pytest.raises(InputError, match="jsd, nce, nt-xent, dv, one-sided"):
        Config.make(bound="two-sided")
    with pytest.raises(ValueError, match="kind must be one of heads"):
        plugins.register("colour", "red", hinge)
    with pytest.raises(ValueError, match="lower-case words"):
        plugins.register("bound", "One Sided", hinge)
