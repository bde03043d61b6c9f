"""Batches by index arithmetic, compared with PyG's own collation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch

from lg2ar.data.batches import GraphStore
from lg2ar.graph import GraphBatch
from strategies import graph_batches


@given(graph=graph_batches(), data=st.data())
def test_a_selection_equals_what_pyg_collates(graph: GraphBatch, data: st.DataObject) -> None:
    store = GraphStore(graph)
    places = data.draw(st.lists(st.integers(0, graph.num_graphs - 1), min_size=1, max_size=8))
    batch = store.select(places)
    graphs = graph.to_pyg().to_data_list()
    expected = Batch.from_data_list([graphs[place] for place in places])
    assert batch.num_graphs == len(places)
    assert torch.equal(batch.x, expected.x)
    assert torch.equal(batch.edge_index, expected.edge_index)
    assert torch.equal(batch.batch, expected.batch)
    if graph.edge_weight is None:
        assert batch.edge_weight is None
    else:
        assert batch.edge_weight is not None
        assert torch.equal(batch.edge_weight, expected.edge_weight)
    if graph.edge_attr is None:
        assert batch.edge_attr is None
    else:
        assert batch.edge_attr is not None
        assert torch.equal(batch.edge_attr, expected.edge_attr)
    assert batch.origin is not None
    assert torch.equal(batch.x, graph.x[batch.origin])


def chain(num_graphs: int) -> GraphBatch:
    """Graphs of one, two, three, ... nodes in a row; a node's feature is its graph."""
    sizes = torch.arange(1, num_graphs + 1)
    batch = torch.arange(num_graphs).repeat_interleave(sizes)
    node = torch.arange(int(sizes.sum()))
    joined = batch[1:] == batch[:-1]
    edge_index = torch.stack([node[:-1][joined], node[1:][joined]])
    return GraphBatch(batch.float().unsqueeze(-1), edge_index, batch, num_graphs).validate()


@pytest.mark.parametrize(("num_graphs", "expected"), [(10, [4, 4, 2]), (9, [4, 5]), (1, [1])])
def test_an_epoch_visits_every_graph_once_and_never_leaves_one_alone(
    num_graphs: int, expected: list[int]
) -> None:
    batches = list(GraphStore(chain(num_graphs)).epoch(4, seed=0))
    assert [batch.num_graphs for batch in batches] == expected
    visited = [int(batch.x[batch.ptr[k], 0]) for batch in batches for k in range(batch.num_graphs)]
    assert sorted(visited) == list(range(num_graphs))


def test_the_seed_fixes_the_order() -> None:
    store = GraphStore(chain(12))

    def order(seed: int) -> list[float]:
        return [value for batch in store.epoch(4, seed) for value in batch.x[:, 0].tolist()]

    assert order(5) == order(5)
    assert order(5) != order(6)


@pytest.mark.parametrize("budget", [1, 7, 20, 1000])
def test_chunks_keep_the_order_and_the_budget(budget: int) -> None:
    graph = chain(9)
    graph = graph.replace(edge_attr=torch.arange(float(graph.num_edges)).unsqueeze(-1))
    store = GraphStore(graph)
    chunks = list(store.chunks(budget))
    assert torch.equal(torch.cat([chunk.x for chunk in chunks]), store.graph.x)
    attributes = [chunk.edge_attr for chunk in chunks if chunk.edge_attr is not None]
    assert torch.equal(torch.cat(attributes), torch.arange(36.0).unsqueeze(-1))
    for chunk in chunks:
        assert chunk.num_graphs == 1 or chunk.num_nodes + chunk.num_edges <= budget


def test_a_numpy_selection_works_on_each_device(device: torch.device) -> None:
    store = GraphStore(chain(6), device)
    batch = store.select(np.array([5, 0]))
    assert batch.x.device.type == device.type
    assert batch.sizes.tolist() == [6, 1]
