"""Weak scaling on CPU processes: each has as many graphs, whatever their number.

``python -m lg2ar.bench.scaling JSON`` is what :func:`measure_scaling` starts under ``torchrun``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from lg2ar.bench.generated import PER_GRAPH, collection
from lg2ar.bench.measure import Epochs, record, settings
from lg2ar.config import Config
from lg2ar.discriminators import Dot
from lg2ar.distributed import Traffic
from lg2ar.errors import InputError
from lg2ar.experiment import pretrain
from lg2ar.model import build
from lg2ar.mutual_information import jensen_shannon
from lg2ar.policy import POLICIES
from lg2ar.processes import join
from lg2ar.records import EpochRecord

CPU = torch.device("cpu")
PROCESSES = (1, 2, 4)
# Of each process: graphs in all, and of a batch.
GRAPHS, BATCH = 512, 128
# Wide enough that a step is work, not waiting.
SETTINGS = {"hidden": 128, "layers": 3}


def measure_scaling(
    processes: Sequence[int] = PROCESSES,
    *,
    changes: Mapping[str, Any] | None = None,
    repeat: int = 5,
    warmup: int = 1,
) -> Iterator[dict[str, Any]]:
    """Train the same on growing numbers of processes with as many graphs each; a record each.

    Args:
        processes: How many, one after the other.
        changes: Settings that win over :data:`SETTINGS`.
        repeat: Epochs to time.
        warmup: Epochs before these.
    """
    for number in processes:
        if number < 1:
            raise InputError(f"--processes {number}: must be at least 1.")
    for number in processes:
        plan = {"changes": dict(changes or {}), "repeat": repeat, "warmup": warmup}
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={number}"]
        done = subprocess.run(
            [sys.executable, *torchrun, "-m", __name__, json.dumps(plan)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise InputError(f"{number} processes failed: {' '.join(done.stderr.split())[-300:]}")
        made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        yield made


def work(plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """One process's part of a measurement; the record, in the first of them."""
    processes = join(CPU)
    number, team = processes.size, processes.team
    dataset = collection(GRAPHS * number * PER_GRAPH)
    told = {**SETTINGS, "batch_size": BATCH * number, "calibrate": False, **plan["changes"]}
    config = Config.make({**told, "epochs": plan["warmup"] + plan["repeat"], "patience": 0})
    seen, cpu = Epochs(), []
    clock, traffic = time.process_time(), Traffic()

    def look(record: EpochRecord) -> None:
        nonlocal clock, traffic
        if record.epoch > plan["warmup"]:
            seen.seconds.append(record.seconds)
            seen.losses.append(record.loss)
            seen.steps = record.steps
            seen.peak = max(seen.peak, record.peak_memory)
            cpu.append(time.process_time() - clock)
        elif team is not None:
            traffic = team.traffic.copy()
        clock = time.process_time()

    pretrain(dataset, config, device="cpu", on_epoch=look)
    if not processes.main:
        return None
    steps = seen.steps * plan["repeat"]
    spent = Traffic() if team is None else team.traffic.since(traffic)
    return record(
        "scaling",
        f"{number} processes",
        "lg2ar",
        CPU,
        epochs=seen,
        processes=number,
        cores=os.cpu_count(),
        load=os.getloadavg()[0],
        cpu_ms=1e3 * statistics.median(cpu) / seen.steps,
        exchanges={kind: calls / steps for kind, calls in spent.calls.items()},
        bytes={kind: count / steps for kind, count in spent.bytes.items()},
        waiting_ms={kind: 1e3 * seconds / steps for kind, seconds in spent.seconds.items()},
        policy_us=policy_microseconds(config.hidden),
        noise_ns=noise_nanoseconds(),
        score_ns=score_nanoseconds(config.hidden),
        **settings(config, dataset),
    )


def policy_microseconds(hidden: int, graphs: int = 2048) -> dict[str, float]:
    """CPU time of each policy with its gradient for a graph of the batch, in every process."""
    found = {}
    for name, make in POLICIES.items():
        policy = make(hidden, 5)
        rows = torch.randn(graphs, hidden, requires_grad=True)
        times = []
        for _ in range(3):
            start = time.process_time()
            draw = policy(rows)
            if draw.p_i.requires_grad:
                (draw.p_i + draw.p_j).backward()
            times.append(time.process_time() - start)
        found[name] = 1e6 * min(times) / graphs
    return found


def score_nanoseconds(hidden: int, rows: int = 2048, graphs: int = 512) -> float:
    """CPU time of the score of one node with one graph, its share of the bound and the gradient."""
    left, right = (torch.randn(n, hidden, requires_grad=True) for n in (rows, graphs))
    positive = torch.arange(rows).unsqueeze(1) % graphs == torch.arange(graphs)
    times = []
    for _ in range(3):
        start = time.process_time()
        jensen_shannon(Dot(hidden)(left, right), positive).backward()  # type: ignore[no-untyped-call]
        times.append(time.process_time() - start)
    return 1e9 * min(times) / (rows * graphs)


def noise_nanoseconds(number: int = 1 << 20) -> float:
    """CPU time of one number of noise, which every process draws for the whole batch."""
    times = []
    for _ in range(3):
        start = time.process_time()
        torch.rand(number)
        times.append(time.process_time() - start)
    return 1e9 * min(times) / number


def step_bytes(config: Config, num_features: int, processes: int) -> dict[str, float]:
    """What one process gives into the exchanges of a step at graph level, by kind.

    Of the kinds that grow with anything. Which encoder is stepped is a coin flip; this is the mean
    of both outcomes. docs/scaling.md has the formulas in words.

    Args:
        config: The settings; the bound is a mean over rows, and negatives are graphs.
        num_features: Width of the node features.
        processes: How many.
    """
    model = build(config, num_features)
    sides = [model.base_encoder, model.augmentation_encoder]
    always = [model.policy, model.heads, model.discriminator]
    encoders = [[p.numel() for p in side.parameters()] for side in sides]
    shared = [p.numel() for part in always for p in part.parameters()]
    mean = sum(sum(own) + len(own) for own in encoders) / 2 + sum(shared) + len(shared)
    d, width = config.hidden, model.base_encoder.out_features
    share = -(-config.batch_size // processes)
    layers, base = config.layers, config.base_layers or config.layers
    norms = 4 * 2 * d * config.norm
    return {
        "graphs": 4 * share * (d + 2 * width),
        "graphs, gradients": 4 * config.batch_size * (d / 2 + 2 * width),
        "normalisation": norms * (layers + 2 * base),
        "normalisation, gradients": norms * processes * (layers / 2 + 2 * base),
        "gradients": 4 * mean,
    }


if __name__ == "__main__":
    done = work(json.loads(sys.argv[1]))
    if done is not None:
        print(json.dumps(done))
