"""Raw files of the benchmark data sets from where their authors keep them.

Over HTTPS alone, with the server's certificate checked, also where one is sent on; never more bytes
than such a file can have. Files whose checksum is known have to have it. Archives are not unpacked:
the members that belong to a data set are read, checked and written under plain names of ours.
"""

from __future__ import annotations

import hashlib
import io
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from lg2ar.data.archives import read_zip
from lg2ar.data.checksums import KNOWN
from lg2ar.data.raw_files import raw_files
from lg2ar.data.tu import PARTS
from lg2ar.files import write_bytes

ADDRESSES = {
    "TUDataset": "https://www.chrsmrrs.com/graphkerneldatasets/",
    "Planetoid": "https://github.com/kimiyoung/planetoid/raw/master/data/",
    "Amazon": "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/",
    "Coauthor": "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/",
    "WikiCS": "https://github.com/pmernyei/wiki-cs-dataset/raw/master/dataset/",
}

MOST_BYTES = 1 << 30  # the largest, Twitter's graphs, has some hundred megabytes
SECONDS = 60  # without a byte


def download(source: str, name: str, raw: Path) -> None:
    """Fetch the raw files of a data set that are not there.

    Args:
        source: The collection.
        name: The data set's name there.
        raw: The folder of its raw files.

    Raises:
        OSError: When they cannot be had.
        ValueError: When they are not what they should be.
    """
    raw.mkdir(parents=True, exist_ok=True)
    if source == "TUDataset":
        content = fetch(f"{ADDRESSES[source]}{name}.zip")
        members = _members(name, content)
        needed = [file for file in raw_files(source, name) if file in members]
        # Those by which a data set counts as there come last: a kill leaves none that seems whole.
        for file in [*(file for file in members if file not in needed), *needed]:
            _keep(raw / file, members[file])
        return
    for file in raw_files(source, name):
        if not (raw / file).is_file():
            _keep(raw / file, fetch(ADDRESSES[source] + file))


def fetch(address: str) -> bytes:
    """What is at an address.

    Raises:
        OSError: When it cannot be had, not safely or not at all.
    """
    _need_https(address)
    opener = urllib.request.build_opener(_HttpsAlone())  # with the system's certificates
    with opener.open(address, timeout=SECONDS) as answer:
        content: bytes = answer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(f"{address} has more than {MOST_BYTES} bytes")
    return content


def check(file: str, content: bytes, known: Mapping[str, str] = KNOWN) -> None:
    """Refuse a file whose checksum is known and another one.

    Raises:
        ValueError: When it is.
    """
    if file.endswith(".txt"):  # copies differ in how lines end
        content = content.replace(b"\r\n", b"\n")
    if file in known and hashlib.sha256(content).hexdigest() != known[file]:
        raise ValueError(f"what came for {file} is not what its authors published: other SHA-256")


def _members(name: str, content: bytes) -> dict[str, bytes]:
    """The text files of a data set in its zip archive, by their own names."""
    wanted = {f"{name}_{part}.txt" for part in PARTS}
    held = read_zip(io.BytesIO(content), lambda member: Path(member).name in wanted, f"{name}.zip")
    return {Path(member).name: text for member, text in held.items()}


def _keep(path: Path, content: bytes) -> None:
    check(path.name, content)
    write_bytes(path, content)


def _need_https(address: str) -> None:
    if not address.lower().startswith("https://"):
        raise OSError(f"{address} is not HTTPS, and is not followed")


class _HttpsAlone(urllib.request.HTTPRedirectHandler):
    """Follows to other addresses as long as they are HTTPS."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        _need_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
