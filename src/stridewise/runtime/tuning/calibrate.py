"""Calibration: kernels of many families and sizes are measured, to predict those of any network.

Layers come from a rule, not from networks: each family of layers in turn, with sizes from a
low-discrepancy sequence, so that any number of layers covers the sizes evenly. Some families are
those of training steps, whose kernels compute gradients, too. All kernels that the target offers
for a layer are measured, and the reorders around it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, exp, inf
from statistics import fmean, median

from stridewise.graph import Graph
from stridewise.passes import passes_for, simplify
from stridewise.planner import derive
from stridewise.planner.problem.candidates import enumerate_candidates
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.kernel_times import KernelTimes
from stridewise.runtime.tuning.layers import layers
from stridewise.runtime.tuning.offers import with_offers
from stridewise.runtime.tuning.oracle import CALIBRATION, INTEGERS
from stridewise.runtime.tuning.trained_layers import TRAINED, WEIGHTS
from stridewise.targets.cost import KernelCost, Progress
from stridewise.targets.kernels import HOST, KernelSpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import ABILITY, LibraryTarget, onednn_cpu
from stridewise.targets.rates import Sample, predicted
from stridewise.tensor import Grid

__all__ = ["GRIDS", "Calibration", "FamilyRate", "calibrate", "kernels_of"]

_MOST_NS = 2e7
"""Kernels with a larger estimate are not measured: similar smaller ones tell their costs."""
_MAP_RANK = 4  # of images
_HALVES = 7
"""The last three of each so many layers are also measured on bfloat16 tensors, the others on
integers. The number has no common factor with the other periods."""
GRIDS = (Grid("u8", (2.0**-6,)), Grid("u8", (2.0**-6,), (32,)))
"""What the tensors of a layer may be rounded to: without and with numbers below 0."""
_TOGETHER = 64
"""Kernels that are measured in turn."""
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
        disturbed: number of these kernels whose threads had to wait for processors in all
            measurements, because other work ran.
        rates: all families of which samples exist.
    """

    machine: Machine
    measured: int
    seconds: float
    disturbed: int
    rates: tuple[FamilyRate, ...]

    @property
    def warning(self) -> str:
        """A warning if other work disturbed the calibration; "" otherwise."""
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


def kernels_of(
    graph: Graph, times: KernelTimes, target: LibraryTarget, grid: Grid | None = None
) -> list[KernelSpec]:
    """Return the kernels that the target offers for a layer, and reorders around it.

    Args:
        graph: the layer.
        times: tells estimates.
        target: makes kernels.
        grid: what tensors may be rounded to; only kernels on integers are returned then.
    """
    recorder = _Recorder(times)
    # Layers without an operator that names axes come between others that do.
    ranks = {name: len(graph.values[name].shape) for name in graph.inputs if name != WEIGHTS}
    maps = {name: "NCHW" for name, rank in ranks.items() if rank == _MAP_RANK}
    derived = derive(simplify(graph, passes_for(ABILITY, keep_parameters=False)).graph, maps)
    if grid is not None:
        derived = with_offers(derived, dict.fromkeys(_roundable(derived.graph), grid), {})
    enumerate_candidates(derived.graph, target, recorder)
    return [
        spec
        for spec in dict.fromkeys(recorder.specs)
        if spec.kind != HOST
        and times.estimate(spec) <= _MOST_NS
        and (grid is None or any(memory.dtype in INTEGERS for _, memory in spec.memories))
    ]


def _roundable(graph: Graph) -> list[str]:
    """Return the tensors of a layer that integers can store."""
    return [
        name
        for name, value in graph.values.items()
        if value.dtype.short == "f32" and name not in graph.constants
    ]


def calibrate(
    machine: Machine, cache: CostCache, seconds: float, progress: Progress | None = None
) -> Calibration:
    """Measure kernels for some time and return what all samples in the cache tell.

    Args:
        machine: this machine.
        cache: takes the samples; what an interruption leaves is kept.
        seconds: how long to measure; at least one kernel is measured.
        progress: called with the seconds that have passed, all seconds, and the kind of layer.
    """
    target, begin = onednn_cpu(machine), time.monotonic()
    # Without instructions for products of bfloat16, plans hardly use it.
    halves = onednn_cpu(machine, dtype="bfloat16") if machine.has_bfloat16 else target
    ways = [KernelTimes(machine, target, cache, cold=cold) for cold in (False, True)]
    queue = _Queue(begin + seconds)
    for number, graph in enumerate(layers()):
        passed = time.monotonic() - begin
        if number and passed >= seconds:
            break
        if progress is not None:
            progress(int(passed), ceil(seconds), graph.name)
        # Weights that steps change are no constants, which plans count as cold.
        times = ways[0 if graph.name in TRAINED else number // 2 % 2]
        is_half = number % _HALVES >= _HALVES - 3
        found = kernels_of(graph, times, halves if is_half else target)
        if not is_half and machine.has_int8 and graph.name not in TRAINED:
            grid = GRIDS[number // _HALVES % len(GRIDS)]
            found += kernels_of(graph, times, target, grid)
        # Each layer has many reorders. Only a chain has those between formats of inner tensors, and
        # a concatenation copies of slices.
        moves = graph.name in ("chain", "concat") or not number % 4
        specs = [spec for spec in found if spec.kind != "reorder" or moves]
        queue.add(times, specs)
    queue.finish()
    ways[0].record_pace(queue.paces)
    measured = len(queue.seen)
    cache.store({CALIBRATION: ((f"{measured} kernels", time.time()),)})
    if progress is not None:
        progress(ceil(seconds), ceil(seconds), "")
    taken = time.monotonic() - begin
    return Calibration(machine, measured, taken, len(queue.disturbed), tuple(_rates(cache)))


class _Queue:
    """Collects kernels and measures many in turn, each once, and again if that was disturbed.

    Many kernels take turns for a second or more, so that phases in which the machine is faster or
    slower are the same for all. Other work comes and goes as well. On a machine that is always
    busy, half of the time is left for kernels that were not measured before.

    Attributes:
        seen: the texts of all kernels that were measured.
        disturbed: kernels that were disturbed each time, with the texts as keys.
        paces: times of the probe that tells the pace of the machine.
    """

    def __init__(self, until: float) -> None:
        self.seen = set[str]()
        self.disturbed: dict[str, tuple[KernelTimes, KernelSpec]] = {}
        self.paces: list[float] = []
        self._again: dict[KernelTimes, list[KernelSpec]] = {}
        self._waiting: dict[KernelTimes, dict[str, KernelSpec]] = {}
        self._until = until

    def add(self, times: KernelTimes, specs: Sequence[KernelSpec]) -> None:
        """Add kernels to those that wait, and measure these if they are enough."""
        waiting = self._waiting.setdefault(times, {})
        known = self.seen.union(*self._waiting.values())
        waiting |= {key: spec for spec in specs if (key := times.key(spec)) not in known}
        if len(waiting) >= _TOGETHER:
            self._measure(times)

    def finish(self) -> None:
        """Measure all kernels that wait."""
        for times in self._waiting:
            self._measure(times)

    def _measure(self, times: KernelTimes) -> None:
        fresh, self._waiting[times] = self._waiting[times], {}
        again = self._again.get(times, [])[: len(fresh)]
        self._again[times] = self._again.get(times, [])[len(again) :]
        specs = [*fresh.values(), *again]
        found = times.sample(specs, self._until)
        if not (found.specs or self.seen):
            found = times.sample(specs[:1], inf)
        self.paces += [pace for pace in [times.pace()] if pace]
        self.seen.update(map(times.key, found.specs))
        for spec in found.specs:
            self.disturbed.pop(times.key(spec), None)
        self.disturbed |= {times.key(spec): (times, spec) for spec in found.disturbed}
        self._again[times] += [spec for spec in found.disturbed if spec not in again]


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
