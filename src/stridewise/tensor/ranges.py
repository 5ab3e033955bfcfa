"""From observed values to scales and zero points; weights to integers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.dtypes import dtype_of
from stridewise.tensor.quantization import Grid
from stridewise.tensor.statistics import Histogram

__all__ = ["Activations", "Method", "Parameters", "Weights", "parameters", "quantized_weights"]

Array = NDArray[Any]
Method = Literal["minmax", "percentile", "mse"]
"""How the range of a tensor follows from its values."""

Activations = Literal["uint8", "int8"]
"""The element type of quantized activations."""

_SHRINKS = np.linspace(0.3, 1.0, 71)
_WEIGHT_SHRINKS = np.linspace(0.7, 1.0, 31)
_TINY = 2.0**-99
"""The least scale that has a reciprocal, as kernels need it. Tensors with less are taken for 0."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Scale and zero point of an activation, and what its least and greatest integer stand for."""

    scale: float
    zero_point: int
    dtype: Activations

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer."""
        return (0, 255) if self.dtype == "uint8" else (-128, 127)

    @property
    def low(self) -> float:
        """The least number that is represented."""
        return (self.limits[0] - self.zero_point) * self.scale

    @property
    def high(self) -> float:
        """The greatest number that is represented."""
        return (self.limits[1] - self.zero_point) * self.scale

    def saturates(self, low: float, high: float) -> bool:
        """Return whether saturation does what a clip to ``[low, high]`` before it would do."""
        dtype = dtype_of(self.dtype).short
        return Grid(dtype, (self.scale,), (self.zero_point,)).saturates(low, high)


def _of_range(low: float, high: float, dtype: Activations) -> Parameters:
    scale = float(np.float32(max(-low, high) / 127 if dtype == "int8" else (high - low) / 255))
    if scale < _TINY:
        # With 1, as in files of ONNX Runtime, kernels on integers compute the tensor.
        return Parameters(1.0, 0, dtype)
    zero_point = 0 if dtype == "int8" else int(np.clip(round(-low / scale), 0, 255))
    return Parameters(scale, zero_point, dtype)


def parameters(
    seen: Histogram, dtype: Activations, method: Method, percentile: float = 99.99
) -> Parameters:
    """Return scale and zero point for observed values.

    Args:
        seen: the values.
        dtype: ``"uint8"`` with any zero point, or ``"int8"`` with zero point 0.
        method: ``"minmax"`` represents all values, ``"percentile"`` those below a percentile,
            ``"mse"`` has the least mean squared error.
        percentile: how many percent of the values are represented at each end.
    """
    if method == "minmax" or not seen.counts.any():
        return _of_range(seen.low, seen.high, dtype)
    if method == "percentile":
        shares = np.cumsum(seen.counts) / seen.counts.sum()
        part = 1 - percentile / 100
        low = seen.centers[np.searchsorted(shares, part)]
        high = seen.centers[min(np.searchsorted(shares, 1 - part), len(shares) - 1)]
        return _of_range(max(seen.low, min(low, 0.0)), min(seen.high, max(high, 0.0)), dtype)
    low, high = seen.low, seen.high
    for shrink_low, shrink_high in ((True, True), (True, False), (False, True)):
        tried = [
            (low * s if shrink_low else low, high * s if shrink_high else high) for s in _SHRINKS
        ]
        low, high = min(tried, key=lambda ends: _squared_error(seen, *ends, dtype))
    return _of_range(low, high, dtype)


def _squared_error(seen: Histogram, low: float, high: float, dtype: Activations) -> float:
    """Return the sum of squared errors: clipping, and uniform rounding errors between the ends."""
    found = _of_range(low, high, dtype)
    centers = seen.centers
    beyond = centers - np.clip(centers, found.low, found.high)
    inside = seen.counts[beyond == 0].sum()
    return float(seen.counts @ beyond**2 + inside * found.scale**2 / 12)


@dataclass(frozen=True, slots=True)
class Weights:
    """Quantized weights: ``integers * scales``, with one scale for each index along an axis.

    Attributes:
        integers: int8, in the shape of the weights.
        scales: float32, one for each index along ``axis``; a scalar if ``axis`` is None.
        axis: the axis of the channels.
    """

    integers: NDArray[np.int8]
    scales: NDArray[np.float32]
    axis: int | None

    @property
    def real(self) -> NDArray[np.float32]:
        """The weights that the integers stand for."""
        return self.integers.astype(np.float32) * self.spread(self.integers.ndim)

    def spread(self, rank: int) -> NDArray[np.float32]:
        """Return the scales in a shape that broadcasts to the weights."""
        shape = [-1 if axis == self.axis else 1 for axis in range(rank)]
        return self.scales.reshape(shape if self.axis is not None else ())


def quantized_weights(
    weights: Array, axis: int | None, least: Array, *, best: bool, steps: int = 127
) -> Weights:
    """Return weights as symmetric int8.

    Args:
        weights: of any shape.
        axis: the axis with a scale for each index; None for one scale.
        least: the least scale allowed, for each index along the axis.
        best: whether scales have the least squared error; else they represent all weights.
        steps: the greatest integer.
    """
    others = None if axis is None else tuple(a for a in range(weights.ndim) if a != axis)
    peak = np.abs(weights).max(axis=others, keepdims=True).astype(np.float64)
    floor = least.reshape([-1 if a == axis else 1 for a in range(weights.ndim)])
    scales = np.maximum(peak / steps, floor if axis is not None else floor.max())
    if best:
        errors = [_rounding(weights, scales * s, steps, others) for s in _WEIGHT_SHRINKS]
        factors = _WEIGHT_SHRINKS[np.argmin(errors, axis=0)]
        scales = np.maximum(scales * factors, floor if axis is not None else floor.max())
    found = scales.astype(np.float32)
    integers = np.clip(np.rint(weights / found), -steps, steps).astype(np.int8)
    return Weights(integers, found.reshape(() if axis is None else -1), axis)


def _rounding(weights: Array, scales: Array, steps: int, others: tuple[int, ...] | None) -> Array:
    real = np.clip(np.rint(weights / scales), -steps, steps) * scales
    return np.square(real - weights).sum(axis=others, keepdims=True)
