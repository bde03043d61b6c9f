"""Starting or joining the processes that train one model, through Lightning Fabric.

Fabric starts a process per device (``ddp``: it runs the same command again), or finds that
``torchrun`` or SLURM has started them, and lets them meet. What they then do together is
:mod:`lg2ar.distributed`'s; models are not wrapped in PyTorch's ``DistributedDataParallel``, whose
mean of gradients over whatever each process drew is not the gradient of the whole batch.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lg2ar.distributed import Team
from lg2ar.distributed.alarm import PATIENCE, Alarm
from lg2ar.errors import InputError
from lg2ar.layers import MLP

# Others wait while one writes a checkpoint; a process that is gone is noticed at once all the same.
TIMEOUT = timedelta(days=1)
# Multiple that rows are filled up to where a processor multiplies in bfloat16.
ROWS = 128
PRECISIONS = {"32": "float32", "bf16-mixed": "bf16-mixed"}
INSTALL = "pip install 'lg2ar[fabric]'"


class Processes:
    """The processes that train together, as this one of them sees them.

    Args:
        team: What they exchange; None where there is no other.
        device: Where this one computes.
    """

    def __init__(self, team: Team | None, device: torch.device) -> None:
        self.team, self.device = team, device
        self._alarm = None if team is None else Alarm(team)

    @property
    def size(self) -> int:
        """How many there are."""
        return 1 if self.team is None else self.team.size

    @property
    def main(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.team is None or self.team.rank == 0

    @property
    def over(self) -> bool:
        """Whether one of them failed, after which they are no team any more."""
        return self._alarm is not None and self._alarm.over

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """End all of them where one fails: see :class:`~lg2ar.distributed.alarm.Alarm`."""
        with nullcontext() if self._alarm is None else self._alarm.guarding():
            yield

    def agree(self, what: str, *values: Any) -> None:
        """See that all have the same, before they work on it together.

        Raises:
            InputError: Naming a process that differs from the first.
        """
        if self.team is None:
            return
        digest = hashlib.sha256(repr(values).encode()).digest()
        numbers = [int.from_bytes(digest[i : i + 7], "big") for i in (0, 8, 16)]
        for rank, other in enumerate(found := self.team.counts(*numbers)):
            if other != found[0]:
                raise InputError(
                    f"process {rank} of {self.size} has other {what} than process 0; start all of "
                    "them with the same command, on the same files."
                )


_joined: tuple[tuple[Any, ...], Processes] | None = None


def join(
    device: torch.device,
    devices: int | None = None,
    nodes: int | None = None,
    strategy: str | None = None,
) -> Processes:
    """Start the other processes, or join them where they have been started.

    Without any number nothing is started, unless ``torchrun`` started several. Who asks again gets
    the same processes.

    Args:
        device: Of which kind to use one for each process.
        devices: How many processes on each machine.
        nodes: How many machines.
        strategy: ``ddp``; given, Fabric is used for a single process as well.

    Raises:
        InputError: When they cannot be had.
    """
    global _joined
    devices, nodes = _settled(devices, nodes)
    if strategy not in (None, "auto", "ddp"):
        raise InputError(f"strategy = '{strategy}' must be ddp, or left out.")
    if devices * nodes == 1 and strategy != "ddp":
        return Processes(None, device)
    wanted = (device.type, devices, nodes)
    if _joined is not None:
        if _joined[1].over:
            raise InputError(
                f"the {_joined[1].size} processes that trained together were stopped, or one of "
                "them failed; start the program again."
            )
        if _joined[0] != wanted:
            raise InputError(
                f"{_joined[1].size} processes train together already; use as many, or begin anew."
            )
        return _joined[1]
    _check_gpus(device, devices)
    own = _launch(device, devices, nodes)
    _joined = wanted, Processes(Team(own), own)
    return _joined[1]


def how_many(devices: int | None = None, nodes: int | None = None) -> int:
    """How many processes :func:`join` is going to be one of."""
    each, machines = _settled(devices, nodes)
    return each * machines


def _settled(devices: int | None, nodes: int | None) -> tuple[int, int]:
    """How many processes on how many machines; what torchrun says where nothing was given."""
    if devices is None and nodes is None and "TORCHELASTIC_RUN_ID" in os.environ:
        world = int(os.environ.get("WORLD_SIZE", 1))
        devices = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        nodes = world // devices
    for name, number in (("devices", devices), ("nodes", nodes)):
        if number is not None and number < 1:
            raise InputError(f"{name} = {number} must be at least 1.")
    return devices or 1, nodes or 1


def _check_gpus(device: torch.device, devices: int) -> None:
    there = torch.cuda.device_count()
    if device.type == "cuda" and devices > there:
        raise InputError(f"devices = {devices}: this machine has {there}; use as many at most.")


def _launch(device: torch.device, devices: int, nodes: int) -> torch.device:
    """Have Fabric start or find the processes; the device of this one."""
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.strategies import DDPStrategy
    except ImportError:
        raise InputError(
            f"training in several processes needs Lightning Fabric: {INSTALL}."
        ) from None
    _give_time_to_save()
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    # What the processes to be started would print of a connection that another one closed.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        fabric = Fabric(
            accelerator=device.type,
            devices=[device.index] if devices == 1 and device.index is not None else devices,
            num_nodes=nodes,
            strategy=DDPStrategy(timeout=TIMEOUT),
        )
        fabric.launch()
    except (ValueError, RuntimeError, TypeError) as error:
        words = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"the processes cannot be started: {words}.") from None
    found: torch.device = fabric.device
    return found


def _give_time_to_save() -> None:
    """Let Fabric wait before it kills this process because one that it started is gone.

    It would do so within five seconds, while this one may still save what was done.
    """
    from lightning_fabric.strategies.launchers import subprocess_script

    observer = getattr(subprocess_script, "_ChildProcessObserver", None)
    kill = getattr(observer, "_terminate_all", None)
    if observer is None or kill is None or hasattr(kill, "patient"):
        return

    def patient(self: Any) -> None:
        time.sleep(PATIENCE)
        kill(self)

    patient.patient = True  # type: ignore[attr-defined]
    observer._terminate_all = patient


def _filled_up(x: Tensor) -> Tensor:
    """Rows in bfloat16, with zeros up to a multiple of some.

    A processor's library prepares every new shape of a product in bfloat16, which takes time, and
    no two batches have the same number of nodes.
    """
    return F.pad(x.to(torch.bfloat16), (0, 0, 0, -len(x) % ROWS))


def multiply_in_bfloat16(model: nn.Module, device: torch.device) -> None:
    """Let the linear layers of a model multiply in bfloat16, by way of Fabric's mixed precision.

    That is ``nn.Linear.forward`` and its gradient, and nothing else. In float32 stay weights and
    their gradients, the GRU of the policy, sums over neighbours and nodes, normalisation, noise,
    scores and the loss; and so does a first layer whose weights are multiplied part by part (heads
    that score nodes or edges, a GIN layer that narrows wide features, the discriminator ``mlp``).
    Between the layers of an MLP rows stay as they are, rounded: a ReLU changes no digit of them,
    and the next layer would round them to the same.
    """
    try:
        from lightning_fabric.plugins import MixedPrecision
    except ImportError:
        raise InputError(f"precision = 'bf16-mixed' needs Lightning Fabric: {INSTALL}.") from None
    mixed = MixedPrecision("bf16-mixed", device.type)

    def forward(layer: nn.Linear, rounded: bool, x: Tensor) -> Tensor:
        many = device.type == "cpu" and x.dim() == 2 and len(x) > ROWS
        with mixed.forward_context():
            y = nn.Linear.forward(layer, _filled_up(x) if many else x)
        y = y[: len(x)] if many else y
        return y if rounded else y.to(layer.weight.dtype)

    inner = {layer for part in model.modules() if isinstance(part, MLP) for layer in part.inner}
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.forward = partial(  # type: ignore[method-assign]
                forward, layer, layer in inner
            )
