"""One input, one reader, and bounds: a result or one sentence, in time and within memory."""

from __future__ import annotations

import logging
import resource
import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from faults.fuzz.targets import Target
from lg2ar.errors import InputError, NonFiniteLossError

SECONDS = 5.0  # of the processor; the largest inputs are some kilobytes
MEGABYTES = 512  # more than before
ADDRESSES = 6 << 30  # more than before; beyond it nothing is given out


class TooLongError(BaseException):
    """An input took more than its time; not an Exception, which readers may catch."""


@contextmanager
def bounds() -> Iterator[None]:
    """Let this process have so much memory more, and end what takes too long."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_addresses() + ADDRESSES, hard))
    before = signal.signal(signal.SIGVTALRM, _end)
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def violation(target: Target, data: bytes, folder: Path) -> str | None:
    """What a reader did that it must not do with this input; None where all is well."""
    before = new_peak()
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        target.read(data, folder)
    except (InputError, NonFiniteLossError) as error:
        if not str(error).strip():
            return "refused without a word"
        if "\n" in str(error):
            return f"refused in several lines: {str(error)[:200]!r} at {_where(error)}"
    except TooLongError as error:
        return f"more than {SECONDS} s at {_where(error)}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]!r} at {_where(error)}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    grown = (peak() - before) >> 10
    return f"took {grown} MiB" if grown > MEGABYTES else None


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise TooLongError


def peak() -> int:
    """The most KiB that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def new_peak() -> int:
    """The same, counted anew from now on where Linux lets us: what was freed is forgotten."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def _addresses() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _where(error: BaseException) -> str:
    """The innermost place in this package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "lg2ar" in frame.filename] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}"
