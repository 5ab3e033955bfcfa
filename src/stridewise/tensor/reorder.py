"""The definition of a reorder: two checked descriptions of one tensor, and a NumPy reference.

A reorder changes the Storage of a tensor and not its values. The fast implementation is
:mod:`stridewise.runtime.reorder.reorder`. It is tested against the reference in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import DType, dtype_of
from stridewise.errors import FormatError
from stridewise.formats import Block, Format, Pitch, algebra
from stridewise.tensor.desc import TensorDesc
from stridewise.tensor.quantization import (
    CONVERTIBLE,
    RANGES,
    Quantization,
    Scales,
    convert,
    scales_of,
)

__all__ = [
    "Endpoint",
    "check_pair",
    "conversion_scales",
    "logical_shape",
    "pair",
    "reference_reorder",
]

Endpoint = TensorDesc | Format | str
"""One side of a reorder: a full description, or a format if the array determines the rest."""


def logical_shape(fmt: Format, storage: Sequence[int]) -> tuple[int, ...]:
    """Return the canonical shape of the largest tensor that a storage shape can hold.

    Raises:
        FormatError: the shape does not fit the format, or does not determine the logical shape
            (axes are flattened).

    >>> from stridewise.formats import parse
    >>> logical_shape(parse("nChw16c"), (8, 1, 224, 224, 16))
    (8, 16, 224, 224)
    """
    if fmt.steps or any(isinstance(item, Pitch) for item in fmt.digits):
        raise FormatError.at(
            f"format {fmt}",
            expected="a logical shape, which the storage shape does not determine",
            found=f"storage shape {tuple(storage)}",
            fix="give shape= or a TensorDesc",
        )
    sizes = [item.size if isinstance(item, Block) else 0 for item in fmt.digits]
    if len(storage) != len(sizes) or any(
        size not in (0, extent) for size, extent in zip(sizes, storage, strict=True)
    ):
        wanted = [str(item.size) if isinstance(item, Block) else str(item) for item in fmt.digits]
        raise FormatError.at(
            f"array in format {fmt}",
            expected=f"storage shape ({', '.join(wanted)})",
            found=f"{tuple(storage)}",
            fix="pass an array of the storage shape, which TensorDesc computes",
        )
    extents = dict.fromkeys(fmt.axes, 1)
    for item, extent in zip(fmt.digits, storage, strict=True):
        extents[item.axis if isinstance(item, Block) else str(item)] *= extent
    return tuple(extents[axis] for axis in fmt.axes)


def _described(
    given: Endpoint, dtype: DType, storage: Sequence[int], logical: Sequence[int] | None
) -> TensorDesc:
    if isinstance(given, TensorDesc):
        return given
    fmt = given
    if isinstance(fmt, str):
        fmt = Format.parse(fmt, dtype=dtype, rank=len(storage if logical is None else logical))
    shape = logical_shape(fmt, storage) if logical is None else logical
    return TensorDesc(shape, dtype, Format(fmt.axes, fmt.axes), fmt)


def pair(
    storage: Sequence[int],
    dtype: str | np.dtype[Any] | DType,
    src: Endpoint,
    dst: Endpoint,
    *,
    shape: Sequence[int] | None = None,
    dst_dtype: str | np.dtype[Any] | DType | None = None,
) -> tuple[TensorDesc, TensorDesc]:
    """Return both sides of a reorder as full descriptions.

    Args:
        storage: the shape of the array: the storage shape of the source.
        dtype: its element type.
        src: the format or description of the array.
        dst: the format or description of the result. A format means the same tensor in that format.
        shape: the logical shape in the canonical order of ``src``'s axes, if ``src`` is a format
            that pads. Default: the largest shape that the storage holds.
        dst_dtype: the element type of the result if ``dst`` is a format. Default: that of the
            source.

    Raises:
        FormatError: the two do not describe one tensor, or the array is not in the format.
    """
    source = _described(src, dtype_of(dtype), storage, shape)
    if not isinstance(dst, TensorDesc):
        wanted = source.dtype if dst_dtype is None else dtype_of(dst_dtype)
        if isinstance(dst, str):
            dst = Format.parse(dst, dtype=wanted, rank=len(source.shape))
        dst = TensorDesc(source.shape, wanted, source.origin.format, dst)
    return source, dst


def check_pair(src: TensorDesc, dst: TensorDesc) -> None:
    """Check that two descriptions describe one tensor.

    Raises:
        FormatError: axes or extents differ, or there is no conversion between the element types.
    """
    extents = dict(zip(src.storage.format.axes, src.canonical_shape, strict=True))
    other = dict(zip(dst.storage.format.axes, dst.canonical_shape, strict=True))
    if extents != other:
        raise FormatError.at(
            "reorder",
            expected=f"the same tensor on both sides, {_extents(extents)}",
            found=_extents(other),
            fix="Format.renamed gives axes other names" if set(extents) != set(other) else "",
        )
    if src.dtype != dst.dtype and not {src.dtype.short, dst.dtype.short} <= set(CONVERTIBLE):
        raise FormatError.at(
            "reorder",
            expected=f"one dtype, or two of {', '.join(CONVERTIBLE)}",
            found=f"{src.dtype} and {dst.dtype}",
        )


def _extents(extents: dict[str, int]) -> str:
    return " ".join(f"{axis}={extent}" for axis, extent in extents.items())


def reference_reorder(
    array: NDArray[Any],
    src: TensorDesc,
    dst: TensorDesc,
    *,
    src_quantization: Quantization | None = None,
    dst_quantization: Quantization | None = None,
) -> NDArray[Any]:
    """Reorder with NumPy: the reference for the fast implementation.

    Args:
        array: an array of ``src.storage.shape``.
        src: description of the array.
        dst: description of the result.
        src_quantization: quantization of the source, if any.
        dst_quantization: quantization of the result, if any.

    Returns:
        A new array of ``dst.storage.shape`` with zero padding.

    Raises:
        FormatError: the descriptions do not describe one tensor.
    """
    check_pair(src, dst)
    source, target = src.storage.format, dst.storage.format
    scales = conversion_scales(src, dst, src_quantization, dst_quantization)
    flat = np.ascontiguousarray(array).reshape(-1)
    values = flat[algebra.offsets(source, src.canonical_shape)]
    values = convert(values, src.dtype, dst.dtype, scales, source.axes)
    out = np.zeros(algebra.element_count(target, dst.canonical_shape), dst.dtype.numpy)
    places = algebra.offsets(target, dst.canonical_shape)
    out[places] = values.transpose([source.axes.index(axis) for axis in target.axes])
    return out.reshape(dst.storage.shape)


def conversion_scales(
    src: TensorDesc,
    dst: TensorDesc,
    src_quantization: Quantization | None,
    dst_quantization: Quantization | None,
) -> Scales | None:
    """Return the scales of a reorder, or None if values are not scaled.

    Args:
        src: description of the source.
        dst: description of the destination.
        src_quantization: quantization of the source, if any.
        dst_quantization: quantization of the destination, if any.

    Raises:
        FormatError: the scales do not fit the tensor, its element types cannot be scaled, or a zero
            point is no value of its type.
    """
    axes, shape = src.storage.format.axes, src.canonical_shape
    scales = scales_of(src_quantization, dst_quantization, axes, shape)
    if scales is not None and not {src.dtype.short, dst.dtype.short} <= set(CONVERTIBLE):
        raise FormatError.at(
            "quantization",
            expected=f"dtypes of {', '.join(CONVERTIBLE)}",
            found=f"{src.dtype} and {dst.dtype}",
        )
    for desc, given in ((src, src_quantization), (dst, dst_quantization)):
        low, high = RANGES.get(desc.dtype.short, (-inf, inf))
        for zero in () if given is None else given.zero_points:
            if not low <= zero <= high:
                raise FormatError.at(
                    "quantization",
                    expected=f"zero points from {low} to {high}, the range of {desc.dtype}",
                    found=str(zero),
                )
    return scales
