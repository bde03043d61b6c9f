"""Write the tables of README and docs, and their charts, anew from the committed records.

    python docs/make_tables.py

Between a line ``<!-- NAME -->`` and the next ``<!-- end -->`` stands what NAME's function makes of
the records; the tests see to it that this is so, and that charts are what is made of them.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lg2ar.bench.huge_tables import Huge
from lg2ar.bench.scaling_chart import scaling_chart
from lg2ar.bench.scaling_tables import Scaling
from lg2ar.bench.tables import Bench
from lg2ar.benchmarks import hyperparameters, published_since
from lg2ar.config import Config
from lg2ar.data.benchmarks import find_benchmark
from lg2ar.demo import SETTINGS
from lg2ar.protocols import OLDER, OLDER_EPOCHS
from lg2ar.report.ablation import network_gains, part_gains
from lg2ar.report.cells import Cell, cells
from lg2ar.report.layouts import render
from lg2ar.report.questions import (
    by_epochs,
    findings,
    losses_by_epochs,
    policies,
    probe_scaling,
)
from lg2ar.report.rows import in_papers_order
from lg2ar.report.summary import (
    MARK,
    NONE,
    beside,
    brief,
    marked,
    nearest,
    noted,
    summary,
    with_few_labels,
)
from lg2ar.report.tables import read_records, variants_table
from lg2ar.shipping import read_encoder

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))
presets = importlib.import_module("presets")  # a script, as this one
# What README shows: the learned policy, with the paper's settings and with those of the findings.
LEARNED = ("gru", "gru, preset=findings")
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def demonstration() -> str:
    """The demonstration's settings alone, over seeds."""
    base = Config.make(SETTINGS).to_dict()
    records = read_records(ROOT / "results" / "toy-graphs.jsonl")
    # Through Config: a record written before a setting existed has what was done then.
    plain = [r for r in records if Config.stored(r["config"], seed=0).to_dict() == base]
    return variants_table(plain, base)


def variations() -> str:
    """All that was tried on the embedded graphs."""
    records = read_records(ROOT / "results" / "toy-graphs.jsonl")
    return variants_table(records, Config.make(SETTINGS).to_dict())


def study(table: str, layout: str) -> str:
    """A table of the study."""
    file = ROOT / "results" / f"{table}.jsonl"
    made = cells(read_records(file) if file.exists() else [], table)
    if layout == "lg2ar":
        return summary([cell for cell in made if cell.variant in LEARNED], table)
    return render(made, table, layout)


def in_brief(preset: str) -> str:
    """A line for each data set: the learned policy with the settings of a preset."""
    variant = "gru" if preset == "paper" else f"gru, preset={preset}"
    held = [cell for cell in learned() if cell.variant == variant]
    shown = ("paper", "paper-scaled", "strict")
    read_as = {cell.protocol for cell in held}
    return brief(held, [p for p in shown if read_as & {p, OLDER.get(p, p)}])


def learned() -> list[Cell]:
    """All cells of the learned policy, at both levels."""
    held: list[Cell] = []
    for table in ("graph", "node"):
        made = cells(read_records(ROOT / "results" / f"{table}.jsonl"), table)
        held += [cell for cell in made if (cell.variant or "").partition(",")[0] == "gru"]
    return held


def few_labels_beside() -> str:
    """A tenth of the labels: the learned policy beside others."""
    made = cells(read_records(ROOT / "results" / "semi.jsonl"), "semi")
    held = [cell for cell in made if (cell.variant or "").partition(",")[0] == "gru"]
    return with_few_labels(held, published_since(few_labels=True))


def search(file: str) -> str:
    """What a round of the search for settings of each data set found."""
    trials = read_records(ROOT / "results" / file)
    lines = [
        "| data set | trials | as in `findings`, best epoch | best | runs | its settings |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for name in in_papers_order(trial["dataset"] for trial in trials):
        every = [trial for trial in trials if trial["dataset"] == name]
        own = presets.comparable(every)
        older = find_benchmark(name).level == "node" and presets.probe_of(own[0]) == OLDER_EPOCHS
        before = Config.make(hyperparameters(name, "findings")).to_dict()
        # The first whose settings are the preset's.
        usual = next((t["value"] for t in own if not _changes(t["settings"], before)), None)
        best = presets.winner(name, "findings", every)
        changed = _changes({**best["settings"], "epochs": best["epochs"]}, before)
        told = NONE if usual is None else f"{usual:.1f}"
        lines.append(
            f"| {f'{name} {MARK}' if older else name} | {len(every)} | {told} "
            f"| {best['value']:.1f} | {len(best['seeds'])} "
            f"| {', '.join(f'{key} {value}' for key, value in changed.items()) or 'the same'} |"
        )
    return noted("\n".join(lines))


def _changes(settings: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    named = {"auto": ("given", "constant")}  # what `auto` comes to
    return {
        key: value
        for key, value in settings.items()
        if value != before[key] and value not in named.get(str(before[key]), ())
    }


def precisions() -> str:
    """What rounding in products does to accuracy."""
    names = {
        "tf32": "gru",
        "float32": "gru, preset=paper precision=float32",
        "bf16-mixed": "gru, preset=paper precision=bf16-mixed",
    }
    found: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for file in ("graph.jsonl", "precision.jsonl"):
        for cell in cells(read_records(ROOT / "results" / file), "graph"):
            for precision, variant in names.items():
                if (cell.method, cell.variant) == ("lg2ar", variant) and cell.runs:
                    key = (cell.dataset, str(cell.protocol), str(cell.selection))
                    found.setdefault(key, {})[precision] = cell
    lines = [
        f"| data set | protocol | runs | {' | '.join(names)} |",
        f"|---|---|---:|{'---:|' * len(names)}",
    ]
    for (dataset, protocol, _), every in found.items():
        runs = every["tf32"].runs if "tf32" in every else 0
        own = {name: cell for name, cell in every.items() if cell.runs == runs}  # the same seeds
        if len(own) < 2:
            continue
        values = [f"{own[n].mean:.1f} ± {own[n].std:.1f}" if n in own else NONE for n in names]
        lines.append(f"| {dataset} | `{protocol}` | {runs} | {' | '.join(values)} |")
    return "\n".join(lines)


def criteria() -> str:
    """How well criteria without labels pick settings."""
    file = ROOT / "results" / "criteria.jsonl"
    names = {"stability": "stability", "rank": "RankMe", "lidar": "LiDAR", "loss": "loss"}
    lines = [
        f"| data set | trials | accuracy of all | {' | '.join(names.values())} |",
        f"|---|---:|---:|{'---:|' * len(names)}",
    ]
    for line in read_records(file) if file.exists() else []:
        cells = [f"{line[key]['spearman']:+.2f}, picks {line[key]['picked']:.1f}" for key in names]
        span = f"{line['lowest']:.1f} to {line['highest']:.1f}"
        lines.append(
            f"| {line['data']['name']} | {line['trials']} | {span} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def found() -> str:
    """What the paper's open questions came to."""
    file = ROOT / "results" / "findings.jsonl"
    return findings(read_records(file) if file.exists() else [])


def scaling_of_the_probe(preset: str) -> str:
    """What standardising embeddings changes."""
    return probe_scaling(read_records(ROOT / "results" / "graph.jsonl"), preset)


def compared_policies() -> str:
    """What a learned policy gains on random draws."""
    files = [ROOT / "results" / f"{table}.jsonl" for table in ("graph", "node")]
    return policies([record for file in files for record in read_records(file)], "findings")


def few_labels() -> str:
    """What a probe with a tenth of the labels scores, held back as each criterion says."""
    first = read_records(ROOT / "results" / "few-labels.jsonl")[0]
    return _few(
        [*(f"by {name}" for name in first["chosen"]), *(f"C = {value:g}" for value in first["C"])],
        lambda record: [*record["chosen"].values(), *record["fixed"]],
    )


def few_label_kernels() -> str:
    """What kernels of several widths score with these labels, beside the regression."""
    first = read_records(ROOT / "results" / "few-labels.jsonl")[0]
    widths = [f"gamma {name}" for name in list(first["kernels"])[1:]]
    return _few(
        ["regression", "kernels together", *widths],
        lambda record: [record["chosen"]["squared error"], *record["kernels"].values()],
    )


def _few(columns: Sequence[str], values_of: Callable[[dict[str, Any]], list[float]]) -> str:
    records = read_records(ROOT / "results" / "few-labels.jsonl")
    heads = ["data set", "preset", "encoder", "readings", *columns]
    rows = [f"| {' | '.join(heads)} |", "|---|---|---|" + "---:|" * (len(heads) - 3)]
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for record in records:
        epochs = f"{record['epoch']} epochs" if record["epoch"] else "untrained"
        groups.setdefault((record["dataset"], f"`{record['preset']}`", epochs), []).append(record)
    order = in_papers_order({name for name, *_ in groups})
    for key in sorted(groups, key=lambda key: order.index(key[0])):
        own = groups[key]
        values = [fmean(column) for column in zip(*map(values_of, own), strict=True)]
        shown = [*key, str(len(own)), *(f"{value:.1f}" for value in values)]
        rows.append(f"| {' | '.join(shown)} |")
    return "\n".join(rows)


def encoders() -> str:
    """What is shipped, and what it scored."""
    names = [path.stem for path in (ROOT / "results" / "encoders").glob("*.safetensors")]
    head = "data set | trained on | seed | epochs | `strict` | untrained | `paper` | untrained | MB"
    rows = [f"| {head} |", "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name in in_papers_order(names):
        path = ROOT / "results" / "encoders" / f"{name}.safetensors"
        shipped = read_encoder(path)
        scores = [
            cell
            for claim in shipped.claims
            for cell in (
                marked(f"{fmean(claim.accuracy):.1f}", claim.protocol),
                f"{fmean(claim.untrained):.1f}",
            )
        ]
        about = [name, shipped.device, str(shipped.config.seed), str(shipped.epochs)]
        rows.append(f"| {' | '.join([*about, *scores, f'{path.stat().st_size / 1e6:.1f}'])} |")
    return noted("\n".join(rows))


def bench() -> Bench:
    """All measurements of time and memory, and what the cost table had before."""
    files = sorted((ROOT / "results" / "bench").glob("*.jsonl"))
    measured = [record for file in files for record in read_records(file)]
    return Bench(measured, read_records(ROOT / "results" / "cost-before.jsonl"))


# Presets whose runs are told epoch by epoch.
TRAINED_LONGER = ("findings", "grid", "long", "third")

TABLES: dict[str, Callable[[], str]] = {
    "toy-graphs": demonstration,
    "toy-graphs, all": variations,
    **{
        f"{table}, {layout}": lambda table=table, layout=layout: study(table, layout)  # type: ignore[misc]
        for table in ("graph", "node", "semi", "ablation", "cost")
        for layout in ("lg2ar", "summary", "md")
    },
    "results, brief": lambda: in_brief("findings"),
    **{
        f"results, {preset}": lambda preset=preset: in_brief(preset)  # type: ignore[misc]
        for preset in ("searched", "long", "third", "grid", "standardised", "long-standardised")
    },
    "results, printed": lambda: in_brief("paper"),
    "results, nearest": lambda: nearest(learned()),
    "results, few labels": few_labels_beside,
    "results, since": lambda: beside(learned(), published_since()),
    "findings, search": lambda: search("search.jsonl"),
    "findings, second round": lambda: search("search-long.jsonl"),
    "findings, third round": lambda: search("search-third.jsonl"),
    "tuning, criteria": criteria,
    "findings": found,
    "findings, probe": lambda: scaling_of_the_probe("paper"),
    "findings, probe of findings": lambda: scaling_of_the_probe("findings"),
    "findings, epochs": lambda: by_epochs(
        read_records(ROOT / "results" / "graph.jsonl"), TRAINED_LONGER
    ),
    "findings, losses": lambda: losses_by_epochs(
        read_records(ROOT / "results" / "graph.jsonl"), TRAINED_LONGER
    ),
    "findings, few labels": few_labels,
    "findings, few-label kernels": few_label_kernels,
    "findings, network": lambda: network_gains(
        read_records(ROOT / "results" / "graph.jsonl"),
        "strict",
        {"features": "findings", "degrees": "findings features=one-hot-degree"},
        "findings",
    ),
    **{
        f"findings, network at nodes, {protocol}": lambda protocol=protocol: network_gains(  # type: ignore[misc]
            read_records(ROOT / "results" / "node.jsonl"),
            protocol,
            {"features": "findings", "smoothed twice": "findings smoothing=2"},
            "searched",
        )
        for protocol in ("strict", "paper")
    },
    "findings, ablation": lambda: part_gains(
        read_records(ROOT / "results" / "ablation.jsonl"), "findings"
    ),
    "results, policies": compared_policies,
    "results, encoders": encoders,
    "bench, precision": precisions,
    "bench, gpu steps": lambda: bench().gpu_steps(),
    "bench, gpu pygcl": lambda: bench().gpu_pygcl(),
    "bench, seeds": lambda: bench().seeds(),
    "bench, seeds profile": lambda: bench().seeds_profile(),
    "bench, coins": lambda: bench().coins(),
    "bench, lanes": lambda: bench().lanes(),
    "bench, scaling": lambda: Scaling(bench().records).curve(),
    "bench, scaling parts": lambda: Scaling(bench().records).parts(),
    "bench, scaling bytes": lambda: Scaling(bench().records).exchanged(),
    "bench, scaling projection": lambda: Scaling(bench().records).projection(),
    "bench, projection": lambda: bench().projection(read_records(ROOT / "results/probes.jsonl")),
    "bench, cpu steps": lambda: bench().cpu_steps(),
    "bench, cpu runs": lambda: bench().cpu_runs(),
    "bench, huge": lambda: Huge(bench().records).steps(),
    "bench, huge memory": lambda: Huge(bench().records).memory(),
    "bench, study": lambda: bench().study(read_records(ROOT / "results/graph.jsonl"), (5, 3)),
    "bench, huge projection": lambda: Huge(bench().records).projection(),
    **{
        f"bench, {name} {what}": lambda make=make, device=device: make(bench(), device)  # type: ignore[misc]
        for name, device in (("gpu", "cuda"), ("cpu", "cpu"))
        for what, make in (
            ("profile", Bench.profile),
            ("growth", Bench.growth),
            ("memory", Bench.memory),
            ("nodes", Bench.nodes),
        )
    },
}

CHARTS: dict[Path, Callable[[], str]] = {
    ROOT / "results/bench/scaling-cpu.svg": lambda: scaling_chart(Scaling(bench().records).records),
}

MARKED = re.compile(
    rf"<!-- (?P<name>{'|'.join(map(re.escape, TABLES))}) -->\n.*?<!-- end -->", re.DOTALL
)


def filled(text: str) -> str:
    """A page with all its tables made anew."""
    return MARKED.sub(
        lambda found: f"<!-- {found['name']} -->\n{TABLES[found['name']]()}\n<!-- end -->", text
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
    for file, draw in CHARTS.items():
        file.write_text(draw())
