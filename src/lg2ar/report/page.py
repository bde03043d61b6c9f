"""One page that shows a run in a single HTML file, with the data it was trained on or other data.

The page needs nothing beside itself: no network, no library, no other file. A content security
policy lets no script run but the page's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lg2ar import checkpoint
from lg2ar.data.dataset import Dataset
from lg2ar.data.reading import ReadOptions
from lg2ar.data.sources import Source, open_source
from lg2ar.errors import InputError
from lg2ar.files import write_bytes
from lg2ar.records import EpochRecord, versions
from lg2ar.report.curves import training_sections
from lg2ar.report.document import document
from lg2ar.report.examples import examples_section
from lg2ar.report.explorer import atlas_section
from lg2ar.report.findings import Findings, find
from lg2ar.report.overview import overview_section
from lg2ar.report.provenance import provenance_section, recorded_source
from lg2ar.report.scores import scores_section
from lg2ar.report.words import shortened
from lg2ar.runs import Run, load

REPORT_FILE = "report.html"


def write_report(
    folder: str | Path,
    source: Source | None = None,
    *,
    out: str | Path | None = None,
    options: ReadOptions | None = None,
    colour_by: str | None = None,
    examples: int = 3,
    device: str = "auto",
    command: Sequence[str] | None = None,
) -> Path:
    """Write the page of a run: embed the data, cut views, score, and put it all into one file.

    Args:
        folder: What :func:`~lg2ar.experiment.pretrain` wrote.
        source: Graphs to show; None takes what the run says it was trained on, if that can be
            opened from here. If not, the page says what is missing.
        out: The file; ``report.html`` in the run folder by default.
        options: How to read the source.
        colour_by: The column that the map's points are coloured by first.
        examples: How many graphs to show views of.
        device: ``auto``, ``cpu`` or ``cuda``.
        command: What the page is made with, to be told in it.

    Returns:
        Where the page is.

    Raises:
        InputError: When the folder holds no run, the source does not fit it, or the page cannot
            be written.
    """
    path = _checked(folder, out)
    run = load(folder, device)
    dataset, notes = _opened(run, source, options, Path(folder))
    if dataset is None:
        return write_page(folder, Findings(notes=notes), out=path, command=command)
    findings = find(run, dataset, colour_by=colour_by, examples=examples, notes=notes)
    return write_page(folder, findings, out=path, command=command)


def write_page(
    folder: str | Path,
    findings: Findings | None = None,
    *,
    out: str | Path | None = None,
    command: Sequence[str] | None = None,
) -> Path:
    """Write the page of what a run folder holds and of what was found.

    Args:
        folder: What :func:`~lg2ar.experiment.pretrain` wrote.
        findings: What :func:`~lg2ar.report.findings.find` found.
        out: The file; ``report.html`` in the run folder by default.
        command: What the page is made with, to be told in it.

    Returns:
        Where the page is.

    Raises:
        InputError: When the folder holds no run, or cannot be read or written.
    """
    folder = Path(folder)
    held = checkpoint.read(folder)
    findings = findings or Findings()
    try:
        heads = len(held.config.heads)
        history = [EpochRecord.from_dict(record, heads) for record in held.progress["history"]]
    except (KeyError, TypeError):
        raise InputError(
            f"{folder / checkpoint.RUN_FILE}: its history is damaged; train again."
        ) from None
    chances = dict(
        zip(held.config.heads, history[-1].probabilities, strict=True) if history else ()
    )
    sections = [
        overview_section(held, history, findings.scores, findings.notes),
        atlas_section(findings.atlas) if findings.atlas else "",
        examples_section(findings.examples, chances) if findings.examples else "",
        scores_section(findings.scores, findings.scores_note),
        *training_sections(held, history),
        provenance_section(folder, held, command, versions()),
    ]
    path = _checked(folder, out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, document(str(held.data.get("name", "")), sections).encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from None
    return path


def _checked(folder: str | Path, out: str | Path | None) -> Path:
    """Where the page goes; only what is called a page is ever overwritten."""
    path = Path(folder) / REPORT_FILE if out is None else Path(out)
    if path.suffix not in (".html", ".htm"):
        raise InputError(f"{path}: the page is HTML; give a name that ends in .html.")
    return path


def _opened(
    run: Run, source: Source | None, options: ReadOptions | None, folder: Path
) -> tuple[Dataset | None, list[str]]:
    """The data to show, and what to say about it."""
    given = recorded_source(run.data) if source is None else source
    reason = "what it names is not what it was when the run was trained."
    try:
        dataset = open_source(given, run.config.level, options, run.data.get("reading"))
    except InputError as error:
        if source is not None:
            raise
        dataset, reason = None, str(error).partition(";")[0] + "."  # not what else is known
    notes = [] if dataset is None else [shortened(note, 300) for note in dataset.notes]
    if dataset is not None and dataset.fingerprint() == run.data.get("fingerprint"):
        return dataset, notes
    if source is not None:
        assert dataset is not None
        name = shortened(dataset.name)
        return dataset, [*notes, f"Map, views and scores are of {name}, which was not trained on."]
    return None, [
        f"The data that was trained on cannot be opened here: {reason} So there is no map, no view "
        f"and no score on this page; 'lg2ar report {folder} SOURCE' adds them."
    ]
