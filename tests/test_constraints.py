"""The pinned versions: all that is asked for, within what is asked, from nowhere in particular."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PINNED = {
    pin.name.lower().replace("_", "-"): pin
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
    for pin in [Requirement(line)]
}
FREE = {"lg2ar", "triton"}  # ours, and what every build of torch asks for its own version of


def asked_for() -> list[Requirement]:
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, builds = whole["project"], [*whole["build-system"]["requires"], "editables~=0.3"]
    extras = project["optional-dependencies"].values()
    parts = (project["dependencies"], *extras, builds)
    return [Requirement(text) for part in parts for text in part]


@pytest.mark.parametrize("wanted", asked_for(), ids=str)
def test_what_is_asked_for_is_pinned_within_its_range(wanted: Requirement) -> None:
    name = wanted.name.lower().replace("_", "-")
    if name in FREE:
        assert name not in PINNED
        return
    (pin,) = PINNED[name].specifier
    assert pin.operator == "=="
    assert wanted.specifier.contains(pin.version)


def test_pins_are_versions_and_nothing_else() -> None:
    text = (ROOT / "constraints.txt").read_text()
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+( ; .+)?", line) for line in pins)  # no local builds
    assert "://" not in text
    assert len(PINNED) == len(pins)


def test_the_two_commands_install_them() -> None:
    make = (ROOT / "Makefile").read_text()
    assert "--constraint constraints.txt" in make
    assert len(re.findall(r"\$\(INSTALL\) --editable", make)) == make.count("--editable")
    assert re.search(r"^INSTALL := \$\(BUILD\) .*\$\(PINNED\)$", make, re.MULTILINE)
    # What pip builds the package with; older versions of pip know the first alone.
    assert "PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt\n" in make
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_the_auditor_is_pinned() -> None:
    (pin,) = PINNED["pip-audit"].specifier
    assert pin.operator == "=="
    make = (ROOT / "Makefile").read_text()
    installs = re.findall(r"-audit/bin/python (.*)", make)
    assert installs == ["$(PINNED) pip-audit"]
