"""How long things take and how much memory: the measurements behind ``lg2ar bench``.

Each measurement gives plain dictionaries, one JSON line each, with the keys of
:func:`lg2ar.bench.measure.record`; docs/performance.md is made from them.
"""
