"""The heads of many runs at once: what they score, what they draw, and the two views it leaves."""

from __future__ import annotations

import torch
from torch import Tensor

from lg2ar.config import Config
from lg2ar.fast.cutting import (
    Weighting,
    mask_features,
    node_scores,
    node_softmax,
    pair_logits,
    pair_weights,
)
from lg2ar.fast.dense import linear, product
from lg2ar.fast.kernels import cutting
from lg2ar.fast.structure import Cut, NewPairs, Structure

Weights = dict[str, Tensor]  # by the model's own names, with a leading dimension of runs

VIEWS = 2
FAR = 1 << 20  # more hops than any sub-graph has


class Cutter:
    """Cuts the two views of every run's batch.

    All heads are scored; which of them makes a view is known on the device alone.

    Args:
        config: The settings.
        wanted: How many nodes node dropping keeps of each graph of the data set, ``[graphs]``.
        search: Steps that find a pair among the most pairs a graph has.
    """

    def __init__(self, config: Config, wanted: Tensor, search: int) -> None:
        self.config = config
        self.heads = config.heads
        self.wanted = wanted
        self.search = search
        self.scored = [name for name in self.heads if name in ("node-dropping", "sub-graph")]

    def cut(
        self,
        weights: Weights,
        x: Tensor,
        scores: tuple[Tensor, Tensor, Tensor],
        masks: tuple[Tensor, Tensor] | None,
        kind: Tensor,
        structure: Structure,
        keys: Tensor,
    ) -> tuple[Tensor, Cut]:
        """Features of the two views, and what they leave of the batch."""
        logits, p, z = scores
        places = self._place("node-dropping"), self._place("sub-graph")
        level = self._levels(logits, kind, structure, keys, places)
        new, own_logits, new_logits = None, p, p
        if "edge-perturbation" in self.heads:
            at = f"heads.{self.heads.index('edge-perturbation')}.mlp"
            new = self._new_pairs(kind, structure, keys)
            wanted = (kind == cutting.EDGE_PERTURBATION).to(torch.int32)
            own_logits, new_logits = pair_logits(
                z,
                weights[f"{at}.first.weight"],
                weights[f"{at}.first.bias"],
                weights[f"{at}.rest.1.weight"],
                weights[f"{at}.rest.1.bias"],
                structure,
                new,
                wanted,
            )
        weighting = Weighting(
            relative=self.config.edge_weighting != "printed",
            one=self.config.edge_weighting == "straight-through",
        )
        hops = self.config.hops
        weight, new_weight = pair_weights(
            p, own_logits, new_logits, structure, new, kind, keys, level, places, weighting, hops
        )
        sub_graph = (kind == cutting.SUB_GRAPH).to(level.dtype).unsqueeze(-1)
        mask = (level <= hops * sub_graph).to(torch.int8)
        if new is not None:
            _sort(new, new_weight, structure)
        learned = (kind != cutting.IDENTITY) & (kind != cutting.FEATURE_MASKING)
        cut = Cut(mask, weight, None if new is None else new_weight, new, learned.int())
        if masks is None:
            return x.unsqueeze(1).expand(-1, VIEWS, -1, -1).contiguous(), cut
        return mask_features(x, *masks, kind, keys, self.config.temperature), cut

    def _place(self, name: str) -> int | None:
        return self.scored.index(name) if name in self.scored else None

    def scores(
        self, weights: Weights, nodes: Tensor, graphs: Tensor, structure: Structure
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Node logits and probabilities ``[S, K, N]``; edge perturbation's first layer last."""
        hidden = self.config.hidden
        names = [f"heads.{self.heads.index(name)}.scores.mlp" for name in self.scored]
        first = [weights[f"{at}.first.weight"] for at in names]
        for_nodes = [weight[..., :hidden] for weight in first]
        if "edge-perturbation" in self.heads:
            at = f"heads.{self.heads.index('edge-perturbation')}.mlp.first.weight"
            for_nodes.append(weights[at][..., :hidden])
        if not for_nodes:
            nothing = nodes.new_zeros(structure.S, 1, structure.N)
            return nothing, nothing, nothing
        z = product(nodes, torch.cat(for_nodes, dim=1))
        if not names:
            nothing = nodes.new_zeros(structure.S, 1, structure.N)
            return nothing, nothing, z
        for_graphs = torch.cat([weight[..., hidden:] for weight in first], dim=1)
        bias = torch.cat([weights[f"{at}.first.bias"] for at in names], dim=1)
        by_graph = linear(graphs, for_graphs, bias)
        last = torch.cat([weights[f"{at}.rest.1.weight"] for at in names], dim=1)
        last_bias = torch.cat([weights[f"{at}.rest.1.bias"] for at in names], dim=1)
        width = len(names) * hidden
        own, rest = torch.split(z, [width, z.size(-1) - width], dim=-1)
        logits = node_scores(own, by_graph, last, last_bias, structure)
        return logits, node_softmax(logits, structure), rest

    def _levels(
        self,
        logits: Tensor,
        kind: Tensor,
        structure: Structure,
        keys: Tensor,
        places: tuple[int | None, int | None],
    ) -> Tensor:
        """Hops from the drawn nodes: 0 at kept nodes and centres, ``[S, V, N]``."""
        runs, views, nodes = structure.S, VIEWS, structure.N
        noisy = logits.new_empty(runs, views, nodes)
        level = torch.empty(runs, views, nodes, device=logits.device, dtype=torch.int32)
        if self.scored:
            cutting.node_keys[(-(-nodes // 128), runs * views)](
                logits.detach(),
                kind,
                keys,
                noisy,
                nodes,
                V=views,
                K=len(self.scored),
                DROP_AT=places[0] or 0,
                SUB_AT=places[1] or 0,
                BR=128,
            )
        cutting.keep_nodes[(-(-nodes // 32), runs * views)](
            noisy,
            kind,
            structure.ptr,
            structure.home,
            structure.order,
            self.wanted,
            level,
            nodes,
            structure.B,
            FAR,
            V=views,
            BR=32,
            BJ=64,
        )
        if "sub-graph" in self.scored:
            for hop in range(1, self.config.hops + 1):
                cutting.next_hop[(runs * views * nodes,)](
                    level,
                    kind,
                    structure.ptr,
                    structure.row,
                    structure.col,
                    hop,
                    nodes,
                    structure.B,
                    structure.col.size(1),
                    FAR,
                    V=views,
                    BE=32,
                    num_warps=1,
                )
        return level

    def _new_pairs(self, kind: Tensor, structure: Structure, keys: Tensor) -> NewPairs:
        shape = (structure.S, VIEWS, structure.P)
        u, v = (torch.empty(shape, device=kind.device, dtype=torch.int32) for _ in range(2))
        valid = torch.empty(shape, device=kind.device, dtype=torch.int8)
        cutting.negative_pairs[(-(-structure.P // 128), structure.S * VIEWS)](
            kind,
            keys,
            structure.ptr,
            structure.pair_ptr,
            structure.graph_of_pair,
            structure.gap,
            u,
            v,
            valid,
            structure.P,
            structure.B,
            self.search,
            V=VIEWS,
            BP=128,
        )
        entries = structure.S * VIEWS * 2 * structure.P
        row = torch.empty(
            structure.S, VIEWS, structure.N + 1, device=kind.device, dtype=torch.int32
        )
        col, pair = (torch.empty(entries, device=kind.device, dtype=torch.int32) for _ in range(2))
        return NewPairs(u, v, valid, row, col, pair)

    def masks(self, weights: Weights, x: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor] | None:
        """Feature masking's projected features and logits, ``[S, N, d_x]``."""
        if "feature-masking" not in self.heads:
            return None
        at = f"heads.{self.heads.index('feature-masking')}"
        h = linear(
            nodes, weights[f"{at}.mlp.first.weight"], weights[f"{at}.mlp.first.bias"], relu=True
        )
        logits = linear(h, weights[f"{at}.mlp.rest.1.weight"], weights[f"{at}.mlp.rest.1.bias"])
        if f"{at}.projection.weight" not in weights:
            return x, logits
        projected = linear(x, weights[f"{at}.projection.weight"], weights[f"{at}.projection.bias"])
        return projected, logits


def _sort(new: NewPairs, weight: Tensor, structure: Structure) -> None:
    """Lay the kept new pairs out by node, each at both of its ends."""
    runs, views, pairs = new.u.shape
    nodes = structure.N
    view = torch.arange(runs * views, device=weight.device, dtype=torch.int32).view(runs, views, 1)
    kept = weight.detach() != 0
    target = torch.cat([new.u, new.v], dim=2)
    other = torch.cat([new.v, new.u], dim=2)
    target = target.where(kept.repeat(1, 1, 2), nodes) + view * (nodes + 1)
    key, order = target.flatten().sort(stable=True)
    places = torch.arange(nodes + 1, device=weight.device, dtype=torch.int32)
    new.row.copy_(torch.searchsorted(key, (view * (nodes + 1) + places), out_int32=True))
    new.col.copy_(other.flatten()[order])
    new.pair.copy_(order % (2 * pairs) % pairs)
