"""A study and a search on a real Ray: two nodes, of which one is lost on the way."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lg2ar.engines import Crew
from lg2ar.errors import InputError
from lg2ar.report.tables import read_records
from lg2ar.study.ledger import Ledger, reproduce
from lg2ar.study.plan import plan
from lg2ar.study.runner import Runner
from lg2ar.tuning import search
from tiny import write_graphs

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'lg2ar[ray]'")

SMALL: dict[str, Any] = {"hidden": 8, "layers": 2, "epochs": 20, "batch_size": 16}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of one core each, which are processes of this machine."""
    from ray.cluster_utils import Cluster

    write_graphs(tmp_path)
    monkeypatch.setenv("LG2AR_DATA", str(tmp_path))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # It ends tasks where other programs leave little memory, which is not what is tested here.
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.node = made.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", made.address)
    yield made
    ray.shutdown()
    made.shutdown()


def compared(path: Path) -> list[dict[str, Any]]:
    """Records without what they cost, in an order of their own."""
    kept = [{k: v for k, v in record.items() if k != "cost"} for record in read_records(path)]
    return sorted(kept, key=lambda record: json.dumps(record["task"], sort_keys=True))


def test_a_cluster_gives_the_same_records_and_outlives_a_node(cluster: Any, tmp_path: Path) -> None:
    """Whether a run was under way on the node that is lost, or it was only to get one."""
    runs = plan(
        "graph",
        datasets=["tu:TINY"],
        variants=["gru", "infograph"],
        seeds=range(3),
        preset="default",
        settings=SMALL,
        protocols=["strict"],
    )
    alone, path = tmp_path / "alone.jsonl", tmp_path / "ray.jsonl"

    def do(path: Path, crew: Crew) -> int:
        runner = Runner(torch.device("cpu"))
        return reproduce(runs, ["strict"], Ledger(path), runner, crew=crew, device="cpu")

    with pytest.raises(InputError, match="which 2 machines cannot share; give a database"):
        search.tune("tu:TINY", tmp_path / "tuned", trials=2, device="cpu", crew=Crew("ray"))

    def lose_a_node() -> None:
        while not (path.exists() and path.read_text().count("\n")):
            time.sleep(0.05)
        cluster.remove_node(cluster.node, allow_graceful=False)

    loss = threading.Thread(target=lose_a_node, daemon=True)
    loss.start()
    assert do(path, Crew("ray")) == 0
    loss.join(timeout=60)
    assert not loss.is_alive()
    assert do(alone, Crew()) == 0
    assert compared(path) == compared(alone)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    for _ in range(60):  # until the cluster knows
        if sum(node["Alive"] for node in ray.nodes()) == 1:
            break
        time.sleep(0.5)
    ray.shutdown()
    fixed = {**SMALL, "epochs": 1}
    found = [
        search.tune("tu:TINY", tmp_path / name, trials=3, settings=fixed, device="cpu", crew=crew)
        for name, crew in (("far", Crew("ray", 2)), ("near", Crew()))
    ]
    assert found[0].settings == found[1].settings
    assert found[0].value == found[1].value
