"""Blocks of pixels as channels, and back: one strided copy.

``depth_to_space`` takes the channels of a pixel for a block of pixels, ``space_to_depth`` is its
inverse. Both leave blocked formats alone where each pixel of a block has whole blocks of channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stridewise.formats import Format, loops
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.geometry import canonical_shape, copy_call
from stridewise.ops.kernels import (
    KernelContext,
    KernelOption,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.ops.registry import Array, Operands, OpSpec, Types, array, needs, register, tensor

__all__ = ["DEPTH_MODES", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH"]

DEPTH_MODES = ("DCR", "CRD")
"""Whether the pixels of a block are the outer digits of the channels, or the inner ones."""


def _block(node: Node, x: TensorType) -> tuple[int, str]:
    """Return the size of a block and how the channels count its pixels."""
    size, mode = node.int_attr("block"), node.str_attr("mode", "DCR")
    needs(node, len(x.shape) == 4, "an input of rank 4", x)
    needs(node, size >= 1, "a positive block", size)
    needs(node, mode in DEPTH_MODES, f"mode {' or '.join(DEPTH_MODES)}", mode)
    return size, mode


def _infer_to_space(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    size, _ = _block(node, x)
    n, c, h, w = x.shape
    needs(node, c % size**2 == 0, f"a multiple of {size**2} channels", x)
    return (TensorType(x.dtype, (n, c // size**2, h * size, w * size)),)


def _infer_to_depth(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    size, _ = _block(node, x)
    n, c, h, w = x.shape
    needs(node, h % size == 0 and w % size == 0, f"an image of whole blocks of {size}", x)
    return (TensorType(x.dtype, (n, c * size**2, h // size, w // size)),)


def _evaluate_to_space(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, DepthToSpace."""
    x, size = array(operands, 0), node.int_attr("block")
    n, c, h, w = x.shape
    kept = c // size**2
    if node.str_attr("mode", "DCR") == "DCR":
        parts = x.reshape(n, size, size, kept, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, kept, size, size, h, w).transpose(0, 1, 4, 2, 5, 3)
    return (parts.reshape(n, kept, h * size, w * size),)


def _evaluate_to_depth(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, SpaceToDepth, which is DCR; CRD is its counterpart."""
    x, size = array(operands, 0), node.int_attr("block")
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // size, size, w // size, size)
    order = (0, 3, 5, 1, 2, 4) if node.str_attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return (parts.transpose(order).reshape(n, c * size**2, h // size, w // size),)


class _Digit(NamedTuple):
    """One loop of the copy: its extent, and its stride on the deep and on the wide side."""

    extent: int
    deep: int
    wide: int


def _digits(
    deep: tuple[Format, tuple[int, ...]], wide: tuple[Format, tuple[int, ...]], size: int, mode: str
) -> list[_Digit] | None:
    """Return the loops over all elements, or None where a block of channels is cut.

    Args:
        deep: format and shape of the tensor whose channels hold the pixels.
        wide: format and shape of the tensor that has them in its image.
        size: of a block of pixels.
        mode: how the channels count the pixels.
    """
    n, c, h, w = range(4)
    theirs, ours = (
        {(fmt.axes.index(loop.axis), loop.step): loop.stride for loop in loops(fmt, shape)}
        for fmt, shape in (deep, wide)
    )
    lanes = deep[0].multiple(deep[0].axes[c])
    kept, (rows, columns) = wide[1][1], deep[1][2:]
    if lanes > 1 and (mode == "CRD" or kept % lanes):
        return None
    channel, inner = theirs[c, lanes], (kept // lanes if mode == "DCR" else 1)
    pixel, other = inner * channel, (1 if mode == "DCR" else size**2) * channel
    digits = [
        _Digit(deep[1][0], theirs[n, 1], ours[n, 1]),
        _Digit(kept // lanes, other, ours[c, lanes]),
        _Digit(rows, theirs[h, 1], size * ours[h, 1]),
        _Digit(size, size * pixel, ours[h, 1]),
        _Digit(columns, theirs[w, 1], size * ours[w, 1]),
        _Digit(size, pixel, ours[w, 1]),
    ]
    if lanes > 1:
        digits.append(_Digit(lanes, theirs[c, 1], ours[c, 1]))
    return digits


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    size, mode = _block(node, x.type)
    to_space = node.op == "depth_to_space"
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind not in results:
            continue
        given = fmt, canonical_shape(x, fmt)
        made = results[kind], canonical_shape(y, results[kind])
        digits = _digits(*((given, made) if to_space else (made, given)), size, mode)
        if digits is None:
            reason = f"the pixels of a block are no whole blocks of {fmt}"
            yield Refusal("onednn-cpu", node.name, reason)
            continue
        dims, deep, wide = zip(*digits, strict=True)
        source, result = (deep, wide) if to_space else (wide, deep)
        memories = MemorySpec(dims, strides=source), MemorySpec(dims, strides=result)
        call = copy_call((memories[0], 0), (memories[1], 0), input_of(0), output_of())
        yield KernelOption(f"copy, {kind}", (fmt,), (results[kind],), (call,))


DEPTH_TO_SPACE = register(
    OpSpec("depth_to_space", (1, 1), _infer_to_space, _evaluate_to_space, "anchor", _kernels)
)
SPACE_TO_DEPTH = register(
    OpSpec("space_to_depth", (1, 1), _infer_to_depth, _evaluate_to_depth, "anchor", _kernels)
)
