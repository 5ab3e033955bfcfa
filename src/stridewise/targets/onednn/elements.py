"""The core's kernels on single elements of any type, and copies of them, in the user's order.

They compute what the library and the expressions of float32 do not: operators on integers, truth
values and float64, comparisons, casts, and functions that neither has. Kernels of other operators
that only move bytes become copies of elements here, whatever these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from math import prod

from stridewise.graph import Node, Refusal, Value
from stridewise.ops.element_types import BOOL, INTEGERS, NUMBERS, SIGNED
from stridewise.ops.element_types import Family as Types
from stridewise.ops.geometry import row_major, user_format
from stridewise.ops.logic import COMPARISONS, CONNECTIVES
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
from stridewise.targets.onednn.memory import elementwise_formats
from stridewise.targets.onednn.pointwise import aligned, pointwise_options

__all__ = ["FAMILY", "KIND", "copy_elements", "element_memory", "moved"]

KIND = "elements"

_FLOATS: Types = frozenset({"float32", "float64"})
_NUMBERS: Types = NUMBERS - {"bfloat16", "float16"}

_OPERATORS: Mapping[str, Types] = {
    **dict.fromkeys(("abs", "add", "div", "maximum", "minimum", "mod", "mul"), _NUMBERS),
    **dict.fromkeys(("sign", "sub"), _NUMBERS),
    "neg": _NUMBERS & SIGNED,
    **dict.fromkeys(("greater", "greater_equal", "less", "less_equal"), _NUMBERS),
    "equal": _NUMBERS | BOOL,
    **dict.fromkeys(("logical_and", "logical_not", "logical_or", "logical_xor"), BOOL),
    **dict.fromkeys(("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"), INTEGERS),
    **dict.fromkeys(("is_inf", "is_nan"), _FLOATS),
}
"""Operators with the types of their operands, which are all of one type."""

_FUNCTIONS = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan")

_FUNCTION_FLOPS = 40.0
"""What a function takes for an element, which is computed by itself; an estimate."""


def element_memory(value: Value, shape: tuple[int, ...] | None = None) -> MemorySpec:
    """Return a row-major tensor of a value's own elements, of its own shape or of another one."""
    dims = value.shape if shape is None else shape
    return MemorySpec(dims, strides=row_major(dims), dtype=value.dtype.short)


def _loop_of(node: Node) -> str:
    """Return the core's name of an operator with the node's attributes."""
    if node.op == "mod":
        return "fmod" if node.int_attr("fmod", 0) else "mod"
    if node.op == "is_inf":
        signs = node.int_attr("positive", 1), node.int_attr("negative", 1)
        return {(1, 1): "is_inf", (1, 0): "is_positive_inf"}.get(signs, "is_negative_inf")
    return node.op


def _why_not(context: KernelContext) -> str:
    """Return why no loop computes a node, "" if one does."""
    node = context.node
    dtypes = [context.value(name).dtype.name for name in node.inputs]
    result = context.value(node.outputs[0]).dtype.name
    if node.post_ops:
        return "its loops take no post-ops"
    if (
        node.op == "is_inf"
        and not node.int_attr("positive", 1)
        and not node.int_attr("negative", 1)
    ):
        return "it tests for nothing"
    if node.op == "where":
        return ""
    known = _NUMBERS | BOOL if node.op == "cast" else _OPERATORS.get(node.op, _FLOATS)
    computed = {*dtypes, result} if node.op == "cast" else set(dtypes)
    if not computed <= known:
        return f"there is no loop of {node.op} from {', '.join(dtypes)} to {result}"
    return ""


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    reason = _why_not(context)
    if reason:
        yield refused(node, reason)
        return
    result = context.value(node.outputs[0])
    operands = [context.value(name) for name in node.inputs]
    memories = [
        (f"src{index}", element_memory(value, aligned(value, result)))
        for index, value in enumerate(operands)
    ]
    spec = KernelSpec(
        KIND,
        (*memories, ("dst", element_memory(result))),
        (("op", _loop_of(node)),),
        flops=float(prod(result.shape)),
    )
    args = tuple(Arg(role, input_of(index)) for index, (role, _) in enumerate(memories))
    formats = tuple(
        None if context.is_constant(value.name) else user_format(value) for value in operands
    )
    call = Call(spec, (*args, Arg("dst", output_of())))
    yield KernelOption("elements", formats, (user_format(result),), (call,))


def _functions(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    """Yield functions of elements in the order in which they lie, without padding."""
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if x.dtype.name not in _FLOATS or node.post_ops:
        yield refused(node, _why_not(context) or f"there is no loop of {node.op} of {x.dtype}")
        return
    memory = element_memory(x, (prod(x.shape),))
    spec = KernelSpec(
        KIND,
        (("src0", memory), ("dst", memory)),
        (("op", node.op),),
        flops=_FUNCTION_FLOPS * prod(x.shape),
    )
    call = Call(spec, (Arg("src0", input_of(0)), Arg("dst", output_of())))
    for source, result, _ in elementwise_formats(context, x, y):
        if not source.is_blocked:
            yield KernelOption("elements", (source,), (result,), (call,))


# --- moves ----------------------------------------------------------------------------------------


def copy_elements(
    dtype: str, source: tuple[MemorySpec, Arg], target: tuple[MemorySpec, Arg]
) -> Call:
    """Return the copy of elements of a type between two memories of the same extents by strides."""
    sides = (("src0", source), ("dst", target))
    memories = tuple((role, replace(memory, dtype=dtype)) for role, (memory, _) in sides)
    args = tuple(replace(arg, role=role) for role, (_, arg) in sides)
    return Call(KernelSpec(KIND, memories, (("op", "copy"),)), args)


def _with_strides(memory: MemorySpec) -> MemorySpec | None:
    """Return a memory by strides; None for one that is not row-major."""
    if memory.strides is not None:
        return memory
    if memory.tag != "abcdefghijkl"[: len(memory.dims)]:
        return None
    return MemorySpec(memory.dims, strides=row_major(memory.dims))


def _copies_of_pieces(call: Call, dtype: str) -> Iterator[Call]:
    """Yield the copies of the pieces of a concatenation of row-major tensors."""
    *pieces, (_, whole) = call.spec.memories
    axis = dict(call.spec.params)["axis"]
    assert isinstance(axis, int)  # every concatenation has one
    strides = row_major(whole.dims)
    starts = accumulate((piece.dims[axis] for _, piece in pieces), initial=0)
    for (_, piece), start, arg in zip(pieces, starts, call.args, strict=False):
        source = MemorySpec(piece.dims, strides=row_major(piece.dims))
        target = MemorySpec(piece.dims, strides=strides)
        offset = call.args[-1].offset + start * strides[axis]
        yield copy_elements(dtype, (source, arg), (target, replace(call.args[-1], offset=offset)))


def _moved_call(call: Call, dtype: str) -> list[Call]:
    """Return a call of a kernel that moves elements as copies of another type; [] for others.

    Copies from one part of a result to another one are no such calls.
    """
    spec, (*sources, _) = call.spec, call.args
    if spec.post_ops or any(arg.operand.side != "in" for arg in sources):
        return []
    memories = [_with_strides(memory) for _, memory in spec.memories]
    if any(memory is None for memory in memories):
        return []
    if spec.kind == "concat":
        return list(_copies_of_pieces(call, dtype))
    if spec.kind != "reorder" or spec.params:
        return []
    source, target = (memory for memory in memories if memory is not None)
    return [copy_elements(dtype, (source, call.args[0]), (target, call.args[1]))]


def moved(
    options: Iterable[KernelOption | Refusal], context: KernelContext
) -> Iterator[KernelOption]:
    """Yield options that only move bytes for a node whose tensors all have one other type.

    Args:
        options: of the node, on float32 tensors.
        context: of the node.
    """
    node = context.node
    moves = [name for name in (*node.inputs[:1], *node.outputs) if name]
    dtypes = {context.value(name).dtype.short for name in moves}
    if len(dtypes) != 1:
        return
    (dtype,) = dtypes
    for option in options:
        if isinstance(option, Refusal) or not option.calls or option.fill is not None:
            continue
        calls = [_moved_call(call, dtype) for call in option.calls]
        if all(calls):
            yield replace(option, calls=tuple(call for found in calls for call in found))


def _steps(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    """Yield what computes an operator that is a step of expressions, too: these take any format."""
    yield from _kernels(context)
    node = context.node
    names = {context.value(name).dtype.name for name in (*node.inputs, *node.outputs)}
    if names <= {"bool", "float32"}:
        yield from pointwise_options(context)


FAMILY = Family(
    {op: Offer(_functions) for op in _FUNCTIONS} | {"mod": Offer(_kernels)},
    {KIND: KernelKind({"plain": 0.3})},
    typed={
        **dict.fromkeys((*_OPERATORS, "cast"), _kernels),
        **dict.fromkeys((*COMPARISONS, *CONNECTIVES, "logical_not", "where"), _steps),
        **dict.fromkeys(_FUNCTIONS, _functions),
    },
)
