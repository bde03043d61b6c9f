"""Algorithm 1 on one batch of every run at once, with shapes that do not depend on values.

The same method as :class:`lg2ar.model.LG2AR`, arranged so that nothing has to be read back: every
head is computed, the draw decides on the device which of them makes a view, and a view is a mask
over the batch instead of a copy of its part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lg2ar.config import Config
from lg2ar.fast.arrangement import Lane
from lg2ar.fast.dense import linear, product
from lg2ar.fast.heads import Cutter, Weights
from lg2ar.fast.kernels import cutting
from lg2ar.fast.network import LAYER, Shape, gin, view_sizes
from lg2ar.fast.objective import jensen_shannon, pair_scores
from lg2ar.fast.recurrence import gru
from lg2ar.fast.streams import stream_beside
from lg2ar.fast.structure import Cut, Structure
from lg2ar.model import scale_of
from lg2ar.mutual_information import BOUNDS
from lg2ar.ops import signed_log

Running = dict[str, Tensor]

KINDS = {
    "identity": cutting.IDENTITY,
    "node-dropping": cutting.NODE_DROPPING,
    "edge-perturbation": cutting.EDGE_PERTURBATION,
    "sub-graph": cutting.SUB_GRAPH,
    "feature-masking": cutting.FEATURE_MASKING,
}


@dataclass(frozen=True, eq=False)
class StepResult:
    """What one step gives, for every run.

    Attributes:
        loss: ``[S]``.
        probabilities: The policy's distribution, ``[S, T]``.
        draw: The two augmentations, by place in the list of heads, ``[S, 2]``.
        edges: Number of edges of both views, and the sum of their weights, ``[S, 2]``.
        stepped: Which parts have a gradient to be stepped by, ``[S, parts]``.
    """

    loss: Tensor
    probabilities: Tensor
    draw: Tensor
    edges: Tensor
    stepped: Tensor


class Step:
    """The step that a config describes.

    Args:
        config: The settings.
        wanted: See :class:`~lg2ar.fast.heads.Cutter`.
        search: See there.
        lane: Where it runs.
    """

    def __init__(
        self, config: Config, wanted: Tensor, search: int, lane: Lane | None = None
    ) -> None:
        self.config, self.lane = config, lane or Lane()
        self.heads = config.heads
        self.cutter = Cutter(config, wanted, search)
        self.parts = [
            "augmentation_encoder.network",
            "augmentation_encoder.node_projection",
            "augmentation_encoder.graph_projection",
            "base_encoder",
            "base_encoder.node_projection",
            "policy",
            "discriminator",
            *[f"heads.{place}" for place in range(len(self.heads))],
        ]
        self._held: list[Tensor] = []
        device = wanted.device
        self.kind_of = torch.tensor([KINDS[name] for name in self.heads], device=device).int()

    def part(self, name: str) -> int:
        """The part that a weight is stepped with: the one with the longest fitting name."""
        fitting = [part for part in self.parts if name.startswith(part + ".")]
        return self.parts.index(max(fitting, key=len))

    def __call__(
        self,
        weights: Weights,
        running: Running,
        x: Tensor,
        structure: Structure,
        keys: Tensor,
        coin: Tensor,
    ) -> StepResult:
        """Take one batch.

        Args:
            weights: Of every run.
            running: Running statistics, which follow.
            x: Node features, ``[S, N, d_x]``.
            structure: The batch.
            keys: Of every run's noise, ``[S]``.
            coin: Whether the base encoder is stepped, ``[S]``.
        """
        if self.config.method == "infograph":
            return self._infograph(weights, running, x, structure, keys)
        return self._lg2ar(weights, running, x, structure, keys, coin)

    def _infograph(
        self, weights: Weights, running: Running, x: Tensor, structure: Structure, keys: Tensor
    ) -> StepResult:
        real = structure.home < structure.B
        cut = Cut(mask=real.unsqueeze(1).to(torch.int8))
        x = self._prepared(weights, x).unsqueeze(1)
        nodes, graphs = self._encode("base_encoder", weights, running, x, structure, cut, keys)
        assert nodes is not None
        bound = self._agreement(weights, nodes, graphs, structure, cut)
        runs, place = structure.S, self.heads.index("identity")
        certain = x.new_zeros(runs, len(self.heads))
        certain[:, place] = 1
        edges = 2 * (structure.graph_of_pair < structure.B).sum(1).float()
        stepped = x.new_ones(runs, len(self.parts), dtype=torch.int8)
        draw = torch.full((runs, 2), place, device=x.device, dtype=torch.int32)
        both = torch.stack([2 * edges, 2 * edges], 1)
        return StepResult(-bound, certain, draw, both, stepped)

    def _lg2ar(
        self,
        weights: Weights,
        running: Running,
        x: Tensor,
        structure: Structure,
        keys: Tensor,
        coin: Tensor,
    ) -> StepResult:
        real = structure.home < structure.B
        whole = Cut(mask=real.unsqueeze(1).to(torch.int8))
        nodes, graphs = self._encode(
            "augmentation_encoder", weights, running, x.unsqueeze(1), structure, whole, keys
        )  # H_v, h_G
        assert nodes is not None
        nodes, graphs = nodes.squeeze(1), graphs.squeeze(1)
        source = self._prepared(weights, x)
        with self._meanwhile() as join:
            p, draw = self._draw(weights, graphs, keys)  # i, j
            kind = self.kind_of[draw].int().contiguous()
        # What both streams read is held until the next step: let go of earlier, its memory would be
        # given to one of them while the other is still reading.
        self._held = [graphs, p, draw, kind]
        scores = self.cutter.scores(weights, nodes, graphs, structure)
        masks = self.cutter.masks(weights, source, nodes)
        join()
        views, cut = self.cutter.cut(weights, source, scores, masks, kind, structure, keys)
        local = self.config.contrast == "local-global"
        view_nodes, view_graphs = self._encode(
            "base_encoder", weights, running, views, structure, cut, keys, nodes_wanted=local
        )
        scale = scale_of(p.gather(1, draw), self.config.scale_by_probability).view(-1, 2, 1, 1)
        others, rows = self._prepare_graphs(weights, view_graphs), view_nodes
        others = others * scale
        if not local:
            rows = self._prepare_rows(view_graphs) * scale
        assert rows is not None
        bound = self._agreement(weights, rows, others.flip(1), structure, cut, True)
        return StepResult(
            loss=-bound,
            probabilities=p.detach(),
            draw=draw,
            edges=self._edges(cut),
            stepped=self._stepped(draw, kind, coin),
        )

    @contextmanager
    def _meanwhile(self) -> Iterator[Callable[[], None]]:
        """Do something beside what follows; calling what this gives waits for it.

        The GRU is a long chain of small sums that leaves most of a device idle.
        """
        if self.kind_of.device.type != "cuda":
            yield lambda: None
            return
        main = torch.cuda.current_stream()
        beside = stream_beside(self.kind_of.device, "policy", self.lane.place)
        beside.wait_stream(main)
        with torch.cuda.stream(beside):
            yield lambda: main.wait_stream(beside)

    def _prepared(self, weights: Weights, x: Tensor) -> Tensor:
        """Features of the width the base encoder reads."""
        if self.config.feature_projection != "shared":
            return x
        name = "base_encoder.features"
        return linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def _encode(
        self,
        name: str,
        weights: Weights,
        running: Running,
        x: Tensor,
        structure: Structure,
        cut: Cut,
        keys: Tensor,
        nodes_wanted: bool = True,
    ) -> tuple[Tensor | None, Tensor]:
        """Projected encodings of nodes ``[S, V, N, h]`` and graphs ``[S, V, B, h]``."""
        config, base = self.config, name == "base_encoder"
        layers = (config.base_layers or config.layers) if base else config.layers
        site = cutting.SITE_DROPOUT + (2 * config.layers if base else 0)
        mean = base and config.readout == "mean"
        first = config.norm_place == "before"
        shape = Shape(layers, config.norm, first, config.dropout, site, mean)
        flat, statistics = [], []
        for layer in range(layers):
            conv, norm = f"{name}.network.convs.{layer}", f"{name}.network.norms.{layer}"
            flat += [weights[f"{conv}.{part}"] for part in LAYER]
            if config.norm:
                flat += [weights[f"{norm}.weight"], weights[f"{norm}.bias"]]
                statistics.append((running[f"{norm}.running_mean"], running[f"{norm}.running_var"]))
        nodes, graphs = gin(x, structure, cut, keys, shape, statistics, flat)
        if base and config.readout == "log-sum":
            graphs = signed_log(graphs)
        if base and not config.projection:
            return nodes, graphs
        graphs = self._project(f"{name}.graph_projection", weights, graphs)
        if not nodes_wanted:
            return None, graphs
        return self._project(f"{name}.node_projection", weights, nodes), graphs

    def _project(self, name: str, weights: Weights, x: Tensor) -> Tensor:
        runs, views, rows, _ = x.shape
        x = x.reshape(runs, views * rows, -1)
        for layer, relu in (("first", True), ("rest.1", True), ("rest.3", False)):
            at = f"{name}.{layer}"
            x = linear(x, weights[f"{at}.weight"], weights[f"{at}.bias"], relu)
        return x.view(runs, views, rows, -1)

    def _draw(self, weights: Weights, graphs: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's distribution ``[S, T]`` and two draws from it ``[S, 2]``."""
        p = (self._logits(weights, graphs) / self.config.temperature).softmax(-1)
        source = p.detach().nan_to_num(nan=1.0)  # a broken policy draws evenly
        u = p.new_empty(p.size(0), 2)
        cutting.uniforms[(p.size(0),)](keys, u, cutting.SITE_POLICY, COUNT=2, BLOCK=2)
        i = _pick(source, u[:, 0])
        if not self.config.replacement and len(self.heads) > 1:
            others = torch.ones_like(source).scatter(1, i.unsqueeze(1), 0.0)
            source = source * others
            # Where no other has a chance left, all others have the same.
            source = torch.where(source.sum(1, keepdim=True) > 0, source, others)
        return p, torch.stack([i, _pick(source, u[:, 1])], dim=1)

    def _logits(self, weights: Weights, graphs: Tensor) -> Tensor:
        runs = graphs.size(0)
        if self.config.policy == "random":
            return graphs.new_zeros(runs, len(self.heads))
        if self.config.policy == "deepset":
            h = graphs
            for name, relu in (("element.first", True), ("element.rest.1", False)):
                at = f"policy.{name}"
                h = linear(h, weights[f"{at}.weight"], weights[f"{at}.bias"], relu)
            h = h.mean(1, keepdim=True)
            for name, relu in (("batch.first", True), ("batch.rest.1", False)):
                at = f"policy.{name}"
                h = linear(h, weights[f"{at}.weight"], weights[f"{at}.bias"], relu)
            return h.squeeze(1)
        h = graphs.detach()
        # Where norms are equal a fixed direction decides, never the place in the batch.
        direction = torch.arange(h.size(2), device=h.device, dtype=h.dtype).cos()
        order = (h * direction).sum(-1).argsort(dim=1)
        norms = h.norm(dim=-1).gather(1, order)
        order = order.gather(1, norms.argsort(dim=1, stable=True))
        ordered = graphs.gather(1, order.unsqueeze(-1).expand_as(graphs))
        gates = [
            weights[f"policy.gru.{name}_l0"]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        last = gru(self.lane.of, ordered, *gates).unsqueeze(1)
        at = "policy.output"
        return linear(last, weights[f"{at}.weight"], weights[f"{at}.bias"]).squeeze(1)

    def _prepare_rows(self, rows: Tensor) -> Tensor:
        return F.normalize(rows, dim=-1) if self.config.discriminator == "cosine" else rows

    def _prepare_graphs(self, weights: Weights, graphs: Tensor) -> Tensor:
        if self.config.discriminator == "bilinear":
            runs, views, number, width = graphs.shape
            flat = graphs.reshape(runs, views * number, width)
            return product(flat, weights["discriminator.weight"]).view_as(graphs)
        return self._prepare_rows(graphs)

    def _agreement(
        self,
        weights: Weights,
        rows: Tensor,
        others: Tensor,
        structure: Structure,
        cut: Cut,
        prepared: bool = False,
    ) -> Tensor:
        """The bound of every run, all views added up, ``[S]``."""
        config = self.config
        local = config.method == "infograph" or config.contrast == "local-global"
        if not prepared:
            others = self._prepare_graphs(weights, others)
        if local:
            rows, home = self._prepare_rows(rows), structure.home
            weight = cut.mask.float()
            if config.normalisation != "pairs":
                sizes = view_sizes(cut, structure).clamp(min=1)
                places = home.long().clamp(max=structure.B - 1).unsqueeze(1)
                weight = weight / sizes.gather(2, places.expand(-1, cut.mask.size(1), -1))
        else:
            home = torch.arange(structure.B, device=rows.device, dtype=torch.int32)
            home = home.expand(structure.S, -1).contiguous()
            weight = rows.new_ones(rows.shape[:3])
        share = 1 / structure.B if config.normalisation == "graph-pairs" else 0.5
        name = "jsd" if config.method == "infograph" else config.bound
        if config.discriminator == "mlp":
            return self._other_bound(
                name, self._mlp_scores(weights, rows, others), home, weight, share
            )
        if name == "jsd":
            return jensen_shannon(rows, others, home, weight, share)
        return self._other_bound(name, rows @ others.transpose(2, 3), home, weight, share)

    def _mlp_scores(self, weights: Weights, rows: Tensor, graphs: Tensor) -> Tensor:
        """The MLP discriminator: its first layer acts on both halves apart."""
        at = "discriminator.mlp"
        first, width = weights[f"{at}.first.weight"], rows.size(-1)
        left = product(rows.flatten(1, 2), first[..., :width]).view_as(rows)
        right = linear(graphs.flatten(1, 2), first[..., width:], weights[f"{at}.first.bias"])
        last = weights[f"{at}.rest.1.weight"], weights[f"{at}.rest.1.bias"]
        return pair_scores(left, right.view_as(graphs), *last)

    def _other_bound(
        self, name: str, scores: Tensor, home: Tensor, weight: Tensor, share: float
    ) -> Tensor:
        """Bounds without a kernel of their own: one matrix of scores after the other."""
        more = {"nt-xent": {"temperature": self.config.bound_temperature}}.get(name, {})
        if name == "jsd":
            more = {"positive_share": share}
        bound = BOUNDS[name]
        places = torch.arange(scores.size(3), device=scores.device)
        values = [
            sum(
                bound(scores[s, v], home[s].unsqueeze(-1) == places, weight[s, v], **more)
                for v in range(scores.size(1))
            )
            for s in range(scores.size(0))
        ]
        return torch.stack([torch.as_tensor(value) for value in values])

    def _edges(self, cut: Cut) -> Tensor:
        """Number of the views' edges and sum of their weights, ``[S, 2]``."""
        assert cut.weight is not None
        every = [cut.weight.detach().flatten(1)]
        if cut.new_weight is not None:
            every.append(cut.new_weight.detach().flatten(1))
        number = sum((w != 0).sum(1) for w in every)
        total = sum(w.sum(1, dtype=torch.float64) for w in every)
        return 2 * torch.stack([torch.as_tensor(number).double(), torch.as_tensor(total)], 1)

    def _stepped(self, draw: Tensor, kind: Tensor, coin: Tensor) -> Tensor:
        """Which parts' weights took part: the others would have no gradient at all."""
        places = torch.arange(len(self.heads), device=draw.device)
        drawn = (draw.unsqueeze(-1) == places).any(1)  # [S, T]
        nodes = (kind != cutting.IDENTITY).any(1)
        scored = ((kind == cutting.NODE_DROPPING) | (kind == cutting.SUB_GRAPH)).any(1)
        learns = self.config.policy != "random" and self.config.scale_by_probability != "off"
        base = coin != 0
        every = torch.ones_like(base)
        policy = every if learns else ~every
        local = every if self.config.contrast == "local-global" else ~every
        columns = [
            ~base & (policy | nodes),
            ~base & nodes,
            ~base & (policy | scored),
            base,
            base & local,
            policy,
            every,
            *drawn.unbind(1),
        ]
        return torch.stack(columns, dim=1).to(torch.int8)


def _pick(p: Tensor, u: Tensor) -> Tensor:
    """The place where the running sum of ``p`` ``[S, T]`` passes ``u`` of the whole."""
    below = p.cumsum(1)
    place = (below <= u.unsqueeze(1) * below[:, -1:]).sum(1)
    return place.clamp(max=p.size(1) - 1)
