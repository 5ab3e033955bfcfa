"""Kernels of reductions: pooling over the whole image, and the core's own.

The library's reductions are loops over single elements except for innermost axes, and its minima
and maxima lose NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from stridewise.formats import Format
from stridewise.graph import Node, Refusal
from stridewise.ops.geometry import canonical_shape, user_format
from stridewise.ops.reduce import REDUCTIONS, reduced_axes
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    PostOpSpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.along_axis import totals
from stridewise.targets.onednn.apart import apart
from stridewise.targets.onednn.context_view import ContextView
from stridewise.targets.onednn.family import MOST_SUMMED, Family, Offer, float32_only
from stridewise.targets.onednn.memory import elementwise_formats, memory_of
from stridewise.targets.onednn.pool import pooling_spec
from stridewise.targets.onednn.post_ops import fused, takes_snap
from stridewise.targets.onednn.reductions import reductions

__all__ = ["FAMILY"]


_ALGORITHMS = {
    "reduce_l1": "l1",
    "reduce_l2": "l2",
    "reduce_log_sum": "log_sum",
    "reduce_log_sum_exp": "log_sum_exp",
    "reduce_max": "max",
    "reduce_mean": "mean",
    "reduce_min": "min",
    "reduce_prod": "mul",
    "reduce_sum": "sum",
    "reduce_sum_square": "sum_square",
}
"""The algorithms of the core's kernels."""

_POOLING = {"reduce_mean": "avg_exclude", "reduce_sum": "avg_exclude"}
"""What a reduction over all spatial axes is; a sum is a mean that a post-op multiplies."""


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
    if not spatial or {x.origin.order[axis] for axis in reduced_axes(node, len(x.shape))} != set(
        spatial
    ):
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
            memory_of(fmt, shape),
            memory_of(fmt, pooled),
            (shape[2:], ones, ones, zeros, zeros),
        )
        post = fused(node, memory_of(fmt, pooled), accumulate=False).specs
        spec = replace(spec, post_ops=(*((times,) if node.op == "reduce_sum" else ()), *post))
        args = (Arg("src", input_of(0)), Arg("dst", output_of()))
        yield KernelOption(f"global pooling, {kind}", (fmt,), (result,), (Call(spec, args),))


class _Bare(ContextView):
    """The node without its post-ops."""

    @property
    def node(self) -> Node:
        return replace(self.inner.node, post_ops=())


@float32_only
def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    axes = reduced_axes(node, len(x.shape))
    reduction = REDUCTIONS[node.op]
    if not node.post_ops and reduction.keeps_one and all(x.shape[axis] == 1 for axis in axes):
        # One element is its own mean, sum and maximum; the library has no such reduction.
        pairs = [(user_format(x), user_format(y))]
        if node.int_attr("keepdims", 1):
            pairs = [(source, result) for source, result, _ in elementwise_formats(context, x, y)]
        for source, result in pairs:
            yield KernelOption("view", (source,), (result,), (), (Alias(0, 0, 0, "view"),))
        return
    # Integers of a grid are summed without errors.
    is_exact = prod(x.shape[axis] for axis in axes) <= MOST_SUMMED
    if is_exact or x.grid or x.offer or node.post_ops:
        yield from _pooled(context)
    # The core's kernels take no post-ops.
    bare = _Bare(context)
    for option in (*totals(bare), *reductions(bare, _ALGORITHMS[node.op], axes)):
        yield from apart(context, option) if node.post_ops else (option,)


def _post_ops(node: Node) -> frozenset[str]:
    return takes_snap(node) if node.op == "reduce_mean" else frozenset()


FAMILY = Family({op: Offer(_kernels, post_ops=_post_ops) for op in _ALGORITHMS})
