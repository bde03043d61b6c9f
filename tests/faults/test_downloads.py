"""Downloads: HTTPS alone, certificates checked, known checksums kept to."""

from __future__ import annotations

import hashlib
import http.server
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.fuzz import seeds
from lg2ar.data import downloads
from lg2ar.data.benchmarks import BENCHMARKS, open_benchmark
from lg2ar.data.checksums import KNOWN
from lg2ar.errors import InputError

DATA = os.environ.get("LG2AR_DATA")


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers with text, or sends on to where it should not."""

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "http://localhost:1/plain")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"content")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody trusts, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes a certificate to test with, is not installed")
    path = tmp_path_factory.mktemp("certificate") / "both.pem"
    make = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    more = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run(["openssl", *make.split(), *more], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


@pytest.fixture(scope="module")
def server(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    held = http.server.ThreadingHTTPServer(("localhost", 0), Answer)
    held.socket = context.wrap_socket(held.socket, server_side=True)
    thread = threading.Thread(target=held.serve_forever, daemon=True)
    thread.start()
    yield f"https://localhost:{held.server_port}"
    held.shutdown()
    held.server_close()
    thread.join()


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")


def test_all_addresses_are_https() -> None:
    assert all(address.startswith("https://") for address in downloads.ADDRESSES.values())
    assert {item.source for item in BENCHMARKS.values()} == set(downloads.ADDRESSES)


def test_a_server_that_nobody_vouches_for_is_refused(server: str) -> None:
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        downloads.fetch(f"{server}/file")


@pytest.mark.usefixtures("trusted")
def test_a_trusted_one_is_not(server: str) -> None:
    assert downloads.fetch(f"{server}/file") == b"content"


@pytest.mark.usefixtures("trusted")
def test_it_cannot_send_on_to_plain_http(server: str) -> None:
    with pytest.raises(OSError, match="is not HTTPS, and is not followed"):
        downloads.fetch(f"{server}/moved")


@pytest.mark.parametrize("address", ["http://localhost/x", "file:///etc/passwd", "ftp://x/y", "x"])
def test_other_ways_are_refused(address: str) -> None:
    with pytest.raises(OSError, match="is not HTTPS"):
        downloads.fetch(address)


@pytest.mark.usefixtures("trusted")
def test_no_more_is_taken_than_a_file_can_have(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "MOST_BYTES", 3)
    with pytest.raises(OSError, match="more than 3 bytes"):
        downloads.fetch(f"{server}/file")


def test_a_file_that_is_not_the_known_one_is_refused_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = seeds.planetoid()
    monkeypatch.setattr(downloads, "fetch", lambda a: held[a.partition("ind.cora.")[2]])
    with pytest.raises(InputError, match=r"ind\.cora\.x: is not there.*other SHA-256"):
        open_benchmark("cora", tmp_path)
    assert not any(path.is_file() for path in (tmp_path / "Cora" / "raw").iterdir())


def test_a_data_set_without_known_checksums_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = seeds.planetoid()
    asked: list[str] = []

    def fetch(address: str) -> bytes:
        asked.append(address)
        return held[address.partition("ind.citeseer.")[2]]

    monkeypatch.setattr(downloads, "fetch", fetch)
    assert len(open_benchmark("citeseer", tmp_path)) == 520
    assert len(asked) == 8
    assert asked[0].startswith("https://github.com/kimiyoung/planetoid/")


def test_text_is_the_same_however_its_lines_end() -> None:
    known = {"T_A.txt": hashlib.sha256(b"1, 2\n").hexdigest()}
    downloads.check("T_A.txt", b"1, 2\r\n", known)
    downloads.check("T_A.txt", b"1, 2\n", known)
    downloads.check("other.txt", b"anything", known)
    with pytest.raises(ValueError, match="other SHA-256"):
        downloads.check("T_A.txt", b"1, 3\n", known)


def test_the_known_checksums_are_those_of_the_files_here() -> None:
    folders = {"MUTAG": "MUTAG", "PROTEINS": "PROTEINS", "ind.cora": "Cora", "ind.pubmed": "PubMed"}
    seen = 0
    for file in KNOWN:
        folder = next(home for start, home in folders.items() if file.startswith(start))
        path = Path(DATA or "nowhere") / folder / "raw" / file
        if path.is_file():
            seen += 1
            downloads.check(file, path.read_bytes())
    if not seen:
        pytest.skip("LG2AR_DATA does not name a folder with these data sets")
    assert len(KNOWN) == 26
