"""What a person did that we cannot work with, said in one sentence."""


class InputError(ValueError):
    """Bad input: names the file or value, the place in it, and the remedy.

    The command line prints its text alone and exits with 2; from Python it is a ``ValueError``.
    """


class NonFiniteLossError(RuntimeError):
    """Training met a loss or a weight that is not a number; the last good state is kept."""


class MemoryShortageError(RuntimeError):
    """Memory did not suffice; the text names the settings to lower."""


class LostProcessError(RuntimeError):
    """Another of the processes that train together failed or is gone; says which and why."""


class Terminated(KeyboardInterrupt):
    """The system asked the process to end (SIGTERM), which ends work as Ctrl-C does."""


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
