"""LG2AR and the controls it is compared with, by name.

Every file of this folder is one method, called by its file's name; it says how to build it by a
function ``build(config, num_features, num_edge_features)``. So adding one is a matter of one file.
"""

from __future__ import annotations

import difflib
import pkgutil
from importlib import import_module

from lg2ar.config import Config
from lg2ar.errors import InputError
from lg2ar.model import Method


def names() -> tuple[str, ...]:
    """The methods there are."""
    return tuple(sorted(part.name.replace("_", "-") for part in pkgutil.iter_modules(__path__)))


def build(config: Config, num_features: int, num_edge_features: int = 0) -> Method:
    """Make the method that a config names, initialised by its seed.

    Args:
        config: The settings.
        num_features: Width of the node features, ``d_x``.
        num_edge_features: Width of the edge attributes, ``d_e``; 0 does not look at them.

    Raises:
        InputError: For a method that is not there.
    """
    known = names()
    if config.method not in known:
        close = difflib.get_close_matches(config.method, known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}."
        raise InputError(f"method = '{config.method}' is not there; {hint}")
    module = import_module(f"{__name__}.{config.method.replace('-', '_')}")
    method: Method = module.build(config, num_features, num_edge_features)
    return method
