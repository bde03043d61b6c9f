"""LG2AR: embeddings of graphs and nodes without labels."""

from lg2ar.config import Config
from lg2ar.data.dataset import Dataset
from lg2ar.errors import InputError, NonFiniteLossError
from lg2ar.experiment import Run, load, pretrain
from lg2ar.graph import Encoding, GraphBatch
from lg2ar.model import LG2AR
from lg2ar.version import __version__

__all__ = [
    "LG2AR",
    "Config",
    "Dataset",
    "Encoding",
    "GraphBatch",
    "InputError",
    "NonFiniteLossError",
    "Run",
    "__version__",
    "load",
    "pretrain",
]
