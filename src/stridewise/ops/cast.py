"""Conversion of elements to another type."""

from __future__ import annotations

import numpy as np

from stridewise.dtypes import dtype_of
from stridewise.graph import Node, TensorType
from stridewise.ops.backward import rule_of_term
from stridewise.ops.registry import Array, Operands, Types, array, register, tensor


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    return (TensorType(dtype_of(node.str_attr("to")), tensor(node, types, 0).shape),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Source: ONNX, Cast: floats lose their fraction; what integers cannot hold is undefined."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (array(operands, 0).astype(dtype_of(node.str_attr("to")).numpy),)


_vjp = rule_of_term(lambda _node, x, _y, dy: dy.of("cast", to=x.type.dtype.name))

register("cast", (1, 1), _infer, _evaluate, "elementwise", vjp=_vjp, attributes={"to": "dtype"})
