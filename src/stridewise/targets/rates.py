"""Costs of kernels that were not measured, from those of similar kernels that were.

The analytic estimate of a kernel is corrected by the ratios of measured costs to estimates. The
logarithms of these ratios are a Gaussian process: kernels of one kind have much in common, those of
one family (the same storages) or one way to compute more, and those of similar sizes most. So a
family with few samples has the correction of its kind, and one with many has its own, by size.
Rasmussen and Williams, *Gaussian Processes for Machine Learning*, equations 2.25 and 2.26.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNKNOWN", "Rate", "Sample", "Traits", "predicted"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Traits:
    """What the time of a kernel depends on.

    Attributes:
        kind: kind of kernel. Kernels of different kinds have nothing in common.
        family: storages and element types of source and destination.
        way: groups, windows, strides and algorithm.
        numbers: logarithms of sizes to base 2, each over its length scale; always as many.
    """

    kind: str
    family: str
    way: str
    numbers: tuple[float, ...]

    @property
    def groups(self) -> str:
        """The first word of the way: ``"whole"``, ``"groups"`` or ``"depthwise"``."""
        return self.way.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured kernel.

    Attributes:
        traits: its traits.
        ratio: logarithm of the measured cost over the estimate.
        implementation: the fastest one.
    """

    traits: Traits
    ratio: float
    implementation: str


@dataclass(frozen=True, slots=True)
class Rate:
    """The correction of an estimate.

    Attributes:
        ratio: expected logarithm of the cost over the estimate.
        deviation: standard deviation of that.
        implementation: the one that is fastest for similar kernels of the same family; "" if none
            is known.
    """

    ratio: float
    deviation: float
    implementation: str


_KIND, _FAMILY, _WAY, _SIZES, _BOTH = 0.10, 0.07, 0.03, 0.07, 0.06
"""Variances of a ratio that kernels share: of the same kind; of the same family; with the same way;
of the same sizes; of the same family and way, once for all and once for the same sizes."""
_NOISE = 0.002
_NEAREST = 32
_VOTES = 8
_PRIOR = _KIND + _FAMILY + _WAY + _SIZES + 2 * _BOTH

UNKNOWN = Rate(0.0, 1.0, "")
"""The rate of a kernel of whose kind no sample exists."""


def _covariance(family: Array, way: Array, distance: Array) -> Array:
    """Return the covariance of pairs: whether families and ways are equal, squared distances."""
    # Costs jump where the library switches its algorithm, so the process is not smooth.
    near, both = np.exp(-np.sqrt(distance)), family & way
    return _KIND + _FAMILY * family + _WAY * way + _SIZES * near + _BOTH * both * (1 + near)


def _squared(a: Array, b: Array) -> Array:
    """Return squared distances of the rows of ``a`` and ``b`` (..., rows, numbers)."""
    squares = (a**2).sum(-1)[..., :, None] + (b**2).sum(-1)[..., None, :]
    return np.maximum(0.0, squares - 2.0 * a @ np.swapaxes(b, -1, -2))


@dataclass(frozen=True, slots=True)
class _Points:
    """Traits of some kernels as arrays: numbers for families and ways, and the sizes."""

    family: Array
    way: Array
    sizes: Array

    @classmethod
    def of(cls, traits: Sequence[Traits], words: dict[str, int]) -> _Points:
        family, way = (
            np.array([words.setdefault(word, len(words)) for word in texts])
            for texts in ([t.family for t in traits], [t.way for t in traits])
        )
        return cls(family, way, np.array([t.numbers for t in traits]))

    def at(self, index: Array) -> _Points:
        return _Points(self.family[index], self.way[index], self.sizes[index])

    def shared(self, other: _Points) -> Array:
        """Return the covariances with other kernels."""
        return _covariance(
            self.family[..., :, None] == other.family[..., None, :],
            self.way[..., :, None] == other.way[..., None, :],
            _squared(self.sizes, other.sizes),
        )


def predicted(samples: Sequence[Sample], wanted: Sequence[Traits]) -> list[Rate]:
    """Return the rates of kernels of one kind.

    The result depends on nothing but the arguments. Of the samples, those that have most in common
    with a kernel count.

    Args:
        samples: measured kernels of that kind.
        wanted: traits of the kernels.
    """
    if not samples or not wanted:
        return [UNKNOWN] * len(wanted)
    words: dict[str, int] = {}
    points = _Points.of([sample.traits for sample in samples], words)
    ratios = np.array([sample.ratio for sample in samples])
    covariance = _Points.of(wanted, words).shared(points)
    nearest = _largest(covariance, _NEAREST)
    cross: Array = np.take_along_axis(covariance, nearest, axis=1)
    close = points.at(nearest)
    within = close.shared(close) + _NOISE * np.eye(nearest.shape[1])
    solved = np.linalg.solve(within, np.stack([ratios[nearest], cross], axis=-1))
    mean, explained = np.einsum("qn,qnk->kq", cross, solved)
    deviation = np.sqrt(np.maximum(_NOISE, _PRIOR + _NOISE - explained))
    voters: list[list[int]] = nearest[:, :_VOTES].tolist()
    return [
        Rate(float(m), float(d), _elected(traits, [samples[i] for i in near], weights))
        for traits, m, d, near, weights in zip(wanted, mean, deviation, voters, cross, strict=True)
    ]


def _largest(values: Array, count: int) -> Array:
    """Return the positions of the largest values of each row, in descending order."""
    found: Array = np.argpartition(-values, min(count, values.shape[1]) - 1, axis=1)[:, :count]
    chosen: Array = np.take_along_axis(values, found, axis=1)
    order = np.argsort(-chosen, axis=1, kind="stable")
    result: Array = np.take_along_axis(found, order, axis=1)
    return result


def _elected(traits: Traits, nearest: Sequence[Sample], weights: Array) -> str:
    """Return the implementation that most of the nearest samples have; each has a weight.

    An implementation that is fast for one family of kernels, or for convolutions without groups,
    may be a hundred times slower for others. So only samples of the same family and the same kind
    of groups vote. Without any, the choice is left to the library.
    """
    votes: dict[str, float] = {}
    for sample, weight in zip(nearest, weights[: len(nearest)], strict=True):
        if (sample.traits.family, sample.traits.groups) == (traits.family, traits.groups):
            name = sample.implementation
            votes[name] = votes.get(name, 0.0) + float(weight) ** 4
    return max(votes, key=lambda name: votes[name], default="")
