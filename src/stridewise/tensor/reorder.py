"""What a reorder is: two descriptions of one tensor, checked, and the reference that moves it.

Bytes go from one format to another; meaning does not change. The fast path is
:mod:`stridewise.runtime.reorder.reorder`; here is what it must agree with, in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import DType, dtype_of
from stridewise.errors import FormatError, describe
from stridewise.formats import Block, Format, Pitch, algebra
from stridewise.tensor.desc import TensorDesc
from stridewise.tensor.quantization import CONVERTIBLE, Quantization, Scales, convert, scales_of

__all__ = [
    "Endpoint",
    "check_pair",
    "conversion_scales",
    "logical_shape",
    "pair",
    "reference_reorder",
]

Endpoint = TensorDesc | Format | str
"""One side of a reorder: a full description, or a format where the array tells the rest."""


def logical_shape(fmt: Format, storage: Sequence[int]) -> tuple[int, ...]:
    """Return the canonical shape of the largest tensor that a storage shape can hold.

    Raises:
        FormatError: the shape is none of the format's, or does not tell (axes are flattened).

    >>> from stridewise.formats import parse
    >>> logical_shape(parse("nChw16c"), (8, 1, 224, 224, 16))
    (8, 16, 224, 224)
    """
    if fmt.steps or any(isinstance(item, Pitch) for item in fmt.digits):
        raise FormatError(
            describe(
                f"format {fmt}",
                expected="a logical shape, which its storage does not tell",
                found=f"storage shape {tuple(storage)}",
                fix="give shape= or a TensorDesc",
            )
        )
    sizes = [item.size if isinstance(item, Block) else 0 for item in fmt.digits]
    if len(storage) != len(sizes) or any(
        size not in (0, extent) for size, extent in zip(sizes, storage, strict=True)
    ):
        wanted = [str(item.size) if isinstance(item, Block) else str(item) for item in fmt.digits]
        raise FormatError(
            describe(
                f"array in format {fmt}",
                expected=f"storage shape ({', '.join(wanted)})",
                found=f"{tuple(storage)}",
                fix="arrays have the shape of the storage; a TensorDesc tells it for any shape",
            )
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
        storage: the shape of the array, that of the source's storage.
        dtype: its element type.
        src: what the array holds.
        dst: what is wanted; a format stands for the same tensor stored so.
        shape: the logical shape in the canonical order of ``src``'s axes, where ``src`` is a
            format that pads; by default the largest that the storage holds.
        dst_dtype: the element type that is wanted, where ``dst`` is a format; by default that of
            the source.

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
    """Check that two descriptions are of one tensor.

    Raises:
        FormatError: axes or extents differ, or the element types cannot be converted.
    """
    extents = dict(zip(src.storage.format.axes, src.canonical_shape, strict=True))
    other = dict(zip(dst.storage.format.axes, dst.canonical_shape, strict=True))
    if extents != other:
        raise FormatError(
            describe(
                "reorder",
                expected=f"the same tensor on both sides, {_extents(extents)}",
                found=_extents(other),
                fix="Format.renamed gives axes other names" if set(extents) != set(other) else "",
            )
        )
    if src.dtype != dst.dtype and not {src.dtype.short, dst.dtype.short} <= set(CONVERTIBLE):
        raise FormatError(
            describe(
                "reorder",
                expected=f"one dtype, or two out of {', '.join(CONVERTIBLE)}",
                found=f"{src.dtype} and {dst.dtype}",
            )
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
    """Reorder with NumPy, element by element in effect: the oracle of the fast path.

    Args:
        array: of ``src.storage.shape``.
        src: what it holds.
        dst: what is wanted.
        src_quantization: what the values of the source stand for.
        dst_quantization: how values are to be stored.

    Returns:
        A new array of ``dst.storage.shape``, padding zero.

    Raises:
        FormatError: the descriptions are not of one tensor.
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
    """Return the scales of a reorder, or None where values stay what they are.

    Raises:
        FormatError: they do not fit the tensor, or its element types cannot be scaled.
    """
    axes, shape = src.storage.format.axes, src.canonical_shape
    scales = scales_of(src_quantization, dst_quantization, axes, shape)
    if scales is not None and not {src.dtype.short, dst.dtype.short} <= set(CONVERTIBLE):
        raise FormatError(
            describe(
                "quantization",
                expected=f"dtypes out of {', '.join(CONVERTIBLE)}",
                found=f"{src.dtype} and {dst.dtype}",
            )
        )
    return scales
