"""Example graphs with the views that every head cuts of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lg2ar.config import Config
from lg2ar.data.batches import GraphStore
from lg2ar.data.dataset import Dataset
from lg2ar.data.egonets import EgoNets
from lg2ar.graph import GraphBatch
from lg2ar.model import Method
from lg2ar.report.document import section
from lg2ar.report.kinds import Kinds, label_names
from lg2ar.report.outlines import MOST_NODES, Outline, Outliner
from lg2ar.report.placing import Floats, place
from lg2ar.report.sketches import STEPS, sketch, view_sketch, view_text
from lg2ar.report.svg import escape
from lg2ar.report.views import View, cut_views
from lg2ar.report.words import many, shortened
from lg2ar.sampling import seed_from

LEAST_NODES = 5  # of an example, where there are such
CANDIDATES = 200  # looked at, to find some of a good size

TOLD = {
    "identity": "leaves the graph as it is",
    "node-dropping": "keeps a share of the nodes, the likely ones more often",
    "edge-perturbation": "keeps or removes each edge, and adds others",
    "sub-graph": "keeps what lies within some hops of one drawn node",
    "feature-masking": "sets features to zero, node by node",
}


@dataclass(frozen=True, eq=False)
class Example:
    """A graph and its views.

    Attributes:
        name: What it is called.
        outline: What is drawn of it, by places within the graph.
        places: Where its nodes are drawn.
        kinds: What its nodes are coloured by.
        num_pairs: Joined pairs of nodes it has.
        views: By augmentation.
    """

    name: str
    outline: Outline
    places: Floats
    kinds: Kinds
    num_pairs: int
    views: dict[str, list[View]]


def make_examples(
    model: Method, config: Config, dataset: Dataset, graph: GraphBatch, kinds: Kinds, number: int
) -> list[Example]:
    """Draw some graphs (node level: sub-graphs around nodes) and let every head cut two views.

    Args:
        model: The run's model.
        config: The run's settings; its seed fixes which graphs and views are drawn.
        dataset: The data.
        graph: The same with the features that the model reads.
        kinds: What nodes are coloured by.
        number: How many examples.
    """
    found = []
    for row, one in _drawn(config, dataset, graph, number):
        assert one.origin is not None
        origin = one.origin.cpu().numpy()
        views = cut_views(model, config.heads, one, seed_from(config.seed, "example", row))
        if not views:
            break
        outliner = Outliner(one.replace(batch=one.batch * 0, num_graphs=1))
        outline = outliner.graph(0)
        if config.level == "node":
            centre = int(np.flatnonzero(origin == row)[0])
            outline = replace(outliner.node(centre, config.hops), num_nodes=one.num_nodes)
        found.append(
            Example(
                name=row_name(dataset, row),
                outline=outline,
                places=place([len(outline.nodes)], [outline.pairs])[0],
                kinds=replace(kinds, codes=kinds.codes[origin]),
                num_pairs=int(outliner.num_pairs()[0]),
                views=views,
            )
        )
    return found


def row_name(dataset: Dataset, row: int) -> str:
    """What a graph or node is called: its id, or its place, and its label."""
    name = str(row) if dataset.ids is None else shortened(dataset.ids[row])
    told = f"{dataset.level} {name}"
    if dataset.y is None or len(dataset.y) != len(dataset):
        return told
    if dataset.y.is_floating_point():
        return f"{told}, label {float(dataset.y[row]):.4g}"
    one = replace(dataset, y=dataset.y[row : row + 1])
    return f"{told}, label {shortened(label_names(one)[0])}"


def _drawn(
    config: Config, dataset: Dataset, graph: GraphBatch, number: int
) -> list[tuple[int, GraphBatch]]:
    """Rows of a size that can be drawn, of different labels in turn, and their graphs."""
    rng = np.random.default_rng(seed_from(config.seed, "examples"))
    rows = rng.permutation(len(dataset))[:CANDIDATES]
    if config.level == "node":
        outliner = Outliner(graph)
        sizes = {row: len(outliner.around(row, config.hops, MOST_NODES + 1)) for row in rows}
    else:
        sizes = dict(zip(rows, graph.sizes.cpu().numpy()[rows], strict=True))
    good = [row for row in rows if LEAST_NODES <= sizes[row] <= MOST_NODES]
    rest = sorted(set(rows) - set(good), key=lambda row: abs(int(sizes[row]) - MOST_NODES))
    chosen = [int(row) for row in [*_in_turn(dataset, good), *rest][:number]]
    if config.level == "node":
        nets = EgoNets(graph, config.hops)
        return [(row, nets.around([row])) for row in chosen]
    store = GraphStore(graph)
    return [(row, store.select([row])) for row in chosen]


def _in_turn(dataset: Dataset, rows: Sequence[int]) -> list[int]:
    """The rows in such an order that labels take turns."""
    if dataset.y is None or dataset.y.is_floating_point() or len(dataset.y) != len(dataset):
        return list(rows)
    labels = [int(dataset.y[int(row)]) for row in rows]
    turn = [labels[:k].count(label) for k, label in enumerate(labels)]
    return [rows[k] for k in sorted(range(len(rows)), key=lambda k: turn[k])]


def examples_section(examples: Sequence[Example], probabilities: dict[str, float]) -> str:
    """The part of the page that shows them.

    Args:
        examples: At least one.
        probabilities: Of the policy for each augmentation, in the last epoch.
    """
    shown = [_example(place, example, probabilities) for place, example in enumerate(examples)]
    tabs = "".join(
        f'<button type="button" role="tab" aria-controls="example-{k}">{escape(each.name)}</button>'
        for k, each in enumerate(examples)
    )
    intro = (
        "<p>Every augmentation head learns which nodes, edges or features matter, and cuts views "
        "by chance accordingly. Here the run's own heads cut two views each of example graphs. "
        "Point at a node or an edge to read its probability.</p>"
    )
    strip = f'<div class="tabs" role="tablist" aria-label="Example" hidden>{tabs}</div>'
    return section("What the heads cut", intro + strip + "".join(shown) + _legend(), name="views")


def _example(place: int, example: Example, probabilities: dict[str, float]) -> str:
    cards = [_whole(example)]
    for head, views in example.views.items():
        p = probabilities.get(head)
        drawn = "" if p is None else f'<span class="badge">drawn with p = {p:.2f}</span>'
        figures = "".join(
            f"<figure>{_view(example, head, k, view)}<figcaption>{escape(view_text(view))}"
            "</figcaption></figure>"
            for k, view in enumerate(views)
        )
        cards.append(
            f'<div class="cut"><h4>{escape(head)} {drawn}</h4><p class="note">'
            f'{escape(TOLD.get(head, "cuts a view"))}</p><div class="pair">{figures}</div></div>'
        )
    return (
        f'<div class="example" id="example-{place}"><h3>{escape(_title(example.name))}</h3>'
        f'<div class="cuts">{"".join(cards)}</div></div>'
    )


def _title(name: str) -> str:
    return name[:1].upper() + name[1:]


def _whole(example: Example) -> str:
    outline = example.outline
    told = f"{many(outline.num_nodes, 'node')}, {many(example.num_pairs, 'edge')}"
    title = "The graph itself"
    if example.name.startswith("node "):
        title = "What lies around it"
        told = f"sub-graph of {told}"
    shown = ""
    if len(outline.nodes) < outline.num_nodes:
        shown = f"; drawn are the {len(outline.nodes)} nodes around the one with a ring"
    if len(outline.pairs) < outline.num_pairs:
        shown += f"; drawn are {len(outline.pairs)} of the {outline.num_pairs} edges between them"
    drawing = sketch(
        outline, example.places, example.kinds, label=f"{_title(example.name)}: {told}"
    )
    keys = ""
    if example.kinds.what:
        here = sorted(set(example.kinds.codes.tolist()))
        keys = "".join(
            f'<li><i class="dot c{kind % 10}"></i>'
            f"{escape(shortened(example.kinds.names[kind], 24))}</li>"
            for kind in here
        )
        what = escape(shortened(example.kinds.what, 24))
        keys = f'<ul class="legend"><li class="soft">{what}</li>{keys}</ul>'
    return (
        f'<div class="cut whole"><h4>{title}</h4><p class="note">{escape(told + shown)}'
        f"</p><div class='body'><figure>{drawing}</figure>{keys}</div></div>"
    )


def _view(example: Example, head: str, place: int, view: View) -> str:
    label = f"View {place + 1} by {head}: {view_text(view)}"
    return view_sketch(example.outline, example.places, view, label=label)


def _legend() -> str:
    steps = "".join(f'<i class="q{k}"></i>' for k in range(STEPS))

    def key(mark: str, text: str) -> str:
        return f'<li><svg viewBox="0 0 28 14" width="28" height="14">{mark}</svg>{text}</li>'

    keys = [
        key('<circle class="node plain" cx="14" cy="7" r="5"/>', "node kept"),
        key('<circle class="node dropped" cx="14" cy="7" r="5.5"/>', "node dropped"),
        key('<path class="edge kept" d="M2 7H26"/>', "edge kept"),
        key('<path class="edge removed" d="M2 7H26"/>', "edge removed"),
        key('<path class="edge added" d="M2 7H26"/>', "edge added"),
        key(
            '<circle class="node q5" cx="14" cy="7" r="6"/>'
            '<path class="masked" d="M14 7V1A6 6 0 0 1 19.2 10z"/>',
            "share of features masked",
        ),
    ]
    scales = "".join(
        f'<li class="scale"><span>{low}</span>{steps}<span>{high}</span></li>'
        for low, high in (
            ("learned p of a node: ¼", "4 times that of all alike"),
            ("learned p of an edge, or that a feature stays: 0", "1"),
        )
    )
    return f'<ul class="legend" aria-label="Legend">{"".join(keys)}{scales}</ul>'
