"""Looking around among embeddings: what is near, what is unusual, what belongs together.

All of it works on frozen embeddings, with every column brought to mean 0 and standard deviation 1
first: sums over nodes are large and unequal by orders of magnitude, and the largest column would
decide alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from lg2ar.errors import InputError
from lg2ar.moments import scaled

if TYPE_CHECKING:
    import pandas as pd

Metric = Literal["cosine", "euclidean"]
Outliers = Literal["local", "forest"]
Clustering = Literal["k-means", "agglomerative", "hdbscan"]

# Of so many rows the silhouette is measured at most, since it compares each with each.
SILHOUETTE_ROWS = 2000

# Agglomerative clustering keeps the distances of all pairs: 3 GB for so many rows.
AGGLOMERATIVE_ROWS = 20_000

# Numbers of clusters that are tried where none is asked for.
TRIED = range(2, 13)


def neighbours(
    rows: NDArray[np.floating],
    ids: Sequence[object] | NDArray[np.generic],
    queries: Sequence[object],
    k: int = 10,
    metric: Metric = "cosine",
) -> pd.DataFrame:
    """The rows nearest to some of them.

    >>> import numpy as np
    >>> rows = np.array([[0.0, 1.0], [0.1, 1.0], [3.0, 0.0]])
    >>> neighbours(rows, ["a", "b", "c"], ["a"], k=1, metric="euclidean")["id"].tolist()
    ['b']

    Args:
        rows: Embeddings, ``[n, d]``.
        ids: What each is called.
        queries: Ids of the rows to look from.
        k: How many neighbours of each; fewer where there are not as many.
        metric: How distance is measured on scaled embeddings.

    Returns:
        A row per query and neighbour, nearest first: ``query``, ``rank`` from 1, ``id``,
        ``distance``.

    Raises:
        InputError: For an id that is not there, naming the nearest known one.
    """
    import pandas as pd
    from sklearn.neighbors import NearestNeighbors

    if k < 1:
        raise InputError(f"k = {k} neighbours are none; ask for at least one.")
    if len(rows) < 2:
        raise InputError("there is one row only, which has no neighbours.")
    places = [_place(query, ids) for query in queries]
    x = scaled(rows)
    k = min(k, len(x) - 1)
    search = NearestNeighbors(n_neighbors=k + 1, algorithm="brute", metric=metric).fit(x)
    distances, found = search.kneighbors(x[places])
    parts = []
    for place, far, near in zip(places, distances, found, strict=True):
        others = near != place  # a twin may stand before the row itself, or push it out
        near, far = near[others][:k], far[others][:k]
        parts.append(
            pd.DataFrame(
                {
                    "query": [ids[place]] * len(near),
                    "rank": np.arange(1, len(near) + 1),
                    "id": [ids[other] for other in near],
                    "distance": far,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def outliers(
    rows: NDArray[np.floating],
    ids: Sequence[object] | NDArray[np.generic],
    method: Outliers = "local",
    *,
    k: int = 20,
    seed: int = 0,
) -> pd.DataFrame:
    """How unusual each row is.

    >>> import numpy as np
    >>> rows = np.append(np.arange(9.0), 99.0)[:, None]
    >>> outliers(rows, list("abcdefghij"), k=3)["id"][0]
    'j'

    Args:
        rows: Embeddings, ``[n, d]``.
        ids: What each is called.
        method: ``local`` compares the density around a row with that around its neighbours (local
            outlier factor: about 1 is ordinary); ``forest`` tells how few random cuts set a row
            apart (isolation forest: about 0.5 and below is ordinary, towards 1 unusual).
        k: Neighbours that ``local`` looks at.
        seed: Fixes the cuts of ``forest``.

    Returns:
        A row each, most unusual first: ``id``, ``score``, ``rank`` from 1.
    """
    import pandas as pd
    from sklearn.ensemble import IsolationForest
    from sklearn.neighbors import LocalOutlierFactor

    if len(rows) < 3:
        raise InputError(f"{len(rows)} rows are too few to call one of them unusual; give more.")
    x = scaled(rows)
    if method == "local":
        # Of twins one counts: many of them in one place would make that place infinitely dense.
        _, one, twins = np.unique(x.round(4), axis=0, return_index=True, return_inverse=True)
        if len(one) < 3:
            raise InputError(
                f"{len(rows)} rows have {len(one)} different embeddings, too few to call one of "
                "them unusual; give more."
            )
        finder = LocalOutlierFactor(n_neighbors=max(1, min(k, len(one) - 1))).fit(x[one])
        score = -finder.negative_outlier_factor_[twins.reshape(-1)]
    else:
        score = -IsolationForest(random_state=seed).fit(x).score_samples(x)
    order = np.argsort(-score, kind="stable")
    return pd.DataFrame(
        {
            "id": [ids[place] for place in order],
            "score": score[order],
            "rank": np.arange(1, len(order) + 1),
        }
    )


@dataclass(frozen=True, eq=False)
class Clusters:
    """Which rows belong together.

    Attributes:
        cluster: The cluster of each row, 0 for the largest; -1 for rows that belong to none.
        place: Each row's place in its cluster, 1 for the one nearest to the middle.
        silhouette: How well rows fit their own cluster rather than the next one, from -1 to 1;
            None where there is but one cluster.
        tried: The silhouettes of the numbers of clusters tried, by number.
    """

    cluster: NDArray[np.int64]
    place: NDArray[np.int64]
    silhouette: float | None
    tried: dict[int, float]

    @property
    def sizes(self) -> list[int]:
        """Rows of each cluster, largest first."""
        return [int(size) for size in np.bincount(self.cluster[self.cluster >= 0])]

    def frame(self, ids: Sequence[object] | NDArray[np.generic]) -> pd.DataFrame:
        """As a table in the order of the rows: ``id``, ``cluster``, ``place``."""
        import pandas as pd

        return pd.DataFrame({"id": list(ids), "cluster": self.cluster, "place": self.place})


def cluster(
    rows: NDArray[np.floating],
    clusters: int | None = None,
    method: Clustering = "k-means",
    *,
    smallest: int = 5,
    seed: int = 0,
) -> Clusters:
    """Find rows that belong together.

    >>> import numpy as np
    >>> rows = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    >>> found = cluster(rows, clusters=2).cluster
    >>> bool(found[0] == found[2] != found[3] == found[5])
    True

    Args:
        rows: Embeddings, ``[n, d]``.
        clusters: How many clusters; None tries 2 to 12 and takes the number with the largest
            silhouette. ``hdbscan`` finds the number itself.
        method: ``k-means``, ``agglomerative`` (Ward), or ``hdbscan``, which leaves out rows that
            belong nowhere.
        smallest: Rows of a cluster at least, for ``hdbscan``.
        seed: Fixes where ``k-means`` starts, and of which rows the silhouette is measured.

    Raises:
        InputError: For a number of clusters that the rows cannot have.
    """
    x = scaled(rows)
    if method == "hdbscan":
        if clusters is not None:
            raise InputError("hdbscan finds the number of clusters itself; leave it out.")
        return _ordered(x, _hdbscan(x, smallest), {}, seed)
    if method == "agglomerative" and len(x) > AGGLOMERATIVE_ROWS:
        raise InputError(
            f"{len(x)} rows are too many for agglomerative clustering, which compares each with "
            f"each (up to {AGGLOMERATIVE_ROWS}); use k-means."
        )
    if clusters is not None:
        if not 1 <= clusters <= len(x):
            raise InputError(f"{len(x)} rows cannot be cut into {clusters} clusters.")
        return _ordered(x, _cut(x, clusters, method, seed), {}, seed)
    if len(x) < 3:
        raise InputError(f"{len(x)} rows are too few to look for clusters; give more.")
    cuts = {number: _cut(x, number, method, seed) for number in TRIED if number < len(x)}
    tried = {number: _silhouette(x, cut, seed) for number, cut in cuts.items()}
    known = {number: value for number, value in tried.items() if value is not None}
    best = max(known, key=lambda number: known[number]) if known else min(cuts)
    return _ordered(x, cuts[best], known, seed)


def _cut(x: NDArray[np.float64], clusters: int, method: Clustering, seed: int) -> NDArray[np.int64]:
    from sklearn.cluster import AgglomerativeClustering, KMeans

    clusters = min(clusters, len(np.unique(x, axis=0)))  # twins cannot be told apart
    if method == "agglomerative":
        found = AgglomerativeClustering(n_clusters=clusters).fit_predict(x)
    else:
        found = KMeans(n_clusters=clusters, n_init=10, random_state=seed).fit_predict(x)
    return np.asarray(found, dtype=np.int64)


def _hdbscan(x: NDArray[np.float64], smallest: int) -> NDArray[np.int64]:
    from sklearn.cluster import HDBSCAN

    if not 2 <= smallest <= len(x):
        raise InputError(f"clusters of at least {smallest} rows cannot be found among {len(x)}.")
    found = HDBSCAN(min_cluster_size=smallest, copy=True).fit_predict(x)
    return np.asarray(found, dtype=np.int64)


def _silhouette(x: NDArray[np.float64], cut: NDArray[np.int64], seed: int) -> float | None:
    from sklearn.metrics import silhouette_score

    inside = np.flatnonzero(cut >= 0)
    if len(inside) > SILHOUETTE_ROWS:
        inside = np.random.default_rng(seed).choice(inside, SILHOUETTE_ROWS, replace=False)
    if not 1 < len(np.unique(cut[inside])) < len(inside):
        return None
    return float(silhouette_score(x[inside], cut[inside]))


def _ordered(
    x: NDArray[np.float64], cut: NDArray[np.int64], tried: dict[int, float], seed: int
) -> Clusters:
    """Number clusters by size, and rows by how near they are to the middle of theirs."""
    kinds, counts = np.unique(cut[cut >= 0], return_counts=True)
    cluster = np.full(len(cut), -1, dtype=np.int64)
    place = np.zeros(len(cut), dtype=np.int64)
    for number, kind in enumerate(kinds[np.argsort(-counts, kind="stable")]):
        members = np.flatnonzero(cut == kind)
        cluster[members] = number
        away = np.linalg.norm(x[members] - x[members].mean(axis=0), axis=1)
        place[members[np.argsort(away, kind="stable")]] = np.arange(1, len(members) + 1)
    return Clusters(cluster, place, _silhouette(x, cluster, seed), tried)


def _place(query: object, ids: Sequence[object] | NDArray[np.generic]) -> int:
    """The place of an id; whole numbers may be given as text."""
    for place, name in enumerate(ids):
        if str(name) == str(query):
            return place
    names = [str(name) for name in ids]
    close = difflib.get_close_matches(str(query), names, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"they are {_listed(names)}."
    raise InputError(f"no row has the id '{query}'; {hint}")


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 6 else f"{names[0]}, {names[1]}, ... {names[-1]}"
