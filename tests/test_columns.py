"""Raw columns and the recipe that makes numbers of them."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lg2ar.data.columns import LARGEST, Column, ColumnRecipe
from lg2ar.errors import InputError


def made(recipe: ColumnRecipe, *columns: Column) -> list[list[float]]:
    values, _ = recipe.apply(columns)
    assert values.dtype == torch.float32
    assert values.shape == (len(columns[0]), recipe.width)
    assert len(recipe.feature_names) == recipe.width
    return [[round(number, 5) for number in row] for row in values.tolist()]


def test_numbers_get_mean_zero_and_deviation_one() -> None:
    column = Column.numbers("size", [1, 2, 3, 6])
    recipe = ColumnRecipe.learn([column])
    deviation = statistics.pstdev([1, 2, 3, 6])
    assert made(recipe, column) == [[round((v - 3) / deviation, 5)] for v in (1, 2, 3, 6)]
    assert made(recipe, Column.numbers("size", [3])) == [[0.0]]


def test_missing_numbers_are_the_mean_and_told_where_some_were_missing_before() -> None:
    column = Column.numbers("size", [0, np.nan, 2])
    recipe = ColumnRecipe.learn([column])
    assert made(recipe, column) == [[-1, 0], [0, 1], [1, 0]]
    assert recipe.apply([column])[1] == {}
    whole = ColumnRecipe.learn([Column.numbers("size", [0, 2])])
    values, unseen = whole.apply([Column.numbers("size", [np.nan, 2, np.nan])])
    assert values.tolist() == [[0], [1], [0]]
    assert unseen == {("size", ""): 2}


def test_a_number_that_never_changes_makes_no_feature() -> None:
    recipe = ColumnRecipe.learn(
        [Column.numbers("one", [1, 1]), Column.numbers("none", [np.nan, np.nan])]
    )
    assert recipe.width == 0
    assert recipe.left_out == ("one", "none")
    # Whether it is missing does change, and is one.
    some = ColumnRecipe.learn([Column.numbers("one", [1, np.nan])])
    assert made(some, Column.numbers("one", [1, np.nan])) == [[0], [1]]
    assert some.feature_names == ("one: missing",)


def test_the_largest_numbers_stay_finite() -> None:
    column = Column.numbers("huge", [-1.5e308, 1.5e308, 1.0])
    values, _ = ColumnRecipe.learn([column]).apply([column])
    assert values.isfinite().all()
    assert values.mean().abs() < 1e-6


def test_categories_have_a_place_each_in_the_order_of_numbers_or_words() -> None:
    column = Column.categories("atom", [10, 2, 2, "1"])
    recipe = ColumnRecipe.learn([column])
    assert made(recipe, column) == [[0, 0, 1], [0, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert recipe.feature_names == ("atom = 1", "atom = 2", "atom = 10")
    words = ColumnRecipe.learn([Column.categories("kind", ["b", "a", "B", "10"])])
    assert words.feature_names == ("kind = 10", "kind = B", "kind = a", "kind = b")


def test_unseen_and_missing_categories_count_as_nothing_and_are_counted() -> None:
    recipe = ColumnRecipe.learn([Column.categories("kind", ["a", "b"])])
    values, unseen = recipe.apply([Column.categories("kind", ["b", "x", None, "x", "y"])])
    assert values.tolist() == [[0, 1], [0, 0], [0, 0], [0, 0], [0, 0]]
    assert unseen == {("kind", "x"): 2, ("kind", "y"): 1, ("kind", ""): 1}


def test_missing_categories_have_a_place_where_some_were_missing_before() -> None:
    column = Column.categories("kind", ["a", None, np.nan])
    recipe = ColumnRecipe.learn([column])
    assert made(recipe, column) == [[1, 0], [0, 1], [0, 1]]


def test_rare_values_of_many_share_a_place_with_unseen_ones() -> None:
    values = [str(k) for k in range(LARGEST + 10) for _ in range(3)] + [str(LARGEST + 9)]
    recipe = ColumnRecipe.learn([Column.categories("kind", values)])
    assert recipe.width == LARGEST + 1
    # The most frequent one is kept though it is the last in order.
    assert f"kind = {LARGEST + 9}" in recipe.feature_names
    rows, unseen = recipe.apply([Column.categories("kind", ["0", str(LARGEST + 1), "new"])])
    assert rows.argmax(1).tolist() == [0, LARGEST, LARGEST]
    assert rows.sum(1).tolist() == [1, 1, 1]
    assert unseen == {}


def test_texts_that_differ_in_nearly_every_row_are_no_categories() -> None:
    recipe = ColumnRecipe.learn([Column.categories("name", [f"name {k}" for k in range(100)])])
    assert recipe.width == 0
    assert recipe.left_out == ("name",)
    assert recipe.apply([Column.categories("name", ["x"])])[0].shape == (1, 0)


def test_columns_are_found_by_name_in_any_order() -> None:
    size, kind = Column.numbers("size", [0, 2]), Column.categories("kind", ["a", "b"])
    recipe = ColumnRecipe.learn([size, kind])
    other = Column.numbers("other", [7, 7])
    assert made(recipe, other, kind, size) == made(recipe, size, kind) == [[-1, 1, 0], [1, 0, 1]]


def test_numbers_are_read_as_categories_where_such_were_learned() -> None:
    recipe = ColumnRecipe.learn([Column.categories("code", ["1", "2", "x"])])
    assert made(recipe, Column.numbers("code", [2, 1])) == [[0, 1, 0], [1, 0, 0]]
    # And a column that is empty here is of the kind it was there.
    empty = Column.categories("size", [None, None])
    numbers = ColumnRecipe.learn([Column.numbers("size", [0, np.nan, 2])])
    assert made(numbers, empty) == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            Column.numbers("weight", [1]),
            "mine: has no column 'size', .*columns are 'weight'",
        ),
        (Column.categories("size", ["big"]), r"'size' holds words \('big'\) where .* on numbers"),
        (Column.numbers("size", [np.inf]), r"mine: column 'size' holds infinity in row 1"),
    ],
)
def test_columns_that_do_not_fit_are_refused(column: Column, message: str) -> None:
    recipe = ColumnRecipe.learn([Column.numbers("size", [0, 2])])
    with pytest.raises(InputError, match=message):
        recipe.apply([column], "mine")


def test_infinity_is_refused_when_learning_too() -> None:
    with pytest.raises(InputError, match="mine: column 'size' holds infinity in row 2"):
        ColumnRecipe.learn([Column.numbers("size", [0, -np.inf])], "mine")


@pytest.mark.parametrize("held", [{}, {"rules": [{}]}, {"rules": [{"kind": "number", "x": 1}]}])
def test_what_is_no_recipe_is_no_recipe(held: dict[str, Any]) -> None:
    with pytest.raises((TypeError, KeyError)):
        ColumnRecipe.from_dict(held)


# Values of a column as a person has them: numbers or words, some missing.
numbers: st.SearchStrategy[list[Any]] = st.lists(
    st.none() | st.floats(-1e6, 1e6, width=32), min_size=1, max_size=12
)
words: st.SearchStrategy[list[Any]] = st.lists(
    st.none() | st.sampled_from(["a", "b", "1", "2", "10", ""]), min_size=1
)


def by_hand(fit: list[Any], new: list[Any], kind: str) -> list[list[float]]:
    """The recipe of one column, value by value."""
    there = [value for value in fit if value is not None]
    missing = len(there) < len(fit)
    rows = []
    if kind == "number":
        changes = len(set(there)) > 1
        for value in new:
            row: list[float] = []
            if changes:
                mean, std = statistics.fmean(there), statistics.pstdev(there)
                row.append(0 if value is None else (value - mean) / std)
            if missing and there:
                row.append(float(value is None))
            rows.append(row)
        return rows
    different = set(there)
    try:
        order = sorted(different, key=float)
    except ValueError:
        order = sorted(different)
    for value in new:
        rows.append([float(value == name) for name in order])
        if missing:
            rows[-1].append(float(value is None))
    return rows


@given(data=st.data(), kind=st.sampled_from(["number", "category"]))
def test_a_recipe_agrees_with_one_made_by_hand(data: st.DataObject, kind: str) -> None:
    values: st.SearchStrategy[list[Any]] = numbers if kind == "number" else words
    fit, new = data.draw(values), data.draw(values)
    make = Column.numbers if kind == "number" else Column.categories

    def column(given: list[Any]) -> Column:
        lost = np.nan if kind == "number" else None
        return make("c", [lost if value is None else value for value in given])

    recipe = ColumnRecipe.learn([column(fit)])
    again = ColumnRecipe.from_dict(json.loads(json.dumps(recipe.to_dict(), allow_nan=False)))
    assert again == recipe
    rows, unseen = again.apply([column(new)])
    by_value = torch.tensor(by_hand(fit, new, kind), dtype=torch.float32)
    expected = by_value.reshape(len(new), recipe.width)
    torch.testing.assert_close(rows, expected, rtol=1e-4, atol=1e-4)
    if kind == "category" and set(fit) != {None}:
        counted = Counter("" if value is None else value for value in new if value not in fit)
        assert {value: count for (_, value), count in unseen.items()} == counted
