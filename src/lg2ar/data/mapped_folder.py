"""The arrays of a folder with one large graph, mapped; what is read is looked at first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from lg2ar.data.columns import CategoryRule, Column, ColumnRecipe, Columns, NumberRule
from lg2ar.data.disk_layout import Of, RawColumn
from lg2ar.data.held_elsewhere import ColumnElsewhere
from lg2ar.data.links import Lists
from lg2ar.data.mapped_layout import damaged, open_array, read_manifest


class MappedFolder:
    """The arrays of a folder, mapped.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        self.arrays = {
            name: open_array(path, name, file) for name, file in self.manifest.arrays.items()
        }
        for name, entries in (("start", "to"), ("walk_start", "walk_to"), ("in_start", "in_from")):
            if name in self.arrays:
                start = self.arrays[name]
                if int(start[0]) != 0 or int(start[-1]) != len(self.arrays[entries]):
                    raise damaged(path, f"{name}.npy does not end where {entries}.npy does")

    def lists(self, start: str, to: str) -> Lists:
        """Lists of nodes, which are looked at before they are believed."""
        nodes = Checked(self, to, self.manifest.num_nodes)
        return _MappedLists(Checked(self, start, len(self.arrays[to]) + 1), nodes)

    def labels(self) -> Tensor | None:
        """A label per node; the file is mapped, and not to be written to."""
        if "y" not in self.arrays:
            return None
        file = self.manifest.arrays["y"]
        # Copied where somebody writes to it, and nowhere else: a tensor cannot be read-only.
        mapped = np.memmap(self.path / "y.npy", file.kind, "c", self._offset("y"), file.shape)
        return torch.from_numpy(np.asarray(mapped))

    def _offset(self, name: str) -> int:
        return (self.path / f"{name}.npy").stat().st_size - self.arrays[name].nbytes

    def texts(self, name: str) -> MappedTexts:
        """What each node is called, or another word for each."""
        return MappedTexts(self, name)

    def columns(self, of: Of) -> Columns:
        """The raw columns of nodes or of edges."""
        raws = self.manifest.layout.columns(of)
        rules = ColumnRecipe.from_dict(self.manifest.rules[of]).rules if raws else ()
        return tuple(
            MappedColumn(self, of, raw, rule) for raw, rule in zip(raws, rules, strict=True)
        )

    def part(self, of: Of, raw: RawColumn, index: np.ndarray | slice) -> Column:
        """Some values of a raw column."""
        name, place = self.manifest.layout.place(of, raw)
        try:
            return raw.column(self.arrays[name][:, place][index])
        except ValueError as error:
            raise damaged(self.path, str(error)) from None

    def parts(self, of: Of, index: np.ndarray) -> Columns:
        """Some values of all raw columns."""
        return tuple(self.part(of, raw, index) for raw in self.manifest.layout.columns(of))


class Checked:
    """A mapped array of whole numbers below a bound; what is read is looked at.

    Args:
        folder: Where it is.
        name: Of the array.
        bound: What its numbers are below.
    """

    def __init__(self, folder: MappedFolder, name: str, bound: int) -> None:
        self._folder, self._name, self._bound = folder, name, bound
        self._array = folder.arrays[name]

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> np.ndarray:
        held = np.array(self._array[index], dtype=np.int64)
        if held.size and not 0 <= held.min() <= held.max() < self._bound:
            wrong = held[(held < 0) | (held >= self._bound)].reshape(-1)[0]
            raise damaged(
                self._folder.path,
                f"{self._name}.npy holds {wrong}, outside 0 to {self._bound - 1}",
            )
        return held


class _MappedLists(Lists):
    """Lists in which a damaged start is noticed."""

    def __init__(self, start: Checked, to: Checked) -> None:
        # What has the arrays' way of looking things up will do in their place.
        super().__init__(start, to)  # type: ignore[arg-type]
        object.__setattr__(self, "_checked", start)

    _checked: Checked

    def spans(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        first, count = super().spans(nodes)
        if count.numel() and int(count.min()) < 0:
            raise damaged(self._checked._folder.path, f"{self._checked._name}.npy is not ascending")
        return first, count


class MappedTexts(Sequence[str]):
    """Words that are read when somebody asks for them.

    Args:
        folder: Where they are.
        name: Of their array.
    """

    def __init__(self, folder: MappedFolder, name: str) -> None:
        self._folder, self._name = folder, name
        self._bytes, self._ends = folder.arrays[name], folder.arrays[f"{name}_ends"]

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step == 1:
                return tuple(self._range(first, max(first, last)))
            return tuple(self[place] for place in range(first, last, step))
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return next(iter(self._range(place, place + 1)))

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), 1 << 16):
            yield from self._range(first, min(first + (1 << 16), len(self)))

    def _range(self, first: int, last: int) -> list[str]:
        if first == last:
            return []
        begin = int(self._ends[first - 1]) if first else 0
        ends = np.asarray(self._ends[first:last]) - begin
        starts = np.concatenate([[0], ends[:-1]])
        if (ends < starts).any() or not 0 <= begin <= begin + int(ends[-1]) <= len(self._bytes):
            raise damaged(self._folder.path, f"{self._name}_ends.npy is not ascending")
        content = self._bytes[begin : begin + int(ends[-1])].tobytes()
        try:
            return [
                content[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
            ]
        except UnicodeDecodeError:
            raise damaged(self._folder.path, f"{self._name}.npy is not text") from None


class MappedTargets(Mapping[str, np.ndarray]):
    """Further columns, read when somebody asks for them.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: MappedFolder) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._folder.manifest.targets:
            raise KeyError(name)
        file = f"target_{self._folder.manifest.targets.index(name)}"
        if f"{file}_ends" not in self._folder.arrays:
            return self._folder.arrays[file]
        return np.array([text or None for text in self._folder.texts(file)], dtype=object)

    def __iter__(self) -> Iterator[str]:
        return iter(self._folder.manifest.targets)

    def __len__(self) -> int:
        return len(self._folder.manifest.targets)


class MappedColumn(ColumnElsewhere):
    """A raw column of a mapped folder, of which some values can be read without the others.

    Args:
        folder: Where it is.
        of: Whether it has a value per node or per edge.
        raw: What is known of it.
        rule: What was learned of it when it was written.
    """

    def __init__(
        self, folder: MappedFolder, of: Of, raw: RawColumn, rule: NumberRule | CategoryRule
    ) -> None:
        total = folder.manifest.num_nodes if of == "nodes" else folder.manifest.num_edges
        part = partial(folder.part, of, raw)
        super().__init__(raw, total, partial(part, slice(None)))
        object.__setattr__(self, "_part", part)
        object.__setattr__(self, "rule", rule)

    _part: Callable[[np.ndarray], Column]
    rule: NumberRule | CategoryRule

    def take(self, index: np.ndarray) -> Column:
        """The values at these places; no others are read."""
        return self._part(index)
