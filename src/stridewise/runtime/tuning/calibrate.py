"""Calibration: kernels of many families and sizes are measured, to predict those of any network.

Layers come from a rule, not from networks: each family of layers in turn, with sizes from a
low-discrepancy sequence, so that any number of layers covers the sizes evenly. All kernels that the
target offers for a layer are measured, and the reorders around it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import ceil, exp
from statistics import fmean, median

import numpy as np

from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.passes import passes_for, simplify
from stridewise.planner import derive
from stridewise.planner.problem.candidates import enumerate_candidates
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.kernel_times import KernelTimes
from stridewise.runtime.tuning.oracle import CALIBRATION
from stridewise.targets.cost import KernelCost, Progress
from stridewise.targets.kernels import HOST, KernelSpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import ABILITY, LibraryTarget, onednn_cpu
from stridewise.targets.rates import Sample, predicted

__all__ = ["LAYERS", "Calibration", "FamilyRate", "calibrate", "kernels_of", "layers"]

_MOST_NS = 2e7
"""Kernels with a larger estimate are not measured: similar smaller ones tell their costs."""
_MOST_FLOPS, _MOST_PIXELS = 4e8, 56 * 56 * 256
_BATCHES = (1, 1, 1, 4)
_MULTIPLES = (8, 64, 16, 32, 1)
"""What numbers of channels are multiples of: most networks have powers of 2."""
_ROOT = 1.13472413840152
_APART = 1000
"""Distance of the sequences of sizes of two families."""
_HALVES = 7
"""Of the last three of so many layers the kernels on bfloat16 tensors are measured, too. The number
has no common factor with the other periods."""
_FOLDS = 4
_BEARABLE = 0.1
"""Part of the measurements whose disturbance predictions even out."""


@dataclass(frozen=True, slots=True)
class FamilyRate:
    """What calibration found out about one family of kernels.

    Attributes:
        kind: kind of kernel.
        family: storages of source and destination, and whether weights come from memory.
        samples: number of measured kernels, of this calibration and before.
        factor: geometric mean of measured costs over estimates.
        error: median error of predictions from the other samples, as a part of the cost.
    """

    kind: str
    family: str
    samples: int
    factor: float
    error: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The outcome of a calibration.

    Attributes:
        machine: what was calibrated.
        measured: number of kernels that were measured now.
        seconds: time that this took.
        disturbed: how many of these kernels had to wait for processors that ran other work, also
            when they were measured again.
        rates: all families of which samples exist.
    """

    machine: Machine
    measured: int
    seconds: float
    disturbed: int
    rates: tuple[FamilyRate, ...]

    @property
    def warning(self) -> str:
        """What other work on the machine did to the calibration; "" if there was hardly any."""
        share = self.disturbed / max(1, self.measured)
        if share <= _BEARABLE:
            return ""
        return (
            f"the machine is busy: other work disturbed {share:.0%} of the measurements; "
            "calibrate again when it is idle, for better plans"
        )

    def __str__(self) -> str:
        lines = [
            f"{self.machine}: {self.measured} kernels in {self.seconds:.0f} s",
            *([self.warning] if self.warning else []),
            f"{'kind':<18} {'family':<52} {'samples':>7} {'factor':>7} {'error':>6}",
        ]
        lines += [
            f"{r.kind:<18} {r.family:<52} {r.samples:>7} {r.factor:>7.2f} {r.error:>6.1%}"
            for r in self.rates
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Size:
    """Sizes of a layer."""

    batch: int
    inputs: int
    outputs: int
    side: int


_Layer = Callable[[GraphBuilder, _Size], str]


def _image(b: GraphBuilder, size: _Size, channels: int | None = None) -> str:
    return b.input("x", (size.batch, channels or size.inputs, size.side, size.side))


def _active(b: GraphBuilder, x: str, size: _Size) -> str:
    """Add an activation: in every third size one of exponential functions, which take longer."""
    return _swish(b, x) if size.side % 3 == 0 else b.relu(x)


def _swish(b: GraphBuilder, x: str) -> str:
    return b.op("mul", [x, b.sigmoid(x)])


def _conv(
    window: int | tuple[int, int], stride: int = 1, channels: int | None = None, dilation: int = 1
) -> _Layer:
    def layer(b: GraphBuilder, size: _Size) -> str:
        x = _image(b, size, channels)
        found = b.conv2d(x, size.outputs, window, strides=stride, padding="same", dilation=dilation)
        return _active(b, found, size)

    return layer


def _residual(b: GraphBuilder, size: _Size) -> str:
    x, y = _image(b, size), b.input("y", (size.batch, size.outputs, size.side, size.side))
    return b.relu(b.op("add", [b.conv2d(x, size.outputs, 1), y]))


def _depthwise(window: int, stride: int = 1) -> _Layer:
    def layer(b: GraphBuilder, size: _Size) -> str:
        x, count = _image(b, size), size.inputs
        found = b.conv2d(x, count, window, strides=stride, padding="same", groups=count)
        return _active(b, found, size)

    return layer


def _expanded(b: GraphBuilder, size: _Size) -> str:
    inner = _active(b, b.conv2d(_image(b, size), size.outputs, 1), size)
    found = b.conv2d(inner, size.outputs, 3, padding="same", groups=size.outputs)
    return _active(b, found, size)


def _swish_expanded(b: GraphBuilder, size: _Size) -> str:
    inner = _swish(b, b.conv2d(_image(b, size), size.outputs, 1))
    return _swish(b, b.conv2d(inner, size.outputs, 3, padding="same", groups=size.outputs))


def _chain(b: GraphBuilder, size: _Size) -> str:
    return b.conv2d(b.conv2d(_image(b, size), size.outputs, 1), size.inputs, 1)


def _shuffled(b: GraphBuilder, size: _Size) -> str:
    x = b.relu(_image(b, size, 2 * size.inputs))
    return b.relu(b.op("channel_shuffle", [x], {"groups": 2}))


def _grouped(b: GraphBuilder, size: _Size) -> str:
    each = 4 << size.outputs % 5
    count = each * max(2, size.inputs // each)
    x = _image(b, size, count)
    return b.relu(b.conv2d(x, count, 3, padding="same", groups=count // each))


def _squeezed(b: GraphBuilder, size: _Size) -> str:
    x = _image(b, size)
    mean = b.op("reduce_mean", [x], {"axes": (2, 3), "keepdims": 1})
    return b.op("mul", [x, b.op("sigmoid", [b.conv2d(mean, size.inputs, 1)])])


def _squeezed_1x1(b: GraphBuilder, size: _Size) -> str:
    return b.conv2d(_squeezed(b, size), size.outputs, 1)


def _pool(op: str, window: int, stride: int) -> _Layer:
    def layer(b: GraphBuilder, size: _Size) -> str:
        pool = b.max_pool2d if op == "max" else b.avg_pool2d
        return pool(_image(b, size), window, strides=stride, padding="same")

    return layer


def _concat(b: GraphBuilder, size: _Size) -> str:
    shape = (size.batch, size.outputs, size.side, size.side)
    return b.op("concat", [b.relu(_image(b, size)), b.input("y", shape)], {"axis": 1})


def _sum(b: GraphBuilder, size: _Size) -> str:
    x, y = _image(b, size), b.input("y", (size.batch, size.inputs, size.side, size.side))
    return _active(b, b.op("add", [x, y]), size)


def _dense(b: GraphBuilder, size: _Size) -> str:
    return b.dense(b.input("x", (size.batch, 4 * size.inputs)), 4 * size.outputs)


def _tokens(b: GraphBuilder, size: _Size) -> str:
    x = b.input("x", (size.batch, size.side * size.side // 4 or 1, size.inputs))
    weights = b.constant(np.zeros((size.inputs, size.outputs), np.float32))
    return b.op("softmax", [b.op("matmul", [b.layer_norm(x), weights])], {"axis": 2})


LAYERS: Mapping[str, _Layer] = {
    "1x1": _conv(1),
    "3x3": _conv(3),
    "depthwise 3x3": _depthwise(3),
    "residual": _residual,
    "3x3 by 2": _conv(3, 2),
    "expanded": _expanded,
    "squeezed": _squeezed,
    "first": _conv(3, 2, 3),
    "1x1 by 2": _conv(1, 2),
    "grouped": _grouped,
    "max pool": _pool("max", 3, 2),
    "5x5": _conv(5),
    "concat": _concat,
    "depthwise 5x5": _depthwise(5),
    "sum": _sum,
    "dense": _dense,
    "depthwise 3x3 by 2": _depthwise(3, 2),
    "first 7x7": _conv(7, 2, 3),
    "average pool": _pool("average", 3, 1),
    "1x7": _conv((1, 7)),
    "max pool 2x2": _pool("max", 2, 2),
    "tokens": _tokens,
    "depthwise 5x5 by 2": _depthwise(5, 2),
    "7x1": _conv((7, 1)),
    "dilated": _conv(3, 1, None, 2),
    "depthwise 7x7": _depthwise(7),
    "expanded swish": _swish_expanded,
    "chain": _chain,
    "shuffled": _shuffled,
    "squeezed 1x1": _squeezed_1x1,
}
_TWICE = ("1x1", "3x3", "depthwise 3x3", "1x1")
"""Layers that networks have most of are repeated between the others."""


def _size(number: int) -> _Size:
    """Return the sizes of a layer, even in logarithms: 8 to 1024 channels, 7 to 112 pixels.

    They follow an additive recurrence by powers of the root of x^6 = x + 1, whose points are evenly
    spread in five dimensions for any range of numbers (M. Roberts, *The Unreasonable Effectiveness
    of Quasirandom Sequences*, 2018).
    """
    wide, high, far, even, many = ((0.5 + number * _ROOT**-power) % 1.0 for power in range(1, 6))
    multiple = _MULTIPLES[int(even * len(_MULTIPLES))]
    channels = [
        max(multiple, round(2.0 ** (3 + 7 * at) / multiple) * multiple) for at in (wide, high)
    ]
    side = round(7 * 2.0 ** (4 * far))
    while 18.0 * side * side * channels[0] * channels[1] > _MOST_FLOPS and side > 7:
        side = -(-side // 2)
    while side * side * max(channels) > _MOST_PIXELS:
        side = -(-side // 2)
    batch = _BATCHES[int(many * len(_BATCHES))] if side <= 28 else 1
    return _Size(batch, channels[0], channels[1], side)


def layers() -> Iterator[Graph]:
    """Yield layers without an end, each family with sizes of its own sequence."""
    order: list[str] = []
    for position, name in enumerate(LAYERS):
        order += [name, *((_TWICE[position // 2 % len(_TWICE)],) if position % 2 else ())]
    numbers = {name: _APART * position for position, name in enumerate(LAYERS)}
    for name in cycle(order):
        numbers[name] += 1
        b = GraphBuilder(name)
        yield b.build([LAYERS[name](b, _size(numbers[name]))])


class _Recorder:
    """An oracle that keeps what it is asked for."""

    def __init__(self, times: KernelTimes) -> None:
        self.specs: list[KernelSpec] = []
        self._times = times

    def costs(
        self, specs: Sequence[KernelSpec], progress: Progress | None = None
    ) -> dict[KernelSpec, tuple[KernelCost, ...]]:
        del progress
        self.specs += specs
        return {spec: (KernelCost(self._times.estimate(spec), "", "model"),) for spec in specs}


def kernels_of(graph: Graph, times: KernelTimes, target: LibraryTarget) -> list[KernelSpec]:
    """Return the kernels that the target offers for a layer, and reorders around it."""
    recorder = _Recorder(times)
    derived = derive(simplify(graph, passes_for(ABILITY, keep_parameters=False)).graph)
    enumerate_candidates(derived.graph, target, recorder)
    return [
        spec
        for spec in dict.fromkeys(recorder.specs)
        if spec.kind != HOST and times.estimate(spec) <= _MOST_NS
    ]


def calibrate(
    machine: Machine, cache: CostCache, seconds: float, progress: Progress | None = None
) -> Calibration:
    """Measure kernels for some time and return what all samples in the cache tell.

    Args:
        machine: this machine.
        cache: takes the samples; what an interruption leaves is kept.
        seconds: how long to measure.
        progress: called with the seconds that have passed, all seconds, and the kind of layer.
    """
    target, begin = onednn_cpu(machine), time.monotonic()
    # Without instructions for products of bfloat16, plans hardly use it.
    halves = onednn_cpu(machine, dtype="bfloat16") if machine.has_bfloat16 else target
    ways = [KernelTimes(machine, target, cache, cold=cold) for cold in (False, True)]
    queue = _Queue(begin + seconds)
    for number, graph in enumerate(layers()):
        passed = time.monotonic() - begin
        if passed >= seconds:
            break
        if progress is not None:
            progress(int(passed), ceil(seconds), graph.name)
        times = ways[number // 2 % 2]
        offer = halves if number % _HALVES >= _HALVES - 3 else target
        # Each layer has many reorders. Only a chain has those between formats of inner tensors, and
        # a concatenation copies of slices.
        moves = graph.name in ("chain", "concat") or not number % 4
        specs = [s for s in kernels_of(graph, times, offer) if s.kind != "reorder" or moves]
        queue.measure(times, specs)
    measured = len(queue.seen)
    cache.store({CALIBRATION: ((f"{measured} kernels", time.time()),)})
    if progress is not None:
        progress(ceil(seconds), ceil(seconds), "")
    taken = time.monotonic() - begin
    return Calibration(machine, measured, taken, len(queue.disturbed), tuple(_rates(cache)))


class _Queue:
    """Measures kernels, each once, and again if other work disturbed that.

    Some time lies between, as other work comes and goes. On a machine that is always busy, half of
    the time is left for kernels that were not measured before.

    Attributes:
        seen: the texts of all kernels that were measured.
        disturbed: kernels that were disturbed each time, with the texts as keys.
    """

    def __init__(self, until: float) -> None:
        self.seen = set[str]()
        self.disturbed: dict[str, tuple[KernelTimes, KernelSpec]] = {}
        self._waiting: deque[tuple[KernelTimes, KernelSpec]] = deque()
        self._until = until

    def measure(self, times: KernelTimes, specs: Sequence[KernelSpec]) -> None:
        """Measure what was not measured before, and as many of the disturbed kernels again."""
        again = [self._waiting.popleft() for _ in range(min(len(specs), len(self._waiting)))]
        for other, spec in again:
            if not other.sample([spec], self._until).disturbed:
                self.disturbed.pop(other.key(spec), None)
        found = times.sample([s for s in specs if times.key(s) not in self.seen], self._until)
        self.seen.update(map(times.key, found.specs))
        self.disturbed |= {times.key(spec): (times, spec) for spec in found.disturbed}
        self._waiting += [(times, spec) for spec in found.disturbed]


def _rates(cache: CostCache) -> Iterator[FamilyRate]:
    for kind in cache.sample_kinds():
        samples = list(cache.samples(kind).rows(kind))
        errors = _errors(samples)
        for family in sorted({sample.traits.family for sample in samples}):
            chosen = [i for i, sample in enumerate(samples) if sample.traits.family == family]
            factor = exp(fmean(samples[i].ratio for i in chosen))
            error = exp(median(errors[i] for i in chosen)) - 1
            yield FamilyRate(kind, family, len(chosen), factor, error)


def _errors(samples: Sequence[Sample]) -> list[float]:
    """Return the logarithm of the error of each sample, predicted from three quarters of others."""
    found = [0.0] * len(samples)
    for fold in range(_FOLDS):
        known = [sample for i, sample in enumerate(samples) if i % _FOLDS != fold]
        asked = range(fold, len(samples), _FOLDS)
        rates = predicted(known, [samples[i].traits for i in asked])
        for i, rate in zip(asked, rates, strict=True):
            found[i] = abs(samples[i].ratio - rate.ratio)
    return found
