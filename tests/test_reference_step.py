"""One whole training step equals Algorithms 1 to 5 written as loops.

The loops replay the noise of the fast step: a hook remembers the generator's state in front of
each head.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch
from torch import Generator, Tensor, nn

import lg2ar.model
import reference
from lg2ar.config import HEAD_NAMES, Config
from lg2ar.graph import Encoding, GraphBatch
from lg2ar.heads import (
    EdgePerturbation,
    EdgeWeighting,
    FeatureMasking,
    Identity,
    NodeDropping,
    SubGraph,
    node_edge_weight,
)
from lg2ar.heads.base import NodeScores
from lg2ar.model import LG2AR, StepOutput, build
from lg2ar.sampling import negative_edges
from reference import (
    SHAPES,
    assert_agree,
    edges,
    layers_of,
    make_graph,
    matrix,
    row,
    shaken,
    table,
    vector,
)

HIDDEN = 3
TOLERANCE = 1e-9


def make_model(seed: int = 0, attributes: int = 0, **settings: Any) -> LG2AR:
    defaults: dict[str, Any] = {"hidden": HIDDEN, "layers": 2, "hops": 1, "ratio": 0.6}
    config = Config.make({**defaults, "seed": seed, **settings})
    return shaken(build(config, num_features=3, num_edge_features=attributes), seed)


# ------------------------------------------------------------------ the heads' formulas


@pytest.mark.parametrize("name", SHAPES)
def test_node_logits_are_the_mlp_of_node_beside_graph(name: str) -> None:
    graph = make_graph(name)
    nodes = torch.randn(graph.num_nodes, HIDDEN, dtype=torch.float64, requires_grad=True)
    graphs = torch.randn(graph.num_graphs, HIDDEN, dtype=torch.float64, requires_grad=True)
    module = shaken(NodeScores(HIDDEN))
    slow = reference.node_logits(layers_of(module.mlp), table(nodes), table(graphs), graph)
    fast = module(graph, Encoding(nodes=nodes, graphs=graphs))
    assert_agree(fast, vector(slow), [nodes, graphs, *module.parameters()])


@pytest.mark.parametrize("name", SHAPES)
def test_edge_logits_are_the_mlp_of_the_nodes_sum_beside_the_indicator(name: str) -> None:
    graph = make_graph(name)
    nodes = torch.randn(graph.num_nodes, HIDDEN, dtype=torch.float64, requires_grad=True)
    module = shaken(EdgePerturbation(HIDDEN))
    exists = torch.rand(graph.num_edges) < 0.5
    slow = reference.edge_logits(layers_of(module.mlp), table(nodes), edges(graph), exists.tolist())
    fast = module.logits(nodes, graph.edge_index, exists)
    assert_agree(fast, vector(slow), [nodes, *module.parameters()])


@pytest.mark.parametrize("name", SHAPES)
def test_edge_logits_with_attributes_have_them_between_nodes_and_indicator(name: str) -> None:
    graph = make_graph(name, attributes=2)
    nodes = torch.randn(graph.num_nodes, HIDDEN, dtype=torch.float64, requires_grad=True)
    module = shaken(EdgePerturbation(HIDDEN, num_edge_features=2))
    exists = torch.rand(graph.num_edges) < 0.5
    assert graph.edge_attr is not None
    slow = reference.edge_logits(
        *(layers_of(module.mlp), table(nodes), edges(graph), exists.tolist()),
        reference.attributes(graph),
    )
    fast = module.logits(nodes, graph.edge_index, exists, graph.edge_attr)
    assert_agree(fast, vector(slow), [nodes, graph.edge_attr, *module.parameters()])


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("weighting", ["printed", "relative", "straight-through"])
@pytest.mark.parametrize("weighted", [True, False])
def test_edge_weights_are_sums_of_node_probabilities(
    name: str, weighting: EdgeWeighting, weighted: bool
) -> None:
    graph = make_graph(name, weighted=weighted)
    p = torch.rand(graph.num_nodes, dtype=torch.float64, requires_grad=True)
    slow = reference.node_edge_weights(graph, row(p), weighting)
    own = [] if graph.edge_weight is None else [graph.edge_weight]
    assert_agree(node_edge_weight(graph, p, weighting), vector(slow), [p, *own])


# ------------------------------------------------------------------ the step, replayed


@dataclass
class Replay:
    """A fast step, and the generator's state in front of each of its two heads."""

    model: LG2AR
    graph: GraphBatch
    output: StepOutput
    states: list[Tensor] = field(default_factory=list)

    @property
    def leaves(self) -> list[Tensor]:
        return reference.leaves(self.graph, self.model)


def fast_step(model: LG2AR, graph: GraphBatch, seed: int = 0) -> Replay:
    states: list[Tensor] = []

    def remember(_: nn.Module, args: tuple[Any, ...]) -> None:
        states.append(cast(Generator, args[2]).get_state())

    hooks = [head.register_forward_pre_hook(remember) for head in model.heads]
    output = model(graph, Generator().manual_seed(seed))
    for hook in hooks:
        hook.remove()
    return Replay(model, graph, output, states)


def noise_like(values: Tensor, chance: Generator) -> Any:
    """Gumbel noise in nested lists."""

    def transformed(u: Any) -> Any:
        return [transformed(part) for part in u] if isinstance(u, list) else reference.gumbel(u)

    return transformed(torch.rand(values.shape, dtype=torch.float64, generator=chance).tolist())


def slow_view(
    head: nn.Module,
    graph: GraphBatch,
    nodes: reference.Table,
    graphs: reference.Table,
    state: Tensor,
) -> GraphBatch:
    chance = Generator()
    chance.set_state(state)
    match head:
        case Identity():
            return graph
        case NodeDropping() | SubGraph():
            logits = reference.node_logits(layers_of(head.scores.mlp), nodes, graphs, graph)
            noise = noise_like(graph.batch, chance)
            if isinstance(head, NodeDropping):
                return reference.node_dropping(
                    graph, logits, noise, head.ratio, head.edge_weighting
                )
            return reference.sub_graph(graph, logits, noise, head.hops, head.edge_weighting)
        case EdgePerturbation():
            return slow_edge_perturbation(head, graph, nodes, chance)
        case FeatureMasking():
            projected = table(graph.x)
            if isinstance(head.projection, nn.Linear):
                weight, bias = table(head.projection.weight), row(head.projection.bias)
                projected = [reference.linear(weight, bias, line) for line in projected]
            layers = layers_of(head.mlp)
            masks = [reference.mlp(layers, line) for line in nodes]
            first, second = noise_like(graph.x, chance), noise_like(graph.x, chance)
            noise = [list(zip(a, b, strict=True)) for a, b in zip(first, second, strict=True)]
            return reference.feature_masking(graph, projected, masks, noise, head.temperature)
    raise AssertionError(head)


def slow_edge_perturbation(
    head: EdgePerturbation, graph: GraphBatch, nodes: reference.Table, chance: Generator
) -> GraphBatch:
    E = graph.num_edges
    negatives, valid, pair = negative_edges(graph, chance)
    candidates = edges(graph) + [(i, j) for i, j in negatives.T.tolist()]
    e = 2 * reference.pair_attributes(graph) if head.num_edge_features else None
    logits = reference.edge_logits(
        layers_of(head.mlp), nodes, candidates, [True] * E + [False] * E, e
    )
    first, second = (noise_like(torch.empty(2 * E), chance) for _ in range(2))
    coins = pair.tolist() + [place + E for place in pair.tolist()]
    noise = [(first[coin], second[coin]) for coin in coins]
    allowed = [True] * E + valid.tolist()
    return reference.edge_perturbation(
        graph, candidates, allowed, logits, noise, head.edge_weighting
    )


@dataclass
class SlowStep:
    """Everything the loops make on the way to a loss."""

    probabilities: reference.Row
    views: tuple[GraphBatch, GraphBatch]
    nodes: tuple[reference.Table, reference.Table]
    graphs: tuple[reference.Table, reference.Table]

    def rows(self, contrast: str) -> tuple[list[reference.Table], list[reference.Table]]:
        first, second = (
            reference.contrasted_rows(nodes, graphs, view, contrast)
            for nodes, graphs, view in zip(self.nodes, self.graphs, self.views, strict=True)
        )
        return first, second


def slow_step(replay: Replay) -> SlowStep:
    model, graph, draw = replay.model, replay.graph, replay.output.draw
    nodes, graphs = reference.encode_and_project(model.augmentation_encoder, graph)
    p = reference.policy_probabilities(model.policy, graphs, model.policy.temperature)
    source, features = graph, model.base_encoder.features
    if isinstance(features, nn.Linear):
        weight, bias = table(features.weight), row(features.bias)
        source = graph.replace(
            x=matrix([reference.linear(weight, bias, line) for line in table(graph.x)])
        )
    first, second = (
        slow_view(model.heads[place], source, nodes, graphs, state)
        for place, state in zip((draw.i, draw.j), replay.states, strict=True)
    )
    nodes_i, graphs_i = reference.encode_and_project(model.base_encoder, first)
    nodes_j, graphs_j = reference.encode_and_project(model.base_encoder, second)
    return SlowStep(p, (first, second), (nodes_i, nodes_j), (graphs_i, graphs_j))


def slow_loss(replay: Replay, slow: SlowStep, discriminator: str = "dot") -> Tensor:
    model, draw = replay.model, replay.output.draw
    first, second = slow.rows(model.contrast)
    p_i, p_j = slow.probabilities[draw.i], slow.probabilities[draw.j]
    if model.scale_by_probability == "straight-through":
        p_i, p_j = p_i / p_i.detach(), p_j / p_j.detach()
    elif model.scale_by_probability == "off":
        p_i, p_j = reference.ONE, reference.ONE
    return reference.algorithm_1(
        first,
        slow.graphs[0],
        p_i,
        second,
        slow.graphs[1],
        p_j,
        reference.score_of(discriminator, model.discriminator),
        model.contrast,
        model.normalisation,
    )


def assert_views_agree(replay: Replay, slow: SlowStep) -> None:
    for fast, view in zip(replay.output.views, slow.views, strict=True):
        assert edges(fast) == edges(view)
        assert fast.batch.tolist() == view.batch.tolist()
        assert_agree(fast.x, view.x, tolerance=TOLERANCE)
        assert_agree(fast.weights(), vector(reference.weights(view)), tolerance=TOLERANCE)
        assert (fast.edge_attr is None) == (view.edge_attr is None)
        if fast.edge_attr is not None and view.edge_attr is not None:
            assert_agree(fast.edge_attr, view.edge_attr, tolerance=TOLERANCE)


def check(model: LG2AR, graph: GraphBatch, seed: int = 0, discriminator: str = "dot") -> None:
    """The fast step and the loops agree on views, loss, and every gradient."""
    replay = fast_step(model, graph, seed)
    slow = slow_step(replay)
    assert_views_agree(replay, slow)
    loss = slow_loss(replay, slow, discriminator)
    assert_agree(replay.output.loss, loss, replay.leaves, TOLERANCE)


@pytest.mark.parametrize("head", HEAD_NAMES)
@pytest.mark.parametrize(
    "name",
    [
        "random sparse",
        "random many",
        "single nodes",
        "no edges",
        "self-loops",
        "duplicates",
        "directed",
        "complete",
    ],
)
def test_step_with_one_head_equals_the_algorithms(head: str, name: str) -> None:
    check(make_model(heads=[head]), make_graph(name))


@pytest.mark.parametrize("head", HEAD_NAMES)
@pytest.mark.parametrize(
    "name", ["random sparse", "single nodes", "no edges", "self-loops", "duplicates", "directed"]
)
def test_step_with_edge_attributes_equals_the_algorithms(head: str, name: str) -> None:
    check(make_model(heads=[head], attributes=2), make_graph(name, attributes=2))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("base_encoder", ["gin", "gcn"])
@pytest.mark.parametrize("feature_projection", ["head", "shared"])
def test_step_with_edge_attributes_and_all_heads_equals_the_algorithms(
    seed: int, base_encoder: str, feature_projection: str
) -> None:
    model = make_model(
        seed,
        attributes=2,
        layers=1,
        base_encoder=base_encoder,
        feature_projection=feature_projection,
    )
    check(model, make_graph("random sparse", seed=seed, weighted=False, attributes=2), seed)


@pytest.mark.parametrize("head", HEAD_NAMES)
def test_step_of_one_graph_without_weights_equals_the_algorithms(head: str) -> None:
    check(make_model(heads=[head]), make_graph("one graph", weighted=False))


@pytest.mark.parametrize("contrast", ["local-global", "global-global"])
@pytest.mark.parametrize("normalisation", ["graphs", "pairs", "graph-pairs"])
@pytest.mark.parametrize("seed", range(2))
def test_step_equals_algorithm_1(contrast: str, normalisation: str, seed: int) -> None:
    model = make_model(seed, contrast=contrast, normalisation=normalisation, layers=1)
    check(model, make_graph("random many", seed=seed), seed)


@pytest.mark.parametrize("weighting", ["printed", "relative", "straight-through"])
@pytest.mark.parametrize("head", ["node-dropping", "sub-graph", "edge-perturbation"])
def test_step_equals_the_algorithms_in_every_edge_weighting(weighting: str, head: str) -> None:
    check(make_model(heads=[head], edge_weighting=weighting), make_graph("random sparse"))


@pytest.mark.parametrize("policy", ["gru", "deepset", "random"])
def test_step_equals_the_algorithms_under_every_policy(policy: str) -> None:
    model = make_model(policy=policy, temperature=0.7)
    for seed in range(2):
        check(model, make_graph("random sparse"), seed)


@pytest.mark.parametrize(
    "settings",
    [
        {"feature_projection": "shared"},
        {"feature_projection": "none"},
        {"base_encoder": "gcn", "readout": "mean", "projection": False, "norm": False},
        {"scale_by_probability": "off"},
        {"scale_by_probability": "straight-through"},
        {"norm": False},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_step_equals_the_algorithms_in_other_settings(settings: dict[str, Any]) -> None:
    heads = ["feature-masking", "node-dropping"]
    for seed in range(2):
        check(make_model(heads=heads, **settings), make_graph("random sparse"), seed)


@pytest.mark.parametrize("discriminator", ["dot", "cosine", "bilinear", "mlp"])
@pytest.mark.parametrize("contrast", ["local-global", "global-global"])
def test_step_equals_algorithm_1_with_every_discriminator(
    discriminator: str, contrast: str
) -> None:
    model = make_model(discriminator=discriminator, contrast=contrast, layers=1)
    check(model, make_graph("random sparse"), discriminator=discriminator)


@pytest.mark.parametrize("bound", ["jsd", "nce", "nt-xent", "dv"])
@pytest.mark.parametrize("contrast", ["local-global", "global-global"])
@pytest.mark.parametrize("normalisation", ["graphs", "pairs"])
def test_step_equals_the_loops_with_every_bound(
    bound: str, contrast: str, normalisation: str
) -> None:
    model = make_model(bound=bound, contrast=contrast, normalisation=normalisation, layers=1)
    replay = fast_step(model, make_graph("random many"))
    slow, draw = slow_step(replay), replay.output.draw
    (first, second), (graphs_i, graphs_j) = slow.rows(contrast), slow.graphs
    p_i, p_j = slow.probabilities[draw.i], slow.probabilities[draw.j]
    own_i, own_j = (p_i, p_j) if contrast == "global-global" else (reference.ONE, reference.ONE)
    there, back = (
        reference.one_way_by_bound(bound, rows, p, others, q, reference.dot_score, normalisation)
        for rows, p, others, q in (
            (first, own_i, graphs_j, p_j),
            (second, own_j, graphs_i, p_i),
        )
    )
    assert_agree(replay.output.loss, -(there + back), replay.leaves, TOLERANCE)


def reversed_features(graph: GraphBatch, generator: Generator | None = None) -> GraphBatch:
    """A shuffle that the loops can repeat."""
    order = [v for nodes in reference.members(graph) for v in reversed(nodes)]
    return graph.replace(x=graph.x[order])


@pytest.mark.parametrize("contrast", ["local-global", "global-global"])
@pytest.mark.parametrize("normalisation", ["graphs", "pairs", "graph-pairs"])
def test_step_with_shuffled_negatives_equals_the_loops(
    contrast: str, normalisation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lg2ar.model, "shuffle_features", reversed_features)
    model = make_model(
        negatives="shuffled", contrast=contrast, normalisation=normalisation, layers=1
    )
    replay = fast_step(model, make_graph("random many"))
    slow, draw = slow_step(replay), replay.output.draw
    rows, probabilities = slow.rows(contrast), slow.probabilities
    p = probabilities[draw.i], probabilities[draw.j]
    loss = reference.ZERO
    for left, right in ((0, 1), (1, 0)):
        view = slow.views[left]
        encoded = reference.encode_and_project(model.base_encoder, reversed_features(view))
        corrupted = reference.contrasted_rows(*encoded, view, contrast)
        loss = loss - reference.one_way_shuffled(
            rows[left],
            corrupted,
            p[left] if contrast == "global-global" else reference.ONE,
            slow.graphs[right],
            p[right],
            reference.dot_score,
            normalisation,
        )
    assert_agree(replay.output.loss, loss, replay.leaves, TOLERANCE)


def test_the_draw_is_the_policys_and_each_view_is_its_heads() -> None:
    model = make_model(heads=["identity", "feature-masking"])
    for seed in range(6):
        output = model(make_graph("random sparse"), Generator().manual_seed(seed))
        for place, view in zip((output.draw.i, output.draw.j), output.views, strict=True):
            untouched = torch.equal(view.x, make_graph("random sparse").x)
            assert untouched == (place == 0)


@pytest.mark.parametrize("contrast", ["local-global", "global-global"])
def test_gradients_reach_the_policy_only_through_its_probabilities(contrast: str) -> None:
    graph = make_graph("random sparse")
    for scaling in ("printed", "straight-through", "off"):
        model = make_model(contrast=contrast, scale_by_probability=scaling)
        loss = model(graph, Generator().manual_seed(0)).loss
        gradients = torch.autograd.grad(
            loss, list(model.policy.parameters()), materialize_grads=True
        )
        assert any(bool(gradient.abs().max() > 1e-9) for gradient in gradients) == (
            scaling != "off"
        )


def test_devices_agree_on_the_loss_of_a_step(device: torch.device) -> None:
    graph = make_graph("random many")
    for seed in range(4):
        model = make_model(seed)
        expected = model(graph, Generator().manual_seed(seed))
        output = model.to(device)(graph.to(device), Generator().manual_seed(seed))
        assert (output.draw.i, output.draw.j) == (expected.draw.i, expected.draw.j)
        torch.testing.assert_close(output.loss.cpu(), expected.loss, rtol=1e-8, atol=1e-8)
