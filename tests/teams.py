"""Starts real processes that form a team, for tests of what they do together.

They are forked from a server that has imported everything already, so that starting them takes
a fraction of a second.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SECONDS = 120

_context = multiprocessing.get_context("forkserver")
# The last two are what the first optimiser imports.
_context.set_forkserver_preload(
    ["lg2ar", "lg2ar.methods", "torch.distributed", "teams", "torch._dynamo", "torch._inductor"]
)


def run_team(
    size: int,
    work: Callable[..., Any],
    *arguments: Any,
    backend: str = "gloo",
    meet: bool = True,
) -> list[Any]:
    """What ``work(team, *arguments)`` gives in each of ``size`` processes, in the order of ranks.

    Args:
        size: How many.
        work: A function at the top of a module.
        *arguments: More arguments of it.
        backend: What they exchange by; with ``nccl`` each has the GPU of its rank.
        meet: Whether to wait for each other at the end; they cannot where one has failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(size):
            here, there = _context.Pipe(duplex=False)
            given = (
                there,
                str(Path(folder) / "meeting"),
                rank,
                size,
                backend,
                meet,
                work,
                arguments,
            )
            process = _context.Process(target=_one, args=given, daemon=True)
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        try:
            answers = [_answer(pipe, rank) for rank, pipe in enumerate(pipes)]
        finally:
            for process in processes:
                process.kill()
                process.join()
    broken = [text for failed, text in answers if failed]
    assert not broken, "\n".join(broken)
    return [value for _, value in answers]


def _answer(pipe: Connection, rank: int) -> tuple[bool, Any]:
    if not pipe.poll(SECONDS):
        return True, f"process {rank} said nothing for {SECONDS} s"
    try:
        answer: tuple[bool, Any] = pickle.loads(pipe.recv_bytes())
    except EOFError:
        return True, f"process {rank} ended without a word"
    return answer


def _one(
    pipe: Connection,
    meeting: str,
    rank: int,
    size: int,
    backend: str,
    meet: bool,
    work: Callable[..., Any],
    arguments: Any,
) -> None:
    import torch
    from torch import distributed

    from lg2ar.distributed import Team

    torch.set_num_threads(1)
    torch.manual_seed(0)  # or draws depend on what the server has drawn before
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        distributed.init_process_group(
            backend, init_method=f"file://{meeting}", rank=rank, world_size=size
        )
        if backend == "gloo":
            distributed.barrier()  # or one may be done with all before another has joined
        device = f"cuda:{rank}" if backend == "nccl" else "cpu"
        answer = False, work(Team(device), *arguments)
        if meet:
            distributed.barrier()  # whoever ends early breaks the connection of the others
    except BaseException:
        answer = True, f"process {rank}:\n{traceback.format_exc()}"
    pipe.send_bytes(pickle.dumps(answer))  # tensors by value: their sender is gone before long
    pipe.close()
