"""Parts of one's own: heads, policies, discriminators and bounds that settings can name.

A package offers a part through an entry point, and every ``lg2ar`` command knows it once the
package is installed; a script or notebook registers one for itself:

>>> def hinge(scores, positive, weight=None):
...     return -(1 - scores[positive]).relu().mean() - (1 + scores[~positive]).relu().mean()
>>> register("bound", "hinge", hinge)
>>> find("bound", "hinge") is hinge
True

=================  ========================  ====================================================
kind               entry point group         what the name stands for
=================  ========================  ====================================================
``heads``          ``lg2ar.heads``           ``make(config, num_features)``, a ``Head``
``policy``         ``lg2ar.policies``        ``make(config)``, a ``Policy``
``discriminator``  ``lg2ar.discriminators``  ``make(config, width)``, a ``Discriminator``
``bound``          ``lg2ar.bounds``          ``bound(scores, positive, weight)`` itself
=================  ========================  ====================================================
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from functools import cache
from typing import Any

from lg2ar.errors import InputError

GROUPS = {
    "heads": "lg2ar.heads",
    "policy": "lg2ar.policies",
    "discriminator": "lg2ar.discriminators",
    "bound": "lg2ar.bounds",
}

Part = Callable[..., Any]

_registered: dict[tuple[str, str], Part] = {}


def register(kind: str, name: str, part: Part) -> None:
    """Make a part known to this process by a name that settings can use.

    Args:
        kind: One of ``heads``, ``policy``, ``discriminator``, ``bound``.
        name: What settings call it, lower-case words joined by hyphens.
        part: What makes it, or the bound itself: see the table of this module.
    """
    if kind not in GROUPS:
        raise ValueError(f"kind must be one of {', '.join(GROUPS)}, not {kind!r}")
    if not name or name != name.lower() or not name.replace("-", "").isalnum():
        raise ValueError(f"a name is lower-case words joined by hyphens, not {name!r}")
    _registered[kind, name] = part


def names(kind: str) -> list[str]:
    """The parts of one's own that settings may name, in order."""
    here = [name for key, name in _registered if key == kind]
    return sorted({*here, *_offered(kind)})


def find(kind: str, name: str) -> Part:
    """The part behind a name.

    Raises:
        ValueError: Where there is no such part.
        InputError: Where the package that offers it cannot be imported.
    """
    if (kind, name) in _registered:
        return _registered[kind, name]
    point = _offered(kind).get(name)
    if point is None:
        raise ValueError(f"no part of the kind {kind!r} is called {name!r}")
    try:
        part: Part = point.load()
    except Exception as error:  # somebody else's code, which may fail in any way
        raise InputError(
            f"{kind} = '{name}': its package cannot be imported from '{point.value}' "
            f"({type(error).__name__}: {error}); mend or reinstall it."
        ) from None
    return part


@cache
def _offered(kind: str) -> dict[str, importlib.metadata.EntryPoint]:
    """What installed packages offer."""
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUPS[kind])}
