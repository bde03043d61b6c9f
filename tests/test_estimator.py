"""The scikit-learn front door: contracts of scikit-learn, kinds of graphs, cross-validation."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import validate_data
from torch_geometric.data import Data
from torch_geometric.utils import to_networkx

import lg2ar
from lg2ar import Dataset, GraphBatch, InputError, LG2AREmbedder
from lg2ar import estimator as module
from lg2ar.data.toy import toy_graphs, toy_nodes

SMALL: dict[str, Any] = {"epochs": 1, "hidden": 8, "layers": 2, "device": "cpu"}
PROBE = LogisticRegression(max_iter=5000)


@cache
def pyg_graphs(number: int = 40) -> list[Data]:
    graphs: list[Data] = toy_graphs(number).graph.to_pyg().to_data_list()
    return graphs


@cache
def labels(number: int = 40) -> np.ndarray:
    y = toy_graphs(number).y
    assert y is not None
    return y.numpy()


# scikit-learn's own checks.


class OfRows(LG2AREmbedder):
    """Takes matrices, so that scikit-learn's checks have something to give it.

    A row becomes a path with a node per column. All else, from the parameters to the training, is
    the embedder itself.
    """

    def _read(self, X: Any, level: Any, usual: Any = None) -> Dataset:
        rows = validate_data(self, X, dtype=np.float32, reset=usual is None)
        number, width = rows.shape
        node = np.arange(number * width).reshape(number, width)
        pairs = torch.from_numpy(np.stack([node[:, :-1].ravel(), node[:, 1:].ravel()]))
        graph = GraphBatch(
            x=torch.from_numpy(rows.reshape(-1, 1).copy()),
            edge_index=torch.cat([pairs, pairs.flip(0)], dim=1),
            batch=torch.arange(number).repeat_interleave(width),
            num_graphs=number,
        )
        return Dataset(name="rows", level="graph", graph=graph)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.string = tags.no_validation = False
        return tags


# What scikit-learn asks for and we do otherwise, each with the reason.
EXPECTED = {
    "check_fit2d_1sample": "one graph is refused, as it should be, but in words of our own: it "
    "'leaves no other to contrast it with'",
}


def test_scikit_learns_checks_pass_where_samples_are_rows() -> None:
    results = check_estimator(
        OfRows(epochs=1, hidden=4, layers=1, device="cpu"),
        expected_failed_checks=EXPECTED,
        on_skip=None,
        on_fail="raise",
    )
    passed = [result for result in results if result["status"] == "passed"]
    failed = [result["check_name"] for result in results if result["status"] == "xfail"]
    assert len(passed) > 35
    assert failed == list(EXPECTED)


def test_scikit_learns_checks_for_graphs_are_as_many_as_it_has() -> None:
    """For samples that are no rows it has none but that of cloning, and says so."""
    with pytest.warns(SkipTestWarning, match="Can't test estimator LG2AREmbedder"):
        results = check_estimator(LG2AREmbedder(**SMALL))
    assert {result["status"] for result in results} == {"passed"}


# The same checks by hand, with graphs.


def test_the_constructor_only_stores() -> None:
    given: dict[str, Any] = {
        "level": "neither",
        "epochs": -3,
        "settings": {"no": "such"},
        "device": "abacus",
        "random_state": None,
    }
    embedder = LG2AREmbedder(**given)
    assert given.items() <= embedder.get_params().items()
    assert vars(embedder) == embedder.get_params()
    twin = clone(embedder)
    assert twin is not embedder
    assert twin.get_params() == embedder.get_params()
    assert embedder.set_params(epochs=2).epochs == 2


def test_before_fitting_it_says_so() -> None:
    with pytest.raises(NotFittedError):
        LG2AREmbedder().transform(pyg_graphs())
    with pytest.raises(NotFittedError):
        LG2AREmbedder().save("nowhere")


def test_rows_do_not_depend_on_their_company_or_order() -> None:
    embedder = LG2AREmbedder(**SMALL).fit(pyg_graphs())
    whole = embedder.transform(pyg_graphs())
    order = np.random.default_rng(0).permutation(40)
    mixed = embedder.transform([pyg_graphs()[place] for place in order])
    single = np.concatenate([embedder.transform([graph]) for graph in pyg_graphs()[:5]])
    assert np.allclose(mixed, whole[order], rtol=1e-4, atol=1e-5)
    assert np.allclose(single, whole[:5], rtol=1e-4, atol=1e-5)
    assert whole.dtype == np.float32
    assert whole.shape == (40, embedder.n_features_out_)


def test_fitting_repeats_itself_and_leaves_graphs_and_labels_alone() -> None:
    before = [graph.clone() for graph in pyg_graphs()]
    first = LG2AREmbedder(**SMALL).fit_transform(pyg_graphs())
    again = LG2AREmbedder(**SMALL).fit_transform(pyg_graphs(), labels())
    other = LG2AREmbedder(**SMALL, random_state=7).fit_transform(pyg_graphs())
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)
    for one, two in zip(before, pyg_graphs(), strict=True):
        assert torch.equal(one.x, two.x)
        assert torch.equal(one.edge_index, two.edge_index)


def test_a_random_state_of_numpy_will_do() -> None:
    def made(state: Any) -> np.ndarray:
        rows: np.ndarray = LG2AREmbedder(**SMALL, random_state=state).fit_transform(pyg_graphs())
        return rows

    assert np.array_equal(made(np.random.RandomState(3)), made(np.random.RandomState(3)))
    assert not np.array_equal(made(np.random.RandomState(3)), made(np.random.RandomState(4)))


def test_it_is_lg2ar_and_nothing_else() -> None:
    embedder = LG2AREmbedder(**SMALL, settings={"policy": "deepset"}, random_state=3)
    rows = embedder.fit_transform(toy_graphs(40))
    run = lg2ar.pretrain(
        toy_graphs(40),
        {"epochs": 1, "hidden": 8, "layers": 2, "policy": "deepset", "seed": 3},
        device="cpu",
    )
    assert np.array_equal(rows, run.embed(toy_graphs(40)).numpy())


def test_names_of_features_and_pandas_output() -> None:
    embedder = LG2AREmbedder(**SMALL).set_output(transform="pandas")
    table = embedder.fit_transform(pyg_graphs())
    assert isinstance(table, pd.DataFrame)
    assert embedder.n_features_out_ == 16
    expected = [f"lg2arembedder{place}" for place in range(16)]
    assert embedder.get_feature_names_out().tolist() == list(table.columns) == expected


def test_after_the_projection_the_width_is_another() -> None:
    embedder = LG2AREmbedder(**SMALL, settings={"embedding": "after"}).fit(pyg_graphs())
    assert embedder.n_features_out_ == 8
    assert embedder.transform(pyg_graphs()).shape == (40, 8)


def test_a_fitted_embedder_can_be_sent_to_another_process() -> None:
    embedder = LG2AREmbedder(**SMALL).fit(pyg_graphs())
    sent = pickle.loads(pickle.dumps(embedder))
    assert np.array_equal(sent.transform(pyg_graphs()), embedder.transform(pyg_graphs()))


# Kinds of graphs.


def networkx_graphs() -> list[nx.Graph]:
    return [to_networkx(graph, node_attrs=["x"], to_undirected=True) for graph in pyg_graphs()]


def frames() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    graph = toy_graphs(40).graph
    source, target = graph.edge_index
    once = source < target
    nodes = pd.DataFrame({"graph": graph.batch.numpy(), "node": np.arange(graph.num_nodes)})
    for place in range(graph.num_features):
        nodes[f"x{place}"] = graph.x[:, place].numpy()
    edges = pd.DataFrame(
        {
            "graph": graph.batch[source[once]].numpy(),
            "source": source[once].numpy(),
            "target": target[once].numpy(),
        }
    )
    return nodes, edges, pd.DataFrame({"graph": np.arange(40), "kind": labels()})


def test_lists_of_pyg_and_networkx_graphs_are_the_same_graphs() -> None:
    of_pyg = LG2AREmbedder(**SMALL).fit_transform(pyg_graphs())
    of_networkx = LG2AREmbedder(**SMALL).fit_transform(networkx_graphs())
    array = np.empty(40, dtype=object)
    array[:] = networkx_graphs()
    of_array = LG2AREmbedder(**SMALL).fit_transform(array)
    assert np.allclose(of_pyg, of_networkx, rtol=1e-3, atol=1e-4)
    assert np.array_equal(of_networkx, of_array)


def test_tables_are_frames_or_paths(tmp_path: Path) -> None:
    nodes, edges, graphs = frames()
    embedder = LG2AREmbedder(**SMALL)
    whole = embedder.fit_transform((nodes, edges, graphs))
    assert whole.shape == (40, 16)
    assert np.array_equal(embedder.transform((nodes, edges)), whole)
    for name, table in zip(("nodes", "edges", "graphs"), (nodes, edges, graphs), strict=True):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    assert np.allclose(embedder.transform(tmp_path), whole, atol=1e-5)
    alone = LG2AREmbedder(**SMALL).fit_transform(edges)
    assert alone.shape == (40, 16)


def test_smiles_are_molecules_and_a_bad_one_is_refused() -> None:
    pytest.importorskip("rdkit")
    smiles = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "C1CCCCC1", "O=C=O"]
    embedder = LG2AREmbedder(**SMALL)
    rows = embedder.fit_transform(smiles)
    assert rows.shape == (6, 16)
    for same in (np.array(smiles), pd.Series(smiles)):
        assert np.array_equal(embedder.transform(same), rows)
    with pytest.raises(InputError, match="C1CC"):
        embedder.transform([*smiles, "C1CC"])
    table = pd.DataFrame({"mol": smiles, "y": [0, 1, 0, 0, 1, 0]})
    read = LG2AREmbedder(**SMALL, reading={"smiles": "mol"})
    assert np.allclose(read.fit_transform(table), rows, atol=1e-5)


def test_the_nodes_of_one_large_graph() -> None:
    dataset = toy_nodes(60)
    (graph,) = dataset.graph.to_pyg().to_data_list()
    embedder = LG2AREmbedder(**SMALL)
    rows = embedder.fit_transform(graph)
    assert rows.shape == (60, 8)
    assert np.array_equal(embedder.transform(dataset), rows)
    listed = LG2AREmbedder(**SMALL, settings={"negatives": "shuffled"}).fit_transform([graph])
    assert listed.shape == (1, 16)  # a list of one graph is one sample


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([], "the list of graphs is empty"),
        ([1, 2], "is not a source of graphs"),
        ("toy-graph", "did you mean 'toy-graphs'"),
        (pd.DataFrame({"a": [1]}), "a"),
    ],
)
def test_what_is_no_graph_is_refused(X: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        LG2AREmbedder(**SMALL).fit(X)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seed": 3}, "give it as random_state"),
        ({"hidden": 3}, "give it as hidden"),
        ({"hiden": 3}, "did you mean 'hidden'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        LG2AREmbedder(**SMALL, settings=settings).fit(pyg_graphs())


# Pipelines.


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many graphs each training saw, from now on."""
    seen: list[int] = []
    original = lg2ar.pretrain

    def pretrain(dataset: Dataset, *rest: Any, **more: Any) -> lg2ar.Run:
        seen.append(len(dataset))
        return original(dataset, *rest, **more)

    monkeypatch.setattr(module, "pretrain", pretrain)
    return seen


@pytest.mark.parametrize("kind", ["pyg", "networkx", "smiles"])
def test_cross_validation_slices_lists_and_trains_on_the_training_part(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "smiles":
        pytest.importorskip("rdkit")
    X: list[Any] = ["C" * (1 + place) + "O" for place in range(40)]
    if kind != "smiles":
        X = pyg_graphs() if kind == "pyg" else networkx_graphs()
    seen = counted(monkeypatch)
    pipe = make_pipeline(LG2AREmbedder(**SMALL), StandardScaler(), PROBE)
    scores = cross_val_score(pipe, X, labels(), cv=4)
    assert len(scores) == 4
    assert seen == [30] * 4


def test_a_grid_over_the_probe_trains_once_a_fold_where_there_is_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = [("embed", LG2AREmbedder(**SMALL)), ("probe", PROBE)]
    grid = {"probe__C": [0.1, 1.0, 10.0]}
    seen = counted(monkeypatch)
    plain = GridSearchCV(Pipeline(steps), grid, cv=2).fit(pyg_graphs(), labels())
    assert len(seen) == 3 * 2 + 1
    seen.clear()
    cached = GridSearchCV(Pipeline(steps, memory=str(tmp_path)), grid, cv=2)
    cached.fit(pyg_graphs(), labels())
    assert len(seen) == 2 + 1
    found = (search.cv_results_["mean_test_score"].tolist() for search in (plain, cached))
    assert next(found) == next(found)
    seen.clear()
    frozen = FrozenEstimator(LG2AREmbedder(**SMALL).fit(pyg_graphs()))
    once = GridSearchCV(make_pipeline(frozen, PROBE), {"logisticregression__C": [1]})
    assert len(once.fit(pyg_graphs(), labels()).predict(pyg_graphs())) == 40
    assert seen == [40]


def test_a_grid_over_the_embedder() -> None:
    pipe = Pipeline([("embed", LG2AREmbedder(**SMALL)), ("probe", PROBE)])
    search = GridSearchCV(pipe, {"embed__hidden": [4, 8]}, cv=2).fit(pyg_graphs(), labels())
    widths = {4: 8, 8: 16}
    best = search.best_estimator_.named_steps["embed"]
    assert best.n_features_out_ == widths[search.best_params_["embed__hidden"]]


# Folders.


def test_saving_and_loading_through_a_run_folder(tmp_path: Path) -> None:
    embedder = LG2AREmbedder(**SMALL).fit(pyg_graphs())
    rows = embedder.transform(pyg_graphs())
    embedder.save(tmp_path)
    again = LG2AREmbedder.load(tmp_path, device="cpu")
    assert np.array_equal(again.transform(pyg_graphs()), rows)
    assert np.array_equal(lg2ar.load(tmp_path).embed(pyg_graphs()).numpy(), rows)
    # A clone of it is as good, and is fitted without any training.
    assert np.array_equal(clone(again).fit([]).transform(pyg_graphs()), rows)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    with pytest.raises(InputError, match="there is no run here"):
        LG2AREmbedder.load(tmp_path / "nowhere")


def test_a_run_of_the_command_line_is_an_embedder(tmp_path: Path) -> None:
    settings = {"epochs": 1, "hidden": 8, "layers": 2}
    run = lg2ar.pretrain(toy_graphs(40), settings, out=tmp_path, device="cpu")
    rows = LG2AREmbedder(pretrained=tmp_path, device="cpu").fit_transform(pyg_graphs())
    assert np.array_equal(rows, run.embed(toy_graphs(40)).numpy())


def test_importing_lg2ar_does_not_import_scikit_learn() -> None:
    script = (
        "import sys, lg2ar; assert 'sklearn' not in sys.modules; "
        "assert 'LG2AREmbedder' in dir(lg2ar); lg2ar.LG2AREmbedder; "
        "assert 'sklearn' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="no attribute 'LG2ARembedder'"):
        _ = lg2ar.LG2ARembedder
