"""Batches of networks that are fine-tuned side by side, encoded by the captured step's kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lg2ar.encoders import GIN, Encoder
from lg2ar.fast.data import NODES, PAIRS, PairData
from lg2ar.fast.kernels.cutting import SITE_DROPOUT
from lg2ar.fast.network import LAYER, Shape, gin, gin_at_rest
from lg2ar.fast.structure import Cut, Structure
from lg2ar.graph import GraphBatch
from lg2ar.layers import BatchNorm
from lg2ar.ops import signed_log

KEYS = 1 << 62  # of noise, to which places in the network are added


@dataclass(frozen=True, eq=False)
class PairBlocks:
    """Batches of ``K`` networks, padded to the same numbers of nodes, pairs and graphs.

    Attributes:
        x: Features, ``[K, n, d_x]``.
        structure: How the nodes are joined.
        keys: Of each network's dropout, ``[K]``.
        graphs: How many graphs each block has, ``[K]``.
        rows: The number of each graph in the data, zero for what pads, ``[K, g]``.
    """

    x: Tensor
    structure: Structure
    keys: Tensor
    graphs: Tensor
    rows: Tensor

    def encoded(
        self,
        encoder: Encoder,
        weights: Mapping[str, Tensor],
        statistics: Mapping[str, Tensor],
        training: bool,
    ) -> Tensor:
        """Rows of all graphs, ``[K, g, L h]``.

        A batch of a single node is normalised by itself, where the plain layers read it by the
        running statistics.

        Args:
            encoder: Any of them, for what they have in common.
            weights: Of all, by name.
            statistics: Running ones of all, by name; they follow while training.
            training: Whether to normalise over the batch, and drop out.
        """
        network = encoder.network
        assert isinstance(network, GIN)
        layers = len(network.convs)
        shape = Shape(
            layers=layers,
            norm=isinstance(network.norms[0], BatchNorm),
            norm_first=network.norm_first,
            dropout=network.dropout if training else 0.0,
            site=SITE_DROPOUT,
            mean=encoder.readout == "mean",
        )
        flat, running = [], []
        for layer in range(layers):
            conv, norm = f"encoder.network.convs.{layer}", f"encoder.network.norms.{layer}"
            flat += [weights[f"{conv}.{part}"] for part in LAYER]
            if shape.norm:
                flat += [weights[f"{norm}.weight"], weights[f"{norm}.bias"]]
                mean, var = (statistics[f"{norm}.running_{kind}"] for kind in ("mean", "var"))
                running.append((mean, var))
        whole = Cut(mask=(self.structure.home < self.structure.B).unsqueeze(1).to(torch.int8))
        given = self.x.unsqueeze(1), self.structure, whole, self.keys, shape, running, flat
        rows = (gin(*given)[1] if training else gin_at_rest(*given)).squeeze(1)
        return signed_log(rows) if encoder.readout == "log-sum" else rows


class PairStore:
    """A data set that such batches are taken from.

    Args:
        graph: All graphs, features included: those that the captured step is suitable for.
        device: Where they are to lie.
    """

    def __init__(self, graph: GraphBatch, device: torch.device) -> None:
        assert graph.edge_weight is None
        assert graph.edge_attr is None
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._data = PairData(graph, 1.0, device)
        self.num_nodes = self._data.num_nodes
        self.num_edges = 2 * self._data.num_pairs

    def blocks(self, parts: Sequence[np.ndarray], keys: Iterable[int]) -> PairBlocks:
        """The graphs at these places, a block for each network, and the keys of their dropout."""
        data = self._data
        graphs = np.array([len(part) for part in parts])
        order = np.zeros((len(parts), max(1, graphs.max())), np.int32)
        starts = np.zeros((2, len(parts), order.shape[1] + 1), np.int32)
        for k, part in enumerate(parts):
            order[k, : len(part)] = part
            for which, sizes in enumerate((data.num_nodes, data.num_pairs)):
                ends = sizes[part].cumsum()
                starts[which, k, 1 : len(part) + 1] = ends
                starts[which, k, len(part) + 1 :] = ends[-1] if len(part) else 0  # none of these
        nodes, pairs = (int(own[:, -1].max()) for own in starts)
        places = torch.from_numpy(order).to(data.device)
        ptr, pair_ptr = torch.from_numpy(starts).to(data.device).unbind(0)
        x, structure = data.batch(
            places,
            ptr,
            pair_ptr,
            max(1, -(-nodes // NODES)) * NODES,
            max(1, -(-pairs // PAIRS)) * PAIRS,
        )
        return PairBlocks(
            x=x,
            structure=structure,
            keys=torch.tensor([key % KEYS for key in keys], device=data.device),
            graphs=torch.from_numpy(graphs).to(data.device),
            rows=places.long(),
        )
