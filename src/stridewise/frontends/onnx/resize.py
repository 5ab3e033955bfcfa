"""Resizing images: Resize of all opsets, and Upsample."""

from __future__ import annotations

from math import floor

import numpy as np

from stridewise.frontends.onnx.importer import Handler, Importer
from stridewise.frontends.onnx.proto import OnnxNode
from stridewise.frontends.onnx.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Attr, Node
from stridewise.ops.resize import COORDINATES, MODES, ROUNDINGS, interpolation

__all__ = ["EXPORTERS", "HANDLERS"]

_WITH_ROI = 11
"""The first opset whose Resize has a region, sizes and coordinates."""


def _choice(node: OnnxNode, key: str, default: str, known: tuple[str, ...]) -> str:
    found = node.text(key, default)
    if found not in known:
        raise node.error(f"{key} {', '.join(known)}", found)
    return found


def _mode(node: OnnxNode) -> str:
    # Upsample of opset 7 to 9 and Resize of opset 10 say "linear", some exporters "bilinear".
    found = node.text("mode", "nearest")
    mode = {"bilinear": "linear"}.get(found, found)
    if mode not in MODES:
        raise node.error(f"mode {', '.join(MODES)}", found)
    return mode


def _check(node: OnnxNode) -> None:
    """Refuse what is not understood."""
    for key, only in (("antialias", 0), ("exclude_outside", 0)):
        found = node.integer(key, only)
        if found != only and (key != "exclude_outside" or node.text("mode", "nearest") == "cubic"):
            raise node.error(f"{key}={only}", found, "resize in another way, or in preprocessing")
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        raise node.error("keep_aspect_ratio_policy=stretch", policy, "give all sizes")


def _per_axis(
    imp: Importer, node: OnnxNode, values: tuple[float, ...], default: tuple[float, ...]
) -> tuple[float, ...]:
    """Return one number for each axis; those that ``axes`` leaves out have the default."""
    rank = len(default)
    axes = tuple(imp.axis(node, a, rank) for a in node.integers("axes", tuple(range(rank))))
    if len(values) != len(axes):
        raise node.error(f"{len(axes)} scales or sizes", list(values))
    result = list(default)
    for axis, value in zip(axes, values, strict=True):
        result[axis] = value
    return tuple(result)


def _scales(imp: Importer, node: OnnxNode) -> tuple[float, ...]:
    """Return the given scales, () where sizes are given."""
    if "scales" in node.attrs:
        found = node.attrs["scales"]
        data = np.array(found if isinstance(found, tuple) else (), np.float64)
    else:
        at = 2 if node.op_type == "Resize" and node.opset >= _WITH_ROI else 1
        if not node.input(at):
            return ()
        data = imp.require_const(node, at, "the scales").astype(np.float64).reshape(-1)
    return tuple(float(scale) for scale in data)


def _rebatched(imp: Importer, shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Keep the batch that the caller wants, where the sizes have that of the model."""
    other = bool(shape) and (wanted[0], shape[0]) in imp.rebatched
    return (shape[0], *wanted[1:]) if other else wanted


def _resize(imp: Importer, node: OnnxNode) -> None:
    """Source: ONNX, Resize: output extent = floor(input extent * scale), or the given size."""
    x = node.required(0)
    shape = imp.shape(x)
    _check(node)
    modern = node.op_type == "Resize" and node.opset >= _WITH_ROI
    usual = "half_pixel" if modern else "asymmetric"
    attrs: dict[str, Attr] = {
        "mode": _mode(node),
        "coordinates": _choice(node, "coordinate_transformation_mode", usual, COORDINATES),
        "rounding": _choice(
            node, "nearest_mode", "round_prefer_floor" if modern else "floor", ROUNDINGS
        ),
    }
    scales = _scales(imp, node)
    if scales:
        if min(scales) <= 0:
            raise node.error("positive scales", list(scales))
        ratios = _per_axis(imp, node, scales, (1.0,) * len(shape))
        wanted = tuple(floor(size * ratio) for size, ratio in zip(shape, ratios, strict=True))
    else:
        sizes = imp.integers(node, 3, "the sizes") if modern else ()
        full = _per_axis(imp, node, sizes, tuple(map(float, shape)))
        wanted = _rebatched(imp, shape, tuple(int(size) for size in full))
        ratios = tuple(size / old for size, old in zip(wanted, shape, strict=True))
    if min(wanted, default=1) < 1:
        raise node.error("positive sizes", list(wanted))
    _emit(imp, node, shape, wanted, ratios, attrs)


def _emit(
    imp: Importer,
    node: OnnxNode,
    shape: tuple[int, ...],
    wanted: tuple[int, ...],
    ratios: tuple[float, ...],
    attrs: dict[str, Attr],
) -> None:
    """Add a ``resize``, or matrices where the extents alone don't say how coordinates map."""
    x, cubic = node.required(0), node.number("cubic_coeff_a", -0.75)
    uneven = [
        axis
        for axis, (size, count, ratio) in enumerate(zip(shape, wanted, ratios, strict=True))
        if count != size * ratio and attrs["coordinates"] != "align_corners"
    ]
    if not uneven and (attrs["mode"] != "cubic" or cubic == -0.75):
        imp.emit(node, "resize", [x], {"shape": wanted, **attrs})
        return
    axes = [a for a in range(len(shape)) if wanted[a] != shape[a] or a in uneven]
    mode, coordinates, rounding = (str(attrs[key]) for key in ("mode", "coordinates", "rounding"))
    for axis in axes:
        matrix = interpolation(
            shape[axis], wanted[axis], mode, coordinates, rounding, scale=ratios[axis], cubic=cubic
        ).astype(imp.type(x).dtype.numpy)
        operands = [x, imp.constant(f"{node.outputs[0]}/matrix", matrix)]
        if axis == axes[-1]:
            imp.emit(node, "interpolate", operands, {"axis": axis})
        else:
            x = imp.step(node, f"axis{axis}", "interpolate", operands, {"axis": axis})


def _write_resize(writer: Writer, node: Node) -> None:
    sizes = writer.integers(node, "sizes", node.ints_attr("shape"))
    attrs: dict[str, OnnxValue] = {
        "mode": node.str_attr("mode"),
        "coordinate_transformation_mode": node.str_attr("coordinates", "half_pixel"),
        "nearest_mode": node.str_attr("rounding", "round_prefer_floor"),
    }
    writer.emit(node, "Resize", [node.inputs[0], "", "", sizes], attrs)


def _write_interpolate(writer: Writer, node: Node) -> None:
    """Write the product of a matrix with every line along an axis."""
    x, matrix = node.inputs
    rank, axis = len(writer.shape(x)), node.int_attr("axis")
    others = [other for other in range(rank) if other != axis]
    ahead = (axis, *others)
    back = tuple(ahead.index(other) for other in range(rank))
    extents = writer.shape(x)
    flat = writer.integers(node, "flat", (extents[axis], -1))
    full = writer.integers(
        node, "full", (writer.shape(matrix)[0], *(extents[other] for other in others))
    )
    turned = writer.step(node, "turned", "Transpose", [x], {"perm": ahead})
    lines = writer.step(node, "lines", "Reshape", [turned, flat])
    product = writer.step(node, "product", "MatMul", [matrix, lines])
    shaped = writer.step(node, "shaped", "Reshape", [product, full])
    writer.emit(node, "Transpose", [shaped], {"perm": back})


HANDLERS: dict[str, Handler] = {"Resize": _resize, "Upsample": _resize}

EXPORTERS: dict[str, Exporter] = {"interpolate": _write_interpolate, "resize": _write_resize}
