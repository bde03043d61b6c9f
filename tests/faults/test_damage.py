"""Damage is detected when a file is read, and named; what an earlier version wrote is read."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lg2ar
from faults.conftest import Tally
from lg2ar import checkpoint, seals
from lg2ar.data.conversion import holds_already, write_on_disk
from lg2ar.data.on_disk import DiskFile, read_on_disk
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import InputError
from lg2ar.finetuning import load_finetuned
from lg2ar.shipping import read_encoder, ship

OLDER = Path(__file__).parents[1] / "golden" / "format-1"
SETTINGS: dict[str, Any] = {"hidden": 4, "layers": 1, "batch_size": 10, "epochs": 1}

Read = Callable[[Path], Any]


def make_run(folder: Path) -> None:
    lg2ar.pretrain(toy_graphs(20), SETTINGS, out=folder, device="cpu")


def make_tuned(folder: Path) -> None:
    run = lg2ar.pretrain(toy_graphs(20), SETTINGS, device="cpu")
    lg2ar.finetune(run, toy_graphs(20), out=folder, epochs=1, hidden=4, floor=False)


def make_begun(folder: Path) -> None:
    """A fine-tuning that was stopped."""

    def stop(name: str, record: Any) -> None:
        raise KeyboardInterrupt

    run = lg2ar.pretrain(toy_graphs(20), SETTINGS, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        lg2ar.finetune(run, toy_graphs(20), out=folder, epochs=3, hidden=4, on_epoch=stop)


def make_encoder(folder: Path) -> None:
    settings = {"hidden": 4, "layers": 1, "epochs": 1}
    path = folder / "some.safetensors"
    ship("tu:TINY", path, preset="default", settings=settings, device="cpu")


def read_begun(folder: Path) -> None:
    head = checkpoint.read_head(folder, "finetuning.json", "")
    for part in head["files"]:
        checkpoint.read_part(folder, "finetuning.json", head, part)


KINDS: dict[str, tuple[Callable[[Path], None], Read]] = {
    "run": (make_run, lambda folder: checkpoint.read(folder, with_training=True)),
    "fine-tuned": (make_tuned, lambda folder: load_finetuned(folder, "cpu")),
    "begun": (make_begun, read_begun),
    "shipped": (make_encoder, lambda folder: read_encoder(folder / "some.safetensors")),
}


def spoil(path: Path, place: int, draw: random.Random) -> bytes:
    """Change a byte to any other; what was there before."""
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[place] ^= draw.randrange(1, 256)
    path.write_bytes(changed)
    return whole


def check_every_byte(kind: str, folder: Path, tries: int, tally: Tally) -> None:
    make, read = KINDS[kind]
    make(folder)
    read(folder)
    draw = random.Random(1)
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        places = range(size) if tries >= size else sorted(draw.sample(range(size), tries))
        for place in places:
            whole = spoil(path, place, draw)
            with pytest.raises(InputError) as caught:
                read(folder)
            path.write_bytes(whole)
            assert path.name in str(caught.value), f"byte {place}: {caught.value}"
            assert "\n" not in str(caught.value)
        for length in draw.sample(range(size), min(tries, 40)):
            path.write_bytes(whole[:length])
            with pytest.raises(InputError, match=path.name.replace(".", r"\.")):
                read(folder)
            path.write_bytes(whole)
        tally("damages found", len(places) + min(tries, 40))
    read(folder)


@pytest.mark.parametrize("kind", list(KINDS))
def test_changed_bytes_are_found(kind: str, tmp_path: Path, data_root: Path, tally: Tally) -> None:
    check_every_byte(kind, tmp_path / "folder", 40, tally)


@pytest.mark.soak
@pytest.mark.parametrize("kind", list(KINDS))
def test_any_changed_byte_is_found(
    kind: str, tmp_path: Path, data_root: Path, tally: Tally
) -> None:
    check_every_byte(kind, tmp_path / "folder", 5000, tally)


def everything_in(path: Path) -> list[Any]:
    """All that a person could read from an on-disk data set."""
    held = read_on_disk(path)
    graph = held.graph.whole  # type: ignore[attr-defined]
    tensors = [graph.x, graph.edge_index, graph.batch, graph.edge_weight, held.y]
    columns = [column.values.tolist() for column in (*held.node_columns, *held.edge_columns)]
    arrays = [None if value is None else value.numpy().tobytes() for value in tensors]
    names = [held.ids, held.classes, held.name, held.fingerprint()]
    return [*arrays, repr(columns), *names, repr(held.targets)]


def refusal_of(path: Path, expected: list[Any]) -> str | None:
    """What is said of a damaged file; None where it reads as it did before."""
    try:
        assert everything_in(path) == expected
    except InputError as error:
        return str(error)
    return None


def small_collection(folder: Path) -> Path:
    folder.mkdir()
    (folder / "edges.csv").write_text(
        "graph,source,target,bond\n"
        + "".join(f"g{k // 3},{k},{k // 3 * 3},b{k % 2}\n" for k in range(60))
    )
    (folder / "nodes.csv").write_text(
        "graph,node,size,kind\n" + "".join(f"g{k // 3},{k},{k / 7},k{k % 4}\n" for k in range(60))
    )
    (folder / "graphs.csv").write_text(
        "graph,label\n" + "".join(f"g{k},{'ab'[k % 2]}\n" for k in range(20))
    )
    path = folder / "all.sqlite"
    write_on_disk(path, lg2ar.read(folder, labels="label"))
    return path


@pytest.mark.parametrize("tries", [150, pytest.param(20_000, marks=pytest.mark.soak)])
def test_changed_bytes_of_a_collection_are_found_or_change_nothing(
    tries: int, tmp_path: Path, tally: Tally
) -> None:
    """SQLite has unused room in its pages; a byte that is read by nobody may be any."""
    path = small_collection(tmp_path / "tables")
    expected, draw, found = everything_in(path), random.Random(2), 0
    size = path.stat().st_size
    for _ in range(tries):
        whole = spoil(path, draw.randrange(size), draw)
        said = refusal_of(path, expected)
        assert said is None or path.name in said
        found += said is not None
        path.write_bytes(whole)
    assert found > tries // 20
    tally("damages found", found)


def test_a_collection_cut_short_is_refused_at_once(tmp_path: Path, tally: Tally) -> None:
    path = small_collection(tmp_path / "tables")
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"all\.sqlite: not a whole on-disk data set"):
            read_on_disk(path)
        tally("damages found")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE graphs SET COL_edge_index = zeroblob(length(COL_edge_index))", "edge_index of"),
        ("UPDATE graphs SET COL_x = zeroblob(length(COL_x)) WHERE id = 7", "x of graph 7"),
        ("UPDATE rows SET label = 1 - label WHERE id = 3", "checksum of label"),
        ("UPDATE rows SET name = 'other' WHERE id = 3", "checksum of name"),
        ("UPDATE about SET value = replace(value, '\"a\"', '\"z\"')", "checksum of about"),
    ],
)
def test_values_that_fit_but_are_others_are_found(
    statement: str, words: str, tmp_path: Path
) -> None:
    path = small_collection(tmp_path / "tables")
    if "COL_x" in statement:
        path = tmp_path / "all.sqlite"
        write_on_disk(path, toy_graphs(20))
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(InputError, match=rf"all\.sqlite: .*{words}"):
        everything_in(path)


def test_a_conversion_that_was_done_is_not_done_again(tmp_path: Path) -> None:
    path, first, second = tmp_path / "all.sqlite", toy_graphs(20), toy_graphs(30, seed=5)
    assert not holds_already(path, first, append=False)
    write_on_disk(path, first)
    assert holds_already(path, first, append=False) == 20
    assert not holds_already(path, second, append=True)
    write_on_disk(path, second, append=True)
    assert holds_already(path, second, append=True) == 50
    assert holds_already(path, first, append=True) == 50
    assert not holds_already(path, first, append=False)
    everything_in(path)


# What the version before this one wrote.


def test_an_older_run_is_read_and_gone_on_with(tmp_path: Path) -> None:
    shutil.copytree(OLDER / "run", tmp_path / "run")
    run = lg2ar.load(tmp_path / "run", "cpu")
    expected = torch.tensor(json.loads((OLDER / "embeddings.json").read_text()))
    assert torch.allclose(run.embed(toy_graphs(20)), expected, atol=1e-5)
    more = {"epochs": 3}
    again = lg2ar.pretrain(toy_graphs(20), more, out=tmp_path / "run", resume=True, device="cpu")
    assert len(again.history) == 3
    assert json.loads((tmp_path / "run" / "run.json").read_text())["format"] == 2


def test_an_older_fine_tuned_model_is_read() -> None:
    tuned = load_finetuned(OLDER / "finetuned", "cpu")
    assert len(tuned.predict(toy_graphs(20))) == 20


def test_an_older_encoder_is_read() -> None:
    assert read_encoder(OLDER / "encoder.safetensors").epochs == 2


def test_an_older_collection_is_read_and_added_to(tmp_path: Path) -> None:
    path = tmp_path / "graphs.sqlite"
    shutil.copy(OLDER / "graphs.sqlite", path)
    assert np.array_equal(read_on_disk(path).graph.x.numpy(), toy_graphs(20).graph.x.numpy())
    assert write_on_disk(path, toy_graphs(5, seed=9), append=True) == 25
    assert not DiskFile(path).sums
    everything_in(path)


@pytest.mark.parametrize("change", [{"format": 3}, {"format": 99}])
def test_a_newer_format_says_what_to_do(change: dict[str, Any], tmp_path: Path) -> None:
    make_run(tmp_path)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=r"run\.json: is of format .* install the newer lg2ar"):
        checkpoint.read(tmp_path)


def test_a_seal_cannot_be_taken_off(tmp_path: Path) -> None:
    """A sealed file that calls itself an older one, or has no seal any more, is not believed."""
    make_run(tmp_path)
    path = tmp_path / "run.json"
    head = json.loads(path.read_text())
    for other in (
        head | {"format": 1},
        {key: value for key, value in head.items() if key != "seal"},
        head | {"seal": seals.OPEN},
    ):
        path.write_text(json.dumps(other))
        with pytest.raises(InputError, match=r"run\.json: damaged"):
            checkpoint.read(tmp_path)
