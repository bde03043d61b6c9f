"""Time, kernels and memory of training, and the record that says so."""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from lg2ar import experiment
from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.devices import device_name
from lg2ar.records import EpochRecord, versions

GIGABYTE = 1e9

# How the profiler names what the driver does by itself.
COPIES = ("Memcpy", "Memset")
# Parts of the names of the libraries' matrix products; cuBLAS calls its newest ones nvjet.
PRODUCTS = ("gemm", "cutlass", "gemv", "nvjet")
PRODUCTS_ON_CPU = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


@dataclass(frozen=True)
class Plan:
    """How long to measure.

    Attributes:
        warmup: Epochs that are not counted: caches fill, graphs are captured, memory is taken.
        repeat: Epochs that are.
    """

    warmup: int
    repeat: int

    @classmethod
    def usual(cls, device: torch.device, repeat: int | None, warmup: int | None = None) -> Plan:
        """As many as a device needs to settle, where nobody says otherwise."""
        many = device.type == "cuda"
        return cls(
            warmup=warmup if warmup is not None else (10 if many else 2),
            repeat=repeat or (20 if many else 5),
        )


@dataclass
class Epochs:
    """What was seen of some epochs.

    Attributes:
        seconds: Of each epoch, as its record has it.
        wall: From one epoch's end to the next one's, with all that lies between.
        steps: Batches of an epoch.
        peak: Bytes, the largest of all.
        working: Bytes above what was held before the first of them, the largest of all.
        reserved: Bytes that the CUDA allocator held, the largest of all. Captured steps work in
            memory of their own, which counts here but not in ``peak`` once they are captured.
        losses: Of each epoch.
        run_seconds: Of the whole call, the making of the model and the last embedding included.
    """

    seconds: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    steps: int = 0
    peak: int = 0
    working: int = 0
    reserved: int = 0
    losses: list[float] = field(default_factory=list)
    run_seconds: float = 0.0


def train(dataset: Dataset, config: Config, device: torch.device, plan: Plan) -> Epochs:
    """Train for a few epochs and look at the clock.

    The settings' own ``epochs`` and ``patience`` are not used: ``plan`` says how long.
    """
    seen = Epochs()
    config = config.replace(epochs=plan.warmup + plan.repeat, patience=0)
    before, held = 0.0, 0

    def look(record: EpochRecord) -> None:
        nonlocal before, held
        now = time.perf_counter()
        if record.epoch > plan.warmup:
            seen.seconds.append(record.seconds)
            if before:
                seen.wall.append(now - before)
            seen.steps = record.steps
            seen.peak = max(seen.peak, record.peak_memory)
            seen.working = max(seen.working, record.peak_memory - held)
            if device.type == "cuda":
                seen.reserved = max(seen.reserved, torch.cuda.max_memory_reserved(device))
            seen.losses.append(record.loss)
        if record.epoch == max(1, plan.warmup):
            held = held_memory(device)
        before = time.perf_counter()

    start = time.perf_counter()
    experiment.pretrain(dataset, config, device=device, on_epoch=look)
    seen.run_seconds = time.perf_counter() - start
    return seen


@dataclass
class Kernels:
    """What ran on the device in a step.

    Attributes:
        milliseconds: Sum of the times of all kernels; copies and fills by the driver are apart.
        copies: Sum of the times of those.
        launches: How many kernels.
        top: The largest by time: name, milliseconds and number a step.
    """

    milliseconds: float
    copies: float
    launches: float
    top: list[tuple[str, float, float]]


def kernels(
    dataset: Dataset,
    config: Config,
    device: torch.device,
    plan: Plan,
    seeds: Sequence[int] | None = None,
) -> Kernels:
    """Profile whole epochs after the warm-up: kernels on CUDA, operations on a CPU.

    Args:
        dataset: What is trained on.
        config: The settings; ``plan`` says how long.
        device: Where.
        plan: Epochs before the profile, at least one, and in it.
        seeds: Runs to train with :func:`lg2ar.experiment.pretrain_many`; None for the config's own.

    Returns:
        The work of a step. Seeds that are trained together take their steps together: a step is one
        of all of them, and is counted once. Where they cannot be, as on a CPU, they go one after
        the other; then the last one alone is in the profile, and a step is one of this seed.
    """
    plan = Plan(max(1, plan.warmup), plan.repeat)  # the profiler starts at an epoch's end
    config = config.replace(epochs=plan.warmup + plan.repeat, patience=0)
    kind = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    watch = profile(activities=[kind], acc_events=True)
    steps = 0
    last = 0 if seeds is None else len(seeds) - 1

    def look(place: int, record: EpochRecord) -> None:
        nonlocal steps
        if place != last:  # an epoch of all ends when the last seed tells of it
            return
        if record.epoch > plan.warmup:
            steps += record.steps
        if device.type == "cuda" and torch.cuda.is_available():
            torch.cuda.synchronize(device)  # no kernel of an epoch in another one's window
        if record.epoch == plan.warmup:
            watch.start()
        if record.epoch == plan.warmup + plan.repeat:
            watch.stop()  # here, so that what follows training is not in it

    if seeds is None:
        experiment.pretrain(dataset, config, device=device, on_epoch=partial(look, 0))
    else:
        experiment.pretrain_many(dataset, config, seeds, device=device, on_epoch=look)
    times, counts = _events(watch, device)
    copies = {name for name in times if name.startswith(COPIES)}
    largest = sorted(times.items(), key=lambda item: -item[1])
    return Kernels(
        milliseconds=sum(ms for name, ms in times.items() if name not in copies) / steps,
        copies=sum(times[name] for name in copies) / steps,
        launches=sum(count for name, count in counts.items() if name not in copies) / steps,
        top=[(name, ms / steps, counts[name] / steps) for name, ms in largest],
    )


def by_kind(work: Kernels) -> dict[str, float]:
    """Milliseconds a step of each kind of kernel; they add up to ``work.milliseconds``.

    Returns:
        ``products`` of matrices, the GRU's ``recurrence``, ``aggregation`` over neighbours and
        graphs, and the ``rest``. The plain step has only the libraries' kernels: there the second
        and third are in the rest.
    """
    kinds = dict.fromkeys(("products", "recurrence", "aggregation", "rest"), 0.0)
    for name, milliseconds, _ in work.top:
        if not name.startswith(COPIES):
            kinds[_kind(name)] += milliseconds
    return kinds


def _kind(name: str) -> str:
    if name in PRODUCTS_ON_CPU or any(part in name.lower() for part in PRODUCTS):
        return "products"
    if name.startswith("recur"):
        return "recurrence"
    if name.startswith(("aggregate", "pair_products", "segment_sum")):
        return "aggregation"
    return "rest"


def _events(watch: profile, device: torch.device) -> tuple[dict[str, float], dict[str, int]]:
    """Milliseconds and number of each kernel (CUDA) or operation without its parts (CPU)."""
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    if device.type == "cuda":
        for event in watch.events() or []:  # type: ignore[no-untyped-call]
            # Named ranges show up on the device too, and would count their kernels twice.
            if event.device_type == DeviceType.CUDA and not event.is_user_annotation:
                times[event.name] += event.time_range.elapsed_us() / 1e3
                counts[event.name] += 1
    else:
        for item in watch.key_averages():
            times[item.key] += item.self_cpu_time_total / 1e3
            counts[item.key] += item.count
    return dict(times), dict(counts)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest of some repetitions."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "repetitions": len(values),
    }


def record(
    bench: str,
    dataset: str,
    method: str,
    device: torch.device,
    *,
    epochs: Epochs | None = None,
    work: Kernels | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One line of a benchmark's file.

    Args:
        bench: Which one: ``step``, ``epoch``, ``probe``, ``growth`` or ``seeds``.
        dataset: By name.
        method: What was measured.
        device: Where.
        epochs: Where epochs were timed.
        work: Where kernels were.
        **more: What this benchmark has to say besides.

    Returns:
        ``bench, dataset, method, device, seconds_per_epoch, step_ms, kernel_ms, peak_gb, steps,
        launches, spread, threads, versions`` and ``more``; None where it was not measured.
    """
    told: dict[str, Any] = {
        "bench": bench,
        "dataset": dataset,
        "method": method,
        "device": device_name(device),
        "seconds_per_epoch": None,
        "step_ms": None,
        "kernel_ms": None,
        "copies_ms": None,
        "launches": None,
        "peak_gb": None,
        "reserved_gb": None,
        "steps": None,
        "spread": {},
        "threads": torch.get_num_threads(),
    }
    if epochs is not None:
        middle = statistics.median(epochs.seconds)
        told |= {
            "seconds_per_epoch": middle,
            "wall_seconds_per_epoch": statistics.median(epochs.wall or epochs.seconds),
            "step_ms": 1e3 * middle / epochs.steps,
            "peak_gb": epochs.peak / GIGABYTE,
            "reserved_gb": epochs.reserved / GIGABYTE or None,
            "working_gb": epochs.working / GIGABYTE,
            "steps": epochs.steps,
            "spread": {"seconds_per_epoch": spread(epochs.seconds)},
        }
    if work is not None:
        told |= {
            "kernel_ms": work.milliseconds,
            "copies_ms": work.copies,
            "launches": work.launches,
        }
    return {**told, **more, "versions": versions()}


def settings(config: Config, dataset: Dataset) -> dict[str, Any]:
    """What a record says of the settings and the data."""
    return {
        "batch_size": config.batch_size,
        "hidden": config.hidden,
        "layers": config.layers,
        "num_graphs": dataset.graph.num_graphs,
        "num_nodes": dataset.graph.num_nodes,
        "num_edges": dataset.graph.num_edges,
        "config": config.to_dict(),
    }


def held_memory(device: torch.device) -> int:
    """Bytes in use right now: allocated on a CUDA device, or by the process; 0 where not told."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # glibc keeps what was freed until it is asked
            ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def peak_memory(device: torch.device) -> int:
    """The most bytes held since :func:`forget_peak`; 0 where not told."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _status("VmHWM")


def forget_peak(device: torch.device) -> None:
    """Begin to measure the peak anew, where the system lets us."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")


def _status(key: str) -> int:
    """A size in bytes that Linux tells of this process; 0 elsewhere."""
    if sys.platform != "linux":
        return 0
    with suppress(OSError), open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))
    return 0
