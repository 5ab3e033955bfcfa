"""Operators that read or write elements by index, and that generate indices."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np
from onnx import TensorProto

from stridewise.frontends.onnx.reading import fold
from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.reading.tensors import dtype_of_code
from stridewise.frontends.onnx.writing.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Attr, Node, TensorType
from stridewise.ops.effort import Effort, nbytes
from stridewise.ops.registry import Array
from stridewise.ops.scatter import REDUCTION_NAMES

__all__ = ["DATA_DEPENDENT", "EXPORTERS", "HANDLERS"]

_K_INPUT = 10
"""The first opset in which k of TopK is an input."""
_REDUCTION = {"add": 16, "mul": 16, "max": 18, "min": 18}
"""The first opset with each reduction of a scatter."""

DATA_DEPENDENT: dict[str, str] = {
    "Compress": "as many elements as the condition holds for",
    "NonMaxSuppression": "as many boxes as are left",
    "NonZero": "as many columns as there are elements other than zero",
    "Unique": "as many elements as there are different ones",
}
"""Operators whose results have a shape that depends on data, and the extent that does."""


# --- reading --------------------------------------------------------------------------------------


def _along(imp: Importer, node: OnnxNode, op: str) -> None:
    """Import an operator along an axis whose operands need no conversion."""
    names = [node.required(index) for index in range(len(node.inputs))]
    axis = imp.axis(node, node.integer("axis", 0), len(imp.shape(node.required(0))))
    imp.emit(node, op, names, {"axis": axis})


def _gather(imp: Importer, node: OnnxNode) -> None:
    data, indices = node.required(0), node.required(1)
    shape = imp.shape(data)
    axis = imp.axis(node, node.integer("axis", 0), len(shape))
    known = imp.const(indices)
    if known is not None and known.dtype.kind not in "iu":
        raise node.error("integers as indices", known.dtype)
    if known is None or known.ndim > 1 or imp.const(data) is not None:
        imp.emit(node, "gather", [data, indices], {"axis": axis})
        return
    _take(imp, node, data, axis, known)


def _progression(indices: Array) -> tuple[int, int, int] | None:
    """Return the range that the indices form, None if they form none."""
    listed = [int(index) for index in indices.reshape(-1)]
    if not listed:
        return None
    step = listed[1] - listed[0] if len(listed) > 1 else 1
    if step == 0:
        return None
    found = range(listed[0], listed[-1] + (1 if step > 0 else -1), step)
    return (found.start, found.stop, found.step) if list(found) == listed else None


def _take(imp: Importer, node: OnnxNode, data: str, axis: int, indices: Array) -> None:
    """Emit the elements at known indices, as a slice if possible, which may become a view."""
    shape = imp.shape(data)
    extent = shape[axis]
    if indices.size and not -extent <= indices.min() <= indices.max() < extent:
        raise node.error(f"indices from {-extent} to {extent - 1}", indices.tolist())
    found = _progression(np.where(indices < 0, indices + extent, indices))
    if found is None:
        name = imp.constant(f"{node.outputs[0]}/indices", indices)
        imp.emit(node, "gather", [data, name], {"axis": axis})
        return
    full = [(0, length, 1) for length in shape]
    full[axis] = found
    starts, stops, steps = (tuple(item[part] for item in full) for part in range(3))
    attrs: dict[str, Attr] = {"starts": starts, "stops": stops, "steps": steps}
    if indices.ndim:
        imp.emit(node, "slice", [data], attrs)
        return
    part = imp.step(node, "part", "slice", [data], attrs)
    imp.emit(node, "reshape", [part], {"shape": (*shape[:axis], *shape[axis + 1 :])})


def _gather_nd(imp: Importer, node: OnnxNode) -> None:
    attrs = {"batch_dims": node.integer("batch_dims", 0)}
    imp.emit(node, "gather_nd", [node.required(0), node.required(1)], attrs)


def _compress(imp: Importer, node: OnnxNode) -> None:
    """Import Compress with a constant condition, so that the shape of the result is known."""
    data = node.required(0)
    condition = imp.require_const(node, 1, "the condition").reshape(-1)
    shape = imp.shape(data)
    if "axis" in node.attrs:
        axis = imp.axis(node, node.integer("axis"), len(shape))
    else:
        axis, shape = 0, (prod(shape),)
        data = imp.step(node, "flat", "reshape", [data], {"shape": shape})
    _take(imp, node, data, axis, np.flatnonzero(condition[: shape[axis]]))


# --- writing --------------------------------------------------------------------------------------


def _scatter(imp: Importer, node: OnnxNode, op: str) -> None:
    names = [node.required(index) for index in range(3)]
    reduction = node.text("reduction", "none")
    if reduction not in REDUCTION_NAMES:
        raise node.error(f"reduction {', '.join(REDUCTION_NAMES)}", repr(reduction))
    attrs: dict[str, Attr] = {"reduction": reduction}
    if op == "scatter_elements":
        attrs["axis"] = imp.axis(node, node.integer("axis", 0), len(imp.shape(names[0])))
    imp.emit(node, op, names, attrs)


# --- choosing and ordering ------------------------------------------------------------------------


def _top_k(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    shape = imp.shape(x)
    axis = imp.axis(node, node.integer("axis", -1), len(shape))
    listed = (node.integer("k"),) if node.opset < _K_INPUT else imp.integers(node, 1, "k")
    if len(listed) != 1 or not 0 <= listed[0] <= shape[axis]:
        raise node.error(f"one k from 0 to {shape[axis]}", list(listed))
    attrs: dict[str, Attr] = {
        "axis": axis,
        "k": listed[0],
        "largest": node.integer("largest", 1),
    }
    imp.emit_all(node, "top_k", [x], attrs, 2)


def _trilu(imp: Importer, node: OnnxNode) -> None:
    k = imp.integers(node, 1, "the diagonal") if node.input(1) else (0,)
    attrs = {"k": k[0], "upper": node.integer("upper", 1)}
    imp.emit(node, "trilu", [node.required(0)], attrs)


def _reverse_sequence(imp: Importer, node: OnnxNode) -> None:
    attrs = {"batch_axis": node.integer("batch_axis", 1), "time_axis": node.integer("time_axis", 0)}
    imp.emit(node, "reverse_sequence", [node.required(0), node.required(1)], attrs)


# --- making ---------------------------------------------------------------------------------------


def _one_hot(imp: Importer, node: OnnxNode) -> None:
    indices = node.required(0)
    axis = imp.axis(node, node.integer("axis", -1), len(imp.shape(indices)) + 1)
    depth = imp.require_const(node, 1, "the depth")
    if depth.size != 1:
        raise node.error("one depth", depth.tolist())
    attrs = {"axis": axis, "depth": int(depth.reshape(())[()])}
    imp.emit(node, "one_hot", [indices, node.required(2)], attrs)


def _eye_like(imp: Importer, node: OnnxNode) -> None:
    type_ = imp.type(node.required(0))
    dtype = type_.dtype
    if "dtype" in node.attrs:
        dtype = dtype_of_code(node.integer("dtype"), f"{node.where}, attribute 'dtype'")
    if len(type_.shape) != 2:
        raise node.error("a matrix", type_)
    rows, columns = type_.shape
    imp.spend(node.where, Effort(nbytes([TensorType(dtype, type_.shape)]), rows * columns))
    diagonal = min(max(node.integer("k", 0), -rows), columns)
    imp.define(node.outputs[0], np.eye(rows, columns, diagonal, dtype=dtype.numpy))


def _range(imp: Importer, node: OnnxNode) -> None:
    for index, what in enumerate(("the start", "the limit", "the step")):
        imp.require_const(node, index, f"{what} of the range")
    fold.fold(imp, node)


# --- export ---------------------------------------------------------------------------------------


def _indices(writer: Writer, node: Node, index: int, least: str = "int32") -> str:
    """Return an input of indices, with a cast if ONNX does not take their element type."""
    name = node.inputs[index]
    if writer.type(name).dtype.name in {least, "int64"}:
        return name
    return writer.step(node, f"indices{index}", "Cast", [name], {"to": TensorProto.INT64})


def _write_along(writer: Writer, node: Node, op_type: str) -> None:
    inputs = [node.inputs[0], _indices(writer, node, 1)]
    writer.emit(node, op_type, inputs, {"axis": node.int_attr("axis", 0)})


def _write_gather_nd(writer: Writer, node: Node) -> None:
    inputs = [node.inputs[0], _indices(writer, node, 1, "int64")]
    writer.emit(node, "GatherND", inputs, {"batch_dims": node.int_attr("batch_dims", 0)})


def _write_scatter(writer: Writer, node: Node, op_type: str) -> None:
    reduction = node.str_attr("reduction", "none")
    writer.needs(_REDUCTION.get(reduction, 0))
    elements = op_type == "ScatterElements"
    indices = _indices(writer, node, 1, "int32" if elements else "int64")
    attrs: dict[str, OnnxValue] = {"axis": node.int_attr("axis", 0)} if elements else {}
    if reduction != "none":
        attrs["reduction"] = reduction
    writer.emit(node, op_type, [node.inputs[0], indices, node.inputs[2]], attrs)


def _write_top_k(writer: Writer, node: Node) -> None:
    attrs: dict[str, OnnxValue] = {
        "axis": node.int_attr("axis"),
        "largest": node.int_attr("largest", 1),
    }
    inputs = [node.inputs[0], writer.integers(node, "k", [node.int_attr("k")])]
    writer.emit(node, "TopK", inputs, attrs)


def _write_trilu(writer: Writer, node: Node) -> None:
    k = writer.constant(node, "k", np.array(node.int_attr("k", 0), np.int64))
    writer.emit(node, "Trilu", [node.inputs[0], k], {"upper": node.int_attr("upper", 1)})


def _write_reverse_sequence(writer: Writer, node: Node) -> None:
    attrs: dict[str, OnnxValue] = {
        "batch_axis": node.int_attr("batch_axis", 1),
        "time_axis": node.int_attr("time_axis", 0),
    }
    inputs = [node.inputs[0], _indices(writer, node, 1, "int64")]
    writer.emit(node, "ReverseSequence", inputs, attrs)


def _write_one_hot(writer: Writer, node: Node) -> None:
    indices, values = node.inputs
    depth = writer.constant(node, "depth", np.array(node.int_attr("depth"), np.int64))
    writer.emit(node, "OneHot", [indices, depth, values], {"axis": node.int_attr("axis")})


HANDLERS: dict[str, Handler] = {
    "Compress": _compress,
    "EyeLike": _eye_like,
    "Gather": _gather,
    "GatherElements": partial(_along, op="gather_elements"),
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Range": _range,
    "ReverseSequence": _reverse_sequence,
    "Scatter": partial(_scatter, op="scatter_elements"),
    "ScatterElements": partial(_scatter, op="scatter_elements"),
    "ScatterND": partial(_scatter, op="scatter_nd"),
    "TopK": _top_k,
    "Trilu": _trilu,
}

EXPORTERS: dict[str, Exporter] = {
    "gather": partial(_write_along, op_type="Gather"),
    "gather_elements": partial(_write_along, op_type="GatherElements"),
    "gather_nd": _write_gather_nd,
    "one_hot": _write_one_hot,
    "reverse_sequence": _write_reverse_sequence,
    "scatter_elements": partial(_write_scatter, op_type="ScatterElements"),
    "scatter_nd": partial(_write_scatter, op_type="ScatterND"),
    "top_k": _write_top_k,
    "trilu": _write_trilu,
}
