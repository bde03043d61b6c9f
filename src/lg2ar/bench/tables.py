"""Records of measurements as the tables of docs/performance.md."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from lg2ar.bench.cells import NOT_RUN, Record, number, of, ratio, table, with_spread
from lg2ar.bench.projection import POLICIES, SEEDS, project
from lg2ar.bench.targets import targets

ORDER = (
    "mutag",
    "proteins",
    "dd",
    "collab",
    "imdb-binary",
    "imdb-multi",
    "reddit-binary",
    "reddit-multi-5k",
)


class Bench:
    """The records of measurements, and the tables made of the last of each kind.

    Args:
        records: Of ``results/bench``, in the order they were made.
        before: The records of the cost table that were made before the fast path was there.
    """

    def __init__(self, records: Iterable[Record], before: Iterable[Record] = ()) -> None:
        self.records = list(records)
        self.before: dict[tuple[str, str], Mapping[str, float]] = {}
        for r in before:
            if not r["device"].startswith("cpu"):  # the first of each: later ones are not "before"
                key = (r["task"]["dataset"], r["task"]["method"])
                self.before.setdefault(key, r["cost"])

    def last(
        self, device: str, bench: Sequence[str], *, given: Callable[[Record], bool] = bool
    ) -> dict[tuple[str, str], Record]:
        """The last record of each data set and method, of a kind of device."""
        return {
            (r["dataset"], r["method"]): r
            for r in self.records
            if r["bench"] in bench and r["device"].startswith("cpu") == (device == "cpu")
            if given(r)
        }

    def gpu_steps(self) -> str:
        """Before and after, with the paper's settings, beside the targets."""
        found = self.last("cuda", ["step"], given=lambda r: r.get("shape") == "preset")
        goals = targets()["h200"]
        rows = []
        for name in ORDER:
            ours, control = found.get((name, "lg2ar")), found.get((name, "infograph"))
            old = self.before.get((name, "lg2ar"))
            rows.append(
                [
                    name,
                    number(_get(old, "seconds_per_epoch")),
                    of(ours, "seconds_per_epoch"),
                    number(goals["seconds"].get(name)),
                    of(ours, "step_ms"),
                    of(ours, "kernel_ms"),
                    ratio(_get(ours, "step_ms"), _get(ours, "kernel_ms")),
                    of(ours, "launches", "{:.0f}"),
                    ratio(_get(ours, "seconds_per_epoch"), _get(control, "seconds_per_epoch")),
                    number(None if old is None else old["peak_memory"] / 1e9),
                    of(ours, "peak_gb"),
                    of(ours, "reserved_gb"),
                    number(goals["peak_gb"].get(name)),
                ]
            )
        head = (
            "data set | before, s | after, s | target, s | step, ms | kernels, ms | step / kernels "
            "| launches | / InfoGraph | GB before | GB after | GB reserved | GB target"
        )
        return table(head, rows, found.values())

    def gpu_pygcl(self) -> str:
        """At PyGCL's shape, beside its numbers."""
        found = self.last("cuda", ["step", "epoch"], given=lambda r: r.get("shape") == "pygcl")
        theirs = targets()["pygcl"]["seconds"]
        rows = []
        for name in (name for name in ORDER if name in theirs):
            ours = found.get((name, "lg2ar"))
            seconds = _get(ours, "seconds_per_epoch")
            rows.append(
                [
                    name,
                    number(theirs[name]),
                    of(ours, "seconds_per_epoch"),
                    ratio(theirs[name], seconds),
                    of(ours, "peak_gb"),
                ]
            )
        head = "data set | PyGCL, s | LG2AR, s | times faster | GB"
        return table(head, rows, found.values())

    def cpu_steps(self) -> str:
        """LG2AR and PyG's own expressions of it on a processor, each with ours of the same run.

        PyG's multiply in float32 whatever ours do.
        """
        ours: dict[tuple[str, str], Record] = {}
        runs: dict[tuple[str, str], dict[str, Record]] = {}
        for r in self.records:
            if r["dataset"] not in ORDER:
                continue
            if r["bench"] == "step" and r["device"].startswith("cpu") and r["shape"] == "preset":
                key = r["dataset"], _plain_precision(r)
                if r["method"] == "lg2ar":
                    ours[key] = r
                elif r["method"].startswith("pyg") and key in ours:
                    beside = runs.setdefault(key, {})
                    beside |= {"lg2ar": ours[key], r["method"]: r}
        rows = []
        for key in sorted(runs, key=lambda key: (key[1] != "float32", ORDER.index(key[0]))):
            row = [*key, with_spread(runs[key]["lg2ar"])]
            for method in ("pyg", "pyg, graph by graph"):
                other = runs[key].get(method)
                seconds = _get(runs[key]["lg2ar"], "seconds_per_epoch")
                row += [with_spread(other), ratio(_get(other, "seconds_per_epoch"), seconds)]
            rows.append(row)
        head = "data set | precision | LG2AR, s | PyG, s | times | PyG graph by graph, s | times"
        return table(head, rows, [r for run in runs.values() for r in run.values()])

    def cpu_runs(self) -> str:
        """Whole runs on a processor."""
        found = self.last("cpu", ["epoch"], given=lambda r: "run_seconds" in r and _exact(r))
        goals = targets()["cpu"]["run_seconds"]
        names = dict.fromkeys([*goals, *(name for name, _ in found)])
        rows = []
        for name in names:
            ours = found.get((name, "lg2ar"))
            rows.append(
                [
                    name,
                    of(ours, "run_epochs", "{:.0f}"),
                    of(ours, "run_seconds"),
                    number(goals.get(name)),
                ]
            )
        return table("data set | epochs | seconds in all | target", rows, found.values())

    def growth(self, device: str) -> str:
        """Time of an epoch by nodes and edges, and the line through it."""
        found = self.last(device, ["growth"])
        points = [r for (name, _), r in found.items() if name.startswith("collection")]
        rows = [
            [
                f"{r['num_nodes'] + r['num_edges']:,}",
                f"{r['num_graphs']:,}",
                with_spread(r),
                number(1e6 * r["seconds_per_epoch"] / (r["num_nodes"] + r["num_edges"])),
            ]
            for r in sorted(points, key=lambda r: r["num_nodes"])
        ]
        text = table("nodes and edges | graphs | s an epoch | µs each", rows, points)
        return text + _line(found.get(("time by nodes and edges", "lg2ar")), "seconds")

    def memory(self, device: str) -> str:
        """Memory of a step by batch size, and the line through it."""
        found = self.last(device, ["growth"])
        points = [r for (name, _), r in found.items() if name.startswith("batches of")]
        rows = [
            [str(r["batch_size"]), number(r["working_gb"]), number(r["peak_gb"])]
            for r in sorted(points, key=lambda r: r["batch_size"])
        ]
        text = table("graphs in a batch | GB of a step | GB in all", rows, points)
        return text + _line(found.get(("memory by nodes and edges", "lg2ar")), "gigabytes")

    def nodes(self, device: str) -> str:
        """A step on graphs of growing size, and the embedding of all their nodes."""
        found = self.last(device, ["growth"])
        points = [r for (name, _), r in found.items() if name.startswith("graph of")]
        rows = [
            [
                f"{r['num_nodes']:,}",
                f"{r['num_edges'] // 2:,}",
                number(r["step_ms"]),
                number(r["working_gb"]),
                number(r["embed_seconds"]),
                number(r["embed_gb"]),
            ]
            for r in sorted(points, key=lambda r: r["num_nodes"])
        ]
        head = "nodes | edges | step, ms | GB of a step | all embedded, s | GB of that"
        return table(head, rows, points)

    def seeds(self) -> str:
        """Ten seeds together against one."""
        found = self.last("cuda", ["seeds"])
        goals = targets()["h200"]["seeds_ratio"]
        rows = []
        for name in ORDER:
            told = found.get((name, "lg2ar"))
            rows.append(
                [
                    name,
                    of(told, "seeds", "{:.0f}"),
                    of(told, "one_seconds"),
                    of(told, "many_seconds"),
                    of(told, "ratio", "{:.2f}"),
                    number(goals.get(name)),
                    of(told, "resting_difference", "{:.0e}"),
                    of(told, "largest_difference", "{:.0e}"),
                ]
            )
        head = (
            "data set | seeds | one, s an epoch | together | ratio | target | losses differ by, "
            "weights at rest | in training"
        )
        return table(head, rows, found.values())

    def seeds_profile(self) -> str:
        """Where the time of ten seeds together goes, beside three times that of one."""
        found = self.last("cuda", ["seeds"], given=lambda r: "kinds" in r and r["seeds"] == 10)
        goals = targets()["h200"]["seeds_ratio"]
        rows = []
        for name in sorted(ORDER, key=lambda name: goals[name]):  # those of three times first
            told = found.get((name, "lg2ar"))
            if told is None and goals[name] > 3:
                continue  # three times is asked of the small sets only
            kinds = None if told is None else told["kinds"]
            rows.append(
                [
                    name,
                    of(told, "one_step_ms"),
                    NOT_RUN if told is None else number(3 * told["one_step_ms"]),
                    of(told, "step_ms"),
                    of(kinds, "products"),
                    of(kinds, "recurrence"),
                    of(kinds, "aggregation"),
                    of(kinds, "rest"),
                ]
            )
        head = (
            "data set | one, ms a step | three times that | ten together, ms | products, ms "
            "| recurrence | aggregation | rest"
        )
        return table(head, rows, found.values())

    def coins(self) -> str:
        """Runs together, and what they would take if their coins always fell alike."""
        found = {
            (r["dataset"], r["seeds"]): r
            for r in self.records
            if r["bench"] == "coins" and not r["device"].startswith("cpu")
        }
        rows = []
        for name, runs in sorted(found, key=lambda key: (ORDER.index(key[0]), key[1])):
            told = found[name, runs]
            one, same = told["one_seconds"], list(told["same_coin_seconds"].values())
            alike = statistics.fmean(same) if same else None
            rows.append(
                [
                    name,
                    str(runs),
                    number(one),
                    number(told["many_seconds"]),
                    ratio(told["many_seconds"], one),
                    number(alike),
                    ratio(alike, one),
                ]
            )
        head = "data set | runs | one, s an epoch | together | ratio | coins alike | ratio"
        return table(head, rows, found.values())

    def lanes(self) -> str:
        """Several runs in stacks of different sizes, against one."""
        found = {
            (r["dataset"], r["seeds"], r["stack"]): r
            for r in self.records
            if r["bench"] == "lanes" and not r["device"].startswith("cpu")
        }
        rows = []
        for name, runs, stack in sorted(found, key=lambda k: (ORDER.index(k[0]), -k[1], -k[2])):
            told = found[name, runs, stack]
            rows.append(
                [
                    name,
                    str(runs),
                    str(stack),
                    number(told["one_seconds"]),
                    number(told["many_seconds"]),
                    f"{told['ratio']:.2f}",
                ]
            )
        head = "data set | runs | of a stack | one, s an epoch | together | ratio"
        return table(head, rows, found.values())

    def study(self, runs: Iterable[Record], processes: Sequence[int]) -> str:
        """What was run of the graph-level study, and what its runs took.

        Args:
            runs: The records of the table ``graph``.
            processes: How many shared the device, at most and at least.
        """
        own = [r for r in runs if _is_of_the_study(r)]
        rows, done, whole = [], 0, 0.0
        for name in ORDER:
            costs = [r["cost"] for r in own if r["task"]["dataset"] == name]
            if not costs:
                continue
            training = sum(cost["seconds"] for cost in costs)
            evaluation = sum(cost["evaluation_seconds"] for cost in costs)
            all_runs = POLICIES * SEEDS * (training + evaluation) / len(costs)
            cells = (training, evaluation, all_runs)
            rows.append([name, str(len(costs)), *(f"{seconds:.0f}" for seconds in cells)])
            done, whole = done + len(costs), whole + all_runs
        if not rows:
            return NOT_RUN
        head = "data set | runs | training, s | evaluation, s | 30 runs, s"
        rest = f"{done} of {POLICIES * SEEDS * len(ORDER)} runs"
        if len(rows) == len(ORDER):
            low, high = (f"{whole / 60 / count:.0f}" for count in processes)
            rest += (
                f"; all are {whole / 60:.0f} minutes of one process, {low} to {high} of "
                f"{processes[0]} or {processes[1]} side by side; the target is 30"
            )
        return table(head, rows, own) + f"\n\n{rest}."

    def projection(self, probes: Iterable[Record]) -> str:
        """The graph-level study from measured parts.

        Args:
            probes: The records of the probe benchmark.
        """
        found = {name: told for (name, _), told in self.last("cuda", ["seeds"]).items()}
        seconds = {
            (r["data"].partition(":")[0], bool(r["scale"])): r["seconds"]
            for r in probes
            if not r["device"].startswith("cpu")
        }
        steps = self.last("cuda", ["step"])
        epochs = {
            n: r["seconds_per_epoch"] for (n, method), r in steps.items() if method == "lg2ar"
        }
        parts = project(ORDER, found, seconds, epochs)
        rows = [
            [part.dataset, str(part.runs), f"{part.training:.0f}", f"{part.evaluation:.0f}"]
            for part in parts
        ]
        if len(parts) == len(ORDER):
            training = sum(part.training for part in parts)
            evaluation = sum(part.evaluation for part in parts)
            runs = sum(part.runs for part in parts)
            rows.append(["all", str(runs), f"{training:.0f}", f"{evaluation:.0f}"])
            total = f"\n\nIn all {(training + evaluation) / 60:.0f} minutes; the target is 30."
            alone = [part.dataset for part in parts if part.dataset not in found]
            if alone:
                total += f" Seeds one after the other: {', '.join(alone)}."
        else:
            total = "\n\nThe other sets were not measured yet."
        text = table("data set | runs | training, s | evaluation, s", rows, found.values())
        return text if text == f"*{NOT_RUN}*" else text + total

    def profile(self, device: str) -> str:
        """The largest kernels (or operations) of a step, data set by data set."""
        found = self.last(device, ["step"], given=lambda r: bool(r.get("top")) and _exact(r))
        rows = [
            [name, f"`{_shorter(kernel)}`", number(ms), f"{calls:.1f}"]
            for (name, method), told in found.items()
            for kernel, ms, calls in told["top"][:6]
            if method == "lg2ar"
        ]
        what = "kernel" if device == "cuda" else "operation"
        return table(f"data set | {what} | ms a step | calls a step", rows, found.values())


def _is_of_the_study(run: Record) -> bool:
    task = run["task"]
    if (task["method"], task["preset"]) != ("lg2ar", "findings") or "failed" in run:
        return False
    # The same runs may have been made once more, to be read in yet other ways.
    read_as = {reading["protocol"] for reading in run["evaluations"]}
    return {"strict", "paper"} <= read_as and not run["device"].startswith("cpu")


def _plain_precision(told: Record) -> str:
    """What the plain step multiplies in: it does not know tf32."""
    asked = told.get("config", {}).get("precision")
    return "bf16-mixed" if asked == "bf16-mixed" else "float32"


def _exact(told: Record) -> bool:
    """Whether nothing was rounded that need not be, so that tables have one precision each."""
    return _plain_precision(told) == "float32"


def _line(told: Record | None, unit: str) -> str:
    if told is None:
        return ""
    found = told["fit"]
    return (
        f"\n\nStraight line: {found['slope']:.3g} {unit} for each node or edge and "
        f"{found['intercept']:.3g} besides, R² = {found['r2']:.4f}; the point farthest from it is "
        f"{100 * found['largest_deviation']:.0f} % off."
    )


def _get(told: Record | None, key: str) -> float | None:
    return None if told is None else told[key]


def _shorter(kernel: str) -> str:
    """A kernel's name without its arguments and name spaces."""
    bare = kernel.split("(", 1)[0].removeprefix("void ").replace("|", "/")
    return bare if len(bare) <= 60 else f"{bare[:57]}..."
