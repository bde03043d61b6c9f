"""Numbers in words: how the page tells counts, times and sizes."""

from __future__ import annotations

from typing import Any

LONGEST = 80  # characters of a name that comes from the data


def count(value: Any) -> str:
    """A count with commas, or a question mark for what is none.

    >>> count(12345), count(None)
    ('12,345', '?')
    """
    return f"{value:,}" if isinstance(value, int) else "?"


def many(number: int, what: str) -> str:
    """So many of something.

    >>> many(1, "graph"), many(2000, "graph")
    ('1 graph', '2,000 graphs')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time to read.

    >>> duration(0.0421), duration(12.34), duration(95), duration(7300)
    ('42.1 ms', '12.3 s', '1 min 35 s', '2 h 1 min')
    """
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def memory(size: int) -> str:
    """A size in bytes to read.

    >>> memory(300 * 2**20), memory(3 * 2**30)
    ('300 MiB', '3.00 GiB')
    """
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def shortened(text: object, longest: int = LONGEST) -> str:
    """The text on one line, cut where it is too long to be a name.

    >>> shortened("a  b" + "c" * 100, 6)
    'a bcc…'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
