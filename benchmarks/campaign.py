"""Many runs of the study on a GPU that is there for a limited time.

The data travels as one small file, the runs as a list of jobs, and some processes take jobs until
the time is over. What is finished is kept; the rest is left for another time.

python benchmarks/campaign.py pack data.npz.xz                    # the data sets that are here
python benchmarks/campaign.py jobs jobs.jsonl graph --variants gru,random --preset findings \
    --first-seed 10 --protocols strict,paper                      # appended to the list
python benchmarks/campaign.py unpack data.npz.xz                  # there: into LG2AR_DATA
python benchmarks/campaign.py work jobs.jsonl --out out --workers 4 --seconds 540
python benchmarks/campaign.py merge results/graph.jsonl out/graph-*.jsonl

Jobs may also be settings that presets.py asks for.
Processes share a GPU best under NVIDIA's Multi-Process Service (``nvidia-cuda-mps-control -d``).
Four of them fill one at graph level; at node level, where the processor is what is busy, a dozen.
"""

from __future__ import annotations

import gc
import io
import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import presets
import torch
import typer
from safetensors import safe_open
from safetensors.numpy import save_file

from lg2ar.data.benchmarks import BENCHMARKS, CACHE, data_root, find_benchmark
from lg2ar.data.sources import open_source
from lg2ar.devices import SHARERS, choose_device
from lg2ar.study.ledger import Ledger, reproduce
from lg2ar.study.plan import TABLES, Planned, plan
from lg2ar.study.runner import Runner

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)
HEADERS = "headers"
APART = "|"  # a folder and a tensor's name, in the name of an array
ENDED = 128 + signal.SIGTERM
GRACE = 20.0  # seconds that a process has to come to its end
Job = dict[str, Any]  # a line of the list: runs of one data set, read alike


@app.command()
def pack(
    file: Annotated[Path, typer.Argument(help="Where to.")],
    names: Annotated[str, typer.Option(help="Data sets, separated by commas; all here.")] = "",
) -> None:
    """Put the flat arrays of data sets into one compressed file."""
    arrays: dict[str, np.ndarray] = {}
    headers: dict[str, dict[str, str]] = {}
    for name in names.split(",") if names else BENCHMARKS:
        folder = data_root() / BENCHMARKS[name].folder
        if not folder.exists():
            continue
        open_source(name)  # leaves its arrays there
        with safe_open(folder / CACHE, "np") as held:
            headers[folder.name] = held.metadata()
            for key in held.keys():  # noqa: SIM118 - not a mapping
                arrays[f"{folder.name}{APART}{key}"] = held.get_tensor(key)
    text = np.frombuffer(json.dumps(headers).encode(), dtype=np.uint8)
    with lzma.open(file, "wb", preset=4) as packed:  # two thirds of what deflating leaves
        np.savez(packed, **{HEADERS: text}, **arrays)
    print(f"{len(headers)} data sets, {file.stat().st_size / 2**20:.1f} MiB")


@app.command()
def unpack(file: Annotated[Path, typer.Argument(help="What ``pack`` wrote.")]) -> None:
    """Put the arrays where data sets are looked for."""
    with lzma.open(file) as packed, np.load(io.BytesIO(packed.read())) as held:
        headers = json.loads(held[HEADERS].tobytes())
        for folder, header in headers.items():
            start = f"{folder}{APART}"
            own = {n.removeprefix(start): held[n] for n in held.files if n.startswith(start)}
            (data_root() / folder).mkdir(parents=True, exist_ok=True)
            save_file(own, data_root() / folder / CACHE, metadata=header)


@app.command()
def jobs(
    file: Annotated[Path, typer.Argument(help="Jobs are appended to it.")],
    table: Annotated[str, typer.Argument(help="A table of the study.")],
    datasets: Annotated[str, typer.Option(help="Separated by commas; the table's.")] = "",
    variants: Annotated[str, typer.Option(help="Separated by commas; the table's.")] = "",
    protocols: Annotated[str, typer.Option(help="Separated by commas; the table's.")] = "",
    preset: Annotated[str, typer.Option(help="Named settings; the table's.")] = "",
    seeds: Annotated[int, typer.Option(help="Runs of each cell; 0 is the table's number.")] = 0,
    first_seed: Annotated[int, typer.Option(help="Of the first run.")] = 0,
    together: Annotated[int, typer.Option(help="Seeds of one job.")] = 10,
    by_seed: Annotated[
        bool, typer.Option(help="All variants of a seed in one job: records come one by one.")
    ] = False,
    records: Annotated[Path | None, typer.Option(help="Runs that need not be done.")] = None,
) -> None:
    """List the runs of a table that are not there yet, the first variant of all data sets first.

    Of a run that was read under some of the protocols, the others are asked for. By seed it is data
    set by data set, and ``together`` says nothing: variants of one seed have the same untrained
    encoder, which is read once for all of a job.
    """
    layout = TABLES[table]
    ledger = Ledger(records) if records is not None and records.exists() else None
    asked = _words(variants) or list(layout.variants)
    every = range(first_seed, first_seed + (seeds or layout.seeds))
    left: list[Job] = []  # run by run
    for variant in asked:
        for name in _words(datasets) or layout.datasets:
            read_as = _words(protocols) or list(layout.read_as(find_benchmark(name).level))
            job: Job = {"table": table, "dataset": name, "protocols": read_as}
            job["preset"] = preset or layout.preset
            for one in _runs(job, [variant], every):
                missing = read_as if ledger is None else ledger.missing(one, read_as)
                run = {**job, "protocols": missing, "variants": [variant]}
                # Runs that are read under no protocol measure the cost, which is made anew.
                left += [{**run, "seeds": [one.config.seed]}] if missing or not read_as else []
    with file.open("a") as lines:
        for one in _by_seed(left) if by_seed else _seeds_together(left, together):
            lines.write(json.dumps(one) + "\n")


def _by_seed(runs: list[Job]) -> list[Job]:
    """One job for all variants of a seed."""
    found: dict[str, Job] = {}
    for run in runs:
        own = found.setdefault(_key_of(run, "variants"), {**run, "variants": []})
        own["variants"] += run["variants"]
    return list(found.values())


def _seeds_together(runs: list[Job], most: int) -> list[Job]:
    """One job for so many seeds of a variant."""
    found: dict[str, Job] = {}
    for run in runs:
        own = found.setdefault(_key_of(run, "seeds"), {**run, "seeds": []})
        own["seeds"] += run["seeds"]
    return [
        {**job, "seeds": job["seeds"][start : start + most]}
        for job in found.values()
        for start in range(0, len(job["seeds"]), most)
    ]


def _key_of(run: Job, but: str) -> str:
    """What runs of one job have in common: all but this."""
    return json.dumps({**run, but: None}, sort_keys=True)


def _runs(job: Job, variants: Sequence[str], seeds: Iterable[int]) -> list[Planned]:
    return plan(
        job["table"],
        datasets=[job["dataset"]],
        variants=variants,
        seeds=seeds,
        protocols=job["protocols"],
        preset=job["preset"],
    )


@app.command()
def work(
    jobs: Annotated[Path, typer.Argument(help="What is to be done, a line each.")],
    out: Annotated[Path, typer.Option(help="Folder for records: a file of each table and worker.")],
    workers: Annotated[int, typer.Option(help="Processes side by side.")] = 4,
    seconds: Annotated[float, typer.Option(help="All ends then, finished or not.")] = 1e9,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Do jobs in several processes, each job once, until none is left or the time is over."""
    out.mkdir(parents=True, exist_ok=True)
    end = time.time() + seconds
    with tempfile.TemporaryDirectory() as taken:
        line = [sys.executable, __file__, "one", str(jobs), str(out), taken]
        # Threads of several processes on the same cores wait for each other.
        threads = str(max(1, (os.cpu_count() or 1) // workers))
        own = {"OMP_NUM_THREADS": threads, SHARERS: str(workers), **os.environ}
        started = [
            subprocess.Popen([*line, str(number), str(end), device], env=own)
            for number in range(workers)
        ]
        late = []
        for process in started:
            try:
                process.wait(max(0.0, end - time.time()))
            except subprocess.TimeoutExpired:
                process.terminate()
                late.append(process)
        for process in late:
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
        broken = sum(process.wait() != 0 for process in started if process not in late)
    if broken:
        print(f"{broken} of {workers} processes broke down", file=sys.stderr)
        raise typer.Exit(1)


@app.command(hidden=True)
def one(jobs: Path, out: Path, taken: Path, number: int, end: float, device: str) -> None:
    """Take jobs as one of the processes."""
    where, begun = choose_device(device), time.time()
    with _ended_between_kernels():
        for place, text in enumerate(jobs.read_text().splitlines()):
            if time.time() > end or not _take(taken / str(place)):
                continue
            job = json.loads(text)
            start = time.time()
            try:
                word = f"{_do(job, out, number, where)} failed"
            except Exception as error:  # the others are done all the same
                word = f"{type(error).__name__}: {error}"[:300]
            what = " ".join(str(job.get(key)) for key in ("table", "dataset", "variants", "seeds"))
            now = time.time()
            print(f"{now - begun:.0f} s, {number}: {what}: {word}, {now - start:.0f} s", flush=True)
            gc.collect()
            if where.type == "cuda":
                torch.cuda.empty_cache()


@contextmanager
def _ended_between_kernels() -> Iterator[None]:
    """Let a signal end Python, not the process.

    A process that is killed in the midst of a kernel takes all others of a shared GPU with it.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(ENDED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _take(mark: Path) -> bool:
    """Take a job, unless another process has: a folder is made by one alone."""
    try:
        mark.mkdir()
    except FileExistsError:
        return False
    return True


def _do(job: Job, out: Path, number: int, device: torch.device) -> int:
    if "table" not in job:  # settings that presets.py asks for
        record = presets.measure(job, device, presets.Memory())
        with (out / f"search-{number}.jsonl").open("a") as lines:
            lines.write(json.dumps(record) + "\n")
        return int(record["failed"] is not None)
    runs = _runs(job, job["variants"], job["seeds"])
    ledger = Ledger(out / f"{job['table']}-{number}.jsonl")
    return reproduce(
        runs,
        job["protocols"],
        ledger,
        Runner(device),
        on_failure=lambda task, why: print(f"{task}: {why}", file=sys.stderr, flush=True),
    )


@app.command()
def merge(
    into: Annotated[Path, typer.Argument(help="Records of a table.")],
    files: Annotated[list[Path], typer.Argument(help="Records to be added.")],
) -> None:
    """Append the records of finished runs that are not there yet."""
    lines = into.read_text().splitlines() if into.exists() else []
    there = {_key(json.loads(line)) for line in lines}
    added = 0
    with into.open("a") as records:
        for line in [line for file in files for line in file.read_text().splitlines()]:
            record = json.loads(line)
            if ("task" in record and "failed" in record) or _key(record) in there:
                continue
            there.add(_key(record))
            records.write(line + "\n")
            added += 1
    print(f"{into}: {added} records added")


def _key(record: dict[str, Any]) -> str:
    """What tells one run, read in some ways, from another; or one trial of the search."""
    if "task" not in record:
        return presets.key(record)
    read_as = sorted({e["protocol"] for e in record.get("evaluations", ())})
    return json.dumps([record["task"], read_as], sort_keys=True)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


if __name__ == "__main__":
    app()
