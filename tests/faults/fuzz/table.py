"""What was tried, as the table of docs/reliability.md; ``faults.fuzz.table`` renews it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from faults.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results" / "fuzz.jsonl"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- fuzz -->", "<!-- end of fuzz -->"


def table(path: Path = RESULTS) -> str:
    """A row per reader, in Markdown.

    Inputs are those tried since the reader was last mended; what was found before that stands
    beside them.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [
        "| Reader | inputs by atheris | by Hypothesis | violations | found before, and mended |",
        "|---|---|---|---|---|",
    ]
    for name in TARGETS:
        rows.append(_row(name, [line for line in lines if line["target"] == name]))
    return "\n".join(rows)


def _row(name: str, tried: list[dict[str, Any]]) -> str:
    bad = [place for place, line in enumerate(tried) if line["violations"]]
    last = len(tried) - 1 in bad
    since = tried if last or not bad else tried[bad[-1] + 1 :]
    before = [] if last else tried[: len(tried) - len(since)]
    by = {
        tool: sum(line["inputs"] for line in since if line["tool"] == tool)
        for tool in ("atheris", "hypothesis")
    }
    found = sum(line["violations"] for line in since)
    mended = sum(len(line["kinds"]) for line in before)
    return f"| {name} | {by['atheris']:,} | {by['hypothesis']:,} | {found} | {mended} |"


def shown(page: Path = PAGE) -> str:
    """The table that stands in the documentation."""
    return page.read_text().split(BEGIN)[1].split(END)[0].strip()


def renew(page: Path = PAGE) -> None:
    """Put the table into the documentation."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    renew()
    print(table())
