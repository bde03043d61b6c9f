"""Changing inputs a little: bytes, words that readers stumble over, values inside of JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

# What readers stumble over: numbers at borders, signs that mean something, other encodings.
WORDS: tuple[bytes, ...] = (
    *(b"0", b"-1", b"1", b"1.5", b"-0.0", b"1e999", b"-1e999", b"1e-999", b"nan", b"inf", b"NaN"),
    *(b"9223372036854775807", b"-9223372036854775808", b"18446744073709551616", b"2147483648"),
    *(b"9" * 400, b"1_000", b"0x10", b"1,5", b"true", b"null", b"None", b"NA"),
    *(
        b"",
        b" ",
        b"\t",
        b"\n",
        b"\r",
        b"\r\n",
        b",",
        b";",
        b"|",
        b'"',
        b"'",
        b"\\",
        b"/",
        b"..",
        b"#",
    ),
    *(b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc3\x28", "é😀\u202e".encode(), b"\x1a"),
    *(b"{", b"}", b"[", b"]", b"[" * 3000, b"<", b">", b"</", b"/>", b"<a>" * 200, b"<!DOCTYPE x>"),
    *(b"<!ENTITY a 'b'>", b"&a;", b"&lt;", b"<![CDATA[", b"=", b":", b"'''", b'"""', b"@", b"%"),
    *(b"source", b"target", b"graph", b"node", b"id", b"label", b"y", b"smiles", b"weight"),
    *(b"C1CC", b"[Xx]", b"c1ccccc1" * 30, b"(" * 300, b"[13C@@H+]", b".", b"%99", b"[#500]"),
    *(b"PAR1", b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY", b"SQLite format 3\0", b"\x80\x04"),
    *(b"cos\nsystem\n(S'true'\ntR.", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0\0\0\0\0"),
)

VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        10**6,
        2**31,
        2**63,
        -(2**63),
        10**30,
        0.5,
        -0.0,
        1e308,
        1e-320,
    ),
    *(
        float("nan"),
        float("inf"),
        "",
        "a",
        "0",
        "nan",
        "é\0\u202e",
        "x" * 5000,
        "../../x",
        "\ud800",
    ),
    *([], [[]], {}, {"": None}, [1, "a", None], {"id": 0}, [0] * 50, "number", "category", "graph"),
)


class Edit(NamedTuple):
    """One change.

    Attributes:
        kind: One of :data:`KINDS`.
        place: Where, counted round and round.
        size: How many bytes, or which value.
        text: What is put there.
    """

    kind: str
    place: int
    size: int
    text: bytes


KINDS = ("flip", "set", "insert", "remove", "repeat", "swap", "line", "value", "drop", "key")


def apply(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The input with these changes, one after the other."""
    for edit in edits:
        change = _INSIDE.get(edit.kind)
        changed = _inside(data, edit) if change else None
        data = _bytes(data, edit) if changed is None else changed
    return data


def draw(chance: random.Random, number: int) -> list[Edit]:
    """Changes at random."""
    return [
        Edit(
            chance.choice(KINDS),
            chance.getrandbits(24),
            chance.getrandbits(8),
            chance.choice(WORDS)
            if chance.random() < 0.7
            else chance.randbytes(chance.randint(1, 8)),
        )
        for _ in range(number)
    ]


def _bytes(data: bytes, edit: Edit) -> bytes:
    start = edit.place % (len(data) + 1)
    end = min(start + edit.size % 17 + 1, len(data))
    if edit.kind == "flip" and start < len(data):
        return data[:start] + bytes([data[start] ^ (1 << edit.size % 8)]) + data[start + 1 :]
    if edit.kind == "set":
        return data[:start] + edit.text + data[start + len(edit.text) :]
    if edit.kind == "remove":
        return data[:start] + data[min(start + edit.size + 1, len(data)) :]
    if edit.kind == "repeat":
        return data[:end] + data[start:end] * (edit.size % 40 + 1) + data[end:]
    if edit.kind == "swap":
        other = (edit.place // 7) % (len(data) + 1)
        part = data[other : other + edit.size % 17 + 1]
        return data[:start] + part + data[start + len(part) :]
    if edit.kind == "line":
        lines = data.split(b"\n")
        lines.insert(edit.place % (len(lines) + 1), lines[edit.size % len(lines)])
        return b"\n".join(lines)
    return data[:start] + edit.text + data[start:]


def _inside(data: bytes, edit: Edit) -> bytes | None:
    """Change what JSON says and leave it JSON; None where it is none.

    Of several lines or parts of which one is JSON, that one is changed.
    """
    for end in (b"", b"\n"):
        parts = data.split(end) if end else [data]
        order = range(len(parts))
        for step in order:
            place = (edit.place + step) % len(parts)
            if parts[place][:1] not in (b"{", b"["):
                continue
            try:
                held = json.loads(parts[place])
            except (ValueError, RecursionError):
                continue
            places = _places(held)
            if not places:
                continue
            owner, key = places[edit.place % len(places)]
            _INSIDE[edit.kind](owner, key, edit)
            try:
                parts[place] = json.dumps(held).encode("utf-8", "surrogatepass")
            except (ValueError, RecursionError):
                continue
            return end.join(parts)
    return None


def _places(held: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [held]
    while waiting and len(found) < 3000:
        owner = waiting.pop()
        keys = list(owner) if isinstance(owner, dict) else range(len(owner))
        for key in keys:
            found.append((owner, key))
            if isinstance(owner[key], dict | list):
                waiting.append(owner[key])
    return found


def _set_value(owner: Any, key: Any, edit: Edit) -> None:
    owner[key] = VALUES[edit.size % len(VALUES)]


def _drop(owner: Any, key: Any, edit: Edit) -> None:
    del owner[key]


def _set_key(owner: Any, key: Any, edit: Edit) -> None:
    if isinstance(owner, dict):
        owner[edit.text.decode("utf-8", "replace")] = owner.pop(key)
    else:
        owner.insert(key, owner[edit.size % len(owner)])


_INSIDE = {"value": _set_value, "drop": _drop, "key": _set_key}
