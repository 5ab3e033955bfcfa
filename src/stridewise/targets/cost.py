"""What a kernel costs: the protocol that the planner asks, and the analytic model.

Measured costs come from the runtime, which implements the same protocol; the planner and its
tests need no native code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol

from stridewise.classes import dataclass
from stridewise.graph import Refusal
from stridewise.targets.kernels import HOST, KernelSpec

__all__ = [
    "FUNCTION_NS",
    "Corrected",
    "KernelCost",
    "KernelOracle",
    "Progress",
    "Roofline",
    "Source",
    "host_cost",
    "is_reference",
    "product_dtype",
]

Source = Literal["measured", "cached", "calibrated", "model", "in place", "scaled"]
Progress = Callable[[int, int, str], None]
"""Called with how many kernels are done, how many there are, and what is being measured."""


@dataclass(frozen=True, slots=True)
class KernelCost:
    """The time of one execution of one kernel.

    Attributes:
        cost_ns: nanoseconds.
        implementation: the library's name of it; "" for its own first choice.
        source: where the figure comes from: the kernel alone, timed now (``"measured"``) or before
            (``"cached"``); the analytic ``"model"``; the model corrected by measured costs of
            similar kernels (``"calibrated"``); timed inside this model (``"in place"``); or alone,
            scaled by what kernels of its kind took more or less in place (``"scaled"``).
    """

    cost_ns: float
    implementation: str
    source: Source

    @property
    def is_reference(self) -> bool:
        """Whether this is the library's naive implementation, by itself or as an inner one."""
        return is_reference(self.implementation)


def is_reference(implementation: str) -> bool:
    """Return whether a library's name stands for naive loops.

    >>> is_reference("ref:any"), is_reference("conv:any+ref:any"), is_reference("jit:avx2")
    (True, True, False)
    """
    # A deconvolution names the convolution inside of it, too.
    return any(part.startswith("ref") for part in implementation.split("+"))


_HOST_OVERHEAD_NS = 20_000.0
"""What calling a Python function and its NumPy calls costs, whatever the arrays."""
_HOST_BYTES_PER_NS, _HOST_OPERATIONS_PER_NS = 1.0, 1.0


def host_cost(spec: KernelSpec) -> KernelCost:
    """Return the modelled cost of a fallback kernel.

    Fallback kernels are never timed alone: random data may be invalid input, such as indices beyond
    the end. Times inside a running model replace the figure.
    """
    work = max(spec.nbytes / _HOST_BYTES_PER_NS, spec.flops / _HOST_OPERATIONS_PER_NS)
    name = str(dict(spec.params).get("part", "numpy"))  # a foreign part has its own runtime
    return KernelCost(_HOST_OVERHEAD_NS + work, name, "model")


FUNCTION_NS = 0.5
"""What one thread takes for a value of an exponential function in a post-op of the library."""


class KernelOracle(Protocol):
    """Knows which kernels exist and how long they take."""

    def costs(
        self, specs: Sequence[KernelSpec], progress: Progress | None = None
    ) -> Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]:
        """Return the implementations of each kernel, cheapest first, or why there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Corrected:
    """Costs of another oracle, corrected by what kernels took inside a running model.

    A kernel that ran costs what it took there. One that did not is scaled by the factor between
    both times of all kernels of its kind that ran: else what never ran would look better than what
    did, only because it was never timed in place.

    Attributes:
        oracle: knows the times of isolated kernels.
        observed: returns the nanoseconds that an implementation took in place, or None.
    """

    oracle: KernelOracle
    observed: Callable[[KernelSpec, str], float | None]

    def costs(
        self, specs: Sequence[KernelSpec], progress: Progress | None = None
    ) -> Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]:
        """Return the implementations of each kernel, cheapest first, or why there is none."""
        alone = self.oracle.costs(specs, progress)
        factors = self._factors(alone)
        return {
            spec: known if isinstance(known, Refusal) else self._corrected(spec, known, factors)
            for spec, known in alone.items()
        }

    def _factors(
        self, alone: Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]
    ) -> dict[str, float]:
        isolated: dict[str, float] = {}
        in_place: dict[str, float] = {}
        for spec, known in alone.items():
            for cost in () if isinstance(known, Refusal) else known:
                seen = self.observed(spec, cost.implementation)
                if seen is not None:
                    isolated[spec.kind] = isolated.get(spec.kind, 0.0) + cost.cost_ns
                    in_place[spec.kind] = in_place.get(spec.kind, 0.0) + seen
        return {kind: in_place[kind] / total for kind, total in isolated.items() if total > 0}

    def _corrected(
        self, spec: KernelSpec, known: tuple[KernelCost, ...], factors: Mapping[str, float]
    ) -> tuple[KernelCost, ...]:
        found: list[KernelCost] = []
        for cost in known:
            seen = self.observed(spec, cost.implementation)
            if seen is not None:
                found.append(replace(cost, cost_ns=seen, source="in place"))
            elif spec.kind in factors:
                scaled = cost.cost_ns * factors[spec.kind]
                found.append(replace(cost, cost_ns=scaled, source="scaled"))
            else:
                found.append(cost)
        return tuple(sorted(found, key=lambda cost: cost.cost_ns))


_TYPE_OF_SOURCE = frozenset(
    {"conv_weight_gradient", "fitted_convolution", "fitted_deconvolution", "fitted_winograd"}
)
"""Kinds that convert float32 weights to the type of their source, or have none. Those of Winograd
do so for products of bfloat16 alone."""


def product_dtype(spec: KernelSpec) -> str:
    """Return the type of the factors of a kernel's products; "" without products."""
    has_own_type = spec.kind == "fitted_winograd" and "products" not in dict(spec.params)
    is_source = spec.kind in _TYPE_OF_SOURCE and not has_own_type
    factor = spec.memory("src" if is_source else "weights") or spec.memory("keys")
    return factor.dtype if factor else ""


@dataclass(frozen=True, slots=True)
class Roofline:
    """The analytic cost model: arithmetic over peak rate or bytes over bandwidth, whichever binds.

    Attributes:
        peak_flops: floating-point operations per second of all threads.
        bandwidth: bytes per second of all threads.
        efficiency: which part of the bound a kernel reaches, a number in (0, 1].
        overhead_ns: fixed cost of a call.
        bfloat16_rate: how many times the peak rate holds for products of bfloat16.
        int8_rate: how many times it holds for products of integers of 8 bits.
        tile_rates: the same by type, for kernels that multiply tiles; None without AMX.
        has_tiles: tells which kernels do so.
        threads: number of threads; small kernels run on one of them.
        post_ops_ns: what one thread takes for all post-ops of a kernel.
        matrix_ns: what one thread takes to start each of several products of one kernel.
    """

    peak_flops: float
    bandwidth: float
    efficiency: Callable[[KernelSpec], float]
    overhead_ns: float = 1500.0
    bfloat16_rate: float = 1.0
    int8_rate: float = 1.0
    tile_rates: Mapping[str, float] | None = None
    has_tiles: Callable[[KernelSpec], bool] = lambda _: False
    threads: int = 1
    post_ops_ns: Callable[[KernelSpec], float] = lambda spec: FUNCTION_NS * spec.function_values
    matrix_ns: float = 0.0

    def costs(
        self, specs: Sequence[KernelSpec], progress: Progress | None = None
    ) -> Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]:
        """Return one modelled implementation of each kernel."""
        del progress  # nothing takes long enough
        return {spec: (self.cost(spec),) for spec in specs}

    def cost(self, spec: KernelSpec) -> KernelCost:
        """Return the modelled cost of one kernel."""
        if spec.kind == HOST:
            return host_cost(spec)
        rates: Mapping[str, float] = {"bf16": self.bfloat16_rate, "s8": self.int8_rate}
        if self.tile_rates is not None and self.has_tiles(spec):
            rates = self.tile_rates
        peak = self.peak_flops * rates.get(product_dtype(spec), 1.0)
        threads = 1 if spec.is_small else self.threads
        seconds = max(
            spec.flops / peak * self.threads / threads,
            spec.nbytes / self.bandwidth,
        )
        starts = spec.matrices if spec.matrices > 1 else 0
        loops = self.post_ops_ns(spec) + self.matrix_ns * starts
        cost = self.overhead_ns + 1e9 * seconds / self.efficiency(spec) + loops / threads
        return KernelCost(cost, "", "model")
