"""Element types that operators take, and computing in them.

Operators are defined for the types that ONNX allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stridewise.dtypes import DTYPES
from stridewise.graph import Node, TensorType
from stridewise.ops.registry import Array, Types, needs, tensor

__all__ = [
    "ALL",
    "BOOL",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "SIGNED",
    "Family",
    "broadcast",
    "broadcast_shape",
    "computed",
    "lowest_and_highest",
    "needs_type",
    "wide",
]

Family = frozenset[str]
"""Names of element types."""

FLOATS: Family = frozenset({"float64", "float32", "float16", "bfloat16"})
_SIGNED_INTEGERS: Family = frozenset({"int64", "int32", "int16", "int8"})
_UNSIGNED: Family = frozenset({"uint64", "uint32", "uint16", "uint8"})
INTEGERS: Family = _SIGNED_INTEGERS | _UNSIGNED
NUMBERS: Family = FLOATS | INTEGERS
SIGNED: Family = FLOATS | _SIGNED_INTEGERS
BOOL: Family = frozenset({"bool"})
ALL: Family = frozenset(DTYPES)

_NAMES: dict[Family, str] = {
    FLOATS: "a float tensor",
    INTEGERS: "a tensor of integers",
    NUMBERS: "a tensor of numbers",
    SIGNED: "a tensor of signed numbers",
    BOOL: "a tensor of bool",
}
_HALVES = ("float16", "bfloat16")


def needs_type(node: Node, types: Types, index: int, family: Family) -> TensorType:
    """Return the type of an input that must be there and of one of these element types.

    Raises:
        GraphError: the input is absent, or of another element type; the message names the node.
    """
    found = tensor(node, types, index)
    if found.dtype.name not in family:
        listed = " or ".join(name for name in DTYPES if name in family)
        needs(node, False, _NAMES.get(family, f"a tensor of {listed}"), found.dtype)
    return found


def broadcast_shape(node: Node, found: tuple[TensorType, ...]) -> tuple[int, ...]:
    """Return the shape that operands have after NumPy's broadcasting.

    Raises:
        GraphError: they do not broadcast.
    """
    try:
        return np.broadcast_shapes(*(item.shape for item in found))
    except ValueError:
        needs(node, False, "shapes that broadcast", " and ".join(map(str, found)))
        raise


def broadcast(node: Node, types: Types, family: Family) -> TensorType:
    """Return the type of two operands of one element type after broadcasting.

    Raises:
        GraphError: an operand is absent, the types differ or are not of the family, or the shapes
            do not broadcast.
    """
    a, b = needs_type(node, types, 0, family), tensor(node, types, 1)
    needs(node, a.dtype == b.dtype, f"two operands of dtype {a.dtype}", b.dtype)
    return TensorType(a.dtype, broadcast_shape(node, (a, b)))


def wide(x: Array) -> Array:
    """Return an array in a type that results can be rounded from once: halves become float32."""
    return x.astype(np.float32) if x.dtype.name in _HALVES else x


def computed(
    function: Callable[..., Any], *operands: Array, dtype: np.dtype[Any] | None = None
) -> tuple[Array, ...]:
    """Return what a function gives, in the element type of the first operand or in ``dtype``.

    Overflow, division by zero and invalid operands give what IEEE 754 says, without a warning.
    """
    with np.errstate(all="ignore"):
        result = np.asarray(function(*(wide(item) for item in operands)))
        return (result.astype(dtype or operands[0].dtype, copy=False),)


def lowest_and_highest(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return what is not above, and not below, any other element of a type: infinity for floats."""
    if dtype.kind == "b":
        return False, True
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return float("-inf"), float("inf")
