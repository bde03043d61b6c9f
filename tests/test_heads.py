"""The five heads: one contract for all, and what each of them does to a graph."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations, permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lg2ar.graph import Encoding, GraphBatch
from lg2ar.heads import (
    HEADS,
    EdgePerturbation,
    EdgeWeighting,
    FeatureMasking,
    Head,
    Identity,
    NodeDropping,
    SubGraph,
)
from strategies import (
    Edge,
    attributed_edges,
    edges_per_graph,
    encode,
    graph_batches,
    nodes_per_graph,
    origins,
    seeds,
    sizes,
    weighted_edges,
)

HIDDEN = 4
WEIGHTINGS: tuple[EdgeWeighting, ...] = ("printed", "relative", "straight-through")
RATIOS = (0.1, 0.6, 0.75, 1.0)
HOPS = (0, 1, 2, 5)
SURE = 200.0  # log-odds at which a coin never falls on the other side


@dataclass(frozen=True)
class Case:
    """A head with some setting, made for features of nodes and edges of some width."""

    name: str
    make: Callable[[int, int], Head]


CASES = [
    Case("identity", lambda width, edges: Identity()),
    Case("node-dropping-0.1-printed", lambda width, edges: NodeDropping(HIDDEN, 0.1, "printed")),
    Case("node-dropping-0.6-relative", lambda width, edges: NodeDropping(HIDDEN, 0.6, "relative")),
    Case(
        "node-dropping-1-straight",
        lambda width, edges: NodeDropping(HIDDEN, 1.0, "straight-through"),
    ),
    Case("sub-graph-0-relative", lambda width, edges: SubGraph(HIDDEN, 0, "relative")),
    Case("sub-graph-1-straight", lambda width, edges: SubGraph(HIDDEN, 1, "straight-through")),
    Case("sub-graph-5-printed", lambda width, edges: SubGraph(HIDDEN, 5, "printed")),
    Case(
        "edge-perturbation-printed",
        lambda width, edges: EdgePerturbation(HIDDEN, 0.1, "printed", edges),
    ),
    Case(
        "edge-perturbation-relative",
        lambda width, edges: EdgePerturbation(HIDDEN, 1.0, "relative", edges),
    ),
    Case(
        "edge-perturbation-straight",
        lambda width, edges: EdgePerturbation(HIDDEN, 1.0, "straight-through", edges),
    ),
    Case("feature-masking-own", lambda width, edges: FeatureMasking(width, HIDDEN)),
    Case(
        "feature-masking-shared",
        lambda width, edges: FeatureMasking(width, HIDDEN, projection=False),
    ),
]
# One setting of each head, where the setting does not matter.
PLAIN = [
    Case("identity", lambda width, edges: Identity()),
    Case("node-dropping", lambda width, edges: NodeDropping(HIDDEN)),
    Case(
        "edge-perturbation", lambda width, edges: EdgePerturbation(HIDDEN, num_edge_features=edges)
    ),
    Case("sub-graph", lambda width, edges: SubGraph(HIDDEN)),
    Case("feature-masking", lambda width, edges: FeatureMasking(width, HIDDEN)),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
fewer = settings(max_examples=30)  # of each of many cases
every_head = pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
every_weighting = pytest.mark.parametrize("weighting", WEIGHTINGS)


def made(case: Case, graph: GraphBatch, seed: int = 0) -> Head:
    """The head with weights fixed by the seed, in the type and on the device of the batch."""
    torch.manual_seed(seed)
    return case.make(graph.num_features, graph.num_edge_features).to(graph.device, graph.x.dtype)


def cut(head: Head, graph: GraphBatch, seed: int = 0) -> GraphBatch:
    """A view that the seed fixes."""
    head = head.to(graph.device, graph.x.dtype)
    view: GraphBatch = head(graph, encode(graph, HIDDEN, seed), generator(seed))
    return view


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tensors(graph: GraphBatch, encoding: Encoding) -> list[Tensor]:
    parts = [graph.x, graph.edge_index, graph.batch, encoding.nodes, encoding.graphs]
    return [*parts, *(v for v in (graph.edge_weight, graph.edge_attr) if v is not None)]


def batch_of(*graphs: tuple[int, Iterable[Edge]], width: int = 3) -> GraphBatch:
    """A batch of graphs given by their number of nodes and their undirected edges."""
    edges: list[Edge] = []
    home: list[int] = []
    for number, (n, pairs) in enumerate(graphs):
        for u, v in pairs:
            edges += [(len(home) + u, len(home) + v), (len(home) + v, len(home) + u)]
        home += [number] * n
    return GraphBatch(
        x=torch.randn(len(home), width, generator=generator(1)),
        edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T.contiguous(),
        batch=torch.tensor(home),
        num_graphs=len(graphs),
    )


def with_attributes(graph: GraphBatch, width: int = 2) -> GraphBatch:
    """The batch with attributes that are the same in both directions of an edge."""
    source, target = graph.edge_index.cpu()
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    phases = (low * 3.0 + high * 7.0).unsqueeze(-1) + torch.arange(width)
    return graph.replace(edge_attr=phases.sin().to(graph.x))


def path(n: int) -> tuple[int, list[Edge]]:
    return n, [(v, v + 1) for v in range(n - 1)]


def clique(n: int) -> tuple[int, list[Edge]]:
    return n, list(combinations(range(n), 2))


def some_graphs() -> GraphBatch:
    """A path, a clique and a ring with a tail."""
    return batch_of(
        path(6), clique(4), (7, [(0, 1), (1, 2), (2, 3), (3, 0), (3, 4), (4, 5), (5, 6)])
    )


def same_edges(graph: GraphBatch, other: GraphBatch) -> bool:
    return edges_per_graph(graph) == edges_per_graph(other)


# What every head promises.


def test_every_named_head_is_in_the_table() -> None:
    names = {case.name for case in PLAIN}
    assert names == set(HEADS)
    assert {type(case.make(3, 0)) for case in PLAIN} == set(HEADS.values())


@every_case
@fewer
@given(graph=graph_batches(), seed=seeds)
def test_a_view_is_cut_from_its_own_graph(case: Case, graph: GraphBatch, seed: int) -> None:
    """It adds no node, moves none to another graph, joins no two graphs and empties none."""
    view = cut(made(case, graph, seed), graph, seed).validate()
    names = origins(view)
    assert view.origin is not None
    assert len(set(names)) == len(names) == view.num_nodes
    assert set(names) <= set(range(graph.num_nodes))
    assert view.num_graphs == graph.num_graphs
    assert view.batch.tolist() == [graph.batch.tolist()[name] for name in names]
    assert min(sizes(view)) >= 1
    source, target = view.edge_index
    assert torch.equal(view.batch[source], view.batch[target])
    assert view.weights().shape == (view.num_edges,)
    assert (view.edge_attr is None) == (graph.edge_attr is None)
    assert view.num_edge_features == graph.num_edge_features


@every_case
@fewer
@given(graph=graph_batches(), seed=seeds)
def test_the_input_is_left_alone(case: Case, graph: GraphBatch, seed: int) -> None:
    head, encoding = made(case, graph, seed), encode(graph, HIDDEN, seed)
    before = [tensor.detach().clone() for tensor in tensors(graph, encoding)]
    view = head(graph, encoding, generator(seed))
    loss = view.x.sum() + view.weights().sum()
    if loss.requires_grad:
        loss.backward()
    for tensor, copy in zip(tensors(graph, encoding), before, strict=True):
        assert torch.equal(tensor, copy)


@every_case
@fewer
@given(graph=graph_batches(), seed=seeds)
def test_the_same_seed_cuts_the_same_view(case: Case, graph: GraphBatch, seed: int) -> None:
    head = made(case, graph, seed)
    state = torch.get_rng_state()
    one, two = cut(head, graph, seed), cut(head, graph, seed)
    assert torch.equal(state, torch.get_rng_state())  # all noise came from the generator
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.weights(), two.weights())
    assert attributed_edges(one) == attributed_edges(two)
    assert origins(one) == origins(two)


@pytest.mark.parametrize("case", PLAIN[1:], ids=lambda case: case.name)
def test_another_seed_cuts_another_view(case: Case) -> None:
    graph = batch_of(*[path(8) for _ in range(6)])
    head, encoding = made(case, graph), encode(graph, HIDDEN)

    def drawn(seed: int) -> str:
        view = head(graph, encoding, generator(seed))
        return repr((origins(view), edges_per_graph(view), view.x.tolist()))

    assert len({drawn(seed) for seed in range(5)}) == 5


@every_head
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_view_has_its_graphs_type_and_device(
    case: Case, dtype: torch.dtype, device: torch.device
) -> None:
    graph = some_graphs().to(device, dtype)
    graph = with_attributes(graph.replace(edge_weight=torch.full_like(graph.weights(), 2.0)))
    view = cut(made(case, graph), graph)
    assert view.edge_attr is not None
    assert view.edge_attr.dtype == dtype
    assert view.x.dtype == dtype
    assert view.weights().dtype == dtype
    assert view.origin is not None
    places = view.edge_index, view.batch, view.origin
    for tensor in (view.x, *places, view.weights(), view.edge_attr):
        assert tensor.device.type == device.type


@every_head
@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(batch_of((1, [])), id="single node"),
        pytest.param(batch_of((1, [(0, 0)])), id="single node with a self-loop"),
        pytest.param(batch_of((5, [])), id="no edges"),
        pytest.param(batch_of(path(5)), id="one graph"),
        pytest.param(batch_of((1, []), path(4), (1, []), (3, [])), id="mixed"),
    ],
)
@pytest.mark.parametrize("attributed", [False, True])
def test_a_head_takes_the_smallest_graphs(
    case: Case, graph: GraphBatch, attributed: bool, device: torch.device
) -> None:
    graph = graph.to(device)
    graph = with_attributes(graph) if attributed else graph
    view = cut(made(case, graph), graph).validate()
    assert view.num_edge_features == graph.num_edge_features
    assert view.num_graphs == graph.num_graphs
    assert all(1 <= kept <= n for kept, n in zip(sizes(view), sizes(graph), strict=True))


@every_head
def test_a_loaded_head_cuts_the_same_view(case: Case, device: torch.device) -> None:
    graph = with_attributes(some_graphs().to(device))
    head, other = made(case, graph, seed=1), made(case, graph, seed=2)
    other.load_state_dict(head.state_dict())
    one, two = cut(head, graph), cut(other, graph)
    assert origins(one) == origins(two)
    assert torch.equal(one.edge_index, two.edge_index)
    # CUDA adds up in any order.
    torch.testing.assert_close(one.x, two.x)
    torch.testing.assert_close(one.weights(), two.weights())


# Identity.


@given(graph=graph_batches())
def test_identity_returns_the_very_tensors(graph: GraphBatch) -> None:
    view = cut(Identity(), graph)
    assert view.x is graph.x
    assert view.edge_index is graph.edge_index
    assert view.batch is graph.batch
    assert view.edge_weight is graph.edge_weight
    assert view.edge_attr is graph.edge_attr
    assert origins(view) == list(range(graph.num_nodes))


# Node dropping and sub-graphs: views induced by some nodes.

CUTTERS = [case for case in CASES if case.name.startswith(("node-dropping", "sub-graph"))]


class Fixed(nn.Module):
    """Stands in for the learned scores."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.values = logits

    def forward(self, graph: GraphBatch, encoding: Encoding) -> Tensor:
        return self.values.to(graph.x)


@pytest.mark.parametrize("case", CUTTERS, ids=lambda case: case.name)
@fewer
@given(graph=graph_batches(), seed=seeds)
def test_a_cut_view_holds_every_edge_between_its_nodes(
    case: Case, graph: GraphBatch, seed: int
) -> None:
    view = cut(made(case, graph, seed), graph, seed)
    expected = [
        Counter({(u, v): k for (u, v), k in edges.items() if u in nodes and v in nodes})
        for edges, nodes in zip(edges_per_graph(graph), nodes_per_graph(view), strict=True)
    ]
    assert edges_per_graph(view) == expected
    assert torch.equal(view.x, graph.x[view.origin])
    assert attributed_edges(view) == [
        [(u, v, e) for u, v, e in edges if u in nodes and v in nodes]
        for edges, nodes in zip(attributed_edges(graph), nodes_per_graph(view), strict=True)
    ]


def node_probabilities(head: Head, graph: GraphBatch, encoding: Encoding) -> list[float]:
    """p(V), node by node: the softmax over each graph of MLP([h_v || h_g])."""
    assert isinstance(head, NodeDropping | SubGraph)
    odds = []
    h_v, h_g = encoding.nodes.detach(), encoding.graphs.detach()
    for v, k in enumerate(graph.batch.tolist()):
        odds.append(math.exp(head.scores.mlp(torch.cat([h_v[v], h_g[k]])).item()))
    totals: defaultdict[int, float] = defaultdict(float)
    for k, odd in zip(graph.batch.tolist(), odds, strict=True):
        totals[k] += odd
    return [odd / totals[k] for k, odd in zip(graph.batch.tolist(), odds, strict=True)]


@every_weighting
@pytest.mark.parametrize("kind", [NodeDropping, SubGraph])
@given(graph=graph_batches(dtype=torch.float64), seed=seeds)
def test_a_cut_edge_weighs_the_sum_of_its_nodes_probabilities(
    kind: type[NodeDropping] | type[SubGraph],
    weighting: EdgeWeighting,
    graph: GraphBatch,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    head = kind(HIDDEN, edge_weighting=weighting).double()
    encoding = encode(graph, HIDDEN, seed)
    view = head(graph, encoding, generator(seed))
    p = node_probabilities(head, graph, encoding)
    found = weighted_edges(view)
    for n, nodes, before, after in zip(
        sizes(graph), nodes_per_graph(view), weighted_edges(graph), found, strict=True
    ):
        factor = {"printed": 1.0, "relative": n / 2, "straight-through": None}[weighting]
        expected = sorted(
            (u, v, own * (1.0 if factor is None else factor * (p[u] + p[v])))
            for u, v, own in before
            if u in nodes and v in nodes
        )
        assert [edge[:2] for edge in after] == [edge[:2] for edge in expected]
        assert [w for _, _, w in after] == pytest.approx([w for _, _, w in expected], rel=1e-9)


@pytest.mark.parametrize("kind", [NodeDropping, SubGraph])
@given(graph=graph_batches(weighted=False), seed=seeds)
def test_straight_through_cut_edges_weigh_exactly_one(
    kind: type[NodeDropping] | type[SubGraph], graph: GraphBatch, seed: int
) -> None:
    torch.manual_seed(seed)
    view = cut(kind(HIDDEN, edge_weighting="straight-through"), graph, seed)
    assert view.edge_weight is not None
    assert torch.equal(view.edge_weight, torch.ones(view.num_edges))


@every_weighting
@pytest.mark.parametrize("kind", [NodeDropping, SubGraph])
def test_cut_weights_carry_the_gradient_to_scores_and_encoding(
    kind: type[NodeDropping] | type[SubGraph], weighting: EdgeWeighting, device: torch.device
) -> None:
    graph = some_graphs().to(device, torch.float64)
    head = kind(HIDDEN, edge_weighting=weighting).to(device, torch.float64)
    encoding = encode(graph, HIDDEN)
    view = head(graph, encoding, generator(0))
    assert view.edge_weight is not None
    view.edge_weight.pow(2).dot(torch.arange(view.num_edges, device=device).double()).backward()
    reached = {name: parameter.grad for name, parameter in head.named_parameters()}
    reached |= {"nodes": encoding.nodes.grad, "graphs": encoding.graphs.grad}
    # A constant added to every logit leaves the softmax as it is.
    assert reached.pop("scores.mlp.rest.1.bias") is not None
    for name, gradient in reached.items():
        assert gradient is not None, name
        assert gradient.abs().sum() > 1e-6, name


def test_all_weightings_but_the_printed_one_share_their_gradient() -> None:
    graph = some_graphs().to("cpu", torch.float64)

    def gradient(weighting: EdgeWeighting) -> Tensor:
        torch.manual_seed(0)
        head = NodeDropping(HIDDEN, 1.0, weighting).double()
        encoding = encode(graph, HIDDEN)
        weight = head(graph, encoding, generator(0)).edge_weight
        assert weight is not None
        (found,) = torch.autograd.grad(weight[::3].sum(), encoding.nodes)
        return found

    torch.testing.assert_close(gradient("relative"), gradient("straight-through"))
    assert not torch.allclose(gradient("relative"), gradient("printed"))


# Node dropping.


@given(graph=graph_batches(), seed=seeds, ratio=st.sampled_from([0.01, *RATIOS, 0.3, 0.5, 0.9]))
def test_node_dropping_keeps_the_share_rounded_up(
    graph: GraphBatch, seed: int, ratio: float
) -> None:
    view = cut(NodeDropping(HIDDEN, ratio), graph, seed)
    assert sizes(view) == [math.ceil(ratio * n) for n in sizes(graph)]


def test_node_dropping_keeps_four_of_five_by_default() -> None:
    graph = batch_of(path(10), path(5), path(1))
    assert sizes(cut(NodeDropping(HIDDEN), graph)) == [8, 4, 1]


@given(graph=graph_batches(), seed=seeds)
def test_ratio_one_keeps_the_whole_graph(graph: GraphBatch, seed: int) -> None:
    view = cut(NodeDropping(HIDDEN, 1.0), graph, seed)
    assert origins(view) == list(range(graph.num_nodes))
    assert torch.equal(view.x, graph.x)
    assert same_edges(view, graph)


@given(graph=graph_batches(), seed=seeds)
def test_the_most_probable_nodes_are_kept(graph: GraphBatch, seed: int) -> None:
    head = NodeDropping(HIDDEN, 0.5)
    rank = torch.cat([torch.randperm(n, generator=generator(seed)) for n in sizes(graph)])
    head.scores = Fixed(SURE * rank)  # type: ignore[assignment]
    view = cut(head, graph, seed)
    for before, after in zip(nodes_per_graph(graph), nodes_per_graph(view), strict=True):
        best = sorted(before, key=lambda v: -int(rank[v]))[: math.ceil(len(before) / 2)]
        assert sorted(best) == after


# Sub-graphs.


def ball(graph: GraphBatch, centre: int, hops: int) -> set[int]:
    """What a walk of so many steps from the centre can reach, whatever the edges' direction."""
    joined: defaultdict[int, set[int]] = defaultdict(set)
    for u, v in graph.edge_index.T.tolist():
        joined[u].add(v)
        joined[v].add(u)
    reached, frontier = {centre}, {centre}
    for _ in range(hops):
        frontier = {far for near in frontier for far in joined[near]} - reached
        reached |= frontier
    return reached


@given(graph=graph_batches(), seed=seeds, hops=st.sampled_from(HOPS))
def test_a_sub_graph_is_what_lies_around_one_node(graph: GraphBatch, seed: int, hops: int) -> None:
    torch.manual_seed(seed)
    view = cut(SubGraph(HIDDEN, hops), graph, seed)
    for before, after in zip(nodes_per_graph(graph), nodes_per_graph(view), strict=True):
        assert any(ball(graph, centre, hops) == set(after) for centre in before)


@given(graph=graph_batches(), seed=seeds)
def test_no_hops_keep_one_node_of_each_graph(graph: GraphBatch, seed: int) -> None:
    view = cut(SubGraph(HIDDEN, hops=0), graph, seed)
    assert sizes(view) == [1] * graph.num_graphs


@given(graph=graph_batches(), seed=seeds, hops=st.sampled_from(HOPS))
def test_a_sub_graph_lies_around_the_most_probable_node(
    graph: GraphBatch, seed: int, hops: int
) -> None:
    head = SubGraph(HIDDEN, hops)
    rank = torch.cat([torch.randperm(n, generator=generator(seed)) for n in sizes(graph)])
    head.scores = Fixed(SURE * rank)  # type: ignore[assignment]
    view = cut(head, graph, seed)
    for before, after in zip(nodes_per_graph(graph), nodes_per_graph(view), strict=True):
        centre = max(before, key=lambda v: int(rank[v]))
        assert ball(graph, centre, hops) == set(after)


def test_a_sub_graph_reaches_three_hops_by_default() -> None:
    head = SubGraph(HIDDEN)
    head.scores = Fixed(torch.tensor([SURE] + 9 * [0.0]))  # type: ignore[assignment]
    assert origins(cut(head, batch_of(path(10)))) == [0, 1, 2, 3]


# Edge perturbation.


def pairs(edges: Iterable[Edge]) -> set[Edge]:
    """The unordered pairs of different nodes that the edges join."""
    return {(min(u, v), max(u, v)) for u, v in edges if u != v}


def decided(existing: float, new: float) -> EdgePerturbation:
    """A head with these log-odds for every edge, and every non-edge."""
    head = EdgePerturbation(HIDDEN)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    last = head.mlp.rest[1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():  # one hidden unit reads whether the edge exists
        head.mlp.first.weight[0, -1] = 1.0
        last.weight[0, 0] = existing - new
        last.bias[:] = new
    return head


@every_weighting
@given(graph=graph_batches(), seed=seeds)
def test_edge_perturbation_leaves_the_nodes_alone(
    weighting: EdgeWeighting, graph: GraphBatch, seed: int
) -> None:
    view = cut(EdgePerturbation(HIDDEN, edge_weighting=weighting), graph, seed)
    assert torch.equal(view.x, graph.x)
    assert torch.equal(view.batch, graph.batch)
    assert origins(view) == list(range(graph.num_nodes))


@given(graph=graph_batches(), seed=seeds)
def test_a_kept_edge_keeps_its_attributes_and_a_new_one_has_those_of_an_edge(
    graph: GraphBatch, seed: int
) -> None:
    torch.manual_seed(seed)
    head = EdgePerturbation(HIDDEN, num_edge_features=graph.num_edge_features)
    view = cut(head, graph, seed)
    for before, after in zip(attributed_edges(graph), attributed_edges(view), strict=True):
        joined = pairs((u, v) for u, v, _ in before)
        known = {e for _, _, e in before}
        for edge, number in Counter(after).items():
            if edge[0] == edge[1] or (min(edge[:2]), max(edge[:2])) in joined:
                assert number == before.count(edge)
            else:
                assert edge[2] in known


@given(graph=graph_batches(undirected=True, attributed=True), seed=seeds)
def test_both_directions_of_any_edge_have_the_same_attributes(graph: GraphBatch, seed: int) -> None:
    torch.manual_seed(seed)
    head = EdgePerturbation(HIDDEN, num_edge_features=graph.num_edge_features)
    for edges in attributed_edges(cut(head, graph, seed)):
        assert edges == sorted((v, u, e) for u, v, e in edges)


def test_the_head_keeps_edges_by_their_attributes() -> None:
    """One attribute decides: its edges stay, the others go, and no edge is new."""
    graph = with_attributes(some_graphs(), width=1)
    assert graph.edge_attr is not None
    graph = graph.replace(edge_attr=(graph.edge_attr > 0).float())
    head = EdgePerturbation(HIDDEN, num_edge_features=1)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    last = head.mlp.rest[1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():  # one hidden unit: 2 SURE where the edge exists and has the attribute
        head.mlp.first.weight[0, HIDDEN:] = 2 * SURE
        head.mlp.first.bias[0] = -2 * SURE
        last.weight[0, 0] = 1.0
        last.bias[:] = -SURE
    kept = attributed_edges(cut(head, graph))
    expected = [[edge for edge in edges if edge[2] == (1.0,)] for edges in attributed_edges(graph)]
    assert kept == expected
    assert 0 < sum(map(len, kept)) < graph.num_edges


@given(graph=graph_batches(), seed=seeds)
def test_an_edge_is_kept_with_all_its_directions_and_repetitions(
    graph: GraphBatch, seed: int
) -> None:
    torch.manual_seed(seed)
    view = cut(EdgePerturbation(HIDDEN), graph, seed)
    for before, after in zip(edges_per_graph(graph), edges_per_graph(view), strict=True):
        for u, v in before:
            both = {(u, v), (v, u)}
            kept = {edge: after[edge] for edge in both}
            assert kept in ({edge: before[edge] for edge in both}, dict.fromkeys(both, 0))


@given(graph=graph_batches(), seed=seeds)
def test_a_new_edge_was_none_before_and_stays_in_its_graph(graph: GraphBatch, seed: int) -> None:
    view = cut(EdgePerturbation(HIDDEN), graph, seed)
    for nodes, before, after in zip(
        nodes_per_graph(graph), edges_per_graph(graph), edges_per_graph(view), strict=True
    ):
        new = [edge for edge in after if edge not in before]
        assert pairs(new).isdisjoint(pairs(before))
        assert all(u != v and u in nodes and v in nodes for u, v in new)
        assert len(pairs(new)) <= len(pairs(before))


@every_weighting
@given(graph=graph_batches(undirected=True), seed=seeds)
def test_an_undirected_graph_stays_undirected(
    weighting: EdgeWeighting, graph: GraphBatch, seed: int
) -> None:
    torch.manual_seed(seed)
    view = cut(EdgePerturbation(HIDDEN, edge_weighting=weighting), graph, seed)
    for edges in weighted_edges(view):
        turned = sorted((v, u, w) for u, v, w in edges)
        assert [edge[:2] for edge in edges] == [edge[:2] for edge in turned]
        # Equal numbers in different lanes of a vector may be rounded differently.
        assert [edge[2] for edge in edges] == pytest.approx([edge[2] for edge in turned], rel=1e-5)


@given(graph=graph_batches(), seed=seeds)
def test_sure_edges_stay_and_sure_non_edges_stay_out(graph: GraphBatch, seed: int) -> None:
    view = cut(decided(existing=SURE, new=-SURE), graph, seed)
    assert same_edges(view, graph)


@given(graph=graph_batches(), seed=seeds)
def test_as_many_new_edges_are_offered_as_there_are_edges(graph: GraphBatch, seed: int) -> None:
    view = cut(decided(existing=-SURE, new=SURE), graph, seed)
    for n, before, after in zip(
        sizes(graph), edges_per_graph(graph), edges_per_graph(view), strict=True
    ):
        joined = len(pairs(before))
        free = n * (n - 1) // 2 - joined
        assert pairs(before).isdisjoint(pairs(after))
        assert len(pairs(after)) == min(joined, free)
        # Where there is room for all, repetitions and directions are those of the edges.
        without_loops = sum(k for (u, v), k in before.items() if u != v)
        if free >= joined:
            assert sum(after.values()) == without_loops


@given(graph=graph_batches(), seed=seeds)
def test_a_graph_may_lose_all_its_edges(graph: GraphBatch, seed: int) -> None:
    view = cut(decided(existing=-SURE, new=-SURE), graph, seed)
    assert view.num_edges == 0
    assert sizes(view) == sizes(graph)


@given(numbers=st.lists(st.integers(1, 7), min_size=1, max_size=4), seed=seeds)
def test_a_complete_graph_gets_no_new_edges(numbers: list[int], seed: int) -> None:
    graph = batch_of(*[clique(n) for n in numbers])
    view = cut(decided(existing=0.0, new=SURE), graph, seed)
    for n, after in zip(nodes_per_graph(graph), edges_per_graph(view), strict=True):
        assert set(after) <= set(permutations(n, 2))
        assert set(after.values()) <= {1}


@pytest.mark.parametrize("weighting", ["printed", "relative"])
@given(graph=graph_batches(dtype=torch.float64), seed=seeds)
def test_a_perturbed_edge_weighs_its_probability(
    weighting: EdgeWeighting, graph: GraphBatch, seed: int
) -> None:
    torch.manual_seed(seed)
    head = EdgePerturbation(
        HIDDEN, edge_weighting=weighting, num_edge_features=graph.num_edge_features
    ).double()
    encoding = encode(graph, HIDDEN, seed)
    view = head(graph, encoding, generator(seed))
    h = encoding.nodes.detach()
    if graph.edge_attr is not None:
        check_probabilities_by_attributes(head, graph, view, h)
        return
    for before, after in zip(weighted_edges(graph), weighted_edges(view), strict=True):
        own: defaultdict[Edge, list[float]] = defaultdict(list)
        for u, v, w in before:
            own[u, v].append(w)
        found: defaultdict[Edge, list[float]] = defaultdict(list)
        for u, v, w in after:
            exists = torch.tensor([float((u, v) in own)], dtype=torch.float64)
            p = head.mlp(torch.cat([h[u] + h[v], exists])).sigmoid().item()
            assert 0 < p < 1
            found[u, v].append(w / p)
        for edge, factors in found.items():
            if edge in own:
                assert sorted(factors) == pytest.approx(sorted(own[edge]), rel=1e-9)
            else:  # a new edge takes the weight of the edge that it was drawn for
                for factor in factors:
                    assert min(abs(factor - w) for _, _, w in before) < 1e-9


def check_probabilities_by_attributes(
    head: EdgePerturbation, graph: GraphBatch, view: GraphBatch, h: Tensor
) -> None:
    """Every weight is the probability by the mean attributes of a pair, times an edge's weight."""
    assert graph.edge_attr is not None
    rows: defaultdict[Edge, list[Tensor]] = defaultdict(list)
    for (u, v), e in zip(graph.edge_index.T.tolist(), graph.edge_attr, strict=True):
        rows[min(u, v), max(u, v)].append(e)
    means = {pair: torch.stack(found).mean(0) for pair, found in rows.items()}
    own = graph.weights().tolist()
    for (u, v), w in zip(view.edge_index.T.tolist(), view.weights().tolist(), strict=True):
        pair = min(u, v), max(u, v)
        joined = pair in means
        exists = torch.tensor([float(joined)], dtype=torch.float64)
        # A new edge was drawn for one of the pairs, which are not told apart here.
        candidates = [means[pair]] if joined else list(means.values())
        expected = {
            head.mlp(torch.cat([h[u] + h[v], e, exists])).sigmoid().item() * factor
            for e in candidates
            for factor in own
        }
        assert min(abs(w - value) for value in expected) < 1e-9


@every_weighting
@given(graph=graph_batches(weighted=False), seed=seeds)
def test_perturbed_weights_lie_between_zero_and_one(
    weighting: EdgeWeighting, graph: GraphBatch, seed: int
) -> None:
    torch.manual_seed(seed)
    view = cut(EdgePerturbation(HIDDEN, edge_weighting=weighting), graph, seed)
    assert view.edge_weight is not None
    if weighting == "straight-through":
        assert torch.equal(view.edge_weight, torch.ones(view.num_edges))
    else:
        assert bool(((view.edge_weight > 0) & (view.edge_weight < 1)).all())


@every_weighting
@pytest.mark.parametrize("attributes", [0, 2])
def test_perturbed_weights_carry_the_gradient_to_head_and_encoding(
    weighting: EdgeWeighting, attributes: int, device: torch.device
) -> None:
    graph = with_attributes(some_graphs().to(device, torch.float64), width=attributes)
    graph = graph if attributes else graph.replace(edge_attr=None)
    head = EdgePerturbation(HIDDEN, edge_weighting=weighting, num_edge_features=attributes)
    head = head.to(device, torch.float64)
    encoding = encode(graph, HIDDEN)
    view = head(graph, encoding, generator(0))
    assert view.edge_weight is not None
    view.edge_weight.dot(torch.arange(view.num_edges, device=device).double()).backward()
    for name, parameter in [*head.named_parameters(), ("nodes", encoding.nodes)]:
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 1e-6, name
    gradient = head.mlp.first.weight.grad
    assert gradient is not None
    assert bool((gradient.abs().sum(0) > 1e-9).all())  # each column: nodes, attributes, indicator


@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
def test_edges_are_kept_as_often_as_their_probability_says(temperature: float) -> None:
    graph = batch_of(*[path(2) for _ in range(2000)])
    head = decided(existing=math.log(3), new=-SURE)  # three to one
    head.temperature = temperature
    kept = cut(head, graph).num_edges / graph.num_edges
    assert kept == pytest.approx(0.75, abs=0.04)  # four standard deviations


def test_a_head_for_attributes_refuses_a_batch_without() -> None:
    with pytest.raises(ValueError, match="made for 2 edge attributes, got a batch with 0"):
        cut(EdgePerturbation(HIDDEN, num_edge_features=2), some_graphs())


# Feature masking.


@pytest.mark.parametrize("own", [True, False])
@given(graph=graph_batches(), seed=seeds)
def test_masked_features_are_the_projection_or_zero(
    own: bool, graph: GraphBatch, seed: int
) -> None:
    torch.manual_seed(seed)
    head = FeatureMasking(graph.num_features, HIDDEN, projection=own)
    view = cut(head, graph, seed)
    full = head.projection(graph.x)
    assert view.x.shape == graph.x.shape
    assert bool(((view.x == full) | (view.x == 0)).all())
    if not own:
        assert full is graph.x


@given(graph=graph_batches(), seed=seeds)
def test_feature_masking_leaves_the_structure_alone(graph: GraphBatch, seed: int) -> None:
    view = cut(FeatureMasking(graph.num_features, HIDDEN), graph, seed)
    assert torch.equal(view.edge_index, graph.edge_index)
    assert torch.equal(view.batch, graph.batch)
    assert torch.equal(view.weights(), graph.weights())
    assert view.edge_attr is graph.edge_attr
    assert origins(view) == list(range(graph.num_nodes))


@pytest.mark.parametrize(("bias", "share"), [(SURE, 1.0), (-SURE, 0.0), (math.log(3), 0.75)])
@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
def test_features_are_kept_as_often_as_their_probability_says(
    bias: float, share: float, temperature: float
) -> None:
    graph = batch_of(*[path(10) for _ in range(40)], width=5)
    head = FeatureMasking(5, HIDDEN, temperature, projection=False)
    for parameter in head.mlp.parameters():
        nn.init.zeros_(parameter)
    last = head.mlp.rest[1]
    assert isinstance(last, nn.Linear)
    nn.init.constant_(last.bias, bias)
    kept = cut(head, graph).x != 0
    tolerance = 0.0 if share in (0.0, 1.0) else 0.04  # four standard deviations
    assert kept.float().mean().item() == pytest.approx(share, abs=tolerance)
    if tolerance:  # each node and dimension has a coin of its own
        assert len({tuple(row) for row in kept.tolist()}) > 20


def test_masked_features_carry_the_gradient_to_head_and_encoding(device: torch.device) -> None:
    graph = some_graphs().to(device, torch.float64)
    head = FeatureMasking(graph.num_features, HIDDEN).to(device, torch.float64)
    encoding = encode(graph, HIDDEN)
    view = head(graph, encoding, generator(0))
    view.x.pow(3).sum().backward()
    for name, parameter in [*head.named_parameters(), ("nodes", encoding.nodes)]:
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 1e-6, name
