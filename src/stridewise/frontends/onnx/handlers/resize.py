"""Resizing images: Resize of all opsets, and Upsample."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil, floor

import numpy as np

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Attr, Node
from stridewise.ops.interpolation import COORDINATES, CUBIC, MODES, ROUNDINGS

__all__ = ["EXPORTERS", "HANDLERS"]

_WITH_ROI = 11
"""The first opset whose Resize has a region, sizes and coordinates."""
_ANTIALIAS = 18
_SYMMETRIC = 19
"""The first opset with each of these."""
_POLICIES: dict[str, Callable[[Iterable[float]], float]] = {"not_larger": min, "not_smaller": max}
"""The ratio that applies to all axes, by policy."""


def _choice(node: OnnxNode, key: str, default: str, known: tuple[str, ...]) -> str:
    found = node.text(key, default)
    if found not in known:
        raise node.error(f"{key} {', '.join(known)}", found)
    return found


def _mode(node: OnnxNode) -> str:
    # The mode is "linear" in ONNX, but "bilinear" in the models of some exporters.
    found = node.text("mode", "nearest")
    mode = {"bilinear": "linear"}.get(found, found)
    if mode not in MODES:
        raise node.error(f"mode {', '.join(MODES)}", found)
    return mode


def _per_axis(
    imp: Importer, node: OnnxNode, values: tuple[float, ...], default: tuple[float, ...]
) -> tuple[float, ...]:
    """Return one number per axis; axes that are not in ``axes`` get the default."""
    axes = _axes(imp, node, len(default))
    if len(values) != len(axes):
        raise node.error(f"{len(axes)} scales or sizes", list(values))
    result = list(default)
    for axis, value in zip(axes, values, strict=True):
        result[axis] = value
    return tuple(result)


def _axes(imp: Importer, node: OnnxNode, rank: int) -> tuple[int, ...]:
    return tuple(imp.axis(node, a, rank) for a in node.integers("axes", tuple(range(rank))))


def _scales(imp: Importer, node: OnnxNode) -> tuple[float, ...]:
    """Return the given scales, () if sizes are given."""
    if "scales" in node.attrs:
        found = node.attrs["scales"]
        data = np.array(found if isinstance(found, tuple) else (), np.float64)
    else:
        at = 2 if _is_modern(node) else 1
        if not node.input(at):
            return ()
        data = imp.require_const(node, at, "the scales").astype(np.float64).reshape(-1)
    return tuple(float(scale) for scale in data)


def _rebatched(imp: Importer, shape: tuple[int, ...], wanted: list[int]) -> list[int]:
    """Return sizes with the requested batch, if they have the batch of the model."""
    other = bool(shape) and (wanted[0], shape[0]) in imp.rebatched
    return [shape[0], *wanted[1:]] if other else wanted


def _is_modern(node: OnnxNode) -> bool:
    return node.op_type == "Resize" and node.opset >= _WITH_ROI


def _scaled(extent: int, scale: float) -> int:
    return floor(np.float32(extent) * np.float32(scale))


def _sizes(
    imp: Importer, node: OnnxNode, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the shape of the result, and outputs per input.

    Source: ONNX, Resize: an extent is floor(input extent * scale), or the given size. A policy
    applies the least or the greatest ratio to all axes, and rounds the extents.

    The product is rounded to float32, as in ONNX's shape inference and ONNX Runtime: float32 has
    no 0.7, and 20 times the number next to it is below 14.
    """
    scales = _scales(imp, node)
    if scales:
        if min(scales) <= 0:
            raise node.error("positive scales", list(scales))
        ratios = _per_axis(imp, node, scales, (1.0,) * len(shape))
        cut = (_scaled(n, ratio) for n, ratio in zip(shape, ratios, strict=True))
        return tuple(cut), ratios
    sizes = imp.integers(node, 3, "the sizes") if _is_modern(node) else ()
    full = _per_axis(imp, node, sizes, tuple(map(float, shape)))
    wanted = _rebatched(imp, shape, [int(size) for size in full])
    ratios = [size / old for size, old in zip(wanted, shape, strict=True)]
    policy = _choice(node, "keep_aspect_ratio_policy", "stretch", ("stretch", *_POLICIES))
    if policy in _POLICIES:
        axes = _axes(imp, node, len(shape))
        ratio = _POLICIES[policy](ratios[axis] for axis in axes)
        for axis in axes:
            wanted[axis], ratios[axis] = floor(shape[axis] * ratio + 0.5), ratio
    return tuple(wanted), tuple(ratios)


def _crop(imp: Importer, node: OnnxNode, rank: int) -> tuple[float, ...]:
    """Return the region as starts and ends of all axes."""
    axes = _axes(imp, node, rank)
    data = imp.require_const(node, 1, "the region").astype(np.float64).reshape(-1)
    if data.size != 2 * len(axes):
        raise node.error(f"a region of {2 * len(axes)} numbers", data.tolist())
    found = [*(0.0,) * rank, *(1.0,) * rank]
    for position, axis in enumerate(axes):
        found[axis] = float(data[position])
        found[rank + axis] = float(data[len(axes) + position])
    return tuple(found)


def _resize(imp: Importer, node: OnnxNode) -> None:
    x = node.required(0)
    shape = imp.shape(x)
    usual = ("half_pixel", "round_prefer_floor") if _is_modern(node) else ("asymmetric", "floor")
    attrs: dict[str, Attr] = {
        "mode": _mode(node),
        "coordinates": _choice(node, "coordinate_transformation_mode", usual[0], COORDINATES),
        "rounding": _choice(node, "nearest_mode", usual[1], ROUNDINGS),
    }
    wanted, ratios = _sizes(imp, node, shape)
    if min(wanted, default=1) < 1:
        raise node.error("positive sizes", list(wanted))
    if any(count != size * ratio for size, count, ratio in zip(shape, wanted, ratios, strict=True)):
        attrs["scales"] = ratios
    if attrs["coordinates"] == "tf_crop_and_resize":
        attrs["roi"] = _crop(imp, node, len(shape))
        attrs["extrapolation"] = node.number("extrapolation_value", 0.0)
    # Defaults are not written as attributes.
    cubic = node.number("cubic_coeff_a", CUBIC)
    if attrs["mode"] == "cubic" and cubic != CUBIC:
        attrs["cubic"] = cubic
    for key in ("antialias", "exclude_outside"):
        if node.integer(key, 0):
            attrs[key] = 1
    imp.emit(node, "resize", [x], {"shape": wanted, **attrs})


def _floats(writer: Writer, node: Node, role: str, values: Attr) -> str:
    return writer.constant(node, role, np.array(values, np.float32))


def _write_extents(writer: Writer, node: Node) -> tuple[list[str], dict[str, OnnxValue]]:
    """Return scales and sizes, one of them absent, and the attributes that they need."""
    shape, wanted, scales = (
        writer.shape(node.inputs[0]),
        node.ints_attr("shape"),
        node.get("scales"),
    )
    if not isinstance(scales, tuple):
        return ["", writer.integers(node, "sizes", wanted)], {}
    ratios = [float(scale) for scale in scales]
    # Scales are float32; some runtimes multiply them in a wider type.
    narrow = [_scaled(n, ratio) for n, ratio in zip(shape, ratios, strict=True)]
    wide = [floor(n * float(np.float32(ratio))) for n, ratio in zip(shape, ratios, strict=True)]
    if narrow == wide == list(wanted):
        return [_floats(writer, node, "scales", scales), ""], {}
    # Rounded extents need sizes with a policy, by the least ratio.
    writer.needs(_ANTIALIAS)
    axes = tuple(axis for axis, ratio in enumerate(ratios) if ratio != 1)
    sizes = [ceil(shape[axis] * ratios[axis] - 1e-9) for axis in axes]
    given = ["", writer.integers(node, "sizes", sizes)]
    return given, {"axes": axes, "keep_aspect_ratio_policy": "not_larger"}


def _write_resize(writer: Writer, node: Node) -> None:
    region = node.get("roi")
    inputs = [node.inputs[0], "" if region is None else _floats(writer, node, "roi", region)]
    extents, more = _write_extents(writer, node)
    attrs: dict[str, OnnxValue] = {
        "mode": node.str_attr("mode"),
        "coordinate_transformation_mode": node.str_attr("coordinates", "half_pixel"),
        "nearest_mode": node.str_attr("rounding", "round_prefer_floor"),
        **more,
    }
    if node.get("cubic") is not None:
        attrs["cubic_coeff_a"] = node.float_attr("cubic")
    if node.get("extrapolation") is not None:
        attrs["extrapolation_value"] = node.float_attr("extrapolation")
    for key, since in (("antialias", _ANTIALIAS), ("exclude_outside", 0)):
        if node.int_attr(key, 0):
            attrs[key] = 1
            writer.needs(since)
    if attrs["coordinate_transformation_mode"] == "half_pixel_symmetric":
        writer.needs(_SYMMETRIC)
    writer.emit(node, "Resize", [*inputs, *extents], attrs)


def _write_interpolate(writer: Writer, node: Node) -> None:
    """Write the product of a matrix with each vector along an axis."""
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
