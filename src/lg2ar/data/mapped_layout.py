"""What a folder with one large graph is made of: plain arrays, and a file that says what they are.

Every array is a ``.npy`` file, so that the system maps it into memory page by page as it is looked
at. ``graph.json`` names them with type, shape and SHA-256, and holds all that is known of the graph
without reading it, and a seal (:mod:`lg2ar.seals`). Nothing is pickled.

=====================  ======================  =====================================================
file                   shape                   holds
=====================  ======================  =====================================================
``start``              ``[N + 1]``             where the list of each node begins
``to``                 ``[E]``                 the nodes its edges lead to, ascending in each list
``x``                  ``[N, d_x]``            features, float32 or float16
``edge_weight``        ``[E]``                 weights of edges
``edge_attr``          ``[E, d_e]``            attributes of edges
``node_numbers`` ...   ``[N, k]``              raw columns, as in ``disk_layout.RAW``
``walk_start, _to``    ``[N + 1]``, ``[..]``   neighbours in either direction, where they differ
``in_start, _from``    ``[N + 1]``, ``[E]``    the same edges by target, where not all go both ways
``in_slot``            ``[E]``                 the place of each of those in ``to``
``y``                  ``[N]``                 labels
``ids, ids_ends``      ``[bytes]``, ``[N]``    what nodes are called, as UTF-8, one after the other
``target_0`` ...       ``[N]``                 further columns; words as ids are
=====================  ======================  =====================================================
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from lg2ar import seals
from lg2ar.data.columns import ColumnRecipe
from lg2ar.data.disk_layout import Layout, NewerFormatError, read_description
from lg2ar.errors import InputError
from lg2ar.files import bring_back

FORMAT = 2
UNSEALED = 1  # the format before there were seals
SUFFIX = ".graph"
MANIFEST = "graph.json"
LARGEST_MANIFEST = 1 << 28

# Bytes that are read at a time where a whole file is.
BLOCK = 1 << 24

# What arrays are called; their files lie in the folder and nowhere else.
_NAME = re.compile("[a-z0-9_]+")


@dataclass(frozen=True)
class ArrayFile:
    """An array as the manifest describes it.

    Attributes:
        kind: Its type, as NumPy writes it.
        shape: Its shape.
        sha256: Of its bytes in the file, without the file's header.
    """

    kind: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What is known of a large graph without reading it.

    Attributes:
        name: What the data is called.
        num_nodes: ``N``.
        num_edges: Listed edges, ``E``.
        layout: Widths, and raw columns of nodes and edges.
        fingerprint: That of the data.
        arrays: What is in the folder, by name.
        rules: How raw columns of ``nodes`` and ``edges`` become features, learned once.
        targets: Names of further columns, in the order of their files.
        classes: Names of the labels.
        notes: Sentences from reading.
        reading: Options that the data was read with.
        made_of: Tells whether it was made of the same source and with the same options
            (:mod:`lg2ar.data.prints`); nothing where an earlier version wrote it.
    """

    name: str
    num_nodes: int
    num_edges: int
    layout: Layout
    fingerprint: str
    arrays: Mapping[str, ArrayFile] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)
    made_of: str = ""

    def to_bytes(self) -> bytes:
        """As it stands in the file."""
        text = json.dumps({"format": FORMAT, seals.KEY: seals.OPEN, **asdict(self)}, indent=1)
        return seals.close(text.encode())

    @classmethod
    def from_bytes(cls, content: bytes) -> Manifest:
        """What :meth:`to_bytes` wrote; see :func:`~lg2ar.data.disk_layout.read_description`."""
        held = read_description(content, (UNSEALED, FORMAT), ("classes", "notes", "targets"))
        sealed = held.pop("format") == FORMAT
        if sealed != seals.has_seal(content) or (sealed and not seals.is_whole(content)):
            raise ValueError("not what was written, its checksum differs")
        held.pop(seals.KEY, None)
        arrays = {
            str(name): ArrayFile(str(file["kind"]), tuple(file["shape"]), str(file["sha256"]))
            for name, file in held.pop("arrays").items()
        }
        made = cls(arrays=arrays, **held)
        made.check()
        return made

    def check(self) -> None:
        """Refuse what no conversion writes.

        Raises:
            ValueError, TypeError, KeyError: When there is such.
        """
        self.layout.check_counts(self.num_nodes, self.num_edges)
        texts = (self.name, self.made_of, *self.targets, *(self.classes or ()), *self.notes)
        if not self.num_nodes or not all(isinstance(text, str) for text in texts):
            raise ValueError("a count is not a whole number, or a text is none")
        for of in ("nodes", "edges"):
            raws = self.layout.nodes if of == "nodes" else self.layout.edges
            rules = ColumnRecipe.from_dict(self.rules[of]).rules if raws else ()
            if [(rule.name, rule.kind) for rule in rules] != [(raw.name, raw.kind) for raw in raws]:
                raise ValueError(f"rules for other columns of {of}")
        expected = self.expected()
        if self.arrays.keys() != expected.keys() or not all(map(_NAME.fullmatch, expected)):
            raise ValueError("arrays that no conversion writes")
        for name, (kinds, shape) in expected.items():
            found = self.arrays[name]
            if found.kind not in kinds or found.shape != shape:
                raise ValueError(f"{name} is {found.kind} {list(found.shape)}")

    def expected(self) -> dict[str, tuple[tuple[str, ...], tuple[int, ...]]]:
        """The types and the shape that each array must have, as far as counts tell it."""
        n, e, whole = self.num_nodes, self.num_edges, ("<i4", "<i8")
        found: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
            "start": (("<i8",), (n + 1,)),
            "to": (whole, (e,)),
        }
        for item in self.layout.fields():
            rows = n if item.of == "nodes" else e
            shape = (rows,) if item.width is None else (rows, item.width)
            kinds = ("<f4", "<f2") if item.name == "x" else (item.kind,)
            found[item.name] = (kinds, shape)
        if "in_start" in self.arrays:
            found |= {"in_start": (("<i8",), (n + 1,)), "in_slot": (whole, (e,))}
            found["in_from"] = (whole, (e,))
        if "walk_start" in self.arrays:
            found["walk_start"] = (("<i8",), (n + 1,))
            found["walk_to"] = (whole, self.arrays["walk_to"].shape[:1])
        if "y" in self.arrays:
            found["y"] = (("<i8", "<f4"), (n,))
        texts = [name.removesuffix("_ends") for name in self.arrays if name.endswith("_ends")]
        for name in texts:
            found[name] = (("|u1",), self.arrays[name].shape[:1])
            found[f"{name}_ends"] = (("<i8",), (n,))
        for place in range(len(self.targets)):
            if f"target_{place}" not in texts:
                found[f"target_{place}"] = ((self.arrays[f"target_{place}"].kind,), (n,))
        return found


def is_mapped(path: Path) -> bool:
    """Whether a folder is meant to hold one large graph.

    One that somebody was killed at replacing is brought back first.
    """
    if path.suffix == SUFFIX:
        bring_back(path)
    return (path / MANIFEST).is_file() or (path.is_dir() and path.suffix == SUFFIX)


def read_manifest(folder: Path) -> Manifest:
    """What a folder says of itself.

    Raises:
        InputError: When that is not there or not what a conversion writes.
    """
    path = folder / MANIFEST
    bring_back(folder)
    try:
        if path.stat().st_size > LARGEST_MANIFEST:
            raise ValueError(f"more than {LARGEST_MANIFEST >> 20} MB")
        return Manifest.from_bytes(path.read_bytes())
    except NewerFormatError as error:
        raise InputError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise damaged(folder, f"{MANIFEST} is missing") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}).") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(folder, f"{MANIFEST}: {str(error)[:200]}") from None


def open_array(folder: Path, name: str, file: ArrayFile) -> np.ndarray:
    """Map an array, once it is clear that it is the one the manifest means.

    Raises:
        InputError: When it is missing, or of another type, shape or length.
    """
    path = folder / f"{name}.npy"
    try:
        with open(path, "rb") as content:
            version = np.lib.format.read_magic(content)
            if version != (1, 0):
                raise ValueError("another version")
            shape, _, kind = np.lib.format.read_array_header_1_0(content)
            offset = content.tell()
        if kind.str != file.kind or shape != file.shape:
            raise ValueError(f"holds {kind.str} {list(shape)}, not {file.kind} {list(file.shape)}")
        length = offset + kind.itemsize * int(np.prod(shape, dtype=object))
        if path.stat().st_size != length:
            raise ValueError(f"has {path.stat().st_size} bytes, not {length}")
        if 0 in shape:
            return np.empty(shape, kind)  # nothing cannot be mapped
        return np.asarray(np.memmap(path, kind, "r", offset, shape))
    except FileNotFoundError:
        raise damaged(folder, f"{path.name} is missing") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}).") from None
    # NumPy reads the header as Python's own words.
    except (ValueError, TypeError, OverflowError, SyntaxError, TokenError) as error:
        raise damaged(folder, f"{path.name}: {str(error)[:200]}") from None


def check_sums(folder: Path, on_bytes: Callable[[int, int], None] | None = None) -> None:
    """Read every array of a folder and compare its checksum with the manifest.

    Args:
        folder: What a conversion wrote.
        on_bytes: Called now and then with how many bytes of how many are read.

    Raises:
        InputError: Naming the file that is another one.
    """
    manifest = read_manifest(folder)
    arrays = {name: open_array(folder, name, file) for name, file in manifest.arrays.items()}
    total, done = sum(array.nbytes for array in arrays.values()), 0
    for name, array in arrays.items():
        digest = hashlib.sha256()
        plain = array.reshape(-1).view(np.uint8)
        for first in range(0, len(plain), BLOCK):
            digest.update(plain[first : first + BLOCK].data)
            done += len(plain[first : first + BLOCK])
            if on_bytes is not None:
                on_bytes(done, total)
        if digest.hexdigest() != manifest.arrays[name].sha256:
            raise damaged(folder, f"{name}.npy is not what was written: its checksum differs")


def damaged(folder: Path, what: str) -> InputError:
    """The sentence about a folder that is not what a conversion wrote."""
    return InputError(
        f"{folder}: not a whole folder of one large graph ({what}); make it again with "
        "'lg2ar convert'."
    )
