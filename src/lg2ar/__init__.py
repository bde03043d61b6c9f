"""LG2AR: embeddings of graphs and nodes without labels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.data.sources import read
from lg2ar.errors import InputError, MemoryShortageError, NonFiniteLossError
from lg2ar.experiment import pretrain
from lg2ar.graph import Encoding, GraphBatch
from lg2ar.model import LG2AR
from lg2ar.runs import Run, load
from lg2ar.version import __version__

if TYPE_CHECKING:
    from lg2ar.estimator import LG2AREmbedder
    from lg2ar.finetuning import FineTuned, finetune, load_finetuned

__all__ = [
    "LG2AR",
    "Config",
    "Dataset",
    "Encoding",
    "FineTuned",
    "GraphBatch",
    "InputError",
    "LG2AREmbedder",
    "MemoryShortageError",
    "NonFiniteLossError",
    "Run",
    "__version__",
    "finetune",
    "load",
    "load_finetuned",
    "pretrain",
    "read",
]

# What needs scikit-learn, or is not needed every time, is imported when it is first asked for.
_LATER = {
    "FineTuned": "lg2ar.finetuning",
    "LG2AREmbedder": "lg2ar.estimator",
    "finetune": "lg2ar.finetuning",
    "load_finetuned": "lg2ar.finetuning",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'lg2ar' has no attribute '{name}'")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
