"""Kernels of group normalization.

The library has a batch norm that computes statistics of its own source; here it sees one image, or
each group as a channel. The core's kernels see channels as three axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.formats import Format, nd
from stridewise.graph import Refusal, Value
from stridewise.ops.geometry import canonical_shape, storage_shape
from stridewise.ops.group_norm import EPSILON
from stridewise.targets.kernels import (
    Alias,
    Arg,
    Call,
    KernelContext,
    KernelOption,
    KernelSpec,
    MemorySpec,
    Operand,
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
from stridewise.targets.onednn.memory import memory_of, plain_memory, storage_of
from stridewise.targets.onednn.reductions import normalization, rows

__all__ = ["FAMILY"]


_MOST_AXES = 10
"""Two less than kernels take, as channels become three axes."""

_NEUTRAL = {"scale": 1, "shift": 0}


def _affine(context: KernelContext) -> tuple[tuple[Arg, ...], list[Format | None]]:
    """Return scale and shift, neutral ones for one that is absent; nothing where both are."""
    node = context.node
    formats: list[Format | None] = []
    args: list[Arg] = []
    for index, role in enumerate(_NEUTRAL, start=1):
        name = node.inputs[index] if index < len(node.inputs) else ""
        args.append(Arg(role, input_of(index) if name else Operand("fill", _NEUTRAL[role])))
        if index < len(node.inputs):
            formats.append(None if not name or context.is_constant(name) else nd(1))
    return (tuple(args) if any(node.inputs[1:]) else ()), formats


def _norm_spec(
    memory: MemorySpec, channels: MemorySpec | None, epsilon: float, elements: int
) -> KernelSpec:
    """Return the batch norm of one image, with a scale and a shift a channel if there are any."""
    affine = () if channels is None else (("scale", channels), ("shift", channels))
    return KernelSpec(
        "batch_norm",
        (("src", memory), *affine, ("dst", memory)),
        (("epsilon", epsilon),),
        flops=8.0 * elements,
    )


def _by_image(x: Value, fmt: Format, epsilon: float, affine: tuple[Arg, ...]) -> tuple[Call, ...]:
    """Return one batch norm an image: every channel is a group."""
    batch, channels, *spatial = canonical_shape(x, fmt)
    step = prod(storage_shape(x, fmt)) // batch
    memory = memory_of(fmt, (1, channels, *spatial))
    row = MemorySpec((channels,), "a") if affine else None
    spec = _norm_spec(memory, row, epsilon, prod(x.shape) // batch)
    return tuple(
        Call(
            spec,
            (
                Arg("src", input_of(0), image * step),
                *affine,
                Arg("dst", output_of(), image * step),
            ),
        )
        for image in range(batch)
    )


def _by_group(
    x: Value, fmt: Format, groups: int, epsilon: float, affine: tuple[Arg, ...]
) -> tuple[Call, ...]:
    """Return a batch norm whose channels are the groups of all images, then scale and shift."""
    shape = canonical_shape(x, fmt)
    count = shape[0] * groups
    memory = plain_memory((1, count, prod(shape) // count))
    spec = _norm_spec(memory, None, epsilon, prod(shape))
    calls = [Call(spec, (Arg("src", input_of(0)), Arg("dst", output_of())))]
    if affine:
        calls.append(_scale_shift(memory_of(fmt, shape), affine))
    return tuple(calls)


def _scale_shift(memory: MemorySpec, affine: tuple[Arg, ...]) -> Call:
    """Return the scale and shift of the output in its own place."""
    row = MemorySpec(memory.dims[1:2], "a")
    roles = ("mean", "variance", "scale", "shift")
    spec = KernelSpec(
        "scale_shift",
        (("src", memory), *((role, row) for role in roles), ("dst", memory)),
        (("relu", 0),),
        flops=2.0 * prod(memory.dims),
    )
    zeros = (Arg("mean", Operand("fill", 0)), Arg("variance", Operand("fill", 0)))
    return Call(spec, (Arg("src", output_of()), *zeros, *affine, Arg("dst", output_of())))


def _is_contiguous(fmt: Format, groups: int, channels: int) -> bool:
    """Return whether the elements of each group lie side by side, without spare lanes."""
    batch, channel = fmt.axes[:2]
    if fmt.order[0] != batch or channels // groups % fmt.multiple(channel):
        return False
    return groups == 1 or fmt.order[1] == channel


def _grouped(fmt: Format, shape: tuple[int, ...], groups: int) -> MemorySpec | None:
    """Return images whose channels are groups, blocks of a group, and channels of a block.

    None where a block has channels of several groups.
    """
    batch, channels, *spatial = shape
    block = fmt.multiple(fmt.axes[1])
    if channels // groups % block:
        return None
    names = dict(zip(fmt.axes, ("a", "bc", *"efghijkl"), strict=False))
    tag = "".join(names[axis] for axis in fmt.order)
    # In blocks, channels of one are innermost; else they are the next axis.
    tag = f"{tag}d" if block > 1 else tag.replace("bc", "bcd")
    dims = (batch, groups, channels // groups // block, block, *spatial)
    return MemorySpec(dims, tag)


def _own(context: KernelContext, kind: str, fmt: Format, result: Format) -> Iterable[KernelOption]:
    node = context.node
    x = context.value(node.inputs[0])
    groups, shape = node.int_attr("groups"), canonical_shape(x, fmt)
    channels, rank = shape[1], len(shape)
    if groups in (1, channels):
        memory, own = memory_of(fmt, shape), (1, channels, *(1,) * (rank - 2))
        gone = frozenset(range(1 if groups == 1 else 2, rank))
    else:
        found = _grouped(fmt, shape, groups)
        if found is None:
            return
        memory, own = found, (1, *found.dims[1:4], *(1,) * (rank - 2))
        gone = frozenset(range(2, rank + 2))
    parameters, formats = rows(context, own, tuple(range(len(own))), (channels,))
    call = normalization("norm", memory, gone, parameters, node.float_attr("epsilon", EPSILON))
    yield KernelOption(
        f"own norm of groups, {kind}",
        (fmt, *formats),
        (result,),
        (call,),
        (Alias(0, 0, 0, "in place"),),
    )


@float32_only
def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, has_own = context.value(node.inputs[0]), False
    if len(x.shape) <= _MOST_AXES:
        results = context.formats(node.outputs[0])
        for kind, fmt in context.formats(x.name).items():
            if kind in results:
                for option in _own(context, kind, fmt, results[kind]):
                    has_own = True
                    yield option
    if not has_own or prod(x.shape[1:]) // node.int_attr("groups") <= MOST_SUMMED:
        yield from _by_library(context)


def _by_library(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    groups, epsilon = node.int_attr("groups"), node.float_attr("epsilon", EPSILON)
    channels = x.shape[1]
    if not 3 <= len(x.shape) <= 5 or epsilon <= 0:
        yield refused(node, "no image of 1 to 3 spatial axes, or no epsilon")
        return
    affine, formats = _affine(context)
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind not in results:
            continue
        if groups == channels and fmt.order[0] == fmt.axes[0]:
            calls = _by_image(x, fmt, epsilon, affine)
        elif _is_contiguous(fmt, groups, channels):
            calls = _by_group(x, fmt, groups, epsilon, affine)
        else:
            yield refused(node, f"{fmt}: the elements of a group of channels are not contiguous")
            continue
        aliases = (Alias(0, 0, 0, "in place"),) if len(calls) == 1 else ()
        yield KernelOption(
            f"batch norm of groups, {kind}", (fmt, *formats), (results[kind],), calls, aliases
        )


_LANES = 16
"""Float32 numbers of the longest vector."""


def _share(spec: KernelSpec) -> float:
    """Return the part of the lanes that hold channels, where a vector holds those of one pixel."""
    dst = spec.memory("dst")
    if dst is None or storage_of(dst) != "channels-last":
        return 1.0
    channels = dst.dims[1]
    return channels / (-(-channels // _LANES) * _LANES)


FAMILY = Family(
    {"group_norm": Offer(_kernels)},
    {
        "batch_norm": KernelKind(
            {"plain": 0.10, "channels-last": 0.30, "blocked": 0.35}, share=_share
        )
    },
)
