"""Feature recipes: settled once, the same for unseen graphs."""

from __future__ import annotations

import pytest
import torch

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


def test_degrees_stand_beside_given_features_and_a_constant_replaces_them() -> None:
    assert features("given", star(1, 2)) == [[0, 1], [2, 3]]
    assert features("degree", star(1, 2)) == [[0, 1, 1], [2, 3, 1]]
    assert features("constant", star(1, 2)) == [[1], [1]]


def test_degrees_beyond_the_cap_look_alike() -> None:
    recipe = FeatureRecipe.settle("one-hot-degree", star(2, 0), cap=3)
    centres = [recipe.apply(star(leaves, 0)).x[0] for leaves in (3, 50)]
    assert torch.equal(centres[0], centres[1])


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
