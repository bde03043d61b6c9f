"""A checksum inside of the file that it is of: one changed byte anywhere is noticed.

The file holds JSON (all of it, or the header of a safetensors file) with a key ``seal``: the
SHA-256 of the whole file with zeros in the seal's own place.
"""

from __future__ import annotations

import hashlib
import re

KEY = "seal"
OPEN = "0" * 64  # what the JSON holds before it is sealed

# Quotes inside of texts are escaped in JSON, so nothing but the key itself looks like this.
_PLACE = re.compile(rb'(?<!\\)"seal": ?"([0-9a-f]{64})"')


def close(content: bytes) -> bytes:
    """Put the checksum in the place of the zeros.

    Args:
        content: The file, with ``OPEN`` as the value of ``KEY``.
    """
    start, end = _find(content)
    return content[:start] + _digest(content, start, end) + content[end:]


def has_seal(content: bytes) -> bool:
    """Whether there is a seal at all; files of earlier versions have none."""
    return len(_PLACE.findall(content)) == 1


def is_whole(content: bytes) -> bool:
    """Whether a file is, byte by byte, the one that was sealed."""
    if not has_seal(content):
        return False
    start, end = _find(content)
    return content[start:end] == _digest(content, start, end)


def _find(content: bytes) -> tuple[int, int]:
    found = _PLACE.search(content)
    if found is None:
        raise ValueError("there is no place for a seal")
    return found.span(1)


def _digest(content: bytes, start: int, end: int) -> bytes:
    digest = hashlib.sha256(content[:start])
    digest.update(OPEN.encode())
    digest.update(content[end:])
    return digest.hexdigest().encode()
