"""Tries many changed inputs on a reader, each process anew after a crash.

``python -m faults.fuzz.drive --inputs 100000 --out results/fuzz.jsonl [TARGET ...]``
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

from faults.fuzz.ledger import Ledger
from lg2ar.records import code_print

TOOLS = ("atheris", "hypothesis")
HERE = Path(__file__).resolve()
MOST_CRASHES = 20


@dataclass
class Tried:
    """What came of it.

    Attributes:
        target: The reader.
        tool: What chose the inputs.
        inputs: How many were tried.
        violations: How many were neither read nor refused in one sentence.
        seconds: Wall time.
        kinds: Different violations, one of each.
        versions: What it was done with.
    """

    target: str
    tool: str
    inputs: int = 0
    violations: int = 0
    seconds: float = 0.0
    kinds: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def has_tool(tool: str) -> bool:
    """Whether a tool is installed."""
    return find_spec(tool) is not None


def drive(target: str, tool: str, inputs: int, seed: int = 1, keep: Path | None = None) -> Tried:
    """Try inputs on a reader in processes of their own.

    Args:
        target: Its name.
        tool: ``atheris`` or ``hypothesis``.
        inputs: How many.
        seed: Of what is drawn.
        keep: Folder for inputs that were not read as they should be.
    """
    tried = Tried(target, tool, versions=_versions(tool))
    start = time.perf_counter()
    for turn in range(MOST_CRASHES):
        shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
        with tempfile.TemporaryDirectory(dir=shared) as folder:
            work = Path(folder)
            _one_process(tried, work, inputs - tried.inputs, seed + 1000 * turn)
            if keep is not None:
                for found in work.glob("found-*"):
                    keep.mkdir(parents=True, exist_ok=True)
                    shutil.copy(found, keep / f"{target}-{found.name.removeprefix('found-')}")
        if tried.inputs >= inputs:
            break
    tried.seconds = round(time.perf_counter() - start, 1)
    return tried


def _one_process(tried: Tried, work: Path, inputs: int, seed: int) -> None:
    command = ["-m", "faults.fuzz.child", tried.target, tried.tool]
    tests = HERE.parents[2]
    paths = [str(tests), str(tests.parent / "src"), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        [sys.executable, *command, str(inputs), str(seed), str(work)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        cwd=work,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    ledger = Ledger(work / "ledger")
    tried.inputs += ledger.inputs
    tried.violations += ledger.violations
    if (work / "found.jsonl").exists():
        lines = (work / "found.jsonl").read_text().splitlines()
        tried.kinds += [json.loads(line)["what"] for line in lines]
    if ended.returncode != 0:
        if not ledger.inputs:
            raise RuntimeError(ended.stderr.decode()[-2000:])
        tried.violations += 1
        tried.kinds.append(f"the process ended with {ended.returncode}")
        (work / "found-crash").write_bytes(ledger.current)


def _versions(tool: str) -> dict[str, str]:
    names = (tool, "numpy", "pyarrow", "torch", "safetensors", "rdkit")
    found = {"python": platform.python_version(), "code": code_print()}
    for name in names:
        if find_spec(name) is not None:
            found[name] = importlib.metadata.version(name)
    return found


def main() -> None:
    """Try inputs on all readers, or on those that are named."""
    from faults.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], metavar="TARGET")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--tool", choices=TOOLS, default="atheris")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="file to append a JSON line per reader to")
    parser.add_argument("--keep", type=Path, help="folder for inputs that were not read well")
    told = parser.parse_args()
    for name in told.targets or TARGETS:
        tried = drive(name, told.tool, told.inputs, told.seed, told.keep)
        print(f"{name}: {tried.inputs} inputs, {tried.violations} violations", flush=True)
        for kind in tried.kinds:
            print(f"  {kind}", flush=True)
        if told.out is not None:
            with open(told.out, "a") as file:
                file.write(json.dumps(asdict(tried)) + "\n")


if __name__ == "__main__":
    main()
