"""The oracles of the native target: one measures each kernel once per machine, one estimates.

A network whose weights do not fit into the last-level cache reads them from memory in every run,
so its kernels are timed with weights evicted from the caches; those of smaller networks with warm
weights. Kernels without weights stream activations, which the first caches no longer hold when
they are read; they are timed on many copies in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stridewise.graph import Refusal
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.primitives import create, implementations
from stridewise.runtime.machine.machine import cache_nbytes
from stridewise.runtime.tuning.cost_cache import CostCache, Entry
from stridewise.runtime.tuning.timing import undisturbed
from stridewise.targets.cost import (
    KernelCost,
    KernelOracle,
    Progress,
    Roofline,
    host_cost,
    is_reference,
)
from stridewise.targets.kernels import HOST, KernelSpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import LibraryTarget

__all__ = ["MeasuringOracle", "estimating_oracle"]

_MIN_RUNS, _MAX_RUNS, _BUDGET_NS = 1, 25, 12_000_000
_SAVE_EVERY = 50
_RIVAL = 1.5
"""Implementations slower than the fastest one by this factor are not measured again."""
_LONG_FLOPS, _NAIVE_FLOPS_PER_NS = 2e7, 1.0
"""Naive loops of more operations, which would take half a second or longer, are not run. Their cost
is a guess, far above that of any useful kernel: no plan depends on its error."""


# One AVX-512 core of today does about 100 GFLOP/s in float32 and shares some 40 GB/s.
_FLOPS_PER_CORE = {True: 1.0e11, False: 5.0e10}
_BANDWIDTH = 4.0e10
# Twice the products per instruction; without such instructions, elements are widened first.
_BFLOAT16_RATE = {True: 2.0, False: 0.8}
_INT8_RATE = 4.0


def estimating_oracle(machine: Machine, target: LibraryTarget) -> KernelOracle:
    """Return the oracle that estimates costs by a roofline model and measures nothing."""
    peak = machine.threads * _FLOPS_PER_CORE[machine.has_avx512]
    rate = _BFLOAT16_RATE[machine.has_bfloat16]
    return Roofline(peak, _BANDWIDTH, target.efficiency, bfloat16_rate=rate, int8_rate=_INT8_RATE)


class MeasuringOracle:
    """Times kernels; costs that a process of this user has measured are taken from the cache."""

    def __init__(self, machine: Machine, cache: CostCache, *, cold_weights: bool = False) -> None:
        """Measure for ``machine``; the cache is read when costs are first asked for."""
        self._machine = machine
        self._cold = cold_weights
        self._spread_nbytes = 2 * machine.threads * cache_nbytes(2)
        self._cache = cache

    def costs(
        self, specs: Sequence[KernelSpec], progress: Progress | None = None
    ) -> Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]:
        """Return the implementations of each kernel, cheapest first, or why there is none.

        What was measured before an interruption is kept. Fallback kernels are not measured.
        """
        fallback = {spec: (host_cost(spec),) for spec in specs if spec.kind == HOST}
        return {**self._primitives([s for s in specs if s not in fallback], progress), **fallback}

    def _primitives(
        self, specs: Sequence[KernelSpec], progress: Progress | None
    ) -> Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]:
        keys = {spec: self._key(spec) for spec in specs}
        cached = self._cache.find(keys.values())
        # Kernels of one text take the same time.
        unique = {key: spec for spec, key in keys.items()}
        missing = [spec for key, spec in unique.items() if key not in cached]
        measured: set[str] = set()
        for begin in range(0, len(missing), _SAVE_EVERY):
            fresh: dict[str, tuple[Entry, ...]] = {}
            some = missing[begin : begin + _SAVE_EVERY]
            try:
                for done, spec in enumerate(some, begin):
                    if progress is not None:
                        progress(done, len(missing), spec.kind)
                    fresh[keys[spec]] = self._measure(spec)
                for spec in some:
                    fresh[keys[spec]] = self._again(spec, fresh[keys[spec]])
            finally:
                self._cache.store(fresh)
            cached |= fresh
            measured |= fresh.keys()
        if progress is not None and missing:
            progress(len(missing), len(missing), "")
        return {
            spec: self._known(spec, cached[key], fresh=key in measured)
            for spec, key in keys.items()
        }

    def _is_cold(self, spec: KernelSpec) -> bool:
        return self._cold and spec.memory("weights") is not None

    def _key(self, spec: KernelSpec) -> str:
        return f"{spec} cold" if self._is_cold(spec) else str(spec)

    def _known(
        self, spec: KernelSpec, entries: Sequence[Entry], *, fresh: bool
    ) -> tuple[KernelCost, ...] | Refusal:
        if not entries:
            return Refusal("onednn", str(spec), "the library has no kernel for it")
        costs = [KernelCost(cost, name, "cached") for name, cost in entries]
        if fresh:
            costs = [replace(cost, source="measured") for cost in costs]
        return tuple(sorted(costs, key=lambda cost: cost.cost_ns))

    def _measure(self, spec: KernelSpec) -> tuple[Entry, ...]:
        """Return the times of all implementations."""
        found: list[Entry] = []
        try:
            for name in implementations(spec, self._machine.threads):
                if is_reference(name) and spec.flops > _LONG_FLOPS:
                    found.append((name, spec.flops / _NAIVE_FLOPS_PER_NS))
                else:
                    found.append((name, self._timed(spec, name)))
        except load_core().NativeError:
            return tuple(found)
        return tuple(found)

    def _again(self, spec: KernelSpec, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Return the lesser times of two measurements some time apart, for close competitors.

        Load of another process spoils all samples of a kernel; that it does so twice is rare.
        """
        least = min((cost for _, cost in entries), default=0.0)
        rivals = {n for n, cost in entries if cost <= _RIVAL * least and not is_reference(n)}
        return tuple(
            (name, min(cost, self._timed(spec, name)) if name in rivals else cost)
            for name, cost in entries
        )

    def _timed(self, spec: KernelSpec, name: str) -> float:
        core, threads = load_core(), self._machine.threads
        slow = is_reference(name)  # one run of a naive loop is enough
        samples = core.measure(
            create(spec, name, threads),
            threads=threads,
            min_runs=1 if slow else _MIN_RUNS,
            max_runs=1 if slow else _MAX_RUNS,
            budget_ns=_BUDGET_NS,
            cold=[core.ARG_WEIGHTS] if self._is_cold(spec) else [],
            spread_nbytes=0 if spec.memory("weights") else self._spread_nbytes,
        )
        return undisturbed(samples)
