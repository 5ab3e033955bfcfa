"""PyTorch tensors in any format: PyTorch's functions for memory formats, for all of them.

PyTorch knows the memory format of a tensor by its strides: its shape is always in the order N, C,
H, W. Plain formats are kept so here. A blocked or padded format has no strides; a tensor in such a
format has the storage shape, and a :class:`~stridewise.TensorDesc` says what it means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stridewise.formats import Format
from stridewise.formats.axes import POSITIONAL
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import type_of
from stridewise.runtime.reorder.reorder import reorder
from stridewise.tensor.desc import TensorDesc
from stridewise.tensor.strided import format_of, preserved_strides

__all__ = ["contiguous", "desc_of", "empty", "suggest_memory_format"]

_AXES = {1: "W", 2: "NC", 3: "NCW", 4: "NCHW", 5: "NCDHW"}


def _logical(rank: int, axes: str | None) -> str:
    return _AXES.get(rank, "".join(POSITIONAL[:rank])) if axes is None else axes


def suggest_memory_format(tensor: Any, axes: str | None = None) -> Format:
    """Return the format in which operators should store results for a tensor.

    It is the format of the tensor itself, or of a dense copy if it has gaps or repeated elements.

    Args:
        tensor: a PyTorch tensor.
        axes: names of its axes; by default those of images, ``"NCHW"`` for four axes.

    Raises:
        DependencyError: PyTorch is not installed.
    """
    shape = tuple(tensor.shape)
    return format_of(shape, preserved_strides(shape, tensor.stride()), _logical(len(shape), axes))


def desc_of(tensor: Any, axes: str | None = None) -> TensorDesc:
    """Return the description of a tensor, whose format is known by its strides.

    Args:
        tensor: a dense PyTorch tensor of its logical shape.
        axes: names of its axes; by default those of images, ``"NCHW"`` for four axes.

    Raises:
        FormatError: it has gaps or repeated elements.
        DTypeError: Stridewise does not support the element type.
    """
    shape = tuple(tensor.shape)
    names = _logical(len(shape), axes)
    return TensorDesc(shape, type_of(tensor), names, format_of(shape, tensor.stride(), names))


def empty(
    shape: Sequence[int], memory_format: str | Format, dtype: Any = None, axes: str | None = None
) -> Any:
    """Return a new tensor in a format.

    Args:
        shape: the logical shape, in the order of ``axes``.
        memory_format: a format, or its name in any dialect.
        dtype: of PyTorch; by default its default.
        axes: names of the axes; by default those of images, ``"NCHW"`` for four axes.

    Returns:
        A tensor of the logical shape with the strides of a plain format, or a tensor of the storage
        shape, whose padding is zero.

    Raises:
        FormatError: the format is unknown, or cannot hold the shape.
    """
    kind = dtype or torch.get_default_dtype()
    desc = _desc(shape, torch.empty(0, dtype=kind), memory_format, axes)
    fmt = desc.storage.format
    if not fmt.is_plain:
        return torch.zeros(desc.storage.shape, dtype=kind)
    stored = torch.empty(desc.storage.shape, dtype=kind)
    return stored.permute([fmt.order.index(axis) for axis in desc.origin.format.order])


def contiguous(tensor: Any, memory_format: str | Format, axes: str | None = None) -> Any:
    """Return a tensor in a format, the tensor itself if it is stored so.

    Args:
        tensor: of its logical shape, of any strides.
        memory_format: a format, or its name in any dialect.
        axes: names of the axes; by default those of images, ``"NCHW"`` for four axes.

    Returns:
        As for :func:`empty`. ``stridewise.reorder(result, desc, axes)`` converts it back, where
        ``desc`` is the description with that storage.

    Raises:
        FormatError: the format is unknown, or cannot hold the shape.
    """
    wanted = _desc(tensor.shape, tensor, memory_format, axes)
    shape = tuple(tensor.shape)
    own = TensorDesc(shape, wanted.dtype, wanted.origin.format, wanted.origin.format)
    fmt = wanted.storage.format
    if fmt.is_plain:
        strides = empty(shape, fmt, tensor.dtype, axes).stride()
        pairs = zip(shape, strides, tensor.stride(), strict=True)
        if all(extent == 1 or have == want for extent, want, have in pairs):
            return tensor
    return reorder(tensor.contiguous() if _overlaps(tensor) else tensor, own, wanted)


def _overlaps(tensor: Any) -> bool:
    """Return whether several elements may be in one place, as in an expanded tensor."""
    reach = 0
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    for stride, extent in sorted((stride, extent) for stride, extent in pairs if extent > 1):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False


def _desc(
    shape: Sequence[int], typed: Any, memory_format: str | Format, axes: str | None
) -> TensorDesc:
    """Return the description of a tensor of the element type of ``typed``."""
    return TensorDesc(tuple(shape), type_of(typed), _logical(len(shape), axes), memory_format)
