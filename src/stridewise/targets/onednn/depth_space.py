"""Kernels that move blocks of pixels to channels and back: one strided copy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stridewise.formats import Format, loops
from stridewise.graph import Refusal
from stridewise.ops.depth_space import pixel_block
from stridewise.ops.geometry import canonical_shape
from stridewise.targets.kernels import KernelContext, KernelOption, MemorySpec, input_of, output_of
from stridewise.targets.onednn.family import Family, Offer, refused
from stridewise.targets.walks import copy_call

__all__ = ["FAMILY"]


class _Digit(NamedTuple):
    """One loop of the copy: its extent, and its stride on the deep and on the wide side."""

    extent: int
    deep: int
    wide: int


def _digits(
    deep: tuple[Format, tuple[int, ...]], wide: tuple[Format, tuple[int, ...]], size: int, mode: str
) -> list[_Digit] | None:
    """Return the loops over all elements, or None where a block of channels is cut.

    Args:
        deep: format and shape of the tensor whose channels hold the pixels.
        wide: format and shape of the tensor that has them in its image.
        size: of a block of pixels.
        mode: how the channels count the pixels.
    """
    n, c, h, w = range(4)
    theirs, ours = (
        {(fmt.axes.index(loop.axis), loop.step): loop.stride for loop in loops(fmt, shape)}
        for fmt, shape in (deep, wide)
    )
    lanes = deep[0].multiple(deep[0].axes[c])
    kept, (rows, columns) = wide[1][1], deep[1][2:]
    if lanes > 1 and (mode == "CRD" or kept % lanes):
        return None
    channel, inner = theirs[c, lanes], (kept // lanes if mode == "DCR" else 1)
    pixel, other = inner * channel, (1 if mode == "DCR" else size**2) * channel
    digits = [
        _Digit(deep[1][0], theirs[n, 1], ours[n, 1]),
        _Digit(kept // lanes, other, ours[c, lanes]),
        _Digit(rows, theirs[h, 1], size * ours[h, 1]),
        _Digit(size, size * pixel, ours[h, 1]),
        _Digit(columns, theirs[w, 1], size * ours[w, 1]),
        _Digit(size, pixel, ours[w, 1]),
    ]
    if lanes > 1:
        digits.append(_Digit(lanes, theirs[c, 1], ours[c, 1]))
    return digits


def _kernels(context: KernelContext) -> Iterable[KernelOption | Refusal]:
    node = context.node
    x, y = context.value(node.inputs[0]), context.value(node.outputs[0])
    size, mode = pixel_block(node, x.type)
    to_space = node.op == "depth_to_space"
    results = context.formats(y.name)
    for kind, fmt in context.formats(x.name).items():
        if kind not in results:
            continue
        given = fmt, canonical_shape(x, fmt)
        made = results[kind], canonical_shape(y, results[kind])
        digits = _digits(*((given, made) if to_space else (made, given)), size, mode)
        if digits is None:
            yield refused(node, f"the pixels of a block are no whole blocks of {fmt}")
            continue
        dims, deep, wide = zip(*digits, strict=True)
        source, result = (deep, wide) if to_space else (wide, deep)
        memories = MemorySpec(dims, strides=source), MemorySpec(dims, strides=result)
        call = copy_call((memories[0], 0), (memories[1], 0), input_of(0), output_of())
        yield KernelOption(f"copy, {kind}", (fmt,), (results[kind],), (call,))


FAMILY = Family({"depth_to_space": Offer(_kernels), "space_to_depth": Offer(_kernels)})
