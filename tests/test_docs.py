"""The documentation is true: what its pages show runs and says what they say, and the site builds.

Blocks of code in ``docs/*.md`` are run in order, in one folder per chain of pages. A comment above
a block tells what is special about it:

- ``<!-- file NAME -->``: what the block holds is written to this file;
- ``<!-- output -->``: it is part of what the block before it printed. A number with a point stands
  for any number, since training is cut short here; ``...`` for anything; spaces do not count;
- ``<!-- output like -->``: the same, but whole numbers stand for any as well;
- ``<!-- installs FOLDER -->``: a package is made known to this process, not installed;
- ``<!-- refused -->``: the last command ends with exit code 2;
- ``<!-- not run: REASON -->``: it is shown only.

A page that begins with ``<!-- after PAGE -->`` goes on where the other one ended; one that begins
with ``<!-- needs PACKAGE ... -->`` is not run where one of these is missing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lg2ar
from lg2ar import cli, plugins

DOCS = Path(__file__).parent.parent / "docs"

# Their commands take hours or a GPU, or their numbers have tests of their own (test_readme.py).
REFERENCE = {"architecture", "findings", "paper", "performance", "protocols", "results"}

RUN = ("sh", "python")
POINTED = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?")
WHOLE = re.compile(r"(?<![\d.])\d+(?![\d.])")
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"


@dataclass(frozen=True)
class Block:
    """A block of code, where it stands, and what the comment above it says."""

    place: str
    language: str
    mark: str
    text: str


@dataclass(frozen=True)
class Page:
    """A page with code."""

    name: str
    after: str | None
    needs: tuple[str, ...]
    blocks: tuple[Block, ...]


def read_page(path: Path) -> Page:
    """Find the blocks of a page."""
    blocks, mark, lines = [], "", iter(enumerate(path.read_text().splitlines(), start=1))
    after = re.search(r"^<!-- after (\S+?)(?:\.md)? -->$", path.read_text(), re.MULTILINE)
    for number, line in lines:
        if found := re.fullmatch(r"<!-- (.+) -->", line.strip()):
            mark = found[1]
            continue
        if found := re.fullmatch(r"```(\w*|\{[\w-]+\})", line):
            body = []
            for _, inner in lines:
                if inner == "```":
                    break
                body.append(inner)
            text = "\n".join([*body, ""])
            blocks.append(Block(f"{path.name}:{number}", found[1], mark, text))
        if line.strip():
            mark = ""
    needs = re.search(r"^<!-- needs (.+) -->$", path.read_text(), re.MULTILINE)
    return Page(
        name=path.stem,
        after=after[1] if after else None,
        needs=tuple(needs[1].split()) if needs else (),
        blocks=tuple(blocks),
    )


PAGES = {path.stem: read_page(path) for path in sorted(DOCS.glob("*.md"))}
RUNNABLE = [
    name
    for name, page in PAGES.items()
    if name not in REFERENCE and any(block.language in RUN for block in page.blocks)
]


class Reader:
    """Does what a page shows, as a person would who reads it from top to bottom."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._folder, self._patch = folder, patch
        self._printed = ""

    def follow(self, page: Page) -> None:
        """Do all that is on the page."""
        for block in page.blocks:
            kind, _, rest = block.mark.partition(" ")
            if block.mark.startswith("not run:"):
                assert rest.removeprefix("run:").strip(), f"{block.place}: says no reason"
            elif kind == "file":
                file = self._folder / rest
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text)
            elif kind == "installs":
                install(self._folder / rest, self._patch)
            elif kind == "output":
                assert said(block.text, self._printed, like=rest == "like"), (
                    f"{block.place}: was to be printed, but this was:\n{self._printed}"
                )
            elif block.language in RUN:
                self._run(block)

    def _run(self, block: Block) -> None:
        printed = io.StringIO()
        out, err = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed)
        with out, err, contextlib.chdir(self._folder):
            if block.language == "python":
                exec(compile(block.text, block.place, "exec"), self._names)
                code = 0
            else:
                code = run_lines(block.text, block.place, printed)
        self._printed = printed.getvalue()
        expected = 2 if block.mark == "refused" else 0
        assert code == expected, f"{block.place}: ended with {code}:\n{self._printed}"


def run_lines(text: str, place: str, printed: io.StringIO) -> int:
    """Run the commands of a block; the exit code of the first that fails, or else 0."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        code = run_lg2ar(briefly(words)) if words[0] == "lg2ar" else run_other(line, printed)
        if code:
            return code
    return 0


def briefly(words: list[str]) -> list[str]:
    """The command with less training, which is not what pages are tested for."""
    return [*words, "--set", "epochs=3"] if words[1] in ("pretrain", "finetune") else words


def run_lg2ar(words: list[str]) -> int:
    """Run the command line in this process, where all is imported already."""
    before, sys.argv = sys.argv, words
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.argv = before


def run_other(line: str, printed: io.StringIO) -> int:
    here = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(line, shell=True, capture_output=True, text=True, env=here)
    printed.write(done.stdout + done.stderr)
    return done.returncode


def install(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let this process find a package and its entry points, as if pip had installed it."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))
    patch.syspath_prepend(folder)
    plugins._offered.cache_clear()


def said(expected: str, printed: str, *, like: bool = False) -> bool:
    """Whether it was printed; some numbers may be others."""
    expected = re.sub(r"\b\d+(?= epochs\b)", "\0", POINTED.sub("\0", expected))
    parts = []
    for word in (WHOLE.sub("\0", expected) if like else expected).split():
        pieces = [re.escape(piece) for piece in word.split("...")]
        parts.append("(?s:.*?)".join(pieces).replace("\0", NUMBER))
    pattern = r"\s+".join(parts).replace(r"\s+(?s:.*?)\s+", r"(?s:\s(?:.*?\s)?)")
    return re.search(rf"(?<!\w){pattern}(?!\w)", printed) is not None


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    """What pages do to this process, until they are all read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(plugins, "_registered", {})
        yield patch
    plugins._offered.cache_clear()


@pytest.fixture(scope="module")
def follow(
    tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch
) -> Callable[[str], Reader]:
    """Reads a page, and those before it, if that has not been done."""
    followed: dict[str, Reader] = {}

    def follow(name: str) -> Reader:
        if name not in followed:
            page = PAGES[name]
            for package in page.needs:
                pytest.importorskip(package)
            if page.after is None:
                reader = Reader(tmp_path_factory.mktemp(name), patch)
            else:
                reader = follow(page.after)
            reader.follow(page)
            followed[name] = reader
        return followed[name]

    return follow


@pytest.mark.parametrize("name", RUNNABLE)
def test_what_a_page_shows_runs(name: str, follow: Callable[[str], Reader]) -> None:
    follow(name)


def test_the_pages_for_users_have_code() -> None:
    assert {"tour", "own-data", "molecules", "large-graph", "finetuning"} <= set(RUNNABLE)


@pytest.mark.parametrize(
    ("expected", "printed", "is_said"),
    [
        ("loss 1.5", "epoch 1\n  loss   -2.25\n", True),
        ("loss 1.5 3", "loss 1.5 4", False),
        ("a ... d", "a b\nc d", True),
        ("a ... d", "a d", True),
        ("20 epochs in 1.5 s", "3 epochs in 0.1 s", True),
        ("width 64", "width 640", False),
        ("3 clusters", "2 clusters", False),
        ("no (such) thing", "no such thing", False),
    ],
)
def test_output_is_compared(expected: str, printed: str, is_said: bool) -> None:
    assert said(expected, printed) == is_said


def test_output_is_compared_roughly() -> None:
    assert said("case-01 2 0.5", "case-76  12  1", like=True)
    assert not said("case-01 2 0.5", "dog-76 12 1", like=True)


def test_a_wrong_page_is_found(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    def page(*lines: str) -> Page:
        file = tmp_path / "page.md"
        file.write_text("\n".join(lines))
        return read_page(file)

    right = ("```sh", "lg2ar version", "```", "<!-- output -->", "```text", '"lg2ar": ...', "```")
    Reader(tmp_path, patch).follow(page(*right))
    with pytest.raises(AssertionError, match=r"page\.md:5: was to be printed"):
        Reader(tmp_path, patch).follow(page(*right[:5], "lg2dar", "```"))
    with pytest.raises(AssertionError, match=r"page\.md:1: ended with 2"):
        Reader(tmp_path, patch).follow(page("```sh", "lg2ar inspect nothing.csv", "```"))
    with pytest.raises(AssertionError, match=r"page\.md:2: ended with 0"):
        Reader(tmp_path, patch).follow(page("<!-- refused -->", "```sh", "lg2ar version", "```"))
    with pytest.raises(ZeroDivisionError):
        Reader(tmp_path, patch).follow(page("```python", "1 / 0", "```"))


def extension(name: str) -> ModuleType:
    """One of the site's own extensions of Sphinx."""
    pytest.importorskip("sphinx", reason="needs Sphinx: pip install 'lg2ar[docs]'")
    file = DOCS / "_extensions" / f"{name}.py"
    found = importlib.util.spec_from_file_location(name, file)
    assert found is not None
    assert found.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_module_is_in_the_reference() -> None:
    reference = extension("module_reference")
    pages = "".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    listed = set(re.findall(r"lg2ar\.[\w.]+", " ".join(re.findall(r"modules::([^`]+)", pages))))
    tops = {path for path, _ in reference.below("lg2ar") if path.count(".") == 1}
    assert listed == tops


def test_every_public_name_is_on_the_first_page_of_the_reference() -> None:
    page = (DOCS / "api" / "index.md").read_text()
    named = set(re.findall(r"auto\w+:: lg2ar\.(\w+)$", page, flags=re.MULTILINE))
    assert named == {name for name in lg2ar.__all__ if not name.startswith("_")}


def test_every_setting_has_a_meaning() -> None:
    tables = extension("setting_tables")
    assert tables.meanings().keys() == lg2ar.Config().to_dict().keys()


def test_every_command_is_described() -> None:
    tables = extension("command_tables")
    described = dict(tables.commands(cli.app))
    assert {"lg2ar pretrain", "lg2ar embed", "lg2ar bench step"} <= described.keys()
    for command in described.values():
        assert command.__doc__
        assert all(item.info.help for item in tables.parameters(command))


def test_formulas_become_mathml() -> None:
    mathml = extension("mathml")
    assert mathml.prepare(r"\Big[ x \Big] \bigg\{") == r"\Bigl[ x \Bigr] \biggl\{"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors."""
    for package in ("furo", "myst_parser", "sphinx_copybutton"):
        pytest.importorskip(package, reason="needs Sphinx: pip install 'lg2ar[docs]'")
    trees, out = tmp_path_factory.mktemp("trees"), tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(trees), str(DOCS), str(out)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_fetches_nothing(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert {path.stem for path in pages} >= PAGES.keys()
    for page in pages:  # links to other sites are for people to follow
        fetched = re.findall(r'(?:src|<link[^>]* href)="(https?:[^"]+)"', page.read_text())
        assert not fetched, f"{page.name} fetches {fetched}"


@pytest.mark.slow
def test_formulas_are_drawn(site: Path, tmp_path: Path) -> None:
    webdriver = pytest.importorskip("selenium.webdriver")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("chromium and chromedriver, in which formulas are drawn, are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        browser.get((site / "method.html").as_uri())
        boxes = browser.execute_script(
            "return [...document.querySelectorAll('math')].map(m => "
            "[m.getBoundingClientRect().width, m.getBoundingClientRect().height, m.textContent])"
        )
        problems = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    finally:
        browser.quit()
    assert len(boxes) > 40
    assert all(width > 3 and height > 5 for width, height, _ in boxes)
    assert not any("\\" in text for *_, text in boxes), "LaTeX that was not translated"
    assert not problems
