"""Graphs of NetworkX, and the files it and others exchange: GraphML, GEXF and node-link JSON.

Pickled graphs are not read: a pickle can run code when it is opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lg2ar.data.assembly import ListedGraph, assemble
from lg2ar.data.dataset import Dataset
from lg2ar.data.reading import ReadOptions
from lg2ar.data.xml_graphs import read_gexf, read_graphml
from lg2ar.errors import InputError

if TYPE_CHECKING:
    import networkx as nx


def read_networkx_file(path: str | Path, **options: Any) -> Dataset:
    """Read a GraphML, GEXF or node-link JSON file, or a folder of such files.

    Node ids are kept as text. Attributes of nodes and edges become columns, or features as they
    are where they hold lists of numbers; attributes of graphs become targets. An attribute called
    ``y``, ``label``, ``labels``, ``class`` or ``target`` (of graphs, or of the nodes of a single
    graph) is taken for the labels unless ``labels`` names another one, ``weight`` of edges for
    their weights. Loops are left out; of parallel edges with the same attributes one counts, with
    different ones all.

    Args:
        path: The file; JSON may hold one node-link graph or a list of them, and GraphML several
            graphs. Or a folder, every file of it a graph that is called like the file.
        **options: ``level``, ``labels``, ``directed``, ``weight``, ``categories``, ``ignore``: see
            :class:`~lg2ar.data.reading.ReadOptions`. Without ``directed`` the file decides, edge
            by edge.

    Raises:
        InputError: Naming the file and the line, or in JSON the place in its lists.
    """
    path = Path(path)
    if path.is_dir():
        files = graph_files(path)
        if not files:
            raise InputError(f"{path}: holds no file that ends in {', '.join(READERS)}.")
        graphs = [graph for file in files for graph in _read_named(file)]
    else:
        graphs = _read(path)
    return assemble(graphs, path.stem, ReadOptions.make(options), str(path))


def from_networkx(
    graphs: nx.Graph | Iterable[nx.Graph], *, name: str = "graphs", **options: Any
) -> Dataset:
    """Take graphs of NetworkX: one of any kind, or several.

    Args:
        graphs: The graph or graphs.
        name: What to call them.
        **options: As :func:`read_networkx_file` takes them.
    """
    many = [graphs] if hasattr(graphs, "is_directed") else list(graphs)
    if not many:
        raise InputError(f"{name}: holds no graphs; give at least one.")
    listed = [_listed(graph, f"{name}[{place}]") for place, graph in enumerate(many)]
    return assemble(listed, name, ReadOptions.make(options), name)


def graph_files(folder: Path) -> list[Path]:
    """The files of a folder that hold graphs, by name; hidden ones are passed over."""
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in READERS and not file.name.startswith(".") and file.is_file()
    )


def _read(path: Path) -> list[ListedGraph]:
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: files of this kind are not read; known are {', '.join(READERS)}")
    return reader(path)


def _read_named(path: Path) -> list[ListedGraph]:
    """The graphs of one file of several, called like the file."""
    graphs = _read(path)
    for place, graph in enumerate(graphs):
        graph.name = path.stem if len(graphs) == 1 else f"{path.stem}[{place}]"
    return graphs


def _listed(graph: Any, where: str) -> ListedGraph:
    if not hasattr(graph, "is_directed") or not hasattr(graph, "nodes"):
        raise InputError(f"{where}: is a {type(graph).__name__}, not a graph of NetworkX.")
    one_way = bool(graph.is_directed())
    attributes = _words(graph.graph)
    name = attributes.pop("name", None)
    return ListedGraph(
        where=where,
        name=None if name is None else str(name),
        directed=one_way,
        nodes={node: _words(row) for node, row in graph.nodes(data=True)},
        edges=[
            (source, target, _words(row), one_way, place)
            for place, (source, target, row) in enumerate(graph.edges(data=True))
        ],
        attributes=attributes,
        edge_place="edge {}",
    )


def _words(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in row.items()}


def _read_json(path: Path) -> list[ListedGraph]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        content = json.loads(text)
        if r"\ud" in text.lower():  # halves of characters, which nothing could write down again
            json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{path}: holds half of a character (\\ud800 to \\udfff without its other half); "
            "remove it."
        ) from None
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}: line {line} is not UTF-8 text; save the file as that.") from None
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise InputError(f"{path}: line {error.lineno} is not JSON ({reason}).") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deep to be a node-link graph.") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{path}: is not JSON that can be read ({error}).") from None
    if isinstance(content, list):
        if not content:
            raise InputError(f"{path}: is an empty list; give at least one graph.")
        return [_node_link(item, f"{path}, graph {place}") for place, item in enumerate(content)]
    return [_node_link(content, str(path))]


def _node_link(content: Any, where: str) -> ListedGraph:
    """A graph of node-link JSON, as NetworkX and d3 write it."""
    if not isinstance(content, dict):
        raise InputError(f"{where}: is no node-link graph, which is an object with 'nodes'.")
    edges_key = "links" if "links" in content and "edges" not in content else "edges"
    nodes: Any = content.get("nodes")
    edges: Any = content.get(edges_key, [])
    for key, value in (("nodes", nodes), (edges_key, edges)):
        if not isinstance(value, list):
            raise InputError(f"{where}: has no list '{key}', so it is no node-link graph.")
    attributes = content.get("graph", {})
    attributes = dict(attributes) if isinstance(attributes, dict) else {}
    name = attributes.pop("name", content.get("name"))
    one_way = content.get("directed", False)
    if not isinstance(one_way, bool):
        raise InputError(f"{where}: 'directed' must be true or false.")
    graph = ListedGraph(
        where=where,
        name=None if name is None else str(name),
        directed=one_way,
        attributes=attributes,
        edge_place=f"{edges_key}[{{}}]",
    )
    for place, row in enumerate(nodes):
        node = _object(row, f"{where}: nodes[{place}]")
        key = _key(node.pop("id", place), f"{where}: nodes[{place}]")
        graph.add_node(key, node, f"nodes[{place}]")
    for place, row in enumerate(edges):
        edge = _object(row, f"{where}: {edges_key}[{place}]")
        edge.pop("key", None)
        if "source" not in edge or "target" not in edge:
            raise InputError(f"{where}: {edges_key}[{place}] has no 'source' or no 'target'.")
        ends = [_key(edge.pop(end), f"{where}: {edges_key}[{place}]") for end in ENDS]
        graph.edges.append((ends[0], ends[1], edge, one_way, place))
    return graph


ENDS = ("source", "target")


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} is not an object with names and values.")
    return dict(value)


def _key(value: Any, where: str) -> Any:
    """An id that can be looked up: JSON has no tuples, NetworkX has."""
    if isinstance(value, list):
        return tuple(_key(item, where) for item in value)
    if isinstance(value, dict) or value is None:
        raise InputError(f"{where} has an id that is neither a word nor a number.")
    return value


READERS: dict[str, Callable[[Path], list[ListedGraph]]] = {
    ".graphml": read_graphml,
    ".gexf": read_gexf,
    ".json": _read_json,
}
