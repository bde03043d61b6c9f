"""The views that a run's own heads cut of example graphs, and the probabilities behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lg2ar.graph import Encoding, GraphBatch
from lg2ar.heads import EdgePerturbation, FeatureMasking, Head, NodeDropping, SubGraph
from lg2ar.methods.graphcl import Augmentation, GraphCL
from lg2ar.model import LG2AR, Method
from lg2ar.sampling import seed_from

Floats = NDArray[np.float64]
Pair = tuple[int, int]  # of nodes, the smaller place first


@dataclass(frozen=True, eq=False)
class View:
    """What became of one graph.

    Attributes:
        kept: True at nodes that are in the view, shape ``[n]``.
        removed: Pairs of nodes that were joined and no longer are.
        stayed: Pairs that still are.
        added: Pairs that are joined now.
        masked: Share of each node's features that were set to zero, shape ``[n]``; None where the
            features are as they were.
        node_p: Learned probability of each node within its graph, shape ``[n]``.
        edge_p: Learned probability of pairs, of joined ones and of those that might be added.
        feature_p: Learned probability that a feature stays, mean over each node's, shape ``[n]``.
    """

    kept: NDArray[np.bool_]
    removed: frozenset[Pair]
    stayed: frozenset[Pair]
    added: frozenset[Pair]
    masked: Floats | None = None
    node_p: Floats | None = None
    edge_p: dict[Pair, float] = field(default_factory=dict)
    feature_p: Floats | None = None


def cut_views(
    model: Method, names: Sequence[str], graph: GraphBatch, seed: int, number: int = 2
) -> dict[str, list[View]]:
    """Let every augmentation of a run cut some views of one graph.

    Args:
        model: The run's model; it is used as in inference, without dropout.
        names: Of its augmentations.
        graph: One graph, features included.
        seed: Fixes what is drawn.
        number: Views of each augmentation.

    Returns:
        By augmentation its views; nothing for a method that cuts none.
    """
    device = next(model.parameters()).device
    graph = graph.to(device).replace(origin=None)
    found: dict[str, list[View]] = {}
    with torch.no_grad():
        source = model.base_encoder.prepare(graph)
        for name, cut in _augmentations(model, names, graph, source):
            views = []
            for place in range(number):
                generator = torch.Generator(device)
                generator.manual_seed(seed_from(seed, "views", name, place))
                views.append(_compared(source, *cut(generator)))
            found[name] = views
    return found


Cut = Callable[[torch.Generator], tuple[GraphBatch, dict[str, Any]]]


def _augmentations(
    model: Method, names: Sequence[str], graph: GraphBatch, source: GraphBatch
) -> Iterator[tuple[str, Cut]]:
    if isinstance(model, LG2AR):
        encoding = model.augmentation_encoder(graph)
        for name, head in zip(names, model.heads, strict=True):
            yield name, partial(_learned, cast(Head, head), source, encoding)
    elif isinstance(model, GraphCL):
        for name, augment in zip(names, model.augmentations, strict=True):
            yield name, partial(_fixed, augment, source, model.ratio)


def _learned(
    head: Head, source: GraphBatch, encoding: Encoding, generator: torch.Generator
) -> tuple[GraphBatch, dict[str, Any]]:
    with _listening(head) as heard:
        return head(source, encoding, generator), heard


def _fixed(
    augment: Augmentation, source: GraphBatch, ratio: float, generator: torch.Generator
) -> tuple[GraphBatch, dict[str, Any]]:
    return augment(source, ratio, generator), {}


@contextmanager
def _listening(head: Head) -> Iterator[dict[str, Any]]:
    """Hear the probabilities that a head makes while it cuts, from the head itself."""
    heard: dict[str, Any] = {}
    hooks = []
    if isinstance(head, NodeDropping | SubGraph):

        def nodes(_: nn.Module, __: Any, logits: Tensor) -> None:
            heard["node_p"] = _numbers(logits.softmax(0))

        hooks.append(head.scores.register_forward_hook(nodes))
    elif isinstance(head, FeatureMasking):

        def features(_: nn.Module, __: Any, logits: Tensor) -> None:
            heard["feature_p"] = _numbers(logits.sigmoid().mean(1))

        def bare(_: nn.Module, __: Any, projected: Tensor) -> Tensor:
            return torch.ones_like(projected)  # so that the view's features are the mask itself

        hooks.append(head.mlp.register_forward_hook(features))
        hooks.append(head.projection.register_forward_hook(bare))
        heard["mask"] = True
    elif isinstance(head, EdgePerturbation):
        usual = head.logits

        def edges(nodes: Tensor, ends: Tensor, *more: Any) -> Tensor:
            logits = usual(nodes, ends, *more)
            heard["edge_p"] = _by_pair(ends, logits.sigmoid())
            return logits

        head.__dict__["logits"] = edges  # stands before the method, until it is taken away
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()
        head.__dict__.pop("logits", None)


def _compared(source: GraphBatch, view: GraphBatch, heard: dict[str, Any]) -> View:
    """What became of the graph in its view."""
    assert view.origin is not None
    origin = view.origin
    kept = torch.zeros(source.num_nodes, dtype=torch.bool, device=source.device)
    kept[origin] = True
    before = set(_by_pair(source.edge_index))
    after = set(_by_pair(origin[view.edge_index]))
    masked = None
    if heard.pop("mask", False):
        masked = _numbers(1 - view.x.mean(1))
    elif not torch.equal(view.x, source.x[origin]):
        masked = np.zeros(source.num_nodes)
        masked[origin.cpu().numpy()] = _numbers((view.x != source.x[origin]).double().mean(1))
    return View(
        kept=kept.cpu().numpy(),
        removed=frozenset(before - after),
        stayed=frozenset(before & after),
        added=frozenset(after - before),
        masked=masked,
        **heard,
    )


def _by_pair(edge_index: Tensor, values: Tensor | None = None) -> dict[Pair, float]:
    """Pairs of different nodes that are joined, with a value each."""
    low, high = edge_index.min(0).values.tolist(), edge_index.max(0).values.tolist()
    told = [0.0] * len(low) if values is None else values.tolist()
    each = zip(low, high, told, strict=True)
    return {(a, b): value for a, b, value in each if a != b}


def _numbers(values: Tensor) -> Floats:
    return values.detach().double().cpu().numpy()
