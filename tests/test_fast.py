"""The captured step against the plain one, with the same noise; its engine and its trainers.

Without a GPU the kernels are run by Triton's interpreter (see conftest.py), program after program:
sizes are as small as they can be.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

triton = pytest.importorskip("triton", reason="the captured step needs Triton; it is not here")

from lg2ar import devices, encoders, experiment, processes, sampling  # noqa: E402 - Triton first
from lg2ar.config import Config  # noqa: E402
from lg2ar.data.batches import GraphStore  # noqa: E402
from lg2ar.data.dataset import Dataset  # noqa: E402
from lg2ar.distributed import Team  # noqa: E402
from lg2ar.errors import InputError, NonFiniteLossError  # noqa: E402
from lg2ar.fast import arrangement, network, objective, recurrence, suitability  # noqa: E402
from lg2ar.fast import engine as engine_module  # noqa: E402
from lg2ar.fast import trainer as trainer_module  # noqa: E402
from lg2ar.fast.arrangement import Lane  # noqa: E402
from lg2ar.fast.data import PairData  # noqa: E402
from lg2ar.fast.engine import Engine, Size  # noqa: E402
from lg2ar.fast.kernels import cutting  # noqa: E402
from lg2ar.fast.kernels.compiling import kernel  # noqa: E402
from lg2ar.fast.recurrence import gru as captured_gru  # noqa: E402
from lg2ar.fast.step import Step, StepResult  # noqa: E402
from lg2ar.fast.structure import Cut, Structure  # noqa: E402
from lg2ar.fast.suitability import settle_step  # noqa: E402
from lg2ar.fast.trainer import CapturedTrainer, captured_trainers, run_epoch_together  # noqa: E402
from lg2ar.graph import GraphBatch  # noqa: E402
from lg2ar.layers import pass_messages  # noqa: E402
from lg2ar.methods import build  # noqa: E402
from lg2ar.model import LG2AR  # noqa: E402
from lg2ar.runs import load  # noqa: E402
from teams import run_team  # noqa: E402

tl = triton.language


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little padding: the interpreter takes its time for every row."""
    if DEVICE.type == "cpu":
        monkeypatch.setattr(engine_module, "NODES", 4)
        monkeypatch.setattr(engine_module, "PAIRS", 4)


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    """The plain step multiplies in float32 on a GPU as well, its GRU included."""
    with sampling.float32():
        yield


# Of losses, where sums are taken in another order: none on a CPU.
TOLERANCE = 1e-2 if torch.cuda.is_available() else 0.0
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@kernel
def _rand(out, key, number, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def,name-defined]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.rand(tl.load(key), i), mask=i < number)


def noise(key: int, number: int) -> Tensor:
    """The uniform numbers that kernels draw with a key."""
    out = torch.empty(number, device=DEVICE)
    place = torch.tensor([key], device=DEVICE)
    _rand[(-(-number // 64),)](out, place, number, BLOCK=64)
    return out


def random_graphs(seed: int, number: int = 5, width: int = 3) -> GraphBatch:
    """Undirected graphs of random sizes; one has a single node, one is complete."""
    rng = np.random.default_rng(seed)
    sizes = [1, 4, *rng.integers(3, 8, number - 2).tolist()]
    sources, targets, first = [], [], 0
    for place, n in enumerate(sizes):
        u, v = np.triu_indices(n, 1)
        kept = rng.random(len(u)) < (1.0 if place == 1 else 0.5)
        sources += [u[kept] + first, v[kept] + first]
        targets += [v[kept] + first, u[kept] + first]
        first += n
    edges = np.stack([np.concatenate(sources), np.concatenate(targets)])
    generator = torch.Generator().manual_seed(seed)
    return GraphBatch(
        x=torch.randn(first, width, generator=generator),
        edge_index=torch.from_numpy(edges).long(),
        batch=torch.arange(number).repeat_interleave(torch.tensor(sizes)),
        num_graphs=number,
    ).to(DEVICE)


class Script:
    """Hands the plain step the noise that the kernels draw."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, key: int, draw: tuple[int, int]) -> None:
        self.key, self.draw, self.queue = key, draw, list[Tensor]()
        self.rows: Tensor | None = None
        monkeypatch.setattr(sampling, "_uniform", self.uniform)
        monkeypatch.setattr(torch, "multinomial", lambda *_, **__: torch.tensor(draw))

    def expect(self, graph: GraphBatch, kind: int, view: int) -> None:
        """Line up what the head of a view is going to draw."""
        key, n, e = self.key, graph.num_nodes, graph.num_edges
        p = e // 2

        def pairs(first: int, second: int) -> Tensor:
            values = torch.full((2 * e,), 0.5, device=graph.device)
            values[:p], values[e : e + p] = noise(key + first, p), noise(key + second, p)
            return values

        if kind in (cutting.NODE_DROPPING, cutting.SUB_GRAPH):
            self.queue.append(noise(key + cutting.SITE_NODES + view, n))
        if kind == cutting.EDGE_PERTURBATION:
            draws = torch.full((e,), 0.5, device=graph.device)
            draws[:p] = noise(key + cutting.SITE_NEGATIVE + view, p)
            self.queue += [draws, noise(key + cutting.SITE_SHIFT + view, graph.num_graphs)]
            coin, new = cutting.SITE_COIN + view, cutting.SITE_NEW_COIN + view
            self.queue += [pairs(coin, new), pairs(coin + 2, new + 2)]
        if kind == cutting.FEATURE_MASKING:
            shape = (n, graph.num_features)
            number = n * graph.num_features
            site = key + cutting.SITE_FEATURES + view
            self.queue += [noise(site, number).view(shape), noise(site + 2, number).view(shape)]

    def uniform(
        self, shape: tuple[int, ...], _: torch.device, dtype: torch.dtype, __: object
    ) -> Tensor:
        value = self.queue.pop(0)
        assert value.shape == shape
        return value.to(dtype)


def _weights(models: list[Any]) -> dict[str, Tensor]:
    """The weights of all runs as views of one flat buffer, as the kernels read them."""
    names = [name for name, _ in models[0].named_parameters()]
    flat = torch.stack(
        [torch.cat([p.detach().flatten() for p in model.parameters()]) for model in models]
    )
    found, at = {}, 0
    for name, p in models[0].named_parameters():
        view = flat[:, at : at + p.numel()].view(len(models), *p.shape)
        found[name] = view.detach().requires_grad_()
        at += p.numel()
    assert list(found) == names
    return found


def _running(models: list[Any]) -> dict[str, Tensor]:
    return {
        name: torch.stack([dict(model.named_buffers())[name] for model in models])
        for name, _ in models[0].named_buffers()
        if "running" in name
    }


def _batch(data: PairData, orders: list[list[int]]) -> tuple[Tensor, Structure]:
    order = torch.tensor(orders, device=DEVICE, dtype=torch.int32)
    starts = [
        F.pad(torch.from_numpy(sizes[np.array(orders)]).cumsum(1), (1, 0)).int().to(DEVICE)
        for sizes in (data.num_nodes, data.num_pairs)
    ]
    return data.batch(order, starts[0], starts[1], 32, 64)


def _fast_step(
    config: Config,
    models: list[Any],
    graph: GraphBatch,
    orders: list[list[int]],
    keys: list[int],
    coin: list[int],
    draw: tuple[int, int],
) -> tuple[Step, dict[str, Tensor], dict[str, Tensor], StepResult]:
    data = PairData(graph, config.ratio, DEVICE)
    x, structure = _batch(data, orders)
    step = Step(config, data.wanted, data.search)
    pair = torch.tensor(draw, device=DEVICE).expand(len(models), 2)
    plain = step._draw
    step._draw = lambda *a: (plain(*a)[0], pair)  # type: ignore[method-assign]
    weights, running = _weights(models), _running(models)
    result = step(
        weights,
        running,
        x,
        structure,
        torch.tensor(keys, device=DEVICE),
        torch.tensor(coin, device=DEVICE),
    )
    result.loss.sum().backward()  # type: ignore[no-untyped-call]
    return step, weights, running, result


def _dropout(script: Script, config: Config) -> Callable[..., Tensor]:
    """The plain network's dropout with the kernels' noise: one call a layer, encoder after view."""
    layers = config.layers
    calls = iter(
        [cutting.SITE_DROPOUT + 2 * layer for layer in range(layers)]
        + [
            cutting.SITE_DROPOUT + 2 * (layers + layer) + view
            for view in (0, 1)
            for layer in range(config.base_layers or layers)
        ]
    )

    def dropout(h: Tensor, p: float, training: bool) -> Tensor:
        rows = torch.arange(h.size(0), device=h.device) if script.rows is None else script.rows
        number = (int(rows.max()) + 1) * h.size(1)
        u = noise(script.key + next(calls), number).view(-1, h.size(1))[rows]
        return torch.where(u >= p, h / (1 - p), 0)

    return dropout


SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "printed": {"edge_weighting": "printed", "dropout": 0.3},
    "one": {"edge_weighting": "straight-through", "norm": False},
    "graphs": {"contrast": "global-global", "discriminator": "cosine"},
    "pairs": {"normalisation": "pairs", "discriminator": "bilinear", "policy": "deepset"},
    "nce": {"bound": "nce", "readout": "mean", "policy": "random"},
    "dv": {"bound": "dv", "normalisation": "graphs", "feature_projection": "shared"},
    "bare masks": {"feature_projection": "none"},
    "straight through": {"scale_by_probability": "straight-through"},
    "before": {"norm_place": "before", "readout": "log-sum", "dropout": 0.2},
    "mlp": {"discriminator": "mlp"},
    "mlp, nce": {"discriminator": "mlp", "bound": "nce", "contrast": "global-global"},
    "mixed": {"normalisation": "graph-pairs", "projection": False, "base_layers": 1},
}


def _config(**more: Any) -> Config:
    known = {"hidden": 8, "layers": 2, "hops": 2, "ratio": 0.6, "temperature": 0.8}
    return Config.make(known, **more)


def _compare(
    config: Config, draw: tuple[int, int], coin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graphs(3)
    model = build(config, graph.num_features).to(DEVICE)
    assert isinstance(model, LG2AR)
    order, key = [4, 1, 0, 3], 123456789012
    step, weights, running, result = _fast_step(
        config, [model], graph, [order], [key], [coin], draw
    )
    batch = GraphStore(graph, DEVICE).select(order)
    script = Script(monkeypatch, key, draw)
    source = model.base_encoder.prepare(batch)
    for view, place in enumerate(draw):
        script.expect(source, int(step.kind_of[place]), view)
    if config.dropout:
        model.base_encoder.register_forward_pre_hook(
            lambda _, inputs: setattr(script, "rows", inputs[0].origin)
        )
        monkeypatch.setattr(encoders, "dropout", _dropout(script, config))
    output = model(batch)
    output.loss.backward()
    torch.testing.assert_close(result.loss[0], output.loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        result.probabilities[0], output.draw.probabilities, rtol=1e-3, atol=1e-4
    )
    edges = sum(view.num_edges for view in output.views)
    total = sum(float(view.weights().detach().sum()) for view in output.views)
    torch.testing.assert_close(
        result.edges[0].cpu().float(), torch.tensor([edges, total], dtype=torch.float32)
    )
    parts = {"base": model.base_encoder, "augmentation": model.augmentation_encoder}
    resting = parts["augmentation" if coin else "base"]
    still = {id(p) for p in resting.parameters()}
    for name, p in model.named_parameters():
        stepped = bool(result.stepped[0, step.part(name)])
        assert stepped == (p.grad is not None and id(p) not in still), name
        if p.grad is not None:
            found = weights[name].grad
            assert found is not None, name
            scale = float(p.grad.abs().max()) + 1e-3
            torch.testing.assert_close(found[0], p.grad, rtol=1e-3, atol=2e-4 * scale, msg=name)
    for name, buffer in model.named_buffers():
        if "running" in name:
            torch.testing.assert_close(running[name][0], buffer, rtol=1e-4, atol=1e-5)


ALL = [(i, j) for i in range(5) for j in range(5)]
SOME = [(0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (4, 2), (2, 2), (3, 1)]


@pytest.mark.parametrize("draw", ALL if DEVICE.type == "cuda" else SOME)
def test_step_agrees_with_the_plain_one_for_every_draw(
    draw: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _compare(_config(), draw, sum(draw) % 2, monkeypatch)


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("printed", (1, 2)),
        ("printed", (3, 4)),
        ("one", (3, 2)),
        ("graphs", (1, 4)),
        ("pairs", (2, 0)),
        ("nce", (4, 0)),
        ("nce", (0, 0)),
        ("dv", (4, 3)),
        ("before", (1, 2)),
        ("before", (3, 4)),
        ("mlp", (1, 2)),
        ("mlp, nce", (3, 0)),
        ("mixed", (2, 1)),
    ],
)
def test_step_agrees_with_the_plain_one_for_every_setting(
    name: str, draw: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _compare(_config(**SETTINGS[name]), draw, 1, monkeypatch)


def test_fewer_heads_agree_with_the_plain_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for heads, draw in ((("edge-perturbation", "identity"), (0, 1)), (("sub-graph",), (0, 0))):
        with monkeypatch.context() as patch:
            _compare(_config(heads=heads), draw, 0, patch)


def test_scores_can_be_taken_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "BLOCK", 1)
    monkeypatch.setattr(objective, "ROWS", 8)
    _compare(_config(), (1, 2), 1, monkeypatch)


def test_infograph_agrees_with_the_plain_step() -> None:
    config = _config(method="infograph")
    graph = random_graphs(3)
    model = build(config, graph.num_features).to(DEVICE)
    data = PairData(graph, config.ratio, DEVICE)
    x, structure = _batch(data, [[4, 1, 0, 3]])
    weights, running = _weights([model]), _running([model])
    nothing = torch.zeros(1, device=DEVICE, dtype=torch.long)
    step = Step(config, data.wanted, data.search)
    result = step(weights, running, x, structure, nothing, nothing + 1)
    result.loss.sum().backward()  # type: ignore[no-untyped-call]
    output = model(GraphStore(graph, DEVICE).select([4, 1, 0, 3]))
    output.loss.backward()
    torch.testing.assert_close(result.loss[0], output.loss, rtol=1e-4, atol=1e-5)
    for name, p in model.named_parameters():
        assert p.grad is not None
        grad = weights[name].grad
        assert grad is not None
        torch.testing.assert_close(grad[0], p.grad, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize(("runs", "steps", "hidden"), [(1, 5, 8), (3, 4, 40)])
def test_recurrence_is_a_gru(runs: int, steps: int, hidden: int) -> None:
    torch.manual_seed(0)
    grus = [nn.GRU(6, hidden).to(DEVICE) for _ in range(runs)]
    weights = _weights(grus)
    x = torch.randn(runs, steps, 6, device=DEVICE, requires_grad=True)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    last = captured_gru(1, x, *(weights[name] for name in names))
    target = torch.randn(runs, hidden, device=DEVICE)
    (last * target).sum().backward()  # type: ignore[no-untyped-call]
    for run, gru in enumerate(grus):
        own = x[run].detach().requires_grad_()
        _, expected = gru(own.unsqueeze(1))
        torch.testing.assert_close(last[run], expected.flatten(), rtol=1e-4, atol=1e-5)
        (expected.flatten() * target[run]).sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad[run], own.grad, rtol=1e-4, atol=1e-5)
        for name in names:
            grad = weights[name].grad
            assert grad is not None
            wanted = getattr(gru, name).grad
            torch.testing.assert_close(grad[run], wanted, rtol=1e-4, atol=1e-5)


def test_hubs_hear_all_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "HUB", 2)
    graph = random_graphs(7)
    data = PairData(graph, 0.8, DEVICE)
    order = list(range(graph.num_graphs))
    x, structure = _batch(data, [order])
    structure = dataclasses.replace(structure, hubs=True)
    assert data.largest_degree > 2
    mask = (structure.home < structure.B).unsqueeze(1).to(torch.int8)
    weight = torch.rand(1, 1, structure.P, device=DEVICE)
    n, source = graph.num_nodes, graph.edge_index[0]
    for own in (None, weight):
        found = network.aggregate(x.unsqueeze(1), structure, Cut(mask, own), 1)[0, 0, :n]
        of_edge = None
        if own is not None:
            numbers = {
                (int(u), int(v)): int(p)
                for p, (u, v) in enumerate(zip(structure.u[0], structure.v[0], strict=True))
                if structure.graph_of_pair[0, p] < structure.B
            }
            ends = [tuple(sorted(pair)) for pair in graph.edge_index.t().tolist()]
            of_edge = own[0, 0][[numbers[pair] for pair in ends]]
            assert len(of_edge) == len(source)
        expected = graph.x + pass_messages(graph.x, graph.edge_index, of_edge)
        torch.testing.assert_close(found, expected)


def _trainers(seeds: list[int], **more: Any) -> list[CapturedTrainer]:
    graph = random_graphs(5, 6)
    known: dict[str, Any] = {"batch_size": 3, "epochs": 2, "learning_rate": 0.01, "layers": 1}
    configs = [_config(**{**known, **more}, seed=seed) for seed in seeds]
    models = [build(config, graph.num_features).to(DEVICE) for config in configs]
    return captured_trainers(models, configs, graph, DEVICE)


def test_a_run_becomes_what_it_would_have_become_alone() -> None:
    together, alone = _trainers([3, 4]), _trainers([4])[0]
    for _ in range(2):
        run_epoch_together(together)
    alone.fit(lambda _: [], 2)
    for ours, own in zip(together[1].history, alone.history, strict=True):
        assert ours.loss == pytest.approx(own.loss, rel=TOLERANCE)
        assert (ours.draws, ours.base_steps, ours.steps) == (own.draws, own.base_steps, own.steps)
    if DEVICE.type == "cpu":  # a GPU multiplies many matrices in another order than one
        for name, value in alone.result().items():
            assert torch.equal(together[1].result()[name], value), name


def test_runs_beside_each_other_become_what_they_would_have_become_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With fewer lanes than stacks, so that some take turns."""
    monkeypatch.setattr(trainer_module, "arrange", lambda runs, *_: [1] * runs)
    monkeypatch.setattr(trainer_module, "lanes_on", lambda *_: 2)
    beside = _trainers([3, 4, 5], hidden=2)
    assert [t.engine.lane for t in beside] == [Lane(0, 2), Lane(1, 2), Lane(0, 2)]
    run_epoch_together(beside)
    for ours in beside:
        (own,) = _trainers([ours.engine.seeds[0]], hidden=2)
        own.fit(lambda _: [], 1)
        for one, other in zip(ours.history, own.history, strict=True):
            assert one.loss == pytest.approx(other.loss, rel=TOLERANCE)
            assert (one.draws, one.base_steps) == (other.draws, other.base_steps)
        if DEVICE.type == "cpu":
            for name, value in own.result().items():
                assert torch.equal(ours.result()[name], value), name


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("stacks", [[3, 3], [1] * 6])
def test_lanes_at_the_same_time_do_what_they_do_in_turns(
    stacks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit: lanes that wrote into each other's memory would differ."""
    monkeypatch.setattr(trainer_module, "arrange", lambda *_: stacks)
    graph = random_graphs(150, 30)
    settings: dict[str, Any] = {"batch_size": 32, "learning_rate": 0.01, "layers": 3, "hidden": 64}
    configs = [_config(**settings, seed=seed) for seed in range(6)]
    found = []
    for at_once in (True, False):
        models = [build(config, graph.num_features).to(DEVICE) for config in configs]
        trainers = captured_trainers(models, configs, graph, DEVICE)
        engines = dict.fromkeys(trainer.engine for trainer in trainers)
        assert [engine.lane.of for engine in engines] == [min(5, len(stacks))] * len(stacks)
        groups = (
            [trainers] if at_once else [[t for t in trainers if t.engine is e] for e in engines]
        )
        losses = [
            [record.loss for group in groups for record in run_epoch_together(group)]
            for _ in range(4)
        ]
        found.append((losses, [trainer.result() for trainer in trainers]))
    (losses, weights), (expected, others) = found
    assert losses == expected
    for own, other in zip(weights, others, strict=True):
        for name, value in own.items():
            assert torch.equal(value, other[name]), name


def test_small_runs_are_stacked_and_large_ones_are_not() -> None:
    graph = random_graphs(5, 6)
    config = _config(batch_size=5)
    assert arrangement.arrange(3, config, graph) == [3]
    assert arrangement.arrange(10, config, graph) == [5, 5]
    assert arrangement.arrange(7, config, graph) == [4, 3]
    assert not arrangement.busy(config, graph)
    large = config.replace(hidden=1 << 16, layers=64)
    assert arrangement.arrange(7, large, graph) == [1] * 7
    assert [arrangement.lane_of(place, 7, 5).place for place in range(7)] == [0, 1, 2, 3, 4, 0, 1]
    assert arrangement.lane_of(1, 2, 5) == Lane(1, 2)


@pytest.mark.parametrize("processors", [4, 40, 108, 132])
@pytest.mark.parametrize("processes", [1, 3])
def test_programs_of_all_lanes_find_room_together(
    processors: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GRU's programs wait for each other: one that is not on the device would never come."""
    properties = types.SimpleNamespace(multi_processor_count=processors)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setenv(devices.SHARERS, str(processes))
    device, alone = torch.device("cuda"), arrangement.UNITS
    for hidden in (32, 256, 512, 2048):
        for lanes in range(1, arrangement.lanes_on(device, hidden) + 1):
            waves = recurrence._waves(10, hidden, device, lanes)
            assert sorted(i for wave, *_ in waves for i in range(10)[wave]) == list(range(10))
            for wave, units, programs in waves:
                assert units * programs >= hidden
                assert (wave.stop - wave.start) * programs * lanes * processes <= processors
                if lanes > 1:  # the same programs as alone
                    assert units == alone


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped() -> None:
    whole, first, second = (_trainers([1])[0] for _ in range(3))
    whole.fit(lambda _: [], 2)
    first.fit(lambda _: [], 1)
    second.restore(*first.state())
    second.fit(lambda _: [], 2)
    assert [r.loss for r in second.history] == [r.loss for r in whole.history]
    for name, value in whole.result().items():
        assert torch.equal(second.result()[name], value), name


def test_weights_are_stepped_as_adam_steps_them() -> None:
    (trainer,) = _trainers([2], batch_size=6, weight_decay=0.1, clip=0.5, epochs=1)
    engine = trainer.engine
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.fit(lambda _: [], 1)
    after = {name: p.detach().clone() for name, p in trainer.result().items()}
    stepped = engine.counts[0].bool().tolist()
    own: dict[str, nn.Parameter] = {}
    for name, value in before.items():
        if stepped[engine.step.part(name)]:
            own[name] = nn.Parameter(value)
            own[name].grad = engine._own(engine.grads, 0, name).clone()
        else:
            assert torch.equal(after[name], value), name
    assert 0 < len(own) < len(before)
    nn.utils.clip_grad_norm_(own.values(), 0.5)
    torch.optim.Adam(own.values(), lr=0.01, weight_decay=0.1).step()
    for name, p in own.items():
        torch.testing.assert_close(after[name], p.detach(), rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("more", [{"hidden": 2}, {"hidden": 4, "method": "infograph"}])
def test_weights_fewer_than_a_gap_get_their_own_gradients(more: dict[str, Any]) -> None:
    (trainer,) = _trainers([2], batch_size=6, epochs=1, **more)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.fit(lambda _: [], 1)
    engine = trainer.engine
    assert engine.grads.shape == engine.weights.shape
    for name, value in trainer.result().items():
        if name in before:  # Adam's first step goes against the sign of the gradient
            grad = engine._own(engine.grads, 0, name)
            moved = value - before[name]
            assert bool((moved * grad <= 0).all()), name


def test_two_draws_without_replacement_differ_even_where_one_has_all_the_chance() -> None:
    config = _config(replacement=False, policy="random")
    step = Step(config, torch.ones(1, device=DEVICE, dtype=torch.int32), 1)
    certain = torch.full((4, 5), -1e4, device=DEVICE)
    certain[:, 4] = 1e4
    step._logits = lambda *_: certain  # type: ignore[method-assign]
    keys = torch.arange(4, device=DEVICE)
    _, draw = step._draw({}, torch.zeros(4, 1, 1, device=DEVICE), keys)
    assert draw[:, 0].tolist() == [4] * 4
    assert 4 not in draw[:, 1].tolist()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of NaN
def test_a_broken_run_goes_back_to_its_last_good_epoch() -> None:
    (trainer,) = _trainers([1])
    trainer.fit(lambda _: [], 1)
    good = {name: value.clone() for name, value in trainer.result().items()}
    trainer.engine.data.x.fill_(float("nan"))
    with pytest.raises(NonFiniteLossError, match="epoch 1 is kept"):
        trainer.fit(lambda _: [], 2)
    assert trainer.epoch == 1
    for name, value in trainer.result().items():
        assert torch.equal(value, good[name]), name


def test_batches_of_several_sizes_are_padded_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "LOOK_AHEAD", 1)
    monkeypatch.setattr(engine_module, "SMALL", 0)
    both, alone = _trainers([3, 4], batch_size=2), _trainers([4], batch_size=2)[0]
    assert len(alone.engine.sizes) > 1
    run_epoch_together(both)
    alone.fit(lambda _: [], 1)
    together = both[1]
    assert together.history[0].loss == pytest.approx(alone.history[0].loss, rel=TOLERANCE)


def test_batches_that_nobody_foresaw_get_a_size_of_their_own() -> None:
    (trainer,) = _trainers([1])
    engine: Engine = trainer.engine
    engine.sizes = [Size(3, 64, 64)]
    size = engine._size(3, 100, 70)
    assert 100 <= size.nodes <= 128
    assert size.pairs >= 70
    assert engine._size(3, size.nodes, size.pairs) == size
    assert engine._size(3, 60, 60) == Size(3, 64, 64)


@pytest.mark.parametrize("scale", ["as-is", "standard"])
def test_a_captured_run_is_kept_read_and_resumed_as_any_other(
    tmp_path: Path, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Dataset(name="graphs", level="graph", graph=random_graphs(5, 6).to("cpu"))
    settings: dict[str, Any] = {"hidden": 8, "layers": 1, "batch_size": 6, "hops": 1}
    settings |= {"checkpoint_every": 1, "embedding_scale": scale}
    out, device = tmp_path / "run", str(DEVICE)
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "settle_step", lambda c, *_: c.replace(step="captured"))
        whole = experiment.pretrain(data, {**settings, "epochs": 2}, device=device)
        experiment.pretrain(data, {**settings, "epochs": 1}, out=out, device=device)
        run = experiment.pretrain(data, {"epochs": 2}, out=out, resume=True, device=device)
        many = experiment.pretrain_many(data, {**settings, "epochs": 1}, [0, 1], device=device)
    assert run.config.step == "captured"
    assert [r.loss for r in run.history] == [r.loss for r in whole.history]
    assert torch.equal(run.embed(data), whole.embed(data))
    assert torch.equal(load(out, device).embed(data), run.embed(data))
    assert many[0].history[0].loss == pytest.approx(run.history[0].loss, rel=TOLERANCE)
    assert many[1].config.seed == 1
    monkeypatch.setattr(suitability, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="step = 'captured', which cannot be done here"):
        experiment.pretrain(data, {"epochs": 3}, out=out, resume=True, device=device)


def train_by_fabric_and_plainly(team: Team) -> list[tuple[str, list[float], dict[str, Tensor]]]:
    """One process, as Fabric has it and as it is without; in a process of its own."""
    vars(suitability)["_why_not"] = lambda *_: None
    vars(engine_module).update(NODES=4, PAIRS=4)
    processes._joined = ("cpu", 1, 1), processes.Processes(team, torch.device("cpu"))
    data = Dataset(name="graphs", level="graph", graph=random_graphs(5, 6).to("cpu"))
    settings = {"hidden": 8, "layers": 1, "batch_size": 4, "hops": 1, "epochs": 2}
    ways: list[dict[str, Any]] = [{"devices": 1, "strategy": "ddp"}, {}]
    runs = [experiment.pretrain(data, settings, device="cpu", **way) for way in ways]
    return [
        (run.config.step, [r.loss for r in run.history], dict(run.model.state_dict()))
        for run in runs
    ]


@pytest.mark.skipif(DEVICE.type == "cuda", reason="tests/test_processes.py does it on a GPU")
def test_one_device_through_fabric_takes_the_captured_step_and_the_same_one() -> None:
    ((fabric, plain),) = run_team(1, train_by_fabric_and_plainly)
    assert fabric[0] == plain[0] == "captured"
    assert fabric[1] == plain[1]
    for key, value in plain[2].items():
        assert torch.equal(fabric[2][key], value), key


def test_sizes_do_not_depend_on_how_long_is_trained_or_what_came_before() -> None:
    short, long = (_trainers([1], epochs=n)[0].engine for n in (1, 40))
    assert short.sizes == long.sizes
    assert short._size(3, 500, 700) == long._size(3, 500, 700)
    long._size(3, 9000, 9000)
    assert short._size(3, 100, 70) == long._size(3, 100, 70)


def test_the_step_is_settled_and_the_reason_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = random_graphs(1).to("cpu")
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    suitability._say.cache_clear()
    assert settle_step(_config(), graph, cpu).step == "plain"
    assert not caplog.records  # nobody expects it there
    settled = settle_step(_config(), graph, cuda)
    assert (settled.step, settled.precision) == ("captured", "tf32")
    for _ in range(2):
        settled = settle_step(_config(negatives="shuffled"), graph, cuda)
        assert (settled.step, settled.precision) == ("plain", "float32")
    assert [record.message for record in caplog.records] == [
        "The plain step is used instead of the captured one: it does not know negatives = "
        "'shuffled'."
    ]
    assert settle_step(_config(step="plain"), graph, cuda).precision == "float32"
    monkeypatch.setattr(suitability, "find_spec", lambda _: None)
    assert settle_step(_config(), graph, cuda).step == "plain"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda g: {"edge_weight": torch.ones(g.num_edges)}, "weights of their own"),
        (lambda g: {"edge_attr": torch.ones(g.num_edges, 2)}, "the edges have attributes"),
        (lambda g: {"edge_index": g.edge_index[:, 1:]}, "one direction"),
        (lambda g: {"edge_index": g.edge_index.repeat(1, 2)}, "repeated"),
        (
            lambda g: {"edge_index": torch.cat([g.edge_index, torch.zeros(2, 1).long()], 1)},
            "self-loops",
        ),
    ],
)
def test_unsuitable_data_is_told_apart(
    change: Callable[[GraphBatch], dict[str, Any]], reason: str
) -> None:
    graph, cpu = random_graphs(1).to("cpu"), torch.device("cpu")
    assert suitability.unsuitable(graph, _config(), cpu) is None
    assert reason in str(suitability.unsuitable(graph.replace(**change(graph)), _config(), cpu))
