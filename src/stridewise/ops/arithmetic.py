"""Powers, remainders and operations on bits: two operands with broadcasting.

The four basic operations, minimum and maximum are in ``elementwise.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term
from stridewise.ops.element_types import (
    INTEGERS,
    NUMBERS,
    broadcast,
    broadcast_shape,
    computed,
    needs_type,
)
from stridewise.ops.registry import Array, Backward, Operands, Types, array, needs, register

__all__ = ["BITWISE"]

BITWISE = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


def _infer_pow(node: Node, types: Types) -> tuple[TensorType, ...]:
    base, exponent = (needs_type(node, types, index, NUMBERS) for index in (0, 1))
    return (TensorType(base.dtype, broadcast_shape(node, (base, exponent))),)


def _power(base: Array, exponent: Array) -> Array:
    """Return powers in the type of the base; integers wrap around as in C."""
    if base.dtype.kind == "f" and exponent.dtype.kind in "iu":
        return np.power(base, exponent.astype(base.dtype))
    if base.dtype.kind in "iu" and exponent.dtype.kind in "iu" and (exponent < 0).any():
        # NumPy refuses these; 1 and -1 have whole powers, 0 an infinite one.
        exact = np.power(base.astype(np.float64), exponent.astype(np.float64))
        return np.nan_to_num(exact, posinf=0)
    return np.power(base, exponent)


def _evaluate_pow(_node: Node, operands: Operands) -> tuple[Array, ...]:
    return computed(_power, array(operands, 0), array(operands, 1))


def _infer_mod(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (broadcast(node, types, NUMBERS),)


def _evaluate_mod(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, Mod: the sign of the divisor, or with ``fmod`` that of the dividend."""
    function = np.fmod if node.int_attr("fmod", 0) else np.mod
    return computed(function, array(operands, 0), array(operands, 1))


def _infer_integers(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (broadcast(node, types, INTEGERS),)


def _evaluate_bitwise(node: Node, operands: Operands) -> tuple[Array, ...]:
    return (BITWISE[node.op](array(operands, 0), array(operands, 1)),)


def _infer_not(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (needs_type(node, types, 0, INTEGERS),)


def _evaluate_not(_node: Node, operands: Operands) -> tuple[Array, ...]:
    return (np.bitwise_not(array(operands, 0)),)


def _infer_shift(node: Node, types: Types) -> tuple[TensorType, ...]:
    direction = node.str_attr("direction")
    needs(node, direction in ("left", "right"), "direction left or right", repr(direction))
    return (broadcast(node, types, INTEGERS),)


def _evaluate_shift(node: Node, operands: Operands) -> tuple[Array, ...]:
    # As ONNX has it, NumPy moves all bits out where the amount is negative, or the width or more.
    shift: Any = np.left_shift if node.str_attr("direction") == "left" else np.right_shift
    return (shift(array(operands, 0), array(operands, 1)),)


def _vjp_pow(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    base, exponent, y = (Term(b, name) for name in (*node.inputs, node.outputs[0]))
    dy = Term(b, gradients[0])
    same = exponent.type.dtype == base.type.dtype
    own = exponent if same else exponent.of("cast", to=base.type.dtype.name)
    slope = dy * own * base.of("pow", own - 1.0)
    of_base = own.of("equal", 0.0).of("where", dy.like(0.0), slope).sum_to(base.shape).name
    if own is not exponent:
        return (of_base,)
    # 0 to a power from 0 on stays 0; the logarithm of a negative base is none.
    zero = base.of("equal", 0.0).of("logical_and", exponent.of("greater_equal", 0.0))
    logarithm = zero.of("where", base.like(0.0), y * base.of("log"))
    return of_base, (dy * logarithm).sum_to(exponent.shape).name


register("pow", (2, 2), _infer_pow, _evaluate_pow, "elementwise", vjp=_vjp_pow)
register("mod", (2, 2), _infer_mod, _evaluate_mod, "elementwise", attributes={"fmod": "flag"})
for _name in BITWISE:
    register(_name, (2, 2), _infer_integers, _evaluate_bitwise, "elementwise")
register("bitwise_not", (1, 1), _infer_not, _evaluate_not, "elementwise")
register(
    "bit_shift",
    (2, 2),
    _infer_shift,
    _evaluate_shift,
    "elementwise",
    attributes={"direction": "text"},
)
