"""Trains many runs in step: flat weights, one schedule an epoch, and steps replayed as graphs.

On a CUDA device a step is captured once for every size of batch and side of the coin, and then
replayed: nothing but its launch is left to the host, which looks at the device once an epoch.

Several engines train on a device at the same time only in lanes of their own
(:func:`run_epoch_beside`): the GRU's programs wait for each other and must all find room, and what
runs at the same time must not share a stream, nor the working memory that comes with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lg2ar.config import Config
from lg2ar.data.batches import epoch_batches
from lg2ar.fast.arrangement import Lane
from lg2ar.fast.data import NODES, PAIRS, PairData
from lg2ar.fast.dense import products_in
from lg2ar.fast.kernels import optimising
from lg2ar.fast.step import Step
from lg2ar.fast.streams import stream_beside
from lg2ar.model import Method
from lg2ar.sampling import seed_from
from lg2ar.training import forget_peak_memory

BETAS, EPS = (0.9, 0.999), 1e-8  # Adam's own
# Batches up to this many nodes and pairs are all padded to the largest: padding costs nothing.
SMALL = 1 << 14
# Shares of larger batches that the smaller sizes are to hold.
QUANTILES = (0.5, 0.85, 0.98, 1.0)
LOOK_AHEAD = 50  # epochs whose batches the sizes are chosen by
ALIGNED = 32  # numbers of 128 bytes


@dataclass(frozen=True)
class Size:
    """What a batch is padded to: graphs are not padded."""

    graphs: int
    nodes: int
    pairs: int


@dataclass(frozen=True, eq=False)
class Tally:
    """What happened in an epoch to one run.

    Attributes:
        losses: Of every step.
        probabilities: The policy's distribution, mean over the steps.
        draws: How often each pair of augmentations was drawn.
        base_steps: How often the base encoder was stepped.
        mean_edge_weight: Over the edges of all views.
        finite: Whether all weights are.
    """

    losses: list[float]
    probabilities: list[float]
    draws: list[list[int]]
    base_steps: int
    mean_edge_weight: float
    finite: bool


@dataclass(frozen=True, eq=False)
class _Schedule:
    """What every run takes in every step of an epoch, on the device; the leading size is steps."""

    order: Tensor  # [K, S, B]
    ptr: Tensor  # [K, S, B + 1]
    pair_ptr: Tensor
    keys: Tensor  # [K, S]
    coin: Tensor


@dataclass(frozen=True, eq=False)
class _Plan:
    """An epoch before it is run.

    Attributes:
        steps: Size and mode of every step.
        arrays: What the schedule holds, in its order.
        coin: Whether each run's base encoder is stepped, ``[K, S]``.
    """

    steps: list[tuple[Size, str]]
    arrays: tuple[Tensor, ...]
    coin: np.ndarray

    def write(self, schedule: _Schedule) -> None:
        """Bring it to the device."""
        targets = (getattr(schedule, item.name) for item in fields(schedule))
        for target, value in zip(targets, self.arrays, strict=True):
            target.copy_(value, non_blocking=True)


class Engine:
    """The weights of some runs of one setting, and what trains them.

    Args:
        models: One a run, alike but for their weights.
        config: The settings; ``seed`` apart, those of all runs.
        seeds: Of the runs.
        data: All graphs, where to train.
        lane: Among the engines that run beside each other.
    """

    def __init__(
        self,
        models: Sequence[Method],
        config: Config,
        seeds: Sequence[int],
        data: PairData,
        lane: Lane | None = None,
    ) -> None:
        self.config, self.seeds, self.lane = config, tuple(seeds), lane or Lane()
        self.data, self.device = data, data.device
        device = self.device
        forget_peak_memory(device)  # that of training is of interest
        self.step = Step(config, data.wanted, data.search, self.lane)
        self.shapes = {name: p.shape for name, p in models[0].named_parameters()}
        self.places, width = _layout(self.shapes)
        runs = len(models)
        self.weights = torch.zeros(runs, width, device=device)
        self.first, self.second, self.grads = (torch.zeros_like(self.weights) for _ in range(3))
        self.counts = torch.zeros(runs, len(self.step.parts), device=device, dtype=torch.float64)
        kept = {name: b.shape for name, b in models[0].named_buffers() if "running" in name}
        places, number = _layout(kept)
        self.statistics = torch.zeros(runs, number, device=device)
        self.running = {
            name: self.statistics[:, start:end] for name, (start, end) in places.items()
        }
        self.part_of = torch.zeros(width, device=device, dtype=torch.int8)
        for name, (start, end) in self.places.items():
            self.part_of[start:end] = self.step.part(name)
        self.sizes = self._choose_sizes()
        self.peak = 0  # bytes of the device's memory, and what a step takes of them
        self.step_peak = 0
        self._plans: dict[int, _Plan] = {}
        for place, model in enumerate(models):
            self.load(place, model)
        self._graphs: dict[tuple[Size, str], Any] = {}
        self._pool: Any = None
        self._cursor = torch.zeros(1, dtype=torch.long, device=device)
        self._allocate()

    def _allocate(self) -> None:
        batches = self._batches(1)
        steps, runs = len(batches[0]), len(self.seeds)
        graphs = max(len(batch) for batch in batches[0])

        def empty(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        self._schedule = _Schedule(
            order=empty(steps, runs, graphs),
            ptr=empty(steps, runs, graphs + 1),
            pair_ptr=empty(steps, runs, graphs + 1),
            keys=empty(steps, runs, dtype=torch.long),
            coin=empty(steps, runs),
        )
        heads = len(self.config.heads)
        self._log = empty(steps, runs, 1 + heads + 2 + 2, dtype=torch.float64)
        self._found = self._log  # what is read of it, once an epoch is over

    # --- weights in and out ---------------------------------------------------------------

    def load(self, place: int, model: Method) -> None:
        """Take over a model's weights and running statistics."""
        with torch.no_grad():
            for name, p in model.named_parameters():
                self._own(self.weights, place, name).copy_(p)
            for name, buffer in model.named_buffers():
                if name in self.running:
                    self.running[name][place].copy_(buffer)

    def give(self, place: int, model: Method) -> None:
        """Hand a run's weights and running statistics to a model."""
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(self._own(self.weights, place, name))
            for name, buffer in model.named_buffers():
                if name in self.running:
                    buffer.copy_(self.running[name][place])

    def load_moments(self, place: int, state: dict[str, dict[str, Tensor]]) -> None:
        """Take over Adam's moments and step counts of a run, by weight."""
        self.first[place], self.second[place], self.counts[place] = 0, 0, 0
        for name, moments in state.items():
            self._own(self.first, place, name).copy_(moments["exp_avg"])
            self._own(self.second, place, name).copy_(moments["exp_avg_sq"])
            self.counts[place, self.step.part(name)] = float(moments["step"])

    def moments(self, place: int) -> dict[str, dict[str, Tensor]]:
        """Adam's moments and step counts of a run, by weight; none where none was made."""
        counts = self.counts[place].tolist()
        return {
            name: {
                "step": torch.tensor(counts[part]),
                "exp_avg": self._own(self.first, place, name).clone(),
                "exp_avg_sq": self._own(self.second, place, name).clone(),
            }
            for name in self.shapes
            if counts[part := self.step.part(name)]
        }

    def _own(self, flat: Tensor, place: int, name: str) -> Tensor:
        start, end = self.places[name]
        return flat[place, start:end].view(self.shapes[name])

    def snapshot(self) -> list[Tensor]:
        """A copy of everything that a later step depends on."""
        return [tensor.clone() for tensor in self._state()]

    def restore(self, snapshot: list[Tensor]) -> None:
        """Go back to a snapshot."""
        for tensor, value in zip(self._state(), snapshot, strict=True):
            tensor.copy_(value)

    def _state(self) -> list[Tensor]:
        return [self.weights, self.first, self.second, self.counts, self.statistics]

    # --- an epoch -------------------------------------------------------------------------

    def begin(self, number: int) -> int:
        """Get ready for an epoch; gives the number of its steps."""
        with self._in_lane():
            plan = self._plans.pop(number, None) or self._plan(number)
            self._prepare()
            plan.write(self._schedule)
            self._cursor.zero_()
        self._plans = {number: plan}
        return len(plan.steps)

    def take_step(self, number: int, place: int) -> None:
        """Launch one step of the epoch that was begun."""
        with self._in_lane():
            self._replay(*self._plans[number].steps[place])

    def close(self, number: int) -> None:
        """Launch what sums the epoch up, and plan the next one while the device is busy."""
        with self._in_lane():
            finite = self.weights.isfinite().all(1) & self.statistics.isfinite().all(1)
            self._found = torch.cat([self._log.flatten(), finite.double()])
        self._plans[number + 1] = self._plan(number + 1)

    def tallies(self, number: int) -> list[Tally]:
        """Wait for the end of the epoch, and look at what happened in it."""
        with self._in_lane():
            values = self._found.cpu()  # the epoch's one look at the device
        coin, runs = self._plans.pop(number).coin, len(self.seeds)
        log, kept = values[:-runs].view_as(self._log), values[-runs:].tolist()
        return [self._tally(log[:, run], coin[:, run], bool(kept[run])) for run in range(runs)]

    @contextmanager
    def _in_lane(self) -> Iterator[None]:
        """Launch on the lane's own stream, after what has been launched so far."""
        if self.device.type != "cuda":
            yield
            return
        with torch.cuda.device(self.device):
            stream = stream_beside(self.device, "lane", self.lane.place)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                yield

    def _batches(self, number: int) -> list[list[np.ndarray]]:
        """The graphs of every step, for every run."""
        graphs, size = len(self.data.num_nodes), self.config.batch_size
        return [epoch_batches(graphs, size, seed_from(seed, number, 1)) for seed in self.seeds]

    def _plan(self, number: int) -> _Plan:
        """What every run takes in every step of an epoch."""
        batches = self._batches(number)
        steps, runs = len(batches[0]), len(batches)
        most = max(len(graphs) for graphs in batches[0])
        order = np.zeros((steps, runs, most), np.int32)
        starts = np.zeros((2, steps, runs, most + 1), np.int32)
        for run, own in enumerate(batches):
            for k, graphs in enumerate(own):
                order[k, run, : len(graphs)] = graphs
                for which, sizes in enumerate((self.data.num_nodes, self.data.num_pairs)):
                    np.cumsum(sizes[graphs], out=starts[which, k, run, 1 : len(graphs) + 1])
        # A run's noise is fixed by its seed, the epoch and the step, whoever runs beside it.
        sources = [np.random.default_rng(seed_from(seed, number, "step")) for seed in self.seeds]
        keys = np.stack([source.integers(1 << 62, size=steps) for source in sources], axis=1)
        coin = np.stack([source.random(steps) < 0.5 for source in sources], axis=1)
        if self.config.method == "infograph":
            coin[:] = True
        modes = ["both" if runs > 1 else "base" if base else "augmentation" for base in coin[:, 0]]
        ends = [[starts[which, k, :, len(own[k])].max() for which in (0, 1)] for k in range(steps)]
        return _Plan(
            steps=[
                (self._size(len(own[k]), *map(int, ends[k])), mode) for k, mode in enumerate(modes)
            ],
            arrays=tuple(
                self._ready(value)
                for value in (order, starts[0], starts[1], keys, coin.astype(np.int32))
            ),
            coin=coin,
        )

    def _ready(self, array: np.ndarray) -> Tensor:
        """An array that can be copied to the device without waiting for it."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def _tally(self, log: Tensor, coin: np.ndarray, finite: bool) -> Tally:
        heads = len(self.config.heads)
        losses, p, edges, draw = torch.split(log, [1, heads, 2, 2], dim=1)
        draws = [[0] * heads for _ in range(heads)]
        for i, j in draw.long().tolist():
            draws[i][j] += 1
        number, total = edges.sum(0).tolist()
        return Tally(
            losses=losses.squeeze(1).tolist(),
            probabilities=p.mean(0).tolist(),
            draws=draws,
            base_steps=int(coin.sum()),
            mean_edge_weight=total / max(1.0, number),
            finite=finite,
        )

    # --- sizes ----------------------------------------------------------------------------

    def _choose_sizes(self) -> list[Size]:
        """The sizes that batches are padded to, by those of the first epochs."""
        found: dict[int, list[tuple[int, int]]] = {}
        for number in range(1, LOOK_AHEAD + 1):  # whatever `epochs` is: a resumed run pads alike
            for together in zip(*self._batches(number), strict=True):
                found.setdefault(len(together[0]), []).append(self._need(together))
        runs = len(self.seeds)
        return [size for graphs, needs in found.items() for size in _sizes(graphs, needs, runs)]

    def _need(self, together: Sequence[np.ndarray]) -> tuple[int, int]:
        """Nodes and pairs of the largest of some batches."""
        nodes = max(int(self.data.num_nodes[graphs].sum()) for graphs in together)
        return nodes, max(int(self.data.num_pairs[graphs].sum()) for graphs in together)

    def _size(self, graphs: int, nodes: int, pairs: int) -> Size:
        """The smallest size that holds a batch; one that nobody foresaw grows from the largest."""
        size = Size(graphs, NODES, PAIRS)
        for size in self.sizes:
            if size.graphs == graphs and size.nodes >= nodes and size.pairs >= pairs:
                return size
        size = max((s for s in self.sizes if s.graphs == graphs), key=_numbers, default=size)
        while size.nodes < nodes or size.pairs < pairs:
            more = (n + n // 8 for n in (size.nodes, size.pairs))
            size = _rounded(graphs, *(max(n, 1) for n in more))
        return size

    # --- a step ---------------------------------------------------------------------------

    def _replay(self, size: Size, mode: str) -> None:
        if self.device.type != "cuda":
            self._step(size, mode)
            return
        graph = self._graphs.get((size, mode))
        if graph is None:
            graph = self._graphs[size, mode] = self._capture(size, mode)
        graph.replay()

    def _prepare(self) -> None:
        """Capture the step in all sizes that were chosen, so that no later epoch has to.

        The schedule is still empty: batches without a graph fit any size.
        """
        if self.device.type != "cuda" or self._graphs:
            return
        modes = ["both"] if len(self.seeds) > 1 else ["base", "augmentation"]
        # The largest first: the others then find room in its memory.
        for size in sorted(self.sizes, key=_numbers, reverse=True):
            for mode in modes if self.config.method != "infograph" else modes[:1]:
                self._graphs[size, mode] = self._capture(size, mode)

    def _capture(self, size: Size, mode: str) -> Any:
        """Take the step once, for what it compiles and allocates, and then record it."""
        before, cursor = self.snapshot(), self._cursor.clone()
        held = torch.cuda.memory_allocated(self.device)
        forget_peak_memory(self.device)
        stream = stream_beside(self.device, "capture", self.lane.place)
        current = torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream), products_in(self.config.precision):
            self._step(size, mode)
        current.wait_stream(stream)
        self.restore(before)
        self._cursor.copy_(cursor)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with (
            products_in(self.config.precision),
            torch.cuda.graph(graph, pool=self._pool, stream=stream),
        ):
            self._step(size, mode)
        peak = torch.cuda.max_memory_allocated(self.device)
        self.peak, self.step_peak = max(self.peak, peak), max(self.step_peak, peak - held)
        return graph

    def _step(self, size: Size, mode: str) -> None:
        """Everything that is done in a step, without a look at any value."""
        now = _Schedule(
            *(
                getattr(self._schedule, name).index_select(0, self._cursor).squeeze(0)
                for name in ("order", "ptr", "pair_ptr", "keys", "coin")
            )
        )
        x, structure = self.data.batch(
            now.order[:, : size.graphs].contiguous(),
            now.ptr[:, : size.graphs + 1].contiguous(),
            now.pair_ptr[:, : size.graphs + 1].contiguous(),
            size.nodes,
            size.pairs,
        )
        weights = self._leaves(mode)
        result = self.step(weights, self.running, x, structure, now.keys, now.coin)
        self._collect(result.loss, weights)
        self._adam(result.stepped)
        row = torch.cat(
            [
                result.loss.detach().unsqueeze(1),
                result.probabilities,
                result.edges,
                result.draw,
            ],
            dim=1,
        )
        self._log.index_copy_(0, self._cursor, row.double().unsqueeze(0))
        self._cursor += 1

    def _leaves(self, mode: str) -> dict[str, Tensor]:
        """The weights by name; those of an encoder that rests need no gradient."""
        resting = {"base": "augmentation_encoder.", "augmentation": "base_encoder."}.get(mode)
        return {
            name: self.weights[:, start:end]
            .view(-1, *self.shapes[name])
            .detach()
            .requires_grad_(resting is None or not name.startswith(resting))
            for name, (start, end) in self.places.items()
        }

    def _collect(self, loss: Tensor, weights: dict[str, Tensor]) -> None:
        """Gradients of all weights, zero where there is none."""
        learned = [name for name, value in weights.items() if value.requires_grad]
        found: dict[str, Tensor | None] = {}
        if loss.requires_grad and learned:
            grads = torch.autograd.grad(
                loss.sum(), [weights[name] for name in learned], allow_unused=True
            )
            found = dict(zip(learned, grads, strict=True))
        runs = len(self.seeds)
        widest = max(end - start for start, end in self.places.values())
        zeros = loss.new_zeros(runs, max(ALIGNED, widest))  # also for the gaps between weights
        columns, done = [], 0
        for name, (start, end) in [*self.places.items(), ("", (self.grads.size(1),) * 2)]:
            if start > done:
                columns.append(zeros[:, : start - done])
            grad = found.get(name)
            columns.append(zeros[:, : end - start] if grad is None else grad.reshape(runs, -1))
            done = end
        columns = [column for column in columns if column.size(1)]
        assert sum(column.size(1) for column in columns) == self.grads.size(1)
        torch.cat(columns, dim=1, out=self.grads)

    def _adam(self, stepped: Tensor) -> None:
        config, width = self.config, self.weights.size(1)
        self.counts += stepped
        corrections = [(1 - beta**self.counts).float() for beta in BETAS]
        factor = self.grads.new_ones(len(self.seeds))
        if config.clip:
            taken = stepped.gather(1, self.part_of.long().expand(len(self.seeds), -1))
            norm = (self.grads * taken).square().sum(1).sqrt()
            factor = (config.clip / (norm + 1e-6)).clamp(max=1)
        block = 1024
        optimising.adam[(len(self.seeds), -(-width // block))](
            self.weights,
            self.grads,
            self.first,
            self.second,
            self.part_of,
            stepped,
            *corrections,
            factor,
            width,
            stepped.size(1),
            config.learning_rate,
            *BETAS,
            EPS,
            config.weight_decay,
            BLOCK=block,
        )


def run_epoch_beside(engines: Sequence[Engine], number: int) -> list[list[Tally]]:
    """Train the runs of all engines for one epoch, those of as many engines at a time as can be."""
    tallies = []
    lanes = engines[0].lane.of
    for first in range(0, len(engines), lanes):
        beside = engines[first : first + lanes]
        try:
            steps = {engine.begin(number) for engine in beside}
            for place in range(max(steps)):  # all have the same number
                for engine in beside:
                    engine.take_step(number, place)
            for engine in beside:
                engine.close(number)
            tallies += [engine.tallies(number) for engine in beside]
        except BaseException:
            # Nothing may be let go of that a lane is still reading.
            if beside[0].device.type == "cuda":
                torch.cuda.synchronize(beside[0].device)
            raise
    return tallies


def peak_of(engines: Sequence[Engine]) -> int:
    """Bytes that training takes; every engine's steps have memory of their own."""
    if len(engines) == 1:
        return engines[0].peak
    held = max(engine.peak - engine.step_peak for engine in engines)
    return held + sum(engine.step_peak for engine in engines)


def _layout(shapes: Mapping[str, torch.Size]) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each tensor lies in a flat row, and how long that is.

    Each starts at a whole multiple of 128 bytes: matrix products want it so.
    """
    places, end = {}, 0
    for name, shape in shapes.items():
        start = -(-end // ALIGNED) * ALIGNED
        end = start + shape.numel()
        places[name] = start, end
    return places, -(-end // ALIGNED) * ALIGNED


def _numbers(size: Size) -> int:
    return size.nodes + size.pairs


def _rounded(graphs: int, nodes: int, pairs: int) -> Size:
    return Size(graphs, -(-nodes // NODES) * NODES, max(1, -(-pairs // PAIRS)) * PAIRS)


def _sizes(graphs: int, needs: list[tuple[int, int]], runs: int) -> list[Size]:
    """Sizes for batches of so many graphs, smallest first."""
    every = np.array(needs)
    several = runs * every.sum(1).max() > SMALL and len(every) > LOOK_AHEAD  # not an epoch's last
    found = [
        _rounded(graphs, *map(int, np.quantile(every, quantile, axis=0, method="higher")))
        for quantile in (QUANTILES if several else QUANTILES[-1:])
    ]
    return list(dict.fromkeys(found))
