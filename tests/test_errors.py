"""What is said of bad input."""

from __future__ import annotations

import pickle

import pytest

from lg2ar.errors import InputError


@pytest.mark.parametrize(
    ("quoted", "said"),
    [
        ("two\nlines", r"two\nlines"),
        ("\r", r"\r"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x85", r"\x85"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\ud800", r"\ud800"),
        ("\u202egnp.", r"\u202egnp."),
        ("\u2067", r"\u2067"),
        ("שלום", "שלום"),
        ("München 東京 🧪", "München 東京 🧪"),
        (r"C:\new", r"C:\new"),
    ],
)
def test_what_is_quoted_stays_in_one_line_and_steers_no_terminal(quoted: str, said: str) -> None:
    error = InputError(f"a.csv: there is no node '{quoted}'.")
    assert str(error) == f"a.csv: there is no node '{said}'."
    assert len(str(error).splitlines()) == 1
    str(error).encode()  # any terminal's encoding has at least what UTF-8 has


def test_it_is_the_same_in_another_process() -> None:
    error = InputError("a\nb")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == r"a\nb"
