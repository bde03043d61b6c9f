"""The version, apart from everything so that every part may read it."""

__version__ = "0.1.0"
