"""What the long tests count: kills survived, inputs tried, violations."""

from __future__ import annotations

import atexit
import os
from collections import Counter

COUNTS: Counter[str] = Counter()

# Whoever prints the counts at the end of a session says so here.
_taken = False


def count(name: str, number: int = 1) -> None:
    """Add to what the summary prints under a name."""
    if not COUNTS and not _taken:
        atexit.register(_print_alone, os.getpid())
    COUNTS[name] += number


def take_over() -> Counter[str]:
    """The counts, for somebody who prints them; then nobody else does."""
    global _taken
    _taken = True
    return COUNTS


def _print_alone(process: int) -> None:
    if not _taken and process == os.getpid():
        print("\n" + "\n".join(f"{name}: {number}" for name, number in COUNTS.items()))
