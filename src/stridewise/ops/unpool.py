"""Max unpooling: elements go back to where a max pooling found them, zeros everywhere else."""

from __future__ import annotations

from math import prod

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.gather import checked_indices
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x, indices = tensor(node, types, 0), tensor(node, types, 1)
    inner, shape = node.ints_attr("inner"), node.ints_attr("shape")
    spatial = len(x.shape) - 2
    needs(node, spatial > 0, "an input of rank 3 or more", x)
    fits = len(inner) == len(shape) == spatial and min((*inner, *shape)) > 0
    needs(node, fits, f"inner and shape of {spatial} positive extents", f"{inner} and {shape}")
    fits = all(extent <= whole for extent, whole in zip(inner, shape, strict=True))
    needs(node, fits, f"a shape of {inner} or more", shape)
    like = indices.dtype.name == "int64" and indices.shape == x.shape
    needs(node, like, f"indices s64{list(x.shape)}", indices)
    return (TensorType(x.dtype, (*x.shape[:2], *shape)),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    """Scatter into a tensor of the inner extents, and put that at the beginning of the result.

    Raises:
        ExecutionError: an index lies outside of that tensor.
    """
    x, indices = array(operands, 0), array(operands, 1)
    inner, shape = node.ints_attr("inner"), node.ints_attr("shape")
    flat = np.zeros(prod(x.shape[:2]) * prod(inner), x.dtype)
    flat[checked_indices(node, indices.reshape(-1), flat.size)] = x.reshape(-1)
    result = np.zeros((*x.shape[:2], *shape), x.dtype)
    corner = tuple(slice(extent) for extent in inner)
    result[(slice(None), slice(None), *corner)] = flat.reshape(*x.shape[:2], *inner)
    return (result,)


register(
    "max_unpool",
    (2, 2),
    _infer,
    _evaluate,
    "interrupt",
    attributes={"inner": "integers", "shape": "integers"},
)
