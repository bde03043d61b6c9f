"""The measurement of weak scaling, and what docs/scaling.md makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from commands import Command
from launches import run
from lg2ar.bench.lines import line
from lg2ar.bench.scaling import policy_microseconds, work
from lg2ar.bench.scaling_chart import scaling_chart
from lg2ar.bench.scaling_tables import BANDWIDTH, LATENCY, Parts, Scaling, carried, half_at

SMALL = {"hidden": 8, "layers": 2}


@pytest.fixture(scope="module")
def one() -> dict[str, Any]:
    """The record of one process, measured here."""
    made = work({"changes": SMALL, "repeat": 2, "warmup": 1})
    assert made is not None
    return made


def test_one_process_exchanges_nothing(one: dict[str, Any]) -> None:
    assert one["processes"] == 1
    assert one["steps"] == 4  # 512 graphs in batches of 128
    assert one["exchanges"] == one["bytes"] == {}
    assert one["cpu_ms"] > 0
    assert set(one["policy_us"]) == {"gru", "deepset", "random"}
    assert "ms of processor a step, 0 exchanges" in line(one)


def test_two_processes_are_measured_by_the_command(tmp_path: Path) -> None:
    pytest.importorskip("lightning_fabric", reason="needs pip install 'lg2ar[fabric]'")
    out = tmp_path / "scaling.jsonl"
    words = ["bench", "scaling", "--processes=2", "--repeat=1", f"--out={out}"]
    ended = run("-m", "lg2ar", *words, "--set=hidden=8", "--set=layers=2")
    assert ended.code == 0, ended.err
    told = json.loads(out.read_text())
    assert (told["processes"], told["batch_size"], told["num_graphs"]) == (2, 256, 1024)
    assert told["exchanges"]["draws"] == 2
    assert told["exchanges"]["gradients"] == 1
    assert told["bytes"]["graphs"] == 3 * 4 * 128 * 8
    assert "2 processes" in ended.out


def test_numbers_of_processes_are_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(monkeypatch, capsys)
    assert "--processes two" in command.refused("bench", "scaling", "--processes", "1,two")
    assert "--processes 0" in command.refused("bench", "scaling", "--processes", "0")


def test_tables_tell_what_was_not_measured() -> None:
    nothing = Scaling([])
    for table in (nothing.curve(), nothing.parts(), nothing.projection()):
        assert "not run yet" in table
    assert "hidden 512" in nothing.exchanged()  # arithmetic alone


def test_the_projection_is_the_arithmetic_that_the_page_tells(one: dict[str, Any]) -> None:
    two = {**one, "processes": 2, "exchanges": {"graphs": 3.0, "counts": 7.0}}
    scaling = Scaling([one, two])
    parts = Parts(own=1e-3, all=1e-4)
    assert scaling.step_seconds(parts, 1) == pytest.approx(128 * 1.1e-3)
    apart = scaling.step_seconds(parts, 4) - 128 * (1e-3 + 4e-4)
    assert apart > 10 * LATENCY
    assert "`deepset`, graphs with graphs | 512" in scaling.projection()
    assert scaling.split("deepset", nodes=False).all < scaling.split("gru").all
    assert "of ideal" in scaling.curve()
    assert "`gru`" in scaling.parts()


def test_half_of_ideal_is_where_a_step_takes_twice_the_time(one: dict[str, Any]) -> None:
    parts = Parts(own=6e-3, all=1e-3)
    scaling = Scaling([one])
    share = one["batch_size"]
    assert half_at(parts) == 8
    work = share * (parts.own + half_at(parts) * parts.all)  # exchanges apart
    assert work == pytest.approx(2 * scaling.step_seconds(parts, 1))


def test_the_curve_is_drawn(one: dict[str, Any]) -> None:
    slower = {**one, "processes": 4, "cpu_ms": 2 * one["cpu_ms"]}
    slower["seconds_per_epoch"] = 4 * one["seconds_per_epoch"]
    drawn = ElementTree.fromstring(scaling_chart({1: one, 4: slower}))
    tips = [part.text for part in drawn.iter() if part.tag.endswith("title")]
    assert tips == [
        "1 processes: 100 %", "4 processes: 50 %", "1 processes: 100 %", "4 processes: 25 %",
    ]  # fmt: skip
    heights = [
        float(part.get("cy", 0)) for part in drawn.iter() if part.get("class") == "clock"
        and part.tag.endswith("circle")
    ]  # fmt: skip
    assert heights[0] < heights[1]  # a smaller share is lower


def test_rings_pass_gathers_once_and_sums_twice() -> None:
    spent = {"graphs": 10.0, "normalisation": 5.0, "gradients": 100.0}
    assert carried(spent, 4) == 3 * 15 + 2 * 3 / 4 * 100
    assert BANDWIDTH == 1.25e9


def test_the_policy_that_reads_one_by_one_costs_more() -> None:
    spent = policy_microseconds(16, graphs=256)
    assert spent["gru"] > spent["random"]
