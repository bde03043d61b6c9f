"""Identity: the view is the graph."""

from __future__ import annotations

import torch

from lg2ar.graph import Encoding, GraphBatch
from lg2ar.heads.base import Head


class Identity(Head):
    """Leaves the graph as it is; nothing is learned or drawn.

    >>> from lg2ar.data.toy import toy_graphs
    >>> graph = toy_graphs(4).graph
    >>> view = Identity()(graph, encoding=None)
    >>> torch.equal(view.x, graph.x)
    True
    """

    def forward(
        self, graph: GraphBatch, encoding: Encoding, generator: torch.Generator | None = None
    ) -> GraphBatch:
        """The graph itself, as a view."""
        return graph.replace(origin=torch.arange(graph.num_nodes, device=graph.device))
