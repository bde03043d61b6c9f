"""Encoders equal loops over layers, read-outs and projections."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import reference
from lg2ar.encoders import GCN, GIN, Encoder, Output, ReadOut
from lg2ar.graph import GraphBatch
from lg2ar.layers import Smoothing
from reference import SHAPES, assert_agree, leaves, make_graph, matrix, members, shaken


def make(
    network: GIN | GCN, hidden: int = 2, readout: ReadOut = "sum", projection: bool = True
) -> Encoder:
    return shaken(Encoder(network, hidden, readout=readout, projection=projection))


every_width = pytest.mark.parametrize("attributes", [0, 2])


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("norm", "training"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("norm_first", [False, True])
@every_width
def test_gin_equals_its_transcription(
    name: str, norm: bool, training: bool, norm_first: bool, attributes: int
) -> None:
    graph = make_graph(name, attributes=attributes)
    network = shaken(
        GIN(
            3,
            hidden=2,
            layers=2,
            norm=norm,
            norm_first=norm_first,
            num_edge_features=attributes,
        )
    )
    # Gives batch norm something to remember.
    network(make_graph("random many", seed=5, attributes=attributes))
    network.train(training)
    slow = matrix(reference.gin_network(network, graph))
    fast = network(graph)
    assert fast.shape == (graph.num_nodes, network.out_features)
    assert_agree(fast, slow, leaves(graph, network), 1e-8)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("norm", "training"), [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("output", ["last", "layers", "features-and-layers"])
@pytest.mark.parametrize("smoothing", [0, 2])
@every_width
def test_gcn_equals_its_transcription(
    name: str, norm: bool, training: bool, output: Output, smoothing: int, attributes: int
) -> None:
    graph = make_graph(name, attributes=attributes)
    network = shaken(
        GCN(3, 2, norm=norm, num_edge_features=attributes, output=output, smoothing=smoothing)
    )
    network(make_graph("random many", seed=5, attributes=attributes))
    network.train(training)
    slow = matrix(reference.gcn_network(network, graph))
    fast = network(graph)
    read = {"last": 1, "layers": 2 + smoothing, "features-and-layers": 3 + smoothing}[output]
    assert fast.shape == (graph.num_nodes, network.out_features) == (graph.num_nodes, 2 * read)
    assert_agree(fast, slow, leaves(graph, network), 1e-8)


@pytest.mark.parametrize("name", ["random sparse", "single nodes", "one graph", "directed"])
@pytest.mark.parametrize("readout", ["sum", "mean", "log-sum"])
@pytest.mark.parametrize("projection", [True, False])
@pytest.mark.parametrize("kind", [GIN, GCN])
def test_encoder_pools_and_projects(
    name: str, readout: ReadOut, projection: bool, kind: type[GIN | GCN]
) -> None:
    graph = make_graph(name, seed=1)
    encoder = make(kind(3, hidden=2, layers=2, norm=False), 2, readout, projection)
    nodes, graphs = reference.encode_and_project(encoder, graph)
    encoding = encoder(graph)
    assert encoding.nodes.shape == (graph.num_nodes, encoder.out_features)
    assert encoding.graphs.shape == (graph.num_graphs, encoder.out_features)
    assert_agree(encoding.nodes, matrix(nodes), leaves(graph, encoder))
    assert_agree(encoding.graphs, matrix(graphs), leaves(graph, encoder))


def test_projections_have_three_layers_and_share_no_weights() -> None:
    encoder = make(GIN(3, hidden=4, layers=2), hidden=5)
    shapes = [tuple(p.shape) for p in encoder.node_projection.parameters() if p.dim() == 2]
    assert shapes == [(5, 8), (5, 5), (5, 5)]
    left, right = (
        set(map(id, part.parameters()))
        for part in (encoder.node_projection, encoder.graph_projection)
    )
    assert not left & right


@pytest.mark.parametrize("projection", [True, False])
def test_embeddings_are_read_before_or_after_the_projection(projection: bool) -> None:
    graph = make_graph("random sparse")
    encoder = make(GIN(3, hidden=2, layers=2), 2, projection=projection).eval()
    before, after = encoder.embed(graph), encoder.embed(graph, projected=True)
    nodes, graphs = reference.encode(encoder, graph)
    assert_agree(before.nodes, matrix(nodes))
    assert_agree(before.graphs, matrix(graphs))
    nodes, graphs = reference.encode_and_project(encoder, graph)
    assert_agree(after.nodes, matrix(nodes))
    assert_agree(after.graphs, matrix(graphs))


def test_a_shared_feature_projection_is_applied_once() -> None:
    graph = make_graph("random sparse", features=5)
    features = nn.Linear(5, 3)
    encoder = shaken(Encoder(GIN(3, hidden=2, layers=1, norm=False), 2, features=features))
    prepared = encoder.prepare(graph)
    assert_agree(prepared.x, features(graph.x), leaves(graph, features))
    assert prepared.edge_index is graph.edge_index
    nodes, graphs = reference.encode_and_project(encoder, prepared)
    assert_agree(encoder(prepared).nodes, matrix(nodes), leaves(graph, encoder))
    assert_agree(encoder.embed(graph, projected=True).graphs, matrix(graphs))


@pytest.mark.parametrize("kind", [GIN, GCN])
def test_a_graph_is_encoded_alike_alone_and_in_a_batch(kind: type[GIN | GCN]) -> None:
    graph = make_graph("random sparse")
    encoder = make(kind(3, hidden=4, layers=2)).eval()
    together = encoder(graph)
    for k, nodes in enumerate(members(graph)):
        own = graph.batch[graph.edge_index[0]] == k
        alone = encoder(
            GraphBatch(
                x=graph.x[nodes],
                edge_index=graph.edge_index[:, own] - nodes[0],
                batch=torch.zeros(len(nodes), dtype=torch.long),
                num_graphs=1,
                edge_weight=graph.weights()[own],
            )
        )
        torch.testing.assert_close(alone.nodes, together.nodes[nodes])
        torch.testing.assert_close(alone.graphs[0], together.graphs[k])


@pytest.mark.parametrize("kind", [GIN, GCN])
def test_dropout_sets_some_numbers_to_zero_and_scales_the_rest(kind: type[GIN | GCN]) -> None:
    graph = make_graph("random sparse")
    network = shaken(kind(3, hidden=50, layers=1, dropout=0.5, norm=False))
    trained = network(graph)
    network.eval()
    whole = network(graph)
    kept = trained != 0
    torch.testing.assert_close(trained[kept], 2 * whole[kept])
    share = kept[whole != 0].double().mean().item()
    assert share == pytest.approx(0.5, abs=4 * 0.5 / int((whole != 0).sum()) ** 0.5)


def test_what_is_smoothed_is_not_dropped_out_again() -> None:
    graph = make_graph("random sparse")
    network = shaken(GCN(3, hidden=50, layers=1, dropout=0.5, smoothing=1, output="layers"))
    layer, smoothed = network(graph).split(50, dim=1)
    assert (layer == 0).any()
    torch.testing.assert_close(smoothed, Smoothing()(layer, graph))


def test_own_features_beside_the_layers_are_dropped_out_too() -> None:
    graph = make_graph("random sparse")
    network = shaken(GCN(3, hidden=50, layers=1, dropout=0.5, output="features-and-layers"))
    trained, whole = network(graph)[:, :50], network.eval()(graph)[:, :50]
    kept = trained != 0
    torch.testing.assert_close(trained[kept], 2 * whole[kept])
    assert 0.3 < kept[whole != 0].double().mean().item() < 0.7


def test_training_and_inference_differ_only_through_batch_norm_and_dropout() -> None:
    graph = make_graph("random sparse")
    encoder = make(GIN(3, hidden=4, layers=2, norm=False))
    training = encoder(graph).graphs
    assert torch.equal(encoder.eval()(graph).graphs, training)


@pytest.mark.parametrize("kind", [GIN, GCN])
@pytest.mark.parametrize("norm", [True, False])
def test_devices_agree_on_the_encodings(
    kind: type[GIN | GCN], norm: bool, device: torch.device
) -> None:
    graph = make_graph("random sparse")
    encoder = make(kind(3, hidden=4, layers=2, norm=norm))
    expected = encoder(graph)
    encoding = encoder.to(device)(graph.to(device))
    torch.testing.assert_close(encoding.nodes.cpu(), expected.nodes, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(encoding.graphs.cpu(), expected.graphs, rtol=1e-8, atol=1e-8)
