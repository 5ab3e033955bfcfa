"""Exporting a whole graph: the loop over its nodes, the check of the result, the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, OperatorSetIdProto
from onnx.shape_inference import InferenceError

from stridewise.errors import ModelError, describe
from stridewise.frontends.onnx.expand import expand
from stridewise.frontends.onnx.files import LARGEST_INLINE, check_path, write_model
from stridewise.frontends.onnx.importer import tensor_type
from stridewise.frontends.onnx.initializers import declare, inline
from stridewise.frontends.onnx.table import EXPORTERS
from stridewise.frontends.onnx.writer import Exporter, Writer
from stridewise.graph import Graph
from stridewise.ops.registry import Array

__all__ = ["IR_VERSION", "OPSET", "Structure", "check_structure", "make_structure", "save_model"]

OPSET = 20
"""The first opset with Gelu and with dilated average pooling (19), and the last of ONNX 1.15."""

IR_VERSION = 9
"""That of ONNX 1.15, which ONNX Runtime 1.17 and OpenVINO 2024.0 are the first to read."""

_SHAPES = 1024
"""Constants up to this size may be shapes that ONNX's inference wants to read, in bytes."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A model without its constants, which may be large.

    Attributes:
        model: everything else.
        constants: the data of its initializers.
        owners: for each node of the model, the node of the graph that it belongs to.
    """

    model: ModelProto
    constants: Mapping[str, Array]
    owners: tuple[str, ...]


def make_structure(
    graph: Graph, version: str, exporters: Mapping[str, Exporter] = EXPORTERS
) -> Structure:
    """Return the ONNX model of a graph, its constants apart.

    Args:
        graph: at any stage before planning; post-ops and data formats are written out.
        version: of the producer.
        exporters: what each operator becomes.

    Raises:
        ModelError: an operator, or one of its forms, has no counterpart in ONNX.
        GraphError: a node lacks an attribute, or reads a value that is not there.
    """
    expanded = expand(graph)
    writer = Writer(expanded.graph)
    for node in expanded.graph.nodes:
        exporter = exporters.get(node.op)
        if exporter is None:
            raise ModelError(
                describe(
                    f"node {node.name!r} ({node.op})",
                    expected="an operator that can be exported to ONNX",
                    found=repr(node.op),
                    fix="replace the node by operators that ONNX has",
                )
            )
        exporter(writer, node)
    inner = [value for name, value in expanded.graph.values.items() if _is_inner(graph, name)]
    model = ModelProto(
        ir_version=IR_VERSION,
        producer_name="stridewise",
        producer_version=version,
        opset_import=[OperatorSetIdProto(domain="", version=OPSET)],
        graph=GraphProto(
            name=graph.name or "graph",
            node=writer.nodes,
            input=[declare(name, graph.value(name).type) for name in graph.inputs],
            output=[declare(name, graph.value(name).type) for name in graph.outputs],
            value_info=[declare(value.name, value.type) for value in inner],
        ),
    )
    owners = tuple(expanded.owners.get(name, name) for name in writer.owners)
    return Structure(model, writer.constants, owners)


def _is_inner(graph: Graph, name: str) -> bool:
    return not (name in graph.inputs or name in graph.outputs or name in graph.constants)


def check_structure(structure: Structure) -> None:
    """Check a model with ONNX's own checker, types and shapes included.

    Large constants are declared, not copied: only shapes and the like matter for the check.

    Raises:
        ModelError: ONNX refuses it; nearly always an element type that it has no kernel for.
    """
    model = ModelProto()
    model.CopyFrom(structure.model)
    for name, data in structure.constants.items():
        if data.nbytes <= _SHAPES:
            model.graph.initializer.append(inline(name, data))
        else:
            model.graph.input.append(declare(name, tensor_type(data)))
    try:
        # onnx types the path that a model may also be given by as PathLike[Unknown]
        onnx.checker.check_model(model, full_check=True)  # pyright: ignore[reportUnknownMemberType]
    except (onnx.checker.ValidationError, InferenceError) as error:
        raise ModelError(
            describe(
                f"graph {model.graph.name!r}",
                expected="operators and element types that ONNX has",
                found=" ".join(str(error).split()),
                fix="cast the tensors, or replace the operator",
            )
        ) from error


def save_model(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    version: str,
    external_above: int = LARGEST_INLINE,
) -> None:
    """Write a graph as an ONNX model; see :func:`stridewise.save`.

    Raises:
        ModelError: ONNX has no counterpart for an operator, a form of it, or an element type.
        GraphError: a node lacks an attribute, or reads a value that is not there.
        InputError: the file cannot be written.
    """
    file = Path(path)
    check_path(file)
    structure = make_structure(graph, version)
    check_structure(structure)
    write_model(file, structure.model, structure.constants, external_above)
