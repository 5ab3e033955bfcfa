"""How one axis of an image is resized: which inputs make up an output, and with which weights.

The source of all formulas is ONNX, operator Resize, unless a comment names another.
"""

from __future__ import annotations

import numpy as np

from stridewise.classes import dataclass
from stridewise.ops.registry import Array

__all__ = ["COORDINATES", "CUBIC", "MODES", "ROUNDINGS", "Interpolation"]

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners",
    "tf_crop_and_resize",
)  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
CUBIC = -0.75
"""The usual coefficient of cubic interpolation."""

_REACH = {"linear": 1, "cubic": 2}
"""How far the weights of a mode reach, in pixels."""


def _rounded(positions: Array, rounding: str) -> Array:
    # Scales come in float32: what lies next to a tie is one. True neighbors are farther apart.
    positions = np.round(positions, 5)
    return {
        "round_prefer_floor": lambda: np.ceil(positions - 0.5),
        "round_prefer_ceil": lambda: np.floor(positions + 0.5),
        "floor": lambda: np.floor(positions),
        "ceil": lambda: np.ceil(positions),
    }[rounding]()


@dataclass(frozen=True, slots=True)
class Interpolation:
    """One axis of a resized image.

    Attributes:
        size: extent of the input.
        count: extent of the output.
        mode: one of :data:`MODES`.
        coordinates: one of :data:`COORDINATES`.
        rounding: one of :data:`ROUNDINGS`, for nearest neighbors.
        scale: outputs per input where coordinates are mapped by another ratio than the extents'.
        cubic: the coefficient of cubic interpolation.
        antialias: whether weights reach farther where the image shrinks.
        exclude_outside: whether weights of what lies outside go to the others instead of the edge.
        crop: first and last place of the input as parts of it, for ``tf_crop_and_resize``.
    """

    size: int
    count: int
    mode: str
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    scale: float | None = None
    cubic: float = CUBIC
    antialias: bool = False
    exclude_outside: bool = False
    crop: tuple[float, float] = (0.0, 1.0)

    @property
    def ratio(self) -> float:
        """Outputs per input."""
        return self.count / self.size if self.scale is None else self.scale

    @property
    def is_identity(self) -> bool:
        """Whether every output is the input of its place, whatever the coordinates."""
        cropped = self.coordinates == "tf_crop_and_resize" and self.crop != (0.0, 1.0)
        return self.size == self.count and self.ratio == 1 and not cropped

    def positions(self) -> Array:
        """Return where in the input each output element lies, an array of float64 [count]."""
        size, count, index = self.size, self.count, np.arange(self.count, dtype=np.float64)
        if self.coordinates == "align_corners":
            return index * (size - 1) / max(count - 1, 1)
        if self.coordinates == "tf_crop_and_resize":
            start, end = self.crop
            if count == 1:
                return np.full(1, (start + end) * (size - 1) / 2)
            return start * (size - 1) + index * (end - start) * (size - 1) / (count - 1)
        if self.coordinates == "asymmetric":
            return index / self.ratio
        if self.coordinates == "pytorch_half_pixel" and count == 1:
            return np.zeros(1)
        centered = (index + 0.5) / self.ratio - 0.5
        if self.coordinates == "half_pixel_symmetric":
            centered += size / 2 * (1 - count / (self.ratio * size))
        return centered

    def outside(self) -> Array:
        """Return which outputs lie outside of the input and are not its edge, bool [count]."""
        if self.coordinates != "tf_crop_and_resize":
            return np.zeros(self.count, bool)
        positions = self.positions()
        return (positions < 0) | (positions > self.size - 1)

    def _weight(self, distance: Array) -> Array:
        """Return the weight of what lies at a distance in pixels of the kernel."""
        d = np.abs(distance)
        if self.mode == "linear":
            return np.clip(1 - d, 0, 1)
        # Keys (1981): one polynomial near the center, another one beyond.
        a = self.cubic
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    def _taps(self) -> tuple[Array, Array]:
        """Return the indices that are read, which may lie outside, and their weights."""
        positions = self.positions()
        if self.mode == "nearest":
            nearest = _rounded(positions, self.rounding)[:, None]
            return nearest, np.ones_like(nearest)
        # A kernel is never made narrower, so an image that grows is interpolated as ever.
        stretch = min(self.ratio, 1.0) if self.antialias else 1.0
        first = int(np.floor(-_REACH[self.mode] / stretch)) + 1
        low = np.floor(positions)[:, None]
        index = low + np.arange(first, 2 - first)
        weights = self._weight((index - positions[:, None]) * stretch)
        return index, weights / weights.sum(1, keepdims=True)

    def taps(self) -> tuple[Array, Array]:
        """Return what each output is made of: indices of the input, int64, and their weights.

        Both are [count, taps]. Weights of an output add up to 1; those of outputs that lie outside
        are zero. An index may stand more than once.

        >>> index, weights = Interpolation(2, 4, "nearest").taps()
        >>> index.ravel().tolist(), weights.ravel().tolist()
        ([0, 0, 1, 1], [1.0, 1.0, 1.0, 1.0])
        """
        index, weights = self._taps()
        if self.exclude_outside:
            inside = np.where((index >= 0) & (index < self.size), weights, 0)
            total = inside.sum(1, keepdims=True)
            # Where nothing inside has a weight, as of a nearest neighbor, the edge is left.
            weights = np.where(total == 0, weights, inside / np.where(total == 0, 1, total))
        weights = np.where(self.outside()[:, None], 0.0, weights)
        return np.clip(index, 0, self.size - 1).astype(np.int64), weights

    def entries(self) -> tuple[Array, Array]:
        """Return the entries of :meth:`matrix` that are not zero: places, row-major, and values."""
        index, weights = self.taps()
        places = (np.arange(self.count)[:, None] * self.size + index).ravel()
        places, where = np.unique(places, return_inverse=True)
        values = np.bincount(where.ravel(), weights.ravel(), len(places))
        return places[values != 0], values[values != 0]

    def matrix(self) -> Array:
        """Return the float64 matrix [count, size] that resizes the axis.

        Its rows add up to 1; those of outputs that lie outside are zero.

        >>> Interpolation(2, 4, "linear").matrix().tolist()
        [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
        """
        places, values = self.entries()
        matrix = np.zeros((self.count, self.size))
        matrix.reshape(-1)[places] = values
        return matrix
