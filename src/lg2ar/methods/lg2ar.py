"""The paper's method (Algorithm 1); it lives in :mod:`lg2ar.model`."""

from lg2ar.model import build

__all__ = ["build"]
