"""The measurements: what they record, what they draw, and that plain PyG takes the same step."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._C._autograd import DeviceType

from lg2ar import cli, experiment
from lg2ar.bench import growth, measure, seeds
from lg2ar.bench.cells import NONE, NOT_RUN
from lg2ar.bench.generated import PER_GRAPH, collection, large_graph
from lg2ar.bench.growth import draw_growth, fit, measure_graphs, measure_memory, measure_nodes
from lg2ar.bench.lines import line
from lg2ar.bench.measure import Kernels, Plan, by_kind, kernels, record, spread
from lg2ar.bench.projection import project
from lg2ar.bench.seeds import measure_seeds
from lg2ar.bench.step import configure, measure_steps
from lg2ar.bench.tables import ORDER, Bench
from lg2ar.bench.targets import targets
from lg2ar.config import Config
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import InputError
from lg2ar.fast.engine import Engine
from lg2ar.graph import GraphBatch
from lg2ar.records import EpochRecord

CPU = torch.device("cpu")
KEYS = {
    "bench",
    "dataset",
    "method",
    "device",
    "seconds_per_epoch",
    "step_ms",
    "kernel_ms",
    "peak_gb",
    "steps",
    "versions",
}
SMALL = {"hidden": 8, "layers": 2, "batch_size": 150}
QUICK = ["--set", "hidden=8", "--set", "layers=2", "--device", "cpu"]


@pytest.fixture
def lg2ar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lg2ar", "bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return call


def test_a_step_is_measured_through_the_command_line(
    lg2ar: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    few = ["--repeat", "2", "--warmup", "1", "--datasets", "toy-graphs"]
    code, out, _ = lg2ar(
        "step", *few, *QUICK, "--methods", "lg2ar,infograph", "--json", "--out", file
    )
    assert code == 0
    made = [json.loads(text) for text in out.splitlines()]
    assert [told["method"] for told in made] == ["lg2ar", "infograph"]
    assert [json.loads(text) for text in file.read_text().splitlines()] == made
    for told in made:
        assert told.keys() >= KEYS
        assert told["kernel_ms"] is None
        assert told["steps"] == 3  # 300 graphs in batches of 128
        assert told["step_ms"] == pytest.approx(1e3 * told["seconds_per_epoch"] / 3)
        seen = told["spread"]["seconds_per_epoch"]
        assert seen["min"] <= told["seconds_per_epoch"] <= seen["max"]
        assert seen["repetitions"] == 2
        assert told["config"]["method"] == told["method"]
        assert (told["hidden"], told["layers"], told["batch_size"]) == (8, 2, 128)


def test_the_profile_names_the_largest_operations(
    lg2ar: Callable[..., tuple[int, str, str]],
) -> None:
    few = ["--repeat", "1", "--warmup", "1", "--datasets", "toy-graphs", "--profile"]
    code, out, _ = lg2ar("step", *few, *QUICK)
    assert code == 0
    assert "operation" in out
    assert "aten::" in out


def test_a_whole_run_is_as_long_as_its_settings_say(
    lg2ar: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, _ = lg2ar(
        "epoch", "--datasets", "toy-graphs", *QUICK, "--set", "epochs=4", "--whole", "--json"
    )
    told = json.loads(out)
    assert code == 0
    assert told["run_epochs"] == 4
    assert told["run_seconds"] > told["seconds_per_epoch"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["step", "--datasets", "mutagg"], ["did you mean 'mutag'"]),
        (["step", "--shape", "square", "--datasets", "toy-graphs"], ["square", "pygcl"]),
        (["step", "--against", "dgl"], ["dgl", "pyg"]),
        (["growth", "--what", "hair"], ["hair", "graphs"]),
        (["seeds", "--epochs", "3", "--datasets", "toy-graphs"], ["warmup = 5"]),
    ],
)
def test_bad_input_is_answered_in_a_sentence(
    lg2ar: Callable[..., tuple[int, str, str]], arguments: list[str], words: list[str]
) -> None:
    code, _, error = lg2ar(*arguments, "--device", "cpu")
    assert code == 2
    assert error.count("\n") == 1
    for word in words:
        assert word in error


def test_the_shape_of_the_public_code_is_set_everywhere() -> None:
    config = configure(toy_graphs(8), "lg2ar", "paper", "pygcl", {})
    assert (config.hidden, config.layers, config.batch_size) == (256, 3, 128)
    own = configure(toy_graphs(8), "lg2ar", "paper", "pygcl", {"hidden": 16})
    assert own.hidden == 16


def test_warm_up_epochs_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(
        _: Any, config: Config, *, on_epoch: Callable[[EpochRecord], None], **__: Any
    ) -> None:
        for epoch in range(1, config.epochs + 1):
            on_epoch(epoch_record(epoch, seconds=100.0 if epoch <= 3 else 1.0, loss=0.0))

    monkeypatch.setattr(experiment, "pretrain", pretend)
    seen = measure.train(toy_graphs(8), Config.make(), CPU, Plan(warmup=3, repeat=4))
    assert seen.seconds == [1.0] * 4
    assert seen.steps == 2


def epoch_record(epoch: int, *, seconds: float, loss: float) -> EpochRecord:
    return EpochRecord(
        epoch=epoch,
        steps=2,
        base_steps=1,
        loss=loss,
        draws=[[2]],
        probabilities=[1.0],
        mean_edge_weight=1.0,
        seconds=seconds,
        peak_memory=1000,
    )


def event(name: str, microseconds: float, *, cuda: bool = True, named: bool = False) -> Any:
    return SimpleNamespace(
        name=name,
        device_type=DeviceType.CUDA if cuda else DeviceType.CPU,
        is_user_annotation=named,
        time_range=SimpleNamespace(elapsed_us=lambda: microseconds),
    )


class Watch:
    """A profiler that is started and stopped once, and finds what it was told."""

    def __init__(self, events: list[Any]) -> None:
        self.found = events
        self.started = 0

    def start(self) -> None:
        assert self.started == 0
        self.started = 1

    def stop(self) -> None:
        assert self.started == 1
        self.started = 2

    def events(self) -> list[Any]:
        assert self.started == 2
        return self.found


def test_kernels_are_counted_without_ranges_and_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        event("gemm", 1000.0),
        event("gemm", 3000.0),
        event("add", 500.0),
        event("Memcpy DtoH", 250.0),
        event("Optimizer.step", 9000.0, named=True),
        event("aten::mm", 9000.0, cuda=False),
    ]

    def pretend(
        _: Any, config: Config, *, on_epoch: Callable[[EpochRecord], None], **__: Any
    ) -> None:
        for epoch in range(1, config.epochs + 1):
            on_epoch(epoch_record(epoch, seconds=1.0, loss=0.0))

    monkeypatch.setattr(measure, "profile", lambda **_: Watch(events))
    monkeypatch.setattr(experiment, "pretrain", pretend)
    work = kernels(toy_graphs(8), Config.make(), torch.device("cuda"), Plan(warmup=2, repeat=1))
    assert work.milliseconds == pytest.approx(4.5 / 2)  # two steps an epoch
    assert work.copies == pytest.approx(0.25 / 2)
    assert work.launches == 1.5
    assert work.top[0] == ("gemm", 2.0, 1.0)


# The same step with PyG's parts.


def pyg_batch(graph: GraphBatch) -> Any:
    return graph.to_pyg()


def copy_weights(source: Any, target: Any) -> None:
    """Give one module the other's weights, matrix by matrix, where their names differ."""
    mine, theirs = source.state_dict(), target.state_dict()
    assert [v.shape for v in mine.values()] == [v.shape for v in theirs.values()]
    target.load_state_dict(dict(zip(theirs, mine.values(), strict=True)))


def models(**changes: Any) -> tuple[Any, Any, GraphBatch]:
    from lg2ar.bench.plain_pyg import PlainLG2AR
    from lg2ar.model import build

    paper = {"norm_place": "after", "readout": "sum"}  # as the settings that are timed have it
    config = Config.make({**SMALL, **paper, "ratio": 0.999, "hops": 2, **changes})
    graph = toy_graphs(6).graph
    ours, plain = build(config, graph.num_features), PlainLG2AR(config, graph.num_features)
    for name in ("augmentation_encoder", "base_encoder"):
        copy_weights(getattr(ours, name), getattr(plain, name))
    for mine, theirs in zip(ours.heads, plain.heads, strict=True):
        copy_weights(mine, theirs)
    copy_weights(ours.policy.gru, plain.gru)
    copy_weights(ours.policy.output, plain.output)
    return ours, plain, graph


def test_plain_pyg_has_as_many_weights() -> None:
    ours, plain, _ = models()
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in plain.parameters())


def test_plain_pyg_computes_the_same_loss() -> None:
    ours, plain, graph = models()
    data = pyg_batch(graph)
    encoding = ours.augmentation_encoder(graph)
    nodes, graphs = plain.augmentation_encoder((data.x, data.edge_index, None, data.batch), 6)
    torch.testing.assert_close(nodes, encoding.nodes)
    torch.testing.assert_close(graphs, encoding.graphs)
    weight = torch.rand(graph.num_edges)
    view = ours.base_encoder(graph.replace(edge_weight=weight))
    found, pooled = plain.base_encoder((graph.x, graph.edge_index, weight, graph.batch), 6)
    torch.testing.assert_close(found, view.nodes)
    torch.testing.assert_close(pooled, view.graphs)
    p = (ours.policy.logits(encoding.graphs) / ours.policy.temperature).softmax(-1)
    torch.testing.assert_close(plain._policy(graphs), p)

    from lg2ar.bench.plain_pyg import _jensen_shannon
    from lg2ar.mutual_information import jensen_shannon

    scores = nodes @ graphs.T
    positive = graph.batch.unsqueeze(-1) == torch.arange(6)
    bound = jensen_shannon(scores, positive, 1 / graph.sizes[graph.batch].float())
    torch.testing.assert_close(_jensen_shannon(scores, graph.batch), bound)


@pytest.mark.parametrize("alone", [False, True])
def test_plain_pyg_cuts_the_same_views(alone: bool) -> None:
    from lg2ar.bench.plain_pyg import _at_once, _graph_by_graph

    cut = _graph_by_graph if alone else _at_once
    ours, plain, graph = models()
    encoding = ours.augmentation_encoder(graph)
    given = pyg_batch(graph), encoding.nodes, encoding.graphs
    # With a ratio of almost one all nodes stay, and the views differ by their weights alone.
    x, edge_index, weight, batch = cut(plain.heads[1], *given)
    view = ours.heads[1](graph, encoding)
    assert torch.equal(batch, view.batch)
    torch.testing.assert_close(x, view.x)
    torch.testing.assert_close(dense(edge_index, weight, len(x)), dense_of(view))
    # An edge keeps its probability as weight; both directions stay or go together.
    x, edge_index, weight, batch = cut(plain.heads[2], *given)
    matrix = dense(edge_index, weight, len(x))
    assert torch.equal(matrix, matrix.T)
    assert bool((batch[edge_index[0]] == batch[edge_index[1]]).all())
    exists = dense(graph.edge_index, None, len(x)) > 0
    pairs = (exists & (matrix > 0)).nonzero().T
    logits = ours.heads[2].logits(encoding.nodes, pairs, torch.ones(pairs.size(1)).bool())
    torch.testing.assert_close(matrix[pairs[0], pairs[1]], logits.sigmoid())
    # A sub-graph is a ball around one node of each graph.
    x, edge_index, weight, batch = cut(plain.heads[3], *given)
    assert set(batch.tolist()) == set(range(6))
    assert len(x) < graph.num_nodes
    # Features are masked, all nodes and edges stay.
    x, edge_index, weight, batch = cut(plain.heads[4], *given)
    assert x.shape == graph.x.shape
    assert weight is None
    assert edge_index.size(1) == graph.num_edges


def dense(edge_index: Tensor, weight: Tensor | None, num_nodes: int) -> Tensor:
    values = torch.ones(edge_index.size(1)) if weight is None else weight.detach()
    matrix = torch.zeros(num_nodes, num_nodes)
    return matrix.index_put((edge_index[0], edge_index[1]), values, accumulate=True)


def dense_of(view: GraphBatch) -> Tensor:
    return dense(view.edge_index, view.edge_weight, view.num_nodes)


@pytest.mark.parametrize("alone", [False, True])
def test_plain_pyg_learns(alone: bool) -> None:
    from lg2ar.bench.plain_pyg import PlainTrainer

    config = Config.make({**SMALL, "batch_size": 16, "learning_rate": 0.01})
    trainer = PlainTrainer(toy_graphs(32).graph, config, graph_by_graph=alone)
    losses = [loss for _, loss, steps in trainer.timed(12) if steps == 2]
    assert len(losses) == 12
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


def test_plain_pyg_is_measured_beside_ours() -> None:
    made = list(
        measure_steps(
            ["toy-graphs"], ["lg2ar"], CPU, changes=SMALL, repeat=1, warmup=0, against_pyg=True
        )
    )
    assert [told["method"] for told in made] == ["lg2ar", "pyg", "pyg, graph by graph"]
    assert {told["steps"] for told in made} == {2}
    assert len({json.dumps(told["config"]) for told in made}) == 1
    seconds = [told["seconds_per_epoch"] for told in made]
    made = [{**told, "dataset": "mutag"} for told in made]  # of those that the table has
    later = {**made[0], "seconds_per_epoch": 1e3}  # another run, without PyG's
    row = Bench([*made, later]).cpu_steps().splitlines()[-1].split(" | ")
    assert (*row[:2], row[4]) == ("| mutag", "float32", f"{seconds[1] / seconds[0]:.1f}")
    rounded = [{**r, "config": {**r["config"], "precision": "bf16-mixed"}} for r in made]
    toys = [{**r, "dataset": "toy-graphs"} for r in made]  # which no table has
    assert Bench([*toys, *made]).cpu_steps() == Bench(made).cpu_steps()
    tops = [
        [{**r, "top": [(name, 1.0, 1.0)]}]
        for r, name in zip((made[0], rounded[0]), "ab", strict=True)
    ]
    assert Bench([*tops[0], *tops[1]]).profile("cpu") == Bench(tops[0]).profile("cpu")
    rounded[0]["seconds_per_epoch"] /= 2
    table = Bench([*rounded, *made]).cpu_steps().splitlines()
    assert table[-2].split(" | ")[:5] == row[:5]  # each with its own
    row = table[-1].split(" | ")
    assert (*row[:2], row[4]) == ("| mutag", "bf16-mixed", f"{2 * seconds[1] / seconds[0]:.1f}")


def test_plain_pyg_is_for_processors() -> None:
    with pytest.raises(InputError, match="cpu"):
        next(measure_steps(["toy-graphs"], ["lg2ar"], torch.device("cuda"), against_pyg=True))


# Growth.


def test_generated_graphs_are_sound_and_as_large_as_wanted() -> None:
    many, more = collection(20_000), collection(40_000)
    for dataset, size in ((many, 20_000), (more, 40_000)):
        graph = dataset.graph.validate()
        assert graph.num_nodes + graph.num_edges == pytest.approx(size, rel=0.05)
        source, target = graph.edge_index
        assert bool((graph.batch[source] == graph.batch[target]).all())
        assert bool((source != target).all())
        assert graph.sizes.min() >= 10
        assert graph.sizes.max() <= 30
    assert more.graph.num_graphs == round(40_000 / PER_GRAPH) > many.graph.num_graphs


def test_a_large_graph_has_ten_links_a_node() -> None:
    graph = large_graph(500).graph.validate()
    assert (graph.num_nodes, graph.num_edges) == (500, 10_000)
    assert bool((graph.edge_index[0] != graph.edge_index[1]).all())


def test_the_fit_finds_a_line_and_tells_when_there_is_none() -> None:
    sizes = [1e4, 1e5, 1e6, 1e7]
    line_found = fit(sizes, [2e-6 * size + 0.5 for size in sizes])
    assert line_found["slope"] == pytest.approx(2e-6)
    assert line_found["intercept"] == pytest.approx(0.5)
    assert line_found["r2"] == pytest.approx(1)
    assert line_found["largest_deviation"] < 1e-9
    square = fit(sizes, [1e-10 * size**2 for size in sizes])
    assert square["exponent"] == pytest.approx(2)
    assert square["largest_deviation"] > 0.3


def test_growth_is_measured_and_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(growth, "SIZES", (500, 1000, 2000))
    monkeypatch.setattr(growth, "BATCH_SIZES", (4, 8, 16))
    monkeypatch.setattr(growth, "collection", lambda size: collection(min(size, 2000)))
    changes = {"hidden": 4, "layers": 1}
    made = [
        *measure_graphs(CPU, largest=2000, changes=changes, repeat=1),
        *measure_memory(CPU, largest=16, changes=changes),
    ]
    assert [told.get("curve") for told in made] == [None] * 3 + ["time"] + [None] * 3 + ["memory"]
    assert all(told.keys() >= KEYS for told in made)
    sizes = [told["num_nodes"] + told["num_edges"] for told in made[:3]]
    assert made[3]["sizes"] == sizes
    for path in draw_growth(made, tmp_path / "growth"):
        assert path.stat().st_size > 1000
    table = Bench(made).growth("cpu")
    assert f"{sizes[0]:,}" in table
    assert "Straight line" in table
    assert "graphs in a batch" in Bench(made).memory("cpu")
    assert Bench(made).growth("cuda") == f"*{NOT_RUN}*"


def test_growth_at_node_level_embeds_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "NODES", (200, 400))
    changes = {"hidden": 4, "batch_size": 2}
    made = list(measure_nodes(CPU, largest=400, changes=changes, repeat=2))
    assert [told["embedded"] for told in made] == [200, 400]
    assert [told["steps"] for told in made] == [1, 1]
    assert "400" in Bench(made).nodes("cpu")
    assert "400 nodes embedded" in line(made[1])


# Many seeds.


def together(shift: float) -> Callable[..., list[Any]]:
    """Seeds trained one after the other, their losses moved a little."""

    def train(
        source: Any, config: Config, seeds: list[int], *, device: torch.device, on_epoch: Any
    ) -> list[Any]:
        def moved(place: int) -> Callable[[EpochRecord], None]:
            def look(seen: EpochRecord) -> None:
                held = {**seen.to_dict(), "loss": seen.loss * (1 + shift)}
                on_epoch(place, EpochRecord(**held))

            return look

        return [
            experiment.pretrain(
                source, config.replace(seed=seed), device=device, on_epoch=moved(place)
            )
            for place, seed in enumerate(seeds)
        ]

    return train


@pytest.mark.parametrize("shift", [0.0, 0.01])
def test_seeds_are_compared_with_their_own_runs(
    monkeypatch: pytest.MonkeyPatch, shift: float
) -> None:
    monkeypatch.setattr(experiment, "pretrain_many", together(shift))
    (told,) = measure_seeds(["toy-graphs"], CPU, seeds=3, epochs=3, warmup=1, changes=SMALL)
    assert told.keys() >= KEYS
    assert told["largest_difference"] == pytest.approx(shift, abs=1e-6)
    assert told["resting_difference"] == pytest.approx(shift, abs=1e-6)
    assert told["ratio"] == pytest.approx(told["many_seconds"] / told["one_seconds"])
    assert told["seeds"] == 3
    assert len(told["final_losses"]["joint"]) == 3
    assert "ratio" in line(told)


@pytest.mark.parametrize(("side_by_side", "ratio"), [(False, 3.0), (True, 1.5)])
def test_the_ratio_counts_the_work_of_every_seed(
    monkeypatch: pytest.MonkeyPatch, side_by_side: bool, ratio: float
) -> None:
    now = 0.0

    def epoch(number: int, cost: float) -> EpochRecord:
        nonlocal now
        now += 100.0 if number == 1 else cost  # the first epoch warms up
        return epoch_record(number, seconds=cost, loss=1.0)

    def one(_: Any, config: Config, *, on_epoch: Any, **__: Any) -> None:
        for number in range(1, config.epochs + 1):
            on_epoch(epoch(number, 2.0))

    def many(_: Any, config: Config, seeds: list[int], *, on_epoch: Any, **__: Any) -> None:
        if side_by_side:
            for number in range(1, config.epochs + 1):
                for place in range(len(seeds)):
                    on_epoch(place, epoch(number, 1.0))
        else:
            for place in range(len(seeds)):
                for number in range(1, config.epochs + 1):
                    on_epoch(place, epoch(number, 2.0))

    monkeypatch.setattr(seeds, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(experiment, "pretrain", one)
    monkeypatch.setattr(experiment, "pretrain_many", many)
    (told,) = measure_seeds(["toy-graphs"], CPU, seeds=3, epochs=4, warmup=1, changes=SMALL)
    assert told["one_seconds"] == pytest.approx(2.0)
    assert told["ratio"] == pytest.approx(ratio)


@pytest.mark.parametrize("side_by_side", [True, False])
def test_the_profile_of_several_seeds_counts_a_step_once(
    monkeypatch: pytest.MonkeyPatch, side_by_side: bool
) -> None:
    watch = Watch([])

    def many(_: Any, config: Config, seeds: list[int], *, on_epoch: Any, **__: Any) -> None:
        pairs = [(n, place) for n in range(1, config.epochs + 1) for place in range(len(seeds))]
        if not side_by_side:
            pairs.sort(key=lambda pair: pair[1])
        for number, place in pairs:
            if watch.started == 1:  # the work that leads to the report
                watch.found.append(event(f"epoch {number} of {place}", 1000.0))
            on_epoch(place, epoch_record(number, seconds=1.0, loss=0.0))

    monkeypatch.setattr(measure, "profile", lambda **_: watch)
    monkeypatch.setattr(experiment, "pretrain_many", many)
    cuda, plan = torch.device("cuda"), Plan(warmup=2, repeat=3)
    work = kernels(toy_graphs(8), Config.make(), cuda, plan, range(4))
    # Three epochs of two steps: of all four seeds, or of the last one where they take turns.
    places = range(4) if side_by_side else [3]
    assert {name for name, _, _ in work.top} == {
        f"epoch {number} of {place}" for number in (3, 4, 5) for place in places
    }
    assert work.launches == (2.0 if side_by_side else 0.5)
    assert work.milliseconds == pytest.approx(work.launches)


def test_kinds_of_kernels_add_up() -> None:
    names = {
        "sm90_xmma_gemm_f32f32_tf32f32": "products",
        "void cutlass::Kernel2<cutlass_80_tensorop>": "products",
        "void gemv2T_kernel_val": "products",
        "void CUTLASS_GEMM": "products",
        "nvjet_sss_128x64": "products",
        "aten::mm": "products",
        "aten::baddbmm": "products",
        "recur": "recurrence",
        "recur_backward": "recurrence",
        "aggregate_hubs": "aggregation",
        "pair_products": "aggregation",
        "segment_sum": "aggregation",
        "segment_softmax": "rest",
        "aten::mm_of_another_kind": "rest",
        "Memcpy DtoH": "",
        "Memset (Device)": "",
    }
    times = {name: 2.0**place for place, name in enumerate(names)}  # every sum is another one
    copies = sum(ms for name, ms in times.items() if not names[name])
    work = Kernels(
        milliseconds=sum(times.values()) - copies,
        copies=copies,
        launches=14.0,
        top=[(name, ms, 1.0) for name, ms in times.items()],
    )
    kinds = by_kind(work)
    assert sum(kinds.values()) == work.milliseconds
    assert list(kinds) == ["products", "recurrence", "aggregation", "rest"]
    for kind, ms in kinds.items():
        assert ms == sum(times[name] for name in names if names[name] == kind)
    assert by_kind(Kernels(0.0, 0.0, 0.0, [])) == dict.fromkeys(kinds, 0.0)


def test_the_seeds_command_shows_where_the_time_goes(
    lg2ar: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    few = ["--datasets", "toy-graphs", "--seeds", "2", "--epochs", "2", "--warmup", "1"]
    code, out, _ = lg2ar("seeds", *few, *QUICK, "--profile", "--out", file)
    assert code == 0
    told = json.loads(file.read_text())
    assert out.startswith(line(told))
    assert "products" in line(told)
    assert out.splitlines()[1].split()[-1] == "operation"
    assert len(out.splitlines()) == 2 + 12
    assert "aten::" in out
    assert told["steps"] == 3  # 300 graphs in batches of 128
    assert told["step_ms"] == pytest.approx(1e3 * told["many_seconds"] / 3)
    assert told["one_step_ms"] == pytest.approx(1e3 * told["one_seconds"] / 3)
    assert told["seconds_per_epoch"] == told["many_seconds"]
    assert len(told["top"]) == 12
    assert told["kinds"]["products"] > 0
    # More than the twelve largest are in the kinds.
    assert sum(told["kinds"].values()) == pytest.approx(told["kernel_ms"])
    assert sum(ms for _, ms, _ in told["top"]) < told["kernel_ms"]


def test_the_seeds_command_prints_a_record(
    monkeypatch: pytest.MonkeyPatch, lg2ar: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setattr(experiment, "pretrain_many", together(0.0))
    few = ["--seeds", "2", "--epochs", "2", "--warmup", "1", "--json"]
    code, out, _ = lg2ar("seeds", "--datasets", "toy-graphs", *few, *QUICK)
    assert code == 0
    told = json.loads(out)
    assert told["seeds"] == 2
    assert told["kernel_ms"] is None
    assert "kinds" not in told


def test_the_probe_is_measured_against_scikit_learn(
    lg2ar: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, _ = lg2ar("probe", "--rows", "90", "--width", "4", "--device", "cpu", "--json")
    ours, theirs = (json.loads(text) for text in out.splitlines())
    assert code == 0
    assert ours.keys() >= KEYS
    assert (ours["solver"], ours["problems"]) == ("lg2ar", 10 * 6 * 7 * 3)
    assert ours["accuracy"][0] == pytest.approx(theirs["accuracy"][0])
    assert "accuracy" in line(ours)


# Tables.


def on_gpu(dataset: str, method: str, seconds: float, **more: Any) -> dict[str, Any]:
    made = record("step", dataset, method, CPU, **{"shape": "preset", **more})
    return {**made, "seconds_per_epoch": seconds, "step_ms": 1e3 * seconds, "steps": 1} | {
        "device": "NVIDIA H200",
        "spread": {"seconds_per_epoch": spread([seconds])},
        "kernel_ms": 500 * seconds,
        "launches": 100,
        "peak_gb": 2.0,
        "reserved_gb": 3.0,
    }


def test_the_tables_say_what_was_not_run() -> None:
    empty = Bench([])
    for text in (
        empty.gpu_steps(),
        empty.gpu_pygcl(),
        empty.cpu_steps(),
        empty.cpu_runs(),
        empty.seeds(),
        empty.seeds_profile(),
        empty.coins(),
        empty.profile("cuda"),
        empty.nodes("cpu"),
    ):
        assert text == f"*{NOT_RUN}*"


def test_the_tables_take_the_last_record_and_the_first_before() -> None:
    def cost(seconds: float) -> dict[str, Any]:
        task = {"dataset": "mutag", "method": "lg2ar"}
        paid = {"seconds_per_epoch": seconds, "peak_memory": 5e8}
        return {"task": task, "device": "NVIDIA H200", "cost": paid}

    records = [on_gpu("mutag", "lg2ar", 9.0), on_gpu("mutag", "lg2ar", 0.25)]
    records += [on_gpu("mutag", "infograph", 0.125), on_gpu("dd", "lg2ar", 0.5, shape="pygcl")]
    bench = Bench(records, [cost(0.75), cost(0.01)])
    rows = {row.split(" | ")[0]: row for row in bench.gpu_steps().splitlines()}
    assert rows["| mutag"] == (
        "| mutag | 0.750 | 0.250 | 0.02 | 250 | 125 | 2.0 | 100 | 2.0 | 0.500 | 2.00 | 3.00 "
        f"| {NONE} |"
    )
    assert NOT_RUN in rows["| dd"]  # only at the other shape
    theirs = targets()["pygcl"]["seconds"]["dd"]
    assert f"| dd | 0.350 | 0.500 | {theirs / 0.5:.1f} |" in bench.gpu_pygcl()


def test_committed_records_have_the_promised_keys() -> None:
    files = sorted((Path(__file__).parent.parent / "results" / "bench").glob("*.jsonl"))
    assert files
    for file in files:
        for text in file.read_text().splitlines():
            assert json.loads(text).keys() >= KEYS


def test_the_study_is_projected_from_its_parts() -> None:
    told = {
        "seeds": 10,
        "one_seconds": 1.0,
        "many_seconds": 4.0,
        "one_run_seconds": 7.0,  # 5 epochs and 2 seconds besides
        "many_run_seconds": 26.0,  # 5 epochs and 6 seconds besides
        "config": {"epochs": 5},
    }
    probes = {("mutag", True): 0.5, ("mutag", False): 0.25}
    (part,) = project(["mutag", "dd"], {"mutag": told}, probes)
    # 20 epochs of ten together: 6 + 80 seconds, which is less than ten times 2 + 20.
    assert part.training == pytest.approx(3 * 86)
    # `paper` looks at epochs 10 and 20 of 30 runs, `strict` at the last; both at 10 untrained ones.
    assert part.evaluation == pytest.approx(0.25 * (60 + 10) + 0.5 * (30 + 10))
    # Without seeds together: ten times 100 epochs, and 2 seconds as with the others.
    probes |= {("dd", True): 1.0, ("dd", False): 1.0}
    _, part = project(["mutag", "dd"], {"mutag": told}, probes, {"mutag": 9.0, "dd": 0.5})
    assert (part.dataset, part.runs) == ("dd", 30)
    assert part.training == pytest.approx(3 * 10 * (2 + 100 * 0.5))
    slow = {**told, "many_seconds": 40.0, "many_run_seconds": 206.0}
    (part,) = project(["mutag"], {"mutag": slow}, probes)
    assert part.training == pytest.approx(3 * 220)


def test_runs_with_the_same_coin_are_told_beside_those_together() -> None:
    shared = {"bench": "coins", "device": "NVIDIA H200", "versions": {"torch": "2.11.0"}}
    times = {"one_seconds": 0.1, "many_seconds": 0.4, "same_coin_seconds": {"a": 0.3, "b": 0.1}}
    made = [
        {**shared, **times, "dataset": "dd", "seeds": 5, "same_coin_seconds": {}},
        {**shared, **times, "dataset": "mutag", "seeds": 10, "many_seconds": 9.0},
        {**shared, **times, "dataset": "mutag", "seeds": 10},
    ]
    mutag, dd = Bench(made).coins().splitlines()[-2:]
    assert mutag == "| mutag | 10 | 0.100 | 0.400 | 4.0 | 0.200 | 2.0 |"
    assert dd == f"| dd | 5 | 0.100 | 0.400 | 4.0 | {NONE} | {NONE} |"


def test_the_profile_of_ten_seeds_is_told_beside_three_times_one() -> None:
    def told(dataset: str, one: float, **more: Any) -> dict[str, Any]:
        made = record("seeds", dataset, "lg2ar", CPU, seeds=10)
        times = {"one_seconds": one, "many_seconds": 4 * one, "ratio": 4.0}
        losses = {"resting_difference": 0.0, "largest_difference": 0.0}
        return {**made, "device": "NVIDIA H200", **times, **losses, **more}

    def profiled(dataset: str, one: float, **more: Any) -> dict[str, Any]:
        kinds = {"products": 5.0, "recurrence": 0.5, "aggregation": 1.5, "rest": 3.0}
        steps = {"one_step_ms": 10 * one, "step_ms": 40 * one, "kernel_ms": 10.0, "launches": 9.0}
        return told(dataset, one, kinds=kinds, **steps, **more)

    made = [
        profiled("mutag", 9.0),
        profiled("mutag", 0.25),
        profiled("dd", 0.5),
        profiled("imdb-multi", 0.5),
        profiled("proteins", 0.5, device="cpu (x86_64)"),
        profiled("imdb-binary", 0.5, seeds=5),
        told("mutag", 0.125),
        told("imdb-multi", 9.0),
        profiled("imdb-multi", 0.75),
    ]
    rows = Bench(made).seeds_profile().splitlines()[4:]
    assert rows == [
        "| mutag | 2.50 | 7.50 | 10.0 | 5.00 | 0.500 | 1.50 | 3.00 |",
        f"| proteins |{f' {NOT_RUN} |' * 7}",
        f"| imdb-binary |{f' {NOT_RUN} |' * 7}",
        "| imdb-multi | 7.50 | 22.5 | 30.0 | 5.00 | 0.500 | 1.50 | 3.00 |",
        "| dd | 5.00 | 15.0 | 20.0 | 5.00 | 0.500 | 1.50 | 3.00 |",
    ]
    # With a profile or without, the newest of a data set is what the other table shows.
    found = {
        row.split(" | ")[0]: row.split(" | ")[2] for row in Bench(made).seeds().splitlines()[4:]
    }
    assert (found["| mutag"], found["| imdb-multi"]) == ("0.125", "0.750")


def test_stacks_of_all_sizes_are_told() -> None:
    shared = {"bench": "lanes", "device": "NVIDIA H200", "versions": {"torch": "2.11.0"}}
    times = {"one_seconds": 0.1, "many_seconds": 0.4, "ratio": 4.0, "seeds": 10}
    made = [
        {**shared, **times, "dataset": "dd", "stack": 1},
        {**shared, **times, "dataset": "mutag", "stack": 5},
        {**shared, **times, "dataset": "mutag", "stack": 10},
        {**shared, **times, "dataset": "mutag", "stack": 5, "ratio": 3.0},
    ]
    assert Bench(made).lanes().splitlines()[-3:] == [
        "| mutag | 10 | 10 | 0.100 | 0.400 | 4.00 |",
        "| mutag | 10 | 5 | 0.100 | 0.400 | 3.00 |",
        "| dd | 10 | 1 | 0.100 | 0.400 | 4.00 |",
    ]


def test_coins_are_forced_while_they_are_measured() -> None:
    path = Path(__file__).parents[1] / "benchmarks" / "coins.py"
    spec = importlib.util.spec_from_file_location("coins", path)
    assert spec is not None
    assert spec.loader is not None
    coins = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(coins)
    engine = object.__new__(Engine)
    engine.places = {"base_encoder.a": (0, 1), "augmentation_encoder.a": (1, 2)}
    engine.shapes = dict.fromkeys(engine.places, torch.Size([1]))
    engine.weights = torch.zeros(3, 2)

    def learned() -> list[bool]:
        return [weight.requires_grad for weight in engine._leaves("both").values()]

    assert learned() == [True, True]
    with coins.same_coin("base"):
        assert learned() == [True, False]
    with coins.same_coin(None):
        assert learned() == [True, True]
    assert learned() == [True, True]


def study_run(dataset: str, training: float, **changes: Any) -> dict[str, Any]:
    task = {"dataset": dataset, "method": "lg2ar", "preset": "findings"}
    return {
        "task": {**task, **changes},
        "cost": {"seconds": training, "evaluation_seconds": 2.0},
        "evaluations": [{"protocol": "strict"}, {"protocol": "paper"}],
        "device": changes.get("device", "NVIDIA H200"),
        "versions": {"torch": "2.11.0"},
    }


def test_the_study_is_made_of_what_its_runs_took() -> None:
    runs = [study_run("mutag", 1.0), study_run("mutag", 3.0), study_run("dd", 10.0)]
    others = [
        study_run("mutag", 99.0, method="infograph"),
        study_run("mutag", 99.0, preset="paper"),
        study_run("mutag", 99.0, device="cpu (x86_64)"),
        {**study_run("mutag", 99.0), "failed": "out of memory"},
        {**study_run("mutag", 99.0), "evaluations": [{"protocol": "nested"}]},
    ]
    told = Bench([], []).study([*runs, *others], (4, 2))
    # Of four seconds a run, thirty times.
    assert "| mutag | 2 | 4 | 4 | 120 |" in told
    assert "| dd | 1 | 10 | 2 | 360 |" in told
    assert told.endswith("3 of 240 runs.")
    everywhere = [study_run(name, 4.0) for name in ORDER]
    assert "all are 24 minutes of one process, 6 to 12 of 4 or 2 side by side;" in Bench(
        [], []
    ).study(everywhere, (4, 2))
    assert Bench([], []).study(others, (4, 2)) == NOT_RUN
