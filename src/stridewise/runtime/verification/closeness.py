"""How far a computed tensor may be from the right one, judged by how sensitive its node is.

Two correct kernels differ by their rounding errors. How large these may get is found by trial: the
operands of the node are moved by a small relative amount, with random signs, and the node is
computed again. A kernel may miss the result by as much as that moves it, and by the same relative
amount of the result itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "APPROXIMATE",
    "STEPS",
    "Difference",
    "compare",
    "is_float",
    "relative_error",
    "relative_step",
    "shaken",
]

Array = NDArray[Any]

STEPS = 64
"""By how many steps of float32 (2**-23, relative) operands are moved."""
APPROXIMATE = 8
"""How many times that for kernels that round otherwise than the definition (Winograd)."""

_OWN_STEPS = 2
"""Steps of the element type itself, for those that are coarser than float32."""
_SMALLEST_SLICE = 32
"""Elements from which a slice is looked at by itself; in smaller ones chance decides."""
_NEIGHBORS = 0.1
"""The part of the whole tensor's tolerance that every slice has, as kernels work on tiles."""
_TINY = float(np.finfo(np.float32).tiny)
"""Results below the normal numbers may be zeros."""
_LARGEST = float(np.finfo(np.float64).max)
_LEAST = float(np.finfo(np.float64).tiny)
"""Instead of 0 as a tolerance, to divide by."""


def relative_step(dtype: np.dtype[Any], *, approximate: bool = False, coarse: float = 0.0) -> float:
    """Return by which part of itself an element is moved; 0 for integers and booleans.

    Args:
        dtype: of the tensor.
        approximate: whether the kernel rounds otherwise than the definition.
        coarse: the step of a coarser type in which the kernel has its tensors.
    """
    if not is_float(dtype):
        return 0.0
    # NumPy knows no bfloat16.
    own = 2.0**-7 if dtype.name == "bfloat16" else float(np.finfo(dtype).eps)
    return max(STEPS * 2.0**-23 * (APPROXIMATE if approximate else 1), _OWN_STEPS * own, coarse)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether elements are rounded, those of ``ml_dtypes`` included."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def shaken(
    array: Array, rng: np.random.Generator, *, approximate: bool = False, coarse: float = 0.0
) -> Array:
    """Return a tensor with every element moved by :func:`relative_step`, up or down."""
    step = relative_step(array.dtype, approximate=approximate, coarse=coarse)
    if not step:
        return array
    signs = rng.integers(0, 2, array.shape, np.int8) * np.float32(2 * step) - np.float32(step)
    with np.errstate(all="ignore"):
        return np.asarray(array * (1 + signs), array.dtype)


@dataclass(frozen=True, slots=True)
class Difference:
    """What is between two tensors, where that is most of what may be.

    Attributes:
        error: norm of the difference over that of the right result; infinite for NaN or infinity
            in the wrong place. Of integers, the part of the elements that differ.
        tolerance: what it may be.
        largest: the largest absolute difference of the whole tensor.
        where: the slice that is meant, ``"axis 1, index 3"``; "" for the whole.
    """

    error: float
    tolerance: float
    largest: float
    where: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether more is between them than may be."""
        return self.error > self.tolerance


def relative_error(found: Array, right: Array) -> float:
    """Return the norm of the difference over that of the right result, or the absolute one of 0.

    NaN and infinity in different places make it infinite. Of integers and booleans it is the part
    of the elements that differ.
    """
    if not is_float(right.dtype):
        return _share(found != right)
    if _misplaced(found, right).any():
        return np.inf
    off, wide, _ = _finite(found, right)
    scale = max(float(np.max(np.abs(item), initial=0.0)) for item in (off, wide)) or 1.0
    error, size = (float(np.linalg.norm(item / scale)) for item in (off, wide))
    return error / size if size else error * scale


def compare(
    found: Array,
    right: Array,
    again: Callable[[], Array],
    *,
    step: float,
    spreads: bool = False,
) -> Difference:
    """Compare a tensor with the right one: the whole, and every slice along every axis.

    Args:
        found: what was computed, in the user's order.
        right: what is right, of the same shape and dtype.
        again: computes the right one from operands that were moved; called where it matters.
        step: the relative amount that may be between them in any case; 0 where ``found`` should
            be the same to the bit.
        spreads: whether NaN of an operand may be in more results than the definition has them in.
    """
    if not is_float(right.dtype):
        differs = found != right
        if step and differs.any():
            differs &= again() == right
        span = np.abs(found.astype(np.float64) - right.astype(np.float64))
        return Difference(_share(differs), 0.0, float(np.max(span, initial=0.0)))
    misplaced = _misplaced(found, right)
    if spreads:
        misplaced &= ~np.isnan(found)
    if misplaced.any():
        place = ", ".join(map(str, np.argwhere(misplaced)[0]))
        return Difference(np.inf, 0.0, np.inf, f"element ({place})")
    off, wide, finite = _finite(found, right)
    worst = _worst(off, wide, np.zeros_like(off), step)
    if worst.is_wrong and step:
        moved, _, steady = _finite(again(), right)
        worst = _worst(off, wide, np.where(finite & steady, moved, 0.0), step)
    return worst


def _misplaced(found: Array, right: Array) -> Array:
    """Return where one has NaN or infinity and the other does not have the same."""
    with np.errstate(all="ignore"):
        special = ~(np.isfinite(found) & np.isfinite(right))
        return special & (found != right) & ~(np.isnan(found) & np.isnan(right))


def _finite(found: Array, right: Array) -> tuple[Array, Array, Array]:
    """Return the difference and the right one in double precision, 0 where one is not finite."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(found) & np.isfinite(right)
        wide = np.where(finite, right, 0).astype(np.float64)
        off = np.where(finite, found, 0).astype(np.float64) - wide
        # Of the largest numbers of double precision the difference is none any more.
        return np.clip(off, -_LARGEST, _LARGEST), wide, finite


def _share(differs: Array) -> float:
    return float(np.count_nonzero(differs)) / max(differs.size, 1)


def _worst(off: Array, right: Array, moved: Array, step: float) -> Difference:
    """Return the slice with the largest error for its tolerance.

    Args:
        off: the difference.
        right: what is right.
        moved: how far that moves with its operands; zeros where that was not computed.
        step: as for :func:`compare`.
    """
    largest = float(np.max(np.abs(off), initial=0.0))
    if not largest:
        return Difference(0.0, step, 0.0)
    # Squares of large numbers in double precision would be infinite.
    unit = max(largest, float(np.max(np.abs(right))))
    squares = [np.square(item / unit) for item in (off, right, moved)]
    everywhere = _TINY / unit if step else 0.0
    worst, ratio = Difference(0.0, step, largest), -1.0
    for axis in (None, *range(off.ndim)):
        count = off.size if axis is None else off.size // off.shape[axis]
        if axis is not None and (off.shape[axis] == 1 or count < _SMALLEST_SLICE):
            continue
        error, scale, spread = (_norms(item, axis) for item in squares)
        allowed = step * scale + spread + everywhere * np.sqrt(count)
        if axis is None and step:
            everywhere += _NEIGHBORS * float(allowed[0]) / np.sqrt(count)
        ratios = error / np.maximum(allowed, _LEAST)
        index = int(np.argmax(ratios))
        if ratios[index] > ratio:
            ratio, size = ratios[index], float(scale[index])
            where = "" if axis is None else f"axis {axis}, index {index}"
            part, most = (float(item[index]) / (size or 1 / unit) for item in (error, allowed))
            worst = Difference(part, most, largest, where)
    return worst


def _norms(squares: Array, axis: int | None) -> Array:
    """Return the norm of every slice along an axis; of the whole tensor where there is none."""
    if axis is None:
        return np.sqrt(squares.sum()).reshape(1)
    others = tuple(other for other in range(squares.ndim) if other != axis)
    return np.sqrt(squares.sum(axis=others))
