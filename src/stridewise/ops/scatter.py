"""Writing elements by index into a copy of a tensor; the counterpart of ``gather.py``.

Where several updates meet at one place, they are combined in their order; without a reduction the
last one stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.gather import element_index, fits_elements, index_type, nd_index
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor

__all__ = ["REDUCTION_NAMES"]

_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
REDUCTION_NAMES = ("none", *_REDUCTIONS)
"""How updates are combined with what is there, by ONNX's names."""


def _check(node: Node, data: TensorType, updates: TensorType, shape: tuple[int, ...]) -> None:
    found = node.str_attr("reduction", "none")
    needs(node, found in REDUCTION_NAMES, f"a reduction of {', '.join(REDUCTION_NAMES)}", found)
    wanted = TensorType(data.dtype, shape)
    needs(node, updates == wanted, f"updates of {wanted}", updates)


def _scattered(node: Node, data: Array, index: tuple[Any, ...], updates: Array) -> Array:
    result = np.array(data)
    reduction = _REDUCTIONS.get(node.str_attr("reduction", "none"))
    if reduction is None:
        result[index] = updates
        return result
    with np.errstate(over="ignore", invalid="ignore"):
        reduction.at(result, index, updates)
    return result


def _infer_elements(node: Node, types: Types) -> tuple[TensorType, ...]:
    data, indices = tensor(node, types, 0), index_type(node, types, 1)
    fits_elements(node, data, indices)
    _check(node, data, tensor(node, types, 2), indices.shape)
    return (data,)


def _evaluate_elements(node: Node, operands: Operands) -> tuple[Array, ...]:
    data, indices, updates = (array(operands, index) for index in range(3))
    return (_scattered(node, data, element_index(node, indices, data.shape), updates),)


def _infer_nd(node: Node, types: Types) -> tuple[TensorType, ...]:
    data, indices = tensor(node, types, 0), index_type(node, types, 1)
    depth = indices.shape[-1] if indices.shape else 0
    most = len(data.shape)
    needs(node, 1 <= depth <= most, f"points of 1 to {most} coordinates", indices)
    _check(node, data, tensor(node, types, 2), (*indices.shape[:-1], *data.shape[depth:]))
    return (data,)


def _evaluate_nd(node: Node, operands: Operands) -> tuple[Array, ...]:
    data, indices, updates = (array(operands, index) for index in range(3))
    return (_scattered(node, data, nd_index(node, indices, data.shape), updates),)


register(
    "scatter_elements",
    (3, 3),
    _infer_elements,
    _evaluate_elements,
    "same",
    attributes={"axis": "integer", "reduction": "text"},
)
register(
    "scatter_nd", (3, 3), _infer_nd, _evaluate_nd, "interrupt", attributes={"reduction": "text"}
)
