"""Reading elements by index. Indices are data: what lies outside of an axis is found at the run.

Negative indices count from the end, as ONNX has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stridewise.errors import ExecutionError
from stridewise.graph import Node, TensorType
from stridewise.ops.backward import Term
from stridewise.ops.data_format import inverse
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

__all__ = ["checked_indices", "element_index", "fits_elements", "index_type", "nd_index"]


def index_type(node: Node, types: Types, index: int) -> TensorType:
    """Return the type of an input that holds indices.

    Raises:
        GraphError: it is absent, or not of integers.
    """
    found = tensor(node, types, index)
    needs(node, found.dtype.numpy.kind in "iu", f"integers as input {index}", found)
    return found


def checked_indices(node: Node, indices: Array, extent: int) -> Array:
    """Return indices counted from the front.

    Raises:
        ExecutionError: one of them lies outside of the extent; the message names the node.
    """
    indices = indices.astype(np.int64)
    if indices.size and not -extent <= indices.min() <= indices.max() < extent:
        outside = indices[(indices < -extent) | (indices >= extent)]
        raise ExecutionError.at(
            f"node {node.name!r} ({node.op})",
            expected=f"indices from {-extent} to {extent - 1}",
            found=str(outside.reshape(-1)[0]),
            fix="check the indices that the model is given or computes",
        )
    return np.where(indices < 0, indices + extent, indices)


def _axis(node: Node, rank: int) -> int:
    axis = node.int_attr("axis", 0)
    needs(node, 0 <= axis < rank, f"an axis below {rank}", axis)
    return axis


# --- slices along an axis -------------------------------------------------------------------------


def _infer_gather(node: Node, types: Types) -> tuple[TensorType, ...]:
    data = tensor(node, types, 0)
    axis = _axis(node, len(data.shape))
    indices = index_type(node, types, 1)
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    return (TensorType(data.dtype, shape),)


def _evaluate_gather(node: Node, operands: Operands) -> tuple[Array, ...]:
    data, axis = array(operands, 0), node.int_attr("axis", 0)
    indices = checked_indices(node, array(operands, 1), data.shape[axis])
    return (np.take(data, indices, axis=axis),)


def _vjp_gather(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    """Add up the gradients of all places that an element was read for."""
    x, indices, dy = (Term(b, name) for name in (*node.inputs, gradients[0]))
    axis, count = node.int_attr("axis", 0), len(indices.shape)
    rest = range(axis + count, len(dy.shape))
    first = dy.transpose((*range(axis, axis + count), *range(axis), *rest))
    points = indices.reshape((*indices.shape, 1))
    order = (axis, *(other for other in range(len(x.shape)) if other != axis))
    zeros = dy.like(0.0).expand(tuple(x.shape[other] for other in order))
    total = zeros.of("scatter_nd", points, first, reduction="add")
    return (total.transpose(inverse(order)).name,)


# --- single elements along an axis ----------------------------------------------------------------


def element_index(node: Node, indices: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Return the index of each element that is meant: its own, but along the node's axis.

    Raises:
        ExecutionError: an index lies outside of the shape.
    """
    axis = node.int_attr("axis", 0)
    full: list[Array] = list(np.indices(indices.shape, sparse=True))
    full[axis] = checked_indices(node, indices, shape[axis])
    return tuple(full)


def fits_elements(node: Node, data: TensorType, indices: TensorType) -> None:
    """Check that indices of single elements lie inside of the data, whatever they are.

    Raises:
        GraphError: they do not.
    """
    axis = _axis(node, len(data.shape))
    fits = len(indices.shape) == len(data.shape) and all(
        other == axis or some <= whole
        for other, (some, whole) in enumerate(zip(indices.shape, data.shape, strict=True))
    )
    needs(node, fits, f"indices that lie inside of {data}", indices)


def _infer_elements(node: Node, types: Types) -> tuple[TensorType, ...]:
    data, indices = tensor(node, types, 0), index_type(node, types, 1)
    fits_elements(node, data, indices)
    return (TensorType(data.dtype, indices.shape),)


def _evaluate_elements(node: Node, operands: Operands) -> tuple[Array, ...]:
    data, indices = array(operands, 0), array(operands, 1)
    return (data[element_index(node, indices, data.shape)],)


def _vjp_elements(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, indices, dy = (Term(b, name) for name in (*node.inputs, gradients[0]))
    how = {**dict(node.attrs), "reduction": "add"}
    return (dy.like(0.0).expand(x.shape).of("scatter_elements", indices, dy, **how).name,)


# --- slices at points -----------------------------------------------------------------------------


def nd_index(
    node: Node, indices: Array, shape: tuple[int, ...], batch: int = 0
) -> tuple[Array, ...]:
    """Return the index of each point, given the coordinates of points along the last axis.

    Args:
        node: for messages.
        indices: coordinates [..., depth]; the first axes, as many as ``batch``, are those of the
            data.
        shape: of the data.
        batch: number of axes that indices and data share.

    Raises:
        ExecutionError: a point lies outside of the shape.
    """
    points = indices.shape[:-1]
    shared = np.indices(points, sparse=True)[:batch]
    columns = (
        checked_indices(node, indices[..., depth], shape[batch + depth])
        for depth in range(indices.shape[-1])
    )
    return (*shared, *columns)


def _infer_nd(node: Node, types: Types) -> tuple[TensorType, ...]:
    data, indices = tensor(node, types, 0), index_type(node, types, 1)
    batch = node.int_attr("batch_dims", 0)
    fits = 0 <= batch < min(len(data.shape), len(indices.shape))
    needs(node, fits, f"batch_dims below the ranks of {data} and {indices}", batch)
    shared = data.shape[:batch] == indices.shape[:batch]
    needs(node, shared, f"indices that share {batch} axes with {data}", indices)
    depth = indices.shape[-1]
    most = len(data.shape) - batch
    needs(node, 1 <= depth <= most, f"points of 1 to {most} coordinates", indices)
    shape = (*indices.shape[:-1], *data.shape[batch + depth :])
    return (TensorType(data.dtype, shape),)


def _evaluate_nd(node: Node, operands: Operands) -> tuple[Array, ...]:
    data, indices = array(operands, 0), array(operands, 1)
    return (data[nd_index(node, indices, data.shape, node.int_attr("batch_dims", 0))],)


register(
    "gather",
    (2, 2),
    _infer_gather,
    _evaluate_gather,
    "interrupt",
    vjp=_vjp_gather,
    attributes={"axis": "integer"},
)
register(
    "gather_elements",
    (2, 2),
    _infer_elements,
    _evaluate_elements,
    "same",
    vjp=_vjp_elements,
    attributes={"axis": "integer"},
)
register(
    "gather_nd", (2, 2), _infer_nd, _evaluate_nd, "interrupt", attributes={"batch_dims": "integer"}
)
