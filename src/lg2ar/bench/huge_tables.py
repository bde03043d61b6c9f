"""The tables of very large graphs, from the records of ``lg2ar bench huge``."""

from __future__ import annotations

from collections.abc import Iterable

from lg2ar.bench.cells import NONE, NOT_RUN, Record, number, of, table


class Huge:
    """The last record of each graph and kind of work, on a processor.

    Args:
        records: Of ``results/bench``, in the order they were made.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = {
            (r["dataset"], r["method"]): r
            for r in records
            if r["bench"] == "huge" and r["device"].startswith("cpu")
        }

    def steps(self) -> str:
        """Steps on graphs that stay on a disk, and embeddings of a part and of the whole."""
        rows = []
        for r, made, whole in self._by_size():
            steps = r["spread"]["seconds_per_epoch"]
            rows.append(
                [
                    f"{r['num_nodes']:,}",
                    f"{r['num_edges'] // 2:,}",
                    of(made, "disk_gb"),
                    of(made, "seconds"),
                    f"{number(r['step_ms'])} ({number(1e3 * steps['min'])} to "
                    f"{number(1e3 * steps['max'])})",
                    number(r["step_cpu_ms"]),
                    number(r["part_seconds"]),
                    of(whole, "seconds"),
                ]
            )
        parts = sorted({r["part"] for r, _, _ in self._by_size()})
        head = (
            "nodes | edges | GB on disk | made, s | step, ms | of the processor, ms | "
            f"{' or '.join(map(str, parts))} nodes embedded, s | all nodes, s"
        )
        return table(head, rows, self.records.values())

    def memory(self) -> str:
        """Memory of the same, with the pages that are mapped from files and without."""
        rows = [
            [
                f"{r['num_nodes']:,}",
                _both(made, ""),
                _both(r, "train_"),
                _both(r, "part_"),
                _both(whole, ""),
            ]
            for r, made, whole in self._by_size()
        ]
        text = table(
            "nodes | making it | steps | a part embedded | all nodes", rows, self.records.values()
        )
        if not rows:
            return text
        text += "\n\nGigabytes at most, and in brackets without pages of mapped files."
        limits = [r["limit_gb"] for r in self.records.values() if r["limit_gb"] is not None]
        if len(limits) == len(self.records):
            text += (
                f" All of it ran with at most {max(limits):.0f} GB of its own memory allowed "
                "(`ulimit -d`)."
            )
        return text

    def projection(self) -> str:
        """What the whole takes, from what was measured."""
        rows, before = [], None
        for r, _, whole in self._by_size():
            steps = -(-r["num_nodes"] // r["batch_size"])
            projected = None
            if before is not None:
                share = (r["num_nodes"] + r["num_edges"]) / before[0]
                projected = share * before[1]
            rows.append(
                [
                    f"{r['num_nodes']:,}",
                    f"{steps:,}",
                    number(steps * r["step_ms"] / 3.6e6),
                    number(steps * r["step_cpu_ms"] / 3.6e6),
                    NONE if projected is None else number(projected),
                    of(whole, "cpu_seconds"),
                    of(whole, "seconds"),
                ]
            )
            if whole is not None:
                before = (r["num_nodes"] + r["num_edges"], whole["cpu_seconds"])
        head = (
            "nodes | steps for as many draws | hours for them | of the processor, hours | all "
            "embedded, of the processor, s, projected | measured | by the clock, s"
        )
        return table(head, rows, self.records.values())

    def _by_size(self) -> list[tuple[Record, Record | None, Record | None]]:
        """Of each large graph the steps, how it was made, and how all its nodes were embedded."""
        steps = [r for (_, method), r in self.records.items() if method == "lg2ar"]
        return [
            (
                r,
                self.records.get((r["dataset"], "made")),
                self.records.get((r["dataset"], "all nodes")),
            )
            for r in sorted(steps, key=lambda r: r["num_nodes"])
        ]


def _both(told: Record | None, what: str) -> str:
    if told is None:
        return NOT_RUN
    return f"{number(told[f'{what}resident_gb'])} ({number(told[f'{what}own_gb'])})"
