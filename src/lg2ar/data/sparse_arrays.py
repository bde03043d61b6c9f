"""Sparse matrices as files hold them, made dense; what does not fit together is refused.

SciPy takes the numbers as they are, and writes outside of its arrays where they are wrong.
"""

from __future__ import annotations

import numpy as np

# Numbers that a small matrix may have, and that a larger one may have for each that is not zero:
# the sparsest that is read, Coauthor Physics, has 252.
SMALL = 1 << 22
SPARSE = 1024

# Numbers of any matrix: the largest that is read, Coauthor Physics, has 2.9 * 10^8 (1.2 GB).
MOST = 1 << 29


def rows_of(indptr: np.ndarray, indices: np.ndarray, width: int, height: int) -> np.ndarray:
    """The row of each entry of a matrix in compressed rows.

    Args:
        indptr: Where each row begins, and the end of the last.
        indices: The column of each entry.
        width: Number of columns.
        height: Number of rows.

    Raises:
        ValueError: When they do not fit each other.
    """
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise ValueError("places that are no whole numbers")
    if indptr.shape != (height + 1,) or indices.ndim != 1:
        raise ValueError("rows that are not as many as it says")
    begins = indptr.astype(np.int64)
    counts = begins[1:] - begins[:-1]
    if indptr[0] != 0 or indptr[-1] != len(indices) or (counts < 0).any():
        raise ValueError("rows that do not follow each other")
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < width:
        raise ValueError("a place outside of the matrix")
    return np.repeat(np.arange(height), counts)


def dense(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """A matrix of float32 out of compressed rows; entries at one place are added up.

    Raises:
        ValueError: When they do not fit each other, or are more than can be meant.
    """
    from scipy import sparse

    height, width = shape
    if height < 0 or width < 0 or height * width > max(SMALL, min(MOST, SPARSE * len(indices))):
        raise ValueError(f"a matrix of {height} times {width} numbers")
    if data.shape != indices.shape or data.dtype.kind not in "fiub":
        raise ValueError("values that do not fit their places")
    rows_of(indptr, indices, width, height)
    numbers = data.astype(np.float32)
    made: np.ndarray = sparse.csr_matrix((numbers, indices, indptr), shape=shape).toarray()
    return made


def shape_of(held: np.ndarray | tuple[int, ...]) -> tuple[int, int]:
    """Height and width.

    Raises:
        ValueError: When it is something else.
    """
    numbers = list(held)
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers)
    if len(numbers) != 2 or not whole:
        raise ValueError("a shape that is not height and width")
    return int(numbers[0]), int(numbers[1])
