"""Feature recipes: settled once, the same for unseen graphs."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import torch

from lg2ar.config import Config
from lg2ar.data.columns import Column
from lg2ar.data.dataset import Dataset
from lg2ar.data.features import RECIPES, FeatureRecipe
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch


def star(leaves: int, width: int) -> GraphBatch:
    """A centre that every leaf points to and is pointed at by, with numbered features."""
    n = leaves + 1
    out = torch.stack([torch.zeros(leaves, dtype=torch.long), torch.arange(1, n)])
    return GraphBatch(
        x=torch.arange(n * width, dtype=torch.float32).view(n, width),
        edge_index=torch.cat([out, out.flip(0)], dim=1),
        batch=torch.zeros(n, dtype=torch.long),
        num_graphs=1,
    )


def features(name: str, graph: GraphBatch, cap: int = 3) -> list[list[float]]:
    recipe = FeatureRecipe.settle(name, graph, cap)
    made = recipe.apply(graph).x
    assert made.size(1) == recipe.width
    return made.tolist()


def test_auto_takes_what_is_given_or_a_constant() -> None:
    assert FeatureRecipe.settle("auto", star(2, 2)).name == "given"
    assert FeatureRecipe.settle("auto", star(2, 0)).name == "constant"


def test_each_recipe_makes_what_it_says() -> None:
    bare = star(2, 0)
    assert features("constant", bare) == [[1], [1], [1]]
    assert features("degree", bare) == [[2], [1], [1]]
    assert features("one-hot-degree", bare) == [[0, 0, 1, 0], [0, 1, 0, 0], [0, 1, 0, 0]]
    assert features("degree-and-one-hot", bare)[0] == [2, 0, 0, 1, 0]
    # From the centre a walk is back after two steps; from a leaf, after two with half the chance.
    assert features("walks", bare) == [[1, 0] * 3 + [1], *[[0.5, 0] * 3 + [0.5]] * 2]


def test_degrees_stand_beside_given_features_and_a_constant_replaces_them() -> None:
    assert features("given", star(1, 2)) == [[0, 1], [2, 3]]
    assert features("degree", star(1, 2)) == [[0, 1, 1], [2, 3, 1]]
    assert features("walks", star(1, 2))[1] == [2, 3, *[1, 0] * 3, 1]
    assert features("constant", star(1, 2)) == [[1], [1]]


def test_degrees_beyond_the_cap_look_alike() -> None:
    recipe = FeatureRecipe.settle("one-hot-degree", star(2, 0), cap=3)
    centres = [recipe.apply(star(leaves, 0)).x[0] for leaves in (3, 50)]
    assert torch.equal(centres[0], centres[1])


def test_walks_are_as_long_as_the_settings_say_and_the_recipe_remembers() -> None:
    config = Config.make(features="walks", walk_length=3)
    recipe = FeatureRecipe.of(config, star(2, 2))
    assert (recipe.width, recipe.to_dict()["walk_length"]) == (4, 3)
    assert FeatureRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert "walk_length" not in FeatureRecipe.settle("degree", star(2, 2)).to_dict()
    for wrong in (0, 1, -3):
        with pytest.raises(TypeError):
            FeatureRecipe.from_dict({**recipe.to_dict(), "walk_length": wrong})
    with pytest.raises(TypeError):
        FeatureRecipe.from_dict({**recipe.to_dict(), "name": "degree"})


def test_an_unseen_graph_gets_features_of_the_same_width() -> None:
    for name in RECIPES:
        recipe = FeatureRecipe.settle(name, star(2, 2), cap=5)
        assert recipe.apply(star(30, 2)).num_features == recipe.width
        assert FeatureRecipe(**recipe.to_dict()) == recipe


def test_other_feature_widths_and_names_are_refused() -> None:
    recipe = FeatureRecipe.settle("given", star(2, 2))
    with pytest.raises(InputError, match=r"mine has 3 node features where .* trained on 2"):
        recipe.apply(star(2, 3), "mine")
    with pytest.raises(InputError, match="no node features of their own"):
        FeatureRecipe.settle("given", star(2, 0))
    with pytest.raises(InputError, match="must be one of auto, given"):
        FeatureRecipe.settle("colour", star(2, 2))


def tabled(
    leaves: int, kinds: list[Any], bonds: list[Any] | None = None, width: int = 0
) -> Dataset:
    """A star whose nodes have a column of kinds and, where given, its edges one of bonds."""
    return Dataset(
        name="mine",
        level="graph",
        graph=star(leaves, width),
        node_columns=(Column.categories("kind", kinds),),
        edge_columns=() if bonds is None else (Column.numbers("bond", bonds),),
    )


def test_columns_stand_behind_what_is_given_and_before_degrees() -> None:
    dataset = tabled(1, ["b", "a"], width=1)
    recipe = FeatureRecipe.settle("auto", dataset)
    assert recipe.name == "given"
    assert recipe.apply(dataset).x.tolist() == [[0, 0, 1], [1, 1, 0]]
    degrees = FeatureRecipe.settle("degree", dataset)
    assert degrees.apply(dataset).x.tolist() == [[0, 0, 1, 1], [1, 1, 0, 1]]
    assert (recipe.width, degrees.width) == (3, 4)
    constant = FeatureRecipe.settle("constant", dataset)
    assert constant.apply(dataset).x.tolist() == [[1], [1]]
    assert constant.width == 1


def test_columns_of_edges_become_edge_attributes() -> None:
    dataset = tabled(2, ["a", "b", "b"], [0, 2, 0, 2])
    recipe = FeatureRecipe.settle("auto", dataset)
    graph = recipe.apply(dataset)
    assert recipe.edge_width == graph.num_edge_features == 1
    assert graph.edge_attr is not None
    assert graph.edge_attr.tolist() == [[-1], [1], [-1], [1]]
    own = dataset.graph.replace(edge_attr=torch.ones(4, 2))
    both = Dataset("mine", "graph", own, edge_columns=dataset.edge_columns)
    made = FeatureRecipe.settle("auto", both).apply(both)
    assert made.edge_attr is not None
    assert made.edge_attr.tolist() == [[1, 1, -1], [1, 1, 1], [1, 1, -1], [1, 1, 1]]
    # A model that was trained without edge attributes does not see them.
    bare = FeatureRecipe.settle("auto", star(2, 0))
    assert bare.apply(own).edge_attr is None
    with pytest.raises(InputError, match=r"mine has 0 edge features where .* trained on 2"):
        FeatureRecipe.settle("auto", own).apply(dataset)


def test_graphs_without_edges_need_no_columns_of_edges() -> None:
    recipe = FeatureRecipe.settle("auto", tabled(2, ["a", "b", "b"], [0, 2, 0, 2]))
    alone = tabled(0, ["b"])
    assert recipe.apply(alone).num_edge_features == 1
    with pytest.raises(InputError, match="mine, edges: has no column 'bond'"):
        recipe.apply(tabled(1, ["a", "b"]))


def test_unseen_values_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    recipe = FeatureRecipe.settle("auto", tabled(1, ["a", "b"]))
    with caplog.at_level(logging.WARNING, "lg2ar"):
        graph = recipe.apply(tabled(2, ["a", "x", None]))
    assert graph.x.tolist() == [[1, 0], [0, 0], [0, 0]]
    assert caplog.messages == [
        "mine: column 'kind' of nodes holds 1 value(s) that were not seen in training, such as "
        "'x', in 1 row(s) and is empty in 1 row(s), as it never was in training; these are taken "
        "as unknown."
    ]


def test_columns_that_make_no_feature_are_told(caplog: pytest.LogCaptureFixture) -> None:
    dataset = Dataset(
        "mine", "graph", star(1, 0), node_columns=(Column.numbers("one", [1.0, 1.0]),)
    )
    with caplog.at_level(logging.WARNING, "lg2ar"):
        recipe = FeatureRecipe.settle("auto", dataset)
    assert recipe.name == "constant"
    assert "no feature is made of 1 column(s) of nodes" in caplog.messages[0]
    assert "'one'" in caplog.messages[0]


def test_recipes_are_kept_as_json_and_old_ones_are_read() -> None:
    dataset = tabled(2, ["a", "b", None], [0, 2, 0, 2])
    recipe = FeatureRecipe.settle("degree", dataset, cap=7)
    held = json.loads(json.dumps(recipe.to_dict(), allow_nan=False))
    assert FeatureRecipe.from_dict(held) == recipe
    old = {"name": "degree", "given": 3, "cap": 100}
    assert FeatureRecipe.from_dict(old).to_dict() == old
    with pytest.raises(TypeError):
        FeatureRecipe.from_dict({**old, "colour": 1})


def test_the_fingerprint_covers_columns() -> None:
    plain = Dataset("mine", "graph", star(1, 0)).fingerprint()
    marks = {
        tabled(1, ["a", "b"]).fingerprint(),
        tabled(1, ["b", "a"]).fingerprint(),
        tabled(1, ["a", None]).fingerprint(),
        tabled(1, ["a", "b"], [1, 1]).fingerprint(),
        tabled(1, ["a", "b"], [1, 2]).fingerprint(),
        plain,
    }
    assert len(marks) == 6
    assert tabled(1, ["a", "b"]).fingerprint() == tabled(1, ["a", "b"]).fingerprint()
