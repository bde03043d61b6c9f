"""The paper's figures from records made by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from lg2ar.errors import InputError
from lg2ar.report.figures import (
    LOSS_PANELS,
    POLICY_PANELS,
    draw_loss,
    draw_policy,
    mean_and_std,
    pair_shares,
    panels,
)
from lg2ar.report.runs import read_runs

PNG = b"\x89PNG\r\n\x1a\n"


def run(dataset: str = "mutag", seed: int = 0, **changes: Any) -> dict[str, Any]:
    task = {
        "table": "graph",
        "dataset": dataset,
        "level": "graph",
        "method": "lg2ar",
        "variant": "gru",
        "preset": "paper",
        "seed": seed,
    }
    record = {
        "config": {},
        "device": "cpu",
        "heads": ["identity", "sub-graph", "node-dropping"],
        "draws": [[5, 1, 0], [2, 0, 0], [0, 0, 2]],
        "losses": [1.0, 0.5, 0.25 + seed],
    }
    held = {key: changes.pop(key) for key in record if key in changes}
    return {"task": {**task, **changes}, **record, **held}


def texts(path: Path) -> list[str]:
    """What an SVG says: matplotlib keeps each text as a comment beside its outlines."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    tree = ElementTree.parse(path, parser)
    return [(part.text or "").strip() for part in tree.iter() if callable(part.tag)]


def test_shares_are_summed_over_runs_by_name() -> None:
    other = run(seed=1, heads=["node-dropping", "identity"], draws=[[6, 4], [0, 0]])
    heads, matrix = pair_shares(read_runs([run(), other]))
    assert heads == ["identity", "node-dropping", "sub-graph"]  # the project's order
    # Identity first: 5, 0, 1. Nodes first: 4 of the other run, 2 + 6, 0. Sub-graph first: 2.
    assert np.allclose(matrix * 20, [[5, 0, 1], [4, 8, 0], [2, 0, 0]])
    assert matrix.sum() == pytest.approx(1)


def test_losses_are_averaged_over_the_runs_that_reached_the_epoch() -> None:
    losses = [[1.0, 2.0, 4.0, 8.0], [3.0, 4.0], [5.0, 9.0, 6.0]]
    mean, std = mean_and_std(losses)
    assert np.allclose(mean, [3, 5, 5, 8])
    assert np.allclose(std, [2, np.std([2, 4, 9], ddof=1), np.sqrt(2), 0])


def test_the_papers_panels_come_first_and_all_are_of_one_preset() -> None:
    records = [
        run("toy-graphs"),
        run("pubmed", table="node", level="node"),
        run("mutag", preset="wide", seed=7),
        run("mutag", seed=3),
        run("mutag", seed=3),
        run("mutag", seed=4),
        run("dd", preset="wide"),
        run("mutag", variant="random"),
        run("collab", method="infograph", variant=None),
        run("collab", table="cost"),
    ]
    preset, found = panels(records, POLICY_PANELS)
    assert preset == "paper"
    assert list(found) == ["mutag", "pubmed", "toy-graphs"]
    assert [part.seed for part in found["mutag"]] == [3, 4]
    preset, found = panels(records, LOSS_PANELS, "wide")
    assert preset == "wide"
    assert list(found) == ["dd", "mutag"]
    assert [part.seed for part in found["mutag"]] == [7]
    with pytest.raises(InputError, match=r"preset 'broad'; there are: paper, wide\."):
        panels(records, LOSS_PANELS, "broad")


def test_without_asking_the_preset_with_the_most_data_sets_is_shown() -> None:
    records = [run(name, preset="wide") for name in ("mutag", "dd", "cora")]
    records += [run(name, seed) for name in ("mutag", "dd") for seed in range(5)]
    assert panels(records, LOSS_PANELS)[0] == "wide"
    assert panels([*records, run("proteins")], LOSS_PANELS)[0] == "paper"  # as many
    assert panels([], LOSS_PANELS) == ("paper", {})


def test_a_figure_names_its_preset(tmp_path: Path) -> None:
    for draw in (draw_policy, draw_loss):
        _, path = draw([run(preset="wide")], tmp_path / "figure")
        assert "preset wide" in texts(path)


@pytest.mark.parametrize("draw", [draw_policy, draw_loss])
def test_figures_are_written_twice_the_same(tmp_path: Path, draw: Any) -> None:
    names = [*LOSS_PANELS, "mutag", "pubmed"]
    records = [run(name, seed) for name in names for seed in range(2)]
    paths = draw(records, tmp_path / "new" / "figure.v1")
    assert [path.name for path in paths] == ["figure.v1.png", "figure.v1.svg"]
    assert paths[0].read_bytes().startswith(PNG)
    assert min(path.stat().st_size for path in paths) > 5000
    told = texts(paths[1])
    assert set(names) <= set(told)
    assert told.count("2 runs") == len(names)
    again = draw(records, tmp_path / "again")
    for path, other in zip(paths, again, strict=True):
        assert path.read_bytes() == other.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.png", "again.svg", "new"]


def test_a_heat_map_says_its_shares(tmp_path: Path) -> None:
    _, path = draw_policy([run()], tmp_path / "policy")
    told = texts(path)
    assert {"identity", "nodes", "sub-graph", "first view", "second view"} <= set(told)
    # Of ten draws 5, 2 and 2, 1 and none.
    assert [told.count(text) for text in ("50.0", "20.0", "10.0")] == [1, 2, 1]
    assert told.count("0") == 5 + 1  # and the scale's


def test_the_style_of_the_user_is_left_alone_and_out(tmp_path: Path) -> None:
    import matplotlib

    _, path = draw_loss([run()], tmp_path / "plain")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red"}):
        _, other = draw_loss([run()], tmp_path / "other")
        assert matplotlib.rcParams["font.size"] == 20
    assert path.read_bytes() == other.read_bytes()


def test_a_single_epoch_can_be_drawn(tmp_path: Path) -> None:
    assert len(draw_loss([run(losses=[0.7])], tmp_path / "loss")) == 2


@pytest.mark.parametrize(
    "records",
    [
        [],
        [run(draws=[[0] * 3] * 3, losses=[])],
        [run(variant="random")],
        [run(heads=[], draws=[], losses=[])],
    ],
)
def test_without_anything_to_draw_a_figure_is_refused(records: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^no record holds draws of .*; run .* first\.$"):
        draw_policy(records, tmp_path / "policy")
    with pytest.raises(InputError, match=r"^no record holds losses of .*; run .* first\.$"):
        draw_loss(records, tmp_path / "loss")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "draws", [[[1, 2, 3]], [[1, 2, 3]] * 2 + [[1, 2]], [[-1, 0, 0]] * 3, [[0.5, 0, 0]] * 3]
)
def test_damaged_draws_are_named(draws: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^record 1: key 'draws' must be 3 x 3 counts"):
        draw_policy([run(draws=draws)], tmp_path / "policy")


def test_damaged_losses_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^record 2: key 'losses' must hold finite numbers"):
        draw_loss([run(), run(seed=1, losses=[1.0, float("inf")])], tmp_path / "loss")


@pytest.mark.parametrize("draw", [draw_policy, draw_loss])
def test_without_matplotlib_the_remedy_is_told(
    draw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        InputError, match=r"^figures need matplotlib: pip install 'lg2ar\[figures\]'\.$"
    ):
        draw([run()], tmp_path / "figure")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file.policy\.png: cannot be written"):
        draw_policy([run()], tmp_path / "file" / "policy")
