"""Feature recipes: how node features are made of what the data has.

A recipe is settled once, on the data a model is trained on, and stored in the checkpoint, so that
an unseen graph gets the same features.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch
from lg2ar.ops import segment_sum

RECIPES = ("given", "constant", "degree", "one-hot-degree", "degree-and-one-hot")


@dataclass(frozen=True)
class FeatureRecipe:
    """How node features are made.

    Attributes:
        name: ``given`` takes the data's own; ``constant`` is a single one for every node, whatever
            the data has; ``degree`` is the number of incoming edges, ``one-hot-degree`` tells
            degrees up to ``cap`` apart, ``degree-and-one-hot`` is both: these three stand beside
            the data's own features where there are some.
        given: How many features the data has of its own.
        cap: Degrees from here on look alike to one-hot features.
    """

    name: str
    given: int
    cap: int

    @classmethod
    def settle(cls, name: str, graph: GraphBatch, cap: int = 100) -> FeatureRecipe:
        """Choose the recipe for some data: ``auto`` is ``given``, or ``constant`` without any."""
        given = graph.num_features
        if name == "auto":
            name = "given" if given else "constant"
        if name not in RECIPES:
            raise InputError(f"features = {name!r} must be one of auto, {', '.join(RECIPES)}.")
        if name == "given" and not given:
            raise InputError(
                "the graphs have no node features of their own; choose features = 'constant' "
                "or one of the degree recipes."
            )
        return cls(name=name, given=given, cap=cap)

    @property
    def width(self) -> int:
        """Number of features this recipe makes, ``d_x``."""
        made = {"given": 0, "constant": 1, "degree": 1, "one-hot-degree": self.cap + 1}
        own = 0 if self.name == "constant" else self.given
        return own + made.get(self.name, self.cap + 2)

    def apply(self, graph: GraphBatch, name: str = "the data") -> GraphBatch:
        """The graphs with the features this recipe makes.

        Raises:
            InputError: If the data has not as many features as the recipe was settled on.
        """
        if self.name == "constant":
            return graph.replace(x=graph.x.new_ones(graph.num_nodes, 1))
        if graph.num_features != self.given:
            raise InputError(
                f"{name} has {graph.num_features} node features where the model was trained on "
                f"{self.given}; give it the same ones."
            )
        parts = [graph.x]
        if self.name != "given":
            parts += self._degree_features(graph)
        return graph.replace(x=torch.cat(parts, dim=1))

    def _degree_features(self, graph: GraphBatch) -> list[Tensor]:
        target = graph.edge_index[1]
        degree = segment_sum(torch.ones_like(target), target, graph.num_nodes)
        one_hot = F.one_hot(degree.clamp(max=self.cap), self.cap + 1).to(graph.x.dtype)
        number = degree.to(graph.x.dtype).unsqueeze(-1)
        return {
            "degree": [number],
            "one-hot-degree": [one_hot],
            "degree-and-one-hot": [number, one_hot],
        }[self.name]

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON has it."""
        return asdict(self)
