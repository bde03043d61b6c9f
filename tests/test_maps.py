from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from lg2ar.exploring import neighbours
from lg2ar.report.maps import components, framed, nearest, neighbour_map, project


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((6, 4)),
        np.zeros((6, 4)),
        np.column_stack([np.full(6, 1e8), np.arange(6.0)]),
        np.arange(6.0).reshape(6, 1),
        np.zeros((6, 0)),
        np.ones((1, 4)),
        np.zeros((0, 4)),
        np.random.default_rng(0).normal(size=(2, 9)).astype(np.float32),
    ],
)
def test_projection_is_finite(rows: np.ndarray) -> None:
    plane = project(rows)
    assert plane.shape == (len(rows), 2)
    assert np.isfinite(plane).all()


def test_projection_is_that_of_standardised_rows() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 5)) * [1, 10, 0, 0.1, 3] + 7
    varying = rows[:, [0, 1, 3, 4]]
    standard = (varying - varying.mean(0)) / varying.std(0)
    left, size, _ = np.linalg.svd(standard, full_matrices=False)
    expected = left[:, :2] * size[:2]
    np.testing.assert_allclose(np.abs(project(rows)), np.abs(expected), atol=1e-9)
    np.testing.assert_allclose(project(rows), project(rows * 1000), atol=1e-6)


def test_projection_refuses_nan() -> None:
    with pytest.raises(ValueError, match="finite"):
        project(np.array([[0.0, np.nan], [1.0, 2.0]]))


def test_components_are_the_same_from_either_side() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 12)) @ np.diag(np.arange(1, 13))
    wide = np.hstack([rows, rows @ np.random.default_rng(1).normal(size=(12, 40))])
    for given in (rows, wide):
        standard = (given - given.mean(0)) / given.std(0)
        left, size, _ = np.linalg.svd(standard, full_matrices=False)
        found = components(given, 5)
        np.testing.assert_allclose(np.abs(found), np.abs(left[:, :5] * size[:5]), atol=1e-7)


def groups(number: int = 3, each: int = 25) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = 8 * rng.normal(size=(number, 10))
    return np.concatenate([centre + rng.normal(size=(each, 10)) for centre in centres])


def test_neighbour_map_keeps_neighbours() -> None:
    rows = groups()
    points = neighbour_map(rows, seed=1)
    assert points is not None
    near = NearestNeighbors(n_neighbors=6).fit(points).kneighbors(points)[1]
    assert (near // 25 == (np.arange(75) // 25)[:, None]).mean() > 0.98
    again = neighbour_map(rows, seed=1)
    assert again is not None
    np.testing.assert_allclose(points, again)


@pytest.mark.parametrize(
    "rows", [np.ones((40, 3)), np.arange(40.0)[:, None], np.eye(5), np.zeros((0, 4))]
)
def test_neighbour_map_needs_different_rows(rows: np.ndarray) -> None:
    assert neighbour_map(rows) is None


def test_nearest_is_what_the_command_neighbours_lists() -> None:
    rows = np.random.default_rng(0).normal(size=(700, 6)) * [1, 10, 100, 1, 1, 1]
    listed = neighbours(rows, np.arange(700), range(700), k=4)
    found, apart = nearest(rows, 4)
    np.testing.assert_array_equal(found.ravel(), listed["id"])
    np.testing.assert_allclose(apart.ravel(), listed["distance"], atol=1e-9)


def test_nearest_of_few() -> None:
    assert nearest(np.zeros((0, 3)), 4)[0].shape == (0, 0)
    assert nearest(np.zeros((1, 3)), 4)[0].shape == (1, 0)
    places, apart = nearest(np.array([[0.0], [1.0], [5.0]]), 4)  # two below the mean, one above
    assert places.tolist() == [[1, 2], [0, 2], [0, 1]]
    np.testing.assert_allclose(apart, [[0, 2], [0, 2], [2, 2]], atol=1e-12)


@pytest.mark.parametrize("aspect", [1.0, 0.75])
def test_framed_fills_the_frame_and_keeps_shapes(aspect: float) -> None:
    points = np.random.default_rng(0).normal(size=(50, 2)) @ np.array([[3.0, 1.0], [0.0, 0.5]])
    found = framed(points, aspect)
    assert found.min() >= -1e-9
    assert found.max() <= 1 + 1e-9
    assert np.ptp(found, axis=0).max() == pytest.approx(1)
    on_paper = found * [1, aspect]
    ratio = np.linalg.norm(on_paper[1:] - on_paper[0], axis=1)
    ratio /= np.linalg.norm(points[1:] - points[0], axis=1)
    np.testing.assert_allclose(ratio, ratio[0])


def test_framed_of_one_place() -> None:
    assert framed(np.ones((3, 2))).tolist() == [[0.5, 0.5]] * 3
    assert framed(np.zeros((0, 2))).shape == (0, 2)
