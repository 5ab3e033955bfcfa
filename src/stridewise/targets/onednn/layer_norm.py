"""Kernels of layer normalization.

The library normalizes rows, so the axes must be innermost in storage: that is any trailing axis
stored plain, and the channels stored channels-last. The core's kernels take any axes and formats.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.formats import Format, nd
from stridewise.graph import Refusal, Value
from stridewise.ops.geometry import positions, row_major, user_format
from stridewise.ops.layer_norm import EPSILON, normalized_axes
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
from stridewise.targets.onednn.family import (
    MOST_SUMMED,
    Family,
    KernelKind,
    Offer,
    float32_only,
    refused,
)
from stridewise.targets.onednn.memory import elementwise_formats, plain_memory
from stridewise.targets.onednn.reductions import normalization, rows

__all__ = ["FAMILY"]


_VECTOR = 16
"""Elements that the library stores at once. In place, each row whose length is no multiple waits
until the rest of the row before it, stored with a mask, has left the processor: 12544 rows of 24
elements took 221 us instead of 52 (two threads of Zen 5)."""
_ROLES = {1: "scale", 2: "shift"}
"""The parameters, by the input that has them."""


def _rows(x: Value, axes: tuple[int, ...], fmt: Format) -> MemorySpec | None:
    """Return a stored tensor as one whose last axis is normalized, None where that cannot be."""
    if fmt.is_blocked:
        return None
    names = user_format(x).order
    extents = dict(zip(names, x.shape, strict=True))
    stored = [axis for axis in fmt.order if extents[axis] > 1]
    wanted = [names[axis] for axis in axes if x.shape[axis] > 1]
    length = prod(extents[axis] for axis in wanted)
    if stored[len(stored) - len(wanted) :] == wanted:
        return plain_memory((prod(x.shape) // length, length))
    if len(wanted) > 1:
        return None
    strides = dict(zip(fmt.order, row_major(tuple(extents[a] for a in fmt.order)), strict=True))
    order = [*(axis for axis in stored if axis not in wanted), *wanted]
    dims = tuple(extents[axis] for axis in order)
    return MemorySpec(dims, strides=tuple(strides[axis] for axis in order))


def _parameters(
    context: KernelContext, length: int
) -> tuple[list[tuple[str, MemorySpec]], list[Arg], list[Format | None]]:
    memories: list[tuple[str, MemorySpec]] = []
    args: list[Arg] = []
    formats: list[Format | None] = []
    for index, name in enumerate(context.node.inputs[1:], start=1):
        formats.append(None)
        if not name:
            continue
        memories.append((_ROLES[index], MemorySpec((length,), "a")))
        if context.is_constant(name):
            args.append(Arg(_ROLES[index], input_of(index), reshape=(length,)))
        else:
            args.append(Arg(_ROLES[index], input_of(index)))
            formats[-1] = nd(len(context.value(name).shape))
    return memories, args, formats


def _own(context: KernelContext, axes: tuple[int, ...]) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    if list(axes) != sorted(axes) and any(node.inputs[1:]):
        yield refused(node, "the parameters have another order of axes")
        return
    own = tuple(x.shape[axis] for axis in axes)
    shape = tuple(extent if axis in axes else 1 for axis, extent in enumerate(x.shape))
    for fmt, result, memory in elementwise_formats(context, x, y):
        named = x.origin is not None and x.origin == y.origin
        order = positions(x, fmt) if named else tuple(range(len(x.shape)))
        parameters, formats = rows(context, shape, order, own)
        gone = frozenset(order.index(axis) for axis in axes)
        epsilon = node.float_attr("epsilon", EPSILON)
        yield KernelOption(
            "own layer norm",
            (fmt, *formats),
            (result,),
            (normalization("norm", memory, gone, parameters, epsilon),),
            (Alias(0, 0, 0, "in place"),),
        )


@float32_only
def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    axes = normalized_axes(node, len(x.shape))
    length = prod(x.shape[axis] for axis in axes)
    own = tuple(_own(context, axes))
    yield from own
    if length > MOST_SUMMED and any(isinstance(option, KernelOption) for option in own):
        return
    memories, args, formats = _parameters(context, length)
    for fmt, result, _ in elementwise_formats(context, x, y):
        rows = _rows(x, axes, fmt)
        if rows is None:
            yield refused(node, f"{fmt}: the normalized axes are not innermost")
            continue
        spec = KernelSpec(
            "layer_norm",
            (("src", rows), *memories, ("dst", rows)),
            (("epsilon", node.float_attr("epsilon", EPSILON)),),
            flops=8.0 * prod(x.shape),
        )
        yield KernelOption(
            "layer norm" if rows.strides is None else "layer norm, strided",
            (fmt, *formats),
            (result,),
            (Call(spec, (Arg("src", input_of(0)), *args, Arg("dst", output_of()))),),
            (Alias(0, 0, 0, "in place"),) if rows.dims[-1] % _VECTOR == 0 else (),
        )


def _is_naive(_spec: KernelSpec, _storage: str, dst: MemorySpec) -> bool:
    """Return whether the memory is given by strides."""
    return dst.strides is not None


FAMILY = Family(
    {"layer_norm": Offer(_kernels)}, {"layer_norm": KernelKind({"plain": 0.40}, _is_naive)}
)
