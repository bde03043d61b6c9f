"""Changed inputs as Hypothesis draws and shrinks them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from faults.fuzz.mutations import KINDS, WORDS, Edit, apply


def changed(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """One of these inputs with a few changes."""
    edit = st.builds(
        Edit,
        kind=st.sampled_from(KINDS),
        place=st.integers(0, 1 << 24),
        size=st.integers(0, 255),
        text=st.sampled_from(WORDS) | st.binary(min_size=1, max_size=8),
    )
    edits = st.lists(edit, min_size=1, max_size=5)
    return st.builds(apply, st.sampled_from(list(seeds)), edits)
