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
