"""What a person did that we cannot work with, said in one sentence."""

import unicodedata


class InputError(ValueError):
    r"""Bad input: names the file or value, the place in it, and the remedy.

    The command line prints its text alone and exits with 2; from Python it is a ``ValueError``.
    What it quotes from a file stays in its line: line breaks and other control characters, which
    could also steer a terminal, are written out.

    >>> str(InputError("a.csv: there is no node 'b\n'."))
    "a.csv: there is no node 'b\\n'."
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(in_one_line(text))


class NonFiniteLossError(RuntimeError):
    """Training met a loss or a weight that is not a number; the last good state is kept."""


class MemoryShortageError(RuntimeError):
    """Memory did not suffice; the text names the settings to lower."""


class LostProcessError(RuntimeError):
    """Another of the processes that train together failed or is gone; says which and why."""


class Terminated(KeyboardInterrupt):
    """The system asked the process to end (SIGTERM), which ends work as Ctrl-C does."""


def in_one_line(text: str) -> str:
    """The text with what would break its line, or steer a terminal, written out."""
    if text.isprintable():
        return text
    return "".join(ascii(char)[1:-1] if _steers(char) else char for char in text)


def _steers(char: str) -> bool:
    """Whether it breaks a line, steers or turns a terminal's text round, or cannot be printed."""
    return unicodedata.category(char) in _STEERING or unicodedata.bidirectional(char) in _TURNING


# Controls, the separators of lines and paragraphs, and halves of characters.
_STEERING = ("Cc", "Zl", "Zp", "Cs")
# What embeds, overrides or isolates a direction of writing; letters of either direction do not.
_TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def newer_format(found: object, known: int) -> str:
    """What to say of a file of a format that is not known yet; nothing where it is not newer.

    Args:
        found: What the file calls its format.
        known: The newest one that is known here.
    """
    if type(found) is not int or found <= known:
        return ""
    return (
        f"is of format {found}, written by a newer lg2ar; this version reads formats up to "
        f"{known}: install the newer lg2ar."
    )
