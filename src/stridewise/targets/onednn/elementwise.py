"""Kernels of elementwise operators of two operands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from stridewise.formats import Format
from stridewise.graph import Refusal, Value
from stridewise.ops.geometry import canonical_shape, row_major, user_format
from stridewise.targets.kernels import (
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
from stridewise.targets.onednn.family import Family, KernelKind, Offer, other_than_float32
from stridewise.targets.onednn.memory import memory_of, plain_memory
from stridewise.targets.onednn.post_ops import BINARY_ALGORITHMS

__all__ = ["FAMILY"]


_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})


def _aligned(operand: Value, result: Value) -> tuple[int, ...]:
    """Return the operand's shape with leading ones, in the user's order of the result."""
    return (1,) * (len(result.shape) - len(operand.shape)) + operand.shape


def _permutation(result: Value, fmt: Format) -> tuple[int, ...]:
    """Return the positions of ``fmt``'s axes in the user's order of the result."""
    if result.origin is None:
        return tuple(range(fmt.rank))
    return tuple(result.origin.order.index(axis) for axis in fmt.axes)


def _bind(
    context: KernelContext, role: str, index: int, kind: str, fmt: Format
) -> tuple[MemorySpec, Arg, Format | None] | None:
    """Describe operand ``index`` beside a result stored in ``fmt``; None where it cannot be."""
    operand = context.value(context.node.inputs[index])
    result = context.value(context.node.outputs[0])
    order = _permutation(result, fmt)
    aligned = _aligned(operand, result)
    dims = tuple(aligned[position] for position in order)
    arg = Arg(role, input_of(index))
    if context.is_constant(operand.name):
        # A lone channel row takes the blocked tag too: oneDNN is fast only then.
        memory = memory_of(fmt, dims) if prod(dims) > 1 else plain_memory(dims)
        return memory, Arg(role, input_of(index), reshape=aligned, permute=order), None
    if operand.origin == result.origin and len(operand.shape) == len(result.shape):
        stored = context.formats(operand.name).get(kind)
        if kind == "user":
            stored = user_format(operand)
        if stored is None:
            return None
        return memory_of(stored, canonical_shape(operand, stored)), arg, stored
    strides = row_major(aligned)
    memory = MemorySpec(dims, strides=tuple(strides[position] for position in order))
    return memory, arg, user_format(operand)


def _result_formats(context: KernelContext) -> Iterator[tuple[str, Format]]:
    result = context.value(context.node.outputs[0])
    same_rank = [
        value
        for value in map(context.value, context.node.inputs)
        if len(value.shape) == len(result.shape) and not context.is_constant(value.name)
    ]
    if all(value.origin == result.origin for value in same_rank):
        yield from context.formats(result.name).items()
    else:
        # The operands' axes disagree: only the user's own order means the same to both.
        yield "user", user_format(result)


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    refusal = other_than_float32(context)
    if refusal is not None:
        yield refusal
        return
    result = context.value(node.outputs[0])
    first, second = 0, 1
    if node.op in _COMMUTATIVE and context.value(node.inputs[0]).shape != result.shape:
        # oneDNN broadcasts its second operand fast and its first one slowly.
        first, second = 1, 0
    for kind, fmt in _result_formats(context):
        left = _bind(context, "src", first, kind, fmt)
        right = _bind(context, "src1", second, kind, fmt)
        if left is None or right is None:
            continue
        dst = memory_of(fmt, canonical_shape(result, fmt))
        memories = (("src", left[0]), ("src1", right[0]), ("dst", dst))
        formats = (left[2], right[2]) if first == 0 else (right[2], left[2])
        reuse = left[2] == fmt and context.value(node.inputs[first]).shape == result.shape
        for primitive in ("binary", "pointwise") if _is_own(memories, fmt) else ("binary",):
            spec = KernelSpec(
                primitive,
                memories,
                (("algorithm", BINARY_ALGORITHMS[node.op]),),
                flops=float(prod(result.shape)),
            )
            yield KernelOption(
                f"elementwise, {kind}" if primitive == "binary" else f"pointwise, {kind}",
                formats,
                (fmt,),
                (Call(spec, (left[1], right[1], Arg("dst", output_of()))),),
                (Alias(first, 0, 0, "in place"),) if reuse else (),
            )


def _is_own(memories: tuple[tuple[str, MemorySpec], ...], fmt: Format) -> bool:
    """Return whether the core's own kernels are offered: with broadcasts, and without padding."""
    (_, first), (_, second), (_, dst) = memories
    is_padded = any(dst.dims[fmt.axes.index(block.axis)] % block.size for block in fmt.blocks)
    return not is_padded and (first.dims != dst.dims or second.dims != dst.dims)


def _is_naive(spec: KernelSpec, storage: str, dst: MemorySpec) -> bool:
    """Return whether an operand in blocks is broadcast, or one along axes without a jit kernel.

    The first operand is never broadcast fast. The second one is where it is a scalar, a row of
    channels (for each item or for all), one image for all items or for all channels, or a line.
    """
    first, other = spec.memory("src"), spec.memory("src1")
    if first is None or other is None or first.dims == other.dims == dst.dims:
        return False
    rank = len(dst.dims)
    kept = frozenset(axis for axis in range(rank) if other.dims[axis] == dst.dims[axis] != 1)
    long = frozenset(axis for axis in range(rank) if dst.dims[axis] != 1)
    inner = range(2, rank)
    fast = ((), (1,), (0, 1), (1, *inner), (rank - 1,), (0, *inner), range(rank))
    return (
        storage == "blocked"
        or first.dims != dst.dims
        or all(kept != long.intersection(axes) for axes in fast)
    )


FAMILY = Family(
    {op: Offer(_kernels) for op in BINARY_ALGORITHMS},
    {"binary": KernelKind(is_naive=_is_naive), "pointwise": KernelKind()},
)
