"""Layers equal dense matrices, PyG's layers, and themselves in blocks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, GINEConv

import reference
from lg2ar import adjacency, layers
from lg2ar.adjacency import Adjacency
from lg2ar.discriminators import Bilinear
from lg2ar.graph import GraphBatch
from lg2ar.layers import (
    MLP,
    BatchNorm,
    WeightedGCNConv,
    WeightedGINConv,
    WeightedGINEConv,
    aggregate,
    dropout,
    initialise,
    pass_messages,
)
from reference import (
    SHAPES,
    assert_agree,
    layers_of,
    leaves,
    make_graph,
    matrix,
    row,
    shaken,
    table,
)
from watch import LargestTensor

# ------------------------------------------------------------------ aggregate


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("weighted", [True, False])
def test_aggregate_is_a_product_with_the_dense_matrix(name: str, weighted: bool) -> None:
    graph = make_graph(name, weighted=weighted)
    fast = aggregate(graph.x, graph, graph.edge_weight)
    slow = matrix(reference.matrix_product(reference.adjacency(graph), table(graph.x)))
    assert_agree(fast, slow, leaves(graph), 1e-12)
    messages = pass_messages(graph.x, graph.edge_index, graph.edge_weight)
    assert_agree(messages, slow, leaves(graph), 1e-12)


@pytest.mark.parametrize("mkl", [True, False])
@pytest.mark.parametrize("block", [1, 7, 1 << 24])
def test_gradients_of_a_product_along_unsorted_and_repeated_edges(
    mkl: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lg2ar.adjacency._MKL", mkl and adjacency._MKL)
    monkeypatch.setattr("lg2ar.adjacency._BLOCK", block)
    edge_index = torch.tensor([[3, 0, 3, 1, 1, 0], [0, 2, 0, 1, 2, 3]])  # node 4 has none
    edges = Adjacency(edge_index, 5)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(edges.product, (x, weight))
    assert torch.autograd.gradcheck(lambda rows: edges.product(rows), (x,))
    dense = torch.zeros(5, 5, dtype=torch.float64).index_put(
        (edge_index[1], edge_index[0]), weight, accumulate=True
    )
    torch.testing.assert_close(edges.product(x, weight), dense @ x)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("block", [1, 3, 7, 1 << 26])
def test_aggregate_in_blocks_equals_the_path_with_gradient(
    name: str, weighted: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_graph(name, weighted=weighted)
    args = graph.x, graph.edge_index, graph.edge_weight
    expected = pass_messages(*args)
    before = graph.x.clone()
    monkeypatch.setattr(layers, "BLOCK", block)
    with torch.no_grad():
        blocked = pass_messages(*args)
    torch.testing.assert_close(blocked, expected.detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(graph.x, before)


@pytest.mark.parametrize("layer", [WeightedGINConv, WeightedGCNConv])
@pytest.mark.parametrize("weighted", [True, False])
def test_without_gradient_no_tensor_of_all_messages_is_made(
    layer: type[WeightedGINConv | WeightedGCNConv],
    weighted: bool,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    N, E, d, block = 20, 3000, 8, 400
    graph = GraphBatch(
        x=torch.randn(N, d),
        edge_index=torch.randint(N, (2, E)),
        batch=torch.zeros(N, dtype=torch.long),
        num_graphs=1,
        edge_weight=torch.rand(E) if weighted else None,
    ).to(device)
    module = layer(d, d).to(device)
    monkeypatch.setattr(layers, "BLOCK", block)
    with LargestTensor(graph.edge_index) as largest:
        expected = module(graph.x, graph)
    assert 0 < largest.numel <= E  # nor with one
    with torch.no_grad(), LargestTensor(graph.edge_index) as largest:
        result = module(graph.x, graph)
    assert 0 < largest.numel <= E
    torch.testing.assert_close(result, expected.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layer", [WeightedGINEConv, WeightedGCNConv])
def test_without_gradient_attributed_messages_are_made_in_blocks(
    layer: type[WeightedGINEConv | WeightedGCNConv],
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    N, E, d, d_e, block = 20, 3000, 8, 5, 400
    graph = GraphBatch(
        x=torch.randn(N, d),
        edge_index=torch.randint(N, (2, E)),
        batch=torch.zeros(N, dtype=torch.long),
        num_graphs=1,
        edge_weight=torch.rand(E),
        edge_attr=torch.randn(E, d_e),
    ).to(device)
    module = layer(d, d, d_e).to(device)
    monkeypatch.setattr(layers, "BLOCK", block)
    assert graph.edge_attr is not None
    with LargestTensor(graph.edge_index, graph.edge_attr) as largest:
        expected = module(graph.x, graph)
    # With a gradient all at once, linear in edges: as wide as the attributes alone in the GCN.
    wide = d if layer is WeightedGINEConv else d_e
    assert largest.numel == E * wide
    with torch.no_grad(), LargestTensor(graph.edge_index, graph.edge_attr) as largest:
        result = module(graph.x, graph)
    assert 0 < largest.numel <= E
    torch.testing.assert_close(result, expected.detach(), rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------ graph layers


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_gin_layer_equals_the_dense_formula(name: str, weighted: bool, seed: int) -> None:
    graph = make_graph(name, weighted=weighted, seed=seed)
    module = shaken(WeightedGINConv(3, 2))
    slow = matrix(reference.gin_layer(layers_of(module.mlp), table(graph.x), graph))
    assert_agree(module(graph.x, graph), slow, leaves(graph, module))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_gine_layer_equals_the_loop_over_edges(name: str, weighted: bool, seed: int) -> None:
    graph = make_graph(name, weighted=weighted, seed=seed, attributes=2)
    module = shaken(WeightedGINEConv(3, 2, 2))
    W, b = table(module.edges.weight), row(module.edges.bias)
    slow = matrix(reference.gine_layer(layers_of(module.mlp), W, b, table(graph.x), graph))
    assert_agree(module(graph.x, graph), slow, leaves(graph, module))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_gcn_layer_with_attributes_equals_the_loop_over_edges(
    name: str, weighted: bool, seed: int
) -> None:
    graph = make_graph(name, weighted=weighted, seed=seed, attributes=2)
    module = shaken(WeightedGCNConv(3, 2, 2))
    assert module.edges is not None
    W, W_e, b = table(module.linear.weight), table(module.edges.weight), row(module.bias)
    slow = matrix(reference.gcn_layer_with_attributes(W, W_e, b, table(graph.x), graph))
    assert_agree(module(graph.x, graph), slow, leaves(graph, module))


@pytest.mark.parametrize("name", SHAPES)
def test_gine_layer_without_weights_equals_pyg(name: str) -> None:
    graph = make_graph(name, weighted=False, attributes=4)
    module = shaken(WeightedGINEConv(3, 2, 4))
    first = nn.Linear(3, 2)  # PyG reads its width
    theirs = GINEConv(nn.Sequential(first, nn.ReLU(), nn.Linear(2, 2)), edge_dim=4).double()
    theirs.nn[0].load_state_dict(module.mlp.first.state_dict())
    theirs.nn[2].load_state_dict(module.mlp.rest[1].state_dict())
    theirs.lin.load_state_dict(module.edges.state_dict())
    expected = theirs(graph.x, graph.edge_index, graph.edge_attr)
    torch.testing.assert_close(module(graph.x, graph), expected)


@pytest.mark.parametrize("name", SHAPES)
def test_gcn_layer_that_gives_attributes_no_weight_is_the_plain_one(name: str) -> None:
    graph = make_graph(name, attributes=2)
    module, plain = shaken(WeightedGCNConv(3, 2, 2)), shaken(WeightedGCNConv(3, 2))
    assert module.edges is not None
    nn.init.zeros_(module.edges.weight)
    plain.load_state_dict(
        {key: value for key, value in module.state_dict().items() if "edges" not in key}
    )
    torch.testing.assert_close(module(graph.x, graph), plain(graph.x, graph))


@pytest.mark.parametrize("layer", [WeightedGINEConv, WeightedGCNConv])
def test_a_layer_for_attributes_refuses_others_and_none(
    layer: type[WeightedGINEConv | WeightedGCNConv],
) -> None:
    module = layer(3, 2, 2).double()
    for width in (0, 1, 3):
        graph = make_graph("random sparse", attributes=width)
        with pytest.raises(
            ValueError, match=f"made for 2 edge attributes, got a batch with {width}"
        ):
            module(graph.x, graph)


@pytest.mark.parametrize("layer", [WeightedGINConv, WeightedGCNConv])
def test_a_layer_without_attributes_does_not_look_at_them(
    layer: type[WeightedGINConv | WeightedGCNConv],
) -> None:
    module, graph = layer(3, 2).double(), make_graph("random sparse", attributes=2)
    plain = graph.replace(edge_attr=None)
    assert torch.equal(module(graph.x, graph), module(graph.x, plain))


def test_what_an_attribute_does_depends_on_the_neighbour_it_leads_to() -> None:
    """Two edges change places, which no sum of neighbours beside a sum of attributes tells."""
    graph = make_graph("directed", weighted=False, attributes=2)
    chosen = torch.tensor([1, 2])  # from nodes 1 and 3, both to node 2
    assert graph.edge_attr is not None
    assert graph.edge_index[1, chosen].tolist() == [2, 2]
    other = graph.edge_attr.detach().clone()
    other[chosen] = other[chosen.flip(0)]
    module = shaken(WeightedGINEConv(3, 2, 2))
    one, two = module(graph.x, graph), module(graph.x, graph.replace(edge_attr=other))
    changed = (one - two).abs().amax(1) > 1e-6
    assert changed.nonzero().flatten().tolist() == [2]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_gcn_layer_equals_the_dense_formula(name: str, weighted: bool, seed: int) -> None:
    graph = make_graph(name, weighted=weighted, seed=seed)
    module = shaken(WeightedGCNConv(3, 2))
    slow = matrix(
        reference.gcn_layer(table(module.linear.weight), row(module.bias), table(graph.x), graph)
    )
    assert_agree(module(graph.x, graph), slow, leaves(graph, module))


@pytest.mark.parametrize("name", SHAPES)
def test_gin_layer_with_unit_weights_equals_pygs(name: str) -> None:
    graph = make_graph(name)
    ones = graph.replace(edge_weight=torch.ones_like(graph.weights()))
    module = WeightedGINConv(3, 2)
    theirs = GINConv(module.mlp)
    shaken(module)  # afterwards: PyG initialises the MLP it is handed
    expected = theirs(graph.x, graph.edge_index)
    inputs = leaves(graph.replace(edge_weight=None), module)
    assert_agree(module(graph.x, ones), expected, inputs)
    assert_agree(module(graph.x, graph.replace(edge_weight=None)), expected, inputs)


# PyG lets a self-loop stand for the one that the layer adds; ours adds both.
@pytest.mark.parametrize("name", [name for name in SHAPES if name != "self-loops"])
@pytest.mark.parametrize("weighted", [True, False])
def test_gcn_layer_equals_pygs(name: str, weighted: bool) -> None:
    graph = make_graph(name, weighted=weighted)
    module, theirs = WeightedGCNConv(3, 2), GCNConv(3, 2).double()
    shaken(module)
    theirs.lin.weight, theirs.bias = module.linear.weight, module.bias
    expected = theirs(graph.x, graph.edge_index, graph.edge_weight)
    assert_agree(module(graph.x, graph), expected, leaves(graph, module))


@pytest.mark.parametrize("layer", [WeightedGINConv, WeightedGCNConv])
def test_an_edge_of_weight_zero_is_no_edge(
    layer: type[WeightedGINConv | WeightedGCNConv],
) -> None:
    graph = make_graph("random sparse")
    off = torch.arange(graph.num_edges) % 3 == 0
    weight = graph.weights().detach()
    zeroed = graph.replace(edge_weight=weight.masked_fill(off, 0))
    without = graph.replace(edge_index=graph.edge_index[:, ~off], edge_weight=weight[~off])
    module = shaken(layer(3, 4))
    torch.testing.assert_close(module(graph.x, zeroed), module(graph.x, without))


@pytest.mark.parametrize("layer", [WeightedGINConv, WeightedGCNConv])
@pytest.mark.parametrize("name", ["random sparse", "self-loops", "single nodes"])
def test_devices_agree_on_the_layers(
    layer: type[WeightedGINConv | WeightedGCNConv], name: str, device: torch.device
) -> None:
    graph = make_graph(name)
    module = shaken(layer(3, 4))
    expected = module(graph.x, graph)
    wanted = reference.gradients(expected, leaves(graph))
    moved = graph.to(device)
    moved = moved.replace(
        x=moved.x.detach().requires_grad_(), edge_weight=moved.weights().detach().requires_grad_()
    )
    result = module.to(device)(moved.x, moved)
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-10, atol=1e-10)
    for here, there in zip(wanted, reference.gradients(result, leaves(moved)), strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-10, atol=1e-10)


# ------------------------------------------------------------------ MLP


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_mlp_is_linear_layers_with_relu_between(depth: int) -> None:
    module = shaken(MLP(3, 4, 2, layers=depth))
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    parts = layers_of(module)
    assert [len(weight) for weight, _ in parts] == [4] * (depth - 1) + [2]
    slow = matrix([reference.mlp(parts, line) for line in table(x)])
    assert_agree(module(x), slow, [x, *module.parameters()])


# ------------------------------------------------------------------ BatchNorm


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_batch_norm_equals_its_formula(training: bool, rows: int) -> None:
    module = shaken(BatchNorm(3))
    module(3 + 2 * torch.randn(20, 3, dtype=torch.float64))
    module.train(training)
    x = torch.randn(rows, 3, dtype=torch.float64, requires_grad=True)
    slow = matrix(reference.batch_norm(module, table(x)))
    assert_agree(module(x), slow, [x, *module.parameters()])


def test_batch_norm_of_several_rows_is_pytorchs() -> None:
    ours, theirs = BatchNorm(3), nn.BatchNorm1d(3)
    for _ in range(3):
        x = torch.randn(6, 3)
        assert torch.equal(ours(x), theirs(x))
    for (name, left), right in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        assert torch.equal(left, right), name


def test_a_single_row_leaves_the_running_statistics_alone() -> None:
    module = BatchNorm(3)
    module(torch.randn(6, 3))
    before = {name: value.clone() for name, value in module.named_buffers()}
    result = module(torch.randn(1, 3))
    assert result.isfinite().all()
    for name, value in module.named_buffers():
        assert torch.equal(value, before[name]), name
    module(torch.randn(2, 3))
    assert not torch.equal(module.get_buffer("running_mean"), before["running_mean"])


# ------------------------------------------------------------------ initialise


def test_initialise_draws_xavier_matrices_and_zeroes_biases() -> None:
    parts = nn.ModuleList(
        [
            MLP(40, 30, 50, layers=3),
            WeightedGINConv(20, 60),
            WeightedGCNConv(50, 40),
            Bilinear(50),
            nn.Linear(30, 80),
        ]
    )
    for parameter in parts.parameters():
        nn.init.constant_(parameter, 9.0)
    initialise(parts)
    matrices = 0
    for parameter in parts.parameters():
        if parameter.dim() == 1:
            assert parameter.eq(0).all()
            continue
        bound = math.sqrt(6 / sum(parameter.shape))
        assert 0.95 * bound < parameter.abs().max() <= bound
        assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
        matrices += 1
    assert matrices == 3 + 2 + 1 + 1 + 1


def test_initialise_treats_each_gate_of_a_gru_as_a_matrix() -> None:
    gru = nn.GRU(40, 20)
    for parameter in gru.parameters():
        nn.init.constant_(parameter, 9.0)
    initialise(gru)
    for name, parameter in gru.named_parameters():
        if "bias" in name:
            assert parameter.eq(0).all()
            continue
        bound = math.sqrt(6 / (20 + parameter.size(1)))
        for gate in parameter.chunk(3):
            assert 0.9 * bound < gate.abs().max() <= bound


def test_initialise_leaves_slopes_alone_and_resets_batch_norm() -> None:
    slope, norm = nn.PReLU(), BatchNorm(4)
    norm(5 + torch.randn(9, 4))
    nn.init.constant_(norm.weight, 3.0)
    nn.init.constant_(norm.bias, 3.0)
    initialise(nn.Sequential(slope, norm))
    assert slope.weight.tolist() == [0.25]
    assert norm.weight.tolist() == [1] * 4
    assert norm.bias.tolist() == [0] * 4
    assert norm.get_buffer("running_mean").tolist() == [0] * 4
    assert norm.get_buffer("running_var").tolist() == [1] * 4


def test_initialise_follows_the_seed() -> None:
    def drawn(seed: int) -> Tensor:
        module = MLP(4, 4, 4)
        torch.manual_seed(seed)
        initialise(module)
        return module.first.weight.detach()

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


@pytest.mark.parametrize("p", [0.05, 0.5, 0.97])
def test_dropout_drops_its_share_and_scales_the_rest(p: float) -> None:
    x = torch.ones(301, 331, dtype=torch.float64, requires_grad=True)
    y = dropout(x, p, True)
    dropped = float((y == 0).double().mean())
    assert abs(dropped - p) < 5 * (p * (1 - p) / x.numel()) ** 0.5 + 2**-16
    assert float(y.detach().max()) == pytest.approx(1 / (1 - p), rel=1e-3)
    assert len(set(y.detach().flatten().tolist())) == 2
    y.sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())
    columns = (y == 0).double().mean(0)  # no column is favoured
    assert float(columns.std()) < 2 * (p * (1 - p) / x.size(0)) ** 0.5
    assert not torch.equal(dropout(x, p, True), y)


def test_dropout_leaves_inference_alone() -> None:
    x = torch.rand(5, 3)
    assert torch.equal(dropout(x, 0.5, False), x)
    assert torch.equal(dropout(x, 0.0, True), x)
    assert dropout(torch.empty(0, 3), 0.5, True).shape == (0, 3)
