"""Quantized tensors: from real numbers to stored integers and back, and the numbers they stand for.

The functions ``snap_s8`` and ``snap_u8`` (``activation.py``) round real numbers to those that
stored integers stand for. A quantized model is a graph of real numbers with these functions in it;
``quantize`` and ``dequantize`` remain where a model takes or gives the integers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from stridewise.dtypes import DType, dtype_of
from stridewise.graph import Graph, Node, TensorType, Value
from stridewise.ops.activation import SNAPS
from stridewise.ops.attributes import Attributes
from stridewise.ops.pointwise import step_nodes
from stridewise.ops.registry import Array, Operands, Types, array, needs, register, tensor
from stridewise.tensor import Grid
from stridewise.tensor.quantization import RANGES

__all__ = [
    "MOVES",
    "grid_of",
    "grid_of_constants",
    "has_reciprocal",
    "moved_grid",
    "node_grid",
    "with_grids",
]

_STORED = ("int8", "uint8")
_LEAST, _MOST = 1e-30, 1e30
"""Scales between these have a reciprocal in float32."""

MOVES = frozenset(
    {"channel_shuffle", "depth_to_space", "identity", "max_pool", "reshape", "slice"}
    | {"space_to_depth", "tile", "transpose", "concat"}
)
"""Operators whose results are elements of their operands."""


def node_grid(node: Node) -> Grid:
    """Return the grid that a node of ``quantize``, ``dequantize`` or a snap names."""
    dtype = SNAPS.get(node.op)
    if dtype is not None:
        return grid_of(dtype, node.float_attr("alpha", 1.0), node.float_attr("beta", 0.0))
    stored = dtype_of(node.str_attr("dtype")).short
    return grid_of(stored, node.float_attr("scale"), node.int_attr("zero_point"))


def grid_of(dtype: str, scale: float, zero_point: float) -> Grid:
    """Return the grid of an integer type with one scale."""
    return Grid(dtype, (scale,), (int(zero_point),))


def has_reciprocal(scales: Array) -> bool:
    """Return whether scales are float32 and have a reciprocal in float32."""
    return scales.dtype == np.float32 and bool(((scales > _LEAST) & (scales < _MOST)).all())


def grid_of_constants(
    dtype: str, scales: Array, zeros: Array, axis: int, shape: tuple[int, ...]
) -> Grid | None:
    """Return the grid of a tensor with these scales and zero points; None where it has none.

    Args:
        dtype: of the integers, s8 or u8.
        scales: one for all elements, or a row with one for each index along ``axis``.
        zeros: zero points, likewise.
        axis: an axis of the tensor, from its end if negative.
        shape: of the tensor.
    """
    if not has_reciprocal(scales):
        return None
    numbers = tuple(map(float, scales.reshape(-1))), tuple(map(int, zeros.reshape(-1)))
    if scales.size == zeros.size == 1:
        return Grid(dtype, *numbers)
    is_row = scales.ndim == 1 and bool(shape) and scales.size == shape[axis]
    return Grid(dtype, *numbers, axis % len(shape)) if is_row else None


def _after(grid: Grid | None, op: str, alpha: float, beta: float) -> Grid | None:
    """Return the grid of what an elementwise function makes of numbers of a grid."""
    if op in SNAPS:
        return grid_of(SNAPS[op], alpha, beta)
    if grid is None or grid.axis is not None:
        return None
    is_relu = op == "relu" or (op == "clip" and alpha == 0 and beta >= grid.high)
    return grid if is_relu or (op == "clip" and alpha <= grid.low and beta >= grid.high) else None


def _moved(node: Node, sources: Sequence[Grid | None]) -> Grid | None:
    """Return the grid of the results of a node, without its post-ops."""
    first = sources[0] if sources else None
    if node.op in ("resize", "pad"):
        mode = node.get("mode")
        is_move = mode == "nearest" if node.op == "resize" else _pads_with_zero(node)
        return first if is_move else None
    if node.op == "concat":
        return first if all(grid == first for grid in sources) else None
    return first if node.op in MOVES else None


def _pads_with_zero(node: Node) -> bool:
    is_constant = node.get("mode") in (None, "constant") and not node.get("value")
    return is_constant and not any(node.inputs[1:])


def _result_grid(node: Node, sources: Sequence[Grid | None]) -> Grid | None:
    first = sources[0] if sources else None
    if node.op == "dequantize":
        grid: Grid | None = node_grid(node)
    elif node.op in ("relu", "clip") or node.op in SNAPS:
        low, high = (-np.inf, np.inf) if node.op == "clip" else (0.0, 0.0)
        grid = _after(first, node.op, node.float_attr("alpha", low), node.float_attr("beta", high))
    elif node.op == "pointwise":
        last = list(step_nodes(node))[-1]
        grid = node_grid(last) if last.op in SNAPS else None
    else:
        grid = _moved(node, sources)
    for post in node.post_ops:
        grid = _after(grid, post.op, post.alpha, post.beta)
    if grid is not None and grid.axis is not None:
        return None
    return grid


def moved_grid(node: Node, grid: Grid, source: Array | None) -> Grid | None:
    """Return the grid of the result of a move of constant weights; None where it is not known."""
    if node.op == "transpose" and grid.axis is not None:
        return replace(grid, axis=node.ints_attr("perm").index(grid.axis))
    if node.op == "reshape" and grid.axis is not None and source is not None:
        kept = grid.axis + 1
        same = node.ints_attr("shape")[:kept] == source.shape[:kept]
        return grid if same else None
    return grid if node.op in ("reshape", "transpose", "identity") else None


def with_grids(graph: Graph) -> Graph:
    """Return the graph with the grid of every value that has one."""
    values: dict[str, Value] = dict(graph.values)
    for node in graph.nodes:
        sources = [values[name].grid if name else None for name in node.inputs]
        grid = _result_grid(node, sources)
        for name in node.outputs:
            is_real = values[name].dtype.name == "float32"
            if values[name].grid != (grid if is_real else None):
                values[name] = replace(values[name], grid=grid if is_real else None)
    return replace(graph, values=MappingProxyType(values))


# --- operators ------------------------------------------------------------------------------------


def _check_grid(node: Node, stored: DType) -> None:
    low, high = RANGES[stored.short]
    (zero,) = node_grid(node).zero_points
    needs(node, low <= zero <= high, f"a zero point from {low} to {high}", zero)


def _infer_quantize(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    stored = dtype_of(node.str_attr("dtype"))
    needs(node, x.dtype.name == "float32", "float32", x.dtype)
    needs(node, stored.name in _STORED, " or ".join(_STORED), stored)
    _check_grid(node, stored)
    return (TensorType(stored, x.shape),)


def _infer_dequantize(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    stored = dtype_of(node.str_attr("dtype"))
    needs(node, x.dtype == stored and stored.name in _STORED, f"{stored}", x.dtype)
    _check_grid(node, stored)
    return (TensorType(dtype_of("float32"), x.shape),)


def _quantize(node: Node, operands: Operands) -> tuple[Array, ...]:
    stored, zero = dtype_of(node.str_attr("dtype")), node.int_attr("zero_point")
    limits = RANGES[stored.short]
    with np.errstate(invalid="ignore", over="ignore"):
        whole = np.rint(array(operands, 0) / np.float32(node.float_attr("scale"))) + zero
    return (np.clip(np.nan_to_num(whole), *limits).astype(stored.numpy),)


def _dequantize(node: Node, operands: Operands) -> tuple[Array, ...]:
    centered = array(operands, 0).astype(np.float32) - np.float32(node.int_attr("zero_point"))
    return (centered * np.float32(node.float_attr("scale")),)


_ATTRIBUTES: Attributes = {"dtype": "dtype", "scale": "number", "zero_point": "integer"}

register("quantize", (1, 1), _infer_quantize, _quantize, "elementwise", attributes=_ATTRIBUTES)
register(
    "dequantize", (1, 1), _infer_dequantize, _dequantize, "elementwise", attributes=_ATTRIBUTES
)
