"""Transposed convolution. All attributes that determine the output size become explicit pads."""

from __future__ import annotations

import numpy as np

from stridewise.frontends.onnx.handlers.conv import product_inputs
from stridewise.frontends.onnx.handlers.window import check_rank, write_window
from stridewise.frontends.onnx.reading.importer import Handler, Importer
from stridewise.frontends.onnx.reading.proto import OnnxNode
from stridewise.frontends.onnx.writing.writer import Exporter, Writer
from stridewise.graph import Node

__all__ = ["EXPORTERS", "HANDLERS"]

_MODES = ("NOTSET", "SAME_LOWER", "SAME_UPPER", "VALID")


def _ints(node: OnnxNode, key: str, count: int, default: int, least: int) -> tuple[int, ...]:
    found = node.integers(key, (default,) * count)
    if len(found) != count or min(found) < least:
        raise node.error(f"{key}: {count} integers of {least} or more", list(found))
    return found


def _output_shape(node: OnnxNode, rank: int) -> tuple[int, ...] | None:
    """Return attribute ``output_shape``; in older models it also has batch and channels."""
    found = node.integers("output_shape", ())
    if not found:
        return None
    if len(found) not in (rank, rank + 2):
        raise node.error(f"output_shape: {rank} spatial extents", list(found))
    return found[-rank:]


def _pads(
    node: OnnxNode, sizes: tuple[int, ...], uncut: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the pads, which cut the output; negative ends extend it (source: ONNX, ConvTranspose).

    Args:
        node: the ONNX node.
        sizes: spatial extents of the input.
        uncut: spatial extents of the output without pads, with output padding.
        strides: the strides.
    """
    rank, mode = len(sizes), node.text("auto_pad", "NOTSET")
    if mode not in _MODES:
        raise node.error(f"auto_pad {', '.join(_MODES[:-1])} or {_MODES[-1]}", mode)
    wanted = _output_shape(node, rank)
    if wanted is None and mode in ("NOTSET", "VALID"):
        pads = _ints(node, "pads", 2 * rank, 0, 0)
        return pads if mode == "NOTSET" else (0,) * (2 * rank)
    if wanted is None:
        wanted = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    total = tuple(extent - want for extent, want in zip(uncut, wanted, strict=True))
    if mode != "NOTSET" and min(total) < 0:
        raise node.error(
            f"auto_pad={mode} to cut the output {list(uncut)}",
            f"a wanted shape of {list(wanted)}",
            "give pads and output_padding in place of auto_pad",
        )
    small = tuple(max(item, 0) // 2 for item in total)
    large = tuple(item - half for item, half in zip(total, small, strict=True))
    if mode == "SAME_UPPER":
        return small + large
    # Elements beyond the uncut output are added at the end.
    begins = tuple(max(item, 0) for item in large)
    return begins + tuple(item - begin for item, begin in zip(total, begins, strict=True))


def _widened(
    imp: Importer,
    node: OnnxNode,
    weights: str,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    ends: tuple[int, ...],
) -> tuple[str, tuple[int, ...]]:
    """Extend the window by zero taps where output padding is a stride or more."""
    taps = tuple(
        -(-(1 - stride - end) // dilation) if end <= -stride else 0
        for stride, dilation, end in zip(strides, dilations, ends, strict=True)
    )
    if not any(taps):
        return weights, ends
    data = imp.require_const(node, 1, "the weights, where output_padding reaches the stride,")
    wider = np.pad(data, ((0, 0), (0, 0), *((0, count) for count in taps)))
    moved = tuple(
        end + count * dilation for end, count, dilation in zip(ends, taps, dilations, strict=True)
    )
    return imp.constant(f"{node.outputs[0]}/weights", wider), moved


def _conv_transpose(imp: Importer, node: OnnxNode) -> None:
    x, w, *bias = product_inputs(imp, node)
    sizes, kernel = imp.shape(x)[2:], imp.shape(w)[2:]
    rank = len(sizes)
    declared = node.integers("kernel_shape", kernel)
    if declared != kernel or len(kernel) != rank or not rank:
        raise node.error(f"kernel_shape {list(declared)} in the weights", list(kernel))
    check_rank(node, rank)
    strides = _ints(node, "strides", rank, 1, 1)
    dilations = _ints(node, "dilations", rank, 1, 1)
    extra = _ints(node, "output_padding", rank, 0, 0)
    uncut = tuple(
        (size - 1) * stride + dilation * (extent - 1) + 1 + more
        for size, stride, dilation, extent, more in zip(
            sizes, strides, dilations, kernel, extra, strict=True
        )
    )
    pads = _pads(node, sizes, uncut, strides)
    ends = tuple(pad - more for pad, more in zip(pads[rank:], extra, strict=True))
    w, ends = _widened(imp, node, w, strides, dilations, ends)
    attrs = {
        "strides": strides,
        "dilations": dilations,
        "pads": pads[:rank] + ends,
        "groups": node.integer("group", 1),
    }
    imp.emit(node, "conv_transpose", [x, w, *bias], attrs)


def _write_conv_transpose(writer: Writer, node: Node) -> None:
    """Write negative end pads as output padding, which extends the output at its end in ONNX."""
    kernel = writer.shape(node.inputs[1])[2:]
    rank = len(kernel)
    pads = node.ints_attr("pads", (0,) * (2 * rank))
    begins, ends = pads[:rank], pads[rank:]
    attrs = {
        **write_window(node, kernel),
        "pads": (*begins, *(max(end, 0) for end in ends)),
        "output_padding": tuple(max(-end, 0) for end in ends),
        "group": node.int_attr("groups", 1),
    }
    writer.emit(node, "ConvTranspose", node.inputs, attrs)


HANDLERS: dict[str, Handler] = {"ConvTranspose": _conv_transpose}

EXPORTERS: dict[str, Exporter] = {"conv_transpose": _write_conv_transpose}
