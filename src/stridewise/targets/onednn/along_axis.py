"""The core's kernels along an axis: elements that come first, running and short sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

from stridewise.formats import Format
from stridewise.graph import Refusal, Value
from stridewise.ops.geometry import user_format
from stridewise.ops.reduce import reduced_axes
from stridewise.targets.kernels import (
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    input_of,
    output_of,
)
from stridewise.targets.onednn.family import Family, KernelKind, Offer, refused
from stridewise.targets.onednn.memory import plain_memory

__all__ = ["FAMILY", "totals"]

_SELECTED = frozenset({"float32", "int32", "int64"})
_SUMMED = frozenset({"float32", "float64", "int32", "int64"})


def _lines(value: Value, axis: int) -> MemorySpec:
    """Return a tensor as [outer, rows, inner] with an axis as rows."""
    shape = value.shape
    dims = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    return replace(plain_memory(dims), dtype=value.dtype.short)


def _top_k(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, values, places = map(context.value, (node.inputs[0], *node.outputs))
    if x.dtype.name not in _SELECTED:
        yield refused(node, f"kernels select from {', '.join(sorted(_SELECTED))}, not {x.dtype}")
        return
    axis = node.int_attr("axis")
    memories = (
        ("src", _lines(x, axis)),
        ("dst", _lines(values, axis)),
        ("out_positions", _lines(places, axis)),
    )
    params = (("largest", node.int_attr("largest", 1)),)
    spec = KernelSpec("top_k", memories, params, flops=float(prod(x.shape)))
    args = Arg("src", input_of(0)), Arg("dst", output_of(0)), Arg("out_positions", output_of(1))
    formats = user_format(values), user_format(places)
    yield KernelOption("top k", (user_format(x),), formats, (Call(spec, args),))


def _running(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if x.dtype.name not in _SUMMED or node.post_ops:
        yield refused(node, f"kernels add up {', '.join(sorted(_SUMMED))}, not {x.dtype}")
        return
    memory = _lines(x, node.int_attr("axis"))
    flags = tuple((key, node.int_attr(key, 0)) for key in ("exclusive", "reverse"))
    params = (("op", node.op), *flags)
    spec = KernelSpec(
        "running", (("src", memory), ("dst", memory)), params, flops=float(prod(x.shape))
    )
    call = Call(spec, (Arg("src", input_of(0)), Arg("dst", output_of())))
    yield KernelOption("running", (user_format(x),), (user_format(y),), (call,))


# --- totals ---------------------------------------------------------------------------------------

_TOTALS = {"reduce_max": "max", "reduce_min": "min", "reduce_sum": "sum"}
_FLOAT_TOTALS = {
    **_TOTALS,
    "reduce_l1": "l1",
    "reduce_l2": "l2",
    "reduce_mean": "mean",
    "reduce_sum_square": "sum_square",
}
_FEW = 128
"""Elements of float32 that are added in their order at most, as in the kernels of reductions."""


def totals(context: KernelContext) -> Iterable[KernelOption]:
    """Yield the reduction of axes next to one another in memory: few elements, or integers."""
    node = context.node
    x = context.value(node.inputs[0])
    is_float = x.dtype.name == "float32"
    op = (_FLOAT_TOTALS if is_float else _TOTALS).get(node.op)
    axes = sorted(reduced_axes(node, len(x.shape)))
    count = prod(x.shape[axis] for axis in axes)
    if op is None or not axes or node.post_ops or (is_float and count > _FEW):
        return
    if x.dtype.name not in _SELECTED:
        return
    for source, result, order in _orders(context, axes):
        first = order.index(axes[0])
        behind = first + len(axes)
        if sorted(order[first:behind]) != axes:
            continue
        shape = tuple(x.shape[axis] for axis in order)
        dims = prod(shape[:first]), count, prod(shape[behind:])
        memories = tuple(
            (role, replace(plain_memory(found), dtype=x.dtype.short))
            for role, found in (("src", dims), ("dst", (dims[0], dims[2])))
        )
        spec = KernelSpec("totals", memories, (("op", op),), flops=float(prod(dims)))
        call = Call(spec, (Arg("src", input_of(0)), Arg("dst", output_of())))
        name = "totals" if source == user_format(x) else "totals, channels-last"
        yield KernelOption(name, (source,), (result,), (call,))


def _orders(
    context: KernelContext, axes: list[int]
) -> Iterator[tuple[Format, Format, tuple[int, ...]]]:
    """Yield formats of source and result, and the user's axes of the source as they are stored."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    rank = len(x.shape)
    yield user_format(x), user_format(y), tuple(range(rank))
    last = context.formats(x.name).get("channels-last")
    if x.origin is None or last is None or _in_users_order(last, x):
        return
    order = tuple(x.origin.order.index(axis) for axis in last.order)
    kept = tuple(axis for axis in order if axis not in axes)
    if x.origin == y.origin:
        yield last, context.formats(y.name)["channels-last"], order
    elif kept == tuple(sorted(kept)) and not node.int_attr("keepdims", 1):
        yield last, user_format(y), order


def _in_users_order(fmt: Format, value: Value) -> bool:
    """Return whether a format without blocks stores a value in the user's order."""
    return fmt.order == user_format(value).order


_RUNNING = ("cumprod", "cumsum")

FAMILY = Family(
    {op: Offer(_running) for op in _RUNNING},
    {
        "running": KernelKind({"plain": 0.1}),
        "top_k": KernelKind({"plain": 0.1}),
        "totals": KernelKind({"plain": 0.5}),
    },
    typed={
        "top_k": _top_k,
        **dict.fromkeys(_RUNNING, _running),
        **dict.fromkeys((*_TOTALS, "reduce_mean"), totals),
    },
)
