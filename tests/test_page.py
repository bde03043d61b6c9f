from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from lg2ar import checkpoint
from lg2ar.checkpoint import Checkpoint
from lg2ar.config import Config
from lg2ar.errors import InputError
from lg2ar.records import EpochRecord, Score
from lg2ar.report import svg
from lg2ar.report.maps import EmbeddingMap, project
from lg2ar.report.page import MOST_MAPPED, write_page

VOID = {"meta", "br", "hr", "img", "input", "link"}
EVIL = "<script>alert('x')</script>&\"\x00"


class Page(HTMLParser):
    """Checks that every element is closed in its turn, and keeps tags, texts and tips."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def epoch(number: int, heads: int = 5, **changes: Any) -> EpochRecord:
    draws = [[0] * heads for _ in range(heads)]
    draws[0][0] = 3
    draws[heads - 1][0] += 1
    values: dict[str, Any] = {
        "epoch": number,
        "steps": 4,
        "base_steps": 1,
        "loss": 2.0 / number,
        "draws": draws,
        "probabilities": [1 / heads] * heads,
        "mean_edge_weight": 1.0,
        "seconds": 0.25,
        "peak_memory": 300 * 2**20,
    }
    return EpochRecord(**{**values, **changes})


def run(
    folder: Path,
    history: list[EpochRecord],
    *,
    config: Config | None = None,
    finished: bool = True,
    best_epoch: int = 0,
    **data: Any,
) -> Path:
    checkpoint.write(
        folder,
        Checkpoint(
            config=config or Config.make(hidden=4, epochs=len(history)),
            recipe={"name": "one-hot-degree", "given": 3, "cap": 17},
            data={"name": "tiny", "num_graphs": 1234, "num_nodes": 9, "num_edges": 8, **data},
            versions={"python": "3.11.7", "lg2ar": "0.0.test"},
            progress={
                "history": [record.to_dict() for record in history],
                "best_epoch": best_epoch,
            },
            finished=finished,
            model={"weight": torch.ones(2)},
            training={"step": torch.ones(1)},
        ),
    )
    return folder


def score(mean: float = 81.25, std: float = 2.5, **changes: Any) -> Score:
    values: dict[str, Any] = {"protocol": "linear SVM", "runs": 7, "selection": "last epoch"}
    return Score(mean=mean, std=std, **{**values, **changes})


def drawings(source: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", source, re.S)]


def drawing(source: str, label: str) -> ElementTree.Element:
    found = [item for item in drawings(source) if label in item.get("aria-label", "")]
    assert len(found) == 1
    return found[0]


def with_class(item: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [part for part in item.iter() if name in part.get("class", "").split()]


def written(folder: Path, **more: Any) -> tuple[str, Page]:
    path = write_page(folder, **more)
    assert path == folder / "report.html"
    source = path.read_text(encoding="utf-8")
    return source, Page(source)


def test_page_tells_the_run(tmp_path: Path) -> None:
    folder = run(tmp_path, [epoch(k) for k in range(1, 9)])
    maps = {"trained": EmbeddingMap(np.eye(2), np.array([0, 1]))}
    source, page = written(folder, scores={"trained": score()}, maps=maps)
    text = " ".join(page.text)
    for told in (
        "tiny",
        "1,234",
        "one-hot-degree, beside 3 of the data's own",
        "up to 17",
        "81.2 ± 2.5 %",
        "linear SVM",
        "last epoch",
        "8 of 8",
        "From 2 to 0.25, lowest in epoch 8",
        "Percent of 32 draws",
        "2 s",
        "250 ms (median)",
        "300 MiB",
        "32; the base encoder was stepped in 8 of them",
        "0.0.test",
        "learning_rate",
        "identity, node-dropping, edge-perturbation, sub-graph, feature-masking",
        "embed",
        "--out embeddings.parquet",
    ):
        assert told in text, told
    assert f"lg2ar embed {folder} SOURCE" in text
    assert all(item.get("aria-label") or item.get("aria-hidden") for item in drawings(source))
    assert page.count("details") == 2
    assert not list(tmp_path.glob(".*"))  # nothing half-written is left


def test_page_needs_nothing_beside_itself(tmp_path: Path) -> None:
    source, page = written(run(tmp_path, [epoch(1)]), scores={"trained": score()})
    assert not re.search(r"(https?:)?//", source)
    assert not {name for name, _ in page.tags} & {"link", "img", "iframe", "object"}
    for _, attributes in page.tags:
        assert not attributes.keys() & {"src", "href", "srcset"}
        assert not any(name.startswith("on") for name in attributes)
    assert "url(" not in source
    assert "@import" not in source


def test_policy_lets_only_the_page_s_own_script_run(tmp_path: Path) -> None:
    source, page = written(run(tmp_path, []))
    scripts = re.findall(r"<script>(.*?)</script>", source, re.S)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policies = [a["content"] for _, a in page.tags if a.get("http-equiv")]
    assert policies == [
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    ]


def test_names_stay_text(tmp_path: Path) -> None:
    folder = run(tmp_path / "<b>a 'run'</b>", [epoch(1)], name=EVIL, fingerprint=EVIL)
    scores = {EVIL: score(protocol=EVIL, selection=EVIL)}
    maps = {EVIL: EmbeddingMap(np.eye(2), np.array([EVIL + "1", "other"]))}
    source, page = written(folder, scores=scores, maps=maps)
    assert page.count("script") == 1
    assert page.count("b") == 1  # the page's own, in its heading
    assert "\x00" not in source
    assert "".join(page.text).count("<script>alert('x')</script>&\"\ufffd") >= 8
    tips = [part.get("data-tip", "") for part in with_class(drawing(source, "Scatter"), "point")]
    assert tips[0] == "graph 0, label <script>alert('x')</script>&\"\ufffd1"


def test_run_without_epochs(tmp_path: Path) -> None:
    source, page = written(run(tmp_path, []))
    text = " ".join(page.text)
    assert "0 of 0" in text
    assert "No epoch was trained" in text
    assert "not evaluated" in text
    assert "initialised" in text
    assert drawings(source) == []


def test_run_of_one_epoch_and_one_head(tmp_path: Path) -> None:
    config = Config.make(heads=["identity"], epochs=3)
    source, page = written(run(tmp_path, [epoch(1, heads=1)], config=config, finished=False))
    assert len(with_class(drawing(source, "Loss over"), "point")) == 1
    assert with_class(drawing(source, "Share of each pair"), "value")[0].text == "100.0"
    assert "--resume" in " ".join(page.text)


@pytest.mark.parametrize(
    ("settings", "state", "kept"),
    [
        ({"epochs": 2}, "finished", "those of the last epoch, 2"),
        ({"epochs": 9, "patience": 1}, "stopped early", "those of epoch 1,"),
    ],
)
def test_state_and_weights_kept(
    tmp_path: Path, settings: dict[str, Any], state: str, kept: str
) -> None:
    history = [epoch(1), epoch(2)]
    _, page = written(run(tmp_path, history, config=Config.make(settings), best_epoch=1))
    text = " ".join(page.text)
    assert state in text
    assert kept in text
    assert "--resume" not in text


def test_many_epochs_are_thinned(tmp_path: Path) -> None:
    history = [epoch(k, loss=float(k % 7), seconds=k / 1000) for k in range(1, 5001)]
    source, page = written(run(tmp_path, history))
    assert len(source.encode()) < 1_000_000
    lines = [line for item in drawings(source) for line in item.iter("polyline")]
    assert len(lines) == 1 + 5 + 1 + 1
    assert all(len(line.get("points", "").split()) == svg.MOST_POINTS for line in lines)
    assert "5,000 epochs are drawn as 400 points" in " ".join(page.text)
    tips = [part.get("data-tip", "") for part in with_class(drawing(source, "Loss over"), "strip")]
    assert tips[0].startswith("epochs 1 to 13, mean")
    assert tips[-1].startswith("epochs 4989 to 5000, mean")


def test_draws_are_shares_of_the_whole_run(tmp_path: Path) -> None:
    source, _ = written(run(tmp_path, [epoch(1), epoch(2)]))
    item = drawing(source, "Share of each pair")
    cells = [part.text for part in with_class(item, "value")]
    assert len(cells) == 25
    assert cells[0] == "75.0"
    assert cells[20] == "25.0"
    assert cells.count("0") == 23


def test_one_line_and_key_per_head(tmp_path: Path) -> None:
    probabilities = [0.5, 0.2, 0.1, 0.15, 0.05]
    source, page = written(run(tmp_path, [epoch(1), epoch(2, probabilities=probabilities)]))
    item = drawing(source, "The policy's probabilities")
    lines = list(item.iter("polyline"))
    assert [line.get("class") for line in lines] == [f"line c{k}" for k in range(5)]
    assert len({line.get("stroke-dasharray") for line in lines}) == 5
    ends = [float(line.get("points", "").split()[-1].split(",")[1]) for line in lines]
    assert np.argsort(ends).tolist() == [0, 1, 3, 2, 4]  # downwards on the page
    assert "sub-graph 0.15" in " ".join(page.text)


def test_maps_hold_their_points(tmp_path: Path) -> None:
    places = np.random.default_rng(0).normal(size=(60, 2))
    labels = np.arange(60) % 12
    maps = {"untrained": EmbeddingMap(places, labels), "trained": EmbeddingMap(-places, labels)}
    source, page = written(run(tmp_path, []), maps=maps)
    for name in maps:
        points = with_class(drawing(source, f"Scatter of 60 graphs, {name}"), "point")
        assert len(points) == 60
        assert points[1].get("class") == points[11].get("class") == "point c1"  # after ten again
        assert points[1].get("data-tip") == "graph 1, label 1"
    text = " ".join(page.text)
    assert text.index("label 2") < text.index("label 10")
    assert text.count("label 11") == 1  # one legend for all maps


def test_large_maps_are_thinned_and_say_so(tmp_path: Path) -> None:
    total = 4 * MOST_MAPPED
    maps = {"trained": EmbeddingMap(np.zeros((total, 2)), np.arange(total))}
    source, page = written(run(tmp_path, []), maps=maps)
    points = with_class(drawing(source, "Scatter"), "point")
    assert len(points) == MOST_MAPPED
    assert points[-1].get("data-tip") == f"graph {total - 1}, label {total - 1}"
    text = " ".join(page.text)
    assert "3,000 of 12,000 graphs" in text
    assert "and 11960 more" in text


@pytest.mark.parametrize("number", [0, 1, 3])
def test_maps_without_labels(tmp_path: Path, number: int) -> None:
    folder = run(tmp_path, [])
    source, page = written(folder, maps={"trained": EmbeddingMap(np.ones((number, 2)))})
    item = drawing(source, "Scatter")
    assert len(with_class(item, "point")) == number
    assert "nan" not in ElementTree.tostring(item, encoding="unicode")
    assert page.count("ul") == 0


def test_map_refuses_what_it_cannot_draw() -> None:
    with pytest.raises(ValueError, match=r"shape \[n, 2\], got \[2, 3\]"):
        EmbeddingMap(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="finite"):
        EmbeddingMap(np.array([[0.0, np.nan]]))
    with pytest.raises(ValueError, match="2 points have 1 labels"):
        EmbeddingMap(np.zeros((2, 2)), np.zeros(1))


def test_folder_without_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run here"):
        write_page(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_damaged_history(tmp_path: Path) -> None:
    folder = run(tmp_path, [epoch(1)])
    file = folder / "run.json"
    file.write_text(file.read_text().replace('"loss"', '"lost"'))
    with pytest.raises(InputError, match="history is damaged"):
        write_page(folder)


def test_page_is_replaced(tmp_path: Path) -> None:
    folder = run(tmp_path, [epoch(1)])
    first, _ = written(folder)
    second, _ = written(folder)
    third, _ = written(folder, scores={"trained": score()})
    assert first == second != third


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((6, 4)),
        np.zeros((6, 4)),
        np.column_stack([np.full(6, 1e8), np.arange(6.0)]),
        np.arange(6.0).reshape(6, 1),
        np.zeros((6, 0)),
        np.ones((1, 4)),
        np.zeros((0, 4)),
        np.random.default_rng(0).normal(size=(2, 9)).astype(np.float32),
    ],
)
def test_projection_is_finite(rows: np.ndarray) -> None:
    plane = project(rows)
    assert plane.shape == (len(rows), 2)
    assert np.isfinite(plane).all()


def test_projection_is_that_of_standardised_rows() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 5)) * [1, 10, 0, 0.1, 3] + 7
    varying = rows[:, [0, 1, 3, 4]]
    standard = (varying - varying.mean(0)) / varying.std(0)
    left, size, _ = np.linalg.svd(standard, full_matrices=False)
    expected = left[:, :2] * size[:2]
    np.testing.assert_allclose(np.abs(project(rows)), np.abs(expected), atol=1e-9)
    np.testing.assert_allclose(project(rows), project(rows * 1000), atol=1e-6)


def test_projection_refuses_nan() -> None:
    with pytest.raises(ValueError, match="finite"):
        project(np.array([[0.0, np.nan], [1.0, 2.0]]))


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-3.2, 1e6), (1e-30, 2e-30), (5.0, 5.1), (-1e38, 1e38)]
)
def test_ticks_are_few_and_inside(low: float, high: float) -> None:
    found = svg.ticks(low, high)
    room = 1e-6 * (high - low)
    assert 2 <= len(found) <= 11
    assert low - room <= found[0] < found[-1] <= high + room


@pytest.mark.parametrize("values", [[0.0, 0.0], [1.0, 1.0 + 1e-16], [-1e30, 1e30], [1e-30, 2e-30]])
def test_line_chart_of_odd_values(values: list[float]) -> None:
    text = svg.line_chart([svg.Line("loss", values)], label="odd", y_label="loss")
    (line,) = ElementTree.fromstring(text).iter("polyline")
    for point in line.get("points", "").split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= svg.WIDTH
        assert 0 <= y <= svg.HEIGHT


def test_bar_stays_inside() -> None:
    for mean, std in [(99.0, 5.0), (0.0, 0.0), (250.0, 1.0), (float("nan"), 1.0)]:
        item = ElementTree.fromstring(svg.bar(mean, std, label="score"))
        width = float(with_class(item, "bar")[0].get("width", ""))
        assert 0 <= width <= 200
