"""Quantization and its inverse, as ONNX defines QuantizeLinear and DequantizeLinear.

Operands are the tensor, the scale and the zero point. The latter two are scalars, or vectors with
one number for each index along the attribute ``axis``.
"""

from __future__ import annotations

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.graph import Node, TensorType
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor

_ACTIVATIONS = ("int8", "uint8")
_STORED = (*_ACTIVATIONS, "int32")
_AXIS = 1
"""The default of ONNX."""


def _check(node: Node, types: Types) -> None:
    """Check that there is one scale and zero point, or one for each index along the axis."""
    x, scale, zero = (tensor(node, types, index) for index in range(3))
    needs(node, scale.dtype.name == "float32", "a scale of dtype float32", scale)
    axis, rank = node.int_attr("axis", _AXIS), len(x.shape)
    single = scale.shape == ()
    needs(node, single or -rank <= axis < rank, f"an axis of rank {rank}", axis)
    expected = () if single else (x.shape[axis],)
    needs(node, scale.shape == zero.shape == expected, f"parameters of {expected}", scale)


def _infer_quantize(node: Node, types: Types) -> tuple[TensorType, ...]:
    _check(node, types)
    x, zero = tensor(node, types, 0), tensor(node, types, 2)
    needs(node, x.dtype.name == "float32", "an input of dtype float32", x)
    needs(node, zero.dtype.name in _ACTIVATIONS, "a zero point of int8 or uint8", zero)
    return (TensorType(zero.dtype, x.shape),)


def _infer_dequantize(node: Node, types: Types) -> tuple[TensorType, ...]:
    _check(node, types)
    x, zero = tensor(node, types, 0), tensor(node, types, 2)
    needs(node, x.dtype.name in _STORED, f"an input of {', '.join(_STORED)}", x)
    needs(node, zero.dtype == x.dtype, f"a zero point of dtype {x.dtype}", zero)
    return (TensorType(dtype_of("float32"), x.shape),)


def _along(node: Node, x: Array, parameter: Array) -> Array:
    if parameter.ndim == 0:
        return parameter
    axis = node.int_attr("axis", _AXIS) % x.ndim
    return parameter.reshape(-1, *(1,) * (x.ndim - 1 - axis))


def _quantize(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, QuantizeLinear: saturate(round(x / scale) + zero point), half to even."""
    x, scale, zero = (array(operands, index) for index in range(3))
    limits = np.iinfo(zero.dtype)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        steps = np.rint(x / _along(node, x, scale)) + _along(node, x, zero).astype(np.float32)
    whole = np.nan_to_num(np.clip(steps, limits.min, limits.max), nan=0.0)
    return (whole.astype(zero.dtype),)


def _dequantize(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, DequantizeLinear: (x - zero point) * scale."""
    x, scale, zero = (array(operands, index) for index in range(3))
    # float32 cannot represent the difference of 32-bit integers.
    wide = np.int64 if x.dtype == np.int32 else np.float32
    centered = x.astype(wide) - _along(node, x, zero).astype(wide)
    return (centered.astype(np.float32, copy=False) * _along(node, x, scale),)


register(
    "quantize_linear", (3, 3), _infer_quantize, _quantize, "data", attributes={"axis": "integer"}
)
register(
    "dequantize_linear",
    (3, 3),
    _infer_dequantize,
    _dequantize,
    "data",
    attributes={"axis": "integer"},
)
