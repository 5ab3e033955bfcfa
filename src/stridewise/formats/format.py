"""The public format class: format data, arithmetic for a shape, and names of any system."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from stridewise.dtypes import DType, dtype_of
from stridewise.formats import algebra, data
from stridewise.formats.data import FormatData
from stridewise.formats.dialects import Parameters, spell
from stridewise.formats.dialects import parse as parse_data

__all__ = ["Format", "nd", "parse"]


class Format(FormatData):
    """A rule that maps the index of an element to a place in memory.

    Attributes:
        axes: the named axes in canonical order (``("N", "C", "H", "W")`` for NCHW *and* NHWC);
            shapes, indices and strides that go with a format are in this order.
        digits: the walk through memory, outermost to innermost. Each axis occurs once as a string,
            with any number of blocks. An axis with blocks is padded to a multiple of their product.
            The extent of an axis that occurs only as blocks is exactly their product.
        pads: multiples and policies other than the zero padding that blocks imply.
        steps: axes that are flattened or split before the walk. Digits and pads may name the
            resulting axes.

    Two formats are equal if they have the same axes and, for every shape, put the same bytes in the
    same places with the same padding rule. The way in which they were written does not matter.

    Raises:
        FormatError: an axis is repeated, missing or unknown, a size is below 2, or the steps of an
            axis' digits do not reach every index exactly once.

    >>> from stridewise.formats import Block
    >>> Format(("N", "C", "H", "W"), ("N", "C", "H", "W", Block("C", 16))).name
    'nChw16c'
    """

    __slots__ = ()

    @classmethod
    def of(cls, found: FormatData) -> Format:
        """Return the format of plain data."""
        return cls(found.axes, found.digits, found.pads, found.steps)

    @staticmethod
    def parse(
        text: str,
        dialect: str | None = None,
        *,
        dtype: str | DType | None = None,
        block: int | None = None,
        groups: int = 1,
        rank: int | None = None,
        device: str | None = None,
        hidden_size: int | None = None,
    ) -> Format:
        """Return the format with a given name in any known system.

        Args:
            text: ``"nChw16c"``, ``"b_fs_yx_fsv16"``, ``"NC1HWC0"``, ``"{1,0:T(8,128)}"``, ...
            dialect: the system. Required only if the name means different formats in different
                systems.
            dtype: the element type, for names whose block or pitch depends on it.
            block: the block size, for names that do not contain it: Ascend's C0, cuDNN's vector
                length, MNN's pack, ONNX Runtime's block size.
            groups: number of groups of convolution weights, for formats that depend on it.
            rank: number of axes, for names of any rank (Ascend's ND, PyTorch's contiguous_format).
            device: the device, for names that depend on it (TensorRT's DLA: ``"xavier"``,
                ``"orin"``).
            hidden_size: the hidden size of Ascend's ND_RNN_BIAS.

        Raises:
            FormatError: no dialect has the name, several dialects give it different meanings, a
                parameter is missing, or the format cannot be expressed. The message gives the
                reason.

        >>> Format.parse("nChw16c") == Format.parse("b_fs_yx_fsv16", dialect="openvino")
        True
        """
        return parse(text, dialect, Parameters(dtype, block, groups, rank, device, hidden_size))

    def to(
        self,
        dialect: str,
        *,
        dtype: str | DType | None = None,
        block: int | None = None,
        groups: int = 1,
        rank: int | None = None,
        device: str | None = None,
        hidden_size: int | None = None,
    ) -> str:
        """Return a system's name for this format. Optional parameters are those of :meth:`parse`.

        Args:
            dialect: the system, one of :func:`stridewise.formats.dialects`.
            dtype: the element type.
            block: the block size.
            groups: number of groups of convolution weights.
            rank: number of axes.
            device: the device.
            hidden_size: the hidden size of Ascend's ND_RNN_BIAS.

        Raises:
            FormatError: the dialect is unknown, or has no name for the format.

        >>> Format.parse("nChw16c").to("tvm")
        'NCHW16c'
        """
        return spell(self, dialect, Parameters(dtype, block, groups, rank, device, hidden_size))

    def storage_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the extents of the dense array that stores a tensor of a canonical shape.

        >>> Format.parse("nChw16c").storage_shape((8, 3, 224, 224))
        (8, 1, 224, 224, 16)
        """
        return algebra.storage_shape(self, shape)

    def padded_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the canonical shape with every padded axis rounded up."""
        return algebra.padded_shape(self, shape)

    def strides(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the stride of every canonical axis, in elements; FormatError if one is blocked."""
        return algebra.strides(self, shape)

    def offset(self, index: Sequence[int], shape: Sequence[int]) -> int:
        """Return the offset of the element at a canonical index, in elements.

        >>> Format.parse("b_fs_yx_fsv16").offset((1, 0, 0, 0), (2, 2, 2, 2))
        64
        """
        return algebra.offset(self, index, shape)

    def index(self, offset: int, shape: Sequence[int]) -> tuple[int, ...] | None:
        """Return the canonical index of the element at an offset, or None for padding.

        >>> Format.parse("b_fs_yx_fsv16").index(17, (2, 2, 2, 2))
        (0, 1, 0, 1)
        """
        return algebra.index(self, offset, shape)

    def nbytes(self, shape: Sequence[int], dtype: str | DType) -> int:
        """Return the size of the storage in bytes, padding included.

        >>> Format.parse("b_fs_yx_fsv16").nbytes((2, 2, 2, 2), "float32")
        512
        """
        return algebra.element_count(self, shape) * dtype_of(dtype).itemsize

    def same_bytes(self, other: Format, shape: Sequence[int]) -> bool:
        """Return whether both formats put the same elements of a shape at the same offsets.

        This is equality for one shape; ``==`` is equality for all of them.
        """
        return algebra.same_bytes(self, other, shape)


@lru_cache(maxsize=1024)
def parse(text: str, dialect: str | None = None, parameters: Parameters | None = None) -> Format:
    """Return the format that ``text`` names in a dialect.

    Args:
        text: the name.
        dialect: the system. By default all dialects that know the name must agree.
        parameters: values that the name leaves open; see :meth:`Format.parse`.

    Raises:
        FormatError: the dialect or the name is unknown, no dialect was given and dialects disagree,
            or the format cannot be expressed.

    >>> parse("NHWC").order
    ('N', 'H', 'W', 'C')
    """
    return Format.of(parse_data(text, dialect, parameters))


@cache
def nd(rank: int) -> Format:
    """Return the row-major format over ``rank`` positional axes, whose meaning is unknown.

    The axes are named ``a``, ``b``, ``c``, ... as in oneDNN's abstract tags.

    Raises:
        FormatError: the rank is above 12, the most that oneDNN takes.

    >>> nd(3).axes
    ('a', 'b', 'c')
    """
    return Format.of(data.nd(rank))
