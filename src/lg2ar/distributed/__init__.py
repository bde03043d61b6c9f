"""Several processes that train one model: what each has, and what they tell each other.

A batch is shared out graph by graph: rank 0 has the first graphs, rank 1 the next, and so on. The
loss of the batch is the sum of what the processes hold, and so is every gradient. Each process
draws the noise of the whole batch and takes its own part, so that all of them together do what one
process does with the whole batch.

Where nothing is shared out, every function here gives back what it was given. This package is the
only user of ``torch.distributed``; :mod:`lg2ar.processes` starts the processes.
"""

from lg2ar.distributed.gradients import sum_gradients
from lg2ar.distributed.rows import (
    all_graphs,
    before,
    everyone,
    graphs_before,
    own_rows,
    rows_of_nodes,
    share_of_graphs,
    total,
)
from lg2ar.distributed.team import Team, Traffic, alone, announce, own_share, same, size, together

__all__ = [
    "Team",
    "Traffic",
    "all_graphs",
    "alone",
    "announce",
    "before",
    "everyone",
    "graphs_before",
    "own_rows",
    "own_share",
    "rows_of_nodes",
    "same",
    "share_of_graphs",
    "size",
    "sum_gradients",
    "together",
    "total",
]
