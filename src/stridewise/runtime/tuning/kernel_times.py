"""Times of isolated kernels: those in the cost cache, and measurements that add to them.

A network whose weights do not fit into the last-level cache reads them from memory in every run,
so its kernels are timed with weights evicted from the caches; those of smaller networks with warm
weights. Kernels without weights stream activations, which the first caches no longer hold when
they are read; they are timed on many copies in turn.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import inf, log, prod

from stridewise.classes import dataclass
from stridewise.graph import Refusal
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import create, implementations
from stridewise.runtime.binding.provision import Provision
from stridewise.runtime.machine.machine import cache_nbytes
from stridewise.runtime.tuning.cost_cache import CostCache, Entry
from stridewise.runtime.tuning.disturbance import Waits
from stridewise.runtime.tuning.timing import undisturbed
from stridewise.targets.cost import KernelCost, Progress, Roofline, Source, is_reference
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.table import function_ns
from stridewise.targets.onednn.target import LibraryTarget
from stridewise.targets.onednn.traits import traits_of
from stridewise.targets.rates import Sample, Samples

__all__ = ["KernelTimes", "Known", "Sampled", "roofline"]

Known = tuple[KernelCost, ...] | Refusal
"""The implementations of a kernel, cheapest first, or why there is none."""

_MIN_RUNS, _MAX_RUNS, _BUDGET_NS = 1, 25, 12_000_000
_SAVE_EVERY = 50
_RIVAL = 1.5
"""Implementations slower than the fastest one by this factor are not measured again."""
_TRIALS = 2
"""How often a kernel is measured again, at most, while other work disturbs that."""
_LONG_FLOPS, _NAIVE_FLOPS_PER_NS = 2e7, 1.0
"""Naive loops of more operations, which would take half a second or longer, are not run. Their cost
is a guess, far above that of any useful kernel: no plan depends on its error."""

_QUICK_NS = 4_000_000
"""Time for the samples of one kernel of a calibration, whose error similar kernels even out."""
_DOUBT_NS = 1_000_000
"""Time for those of a kernel in doubt, whose prediction errs by far more, while a user waits."""

# One AVX-512 core of today does about 100 GFLOP/s in float32 and shares some 40 GB/s.
_FLOPS_PER_CORE = {True: 1.0e11, False: 5.0e10}
_BANDWIDTH = 4.0e10
# Twice the products per instruction; without such instructions, elements are widened first.
_BFLOAT16_RATE = {True: 2.0, False: 0.8}
_INT8_RATE = 4.0
_COLD_BYTES_PER_NS = 25.0
_OVERHEAD_NS = 600.0
"""What calling an isolated kernel takes."""


def roofline(machine: Machine, target: LibraryTarget) -> Roofline:
    """Return the analytic cost model of a machine."""
    peak = machine.threads * _FLOPS_PER_CORE[machine.has_avx512]
    rate = _BFLOAT16_RATE[machine.has_bfloat16]
    return Roofline(
        peak, _BANDWIDTH, target.efficiency,
        bfloat16_rate=rate, int8_rate=_INT8_RATE, threads=machine.threads,
        function_ns=function_ns,
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
                known += 4.0 * prod(weights.dims) / _COLD_BYTES_PER_NS
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
        predicts: bool = False,
    ) -> dict[KernelSpec, Known]:
        """Measure kernels and return their costs. What precedes an interruption is kept.

        Costs of kernels that other work disturbed in all measurements are provisional.

        Args:
            specs: what to measure, the most important kernels first.
            progress: called before each kernel, and at the end.
            until: time of ``time.monotonic`` at which to stop; the rest has no costs then.
            predicts: whether predictions replace provisional costs, which are left out then. Then
                few kernels are measured while a user waits, in a short time for each.
        """
        with nullcontext() if self._memory is None else self._memory.paused():
            return self._measured(specs, progress, until, predicts=predicts)

    def _measured(
        self,
        specs: Sequence[KernelSpec],
        progress: Progress | None,
        until: float | None,
        *,
        predicts: bool,
    ) -> dict[KernelSpec, Known]:
        budget_ns = _DOUBT_NS if predicts else _BUDGET_NS
        found: dict[KernelSpec, Known] = {}
        start = time.monotonic()
        for begin in range(0, len(specs), _SAVE_EVERY):
            fresh: dict[KernelSpec, tuple[Entry, ...]] = {}
            disturbed = set[KernelSpec]()
            try:
                for done, spec in enumerate(specs[begin : begin + _SAVE_EVERY], begin):
                    if _is_past(until):
                        break
                    if progress is not None:
                        progress(done, len(specs), spec.kind)
                    waits = Waits(self.machine.threads)
                    fresh[spec] = self._all(spec, budget_ns, waits)
                    if waits.is_disturbed:
                        disturbed.add(spec)
                # Of more kernels than there is time for, each is measured once.
                done = begin + max(len(fresh), 1)
                rest_s = (len(specs) / done - 1) * (time.monotonic() - start)
                wanted = disturbed if _is_past(until, rest_s) else fresh
                self._again(fresh, wanted, disturbed, budget_ns, until)
            finally:
                self._store_samples(fresh, disturbed)
                provisional = {spec: fresh.pop(spec) for spec in disturbed}
                self.cache.store(self._by_key(fresh))
                if not predicts:
                    self.cache.store(self._by_key(provisional), is_provisional=True)
                    fresh |= provisional
            found |= {spec: _named(spec, entries, "measured") for spec, entries in fresh.items()}
        if progress is not None and specs:
            progress(len(found), len(specs), "")
        return found

    def samples(self, kind: str) -> Samples:
        """Return the samples of one kind of kernels, the same object until some are added."""
        if kind not in self._samples:
            self._samples[kind] = self.cache.samples(kind)
        return self._samples[kind]

    def sample(self, specs: Sequence[KernelSpec], until: float) -> Sampled:
        """Measure kernels twice in a short time, for predictions only: not as their costs.

        For a kernel that was measured before, the sample that was not disturbed is kept, or the
        faster one: other work on the machine only ever adds time.

        Args:
            specs: what to measure.
            until: time of ``time.monotonic`` at which to stop.
        """
        found: dict[KernelSpec, tuple[Entry, ...]] = {}
        disturbed = set[KernelSpec]()
        try:
            for spec in specs:
                if _is_past(until):
                    break
                waits = Waits(self.machine.threads)
                found[spec] = self._all(spec, _QUICK_NS, waits)
                if waits.is_disturbed:
                    disturbed.add(spec)
            self._again(found, found, disturbed, _QUICK_NS, until)
        finally:
            self._store_samples(found, disturbed, is_least=True)
        return Sampled(tuple(found), tuple(spec for spec in found if spec in disturbed))

    def _store_samples(
        self,
        measured: Mapping[KernelSpec, tuple[Entry, ...]],
        disturbed: Collection[KernelSpec] = (),
        *,
        is_least: bool = False,
    ) -> None:
        samples: dict[str, Sample] = {}
        for spec, entries in measured.items():
            name, cost = min(entries, key=lambda entry: entry[1], default=("", 0.0))
            if cost > 0 and not _is_guess(spec, name):
                traits = traits_of(spec, cold=self.is_cold(spec))
                ratio, names = log(cost / self.estimate(spec)), _compared(entries, cost)
                samples[self.key(spec)] = Sample(traits, ratio, names, spec in disturbed)
        self.cache.store_samples(samples, is_least=is_least)
        for sample in samples.values():
            self._samples.pop(sample.traits.kind, None)

    def _all(self, spec: KernelSpec, budget_ns: int, waits: Waits) -> tuple[Entry, ...]:
        """Return the times of all implementations."""
        found: list[Entry] = []
        try:
            for name in implementations(spec, self.machine.threads):
                if _is_guess(spec, name):
                    found.append((name, spec.flops / _NAIVE_FLOPS_PER_NS))
                else:
                    found.append((name, self._timed(spec, name, budget_ns, waits)))
        except load_core().NativeError:
            return tuple(found)
        return tuple(found)

    def _by_key(
        self, measured: Mapping[KernelSpec, tuple[Entry, ...]]
    ) -> dict[str, tuple[Entry, ...]]:
        return {self.key(spec): entries for spec, entries in measured.items()}

    def _again(
        self,
        measured: dict[KernelSpec, tuple[Entry, ...]],
        wanted: Collection[KernelSpec],
        disturbed: set[KernelSpec],
        budget_ns: int,
        until: float | None,
    ) -> None:
        """Measure kernels again some time later, until nothing disturbs that, and update both.

        Undisturbed ones are, too, if there is time: what another virtual machine takes of a
        processor, no counter of this one tells.
        """
        for trial in range(_TRIALS):
            for spec in tuple(disturbed if trial else wanted):
                if _is_past(until):
                    return
                # A disturbed measurement shows nothing for certain, so all implementations compete.
                rival = inf if spec in disturbed else _RIVAL
                waits = Waits(self.machine.threads)
                measured[spec] = self._least(spec, measured[spec], rival, budget_ns, waits)
                if not waits.is_disturbed:
                    disturbed.discard(spec)

    def _least(
        self,
        spec: KernelSpec,
        entries: tuple[Entry, ...],
        rival: float,
        budget_ns: int,
        waits: Waits,
    ) -> tuple[Entry, ...]:
        """Return the lesser times of a measurement and of another one, for close competitors.

        Args:
            spec: the kernel.
            entries: times of its implementations.
            rival: those slower than the fastest one by more than this factor keep their times.
            budget_ns: time for each of the others.
            waits: collects the waiting times.
        """
        least = min((cost for _, cost in entries), default=0.0)
        rivals = {n for n, cost in entries if cost <= rival * least and not is_reference(n)}
        return tuple(
            (name, min(cost, self._timed(spec, name, budget_ns, waits)))
            if name in rivals
            else (name, cost)
            for name, cost in entries
        )

    def _timed(self, spec: KernelSpec, name: str, budget_ns: int, waits: Waits) -> float:
        core, slow = load_core(), is_reference(name)  # one run of a naive loop is enough
        kernel = create(spec, name, self.machine.threads)
        samples, waited = core.measure(
            kernel,
            threads=kernel.threads,
            min_runs=1 if slow else _MIN_RUNS,
            max_runs=1 if slow else _MAX_RUNS,
            budget_ns=budget_ns,
            cold=[core.ARG_WEIGHTS] if self.is_cold(spec) else [],
            spread_nbytes=0 if spec.memory("weights") else self._spread_nbytes,
        )
        waits.add(waited)
        return undisturbed(samples)


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
