"""The study: which runs a table has, what a record says, and that nothing is done twice."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from lg2ar import cli, devices
from lg2ar.benchmarks import questions
from lg2ar.data.features import FeatureRecipe
from lg2ar.data.sources import open_source
from lg2ar.encoders import Encoder
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.experiment import pretrain
from lg2ar.fast import arrangement
from lg2ar.finetuning import Curve, Split, fine_tune, semi_splits
from lg2ar.model import build_base_encoder
from lg2ar.protocols import FEW_LABELS, Memory, Reader, node_splits
from lg2ar.records import StudyRecord, Task
from lg2ar.study import runner as runner_module
from lg2ar.study.ledger import Ledger, reproduce
from lg2ar.study.plan import TABLES, VARIANTS, Planned, plan
from lg2ar.study.runner import Runner
from tiny import write_graphs, write_wikics

SMALL: dict[str, Any] = {"hidden": 8, "layers": 2, "epochs": 3, "batch_size": 16}


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graphs(tmp_path)
    write_wikics(tmp_path, nodes=60)
    monkeypatch.setenv("LG2AR_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def some(table: str = "graph", **options: Any) -> list[Planned]:
    """A few runs on the tiny graphs."""
    chosen = {
        "datasets": ["tu:TINY"],
        "variants": ["gru"],
        "seeds": [0],
        "preset": "default",
        "settings": SMALL,
        "protocols": ["strict"],
    }
    return plan(table, **{**chosen, **options})


def done(planned: Planned, protocols: Sequence[str] = ("strict",)) -> StudyRecord:
    dataset = open_source(planned.task.dataset)
    return Runner(torch.device("cpu")).run(planned, dataset, protocols)


def epochs(record: StudyRecord, protocol: str) -> list[int]:
    return [e.epoch for e in record.evaluations if e.protocol == protocol]


# What a table consists of.


def test_the_tables_are_the_papers() -> None:
    count = {name: len(plan(name)) for name in TABLES}
    assert count["graph"] == 8 * 8 * 10
    assert count["node"] == 7 * 7 * 20
    assert count["semi"] == 5 * 3 * 5
    assert count["ablation"] == 7 * (4 + 4 + 6) * 5
    assert count["cost"] == 8 * 2
    asked: dict[str, set[str]] = {"graph": set(), "node": set()}  # two questions may share one
    for question in questions():
        for level in question.levels:
            asked[level] |= set(question.variants)
    assert count["findings"] == 5 * (3 * (1 + len(asked["graph"])) + 1 + len(asked["node"]))
    assert {p.task.dataset for p in plan("node")} >= {"wikics", "cora", "coauthor-physics"}


def test_a_run_has_the_papers_settings_and_its_variants() -> None:
    (run,) = plan("graph", datasets=["dd"], variants=["deepset"], seeds=[4])
    assert (run.config.hidden, run.config.learning_rate, run.config.ratio) == (256, 8e-4, 0.77)
    assert (run.config.policy, run.config.seed, run.task.seed) == ("deepset", 4, 4)
    (run,) = plan("ablation", datasets=["dd"], variants=["augmentations=structure"], seeds=[0])
    assert run.config.heads == ("node-dropping", "edge-perturbation", "sub-graph")
    (run,) = plan("semi", datasets=["dd"], variants=["gru"], seeds=[0])
    assert (run.config.features, run.config.degree_cap) == ("degree-and-one-hot", 10)
    (run,) = plan("cost", datasets=["dd"], variants=["gru"])
    assert run.config.epochs < 100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "grahp"}, "'grahp' is not a table; did you mean 'graph'"),
        ({"variants": ["gruu"]}, "'gruu' is not a variant; did you mean 'gru'"),
        ({"variants": ["reedout=mean"]}, "unknown setting 'reedout'; did you mean 'readout'"),
        ({"variants": ["readout=mean+bound=nse"]}, "bound = 'nse' must be one of jsd"),
        ({"datasets": ["mutga"]}, "'mutga' is not a known data set; did you mean 'mutag'"),
        ({"preset": "papers"}, "'papers' is not a known preset"),
        ({"settings": {"hiden": 3}}, "unknown setting 'hiden'"),
        ({"datasets": ["cora"], "protocols": ["semi"]}, "'semi' is not for node level"),
        ({"preset": "paper"}, "preset 'paper' has no settings for 'tiny'"),
    ],
)
def test_misspelt_names_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        some(**options)


def test_settings_of_ones_own_make_a_variant() -> None:
    (run,) = plan("findings", datasets=["dd"], variants=["readout=log-sum+norm=false"], seeds=[0])
    assert (run.config.readout, run.config.norm, run.config.policy) == ("log-sum", False, "gru")
    assert run.task.variant == "readout=log-sum+norm=false"
    with pytest.raises(InputError, match="norm is what variant"):
        plan("findings", datasets=["dd"], variants=["norm=false"], settings={"norm": True})


# One run.


def test_a_record_says_all_there_is_to_say() -> None:
    names = ["strict", "paper", "paper-scaled"]
    (planned,) = some(settings={**SMALL, "epochs": 12}, protocols=names)
    record = done(planned, names)
    assert epochs(record, "strict") == [0, 12]
    assert epochs(record, "paper") == epochs(record, "paper-scaled") == [0, 10, 12]
    assert all(len(e.accuracy) == 10 for e in record.evaluations)
    assert len(record.losses) == record.epochs == 12
    assert sum(map(sum, record.draws)) == 12 * 3  # 40 graphs in batches of 16
    assert record.heads == list(planned.config.heads)
    assert sum(record.probabilities) == pytest.approx(1)
    assert record.cost["seconds"] > record.cost["seconds_per_epoch"] > 0
    assert record.cost["peak_memory"] > 0
    assert record.data["fingerprint"] == open_source("tu:TINY").fingerprint()
    line = json.loads(record.to_json())
    assert line["task"]["variant"] == "gru"
    assert line["config"]["seed"] == 0
    assert line["versions"]["torch"]


def test_same_seed_same_scores() -> None:
    (planned,) = some()
    (other,) = some(seeds=[1])
    one, two = done(planned), done(planned)
    assert one.evaluations == two.evaluations
    assert one.losses == two.losses
    assert done(other).losses != one.losses


@pytest.mark.parametrize("name", ["tu:TINY", "wikics"])
def test_scores_are_of_the_untrained_and_of_the_trained_encoder_in_the_seeds_folds(
    name: str,
) -> None:
    names = ["strict", "paper"]
    settings = {**SMALL, "epochs": 8, "learning_rate": 0.05}
    (planned,) = some(datasets=[name], seeds=[4], settings=settings, protocols=names)
    dataset, config = open_source(name), planned.config
    reader = Reader(dataset, 4, torch.device("cpu"))
    expected = [
        (protocol, epoch, reader.accuracy(protocol, rows))
        for epoch in (0, 8)
        for rows in [pretrain(dataset, config.replace(epochs=epoch), device="cpu").embed(dataset)]
        for protocol in names
    ]
    assert [(e.protocol, e.epoch, e.accuracy) for e in done(planned, names).evaluations] == expected
    for before, after in zip(expected[:2], expected[2:], strict=True):
        assert before[2] != after[2]  # or it would say little


def test_epoch_zero_is_the_untrained_encoder() -> None:
    (trained,), (untrained,) = some(), some(variants=["untrained"])
    record = done(untrained)
    assert record.epochs == 0
    assert epochs(record, "strict") == [0]
    assert done(trained).evaluations[0] == record.evaluations[0]


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "untrained"])
def test_every_variant_runs(name: str) -> None:
    more = {"epochs": 15, "learning_rate": 0.02} if name == "supervised" else {}
    (planned,) = some(variants=[name], settings={**SMALL, "features": "degree", **more})
    record = done(planned)
    assert np.isfinite(record.losses).all()
    accuracy = np.mean(record.evaluations[-1].accuracy)
    assert accuracy > 60  # rings and stars
    assert (record.task.variant is None) == (planned.task.method != "lg2ar")


class Rows(Memory):
    """Keeps what it is asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, torch.Tensor] = {}

    def accuracy(self, reader: Reader, protocol: str, rows: torch.Tensor) -> list[float]:
        self.seen[protocol] = rows
        return super().accuracy(reader, protocol, rows)


@pytest.mark.parametrize("smoothing", [0, 2])
@pytest.mark.parametrize(
    ("name", "readout"), [("tu:TINY", "sum"), ("tu:TINY", "log-sum"), ("wikics", "mean")]
)
def test_features_are_read_without_a_network(name: str, readout: str, smoothing: int) -> None:
    settings = {"features": "degree-and-one-hot" if name == "tu:TINY" else "auto"}
    more = {"smoothing": smoothing, "readout": readout}
    (planned,) = some(datasets=[name], variants=["features"], settings={**settings, **more})
    dataset, rows = open_source(name), Rows()
    record = Runner(torch.device("cpu"), memory=rows).run(planned, dataset, ["strict", "paper"])
    graph = FeatureRecipe.of(planned.config, dataset).apply(dataset)
    mixed = torch.eye(graph.num_nodes)
    mixed.index_put_((graph.edge_index[1], graph.edge_index[0]), torch.ones(1), accumulate=True)
    by_root = mixed.sum(dim=1).rsqrt()
    mixed = by_root[:, None] * mixed * by_root
    expected = graph.x
    for _ in range(smoothing):
        expected = mixed @ expected
    if name == "tu:TINY":
        each = [expected[graph.batch == place].sum(dim=0) for place in range(len(dataset))]
        expected = torch.stack(each)
        if readout == "log-sum":
            expected = expected.sign() * expected.abs().log1p()
    assert rows.seen.keys() == {"strict", "paper"}
    for seen in rows.seen.values():
        torch.testing.assert_close(seen, expected)
    assert [(e.protocol, e.epoch) for e in record.evaluations] == [("strict", 0), ("paper", 0)]
    assert (record.epochs, record.losses, record.task.method) == (0, [], "features")


def test_features_have_no_network_to_fine_tune_or_to_time() -> None:
    words = "variant 'features' has no network to fine-tune"
    for table, protocols in (("semi", ["semi", "strict"]), ("cost", []), ("cost", ["strict"])):
        with pytest.raises(InputError, match=words):
            some(table, variants=["features"], protocols=protocols)
    (planned,) = some("semi", variants=["features"], protocols=["semi-frozen"])
    assert planned.task.method == "features"


def test_features_are_raw_whatever_the_preset_says_of_an_encoder() -> None:
    (run,) = plan("node", datasets=["cora"], variants=["features"], seeds=[0], preset="searched")
    assert run.config.smoothing == 0
    asked: dict[str, Any] = {"datasets": ["mutag"], "variants": ["features"], "seeds": [0]}
    (run,) = plan("graph", **asked, preset="standardised", settings={"smoothing": 2})
    assert (run.config.embedding_scale, run.config.smoothing) == ("as-is", 2)
    with pytest.raises(InputError, match="embedding_scale is what variant 'features' is about"):
        plan("graph", **asked, settings={"embedding_scale": "unit"})


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Encoder, Split, Curve]]:
    """Every fold that is fine-tuned, with a curve drawn by lot in the place of training."""
    found: list[tuple[Encoder, Split, Curve]] = []
    draw = np.random.default_rng(0)

    def by_lot(encoder: Encoder, _: Any, y: Any, split: Split, *, epochs: int, **__: Any) -> Curve:
        loss, test, validation, validation_loss = 100 * draw.random((4, epochs))
        checked = len(split.validation) > 0
        curve = Curve(
            train_loss=loss,
            test=test,
            validation=validation if checked else None,
            validation_loss=validation_loss if checked else None,
        )
        found.append((encoder, split, curve))
        return curve

    monkeypatch.setattr("lg2ar.study.runner.fine_tune", by_lot)
    return found


def have_weights(encoders: Sequence[Encoder], planned: Planned, epochs: int) -> bool:
    """Whether they are those of the run after so many epochs."""
    config = planned.config.replace(method="lg2ar", epochs=epochs, patience=0)
    run = pretrain(open_source(planned.task.dataset), config, device="cpu")
    wanted = dict(run.model.base_encoder.named_parameters())
    return all(
        torch.equal(value, wanted[name])
        for encoder in encoders
        for name, value in encoder.named_parameters()
    )


def at_validation(curves: Sequence[Curve]) -> list[float]:
    """The test accuracy of each fold where its own validation accuracy is best."""
    checked = [(curve, curve.validation) for curve in curves]
    return [float(c.test[np.argmax(best)]) for c, best in checked if best is not None]


def test_supervised_is_read_after_the_papers_epochs(
    tuned: list[tuple[Encoder, Split, Curve]],
) -> None:
    settings = {"hidden": 4, "layers": 1, "epochs": 12}
    (planned,) = some(variants=["supervised"], seeds=[4], settings=settings)
    record = done(planned, ["strict", "paper"])
    encoders, splits, curves = zip(*tuned, strict=True)
    assert have_weights(encoders, planned, 0)
    dataset = open_source("tu:TINY")
    folds = Reader(dataset, 4, torch.device("cpu")).folds  # those that others are read on
    for split, test in zip(splits, folds, strict=True):
        assert np.array_equal(split.test, test)
        assert sorted([*split.train, *split.test]) == list(range(len(dataset)))
    found = [(e.protocol, e.epoch, e.selection) for e in record.evaluations]
    assert found == [("strict", 12, None), ("paper", 10, None), ("paper", 12, None)]
    for evaluation in record.evaluations:
        after = [curve.test[evaluation.epoch - 1] for curve in curves]
        assert evaluation.accuracy == pytest.approx(after, abs=1e-6)


def test_supervised_nodes_are_read_where_validation_is_best(
    tuned: list[tuple[Encoder, Split, Curve]],
) -> None:
    settings = {"hidden": 4, "epochs": 6}
    (planned,) = some(datasets=["wikics"], variants=["supervised"], settings=settings)
    record = done(planned, ["strict", "paper"])
    encoders, splits, curves = zip(*tuned, strict=True)
    assert have_weights(encoders, planned, 0)
    masks = node_splits(open_source("wikics"), 0)
    for name in ("train", "validation", "test"):
        rows = [np.flatnonzero(mask).tolist() for mask in getattr(masks, name)]
        assert [getattr(split, name).tolist() for split in splits] == rows
    for evaluation in record.evaluations:
        assert (evaluation.epoch, evaluation.selection) == (6, "validation")
        assert evaluation.accuracy == pytest.approx(at_validation(curves), abs=1e-6)


def test_semi_says_how_each_epoch_was_selected(
    monkeypatch: pytest.MonkeyPatch, tuned: list[tuple[Encoder, Split, Curve]]
) -> None:
    (planned,) = some("semi", seeds=[4], settings=SMALL, protocols=["semi"])
    # Four labelled graphs cannot be divided by ten: a larger tiny set.
    write_graphs(Path("large"), graphs=240)
    monkeypatch.setenv("LG2AR_DATA", "large")
    monkeypatch.setattr("lg2ar.study.runner.SEMI_EPOCHS", 4)
    found = iter(done(planned, ["semi"]).evaluations)
    y = open_source("tu:TINY").y
    assert y is not None
    each = iter(tuned)
    for epoch in (0, 3):
        plain, validated = ([next(each) for _ in range(10)] for _ in range(2))
        assert have_weights([encoder for encoder, _, _ in plain + validated], planned, epoch)
        for folds, validation in ((plain, False), (validated, True)):
            for (_, split, _), wanted in zip(
                folds, semi_splits(y, validation=validation), strict=True
            ):
                for name in ("train", "validation", "test"):
                    assert np.array_equal(getattr(split, name), getattr(wanted, name))
        test = np.stack([curve.test for _, _, curve in plain])
        expected = {
            "test-max": test[:, test.mean(0).argmax()].tolist(),
            "last epoch": test[:, -1].tolist(),
            "validation": at_validation([curve for _, _, curve in validated]),
        }
        for selection, accuracy in expected.items():
            evaluation = next(found)
            assert (evaluation.epoch, evaluation.selection) == (epoch, selection)
            assert evaluation.accuracy == pytest.approx(accuracy, abs=1e-6)
    assert not [*found, *each]


def test_frozen_semi_reads_the_untrained_encoder_and_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (planned,) = some("semi", seeds=[4], settings=SMALL, protocols=FEW_LABELS)
    write_graphs(Path("large"), graphs=240)
    monkeypatch.setenv("LG2AR_DATA", "large")
    record, dataset = done(planned, FEW_LABELS), open_source("tu:TINY")
    found, reader = iter(record.evaluations), Reader(dataset, 4, torch.device("cpu"))
    for epoch in (0, 3):
        run = pretrain(dataset, planned.config.replace(epochs=epoch), device="cpu")
        for protocol in FEW_LABELS:
            evaluation = next(found)
            assert (evaluation.protocol, evaluation.epoch) == (protocol, epoch)
            assert evaluation.accuracy == reader.accuracy(protocol, run.embed(dataset))
    assert not list(found)
    assert TABLES["semi"].protocols == ("semi", "semi-frozen", "semi-kernel")


@pytest.mark.parametrize(("most", "groups"), [(1, [1] * 40), (7, [7] * 5 + [5]), (40, [40])])
def test_folds_that_are_fine_tuned_together_are_the_same_ones(
    monkeypatch: pytest.MonkeyPatch, most: int, groups: list[int]
) -> None:
    (planned,) = some("semi", settings=SMALL, protocols=["semi"])
    write_graphs(Path("large"), graphs=240)
    monkeypatch.setenv("LG2AR_DATA", "large")
    monkeypatch.setattr("lg2ar.study.runner.SEMI_EPOCHS", 3)
    one_by_one, seen = done(planned, ["semi"]), []

    def together(
        encoders: Any,
        graph: Any,
        y: Any,
        splits: Any,
        seeds: Any,
        captured: str | None,
        **settings: Any,
    ) -> list[Curve]:
        assert captured is None  # the step was a plain one
        seen.append(len(splits))
        return [
            fine_tune(encoder, graph, y, split, seed=seed, **settings)
            for encoder, split, seed in zip(encoders, splits, seeds, strict=True)
        ]

    monkeypatch.setattr("lg2ar.study.runner.Runner._folds_at_once", lambda *_: most)
    monkeypatch.setattr("lg2ar.study.runner.fine_tune_together", together)
    assert done(planned, ["semi"]).evaluations == one_by_one.evaluations
    assert seen == groups  # two encoders, with validation and without, ten folds


def test_folds_are_fine_tuned_as_steps_were_done(monkeypatch: pytest.MonkeyPatch) -> None:
    (planned,) = some("semi", settings=SMALL, protocols=["semi"])
    dataset, seen = open_source(planned.task.dataset), []

    def together(*_: Any, captured: str | None, **settings: Any) -> list[Curve]:
        seen.append(captured)
        return []

    monkeypatch.setattr("lg2ar.study.runner.Runner._folds_at_once", lambda *_: 2)
    monkeypatch.setattr("lg2ar.study.runner.fine_tune_together", together)
    runner = Runner(torch.device("cpu"))
    for step, precision in (("captured", "tf32"), ("captured", "float32"), ("plain", "tf32")):
        config = planned.config.replace(step=step, precision=precision)
        runner._fine_tune(
            [(cast("Any", None), [cast("Any", None)])], dataset.graph, dataset, config
        )
    assert seen == ["tf32", "float32", None]


def test_how_many_runs_are_trained_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as fit half of what is free, each process its share, and lanes where one is busy."""
    (planned,) = some("graph", settings=SMALL)
    dataset, runner = open_source(planned.task.dataset), Runner(torch.device("cuda"))
    each = runner_module.BYTES * arrangement.numbers_of(planned.config, dataset.graph)
    monkeypatch.setattr(
        runner_module, "settle_step", lambda config, *_: config.replace(step="captured")
    )
    for free, sharers, most in ((7, 1, 3), (1000, 1, 10), (16, 2, 4), (1, 1, 1)):
        monkeypatch.setattr(runner_module, "_free", lambda _, free=free: free * each)
        monkeypatch.setenv(devices.SHARERS, str(sharers))
        assert runner.room(planned, dataset, ["strict"]) == most
    monkeypatch.setattr(runner_module, "_free", lambda _: 1000 * each)
    monkeypatch.setattr(arrangement, "BUSY", 0.0)
    assert runner.room(planned, dataset, ["strict"]) == arrangement.LANES
    assert runner.room(planned, dataset, ["semi"]) == 1
    monkeypatch.setattr(runner_module, "settle_step", lambda config, *_: config)
    assert runner.room(planned, dataset, ["strict"]) == 1


def test_how_many_folds_are_fine_tuned_together(monkeypatch: pytest.MonkeyPatch) -> None:
    (planned,) = some("semi", settings=SMALL)
    config, graph = planned.config, open_source(planned.task.dataset).graph
    encoder = build_base_encoder(config, 3)
    each = runner_module.FOLD_BYTES * arrangement.numbers_of(config, graph)
    on_gpu = Runner(torch.device("cuda"))
    for free, sharers, most in ((9, 1, 4), (9, 2, 2), (1, 8, 1)):  # one has room in any case
        monkeypatch.setattr(runner_module, "_free", lambda _, free=free: free * each)
        monkeypatch.setenv(devices.SHARERS, str(sharers))
        assert on_gpu._folds_at_once(config, graph, encoder) == most
    with_edges = build_base_encoder(config, 3, 2)
    assert on_gpu._folds_at_once(config, graph, with_edges) == 0  # no way side by side
    assert Runner(torch.device("cpu"))._folds_at_once(config, graph, encoder) == 0


@pytest.mark.parametrize("variant", ["gru", "infograph", "supervised"])
def test_wikics_runs_at_node_level(variant: str) -> None:
    settings = {"hidden": 8, "epochs": 4, "hops": 1, "batch_size": 8}
    (planned,) = plan("node", datasets=["wikics"], variants=[variant], seeds=[0], settings=settings)
    record = done(planned, ["strict", "paper"])
    assert epochs(record, "paper") == ([4] if variant == "supervised" else [0, 4])
    assert all(len(e.accuracy) == 20 for e in record.evaluations)


def test_a_run_that_stops_early_is_read_where_it_stopped() -> None:
    settings = {"hidden": 8, "epochs": 500, "patience": 2, "hops": 1, "batch_size": 8}
    (planned,) = plan("node", datasets=["wikics"], variants=["gru"], seeds=[0], settings=settings)
    record = done(planned, ["strict"])
    assert record.epochs < 500
    assert epochs(record, "strict") == [0, record.epochs]


# The records file.


def run_all(
    runs: Sequence[Planned], path: Path, protocols: Sequence[str] = ("strict",)
) -> tuple[list[dict[str, Any]], list[Planned], list[str]]:
    made: list[dict[str, Any]] = []
    skipped: list[Planned] = []
    failures: list[str] = []
    reproduce(
        runs,
        protocols,
        Ledger(path),
        Runner(torch.device("cpu")),
        on_record=made.append,
        on_skip=skipped.append,
        on_failure=lambda task, why: failures.append(f"{task}: {why}"),
    )
    return made, skipped, failures


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_there_is_not_done_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "records.jsonl"
    runs = some(seeds=[0, 1])
    made, skipped, _ = run_all(runs[:1], path)
    assert (len(made), len(skipped)) == (1, 0)
    made, skipped, _ = run_all(runs, path)
    assert ([r["task"]["seed"] for r in made], len(skipped)) == ([1], 1)
    made, skipped, _ = run_all(runs, path)
    assert (len(made), len(skipped)) == (0, 2)
    assert [r["task"]["seed"] for r in lines(path)] == [0, 1]


def test_another_setting_or_protocol_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    run_all(some(), path)
    made, _, _ = run_all(some(settings={**SMALL, "hidden": 9}), path)
    assert len(made) == 1
    made, _, _ = run_all(some(), path, ["strict", "paper"])
    assert {e["protocol"] for r in made for e in r["evaluations"]} == {"paper"}
    made, skipped, _ = run_all(some(), path, ["paper", "strict"])
    assert (len(made), len(skipped)) == (0, 1)


def test_the_same_run_in_another_table_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    run_all(some(), path)
    monkeypatch.delattr(Runner, "run")
    made, _, _ = run_all(some("ablation", variants=["bound=jsd"]), path)
    assert made[0]["task"]["variant"] == "bound=jsd"
    assert made[0]["evaluations"] == lines(path)[0]["evaluations"]
    assert len(lines(path)) == 2


def test_a_line_cut_short_by_a_kill_is_the_only_loss(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    run_all(some(seeds=[0, 1]), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    made, skipped, _ = run_all(some(seeds=[0, 1]), path)
    assert ([r["task"]["seed"] for r in made], len(skipped)) == ([1], 1)
    assert [r["task"]["seed"] for r in lines(path)] == [0, 1]
    path.write_bytes(whole[:-1])  # all but the end of the line
    made, skipped, _ = run_all(some(seeds=[0, 1, 2]), path)
    assert ([r["task"]["seed"] for r in made], len(skipped)) == ([2], 2)
    assert [r["task"]["seed"] for r in lines(path)] == [0, 1, 2]


def test_a_kill_loses_the_run_in_flight_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "records.jsonl", Runner.run

    def killed(self: Runner, planned: Planned, *rest: Any) -> StudyRecord:
        if planned.task.seed == 1:
            raise KeyboardInterrupt
        return real(self, planned, *rest)

    monkeypatch.setattr(Runner, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        run_all(some(seeds=[0, 1, 2]), path)
    assert [r["task"]["seed"] for r in lines(path)] == [0]


def test_a_failure_is_told_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "records.jsonl", Runner.run

    def fragile(self: Runner, planned: Planned, *rest: Any) -> StudyRecord:
        if planned.task.seed == 0:
            raise NonFiniteLossError("The loss became nan.")
        return real(self, planned, *rest)

    monkeypatch.setattr(Runner, "run", fragile)
    made, _, failures = run_all(some(seeds=[0, 1]), path)
    assert [r["task"]["seed"] for r in made] == [1]
    assert failures == ["graph tu:TINY gru seed 0: The loss became nan."]


# Seeds trained together, as on a GPU: here one after the other, by `pretrain_many` all the same.


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The seeds of every group that is trained together."""
    found: list[list[int]] = []
    real = Runner.run_together

    def watched(self: Runner, planned: Sequence[Planned], *rest: Any) -> list[StudyRecord]:
        found.append([one.config.seed for one in planned])
        return real(self, planned, *rest)

    monkeypatch.setattr(Runner, "room", lambda *_: 3)
    monkeypatch.setattr(Runner, "run_together", watched)
    return found


def test_seeds_trained_together_give_the_records_of_single_runs(
    tmp_path: Path, groups: list[list[int]]
) -> None:
    runs = some(seeds=range(4), settings={**SMALL, "epochs": 11})
    made, _, failures = run_all(runs, tmp_path / "records.jsonl", ["strict", "paper"])
    assert groups == [[0, 1, 2]]
    assert not failures
    assert [r["cost"]["together"] for r in made] == [3, 3, 3, 1]
    for record, planned in zip(made, runs, strict=True):
        alone = json.loads(done(planned, ["strict", "paper"]).to_json())
        assert record["evaluations"] == alone["evaluations"]
        assert (record["task"], record["losses"]) == (alone["task"], alone["losses"])


def test_equal_cells_beside_each_other_are_trained_once(
    tmp_path: Path, groups: list[list[int]]
) -> None:
    same = ["bound=jsd", "discriminator=dot"]
    made, _, _ = run_all(some("ablation", variants=same, seeds=[0, 1]), tmp_path / "r.jsonl")
    assert groups == [[0, 1]]
    assert [(r["task"]["variant"], r["task"]["seed"]) for r in made] == [
        (variant, seed) for variant in same for seed in (0, 1)
    ]


@pytest.mark.parametrize("error", [NonFiniteLossError("nan"), InputError("not finite")])
def test_where_one_of_a_group_breaks_down_each_is_done_by_itself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    groups: list[list[int]],
    error: Exception,
) -> None:
    real = Runner.run

    def group(self: Runner, planned: Sequence[Planned], *_: Any) -> list[StudyRecord]:
        groups.append([one.config.seed for one in planned])
        raise error

    def one(self: Runner, planned: Planned, *rest: Any) -> StudyRecord:
        if planned.config.seed == 1:
            raise error
        return real(self, planned, *rest)

    monkeypatch.setattr(Runner, "run_together", group)
    monkeypatch.setattr(Runner, "run", one)
    made, _, failures = run_all(some(seeds=range(4)), tmp_path / "records.jsonl")
    assert groups == [[0, 1, 2]]
    assert [r["task"]["seed"] for r in made] == [0, 2, 3]
    assert len(failures) == 1
    assert "seed 1" in failures[0]


def test_runs_done_before_are_left_out_of_a_group(tmp_path: Path, groups: list[list[int]]) -> None:
    path = tmp_path / "records.jsonl"
    run_all(some(seeds=[1]), path)
    run_all(some(seeds=range(4)), path)
    assert groups == [[2, 3]]
    assert sorted(r["task"]["seed"] for r in lines(path)) == [0, 1, 2, 3]


@pytest.mark.parametrize("step", ["auto", "plain", "captured"])
def test_a_run_finds_its_own_record_however_its_steps_were_asked_for(
    tmp_path: Path, step: str
) -> None:
    path = tmp_path / "records.jsonl"
    runs = some(settings={**SMALL, "step": step})
    made, _, _ = run_all(runs, path)
    assert (made[0]["config"]["step"], made[0]["config"]["precision"]) == ("plain", "float32")
    made, skipped, _ = run_all(runs, path)
    assert (len(made), len(skipped)) == (0, 1)


def test_plain_steps_are_not_taken_for_captured_ones(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    run_all(some(), path)
    (record,) = lines(path)
    record["config"] |= {"step": "captured", "precision": "tf32"}
    path.write_text(json.dumps(record) + "\n")
    ledger, task = Ledger(path), record["task"]
    for wanted, known in (("auto", True), ("captured", True), ("plain", False)):
        (planned,) = some(settings={**SMALL, "step": wanted})
        planned = dataclasses.replace(planned, task=Task(**task))
        assert ledger.has(planned, ["strict"], "") == known, wanted


@pytest.mark.parametrize(
    ("done", "asked", "known"),
    [
        ({"step": "captured", "precision": "tf32"}, "tf32", True),
        ({"step": "captured", "precision": "float32"}, "tf32", True),  # the default: either
        ({"step": "plain", "precision": "bf16-mixed"}, "tf32", False),
        ({"step": "captured", "precision": "float32"}, "float32", True),
        ({"step": "captured", "precision": "tf32"}, "float32", False),
        ({"step": "plain", "precision": "bf16-mixed"}, "float32", False),
        ({"step": "plain", "precision": "bf16-mixed"}, "bf16-mixed", True),
        ({"step": "captured", "precision": "tf32"}, "bf16-mixed", False),
        ({"step": "plain", "precision": "float32"}, "bf16-mixed", False),
        ({}, "tf32", True),  # before there was a choice
        ({}, "float32", True),
        ({}, "bf16-mixed", False),
    ],
)
@pytest.mark.parametrize("step", ["auto", "captured"])
def test_a_run_of_another_precision_is_not_the_one_asked_for(
    tmp_path: Path, done: dict[str, str], asked: str, known: bool, step: str
) -> None:
    if (step, asked, done.get("precision")) == ("captured", "tf32", "float32"):
        known = False  # asked for by name, it is what it was done in
    path = tmp_path / "records.jsonl"
    run_all(some(), path)
    (record,) = lines(path)
    for key in ("step", "precision"):
        del record["config"][key]
    record["config"] |= done
    path.write_text(json.dumps(record) + "\n")
    (planned,) = some(settings={**SMALL, "precision": asked, "step": step})
    assert Ledger(path).missing(planned, ["strict"]) == ([] if known else ["strict"])


def test_a_node_run_that_was_read_by_the_shorter_layer_is_not_done(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    (planned,) = some()
    run_all([planned], path)
    (record,) = lines(path)
    record["task"]["level"] = "node"
    for left, missing in ((set(), []), ({"embedding_scale"}, ["strict"])):
        config = {key: value for key, value in record["config"].items() if key not in left}
        path.write_text(json.dumps({**record, "config": config}) + "\n")
        assert Ledger(path).missing(planned, ["strict"]) == missing


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"not": "a run"}\n')
    with pytest.raises(InputError, match=r"records\.jsonl, line 1: is not a record of a study"):
        Ledger(path)
    assert path.read_text() == '{"not": "a run"}\n'


# From the command line.


def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["lg2ar", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


TINY = [
    "reproduce", "graph", "--datasets", "tu:TINY", "--preset", "default", "--variants",
    "gru,random", "--seeds", "2", "--protocol", "strict", "--set", "hidden=8", "--set", "layers=1",
    "--set", "epochs=1", "--device", "cpu",
]  # fmt: skip


def test_answers_at_node_level_are_read_as_the_others_were() -> None:
    runs = plan("findings", datasets=["mutag", "cora"], seeds=[0])
    groups = TABLES["findings"].by_protocols(runs)
    told = {protocols: {run.task.level for run in own} for protocols, own in groups}
    assert told == {("strict",): {"graph"}, ("strict-300",): {"node"}}
    assert TABLES["findings"].by_protocols(runs, ["strict"]) == [(("strict",), runs)]
    assert [read for read, _ in TABLES["node"].by_protocols(runs)] == [("strict", "paper")]


def test_reproduce_then_table_then_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = command(monkeypatch, capsys, *TINY)
    assert code == 0
    assert "4 runs done, 0 were there already, 0 failed; records: results/graph.jsonl" in out
    code, out, _ = command(monkeypatch, capsys, *TINY)
    assert "0 runs done, 4 were there already" in out
    code, out, _ = command(monkeypatch, capsys, "table", "graph", "--format", "json")
    assert code == 0
    tiny = [cell for cell in json.loads(out) if cell["dataset"] == "tu:TINY"]
    preset = "preset=default epochs=1 hidden=8 layers=1"
    (gru,) = [cell for cell in tiny if cell["variant"] == f"gru, {preset}"]
    records = lines(Path("results/graph.jsonl"))
    values = [
        np.mean(r["evaluations"][-1]["accuracy"]) for r in records if r["task"]["variant"] == "gru"
    ]
    assert gru["mean"] == pytest.approx(np.mean(values))
    assert gru["runs"] == 2
    for name in ("policy", "loss"):
        code, out, _ = command(monkeypatch, capsys, "figure", name)
        assert code == 0
        assert [Path(line).suffix for line in out.split()] == [".png", ".svg"]
        assert all(Path(line).stat().st_size > 1000 for line in out.split())


def test_data_that_is_not_there_is_told_and_the_rest_is_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch_geometric.datasets import TUDataset

    def refuse(self: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(TUDataset, "download", refuse)
    arguments = [word.replace("tu:TINY", "tu:GONE,tu:TINY") for word in TINY]
    code, out, err = command(monkeypatch, capsys, *arguments)
    assert code == 2
    assert "4 runs done, 0 were there already, 4 failed" in out
    assert "GONE_A.txt: is not there and could not be downloaded" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "grahp"], "'grahp' is not a table; did you mean 'graph'"),
        (["reproduce", "graph", "--protocol", "stric"], "'stric' is not a protocol"),
        (["table", "nodes"], "'nodes' is not a table"),
        (["table", "graph", "--format", "pdf"], "'pdf' is not a format"),
        (["table", "graph", "--records", "none.jsonl"], "none.jsonl: cannot be read"),
        (["figure", "polcy"], "'polcy' is not a figure; did you mean 'policy'"),
        (["figure", "loss"], "there are no records"),
        (["reproduce", "graph", "--datasets", ","], "an empty list was given"),
        (["reproduce", "graph", "--seeds", "0"], "--seeds"),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = command(monkeypatch, capsys, *arguments)
    assert code == 2
    assert words in err
    assert err.count("\n") == 1
