"""Sealed files with another content, as nobody but somebody who means to would write them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from lg2ar import seals


def write_sealed(path: Path, content: dict[str, Any] | str) -> None:
    """Put other JSON into a sealed file, so that what reads it finds nothing but the content."""
    text = json.dumps(content) if isinstance(content, dict) else content
    text = re.sub(r'("seal": ?)"\w{64}"', rf'\1"{seals.OPEN}"', text)
    path.write_bytes(seals.close(text.encode()))


def save_sealed(tensors: dict[str, Tensor], path: Path, about: dict[str, str]) -> None:
    """Write a safetensors file with a seal that fits it."""
    path.write_bytes(seals.close(save(tensors, metadata={**about, seals.KEY: seals.OPEN})))
