"""Neighbours, outliers and clusters of embeddings, against slow obvious answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from commands import Command
from lg2ar import exploring
from lg2ar.errors import InputError
from lg2ar.exploring import cluster, neighbours, outliers
from lg2ar.moments import scaled


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def blobs(sizes: tuple[int, ...] = (30, 20, 10), seed: int = 0) -> NDArray[np.float64]:
    """Clouds around far places, one column a thousand times as large as the others."""
    rng = np.random.default_rng(seed)
    middles = 20 * np.eye(len(sizes), 4)
    rows = np.concatenate(
        [m + rng.normal(size=(n, 4)) for m, n in zip(middles, sizes, strict=True)]
    )
    return np.column_stack([rows * [1, 1000, 1, 1], np.full(len(rows), 7.0)])


def names(number: int) -> list[str]:
    return [f"r{place}" for place in range(number)]


def test_columns_are_scaled_and_those_that_do_not_vary_are_left_out() -> None:
    found = scaled(blobs())
    assert found.shape == (60, 4)
    assert np.allclose(found.mean(axis=0), 0)
    assert np.allclose(found.std(axis=0), 1)
    assert scaled(np.ones((5, 3))).tolist() == [[0.0]] * 5


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_neighbours_are_those_of_a_search_by_hand(metric: exploring.Metric) -> None:
    rows = blobs()
    table = neighbours(rows, names(60), ["r3", "r59"], k=5, metric=metric)
    x = (rows[:, :4] - rows[:, :4].mean(0)) / rows[:, :4].std(0)
    for query, start in ((3, 0), (59, 5)):
        distance = []
        for other in range(60):
            if metric == "euclidean":
                distance.append(np.sqrt(((x[query] - x[other]) ** 2).sum()))
            else:
                lengths = np.linalg.norm(x[query]) * np.linalg.norm(x[other])
                distance.append(1 - x[query] @ x[other] / lengths)
        order = [place for place in np.argsort(distance) if place != query][:5]
        part = table.iloc[start : start + 5]
        assert part["id"].tolist() == [f"r{place}" for place in order]
        assert part["distance"].to_numpy() == pytest.approx(np.array(distance)[order])
        assert part["rank"].tolist() == [1, 2, 3, 4, 5]
        assert set(part["query"]) == {f"r{query}"}


def test_a_row_is_not_its_own_neighbour_even_among_twins() -> None:
    rows = np.repeat(np.eye(3), 4, axis=0)
    for query in range(12):
        table = neighbours(rows, np.arange(12), [query], k=3)
        assert query not in table["id"].tolist()
        assert len(table) == 3
        assert {int(other) // 4 for other in table["id"]} == {query // 4}
    assert len(neighbours(rows, np.arange(12), ["5"], k=99)) == 11  # all there are


def test_ids_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match=r"no row has the id 'r7x'; did you mean 'r7'\?"):
        neighbours(blobs(), names(60), ["r7x"])
    with pytest.raises(InputError, match=r"they are r0, r1, \.\.\. r59"):
        neighbours(blobs(), names(60), ["%%%"])
    with pytest.raises(InputError, match="k = 0"):
        neighbours(blobs(), names(60), ["r0"], k=0)
    with pytest.raises(InputError, match="one row only"):
        neighbours(np.ones((1, 2)), ["a"], ["a"])


@pytest.mark.parametrize("method", ["local", "forest"])
def test_the_odd_one_out_comes_first(method: exploring.Outliers) -> None:
    rows = np.concatenate([blobs((60,)), [[40.0, 40_000.0, 40.0, 40.0, 7.0]]])
    table = outliers(rows, names(61), method)
    assert table["id"][0] == "r60"
    assert table["score"].is_monotonic_decreasing
    assert table["rank"].tolist() == list(range(1, 62))
    assert sorted(table["id"]) == sorted(names(61))
    ordinary = 1.0 if method == "local" else 0.5
    assert table["score"].median() == pytest.approx(ordinary, abs=0.1)
    assert table["score"][0] > 1.3 * table["score"][1]


def test_many_twins_do_not_make_others_infinitely_unusual() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.zeros((50, 3)), rng.normal(size=(30, 3))])
    table = outliers(rows, names(80))
    assert table["score"].max() < 10
    twins = table[table["id"].isin(names(50))]
    assert len(set(twins["score"])) == 1
    with pytest.raises(InputError, match="2 different embeddings"):
        outliers(np.repeat(np.eye(2), 9, axis=0), names(18))
    with pytest.raises(InputError, match="2 rows are too few"):
        outliers(np.eye(2), names(2))


@pytest.mark.parametrize("method", ["k-means", "agglomerative"])
def test_clouds_are_found_and_their_number_too(method: exploring.Clustering) -> None:
    found = cluster(blobs(), method=method)
    assert found.sizes == [30, 20, 10]
    assert found.cluster.tolist() == [0] * 30 + [1] * 20 + [2] * 10
    assert max(found.tried, key=lambda number: found.tried[number]) == 3
    assert found.silhouette == pytest.approx(found.tried[3])
    assert found.silhouette is not None
    assert found.silhouette > 0.6
    assert sorted(found.place[:30]) == list(range(1, 31))
    x = scaled(blobs())[:30]
    middle = np.linalg.norm(x - x.mean(axis=0), axis=1).argmin()
    assert found.place[middle] == 1
    assert cluster(blobs(), 5, method).sizes == sorted(cluster(blobs(), 5, method).sizes)[::-1]
    assert len(cluster(blobs(), 5, method).sizes) == 5


def test_hdbscan_leaves_out_what_belongs_nowhere() -> None:
    rows = np.concatenate([blobs(), [[-300.0, 5e5, 300.0, 0.0, 7.0]]])
    found = cluster(rows, method="hdbscan")
    assert found.cluster[-1] == -1
    assert found.place[-1] == 0
    assert sum(found.sizes) == int((found.cluster >= 0).sum())
    with pytest.raises(InputError, match="finds the number"):
        cluster(rows, 3, "hdbscan")


def test_clusters_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="60 rows cannot be cut into 61 clusters"):
        cluster(blobs(), 61)
    with pytest.raises(InputError, match="2 rows are too few"):
        cluster(np.eye(2))
    with pytest.raises(InputError, match="at least 61 rows"):
        cluster(blobs(), method="hdbscan", smallest=61)
    monkeypatch.setattr(exploring, "AGGLOMERATIVE_ROWS", 59)
    with pytest.raises(InputError, match="use k-means"):
        cluster(blobs(), method="agglomerative")


def test_rows_that_are_all_alike_are_one_cluster() -> None:
    found = cluster(np.ones((20, 3)))
    assert found.sizes == [20]
    assert found.silhouette is None


def test_the_silhouette_of_many_rows_is_that_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cluster(blobs((300, 200, 100))).silhouette
    monkeypatch.setattr(exploring, "SILHOUETTE_ROWS", 150)
    some = cluster(blobs((300, 200, 100))).silhouette
    assert whole != some
    assert some == pytest.approx(whole, abs=0.05)


def test_the_commands(command: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = ["--set", "hidden=8", "--set", "layers=2", "--set", "epochs=0", "--device", "cpu"]
    command.ok("pretrain", "toy-graphs", "--out", run, *small)
    told = command.ok("neighbours", run, "toy-graphs", "--query", "7", "--k", "3")
    assert told.splitlines()[0].split() == ["query", "rank", "id", "distance", "label"]
    assert len(told.splitlines()) == 4
    out = tmp_path / "near.csv"
    command.ok("neighbours", run, "toy-graphs", "--query", "7,8", "--out", out)
    assert len(pd.read_csv(out)) == 20
    told = command.ok("outliers", run, "toy-graphs", "--top", "4")
    assert len(told.splitlines()) == 5
    command.ok("outliers", run, "toy-graphs", "--method", "forest", "--out", tmp_path / "o.npz")
    assert len(np.load(tmp_path / "o.npz")["score"]) == 300
    told = command.ok("cluster", run, "toy-graphs", "--clusters", "3", "--out", tmp_path / "c.csv")
    assert told.startswith("3 clusters, silhouette 0.")
    assert sorted(pd.read_csv(tmp_path / "c.csv")["cluster"].unique()) == [0, 1, 2]
    assert "no row has the id" in command.refused("neighbours", run, "toy-graphs", "--query", "x")
    assert "whole number, or auto" in command.refused(
        "cluster", run, "toy-graphs", "--clusters", "many"
    )
    assert "a table is written as" in command.refused(
        "outliers", run, "toy-graphs", "--out", tmp_path / "o.docx"
    )
