"""From a source to a run and from a run to embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import lg2ar
from lg2ar import checkpoint
from lg2ar.data.batches import GraphStore
from lg2ar.data.dataset import Dataset
from lg2ar.data.toy import toy_graphs, toy_nodes
from lg2ar.devices import choose_device
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.evaluation import calibrate, embed
from lg2ar.layers import BatchNorm, StandardRows
from lg2ar.model import build
from lg2ar.moments import Moments
from lg2ar.training import Trainer
from sealing import write_sealed

SMALL: dict[str, Any] = {"hidden": 8, "layers": 2, "batch_size": 8, "epochs": 4, "dropout": 0.1}


def small(level: str = "graph", seed: int = 1) -> Dataset:
    return toy_graphs(num_graphs=20, seed=seed) if level == "graph" else toy_nodes(60, seed=seed)


def weights(run: lg2ar.Run) -> dict[str, torch.Tensor]:
    return run.model.state_dict()


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_a_run_is_kept_and_read_back(tmp_path: Path, level: str) -> None:
    dataset = small(level)
    run = lg2ar.pretrain(dataset, SMALL, out=tmp_path / "run", device="cpu")
    assert run.config.level == level
    assert [record.epoch for record in run.history] == [1, 2, 3, 4]
    again = lg2ar.load(tmp_path / "run", device="cpu")
    assert again.config == run.config
    assert again.history == run.history
    assert again.recipe == run.recipe
    assert same(weights(run), weights(again))
    rows = again.embed(dataset)
    assert rows.shape[0] == len(dataset)
    assert torch.equal(rows, run.embed(dataset))
    assert rows.isfinite().all()
    assert checkpoint.read(tmp_path / "run").finished


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("patience", [0, 2])
def test_a_resumed_run_gives_the_weights_of_an_uninterrupted_one(
    tmp_path: Path, level: str, patience: int
) -> None:
    dataset = small(level)
    settings = {**SMALL, "epochs": 6, "patience": patience, "checkpoint_every": 2}
    whole = lg2ar.pretrain(dataset, settings, out=tmp_path / "whole", device="cpu")
    short = {**settings, "epochs": 3}
    lg2ar.pretrain(dataset, short, out=tmp_path / "parts", device="cpu")
    parts = lg2ar.pretrain(dataset, settings, out=tmp_path / "parts", resume=True, device="cpu")
    assert same(weights(whole), weights(parts))
    held = [
        checkpoint.read(tmp_path / name, with_training=True).training for name in ("whole", "parts")
    ]
    assert same(*held)


def test_an_interrupted_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    dataset = small()
    settings = {**SMALL, "checkpoint_every": 100}
    whole = lg2ar.pretrain(dataset, settings, device="cpu")

    def stop(record: Any) -> None:
        if record.epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lg2ar.pretrain(dataset, settings, out=tmp_path, device="cpu", on_epoch=stop)
    assert len(lg2ar.load(tmp_path, "cpu").history) == 3
    done: list[int] = []
    run = lg2ar.pretrain(
        dataset,
        settings,
        out=tmp_path,
        resume=True,
        device="cpu",
        on_start=lambda config, epochs: done.append(epochs),
    )
    assert done == [3]
    assert same(weights(whole), weights(run))


def test_a_finished_run_resumed_stays_as_it_is(tmp_path: Path) -> None:
    first = lg2ar.pretrain(small(), SMALL, out=tmp_path, device="cpu")
    second = lg2ar.pretrain(small(), SMALL, out=tmp_path, resume=True, device="cpu")
    assert same(weights(first), weights(second))
    assert len(second.history) == 4


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    lg2ar.pretrain(small(), {**SMALL, "epochs": 0}, out=tmp_path, device="cpu")
    with pytest.raises(InputError, match="already holds a run"):
        lg2ar.pretrain(small(), SMALL, out=tmp_path, device="cpu")


def test_other_settings_or_data_cannot_take_up_a_run(tmp_path: Path) -> None:
    lg2ar.pretrain(small(), SMALL, out=tmp_path, device="cpu")
    with pytest.raises(InputError, match="trained with hidden = 8, not 16"):
        lg2ar.pretrain(small(), {**SMALL, "hidden": 16}, out=tmp_path, resume=True)
    other = toy_graphs(num_graphs=20, seed=2)
    with pytest.raises(InputError, match="trained on other data"):
        lg2ar.pretrain(other, SMALL, out=tmp_path, resume=True)


def test_a_broken_run_keeps_its_last_good_state_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Trainer.step

    def breaking(self: Trainer, batch: Any) -> Any:
        if self.epoch == 3:
            batch = batch.replace(x=batch.x * float("nan"))
        return real(self, batch)

    monkeypatch.setattr(Trainer, "step", breaking)
    settings = {**SMALL, "checkpoint_every": 2}
    with pytest.raises(NonFiniteLossError, match="epoch 3 is kept"):
        lg2ar.pretrain(small(), settings, out=tmp_path, device="cpu")
    held = lg2ar.load(tmp_path, "cpu")
    assert len(held.history) == 3
    assert all(value.isfinite().all() for value in weights(held).values())
    assert not checkpoint.read(tmp_path).finished


def test_a_run_that_breaks_at_once_keeps_where_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Trainer.step
    monkeypatch.setattr(
        Trainer, "step", lambda self, batch: real(self, batch.replace(x=batch.x * float("inf")))
    )
    with pytest.raises(NonFiniteLossError, match="epoch 0 is kept"):
        lg2ar.pretrain(small(), SMALL, out=tmp_path, device="cpu")
    assert lg2ar.load(tmp_path, "cpu").history == []


def test_embeddings_do_not_depend_on_how_graphs_are_grouped() -> None:
    dataset = small()
    run = lg2ar.pretrain(dataset, SMALL, device="cpu")
    graph = run.recipe.apply(dataset.graph)
    together = embed(run.model.base_encoder, graph, "graph")
    alone = embed(run.model.base_encoder, graph, "graph", budget=1)
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_unseen_pyg_graphs_are_embedded_like_the_others() -> None:
    dataset = small()
    run = lg2ar.pretrain(dataset, SMALL, device="cpu")
    graphs = dataset.graph.to_pyg().to_data_list()
    plain = [Data(x=item.x, edge_index=item.edge_index) for item in graphs[:3]]
    torch.testing.assert_close(run.embed(plain), run.embed(dataset)[:3], rtol=1e-5, atol=1e-5)


def test_one_graph_is_one_embedding_at_graph_level() -> None:
    run = lg2ar.pretrain(small(), SMALL, device="cpu")
    graph = Data(x=torch.ones(2, 6), edge_index=torch.tensor([[0, 1], [1, 0]]))
    assert run.embed(graph).shape[0] == 1
    assert run.embed([graph]).shape[0] == 1


def test_projected_embeddings_have_the_width_of_the_projection() -> None:
    before = lg2ar.pretrain(small(), SMALL, device="cpu")
    after = lg2ar.pretrain(small(), {**SMALL, "embedding": "after"}, device="cpu")
    assert before.embed(small()).shape[1] == 16  # two layers side by side
    assert after.embed(small()).shape[1] == 8


def test_embedding_leaves_the_model_in_the_mode_it_was() -> None:
    run = lg2ar.pretrain(small(), {**SMALL, "epochs": 0}, device="cpu")
    for mode in (True, False):
        run.model.base_encoder.train(mode)
        run.embed(small())
        assert run.model.base_encoder.training is mode


@pytest.mark.parametrize("place", ["before", "after"])
def test_calibration_takes_the_statistics_of_the_graphs_and_changes_no_weight(place: str) -> None:
    config = lg2ar.Config.make(SMALL, norm_place=place)
    dataset = small()
    graph = dataset.graph.replace(x=torch.randn(dataset.graph.num_nodes, 3))
    encoder = build(config, 3).base_encoder
    before = {name: p.clone() for name, p in encoder.named_parameters()}
    calibrate(encoder, graph)
    assert all(torch.equal(p, before[name]) for name, p in encoder.named_parameters())
    network = encoder.network
    first = network.convs[0](graph.x, graph)
    first = first if place == "before" else torch.relu(first)
    norm = network.norms[0]
    assert isinstance(norm, BatchNorm)
    torch.testing.assert_close(norm.running_mean, first.mean(0))
    torch.testing.assert_close(norm.running_var, first.var(0))
    # Each column is centred on the data that it will see, before the ReLU or after it.
    encoder.eval()
    centred = encoder.embed(graph).nodes[:, :8] if place == "after" else norm(first)
    assert centred.mean(0).abs().max() < 1e-5


@pytest.mark.parametrize("epochs", [0, 2])
def test_the_run_is_calibrated_unless_told_otherwise(epochs: int) -> None:
    """An untrained encoder too, or what it is compared with would have an advantage."""
    dataset, settings = small(), {**SMALL, "epochs": epochs}
    run = lg2ar.pretrain(dataset, settings, device="cpu")
    plain = lg2ar.pretrain(dataset, {**settings, "calibrate": False}, device="cpu")
    key = "base_encoder.network.norms.0.running_mean"
    assert not torch.equal(weights(run)[key], weights(plain)[key])
    key = "base_encoder.network.convs.0.mlp.first.weight"
    assert torch.equal(weights(run)[key], weights(plain)[key])


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("more", [{}, {"feature_projection": "shared", "norm": True}])
def test_embeddings_are_handed_out_on_the_scale_asked_for(level: str, more: dict[str, Any]) -> None:
    dataset, others = small(level), small(level, seed=9)
    scales = ("as-is", "unit", "standard")
    runs = [
        lg2ar.pretrain(dataset, {**SMALL, **more, "embedding_scale": scale}, device="cpu")
        for scale in scales
    ]
    for run in runs[1:]:  # training does not feel it
        assert [r.loss for r in run.history] == [r.loss for r in runs[0].history]
        assert all(torch.equal(weights(run)[key], own) for key, own in weights(runs[0]).items())
    plain, unit, standard = (run.embed(dataset) for run in runs)
    torch.testing.assert_close(unit, plain / plain.norm(dim=1, keepdim=True))
    varies = plain.std(0) > 1e-3
    assert varies.sum() > 4
    assert standard.mean(0).abs().max() < 1e-3
    torch.testing.assert_close(standard.std(0)[varies], torch.ones(int(varies.sum())))
    # New graphs are scaled by what was trained on, each as if it were alone.
    new, found = runs[0].embed(others), runs[2].embed(others)
    by_hand = ((new.double() - plain.double().mean(0)) / plain.double().std(0)).float()
    torch.testing.assert_close(found[:, varies], by_hand[:, varies], rtol=1e-3, atol=1e-3)
    assert found[:, varies].mean(0).abs().max() > 0.05
    unit = runs[1].embed(others)
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(len(unit)))


def test_a_column_that_did_not_vary_is_only_moved() -> None:
    scale = StandardRows(3)
    moments = Moments()
    moments(scale, (torch.tensor([[0.0, 7.0, 1.0], [0.0, 7.0, 3.0]]),))
    moments.give_to(scale)
    found = scale(torch.tensor([[0.1, 7.5, 2.0], [0.0, 7.0, 2 + 2**0.5]]))
    torch.testing.assert_close(found, torch.tensor([[0.1, 0.5, 0.0], [0.0, 0.0, 1.0]]))


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("scale", ["unit", "standard"])
def test_the_scale_is_kept_with_the_run(tmp_path: Path, level: str, scale: str) -> None:
    settings = {**SMALL, "embedding_scale": scale}
    run = lg2ar.pretrain(small(level), settings, out=tmp_path / "run", device="cpu")
    others = small(level, seed=9)
    assert torch.equal(lg2ar.load(tmp_path / "run", "cpu").embed(others), run.embed(others))


def test_rows_after_the_projection_can_have_length_one() -> None:
    run = lg2ar.pretrain(
        small(), {**SMALL, "embedding": "after", "embedding_scale": "unit"}, device="cpu"
    )
    rows = run.embed(small())
    assert rows.shape[1] == 8
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(len(rows)))


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("scale", ["as-is", "standard"])
def test_embeddings_on_the_way_are_those_of_shorter_runs(level: str, scale: str) -> None:
    dataset, seen = small(level), dict[int, torch.Tensor]()
    settings = {**SMALL, "learning_rate": 0.05, "embedding_scale": scale}
    run = lg2ar.pretrain(
        dataset, settings, device="cpu", embed_at=[0, 2, 4], on_embeddings=seen.__setitem__
    )
    assert list(seen) == [0, 2, 4]
    assert not torch.equal(seen[0], seen[4])
    for epochs, rows in seen.items():
        shorter = lg2ar.pretrain(dataset, {**settings, "epochs": epochs}, device="cpu")
        assert torch.equal(rows, shorter.embed(dataset))
    assert same(weights(run), weights(lg2ar.pretrain(dataset, settings, device="cpu")))


def test_node_level_batches_are_sub_graphs_and_need_no_sub_graph_head() -> None:
    run = lg2ar.pretrain(small("node"), SMALL, device="cpu")
    assert "sub-graph" not in run.config.heads
    assert all(record.steps == 1 for record in run.history)
    assert len(run.history[0].draws) == 4


def test_what_does_not_fit_is_refused() -> None:
    one = Data(x=torch.ones(1, 1), edge_index=torch.empty(2, 0, dtype=torch.long))
    with pytest.raises(InputError, match="one node only"):
        lg2ar.pretrain(one, SMALL)
    with pytest.raises(InputError, match="holds 20 graphs; level = 'node' takes one"):
        lg2ar.pretrain(small(), {**SMALL, "level": "node"})
    run = lg2ar.pretrain(small("node"), {**SMALL, "epochs": 0}, device="cpu")
    with pytest.raises(InputError, match="nodes of one large graph"):
        run.embed(small())
    wide = [Data(x=torch.ones(2, 7), edge_index=torch.tensor([[0], [1]]))]
    with pytest.raises(InputError, match="7 node features where the model was trained on 32"):
        run.embed(wide)


def test_weights_that_do_not_fit_the_settings_are_refused(tmp_path: Path) -> None:
    lg2ar.pretrain(small(), {**SMALL, "epochs": 0}, out=tmp_path, device="cpu")
    run_file = tmp_path / "run.json"
    write_sealed(run_file, run_file.read_text().replace('"hidden": 8', '"hidden": 16'))
    with pytest.raises(InputError, match="weights do not fit its settings"):
        lg2ar.load(tmp_path, "cpu")


def test_devices_by_name() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(InputError, match="must be auto, cpu or cuda"):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no CUDA device"):
            choose_device("cuda")


@pytest.mark.cuda
@pytest.mark.parametrize("level", ["graph", "node"])
def test_a_run_on_cuda_repeats_itself_and_is_read_on_the_cpu(tmp_path: Path, level: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA device")
    dataset = small(level)
    runs = [lg2ar.pretrain(dataset, SMALL, device="cuda") for _ in range(2)]
    assert same(weights(runs[0]), weights(runs[1]))
    lg2ar.pretrain(dataset, {**SMALL, "epochs": 2}, out=tmp_path, device="cuda")
    resumed = lg2ar.pretrain(dataset, SMALL, out=tmp_path, resume=True, device="cuda")
    assert same(weights(runs[0]), weights(resumed))
    here = lg2ar.load(tmp_path, "cpu").embed(dataset)
    torch.testing.assert_close(here, resumed.embed(dataset), rtol=1e-3, atol=1e-3)


def test_the_store_lies_where_it_is_asked_to(device: torch.device) -> None:
    graph = small().graph.replace(x=torch.ones(small().graph.num_nodes, 1))
    batches = list(GraphStore(graph, device).epoch(8, seed=0))
    assert {batch.x.device.type for batch in batches} == {device.type}


def test_calibration_does_not_depend_on_how_graphs_are_grouped() -> None:
    """Even where they are sorted, as the benchmark data is: the first half unlike the second."""
    graph = small().graph
    half = (graph.batch < 10).float().unsqueeze(-1)
    graph = graph.replace(x=torch.randn(graph.num_nodes, 3) + 50 * half)
    states = []
    for budget in (1, 200, 10**9):
        encoder = build(lg2ar.Config.make(SMALL), 3).base_encoder
        calibrate(encoder, graph, budget=budget)
        states.append(encoder.state_dict())
    for key in states[0]:
        torch.testing.assert_close(states[0][key], states[2][key], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(states[1][key], states[2][key], rtol=1e-4, atol=1e-4)


def test_a_pyg_batch_is_as_many_graphs_as_it_holds() -> None:
    batch = small().graph.to_pyg()
    run = lg2ar.pretrain(batch, {**SMALL, "epochs": 1}, device="cpu")
    assert run.config.level == "graph"
    assert run.data["num_graphs"] == 20
    assert run.embed(batch).shape[0] == 20


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64])
def test_features_of_any_type_are_taken(dtype: torch.dtype) -> None:
    graphs = [
        Data(
            x=torch.ones(3, 2, dtype=dtype),
            edge_index=torch.tensor([[0, 1], [1, 0]]),
            edge_weight=torch.ones(2, dtype=torch.float64),
        )
        for _ in range(4)
    ]
    run = lg2ar.pretrain(graphs, {**SMALL, "epochs": 1}, device="cpu")
    assert run.embed(graphs).dtype == torch.float32


def test_resuming_takes_the_settings_that_are_not_given_from_the_run(tmp_path: Path) -> None:
    lg2ar.pretrain(small(), SMALL, out=tmp_path, device="cpu")
    run = lg2ar.pretrain(small(), {"epochs": 5}, out=tmp_path, resume=True, device="cpu")
    assert run.config.hidden == 8
    assert len(run.history) == 5
    with pytest.raises(InputError, match="has 5 epochs already; epochs = 2 is fewer"):
        lg2ar.pretrain(small(), {"epochs": 2}, out=tmp_path, resume=True)


def test_a_folder_that_cannot_be_written_is_found_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    epochs: list[int] = []
    with pytest.raises(InputError, match="cannot be written"):
        lg2ar.pretrain(
            small(), SMALL, out=tmp_path / "file", on_epoch=lambda r: epochs.append(r.epoch)
        )
    assert epochs == []


def test_embeddings_that_are_not_finite_are_refused() -> None:
    run = lg2ar.pretrain(small(), {**SMALL, "epochs": 1}, device="cpu")
    far = Data(x=torch.full((2, 6), 3e38), edge_index=torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(InputError, match="embedding of graph 0 is not finite"):
        run.embed(far)


def test_what_is_no_source_is_refused() -> None:
    for thing in (3, {"a": 1}, [1, 2]):
        with pytest.raises(InputError, match="is not a source of graphs"):
            lg2ar.pretrain(thing, SMALL)


def test_small_batches_use_one_thread_and_give_the_others_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def threads() -> set[int]:
        seen: set[int] = set()
        lg2ar.pretrain(
            small(), SMALL, device="cpu", on_epoch=lambda _: seen.add(torch.get_num_threads())
        )
        return seen

    torch.set_num_threads(2)
    try:
        assert threads() == {1}
        assert torch.get_num_threads() == 2
        monkeypatch.setattr("lg2ar.devices.SMALL_BATCH", 0)
        assert threads() == {2}
    finally:
        torch.set_num_threads(1)


def write_tables(folder: Path, graphs: int, first: int = 0, **columns: Any) -> Path:
    """Paths of three to six nodes as tables, with a category, a number and a bond."""
    folder.mkdir()
    nodes, edges = [], []
    for graph in range(first, first + graphs):
        size = 3 + graph % 4
        for node in range(size):
            kind = "end" if node in (0, size - 1) else "middle"
            nodes.append((f"g{graph}", f"n{node}", kind, graph * 0.5 + node))
        for node in range(1, size):
            edges.append(
                (f"g{graph}", f"n{node - 1}", f"n{node}", "single" if node % 2 else "double")
            )
    held = pd.DataFrame(nodes, columns=["graph_id", "node_id", "kind", "size"]).assign(**columns)
    held.to_csv(folder / "nodes.csv", index=False)
    names = ["graph_id", "source", "target", "bond"]
    pd.DataFrame(edges, columns=names).to_csv(folder / "edges.csv", index=False)
    return folder


def test_a_run_trained_on_tables_embeds_other_tables(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = write_tables(tmp_path / "first", 12)
    run = lg2ar.pretrain(first, SMALL, out=tmp_path / "run", device="cpu")
    assert run.recipe.width == 3  # two kinds and the size
    assert run.recipe.edge_width == 2
    assert run.data["node_columns"] == ["kind", "size"]
    again = lg2ar.load(tmp_path / "run", "cpu")
    assert again.recipe == run.recipe
    other = write_tables(tmp_path / "other", 5, first=12)
    rows = again.embed(other)
    assert rows.shape == (5, 16)
    both = write_tables(tmp_path / "both", 17)
    torch.testing.assert_close(again.embed(both)[12:], rows, rtol=1e-5, atol=1e-5)
    assert caplog.messages == []
    # A kind that was never seen is taken as unknown, and told.
    changed = write_tables(tmp_path / "changed", 5, kind="loose")
    assert again.embed(changed).isfinite().all()
    assert "'kind' of nodes holds 1 value(s) that were not seen" in caplog.messages[0]
    bare = write_tables(tmp_path / "bare", 5)
    pd.read_csv(bare / "nodes.csv").drop(columns="kind").to_csv(bare / "nodes.csv", index=False)
    with pytest.raises(InputError, match="bare, nodes: has no column 'kind', which the model was"):
        again.embed(bare)


def test_a_run_remembers_how_its_data_was_read(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "first", 12, code=np.arange(54) % 3)
    dataset = lg2ar.read(folder, directed=True, categories=["code"], ignore=["size"])
    run = lg2ar.pretrain(dataset, SMALL, out=tmp_path / "run", device="cpu")
    assert run.reading == {"directed": True, "categories": ["code"]}
    again = lg2ar.load(tmp_path / "run", "cpu")
    assert torch.equal(again.embed(folder), run.embed(dataset))
    # What is said wins over what is remembered.
    both_ways = lg2ar.read(folder, directed=False, categories=["code"])
    assert not torch.equal(again.embed(both_ways), run.embed(dataset))


def test_the_nodes_of_a_table_are_embedded(tmp_path: Path) -> None:
    path = tmp_path / "friends.csv"
    path.write_text("source,target\n" + "".join(f"p{k},p{(k * 7 + 1) % 30}\n" for k in range(30)))
    dataset = lg2ar.read(path)
    run = lg2ar.pretrain(dataset, SMALL, device="cpu")
    assert run.config.level == "node"
    assert run.recipe.name == "constant"
    assert dataset.ids is not None
    assert len(dataset.ids) == len(run.embed(path)) == 30
