"""LG2AR: Algorithm 1 on one batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lg2ar import plugins
from lg2ar.config import Config
from lg2ar.discriminators import DISCRIMINATORS, Discriminator
from lg2ar.distributed import (
    all_graphs,
    alone,
    everyone,
    graphs_before,
    share_of_graphs,
    size,
    total,
)
from lg2ar.encoders import GCN, GIN, Encoder, Output, ReadOut
from lg2ar.graph import Encoding, GraphBatch
from lg2ar.heads import (
    EdgePerturbation,
    EdgeWeighting,
    FeatureMasking,
    Head,
    Identity,
    NodeDropping,
    SubGraph,
)
from lg2ar.layers import StandardRows, UnitRows, initialise
from lg2ar.mutual_information import BOUNDS, Bound, info_nce, jensen_shannon, nt_xent
from lg2ar.policy import NEVER, POLICIES, Draw, Policy
from lg2ar.sampling import private_randomness, seed_from, shuffle_features

# Scores of pairs that are kept at a time, of which a bound makes several copies.
BLOCK = 1 << 22

# The bounds that are means over rows; nothing is known of others.
MEANS = (jensen_shannon, info_nce, nt_xent)

Contrast = Literal["local-global", "global-global"]
Negatives = Literal["graphs", "shuffled"]
Normalisation = Literal["graphs", "pairs", "graph-pairs"]
Scaling = Literal["printed", "straight-through", "off"]
# A view, its encoding, and the probability of its augmentation.
EncodedView = tuple[GraphBatch, Encoding, Tensor]


@dataclass(frozen=True, eq=False)
class StepOutput:
    """What one batch gives.

    Attributes:
        loss: To be minimised: minus the bound on mutual information, both ways round.
        draw: The policy's choice.
        views: The two views, as the base encoder saw them.
    """

    loss: Tensor
    draw: Draw
    views: tuple[GraphBatch, GraphBatch]


@dataclass(frozen=True)
class Objective:
    """What a method maximises: how well encoded views tell each other's graphs apart.

    Attributes:
        bound: Function of scores to be maximised.
        contrast: ``local-global``, nodes with graphs, or ``global-global``, graphs with graphs.
        negatives: ``graphs``, the others of the batch, or ``shuffled``, copies with the features
            of each graph in random order.
        normalisation: What is averaged over (docs/paper.md, D2).
    """

    bound: Bound = jensen_shannon
    contrast: Contrast = "local-global"
    negatives: Negatives = "graphs"
    normalisation: Normalisation = "graphs"

    def agreement(
        self,
        left: EncodedView,
        right: EncodedView,
        encoder: Encoder,
        discriminator: Discriminator,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Bound on the information that the left view's rows have of the right view's graphs.

        Args:
            left: The view whose rows are told apart.
            right: The view whose graphs they are told apart by; it may be the same.
            encoder: What encoded both, for negatives that are encoded here.
            discriminator: Scores pairs of encodings.
            generator: Source of randomness.
        """
        view, encoding, p = left
        _, other, p_other = right
        home = view.batch  # the graph of each row
        if self.contrast == "global-global":
            home = torch.arange(view.num_graphs, device=view.device)
        rows, p = self._rows(encoding, p)
        if self.negatives == "graphs":
            graphs = all_graphs(other.graphs)  # of the whole batch, B
            first = graphs_before()

            def bound(rows: Tensor, graphs: Tensor, home: Tensor) -> Tensor:
                scores = discriminator(rows, graphs, p, p_other)  # [R, B]
                places = torch.arange(graphs.size(0), device=view.device)
                return self._bound(scores, (first + home).unsqueeze(-1) == places, view, home)

            return self._part(self._in_blocks(bound, rows, graphs, home, view), view, home)
        corrupted, _ = self._rows(encoder(shuffle_features(view, generator)), p)
        graphs = other.graphs[home]
        scores = torch.stack(
            [
                discriminator.paired(rows, graphs, p, p_other),
                discriminator.paired(corrupted, graphs, p, p_other),
            ],
            dim=1,
        )  # [R, 2]
        positive = torch.tensor([[True, False]], device=view.device).expand_as(scores)
        return self._part(self._bound(scores, positive, view, home), view, home)

    def _rows(self, encoding: Encoding, p: Tensor) -> tuple[Tensor, Tensor]:
        """What is contrasted with the other view's graphs, and the factor it carries.

        Graph encodings are multiplied by their view's probability; node encodings are not.
        """
        if self.contrast == "global-global":
            return encoding.graphs, p
        return encoding.nodes, torch.ones_like(p)

    def _in_blocks(
        self,
        bound: Callable[[Tensor, Tensor, Tensor], Tensor],
        rows: Tensor,
        graphs: Tensor,
        home: Tensor,
        view: GraphBatch,
    ) -> Tensor:
        """A bound that is a mean over rows, as the mean of blocks of them.

        The scores of a large batch, rows times graphs, are made block by block and made again in
        the backward pass, so that memory stays linear in rows.
        """
        step = max(1, BLOCK // max(1, graphs.size(0)))
        if rows.size(0) <= step or not self._is_mean:
            return bound(rows, graphs, home)
        weight = self._weight(view, home, rows)
        weight = torch.ones_like(home, dtype=rows.dtype) if weight is None else weight
        parts = [
            checkpoint(bound, own, graphs, place, use_reentrant=False) * share.sum()
            for own, place, share in zip(
                torch.split(rows, step),
                torch.split(home, step),
                torch.split(weight / weight.sum(), step),
                strict=True,
            )
        ]
        return torch.stack(parts).sum()

    @property
    def _is_mean(self) -> bool:
        """Whether the bound of all rows is known to be the mean of those of parts of them."""
        return getattr(self.bound, "func", self.bound) in MEANS

    def _part(self, value: Tensor, view: GraphBatch, home: Tensor) -> Tensor:
        """What this process adds to the bound of a batch that is shared out (docs/scaling.md)."""
        if alone():
            return value
        if not self._is_mean:
            return value / size()  # each has the whole of it
        if self.normalisation == "pairs" and self.contrast == "local-global":
            own = value.new_tensor(len(home))
            return value * (own / total(own))
        return value * share_of_graphs(view.num_graphs)

    def _weight(self, view: GraphBatch, home: Tensor, like: Tensor) -> Tensor | None:
        """How much each row counts; None where all count alike."""
        if self.normalisation == "pairs" or self.contrast == "global-global":
            return None
        return 1 / view.sizes[home].to(like.dtype)  # a graph's nodes weigh one together

    def _bound(self, scores: Tensor, positive: Tensor, view: GraphBatch, home: Tensor) -> Tensor:
        weight = self._weight(view, home, scores)
        if not alone() and not self._is_mean:  # of the rows of all
            scores, positive = everyone(scores, "scores"), everyone(positive.byte()).bool()
            weight = None if weight is None else everyone(weight)
        if self.normalisation == "graph-pairs":
            return self.bound(scores, positive, weight, positive_share=1 / scores.size(1))
        return self.bound(scores, positive, weight)


class Method(nn.Module, ABC):
    """A way to learn a base encoder without labels, as the trainer sees it.

    LG2AR is one; the controls it is compared with (``lg2ar.methods``) are others.

    Attributes:
        base_encoder: What is learned and kept.
        num_heads: Number of augmentations it draws from, at least one.
    """

    base_encoder: Encoder
    num_heads: int

    @abstractmethod
    def forward(self, graph: GraphBatch, generator: torch.Generator | None = None) -> StepOutput:
        """Take one batch: its loss, what was drawn, and the two views."""

    @abstractmethod
    def parts(self) -> dict[str, list[nn.Module]]:
        """What is stepped when: ``base`` or ``augmentation`` by the coin, ``always`` every time.

        Without an ``augmentation`` part there is no coin, and ``base`` is stepped every time.
        """


class LG2AR(Method):
    r"""The method, end to end (Algorithm 1).

    Args:
        augmentation_encoder: :math:`g_\omega`, read by policy and heads.
        policy: :math:`r_\mu`, which draws two of the heads for the batch.
        heads: :math:`\tau_{\phi_i}`, which cut the views.
        base_encoder: :math:`g_\theta`, which encodes the views; it alone is kept for inference.
        discriminator: Scores pairs of encodings.
        bound: Function of scores to be maximised.
        contrast: ``local-global``, nodes with graphs, or ``global-global``, graphs with graphs.
        negatives: ``graphs``, the others of the batch, or ``shuffled``, copies with the features
            of each graph in random order.
        normalisation: What is averaged over (docs/paper.md, D2).
        scale_by_probability: How the draw's probabilities multiply the graph encodings, the only
            way a gradient reaches the policy (docs/paper.md, D9).
    """

    def __init__(
        self,
        augmentation_encoder: Encoder,
        policy: Policy,
        heads: Sequence[Head],
        base_encoder: Encoder,
        discriminator: Discriminator,
        bound: Bound = jensen_shannon,
        contrast: Contrast = "local-global",
        negatives: Negatives = "graphs",
        normalisation: Normalisation = "graphs",
        scale_by_probability: Scaling = "printed",
    ) -> None:
        super().__init__()
        if policy.num_heads != len(heads):
            raise ValueError(f"a policy over {policy.num_heads} heads got {len(heads)} heads")
        self.augmentation_encoder = augmentation_encoder
        self.policy = policy
        self.heads = nn.ModuleList(heads)
        self.base_encoder = base_encoder
        self.discriminator = discriminator
        self.objective = Objective(bound, contrast, negatives, normalisation)
        self.scale_by_probability = scale_by_probability
        self.num_heads = len(heads)

    @property
    def bound(self) -> Bound:
        """Function of scores to be maximised."""
        return self.objective.bound

    @property
    def contrast(self) -> Contrast:
        """What is contrasted with graphs."""
        return self.objective.contrast

    @property
    def normalisation(self) -> Normalisation:
        """What is averaged over."""
        return self.objective.normalisation

    def parts(self) -> dict[str, list[nn.Module]]:
        """The two encoders by the coin; policy, heads and discriminator always."""
        return {
            "augmentation": [self.augmentation_encoder],
            "base": [self.base_encoder],
            "always": [self.policy, self.heads, self.discriminator],
        }

    def forward(self, graph: GraphBatch, generator: torch.Generator | None = None) -> StepOutput:
        """Draw two views of every graph in the batch and tell how well they agree."""
        encoding: Encoding = self.augmentation_encoder(graph)  # H_v, h_G
        draw: Draw = self.policy(all_graphs(encoding.graphs), generator)  # i, j, p_i, p_j
        source = self.base_encoder.prepare(graph)
        view_i: GraphBatch = self.heads[draw.i](source, encoding, generator)
        view_j: GraphBatch = self.heads[draw.j](source, encoding, generator)
        encoding_i, encoding_j = self.base_encoder(view_i), self.base_encoder(view_j)
        p_i, p_j = (scale_of(p, self.scale_by_probability) for p in (draw.p_i, draw.p_j))
        left, right = (view_i, encoding_i, p_i), (view_j, encoding_j, p_j)
        networks = self.base_encoder, self.discriminator
        there = self.objective.agreement(left, right, *networks, generator)
        back = self.objective.agreement(right, left, *networks, generator)
        return StepOutput(loss=-(there + back), draw=draw, views=(view_i, view_j))


def scale_of(probability: Tensor, scaling: str) -> Tensor:
    """What graph encodings are multiplied by.

    >>> scale_of(torch.tensor(0.25), "printed").item()
    0.25
    >>> scale_of(torch.tensor(0.25), "straight-through").item()  # the policy alone feels it
    1.0
    """
    if scaling == "printed":
        return probability
    if scaling == "straight-through":
        # One, with the gradient of its logarithm; also where a policy is so sure that the other
        # augmentations' probabilities come out as zero, and two different ones are to be drawn.
        there = probability.detach()
        return 1 + (probability - there) / there.clamp(min=NEVER)
    return torch.ones_like(probability)


def build(config: Config, num_features: int, num_edge_features: int = 0) -> LG2AR:
    """Make the model that a config describes, initialised by its seed.

    Every part has a seed of its own: two configs that differ in the policy or the heads start from
    the same encoders, so that runs can be compared in pairs.

    Args:
        config: The settings.
        num_features: Width of the node features, ``d_x``.
        num_edge_features: Width of the edge attributes, ``d_e``; 0 does not look at them.
    """
    with private_randomness():
        model = _assemble(config, num_features, num_edge_features)
        parts: dict[str, nn.Module] = {
            "base encoder": model.base_encoder,
            "augmentation encoder": model.augmentation_encoder,
            "policy": model.policy,
            "discriminator": model.discriminator,
            **dict(zip(config.heads, model.heads, strict=True)),
        }
        initialise_parts(parts, config.seed)
    return model


def initialise_parts(parts: Mapping[str, nn.Module], seed: int) -> None:
    """Initialise each part from the run's seed and the part's own name.

    Every method names its parts alike, so that methods start from the same base encoder as well.
    """
    for name, part in parts.items():
        torch.manual_seed(seed_from(seed, name))
        initialise(part)


def _assemble(config: Config, num_features: int, num_edge_features: int) -> LG2AR:
    augmentation_encoder = Encoder(
        _gin(config, num_features, config.layers, num_edge_features),
        config.hidden,
    )
    base_encoder = build_base_encoder(config, num_features, num_edge_features)
    return LG2AR(
        augmentation_encoder=augmentation_encoder,
        policy=_build_policy(config),
        heads=[build_head(name, config, num_features, num_edge_features) for name in config.heads],
        base_encoder=base_encoder,
        discriminator=build_discriminator(config, base_encoder.out_features),
        bound=_find_bound(config),
        contrast=cast(Contrast, config.contrast),
        negatives=cast(Negatives, config.negatives),
        normalisation=cast(Normalisation, config.normalisation),
        scale_by_probability=cast(Scaling, config.scale_by_probability),
    )


def _build_policy(config: Config) -> Policy:
    if config.policy not in POLICIES:
        return cast(Policy, plugins.find("policy", config.policy)(config))
    return POLICIES[config.policy](
        config.hidden, len(config.heads), config.temperature, config.replacement
    )


def build_discriminator(config: Config, width: int) -> Discriminator:
    """Make the discriminator that a config describes, for encodings of some width."""
    if config.discriminator not in DISCRIMINATORS:
        made = plugins.find("discriminator", config.discriminator)(config, width)
        return cast(Discriminator, made)
    return DISCRIMINATORS[config.discriminator](width)


def _find_bound(config: Config) -> Bound:
    if config.bound not in BOUNDS:
        return plugins.find("bound", config.bound)
    if config.bound == "nt-xent":
        return partial(BOUNDS[config.bound], temperature=config.bound_temperature)
    return BOUNDS[config.bound]


def build_base_encoder(config: Config, num_features: int, num_edge_features: int = 0) -> Encoder:
    """Make the base encoder that a config describes; its weights are PyTorch's own."""
    features, width = None, num_features
    if config.feature_projection == "shared":
        features, width = nn.Linear(num_features, config.hidden), config.hidden
    layers = config.base_layers or config.layers
    network = (
        _gin(config, width, layers, num_edge_features)
        if config.base_encoder == "gin"
        else GCN(
            width,
            config.hidden,
            layers,
            config.dropout,
            config.norm,
            num_edge_features,
            cast(Output, config.gcn_output),
            config.smoothing,
        )
    )
    return Encoder(
        network,
        config.hidden,
        readout=cast(ReadOut, config.readout),
        projection=config.projection,
        features=features,
        scale=_scale(config, network.out_features + bool(config.averaged_features) * num_features),
        scaled=config.level,
        averaged=config.averaged_features,
        given=num_features,
    )


def _scale(config: Config, width: int) -> nn.Module | None:
    """What embeddings pass before they are handed out."""
    if config.embedding_scale == "standard":
        return StandardRows(width)
    return UnitRows() if config.embedding_scale == "unit" else None


def _gin(config: Config, width: int, layers: int, num_edge_features: int) -> GIN:
    return GIN(
        width,
        config.hidden,
        layers,
        config.dropout,
        config.norm,
        norm_first=config.norm_place == "before",
        num_edge_features=num_edge_features,
    )


def build_head(name: str, config: Config, num_features: int, num_edge_features: int = 0) -> Head:
    """Make one augmentation head that a config describes."""
    weighting = cast(EdgeWeighting, config.edge_weighting)
    match name:
        case "node-dropping":
            return NodeDropping(config.hidden, config.ratio, weighting)
        case "edge-perturbation":
            return EdgePerturbation(config.hidden, config.temperature, weighting, num_edge_features)
        case "sub-graph":
            return SubGraph(config.hidden, config.hops, weighting)
        case "feature-masking":
            own = config.feature_projection == "head"
            width = config.hidden if config.feature_projection == "shared" else num_features
            return FeatureMasking(width, config.hidden, config.temperature, projection=own)
        case "identity":
            return Identity()
    return cast(Head, plugins.find("heads", name)(config, num_features))
