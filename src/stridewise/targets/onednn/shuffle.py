"""Kernels of channel shuffle."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.formats import Format
from stridewise.graph import Refusal
from stridewise.ops.geometry import canonical_shape, row_major
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
from stridewise.targets.onednn.family import Family, KernelKind, Offer
from stridewise.targets.onednn.memory import memory_of
from stridewise.targets.walks import copy_call

__all__ = ["FAMILY"]


def _strided(fmt: Format, shape: tuple[int, ...], groups: int) -> tuple[MemorySpec, MemorySpec]:
    """Return source and destination of the transposition, for formats without blocks."""
    stored = tuple(shape[axis] for axis in fmt.permutation)
    channel = fmt.order.index(fmt.axes[1])
    outer, inner = prod(stored[:channel]), prod(stored[channel + 1 :])
    rest = shape[1] // groups
    dims = (outer, rest, groups, inner)
    source = MemorySpec(dims, strides=(groups * rest * inner, inner, rest * inner, 1))
    return source, MemorySpec(dims, strides=row_major(dims))


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    groups = node.int_attr("groups")
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind not in results:
            continue
        shape = canonical_shape(x, fmt)
        if fmt.is_blocked:
            memory = memory_of(fmt, shape)
            # oneDNN's group size is the extent of the inner one of the two transposed axes.
            spec = KernelSpec(
                "shuffle",
                (("src", memory), ("dst", memory)),
                (("axis", 1), ("group_size", shape[1] // groups)),
            )
            call = Call(spec, (Arg("src", input_of(0)), Arg("dst", output_of())))
        else:
            source, result = _strided(fmt, shape, groups)
            call = copy_call((source, 0), (result, 0), input_of(0), output_of())
        yield KernelOption(f"shuffle, {kind}", (fmt,), (results[kind],), (call,))


FAMILY = Family({"channel_shuffle": Offer(_kernels)}, {"shuffle": KernelKind({"blocked": 0.30})})
