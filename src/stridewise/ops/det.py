"""Determinants of square matrices."""

from __future__ import annotations

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.element_types import FLOATS, computed, needs_type
from stridewise.ops.registry import Array, Operands, Types, array, needs, register


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = needs_type(node, types, 0, FLOATS)
    square = len(x.shape) > 1 and x.shape[-1] == x.shape[-2]
    needs(node, square, "square matrices along the last two axes", x)
    return (TensorType(x.dtype, x.shape[:-2]),)


def _determinants(x: Array) -> Array:
    return np.asarray(np.linalg.det(x.astype(np.float64)))


def _evaluate(_node: Node, operands: Operands) -> tuple[Array, ...]:
    return computed(_determinants, array(operands, 0))


register("det", (1, 1), _infer, _evaluate, "interrupt")
