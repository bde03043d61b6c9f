"""Where many runs are done: in this process, in processes beside it, or on a Ray cluster.

One process, the parent, knows what there is to do and keeps what comes of it; workers only compute.
A *worker* is an object that is called with a job and returns a result. It is sent to each process
once, so what it opens for one job is there for the next.

Local processes are loky's, joblib's own pool. Every worker has a pool to itself: where one is lost
(killed, out of memory), it is known which job went with it, and no other is disturbed. On Ray a job
is a task without Ray's own retries, for the same reason.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from lg2ar.errors import InputError
from lg2ar.records import code_print

Job = TypeVar("Job")
Result = TypeVar("Result")
EngineName = Literal["processes", "ray"]

# What libraries take the number of their threads from, when they are loaded.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Lost:
    """What comes of a job whose worker was gone before it answered.

    Attributes:
        why: What is known of it.
    """

    why: str


class Engine(ABC, Generic[Job, Result]):
    """Does jobs, up to ``workers`` at a time; to be used in a ``with`` statement.

    Attributes:
        workers: How many jobs may be under way.
        machines: On how many machines.
    """

    workers: int
    machines: int = 1

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Begin a job; at most ``workers`` may be under way."""

    @abstractmethod
    def wait(self) -> tuple[Job, Result | Lost]:
        """The next job that is done, with what came of it."""

    @abstractmethod
    def finished(self) -> Iterator[tuple[Job, Result | Lost]]:
        """What is done by now and was not asked for yet; jobs that raised an error are left out."""

    @abstractmethod
    def close(self, *, kill: bool) -> None:
        """Send all workers home; with ``kill`` at once, whatever they are at."""

    def __enter__(self) -> Engine[Job, Result]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(kill=kind is not None)


def drive(
    engine: Engine[Job, Result],
    take: Callable[[], Job | None],
    settle: Callable[[Job, Result | Lost], None],
) -> None:
    """Keep all workers busy, and settle each job the moment it is done.

    Whatever ends it, an interrupt or an error, what is done by then is settled still.

    Args:
        engine: What does the jobs.
        take: Gives the next job, or None where there is none at the moment; it is asked again
            whenever a job was settled.
        settle: Called with a job and what came of it.
    """
    running = 0
    try:
        while True:
            while running < engine.workers and (job := take()) is not None:
                engine.submit(job)
                running += 1
            if not running:
                return
            settle(*engine.wait())
            running -= 1
    except BaseException:
        for done, result in engine.finished():
            if isinstance(result, Lost):  # the interrupt may have reached workers as well
                continue
            with suppress(Exception):  # what came first is told
                settle(done, result)
        raise


class Here(Engine[Job, Result]):
    """Does one job after the other in this process.

    Args:
        worker: Called with each job.
    """

    workers = 1

    def __init__(self, worker: Callable[[Job], Result]) -> None:
        self._worker = worker
        self._done: list[tuple[Job, Result]] = []

    def submit(self, job: Job) -> None:
        """Do the job."""
        self._done.append((job, self._worker(job)))

    def wait(self) -> tuple[Job, Result | Lost]:
        """What came of it."""
        return self._done.pop()

    def finished(self) -> Iterator[tuple[Job, Result | Lost]]:
        """What was done and not asked for."""
        while self._done:
            yield self._done.pop()

    def close(self, *, kill: bool) -> None:
        """Nothing is left to close."""


class Processes(Engine[Job, Result]):
    """Does jobs in processes on this machine.

    Args:
        worker: Sent to each process and called there with each of its jobs.
        workers: How many.
        gpus: CUDA devices that they share, each taking one; 0 leaves the choice to the worker.
    """

    def __init__(self, worker: Callable[[Job], Result], workers: int, gpus: int = 0) -> None:
        self.workers = workers
        self._gpus = gpus
        self._worker = pickle.dumps(worker)
        self._pools: dict[int, Any] = {}
        self._free = list(reversed(range(workers)))
        self._running: dict[futures.Future[Result], tuple[int, Job]] = {}

    def submit(self, job: Job) -> None:
        """Give the job to a worker that is free."""
        place = self._free.pop()
        with _interrupts_withheld():  # a process that is started here never gets any
            try:
                future = self._pool(place).submit(_answer, job)
            except futures.BrokenExecutor:  # it was lost while it had nothing to do
                self._dismiss(place)
                future = self._pool(place).submit(_answer, job)
        self._running[future] = place, job

    def wait(self) -> tuple[Job, Result | Lost]:
        """The next job that is done."""
        done, _ = futures.wait(self._running, return_when=futures.FIRST_COMPLETED)
        return self._collect(done.pop())

    def finished(self) -> Iterator[tuple[Job, Result | Lost]]:
        """What is done by now."""
        for future in [future for future in self._running if future.done()]:
            try:
                found = self._collect(future)
            except Exception:
                continue
            yield found

    def close(self, *, kill: bool) -> None:
        """End the processes."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, kill_workers=kill)
        self._pools.clear()

    def _pool(self, place: int) -> Any:
        if place not in self._pools:
            from joblib.externals.loky import ProcessPoolExecutor

            self._pools[place] = ProcessPoolExecutor(
                max_workers=1,
                initializer=_begin,
                initargs=(self._worker, os.getpid()),
                env=self._environment(place),
            )
        return self._pools[place]

    def _environment(self, place: int) -> dict[str, str]:
        """What differs for a worker: its share of the cores, and its GPU."""
        from joblib.externals.loky import cpu_count

        share = str(max(1, cpu_count() // self.workers))
        own = {name: os.environ.get(name, share) for name in THREADS}
        if self._gpus > 1:
            seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self._gpus)))
            names = seen.split(",")
            own["CUDA_VISIBLE_DEVICES"] = names[place % len(names)]
        return own

    def _collect(self, future: futures.Future[Result]) -> tuple[Job, Result | Lost]:
        place, job = self._running.pop(future)
        self._free.append(place)
        try:
            return job, future.result()
        except futures.BrokenExecutor as error:
            self._dismiss(place)
            return job, Lost(_how_lost(str(error)))

    def _dismiss(self, place: int) -> None:
        self._pools.pop(place).shutdown(wait=True, kill_workers=True)


@contextmanager
def _interrupts_withheld() -> Iterator[None]:
    """Let a person's Ctrl-C wait; processes that are started meanwhile are not reached by it."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _how_lost(told: str) -> str:
    """What loky says of a lost worker, in a few words."""
    _, _, rest = told.partition("exit codes of the workers are {")
    code = rest.partition("}")[0]
    if code.startswith("SIGKILL"):
        return "its worker was killed, as for a lack of memory"
    return f"its worker was lost{f' with {code}' if code else ''}"


_worker: Callable[[Any], Any]  # of a process that works for another


def _begin(worker: bytes, parent: int) -> None:
    """Make this process a worker."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C is the parent's to answer
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _worker = pickle.loads(worker)


def _end_with(parent: int) -> None:
    """End this process when the one that it works for is gone, even if it was killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _answer(job: Any) -> Any:
    return _worker(job)


class OnRay(Engine[Job, Result]):
    """Does jobs as tasks of a Ray cluster, or of a Ray that is started on this machine.

    It is the cluster that ``RAY_ADDRESS`` names, else the one that this machine is a part of.

    Args:
        worker: Sent to each process of the cluster and called there with each of its jobs.
        workers: How many jobs at a time; None takes as many as the cluster has cores, or GPUs.
        gpu: Whether a job needs a CUDA device; None is for one where the cluster has some.
    """

    def __init__(
        self,
        worker: Callable[[Job], Result],
        workers: int | None = None,
        gpu: bool | None = None,
    ) -> None:
        self._ray = _ray()
        self._ours = not self._ray.is_initialized()
        if self._ours:
            _connect(self._ray)
        try:
            has = self._ray.cluster_resources()
            gpus = int(has.get("GPU", 0))
            if gpu and not gpus:
                raise InputError("the Ray cluster has no GPU; use --device cpu or auto.")
            self._gpu = bool(gpus) if gpu is None else gpu
            cores = max(1, int(has.get("CPU", 1)))
            self.machines = sum(node["Alive"] for node in self._ray.nodes())
            self.workers = workers or (gpus if self._gpu else cores)
            self._task = self._make_task(cores)
            self._worker = self._ray.put(worker)
        except BaseException:
            self.close(kill=True)
            raise
        self._running: dict[Any, Job] = {}

    def _make_task(self, cores: int) -> Any:
        """The function as Ray runs it, with a share of the cores, which sets its threads."""
        nodes = [node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]]
        most = int(min((number for number in nodes if number >= 1), default=1))
        asked = os.environ.get(THREADS[0], "")
        share = int(asked) if asked.isdigit() else cores // self.workers
        return self._ray.remote(_answer_on_ray).options(
            num_cpus=max(1, min(most, share)), num_gpus=1 if self._gpu else 0, max_retries=0
        )

    def submit(self, job: Job) -> None:
        """Hand the job to Ray."""
        # Within a list it is passed as it is, so that a process fetches it once only.
        self._running[self._task.remote([self._worker], job, code_print())] = job

    def wait(self) -> tuple[Job, Result | Lost]:
        """The next job that is done."""
        done, _ = self._ray.wait(list(self._running), num_returns=1)
        return self._collect(done[0])

    def finished(self) -> Iterator[tuple[Job, Result | Lost]]:
        """What is done by now."""
        if self._running:
            number = len(self._running)
            done, _ = self._ray.wait(list(self._running), num_returns=number, timeout=0)
            for task in done:
                try:
                    found = self._collect(task)
                except InputError:
                    continue
                yield found

    def close(self, *, kill: bool) -> None:
        """Cancel what is under way, and leave the cluster."""
        for task in getattr(self, "_running", ()):
            self._ray.cancel(task, force=True)
        if self._ours:
            self._ray.shutdown()

    def _collect(self, task: Any) -> tuple[Job, Result | Lost]:
        job = self._running.pop(task)
        try:
            return job, self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:  # raised by our own code there
            if isinstance(error.cause, InputError):
                raise InputError(str(error.cause)) from None
            told = str(error).strip().rpartition("\n")[2]
            raise InputError(
                f"a machine of the Ray cluster cannot do its part ({told}); see that lg2ar is "
                "installed there as it is here."
            ) from None
        except self._ray.exceptions.RayError as error:
            told = str(error).strip().partition("\n")[0][:160].rstrip(". ")
            return job, Lost(f"its worker was lost ({told})")


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError:
        raise InputError(
            "Ray is not installed; install it with pip install 'lg2ar[ray]'."
        ) from None
    return ray


def _connect(ray: Any) -> None:
    _check_reachable(os.environ.get("RAY_ADDRESS", ""))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # of whatever kind: no such address, versions that differ
            told = " ".join(str(error).split())[:200]
            where = os.environ.get("RAY_ADDRESS", "this machine")
            raise InputError(f"{where}: Ray cannot be reached ({told}).") from None


def _check_reachable(address: str) -> None:
    """Say at once that nobody is there; Ray itself tries for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto", "local", or nothing
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise InputError(f"RAY_ADDRESS={address}: no Ray cluster answers ({error}).") from None


class _Kept:
    """The worker of a process of Ray: fetched with its first job, and kept for those after it."""

    reference: Any = None
    worker: Callable[[Any], Any]


def _answer_on_ray(worker: list[Any], job: Any, code: str) -> Any:
    if code_print() != code:
        raise InputError(
            "the Ray cluster has a machine with other code of lg2ar than here; install the same "
            "version everywhere."
        )
    if worker[0] != _Kept.reference:
        _Kept.worker, _Kept.reference = _ray().get(worker[0]), worker[0]
    return _Kept.worker(job)


@dataclass(frozen=True)
class Crew:
    """Who does the work.

    Attributes:
        engine: ``processes`` of this machine, or ``ray``.
        workers: How many; None is one, in this very process, or on Ray all there is room for.
    """

    engine: EngineName = "processes"
    workers: int | None = None

    @property
    def alone(self) -> bool:
        """Whether this process does everything itself."""
        return self.engine == "processes" and (self.workers or 1) == 1

    @property
    def on_ray(self) -> bool:
        """Whether it is a Ray cluster's."""
        return self.engine == "ray"

    def hire(self, worker: Callable[[Job], Result], device: str = "auto") -> Engine[Job, Result]:
        """The engine.

        Args:
            worker: What does a job; it has to be one that can be sent to another process.
            device: Where it computes: ``auto``, ``cpu``, ``cuda`` or one CUDA device.
        """
        if self.alone:
            return Here(worker)
        if self.on_ray:
            return OnRay(worker, self.workers, None if device == "auto" else device != "cpu")
        return Processes(worker, self.workers or 1, _gpus() if device in ("auto", "cuda") else 0)


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()
