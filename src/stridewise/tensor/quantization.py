"""Conversion of values between element types, with scales and zero points.

The arithmetic is that of ONNX's QuantizeLinear and DequantizeLinear, in float32: a stored value
``q`` stands for ``(q - zero_point) * scale``, and a real value ``x`` is stored as ``round(x /
scale) + zero_point``, rounded half to even and saturated. Without scales, the real value of an
integer is the integer. NaN is stored as 0 in integer types.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.dtypes import DType
from stridewise.errors import FormatError

__all__ = ["CONVERTIBLE", "RANGES", "Grid", "Quantization", "Scales", "convert", "scales_of"]

CONVERTIBLE = ("f32", "f16", "bf16", "s8", "u8", "s32")
"""Short names of the element types that can be converted into each other."""

RANGES = {"s8": (-128, 127), "u8": (0, 255), "s32": (-(2**31), 2**31 - 1)}
"""The least and the greatest number of each integer type, by its short name."""


@dataclass(frozen=True, slots=True, init=False)
class Quantization:
    """The meaning of stored values: ``real = (stored - zero_point) * scale``.

    Args:
        scale: one positive number, or one for each index along ``axis``.
        zero_point: the stored value of 0; one number, or one for each index. Default 0.
        axis: name of the axis along which they vary (``"C"``, ``"O"``); None for single numbers.

    Raises:
        FormatError: a scale is not positive and finite, a zero point is not a whole number below
            2**24, or there are several values and no axis.

    >>> Quantization([0.5, 0.25], axis="O")
    Quantization(scales=(0.5, 0.25), zero_points=(0,), axis='O')
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: str | None

    def __init__(
        self,
        scale: float | Sequence[float] | NDArray[np.generic] = 1.0,
        zero_point: int | Sequence[int] | NDArray[np.generic] = 0,
        axis: str | None = None,
    ) -> None:
        try:
            scales = tuple(map(float, np.ravel(np.asarray(scale)).tolist()))
        except (TypeError, ValueError):
            raise _refuse("numbers as scales", repr(scale)) from None
        zeros = np.ravel(np.asarray(zero_point)).tolist()
        for value in scales:
            if not (isfinite(np.float32(value)) and np.float32(value) > 0):
                raise _refuse("positive, finite float32 scales", f"{value}")
        for value in zeros:
            is_number = isinstance(value, int | float) and isfinite(value)
            if not is_number or value != int(value) or abs(value) >= 2**24:
                raise _refuse("whole zero points below 2**24", f"{value}")
        if axis is None and (len(scales) != 1 or len(zeros) != 1):
            raise _refuse("an axis for scales that vary", f"{max(len(scales), len(zeros))} of them")
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "zero_points", tuple(map(int, zeros)))
        object.__setattr__(self, "axis", axis)

    @property
    def text(self) -> str:
        """The scales and zero points in one line.

        >>> Quantization([0.5, 0.25], axis="O").text
        'scale 0.5, 0.25 zero 0 along O'
        """
        scales, zeros = (", ".join(map(repr, each)) for each in (self.scales, self.zero_points))
        return f"scale {scales} zero {zeros}" + (f" along {self.axis}" if self.axis else "")

    @property
    def brief(self) -> str:
        """The scale to four digits, and the zero point if it is not 0.

        >>> Quantization(0.0123456789, 7).brief, Quantization([0.5, 0.25], axis="O").brief
        ('scale 0.01235 zero 7', '2 scales along O')
        """
        if self.axis is not None:
            count = max(len(self.scales), len(self.zero_points))
            return f"{count} scales along {self.axis}"
        scale, zero = max(self.scales), max(self.zero_points)  # the only ones
        return f"scale {scale:.4g}" + (f" zero {zero}" if zero else "")


@dataclass(frozen=True, slots=True)
class Grid:
    """The real numbers that a tensor may have: those that integers of a type stand for.

    Such a tensor can be stored as integers, and nothing is lost.

    Attributes:
        dtype: the short name of the integer type.
        scales: one for all elements, or one for each index along ``axis``.
        zero_points: the same of the stored values of 0.
        axis: the position of an axis in the user's order; None for single numbers.

    >>> Grid("u8", (0.5,), (3,)).low
    -1.5
    """

    dtype: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...] = (0,)
    axis: int | None = None

    @property
    def quantization(self) -> Quantization | None:
        """The meaning of stored values; None where scales vary along an axis."""
        if self.axis is not None:
            return None
        return Quantization(self.scales[0], self.zero_points[0])

    @property
    def low(self) -> float:
        """The least number, of a grid with one scale."""
        return (RANGES[self.dtype][0] - self.zero_points[0]) * self.scales[0]

    @property
    def high(self) -> float:
        """The greatest number, of a grid with one scale."""
        return (RANGES[self.dtype][1] - self.zero_points[0]) * self.scales[0]

    def saturates(self, low: float, high: float) -> bool:
        """Return whether saturation does what a clip to ``[low, high]`` before it would do.

        >>> Grid("u8", (1 / 16,)).saturates(0.0, 16.0), Grid("u8", (1 / 16,)).saturates(0.0, 15.0)
        (True, False)
        """
        least, greatest = self.stored(np.asarray((-np.inf, np.inf)))
        at_low, at_high = np.rint(np.asarray((low, high), np.float32) / np.float32(self.scales[0]))
        return bool(at_low <= least and at_high >= greatest)

    def stored(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the integers that numbers are stored as, less the zero points.

        Numbers that are not on the grid are rounded half to even and saturated.
        """
        low, high = (
            np.asarray(bound - self._along(self.zero_points, values.ndim, np.int64))
            for bound in RANGES[self.dtype]
        )
        whole = np.rint(values / self._along(self.scales, values.ndim, np.float32))
        return np.clip(whole, low, high)

    def rounded(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the numbers of the grid that numbers are stored as."""
        scales = self._along(self.scales, values.ndim, np.float32)
        return (self.stored(values) * scales).astype(np.float32)

    def _along(self, numbers: Sequence[float], rank: int, dtype: type[Any]) -> NDArray[Any]:
        """Return scales or zero points in a shape that broadcasts to a tensor of some rank."""
        found = np.asarray(numbers, dtype)
        if self.axis is None or found.size == 1:
            return found
        return found.reshape([-1, *(1,) * (rank - self.axis - 1)])


def _refuse(expected: str, found: str) -> FormatError:
    return FormatError.at("quantization", expected=expected, found=found)


@dataclass(frozen=True, slots=True)
class Scales:
    """Scales and zero points of both sides: one for each index along an axis, or a single one."""

    axis: str | None
    src_zero: tuple[float, ...]
    src_scale: tuple[float, ...]
    dst_scale: tuple[float, ...]
    dst_zero: tuple[float, ...]


def scales_of(
    src: Quantization | None, dst: Quantization | None, axes: Sequence[str], shape: Sequence[int]
) -> Scales | None:
    """Return the scales of a conversion, or None if neither side is quantized.

    Args:
        src: quantization of the source.
        dst: quantization of the destination.
        axes: names of the axes of the tensor.
        shape: extents of these axes.

    Raises:
        FormatError: the sides vary along different axes, an axis is unknown, or the number of
            scales is not the extent of their axis.
    """
    if src is None and dst is None:
        return None
    sides = (src or Quantization(), dst or Quantization())
    varying = {side.axis for side in sides if side.axis is not None}
    if len(varying) > 1:
        raise _refuse("scales that vary along one axis", f"{' and '.join(sorted(varying))}")
    axis = next(iter(varying), None)
    if axis is not None and axis not in axes:
        raise _refuse(f"one of the axes {', '.join(axes)}", f"axis {axis!r}")
    count = 1 if axis is None else shape[list(axes).index(axis)]

    def spread(values: Sequence[float]) -> tuple[float, ...]:
        if len(values) not in (1, count):
            raise _refuse(f"1 or {count} values along {axis}", f"{len(values)}")
        return tuple(map(float, values)) * (count if len(values) == 1 else 1)

    return Scales(
        axis,
        spread(sides[0].zero_points),
        spread(sides[0].scales),
        spread(sides[1].scales),
        spread(sides[1].zero_points),
    )


def convert(
    values: NDArray[np.generic],
    src: DType,
    dst: DType,
    scales: Scales | None,
    axes: Sequence[str],
) -> NDArray[np.generic]:
    """Convert values to another element type; the reference implementation in NumPy.

    Args:
        values: any shape, one dimension for each of ``axes``.
        src: element type of ``values``.
        dst: element type of the result.
        scales: scales and zero points of both sides, if any.
        axes: names of the dimensions.
    """
    if src == dst and scales is None:
        return values
    real = values.astype(np.float32)
    if scales is not None:
        at = [-1 if axis == scales.axis else 1 for axis in axes]

        def along(numbers: tuple[float, ...]) -> NDArray[np.float32]:
            return np.asarray(numbers, np.float32).reshape(at if scales.axis else ())

        with np.errstate(invalid="ignore", over="ignore"):
            real = (real - along(scales.src_zero)) * along(scales.src_scale)
            real = real / along(scales.dst_scale)
            real = np.rint(real) if dst.short in RANGES else real
            real = real + along(scales.dst_zero)
    if dst.short in RANGES:
        low, high = RANGES[dst.short]
        whole = np.rint(np.nan_to_num(real.astype(np.float64), nan=0.0, posinf=high, neginf=low))
        return np.clip(whole, low, high).astype(dst.numpy)
    with np.errstate(over="ignore", invalid="ignore"):
        return real.astype(dst.numpy)
