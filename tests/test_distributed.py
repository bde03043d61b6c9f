"""Two and four processes do what one does with the whole batch: loss, gradients, weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lg2ar import distributed
from lg2ar.bench.scaling import step_bytes
from lg2ar.config import Config
from lg2ar.data.batches import as_store
from lg2ar.data.conversion import write_on_disk
from lg2ar.data.on_disk import read_on_disk
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.distributed import Team, together
from lg2ar.errors import InputError
from lg2ar.experiment import make_batches
from lg2ar.fast import suitability
from lg2ar.graph import GraphBatch
from lg2ar.layers import BatchNorm
from lg2ar.methods import build
from lg2ar.processes import Processes, join
from lg2ar.training import Trainer
from teams import run_team

CPU = torch.device("cpu")
SIZES = (2, 4)
# In double precision a sum in another order differs by 1e-16 or so; ten steps of Adam, which
# divides by the size of a gradient, leave weights that differ by less than this.
WEIGHTS, LOSSES, GRADIENTS = 1e-9, 1e-12, 1e-10
# A constant added to the logits of a softmax, or to what is normalised over the batch: its
# gradient is rounding alone, and Adam divides it by its own size.
IDLE = "mlp.rest.1.bias"
SMALL = {"hidden": 8, "layers": 2}
# 122 graphs in batches of 30: the last batch has two, fewer than four processes can share.
GRAPHS = {**SMALL, "batch_size": 30, "epochs": 2, "dropout": 0.1}
# Seven sub-graphs can be shared out evenly by none.
NODES = {**SMALL, "level": "node", "batch_size": 7, "epochs": 10, "patience": 0}


@dataclass
class Trained:
    """What a run of some steps left behind."""

    losses: list[float]
    draws: list[list[list[int]]]
    edge_weights: list[float]
    gradients: list[dict[str, Tensor]]
    weights: dict[str, Tensor]


def train(
    team: Team | None, settings: dict[str, Any], data: str = "toy", dtype: Any = torch.float64
) -> Trained:
    """Train for a few epochs and keep every step's gradients."""
    config = Config.make(settings)
    graph = source(data, config.level, dtype)
    model = build(config, graph.num_features, graph.num_edge_features).to(dtype)
    trainer = Trainer(model, learning_rate=config.learning_rate, clip=config.clip, team=team)
    gradients: list[dict[str, Tensor]] = []
    step = trainer.step

    def watched(batch: GraphBatch) -> Any:
        output = step(batch)
        weights = dict(model.named_parameters())
        gradients.append({k: p.grad.clone() for k, p in weights.items() if p.grad is not None})
        return output

    trainer.step = watched  # type: ignore[method-assign]
    trainer.fit(make_batches(as_store(graph), config), config.epochs)
    return Trained(
        losses=[record.loss for record in trainer.history],
        draws=[record.draws for record in trainer.history],
        edge_weights=[record.mean_edge_weight for record in trainer.history],
        gradients=gradients,
        weights={key: value.clone() for key, value in model.state_dict().items()},
    )


def source(data: str, level: str, dtype: torch.dtype) -> GraphBatch:
    if data.endswith(".sqlite"):
        return read_on_disk(Path(data)).graph
    if level == "node":
        return toy_nodes(120).graph.to("cpu", dtype)
    graph = toy_graphs(122).graph.to("cpu", dtype)
    return uneven(graph) if data == "uneven" else graph


def uneven(graph: GraphBatch) -> GraphBatch:
    """Self-loops, repeated and one-way edges, weights and attributes; some graphs have no edge."""
    chance = np.random.default_rng(0)
    source, target = graph.edge_index.numpy()
    kept = (chance.random(len(source)) < 0.8) & (graph.batch.numpy()[source] % 5 > 0)
    loops = chance.integers(0, graph.num_nodes, 60)
    edges = np.concatenate([np.stack([source, target])[:, kept], np.stack([loops, loops])], axis=1)
    edges = np.concatenate([edges, edges[:, ::7]], axis=1)
    number = edges.shape[1]
    return graph.replace(
        edge_index=torch.from_numpy(edges),
        edge_weight=torch.from_numpy(chance.random(number)).to(graph.x.dtype),
        edge_attr=torch.from_numpy(chance.normal(size=(number, 2))).to(graph.x.dtype),
    )


def assert_same(together: Trained, alone: Trained) -> None:
    assert together.draws == alone.draws
    assert together.losses == pytest.approx(alone.losses, abs=LOSSES, rel=LOSSES)
    assert together.edge_weights == pytest.approx(alone.edge_weights, abs=LOSSES)
    for mine, theirs in zip(together.gradients, alone.gradients, strict=True):
        assert mine.keys() == theirs.keys()  # the heads that were not drawn have none
        for key in theirs:
            assert torch.allclose(mine[key], theirs[key], rtol=GRADIENTS, atol=GRADIENTS), key
    for key in alone.weights:
        if not key.endswith(IDLE):
            far = (together.weights[key] - alone.weights[key]).abs().max()
            assert float(far) < WEIGHTS, key


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("settings", [GRAPHS, NODES], ids=["graph level", "node level"])
def test_ten_steps_equal_those_of_one_process(settings: dict[str, Any], size: int) -> None:
    alone = train(None, settings)
    assert len(alone.gradients) == 10
    drawn = {tuple(sorted(step)) for step in alone.gradients}
    assert len(drawn) > 3, "these steps are to leave different parts without a gradient"
    for trained in run_team(size, train, settings):
        assert_same(trained, alone)


# Every part that draws, normalises or looks at the whole batch.
VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"head {name}": ({"heads": [name]}, "uneven")
        for name in ("node-dropping", "edge-perturbation", "sub-graph", "feature-masking")
    },
    "policy deepset": ({"policy": "deepset", "clip": 0.5}, "toy"),
    "policy random": ({"policy": "random", "replacement": False}, "toy"),
    "bound nce": ({"bound": "nce", "normalisation": "pairs"}, "toy"),
    "bound nt-xent": ({"bound": "nt-xent", "contrast": "global-global"}, "toy"),
    "bound dv": ({"bound": "dv"}, "toy"),
    "bound dv, shuffled": ({"bound": "dv", "negatives": "shuffled"}, "toy"),
    "graph-pairs": ({"normalisation": "graph-pairs"}, "toy"),
    "pairs": ({"normalisation": "pairs"}, "toy"),
    "shuffled": ({"negatives": "shuffled"}, "toy"),
    "discriminator mlp": ({"discriminator": "mlp"}, "toy"),
    "discriminator cosine": ({"discriminator": "cosine"}, "toy"),
    "discriminator bilinear": ({"discriminator": "bilinear"}, "toy"),
    "shared projection": ({"feature_projection": "shared", "readout": "log-sum"}, "toy"),
    "gcn": ({"base_encoder": "gcn", "norm_place": "before"}, "uneven"),
    "infograph": ({"method": "infograph"}, "toy"),
    "infograph, pairs": ({"method": "infograph", "normalisation": "pairs"}, "toy"),
    "graphcl": ({"method": "graphcl"}, "uneven"),
}


def train_variants(team: Team | None) -> dict[str, Trained]:
    """Three steps of each: of 122 graphs in batches of 60, the last one has two."""
    return {
        name: train(team, {**GRAPHS, "batch_size": 60, "epochs": 1, **settings}, data)
        for name, (settings, data) in VARIANTS.items()
    }


def test_every_part_sees_the_whole_batch() -> None:
    alone = train_variants(None)
    for trained in run_team(3, train_variants):
        for name in VARIANTS:
            try:
                assert_same(trained[name], alone[name])
            except AssertionError as error:
                raise AssertionError(name) from error


def test_graphs_on_a_disk_are_shared_out_too(tmp_path: Path) -> None:
    path = str(tmp_path / "data.sqlite")
    write_on_disk(path, toy_graphs(62))
    settings = {**GRAPHS, "epochs": 1}
    alone = train(None, settings, path, torch.float32)
    (together, *_) = run_team(4, train, settings, path, torch.float32)
    assert together.losses == pytest.approx(alone.losses, rel=1e-4)


def test_in_single_precision_ten_steps_stay_close() -> None:
    """Rounding grows from step to step, as between any two machines; by how much is stated here."""
    alone = train(None, GRAPHS, dtype=torch.float32)
    for trained in run_team(2, train, GRAPHS, "toy", torch.float32):
        assert trained.draws == alone.draws
        assert trained.losses == pytest.approx(alone.losses, rel=1e-3)
        first, same = trained.gradients[0], alone.gradients[0]
        for key in same:
            assert torch.allclose(first[key], same[key], rtol=1e-3, atol=1e-5), key


def test_blocks_of_scores_do_not_change_what_processes_do_together() -> None:
    alone = train(None, NODES)
    for trained in run_team(2, train_in_blocks, NODES):
        assert_same(trained, alone)


def train_in_blocks(team: Team, settings: dict[str, Any]) -> Trained:
    """One process makes its scores in blocks, the other at once."""
    from lg2ar import model

    if team.rank == 0:
        model.BLOCK = 64
    return train(team, settings)


# What they exchange, one by one.


def gather_rows(team: Team) -> tuple[Tensor, Tensor]:
    rows = torch.full((team.rank, 2), float(team.rank), requires_grad=True)  # none, one, two
    with together(team):
        whole = distributed.everyone(rows)
    (whole * torch.arange(1.0, 4.0).unsqueeze(1) * (1 + team.rank)).sum().backward()  # type: ignore[no-untyped-call]
    assert rows.grad is not None
    return whole.detach(), rows.grad


def test_rows_are_gathered_unevenly_with_the_sum_of_gradients() -> None:
    found = run_team(3, gather_rows)
    for whole, _ in found:
        assert whole.tolist() == [[1, 1], [2, 2], [2, 2]]
    # Every process counts 1 + its rank times: six times in all.
    assert [gradient.tolist() for _, gradient in found] == [
        [],
        [[6.0, 6.0]],
        [[12.0, 12.0], [18.0, 18.0]],
    ]


def draw_own(team: Team) -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    with together(team):
        own = distributed.own_rows(lambda rows: torch.rand(rows, 3), [2, 0, 3][team.rank])
    return own, torch.rand(1)


def test_noise_is_that_of_one_process_and_so_is_what_follows() -> None:
    parts = run_team(3, draw_own)
    torch.manual_seed(5)
    assert torch.equal(torch.cat([own for own, _ in parts]), torch.rand(5, 3))
    following = torch.rand(1)
    assert all(torch.equal(later, following) for _, later in parts)


def add_up_gradients(team: Team) -> list[Tensor | None]:
    weights = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    weights[0].grad = torch.full((2,), 1.0 + team.rank)
    if team.rank == 1:  # a part that only one process has used
        weights[1].grad = torch.tensor([3.0, 4.0])
    with together(team):
        distributed.sum_gradients(weights)
    return [weight.grad for weight in weights]


def test_a_part_that_some_process_used_has_a_gradient_everywhere_and_others_have_none() -> None:
    for first, second, third in run_team(2, add_up_gradients):
        assert first.tolist() == [3, 3]
        assert second.tolist() == [3, 4]
        assert third is None


def draw_differently(team: Team) -> list[int]:
    with together(team):
        return distributed.same([team.rank, 7])


def test_all_take_the_draw_of_the_first() -> None:
    assert run_team(3, draw_differently) == [[0, 7]] * 3


def normalise_rows(team: Team, number: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(number, 3, generator=generator, dtype=torch.float64) + 100
    own = torch.tensor_split(x, team.size)[team.rank].requires_grad_()
    norm = BatchNorm(3).double()
    with together(team):
        y = norm(own)
    (y * y.detach().cos()).sum().backward()
    assert own.grad is not None
    return y.detach(), own.grad, norm.state_dict()


@pytest.mark.parametrize("number", [7, 3, 1])
def test_normalisation_is_over_the_rows_of_all(number: int) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(number, 3, generator=generator, dtype=torch.float64) + 100
    x.requires_grad_()
    norm = BatchNorm(3).double()
    y = norm(x)
    (y * y.detach().cos()).sum().backward()
    found = run_team(4, normalise_rows, number)
    assert x.grad is not None
    assert torch.allclose(torch.cat([part for part, *_ in found]), y, atol=1e-12)
    assert torch.allclose(torch.cat([part for _, part, _ in found]), x.grad, atol=1e-10)
    for *_, state in found:
        for key, value in norm.state_dict().items():
            assert torch.allclose(state[key], value, atol=1e-12), key


def share_out(team: Team, number: int) -> list[int]:
    with together(team):
        mine: list[int] = distributed.own_share(np.arange(number)).tolist()
    return mine


def test_shares_differ_by_one_at_most_and_may_be_empty() -> None:
    assert run_team(4, share_out, 6) == [[0, 1], [2, 3], [4], [5]]
    assert run_team(4, share_out, 2) == [[0], [1], [], []]


def test_alone_nothing_is_exchanged_or_copied() -> None:
    rows, places = torch.ones(2, 3), np.arange(4)
    assert distributed.alone()
    assert distributed.size() == 1
    assert distributed.everyone(rows) is rows
    assert distributed.all_graphs(rows) is rows
    assert distributed.total(rows) is rows
    assert distributed.own_share(places) is places
    assert distributed.own_rows(lambda number: rows[:number], 2).data_ptr() == rows.data_ptr()
    assert distributed.before(3, 4) == ([0, 0], [3, 4])
    assert distributed.share_of_graphs(3) == 1.0


# Traffic, as docs/scaling.md tells it.

KINDS = (
    "counts",
    "draws",
    "graphs",
    "graphs, gradients",
    "normalisation",
    "normalisation, gradients",
    "gradients",
    "totals",
)


@dataclass
class Spent:
    """What one step gave into exchanges, and what it was."""

    bytes: dict[str, int]
    calls: dict[str, int]
    base: bool
    weights: int
    tensors: int


def count_bytes(team: Team, settings: dict[str, Any]) -> list[Spent]:
    config = Config.make(settings)
    graph = source("toy", config.level, torch.float32)
    model = build(config, graph.num_features).train()
    trainer = Trainer(model, learning_rate=1e-3, team=team)
    steps = []
    with together(team):
        batches = make_batches(as_store(graph), config)
        # The last batch of an epoch is a small one. Sixteen coins fall on both sides.
        for batch in [batch for epoch in range(4) for batch in list(batches(epoch))[:-1]]:
            before = team.traffic.copy()
            _, base = trainer.step(batch)
            spent = team.traffic.since(before)
            parts = [*trainer.parts["base" if base else "augmentation"], *trainer.parts["always"]]
            weights = [p.numel() for part in parts for p in part.parameters()]
            given = dict(spent.bytes), dict(spent.calls)
            steps.append(Spent(*given, base, sum(weights), len(weights)))
    return steps


def test_bytes_of_a_step_follow_the_formulas() -> None:
    settings = {**GRAPHS, "heads": ["node-dropping"], "epochs": 1}
    size, batch, hidden, layers = 2, 30, 8, 2
    for steps in run_team(size, count_bytes, settings):
        assert len(steps) == 16
        assert {step.base for step in steps} == {True, False}
        spent: dict[bool, dict[str, int]] = {}
        for step in steps:
            back = 2 if step.base else 3  # a resting augmentation encoder wants no gradient
            assert step.bytes["graphs"] == 3 * 4 * (batch // size) * hidden
            assert step.bytes["graphs, gradients"] == back * 4 * batch * hidden
            assert step.bytes["normalisation"] == 3 * layers * 4 * 2 * hidden
            assert step.bytes["normalisation, gradients"] == back * layers * 4 * 2 * hidden * size
            assert step.bytes["gradients"] == 4 * (step.weights + step.tensors)
            assert step.bytes["draws"] == 8 * (1 + 2)
            spent[step.base] = step.bytes
            assert step.bytes["counts"] == 8 * (1 + 3 + 2)  # graphs, encoders, the heads' noise
        foretold = step_bytes(Config.make(settings), toy_graphs(2).graph.num_features, size)
        for kind, number in foretold.items():
            assert number == (spent[True][kind] + spent[False][kind]) / 2, kind


# How often heads ask how much the others have, for their noise.
COUNTS = {
    "identity": 0,
    "node-dropping": 1,
    "sub-graph": 1,
    "feature-masking": 2,
    "edge-perturbation": 3,
}


@pytest.mark.parametrize("head", COUNTS)
def test_exchanges_of_a_step_are_as_many_as_the_page_says(head: str) -> None:
    settings = {**GRAPHS, "heads": [head], "epochs": 1, "layers": 2}
    for steps in run_team(2, count_bytes, settings):
        assert len(steps) == 16
        for step in steps:
            assert step.calls.pop("counts") == 1 + 3 + 2 * COUNTS[head]
            # Of views that are the graphs themselves no gradient leads to the augmentation encoder.
            back = 2 if step.base else 1 if head == "identity" else 3
            assert step.calls == {
                "draws": 2,
                "graphs": 3,
                "graphs, gradients": back,
                "normalisation": 3 * 2,
                "normalisation, gradients": back * 2,
                "gradients": 1,
            }


# Who speaks, and what is refused.


def disagree(team: Team) -> str:
    processes = Processes(team, CPU)
    processes.agree("settings", "the same")
    try:
        processes.agree("data", team.rank == 2)
    except InputError as error:
        return str(error)
    return ""


def test_processes_that_have_other_data_are_named() -> None:
    for sentence in run_team(3, disagree):
        assert sentence.startswith("process 2 of 3 has other data than process 0;")


def test_the_captured_step_is_for_one_device(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(suitability, "_why_not", lambda *_: None)
    suitability._say.cache_clear()
    graph, config, cuda = toy_graphs(4).graph, Config.make(), torch.device("cuda")
    assert suitability.settle_step(config, graph, cuda, 1).step == "captured"
    for _ in range(2):
        settled = suitability.settle_step(config, graph, cuda, 2)
        assert (settled.step, settled.precision) == ("plain", "float32")
    said = [record.message for record in caplog.records]
    assert said == [
        "The plain step is used instead of the captured one: it is for one device, and there are "
        "2 processes."
    ]


def test_what_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"strategy = 'fsdp' must be ddp"):
        join(CPU, 2, strategy="fsdp")
    with pytest.raises(InputError, match=r"devices = 0 must be at least 1"):
        join(CPU, 0)
    with pytest.raises(InputError, match=r"devices = 99: this machine has \d+"):
        join(torch.device("cuda"), 99)
    monkeypatch.setitem(__import__("sys").modules, "lightning_fabric", None)
    with pytest.raises(InputError, match=r"needs Lightning Fabric: pip install 'lg2ar\[fabric\]'"):
        join(CPU, 2)


def test_without_a_number_nothing_is_started() -> None:
    processes = join(CPU)
    assert processes.team is None
    assert processes.main
    assert processes.size == 1


@pytest.mark.cuda
def test_on_a_gpu_what_is_exchanged_is_what_one_process_has() -> None:
    """One GPU is a team of one; here it goes through all exchanges all the same."""
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA device")
    ((together, alone),) = run_team(1, train_insisting, backend="nccl")
    assert together == pytest.approx(alone, rel=1e-3)


def train_insisting(team: Team) -> tuple[list[float], list[float]]:
    from lg2ar import training
    from lg2ar.distributed import team as current

    @contextmanager
    def insist(team: Team | None) -> Iterator[None]:
        current._team = team  # even where it has no other
        yield
        current._team = None

    vars(training)["together"] = insist
    losses = []
    for used in (team, None):
        config = Config.make(GRAPHS)
        graph = source("toy", "graph", torch.float32).to(team.device)
        model = build(config, graph.num_features).to(team.device)
        trainer = Trainer(model, learning_rate=1e-3, team=used)
        trainer.fit(make_batches(as_store(graph, team.device), config), config.epochs)
        losses.append([record.loss for record in trainer.history])
    assert not team.traffic.calls.keys() - set(KINDS), team.traffic.calls
    assert team.traffic.calls["graphs, gradients"]
    return losses[0], losses[1]


def test_a_team_of_one_goes_through_all_exchanges_and_stays_what_it_is() -> None:
    ((together, alone),) = run_team(1, train_insisting)
    assert together == pytest.approx(alone, rel=1e-3)
