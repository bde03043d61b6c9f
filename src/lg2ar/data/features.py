"""Feature recipes: how features of nodes and edges are made of what the data has.

A recipe is settled once, on the data a model is trained on, and stored in the checkpoint, so that
an unseen graph gets the same features.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lg2ar.config import Config
from lg2ar.data.columns import ColumnRecipe, Columns, Unseen
from lg2ar.data.dataset import Dataset
from lg2ar.data.mapped import MappedGraph
from lg2ar.data.on_disk import GraphsOnDisk, unseen_in
from lg2ar.data.walks import return_chances
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch
from lg2ar.ops import segment_sum

_log = logging.getLogger("lg2ar")

RECIPES = ("given", "constant", "degree", "one-hot-degree", "degree-and-one-hot", "walks")


@dataclass(frozen=True)
class FeatureRecipe:
    """How features are made.

    Attributes:
        name: ``given`` takes the data's own; ``constant`` is a single one for every node, whatever
            the data has; ``degree`` is the number of incoming edges, ``one-hot-degree`` tells
            degrees up to ``cap`` apart, ``degree-and-one-hot`` is both; ``walks`` are the chances
            that random walks of 2 to ``walk_length`` steps end where they began: these four stand
            beside the data's own features where there are some.
        given: How many node features the data has of its own, ready for use.
        cap: Degrees from here on look alike to one-hot features.
        nodes: How the raw columns of nodes become features; None where there are none.
        edges_given: How many edge features the data has of its own, ready for use.
        edges: How the raw columns of edges become features; None where there are none.
        row_normalise: Whether a node's features are divided by the sum of their sizes.
        walk_length: Of the longest walk, 0 for other recipes.
    """

    name: str
    given: int
    cap: int
    nodes: ColumnRecipe | None = None
    edges_given: int = 0
    edges: ColumnRecipe | None = None
    row_normalise: bool = False
    walk_length: int = 0

    @classmethod
    def settle(
        cls,
        name: str,
        data: Dataset | GraphBatch,
        cap: int = 100,
        row_normalise: bool = False,
        walk_length: int = 8,
    ) -> FeatureRecipe:
        """Choose the recipe for some data: ``auto`` is ``given``, or ``constant`` without any."""
        dataset = _as_dataset(data)
        nodes = _learned(dataset.node_columns, dataset.name, "nodes")
        edges = _learned(dataset.edge_columns, dataset.name, "edges")
        given = dataset.graph.num_features
        own = given + (0 if nodes is None else nodes.width)
        if name == "auto":
            name = "given" if own else "constant"
        if name not in RECIPES:
            raise InputError(f"features = {name!r} must be one of auto, {', '.join(RECIPES)}.")
        if name == "given" and not own:
            raise InputError(
                "the graphs have no node features of their own; choose features = 'constant' "
                "or one of the degree recipes."
            )
        return cls(
            name=name,
            given=given,
            cap=cap,
            nodes=None if name == "constant" else nodes,
            edges_given=dataset.graph.num_edge_features,
            edges=edges,
            row_normalise=row_normalise,
            walk_length=walk_length if name == "walks" else 0,
        )

    @classmethod
    def of(cls, config: Config, data: Dataset | GraphBatch) -> FeatureRecipe:
        """The recipe that a run's settings ask for, settled on its data."""
        return cls.settle(
            config.features, data, config.degree_cap, config.row_normalise, config.walk_length
        )

    @property
    def width(self) -> int:
        """Number of node features this recipe makes, ``d_x``."""
        made = {
            "given": 0,
            "constant": 1,
            "degree": 1,
            "one-hot-degree": self.cap + 1,
            "degree-and-one-hot": self.cap + 2,
            "walks": self.walk_length - 1,
        }
        own = 0 if self.name == "constant" else self.given
        columns = 0 if self.nodes is None else self.nodes.width
        return own + columns + made[self.name]

    @property
    def edge_width(self) -> int:
        """Number of edge features this recipe makes, ``d_e``; 0 where edges have none."""
        return self.edges_given + (0 if self.edges is None else self.edges.width)

    def apply(
        self, data: Dataset | GraphBatch, name: str | None = None, tell: bool = True
    ) -> GraphBatch:
        """The graphs with the features this recipe makes, of nodes and of edges.

        What the recipe has not seen when it was settled, an unknown category for example, is
        counted and told by the logger ``lg2ar``.

        Args:
            data: A data set, or graphs without raw columns.
            name: What to call the data in a message; its own name, where it has one.
            tell: Whether to tell what has not been seen.

        Returns:
            The graphs; those on a disk stay there, and get their features when they are read.

        Raises:
            InputError: If the data has not the features and columns the recipe was settled on.
        """
        dataset = _as_dataset(data, name)
        graph, name = dataset.graph, name or dataset.name
        if isinstance(graph, MappedGraph) and self.name == "walks":
            raise InputError(
                f"{name} stays on its disk, and features = 'walks' are made of graphs in memory; "
                "choose features = 'degree' or 'one-hot-degree'."
            )
        if isinstance(graph, GraphsOnDisk | MappedGraph):
            for what, unseen in unseen_in(graph.layout, name, self).items() if tell else ():
                _tell(unseen, name, what)
            return graph.prepared(self)
        attributes = self.edge_rows(
            graph.edge_attr, dataset.edge_columns, graph.num_edges, name, tell
        )
        if attributes is not None:
            attributes = attributes.to(graph.x)
        structure = None
        if self.needs_degree:
            target = graph.edge_index[1]
            structure = segment_sum(torch.ones_like(target), target, graph.num_nodes)
        elif self.name == "walks":
            structure = return_chances(graph, self.walk_length, name)
        x = self.node_rows(graph.x, dataset.node_columns, structure, name, tell)
        return graph.replace(x=x, edge_attr=attributes)

    @property
    def needs_degree(self) -> bool:
        """Whether features tell how many edges come in."""
        return self.name in ("degree", "one-hot-degree", "degree-and-one-hot")

    def node_rows(
        self, x: Tensor, columns: Columns, structure: Tensor | None, name: str, tell: bool = False
    ) -> Tensor:
        """The features of some nodes.

        Args:
            x: Those the data has of its own, ``[nodes, given]``.
            columns: Their raw columns.
            structure: Edges that come in, ``[nodes]``, or the chances of walks, ``[nodes,
                walk_length - 1]``; None where neither is needed.
            name: What to call the data in a message.
            tell: Whether to tell what has not been seen.
        """
        if self.name == "constant":
            return x.new_ones(x.size(0), 1)
        if x.size(1) != self.given:
            raise InputError(
                f"{name} has {x.size(1)} node features where the model was trained on "
                f"{self.given}; give it the same ones."
            )
        parts = [x]
        if self.nodes is not None and self.nodes.width:
            parts.append(_made(self.nodes, columns, name, "nodes", tell).to(x))
        if self.needs_degree:
            assert structure is not None
            parts += self._degree_features(structure, x.dtype)
        elif structure is not None:
            parts.append(structure.to(x.dtype))
        made = torch.cat(parts, dim=1)
        return F.normalize(made, p=1.0, dim=1) if self.row_normalise else made

    def edge_rows(
        self, given: Tensor | None, columns: Columns, edges: int, name: str, tell: bool = False
    ) -> Tensor | None:
        """The attributes of some edges; None where the recipe makes none.

        Args:
            given: Those the data has of its own.
            columns: Their raw columns.
            edges: How many edges.
            name: What to call the data in a message.
            tell: Whether to tell what has not been seen.
        """
        if not self.edge_width:
            return None
        found = 0 if given is None else given.size(1)
        if found != self.edges_given:
            raise InputError(
                f"{name} has {found} edge features where the model was trained on "
                f"{self.edges_given}; give it the same ones."
            )
        parts = [] if given is None else [given]
        if self.edges is not None and self.edges.width:
            if not edges:  # nothing to look at: no columns are asked for
                parts.append(torch.zeros(0, self.edges.width))
            else:
                parts.append(_made(self.edges, columns, name, "edges", tell))
        return torch.cat([part.to(parts[0].device) for part in parts], dim=1)

    def _degree_features(self, degree: Tensor, kind: torch.dtype) -> list[Tensor]:
        one_hot = F.one_hot(degree.clamp(max=self.cap), self.cap + 1).to(kind)
        number = degree.to(kind).unsqueeze(-1)
        return {
            "degree": [number],
            "one-hot-degree": [one_hot],
            "degree-and-one-hot": [number, one_hot],
        }[self.name]

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON has it; without what there is nothing of."""
        held: dict[str, Any] = {"name": self.name, "given": self.given, "cap": self.cap}
        if self.nodes is not None:
            held["nodes"] = self.nodes.to_dict()
        if self.edges_given:
            held["edges_given"] = self.edges_given
        if self.edges is not None:
            held["edges"] = self.edges.to_dict()
        if self.row_normalise:
            held["row_normalise"] = True
        if self.walk_length:
            held["walk_length"] = self.walk_length
        return held

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> FeatureRecipe:
        """The recipe that :meth:`to_dict` wrote.

        Raises:
            TypeError, KeyError: When it is not one.
        """
        columns = {
            part: ColumnRecipe.from_dict(held[part]) for part in ("nodes", "edges") if part in held
        }
        recipe = cls(**{**held, **columns})
        numbers = (recipe.given, recipe.cap, recipe.edges_given, recipe.walk_length)
        if recipe.name not in RECIPES or not all(type(n) is int and n >= 0 for n in numbers):
            raise TypeError("a recipe of no known kind")
        if (recipe.name == "walks") != (recipe.walk_length > 1):
            raise TypeError("walks of no length")
        if recipe.width < 1:
            raise TypeError("a recipe that makes no features")
        return recipe


def _as_dataset(data: Dataset | GraphBatch, name: str | None = None) -> Dataset:
    if isinstance(data, Dataset):
        return data
    return Dataset(name=name or "the data", level="graph", graph=data)


def _learned(columns: Columns, name: str, what: str) -> ColumnRecipe | None:
    if not columns:
        return None
    recipe = ColumnRecipe.learn(columns, f"{name}, {what}")
    if recipe.left_out:
        listed = ", ".join(f"'{column}'" for column in recipe.left_out[:8])
        _tell_once(
            f"{name}: no feature is made of {len(recipe.left_out)} column(s) of {what}, as each "
            f"holds one number everywhere or another text in nearly every row: {listed}."
        )
    return recipe


@cache
def _tell_once(text: str) -> None:
    _log.warning(text)


def _made(recipe: ColumnRecipe, columns: Columns, name: str, what: str, tell: bool) -> Tensor:
    values, unseen = recipe.apply(columns, f"{name}, {what}")
    if tell:
        _tell(unseen, name, what)
    return values


def _tell(unseen: Unseen, name: str, what: str) -> None:
    for column in dict.fromkeys(column for column, _ in unseen):
        new = {value: number for (place, value), number in unseen.items() if place == column}
        missing = new.pop("", 0)
        parts = []
        if new:
            most = max(new, key=lambda value: new[value])
            parts.append(
                f"holds {len(new)} value(s) that were not seen in training, such as "
                f"'{most[:40]}', in {sum(new.values())} row(s)"
            )
        if missing:
            parts.append(f"is empty in {missing} row(s), as it never was in training")
        _log.warning(
            "%s: column '%s' of %s %s; these are taken as unknown.",
            *(name, column, what, " and ".join(parts)),
        )
