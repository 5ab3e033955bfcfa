"""Reductions over some axes: means, sums, norms, products, maxima and minima."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from stridewise.formats import Format, loops
from stridewise.graph import Node, Refusal, TensorType
from stridewise.ops.element_types import (
    BOOL,
    NUMBERS,
    Family,
    lowest_and_highest,
    needs_type,
    other_than_float32,
)
from stridewise.ops.geometry import canonical_shape, elementwise_formats, user_format, walks
from stridewise.ops.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    PostOpSpec,
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
)

__all__ = ["REDUCTIONS", "Reduction"]


def _greatest(x: Array, **where: Any) -> Any:
    return np.max(x, initial=lowest_and_highest(x.dtype)[0], **where)


def _least(x: Array, **where: Any) -> Any:
    return np.min(x, initial=lowest_and_highest(x.dtype)[1], **where)


def _mean(x: Array, **where: Any) -> Any:
    total = np.sum(x, **where)
    return np.divide(total, x.size / total.size if total.size else 1)


def _l1(x: Array, **where: Any) -> Any:
    return np.sum(np.abs(x), **where)


def _l2(x: Array, **where: Any) -> Any:
    return np.sqrt(np.sum(np.square(x.astype(np.float64)), **where))


def _sum_square(x: Array, **where: Any) -> Any:
    return np.sum(np.square(x), **where)


def _log_sum(x: Array, **where: Any) -> Any:
    return np.log(np.sum(x, **where))


def _log_sum_exp(x: Array, axis: tuple[int, ...], *, keepdims: bool) -> Any:
    greatest = _greatest(x, axis=axis, keepdims=True)
    # Exponentials of what is not above 0 don't overflow; infinity less infinity is no number.
    shift = np.where(np.isfinite(greatest), greatest, 0)
    total = np.log(np.sum(np.exp(x - shift), axis=axis, keepdims=True)) + shift
    return total if keepdims else np.squeeze(total, axis)


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction.

    Attributes:
        function: its definition, with NumPy's ``axis`` and ``keepdims``; without elements it gives
            what changes nothing when more are added.
        fold: the algorithm of our kernels, or ``""`` where they have none. oneDNN's reductions are
            loops over single elements but for innermost axes, and its extremes lose NaN.
        keeps_one: whether a single element is its own result.
        family: the element types that it takes.
    """

    function: Callable[..., Any]
    fold: str = ""
    keeps_one: bool = False
    family: Family = NUMBERS


REDUCTIONS: dict[str, Reduction] = {
    "reduce_l1": Reduction(_l1, "l1"),
    "reduce_l2": Reduction(_l2, "l2"),
    "reduce_log_sum": Reduction(_log_sum),
    "reduce_log_sum_exp": Reduction(_log_sum_exp),
    "reduce_max": Reduction(_greatest, "max", keeps_one=True, family=NUMBERS | BOOL),
    "reduce_mean": Reduction(_mean, "mean", keeps_one=True),
    "reduce_min": Reduction(_least, "min", keeps_one=True, family=NUMBERS | BOOL),
    "reduce_prod": Reduction(np.prod, "mul", keeps_one=True),
    "reduce_sum": Reduction(np.sum, "sum", keeps_one=True),
    "reduce_sum_square": Reduction(_sum_square, "sum_square"),
}
_POOLING = {"reduce_mean": "avg_exclude", "reduce_sum": "avg_exclude"}
"""What a reduction over all spatial axes is; a sum is a mean that a post-op multiplies."""


def _axes(node: Node, rank: int) -> tuple[int, ...]:
    axes = node.ints_attr("axes")
    fits = all(0 <= axis < rank for axis in axes) and len(set(axes)) == len(axes)
    needs(node, fits, f"distinct axes below {rank}", axes)
    return axes


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = needs_type(node, types, 0, REDUCTIONS[node.op].family)
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
    precise = x if x.dtype.kind in "biu" else x.astype(np.float64)
    axes, keep = _axes(node, x.ndim), bool(node.int_attr("keepdims", 1))
    function = REDUCTIONS[node.op].function
    with np.errstate(all="ignore"):
        return (np.asarray(function(precise, axis=axes, keepdims=keep)).astype(x.dtype),)


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
        times = PostOpSpec("eltwise", "linear", float(prod(shape[2:])))
        spec = pooling_spec(
            algorithm,
            MemorySpec.of(fmt, shape),
            MemorySpec.of(fmt, pooled),
            (shape[2:], ones, ones, zeros, zeros),
        )
        if node.op == "reduce_sum":
            spec = replace(spec, post_ops=(times,))
        args = (Arg("src", input_of(0)), Arg("dst", output_of()))
        yield KernelOption(f"global pooling, {kind}", (fmt,), (result,), (Call(spec, args),))


def _extents(
    walk: Iterable[tuple[int, bool]],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return source and result extents of a walk of (extent, is reduced), neighbors as one."""
    merged: list[tuple[int, bool]] = []
    for extent, gone in walk:
        if merged and (extent == 1 or merged[-1][1] == gone):
            merged[-1] = (merged[-1][0] * extent, merged[-1][1])
        else:
            merged.append((extent, gone))
    return tuple(e for e, _ in merged), tuple(1 if gone else e for e, gone in merged)


def _fold(node: Node, walk: Iterable[tuple[int, bool]]) -> Call:
    source, result = _extents(walk)
    spec = KernelSpec(
        "fold",
        (("src", MemorySpec.plain(source)), ("dst", MemorySpec.plain(result))),
        (("algorithm", REDUCTIONS[node.op].fold),),
        flops=float(prod(source)),
    )
    return Call(spec, (Arg("src", input_of(0)), Arg("dst", output_of())))


def _stored(context: KernelContext) -> Iterator[KernelOption | Refusal]:
    """Yield reductions of what is stored in any format that has no blocks of a reduced axis."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    gone = _axes(node, len(x.shape))
    users = user_format(x)
    plain = [(extent, axis in gone) for axis, extent in enumerate(x.shape)]
    yield KernelOption("fold", (users,), (user_format(y),), (_fold(node, plain),))
    for source, _ in walks(context, x, x) if x.origin is not None else ():
        if source.fmt == users:
            continue
        place = dict(zip(source.axes.axes, source.order, strict=True))
        digits = [loop for loop in loops(source.axes, source.shape) if loop.extent > 1]
        left = [place[loop.axis] for loop in digits if place[loop.axis] not in gone]
        result = source.fmt
        if x.origin != y.origin:
            # Only in the user's order means the result the same without names.
            result = user_format(y)
            if left != sorted(set(left)):
                yield Refusal("onednn-cpu", node.name, f"{source.fmt} has another order of axes")
                continue
        blocks = [axis for axis in place if source.axes.multiple(axis) > 1]
        if any(place[axis] in gone or x.origin != y.origin for axis in blocks):
            yield Refusal("onednn-cpu", node.name, f"{source.fmt} has blocks of a reduced axis")
            continue
        walk = [(loop.extent, place[loop.axis] in gone) for loop in digits]
        yield KernelOption(f"fold of {source.fmt}", (source.fmt,), (result,), (_fold(node, walk),))


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    refusal = other_than_float32(context)
    if refusal is not None:
        yield refusal
        return
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    axes = _axes(node, len(x.shape))
    reduction = REDUCTIONS[node.op]
    if reduction.keeps_one and all(x.shape[axis] == 1 for axis in axes):
        # One element is its own mean, sum and maximum; the library has no such reduction.
        pairs = [(user_format(x), user_format(y))]
        if node.int_attr("keepdims", 1):
            pairs = [(source, result) for source, result, _ in elementwise_formats(context, x, y)]
        for source, result in pairs:
            yield KernelOption("view", (source,), (result,), (), (Alias(0, 0, 0, "view"),))
        return
    if all(x.shape[axis] == 1 for axis in axes):
        yield Refusal("onednn-cpu", node.name, "the library has no reductions of single elements")
        return
    yield from _pooled(context)
    yield from _stored(context)


def _permuted(node: Node, shape: tuple[int, ...], perm: tuple[int, ...]) -> Permuted | str:
    axes = tuple(sorted(perm[axis] for axis in _axes(node, len(shape))))
    kept = perm
    if not node.int_attr("keepdims", 1):
        left = [axis for axis in range(len(perm)) if axis not in axes]
        kept = tuple(left.index(axis) for axis in perm if axis not in axes)
    return Permuted({**dict(node.attrs), "axes": axes}, kept)


for _name, _reduction_of in REDUCTIONS.items():
    _spec = OpSpec(_name, (1, 1), _infer, _evaluate, "keepdims", permuted=_permuted)
    register(replace(_spec, kernels=_kernels) if _reduction_of.fold else _spec)
