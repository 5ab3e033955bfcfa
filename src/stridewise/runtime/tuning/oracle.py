"""The oracles of the native target.

| oracle | costs of kernels |
|---|---|
| :func:`estimating_oracle` | an analytic model; nothing is read or measured |
| :class:`CalibratedOracle` | measured ones of the cost cache; others are predicted from samples |
| :class:`MeasuringOracle` | the same, but what the cache lacks is measured, within a time limit |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import cast

from stridewise.graph import Refusal
from stridewise.runtime.machine.machine import cache_nbytes
from stridewise.runtime.tuning.cost_cache import Entry
from stridewise.runtime.tuning.kept import KEPT, digest, name_of
from stridewise.runtime.tuning.kernel_times import KernelTimes, Known, roofline
from stridewise.targets.cost import (
    KernelCost,
    KernelOracle,
    Progress,
    Source,
    host_cost,
    is_reference,
)
from stridewise.targets.kernels import HOST, KernelSpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import LibraryTarget
from stridewise.targets.onednn.traits import traits_of
from stridewise.targets.rates import UNKNOWN, Rate, Samples, Traits, predicted

__all__ = [
    "CALIBRATION",
    "INTEGERS",
    "CalibratedOracle",
    "MeasuringOracle",
    "estimating_oracle",
    "in_place",
]

CALIBRATION = "calibration"
"""Key of the cost cache that changes with each calibration of the machine."""

_NAIVE = 100.0
"""Time of a loop over single elements relative to the estimate, which assumes vectors."""
_HOPELESS = 3.0
"""Kernels that should take this many times as long as a competitor are measured last."""


_MOVES = frozenset({"concat", "reorder"})
"""Kernels that only move elements. Concatenations may be reorders of their pieces, too."""
_LINE = 64
_MOVED_LINE_NS, _MOVED_STEP_NS = 3.0, 1000.0
"""What a reorder takes longer in a network than alone: for each cache line of its operands, and in
all. Of 332 reorders in nine networks, two threads of Zen 4, steps took 2 ns a line and 1 us longer;
the rest is what the readers of their results take longer."""

_PREDICTED = frozenset({"calibrated", "model"})
INTEGERS = frozenset({"s8", "u8"})


def estimating_oracle(machine: Machine, target: LibraryTarget) -> KernelOracle:
    """Return the oracle that estimates costs by a roofline model and measures nothing."""
    return roofline(machine, target)


class CalibratedOracle:
    """Predicts what was not measured; never measures.

    The costs that decided the plan of a model can be kept. They stay as they are, whatever is
    measured for other models, until the machine is calibrated again or all kernels of the model
    are measured.

    Attributes:
        times: measured times.
        deviations: standard deviation of the logarithm of each cost that the last call predicted.
        is_kept: whether the last costs had been kept.
    """

    def __init__(self, times: KernelTimes) -> None:
        """Take measured times from ``times``; the cache is read when costs are asked for."""
        self.times = times
        self.deviations: dict[KernelSpec, float] = {}
        self.is_kept = False
        self._absent: set[tuple[KernelSpec, str]] = set()
        self._last: dict[KernelSpec, Known] = {}
        self._rates: dict[str, tuple[Samples, dict[KernelSpec, Rate]]] = {}
        self._traits: dict[KernelSpec, Traits] = {}

    def costs(
        self, specs: Sequence[KernelSpec], progress: Progress | None = None
    ) -> Mapping[KernelSpec, Known]:
        """Return the implementations of each kernel, cheapest first, or why there is none."""
        del progress  # nothing takes long enough
        own, fallback = _without_fallback(specs)
        known = self.times.known(own)
        missing = [spec for spec in own if spec not in known]
        self.deviations = {}
        kept = self._kept(own, known) if missing else None
        self.is_kept = kept is not None
        self._last = kept or in_order({**known, **self.predicted(missing)})
        return {**in_place(self._last, self.times.machine.threads), **fallback}

    def predicted(self, specs: Sequence[KernelSpec]) -> dict[KernelSpec, tuple[KernelCost]]:
        """Return the predicted cost of each kernel."""
        groups: dict[str, dict[KernelSpec, Traits]] = {}
        for spec in specs:
            traits = self._traits.get(spec)
            if traits is None:
                traits = self._traits[spec] = traits_of(spec, cold=self.times.is_cold(spec))
            groups.setdefault(traits.kind, {})[spec] = traits
        found: dict[KernelSpec, tuple[KernelCost]] = {}
        least = self.times.least_ns(specs)
        for kind, group in groups.items():
            rates = self._rated(kind, group)
            for spec in group:
                cost = self._cost(spec, rates[spec])
                bound = max(cost.cost_ns, least.get(spec, 0.0))
                found[spec] = (replace(cost, cost_ns=bound),)
                self.deviations[spec] = rates[spec].deviation
        return found

    def _rated(self, kind: str, group: Mapping[KernelSpec, Traits]) -> Mapping[KernelSpec, Rate]:
        """Return the rates of kernels of one kind, those of an earlier call if no sample is new."""
        samples = self.times.samples(kind)
        if kind not in self._rates or self._rates[kind][0] is not samples:
            self._rates[kind] = samples, {}
        known = self._rates[kind][1]
        missing = [spec for spec in group if spec not in known]
        rates = predicted(samples, [group[spec] for spec in missing])
        known.update(zip(missing, rates, strict=True))
        return known

    def _cost(self, spec: KernelSpec, rate: Rate) -> KernelCost:
        # The mean of a log-normal variable: of two kernels that may be equally fast, the one that
        # is better known is preferred.
        ratio = rate.ratio + 0.5 * rate.deviation**2
        estimate = self.times.estimate(spec)
        if rate is UNKNOWN:
            return self._fit(spec, KernelCost(estimate, "", "model"))
        # What may be naive loops is left to the library: a name would rule out the candidate.
        name = "" if is_reference(rate.implementation) else rate.implementation
        return self._fit(spec, KernelCost(estimate * exp(ratio), name, "calibrated"))

    def _fit(self, spec: KernelSpec, cost: KernelCost) -> KernelCost:
        """Return a predicted cost without what :meth:`refuse` took note of."""
        if (spec, "") in self._absent:
            least = self.times.estimate(spec) * _NAIVE
            return replace(cost, cost_ns=max(cost.cost_ns, least), implementation="")
        return (
            replace(cost, implementation="")
            if (spec, cost.implementation) in self._absent
            else cost
        )

    @property
    def is_calibrated(self) -> bool:
        """Whether the machine was calibrated, not only sampled while models were compiled."""
        return CALIBRATION in self.times.cache.find((CALIBRATION,))

    def refuse(self, kernels: Iterable[tuple[KernelSpec, str]]) -> bool:
        """Take note of implementations that do not fit; return whether one of them is new.

        Args:
            kernels: kernels, each with the name of an implementation that does not exist, or with
                "" if the library has only naive loops.
        """
        before = len(self._absent)
        self._absent.update(kernels)
        return len(self._absent) > before

    def _key(self, specs: Sequence[KernelSpec]) -> str:
        state = self.times.cache.find((CALIBRATION,)).get(CALIBRATION, ())
        texts = sorted(map(self.times.key, specs))
        return f"{KEPT}{digest(repr((state, texts)))}"

    def keep(self, *, replaces: bool = False) -> bool:
        """Keep the costs of the last call for all later ones about the same kernels.

        Args:
            replaces: whether costs that have been kept before are of no use.

        Returns:
            False if another process has kept its own meanwhile, which hold for this one, too.
        """
        entries = [
            (f"{self._name(spec)} {known[0].source} {known[0].implementation}", known[0].cost_ns)
            for spec, known in self._last.items()
            if not isinstance(known, Refusal)
        ]
        key, cache = self._key(list(self._last)), self.times.cache
        if not (self.is_kept or replaces):
            return cache.store_first(key, entries)
        cache.store({key: entries})
        return True

    def _kept(
        self, specs: Sequence[KernelSpec], known: Mapping[KernelSpec, Known]
    ) -> dict[KernelSpec, Known] | None:
        """Return the costs that were kept for these kernels, if there are any."""
        key = self._key(specs)
        costs = dict(map(_parsed, self.times.cache.find((key,)).get(key, ())))
        found: dict[KernelSpec, Known] = {}
        for spec in specs:
            measured, cost = known.get(spec), costs.get(self._name(spec))
            if isinstance(measured, Refusal):
                found[spec] = measured
            elif cost is not None:
                found[spec] = (self._fit(spec, cost),)
            else:
                return None
        return found

    def _name(self, spec: KernelSpec) -> str:
        return name_of(self.times.key(spec))


def in_place(costs: Mapping[KernelSpec, Known], threads: int) -> dict[KernelSpec, Known]:
    """Return costs in which reorders take as long as in a network of several threads.

    There, half of what a reorder reads is in the cache of another processor, which wrote it, and
    half of what it writes is read by another one. Neither is so where it is timed alone. Other
    kernels have the same operands as their competitors; what a reorder costs more decides whether
    there is one.

    Args:
        costs: isolated kernels.
        threads: of the network.
    """
    if threads == 1:
        return dict(costs)
    most, found = cache_nbytes(3), dict(costs)
    for spec, known in costs.items():
        if spec.kind in _MOVES and not isinstance(known, Refusal):
            more = _MOVED_STEP_NS + _MOVED_LINE_NS * min(spec.nbytes, most) / _LINE
            found[spec] = tuple(replace(cost, cost_ns=cost.cost_ns + more) for cost in known)
    return found


def in_order(costs: Mapping[KernelSpec, Known]) -> dict[KernelSpec, Known]:
    """Return costs where no product of integers stores real numbers faster than integers.

    The kernel that stores real numbers does the same and writes four times as many bytes. If
    predictions say otherwise, the one that costs more is closer to the truth: other kernels show
    whether a size is slow, and a plan picks what is predicted too low.
    """
    integers: dict[object, float] = {}
    for spec, known in costs.items():
        dst = spec.memory("dst")
        if dst is not None and dst.dtype in INTEGERS and not isinstance(known, Refusal):
            integers[_but_for_result(spec)] = known[0].cost_ns
    found = dict(costs)
    for spec, known in costs.items():
        dst, src = spec.memory("dst"), spec.memory("src")
        if src is None or dst is None or (src.dtype in INTEGERS, dst.dtype) != (True, "f32"):
            continue
        least = integers.get(_but_for_result(spec)) if spec.memory("weights") else None
        if least is None or isinstance(known, Refusal) or known[0].source not in _PREDICTED:
            continue
        found[spec] = tuple(replace(cost, cost_ns=max(cost.cost_ns, least)) for cost in known)
    return found


def _but_for_result(spec: KernelSpec) -> object:
    """Return what two kernels have in common that differ in the type of their results."""
    operands = tuple(item for item in spec.memories if item[0] != "dst")
    posts = tuple(post.operand for post in spec.post_ops if post.operand is not None)
    return spec.kind, spec.params, operands, posts


def _parsed(entry: Entry) -> tuple[str, KernelCost]:
    label, cost = entry
    digest, source, implementation = (*label.split(" ", 2), "", "")[:3]
    source = "cached" if source == "measured" else source
    return digest, KernelCost(cost, implementation, cast("Source", source))


class MeasuringOracle:
    """Measures what the cost cache lacks; what does not fit into the time is predicted."""

    def __init__(self, times: KernelTimes, until: float | None = None) -> None:
        """Measure until a time of ``time.monotonic``; the cache is read at the first call."""
        self._times, self._until = times, until

    def costs(
        self, specs: Sequence[KernelSpec], progress: Progress | None = None
    ) -> Mapping[KernelSpec, Known]:
        """Return the implementations of each kernel, cheapest first, or why there is none.

        What was measured before an interruption is kept. Fallback kernels are not measured.
        """
        own, found = _without_fallback(specs)
        found |= self._times.known(own)
        missing = [spec for spec in own if spec not in found]
        if missing and self._until is not None:
            missing = _promising(missing, self._predicted(missing))
        found |= self._times.measure(missing, progress, self._until)
        return found | self._predicted([spec for spec in missing if spec not in found])

    def _predicted(self, specs: Sequence[KernelSpec]) -> dict[KernelSpec, Known]:
        """Return predicted costs of the library's own choice: others may not exist."""
        known = CalibratedOracle(self._times).predicted(specs)
        return {spec: (replace(cost, implementation=""),) for spec, (cost,) in known.items()}


def _without_fallback(
    specs: Sequence[KernelSpec],
) -> tuple[list[KernelSpec], dict[KernelSpec, Known]]:
    """Return the kernels to measure, and the costs of fallback kernels, which are estimates."""
    fallback: dict[KernelSpec, Known] = {s: (host_cost(s),) for s in specs if s.kind == HOST}
    return [spec for spec in specs if spec not in fallback], fallback


def _promising(specs: Sequence[KernelSpec], costs: Mapping[KernelSpec, Known]) -> list[KernelSpec]:
    """Return kernels in the order in which they are worth a measurement.

    Kernels between tensors of the same shapes compete. Those that may win come first, and of these
    the ones that take most time.
    """
    expected = {spec: known[0].cost_ns for spec in specs if isinstance(known := costs[spec], tuple)}
    least: dict[object, float] = {}
    for spec, cost in expected.items():
        least[_shapes(spec)] = min(cost, least.get(_shapes(spec), cost))
    return sorted(
        expected, key=lambda s: (expected[s] > _HOPELESS * least[_shapes(s)], -expected[s])
    )


def _shapes(spec: KernelSpec) -> object:
    return tuple(memory.dims for role, memory in spec.memories if role in ("src", "dst"))
