"""What every test gets: a fixed seed, and Hypothesis settings that repeat themselves."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch
from hypothesis import HealthCheck, settings

# Without a GPU, Triton's kernels are interpreted; it wants to know before it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Tiny tensors gain nothing from threads, and lose much where others use the cores.
torch.set_num_threads(1)

# A shell has what it starts in the background ignore Ctrl-C, and all that is started by it too.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "ci",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device of this machine in turn."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA device")
    return torch.device(request.param)
