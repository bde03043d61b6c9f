"""The tables of docs/scaling.md, from the records of ``lg2ar bench scaling``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lg2ar.bench.cells import NOT_RUN, Record, number, table, with_spread
from lg2ar.bench.scaling import step_bytes
from lg2ar.config import Config

# What is assumed of a network between machines, not measured here.
LATENCY, BANDWIDTH = 1e-4, 10e9 / 8  # seconds an exchange, bytes a second: 10 Gbit/s
GRAPHS = 100_000_000

# Settings whose exchanges are listed: in words, settings, features, processes.
LISTED: tuple[tuple[str, dict[str, Any], int, int], ...] = (
    ("hidden 128, 3 layers, 128 graphs a process", {"hidden": 128, "batch_size": 256}, 8, 2),
    ("the same", {"hidden": 128, "batch_size": 1024}, 8, 8),
    ("the same", {"hidden": 128, "batch_size": 8192}, 8, 64),
    ("hidden 512, 5 layers", {"hidden": 512, "layers": 5, "batch_size": 8192}, 64, 64),
)


@dataclass(frozen=True)
class Parts:
    """Seconds of processor time for a graph of a batch.

    Attributes:
        own: Spent by the process that has the graph.
        all: Spent by every process: policy, noise, and the scores of its nodes with this graph.
    """

    own: float
    all: float


class Scaling:
    """The last record of each number of processes.

    Args:
        records: Of ``results/bench``, in the order they were made.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        found = {r["processes"]: r for r in records if r["bench"] == "scaling"}
        self.records = dict(sorted(found.items()))

    def curve(self) -> str:
        """Time, processor time and exchanges by number of processes."""
        one = self.records.get(1)
        rows = []
        for processes, r in self.records.items():
            ideal = 1.0 if one is None else one["seconds_per_epoch"] / r["seconds_per_epoch"]
            work = 1.0 if one is None else one["cpu_ms"] / r["cpu_ms"]
            rows.append(
                [
                    str(processes),
                    str(r["batch_size"]),
                    with_spread(r),
                    f"{100 * ideal:.0f} %",
                    number(r["cpu_ms"]),
                    f"{100 * work:.0f} %",
                    f"{sum(r['exchanges'].values()):.0f}",
                    f"{sum(r['bytes'].values()) / 1e3:,.0f}",
                    number(sum(r["waiting_ms"].values())),
                ]
            )
        head = (
            "processes | graphs in a batch | s an epoch | of ideal | processor, ms a step and "
            "process | of ideal | exchanges a step | kB given | ms waited"
        )
        text = table(head, rows, self.records.values())
        if not rows:
            return text
        cores = {r["cores"] for r in self.records.values()}
        loads = [r["load"] for r in self.records.values()]
        return (
            f"{text}\n\nThe machine has {' or '.join(map(str, sorted(cores)))} cores, and the load "
            f"average at the end of each was {min(loads):.1f} to {max(loads):.1f}."
        )

    def parts(self) -> str:
        """What the projection is made of."""
        r = self.records.get(1)
        if r is None:
            return f"*{NOT_RUN}*"
        rows = [
            ["a graph in the process that has it, what follows apart", _us(self.split("gru").own)],
            *(
                [f"a graph in the policy `{name}`, in every process", _us(seconds / 1e6)]
                for name, seconds in r["policy_us"].items()
            ),
            ["a graph's noise, in every process", _us(noise(r))],
            [
                f"a graph's scores with the nodes of {r['batch_size']}, in every process",
                _us(scores(r)),
            ],
        ]
        return table("processor time of | µs", rows, [r])

    def exchanged(self) -> str:
        """Bytes that a process gives into the exchanges of a step, for some settings."""
        rows = []
        for words, changes, features, processes in LISTED:
            spent = step_bytes(Config.make(changes), features, processes)
            total = sum(spent.values())
            rows.append(
                [
                    words,
                    str(processes),
                    *(f"{count / 1e3:,.0f}" for count in spent.values()),
                    f"{total / 1e6:.2f}",
                    number(1e3 * carried(spent, processes) / BANDWIDTH),
                ]
            )
        kinds = " | ".join(f"{kind}, kB" for kind in spent)
        names = f"settings | processes | {kinds} | in all, MB | ms at 10 Gbit/s"
        lines = [f"| {names} |", "|---|" + "---:|" * (names.count("|"))]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])

    def projection(self) -> str:
        """An epoch of a hundred million such graphs."""
        r = self.records.get(1)
        if r is None:
            return f"*{NOT_RUN}*"
        rows = []
        for policy, nodes in (("gru", True), ("deepset", True), ("deepset", False)):
            parts = self.split(policy, nodes=nodes)
            for processes in (1, 8, 64, 512):
                seconds = self.step_seconds(parts, processes)
                hours = seconds * GRAPHS / (processes * r["batch_size"]) / 3600
                ideal = self.step_seconds(parts, 1) / seconds
                half = f"{half_at(parts):.0f}"
                rows.append(
                    [
                        f"`{policy}`, {'nodes' if nodes else 'graphs'} with graphs",
                        str(processes),
                        number(seconds),
                        number(hours),
                        f"{100 * ideal:.0f} %",
                        half,
                        number(parts.all * GRAPHS / 3600),
                    ]
                )
        head = (
            "policy and contrast | processes | s a step | hours an epoch | of ideal | half of "
            "ideal at so many processes | hours at least"
        )
        return table(head, rows, [r]).replace("Measured on", "From parts measured on", 1)

    def split(self, policy: str, *, nodes: bool = True) -> Parts:
        """Seconds for a graph, in its own process and in every one.

        Args:
            policy: Which one.
            nodes: Whether nodes are scored with graphs, or graphs with graphs, which are fewer.
        """
        r = self.records[1]
        measured = r["policy_us"][r["config"]["policy"]] / 1e6 + noise(r) + scores(r)
        fewer = 1.0 if nodes else r["num_graphs"] / r["num_nodes"]
        each = r["policy_us"][policy] / 1e6 + noise(r) + fewer * scores(r)
        return Parts(own=r["cpu_ms"] / 1e3 / r["batch_size"] - measured, all=each)

    def step_seconds(self, parts: Parts, processes: int) -> float:
        """A step of a batch with as many graphs a process as was measured."""
        r = self.records[1]
        share = r["batch_size"]
        seconds: float = share * (parts.own + processes * parts.all)
        if processes == 1:
            return seconds
        config = Config.stored(r["config"], batch_size=share * processes)
        spent = step_bytes(config, 8, processes)
        several = next((r for number, r in self.records.items() if number > 1), None)
        calls = sum(several["exchanges"].values()) if several else 0
        return seconds + float(calls * LATENCY + carried(spent, processes) / BANDWIDTH)


def half_at(parts: Parts) -> float:
    """The number of processes at which a step takes twice as long as that of one alone."""
    return parts.own / parts.all + 2


def noise(r: Record) -> float:
    """Seconds for the noise of a graph: the mean over heads, two of which are drawn a step."""
    nodes, edges = r["num_nodes"] / r["num_graphs"], r["num_edges"] / r["num_graphs"]
    drawn = {
        "node-dropping": nodes,
        "sub-graph": nodes,
        "edge-perturbation": 5 * edges + 1,
        "feature-masking": 2 * nodes * 8,
    }
    heads = r["config"]["heads"]
    mean = sum(drawn.get(head, 0.0) for head in heads) / len(heads)
    return float(2 * mean * r["noise_ns"] / 1e9)


def scores(r: Record) -> float:
    """Seconds for the scores of one graph with all nodes of a process, in both directions."""
    nodes = r["num_nodes"] / r["num_graphs"] * r["batch_size"] / r["processes"]
    return float(2 * nodes * r["score_ns"] / 1e9)


def carried(spent: Mapping[str, float], processes: int) -> float:
    """Bytes that leave a process where rings pass them on: a gather once, a sum twice round."""
    gathered = sum(spent[kind] for kind in ("graphs", "normalisation"))
    summed = sum(spent.values()) - gathered
    return (processes - 1) * gathered + 2 * (processes - 1) / processes * summed


def _us(seconds: float) -> str:
    return number(1e6 * seconds)
