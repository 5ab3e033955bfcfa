"""Costs of kernels that were not measured, from those of similar kernels that were.

The analytic estimate of a kernel is corrected by the ratios of measured costs to estimates. The
logarithms of these ratios are a Gaussian process: kernels of one kind have much in common, those of
one family (the same storages) or one way to compute more, and those of similar sizes most. So a
family with few samples has the correction of its kind, and one with many has its own, by size.
Rasmussen and Williams, *Gaussian Processes for Machine Learning*, equations 2.25 and 2.26.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass

__all__ = ["UNKNOWN", "VERSION", "Rate", "Sample", "Samples", "Traits", "predicted"]

Array = NDArray[Any]

VERSION = 31
"""Changes with the meaning of traits, the analytic estimates, how kernels are measured, and how
fast the core's kernels are: samples and costs of other versions are ignored."""


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


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured kernel.

    Attributes:
        traits: its traits.
        ratio: logarithm of the measured cost over the estimate.
        implementation: all implementations with the part of the fastest one's time that they take
            longer, as text: ``"jit 0.0, gemm 0.35"``. A name alone stands for the fastest one.
        is_disturbed: whether other work on the machine disturbed the measurement.
    """

    traits: Traits
    ratio: float
    implementation: str
    is_disturbed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Measured kernels of one kind by columns, because thousands of them are read at once.

    Attributes:
        families: family of each.
        ways: way of each.
        sizes: numbers of each (kernels, numbers), float64.
        ratios: logarithm of the measured cost over the estimate of each (kernels,), float64.
        implementations: those of each as text; see :class:`Sample`.
        disturbed: whether other work disturbed the measurement of each (kernels,), bool.
    """

    families: Sequence[str]
    ways: Sequence[str]
    sizes: Array
    ratios: Array
    implementations: Sequence[str]
    disturbed: Array

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Samples:
        """Return the columns of samples of one kind, each with as many numbers."""
        traits = [sample.traits for sample in samples]
        return cls(
            [item.family for item in traits],
            [item.way for item in traits],
            np.array([item.numbers for item in traits]),
            np.array([sample.ratio for sample in samples]),
            [sample.implementation for sample in samples],
            np.array([sample.is_disturbed for sample in samples], np.bool_),
        )

    def rows(self, kind: str) -> Iterator[Sample]:
        """Yield the samples one by one."""
        for at, name in enumerate(self.implementations):
            numbers: list[float] = self.sizes[at].tolist()
            traits = Traits(kind, self.families[at], self.ways[at], tuple(numbers))
            yield Sample(traits, float(self.ratios[at]), name, bool(self.disturbed[at]))


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
_DISTURBED_NOISE = 64.0
"""Variances of a measurement, and of one that other work disturbed. The latter counts for next to
nothing, so where there are no others, predictions stay close to the estimates."""
_FAR = 2.0
"""A measurement counts less if it is slower than the others let expect by more than so many
standard deviations."""
_NEAREST = 32
_ABSENT = 0.5
"""The loss by an implementation that a similar kernel lacks: it may not exist for this one."""
_MOST_LOSS = 1.0
"""What larger losses count: single measurements may be wrong by any factor."""
_USUAL = ("brgconv_1x1", "brgconv", "jit_1x1", "jit_dw", "brdgmm_dw", "jit_int8", "jit")
"""Implementations of convolutions that the library has for few shapes come before those that it has
for more of them: the general ones are rarely much faster, and may take twice as long; ``jit_int8``
takes five times as long for 64 channels of 55 x 55 pixels as for 56 x 56 (Zen 5)."""
_FEWEST = 3
"""Samples without which none of other implementations is preferred to the library's choice. The one
that was fastest in two small transposed convolutions took five times as long as the library's
choice for 1024 channels."""
_USUAL_LOSS = 0.9
"""The loss that this order lets expect of a later implementation. It counts as much as the nearest
sample."""
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
    # A product by a library of linear algebra would start its threads, which spin for a while.
    products: Array = np.einsum("...in,...jn->...ij", a, b)
    return np.maximum(0.0, squares - 2.0 * products)


@dataclass(frozen=True, slots=True)
class _Points:
    """Traits of some kernels as arrays: numbers for families and ways, and the sizes."""

    family: Array
    way: Array
    sizes: Array

    @classmethod
    def of(
        cls, families: Sequence[str], ways: Sequence[str], sizes: Array, words: dict[str, int]
    ) -> _Points:
        family, way = (
            np.array([words.setdefault(word, len(words)) for word in texts])
            for texts in (families, ways)
        )
        return cls(family, way, sizes)

    def at(self, index: Array) -> _Points:
        return _Points(self.family[index], self.way[index], self.sizes[index])

    def shared(self, other: _Points) -> Array:
        """Return the covariances with other kernels."""
        return _covariance(
            self.family[..., :, None] == other.family[..., None, :],
            self.way[..., :, None] == other.way[..., None, :],
            _squared(self.sizes, other.sizes),
        )


def predicted(samples: Samples | Sequence[Sample], wanted: Sequence[Traits]) -> list[Rate]:
    """Return the rates of kernels of one kind.

    The result depends on nothing but the arguments. Of the samples, those that have most in common
    with a kernel count.

    Args:
        samples: measured kernels of that kind.
        wanted: traits of the kernels.
    """
    known = samples if isinstance(samples, Samples) else Samples.of(samples)
    if not len(known.ratios) or not wanted:
        return [UNKNOWN] * len(wanted)
    words: dict[str, int] = {}
    points = _Points.of(known.families, known.ways, known.sizes, words)
    families, ways = [item.family for item in wanted], [item.way for item in wanted]
    asked = _Points.of(families, ways, np.array([item.numbers for item in wanted]), words)
    covariance = asked.shared(points)
    nearest = _largest(covariance, _NEAREST)
    cross: Array = np.take_along_axis(covariance, nearest, axis=1)
    close = points.at(nearest)
    within = close.shared(close) + _NOISE * np.eye(nearest.shape[1])
    ratios = known.ratios[nearest]
    within += _diagonal(_DISTURBED_NOISE * known.disturbed[nearest])
    within += _diagonal(_disturbance(within, ratios))
    solved = np.linalg.solve(within, np.stack([ratios, cross], axis=-1))
    mean, explained = np.einsum("qn,qnk->kq", cross, solved)
    # What is far from all samples is no better known than they are.
    mean = np.clip(mean, np.minimum(0.0, ratios.min(axis=1)), np.maximum(0.0, ratios.max(axis=1)))
    deviation = np.sqrt(np.maximum(_NOISE, _PRIOR + _NOISE - explained))
    rows = zip(
        wanted, mean.tolist(), deviation.tolist(), nearest.tolist(), cross.tolist(), strict=True
    )
    return [Rate(m, d, _elected(traits, known, *votes)) for traits, m, d, *votes in rows]


def _diagonal(values: Array) -> Array:
    """Return matrices with these diagonals (..., n)."""
    return values[..., :, None] * np.eye(values.shape[-1])


def _disturbance(within: Array, ratios: Array) -> Array:
    """Return the variance that other work on the machine added to each measurement.

    It is what the square of the difference from the expectation by the other samples has beyond
    that of few standard deviations. Other work only ever adds time, so faster kernels count fully.
    Rasmussen and Williams, equation 5.12.

    Args:
        within: covariances of the samples (kernels, samples, samples).
        ratios: their ratios (kernels, samples).
    """
    centered = ratios - _median(ratios)
    inverse = np.linalg.inv(within)
    precision: Array = np.einsum("qii->qi", inverse)
    residual = np.einsum("qij,qj->qi", inverse, centered) / precision
    found: Array = np.maximum(0.0, residual**2 - _FAR**2 / precision)
    return np.where(residual > 0, found, 0.0)


def _median(values: Array) -> Array:
    """Return the median of each row (rows, 1).

    NumPy's own function imports its masked arrays, which takes as long as all predictions.
    """
    ordered, count = np.sort(values, axis=1), values.shape[1]
    middle: Array = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return middle[:, None]


def _largest(values: Array, count: int) -> Array:
    """Return the positions of the largest values of each row, in descending order."""
    found: Array = np.argpartition(-values, min(count, values.shape[1]) - 1, axis=1)[:, :count]
    chosen: Array = np.take_along_axis(values, found, axis=1)
    order = np.argsort(-chosen, axis=1, kind="stable")
    result: Array = np.take_along_axis(found, order, axis=1)
    return result


def _groups(way: str) -> str:
    """Return the first word of a way: ``"whole"``, ``"groups"`` or ``"depthwise"``."""
    return way.partition(" ")[0]


def _window(way: str) -> str:
    """Return the window of a way; all of a way without one."""
    return way.rpartition("window=")[2]


def _storages(family: str) -> str:
    """Return the storages of a family, without what else tells it apart."""
    return family.partition(",")[0]


@lru_cache(maxsize=4096)
def _losses(text: str) -> dict[str, float]:
    """Return implementations, and which part longer than the fastest one they take."""
    found: dict[str, float] = {}
    for item in text.split(", "):
        name, _, loss = item.rpartition(" ")
        with suppress(ValueError):
            found[name or loss] = min(_MOST_LOSS, float(loss)) if name else 0.0
    return found


def _is_usual(name: str) -> bool:
    return name.partition(":")[0] in _USUAL


def _rank(name: str) -> int:
    return _USUAL.index(name.partition(":")[0])


@lru_cache(maxsize=4096)
def _class(family: str, way: str) -> tuple[str, str, str]:
    """Return what kernels share that the library may compute by the same implementations."""
    return _storages(family), _groups(way), _window(way)


def _elected(
    traits: Traits, known: Samples, nearest: Sequence[int], weights: Sequence[float]
) -> str:
    """Return the implementation with the least expected loss.

    The loss is the weighted mean of those of the nearest samples (Nadaraya 1964, Watson 1964). An
    implementation that is fast for some storages, windows or kinds of groups may be a hundred times
    slower for others, or not exist, so samples of others do not count. The library's usual order
    counts like one more sample. Without any sample, or with few of implementations outside of that
    order, the choice is left to the library.
    """
    own = _class(traits.family, traits.way)
    voters = [
        (weight**2, _losses(known.implementations[sample]))
        for sample, weight in zip(nearest, weights, strict=True)
        if _class(known.families[sample], known.ways[sample]) == own
    ]
    names = dict.fromkeys(name for _, losses in voters for name in losses)
    if not names or (len(voters) < _FEWEST and not any(map(_is_usual, names))):
        return ""
    loss = {name: sum(w * losses.get(name, _ABSENT) for w, losses in voters) for name in names}
    nearest_weight = max(weight for weight, _ in voters)
    for name in sorted(filter(_is_usual, names), key=_rank)[1:]:
        loss[name] += _USUAL_LOSS * nearest_weight
    return min(loss, key=lambda name: loss[name])
