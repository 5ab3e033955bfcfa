"""Slice, Split, Pad and similar operators: parts of a tensor, and borders around it."""

from __future__ import annotations

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Attr, Node
from stridewise.ops.pad import PAD_MODES, pad_mode

__all__ = ["EXPORTERS", "HANDLERS"]

_SLICE_INPUTS = 10
_SPLIT_INPUT = 13
_PAD_INPUTS = 11
_WRAP = 19
"""The first opset whose Pad has mode ``wrap``."""

Range = tuple[int, int, int]
"""First index, the index after the last one, and step along an axis."""


def _bounds(start: int, end: int, step: int, extent: int) -> Range:
    """Return a range with indices from the front, clamped to the extent.

    Source: ONNX, Slice: a start is clamped to an element, so a slice backward from before the front
    has the first element. In Python it has none.
    """
    if step < 0 and start < -extent:
        start = -extent
    first, last, step = slice(start, end, step).indices(extent)
    if not range(first, last, step):
        return 0, 0, 1
    return first, last, step


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
    if 0 in steps:
        raise node.error("steps other than 0", list(steps))
    full: list[Range] = [(0, extent, 1) for extent in shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index = imp.axis(node, axis, len(shape))
        full[index] = _bounds(start, end, step, shape[index])
    _part(imp, node, full, 0)


def _part(imp: Importer, node: OnnxNode, full: list[Range], output: int) -> None:
    """Emit a slice of input 0, or no node if it takes everything."""
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
    if sum(sizes) != shape[axis] or len(sizes) != len(node.outputs) or min(sizes) < 0:
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
    # All parts are equal; the last one may be smaller (source: ONNX, Split-18).
    count = node.integer("num_outputs", len(node.outputs))
    size = -(-extent // max(count, 1))
    return (*(size,) * (count - 1), extent - size * (count - 1))


def _pad(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    shape = imp.shape(x)
    pads = _pads(imp, node, len(shape))
    mode = node.text("mode", "constant")
    if mode not in PAD_MODES:
        raise node.error(f"mode {', '.join(PAD_MODES)}", repr(mode))
    begins, ends = pads[: len(shape)], pads[len(shape) :]
    keep = [
        (max(-begin, 0), extent - max(-end, 0), 1)
        for begin, extent, end in zip(begins, shape, ends, strict=True)
    ]
    _bordered(imp, node, keep, tuple(max(pad, 0) for pad in pads), mode)


def _bordered(
    imp: Importer, node: OnnxNode, keep: list[Range], pads: tuple[int, ...], mode: str
) -> None:
    """Emit a slice of input 0, then a border around it."""
    x = node.required(0)
    if any(start > stop for start, stop, _ in keep):
        raise node.error(f"pads that take no more than there is of {list(imp.shape(x))}", keep)
    if not any(pads):
        _part(imp, node, keep, 0)
        return
    if keep != [(0, extent, 1) for extent in imp.shape(x)]:
        starts, stops, steps = (tuple(item[part] for item in keep) for part in range(3))
        crop: dict[str, Attr] = {"starts": starts, "stops": stops, "steps": steps}
        x = imp.step(node, "crop", "slice", [x], crop)
    attrs: dict[str, Attr] = {"pads": pads, "mode": mode}
    operands = [x]
    if mode == "constant":
        value = _border_value(imp, node)
        if isinstance(value, str):
            operands.append(value)
        else:
            attrs["value"] = value
    imp.emit(node, "pad", operands, attrs)


def _border_value(imp: Importer, node: OnnxNode) -> float | str:
    """Return the value of a border, or its name if it is not a constant."""
    if node.op_type != "Pad":
        return 0
    if node.opset < _PAD_INPUTS:
        return node.number("value", 0.0)
    name = node.input(2)
    if not name:
        return 0.0
    data = imp.const(name)
    if data is None:
        return name
    if not data.size:
        return 0.0
    item: float = data.reshape(-1)[0].item()
    return int(item) if isinstance(item, bool) else item


def _pads(imp: Importer, node: OnnxNode, rank: int) -> tuple[int, ...]:
    """Return the pads of all axes, first the begins, then the ends."""
    if node.opset < _PAD_INPUTS:
        pads, axes = node.integers("pads"), None
    else:
        pads, axes = imp.integers(node, 1, "pads"), _optional(imp, node, 3, "axes")
    axes = tuple(range(rank)) if axes is None else axes
    if len(pads) != 2 * len(axes):
        raise node.error(f"{2 * len(axes)} pads", list(pads))
    full = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        index = imp.axis(node, axis, rank)
        full[index], full[rank + index] = pads[position], pads[len(axes) + position]
    return tuple(full)


def _center_crop_pad(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, CenterCropPad; the odd element is cut off, or added, at the end."""
    shape = imp.shape(node.required(0))
    rank = len(shape)
    wanted = imp.integers(node, 1, "the shape")
    axes = [imp.axis(node, axis, rank) for axis in node.integers("axes", tuple(range(rank)))]
    if len(wanted) != len(axes) or min(wanted, default=0) < 0:
        raise node.error(f"{len(axes)} extents of 0 or more", list(wanted))
    keep = [(0, extent, 1) for extent in shape]
    pads = [0] * (2 * rank)
    for axis, extent in zip(axes, wanted, strict=True):
        less, more = max(shape[axis] - extent, 0), max(extent - shape[axis], 0)
        keep[axis] = (less // 2, shape[axis] - (less - less // 2), 1)
        pads[axis], pads[rank + axis] = more // 2, more - more // 2
    _bordered(imp, node, keep, tuple(pads), "constant")


def _write_slice(writer: Writer, node: Node) -> None:
    """Write the axes that are cut; a slice that takes everything becomes Identity."""
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
    # A negative step down to element 0 ends before it: an end below -extent, as -1 means the last.
    shape = writer.shape(node.inputs[0])
    cut = [(a, -shape[axis] - 1 if b < 0 else b, axis, step) for a, b, axis, step in cut]
    columns = zip(("starts", "ends", "axes", "steps"), zip(*cut, strict=True), strict=True)
    bounds = [writer.integers(node, role, values) for role, values in columns]
    writer.emit(node, "Slice", [*node.inputs, *bounds])


def _write_pad(writer: Writer, node: Node) -> None:
    mode = pad_mode(node)
    if mode == "wrap":
        writer.needs(_WRAP)
    inputs = [node.inputs[0], writer.integers(node, "pads", node.ints_attr("pads"))]
    value = node.get("value")
    if len(node.inputs) > 1:
        inputs.append(node.inputs[1])
    elif isinstance(value, int | float) and value and mode == "constant":
        inputs.append(writer.scalar(node, "value", value))
    writer.emit(node, "Pad", inputs, {} if mode == "constant" else {"mode": mode})


HANDLERS: dict[str, Handler] = {
    "CenterCropPad": _center_crop_pad,
    "Pad": _pad,
    "Slice": _slice,
    "Split": _split,
}

EXPORTERS: dict[str, Exporter] = {"pad": _write_pad, "slice": _write_slice}
