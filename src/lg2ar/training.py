"""Pre-training: Algorithm 1 over epochs, one coin flip per step, early stopping, exact resume."""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from lg2ar.distributed import Team, announce, same, sum_gradients, together, total
from lg2ar.errors import NonFiniteLossError
from lg2ar.graph import GraphBatch
from lg2ar.model import Method, StepOutput
from lg2ar.records import EpochRecord
from lg2ar.sampling import float32, private_randomness, repeatable, seed_from
from lg2ar.shortage import is_shortage
from lg2ar.taking_up import check_moments, check_weights

Batches = Callable[[int], Iterable[GraphBatch]]
OnEpoch = Callable[[EpochRecord], None]
# Tensors (or what a subclass keeps), epochs, the best of them and its loss.
Snapshot = tuple[Any, int, int, float]


class Trainer:
    """Trains a model; everything that a later step depends on is in its state.

    Every epoch is seeded by the run's seed and its own number, so a run that is taken up at an
    epoch's end goes on exactly as if it had not been stopped.

    Args:
        model: What to train, already on its device.
        learning_rate: Adam's.
        weight_decay: Adam's.
        clip: Largest norm of the gradient; 0 leaves it alone.
        patience: Epochs without a lower loss before stopping; 0 never stops. With it, the weights
            at the end of the epoch with the lowest loss are the run's result.
        seed: Fixes all draws.
        deterministic: Whether CUDA must use algorithms that repeat themselves.
        team: The processes that share out every batch; None has it to itself.
    """

    def __init__(
        self,
        model: Method,
        *,
        learning_rate: float,
        weight_decay: float = 0.0,
        clip: float = 0.0,
        patience: int = 0,
        seed: int = 0,
        deterministic: bool = True,
        team: Team | None = None,
    ) -> None:
        self.model = model
        self.team = team
        self.learning_rate = learning_rate
        self.clip = clip
        self.patience = patience
        self.seed = seed
        self.deterministic = deterministic
        self.device = next(model.parameters()).device
        self.parts = model.parts()
        # One optimiser each: Adam's moments of an encoder rest while the other one is stepped.
        self.optimizers = {
            name: torch.optim.Adam(
                parameters,
                lr=learning_rate,
                weight_decay=weight_decay,
                fused=self.device.type == "cpu",  # all weights in one go
            )
            for name, modules in self.parts.items()
            if (parameters := [p for module in modules for p in module.parameters()])
        }
        self.history: list[EpochRecord] = []
        self.best_epoch = 0
        self.best_loss = math.inf
        self.best_weights: dict[str, Tensor] = {}

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self.history)

    @property
    def stopped_early(self) -> bool:
        """Whether the loss has not fallen for ``patience`` epochs."""
        return self.patience > 0 and self.epoch - self.best_epoch >= self.patience

    def fit(
        self,
        batches: Batches,
        epochs: int,
        *,
        on_epoch: OnEpoch | None = None,
        on_checkpoint: Callable[[], None] | None = None,
        checkpoint_every: int = 10,
    ) -> None:
        """Train until ``epochs`` epochs are done or the loss stops falling.

        Args:
            batches: Given an epoch's seed, its batches.
            epochs: How many epochs in all, those already done included.
            on_epoch: Called with each epoch's record.
            on_checkpoint: Called every ``checkpoint_every`` epochs, and once at the end, whether
                that was reached or an error or an interrupt came first.
            checkpoint_every: See above.

        Raises:
            NonFiniteLossError: When a loss or a weight is not a number. The trainer is then back
                at the end of its last good epoch, as after any other error.
        """
        good = self._snapshot()
        try:
            with private_randomness(), repeatable(self.device, self.deterministic), float32():
                while not self._done(epochs):
                    record = self._run_epoch(batches)
                    good = self._snapshot()
                    if on_epoch is not None:
                        on_epoch(record)
                    due = self.epoch % checkpoint_every == 0 and not self._done(epochs)
                    if due and on_checkpoint is not None:
                        on_checkpoint()
        except BaseException as error:
            if is_shortage(error):  # what the failed step holds is needed for what follows
                traceback.clear_frames(error.__traceback__)
            try:
                self._keep(good, on_checkpoint)
            except KeyboardInterrupt:
                if isinstance(error, KeyboardInterrupt):
                    raise  # for the second time: somebody does not want to wait
                self._keep(good, on_checkpoint)
                raise
            if isinstance(error, NonFiniteLossError):
                kept = f"{error} The state of epoch {self.epoch} is kept."
                raise NonFiniteLossError(kept) from None
            raise
        if on_checkpoint is not None:
            on_checkpoint()

    def _keep(self, good: Snapshot, on_checkpoint: Callable[[], None] | None) -> None:
        """Save the last whole epoch, never a state from the middle of one."""
        self._roll_back(good)
        if on_checkpoint is not None:
            on_checkpoint()

    def _done(self, epochs: int) -> bool:
        return self.epoch >= epochs or self.stopped_early

    def result(self) -> dict[str, Tensor]:
        """The weights to keep: the last ones, or with patience those of the lowest loss."""
        if self.patience and self.best_weights:
            return self.best_weights
        return self.model.state_dict()

    def step(self, batch: GraphBatch) -> tuple[StepOutput, bool]:
        """One step of Algorithm 1.

        The coin decides which encoder is changed. The other one takes part all the same, but the
        gradients of its own weights, which nobody would use, are not computed.

        Returns:
            What the batch gave, and whether the base encoder was the one stepped.
        """
        announce(batch.num_graphs)
        alternate = "augmentation" in self.parts
        step_base = not alternate or bool(*same([int(torch.rand(()) < 0.5)]))
        resting = self.parts["augmentation" if step_base else "base"] if alternate else []
        names = ["base" if step_base else "augmentation", "always"]
        stepped = [self.optimizers[name] for name in names if name in self.optimizers]
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        with _frozen(resting):
            output: StepOutput = self.model(batch)
            if output.loss.requires_grad:  # not so where nothing but the resting encoder learns
                output.loss.backward()  # type: ignore[no-untyped-call]
        weights = [p for item in stepped for group in item.param_groups for p in group["params"]]
        sum_gradients(weights)
        if self.clip:
            nn.utils.clip_grad_norm_(weights, self.clip)
        for optimizer in stepped:
            optimizer.step()
        return output, step_base

    def _run_epoch(self, batches: Batches) -> EpochRecord:
        number = self.epoch + 1
        torch.manual_seed(seed_from(self.seed, number))
        forget_peak_memory(self.device)
        self.model.train()
        start = time.perf_counter()
        tally = _Tally(self.model.num_heads, self.device)
        with together(self.team):
            for batch in batches(seed_from(self.seed, number, 1)):
                tally.add(*self.step(batch))
            losses, summary = tally.losses(), tally.summary()
        self._check(number, losses, summary["mean_edge_weight"])
        record = EpochRecord(
            epoch=number,
            loss=sum(losses) / len(losses),
            seconds=time.perf_counter() - start,
            peak_memory=peak_memory(self.device),
            **summary,
        )
        self.history.append(record)
        self._remember_best()
        return record

    def _check(self, number: int, losses: list[float], edge_weight: float) -> None:
        for step, loss in enumerate(losses, start=1):
            if not math.isfinite(loss):
                raise NonFiniteLossError(
                    f"The loss became {loss} in epoch {number}, step {step}: lower learning_rate "
                    f"(now {self.learning_rate:g}) or set clip to bound the gradient."
                )
        if not self._weights_finite() or not math.isfinite(edge_weight):
            raise NonFiniteLossError(
                f"A weight became infinite or NaN in epoch {number}: lower learning_rate "
                f"(now {self.learning_rate:g}) or set clip to bound the gradient."
            )

    def _weights_finite(self) -> bool:
        weights = [p.isfinite().all() for p in self.model.state_dict().values()]
        return bool(torch.stack(weights).all())

    def _remember_best(self) -> None:
        if self.patience and self.history[-1].loss < self.best_loss:
            self.best_epoch, self.best_loss = self.epoch, self.history[-1].loss
            self.best_weights = {k: v.clone() for k, v in self.model.state_dict().items()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that a later epoch depends on: tensors, and what JSON can hold."""
        progress = {
            "best_epoch": self.best_epoch,
            "best_loss": self.best_loss if self.best_weights else None,
            "history": [record.to_dict() for record in self.history],
        }
        return self._tensors(), progress

    def restore(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Go back to a state that :meth:`state` gave.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError, AttributeError: When it is another's.
        """
        heads = self.model.num_heads
        history = [EpochRecord.from_dict(record, heads) for record in progress["history"]]
        best, loss = progress["best_epoch"], progress["best_loss"]
        if [record.epoch for record in history] != list(range(1, len(history) + 1)):
            raise ValueError("epochs out of their order")
        if type(best) is not int or not 0 <= best <= len(history):
            raise ValueError("a best epoch that was none")
        self._load(tensors)
        if not self._weights_finite() or (self.best_weights and type(loss) is not float):
            raise ValueError("what no training comes to")
        self.history, self.best_epoch, self.best_loss = history, best, loss
        if self.patience and not self.best_weights:  # patience begins to count here
            self.best_epoch, self.best_loss = self.epoch, math.inf

    def _snapshot(self) -> Snapshot:
        return self._tensors(), self.epoch, self.best_epoch, self.best_loss

    def _roll_back(self, snapshot: Snapshot) -> None:
        tensors, epoch, self.best_epoch, self.best_loss = snapshot
        self._load(tensors)
        del self.history[epoch:]

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"model.{k}": v.detach().clone() for k, v in self.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best_weights.items()}
        for name, optimizer in self.optimizers.items():
            for index, moments in optimizer.state_dict()["state"].items():
                for key, value in moments.items():
                    tensors[f"optimizer.{name}.{index}.{key}"] = value.detach().clone()
        return tensors

    def _load(self, tensors: dict[str, Tensor]) -> None:
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimizer": {}}
        for key, value in tensors.items():
            part, _, name = key.partition(".")
            # Adam wants its step count where it left it, on the CPU.
            parts[part][name] = value.clone() if part == "optimizer" else value.to(self.device)
        check_weights(self.model, parts["model"])
        if parts["best"]:
            check_weights(self.model, parts["best"])
        states: dict[str, dict[int, dict[str, Tensor]]] = {name: {} for name in self.optimizers}
        for key, value in parts["optimizer"].items():
            name, index, moment = key.split(".")
            states[name].setdefault(int(index), {})[moment] = value
        for name, optimizer in self.optimizers.items():
            check_moments(optimizer, states[name])
        self.model.load_state_dict(parts["model"])
        self.best_weights = parts["best"]
        for name, optimizer in self.optimizers.items():
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": states[name], "param_groups": groups})


@contextmanager
def _frozen(modules: list[nn.Module]) -> Iterator[None]:
    """Have no gradients computed for some modules' weights; they flow through all the same."""
    weights = [p for module in modules for p in module.parameters() if p.requires_grad]
    for p in weights:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in weights:
            p.requires_grad_(True)


class _Tally:
    """Counts what happens in an epoch; numbers on the device are read once, at its end."""

    def __init__(self, num_heads: int, device: torch.device) -> None:
        self._losses: list[Tensor] = []
        self._probabilities: list[Tensor] = []
        self._draws = [[0] * num_heads for _ in range(num_heads)]
        self._base_steps = 0
        self._weight = torch.zeros((), device=device, dtype=torch.float64)
        self._edges = 0

    def add(self, output: StepOutput, step_base: bool) -> None:
        self._losses.append(output.loss.detach())
        self._probabilities.append(output.draw.probabilities.detach())
        self._draws[output.draw.i][output.draw.j] += 1
        self._base_steps += step_base
        for view in output.views:
            if view.edge_weight is None:
                self._weight += view.num_edges
            else:
                self._weight += view.edge_weight.detach().sum(dtype=torch.float64)
            self._edges += view.num_edges

    def losses(self) -> list[float]:
        if not self._losses:
            raise ValueError("an epoch needs at least one batch")
        values: list[float] = total(torch.stack(self._losses)).tolist()
        return values

    def summary(self) -> dict[str, Any]:
        weight, edges = total(torch.stack([self._weight, self._weight.new_tensor(self._edges)]))
        return {
            "steps": len(self._losses),
            "base_steps": self._base_steps,
            "draws": self._draws,
            "probabilities": torch.stack(self._probabilities).mean(0).tolist(),
            "mean_edge_weight": float(weight) / max(1, int(edges)),
        }


def forget_peak_memory(device: torch.device) -> None:
    """Begin to measure the peak anew, where the system lets us."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")


def peak_memory(device: torch.device) -> int:
    """Bytes: allocated on a CUDA device, or held by the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "linux":
        with suppress(OSError), open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    if sys.platform == "win32":
        return 0  # not told there
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
