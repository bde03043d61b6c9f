"""GraphML and GEXF, read as a stream: no entity is expanded, and every message names a line.

Both are lists of nodes and edges whose attributes are declared first, with a type and sometimes a
default. What is drawn (colours, positions), edges of more than two ends and graphs inside of nodes
have no place here: the first is passed over, the others are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

from lg2ar.data.assembly import ListedGraph
from lg2ar.errors import InputError

INTEGERS = {"int", "integer", "long", "short", "byte", "biginteger"}
NUMBERS = {"float", "double", "bigdecimal"}
DEEPEST = 100


def read_graphml(path: Path) -> list[ListedGraph]:
    """The graphs of a GraphML file."""
    return _GraphML(path).read()


def read_gexf(path: Path) -> list[ListedGraph]:
    """The graph of a GEXF file."""
    return _Gexf(path).read()


@dataclass
class _Declared:
    """An attribute as it is declared: for what, its name, its type, its default."""

    owner: str
    name: str
    kind: str
    default: Any = None


@dataclass
class _Open:
    """The node, edge or graph that is being read, with the attributes it has so far."""

    line: int
    marks: dict[str, str]
    row: dict[str, Any] = field(default_factory=dict)


class _Reader:
    """What the two formats share: a stream of tags with line numbers, and no surprises."""

    root = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.graphs: list[ListedGraph] = []
        self.declared: dict[str, _Declared] = {}
        self.has_defaults = False
        self.inside: list[_Open] = []  # the node, edge or graph that is being read, innermost last
        self.tags: list[str] = []
        self.text: list[str] = []
        self.space = ""  # tags of other namespaces are an editor's, for what it draws
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._refuse_doctype
        self.parser.EntityDeclHandler = self._refuse_doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._hear

    def read(self) -> list[ListedGraph]:
        try:
            with open(self.path, "rb") as file:
                self.parser.ParseFile(file)
        except FileNotFoundError:
            raise InputError(f"{self.path}: there is no such file.") from None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror}).") from None
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise InputError(
                f"{self.path}: line {error.lineno} is not XML as it should be ({reason})."
            ) from None
        except (LookupError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            self.refuse(f"cannot be read as text ({error})")
        if not self.graphs:
            raise InputError(f"{self.path}: holds no graph.")
        return self.graphs

    @property
    def line(self) -> int:
        return int(self.parser.CurrentLineNumber)

    def refuse(self, reason: str) -> NoReturn:
        raise InputError(f"{self.path}: line {self.line} {' '.join(reason.split())}.")

    def need(self, marks: dict[str, str], mark: str) -> str:
        if mark not in marks:
            self.refuse(f"has a <{self.tags[-1]}> without '{mark}'")
        return marks[mark]

    def value(self, text: str, kind: str) -> Any:
        """A value as its declaration says; empty text is missing, unless words are declared."""
        word = text.strip()
        kind = kind.lower()
        if kind == "boolean":
            if word.lower() not in ("true", "false", "1", "0", ""):
                self.refuse(f"holds '{word[:40]}', which is not a boolean")
            return {"true": True, "1": True, "": None}.get(word.lower(), False)
        if kind not in INTEGERS | NUMBERS:
            return text
        if not word:
            return None
        try:
            return int(word) if kind in INTEGERS else float(word)
        except ValueError:
            self.refuse(f"holds '{word[:40]}', which is not of the type '{kind}' it is declared")

    def whole_row(self, owner: str, row: dict[str, Any]) -> dict[str, Any]:
        """A row with the defaults of what it does not say."""
        if not self.has_defaults:
            return row
        defaults = {
            item.name: item.default
            for item in self.declared.values()
            if item.owner in (owner, "all") and item.default is not None
        }
        return {**defaults, **row}

    def set_default(self, key: str, text: str) -> None:
        item = self.declared[key]
        item.default = self.value(text, item.kind)
        self.has_defaults = True

    def _refuse_doctype(self, *_: Any) -> None:
        self.refuse(
            "declares a document type, which can make a small file grow without end, and is "
            "refused; remove <!DOCTYPE ...>"
        )

    def _start(self, tag: str, marks: dict[str, str]) -> None:
        space, _, tag = tag.rpartition(" ")
        if not self.tags:
            self.space = space
            if tag != self.root:
                self.refuse(f"begins with <{tag}>, not with <{self.root}>")
        if len(self.tags) == DEEPEST:
            self.refuse(f"is nested {DEEPEST} deep")
        self.tags.append(tag if space == self.space else "")
        self.text.clear()
        getattr(self, f"start_{self.tags[-1]}", _nothing)(marks)

    def _end(self, _: str) -> None:
        text = "".join(self.text)
        getattr(self, f"end_{self.tags[-1]}", _nothing)(text)
        self.tags.pop()
        self.text.clear()

    def _hear(self, text: str) -> None:
        self.text.append(text)


def _nothing(_: Any) -> None:
    """What happens at a tag that says nothing to us."""


class _GraphML(_Reader):
    root = "graphml"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.key = ""
        self.one_way = False

    def start_key(self, marks: dict[str, str]) -> None:
        self.key = self.need(marks, "id")
        # Keys without a name are those of an editor, for what it draws.
        self.declared[self.key] = _Declared(
            owner=marks.get("for", "all"),
            name=marks.get("attr.name", "" if "yfiles.type" in marks else self.key),
            kind=marks.get("attr.type", "string"),
        )

    def end_default(self, text: str) -> None:
        if self.tags[-2:] == ["key", "default"]:
            self.set_default(self.key, text)

    def start_graph(self, marks: dict[str, str]) -> None:
        if len(self.inside):
            self.refuse("has a graph inside of a node or graph, which is not read")
        self.one_way = marks.get("edgedefault", "undirected") == "directed"
        where = str(self.path) if not self.graphs else f"{self.path}, graph {len(self.graphs) + 1}"
        self.graphs.append(ListedGraph(where, marks.get("id"), self.one_way))
        self.inside.append(_Open(self.line, marks))

    def end_graph(self, _: str) -> None:
        graph = self.inside.pop()
        self.graphs[-1].attributes = self.whole_row("graph", graph.row)

    def start_node(self, marks: dict[str, str]) -> None:
        self.need(marks, "id")
        self._enter(marks)

    def end_node(self, _: str) -> None:
        node = self.inside.pop()
        row = self.whole_row("node", node.row)
        self.graphs[-1].add_node(node.marks["id"], row, f"line {node.line}")

    def start_edge(self, marks: dict[str, str]) -> None:
        self.need(marks, "source")
        self.need(marks, "target")
        self._enter(marks)

    def end_edge(self, _: str) -> None:
        edge = self.inside.pop()
        one_way = {"true": True, "false": False}.get(edge.marks.get("directed", ""), self.one_way)
        row = self.whole_row("edge", edge.row)
        ends = (edge.marks["source"], edge.marks["target"])
        self.graphs[-1].edges.append((*ends, row, one_way, edge.line))

    def start_hyperedge(self, _: dict[str, str]) -> None:
        self.refuse("has a hyperedge; edges have two ends here")

    def start_data(self, marks: dict[str, str]) -> None:
        self.key = self.need(marks, "key")
        if self.key not in self.declared and self.inside:
            self.refuse(f"has data for the key '{self.key}', which no <key> declares")

    def end_data(self, text: str) -> None:
        item = self.declared.get(self.key)
        if item is not None and item.name and self.inside and self.tags[-2] != "port":
            self.inside[-1].row[item.name] = self.value(text, item.kind)

    def _enter(self, marks: dict[str, str]) -> None:
        if len(self.inside) != 1 or self.tags[-2] != "graph":
            self.refuse(f"has a <{self.tags[-1]}> that is not directly in a graph")
        self.inside.append(_Open(self.line, marks))


class _Gexf(_Reader):
    root = "gexf"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.owner = ""  # of the attributes that are being declared
        self.key = ""
        self.kind = "undirected"

    def start_graph(self, marks: dict[str, str]) -> None:
        if self.graphs:
            self.refuse("has a second graph, which is not read; give it a file of its own")
        self.kind = marks.get("defaultedgetype", "undirected")
        name = marks.get("name") or None
        self.graphs.append(ListedGraph(str(self.path), name, self.kind == "directed"))

    def end_graph(self, _: str) -> None:
        graph = self.graphs[-1]
        # Where a label only repeats the id, it says nothing.
        if all(row.get("label") in (name, None) for name, row in graph.nodes.items()):
            for name, row in graph.nodes.items():
                graph.nodes[name] = {key: row[key] for key in row if key != "label"}

    def start_attributes(self, marks: dict[str, str]) -> None:
        self.owner = marks.get("class", "node")

    def start_attribute(self, marks: dict[str, str]) -> None:
        self.key = f"{self.owner} {self.need(marks, 'id')}"
        self.declared[self.key] = _Declared(
            owner=self.owner,
            name=marks.get("title", marks["id"]),
            kind=marks.get("type", "string"),
        )

    def end_default(self, text: str) -> None:
        if self.tags[-2:] == ["attribute", "default"]:
            self.set_default(self.key, text)

    def start_node(self, marks: dict[str, str]) -> None:
        self._enter(marks, "id")

    def end_node(self, _: str) -> None:
        node = self.inside.pop()
        label = {"label": node.marks["label"]} if "label" in node.marks else {}
        row = self.whole_row("node", {**label, **node.row})
        self.graphs[-1].add_node(node.marks["id"], row, f"line {node.line}")

    def start_edge(self, marks: dict[str, str]) -> None:
        self._enter(marks, "source", "target")

    def end_edge(self, _: str) -> None:
        edge = self.inside.pop()
        marks = edge.marks
        row = {"label": marks["label"]} if "label" in marks else {}
        if "weight" in marks:
            row["weight"] = self.value(marks["weight"], "double")
        row = self.whole_row("edge", {**row, **edge.row})
        one_way = marks.get("type", self.kind) == "directed"
        ends = (marks["source"], marks["target"])
        self.graphs[-1].edges.append((*ends, row, one_way, edge.line))

    def start_attvalue(self, marks: dict[str, str]) -> None:
        if not self.inside:
            return
        owner = "edge" if "source" in self.inside[-1].marks else "node"
        key = marks.get("for", marks.get("id", ""))  # "id" in the first versions
        item = self.declared.get(f"{owner} {key}")
        if item is None:
            self.refuse(f"has a value for '{key}', which no <attribute> of {owner}s declares")
        self.inside[-1].row[item.name] = self.value(self.need(marks, "value"), item.kind)

    def _enter(self, marks: dict[str, str], *needed: str) -> None:
        for mark in needed:
            self.need(marks, mark)
        if self.inside or not self.graphs:
            self.refuse(f"has a <{self.tags[-1]}> inside of another, which is not read")
        self.inside.append(_Open(self.line, marks))
