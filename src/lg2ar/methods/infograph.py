"""InfoGraph (Sun et al., 2020): nodes against graphs of one encoding, without augmentation."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from lg2ar.config import Config
from lg2ar.discriminators import Discriminator
from lg2ar.encoders import Encoder
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch
from lg2ar.model import (
    Method,
    Negatives,
    Normalisation,
    Objective,
    StepOutput,
    build_base_encoder,
    build_discriminator,
    initialise_parts,
)
from lg2ar.mutual_information import jensen_shannon
from lg2ar.policy import Draw
from lg2ar.sampling import private_randomness


class InfoGraph(Method):
    """LG2AR with everything learned about augmentations left out.

    The graphs are encoded once, as they are, and each node is told which graph is its own by the
    Jensen-Shannon bound. What is recorded is that both views are the identity.

    Args:
        base_encoder: What is learned and kept.
        discriminator: Scores pairs of encodings.
        identity: Place of the identity in the list of augmentations.
        num_heads: Length of that list.
        negatives: ``graphs``, the others of the batch, or ``shuffled``, copies with the features
            of each graph in random order, which are encoded as well.
        normalisation: What is averaged over; InfoGraph's own is ``pairs`` (docs/paper.md, D2).
    """

    def __init__(
        self,
        base_encoder: Encoder,
        discriminator: Discriminator,
        identity: int = 0,
        num_heads: int = 1,
        negatives: Negatives = "graphs",
        normalisation: Normalisation = "graphs",
    ) -> None:
        super().__init__()
        self.base_encoder = base_encoder
        self.discriminator = discriminator
        self.identity = identity
        self.num_heads = num_heads
        self.objective = Objective(jensen_shannon, "local-global", negatives, normalisation)

    def parts(self) -> dict[str, list[nn.Module]]:
        """The encoder and the discriminator, both every time."""
        return {"base": [self.base_encoder], "always": [self.discriminator]}

    def forward(self, graph: GraphBatch, generator: torch.Generator | None = None) -> StepOutput:
        """Encode the batch and tell how well its nodes know their graphs."""
        origin = torch.arange(graph.num_nodes, device=graph.device)
        view = self.base_encoder.prepare(graph).replace(origin=origin)
        one = torch.ones((), device=graph.device)
        encoded = view, self.base_encoder(view), one
        agreement = self.objective.agreement(
            encoded, encoded, self.base_encoder, self.discriminator, generator
        )
        certain = torch.zeros(self.num_heads, device=graph.device)
        certain[self.identity] = 1
        draw = Draw(i=self.identity, j=self.identity, p_i=one, p_j=one, probabilities=certain)
        return StepOutput(loss=-agreement, draw=draw, views=(view, view))


def build(config: Config, num_features: int, num_edge_features: int = 0) -> InfoGraph:
    """Make InfoGraph of a config's parts; its base encoder starts as LG2AR's of the same seed.

    Bound and contrast are InfoGraph's own, whatever the config says of them; discriminator,
    negatives and normalisation are the config's.

    Args:
        config: The settings.
        num_features: Width of the node features, ``d_x``.
        num_edge_features: Width of the edge attributes, ``d_e``.

    Raises:
        InputError: If the identity is not among the augmentations.
    """
    if "identity" not in config.heads:
        raise InputError(
            f"method = 'infograph' augments nothing, but heads = {list(config.heads)} leave out "
            "'identity'; add it."
        )
    with private_randomness():
        encoder = build_base_encoder(config, num_features, num_edge_features)
        model = InfoGraph(
            encoder,
            build_discriminator(config, encoder.out_features),
            identity=config.heads.index("identity"),
            num_heads=len(config.heads),
            negatives=cast(Negatives, config.negatives),
            normalisation=cast(Normalisation, config.normalisation),
        )
        parts = {"base encoder": encoder, "discriminator": model.discriminator}
        initialise_parts(parts, config.seed)
    return model
