"""Model files: reading and writing them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from numpy.typing import ArrayLike

from stridewise.compiler import import_model
from stridewise.errors import InputError, ModelError
from stridewise.frontends.registry import WRITER, ModelSource, open_model
from stridewise.frontends.source import ModelReader
from stridewise.graph import Capability, Graph, Shapes
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.options import Options
from stridewise.passes.freeze_parameters import freeze_parameters
from stridewise.planner.documents.annotate import annotated
from stridewise.planning import Plan
from stridewise.runtime.machine.machine import checked_limit

__all__ = ["ModelSource", "annotate", "capability", "load", "load_file", "save"]


def load(
    source: ModelSource,
    shapes: Shapes | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    *,
    memory_limit: int | None = None,
    fallback: bool = True,
    training: bool = False,
) -> Graph:
    """Return the graph of a model, as the user wrote it.

    Nodes that Stridewise has no operator for are in nodes ``fallback``, or in ``Graph.tail``, which
    ONNX Runtime computes.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted. Extents
            that are open, ranges or choices get their least number.
        values: values of inputs that become constants, and are inputs no longer.
        memory_limit: bytes that the model may need to run; by default three quarters of the memory.
        fallback: whether ONNX Runtime may compute what Stridewise has no operator for.
        training: whether the graph is for :class:`~stridewise.Trainer`. Batch norms in training
            mode then keep running statistics, as those of PyTorch do, and dropout may be active.
            Only for ONNX models.

    Raises:
        ModelError: the model is damaged.
        UnsupportedError: it uses something unsupported, without ``fallback`` or there as well.
        UnknownValueError: the graph depends on the value of an input, which is not given.
        DependencyError: it needs ONNX Runtime, which is not installed.
        MemoryLimitError: the model needs more memory than that; the message has the estimate.
        InputError: ``shapes`` names no input of the model, or does not fit it.
        GraphError: a given graph breaks an invariant.
        FormatError: a given graph mixes data formats.
    """
    options = Options(shapes=shapes, values=values, memory_limit=memory_limit, fallback=fallback)
    return import_model(open_model(source, fallback=fallback, training=training), options)


def load_file(
    file: ModelReader,
    shapes: Shapes,
    values: Mapping[str, ArrayLike] | None = None,
    memory_limit: int | None = None,
) -> Graph:
    """Return the graph of a model that was opened before; see :func:`load`."""
    return file.graph(shapes, values, memory_limit=checked_limit(memory_limit))


def capability(
    source: ModelSource,
    shapes: Shapes | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    *,
    memory_limit: int | None = None,
) -> Capability:
    """Return which nodes of a model run natively, and which in ONNX Runtime and why.

    ONNX Runtime need not be installed for this. If it is, it infers the result types of operators
    that neither Stridewise nor ONNX defines.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: as for :func:`load`.
        values: as for :func:`load`.
        memory_limit: bytes that a value may have; by default three quarters of the memory.

    Raises:
        ModelError: the model is damaged.
        UnknownValueError: the graph depends on the value of an input, which is not given.
        MemoryLimitError: a value needs more memory than that.
        InputError: ``shapes`` or ``values`` name no input of the model, or do not fit it.

    >>> import stridewise as sw
    >>> b = sw.GraphBuilder("small")
    >>> graph = b.build([b.op("relu", [b.input("x", (1, 2))], output="y")])
    >>> print(sw.capability(graph), end="")
    'small': 1 of 1 node native
    """
    file = open_model(source)
    return file.capability(shapes, values, memory_limit=checked_limit(memory_limit))


def save(
    graph: Graph, path: str | os.PathLike[str], *, external_above: int = 2_000_000_000
) -> None:
    """Write a graph as an ONNX model of opset 17, or 20 or 22 where an operator or type needs it.

    Values and nodes keep their names. Parameters become constants of their initial values, and
    post-ops of a simplified graph nodes of their own. Equal graphs give equal bytes. An existing
    file is replaced once the new one is whole.

    Args:
        graph: built with :class:`GraphBuilder`, loaded, or simplified.
        path: the file; its folder must exist.
        external_above: bytes of weights above which they go to a second file, ``path`` followed by
            ``.data``. Above 2 GB, which no ONNX file can hold, they always do.

    Raises:
        GraphError: the graph breaks an invariant.
        ModelError: ONNX has no counterpart for an operator, a form of it, or an element type; or
            the graph has updates.
        InputError: the file cannot be written, or an argument is of another type.
    """
    _check_arguments(Graph, graph, path)
    verify(graph, infer)
    WRITER.save(_frozen(graph), path, external_above=external_above)


def _check_arguments(expected: type, given: object, path: object) -> None:
    """Check what is written, and the path that it is written to."""
    if not isinstance(given, expected):
        what, found = expected.__name__, type(given).__name__
        raise InputError.at("what is saved", expected=f"a {what}", found=found)
    if not isinstance(path, str | os.PathLike):
        raise InputError.at("path", expected="the path of a file", found=repr(path))


def _frozen(graph: Graph) -> Graph:
    """Return a graph with parameters as constants.

    Raises:
        ModelError: runs change values of the graph.
    """
    found, _ = freeze_parameters(graph)
    changed = (*found.parameters, *found.states)
    if changed:
        raise ModelError.at(
            f"graph {graph.name!r}",
            expected="values that no run changes, as ONNX has no others",
            found=f"updates of {', '.join(changed)}",
            fix="leave out the updates",
        )
    return found


def annotate(plan: Plan, path: str | os.PathLike[str], *, weights: bool = True) -> None:
    """Write a plan as an ONNX model for viewers like Netron.

    The nodes are those of the planned graph, and every reorder is a node of its own between
    producer and reader. Metadata name the kernel, formats and cost of each node, Origin and Storage
    of each value, and machine, target and proof of the whole. Runtimes that support local functions
    can run the file, with the results of the model.

    Args:
        plan: what to show.
        path: the file; its folder must exist. Weights above 2 GB go to a file beside it.
        weights: False leaves out the weights, to keep the file small; zeros stand in for them.

    Raises:
        ModelError: ONNX has no counterpart for an operator, a form of it, or an element type.
        InputError: the file cannot be written, or an argument is of another type.
    """
    _check_arguments(Plan, plan, path)
    _frozen(plan.graph)
    found = annotated(plan)
    WRITER.annotate(_frozen(found.graph), found, path, weights=weights)
