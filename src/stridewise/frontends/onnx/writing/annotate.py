"""A plan as an ONNX model, for viewers like Netron: reorders as nodes, other facts as metadata.

Nodes have ONNX's operators, so that viewers color them as usual. The additional operator Reorder is
a local function that returns its operand, so the model runs in any runtime with local functions.
The planner provides the notes, as text by node and by value.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from onnx import (
    FunctionProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    StringStringEntryProto,
    ValueInfoProto,
)

from stridewise.frontends.onnx.table import EXPORTERS
from stridewise.frontends.onnx.writing.export import Structure, check_structure, make_structure
from stridewise.frontends.onnx.writing.files import LARGEST_INLINE, check_path, write_model
from stridewise.frontends.onnx.writing.initializers import hollow
from stridewise.frontends.onnx.writing.writer import OnnxValue, Writer
from stridewise.graph import Graph, Node
from stridewise.ops.registry import Array

__all__ = ["DOMAIN", "Notes", "annotate_model"]

DOMAIN = "stridewise"
"""Domain of the operator Reorder, and prefix of every metadata key."""

_IR_VERSION = 10
"""The first IR version with metadata of nodes and values."""

_REORDER = {"from": str, "to": str, "nbytes": int, "cost_ns": float}
"""The attributes of a reorder, and their types."""

_HEAVY = 1024
"""Bytes above which ``weights=False`` omits a constant. Shapes are smaller."""

_SUMMARY = "summary"
"""The note that also becomes the description, which viewers show first."""


class Notes(Protocol):
    """Texts to write beside the nodes and values of a graph; keys get the prefix of the domain."""

    @property
    def model(self) -> Mapping[str, str]:
        """About the whole model."""
        ...

    @property
    def nodes(self) -> Mapping[str, Mapping[str, str]]:
        """By node. Further nodes that a node is written as have only the entry ``part_of``."""
        ...

    @property
    def values(self) -> Mapping[str, Mapping[str, str]]:
        """By value. Values inside of a node have only the entry ``inside``."""
        ...


def annotate_model(
    graph: Graph,
    notes: Notes,
    path: str | os.PathLike[str],
    *,
    version: str,
    weights: bool = True,
    external_above: int = LARGEST_INLINE,
) -> None:
    """Write a graph with notes; see :func:`stridewise.annotate`.

    Args:
        graph: may have nodes ``reorder`` with the attributes ``from``, ``to``, ``nbytes`` and
            ``cost_ns`` beside the operators of :data:`stridewise.ops.OPS`.
        notes: what to write beside nodes and values.
        path: the file; its folder must exist.
        version: version of the producer.
        weights: whether to keep large constants, instead of zeros in their place.
        external_above: bytes of constants above which they are written to a second file.

    Raises:
        ModelError: ONNX has no counterpart for an operator, a form of it, or an element type.
        GraphError: a node lacks an attribute, or reads a value that is not there.
        InputError: the file cannot be written.
    """
    file = Path(path)
    check_path(file)
    structure = make_structure(graph, version, {**EXPORTERS, "reorder": _write_reorder})
    _declare_reorder(structure.model)
    _annotate(structure, notes)
    if not weights:
        structure = _without_weights(structure)
    check_structure(structure)
    write_model(file, structure.model, structure.constants, external_above)


def _write_reorder(writer: Writer, node: Node) -> None:
    values: dict[str, OnnxValue] = {
        "from": node.str_attr("from"),
        "to": node.str_attr("to"),
        "nbytes": node.int_attr("nbytes"),
        "cost_ns": node.float_attr("cost_ns"),
    }
    writer.emit(node, "Reorder", node.inputs, values, domain=DOMAIN)


def _declare_reorder(model: ModelProto) -> None:
    """Add the function Reorder; it changes only the storage, which ONNX does not describe."""
    model.ir_version = _IR_VERSION
    body = NodeProto(name="move", op_type="Identity", input=["x"], output=["y"])
    model.functions.append(
        FunctionProto(
            domain=DOMAIN,
            name="Reorder",
            doc_string="Stores a tensor in another format. Shape and values stay the same.",
            input=["x"],
            output=["y"],
            attribute=list(_REORDER),
            node=[body],
            opset_import=list(model.opset_import),
        )
    )
    model.opset_import.append(OperatorSetIdProto(domain=DOMAIN, version=1))


def _entries(notes: Mapping[str, str]) -> Iterable[StringStringEntryProto]:
    return (
        StringStringEntryProto(key=f"{DOMAIN}.{key}", value=value)
        for key, value in notes.items()
        if key != _SUMMARY
    )


def _note(item: NodeProto | ValueInfoProto, notes: Mapping[str, str]) -> None:
    item.metadata_props.extend(_entries(notes))
    if notes.get(_SUMMARY):
        item.doc_string = notes[_SUMMARY]


def _annotate(structure: Structure, notes: Notes) -> None:
    """Add the notes to a model."""
    model = structure.model
    model.metadata_props.extend(_entries(notes.model))
    model.doc_string = notes.model.get(_SUMMARY, "")
    inside: dict[str, str] = {}
    for node, owner in zip(model.graph.node, structure.owners, strict=True):
        part = {_SUMMARY: f"part of {owner}", "part_of": owner}
        _note(node, notes.nodes.get(owner, {}) if node.name == owner else part)
        inside |= dict.fromkeys(node.output, owner)
    graph = model.graph
    for info in (*graph.input, *graph.value_info, *graph.output):
        owner = inside.get(info.name, "")
        part = {_SUMMARY: f"inside of {owner}", "inside": owner} if owner else {}
        _note(info, notes.values.get(info.name, part))


def _without_weights(structure: Structure) -> Structure:
    """Return a model with nodes that generate zeros in place of large constants."""
    light: dict[str, Array] = {}
    zeros: list[NodeProto] = []
    for name, data in structure.constants.items():
        if data.nbytes > _HEAVY:
            zeros.append(hollow(name, data))
        else:
            light[name] = data
    model = ModelProto()
    model.CopyFrom(structure.model)
    del model.graph.node[:]
    model.graph.node.extend([*zeros, *structure.model.graph.node])
    return Structure(model, light, ("",) * len(zeros) + structure.owners)
