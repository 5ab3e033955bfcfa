"""Operators that change the shape or order of elements."""

from __future__ import annotations

from itertools import accumulate
from math import prod

import numpy as np

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node
from stridewise.ops.rearrange import boxes_of

__all__ = ["EXPORTERS", "HANDLERS"]

_AXES_INPUT = 13
"""The first opset in which the axes of Squeeze and Unsqueeze are an input."""


def _view(imp: Importer, node: OnnxNode, shape: tuple[int, ...]) -> None:
    x = node.required(0)
    if shape == imp.shape(x):
        imp.alias(node.outputs[0], x)
    else:
        imp.emit(node, "reshape", [x], {"shape": shape})


def _reshape(imp: Importer, node: OnnxNode) -> None:
    shape = imp.shape(node.required(0))
    target = imp.integers(node, 1, "the new shape")
    _view(imp, node, _target(node, shape, _rebatch(imp, shape, target)))


def _rebatch(imp: Importer, shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Replace the batch of the model in a target shape by the requested batch."""
    for old, new in imp.rebatched:
        fits = target[:1] == (old,) and shape[:1] == (new,)
        if fits and min(target) > 0 and prod(target) * new == prod(shape) * old:
            return (new, *target[1:])
    return target


def _target(node: OnnxNode, shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Resolve 0, the operand's extent of that axis, and -1, the remaining number of elements."""
    copies = not node.integer("allowzero", 0)
    resolved = list(target)
    for axis, extent in enumerate(target):
        if extent == 0 and copies:
            if axis >= len(shape):
                raise node.damage(f"0 only below axis {len(shape)}", list(target))
            resolved[axis] = shape[axis]
    known = prod(extent for extent in resolved if extent != -1)
    if min(resolved, default=0) < -1 or resolved.count(-1) > 1:
        raise node.damage("one -1 at most, other extents 0 or more", list(target))
    if -1 in resolved:
        if not known:
            raise node.damage("extents that determine -1", f"{list(target)} of {list(shape)}")
        resolved[resolved.index(-1)] = prod(shape) // known
    if prod(resolved) != prod(shape):
        raise node.damage(
            f"a new shape of {prod(shape)} elements, as in {list(shape)}",
            list(target),
            "if you changed the batch of a fixed model, export it with a dynamic one",
        )
    return tuple(resolved)


def _flatten(imp: Importer, node: OnnxNode) -> None:
    shape = imp.shape(node.required(0))
    axis = node.integer("axis", 1)
    axis = len(shape) if axis == len(shape) else imp.axis(node, axis, len(shape))
    _view(imp, node, (prod(shape[:axis]), prod(shape[axis:])))


def _axes(imp: Importer, node: OnnxNode, rank: int) -> list[int] | None:
    """Return the axes counted from the front, None if they are absent."""
    if node.opset < _AXES_INPUT:
        given = node.integers("axes") if "axes" in node.attrs else None
    else:
        given = imp.integers(node, 1, "axes") if node.input(1) else None
    return None if given is None else [imp.axis(node, axis, rank) for axis in given]


def _squeeze(imp: Importer, node: OnnxNode) -> None:
    shape = imp.shape(node.required(0))
    axes = _axes(imp, node, len(shape))
    if axes is None:
        axes = [axis for axis, extent in enumerate(shape) if extent == 1]
    if any(shape[axis] != 1 for axis in axes):
        raise node.error("axes of extent 1", f"axes {axes} of shape {list(shape)}")
    _view(imp, node, tuple(extent for axis, extent in enumerate(shape) if axis not in axes))


def _unsqueeze(imp: Importer, node: OnnxNode) -> None:
    shape = list(imp.shape(node.required(0)))
    count = len(imp.integers(node, 1, "axes") if node.input(1) else node.integers("axes"))
    axes = _axes(imp, node, len(shape) + count) or []
    if len(set(axes)) != count:
        raise node.error("distinct axes", axes)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    _view(imp, node, tuple(shape))


def _transpose(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    rank = len(imp.shape(x))
    perm = node.integers("perm", tuple(reversed(range(rank))))
    if perm == tuple(range(rank)):
        imp.alias(node.outputs[0], x)
    else:
        imp.emit(node, "transpose", [x], {"perm": perm})


def _expand(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    shape = np.broadcast_shapes(imp.shape(x), imp.integers(node, 1, "the new shape"))
    if shape == imp.shape(x):
        imp.alias(node.outputs[0], x)
    else:
        imp.emit(node, "expand", [x], {"shape": shape})


def _tile(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    repeats = imp.integers(node, 1, "the repeats")
    if set(repeats) == {1}:
        imp.alias(node.outputs[0], x)
    else:
        imp.emit(node, "tile", [x], {"repeats": repeats})


def _write_tile(writer: Writer, node: Node) -> None:
    repeats = writer.integers(node, "repeats", node.ints_attr("repeats"))
    writer.emit(node, "Tile", [*node.inputs, repeats])


def _write_reshape(writer: Writer, node: Node) -> None:
    shape = node.ints_attr("shape")
    # Without the attribute, 0 would mean the operand's extent of that axis.
    attrs = {"allowzero": 1} if 0 in shape else {}
    writer.emit(node, "Reshape", [*node.inputs, writer.integers(node, "shape", shape)], attrs)


def _write_transpose(writer: Writer, node: Node) -> None:
    writer.emit(node, "Transpose", node.inputs, {"perm": node.ints_attr("perm")})


def _write_channel_shuffle(writer: Writer, node: Node) -> None:
    """Write a transpose of [groups, C / groups] between reshapes, as exporters do."""
    shape, groups = writer.shape(node.inputs[0]), node.int_attr("groups")
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    perm = (0, 2, 1, *range(3, len(split)))
    rows = writer.integers(node, "split.shape", split)
    parts = writer.step(node, "split", "Reshape", [*node.inputs, rows])
    parts = writer.step(node, "shuffled", "Transpose", [parts], {"perm": perm})
    writer.emit(node, "Reshape", [parts, writer.integers(node, "shape", shape)])


def _write_rearrange(writer: Writer, node: Node) -> None:
    """Write one gather from the elements of all operands."""
    sizes = [prod(writer.shape(name)) for name in node.inputs]
    begins = [0, *accumulate(sizes)]
    index = np.empty(node.ints_attr("shape"), np.int64)
    for box in boxes_of(node):
        places = zip(box.starts, box.extents, strict=True)
        part = index[tuple(slice(start, start + extent) for start, extent in places)]
        part[...] = begins[box.source] + box.offset
        for axis, (extent, stride) in enumerate(zip(box.extents, box.strides, strict=True)):
            steps = stride * np.arange(extent)
            part += steps.reshape([-1 if at == axis else 1 for at in range(part.ndim)])
    row = writer.integers(node, "row", (-1,))
    rows = [
        writer.step(node, f"row{number}", "Reshape", [name, row])
        for number, name in enumerate(node.inputs)
    ]
    whole = rows[0] if len(rows) == 1 else writer.step(node, "rows", "Concat", rows, {"axis": 0})
    writer.emit(node, "Gather", [whole, writer.constant(node, "index", index)], {"axis": 0})


def _write_expand(writer: Writer, node: Node) -> None:
    shape = writer.integers(node, "shape", node.ints_attr("shape"))
    writer.emit(node, "Expand", [*node.inputs, shape])


HANDLERS: dict[str, Handler] = {
    "Expand": _expand,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

EXPORTERS: dict[str, Exporter] = {
    "channel_shuffle": _write_channel_shuffle,
    "expand": _write_expand,
    "rearrange": _write_rearrange,
    "reshape": _write_reshape,
    "tile": _write_tile,
    "transpose": _write_transpose,
}
