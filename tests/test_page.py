from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from lg2ar import checkpoint
from lg2ar.checkpoint import Checkpoint
from lg2ar.config import Config, parse_setting
from lg2ar.data.batches import as_store
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError
from lg2ar.experiment import pretrain
from lg2ar.records import EpochRecord, Score
from lg2ar.report import document, svg
from lg2ar.report.findings import Findings, find, untrained_embeddings
from lg2ar.report.page import write_page, write_report
from lg2ar.report.provenance import pretrain_command, reading_options, recorded_source
from lg2ar.report.scores import probe
from sealing import write_sealed

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


def written(folder: Path, **found: Any) -> tuple[str, Page]:
    path = write_page(folder, Findings(**found))
    assert path == folder / "report.html"
    source = path.read_text(encoding="utf-8")
    return source, Page(source)


def test_page_tells_the_run(tmp_path: Path) -> None:
    folder = run(tmp_path, [epoch(k) for k in range(1, 9)])
    source, page = written(folder, scores={"trained": score()}, notes=["Mind this."])
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
        "--out embeddings.parquet",
        "Mind this.",
        "With LG2AR, a GIN of 3 layers and width 4 learned to embed the 1,234 graphs of tiny.",
    ):
        assert told in text, told
    assert f"lg2ar embed {folder} SOURCE" in text
    assert all(item.get("aria-label") or item.get("aria-hidden") for item in drawings(source))
    assert page.count("details") == 3
    assert not list(tmp_path.glob(".*"))  # nothing half-written is left


def test_page_needs_nothing_beside_itself(tmp_path: Path) -> None:
    source, page = written(run(tmp_path, [epoch(1)]), scores={"trained": score()})
    fetched = re.sub(r"http://www\.w3\.org/2000/svg", "", source)  # a name, which nobody opens
    assert not re.search(r"https?:|[\"'(]//", fetched)
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
    source, page = written(folder, scores=scores, scores_note=EVIL, notes=[EVIL])
    assert page.count("script") == 1
    assert page.count("b") == 1  # the page's own, in its heading
    assert "\x00" not in source
    assert "".join(page.text).count("<script>alert('x')</script>&\"\ufffd") >= 8


def test_file_of_one_s_own_choice(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", [epoch(1)])
    path = write_page(
        folder, out=tmp_path / "new" / "page.html", command=["lg2ar", "report", "a b"]
    )
    assert path == tmp_path / "new" / "page.html"
    assert "lg2ar report 'a b'" in " ".join(Page(path.read_text(encoding="utf-8")).text)
    assert not (folder / "report.html").exists()
    (tmp_path / "full.html").mkdir()
    with pytest.raises(InputError, match=r"full\.html: cannot be written"):
        write_page(folder, out=tmp_path / "full.html")
    before = (folder / "run.json").read_bytes()
    with pytest.raises(InputError, match=r"run\.json: the page is HTML"):
        write_page(folder, out=folder / "run.json")
    assert (folder / "run.json").read_bytes() == before


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


def test_draws_over_time_are_stacked_shares(tmp_path: Path) -> None:
    draws = [[0] * 5 for _ in range(5)]
    draws[1][3] = 6
    source, _ = written(run(tmp_path, [epoch(1), epoch(2, draws=draws)]))
    areas = with_class(drawing(source, "Share of each augmentation"), "area")
    told = {(part.get("class", ""), part.get("x")): float(part.get("height", 0)) for part in areas}
    (first,) = {x for (kind, x) in told if kind == "area c0"}
    tall = sum(high for (_, x), high in told.items() if x == first)
    # Of 8 views in the first epoch 7 are the identity; of 12 in the second half are dropped nodes.
    assert told["area c0", first] == pytest.approx(7 / 8 * tall, abs=0.11)
    second = [high for (kind, x), high in told.items() if x != first]
    assert second == pytest.approx([tall / 2, tall / 2], abs=0.11)


def test_light_and_dark_have_the_same_names() -> None:
    style = document.read_part("page.css")
    blocks = re.findall(r"color-scheme: (\w+);\n(.*?)\}", style, re.S)
    sets = [(kind, dict(re.findall(r"--(\w+): (#\w{6});", body))) for kind, body in blocks]
    assert [kind for kind, _ in sets] == ["light", "dark", "dark"]
    assert sets[0][1].keys() == sets[1][1].keys()
    assert sets[1][1] == sets[2][1]  # by the system's preference, and by the switch
    assert len(sets[0][1]) > 25


def test_text_has_contrast() -> None:
    style = document.read_part("page.css")
    for body in re.findall(r"color-scheme: \w+;\n(.*?)\}", style, re.S):
        colours = dict(re.findall(r"--(\w+): #(\w{6});", body))
        for ink in ("ink", "soft"):
            for paper in ("paper", "card"):
                assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
        for line in ("gone", "new", "focus"):
            assert contrast(colours[line], colours["card"]) >= 3, line


def contrast(one: str, other: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""

    def light(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([light(one), light(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"level": "node", "seed": 7},
        {"hidden": 16, "heads": ["identity", "sub-graph"], "norm": False, "learning_rate": 3e-5},
        {"policy": "deepset", "bound": "nce", "temperature": 1.27, "step": "plain"},
    ],
)
def test_command_gives_the_same_settings(settings: dict[str, Any]) -> None:
    config = Config.make(settings)
    words = pretrain_command(config, "a b.npz", "out")
    assert words[:5] == ["lg2ar", "pretrain", "a b.npz", "--out", "out"]
    assert set(words[5::2]) <= {"--set"}
    assert Config.make(dict(parse_setting(word) for word in words[6::2])) == config


def test_reading_options_are_those_of_the_command_line() -> None:
    reading = {
        "labels": "y",
        "directed": False,
        "categories": ["a", "b"],
        "columns": {"graph": "g"},
        "smiles": "s",
    }
    told = "--labels y --undirected --category a --category b --column graph=g --smiles s"
    assert reading_options(reading) == told.split()


def test_recorded_source() -> None:
    assert recorded_source({"name": "mutag"}) == "mutag"
    assert recorded_source({"name": "mine", "source": "data/mine.npz"}) == "data/mine.npz"
    assert recorded_source({"name": "toy-graphs (demonstration)"}) == "toy-graphs"


def test_folder_without_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run here"):
        write_page(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_damaged_history(tmp_path: Path) -> None:
    folder = run(tmp_path, [epoch(1)])
    file = folder / "run.json"
    write_sealed(file, file.read_text().replace('"loss"', '"lost"'))
    with pytest.raises(InputError, match="history is damaged"):
        write_page(folder)


def test_page_is_replaced(tmp_path: Path) -> None:
    folder = run(tmp_path, [epoch(1)])
    first, _ = written(folder)
    second, _ = written(folder)
    third, _ = written(folder, scores={"trained": score()})
    assert first == second != third


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


QUICK = {"hidden": 8, "layers": 2, "epochs": 2}


def test_report_opens_what_the_run_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretrain("toy-graphs", QUICK, out=tmp_path, device="cpu")
    monkeypatch.setattr("lg2ar.report.findings.MOST_MAPPED", 40)
    source = write_report(tmp_path, colour_by="edges", examples=2).read_text(encoding="utf-8")
    page = Page(source)
    text = " ".join(page.text)
    assert "40 of 300 graphs, drawn at random; each point is one" in text
    assert "cannot be opened" not in text
    assert f"lg2ar pretrain toy-graphs \\\n  --out {tmp_path}" in text
    assert "strict: linear SVM" in text
    assert sum(a.get("class") == "example" for _, a in page.tags) == 2
    assert '"colour":2' in source


def test_report_says_what_is_missing(tmp_path: Path) -> None:
    data = replace(toy_graphs(12), name="elsewhere")
    run_folder = tmp_path / "run"
    pretrain(data, QUICK, out=run_folder, device="cpu")
    text = " ".join(Page(write_report(run_folder).read_text(encoding="utf-8")).text)
    assert "'elsewhere' is neither a known data set nor a file or folder" in text
    assert f"lg2ar report {run_folder} SOURCE" in text
    assert "The embeddings were not evaluated" in text
    renamed = replace(toy_graphs(12), name="toy-graphs")  # what is called so is larger
    pretrain(renamed, QUICK, out=run_folder, replace=True, device="cpu")
    text = " ".join(Page(write_report(run_folder).read_text(encoding="utf-8")).text)
    assert "what it names is not what it was when the run was trained" in text


def test_report_of_other_data_says_so(tmp_path: Path) -> None:
    pretrain("toy-graphs", QUICK, out=tmp_path, device="cpu")
    other = replace(toy_graphs(20, seed=5), name="new ones", notes=("Two rows were left out.",))
    text = " ".join(Page(write_report(tmp_path, other).read_text(encoding="utf-8")).text)
    assert "Map, views and scores are of new ones, which was not trained on." in text
    assert "20 graphs; each point is one" in text
    assert "Two rows were left out." in text


def test_report_of_an_untrained_run_and_of_numbers(tmp_path: Path) -> None:
    data = replace(toy_graphs(12), y=torch.rand(12))
    pretrain(data, {**QUICK, "epochs": 0}, out=tmp_path, device="cpu")
    source = write_report(tmp_path, data).read_text(encoding="utf-8")
    assert '"name":"untrained"' in source
    assert '"name":"trained"' not in source
    assert "The labels are numbers, not classes" in source


def test_report_reads_only_what_it_shows_from_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lg2ar.data.conversion import write_on_disk
    from lg2ar.data.on_disk import GraphsOnDisk, read_on_disk

    data = replace(toy_graphs(60), ids=tuple(f"g{k}" for k in range(60)))
    write_on_disk(tmp_path / "graphs.sqlite", data)
    held = read_on_disk(tmp_path / "graphs.sqlite")
    pretrain(data, QUICK, out=tmp_path / "run", device="cpu")
    monkeypatch.setattr("lg2ar.report.findings.MOST_MAPPED", 20)
    in_memory = write_report(tmp_path / "run", data, out=tmp_path / "a.html").read_text("utf-8")

    def whole(_: object) -> None:
        raise AssertionError("all graphs were read into memory")

    monkeypatch.setattr(GraphsOnDisk, "whole", property(whole))
    on_disk = write_report(tmp_path / "run", held, out=tmp_path / "b.html").read_text("utf-8")
    assert "20 of 60 graphs, drawn at random" in on_disk
    assert on_disk == in_memory


def test_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lg2ar import cli

    def lg2ar(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["lg2ar", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0)

    pretrain("toy-nodes", {"hidden": 8, "epochs": 1}, out=tmp_path / "run", device="cpu")
    monkeypatch.setattr("lg2ar.report.findings.MOST_MAPPED", 40)
    made, wanted = str(tmp_path / "run"), str(tmp_path / "page.html")
    assert lg2ar("report", made, "--out", wanted, "--examples", "1", "--device", "cpu") == 0
    assert f"Report page: {wanted}" in capsys.readouterr().out
    text = " ".join(Page(Path(wanted).read_text(encoding="utf-8")).text)
    assert "40 of 800 nodes, drawn at random; each point is one" in text
    assert "logistic regression on 10% of the labels" in text
    assert f"lg2ar report {made} \\\n  --out {wanted}" in text
    assert lg2ar("report", made, "--colour-by", "colour") == 2
    assert "there is no column 'colour'; there are label, degree." in capsys.readouterr().err
    assert lg2ar("report", str(tmp_path)) == 2
    assert "there is no run here" in capsys.readouterr().err


def test_untrained_floor_is_what_no_epoch_gives(tmp_path: Path) -> None:
    for level, data in (("graph", toy_graphs(20)), ("node", toy_nodes(60))):
        run = pretrain(data, {"hidden": 8, "epochs": 2, "level": level}, device="cpu")
        before = pretrain(data, {"hidden": 8, "epochs": 0, "level": level}, device="cpu")
        found = untrained_embeddings(run, as_store(run.recipe.apply(data)))
        torch.testing.assert_close(found, before.embed(data))
        assert not torch.allclose(found, run.embed(data))


@pytest.mark.parametrize("level", ["graph", "node"])
def test_scores_stand_beside_the_encoder_that_has_them(level: str) -> None:
    data = toy_graphs(60) if level == "graph" else toy_nodes(100)
    settings = {"hidden": 8, "epochs": 4, "seed": 1, "learning_rate": 0.05}
    run, before = (
        pretrain(data, {**settings, **more}, device="cpu") for more in ({}, {"epochs": 0})
    )
    found = find(run, data, examples=0).scores
    rows = {"trained": run.embed(data), "untrained": before.embed(data)}
    assert found == probe(data, rows)[0]
    assert found["trained"].mean != found["untrained"].mean
