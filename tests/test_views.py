from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from lg2ar.config import HEAD_NAMES, Config
from lg2ar.data.batches import GraphStore
from lg2ar.data.dataset import Dataset
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.graph import GraphBatch
from lg2ar.heads import Head
from lg2ar.methods import build
from lg2ar.model import LG2AR
from lg2ar.ops import segment_softmax
from lg2ar.report.examples import examples_section, make_examples
from lg2ar.report.kinds import node_kinds
from lg2ar.report.outlines import Outliner
from lg2ar.report.placing import place
from lg2ar.report.sketches import view_sketch, view_text
from lg2ar.report.views import View, cut_views
from lg2ar.sampling import seed_from


def one(graph: GraphBatch, row: int = 3) -> GraphBatch:
    return GraphStore(graph).select([row])


def model_of(config: Config, graph: GraphBatch) -> LG2AR:
    model = build(config, graph.num_features)
    assert isinstance(model, LG2AR)
    return model.eval()


def again(model: LG2AR, head: int, graph: GraphBatch, seed: int, view: int) -> GraphBatch:
    """The view that the head itself cuts, as training would ask for it."""
    generator = torch.Generator().manual_seed(seed_from(seed, "views", HEAD_NAMES[head], view))
    source = model.base_encoder.prepare(graph)
    cut = model.heads[head]
    assert isinstance(cut, Head)
    with torch.no_grad():
        found: GraphBatch = cut(source, model.augmentation_encoder(graph), generator)
    return found


def joined(edge_index: torch.Tensor) -> set[tuple[int, int]]:
    return {(min(a, b), max(a, b)) for a, b in edge_index.T.tolist() if a != b}


@pytest.fixture(params=["head", "shared"])
def config(request: pytest.FixtureRequest) -> Config:
    return Config.make(
        hidden=8, layers=2, edge_weighting="printed", feature_projection=request.param
    )


def test_views_are_those_of_the_run_s_own_heads(config: Config) -> None:
    graph = one(toy_graphs(20).graph)
    model = model_of(config, graph)
    found = cut_views(model, config.heads, graph, seed=5)
    assert list(found) == list(HEAD_NAMES)
    before = joined(graph.edge_index)
    for head, views in enumerate(found.values()):
        assert len(views) == 2
        for k, view in enumerate(views):
            cut = again(model, head, graph, 5, k)
            assert cut.origin is not None
            assert set(np.flatnonzero(view.kept)) == set(cut.origin.tolist())
            after = joined(cut.origin[cut.edge_index])
            assert view.stayed == before & after
            assert view.removed == before - after
            assert view.added == after - before


def test_probabilities_are_those_the_heads_learned(config: Config) -> None:
    graph = one(toy_graphs(20).graph)
    model = model_of(config, graph)
    found = cut_views(model, config.heads, graph, seed=5)
    with torch.no_grad():
        encoding = model.augmentation_encoder(graph)
        for head, name in ((1, "node-dropping"), (3, "sub-graph")):
            logits = model.heads[head].scores(graph, encoding)  # type: ignore[operator]
            p = segment_softmax(logits, graph.batch, 1)
            for view in found[name]:
                assert view.node_p is not None
                np.testing.assert_allclose(view.node_p, p.numpy(), rtol=1e-5)
        kept = model.heads[4].mlp(encoding.nodes).sigmoid()  # type: ignore[operator]
    for view in found["feature-masking"]:
        assert view.feature_p is not None
        np.testing.assert_allclose(view.feature_p, kept.mean(1).numpy(), rtol=1e-5)
    for k, view in enumerate(found["edge-perturbation"]):
        cut = again(model, 2, graph, 5, k)
        assert cut.edge_weight is not None  # printed: the weight of a kept edge is its probability
        for (a, b), weight in zip(cut.edge_index.T.tolist(), cut.edge_weight.tolist(), strict=True):
            assert view.edge_p[min(a, b), max(a, b)] == pytest.approx(weight, rel=1e-5)
        assert joined(graph.edge_index) <= view.edge_p.keys()  # removed ones have theirs as well


def test_masked_shares_are_those_of_the_view(config: Config) -> None:
    graph = one(toy_graphs(20).graph)
    model = model_of(config, graph)
    for k, view in enumerate(cut_views(model, config.heads, graph, seed=5)["feature-masking"]):
        cut = again(model, 4, graph, 5, k)  # a linear layer leaves no zero of its own
        assert view.masked is not None
        share = (cut.x == 0).double().mean(1)
        np.testing.assert_allclose(view.masked, share.numpy(), rtol=1e-6)
        assert 0 < view.masked.mean() < 1


def test_looking_changes_nothing(config: Config) -> None:
    graph = one(toy_graphs(20).graph)
    model = model_of(config, graph)
    before = again(model, 2, graph, 0, 0), again(model, 4, graph, 0, 0)
    cut_views(model, config.heads, graph, seed=1)
    after = again(model, 2, graph, 0, 0), again(model, 4, graph, 0, 0)
    for x, y in zip(before, after, strict=True):
        assert torch.equal(x.edge_index, y.edge_index)
        assert torch.equal(x.x, y.x)
    assert all(not part._forward_hooks for part in model.modules())
    assert "logits" not in model.heads[2].__dict__


def test_views_are_cut_on_the_model_s_device(device: torch.device) -> None:
    graph = one(toy_graphs(20).graph)
    config = Config.make(hidden=8)
    found = cut_views(model_of(config, graph).to(device), config.heads, graph, seed=5)
    assert not found["node-dropping"][0].kept.all()
    assert found["edge-perturbation"][0].edge_p
    assert found["feature-masking"][0].masked is not None


def test_methods_that_learn_no_heads() -> None:
    graph = one(toy_graphs(20).graph)
    plain = build(Config.make(method="graphcl", hidden=8), graph.num_features).eval()
    found = cut_views(plain, HEAD_NAMES, graph, seed=0)
    assert [len(views) for views in found.values()] == [2] * 5
    assert not found["node-dropping"][0].kept.all()
    masked = found["feature-masking"][0].masked
    assert masked is not None
    assert 0 < masked.mean() < 1
    assert found["edge-perturbation"][0].edge_p == {}
    none = build(Config.make(method="infograph", hidden=8), graph.num_features).eval()
    assert cut_views(none, HEAD_NAMES, graph, seed=0) == {}


def path_view(**changes: object) -> View:
    """A path of four nodes: one dropped, one edge removed with it, one added."""
    values = {
        "kept": np.array([True, True, True, False]),
        "removed": frozenset({(2, 3)}),
        "stayed": frozenset({(0, 1), (1, 2)}),
        "added": frozenset({(0, 2)}),
        "node_p": np.array([0.25, 0.5, 0.25, 0.0]),
        "edge_p": {(0, 1): 1.0, (2, 3): 0.0, (0, 2): 0.5},
    }
    return View(**{**values, **changes})  # type: ignore[arg-type]


def path_drawing(view: View) -> ElementTree.Element:
    pairs = torch.tensor([[0, 1, 2], [1, 2, 3]])
    batch = torch.zeros(4, dtype=torch.long)
    outline = Outliner(GraphBatch(torch.ones(4, 1), pairs, batch, 1)).graph(0)
    places = place([4], [outline.pairs])[0]
    return ElementTree.fromstring(view_sketch(outline, places, view, label="a path"))


def classes(item: ElementTree.Element) -> list[str]:
    return [part.get("class", "") for part in item]


def test_drawing_tells_what_became_of_the_graph() -> None:
    item = path_drawing(path_view())
    assert classes(item) == [
        "likely q8",  # broad lines below, in the colour of the probability
        "likely q0",
        "likely q4",
        "edge kept",
        "edge kept",
        "edge removed",
        "edge added",
        "node q4",  # as likely as all alike
        "node q6",  # twice as likely
        "node q4",
        "node dropped",
        "mark q0",
    ]
    tips = [part.get("data-tip") for part in item]
    assert tips[5] == "edge 2 to 3 removed p = 0.00"  # XML makes spaces of line ends
    assert tips[6] == "edge 0 to 2 added p = 0.50"
    assert tips[10] is not None
    assert tips[10].startswith("node 3 dropped p = 0.000")
    assert view_text(path_view()) == "3 of 4 nodes kept, 2 of 3 edges kept, 1 added"


def test_drawing_tells_masked_shares() -> None:
    view = path_view(
        kept=np.full(4, True),
        removed=frozenset(),
        added=frozenset(),
        node_p=None,
        edge_p={},
        masked=np.array([0.0, 0.25, 0.75, 1.0]),
        feature_p=np.array([0.0, 0.5, 1.0, 0.3]),
    )
    item = path_drawing(view)
    assert [name for name in classes(item) if name.startswith("node")] == [
        "node q0",
        "node q4",
        "node q8",
        "node q2",
    ]
    assert classes(item).count("masked") == 3  # nothing over the node that keeps all
    arcs = [part.get("d", "") for part in item if part.get("class") == "masked"]
    assert " 0 0 1 " in arcs[0]  # a quarter turn, the short way
    assert " 0 1 1 " in arcs[1]
    assert view_text(view) == "50 % of the features masked"


@pytest.mark.parametrize("data", [toy_graphs(12), toy_nodes(80)])
def test_examples_are_of_the_run_s_level(data: Dataset) -> None:
    config = Config.make(level=data.level, hidden=8)
    model = model_of(config, data.graph)
    examples = make_examples(model, config, data, data.graph, node_kinds(data), 3)
    assert len(examples) == 3
    assert data.y is not None
    labels = {example.name.split("label ")[1] for example in examples}
    assert len(labels) == 3  # they take turns
    for example in examples:
        assert example.name.startswith(f"{data.level} ")
        assert list(example.views) == list(config.heads)
        assert len(example.places) == len(example.outline.nodes)
        if data.level == "node":
            assert example.outline.centre is not None
    html = examples_section(examples, {"identity": 0.25})
    assert html.count("<svg") == 3 * (1 + 2 * len(config.heads)) + 6
    assert "drawn with p = 0.25" in html


def test_examples_of_large_graphs_are_drawn_in_part() -> None:
    n = 300
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    batch = torch.arange(2).repeat_interleave(n)
    edges = torch.cat([ring, ring.flip(0)], dim=1)
    graph = GraphBatch(torch.ones(2 * n, 1), torch.cat([edges, edges + n], 1), batch, 2)
    data = Dataset(name="rings", level="graph", graph=graph, ids=("<i>a</i>", "b"))
    config = Config.make(hidden=8)
    model = model_of(config, graph)
    examples = make_examples(model, config, data, graph, node_kinds(data), 1)
    assert len(examples[0].outline.nodes) == 60
    html = examples_section(examples, {})
    assert "300 nodes, 300 edges; drawn are the 60 nodes around the one with a ring" in html
    assert "<i>a" not in html
