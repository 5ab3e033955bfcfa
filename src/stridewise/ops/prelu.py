"""PReLU: a rectifier whose slope for negative elements is a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term
from stridewise.ops.registry import (
    Array,
    Backward,
    Operands,
    Types,
    array,
    needs,
    register,
    tensor,
)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, slope = tensor(node, types, 0), tensor(node, types, 1)
    needs(node, slope.dtype == x.dtype, f"a slope of dtype {x.dtype}", slope.dtype)
    aligned = (1,) * (len(x.shape) - len(slope.shape)) + slope.shape
    fits = len(aligned) == len(x.shape) and all(
        extent in (1, whole) for extent, whole in zip(aligned, x.shape, strict=True)
    )
    needs(node, fits, f"a slope that broadcasts to {x}", slope)
    return (x,)


def _evaluate(_node: Node, operands: Operands) -> tuple[Array, ...]:
    x, slope = array(operands, 0), array(operands, 1)
    with np.errstate(over="ignore"):
        return (np.where(x < 0, slope * x, x).astype(x.dtype),)


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, slope = (Term(b, name) for name in node.inputs)
    dy, above = Term(b, gradients[0]), x.of("greater", 0.0)
    of_slope = above.of("where", dy.like(0.0), dy * x).sum_to(slope.shape)
    return above.of("where", dy, dy * slope).name, of_slope.name


register("prelu", (2, 2), _infer, _evaluate, "elementwise", vjp=_vjp)
