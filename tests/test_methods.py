"""The methods beside LG2AR: one contract for all, and what each of them does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

import lg2ar.model
import reference
from lg2ar.config import HEAD_NAMES, Config, Level
from lg2ar.data.batches import GraphStore
from lg2ar.data.egonets import EgoNets
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.errors import InputError
from lg2ar.finetuning import fine_tune, supervised_splits
from lg2ar.graph import GraphBatch
from lg2ar.methods import build, graphcl, names
from lg2ar.methods.graphcl import AUGMENTATIONS, HOPS, GraphCL
from lg2ar.methods.infograph import InfoGraph
from lg2ar.model import LG2AR, Method, StepOutput
from lg2ar.training import Trainer
from reference import ONE, SHAPES, assert_agree, edges, make_graph, shaken
from strategies import (
    Edge,
    attributed_edges,
    edges_per_graph,
    graph_batches,
    nodes_per_graph,
    origins,
    seeds,
    sizes,
    weighted_edges,
)

CONTROLS = ("graphcl", "infograph")
METHODS = (*CONTROLS, "lg2ar")
RATIOS = (0.1, 0.55, 0.8, 1.0)
every_method = pytest.mark.parametrize("method", METHODS)
every_control = pytest.mark.parametrize("method", CONTROLS)
every_augmentation = pytest.mark.parametrize("name", AUGMENTATIONS)
every_level = pytest.mark.parametrize("level", ["graph", "node"])
ratios = st.sampled_from(RATIOS)
fewer = settings(max_examples=30)


def config(method: str, **more: Any) -> Config:
    """Small settings, changed by those given."""
    return Config.make({"method": method, "hidden": 16, "layers": 2}, **more)


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def step(model: Method, graph: GraphBatch, seed: int = 0) -> StepOutput:
    output: StepOutput = model(graph, generator(seed))
    return output


def some_batch(level: str) -> GraphBatch:
    """Some toy graphs, or some sub-graphs of the large toy graph."""
    if level == "graph":
        return toy_graphs(num_graphs=12).graph
    return EgoNets(toy_nodes(num_nodes=120).graph, hops=1).draw(6, seed=0)


# One contract for all.


def test_every_method_has_its_name() -> None:
    assert set(METHODS) <= set(names())
    kinds = {name: type(build(config(name), 3)) for name in METHODS}
    assert kinds == {"graphcl": GraphCL, "infograph": InfoGraph, "lg2ar": LG2AR}


@every_method
@every_level
def test_a_step_gives_a_loss_and_all_gradients(
    method: str, level: str, device: torch.device
) -> None:
    graph = some_batch(level).to(device)
    model = build(config(method, level=level), graph.num_features).to(device)
    output = step(model, graph)
    output.loss.backward()  # type: ignore[no-untyped-call]
    assert output.loss.shape == ()
    assert output.loss.isfinite()
    for name, parameter in model.base_encoder.named_parameters():
        if method == "graphcl" and name.startswith("node_projection"):
            assert parameter.grad is None  # graphs alone are contrasted
        else:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().max() > 0, name


@every_method
@every_level
def test_every_method_reads_edge_attributes(method: str, level: str) -> None:
    graph = make_graph("random many", attributes=2).to("cpu", torch.float32)
    model = build(config(method, level=level), graph.num_features, 2)
    start = build(config("lg2ar", level=level), graph.num_features, 2).base_encoder.state_dict()
    assert all(torch.equal(v, start[k]) for k, v in model.base_encoder.state_dict().items())
    output = step(model, graph)
    output.loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.base_encoder.named_parameters():
        if "edges" in name:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name
    assert graph.edge_attr is not None
    other = graph.replace(edge_attr=2 * graph.edge_attr.detach())
    assert step(model, other).loss.item() != output.loss.item()


@every_level
def test_fine_tuning_learns_from_edge_attributes_alone(level: Level) -> None:
    """Rings that differ in nothing but the kind of their edges, which is the label."""
    size, number = 5, 24
    node = torch.arange(size * number)
    ahead = torch.stack([node, node // size * size + (node + 1) % size])
    edge_index = torch.cat([ahead, ahead.flip(0)], dim=1)
    kind = edge_index[0] // size % 2
    graph = GraphBatch(
        x=torch.ones(len(node), 1),
        edge_index=edge_index,
        batch=node // size if level == "graph" else torch.zeros_like(node),
        num_graphs=number if level == "graph" else 1,
        edge_attr=torch.eye(2)[kind],
    ).validate()
    y = torch.arange(number) % 2 if level == "graph" else node // size % 2
    split = supervised_splits(y, folds=3)[0]
    chosen = config("lg2ar", level=level)
    settings: dict[str, Any] = {"epochs": 15, "learning_rate": 1e-2, "level": level}
    seeing = build(chosen, 1, 2).base_encoder
    assert fine_tune(seeing, graph, y, split, **settings).test[-1] == 100
    blind = build(chosen, 1).base_encoder
    assert fine_tune(blind, graph, y, split, **settings).test[-1] < 80


@every_method
@every_level
def test_the_output_says_what_was_drawn(method: str, level: str) -> None:
    graph = some_batch(level)
    model = build(config(method, level=level), graph.num_features)
    output = step(model, graph)
    draw = output.draw
    assert model.num_heads == (5 if level == "graph" else 4)
    assert {draw.i, draw.j} <= set(range(model.num_heads))
    assert draw.probabilities.shape == (model.num_heads,)
    assert draw.probabilities.sum().item() == pytest.approx(1)
    for view in output.views:
        view.validate()
        assert view.num_graphs == graph.num_graphs


@every_method
@every_level
@pytest.mark.parametrize("more", [{}, {"feature_projection": "shared"}, {"projection": False}])
def test_every_method_starts_from_the_same_base_encoder(
    method: str, level: str, more: dict[str, Any]
) -> None:
    one = build(config("lg2ar", level=level, seed=7, **more), 5).base_encoder.state_dict()
    two = build(config(method, level=level, seed=7, **more), 5).base_encoder.state_dict()
    other = build(config(method, level=level, seed=8, **more), 5).base_encoder.state_dict()
    assert list(one) == list(two)
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


@every_method
def test_building_leaves_the_random_state_alone(method: str) -> None:
    state = torch.get_rng_state()
    build(config(method), 5)
    assert torch.equal(state, torch.get_rng_state())


@every_method
def test_the_generator_fixes_a_step(method: str) -> None:
    graph = some_batch("graph")
    losses = []
    for noise in range(2):
        torch.manual_seed(noise)
        model = build(config(method), graph.num_features)
        losses.append(step(model, graph, seed=3).loss.item())
    assert losses[0] == losses[1]


@every_method
def test_a_loaded_state_gives_the_same_step(method: str) -> None:
    graph = some_batch("graph")
    one = build(config(method, seed=1), graph.num_features)
    two = build(config(method, seed=2), graph.num_features)
    two.load_state_dict(one.state_dict())
    assert step(one, graph).loss.item() == step(two, graph).loss.item()


@every_method
@pytest.mark.parametrize("attributes", [0, 2])
@pytest.mark.parametrize("name", ["single nodes", "no edges", "complete", "self-loops", "directed"])
def test_a_step_takes_odd_graphs(method: str, name: str, attributes: int) -> None:
    graph = make_graph(name, attributes=attributes).to("cpu", torch.float32)
    model = build(config(method), graph.num_features, graph.num_edge_features)
    for seed in range(3):
        assert step(model, graph, seed).loss.isfinite()


@every_method
def test_a_step_leaves_its_batch_alone(method: str) -> None:
    graph = make_graph("random many").to("cpu", torch.float32)
    before = [tensor.clone() for tensor in (graph.x, graph.edge_index, graph.weights())]
    model = build(config(method), graph.num_features)
    for seed in range(3):
        step(model, graph, seed)
    after = graph.x, graph.edge_index, graph.weights()
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


@every_control
def test_training_lowers_the_loss_and_can_be_taken_up_again(
    method: str, device: torch.device
) -> None:
    graph = toy_graphs(num_graphs=48).graph
    store = GraphStore(graph, device)

    def trainer() -> Trainer:
        model = build(config(method), graph.num_features).to(device)
        return Trainer(model, learning_rate=3e-3)

    whole, first, second = trainer(), trainer(), trainer()
    whole.fit(lambda seed: store.epoch(16, seed), 6)
    losses = [record.loss for record in whole.history]
    assert sum(losses[-2:]) < sum(losses[:2])
    assert all(record.base_steps == record.steps == 3 for record in whole.history)  # no coin
    first.fit(lambda seed: store.epoch(16, seed), 2)
    second.restore(*first.state())
    second.fit(lambda seed: store.epoch(16, seed), 6)
    assert [record.loss for record in second.history] == losses


@every_control
@pytest.mark.parametrize("negatives", ["graphs", "shuffled"])
def test_sub_graphs_of_a_large_graph_train(method: str, negatives: str) -> None:
    nets = EgoNets(toy_nodes(num_nodes=120).graph, hops=1)
    chosen = config(method, level="node", negatives=negatives)
    trainer = Trainer(build(chosen, nets.graph.num_features), learning_rate=3e-3)
    trainer.fit(lambda seed: [nets.draw(6, seed)], 4)
    assert all(math.isfinite(record.loss) for record in trainer.history)


# InfoGraph.


def float64(method: str, **more: Any) -> Method:
    chosen = Config.make({"method": method, "hidden": 3, "layers": 2}, **more)
    return shaken(build(chosen, num_features=3))


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "one node"])
@pytest.mark.parametrize("normalisation", ["graphs", "pairs", "graph-pairs"])
def test_infograph_equals_the_loops(name: str, normalisation: str) -> None:
    model, graph = float64("infograph", normalisation=normalisation), make_graph(name)
    nodes, graphs = reference.encode_and_project(model.base_encoder, graph)
    rows = reference.contrasted_rows(nodes, graphs, graph, "local-global")
    slow = -reference.one_way(rows, ONE, graphs, ONE, reference.dot_score, normalisation)
    leaves = [graph.x, *model.parameters()]
    assert_agree(step(model, graph).loss, slow, leaves, 1e-9)


def test_infograph_by_pairs_is_the_loss_of_its_paper() -> None:
    """Mean over nodes with their own graph, mean over all other pairs; float by float."""
    model, graph = float64("infograph", normalisation="pairs"), make_graph("random many")
    encoding = model.base_encoder(graph)
    own, others = [], []
    for v, h in enumerate(encoding.nodes.tolist()):
        for k, g in enumerate(encoding.graphs.tolist()):
            score = sum(a * b for a, b in zip(h, g, strict=True))
            if int(graph.batch[v]) == k:
                own.append(math.log1p(math.exp(-score)))
            else:
                others.append(math.log1p(math.exp(score)))
    expected = sum(own) / len(own) + sum(others) / len(others)
    assert step(model, graph).loss.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("normalisation", ["graphs", "pairs"])
def test_infograph_with_shuffled_negatives_equals_the_loops(
    normalisation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reversed_features(graph: GraphBatch, generator: Any = None) -> GraphBatch:
        order = [v for nodes in reference.members(graph) for v in reversed(nodes)]
        return graph.replace(x=graph.x[order])

    monkeypatch.setattr(lg2ar.model, "shuffle_features", reversed_features)
    settings = {"negatives": "shuffled", "normalisation": normalisation}
    model, graph = float64("infograph", **settings), make_graph("random many")
    encoder = model.base_encoder
    nodes, graphs = reference.encode_and_project(encoder, graph)
    corrupted, _ = reference.encode_and_project(encoder, reversed_features(graph))
    rows, wrong = (
        reference.contrasted_rows(found, graphs, graph, "local-global")
        for found in (nodes, corrupted)
    )
    slow = -reference.one_way_shuffled(
        rows, wrong, ONE, graphs, ONE, reference.dot_score, normalisation
    )
    assert_agree(step(model, graph).loss, slow, [graph.x, *model.parameters()], 1e-9)


@pytest.mark.parametrize(("negatives", "passes"), [("graphs", 1), ("shuffled", 2)])
def test_infograph_encodes_the_graphs_once(negatives: str, passes: int) -> None:
    graph = some_batch("graph")
    model = build(config("infograph", negatives=negatives), graph.num_features)
    seen: list[GraphBatch] = []
    model.base_encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    output = step(model, graph)
    assert len(seen) == passes
    assert output.views[0] is output.views[1] is seen[0]
    assert torch.equal(seen[0].x, graph.x)
    assert torch.equal(seen[0].edge_index, graph.edge_index)
    assert origins(seen[0]) == list(range(graph.num_nodes))


@pytest.mark.parametrize("heads", [["identity"], ["sub-graph", "node-dropping", "identity"]])
def test_infograph_draws_the_identity_twice(heads: list[str]) -> None:
    graph = some_batch("graph")
    draw = step(build(config("infograph", heads=heads), graph.num_features), graph).draw
    place = heads.index("identity")
    assert (draw.i, draw.j) == (place, place)
    assert (draw.p_i.item(), draw.p_j.item()) == (1, 1)
    assert draw.probabilities.tolist() == [float(name == "identity") for name in heads]


def test_infograph_without_the_identity_is_refused() -> None:
    with pytest.raises(InputError, match="leave out 'identity'; add it") as caught:
        build(config("infograph", heads=["node-dropping", "sub-graph"]), 5)
    assert "\n" not in str(caught.value)


def test_infograph_holds_nothing_but_encoder_and_discriminator() -> None:
    model = build(config("infograph", discriminator="bilinear"), 5)
    parts = {name.partition(".")[0] for name, _ in model.named_parameters()}
    assert parts == {"base_encoder", "discriminator"}


# GraphCL.


@pytest.mark.parametrize("temperature", [0.5, 0.1])
@pytest.mark.parametrize("seed", range(4))
def test_graphcl_equals_the_loops(temperature: float, seed: int) -> None:
    chosen = {"bound_temperature": temperature, "ratio": 0.4}  # every graph of two nodes loses one
    model, graph = float64("graphcl", **chosen), make_graph("random many")
    output = step(model, graph, seed)
    graphs = [reference.encode_and_project(model.base_encoder, view)[1] for view in output.views]
    slow = reference.ZERO
    for left, right in (graphs, reversed(graphs)):
        scores = [[reference.cosine_score(h, g, ONE, ONE) for g in right] for h in left]
        positive = [[a == b for b in range(len(left))] for a in range(len(left))]
        slow = slow - reference.nt_xent(scores, positive, [ONE] * len(left), temperature)
    assert_agree(output.loss, slow, [graph.x, *model.parameters()], 1e-9)


def test_graphcl_draws_all_pairs_evenly() -> None:
    graph = make_graph("random sparse").to("cpu", torch.float32)
    model = build(config("graphcl", hidden=4), graph.num_features)
    draws: Counter[Edge] = Counter()
    for seed in range(500):
        draw = step(model, graph, seed).draw
        draws[draw.i, draw.j] += 1
        assert draw.probabilities.tolist() == pytest.approx([0.2] * 5)
    assert len(draws) == 25
    assert max(draws.values()) < 20 + 4 * math.sqrt(20)


def test_graphcl_without_replacement_draws_two_different() -> None:
    graph = make_graph("random sparse").to("cpu", torch.float32)
    model = build(config("graphcl", hidden=4, replacement=False), graph.num_features)
    assert all(draw.i != draw.j for draw in (step(model, graph, s).draw for s in range(40)))


def test_graphcl_makes_the_views_it_drew() -> None:
    graph = toy_graphs(num_graphs=6).graph
    model = build(config("graphcl", heads=["feature-masking", "identity"]), graph.num_features)
    for seed in range(8):
        output = step(model, graph, seed)
        for place, view in zip((output.draw.i, output.draw.j), output.views, strict=True):
            assert torch.equal(view.x, graph.x) == (place == 1)


def test_graphcl_keeps_the_share_that_the_config_says() -> None:
    graph = toy_graphs(num_graphs=6).graph
    model = build(config("graphcl", heads=["node-dropping"], ratio=0.6), graph.num_features)
    for view in step(model, graph).views:
        assert sizes(view) == [math.ceil(0.6 * n) for n in sizes(graph)]


def test_graphcl_learns_no_augmentation() -> None:
    model = build(config("graphcl"), 5)
    assert {name.partition(".")[0] for name, _ in model.named_parameters()} == {"base_encoder"}
    assert set(AUGMENTATIONS) == set(HEAD_NAMES)


# GraphCL's augmentations: the heads' contract.


def cut(name: str, graph: GraphBatch, ratio: float = 0.8, seed: int = 0) -> GraphBatch:
    return AUGMENTATIONS[name](graph, ratio, generator(seed))


def batch_of(*graphs: tuple[int, Iterable[Edge]], width: int = 3) -> GraphBatch:
    """A batch of graphs given by their number of nodes and their undirected edges."""
    listed: list[Edge] = []
    home: list[int] = []
    for number, (n, pairs) in enumerate(graphs):
        for u, v in pairs:
            listed += [(len(home) + u, len(home) + v), (len(home) + v, len(home) + u)]
        home += [number] * n
    return GraphBatch(
        x=torch.randn(len(home), width, generator=generator(1)),
        edge_index=torch.tensor(listed, dtype=torch.long).reshape(-1, 2).T.contiguous(),
        batch=torch.tensor(home),
        num_graphs=len(graphs),
    )


def path(n: int) -> tuple[int, list[Edge]]:
    return n, [(v, v + 1) for v in range(n - 1)]


def clique(n: int) -> tuple[int, list[Edge]]:
    return n, list(combinations(range(n), 2))


def share(ratio: float, count: int) -> int:
    """Rounded up; one part in a million is not worth another."""
    return math.ceil(ratio * count - 1e-6)


def pairs(listed: Iterable[Edge]) -> set[Edge]:
    return {(min(u, v), max(u, v)) for u, v in listed if u != v}


@every_augmentation
@fewer
@given(graph=graph_batches(), seed=seeds, ratio=ratios)
def test_a_view_adds_no_node_joins_no_two_graphs_and_empties_none(
    name: str, graph: GraphBatch, seed: int, ratio: float
) -> None:
    view = cut(name, graph, ratio, seed).validate()
    assert view.num_graphs == graph.num_graphs
    assert view.origin is not None
    for before, after in zip(nodes_per_graph(graph), nodes_per_graph(view), strict=True):
        assert after
        assert set(after) <= set(before)
        assert after == sorted(set(after))
    assert (view.edge_weight is None) == (graph.edge_weight is None)


@every_augmentation
@fewer
@given(graph=graph_batches(), seed=seeds, ratio=ratios)
def test_an_augmentation_leaves_its_input_alone(
    name: str, graph: GraphBatch, seed: int, ratio: float
) -> None:
    def tensors() -> list[Tensor]:
        own = [] if graph.edge_attr is None else [graph.edge_attr]
        return [graph.x, graph.edge_index, graph.batch, graph.weights(), *own]

    before = [tensor.clone() for tensor in tensors()]
    cut(name, graph, ratio, seed)
    assert all(torch.equal(old, new) for old, new in zip(before, tensors(), strict=True))


@every_augmentation
@fewer
@given(graph=graph_batches(), seed=seeds)
def test_all_is_kept_where_the_share_is_one(name: str, graph: GraphBatch, seed: int) -> None:
    view = cut(name, graph, 1.0, seed)
    assert origins(view) == list(range(graph.num_nodes))
    assert torch.equal(view.x, graph.x)
    assert weighted_edges(view) == weighted_edges(graph)
    assert attributed_edges(view) == attributed_edges(graph)
    assert view.num_edge_features == graph.num_edge_features


@every_augmentation
@fewer
@given(graph=graph_batches(undirected=True), seed=seeds, ratio=ratios)
def test_an_undirected_graph_stays_undirected(
    name: str, graph: GraphBatch, seed: int, ratio: float
) -> None:
    for found in edges_per_graph(cut(name, graph, ratio, seed)):
        assert found == Counter({(v, u): k for (u, v), k in found.items()})


@every_augmentation
def test_the_generator_alone_fixes_a_view(name: str, device: torch.device) -> None:
    graph = batch_of(path(9), clique(6), (8, [(0, 1)])).to(device)

    def drawn(seed: int) -> str:
        view = cut(name, graph, 0.6, seed)
        assert view.x.device.type == device.type
        # CUDA adds up in any order.
        return repr((origins(view), edges_per_graph(view), view.x.round(decimals=4).tolist()))

    assert drawn(1) == drawn(1)
    assert len({drawn(seed) for seed in range(5)}) == (1 if name == "identity" else 5)


@every_augmentation
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_view_has_its_graphs_type(name: str, dtype: torch.dtype) -> None:
    graph = batch_of(path(9), clique(6)).to("cpu", dtype)
    graph = graph.replace(edge_weight=torch.ones_like(graph.weights()))
    view = cut(name, graph, 0.6)
    assert view.x.dtype == view.weights().dtype == dtype


# GraphCL's augmentations, one by one.


@pytest.mark.parametrize("name", ["node-dropping", "sub-graph"])
@given(graph=graph_batches(), seed=seeds, ratio=ratios)
def test_a_cut_view_is_induced_by_a_share_of_the_nodes(
    name: str, graph: GraphBatch, seed: int, ratio: float
) -> None:
    view = cut(name, graph, ratio, seed)
    assert sizes(view) == [share(ratio, n) for n in sizes(graph)]
    assert torch.equal(view.x, graph.x[view.origin])
    for before, nodes, after in zip(
        weighted_edges(graph), nodes_per_graph(view), weighted_edges(view), strict=True
    ):
        assert after == [edge for edge in before if edge[0] in nodes and edge[1] in nodes]
    assert attributed_edges(view) == [
        [edge for edge in before if edge[0] in nodes and edge[1] in nodes]
        for before, nodes in zip(attributed_edges(graph), nodes_per_graph(view), strict=True)
    ]


def test_every_node_is_dropped_as_often() -> None:
    graph = batch_of(*[path(5) for _ in range(4000)])
    kept = Counter(name % 5 for name in origins(cut("node-dropping", graph, 0.6)))
    assert all(abs(count - 2400) < 4 * math.sqrt(4000 * 0.24) for count in kept.values())


def hops(graph: GraphBatch, start: int, nodes: list[int]) -> dict[int, int]:
    """Hops from the start to each node of its graph, whatever the edges' direction."""
    joined: dict[int, set[int]] = {v: set() for v in nodes}
    for u, v in edges(graph):
        if u in joined:
            joined[u].add(v)
            joined[v].add(u)
    distance, frontier = {start: 0}, {start}
    while frontier:
        reached = {far for near in frontier for far in joined[near]} - distance.keys()
        distance |= dict.fromkeys(reached, max(distance.values()) + 1)
        frontier = reached
    return {v: distance.get(v, len(nodes)) for v in nodes}


@given(graph=graph_batches(), seed=seeds, ratio=ratios)
def test_a_sub_graph_holds_what_is_nearest_to_one_node(
    graph: GraphBatch, seed: int, ratio: float
) -> None:
    view = cut("sub-graph", graph, ratio, seed)
    for before, after in zip(nodes_per_graph(graph), nodes_per_graph(view), strict=True):

        def is_centre(start: int, before: list[int] = before, after: list[int] = after) -> bool:
            distance = hops(graph, start, before)
            left_out = [distance[v] for v in before if v not in after]
            return max(distance[v] for v in after) <= min(left_out, default=len(before))

        assert any(is_centre(start) for start in after)


@pytest.mark.parametrize("n", [30, HOPS, HOPS + 1, 3 * HOPS])
def test_distance_counts_hops_up_to_a_bound(n: int) -> None:
    graph = batch_of(path(n), path(2), (3, [(0, 1)]))
    start = torch.zeros(graph.num_nodes, dtype=torch.bool)
    start[[0, n + 1, n + 2]] = True
    expected = [*(min(v, HOPS + 1) for v in range(n)), 1, 0, 0, 1, HOPS + 1]
    assert graphcl._distance(graph, start).tolist() == expected


def test_distance_does_not_mind_the_direction_of_edges() -> None:
    edge_index = torch.tensor([[1, 1, 3, 4], [0, 2, 2, 3]])
    graph = batch_of((5, [])).replace(edge_index=edge_index)
    start = torch.tensor([True, False, False, False, False])
    assert graphcl._distance(graph, start).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("ratio", [0.55, 0.07, 0.14, 0.28, 0.29])
def test_a_whole_share_is_not_rounded_up_any_further(ratio: float) -> None:
    """In floats 0.55 * 100 is more than 55, and so it is with the others."""
    graph = batch_of(path(101), path(100))
    dropped = pairs(edges(graph)) - pairs(edges(cut("edge-perturbation", graph, ratio)))
    assert len([edge for edge in dropped if edge[1] < 101]) == round(100 - 100 * ratio)
    for name in ("node-dropping", "sub-graph"):
        assert sizes(cut(name, graph, ratio))[1] == round(100 * ratio)


def test_a_sub_graph_of_a_path_is_a_path() -> None:
    graph = batch_of(*[path(20) for _ in range(50)])
    starts: Counter[int] = Counter()
    for nodes in nodes_per_graph(cut("sub-graph", graph, 0.5)):
        assert nodes == list(range(nodes[0], nodes[0] + 10))
        starts[nodes[0] % 20] += 1
    assert len(starts) > 5


@given(graph=graph_batches(), seed=seeds, ratio=ratios)
def test_as_many_edges_are_added_as_dropped(graph: GraphBatch, seed: int, ratio: float) -> None:
    view = cut("edge-perturbation", graph, ratio, seed)
    assert torch.equal(view.x, graph.x)
    assert origins(view) == list(range(graph.num_nodes))
    for n, before, after in zip(
        sizes(graph), edges_per_graph(graph), edges_per_graph(view), strict=True
    ):
        joined, now = pairs(before), pairs(after)
        dropped = len(joined) - share(ratio, len(joined))
        assert len(joined - now) == dropped
        assert len(now - joined) == min(dropped, n * (n - 1) // 2 - len(joined))
        for u, v in before:  # with all directions and repetitions, and loops always
            stays = u == v or (min(u, v), max(u, v)) in now
            assert after[u, v] == (before[u, v] if stays else 0)


@given(graph=graph_batches(weighted=True), seed=seeds)
def test_a_kept_edge_keeps_its_weight_and_a_new_one_has_one_of_its_graph(
    graph: GraphBatch, seed: int
) -> None:
    view = cut("edge-perturbation", graph, 0.5, seed)
    for before, after in zip(weighted_edges(graph), weighted_edges(view), strict=True):
        own = {(u, v) for u, v, _ in before}
        for edge in after:
            if edge[:2] in own:
                assert edge in before
            else:
                assert edge[2] in {w for _, _, w in before}


@given(graph=graph_batches(attributed=True), seed=seeds)
def test_a_kept_edge_keeps_its_attributes_and_a_new_one_has_those_of_its_graph(
    graph: GraphBatch, seed: int
) -> None:
    view = cut("edge-perturbation", graph, 0.5, seed)
    for before, after in zip(attributed_edges(graph), attributed_edges(view), strict=True):
        own = {(u, v) for u, v, _ in before}
        for edge in after:
            if edge[:2] in own:
                assert edge in before
            else:
                assert edge[2] in {e for _, _, e in before}


def test_every_edge_is_dropped_and_every_non_edge_added_as_often() -> None:
    graph = batch_of(*[path(5) for _ in range(4000)])
    found = Counter((u % 5, v % 5) for u, v in edges(cut("edge-perturbation", graph, 0.5)) if u < v)
    own = [found[v, v + 1] for v in range(4)]
    new = [found[u, v] for u, v in combinations(range(5), 2) if v - u > 1]
    assert sum(own) == sum(new) == 8000
    assert all(abs(count - 2000) < 4 * math.sqrt(1000) for count in own)
    assert all(abs(count - 8000 / 6) < 4 * math.sqrt(8000 * 5 / 36) for count in new)


@given(graph=graph_batches(), seed=seeds, ratio=ratios)
def test_masked_nodes_have_the_mean_of_their_graph(
    graph: GraphBatch, seed: int, ratio: float
) -> None:
    torch.manual_seed(seed)
    graph = graph.replace(x=torch.randn(graph.x.shape))
    view = cut("feature-masking", graph, ratio, seed)
    assert torch.equal(view.edge_index, graph.edge_index)
    assert torch.equal(view.weights(), graph.weights())
    assert view.edge_attr is graph.edge_attr
    for nodes in nodes_per_graph(graph):
        same = [v for v in nodes if torch.equal(view.x[v], graph.x[v])]
        mean = graph.x[nodes].mean(0)
        if len(nodes) > 1:
            assert len(same) == share(ratio, len(nodes))
        for v in set(nodes) - set(same):
            torch.testing.assert_close(view.x[v], mean)
