"""Reductions: mean, sum, maximum and minimum over some axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np

from stridewise.formats import Format
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.geometry import canonical_shape, elementwise_formats, user_format
from stridewise.ops.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.ops.pool import pooling_spec
from stridewise.ops.registry import (
    Array,
    Operands,
    OpSpec,
    Permuted,
    Types,
    array,
    needs,
    register,
    tensor,
)

__all__ = ["REDUCTIONS"]


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_mean": np.mean,
    "reduce_sum": np.sum,
    "reduce_max": np.max,
    "reduce_min": np.min,
}
_POOLING = {"reduce_mean": "avg_exclude", "reduce_max": "max"}


def _axes(node: Node, rank: int) -> tuple[int, ...]:
    axes = node.ints_attr("axes")
    fits = all(0 <= axis < rank for axis in axes) and len(set(axes)) == len(axes)
    needs(node, fits, f"distinct axes below {rank}", axes)
    return axes


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = tensor(node, types, 0)
    axes = _axes(node, len(x.shape))
    keep = node.int_attr("keepdims", 1)
    shape = tuple(
        1 if axis in axes else extent
        for axis, extent in enumerate(x.shape)
        if keep or axis not in axes
    )
    return (TensorType(x.dtype, shape),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    x = array(operands, 0)
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    axes, keep = _axes(node, x.ndim), bool(node.int_attr("keepdims", 1))
    result = REDUCTIONS[node.op](wide, axis=axes, keepdims=keep)
    return (np.asarray(result).astype(x.dtype),)


def _n_before_c(origin: Format) -> bool:
    return origin.order.index("N") < origin.order.index("C")


def _pooled(context: KernelContext) -> Iterable[KernelOption]:
    """Yield pooling over the whole image, which is a reduction over all spatial axes."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    algorithm = _POOLING.get(node.op)
    if algorithm is None or x.origin is None or x.origin.axes[:2] != ("N", "C"):
        return
    spatial = x.origin.axes[2:]
    if not spatial or {x.origin.order[axis] for axis in _axes(node, len(x.shape))} != set(spatial):
        return
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        shape = canonical_shape(x, fmt)
        pooled = (*shape[:2], *(1,) * len(spatial))
        if y.origin == x.origin:
            result = results[kind]
        elif shape[1] % fmt.multiple("C") == 0 and _n_before_c(x.origin):
            # Without its spatial axes the result is the matrix [N, C], row-major.
            result = user_format(y)
        else:
            continue
        ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
        spec = pooling_spec(
            algorithm,
            MemorySpec.of(fmt, shape),
            MemorySpec.of(fmt, pooled),
            (shape[2:], ones, ones, zeros, zeros),
        )
        args = (Arg("src", input_of(0)), Arg("dst", output_of()))
        yield KernelOption(f"global pooling, {kind}", (fmt,), (result,), (Call(spec, args),))


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    axes = _axes(node, len(x.shape))
    if all(x.shape[axis] == 1 for axis in axes):
        # One element is its own mean, sum and maximum; the library has no such reduction.
        pairs = [(user_format(x), user_format(y))]
        if node.int_attr("keepdims", 1):
            pairs = [(source, result) for source, result, _ in elementwise_formats(context, x, y)]
        for source, result in pairs:
            yield KernelOption("view", (source,), (result,), (), (Alias(0, 0, 0, "view"),))
        return
    yield from _pooled(context)
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    spec = KernelSpec(
        "reduction",
        (("src", MemorySpec.plain(x.shape)), ("dst", MemorySpec.plain(kept))),
        (("algorithm", node.op.removeprefix("reduce_")),),
        flops=float(prod(x.shape)),
    )
    args = (Arg("src", input_of(0)), Arg("dst", output_of()))
    yield KernelOption("reduction", (user_format(x),), (user_format(y),), (Call(spec, args),))


def _permuted(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    axes = tuple(sorted(perm[axis] for axis in _axes(node, len(shape))))
    kept = perm
    if not node.int_attr("keepdims", 1):
        left = [axis for axis in range(len(perm)) if axis not in axes]
        kept = tuple(left.index(axis) for axis in perm if axis not in axes)
    return Permuted({**dict(node.attrs), "axes": axes}, kept)


for _name in REDUCTIONS:
    register(OpSpec(_name, (1, 1), _infer, _evaluate, "keepdims", _kernels, permuted=_permuted))
