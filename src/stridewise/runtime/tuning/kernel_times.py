"""Times of isolated kernels: those in the cost cache, and measurements that add to them.

A network whose weights do not fit into the last-level cache reads them from memory in every run,
so its kernels are timed with weights evicted from the caches; those of smaller networks with warm
weights. Kernels without weights stream activations, which the first caches no longer hold when
they are read; they are timed on many copies in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from math import log

from stridewise.classes import dataclass
from stridewise.graph import Refusal
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import create, implementations
from stridewise.runtime.binding.provision import Provision
from stridewise.runtime.machine.machine import cache_nbytes
from stridewise.runtime.tuning.cost_cache import CostCache, Entry
from stridewise.runtime.tuning.disturbance import Waits
from stridewise.runtime.tuning.timing import median
from stridewise.runtime.tuning.windows import WINDOWS, Entrant, paired_costs, take_turns
from stridewise.targets.cost import (
    KernelCost,
    Progress,
    Roofline,
    Source,
    is_reference,
    product_dtype,
)
from stridewise.targets.kernels import KernelSpec, MemorySpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.table import has_tiles, post_ops_ns
from stridewise.targets.onednn.target import LibraryTarget
from stridewise.targets.onednn.traits import traits_of
from stridewise.targets.rates import Sample, Samples

__all__ = ["KernelTimes", "Known", "Sampled", "roofline"]

Known = tuple[KernelCost, ...] | Refusal
"""The implementations of a kernel, cheapest first, or why there is none."""

_FIRST_SHARE = 0.5
"""Part of the time that the first windows of kernels may take; the others need the rest."""
_LONG_FLOPS, _NAIVE_FLOPS_PER_NS = 2e7, 1.0
"""Naive loops of more operations, which would take half a second or longer, are not run. Their cost
is a guess, far above that of any useful kernel: no plan depends on its error."""

# One AVX-512 core of today does about 100 GFLOP/s in float32 and shares some 40 GB/s.
_FLOPS_PER_CORE = {True: 1.0e11, False: 5.0e10}
_BANDWIDTH = 4.0e10
# Twice the products per instruction; without such instructions, elements are widened first.
_BFLOAT16_RATE = {True: 2.0, False: 0.8}
# Without instructions for four products, two numbers of 16 bits are multiplied.
_INT8_RATE = {True: 4.0, False: 2.0}
# With AMX the library multiplies tiles where it can: a core of Emerald Rapids reached 0.5 to 1.4
# TFLOP/s in a 3x3 convolution of bfloat16. Its other instructions for products of bfloat16 are no
# faster than those for float32.
_TILE_RATES = {"bf16": 12.0, "s8": 24.0}
_BFLOAT16_RATE_BESIDE_TILES = 1.0
_COLD_BYTES_PER_NS = 25.0
_WEIGHTS = frozenset({"depthwise_weights", "weights"})
"""Roles of the weights of kernels."""
_MATRIX_NS = {True: 25.0, False: 400.0}
"""What starting a product of small matrices takes, with AVX-512 and without, where the library
calls a GEMM for each: 840 products of 7 x 3 by 3 x 8 took 10 and 200 us on two threads of Zen 5."""
_OVERHEAD_NS = 600.0
"""What calling an isolated kernel takes."""

_SQUARE = MemorySpec((192, 192), "ab")
_PROBE = KernelSpec(
    "matmul", (("src", _SQUARE), ("weights", _SQUARE), ("dst", _SQUARE)), flops=2.0 * 192**3
)
"""What tells the pace of the machine: a product that any library has a fast kernel for."""
_PACE = "pace"
"""The record of the time of the probe in a calibration."""
_USUAL = 1.2
"""Paces that differ by no more than this factor count as equal."""
_SLOWEST = 2.5
"""Paces that differ by more than this factor are not those of a phase: other work ran."""
_FASTER = 1.05
"""How much faster than the probe any product may be."""
_PRODUCTS = frozenset({"conv1x1", "convolution", "inner_product", "matmul"})
"""Kinds of kernels that do all of the operations of their specs if their windows have one tap."""


def roofline(machine: Machine, target: LibraryTarget) -> Roofline:
    """Return the analytic cost model of a machine."""
    peak = machine.threads * _FLOPS_PER_CORE[machine.has_avx512]
    rate, int8_rate = _BFLOAT16_RATE[machine.has_bfloat16], _INT8_RATE[machine.has_int8_products]
    if machine.has_tiles:
        rate = _BFLOAT16_RATE_BESIDE_TILES
    return Roofline(
        peak, _BANDWIDTH, target.efficiency,
        bfloat16_rate=rate, int8_rate=int8_rate,
        tile_rates=_TILE_RATES if machine.has_tiles else None, has_tiles=has_tiles,
        threads=machine.threads, post_ops_ns=post_ops_ns,
        matrix_ns=_MATRIX_NS[machine.has_avx512],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sampled:
    """What :meth:`KernelTimes.sample` measured.

    Attributes:
        specs: all kernels.
        disturbed: those that waited for processors which ran other work.
    """

    specs: tuple[KernelSpec, ...]
    disturbed: tuple[KernelSpec, ...]


@dataclass(frozen=True, slots=True)
class _Effort:
    """What a measurement takes.

    Attributes:
        window_ns: time of a window.
        windows: how many of them count.
        nbytes: operands of kernels that take turns, the last kernel apart.
        covers: whether each kernel should run in a window before others run in more of them.
    """

    window_ns: int
    windows: int
    nbytes: int
    covers: bool


_COSTS = _Effort(3_000_000, WINDOWS, 64_000_000, covers=True)
_SAMPLES = _Effort(1_000_000, WINDOWS, 512_000_000, covers=False)
"""For a calibration, where similar kernels even errors out, and no model takes memory."""
_DOUBTS = _Effort(250_000, WINDOWS // 2, 16_000_000, covers=False)
"""For kernels whose predictions err by far more, while a user waits."""


class KernelTimes:
    """Times kernels, and keeps their costs and samples in the cost cache."""

    def __init__(
        self,
        machine: Machine,
        target: LibraryTarget,
        cache: CostCache,
        *,
        cold: bool = False,
        memory: Provision | None = None,
    ) -> None:
        """Time for ``machine``; nothing is read or measured yet.

        Args:
            machine: what costs hold for.
            target: its estimates are what samples correct.
            cache: where costs are kept.
            cold: whether weights come from memory in every run of the model.
            memory: what is being provided, except while kernels are timed.
        """
        self.machine, self.cache, self._memory = machine, cache, memory
        self._roofline = replace(roofline(machine, target), overhead_ns=_OVERHEAD_NS)
        self._cold = cold
        self._spread_nbytes = 2 * machine.threads * cache_nbytes(2)
        self._samples: dict[str, Samples] = {}
        self._keys: dict[KernelSpec, str] = {}
        self._estimates: dict[KernelSpec, float] = {}

    def is_cold(self, spec: KernelSpec) -> bool:
        """Return whether a kernel reads weights from memory."""
        return self._cold and spec.memory("weights") is not None

    def key(self, spec: KernelSpec) -> str:
        """Return the key of a kernel in the cost cache."""
        known = self._keys.get(spec)
        if known is None:
            marks = [" one thread"] * spec.is_small + [" cold"] * self.is_cold(spec)
            known = self._keys[spec] = "".join((str(spec), *marks))
        return known

    def estimate(self, spec: KernelSpec) -> float:
        """Return the nanoseconds that samples of a kernel are related to."""
        known = self._estimates.get(spec)
        if known is None:
            weights, known = spec.memory("weights"), self._roofline.cost(spec).cost_ns
            if weights is not None and self._cold:
                known += weights.nbytes / _COLD_BYTES_PER_NS
            self._estimates[spec] = known
        return known

    def known(self, specs: Sequence[KernelSpec]) -> dict[KernelSpec, Known]:
        """Return the costs of the kernels that were measured at any time."""
        keys = {spec: self.key(spec) for spec in specs}
        cached = self.cache.find(keys.values())
        return {spec: _named(spec, cached[key]) for spec, key in keys.items() if key in cached}

    def measure(
        self,
        specs: Sequence[KernelSpec],
        progress: Progress | None = None,
        until: float | None = None,
        *,
        predicted: Mapping[KernelSpec, float] | None = None,
    ) -> dict[KernelSpec, Known]:
        """Measure kernels and return their costs. What precedes an interruption is kept.

        Costs of kernels that other work disturbed in all measurements are provisional.

        Args:
            specs: what to measure, the most important kernels first.
            progress: called before each kernel, and at the end.
            until: time of ``time.monotonic`` at which to stop; the rest has no costs then.
            predicted: nanoseconds by which a plan can be made without measuring, if there are any.
                They replace provisional costs, which are left out then, and few kernels are
                measured while a user waits, in a short time for each. Their costs are those at the
                pace of the calibration.
        """
        with nullcontext() if self._memory is None else self._memory.paused():
            return self._measured(specs, progress, until, predicted)

    def record_pace(self, paces: Sequence[float]) -> None:
        """Keep the times of the probe in a calibration, which predictions hold for."""
        if paces:
            self.cache.store({_PACE: (("probe", median(paces)),)})

    def pace(self) -> float:
        """Return the nanoseconds that the probe takes now; 0 if other work disturbs it."""
        found: list[float] = []

        def keep(fresh: dict[KernelSpec, tuple[Entry, ...]], disturbed: set[KernelSpec]) -> None:
            found.extend(0.0 if disturbed else cost for _, cost in fresh.get(_PROBE, ())[:1])

        self._run([_PROBE], _DOUBTS, None, keep)
        return max(found, default=0.0)

    def _recorded_pace(self) -> float:
        return dict(self.cache.find((_PACE,)).get(_PACE, ())).get("probe", 0.0)

    def least_ns(self, specs: Sequence[KernelSpec]) -> dict[KernelSpec, float]:
        """Return for each product the nanoseconds below which the machine cannot compute it.

        Predictions from kernels of other sizes may be below that.
        """
        pace = self._recorded_pace()
        if pace <= 0 or self.machine.has_tiles:
            return {}
        most = {"f32": 1.0, "bf16": _BFLOAT16_RATE[True] if self.machine.has_bfloat16 else 1.0}
        found: dict[KernelSpec, float] = {}
        for spec in specs:
            weights, dtype = spec.memory("weights"), product_dtype(spec)
            if spec.kind not in _PRODUCTS or weights is None or dtype not in most:
                continue
            if spec.kind == "convolution" and any(extent > 1 for extent in weights.dims[2:]):
                continue
            threads = 1 if spec.is_small else self.machine.threads
            rate = _FASTER * most[dtype] * _PROBE.flops / pace * threads / self.machine.threads
            found[spec] = spec.flops / rate
        return found

    def _slowness(
        self,
        measured: Mapping[KernelSpec, tuple[Entry, ...]],
        predicted: Mapping[KernelSpec, float],
        probed: tuple[Entry, ...] | None,
    ) -> float | None:
        """Return how many times as long as in the calibration kernels take now.

        Virtual machines have phases in which all takes up to twice as long. Beside predictions, a
        cost from such a phase would look like that of a slow kernel. The probe alone does not tell:
        phases may be as short as its windows. So the kernels have to agree with it, by the median
        of their times relative to those predicted; what both tell is the phase. If the threads of
        the probe had to wait for a processor, its time tells nothing of other kernels: None.
        """
        then = self._recorded_pace()
        now = min((cost for _, cost in probed or ()), default=0.0)
        if then <= 0 or now <= 0 or max(now / then, then / now) <= _USUAL:
            return 1.0
        slowness = now / then
        if max(slowness, 1 / slowness) > _SLOWEST:
            return None
        ratios = [
            min(cost for _, cost in entries) / predicted[spec]
            for spec, entries in measured.items()
            if entries
        ]
        agreed = median(ratios) if ratios else 1.0
        return max(1.0, min(agreed, slowness)) if slowness > 1 else min(1.0, max(agreed, slowness))

    def _measured(
        self,
        specs: Sequence[KernelSpec],
        progress: Progress | None,
        until: float | None,
        predicted: Mapping[KernelSpec, float] | None,
    ) -> dict[KernelSpec, Known]:
        found: dict[KernelSpec, Known] = {}

        def keep(fresh: dict[KernelSpec, tuple[Entry, ...]], disturbed: set[KernelSpec]) -> None:
            if predicted is not None:
                probed = fresh.pop(_PROBE, None)
                slowness = self._slowness(fresh, predicted, None if _PROBE in disturbed else probed)
                disturbed = disturbed - {_PROBE} if slowness is not None else set(fresh)
                fresh = {
                    spec: _slowed(costs, 1 / (slowness or 1.0)) for spec, costs in fresh.items()
                }
            self._store_samples(fresh, disturbed)
            provisional = {spec: fresh.pop(spec) for spec in disturbed}
            self.cache.store(self._by_key(fresh))
            if predicted is None:
                self.cache.store(self._by_key(provisional), is_provisional=True)
                fresh |= provisional
            found.update({spec: _named(spec, costs, "measured") for spec, costs in fresh.items()})

        if predicted is None:
            self._run(specs, _COSTS, until, keep, progress)
        else:
            self._run(specs, _DOUBTS, until, keep, progress, probe=_PROBE)
        if progress is not None and specs:
            progress(len(found), len(specs), "")
        return found

    def _run(
        self,
        specs: Sequence[KernelSpec],
        effort: _Effort,
        until: float | None,
        keep: Callable[[dict[KernelSpec, tuple[Entry, ...]], set[KernelSpec]], None],
        progress: Progress | None = None,
        *,
        probe: KernelSpec | None = None,
    ) -> None:
        """Measure kernels, group by group.

        Args:
            specs: what to measure.
            effort: what it takes.
            until: time of ``time.monotonic`` at which to stop.
            keep: takes the times of each group, and which of them were disturbed; also of one that
                was interrupted.
            progress: called before each kernel.
            probe: a kernel that is measured in each group.
        """
        done = 0
        while done < len(specs) and not _is_past(until):
            group, first = _Group(self, effort, until), done
            try:
                if probe is not None:
                    group.add(probe)
                for spec in specs[done:]:
                    if (done > first and group.is_full) or _is_past(until):
                        break
                    if progress is not None:
                        progress(done, len(specs), spec.kind)
                    group.add(spec)
                    done += 1
                group.finish(len(specs) - done if effort.covers else 0)
            finally:
                keep(group.entries, group.disturbed)

    def samples(self, kind: str) -> Samples:
        """Return the samples of one kind of kernels, the same object until some are added."""
        if kind not in self._samples:
            self._samples[kind] = self.cache.samples(kind)
        return self._samples[kind]

    def sample(self, specs: Sequence[KernelSpec], until: float) -> Sampled:
        """Measure kernels in a short time, for predictions only: not as their costs.

        For a kernel that was measured before, a sample that was not disturbed is kept, if that of
        now was.

        Args:
            specs: what to measure.
            until: time of ``time.monotonic`` at which to stop.
        """
        found, all_disturbed = list[KernelSpec](), list[KernelSpec]()

        def keep(fresh: dict[KernelSpec, tuple[Entry, ...]], disturbed: set[KernelSpec]) -> None:
            self._store_samples(fresh, disturbed, keeps_undisturbed=True)
            found.extend(fresh)
            all_disturbed.extend(disturbed)

        self._run(specs, _SAMPLES, until, keep)
        return Sampled(tuple(found), tuple(all_disturbed))

    def _store_samples(
        self,
        measured: Mapping[KernelSpec, tuple[Entry, ...]],
        disturbed: Collection[KernelSpec] = (),
        *,
        keeps_undisturbed: bool = False,
    ) -> None:
        samples: dict[str, Sample] = {}
        for spec, entries in measured.items():
            name, cost = min(entries, key=lambda entry: entry[1], default=("", 0.0))
            if cost > 0 and not _is_guess(spec, name):
                traits = traits_of(spec, cold=self.is_cold(spec))
                ratio, names = log(cost / self.estimate(spec)), _compared(entries, cost)
                samples[self.key(spec)] = Sample(traits, ratio, names, spec in disturbed)
        self.cache.store_samples(samples, keeps_undisturbed=keeps_undisturbed)
        for sample in samples.values():
            self._samples.pop(sample.traits.kind, None)

    def entrant(self, spec: KernelSpec, name: str, effort: _Effort) -> Entrant:
        """Return an implementation of a kernel, to be timed.

        Raises:
            NativeError: the library does not have it.
        """
        core = load_core()
        measurement = core.Measurement(
            create(spec, name, self.machine.threads),
            cold=[core.ARG_WEIGHTS] if self.is_cold(spec) else [],
            spread_nbytes=0 if _has_weights(spec) else self._spread_nbytes,
        )
        return Entrant(name, measurement, effort.window_ns, effort.windows, is_reference(name))

    def _by_key(
        self, measured: Mapping[KernelSpec, tuple[Entry, ...]]
    ) -> dict[str, tuple[Entry, ...]]:
        return {self.key(spec): entries for spec, entries in measured.items()}


class _Group:
    """Kernels that are measured in turn, as many as their operands fit into memory."""

    def __init__(self, times: KernelTimes, effort: _Effort, until: float | None) -> None:
        self._times, self._effort, self._until = times, effort, until
        self._entrants: dict[KernelSpec, list[Entrant]] = {}
        self._guesses: dict[KernelSpec, list[Entry]] = {}
        self._begin, self._nbytes = time.monotonic(), 0

    @property
    def is_full(self) -> bool:
        """Whether more kernels would take too much memory, or too much of the time."""
        if self._until is not None and self._entrants:
            passed = time.monotonic() - self._begin
            if passed >= _FIRST_SHARE * (self._until - self._begin):
                return True
        return self._nbytes >= self._effort.nbytes

    def add(self, spec: KernelSpec) -> None:
        """Run the implementations of a kernel for a window each."""
        entrants, guesses = list[Entrant](), list[Entry]()
        with suppress(load_core().NativeError):
            for name in implementations(spec, self._times.machine.threads):
                if _is_guess(spec, name):
                    guesses.append((name, spec.flops / _NAIVE_FLOPS_PER_NS))
                    continue
                entrant = self._times.entrant(spec, name, self._effort)
                entrant.run(self._is_disturbed)
                entrants.append(entrant)
                self._nbytes += entrant.measurement.nbytes
        self._entrants[spec], self._guesses[spec] = entrants, guesses

    def finish(self, others: int = 0) -> None:
        """Run all for further windows; so many ``others`` need one each after that."""
        first = time.monotonic() - self._begin
        ahead = others / max(1, len(self._entrants)) * first
        take_turns(
            list(self._entrants.values()),
            self._is_disturbed,
            lambda: _is_past(self._until, ahead),
        )

    @property
    def entries(self) -> dict[KernelSpec, tuple[Entry, ...]]:
        """The times of the implementations."""
        return {
            spec: (
                *zip((one.name for one in entrants), paired_costs(entrants), strict=True),
                *self._guesses[spec],
            )
            for spec, entrants in self._entrants.items()
        }

    @property
    def disturbed(self) -> set[KernelSpec]:
        """The kernels that had to wait for processors whenever they ran."""
        return {
            spec
            for spec, entrants in self._entrants.items()
            if not all(one.times for one in entrants)
        }

    def _is_disturbed(self, waited: float) -> bool:
        waits = Waits(self._times.machine.threads)
        waits.add(waited)
        return waits.is_disturbed


def _slowed(costs: tuple[Entry, ...], factor: float) -> tuple[Entry, ...]:
    return tuple((name, factor * cost) for name, cost in costs)


def _has_weights(spec: KernelSpec) -> bool:
    """Return whether a kernel is a product with weights, as all of its competitors are."""
    return any(role in _WEIGHTS for role, _ in spec.memories)


def _is_past(until: float | None, ahead: float = 0.0) -> bool:
    return until is not None and time.monotonic() + ahead >= until


def _is_guess(spec: KernelSpec, name: str) -> bool:
    return is_reference(name) and spec.flops > _LONG_FLOPS


def _compared(entries: Sequence[Entry], least: float) -> str:
    """Return implementations for a sample, with the part of the least time that each adds."""
    ranked = sorted(entries, key=lambda entry: entry[1])
    return ", ".join(f"{name} {cost / least - 1:.3f}" for name, cost in ranked)


def _named(spec: KernelSpec, entries: Sequence[Entry], source: Source = "cached") -> Known:
    if not entries:
        return Refusal("onednn", str(spec), "the library has no kernel for it")
    costs = [KernelCost(cost, name, source) for name, cost in entries]
    return tuple(sorted(costs, key=lambda cost: cost.cost_ns))
