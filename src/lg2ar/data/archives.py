"""Zip archives read in memory: nothing is written, no link followed, nothing grows without end."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from lg2ar.errors import InputError

# Text shrinks to a fifth or a tenth of its size; what shrinks to a hundredth was made to explode.
MOST_BYTES = 8 << 30
HARMLESS_BYTES = 64 << 20
MOST_GROWTH = 100
MOST_MEMBERS = 1_000_000


def read_zip(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The members of a zip archive that are wanted, by name.

    Args:
        path: The archive.
        wanted: Told a member's name, says whether to read it.

    Raises:
        InputError: For an archive that is damaged, locked or holds links, for names that point
            outside of it, and for one that would grow beyond what text can.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [_checked(path, member) for member in archive.infolist()]
            chosen = [m for m in members if not m.is_dir() and wanted(m.filename)]
            _check_growth(path, members, chosen)
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


def _checked(path: Path, member: zipfile.ZipInfo) -> zipfile.ZipInfo:
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
    path: Path, members: list[zipfile.ZipInfo], chosen: list[zipfile.ZipInfo]
) -> None:
    total = sum(member.file_size for member in chosen)
    growth = total / max(path.stat().st_size, 1)
    if len(members) > MOST_MEMBERS:
        raise InputError(f"{path}: holds {len(members)} files; unpack it, and give the folder.")
    if total > MOST_BYTES or (total > HARMLESS_BYTES and growth > MOST_GROWTH):
        raise InputError(
            f"{path}: would grow to {total} bytes, {growth:.0f} times its size, which is refused; "
            "if that is meant, unpack it and give the folder."
        )
