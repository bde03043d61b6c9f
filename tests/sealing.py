"""Sealed files with another content, as nobody but somebody who means to would write them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from lg2ar import seals

_SEAL = re.compile(rb'((?<!\\)"seal": ?)"\w{64}"')


def write_sealed(path: Path, content: dict[str, Any] | str) -> None:
    """Put other JSON into a sealed file, so that what reads it finds nothing but the content."""
    text = json.dumps(content) if isinstance(content, dict) else content
    path.write_bytes(sealed(text.encode()))


def sealed(content: bytes) -> bytes:
    """The content with the seal that fits it; as it is where it has no place for one."""
    opened = _SEAL.sub(rb'\1"' + seals.OPEN.encode() + b'"', content)
    return seals.close(opened) if seals.has_seal(opened) else content


def save_sealed(tensors: dict[str, Tensor], path: Path, about: dict[str, str]) -> None:
    """Write a safetensors file with a seal that fits it."""
    path.write_bytes(seals.close(save(tensors, metadata={**about, seals.KEY: seals.OPEN})))
