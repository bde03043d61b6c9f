"""The map of the embeddings that the reader can move in: its data and its frame."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lg2ar.data.dataset import Dataset
from lg2ar.report.colours import Colouring, chosen, colourings
from lg2ar.report.document import section
from lg2ar.report.kinds import Kinds
from lg2ar.report.maps import Rows, framed, nearest, neighbour_map, project
from lg2ar.report.outlines import (
    MOST_EDGES,
    MOST_NODES,
    NODE_HOPS,
    Outline,
    Outliner,
)
from lg2ar.report.placing import place
from lg2ar.report.svg import escape, printable
from lg2ar.report.words import count, shortened

MOST_MAPPED = 2000  # points of a map
NEIGHBOURS = 6
GRID = 10_000  # coordinates are whole numbers up to here
ASPECT = 0.75  # height of the map by its width, as in atlas.js

T_SNE, PCA = "t-SNE", "PCA"


@dataclass(frozen=True, eq=False)
class Atlas:
    """All that the map shows.

    Attributes:
        level: ``graph`` or ``node``.
        total: Of how many rows these were drawn.
        ids: What each mapped row is called.
        maps: Coordinates by encoder and kind of map, each of shape ``[n, 2]``.
        colourings: What points can be coloured by.
        colour: Which of them comes first.
        neighbours: Places and distances of the nearest rows, of the first encoder.
        outlines: What is drawn of each row.
        kinds: What the drawings' nodes are coloured by.
    """

    level: str
    total: int
    ids: list[str]
    maps: dict[str, dict[str, Rows]]
    colourings: list[Colouring]
    colour: int
    neighbours: tuple[NDArray[np.int64], Rows]
    outlines: list[Outline]
    kinds: Kinds


def make_atlas(
    dataset: Dataset,
    rows: NDArray[np.int64],
    embedded: Mapping[str, NDArray[Any]],
    kinds: Kinds,
    *,
    total: int,
    colour_by: str | None = None,
    seed: int = 0,
) -> Atlas:
    """Lay embeddings out, and find what belongs to each point.

    Args:
        dataset: The data.
        rows: Which of its rows are shown.
        embedded: Embeddings of these by encoder; neighbours are those of the first.
        kinds: What nodes are coloured by.
        total: Of how many rows they were drawn.
        colour_by: The column to colour by first.
        seed: Fixes the map.
    """
    outliner = Outliner(dataset.graph)
    columns = colourings(dataset, rows, outliner)
    colour = chosen(columns, colour_by)  # refused before anything that takes time
    cut = outliner.graph if dataset.level == "graph" else outliner.node
    first = next(iter(embedded.values()))
    return Atlas(
        level=dataset.level,
        total=total,
        ids=[str(row) if dataset.ids is None else shortened(dataset.ids[row]) for row in rows],
        maps={name: _laid_out(values, seed) for name, values in embedded.items()},
        colourings=columns,
        colour=colour,
        neighbours=nearest(first, NEIGHBOURS),
        outlines=[cut(int(row)) for row in rows],
        kinds=kinds,
    )


def _laid_out(rows: NDArray[Any], seed: int) -> dict[str, Rows]:
    near = neighbour_map(rows, seed)
    maps = {} if near is None else {T_SNE: near}
    return {**maps, PCA: project(rows)}


def atlas_section(atlas: Atlas) -> str:
    """The part of the page that shows the map; a script fills it in."""
    n, level = len(atlas.ids), atlas.level
    what = f"{count(n)} {level}s"
    if n < atlas.total:
        what = f"{count(n)} of {count(atlas.total)} {level}s, drawn at random"
    text = (
        f"<p>{escape(what)}; each point is one, and near points are alike to the encoder. Point at "
        f"one to see its {'graph' if level == 'graph' else 'surroundings'}; click or tap it for "
        "its nearest neighbours. Click the map and scroll, or use the buttons, to zoom; drag to "
        "move.</p>"
    )
    notes = [
        "Neighbours are the nearest by the cosine distance of standardised embeddings, in all "
        "dimensions" + (", among the points shown." if n < atlas.total else "."),
        "t-SNE keeps neighbourhoods, distances between far groups say little; PCA shows the two "
        "directions of largest spread.",
    ]
    if level == "node":
        notes.append(
            f"Drawings show what lies within {NODE_HOPS} hops of the node with a ring, at most "
            f"{MOST_NODES} nodes of it and {MOST_EDGES} edges."
        )
    elif any(len(outline.nodes) < outline.num_nodes for outline in atlas.outlines):
        notes.append(
            f"Of graphs of more than {MOST_NODES} nodes, those nearest to the node with most edges "
            f"(with a ring) are drawn, and at most {MOST_EDGES} edges."
        )
    body = (
        f'{text}<noscript><p class="note">The map needs JavaScript.</p></noscript>'
        f'<div id="atlas" hidden>{_FRAME}</div>'
        + "".join(f"<p class='note'>{escape(note)}</p>" for note in notes)
        + f'<script type="application/json" id="atlas-data">{as_json(_data(atlas))}</script>'
    )
    return section("Map of the embeddings", body, name="map")


_FRAME = """
<div class="controls">
<label>Colour by <select id="colour-by"></select></label>
<fieldset id="encoders"><legend>Encoder</legend></fieldset>
<fieldset id="layouts"><legend>Map</legend></fieldset>
<label>Find <input id="find" type="search" placeholder="id" autocomplete="off"></label>
</div>
<div class="explorer">
<div class="stage">
<canvas id="canvas" tabindex="0" role="application"></canvas>
<div class="zoom">
<button type="button" id="zoom-in" aria-label="Zoom in">+</button>
<button type="button" id="zoom-out" aria-label="Zoom out">&minus;</button>
<button type="button" id="zoom-reset" aria-label="Show the whole map">⤢</button>
</div>
<ul class="legend" id="atlas-legend" aria-label="Legend"></ul>
</div>
<div class="chosen" id="chosen" aria-live="polite"></div>
</div>
<div id="card" hidden></div>
"""


def as_json(value: Any) -> str:
    """JSON that is safe inside a script element: nothing in it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _data(atlas: Atlas) -> dict[str, Any]:
    places, distances = atlas.neighbours
    return {
        "level": atlas.level,
        "ids": [printable(name) for name in atlas.ids],
        "maps": [
            {"name": printable(name), "layouts": [_layout(*item) for item in layouts.items()]}
            for name, layouts in atlas.maps.items()
        ],
        "columns": [_column(colouring) for colouring in atlas.colourings],
        "colour": atlas.colour,
        "neighbours": places.tolist(),
        "distances": distances.round(4).tolist(),
        "totals": [[o.num_nodes, o.num_pairs] for o in atlas.outlines],
        "graphs": base64.b64encode(packed(atlas.outlines, atlas.kinds)).decode(),
        "kinds": {
            "what": printable(shortened(atlas.kinds.what)),
            "names": [printable(shortened(name)) for name in atlas.kinds.names],
        },
    }


def _layout(name: str, points: Rows) -> dict[str, Any]:
    grid = np.rint(framed(points, ASPECT) * GRID).astype(int)
    return {"name": name, "points": grid.ravel().tolist()}


def _column(colouring: Colouring) -> dict[str, Any]:
    told = {"name": printable(shortened(colouring.name)), "kind": colouring.kind}
    if colouring.kind == "category":
        names = [printable(name) for name in colouring.names]
        return {**told, "names": names, "values": colouring.values.astype(int).tolist()}
    values = [None if np.isnan(value) else _rounded(value) for value in colouring.values.tolist()]
    return {**told, "values": values}


def _rounded(value: float) -> float:
    """Six figures are enough to read."""
    return float(f"{value:.6g}")


def packed(outlines: Sequence[Outline], kinds: Kinds) -> bytes:
    """Drawings as bytes, one after another.

    Each is the number of nodes, the number of edges and the centre's place plus one (0 for none);
    then x and y of every node on a grid of 256, the kind of every node, and the ends of every edge.
    """
    placed = place([len(o.nodes) for o in outlines], [o.pairs for o in outlines])
    parts = []
    for outline, at in zip(outlines, placed, strict=True):
        centre = 0 if outline.centre is None else outline.centre + 1
        parts.append(bytes([len(outline.nodes), len(outline.pairs), centre]))
        parts.append(np.rint(at * 255).astype(np.uint8).tobytes())
        parts.append(kinds.codes[outline.nodes].astype(np.uint8).tobytes())
        parts.append(outline.pairs.astype(np.uint8).tobytes())
    return b"".join(parts)
