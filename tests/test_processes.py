"""The command line in several processes: started by itself, by torchrun, by SLURM."""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import lg2ar
from commands import Command
from launches import Ended, finish, run, start
from lg2ar.config import Config
from lg2ar.data.toy import toy_graphs
from lg2ar.errors import InputError
from lg2ar.model import build
from lg2ar.processes import ROWS, multiply_in_bfloat16
from lg2ar.runs import Run, load

pytest.importorskip("lightning_fabric", reason="needs pip install 'lg2ar[fabric]'")

SETTINGS = {"hidden": 8, "layers": 2, "batch_size": 70}
WORDS = ["--device", "cpu", *(f"--set={key}={value}" for key, value in SETTINGS.items())]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def pretrain(out: Path, epochs: int = 2) -> list[str]:
    """The words of the command."""
    return ["pretrain", "toy-graphs", "--out", str(out), f"--set=epochs={epochs}", *WORDS]


@pytest.fixture(scope="module")
def alone() -> Run:
    """What one process makes of it."""
    return lg2ar.pretrain("toy-graphs", {**SETTINGS, "epochs": 3}, device="cpu")


def assert_like(run: Run, alone: Run, epochs: int) -> None:
    assert [record.epoch for record in run.history] == list(range(1, epochs + 1))
    for mine, theirs in zip(run.history, alone.history, strict=False):
        assert mine.draws == theirs.draws
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-3)
    assert mine.steps == 5  # 300 graphs in batches of 70, the last of 20


def assert_speaks_once(ended: Ended, epochs: int) -> None:
    assert ended.code == 0, ended.err
    assert ended.out.count(f"{epochs} epochs in ") == 1
    assert ended.out.count("Run folder:") == 1
    assert not ended.sentences


def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path, alone: Run) -> None:
    out = tmp_path / "run"
    ended = run("-m", "lg2ar", *pretrain(out), "--devices", "2", "--strategy", "ddp")
    assert_speaks_once(ended, 2)
    assert_like(load(out, "cpu"), alone, 2)
    ended = run(*TORCHRUN, "3", "-m", "lg2ar", *pretrain(out, epochs=3), "--resume")
    assert_speaks_once(ended, 3)
    assert_like(load(out, "cpu"), alone, 3)
    assert len(list(out.iterdir())) == 3  # one process wrote


def test_slurm_is_found(tmp_path: Path, alone: Run) -> None:
    out = tmp_path / "run"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    job = {
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NAME": "train",
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": "localhost",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    words = ["-m", "lg2ar", *pretrain(out), "--devices", "2"]
    tasks = [
        start(*words, group=False, **job, SLURM_PROCID=str(task), SLURM_LOCALID=str(task))
        for task in range(2)
    ]
    first, second = (finish(task) for task in tasks)
    assert_speaks_once(first, 2)
    assert (second.code, second.out, second.err) == (0, "", "")
    assert_like(load(out, "cpu"), alone, 2)


def test_slurm_with_other_numbers_is_refused_in_a_sentence(tmp_path: Path) -> None:
    job = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_PROCID": "0"}
    job |= {"SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NNODES": "1"}
    ended = run("-m", "lg2ar", *pretrain(tmp_path / "run"), "--devices", "3", **job)
    assert ended.code == 2
    assert len(ended.sentences) == 1, ended.err
    assert "`devices=3`" in ended.sentences[0]
    assert "Traceback" not in ended.err


ON_CUDA = pytest.mark.cuda


@pytest.mark.parametrize(
    ("where", "step"),
    [
        ("cpu", "plain"),
        pytest.param("cuda", "plain", marks=ON_CUDA),
        pytest.param("cuda", "captured", marks=ON_CUDA),
    ],
)
def test_one_device_through_fabric_is_what_it_is_without(
    tmp_path: Path, where: str, step: str
) -> None:
    if where == "cuda" and not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA device")
    # Each in a process of its own: cuBLAS takes some settings from whoever uses it first.
    runs = []
    for name, more in (("fabric", ["--devices", "1", "--strategy", "ddp"]), ("plain", [])):
        words = [*pretrain(tmp_path / name), "--device", where, f"--set=step={step}"]
        ended = run("-m", "lg2ar", *words, "--precision", "32", *more)
        assert ended.code == 0, ended.err
        assert not ended.sentences, "nothing was done otherwise than asked for"
        runs.append(load(tmp_path / name, where))
    fabric, plain = runs
    assert fabric.config.step == plain.config.step == step
    assert [r.loss for r in fabric.history] == [r.loss for r in plain.history]
    for key, value in plain.model.state_dict().items():
        assert torch.equal(fabric.model.state_dict()[key], value), key


def test_several_processes_take_the_plain_step_and_say_so_once(tmp_path: Path) -> None:
    words = [*pretrain(tmp_path / "run", epochs=0), "--set=step=captured", "--devices", "2"]
    ended = run("-m", "lg2ar", *words)
    assert ended.code == 0, ended.err
    (sentence,) = ended.sentences
    assert sentence.startswith("lg2ar: The plain step is used instead of the captured one:")
    assert load(tmp_path / "run", "cpu").config.step == "plain"


def test_bfloat16_is_for_linear_layers_alone(device: torch.device) -> None:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)).to(device)
    x = torch.randn(32, 64, device=device)
    exact = model(x).detach()
    multiply_in_bfloat16(model, device)
    rounded = model(x)
    assert rounded.dtype == torch.float32
    assert 1e-5 < float((rounded.detach() - exact).abs().max()) < 0.1
    rounded.sum().backward()
    assert all(p.dtype == torch.float32 and p.grad is not None for p in model.parameters())


class Dtypes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees where numbers of 16 bits are made: within linear layers, or elsewhere."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.within, self.elsewhere, self.inside = set[str](), set[str](), False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.dtype == torch.bfloat16:
            (self.within if self.inside else self.elsewhere).add(str(func))
        return found


@pytest.mark.parametrize("policy", ["gru", "deepset"])
def test_nothing_but_linear_layers_is_in_bfloat16(policy: str) -> None:
    config = Config.make({**SETTINGS, "policy": policy})
    graph = toy_graphs(20).graph
    model, seen = build(config, graph.num_features), Dtypes()
    multiply_in_bfloat16(model, torch.device("cpu"))

    def watched(forward: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        seen.inside = True
        found = forward(x)
        seen.inside = False
        return found

    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.forward = partial(watched, layer.forward)  # type: ignore[method-assign]
    with seen:
        for _ in range(8):  # so that every head is drawn at some time
            model(graph)
    assert any("addmm" in name for name in seen.within)
    # Between the layers of an MLP, and nowhere else.
    assert seen.elsewhere - {"aten.detach.default"} == {"aten.relu.default"}


@pytest.mark.parametrize("policy", ["gru", "deepset"])
def test_more_heads_than_units_all_have_a_score(policy: str) -> None:
    config = Config.make({**SETTINGS, "policy": policy, "hidden": 4})
    graph = toy_graphs(20).graph
    model = build(config, graph.num_features)
    multiply_in_bfloat16(model, torch.device("cpu"))
    assert model.policy.logits(torch.randn(20, 4)).shape == (5,)


def test_products_of_many_rows_have_few_shapes_on_a_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, shapes = torch.nn.Sequential(torch.nn.Linear(8, 8)), set()
    plain = torch.nn.Linear.forward

    def seen(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        shapes.add(len(x))
        return plain(layer, x)

    monkeypatch.setattr(torch.nn.Linear, "forward", seen)
    multiply_in_bfloat16(model, torch.device("cpu"))
    for rows in (3, ROWS + 1, ROWS + 2, 2 * ROWS, 2 * ROWS + 1):
        assert model(torch.randn(rows, 8)).shape == (rows, 8)
    assert shapes == {3, 2 * ROWS, 3 * ROWS}


def test_rows_within_an_mlp_are_rounded_once_and_the_same(device: torch.device) -> None:
    config = Config.make(SETTINGS)
    graph = toy_graphs(20).graph.to(device)
    assert graph.num_nodes > ROWS  # filled up
    assert graph.num_nodes % ROWS
    quick = build(config, graph.num_features).to(device)
    slow = copy.deepcopy(quick)
    multiply_in_bfloat16(quick, device)

    def rounded(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        half = [v.to(torch.bfloat16) for v in (x, layer.weight, layer.bias)]
        return torch.nn.functional.linear(*half).float()  # every layer for itself

    for layer in slow.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.forward = partial(rounded, layer)  # type: ignore[method-assign]
    for seed in range(4):  # so that several heads are drawn
        losses = []
        for model in (quick, slow):
            model.zero_grad()
            generator = torch.Generator(device).manual_seed(seed)
            torch.manual_seed(seed)
            loss = model(graph, generator).loss
            loss.backward()
            losses.append(loss)
        # The same bit by bit on many processors; others add up in another order with more rows.
        torch.testing.assert_close(*losses, rtol=5e-5, atol=0)
        for (name, p), q in zip(quick.named_parameters(), slow.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None and q.grad is not None:
                apart = (p.grad - q.grad).norm()
                assert apart <= 0.02 * q.grad.norm() + 1e-7, name


def test_the_help_and_the_page_say_what_is_in_bfloat16(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    helped = " ".join(
        Command(monkeypatch, capsys).ok("pretrain", "--help").replace("│", "").split()
    )
    page = " ".join((Path(__file__).parents[1] / "docs" / "scaling.md").read_text().split())
    assert "GRU, message sums, normalisation, scores and loss stay in float32" in helped
    for part in ("`nn.Linear`", "GRU", "sums over neighbours", "normalisation", "loss"):
        assert part in page[page.index("`--precision bf16-mixed`") :][:900], part


@pytest.mark.parametrize("level", ["graph", "node"])
def test_a_run_in_mixed_precision_says_so_and_goes_on_as_begun(tmp_path: Path, level: str) -> None:
    small: dict[str, Any] = {**SETTINGS, "epochs": 2}
    data: Any = toy_graphs(60) if level == "graph" else "toy-nodes"
    mixed = lg2ar.pretrain(data, small, device="cpu", precision="bf16-mixed", out=tmp_path / "run")
    exact = lg2ar.pretrain(data, small, device="cpu", precision="32")
    assert (mixed.config.precision, exact.config.precision) == ("bf16-mixed", "float32")
    assert mixed.history[0].loss != exact.history[0].loss
    assert mixed.history[0].loss == pytest.approx(exact.history[0].loss, rel=0.05)
    assert all(v.dtype != torch.bfloat16 for v in mixed.model.state_dict().values())
    held = json.loads((tmp_path / "run" / "run.json").read_text())
    assert held["config"]["precision"] == "bf16-mixed"
    longer = {**small, "epochs": 3}
    again = lg2ar.pretrain(data, longer, device="cpu", out=tmp_path / "run", resume=True)
    assert again.config.precision == "bf16-mixed"
    assert len(again.history) == 3
    with pytest.raises(InputError, match="was trained with precision = 'bf16-mixed'"):
        lg2ar.pretrain(
            data, longer, device="cpu", out=tmp_path / "run", resume=True, precision="32"
        )


def test_precisions_are_named() -> None:
    with pytest.raises(InputError, match=r"precision = '16' must be one of 32, bf16-mixed"):
        lg2ar.pretrain("toy-graphs", device="cpu", precision="16")


def test_the_command_line_takes_a_number_of_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--nodes`` with a number is not a table of nodes."""
    asked: list[int | None] = []

    def join(_: str, __: int | None, nodes: int | None, *___: object) -> None:
        asked.append(nodes)
        raise InputError("seen.")

    monkeypatch.setattr("lg2ar.cli.joined", join)
    lg2ar = Command(monkeypatch, capsys)
    words = ["pretrain", "toy-graphs", "--out", str(tmp_path / "run"), "--devices", "1"]
    assert lg2ar.refused(*words, "--nodes", "2") == "lg2ar: seen.\n"
    assert lg2ar.refused(*words, "--machines", "3") == "lg2ar: seen.\n"
    assert lg2ar.refused(*words, "--nodes", "nodes.csv") == "lg2ar: seen.\n"
    assert asked == [2, 3, None]
    assert "once" in lg2ar.refused(*words, "--nodes", "2", "--machines", "3")
    assert "from 1 on" in lg2ar.refused(*words, "--nodes", "0")
