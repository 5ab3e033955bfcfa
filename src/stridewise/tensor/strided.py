"""PyTorch's stride rules as functions of sizes and strides.

A PyTorch tensor does not store its memory format. PyTorch infers it from sizes and strides on
demand. These functions return the results of PyTorch 2.13.0, including those for axes of extent 1
and for empty tensors. Sizes and strides are in PyTorch's order of dimensions (batch, channels,
space). Strides are in elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal, get_args

from stridewise.errors import FormatError
from stridewise.formats import Format
from stridewise.formats.axes import POSITIONAL, canonical

__all__ = [
    "MemoryFormat",
    "contiguous_strides",
    "format_of",
    "is_channels_last_strides",
    "is_contiguous",
    "is_non_overlapping_and_dense",
    "preserved_strides",
    "suggest_memory_format",
]

MemoryFormat = Literal["contiguous_format", "channels_last", "channels_last_3d"]
"""PyTorch's names. :func:`preserved_strides` implements ``preserve_format``."""

_CHANNELS_LAST: tuple[MemoryFormat, ...] = ("channels_last", "channels_last_3d")
_RANKS: dict[MemoryFormat, int] = {"channels_last": 4, "channels_last_3d": 5}


def _checked(sizes: Sequence[int], strides: Sequence[int]) -> None:
    if len(sizes) != len(strides) or any(size < 0 for size in sizes):
        raise FormatError.at(
            "strides",
            expected="as many strides as sizes, and sizes of 0 or more",
            found=f"sizes {tuple(sizes)}, strides {tuple(strides)}",
        )


def _inner_first(rank: int, memory_format: MemoryFormat) -> tuple[int, ...] | None:
    """Return the dimensions from innermost to outermost; None if the rank does not fit.

    c10/core/MemoryFormat.h also defines channels-last strides of one rank less (no batch), but no
    function of the Python API accepts them: "will be enabled once it is fully tested".

    Raises:
        FormatError: the memory format is unknown.
    """
    if memory_format not in get_args(MemoryFormat):
        raise FormatError.at(
            "memory format",
            expected=f"one of {', '.join(get_args(MemoryFormat))}",
            found=repr(memory_format),
        )
    if memory_format == "contiguous_format":
        return tuple(reversed(range(rank)))
    if rank != _RANKS[memory_format]:
        return None
    return (1, *range(rank - 1, 1, -1), 0)


def contiguous_strides(
    sizes: Sequence[int], memory_format: MemoryFormat = "contiguous_format"
) -> tuple[int, ...]:
    """Return the strides of a new tensor: ``torch.empty(sizes, memory_format=...).stride()``.

    Raises:
        FormatError: a size is negative, or the rank for channels-last is not 4 (3d: 5).

    >>> contiguous_strides((2, 3, 4, 5)), contiguous_strides((2, 3, 4, 5), "channels_last")
    ((60, 20, 5, 1), (60, 1, 15, 3))
    """
    _checked(sizes, sizes)
    walk = _inner_first(len(sizes), memory_format)
    if walk is None:
        raise FormatError.at(
            memory_format,
            expected=f"a tensor of rank {_RANKS[memory_format]}",
            found=f"sizes {tuple(sizes)}",
        )
    found = [0] * len(sizes)
    step = 1
    for axis in walk:
        found[axis] = step
        # TensorImpl::empty_tensor_restride (c10/core/TensorImpl.h) counts an empty dimension as 1;
        # get_channels_last_strides_2d and _3d (c10/core/MemoryFormat.h) multiply by 0.
        step *= max(sizes[axis], 1) if memory_format == "contiguous_format" else sizes[axis]
    return tuple(found)


def is_contiguous(
    sizes: Sequence[int],
    strides: Sequence[int],
    memory_format: MemoryFormat = "contiguous_format",
) -> bool:
    """Return the result of ``Tensor.is_contiguous(memory_format=...)``.

    Strides of dimensions of size 1 are ignored. An empty tensor is always contiguous, but it is
    channels-last only if its strides are. Other ranks are never channels-last.

    Args:
        sizes: extents of the dimensions.
        strides: strides of the dimensions, in elements.
        memory_format: the memory format to test.

    Raises:
        FormatError: sizes and strides are inconsistent, or the memory format is unknown.

    >>> is_contiguous((1, 3, 1, 1), (3, 1, 1, 1)), is_contiguous((1, 3, 1, 1), (9, 1, 7, 7))
    (True, True)
    """
    _checked(sizes, strides)
    walk = _inner_first(len(sizes), memory_format)
    # _compute_contiguous, _compute_channels_last_contiguous_2d and _3d, c10/core/Contiguity.h
    if walk is None:
        return False
    if memory_format == "contiguous_format" and 0 in sizes:
        return True
    expected = 1
    for axis in walk:
        if sizes[axis] != 1:
            if strides[axis] != expected:
                return False
            expected *= sizes[axis]
    return True


def is_channels_last_strides(
    sizes: Sequence[int],
    strides: Sequence[int],
    memory_format: MemoryFormat = "channels_last",
) -> bool:
    """Return whether strides are channels-last by PyTorch's heuristic.

    The strides must not decrease from C over W and H to N, including dimensions of size 1. Gaps are
    allowed. Empty tensors, tensors with expanded channels, and tensors whose strides are all equal
    are not channels-last.

    Args:
        sizes: extents of the dimensions.
        strides: strides of the dimensions, in elements.
        memory_format: ``"channels_last"`` or ``"channels_last_3d"``.

    Raises:
        FormatError: sizes and strides are inconsistent, or the memory format is not channels-last.

    >>> is_channels_last_strides((2, 3, 1, 1), (3, 1, 3, 3))
    True
    >>> is_channels_last_strides((2, 3, 1, 1), (3, 1, 1, 1))
    False
    """
    _checked(sizes, strides)
    if memory_format not in _CHANNELS_LAST:
        raise FormatError.at(
            "memory format",
            expected=f"one of {', '.join(_CHANNELS_LAST)}",
            found=repr(memory_format),
        )
    walk = _inner_first(len(sizes), memory_format)
    # is_channels_last_strides_2d_s4 and _3d_s5, c10/core/MemoryFormat.h, with the note [Ambiguous
    # is_channels_last_strides_xd] there: N111 with equal strides counts as contiguous.
    if walk is None or strides[1] == 0 or 0 in sizes:
        return False
    least = 0
    for axis in walk:
        if strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * sizes[axis]
    return True


def suggest_memory_format(sizes: Sequence[int], strides: Sequence[int]) -> MemoryFormat:
    """Return the memory format in which most operators write the result of such an operand.

    Raises:
        FormatError: sizes and strides do not belong together.

    >>> suggest_memory_format((8, 3, 32, 32), (3072, 1, 96, 3))
    'channels_last'
    """
    _checked(sizes, strides)
    # TensorBase::suggest_memory_format, aten/src/ATen/core/TensorBase.h
    for memory_format in _CHANNELS_LAST:
        if is_channels_last_strides(sizes, strides, memory_format):
            return memory_format
    return "contiguous_format"


def is_non_overlapping_and_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether some order of the dimensions makes the tensor contiguous.

    Raises:
        FormatError: sizes and strides do not belong together.

    >>> is_non_overlapping_and_dense((2, 3), (1, 2)), is_non_overlapping_and_dense((2, 3), (4, 1))
    (True, False)
    """
    _checked(sizes, strides)
    # _compute_non_overlapping_and_dense, c10/core/Contiguity.h. TensorImpl asks for contiguity
    # first, so that every empty tensor is dense.
    if 0 in sizes:
        return True
    expected = 1
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _stride_order(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions from innermost to outermost, as PyTorch infers them.

    This is an insertion sort from the last dimension on. A dimension with a stride of 0 is not
    compared with others, and others move past it.
    """
    order = list(reversed(range(len(sizes))))
    for last in range(1, len(order)):
        here = last
        for there in range(last - 1, -1, -1):
            # Larger strides move outward; of equal strides, the larger size does.
            a, b = ((strides[axis], sizes[axis]) for axis in (order[there], order[here]))
            if 0 in (a[0], b[0]):
                continue
            if a[0] < b[0]:
                break
            if a > b:
                order[there], order[here] = order[here], order[there]
                here = there
    return tuple(order)


def preserved_strides(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return ``torch.empty_like(t).stride()``: the same strides if dense, else the same order.

    This is the behavior of ``preserve_format`` for tensors in memory. Tensors on the device
    ``meta`` get other strides for dimensions of size 1.

    Raises:
        FormatError: sizes and strides do not belong together.

    >>> preserved_strides((2, 3, 4), (24, 1, 6))
    (12, 1, 3)
    """
    _checked(sizes, strides)
    if is_non_overlapping_and_dense(sizes, strides):
        return tuple(strides)
    # infer_dense_strides, aten/src/ATen/ExpandUtils.cpp
    found = [0] * len(sizes)
    step = 1
    for axis in _stride_order(sizes, strides):
        found[axis] = step
        step *= max(sizes[axis], 1)
    return tuple(found)


def format_of(
    sizes: Sequence[int], strides: Sequence[int], axes: str | Sequence[str] | None = None
) -> Format:
    """Return the plain format of a dense tensor.

    Dimensions of size 1 make the result ambiguous. It is resolved as in PyTorch: channels-last if
    :func:`suggest_memory_format` returns it, else the order of the dimensions if that is
    contiguous, else channels-last if that is contiguous, else dimensions by their strides.

    Args:
        sizes: extents of the dimensions.
        strides: their strides, in elements.
        axes: the names of the dimensions, as in ``"NCHW"``; by default ``a``, ``b``, ``c``, ...

    Raises:
        FormatError: strides are negative, elements overlap or have gaps between them, or the
            lengths differ.

    >>> format_of((2, 3, 4, 5), (60, 1, 15, 3), "NCHW").name
    'NHWC'
    >>> format_of((2, 3, 1, 1), (3, 1, 1, 1), "NCHW").name
    'NCHW'
    >>> format_of((2, 3, 1, 1), (3, 1, 3, 3), "NCHW").name
    'NHWC'
    """
    _checked(sizes, strides)
    rank = len(sizes)
    names = tuple(POSITIONAL[:rank]) if axes is None else tuple(axes)
    if len(names) != rank or len(set(names)) != rank:
        raise FormatError.at(
            "strides", expected=f"{rank} axes with distinct names", found=f"axes {', '.join(names)}"
        )
    why = "" if 0 in sizes else _why_not_dense(sizes, strides)
    if why:
        raise FormatError.at(
            f"strides {tuple(strides)} of sizes {tuple(sizes)}",
            expected=f"strides of a dense tensor of {prod(sizes)} elements",
            found=why,
            fix="make the tensor contiguous first",
        )
    order = tuple(names[axis] for axis in _dense_order(sizes, strides))
    return Format(canonical(names) or names, order)


def _dense_order(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions of a dense tensor, outermost first."""
    candidates: tuple[MemoryFormat, ...] = (
        suggest_memory_format(sizes, strides),
        "contiguous_format",
        *_CHANNELS_LAST,
    )
    for memory_format in candidates:
        walk = _inner_first(len(sizes), memory_format)
        if walk is not None and is_contiguous(sizes, strides, memory_format):
            return walk[::-1]
    return _stride_order(sizes, strides)[::-1]


def _why_not_dense(sizes: Sequence[int], strides: Sequence[int]) -> str:
    """Return the reason why a tensor is not dense; "" if it is dense."""
    span, gaps = 1, ""
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size == 1:
            continue
        if stride < 0:
            return "a negative stride"
        if stride == 0:
            return f"{size} elements in one place (a stride of 0)"
        if stride < span:
            return "axes that overlap or interleave"
        if stride > span:
            gaps = "gaps between elements"
        span += stride * (size - 1)
    return gaps
