"""Networks of many folds side by side become what each becomes alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lg2ar.config import Config
from lg2ar.data.toy import toy_graphs
from lg2ar.encoders import Encoder
from lg2ar.errors import NonFiniteLossError
from lg2ar.finetuning import Split, fine_tune, semi_splits
from lg2ar.finetuning import together as side
from lg2ar.finetuning.network import Network
from lg2ar.finetuning.together import can_be_together, fine_tune_together
from lg2ar.graph import GraphBatch
from lg2ar.model import build_base_encoder

SETTINGS: dict[str, Any] = {"epochs": 4, "learning_rate": 0.01, "batch_size": 16, "hidden": 8}


@pytest.fixture(autouse=True)
def in_double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def made(seed: int = 0, **settings: object) -> Encoder:
    torch.manual_seed(seed)
    config = Config.make({"hidden": 8, "layers": 2, "dropout": 0.0, **settings})
    return build_base_encoder(config, 6, 0)


def toys() -> tuple[GraphBatch, Tensor]:
    dataset = toy_graphs(90)
    assert dataset.y is not None
    return dataset.graph.replace(x=dataset.graph.x.double()), dataset.y


def agree(one: Any, other: Any) -> None:
    assert np.allclose(one.train_loss, other.train_loss, rtol=1e-6, atol=1e-9)
    for name in ("test", "validation", "validation_loss"):
        mine, its = getattr(one, name), getattr(other, name)
        assert (mine is None) == (its is None)
        assert mine is None or np.allclose(mine, its, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("readout", ["sum", "mean", "log-sum"])
@pytest.mark.parametrize(
    "norm",
    [{}, {"norm": False}, {"norm_place": "before"}, {"embedding_scale": "standard"}],
)
def test_each_network_becomes_what_it_becomes_alone(readout: str, norm: dict[str, object]) -> None:
    graph, y = toys()
    splits = [*semi_splits(y, folds=3, share=2), *semi_splits(y, folds=3, share=2, validation=True)]
    encoders = [made(k, readout=readout, **norm) for k in range(len(splits))]
    seeds = list(range(len(splits)))
    found = fine_tune_together(encoders, graph, y, splits, seeds, **SETTINGS)
    assert len({round(curve.train_loss[0], 6) for curve in found}) == len(splits)
    for encoder, split, seed, curve in zip(encoders, splits, seeds, found, strict=True):
        agree(curve, fine_tune(encoder, graph, y, split, seed=seed, **SETTINGS))


def test_networks_with_more_batches_and_with_fewer_rows() -> None:
    """16 rows are one batch, 17 are one as well (none of a single graph), 18 are two."""
    graph, y = toys()
    order = np.random.default_rng(0).permutation(90)
    splits = [
        Split(np.sort(order[:rows]), np.sort(order[20:some]), np.sort(order[40:end]))
        for rows, some, end in ((16, 20, 90), (17, 23, 50), (18, 21, 41), (2, 20, 60))
    ]
    encoders, seeds = [made(k) for k in range(4)], [7, 8, 9, 10]
    found = fine_tune_together(encoders, graph, y, splits, seeds, **SETTINGS)
    for encoder, split, seed, curve in zip(encoders, splits, seeds, found, strict=True):
        agree(curve, fine_tune(encoder, graph, y, split, seed=seed, **SETTINGS))


def test_a_single_graph_is_read_by_the_running_statistics() -> None:
    graph, y = toys()
    splits = [Split(np.array([3]), np.array([], dtype=int), np.arange(10, 40))] * 2
    # Without normalised nodes: over a single graph these add up to zero, or what rounding leaves.
    encoders = [made(0, norm=False), made(1, norm=False)]
    found = fine_tune_together(encoders, graph, y, splits, [0, 1], **SETTINGS)
    for encoder, split, seed, curve in zip(encoders, splits, (0, 1), found, strict=True):
        agree(curve, fine_tune(encoder, graph, y, split, seed=seed, **SETTINGS))


def test_weights_of_edges_count() -> None:
    graph, y = toys()
    graph = graph.replace(edge_weight=torch.rand(graph.num_edges).double())
    splits = semi_splits(y, folds=3, share=2)
    found = fine_tune_together([made()] * 3, graph, y, splits, [0, 1, 2], **SETTINGS)
    for split, seed, curve in zip(splits, (0, 1, 2), found, strict=True):
        agree(curve, fine_tune(made(), graph, y, split, seed=seed, **SETTINGS))


def test_held_out_rows_in_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, y = toys()
    splits = semi_splits(y, folds=3, share=2, validation=True)
    whole = fine_tune_together([made()] * 3, graph, y, splits, [0, 1, 2], **SETTINGS)
    monkeypatch.setattr(side, "BUDGET", 400)
    parts = fine_tune_together([made()] * 3, graph, y, splits, [0, 1, 2], **SETTINGS)
    for one, other in zip(whole, parts, strict=True):
        agree(one, other)


def test_dropout_is_drawn_for_each_network_and_encoders_stay_as_they_are() -> None:
    graph, y = toys()
    splits = [semi_splits(y, folds=3, share=2)[0]] * 2
    encoder = made(dropout=0.3)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    calm, one, two = (
        fine_tune_together([e, e], graph, y, splits, [5, 5], dropout=p, **SETTINGS)
        for e, p in ((made(), 0.0), (encoder, 0.3), (encoder, 0.3))
    )
    assert np.array_equal(one[0].train_loss, two[0].train_loss)  # the seed decides
    assert not np.allclose(one[0].train_loss, one[1].train_loss)
    assert not np.allclose(one[0].train_loss, calm[0].train_loss)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_a_loss_that_is_no_number_ends_it() -> None:
    graph, y = toys()
    settings = {**SETTINGS, "learning_rate": 1e300}
    with pytest.raises(NonFiniteLossError, match="lower learning_rate"):
        fine_tune_together([made()] * 2, graph, y, semi_splits(y, folds=2), [0, 1], **settings)


def test_what_cannot_be_together() -> None:
    graph, _ = toys()
    assert can_be_together(made(), graph)
    assert not can_be_together(made(feature_projection="shared"), graph)
    node = Config.make({"level": "node", "hidden": 8})
    assert not can_be_together(build_base_encoder(node, 6, 0), graph)
    edges = graph.replace(edge_attr=torch.ones(graph.num_edges, 2))
    assert not can_be_together(build_base_encoder(Config.make({"hidden": 8}), 6, 2), edges)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_on_a_cuda_device() -> None:
    torch.set_default_dtype(torch.float32)
    graph, y = toys()
    graph = graph.replace(x=graph.x.float())
    splits = semi_splits(y, folds=3, share=2)
    encoders = [made(k).float() for k in range(3)]
    there, here = (
        fine_tune_together(encoders, graph, y, splits, [0, 1, 2], device=device, **SETTINGS)
        for device in ("cuda", "cpu")
    )
    for one, other in zip(there, here, strict=True):
        assert np.allclose(one.train_loss, other.train_loss, rtol=1e-3, atol=1e-4)


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def in_single(graphs: int) -> tuple[GraphBatch, Tensor]:
    """Graphs of float32 features, as the captured step has them."""
    torch.set_default_dtype(torch.float32)
    dataset = toy_graphs(graphs)
    assert dataset.y is not None
    return dataset.graph, dataset.y


@pytest.mark.parametrize(
    "settings",
    [
        {"readout": "log-sum", "norm_place": "before"},
        {"readout": "mean"},
        {"readout": "sum", "norm": False},
        {"readout": "sum", "embedding_scale": "standard"},
    ],
)
def test_kernels_of_the_captured_step_give_the_same(settings: dict[str, object]) -> None:
    """Outputs, gradients and statistics of a step; and outputs afterwards, of other graphs."""
    pytest.importorskip("triton", reason="the captured step needs Triton; it is not here")
    graph, _ = in_single(14)
    place = torch.device(DEVICE)
    encoders = [made(k, hidden=4, **settings).float() for k in range(2)]
    networks = [Network(encoder, 3, 4, 0.0, "graph") for encoder in encoders]
    plain, ours = (side.SideBySide(networks, place) for _ in range(2))
    found = []
    for together, source, precision in (
        (plain, *side._source(graph, place, None)),
        (ours, *side._source(graph, place, "float32")),
    ):
        with precision:
            blocks = source.blocks([np.array([0, 3, 5, 8]), np.array([2, 4, 9])], [1, 2])
            out = together(blocks, training=True)
            there = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]], device=place)[..., None]
            loss = (out * there * torch.linspace(-1, 1, 24, device=place).view(2, 4, 3)).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            rest = source.blocks([np.array([1]), np.array([10, 0])], [0, 0])
            with torch.no_grad():
                after = together(rest, training=False)
        found.append((out.detach() * there, after[0, :1], after[1]))
        assert blocks.rows.tolist() == [[0, 3, 5, 8], [2, 4, 9, 0]]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    for name, value in plain._weights.items():
        if value.grad is not None:
            grad = ours._weights[name].grad
            torch.testing.assert_close(grad, value.grad, rtol=1e-3, atol=1e-5, msg=name)
    for name, value in plain._statistics.items():
        torch.testing.assert_close(ours._statistics[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_curves_of_the_captured_step_are_the_same() -> None:
    """Without normalisation: before it, gradients of biases are rounding alone, and Adam's sign."""
    pytest.importorskip("triton", reason="the captured step needs Triton; it is not here")
    graph, y = in_single(14)
    splits = [
        Split(np.array([0, 3, 5, 8]), np.array([], dtype=int), np.array([1, 2])),
        Split(np.array([2, 4, 9]), np.array([10, 11, 0]), np.array([1])),
    ]
    encoders = [made(k, hidden=4, layers=1, norm=False).float() for k in range(2)]
    more: dict[str, Any] = {**SETTINGS, "epochs": 2, "hidden": 4, "device": DEVICE}
    plain, found = (
        fine_tune_together(encoders, graph, y, splits, [0, 1], captured=how, **more)
        for how in (None, "float32")
    )
    for one, other in zip(found, plain, strict=True):
        for name in ("train_loss", "test", "validation", "validation_loss"):
            mine, its = getattr(one, name), getattr(other, name)
            assert (mine is None) == (its is None)
            assert mine is None or np.allclose(mine, its, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("asked", "known_as"), [("tf32", "high"), ("float32", "highest")])
def test_products_of_the_captured_step_are_in_the_precision_asked_for(
    asked: str, known_as: str
) -> None:
    pytest.importorskip("triton", reason="the captured step needs Triton; it is not here")
    _, precision = side._source(in_single(4)[0], torch.device(DEVICE), asked)
    with precision:
        assert torch.get_float32_matmul_precision() == known_as


def test_dropout_of_the_captured_step_goes_by_its_keys() -> None:
    pytest.importorskip("triton", reason="the captured step needs Triton; it is not here")
    graph, _ = in_single(10)
    place = torch.device(DEVICE)
    source, _ = side._source(graph, place, "float32")
    found = []
    for dropout, keys in ((0.4, [1, 2]), (0.4, [1, 2]), (0.4, [1, 3]), (0.0, [1, 2])):
        encoder = made(hidden=4, layers=1, dropout=dropout).float()
        torch.manual_seed(0)
        together = side.SideBySide([Network(encoder, 3, 4, 0.0, "graph")] * 2, place)
        blocks = source.blocks([np.arange(4)] * 2, keys)
        found.append(together(blocks, training=True).detach())
    one, again, other, calm = found
    assert torch.equal(one, again)
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[1], other[1])
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one[0], calm[0])


def test_held_out_rows_are_bounded_by_the_numbers_they_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, _ = toys()
    source, _ = side._source(graph, torch.device("cpu"), None)
    rows = [np.arange(20), np.arange(20, 50)]
    assert len(list(side._chunks(source, rows, 16))) == 1
    monkeypatch.setattr(side, "GRAPHS", 12)
    chunks = list(side._chunks(source, rows, 16))
    assert [len(chunk.rows[1]) for chunk in chunks] == [12, 12, 6]
    most = int(source.num_nodes[rows[1]].sum()) * 16
    monkeypatch.setattr(side, "NUMBERS", most // 3)
    assert len(list(side._chunks(source, rows, 16))) == 4  # of nine graphs at most
