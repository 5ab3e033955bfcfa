"""Exporting a whole graph: the loop over its nodes, the check of the result, the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, OperatorSetIdProto
from onnx.shape_inference import InferenceError

from stridewise.errors import ModelError, UnsupportedError
from stridewise.frontends.onnx.reading.importer import tensor_type
from stridewise.frontends.onnx.table import EXPORTERS
from stridewise.frontends.onnx.writing.expand import expand
from stridewise.frontends.onnx.writing.files import LARGEST_INLINE, check_path, write_model
from stridewise.frontends.onnx.writing.initializers import declare, inline
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Graph
from stridewise.ops.fallback import OP as FALLBACK
from stridewise.ops.registry import Array

__all__ = ["VERSIONS", "Structure", "check_structure", "make_structure", "save_model"]

VERSIONS = {17: 8, 20: 9, 22: 10}
"""The opsets that are written, and the IR version of each.

Runtimes may accept an opset that they do not fully support: OpenVINO 2024.0 ignores the axes of a
reduction, an input since opset 18, without an error. So 17 is written wherever possible. It lacks
Gelu (20), dilated average pooling (19), and convolution and pooling of bfloat16 (22). Opset 20 and
IR 9 are those of ONNX 1.15, which ONNX Runtime supports since 1.17.
"""

_WITH_BFLOAT16 = 22
"""The opset in which all operators have tensors of bfloat16 that have tensors of float16."""

_SHAPES = 1024
"""Bytes up to which a constant may be a shape that ONNX's inference reads."""


@dataclass(frozen=True, slots=True)
class Structure:
    """A model apart from its constants, which may be large.

    Attributes:
        model: the model without initializers.
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
        version: version of the producer.
        exporters: the exporter of each operator.

    Raises:
        ModelError: an operator, or one of its forms, has no counterpart in ONNX.
        GraphError: a node lacks an attribute, or reads a value that is not there.
    """
    if graph.tail is not None:
        raise _foreign(f"graph {graph.name!r}", graph.tail.operators)
    expanded = expand(graph)
    writer = _write(expanded.graph, min(VERSIONS), exporters)
    has_bfloat16 = any(v.dtype.name == "bfloat16" for v in expanded.graph.values.values())
    least = max(writer.least, _WITH_BFLOAT16 if has_bfloat16 else 0)
    if least > writer.opset:
        newer = [opset for opset in VERSIONS if opset >= least]
        if not newer:
            raise ModelError.at(
                f"graph {graph.name!r}",
                expected=f"operators of ONNX opset {max(VERSIONS)} or before",
                found=f"one of opset {least}",
                fix="replace the operator by older ones",
            )
        writer = _write(expanded.graph, min(newer), exporters)
    inner = [value for name, value in expanded.graph.values.items() if _is_inner(graph, name)]
    model = ModelProto(
        ir_version=VERSIONS[writer.opset],
        producer_name="stridewise",
        producer_version=version,
        opset_import=[OperatorSetIdProto(domain="", version=writer.opset)],
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


def _write(graph: Graph, opset: int, exporters: Mapping[str, Exporter]) -> Writer:
    """Write all nodes of an expanded graph."""
    writer = Writer(graph, opset)
    for node in graph.nodes:
        exporter = exporters.get(node.op)
        if node.op == FALLBACK:
            operators = node.get("operators")
            names = operators if isinstance(operators, tuple) else ()
            raise _foreign(f"node {node.name!r} ({node.op})", tuple(map(str, names)))
        if exporter is None:
            raise ModelError.at(
                f"node {node.name!r} ({node.op})",
                expected="an operator that can be exported to ONNX",
                found=repr(node.op),
                fix="replace the node by operators that ONNX has",
            )
        exporter(writer, node)
    return writer


def _foreign(where: str, operators: Sequence[str]) -> UnsupportedError:
    return UnsupportedError.at(
        where,
        expected="operators of Stridewise",
        found=f"a part that another runtime computes: {', '.join(dict.fromkeys(operators))}",
        fix="the file that the model was loaded from has these nodes",
    )


def _is_inner(graph: Graph, name: str) -> bool:
    return not (name in graph.inputs or name in graph.outputs or name in graph.constants)


def check_structure(structure: Structure) -> None:
    """Check a model with ONNX's own checker, types and shapes included.

    Large constants are declared, not copied, as the check needs only their types.

    Raises:
        ModelError: ONNX refuses it, in most cases for an element type.
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
        raise ModelError.at(
            f"graph {model.graph.name!r}",
            expected="operators and element types that ONNX has",
            found=" ".join(str(error).split()),
            fix="cast the tensors, or replace the operator",
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
