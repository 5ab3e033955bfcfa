"""Operators that take parts of a tensor, or add a border to it."""

from __future__ import annotations

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode
from stridewise.frontends.onnx.writer import Exporter, Writer
from stridewise.graph import Attr, Node

__all__ = ["EXPORTERS", "HANDLERS"]

_SLICE_INPUTS = 10
_SPLIT_INPUT = 13
_PAD_INPUTS = 11


def _bounds(start: int, end: int, extent: int) -> tuple[int, int]:
    """Return a range with both ends counted from the front, inside of the extent."""
    first, last, _ = slice(start, end).indices(extent)
    return first, max(first, last)


def _optional(imp: Importer, node: OnnxNode, index: int, what: str) -> tuple[int, ...] | None:
    return imp.integers(node, index, what) if node.input(index) else None


def _slice(imp: Importer, node: OnnxNode) -> None:
    shape = imp.shape(node.required(0))
    if node.opset < _SLICE_INPUTS:
        starts, ends = node.integers("starts"), node.integers("ends")
        axes = node.integers("axes") if "axes" in node.attrs else None
        steps = None
    else:
        starts, ends = imp.integers(node, 1, "starts"), imp.integers(node, 2, "ends")
        axes, steps = _optional(imp, node, 3, "axes"), _optional(imp, node, 4, "steps")
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if min(steps, default=1) < 1:
        raise node.error("positive steps", list(steps), "reversing a tensor is not supported")
    full: list[tuple[int, int, int]] = [(0, extent, 1) for extent in shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index = imp.axis(node, axis, len(shape))
        full[index] = (*_bounds(start, end, shape[index]), step)
    _part(imp, node, full, 0)


def _part(imp: Importer, node: OnnxNode, full: list[tuple[int, int, int]], output: int) -> None:
    """Emit a slice of input 0, or nothing where it takes everything."""
    x = node.required(0)
    if full == [(0, extent, 1) for extent in imp.shape(x)]:
        imp.alias(node.outputs[output], x)
        return
    starts, stops, steps = (tuple(item[part] for item in full) for part in range(3))
    attrs = {"starts": starts, "stops": stops, "steps": steps}
    imp.emit(node, "slice", [x], attrs, output)


def _split(imp: Importer, node: OnnxNode) -> None:
    shape = imp.shape(node.required(0))
    axis = imp.axis(node, node.integer("axis", 0), len(shape))
    sizes = _split_sizes(imp, node, shape[axis])
    if sum(sizes) != shape[axis] or len(sizes) != len(node.outputs) or min(sizes) < 1:
        found = f"sizes {list(sizes)}"
        raise node.error(f"{len(node.outputs)} parts of an extent of {shape[axis]}", found)
    start = 0
    for output, size in enumerate(sizes):
        full = [(0, extent, 1) for extent in shape]
        full[axis] = (start, start + size, 1)
        _part(imp, node, full, output)
        start += size


def _split_sizes(imp: Importer, node: OnnxNode, extent: int) -> tuple[int, ...]:
    if node.opset < _SPLIT_INPUT:
        given = node.integers("split") if "split" in node.attrs else None
    else:
        given = _optional(imp, node, 1, "split")
    if given is not None:
        return given
    # All parts are equal but the last one, which may be smaller (source: ONNX, Split-18).
    count = node.integer("num_outputs", len(node.outputs))
    size = -(-extent // max(count, 1))
    return (*(size,) * (count - 1), extent - size * (count - 1))


def _pad(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    shape = imp.shape(x)
    pads, value = _pads(imp, node, len(shape))
    mode = node.text("mode", "constant")
    if mode != "constant" and any(pads):
        raise node.error("mode 'constant'", repr(mode), "other borders are not supported")
    begins, ends = pads[: len(shape)], pads[len(shape) :]
    keep = [
        (max(-begin, 0), extent - max(-end, 0), 1)
        for begin, extent, end in zip(begins, shape, ends, strict=True)
    ]
    added = tuple(max(pad, 0) for pad in pads)
    if not any(added):
        _part(imp, node, keep, 0)
        return
    if min(pads) < 0:
        starts, stops, steps = (tuple(item[part] for item in keep) for part in range(3))
        crop: dict[str, Attr] = {"starts": starts, "stops": stops, "steps": steps}
        x = imp.step(node, "crop", "slice", [x], crop)
    imp.emit(node, "pad", [x], {"pads": added, "value": value, "mode": "constant"})


def _pads(imp: Importer, node: OnnxNode, rank: int) -> tuple[tuple[int, ...], float]:
    """Return the pads of every axis, begins then ends, and the value of the border."""
    if node.opset < _PAD_INPUTS:
        pads, value, axes = node.integers("pads"), node.number("value", 0.0), None
    else:
        pads, axes = imp.integers(node, 1, "pads"), _optional(imp, node, 3, "axes")
        data = imp.require_const(node, 2, "the value") if node.input(2) else None
        value = 0.0 if data is None or not data.size else float(data.reshape(-1)[0])
    axes = tuple(range(rank)) if axes is None else axes
    if len(pads) != 2 * len(axes):
        raise node.error(f"{2 * len(axes)} pads", list(pads))
    full = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        index = imp.axis(node, axis, rank)
        full[index], full[rank + index] = pads[position], pads[len(axes) + position]
    return tuple(full), value


def _write_slice(writer: Writer, node: Node) -> None:
    """Write the axes that are cut; a slice that takes everything passes its operand on."""
    keys = ("starts", "stops", "steps")
    parts = zip(writer.shape(node.inputs[0]), *map(node.ints_attr, keys), strict=True)
    cut = [
        (start, stop, axis, step)
        for axis, (extent, start, stop, step) in enumerate(parts)
        if (start, stop, step) != (0, extent, 1)
    ]
    if not cut:
        writer.emit(node, "Identity", node.inputs)
        return
    columns = zip(("starts", "ends", "axes", "steps"), zip(*cut, strict=True), strict=True)
    bounds = [writer.integers(node, role, values) for role, values in columns]
    writer.emit(node, "Slice", [*node.inputs, *bounds])


def _write_pad(writer: Writer, node: Node) -> None:
    value = node.float_attr("value", 0.0)
    inputs = [*node.inputs, writer.integers(node, "pads", node.ints_attr("pads"))]
    if value:
        inputs.append(writer.scalar(node, "value", value))
    writer.emit(node, "Pad", inputs)


HANDLERS: dict[str, Handler] = {"Pad": _pad, "Slice": _slice, "Split": _split}

EXPORTERS: dict[str, Exporter] = {"pad": _write_pad, "slice": _write_slice}
