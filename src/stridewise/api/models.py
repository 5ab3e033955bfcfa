"""Model files: reading and writing them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from stridewise.errors import InputError, describe
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.ops.demand import check_demand, memory_demand
from stridewise.ops.registry import check_data_format
from stridewise.planner import Plan
from stridewise.planner.annotate import annotated
from stridewise.runtime.demand import checked_limit

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["ModelSource", "annotate", "load", "save"]

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | Graph | ModelProto"
"""Path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph."""


def load(
    source: ModelSource,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    memory_limit: int | None = None,
) -> Graph:
    """Return the graph of a model, as the user wrote it.

    Args:
        source: path of an ONNX file, its bytes, an ``onnx.ModelProto``, or a graph.
        shapes: shapes of inputs, where the model leaves them open or others are wanted.
        memory_limit: bytes that the model may need to run; by default three quarters of the memory.

    Raises:
        ModelError: the model is damaged or uses something unsupported.
        MemoryLimitError: the model needs more memory than that; the message has the estimate.
        InputError: ``shapes`` names no input of the model, or does not fit it.
        GraphError: a given graph breaks an invariant.
        FormatError: a given graph mixes data formats.
    """
    limit = checked_limit(memory_limit)
    if isinstance(source, Graph):
        if shapes:
            raise InputError(
                describe(
                    "shapes",
                    expected="none for a graph, whose shapes are fixed",
                    found=", ".join(shapes),
                    fix="build the graph with those shapes",
                )
            )
        verify(source, infer)
        check_data_format(source)
        check_demand(f"graph {source.name!r}", memory_demand(source), limit)
        return source
    from stridewise.frontends.onnx import import_model  # noqa: PLC0415 (onnx takes time to load)

    if isinstance(source, os.PathLike):
        source = Path(source)
    return import_model(source, shapes=shapes, memory_limit=limit)


def save(
    graph: Graph, path: str | os.PathLike[str], *, external_above: int = 2_000_000_000
) -> None:
    """Write a graph as an ONNX model of opset 17, or 20 where an operator needs it.

    Values and nodes keep their names. Post-ops of a simplified graph become nodes of their own,
    and equal graphs give equal bytes. An existing file is replaced once the new one is whole.

    Args:
        graph: built with :class:`GraphBuilder`, loaded, or simplified.
        path: the file; its folder must exist.
        external_above: bytes of weights above which they go to a second file, ``path`` followed by
            ``.data``. Above 2 GB, which no ONNX file can hold, they always do.

    Raises:
        GraphError: the graph breaks an invariant.
        ModelError: ONNX has no counterpart for an operator, a form of it, or an element type.
        InputError: the file cannot be written.
    """
    verify(graph, infer)
    from stridewise import __version__  # noqa: PLC0415 (the package imports this module)
    from stridewise.frontends.onnx import save_model  # noqa: PLC0415 (onnx takes time to load)

    save_model(graph, path, version=__version__, external_above=external_above)


def annotate(plan: Plan, path: str | os.PathLike[str], *, weights: bool = True) -> None:
    """Write a plan as an ONNX model for viewers like Netron.

    The nodes are those of the planned graph, and every reorder is a node of its own on the edge
    that it sits on. Metadata name the kernel, formats and cost of each node, Origin and Storage of
    each value, and machine, target and proof of the whole. Runtimes that take local functions can
    run the file, and get what the model gives.

    Args:
        plan: what to show.
        path: the file; its folder must exist. Weights above 2 GB go to a file beside it.
        weights: False leaves out the weights, to keep the file small; zeros stand in for them.

    Raises:
        ModelError: ONNX has no counterpart for an operator, a form of it, or an element type.
        InputError: the file cannot be written.
    """
    from stridewise import __version__  # noqa: PLC0415 (the package imports this module)
    from stridewise.frontends.onnx import Notes, annotate_model  # noqa: PLC0415 (as above)

    found = annotated(plan)
    notes = Notes(found.model, found.nodes, found.values)
    annotate_model(found.graph, notes, path, version=__version__, weights=weights)
