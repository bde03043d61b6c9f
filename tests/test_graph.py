"""Batches of graphs: to and from PyG, and the checks at the border."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch, Data

from lg2ar import InputError
from lg2ar.graph import GraphBatch
from strategies import attributed_edges, edges_per_graph, graph_batches, sizes, weighted_edges


def two_graphs(**changes: Any) -> GraphBatch:
    """A directed path of three nodes and, beside it, two joined nodes."""
    graph = GraphBatch(
        x=torch.arange(10.0).reshape(5, 2),
        edge_index=torch.tensor([[0, 1, 3, 4], [1, 2, 4, 3]]),
        batch=torch.tensor([0, 0, 0, 1, 1]),
        num_graphs=2,
    )
    return graph.replace(**changes)


def some_data() -> list[Data]:
    """A ring, a single node, two joined nodes before an isolated one, three nodes alone."""
    generator = torch.Generator().manual_seed(0)
    edges = [[(0, 1), (1, 2), (2, 3), (3, 0)], [], [(1, 0), (0, 1), (0, 1)], []]
    return [
        Data(
            x=torch.randn(n, 3, generator=generator),
            edge_index=torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T,
            edge_weight=torch.rand(len(pairs), generator=generator),
            edge_attr=torch.randn(len(pairs), 2, generator=generator),
        )
        for n, pairs in zip([4, 1, 3, 3], edges, strict=True)
    ]


def assert_same_data(one: Data, two: Data) -> None:
    assert set(one.keys()) == set(two.keys())
    for key in one.keys():  # noqa: SIM118 - a Data is no dictionary
        assert torch.equal(one[key], two[key]), key


def assert_same(one: GraphBatch, two: GraphBatch) -> None:
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.batch, two.batch)
    assert one.num_graphs == two.num_graphs
    assert (one.edge_weight is None) == (two.edge_weight is None)
    assert torch.equal(one.weights(), two.weights())
    assert_same_attributes(one.edge_attr, two.edge_attr)


def assert_same_attributes(one: Tensor | None, two: Tensor | None) -> None:
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        assert torch.equal(one, two)


# What a batch says of itself.


def test_a_batch_counts_its_parts() -> None:
    graph = two_graphs()
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (5, 4, 2)
    assert graph.ptr.tolist() == [0, 3, 5]
    assert graph.sizes.tolist() == [3, 2]
    assert graph.device == torch.device("cpu")
    assert graph.num_edge_features == 0
    assert graph.replace(edge_attr=torch.ones(4, 3)).num_edge_features == 3


@given(graph=graph_batches())
def test_sizes_and_ptr_count_nodes_graph_by_graph(graph: GraphBatch) -> None:
    assert graph.sizes.tolist() == sizes(graph)
    assert graph.ptr.tolist() == [sum(sizes(graph)[:k]) for k in range(graph.num_graphs + 1)]


def test_weights_are_ones_where_none_were_given() -> None:
    graph = two_graphs(x=torch.zeros(5, 2, dtype=torch.float64))
    assert torch.equal(graph.weights(), torch.ones(4, dtype=torch.float64))
    weight = torch.rand(4)
    assert graph.replace(edge_weight=weight).weights() is weight


def test_replace_copies_and_the_original_stays() -> None:
    graph = two_graphs()
    other = graph.replace(num_graphs=7)
    assert (graph.num_graphs, other.num_graphs) == (2, 7)
    assert other.x is graph.x


def test_a_batch_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        two_graphs().num_graphs = 3  # type: ignore[misc]


def test_to_moves_everything_and_changes_floats_alone(device: torch.device) -> None:
    graph = two_graphs(
        edge_weight=torch.rand(4), origin=torch.arange(5), edge_attr=torch.rand(4, 2)
    )
    moved = graph.to(device, torch.float64)
    assert moved.edge_weight is not None
    assert moved.edge_attr is not None
    assert moved.origin is not None
    floats = [moved.x, moved.edge_weight, moved.edge_attr]
    whole = [moved.edge_index, moved.batch, moved.origin]
    assert all(tensor.dtype == torch.float64 for tensor in floats)
    assert all(tensor.dtype == torch.long for tensor in whole)
    assert all(tensor.device.type == device.type for tensor in [*floats, *whole])
    assert_same(moved.to("cpu", torch.float32), graph)
    assert graph.x.dtype == torch.float32


def test_to_alone_keeps_the_type() -> None:
    graph = two_graphs(x=torch.zeros(5, 2, dtype=torch.float64))
    assert graph.to("cpu").x.dtype == torch.float64
    assert graph.to("cpu").edge_weight is None


# From and to PyG.


def test_one_data_becomes_a_batch_of_one() -> None:
    data = some_data()[0]
    graph = GraphBatch.from_pyg(data)
    assert (graph.num_graphs, graph.num_nodes) == (1, 4)
    assert torch.equal(graph.x, data.x)
    assert torch.equal(graph.edge_index, data.edge_index)
    assert torch.equal(graph.weights(), data.edge_weight)
    assert_same_attributes(graph.edge_attr, data.edge_attr)
    assert graph.batch.tolist() == [0] * 4


def test_a_list_and_a_pyg_batch_become_the_same() -> None:
    graph = GraphBatch.from_data_list(some_data())
    assert_same(graph, GraphBatch.from_pyg(Batch.from_data_list(some_data())))
    assert sizes(graph) == [4, 1, 3, 3]


def test_graphs_come_back_from_pyg_as_they_went() -> None:
    returned = GraphBatch.from_data_list(some_data()).to_pyg().to_data_list()
    assert len(returned) == 4
    for one, two in zip(some_data(), returned, strict=True):
        assert_same_data(one, two)


def test_pyg_can_read_single_graphs_of_our_batch() -> None:
    batch = GraphBatch.from_data_list(some_data()).to_pyg()
    assert isinstance(batch, Batch)
    assert batch.num_graphs == 4
    assert_same_data(batch[2], some_data()[2])
    assert batch.ptr.tolist() == [0, 4, 5, 8, 11]


@given(graph=graph_batches())
def test_any_batch_survives_pyg(graph: GraphBatch) -> None:
    batch = graph.to_pyg()
    back = GraphBatch.from_pyg(batch)
    assert torch.equal(back.x, graph.x)
    assert torch.equal(back.batch, graph.batch)
    assert weighted_edges(back) == weighted_edges(graph)
    assert attributed_edges(back) == attributed_edges(graph)
    assert back.num_edge_features == graph.num_edge_features
    assert (back.edge_weight is None) == (graph.edge_weight is None)
    assert_same(GraphBatch.from_data_list(batch.to_data_list()), back)


@given(graph=graph_batches())
def test_each_graph_keeps_the_order_of_its_edges(graph: GraphBatch) -> None:
    home = graph.batch[graph.edge_index[0]]
    for k, data in enumerate(graph.to_pyg().to_data_list()):
        assert torch.equal(data.edge_index, graph.edge_index[:, home == k] - graph.ptr[k])
        assert torch.equal(data.x, graph.x[graph.batch == k])
        assert ("edge_weight" in data) == (graph.edge_weight is not None)
        if graph.edge_weight is not None:
            assert torch.equal(data.edge_weight, graph.edge_weight[home == k])
        assert ("edge_attr" in data) == (graph.edge_attr is not None)
        if graph.edge_attr is not None:
            assert torch.equal(data.edge_attr, graph.edge_attr[home == k])


def test_interleaved_edges_find_their_graphs() -> None:
    graph = two_graphs(
        edge_index=torch.tensor([[3, 0, 4, 1], [4, 1, 3, 2]]),
        edge_weight=torch.tensor([1.0, 2.0, 3.0, 4.0]),
        edge_attr=torch.tensor([[5.0], [6.0], [7.0], [8.0]]),
    )
    first, second = graph.to_pyg().to_data_list()
    assert first.edge_index.tolist() == [[0, 1], [1, 2]]
    assert first.edge_weight.tolist() == [2.0, 4.0]
    assert second.edge_index.tolist() == [[0, 1], [1, 0]]
    assert second.edge_weight.tolist() == [1.0, 3.0]
    assert first.edge_attr.tolist() == [[6.0], [8.0]]
    assert second.edge_attr.tolist() == [[5.0], [7.0]]


def test_the_origin_of_a_view_goes_along() -> None:
    graph = two_graphs(origin=torch.tensor([7, 8, 9, 3, 1]))
    first, second = graph.to_pyg().to_data_list()
    assert first.origin.tolist() == [7, 8, 9]
    assert second.origin.tolist() == [3, 1]


def test_an_isolated_last_node_stays() -> None:
    edge_index = torch.tensor([[0, 1], [1, 0]])
    assert GraphBatch.from_pyg(Data(x=torch.ones(4, 1), edge_index=edge_index)).num_nodes == 4
    assert GraphBatch.from_pyg(Data(edge_index=edge_index, num_nodes=3)).num_nodes == 3
    graphs = [Data(edge_index=edge_index, num_nodes=3), Data(edge_index=edge_index, num_nodes=5)]
    batch = GraphBatch.from_data_list(graphs)
    assert sizes(batch) == [3, 5]
    assert [data.num_nodes for data in batch.to_pyg().to_data_list()] == [3, 5]


def test_a_graph_without_features_gets_a_constant() -> None:
    graph = GraphBatch.from_pyg(Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3))
    assert torch.equal(graph.x, torch.ones(3, 1))


def test_a_graph_without_edges_or_features_is_a_set_of_nodes() -> None:
    graph = GraphBatch.from_pyg(Data(num_nodes=3))
    assert torch.equal(graph.x, torch.ones(3, 1))
    assert graph.edge_index.shape == (2, 0)


def test_one_feature_per_node_may_come_as_a_vector() -> None:
    graph = GraphBatch.from_pyg(Data(x=torch.arange(3.0), edge_index=torch.tensor([[0], [1]])))
    assert graph.x.tolist() == [[0.0], [1.0], [2.0]]


def test_one_attribute_per_edge_may_come_as_a_vector() -> None:
    edge_index = torch.tensor([[0, 1], [1, 0]])
    data = Data(x=torch.ones(2, 1), edge_index=edge_index, edge_attr=torch.tensor([3.0, 4.0]))
    for graph in (GraphBatch.from_pyg(data), GraphBatch.from_data_list([data])):
        assert graph.edge_attr is not None
        assert graph.edge_attr.tolist() == [[3.0], [4.0]]


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(InputError, match=r"mine.*no graphs.*at least one"):
        GraphBatch.from_data_list([], name="mine")


def test_bad_pyg_data_is_named_and_refused() -> None:
    data = Data(x=torch.tensor([[1.0], [torch.nan]]), edge_index=torch.tensor([[0], [1]]))
    with pytest.raises(InputError, match=r"mine.*node 1.*finite"):
        GraphBatch.from_pyg(data, name="mine")
    with pytest.raises(InputError, match=r"mine.*node 1 \(graph 0\).*finite"):
        GraphBatch.from_data_list([data, data], name="mine")


# No loop over graphs.


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations on tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def effort(act: Callable[[], object]) -> tuple[int, int]:
    """How many operations on tensors, and how many lines of Python, an act takes."""
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    with Counted() as counted:
        act()
    before = sys.gettrace()
    sys.settrace(count)
    try:
        act()
    finally:
        sys.settrace(before)
    return counted.calls, lines


def rings(number: int) -> GraphBatch:
    """So many rings of three nodes, with weights."""
    nodes = torch.arange(3 * number)
    following = nodes + 1 - 3 * (nodes % 3 == 2).long()
    return GraphBatch(
        x=torch.ones(3 * number, 1),
        edge_index=torch.stack([nodes, following]),
        batch=nodes // 3,
        num_graphs=number,
        edge_weight=torch.ones(3 * number),
        origin=nodes,
        edge_attr=torch.ones(3 * number, 2),
    )


def test_pyg_conversion_takes_no_more_steps_for_many_graphs() -> None:
    rings(2).to_pyg()  # whatever is done once only is done now
    few, many = rings(2), rings(20_000)
    assert effort(few.to_pyg) == effort(many.to_pyg)
    few_pyg, many_pyg = few.to_pyg(), many.to_pyg()
    GraphBatch.from_pyg(few_pyg)
    one, other = (
        effort(lambda: GraphBatch.from_pyg(few_pyg)),
        effort(lambda: GraphBatch.from_pyg(many_pyg)),
    )
    assert one == other
    assert min(one) > 0
    assert GraphBatch.from_pyg(many_pyg).num_graphs == 20_000


# The checks.


def test_a_sound_batch_passes_and_is_returned() -> None:
    graph = two_graphs(edge_weight=torch.rand(4), edge_attr=torch.rand(4, 3))
    assert graph.validate() is graph
    empty = graph.replace(edge_attr=torch.empty(4, 0))
    assert empty.validate() is empty


@given(graph=graph_batches())
def test_any_sound_batch_passes(graph: GraphBatch) -> None:
    assert graph.validate() is graph


def with_value(tensor: Tensor, place: tuple[int, ...], value: float) -> Tensor:
    tensor = tensor.clone()
    tensor[place] = value
    return tensor


X, EDGES, BATCH = two_graphs().x, two_graphs().edge_index, two_graphs().batch
WEIGHT, ATTRIBUTES = torch.ones(4), torch.ones(4, 2)
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "NaN in x": (
        {"x": with_value(X, (3, 1), float("nan"))},
        r"node 3 \(graph 1\).*finite.*replace NaN",
    ),
    "infinity in x": (
        {"x": with_value(X, (2, 0), float("inf"))},
        r"node 2 \(graph 0\).*finite.*infinity",
    ),
    "whole numbers in x": ({"x": X.long()}, r"x must be a floating.*int64 \[5, 2\].*x\.float"),
    "x a vector": ({"x": X[:, 0]}, r"x must be.*matrix.*float32 \[5\]"),
    "edges of 32 bits": (
        {"edge_index": EDGES.int()},
        r"edge_index must be an int64.*int32 \[2, 4\].*edge_index\.long",
    ),
    "edges as floats": ({"edge_index": EDGES.float()}, r"edge_index must be an int64.*float32"),
    "edges as rows": ({"edge_index": EDGES.T}, r"edge_index must be .*\[2, edges\].*\[4, 2\]"),
    "edges as a vector": ({"edge_index": EDGES[0]}, r"edge_index must be .*int64 \[4\]"),
    "edge to a node too many": (
        {"edge_index": with_value(EDGES, (1, 3), 5)},
        r"edge 3 names node 5, outside 0 to 4.*correct edge_index",
    ),
    "edge to a node below none": (
        {"edge_index": with_value(EDGES, (0, 1), -1)},
        r"edge 1 names node -1, outside 0 to 4",
    ),
    "several edges out of range": (
        {"edge_index": torch.tensor([[0, 7, 3, -9], [1, 2, 8, 3]])},
        r"edge 1 names node 7, outside 0 to 4",
    ),
    "edge between graphs": (
        {"edge_index": with_value(EDGES, (1, 1), 3)},
        r"edge 1 joins two different graphs; remove it",
    ),
    "batch unsorted": ({"batch": torch.tensor([0, 0, 1, 0, 1])}, r"batch must be ascending; sort"),
    "batch of 32 bits": ({"batch": BATCH.int()}, r"batch must hold one int64.*\(5\).*int32 \[5\]"),
    "batch too short": ({"batch": BATCH[:4]}, r"batch must hold one int64.*\(5\).*int64 \[4\]"),
    "batch beyond the graphs": ({"num_graphs": 1}, r"graph numbers 0 to 1, outside 0 to 0"),
    "batch below zero": ({"batch": BATCH - 1}, r"graph numbers -1 to 0, outside 0 to 1"),
    "empty last graph": ({"num_graphs": 3}, r"graph 2 has no nodes; remove it"),
    "empty middle graph": ({"batch": 2 * BATCH, "num_graphs": 3}, r"graph 1 has no nodes"),
    "no graphs": ({"num_graphs": 0}, r"holds no graphs; give at least one"),
    "no nodes": (
        {
            "x": X[:0],
            "batch": BATCH[:0],
            "edge_index": EDGES[:, :0],
            "num_graphs": 1,
        },
        r"graph 0 has no nodes",
    ),
    "too few weights": (
        {"edge_weight": WEIGHT[:3]},
        r"edge_weight must hold one.*\(4\).*float32 \[3\]",
    ),
    "weights as a matrix": (
        {"edge_weight": WEIGHT.unsqueeze(1)},
        r"edge_weight must hold.*float32 \[4, 1\]",
    ),
    "whole numbers as weights": (
        {"edge_weight": WEIGHT.long()},
        r"edge_weight must hold one floating.*int64 \[4\]",
    ),
    "NaN weight": (
        {"edge_weight": with_value(WEIGHT, (2,), float("nan"))},
        r"weight of edge 2 is not finite; replace",
    ),
    "infinite weight": (
        {"edge_weight": with_value(WEIGHT, (1,), float("-inf"))},
        r"weight of edge 1 is not finite",
    ),
    "too few attributes": (
        {"edge_attr": ATTRIBUTES[:3]},
        r"edge_attr must be a floating.*one row per edge \(4\).*float32 \[3, 2\]",
    ),
    "attributes as a vector": (
        {"edge_attr": ATTRIBUTES[:, 0]},
        r"edge_attr must be .*matrix.*float32 \[4\]",
    ),
    "whole numbers as attributes": (
        {"edge_attr": ATTRIBUTES.long()},
        r"edge_attr must be .*int64 \[4, 2\].*edge_attr\.float",
    ),
    "NaN attribute": (
        {"edge_attr": with_value(ATTRIBUTES, (2, 1), float("nan"))},
        r"attributes of edge 2 are not all finite; replace NaN",
    ),
    "infinite attribute": (
        {"edge_attr": with_value(ATTRIBUTES, (3, 0), float("inf"))},
        r"attributes of edge 3 are not all finite.*drop that edge",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_where_it_is(fault: str) -> None:
    changes, message = FAULTS[fault]
    with pytest.raises(InputError, match=rf"^these graphs.*{message}"):
        two_graphs(**changes).validate("these graphs")


def test_an_input_error_is_a_value_error() -> None:
    assert issubclass(InputError, ValueError)


@given(graph=graph_batches())
def test_checking_changes_nothing(graph: GraphBatch) -> None:
    before = edges_per_graph(graph), graph.x.clone()
    graph.validate()
    assert edges_per_graph(graph) == before[0]
    assert torch.equal(graph.x, before[1])


def test_graphs_that_differ_in_their_fields_are_refused() -> None:
    edge_index = torch.tensor([[0], [1]])
    plain = Data(x=torch.ones(2, 3), edge_index=edge_index)
    weighted = Data(x=torch.ones(2, 3), edge_index=edge_index, edge_weight=torch.ones(1))
    wide = Data(x=torch.ones(2, 4), edge_index=edge_index)
    bare = Data(edge_index=edge_index, num_nodes=2)
    bonds = Data(x=torch.ones(2, 3), edge_index=edge_index, edge_attr=torch.ones(1, 2))
    length = Data(x=torch.ones(2, 3), edge_index=edge_index, edge_attr=torch.ones(1))
    for first, second, words in [
        (plain, weighted, "graph 1 has edge weights: one per edge, graph 0 has none"),
        (weighted, plain, "graph 1 has edge weights: none, graph 0 has one per edge"),
        (plain, wide, "graph 1 has node features: 4, graph 0 has 3"),
        (plain, bare, "graph 1 has node features: 0, graph 0 has 3"),
        (plain, bonds, "graph 1 has edge attributes: 2, graph 0 has 0"),
        (bonds, plain, "graph 1 has edge attributes: 0, graph 0 has 2"),
        (bonds, length, "graph 1 has edge attributes: 1, graph 0 has 2"),
    ]:
        with pytest.raises(InputError, match=words):
            GraphBatch.from_data_list([first, second])


def test_fields_that_are_not_read_do_not_get_in_the_way() -> None:
    edge_index = torch.tensor([[0], [1]])
    odd = Data(x=torch.ones(2, 1), edge_index=edge_index, smiles="CC", extra=torch.ones(7))
    plain = Data(x=torch.ones(2, 1), edge_index=edge_index)
    assert GraphBatch.from_data_list([odd, plain]).num_graphs == 2


def test_a_plain_data_with_a_batch_vector_is_many_graphs() -> None:
    data = Data(
        x=torch.ones(4, 1), edge_index=torch.tensor([[0], [1]]), batch=torch.tensor([0, 0, 1, 1])
    )
    assert GraphBatch.from_pyg(data).num_graphs == 2
