"""Operators that rearrange images, or sample them at computed coordinates."""

from __future__ import annotations

from functools import partial

from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, OnnxValue, Writer
from stridewise.graph import Attr, Node
from stridewise.ops.depth_space import DEPTH_MODES
from stridewise.ops.grid_sample import BORDERS

__all__ = ["EXPORTERS", "HANDLERS"]

_HALF_PIXEL = 16
"""The first opset in which RoiAlign maps pixel centers by default."""
_GRID_NAMES = 20
"""The first opset in which GridSample takes images of any rank, with other names of modes."""
_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def _rearranged(imp: Importer, node: OnnxNode, op: str) -> None:
    mode = node.text("mode", "DCR")
    if mode not in DEPTH_MODES:
        raise node.error(f"mode {' or '.join(DEPTH_MODES)}", repr(mode))
    attrs: dict[str, Attr] = {"block": node.integer("blocksize"), "mode": mode}
    imp.emit(node, op, [node.required(0)], attrs)


def _grid_sample(imp: Importer, node: OnnxNode) -> None:
    mode, border = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    if border not in BORDERS:
        raise node.error(f"padding_mode {', '.join(BORDERS)}", repr(border))
    attrs: dict[str, Attr] = {
        "align_corners": node.integer("align_corners", 0),
        "border": border,
        "mode": _MODES.get(mode, mode),
    }
    imp.emit(node, "grid_sample", [node.required(0), node.required(1)], attrs)


def _affine_grid(imp: Importer, node: OnnxNode) -> None:
    attrs: dict[str, Attr] = {
        "align_corners": node.integer("align_corners", 0),
        "size": imp.integers(node, 1, "the size"),
    }
    imp.emit(node, "affine_grid", [node.required(0)], attrs)


def _roi_align(imp: Importer, node: OnnxNode) -> None:
    modern = node.opset >= _HALF_PIXEL
    usual = "half_pixel" if modern else "output_half_pixel"
    coordinates = node.text("coordinate_transformation_mode", usual)
    if coordinates not in ("half_pixel", "output_half_pixel"):
        raise node.error("half_pixel or output_half_pixel", coordinates)
    attrs: dict[str, Attr] = {
        "half_pixel": int(coordinates == "half_pixel"),
        "mode": node.text("mode", "avg"),
        "sampling_ratio": node.integer("sampling_ratio", 0),
        "scale": node.number("spatial_scale", 1.0),
        "size": (node.integer("output_height", 1), node.integer("output_width", 1)),
    }
    imp.emit(node, "roi_align", [node.required(index) for index in range(3)], attrs)


def _max_roi_pool(imp: Importer, node: OnnxNode) -> None:
    attrs: dict[str, Attr] = {
        "scale": node.number("spatial_scale", 1.0),
        "size": node.integers("pooled_shape"),
    }
    imp.emit(node, "max_roi_pool", [node.required(0), node.required(1)], attrs)


def _col2im(imp: Importer, node: OnnxNode) -> None:
    image = imp.integers(node, 1, "the shape of the image")
    ones = (1,) * len(image)
    attrs: dict[str, Attr] = {
        "image": image,
        "block": imp.integers(node, 2, "the shape of the window"),
        "dilations": node.integers("dilations", ones),
        "pads": node.integers("pads", (0,) * (2 * len(image))),
        "strides": node.integers("strides", ones),
    }
    imp.emit(node, "col2im", [node.required(0)], attrs)


# --- export ---------------------------------------------------------------------------------------


def _write_depth_to_space(writer: Writer, node: Node) -> None:
    attrs: dict[str, OnnxValue] = {
        "blocksize": node.int_attr("block"),
        "mode": node.str_attr("mode", "DCR"),
    }
    writer.emit(node, "DepthToSpace", node.inputs, attrs)


def _write_space_to_depth(writer: Writer, node: Node) -> None:
    """Write the operator; ONNX lacks mode CRD, which becomes a transpose between reshapes."""
    size = node.int_attr("block")
    if node.str_attr("mode", "DCR") == "DCR":
        writer.emit(node, "SpaceToDepth", node.inputs, {"blocksize": size})
        return
    n, c, h, w = writer.shape(node.inputs[0])
    split = writer.integers(node, "split.shape", (n, c, h // size, size, w // size, size))
    parts = writer.step(node, "split", "Reshape", [*node.inputs, split])
    parts = writer.step(node, "turned", "Transpose", [parts], {"perm": (0, 1, 3, 5, 2, 4)})
    shape = writer.integers(node, "shape", writer.shape(node.outputs[0]))
    writer.emit(node, "Reshape", [parts, shape])


def _write_grid_sample(writer: Writer, node: Node) -> None:
    mode = node.str_attr("mode", "linear")
    if len(writer.shape(node.inputs[0])) > 4:
        writer.needs(_GRID_NAMES)
    if writer.opset < _GRID_NAMES:
        mode = {new: old for old, new in _MODES.items()}.get(mode, mode)
    attrs: dict[str, OnnxValue] = {
        "align_corners": node.int_attr("align_corners", 0),
        "mode": mode,
        "padding_mode": node.str_attr("border", "zeros"),
    }
    writer.emit(node, "GridSample", node.inputs, attrs)


def _write_affine_grid(writer: Writer, node: Node) -> None:
    writer.needs(_GRID_NAMES)
    size = writer.integers(node, "size", node.ints_attr("size"))
    aligned = {"align_corners": node.int_attr("align_corners", 0)}
    writer.emit(node, "AffineGrid", [*node.inputs, size], aligned)


def _write_roi_align(writer: Writer, node: Node) -> None:
    height, width = node.ints_attr("size")
    half = node.int_attr("half_pixel", 1)
    attrs: dict[str, OnnxValue] = {
        "coordinate_transformation_mode": "half_pixel" if half else "output_half_pixel",
        "mode": node.str_attr("mode", "avg"),
        "output_height": height,
        "output_width": width,
        "sampling_ratio": node.int_attr("sampling_ratio", 0),
        "spatial_scale": node.float_attr("scale", 1.0),
    }
    writer.emit(node, "RoiAlign", node.inputs, attrs)


def _write_max_roi_pool(writer: Writer, node: Node) -> None:
    attrs: dict[str, OnnxValue] = {
        "pooled_shape": node.ints_attr("size"),
        "spatial_scale": node.float_attr("scale", 1.0),
    }
    writer.emit(node, "MaxRoiPool", node.inputs, attrs)


def _write_col2im(writer: Writer, node: Node) -> None:
    """Write the operator, which opset 18 introduced."""
    writer.needs(18)
    lists = [writer.integers(node, key, node.ints_attr(key)) for key in ("image", "block")]
    given = {key: node.get(key) for key in ("dilations", "pads", "strides")}
    attrs: dict[str, OnnxValue] = {
        key: node.ints_attr(key) for key, value in given.items() if value is not None
    }
    writer.emit(node, "Col2Im", [*node.inputs, *lists], attrs)


HANDLERS: dict[str, Handler] = {
    "AffineGrid": _affine_grid,
    "Col2Im": _col2im,
    "DepthToSpace": partial(_rearranged, op="depth_to_space"),
    "GridSample": _grid_sample,
    "MaxRoiPool": _max_roi_pool,
    "RoiAlign": _roi_align,
    "SpaceToDepth": partial(_rearranged, op="space_to_depth"),
}

EXPORTERS: dict[str, Exporter] = {
    "affine_grid": _write_affine_grid,
    "col2im": _write_col2im,
    "depth_to_space": _write_depth_to_space,
    "grid_sample": _write_grid_sample,
    "max_roi_pool": _write_max_roi_pool,
    "roi_align": _write_roi_align,
    "space_to_depth": _write_space_to_depth,
}
