"""Planetoid's raw files, which are pickles, read without running what they say.

A pickle is a little program that may call anything. The one in here may call nothing: the few names
that occur in these files stand for objects of ours that only remember what they were given, and any
other name is refused. Arrays are then made of bytes whose number has to fit.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lg2ar.data.sparse_arrays import dense, shape_of

if TYPE_CHECKING:
    from torch_geometric.data import Data

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph")
VALIDATION = 500  # nodes behind those to learn from, as the public split has it

# The pure one: the other makes room for as many objects as a file says it will name.
_Unpickler: Any = pickle._Unpickler


def read_planetoid(raw: Path, name: str) -> Data:
    """The graph of Planetoid's files, as PyG's ``read_planetoid_data`` makes it.

    Args:
        raw: The folder.
        name: Of the data set, as it stands in the names of the files.

    Raises:
        ValueError: When a file is not what it should be; its path is the local ``path`` of the
            frame that noticed.
    """
    from torch_geometric.data import Data
    from torch_geometric.utils import coalesce, index_to_mask, remove_self_loops

    stem = f"ind.{name.lower()}"
    held = {part: _read_part(str(raw / f"{stem}.{part}")) for part in PARTS}
    test = _read_index(str(raw / f"{stem}.test.index"))
    placed = test.sort()[0]
    tx, ty = held["tx"], held["ty"]
    if name.lower() == "citeseer":  # some nodes of the test set are not there: rows of zeros
        tx, ty = _spread(tx, placed), _spread(ty, placed)
    x, y = torch.cat([held["allx"], tx]), torch.cat([held["ally"], ty]).max(dim=1)[1]
    number = len(y)
    if len(x) != number or len(held["y"]) + VALIDATION > number or int(test.max()) >= number:
        raise ValueError("features, labels and the test set do not fit each other")
    x[test], y[test] = x[placed], y[placed]
    edges, _ = remove_self_loops(_edges(held["graph"], number))
    learned = torch.arange(len(held["y"]))
    return Data(
        x=x,
        edge_index=coalesce(edges, num_nodes=number, sort_by_row=False),
        y=y,
        train_mask=index_to_mask(learned, size=number),
        val_mask=index_to_mask(torch.arange(VALIDATION) + len(learned), size=number),
        test_mask=index_to_mask(test, size=number),
    )


def load_arrays(content: bytes) -> Any:
    """What a pickle of an array, a sparse matrix or lists by number holds, and nothing else.

    Returns:
        An array, made dense where it was sparse; or a dictionary of lists of whole numbers.

    Raises:
        pickle.UnpicklingError: When it names anything else.
        ValueError: When its parts do not fit each other.
    """
    try:
        held = _ArraysAlone(io.BytesIO(content), encoding="latin1").load()
        made = held.made() if isinstance(held, _Array | _Sparse) else held
    except (pickle.UnpicklingError, ValueError, MemoryError):
        raise
    except Exception as error:  # a damaged program can fail in any way
        raise ValueError(f"it cannot be read ({type(error).__name__})") from None
    if not isinstance(made, np.ndarray | dict):
        raise ValueError("is neither an array nor lists")
    return made


class _Dtype:
    """Stands for ``numpy.dtype``: its name, and then its state with the order of bytes."""

    def __init__(self, name: object = "", *_: object) -> None:
        self.name, self.order = name, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def made(self) -> np.dtype[Any]:
        named = isinstance(self.name, str) and re.fullmatch(r"[fiub][1248]", self.name)
        if not named or self.order not in ("<", ">", "|", "="):
            raise ValueError("an array of something else than numbers")
        return np.dtype(f"{self.order}{self.name}")


class _Array:
    """Stands for ``numpy.ndarray``, as ``_reconstruct`` makes it: its state is all it is."""

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def made(self) -> np.ndarray:
        _, shape, kind, turned, data = self.state
        if isinstance(data, str):  # as Python 2 wrote bytes
            data = data.encode("latin1")
        if not isinstance(kind, _Dtype) or not isinstance(data, bytes):
            raise ValueError("an array without its numbers")
        if not all(isinstance(size, int) and size >= 0 for size in shape):
            raise ValueError("an array of no shape")
        dtype = kind.made()
        if math.prod(shape) * dtype.itemsize != len(data):
            raise ValueError("an array with more or fewer numbers than it says")
        flat = np.frombuffer(data, dtype=dtype)
        return flat.reshape(shape, order="F" if turned else "C").copy()


class _Sparse:
    """Stands for ``scipy.sparse.csr_matrix``: its parts by name."""

    def __init__(self, *_: object) -> None:
        self.parts: dict[str, Any] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.parts = dict(state)

    def made(self) -> np.ndarray:
        parts = [self.parts.get(part) for part in ("data", "indices", "indptr")]
        data, indices, indptr = (p.made() for p in parts if isinstance(p, _Array))
        return dense(data, indices, indptr, shape_of(self.parts["_shape"]))


class _Lists:
    """Stands for ``collections.defaultdict``; without places that a pickle could write to."""

    __slots__ = ()

    def __call__(self, *_: object) -> dict[int, list[int]]:
        return {}

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it wants to change what is not its own")


class _Nothing(_Lists):
    """Stands for classes that are named and not needed."""

    __slots__ = ()

    def __call__(self, *_: object) -> Any:
        return None


# Steps that these files have no use for: they ask for room beforehand, or for things from outside.
_REFUSED = (
    *(pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER),
    *(pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID, pickle.BINPERSID),
)


class _ArraysAlone(_Unpickler):  # type: ignore[misc]
    """Knows a few names; what they stand for is ours."""

    KNOWN: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _Nothing(),
        ("numpy", "dtype"): _Dtype,
        ("scipy.sparse.csr", "csr_matrix"): _Sparse,
        ("scipy.sparse._csr", "csr_matrix"): _Sparse,
        ("collections", "defaultdict"): _Lists(),
        ("__builtin__", "list"): _Nothing(),
        ("builtins", "list"): _Nothing(),
    }

    dispatch: ClassVar[dict[int, Any]] = {
        code: step for code, step in _Unpickler.dispatch.items() if bytes([code]) not in _REFUSED
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it wants to use {module}.{name}, where only arrays are read"
            ) from None


def _read_part(path: str) -> Any:
    held = load_arrays(Path(path).read_bytes())
    if path.endswith(".graph"):
        if not isinstance(held, dict):
            raise ValueError("is not lists of neighbours")
        return held
    if not isinstance(held, np.ndarray) or held.ndim != 2:
        raise ValueError("is not a matrix")
    return torch.from_numpy(held.astype(np.float32))


def _read_index(path: str) -> Tensor:
    numbers = [int(word) for word in Path(path).read_bytes().split()]
    if not numbers or min(numbers) < 0 or max(numbers) >= 1 << 31:
        raise ValueError("is not a list of nodes")
    return torch.tensor(numbers)


def _spread(rows: Tensor, placed: Tensor) -> Tensor:
    first, last = int(placed[0]), int(placed[-1])
    if len(rows) != len(placed) or last - first >= 2 * len(placed):
        raise ValueError("the test set does not fit its features")
    made = rows.new_zeros(last - first + 1, rows.size(1))
    made[placed - first] = rows
    return made


def _edges(lists: dict[int, list[int]], number: int) -> Tensor:
    # A pickle may name one list many times, and so be far smaller than what it says.
    if len({id(others) for others in lists.values()}) != len(lists):
        raise ValueError("a list of neighbours that several nodes share")
    pairs = [(node, other) for node, others in lists.items() for other in others]
    if not all(type(end) is int and 0 <= end < number for pair in pairs for end in pair):
        raise ValueError("a neighbour that is no node")
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous()
