"""The tables of the open questions, from records made by hand."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from scipy.stats import t

from lg2ar.benchmarks import against_base, base_variant
from lg2ar.errors import InputError
from lg2ar.report.questions import (
    NONE,
    by_epochs,
    finding,
    findings,
    losses_by_epochs,
    policies,
    probe_scaling,
)
from lg2ar.report.summary import NOTE


def record(variant: str, seed: int, before: float, after: float, **more: Any) -> dict[str, Any]:
    """A run that was read before, amid and after training, two folds around each value."""

    def read(epoch: int, value: float) -> dict[str, Any]:
        accuracy = [value - 1, value + 1]
        return {"protocol": protocol, "epoch": epoch, "selection": None, "accuracy": accuracy}

    node = more.get("level") == "node"
    protocol = "strict-300" if node and more.get("table") is None else "strict"
    task = {
        "table": "findings",
        "dataset": "mutag",
        "level": "graph",
        "method": "lg2ar",
        "variant": variant,
        "preset": "paper",
        "seed": seed,
    }
    return {
        "task": task | more,
        "config": {"embedding_scale": "as-is"},
        "evaluations": [read(0, before), read(10, 99.0), read(20, after)],
    }


def test_runs_are_compared_seed_by_seed() -> None:
    base = [record("gru", seed, 80.0, 82.0 + seed) for seed in range(4)]
    gains = [1.0, 2.0, 4.0]  # of seeds 1 to 3; seed 0 was not run
    other = [
        record("readout=mean", seed, 70.0, 82.0 + seed + gain)
        for seed, gain in enumerate(gains, start=1)
    ]
    half = t.ppf(0.975, 2) * statistics.stdev(gains) / 3**0.5
    table = finding(base + other, "read-out").splitlines()
    assert table[0] == "| readout | mutag |"
    assert table[2] == "| as in the base | 83.5 (untrained 80.0, 4 runs) |"
    assert table[3] == f"| `mean` | 86.3 (untrained 70.0, 3 runs); +2.3 ± {half:.1f} |"
    assert table[4] == "| `log-sum` | - |"


def test_runs_of_other_settings_are_no_answers() -> None:
    own = [
        record(variant, seed, 80.0, 82.0) for variant in ("gru", "readout=mean") for seed in (0, 1)
    ]
    table = finding(own, "read-out")
    other = [record("readout=mean", seed, 50.0, 55.0, preset="paper epochs=1") for seed in (1, 2)]
    assert finding([*own, *other], "read-out") == finding([*other, *own], "read-out") == table
    for part in ("config", "data"):
        strange = {**own[3], part: {"hidden": 16}}
        with pytest.raises(InputError, match=rf"record 4: {part}\.hidden = 16, where record 3"):
            finding([*own[:2], {**own[2], part: {"hidden": 8}}, strange], "read-out")


def test_only_what_was_run_is_told() -> None:
    assert findings([]) == "*not run yet*"
    some = [record("gru", 0, 80.0, 82.0), record("contrast=global-global", 0, 80.0, 81.0)]
    text = findings([*some, record("readout=mean", 0, 1.0, 2.0, table="graph")])
    assert "### Contrast (D3)" in text
    assert "### Read-out" not in text
    assert "81.0 (untrained 80.0, 1 run); -1.0 |" in text


def test_at_node_level_answers_change_settings_under_which_something_is_learned() -> None:
    where = {"dataset": "cora", "level": "node"}
    base, changed = base_variant("node"), against_base("hops=1", "node")
    assert "+hops=1+" in changed
    assert "hops=3" not in changed
    runs = [
        record(base, 0, 60.0, 80.0, **where),
        record(changed, 0, 60.0, 79.0, **where),
        record("gru", 0, 60.0, 40.0, **where),
    ]
    assert finding(runs, "hops").splitlines()[2:4] == [
        "| as in the base | 80.0 (untrained 60.0, 1 run) |",
        "| `1` | 79.0 (untrained 60.0, 1 run); -1.0 |",
    ]
    assert "| as in the paper's preset | 40.0 (untrained 60.0, 1 run); -40.0 |" in findings(runs)


def test_a_decision_stands_under_its_table() -> None:
    text = findings([record("gru", 0, 80.0, 82.0), record("contrast=global-global", 0, 80.0, 81.0)])
    table, decision = text.split("\n\n")[-2:]
    assert table.endswith("-1.0 |")
    assert decision.startswith("**Decision.** ")


def test_the_probes_scaling_is_read_after_the_last_epoch() -> None:
    def scored(seed: int, **values: float) -> dict[str, Any]:
        read = [
            {"protocol": name, "epoch": epoch, "selection": None, "accuracy": [value]}
            for name in ("paper", "strict")
            for epoch, value in ((0, values[name] - 5), (10, 99.0), (20, values[name]))
        ]
        return {**record("gru", seed, 0, 0, table="graph"), "evaluations": read}

    assert probe_scaling([record("gru", 0, 1.0, 2.0)]) == "*not run yet*"
    runs = [scored(0, paper=70, strict=72), scored(1, paper=72, strict=76)]
    strange = scored(1, paper=20, strict=20)
    strange["task"]["preset"] = "wide"
    found = probe_scaling([*runs, strange])
    half = t.ppf(0.975, 1) * statistics.stdev([2, 4]) / 2**0.5
    assert found.splitlines()[2] == (
        f"| mutag | 2 | 66.0 | 69.0; +3.0 ± {half:.1f} | 71.0 | 74.0; +3.0 ± {half:.1f} |"
    )


def test_scores_by_epochs_are_means_of_one_preset_and_gains_are_paired() -> None:
    def trained(seed: int, preset: str, *values: float) -> dict[str, Any]:
        read = [
            {"protocol": name, "epoch": epoch, "selection": None, "accuracy": [value + shift]}
            for name, shift in (("paper-scaled", 0.0), ("paper", 30.0), ("strict", 30.0))
            for epoch, value in zip((0, 10, 20), values, strict=False)
        ]
        made = {**record("gru", seed, 0, 0, table="graph"), "evaluations": read}
        made["task"] = {**made["task"], "preset": preset}
        return made

    runs = [trained(10, "grid", 60, 61, 66), trained(11, "grid", 62, 61, 64)]
    other = trained(10, "long", 50, 51)
    told = by_epochs([other, *runs], ["grid", "long"]).splitlines()[2:]
    half = t.ppf(0.975, 1) * statistics.stdev([6, 2]) / 2**0.5
    none = " | \N{EN DASH}" * 4
    assert told[0] == f"| mutag | `grid` | 2 | 61.0 | 61.0 | 65.0{none} | +4.0 ± {half:.1f} |"
    assert told[1] == f"| mutag | `long` | 1 | 50.0 | 51.0 | \N{EN DASH}{none} | +1.0 |"
    assert by_epochs([other], ["grid"]) == "*not run yet*"


def test_losses_by_epochs_are_means_of_runs_with_one_bound() -> None:
    def trained(seed: int, *losses: float, bound: str = "jsd", preset: str = "grid") -> Any:
        made = record("gru", seed, 0, 0, table="graph", preset=preset)
        return {**made, "losses": list(losses), "config": {**made["config"], "bound": bound}}

    runs = [trained(10, *[5.0] * 9, 3.0, 0.0), trained(11, *[4.0] * 9, 2.5, 0.0)]
    others = [trained(12, *[9.0] * 20, bound="nt-xent", preset="long")]
    told = losses_by_epochs([*runs, *others], ["long", "grid"]).splitlines()[2:]
    assert told == [f"| mutag | `grid` | 2 | 2.75{f' | {NONE}' * 5} |"]
    assert losses_by_epochs(others, ["long", "grid"]) == "*not run yet*"
    strange = trained(11, 1.0)
    strange["config"]["embedding_scale"] = "unit"
    with pytest.raises(InputError, match="different settings"):
        losses_by_epochs([runs[0], strange], ["grid"])


def test_a_question_has_a_name() -> None:
    with pytest.raises(KeyError):
        finding([], "colour")


def of_table(variant: str, seed: int, after: float, **more: Any) -> dict[str, Any]:
    task = {"table": "graph", "preset": "wide", **more}
    return record(variant, seed, 50.0, after, **task)


def as_before(record: dict[str, Any]) -> dict[str, Any]:
    """The same run, read as it was when the layer was trained for 300 epochs."""
    read = [{**e, "protocol": f"{e['protocol']}-300"} for e in record["evaluations"]]
    return {**record, "evaluations": read}


def test_answers_at_node_level_are_not_mixed_with_what_a_longer_layer_reads() -> None:
    where = {"dataset": "cora", "level": "node"}
    base, changed = base_variant("node"), against_base("hops=1", "node")
    runs = [record(base, 0, 60.0, 80.0, **where), record(changed, 0, 60.0, 79.0, **where)]
    table = finding(runs, "hops")
    assert "79.0" in table
    longer = record(changed, 1, 60.0, 99.0, **where)
    for evaluation in longer["evaluations"]:
        evaluation["protocol"] = "strict"
    assert finding([*runs, longer], "hops") == table


def test_policies_of_a_data_set_are_all_read_alike() -> None:
    node = {"dataset": "cora", "level": "node", "table": "node"}
    older = [
        as_before(of_table(policy, seed, value, **node))
        for policy, value in (("gru", 80.0), ("random", 79.0))
        for seed in range(2)
    ]
    longer = [of_table("gru", seed, 90.0, **node) for seed in range(2)]
    marked = f"| cora (300) | 2 | 80.0 | {NONE} | 79.0 | +1.00 ± 0.00 |"
    for runs in (older, [*older, *longer], [*longer, *older]):
        told = policies(runs, "wide")
        assert told.splitlines()[2] == marked
        assert told.endswith(NOTE)
    both = [*older, *longer, *(of_table("random", seed, 88.0, **node) for seed in range(2))]
    told = policies(both, "wide")
    assert told.splitlines()[2] == f"| cora | 2 | 90.0 | {NONE} | 88.0 | +2.00 ± 0.00 |"
    assert NOTE not in told


def test_policies_are_compared_seed_by_seed_and_in_the_mean() -> None:
    runs = [
        *(of_table("gru", seed, value) for seed, value in enumerate([70.0, 72.0, 77.0, 90.0])),
        *(of_table("random", seed, value) for seed, value in enumerate([69.0, 70.0, 74.0])),
        *(of_table("deepset", seed, 71.0) for seed in range(3)),
        *(of_table("gru", seed, 60.0, dataset="mine") for seed in range(2)),
        *(of_table("random", seed, 62.0, dataset="mine") for seed in range(2)),
        of_table("gru", 0, 80.0, dataset="cora", level="node", table="node"),
        of_table("gru", 0, 99.0, preset="paper"),  # of other settings
        of_table("gru", 9, 99.0, method="infograph"),
    ]
    lines = policies(runs, "wide").splitlines()[2:]
    half = t.ppf(0.975, 2) * 1.0 / 3**0.5
    assert lines == [
        f"| mutag | 3 | 73.0 | 71.0 | 71.0 | +2.00 ± {half:.2f} |",
        f"| cora | 1 | 80.0 | {NONE} | {NONE} | {NONE} |",
        f"| mine | 2 | 60.0 | {NONE} | 62.0 | -2.00 ± 0.00 |",
        # Of 73 and 71, and of 60 and 62: the runs that both have.
        "| mean | | 66.50 | | 66.50 | +0.00 |",
    ]
    assert policies(runs, "narrow") == "*not run yet*"
