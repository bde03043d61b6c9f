"""Zip archives read in memory: nothing is written, no link followed, nothing grows without end."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np

from lg2ar.errors import InputError

# Text shrinks to a fifth or a tenth of its size; what shrinks to a hundredth was made to explode.
MOST_BYTES = 8 << 30
HARMLESS_BYTES = 64 << 20
MOST_GROWTH = 100
MOST_MEMBERS = 1_000_000

# Arrays are often zeros for the most part: they may grow as much as the format lets them, up to
# here; beyond it ten times.
LARGE_ARRAYS = 1 << 30
MOST_GROWTH_OF_LARGE = 10


def read_zip(
    file: Path | IO[bytes], wanted: Callable[[str], bool], name: str = ""
) -> dict[str, bytes]:
    """The members of a zip archive that are wanted, by name.

    Args:
        file: The archive.
        wanted: Told a member's name, says whether to read it.
        name: What to call it, where it is no path.

    Raises:
        InputError: For an archive that is damaged, locked or holds links, for names that point
            outside of it, and for one that would grow beyond what text can.
    """
    path = Path(name) if name else file
    try:
        with zipfile.ZipFile(file) as archive:
            members = [_checked(path, member) for member in archive.infolist()]
            chosen = [m for m in members if not m.is_dir() and wanted(m.filename)]
            _check_growth(path, members, chosen, _size(archive))
            # A member that holds more than it declares is cut there, and its checksum is then
            # wrong.
            return {member.filename: archive.read(member) for member in chosen}
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except InputError:
        raise
    except Exception as error:  # a damaged archive can raise nearly anything
        reason = (str(error) or type(error).__name__).rstrip(".")[:100]
        raise InputError(
            f"{path}: is damaged, or no zip archive that can be read ({reason}); pack it again."
        ) from None


def read_npz(path: Path, names: Collection[str]) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file that have these names; those of objects are refused.

    Raises:
        FileNotFoundError: When there is no such file.
        ValueError: And nearly anything else, for an archive that is damaged or would grow beyond
            what arrays can.
    """
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        wanted = {name: members[f"{name}.npy"] for name in names if f"{name}.npy" in members}
        total, size = sum(member.file_size for member in wanted.values()), _size(archive)
        if total > LARGE_ARRAYS and total > MOST_GROWTH_OF_LARGE * size:
            raise ValueError(
                f"it would grow from {size} to {total} bytes; write large arrays with np.savez, "
                "which does not compress them"
            )
        for name, member in wanted.items():
            # Whole, so that an array cannot ask for room for more numbers than there are.
            content = archive.read(member)
            arrays[name] = _read_array(content)
    return arrays


def _read_array(content: bytes) -> np.ndarray:
    """One array in NumPy's format, of numbers or text."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, turned, kind = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, turned, kind = np.lib.format.read_array_header_2_0(file)
    else:  # those after it are for names that numbers and text do not have
        raise ValueError(f"an array of version {version}")
    if kind.hasobject:
        raise ValueError("an array of objects, which can run code when it is opened")
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError("an array of no shape")
    held = content[file.tell() :]
    if kind.itemsize * int(np.prod([1, *shape], dtype=object)) != len(held):
        raise ValueError("an array with more or fewer numbers than it says")
    flat = np.frombuffer(held, dtype=kind) if held else np.empty(0, dtype=kind)
    return flat.reshape(shape, order="F" if turned else "C").copy()


def _size(archive: zipfile.ZipFile) -> int:
    """How many bytes an archive has."""
    held = archive.fp
    assert held is not None
    held.seek(0, io.SEEK_END)
    return max(held.tell(), 1)


def _checked(path: Path | IO[bytes], member: zipfile.ZipInfo) -> zipfile.ZipInfo:
    name = PurePosixPath(member.filename.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or ":" in member.filename:
        raise InputError(
            f"{path}: its member {member.filename!r} points outside of the archive, which is "
            "refused; pack it again with plain names."
        )
    if stat.S_ISLNK(member.external_attr >> 16):
        raise InputError(
            f"{path}: its member {member.filename!r} is a link, which is refused; pack the file "
            "itself."
        )
    if member.flag_bits & 1:
        raise InputError(
            f"{path}: its member {member.filename!r} is locked with a password; unpack it, and "
            "give the folder."
        )
    return member


def _check_growth(
    path: Path | IO[bytes],
    members: list[zipfile.ZipInfo],
    chosen: list[zipfile.ZipInfo],
    size: int,
) -> None:
    total = sum(member.file_size for member in chosen)
    growth = total / size
    if len(members) > MOST_MEMBERS:
        raise InputError(f"{path}: holds {len(members)} files; unpack it, and give the folder.")
    if total > MOST_BYTES or (total > HARMLESS_BYTES and growth > MOST_GROWTH):
        raise InputError(
            f"{path}: would grow to {total} bytes, {growth:.0f} times its size, which is refused; "
            "if that is meant, unpack it and give the folder."
        )
