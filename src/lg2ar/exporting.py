"""The base encoder alone as one file: an ONNX model, or a program of ``torch.export``.

Nodes, edges and graphs may be as many as there are; widths are fixed. The file takes features as
the run's recipe makes them: the recipe is kept in the file, as JSON under ``lg2ar``. A file is
written only after it was loaded again and gave the run's own embeddings.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lg2ar.config import Config, Level
from lg2ar.data.batches import as_store
from lg2ar.data.dataset import Dataset
from lg2ar.encoders import Encoder
from lg2ar.errors import InputError
from lg2ar.evaluation import embed
from lg2ar.frames import write_content
from lg2ar.graph import GraphBatch
from lg2ar.layers import pass_messages
from lg2ar.runs import Run

FORMATS = (".onnx", ".pt2")

# How far an exported encoder may be from the run's own, as a share of the largest number.
TOLERANCE = 1e-4

# Graphs of the data that are compared, at most.
COMPARED = 500


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        path: The file.
        inputs: Names of what it takes, in order.
        rows: How many embeddings were compared.
        difference: The largest difference, as a share of the largest number.
    """

    path: Path
    inputs: tuple[str, ...]
    rows: int
    difference: float


def export_encoder(
    run: Run, path: str | Path, dataset: Dataset | None = None, *, weighted: bool | None = None
) -> Exported:
    """Write a run's base encoder as a file that needs no ``lg2ar`` to be run.

    >>> import lg2ar, tempfile
    >>> run = lg2ar.pretrain("toy-graphs", {"hidden": 8, "layers": 1, "epochs": 1}, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_encoder(run, f"{folder}/encoder.pt2").difference < 1e-4
    True

    It takes ``x`` ``[N, d_x]``, ``edge_index`` ``[2, E]`` (both directions of an undirected edge),
    at graph level ``batch`` ``[N]`` (the graph of each node, ascending from 0), and where these are
    used ``edge_weight`` ``[E]`` and ``edge_attr`` ``[E, d_e]``; it gives ``embedding``, a row per
    graph or node.

    Args:
        run: Whose encoder.
        path: A file ``.onnx`` (needs the extra ``export``) or ``.pt2``.
        dataset: Graphs to compare on, besides made-up ones.
        weighted: Whether it takes edge weights; None follows the data the run was trained on, or
            ``dataset``.

    Raises:
        InputError: For another ending, where a package is missing, or where the embeddings of the
            exported encoder are not the run's own; nothing is written then.
    """
    path = Path(path)
    check_export(path)
    if weighted is None:
        given = dataset is not None and dataset.graph.edge_weight is not None
        weighted = given or "weight" in run.reading
    encoder = copy.deepcopy(run.model.base_encoder).cpu().eval().requires_grad_(False)
    level = run.config.level
    module = _PlainEncoder(encoder, level, run.config.embedding == "after")
    example = _made_up(run, weighted, sizes=(3, 4), seed=0)
    inputs = _inputs(example, level)
    try:
        with _quiet(), torch.enable_grad():  # with a gradient, messages are not made in blocks
            content, opened = _written(path, module, inputs, _about(run, list(inputs)))
        compared, worst = _compare(opened, encoder, _compared(run, dataset, weighted), run.config)
    except InputError:
        raise
    except Exception as error:  # exporters have errors of all kinds
        raise InputError(
            f"{path}: the encoder cannot be exported ({str(error).strip().partition(chr(10))[0]}); "
            f"nothing was written, try {_other(path)}."
        ) from error
    if not worst <= TOLERANCE:
        raise InputError(
            f"{path}: the exported encoder's embeddings differ from the run's own by {worst:.2g} "
            f"of the largest number; nothing was written, try {_other(path)}."
        )
    write_content(path, content)
    return Exported(path, tuple(inputs), compared, worst)


def check_export(path: Path) -> None:
    """Refuse an ending that is not written, or that needs packages which are not there."""
    if path.suffix not in FORMATS:
        raise InputError(f"{path}: an encoder is written as {' or '.join(FORMATS)}; choose one.")
    if path.suffix == ".onnx":
        try:
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
            import onnxscript  # noqa: F401
        except ImportError as error:
            raise InputError(
                f"{path}: writing ONNX needs {error.name}; install it with "
                "pip install 'lg2ar[export]', or write .pt2."
            ) from None


class _Edges:
    """Edges whose products are plain messages, which a graph of operations can hold."""

    def __init__(self, edge_index: Tensor) -> None:
        self.edge_index = edge_index

    def product(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        return pass_messages(x, self.edge_index, weight)


@dataclass(frozen=True, eq=False)
class _PlainBatch(GraphBatch):
    """A batch whose edges are never sorted into a sparse matrix."""

    @property
    def adjacency(self) -> _Edges:  # type: ignore[override]
        return _Edges(self.edge_index)


class _PlainEncoder(nn.Module):
    """Tensors in, embeddings out."""

    def __init__(self, encoder: Encoder, level: Level, projected: bool) -> None:
        super().__init__()
        self.encoder, self.level, self.projected = encoder, level, projected

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Embed graphs, or the nodes of one."""
        num_graphs = 1
        if batch is None:
            batch = torch.zeros_like(x[:, 0], dtype=torch.long)
        else:
            num_graphs = batch.max().item() + 1  # type: ignore[assignment]  # a symbol, not a number
            torch._check(num_graphs >= 1)  # type: ignore[no-untyped-call]
        graph = _PlainBatch(
            x=x,
            edge_index=edge_index,
            batch=batch,
            num_graphs=num_graphs,
            edge_weight=edge_weight,
            edge_attr=edge_attr,
        )
        encoding = self.encoder.embed(graph, self.projected)
        return encoding.graphs if self.level == "graph" else encoding.nodes


def _inputs(graph: GraphBatch, level: Level) -> dict[str, Tensor]:
    given = {
        "x": graph.x,
        "edge_index": graph.edge_index,
        "batch": graph.batch if level == "graph" else None,
        "edge_weight": graph.edge_weight,
        "edge_attr": graph.edge_attr,
    }
    return {name: value for name, value in given.items() if value is not None}


_Opened = Callable[[dict[str, np.ndarray]], np.ndarray]


def _written(
    path: Path, module: nn.Module, inputs: dict[str, Tensor], about: dict[str, Any]
) -> tuple[bytes, _Opened]:
    """The file's content, and what it does once it is loaded again."""
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    sizes: dict[str, Any] = {
        name: {1: edges} if name == "edge_index" else {0: edges if "edge" in name else nodes}
        for name in inputs
    }
    text = json.dumps(about)
    if path.suffix == ".pt2":
        program = torch.export.export(module, (), dict(inputs), dynamic_shapes=sizes)
        stream = io.BytesIO()
        torch.export.save(program, stream, extra_files={"lg2ar": text})
        loaded = torch.export.load(io.BytesIO(stream.getvalue())).module()

        def call(arrays: dict[str, np.ndarray]) -> np.ndarray:
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            with torch.no_grad():
                found: np.ndarray = loaded(**tensors).numpy()
            return found

        return stream.getvalue(), call

    import onnxruntime

    program = torch.export.export(module, (), dict(inputs), dynamic_shapes=sizes)
    made = torch.onnx.export(
        program.run_decompositions({torch.ops.aten.index_add.default: _index_add}),
        (),
        kwargs=dict(inputs),
        dynamo=True,
        dynamic_shapes=sizes,
        input_names=list(inputs),
        output_names=["embedding"],
        verbose=False,
    )
    assert made is not None
    model = made.model_proto
    model.metadata_props.add(key="lg2ar", value=text)
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(arrays: dict[str, np.ndarray]) -> np.ndarray:
        found: np.ndarray = session.run(["embedding"], arrays)[0]
        return found

    return content, run


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """``index_add`` as ``scatter_add``, which becomes ONNX's ScatterElements.

    The exporter would write ScatterND, whose sums onnxruntime takes with several threads at once
    and no care for rows that meet: it loses some of them.
    """
    shape = [1] * source.dim()
    shape[dim] = -1
    return x.scatter_add(dim, index.view(shape).expand_as(source), source * alpha)


def _compare(
    opened: _Opened, encoder: Encoder, graphs: Iterable[GraphBatch], config: Config
) -> tuple[int, float]:
    """How many embeddings were compared, and the largest difference."""
    compared, worst = 0, 0.0
    for graph in graphs:
        wanted = embed(encoder, graph, config.level, projected=config.embedding == "after").numpy()
        inputs = _inputs(graph, config.level)
        found = opened({name: value.numpy() for name, value in inputs.items()})
        compared += len(wanted)
        worst = max(worst, _difference(found, wanted))
    return compared, worst


def _about(run: Run, inputs: list[str]) -> dict[str, Any]:
    """What whoever opens the file may want to know."""
    return {
        "inputs": inputs,
        "level": run.config.level,
        "recipe": run.recipe.to_dict(),
        "reading": run.reading,
        "config": run.config.to_dict(),
        "data": run.data,
        "versions": run.versions,
    }


def _compared(run: Run, dataset: Dataset | None, weighted: bool) -> Iterator[GraphBatch]:
    """Graphs to compare on: made-up ones of odd shapes, and those of the data."""
    shapes: list[tuple[int, ...]] = [(7, 1, 12, 30), (1,), (2, 5)]
    for seed, sizes in enumerate(shapes, start=1):
        sizes = sizes if run.config.level == "graph" else (sum(sizes),)
        yield _made_up(run, weighted, sizes, seed)
    if dataset is None:
        return
    graph = run.recipe.apply(dataset)
    if run.config.level == "graph":
        graph = as_store(graph).select(np.arange(min(COMPARED, graph.num_graphs)))
    if weighted and graph.edge_weight is None:
        graph = graph.replace(edge_weight=graph.weights())
    yield graph if weighted else graph.replace(edge_weight=None)


def _made_up(run: Run, weighted: bool, sizes: tuple[int, ...], seed: int) -> GraphBatch:
    """Random graphs of these sizes with numbers for features; a single node has no edges."""
    rng = np.random.default_rng(seed)
    first = np.cumsum(sizes) - np.array(sizes)
    pairs = [
        start + rng.integers(0, size, (2, 2 * size))
        for start, size in zip(first, sizes, strict=True)
        if size > 1
    ]
    edges = np.concatenate([np.zeros((2, 0), dtype=np.int64), *pairs], axis=1)
    edges = np.concatenate([edges, edges[::-1]], axis=1)

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    width = run.recipe.edge_width
    return GraphBatch(
        x=normal(sum(sizes), run.recipe.width),
        edge_index=torch.from_numpy(np.ascontiguousarray(edges)),
        batch=torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)),
        num_graphs=len(sizes),
        edge_weight=normal(edges.shape[1]).abs() if weighted else None,
        edge_attr=normal(edges.shape[1], width) if width else None,
    )


def _difference(found: np.ndarray, wanted: np.ndarray) -> float:
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - wanted).max(initial=0) / max(1e-6, np.abs(wanted).max(initial=0)))


def _other(path: Path) -> str:
    return " or ".join(ending for ending in FORMATS if ending != path.suffix)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters tell much of their own inner life."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
