"""The core's kernels for reductions, softmax and normalizations over any axes, in any format.

The families of these operators offer them beside what the library has.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from stridewise.formats import Format, nd
from stridewise.ops.geometry import canonical_shape, positions, row_major, user_format
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
from stridewise.targets.onednn.family import Family, KernelKind
from stridewise.targets.onednn.memory import memory_of, plain_memory, storage_of

__all__ = [
    "FAMILY",
    "Parameters",
    "normalization",
    "reductions",
    "rows",
    "softmax_options",
]

_LETTERS = "abcdefghijkl"
"""Names of axes in tags."""
_IMAGE_AXES = 4
_LONGEST = 4096
"""Elements of the longest rows that have a kernel of their own (``row_kernels.hpp``)."""

Parameters = tuple[tuple[str, MemorySpec, Arg], ...]
"""Scale and shift of a normalization: role, memory and argument."""


def reductions(
    context: KernelContext, algorithm: str, axes: tuple[int, ...]
) -> Iterator[KernelOption]:
    """Yield the ways to reduce some axes of input 0, of which the result keeps ones or nothing.

    Args:
        context: of the node.
        algorithm: one of those of the kernel.
        axes: what is reduced, in the user's order.
    """
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    own = (user_format(x), user_format(y))
    pairs = {"user": own}
    if x.origin is not None and x.origin == y.origin:
        results = context.formats(y.name)
        sources = context.formats(x.name)
        pairs = {kind: (fmt, results[kind]) for kind, fmt in sources.items() if kind in results}
    elif x.origin is not None:
        # Without the names of axes, only in the user's order means the result the same.
        pairs |= {kind: (fmt, own[1]) for kind, fmt in context.formats(x.name).items()}
    for kind, (fmt, result) in pairs.items():
        if kind == "user" or (fmt, result) != own or "user" not in pairs:
            yield _reduction(context, algorithm, axes, fmt, result, f"reduction, {kind}")


def _reduction(
    context: KernelContext,
    algorithm: str,
    axes: tuple[int, ...],
    fmt: Format,
    result: Format,
    name: str,
) -> KernelOption:
    x, y = (context.value(n) for n in (context.node.inputs[0], context.node.outputs[0]))
    order = positions(x, fmt)
    shape = tuple(x.shape[axis] for axis in order)
    if fmt.axes == result.axes and x.origin == y.origin and len(x.shape) == len(y.shape):
        place = memory_of(result, canonical_shape(y, result))
    else:
        # The result has the user's order, and lacks the axes or has ones in their place.
        kept = [axis for axis in range(len(x.shape)) if axis not in axes]
        strides = dict(zip(kept, row_major(tuple(x.shape[axis] for axis in kept)), strict=True))
        left = tuple(1 if axis in axes else x.shape[axis] for axis in order)
        place = MemorySpec(left, strides=tuple(strides.get(axis, 1) for axis in order))
    source = memory_of(fmt, shape) if x.origin is not None else plain_memory(shape)
    spec = KernelSpec(
        "reduction",
        (("src", source), ("dst", place)),
        (("algorithm", algorithm),),
        flops=float(prod(shape)),
    )
    args = (Arg("src", input_of(0)), Arg("dst", output_of()))
    return KernelOption(name, (fmt,), (result,), (Call(spec, args),))


def normalization(
    algorithm: str,
    memory: MemorySpec,
    axes: frozenset[int],
    parameters: Parameters = (),
    epsilon: float = 0.0,
) -> Call:
    """Return the call that normalizes a tensor over some axes of its memory.

    Args:
        algorithm: ``"softmax"``, ``"log_softmax"`` or ``"norm"``.
        memory: of input 0 and of the output.
        axes: positions among the dimensions of the memory.
        parameters: scale and shift.
        epsilon: what a norm adds to the variance.
    """
    statistics = tuple(1 if axis in axes else extent for axis, extent in enumerate(memory.dims))
    spec = KernelSpec(
        _kind(algorithm, memory, axes),
        (("src", memory), *((role, found) for role, found, _ in parameters), ("dst", memory)),
        (("algorithm", algorithm), ("epsilon", epsilon), ("statistics", statistics)),
        flops=(16.0 if "softmax" in algorithm else 8.0) * prod(memory.dims),
    )
    args = (Arg("src", input_of(0)), *(arg for _, _, arg in parameters), Arg("dst", output_of()))
    return Call(spec, args)


def _kind(algorithm: str, memory: MemorySpec, axes: frozenset[int]) -> str:
    """Return the kind of a normalization: kernels of rows, and of rows side by side, are faster."""
    tag, gone = memory.tag, [axis for axis in axes if memory.dims[axis] > 1]
    is_plain = tag.isalpha() and tag.islower() and len(tag) == len(memory.dims)
    length = prod(memory.dims[axis] for axis in gone)
    if not is_plain or not gone or length > _LONGEST:
        return "normalization"
    order = [axis for axis in map(_LETTERS.index, tag) if memory.dims[axis] > 1]
    first = min(map(order.index, gone))
    if set(order[first : first + len(gone)]) != set(gone):
        return "normalization"
    if first + len(gone) == len(order):
        return "normalized_rows"
    return "normalization" if algorithm == "norm" else "normalized_columns"


def softmax_options(
    context: KernelContext, formats: Iterator[tuple[Format, Format, MemorySpec]], axis: int
) -> Iterator[KernelOption]:
    """Yield softmax or its logarithm over an axis in the user's order.

    Args:
        context: of the node.
        formats: of the source and the result, with the memory of both.
        axis: what the sum of all powers is over.
    """
    x, y = (context.value(n) for n in (context.node.inputs[0], context.node.outputs[0]))
    for fmt, result, memory in formats:
        named = x.origin is not None and x.origin == y.origin
        position = positions(x, fmt).index(axis) if named else axis
        call = normalization(context.node.op, memory, frozenset({position}))
        yield KernelOption("own softmax", (fmt,), (result,), (call,), (Alias(0, 0, 0, "in place"),))


def rows(
    context: KernelContext, shape: tuple[int, ...], order: tuple[int, ...], own: tuple[int, ...]
) -> tuple[Parameters, tuple[Format | None, ...]]:
    """Return scale and shift, inputs 1 and 2, as operands that are broadcast to a memory.

    Args:
        context: of the node.
        shape: that of the parameters with ones for the other axes, in the user's order.
        order: the user's position of each dimension of the memory.
        own: the shape of the parameters themselves, whose axes come in the same order.
    """
    found: list[tuple[str, MemorySpec, Arg]] = []
    formats: list[Format | None] = []
    for index, name in enumerate(context.node.inputs[1:], start=1):
        role = ("", "scale", "shift")[index]
        fixed = not name or context.is_constant(name)
        formats.append(None if fixed else nd(len(own)))
        dims, strides = tuple(shape[axis] for axis in order), row_major(shape)
        if not name:
            continue
        if fixed:
            arg = Arg(role, input_of(index), reshape=shape, permute=order)
            found.append((role, plain_memory(dims), arg))
        else:
            memory = MemorySpec(dims, strides=tuple(strides[axis] for axis in order))
            found.append((role, memory, Arg(role, input_of(index))))
    return tuple(found), tuple(formats)


_OVER_CHANNELS = {"blocked": 0.083, "plain": 0.28}
"""Part of the rate of other norms that those of each pixel over its channels reach, where these are
apart in memory. Measured on Zen 4, for 32 to 384 channels."""


def _share(spec: KernelSpec) -> float:
    dst, statistics = spec.memory("dst"), dict(spec.params).get("statistics")
    if dst is None or not isinstance(statistics, tuple) or len(dst.dims) < _IMAGE_AXES:
        return 1.0
    is_each_pixel = statistics[1] == 1 and statistics[2:] == dst.dims[2:]
    return _OVER_CHANNELS.get(storage_of(dst), 1.0) if is_each_pixel else 1.0


_RESULT, _LINE = 10, 90
"""Elements in whose time a reduction finishes a result, beside others and of a line of its own
(measured on Zen 4)."""


def _reduced_share(spec: KernelSpec) -> float:
    """Return the part of the time that elements take: results are finished one by one."""
    src, dst = spec.memory("src"), spec.memory("dst")
    if src is None or dst is None or not src.dims:
        return 1.0
    terms = prod(src.dims) // max(1, prod(dst.dims))
    innermost = 1 if storage_of(src) == "channels-last" else -1
    is_line = src.dims[innermost] > 1 and dst.dims[innermost] == 1
    return terms / (terms + (_LINE if is_line else _RESULT))


FAMILY = Family(
    {},
    {
        "reduction": KernelKind(
            {"plain": 0.30, "channels-last": 0.30, "blocked": 0.30}, share=_reduced_share
        ),
        "normalization": KernelKind(
            {"plain": 0.33, "channels-last": 0.45, "blocked": 0.45}, share=_share
        ),
        "normalized_columns": KernelKind({"plain": 0.30, "channels-last": 0.30}),
        "normalized_rows": KernelKind({"plain": 0.30, "channels-last": 0.30}),
    },
)
