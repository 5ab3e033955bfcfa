"""Blocks of pixels as channels, and back: one strided copy.

``depth_to_space`` takes the channels of a pixel for a block of pixels, ``space_to_depth`` is its
inverse. Both leave blocked formats alone where each pixel of a block has whole blocks of channels.
"""

from __future__ import annotations

from stridewise.graph import Node, TensorType
from stridewise.ops.attributes import Attributes
from stridewise.ops.backward import rule_of_term
from stridewise.ops.registry import (
    Array,
    Operands,
    Types,
    VjpRule,
    array,
    needs,
    register,
    tensor,
)

__all__ = ["DEPTH_MODES"]

DEPTH_MODES = ("DCR", "CRD")
"""Whether the pixels of a block are the outer digits of the channels, or the inner ones."""


def pixel_block(node: Node, x: TensorType) -> tuple[int, str]:
    """Return the size of a block and how the channels count its pixels."""
    size, mode = node.int_attr("block"), node.str_attr("mode", "DCR")
    needs(node, len(x.shape) == 4, "an input of rank 4", x)
    needs(node, size >= 1, "a positive block", size)
    needs(node, mode in DEPTH_MODES, f"mode {' or '.join(DEPTH_MODES)}", mode)
    return size, mode


def _infer_to_space(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    size, _ = pixel_block(node, x)
    n, c, h, w = x.shape
    needs(node, c % size**2 == 0, f"a multiple of {size**2} channels", x)
    return (TensorType(x.dtype, (n, c // size**2, h * size, w * size)),)


def _infer_to_depth(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    size, _ = pixel_block(node, x)
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


def _inverse(op: str) -> VjpRule:
    return rule_of_term(lambda node, _x, _y, dy: dy.of(op, **dict(node.attrs)))


_ATTRIBUTES: Attributes = {"block": "integer", "mode": "text"}

register(
    "depth_to_space",
    (1, 1),
    _infer_to_space,
    _evaluate_to_space,
    "anchor",
    vjp=_inverse("space_to_depth"),
    attributes=_ATTRIBUTES,
)
register(
    "space_to_depth",
    (1, 1),
    _infer_to_depth,
    _evaluate_to_depth,
    "anchor",
    vjp=_inverse("depth_to_space"),
    attributes=_ATTRIBUTES,
)
