"""Tables of one large graph into a mapped folder, the edges some at a time.

In memory are the ids of the nodes, how many edges each has, the table of nodes, and a part of the
edges. On the disk there must be room for the edges two more times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lg2ar.data import edge_sorting, prints
from lg2ar.data.dataset import Dataset
from lg2ar.data.edge_sorting import EdgeSorter, Part, write_lists
from lg2ar.data.edge_streams import EdgeStream
from lg2ar.data.mapped_layout import Manifest, open_array
from lg2ar.data.mapping import (
    FolderWriter,
    check_folder,
    finish_dataset,
    node_kind,
    write_columns,
    writing,
)
from lg2ar.data.reading import ReadOptions
from lg2ar.data.table_files import column_names
from lg2ar.data.tables import ROLES_OF, find_parts, find_role, read_tables
from lg2ar.errors import InputError
from lg2ar.graph import GraphBatch

if TYPE_CHECKING:
    import pyarrow as pa

# Called with how many rows of the table of edges are read.
OnRows = Callable[[int], None]


def map_tables(
    path: str | Path,
    source: str | Path,
    options: ReadOptions | None = None,
    *,
    replace: bool = False,
    on_rows: OnRows | None = None,
    made_of: str = "",
) -> Manifest | None:
    """Write tables of one large graph as a mapped folder, without reading all edges at once.

    The folder is what :func:`~lg2ar.data.mapping.write_mapped` would write of the same tables read
    into memory.

    Args:
        path: The folder, ``something.graph``.
        source: A folder of tables, or a table of edges.
        options: How to read them.
        replace: Whether to write it anew where there is one.
        on_rows: Called now and then with how many rows are read.
        made_of: The print of the tables, where that is known already.

    Returns:
        What the folder holds; None where tables are such that they must be read at once: of many
        graphs, or with attributes of edges besides a weight.

    Raises:
        InputError: In one sentence, with file, line and remedy.
    """
    path, options = Path(path), options or ReadOptions()
    check_folder(path, replace=replace)
    name, parts = find_parts(source, options)
    edges = EdgeStream(Path(parts["edges"]), options)
    if not edges.simple or "graphs" in parts or options.level == "graph":
        return None
    nodes = parts.get("nodes")
    if nodes is not None and not _is_one_graph(nodes, options):
        return None
    made_of = made_of or prints.of_tables(source, options)
    known = None if nodes is None else _read_nodes(nodes, options)
    with writing(path) as writer:
        return _write(writer, name, edges, known, options, on_rows, made_of)


def _is_one_graph(nodes: Any, options: ReadOptions) -> bool:
    """Whether a table of nodes is a file without a column of graphs."""
    if not isinstance(nodes, str | Path) or not Path(nodes).is_file():
        return False
    return find_role(column_names(Path(nodes)), "graph", "nodes", options) is None


def _read_nodes(nodes: str | Path, options: ReadOptions) -> Dataset:
    """All that the table of nodes says, as a graph without edges."""
    import pandas as pd

    names = column_names(Path(nodes))
    roles: dict[str, str] = {
        role: c for role, c in options.columns.items() if role in ROLES_OF["nodes"]
    }
    own = replace(
        options,
        nodes=nodes,
        weight=None,
        level="node",
        columns=roles,
        categories=tuple(c for c in options.categories if c in names),
        ignore=tuple(c for c in options.ignore if c in names),
    )
    none = pd.DataFrame({"source": pd.Series([], dtype=str), "target": pd.Series([], dtype=str)})
    return read_tables(none, own)


def _write(
    writer: FolderWriter,
    name: str,
    edges: EdgeStream,
    known: Dataset | None,
    options: ReadOptions,
    on_rows: OnRows | None,
    made_of: str,
) -> Manifest:
    places = _Places(None if known is None else known.ids)
    directed = bool(options.directed)
    kinds = {} if edges.weight is None else {"edge_weight": "<f8"}
    with EdgeSorter(
        writer.folder, "edges", kinds, both_ways=not directed, most=edge_sorting.MOST
    ) as sorter:
        rows, loops = _take_in(edges, places, sorter, on_rows)
        n = len(places)
        if not n:
            raise InputError(
                f"{edges.path}: has no rows after line 1, and there is no table of nodes; add "
                "edges, or the nodes."
            )
        parts = _distinct(edges, sorter, n, options)
        written = write_lists(writer, parts, n, kinds=dict.fromkeys(kinds, "<f4"))
    if directed or written.parallel:
        _write_turned(writer, n, written.entries, directed)
    dataset = _described(name, edges, known, places, options)
    notes = _notes(edges, rows, loops, written.entries, options)
    dataset = replace(dataset, notes=(*dataset.notes, *notes))
    tallies = {"nodes": write_columns(writer, "nodes", dataset.node_columns, None), "edges": []}
    return finish_dataset(
        writer,
        dataset,
        tallies,
        num_edges=written.entries,
        weighted=edges.weight is not None,
        made_of=made_of,
    )


def _distinct(
    edges: EdgeStream, sorter: EdgeSorter, n: int, options: ReadOptions
) -> Iterator[Part]:
    """The edges, each once."""
    for part in sorter.parts(n):
        found = part.distinct()
        if options.directed is None and found.values and found.parallel():
            raise InputError(
                f"{edges.path}: two nodes are joined several times with different weights; say "
                "whether these are edges of two directions (--directed) or of none (--undirected)."
            )
        yield found


def _take_in(
    edges: EdgeStream, places: _Places, sorter: EdgeSorter, on_rows: OnRows | None
) -> tuple[int, int]:
    """Number the ends of all edges; how many rows there are, and how many are loops."""
    rows = loops = 0
    for some in edges:
        source, target = places.number(edges, some.first, some.source, some.target)
        kept = source != target
        loops += int((~kept).sum())
        rows += len(source)
        values = {} if some.weight is None else {"edge_weight": some.weight[kept]}
        sorter.add(source[kept], target[kept], **values)
        if on_rows is not None:
            on_rows(rows)
    return rows, loops


def _described(
    name: str, edges: EdgeStream, known: Dataset | None, places: _Places, options: ReadOptions
) -> Dataset:
    """What there is besides edges."""
    settled = {"directed": bool(options.directed), "weight": edges.weight}
    if known is not None:
        labels = known.reading.get("labels")
        notes = tuple(note for note in known.notes if not note.startswith("the edges"))
        reading = options.remembered(**settled, labels=labels)
        return replace(known, name=name, notes=notes, reading=reading)
    n = len(places)
    graph = GraphBatch(
        x=torch.empty(n, 0),
        edge_index=torch.empty(2, 0, dtype=torch.long),
        batch=torch.zeros(n, dtype=torch.long),
        num_graphs=1,
    )
    reading = options.remembered(**settled)
    return Dataset(name, "node", graph, ids=places.texts(), reading=reading)


def _notes(
    edges: EdgeStream, rows: int, loops: int, entries: int, options: ReadOptions
) -> list[str]:
    """What was taken for granted and left out."""
    again = rows - loops - (entries if options.directed else entries // 2)
    told = []
    if loops:
        told.append(f"Left out are {loops} edge(s) that join a node with itself.")
    if again:
        turned = "" if options.directed else ", in either direction"
        told.append(f"Left out are {again} edge(s) that are there already{turned}.")
    if options.directed is None:
        told.append("Edges are taken to be undirected; ask for directed if they point one way.")
    if edges.weight is not None and options.weight is None:
        told.append(f"column '{edges.weight}' is taken for edge weights.")
    return [f"{edges.path}: {note}" for note in told]


def _write_turned(writer: FolderWriter, n: int, entries: int, directed: bool) -> None:
    """Lists of edges by target, and of neighbours in either direction, of those by source."""
    files = writer.flushed("start", "to")
    start, to = (open_array(writer.folder, name, file) for name, file in files.items())
    slot, most = node_kind(entries), edge_sorting.MOST
    with (
        EdgeSorter(writer.folder, "in", {"in_slot": slot}, most=most) as by_target,
        EdgeSorter(writer.folder, "walk", both_ways=True, most=most) as walk,
    ):
        for begin in range(0, entries, edge_sorting.STEP):
            places = np.arange(begin, min(begin + edge_sorting.STEP, entries))
            source = np.searchsorted(start, places, side="right") - 1
            target = to[places].astype(np.int64)
            if directed:
                by_target.add(target, source, in_slot=places)
            walk.add(source, target)
        if directed:
            names = ("in_start", "in_from")
            write_lists(writer, by_target.parts(n), n, names, {"in_slot": slot})
        neighbours = (part.distinct() for part in walk.parts(n))
        write_lists(writer, neighbours, n, ("walk_start", "walk_to"))


class _Places:
    """The number of each node by its id.

    Ids that are all whole numbers are kept as such, which takes a fraction of the memory.

    Args:
        ids: All ids; None learns them as they come.
    """

    def __init__(self, ids: Any = None) -> None:
        import pandas as pd
        import pyarrow as pa

        self._grows = ids is None
        texts = pa.array([] if ids is None else ids, pa.string())
        whole = _whole(texts)
        self._index = pd.Index(_objects(texts) if whole is None else whole)

    def __len__(self) -> int:
        return len(self._index)

    def texts(self) -> tuple[str, ...]:
        """The ids in the order of their numbers."""
        return tuple(map(str, self._index))

    def number(
        self, edges: EdgeStream, first: int, source: pa.Array, target: pa.Array
    ) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the ends of some edges."""
        import pandas as pd

        whole = [_whole(source), _whole(target)]
        if self._index.dtype == object or any(part is None for part in whole):
            if self._index.dtype != object:
                self._index = pd.Index(np.array(self.texts(), dtype=object), dtype=object)
            ends = np.stack([_objects(source), _objects(target)], axis=1)
        else:
            ends = np.stack(whole, axis=1)  # type: ignore[arg-type]
        flat = ends.reshape(-1)
        found = self._index.get_indexer(pd.Index(flat, dtype=flat.dtype))
        if self._grows and (found < 0).any():
            new = pd.unique(flat[found < 0])
            self._index = self._index.append(pd.Index(new, dtype=new.dtype))
            found = self._index.get_indexer(pd.Index(flat, dtype=flat.dtype))
        lost = np.flatnonzero(found < 0)
        if len(lost):
            raise InputError(
                f"{edges.place(first + int(lost[0]) // 2)} names node '{str(flat[lost[0]])[:40]}', "
                "which is not in the table of nodes; add it there, or remove the row."
            )
        pairs = found.reshape(-1, 2).astype(np.int64)
        return pairs[:, 0], pairs[:, 1]


def _whole(texts: pa.Array) -> np.ndarray | None:
    """Texts as whole numbers; None where one of them is not written like one."""
    import pyarrow as pa

    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    if not numbers.cast(pa.string()).equals(texts):  # 007 is another id than 7
        return None
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.int64)


def _objects(texts: pa.Array) -> np.ndarray:
    return np.array(texts.to_pylist(), dtype=object)
