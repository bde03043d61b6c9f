"""What was trained on what, at a glance and in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lg2ar.checkpoint import Checkpoint
from lg2ar.records import EpochRecord, Score
from lg2ar.report.document import facts_table, section
from lg2ar.report.svg import escape
from lg2ar.report.words import count, duration, many, shortened


def overview_section(
    held: Checkpoint,
    history: Sequence[EpochRecord],
    scores: Mapping[str, Score],
    notes: Sequence[str],
) -> str:
    """The first part of the page.

    Args:
        held: The run.
        history: Its epochs.
        scores: By encoder.
        notes: Sentences about the data the page was made with, or what is missing.
    """
    data, config = held.data, held.config
    tiles = [
        ("graphs", count(data.get("num_graphs"))),
        ("nodes", count(data.get("num_nodes"))),
        ("epochs", f"{len(history)} of {config.epochs}"),
        ("policy", config.policy if config.method == "lg2ar" else config.method),
    ]
    if config.level == "node":
        del tiles[0]  # one large graph
    if history:
        tiles.append(("loss", f"{history[0].loss:.3g} → {history[-1].loss:.3g}"))
        tiles.append(("time", duration(sum(record.seconds for record in history))))
    if scores:
        named = sorted(scores, key=lambda name: name != "untrained")
        told = " → ".join(f"{scores[name].mean:.1f}" for name in named)
        tiles.append(("probe accuracy", f"{told} %"))
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles
    )
    facts = [
        ("Data", shortened(data.get("name", "?"), 300)),
        ("Graphs", count(data.get("num_graphs"))),
        ("Nodes", count(data.get("num_nodes"))),
        ("Edges", f"{count(data.get('num_edges'))}, each direction counted by itself"),
        ("Node features", _recipe(held)),
        ("State", _state(held, len(history))),
        ("Weights kept", _kept(held, len(history))),
        ("Fingerprint of the data", data.get("fingerprint", "?")),
    ]
    told = "".join(f'<p class="message">{escape(note)}</p>' for note in notes)
    more = (
        f"<details><summary>More about the data and the run</summary>{facts_table(facts)}</details>"
    )
    lead = f"<p>{escape(_lead(held, len(history)))}</p>"
    return section("What was trained", f'{lead}<dl class="tiles">{shown}</dl>{told}{more}')


def _lead(held: Checkpoint, done: int) -> str:
    """The run in a sentence."""
    config, data = held.config, held.data
    name = shortened(data.get("name", "?"))
    what = "nodes" if config.level == "node" else "graphs"
    number = count(data.get(f"num_{what}"))
    layers = config.base_layers or config.layers
    encoder = (
        f"a {config.base_encoder.upper()} of {many(layers, 'layer')} and width {config.hidden}"
    )
    if not done:
        return f"{encoder[:1].upper()}{encoder[1:]} for the {number} {what} of {name}, not trained."
    method = {"lg2ar": "LG2AR"}.get(config.method, config.method)
    return (
        f"With {method}, {encoder} learned to embed the {number} {what} of {name}. It saw no label."
    )


def _recipe(held: Checkpoint) -> str:
    """In words, how node features were made."""
    name, given = held.recipe.get("name", "?"), held.recipe.get("given", "?")
    columns = held.data.get("node_columns") or []
    if name == "constant":
        return "constant: a single one for every node"
    own = f"{given} of the data's own" if given or not columns else ""
    if columns:
        listed = f"made of the columns {', '.join(shortened(column, 40) for column in columns)}"
        own = f"{own}, and {listed}" if own else listed
    if name == "given":
        return f"given: {own}"
    text = f"{name}, beside {own}" if given or columns else str(name)
    if "one-hot" in text:
        text += f"; degrees are told apart up to {held.recipe.get('cap', '?')}"
    return text


def _state(held: Checkpoint, done: int) -> str:
    if not held.finished:
        return "not at its end yet"
    if done < held.config.epochs:
        return f"stopped early: no lower loss for {held.config.patience} epochs"
    return "finished"


def _kept(held: Checkpoint, done: int) -> str:
    best = held.progress.get("best_epoch", 0)
    if not done:
        return "those it was initialised with"
    if held.config.patience and best:
        return f"those of epoch {best}, the one with the lowest loss"
    return f"those of the last epoch, {done}"
