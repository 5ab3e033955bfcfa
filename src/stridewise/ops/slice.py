"""Slices: parts of a tensor at regular distances, in either direction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stridewise.graph import Node, TensorType
from stridewise.ops.attributes import each
from stridewise.ops.backward import Term
from stridewise.ops.data_format import inverse
from stridewise.ops.registry import (
    Array,
    Backward,
    Operands,
    Permuted,
    Types,
    array,
    needs,
    register,
    tensor,
)


def slice_bounds(node: Node, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return starts, lengths and steps, one for each axis.

    Where a step is negative, the stop -1 lies before the first element, as in ``range``.
    """
    starts, stops, steps = (node.ints_attr(key) for key in ("starts", "stops", "steps"))
    rank = len(shape)
    fits = len(starts) == len(stops) == len(steps) == rank
    needs(node, fits, f"starts, stops and steps for {rank} axes", node.attrs)
    for start, stop, step, extent in zip(starts, stops, steps, shape, strict=True):
        ahead = step >= 1 and 0 <= start <= stop <= extent
        back = step <= -1 and -1 <= stop <= start < extent
        expected = f"0 <= start <= stop <= {extent}, or a step below 0 and the stop below the start"
        needs(node, ahead or back, expected, (start, stop, step))
    bounds = zip(starts, stops, steps, strict=True)
    return starts, tuple(len(range(*bound)) for bound in bounds), steps


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    return (TensorType(x.dtype, slice_bounds(node, x.shape)[1]),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    bounds = zip(*(node.ints_attr(key) for key in ("starts", "stops", "steps")), strict=True)
    # To Python, -1 is the last element.
    keys = (slice(start, None if stop < 0 else stop, step) for start, stop, step in bounds)
    return (x[tuple(keys)],)


def _permuted(node: Node, _shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    order = inverse(perm)
    bounds = {key: node.ints_attr(key) for key in ("starts", "stops", "steps")}
    moved = {key: tuple(bound[axis] for axis in order) for key, bound in bounds.items()}
    return Permuted({**dict(node.attrs), **moved}, perm)


# --- gradient -------------------------------------------------------------------------------------


def _vjp(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    x, dy = Term(b, node.inputs[0]), Term(b, gradients[0])
    starts, lengths, steps = slice_bounds(node, x.shape)
    if all(step == 1 for step in steps):
        bounds = zip(x.shape, starts, lengths, strict=True)
        ends = tuple(extent - start - length for extent, start, length in bounds)
        return (dy.of("pad", pads=(*starts, *ends)).name,)
    if all(step > 0 for step in steps) and 0 not in lengths:
        for axis, (extent, start, step) in enumerate(zip(x.shape, starts, steps, strict=True)):
            dy = _spread(dy, axis, extent, start, step)
        return (dy.name,)
    return (dy.of("slice_gradient", shape=x.shape, **dict(node.attrs)).name,)


def _spread(dy: Term, axis: int, extent: int, start: int, step: int) -> Term:
    """Return zeros along an axis, with an element of dy in every ``step`` places from a start."""
    outer, length, inner = dy.shape[:axis], dy.shape[axis], dy.shape[axis + 1 :]
    rank, reach = len(dy.shape), min(length * step, extent - start)
    if step > 1:
        ends = [0] * (rank + 1)
        ends[axis + 1] = step - 1
        wide = dy.reshape((*outer, length, 1, *inner)).of("pad", pads=(*[0] * (rank + 1), *ends))
        dy = wide.reshape((*outer, length * step, *inner))
    if reach < length * step:
        stops = (*outer, reach, *inner)
        dy = dy.of("slice", starts=(0,) * rank, stops=stops, steps=(1,) * rank)
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = start, extent - start - reach
    return dy.of("pad", pads=tuple(pads)) if any(pads) else dy


def _infer_gradient(node: Node, types: Types) -> tuple[TensorType, ...]:
    dy, shape = tensor(node, types, 0), node.ints_attr("shape")
    needs(node, all(extent >= 0 for extent in shape), "extents from 0 on", shape)
    _, lengths, _ = slice_bounds(node, shape)
    needs(node, dy.shape == lengths, f"a gradient of shape {lengths}", dy)
    return (TensorType(dy.dtype, shape),)


def _evaluate_gradient(node: Node, operands: Operands) -> tuple[Array, ...]:
    dy = array(operands, 0)
    result = np.zeros(node.ints_attr("shape"), dy.dtype)
    _evaluate(node, (result,))[0][...] = dy
    return (result,)


def _vjp_gradient(node: Node, gradients: Sequence[str], b: Backward) -> tuple[str, ...]:
    attrs = {key: value for key, value in node.attrs if key != "shape"}
    return (Term(b, gradients[0]).of("slice", **attrs).name,)


_BOUNDS = each("integers", "starts", "stops", "steps")

register(
    "slice", (1, 1), _infer, _evaluate, "same", permuted=_permuted, vjp=_vjp, attributes=_BOUNDS
)
# Zeros of a ``shape`` with dy where a slice took elements; other attributes are the slice's.
register(
    "slice_gradient",
    (1, 1),
    _infer_gradient,
    _evaluate_gradient,
    "interrupt",
    vjp=_vjp_gradient,
    attributes={**_BOUNDS, "shape": "integers"},
)
