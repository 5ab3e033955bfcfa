"""The front end of graphs, which are already what the other front ends make."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from numpy.typing import ArrayLike, NDArray

from stridewise.errors import InputError, UnsupportedError
from stridewise.frontends.source import FrontEnd
from stridewise.graph import Capability, Extent, Graph, InputSpec, Shapes, Signature
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.ops.capability import graph_capability
from stridewise.ops.demand import check_demand, memory_demand
from stridewise.ops.registry import check_data_format

__all__ = ["GraphFrontEnd", "GraphReader", "Writer"]

Array = NDArray[Any]


class Writer(FrontEnd, Protocol):
    """A front end that can also save a graph in the form that it reads."""

    def save(self, graph: Graph, path: Path) -> None:
        """Write a graph to a file.

        Raises:
            ModelError: the format has no counterpart for a node.
            InputError: the file cannot be written.
        """
        ...


class GraphReader:
    """A graph of the user, whose shapes and values are fixed.

    Attributes:
        is_graph: True.
        calls: None.
        name: the graph's.
        signature: its inputs.
        arguments: names of all inputs of a call.
        outputs: names of all outputs of a call.
        paths: none.
        opened: when it was opened, in seconds since the epoch.
    """

    is_graph = True
    calls = None

    def __init__(self, graph: Graph, *, fallback: bool = True) -> None:
        """Check a graph.

        Args:
            graph: the graph.
            fallback: whether it may have foreign parts.

        Raises:
            GraphError: it breaks an invariant.
            FormatError: it mixes data formats.
            UnsupportedError: it has a foreign part, and ``fallback`` is False.
        """
        self.opened = time.time()
        verify(graph, infer)
        check_data_format(graph)
        if not fallback:
            _check_native(graph)
        self._graph = graph
        self.name, self.arguments, self.outputs = graph.name, graph.arguments, graph.results
        self.paths: tuple[Path, ...] = ()
        inputs = (graph.values[name] for name in graph.inputs)
        self.signature = Signature(
            tuple(
                InputSpec(value.name, value.dtype, tuple(map(Extent.parse, value.shape)))
                for value in inputs
            )
        )

    def values(self, values: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Return no values.

        Raises:
            InputError: some are given.
        """
        _check_none("values", values)
        return {}

    def graph(
        self,
        shapes: Shapes | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Graph:
        """Return the graph.

        Raises:
            InputError: shapes or values are given.
            MemoryLimitError: it needs more memory than the limit.
        """
        _check_none("shapes", shapes)
        _check_none("values", values)
        if not self._graph.updates:  # plans of training steps may need less, see `Planner.fitted`
            check_demand(f"graph {self.name!r}", memory_demand(self._graph), memory_limit)
        return self._graph

    def capability(
        self,
        shapes: Shapes | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Capability:
        """Return which nodes are native; raises errors like :meth:`graph`."""
        return graph_capability(self.graph(shapes, values, memory_limit=memory_limit))


class GraphFrontEnd:
    """Takes a :class:`~stridewise.graph.Graph`.

    Attributes:
        runtime: ``"onnxruntime"``.
        accepts: ``"a graph"``.
    """

    runtime = "onnxruntime"
    accepts = "a graph"

    def __init__(self, writer: Writer) -> None:
        """Use a writer to hand graphs to another runtime."""
        self._writer = writer

    def takes(self, source: object) -> bool:
        """Return whether a source is a graph."""
        return isinstance(source, Graph)

    def open(self, source: Graph, *, fallback: bool, training: bool = False) -> GraphReader:
        """Check a graph; raises errors like :class:`GraphReader`."""
        if training:
            expected, fix = "an ONNX model", "build the graph with GraphBuilder(training=True)"
            raise InputError.at("training=True", expected=expected, found="a graph", fix=fix)
        return GraphReader(source, fallback=fallback)

    def run(self, source: Graph, inputs: Mapping[str, Any], threads: int) -> dict[str, Array]:
        """Save a graph, and run the file in the other runtime of its format."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            self._writer.save(source, path)
            return self._writer.run(path, inputs, threads)


def _check_none(what: str, given: Mapping[str, Any] | None) -> None:
    if given:
        raise InputError.at(
            what,
            expected=f"none for a graph, whose {what} are fixed",
            found=", ".join(given),
            fix=f"build the graph with those {what}",
        )


def _check_native(graph: Graph) -> None:
    for segment in graph_capability(graph).segments:
        if segment.support != "native":
            raise UnsupportedError.at(
                f"graph {graph.name!r}",
                expected="no part for another runtime",
                found=str(segment),
                fix="leave out fallback=False",
            )
