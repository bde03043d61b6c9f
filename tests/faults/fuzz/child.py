"""A process that tries inputs on one reader: ``python -m faults.fuzz.child`` and its arguments."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults.fuzz.ledger import LARGEST, Ledger


class Child:
    """Tries inputs, keeps count, and keeps those that were not read as they should be.

    Args:
        name: Of the target.
        inputs: How many to try.
        work: Folder of this process: the ledger, the reader's files, what is found.
    """

    def __init__(self, name: str, inputs: int, work: Path) -> None:
        # Here, so that atheris can watch what is imported.
        from faults.fuzz.guard import bounds, violation
        from faults.fuzz.targets import TARGETS

        self.target, self.inputs, self.work = TARGETS[name], inputs, work
        self.seeds = self.target.seeds()
        self.ledger = Ledger(work / "ledger")
        self.folder = work / "read"
        self.folder.mkdir(exist_ok=True)
        self._known: set[str] = set()
        self._violation = violation
        bounds().__enter__()  # until this process ends
        for seed in self.seeds:  # what is imported late is imported now
            self.one(seed)

    def one(self, data: bytes) -> None:
        """Try an input."""
        self.ledger.begin(data)
        found = self._violation(self.target, data, self.folder)
        if found is None:
            return
        self.ledger.violated()
        kind = found.partition(":")[0] + found.rpartition(" at ")[2]
        if kind not in self._known:
            self._known.add(kind)
            name = hashlib.sha256(data).hexdigest()[:12]
            (self.work / f"found-{name}").write_bytes(data)
            with open(self.work / "found.jsonl", "a") as file:
                file.write(json.dumps({"file": f"found-{name}", "what": found}) + "\n")

    @property
    def done(self) -> bool:
        """Whether there were enough."""
        return self.ledger.inputs >= self.inputs


def with_atheris(make: Callable[[], Child], seed: int) -> None:
    """Let libFuzzer look for inputs that reach new lines; half of them are changed by us."""
    import atheris

    with atheris.instrument_imports(include=["lg2ar"], enable_loader_override=False):
        child = make()
    from faults.fuzz.mutations import apply, draw

    corpus = child.work / "corpus"
    corpus.mkdir(exist_ok=True)
    for place, data in enumerate(child.seeds):
        (corpus / f"seed{place}").write_bytes(data)

    def one(data: bytes) -> None:
        child.one(data)
        if child.done:
            os._exit(0)  # libFuzzer ends no other way

    def change(data: bytes, largest: int, number: int) -> bytes:
        chance = random.Random(number)
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(data, largest))
        begun = data if chance.random() < 0.7 else chance.choice(child.seeds)
        return apply(begun, draw(chance, chance.randint(1, 4)))[:largest]

    options = [f"-seed={seed}", f"-max_len={LARGEST}", "-len_control=0", "-timeout=60"]
    options += ["-rss_limit_mb=0", "-malloc_limit_mb=0", "-verbosity=0", str(corpus)]
    atheris.Setup(["fuzz", *options], one, custom_mutator=change)
    atheris.Fuzz()


def with_hypothesis(make: Callable[[], Child], first: int) -> None:
    """Let Hypothesis choose what to change."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    from faults.fuzz.changes import changed

    child = make()
    turn = first
    while not child.done:
        turn += 1

        @seed(turn)
        @settings(
            max_examples=min(5000, child.inputs - child.ledger.inputs),
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(changed(child.seeds))
        def test(data: bytes) -> None:
            child.one(data)

        test()


def main(arguments: list[str]) -> None:
    """Take the target, the tool, how many, a seed and a folder."""
    name, tool, inputs, seed, work = arguments
    tools: dict[str, Any] = {"atheris": with_atheris, "hypothesis": with_hypothesis}
    tools[tool](lambda: Child(name, int(inputs), Path(work)), int(seed))


if __name__ == "__main__":
    main(sys.argv[1:])
