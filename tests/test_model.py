"""LG2AR as a whole: Algorithm 1 on one batch."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lg2ar.config import HEAD_NAMES, Config
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch
from lg2ar.heads import EdgePerturbation, FeatureMasking, Identity, NodeDropping, SubGraph
from lg2ar.model import LG2AR, StepOutput, build, build_head, scale_of
from lg2ar.policy import Draw, Policy
from lg2ar.training import Trainer
from reference import make_graph
from strategies import edges_per_graph, graph_batches, sizes

WIDTH = 8
CONTRASTS = ("local-global", "global-global")
DISCRIMINATORS = ("dot", "cosine", "bilinear", "mlp")
BOUNDS = ("jsd", "nce", "nt-xent", "dv")
POLICIES = ("gru", "deepset", "random")
every_contrast = pytest.mark.parametrize("contrast", CONTRASTS)
every_discriminator = pytest.mark.parametrize("discriminator", DISCRIMINATORS)
every_bound = pytest.mark.parametrize("bound", BOUNDS)


def shapes(numbers: Iterable[int]) -> GraphBatch:
    """Rings, cliques and binary trees in turn, of four to eight nodes, with one-hot degrees."""
    home: list[int] = []
    edges: list[tuple[int, int]] = []
    for place, k in enumerate(numbers):
        n, first = 4 + k % 5, len(home)
        ring = [(v, (v + 1) % n) for v in range(n)]
        clique = list(combinations(range(n), 2))
        tree = [((v - 1) // 2, v) for v in range(1, n)]
        for u, v in (ring, clique, tree)[k % 3]:
            edges += [(first + u, first + v), (first + v, first + u)]
        home += [place] * n
    edge_index = torch.tensor(edges).T.contiguous()
    degree = torch.bincount(edge_index[0], minlength=len(home))
    return GraphBatch(
        x=F.one_hot(degree, WIDTH).float(),
        edge_index=edge_index,
        batch=torch.tensor(home),
        num_graphs=home[-1] + 1,
    )


def config(**more: Any) -> Config:
    """Small settings, changed by those given; read-outs large enough to move in a few steps."""
    known: dict[str, Any] = {"hidden": 16, "layers": 2, "norm_place": "after"}
    if more.get("level") != "node":
        known["readout"] = "sum"
    return Config.make(known, **more)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def step(model: LG2AR, graph: GraphBatch, seed: int = 0) -> StepOutput:
    output: StepOutput = model(graph, generator(seed))
    return output


def stepped_back(model: LG2AR, graph: GraphBatch, seed: int = 0) -> StepOutput:
    """One step and its gradients."""
    model.zero_grad()
    output = step(model, graph, seed)
    output.loss.backward()  # type: ignore[no-untyped-call]
    return output


def gradients(module: nn.Module) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def assert_reached(module: nn.Module, without: Sequence[str] = ()) -> None:
    """Every parameter, but those named, has a gradient that is finite and not zero."""
    for name, gradient in gradients(module).items():
        if name not in without:
            assert gradient is not None, name
            assert bool(gradient.isfinite().all()), name
            assert gradient.abs().max() > 0, name


def is_unreached(module: nn.Module) -> bool:
    return all(gradient is None for gradient in gradients(module).values())


class Chosen(Policy):
    """Always the same draw, with the probabilities it is given."""

    def __init__(self, num_heads: int, i: int, j: int, p_i: float, p_j: float) -> None:
        super().__init__(num_heads)
        self.choice = i, j, p_i, p_j

    def logits(self, graphs: Tensor) -> Tensor:
        return graphs.new_zeros(self.num_heads)

    def forward(self, graphs: Tensor, generator: torch.Generator | None = None) -> Draw:
        i, j, p_i, p_j = self.choice
        equal = self.logits(graphs).softmax(-1)
        return Draw(i, j, graphs.new_tensor(p_i), graphs.new_tensor(p_j), equal)


def with_draw(model: LG2AR, i: int, j: int, p_i: float = 1.0, p_j: float = 1.0) -> LG2AR:
    model.policy = Chosen(len(model.heads), i, j, p_i, p_j)
    return model


# Building.


def test_the_seed_fixes_the_weights() -> None:
    torch.manual_seed(1)
    one = build(config(seed=7), WIDTH).state_dict()
    torch.manual_seed(2)
    two, three = (
        build(config(seed=7), WIDTH).state_dict(),
        build(config(seed=8), WIDTH).state_dict(),
    )
    assert list(one) == list(two) == list(three)
    assert all(torch.equal(one[name], two[name]) for name in one)
    matrices = [name for name in one if one[name].dim() == 2]
    assert matrices
    assert not any(torch.equal(one[name], three[name]) for name in matrices)


def test_building_leaves_the_random_state_alone() -> None:
    state = torch.get_rng_state()
    build(config(seed=7), WIDTH)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("output", "read"), [("last", 1), ("layers", 2), ("features-and-layers", 3)]
)
def test_what_is_read_of_a_gcn_is_a_setting(output: str, read: int) -> None:
    chosen = Config.make(level="node", hidden=8, base_layers=2, gcn_output=output)
    model = build(chosen, 5)
    assert model.base_encoder.out_features == 8 * read
    rows = torch.zeros(3, 8 * read)
    assert model.discriminator(rows, rows, torch.ones(()), torch.ones(())).shape == (3, 3)


def test_smoothing_is_a_setting_of_a_gcn_and_adds_no_weight() -> None:
    plain = Config.make(level="node", hidden=8)
    model, smoothed = (build(one, 5) for one in (plain, plain.replace(smoothing=3)))
    assert len(smoothed.base_encoder.network.convs) == 1 + 3
    assert smoothed.state_dict().keys() == model.state_dict().keys()


def test_averaged_features_stand_beside_embeddings_alone() -> None:
    plain = Config.make(level="node", hidden=8, embedding_scale="unit")
    model, averaged = (build(one, 3) for one in (plain, plain.replace(averaged_features=2)))
    assert averaged.state_dict().keys() == model.state_dict().keys()
    graph = make_graph("random many").to("cpu", torch.float32)
    encoder = averaged.base_encoder.eval()
    assert torch.equal(encoder(graph).nodes, model.base_encoder.eval()(graph).nodes)
    assert torch.equal(encoder(graph).graphs, model.base_encoder(graph).graphs)
    mixed = torch.eye(graph.num_nodes)
    edges, weights = graph.edge_index, graph.weights()
    mixed.index_put_((edges[1], edges[0]), weights, accumulate=True)
    by_root = mixed.sum(dim=1).rsqrt()
    mixed = by_root[:, None] * mixed * by_root
    wanted = torch.cat([mixed @ mixed @ graph.x, encoder.encode(graph).nodes], dim=-1)
    wanted = wanted / wanted.norm(dim=-1, keepdim=True)
    found = encoder.embed(graph).nodes
    torch.testing.assert_close(found, wanted)
    assert encoder.width() == found.size(1) == 3 + 8
    with pytest.raises(InputError, match="averaged_features = 1 stand beside the rows of nodes"):
        Config.make(averaged_features=1)


def test_the_largest_seed_builds() -> None:
    build(config(seed=2**63 - 1), WIDTH)


def test_the_policy_and_the_list_of_heads_must_agree() -> None:
    model = build(config(), WIDTH)
    with pytest.raises(ValueError, match="5 heads got 1"):
        LG2AR(
            model.augmentation_encoder,
            model.policy,
            [Identity()],
            model.base_encoder,
            model.discriminator,
        )


@pytest.mark.parametrize("level", ["graph", "node"])
def test_without_edge_attributes_nothing_is_built_for_them(level: str) -> None:
    plain = build(config(level=level), WIDTH).state_dict()
    asked = build(config(level=level), WIDTH, num_edge_features=0).state_dict()
    assert list(plain) == list(asked)
    assert all(torch.equal(plain[name], asked[name]) for name in plain)
    attributed = build(config(level=level), WIDTH, num_edge_features=3).state_dict()
    new = {name for name in attributed if name not in plain}
    assert new
    assert all("edges" in name or "network.embedding" in name for name in new)


def test_an_unknown_head_is_refused() -> None:
    with pytest.raises(ValueError, match="'rotate'"):
        build_head("rotate", config(), WIDTH)


def test_settings_arrive_at_the_parts() -> None:
    chosen = config(
        heads=HEAD_NAMES,
        ratio=0.6,
        hops=4,
        temperature=0.3,
        edge_weighting="printed",
        dropout=0.2,
        replacement=False,
        bound="nt-xent",
        bound_temperature=0.07,
    )
    model = build(chosen, WIDTH)
    _, drop, edge, sub, mask = model.heads
    assert isinstance(drop, NodeDropping)
    assert isinstance(edge, EdgePerturbation)
    assert isinstance(sub, SubGraph)
    assert isinstance(mask, FeatureMasking)
    assert (drop.ratio, sub.hops) == (0.6, 4)
    assert drop.edge_weighting == edge.edge_weighting == sub.edge_weighting == "printed"
    assert edge.temperature == mask.temperature == 0.3
    assert (model.policy.temperature, model.policy.replacement) == (0.3, False)
    assert model.base_encoder.network.dropout == model.augmentation_encoder.network.dropout == 0.2
    found = model.bound(torch.tensor([[0.07, 0.0]]), torch.tensor([[True, False]]))
    assert found.item() == pytest.approx(-math.log1p(math.exp(-1)), rel=1e-5)


@given(heads=st.lists(st.sampled_from(HEAD_NAMES), min_size=1, unique=True), seed=st.integers(0, 9))
@settings(max_examples=30)
def test_any_subset_of_heads_works(heads: list[str], seed: int) -> None:
    model = build(config(heads=heads, hidden=8), WIDTH)
    assert model.policy.num_heads == len(model.heads) == len(heads)
    output = stepped_back(model, shapes(range(4)), seed)
    assert output.draw.probabilities.shape == (len(heads),)
    assert output.draw.probabilities.sum().item() == pytest.approx(1)
    assert {output.draw.i, output.draw.j} <= set(range(len(heads)))
    assert output.loss.isfinite()


# One step against Algorithm 1 written as loops.


def softplus(value: float) -> float:
    return math.log1p(math.exp(-abs(value))) + max(value, 0.0)


def average(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def jsd_by_loops(
    scores: list[list[float]], home: list[int], num_graphs: int, normalisation: str
) -> float:
    """Agreement of rows with graphs, term by term; ``home`` is the graph of each row."""
    graphs = range(num_graphs)

    def term(row: int, k: int) -> float:
        score = scores[row][k]
        return -softplus(-score) if home[row] == k else -softplus(score)

    if normalisation == "pairs":  # all rows alike
        rows = range(len(home))
        joint = average(term(r, home[r]) for r in rows)
        return joint + average(term(r, k) for r in rows for k in graphs if k != home[r])

    def graph_term(g: int, k: int) -> float:  # a graph's rows first
        return average(term(r, k) for r in range(len(home)) if home[r] == g)

    if normalisation == "graph-pairs":  # twice, as there are two expectations
        return 2 * average(graph_term(g, k) for g in graphs for k in graphs)
    joint = average(graph_term(g, g) for g in graphs)
    return joint + average(graph_term(g, k) for g in graphs for k in graphs if k != g)


@every_contrast
@pytest.mark.parametrize("normalisation", ["graphs", "pairs", "graph-pairs"])
@pytest.mark.parametrize("draw", [(1, 3), (2, 4), (0, 0), (3, 2)])
def test_the_loss_is_algorithm_one_written_as_loops(
    contrast: str, normalisation: str, draw: tuple[int, int]
) -> None:
    model = build(config(contrast=contrast, normalisation=normalisation, norm=False), WIDTH)
    p = {"i": 0.3, "j": 0.45}
    model = with_draw(model.double(), *draw, p["i"], p["j"])
    graph = shapes([0, 4, 8, 2, 6]).to("cpu", torch.float64)
    output = step(model, graph)

    view_i, view_j = output.views
    with torch.no_grad():
        h_i, h_j = model.base_encoder(view_i), model.base_encoder(view_j)
    agreement = 0.0
    for view, rows, p_rows, graphs, p_graphs in [
        (view_i, h_i, p["i"], h_j.graphs, p["j"]),
        (view_j, h_j, p["j"], h_i.graphs, p["i"]),
    ]:
        home, left = view.batch.tolist(), rows.nodes.tolist()
        if contrast == "global-global":  # graph encodings are scaled, node encodings are not
            home, left = list(range(view.num_graphs)), (p_rows * rows.graphs).tolist()
        right = [[p_graphs * value for value in row] for row in graphs.tolist()]
        scores = [[sum(a * b for a, b in zip(u, v, strict=True)) for v in right] for u in left]
        agreement += jsd_by_loops(scores, home, view.num_graphs, normalisation)
    assert output.loss.item() == pytest.approx(-agreement, rel=1e-11)


@every_bound
@every_contrast
def test_scores_in_blocks_give_the_same_loss_and_gradients(
    bound: str, contrast: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for block in (1 << 20, 24):  # all at once; three rows at a time
        monkeypatch.setattr("lg2ar.model.BLOCK", block)
        model = build(config(bound=bound, contrast=contrast), WIDTH).double()
        torch.manual_seed(1)
        loss = model(shapes(range(8)).to("cpu", torch.float64)).loss
        loss.backward()
        found.append((loss.detach(), [p.grad for p in model.parameters() if p.grad is not None]))
    (whole, whole_grads), (parts, part_grads) = found
    torch.testing.assert_close(parts, whole)
    assert len(part_grads) == len(whole_grads) > 0
    for a, b in zip(part_grads, whole_grads, strict=True):
        torch.testing.assert_close(a, b)


def test_the_views_are_cut_by_the_drawn_heads() -> None:
    graph = shapes(range(6))
    model = build(
        config(heads=["identity", "sub-graph", "node-dropping"], hops=0, ratio=0.5), WIDTH
    )
    one, whole = step(with_draw(model, 1, 0), graph).views
    assert sizes(one) == [1] * 6
    assert sizes(whole) == sizes(graph)
    assert edges_per_graph(whole) == edges_per_graph(graph)
    half, again = step(with_draw(model, 2, 2), graph).views
    assert sizes(half) == sizes(again) == [math.ceil(n / 2) for n in sizes(graph)]
    assert half.origin is not None
    assert again.origin is not None
    assert not torch.equal(half.origin, again.origin)  # each view has its own draw


def test_the_drawn_probabilities_are_the_policys() -> None:
    draw = step(build(config(), WIDTH), shapes(range(6))).draw
    assert draw.p_i.item() == draw.probabilities[draw.i].item()
    assert draw.p_j.item() == draw.probabilities[draw.j].item()


def test_normalisations_differ_where_graphs_differ_in_size() -> None:
    def loss(graph: GraphBatch, normalisation: str) -> float:
        model = build(config(heads=["identity"], normalisation=normalisation), WIDTH)
        return step(model, graph).loss.item()

    uneven, even = shapes([0, 1, 2, 3, 4]), shapes([0, 5, 10, 15])
    assert len(set(sizes(uneven))) == 5
    assert len(set(sizes(even))) == 1
    kinds = ("graphs", "pairs", "graph-pairs")
    for one, two in combinations([loss(uneven, kind) for kind in kinds], 2):
        assert abs(one - two) > 1e-3
    assert loss(even, "graphs") == pytest.approx(loss(even, "pairs"), rel=1e-5)


def test_the_shared_projection_stands_before_all_views() -> None:
    model = build(config(feature_projection="shared"), WIDTH)
    graph = shapes(range(4))
    projected = model.base_encoder.features(graph.x)
    assert projected.shape == (graph.num_nodes, 16)
    view, masked = step(with_draw(model, 1, 4), graph).views
    assert torch.equal(view.x, projected[view.origin])
    assert bool(((masked.x == 0) | (masked.x - projected).abs().lt(1e-5)).all())


# Training.


def mean_loss(model: LG2AR, graph: GraphBatch, draws: int = 16) -> float:
    """The loss averaged over some fixed draws."""
    with torch.no_grad():
        return average(step(model, graph, 1000 + seed).loss.item() for seed in range(draws))


def assert_learns(chosen: Config) -> None:
    """Ten steps of Algorithm 1 on toy graphs: finite losses, and a lower one afterwards."""
    graph = toy_graphs(num_graphs=16).graph
    model = build(chosen, graph.num_features)
    trainer = Trainer(model, learning_rate=1e-2)
    before = mean_loss(model, graph)
    losses = [trainer.step(graph)[0].loss.item() for _ in range(10)]
    assert all(math.isfinite(loss) for loss in losses)
    assert mean_loss(model, graph) < before


@every_contrast
@every_discriminator
@every_bound
@pytest.mark.parametrize("policy", POLICIES)
def test_ten_steps_lower_the_loss(
    contrast: str, discriminator: str, bound: str, policy: str
) -> None:
    assert_learns(
        config(contrast=contrast, discriminator=discriminator, bound=bound, policy=policy)
    )


@every_contrast
@pytest.mark.parametrize(
    ("discriminator", "bound"),
    [("dot", "jsd"), ("cosine", "nt-xent"), ("bilinear", "nce"), ("mlp", "dv")],
)
def test_ten_steps_lower_the_loss_with_shuffled_negatives(
    contrast: str, discriminator: str, bound: str
) -> None:
    assert_learns(
        config(contrast=contrast, discriminator=discriminator, bound=bound, negatives="shuffled")
    )


@pytest.mark.parametrize(
    "more",
    [
        {"level": "node"},
        {"level": "node", "negatives": "shuffled"},
        {"base_encoder": "gcn", "readout": "mean"},
        {"feature_projection": "shared"},
        {"projection": False},
        {"norm": False},
        {"norm_place": "before", "readout": "log-sum"},
        {"dropout": 0.3},
        {"replacement": False},
        {"edge_weighting": "printed"},
        {"edge_weighting": "straight-through"},
        {"normalisation": "pairs"},
        {"normalisation": "graph-pairs"},
        {"scale_by_probability": "off"},
        {"scale_by_probability": "straight-through"},
    ],
    ids=str,
)
def test_ten_steps_lower_the_loss_with_other_settings(more: dict[str, Any]) -> None:
    assert_learns(config(**more))


def test_the_node_level_model_is_a_gcn_with_a_mean() -> None:
    model = build(config(level="node"), WIDTH)
    graph = shapes(range(5))
    encoding = model.base_encoder(graph)
    assert type(model.base_encoder.network).__name__ == "GCN"
    assert encoding.nodes.shape == (graph.num_nodes, 16)
    means = [encoding.nodes[graph.batch == k].mean(0) for k in range(5)]
    torch.testing.assert_close(encoding.graphs, torch.stack(means))
    assert len(model.heads) == model.policy.num_heads == 4


def test_the_same_seed_gives_the_same_step() -> None:
    graph = shapes(range(8))
    model = build(config(norm=False), WIDTH)
    state = torch.get_rng_state()
    losses = [step(model, graph, seed).loss.item() for seed in (3, 3, 4)]
    assert torch.equal(state, torch.get_rng_state())  # all noise came from the generator
    assert losses[0] == losses[1] != losses[2]


def test_a_step_leaves_the_batch_alone() -> None:
    graph, same = shapes(range(8)), shapes(range(8))
    model = build(config(), WIDTH)
    for seed in range(8):
        stepped_back(model, graph, seed)
    assert torch.equal(graph.x, same.x)
    assert torch.equal(graph.edge_index, same.edge_index)
    assert torch.equal(graph.batch, same.batch)


# Where gradients go.


@every_contrast
@pytest.mark.parametrize("head", [name for name in HEAD_NAMES if name != "identity"])
def test_gradients_reach_a_head_and_both_encoders(contrast: str, head: str) -> None:
    # One node of each graph is left without edges, and with them without gradient, at 0 hops.
    model = build(config(contrast=contrast, heads=[head], hops=1), WIDTH)
    stepped_back(model, shapes(range(16)))
    # A constant added to every logit leaves the softmax over nodes as it is.
    assert_reached(model.heads[0], without=["scores.mlp.rest.1.bias"])
    assert_reached(model.augmentation_encoder.network)
    assert_reached(model.augmentation_encoder.node_projection)
    if head in ("node-dropping", "sub-graph"):
        assert_reached(model.augmentation_encoder.graph_projection)
    assert_reached(model.base_encoder.network)
    assert_reached(model.base_encoder.graph_projection)
    assert is_unreached(model.base_encoder.node_projection) == (contrast == "global-global")


@every_contrast
@every_discriminator
@every_bound
def test_gradients_reach_the_discriminator(contrast: str, discriminator: str, bound: str) -> None:
    model = build(config(contrast=contrast, discriminator=discriminator, bound=bound), WIDTH)
    stepped_back(model, shapes(range(16)))
    # A constant added to every score cancels between positive and negative pairs.
    cancels = discriminator == "mlp" and bound != "jsd"
    assert_reached(model.discriminator, without=["mlp.rest.1.bias"] if cancels else [])


def assert_policy_is_reached(chosen: Config) -> None:
    model = build(chosen, WIDTH).double()
    stepped_back(model, shapes(range(16)).to("cpu", torch.float64))
    assert_reached(model.policy)
    assert_reached(model.augmentation_encoder.graph_projection)
    # Not rounding alone, which is all that a cosine of scaled encodings would leave.
    norm = sum(float(g.norm()) for g in gradients(model.policy).values() if g is not None)
    assert norm > 1e-5


@every_contrast
@every_discriminator
@pytest.mark.parametrize("policy", ["gru", "deepset"])
@pytest.mark.parametrize("heads", [("identity", "node-dropping"), HEAD_NAMES], ids=len)
def test_gradients_reach_the_policy(
    contrast: str, discriminator: str, policy: str, heads: tuple[str, ...]
) -> None:
    chosen = config(contrast=contrast, discriminator=discriminator, policy=policy, heads=heads)
    assert_policy_is_reached(chosen)


@every_contrast
@every_discriminator
def test_gradients_reach_the_policy_with_shuffled_negatives(
    contrast: str, discriminator: str
) -> None:
    assert_policy_is_reached(
        config(contrast=contrast, discriminator=discriminator, negatives="shuffled")
    )


@every_discriminator
@pytest.mark.parametrize("policy", ["gru", "deepset"])
def test_without_the_scale_the_policy_gets_no_gradient(discriminator: str, policy: str) -> None:
    chosen = config(discriminator=discriminator, policy=policy, scale_by_probability="off")
    model = build(chosen, WIDTH)
    stepped_back(model, shapes(range(16)))
    assert is_unreached(model.policy)
    assert_reached(model.base_encoder.network)


def test_without_the_scale_the_loss_forgets_the_probabilities() -> None:
    graph = shapes(range(6))

    def loss(p: float, scaling: str) -> float:
        model = build(config(scale_by_probability=scaling), WIDTH)
        return step(with_draw(model, 0, 0, p, p), graph).loss.item()

    for forgetful in ("off", "straight-through"):
        assert loss(0.2, forgetful) == loss(0.9, forgetful) == pytest.approx(loss(1.0, "printed"))
    assert loss(0.2, "printed") != pytest.approx(loss(0.9, "printed"))


@pytest.mark.parametrize("contrast", ["local-global", "global-global"])
def test_straight_through_moves_the_policy_as_the_printed_product_would(contrast: str) -> None:
    slopes = []  # by a probability of one, where both products have the same value
    for scaling in ("printed", "straight-through"):
        chosen = config(contrast=contrast, scale_by_probability=scaling, heads=("identity",))
        model = with_draw(build(chosen, WIDTH), 0, 0)
        p = torch.ones((), requires_grad=True)
        model.policy.register_forward_hook(
            lambda *_, p=p: Draw(0, 0, p, p, torch.ones(1))  # its probability as ours to move
        )
        loss = step(model, shapes(range(6))).loss
        slopes.append(torch.autograd.grad(loss, p)[0].item())
    assert slopes[0] == pytest.approx(slopes[1])
    assert abs(slopes[0]) > 1e-6


@pytest.mark.parametrize("certainty", [0.0, 80.0, 100.0, 500.0])
def test_straight_through_stays_finite_however_sure_the_policy_is(certainty: float) -> None:
    logits = torch.tensor([certainty, 0.0, 0.0], requires_grad=True)
    for p in logits.softmax(-1):
        scale = scale_of(p, "straight-through")
        assert scale.item() == 1
        (slope,) = torch.autograd.grad(scale, logits, retain_graph=True)
        assert slope.isfinite().all()
    sure, *_ = logits.log_softmax(-1)  # where there is something to divide by: the logarithm's
    (slope,) = torch.autograd.grad(sure, logits)
    (ours,) = torch.autograd.grad(scale_of(logits.softmax(-1)[0], "straight-through"), logits)
    torch.testing.assert_close(ours, slope)


def test_heads_that_were_not_drawn_get_no_gradient() -> None:
    graph = shapes(range(8))
    for seed in range(10):
        model = build(config(), WIDTH)
        draw = stepped_back(model, graph, seed).draw
        for place, head in enumerate(model.heads):
            if place not in (draw.i, draw.j):
                assert is_unreached(head)
            elif any(True for _ in head.parameters()):
                assert not is_unreached(head)


# What the policy looks at.


def reordered(graph: GraphBatch, order: Sequence[int]) -> GraphBatch:
    """The same graphs in another order."""
    nodes = torch.cat([(graph.batch == k).nonzero().squeeze(1) for k in order])
    place = torch.empty_like(nodes).scatter(0, nodes, torch.arange(graph.num_nodes))
    rank = torch.empty(len(order), dtype=torch.long)
    rank[list(order)] = torch.arange(len(order))
    return graph.replace(
        x=graph.x[nodes], edge_index=place[graph.edge_index], batch=rank[graph.batch[nodes]]
    ).validate()


@pytest.mark.parametrize("policy", POLICIES)
@given(graph=graph_batches(dtype=torch.float64), data=st.data())
@settings(max_examples=30)
def test_the_order_of_graphs_does_not_change_the_policy(
    policy: str, graph: GraphBatch, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(graph.num_graphs)))
    model = build(config(policy=policy, hidden=8), graph.num_features).double()

    def probabilities(batch: GraphBatch) -> Tensor:
        p: Tensor = model.policy(
            model.augmentation_encoder(batch).graphs, generator()
        ).probabilities
        return p

    with torch.no_grad():
        torch.testing.assert_close(
            probabilities(graph), probabilities(reordered(graph, order)), rtol=0, atol=1e-8
        )


@pytest.mark.parametrize("policy", ["gru", "deepset"])
def test_other_graphs_change_the_policy(policy: str) -> None:
    model = build(config(policy=policy), WIDTH)
    one, two = (step(model, shapes(range(k, k + 8))).draw.probabilities for k in (0, 3))
    assert not torch.allclose(one, two, atol=1e-6)


# Batches of one graph.


@every_contrast
@every_bound
@pytest.mark.parametrize("negatives", ["graphs", "shuffled"])
def test_a_batch_of_one_graph_is_finite(contrast: str, bound: str, negatives: str) -> None:
    model = build(config(contrast=contrast, bound=bound, negatives=negatives), WIDTH)
    for seed in range(6):
        assert stepped_back(model, shapes([2]), seed).loss.isfinite()
        for gradient in gradients(model).values():
            assert gradient is None or bool(gradient.isfinite().all())


@given(graph=graph_batches(), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_any_batch_gives_a_finite_loss_and_gradient(graph: GraphBatch, seed: int) -> None:
    model = build(config(hidden=4), graph.num_features)
    assert stepped_back(model, graph, seed).loss.isfinite()
    for gradient in gradients(model).values():
        assert gradient is None or bool(gradient.isfinite().all())


@every_contrast
def test_equal_features_shuffled_leave_nothing_to_tell_apart(contrast: str) -> None:
    graph = shapes(range(6))
    graph = graph.replace(x=torch.ones_like(graph.x))
    chosen = config(contrast=contrast, negatives="shuffled", bound="nce", heads=["identity"])
    assert step(build(chosen, WIDTH), graph).loss.item() == pytest.approx(0, abs=1e-5)


def test_shuffled_negatives_stay_within_their_graph() -> None:
    model = build(config(negatives="shuffled", heads=["identity"], norm=False), WIDTH)
    ring, clique = shapes([0]), shapes([1])
    # All nodes of one graph have the same degree: shuffled among themselves they do not change.
    for graph in (ring, clique):
        assert len({tuple(row) for row in graph.x.tolist()}) == 1
    assert not torch.equal(ring.x[0], clique.x[0])
    apart = step(model, ring).loss.item(), step(model, clique).loss.item()
    together = step(model, shapes([0, 1, 0])).loss.item()
    assert together == pytest.approx((2 * apart[0] + apart[1]) / 3, rel=1e-5)


# Two devices.


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@every_contrast
@pytest.mark.parametrize("policy", ["gru", "deepset"])
@pytest.mark.parametrize("negatives", ["graphs", "shuffled"])
def test_cpu_and_cuda_take_the_same_step(contrast: str, policy: str, negatives: str) -> None:
    chosen = config(contrast=contrast, policy=policy, negatives=negatives, dropout=0)
    graph = shapes(range(16))
    on_cpu = build(chosen, WIDTH)
    on_cuda = copy.deepcopy(on_cpu).to("cuda")
    # cuDNN's GRU would otherwise multiply in TF32, with 10 bits of mantissa.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for seed in range(8):
            one = stepped_back(on_cpu, graph, seed)
            two = stepped_back(on_cuda, graph.to("cuda"), seed)
            assert (one.draw.i, one.draw.j) == (two.draw.i, two.draw.j)
            assert two.loss.item() == pytest.approx(one.loss.item(), rel=1e-3)
            found = gradients(on_cuda)
            for name, expected in gradients(on_cpu).items():
                gradient = found[name]
                assert (gradient is None) == (expected is None), name
                if gradient is not None and expected is not None:
                    error = float((gradient.cpu() - expected).norm())
                    assert error <= 1e-4 + 1e-3 * float(expected.norm()), name


def test_the_encoders_start_alike_whatever_the_policy_and_the_heads() -> None:
    first = build(Config.make(hidden=8, seed=5), 3)
    second = build(Config.make(hidden=8, seed=5, policy="random", heads=["sub-graph"]), 3)
    for name in ("base_encoder", "augmentation_encoder"):
        ours, theirs = (getattr(model, name).state_dict() for model in (first, second))
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    place = first.heads[Config.make().heads.index("sub-graph")].state_dict()
    assert all(torch.equal(place[key], v) for key, v in second.heads[0].state_dict().items())
    other = build(Config.make(hidden=8, seed=6), 3)
    weight = "network.convs.0.mlp.first.weight"
    assert not torch.equal(
        first.base_encoder.state_dict()[weight], other.base_encoder.state_dict()[weight]
    )


# Edge attributes.


def attributed(numbers: Iterable[int], width: int = 3) -> GraphBatch:
    """The same shapes, their edges of different kinds, which both directions share."""
    graph = shapes(numbers)
    source, target = graph.edge_index
    kind = (torch.minimum(source, target) * 5 + torch.maximum(source, target)) % width
    return graph.replace(edge_attr=F.one_hot(kind, width).float())


@every_contrast
@pytest.mark.parametrize("head", HEAD_NAMES)
def test_gradients_reach_all_that_reads_edge_attributes(contrast: str, head: str) -> None:
    graph = attributed(range(6))
    model = build(config(contrast=contrast, heads=[head], hops=1), WIDTH, 3)
    stepped_back(model, graph)
    base = gradients(model.base_encoder)
    for name in ("embedding.weight", "convs.0.edges.weight", "convs.1.edges.weight"):
        gradient = base[f"network.{name}"]
        assert gradient is not None, name
        assert gradient.abs().max() > 0, name
    learned = {"edge-perturbation", "node-dropping", "sub-graph", "feature-masking"}
    read = [g for name, g in gradients(model.augmentation_encoder).items() if "edges" in name]
    assert len(read) == 4
    assert all((g is not None and bool(g.abs().max() > 0)) == (head in learned) for g in read)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_other_edge_attributes_give_another_loss_and_other_embeddings(level: str) -> None:
    graph = attributed(range(6))
    assert graph.edge_attr is not None
    other = graph.replace(edge_attr=graph.edge_attr.roll(1, dims=1))
    model = build(config(level=level), WIDTH, 3).eval()
    assert step(model, graph).loss.item() != step(model, other).loss.item()
    one, two = model.base_encoder.embed(graph), model.base_encoder.embed(other)
    assert not torch.allclose(one.graphs, two.graphs)
    assert not torch.allclose(one.nodes, two.nodes)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_a_model_without_edge_attributes_does_not_look_at_them(level: str) -> None:
    model = build(config(level=level), WIDTH)
    plain, graph = shapes(range(6)), attributed(range(6))
    for seed in range(4):
        assert step(model, graph, seed).loss.item() == step(model, plain, seed).loss.item()


def test_a_model_for_edge_attributes_refuses_graphs_without() -> None:
    with pytest.raises(ValueError, match="made for 3 edge attributes, got a batch with 0"):
        step(build(config(), WIDTH, 3), shapes(range(4)))


@pytest.mark.parametrize("level", ["graph", "node"])
@settings(max_examples=20)
@given(graph=graph_batches(attributed=True), seed=st.integers(0, 99))
def test_a_step_takes_any_batch_with_edge_attributes(
    level: str, graph: GraphBatch, seed: int
) -> None:
    model = build(config(level=level), graph.num_features, graph.num_edge_features)
    output = step(model, graph, seed)
    assert output.loss.isfinite()
    for view in output.views:
        view.validate()
        assert view.num_edge_features == graph.num_edge_features


def test_training_tells_edge_kinds_apart() -> None:
    """Rings that differ in nothing but the kinds of their edges get embeddings of their own."""
    numbers = [5] * 12
    graph = shapes(numbers)
    kind = graph.batch[graph.edge_index[0]] % 2
    graph = graph.replace(edge_attr=F.one_hot(kind, 2).float())
    model = build(config(hidden=8, readout="mean"), WIDTH, 2)
    trainer = Trainer(model, learning_rate=1e-2)
    trainer.fit(lambda seed: [graph], 5)
    rows = model.eval().base_encoder.embed(graph).graphs
    assert torch.allclose(rows[0], rows[2], atol=1e-5)
    assert (rows[0] - rows[1]).norm() > 0.1 * rows[0].norm()
