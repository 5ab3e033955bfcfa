"""What rounding a tensor does to the outputs, and the error of a plan on data.

The simplified graph is compiled once more in float32, with a gate for each tensor: an input that is
0, or 1 to round the tensor. One run for each tensor gives all sensitivities; it begins near the
tensor, at one of a few places whose values are computed once. Ranges of integers
come from the first half of the samples, sensitivities from the next one; plans are checked on the
rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.errors import InputError, PlanError
from stridewise.graph import Graph
from stridewise.passes.fuse_pointwise import fuse_pointwise
from stridewise.planner import derive
from stridewise.planner.derivation.provenance import Derived
from stridewise.planner.problem.error_budget import ErrorBudget
from stridewise.planner.problem.formulation import Terms
from stridewise.planning import Plan, make_plans
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.inputs import (
    as_array,
    made_up,
    require_finite,
    sample_by_name,
)
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.finalists import digest_of
from stridewise.runtime.tuning.gates import ends, gate_of, gate_of_weights, gated
from stridewise.runtime.tuning.offers import observable, observed, with_offers
from stridewise.runtime.tuning.oracle import estimating_oracle
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import ABILITY, onednn_cpu
from stridewise.tensor import Grid

__all__ = ["Error", "Reference", "noted", "with_budget", "within_budget"]

Array = NDArray[Any]
_VERSION = 2
"""Of how ranges and errors are found: the cost cache has none of other versions."""
_SAMPLES = 3
"""Made-up samples."""
_ATTEMPTS = 4
_CAUTION = 0.8
"""The part of the limit to aim at if a plan exceeded it."""
_MARGIN = 1.1
"""How much greater the error on other data may be than the greatest on a sample."""
_STRAINED = 1.2
"""Least ratio of factors for errors of integers that are worth another plan."""
_NOTHING = 1e-12
"""A budget that allows no error at all."""
_WHOLE = 1.0
"""The sensitivity of a tensor whose rounding makes outputs infinite."""


def _compiled(graph: Graph, machine: Machine) -> CompiledModel:
    """Return a float32 model by estimated costs, without Winograd kernels."""
    target = onednn_cpu(machine, "exact", "float32")
    derived = derive(fuse_pointwise(graph, ABILITY)[0])
    return load(
        lower_plan(make_plans(derived, target, machine, estimating_oracle(machine, target))[0])
    )


def _samples(graph: Graph, given: Sequence[Any] | None) -> list[list[Array]]:
    """Return inputs in the order of the graph: those given, or made up.

    Raises:
        InputError: a sample has no array for an input, or a wrong one, or is not finite.
    """
    values = [graph.values[name] for name in graph.inputs]
    if given is None:
        seeds = map(np.random.default_rng, range(_SAMPLES))
        return [[made_up(value, value.shape, rng) for value in values] for rng in seeds]
    found: list[list[Array]] = []
    for number, sample in enumerate(given):
        where = f"calibration, sample {number}"
        named = sample_by_name(where, graph.inputs, sample)
        # A program for a part of the batch takes as many of its items.
        arrays = [as_array(v, _part(named[v.name], v.shape)) for v in values]
        for value, array in zip(values, arrays, strict=True):
            require_finite(where, value.name, array)
        found.append(arrays)
    if not found:
        raise InputError.at("calibration", expected="at least one sample", found="none")
    return found


def _part(array: Any, shape: tuple[int, ...]) -> Any:
    given: tuple[int, ...] = np.shape(array)
    fits = bool(given and shape) and given[1:] == shape[1:]
    return array[: shape[0]] if fits and given[:1] > shape[:1] else array


@dataclass(frozen=True)
class Error:
    """The relative error of a plan's outputs.

    Attributes:
        measured: over all samples that plans are checked on.
        expected: the most that is expected on other data: 1.1 times the greatest error on a single
            sample.
    """

    measured: float
    expected: float


@dataclass(frozen=True)
class Reference:
    """A model in float32, and data to compare plans of it on.

    Attributes:
        derived: the simplified graph, with the meaning of axes.
        machine: the machine and its threads.
        given: samples, as :func:`sample_by_name` takes them; None for made-up ones.
        costs: stores sensitivities, ranges and errors; None to measure them each time.
        integers: whether tensors are offered grids, so that plans may store them as integers.
    """

    derived: Derived
    machine: Machine
    given: Sequence[Any] | None = None
    costs: CostCache | None = None
    integers: bool = False

    @property
    def graph(self) -> Graph:
        """The simplified graph."""
        return self.derived.graph

    @cached_property
    def samples(self) -> list[list[Array]]:
        """Inputs in the order of the graph."""
        return _samples(self.graph, self.given)

    @property
    def checked(self) -> int:
        """The number of samples that plans are checked on."""
        return len(self._held_out)

    @cached_property
    def _known(self) -> list[list[Array]]:
        return self.samples[: max(1, len(self.samples) // 2)] if self.integers else []

    @property
    def _probe(self) -> list[Array]:
        """The sample for sensitivities: its values may exceed the ranges of the others."""
        return self.samples[min(len(self._known), len(self.samples) - 1)]

    @cached_property
    def _held_out(self) -> list[list[Array]]:
        return self.samples[len(self._known) + 1 :] or self.samples[-1:]

    @cached_property
    def key(self) -> str:
        """A digest of this model and data."""
        digest = hashlib.sha256(f"{_VERSION} {self.graph}".encode())
        for array in (item for sample in self.samples for item in sample):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _kept(self, what: str, find: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        """Return numbers of this model and data from the cost cache, or find and keep them."""
        key = f"{what} {self.key}"
        known = self.costs.find((key,)).get(key) if self.costs else None
        if known is not None:
            return dict(known)
        found = dict(find())
        if self.costs is not None:
            self.costs.store({key: tuple(found.items())})
        return found

    # --- ranges ---

    @cached_property
    def offered(self) -> Derived:
        """The graph whose tensors are offered grids; as it is without any."""
        if not self.integers:
            return self.derived
        found = self._kept("ranges", self._ranges)
        grids: dict[str, Grid] = {}
        biases: dict[str, list[float]] = {}
        for label, number in found.items():
            kind, which, name = label.split(" ", 2)
            if kind == "grid":
                grids[name] = Grid("u8", (number,), (int(which),))
            else:
                biases.setdefault(name, []).append(-number if kind == "minus" else number)
        return with_offers(self.derived, grids, {n: tuple(row) for n, row in biases.items()})

    def _ranges(self) -> dict[str, float]:
        """Return scales of tensors and biases of weights; labels have zero points and signs."""
        inner = tuple(name for name in observable(self.graph) if name not in self.graph.inputs)
        model = _compiled(replace(self.graph, outputs=inner, tail=None), self.machine)

        def runs() -> Iterator[Mapping[str, Array]]:
            for sample in self._known:
                found = zip(inner, model.run_program(sample), strict=True)
                yield dict(found) | dict(zip(self.graph.inputs, sample, strict=True))

        grids, biases = observed(self.graph, runs()) if inner else ({}, {})
        found = {f"grid {grid.zero_points[0]} {n}": grid.scales[0] for n, grid in grids.items()}
        for name, numbers in biases.items():
            for index, number in enumerate(numbers):
                found[f"{'minus' if number < 0 else 'plus'} {index} {name}"] = abs(number)
        return found

    # --- sensitivities ---

    @cached_property
    def _exact(self) -> CompiledModel:
        return _compiled(self.graph, self.machine)

    def _sensitivities(self, graph: Graph, *, to_integers: bool) -> dict[str, float]:
        """Return the relative error of the outputs if one gate of a graph is open, by its name."""
        parts = list(ends(graph))
        inner = dict.fromkeys(name for part, _ in parts[1:] for name in part.inputs)
        known = dict(zip(graph.inputs, self._probe, strict=True))
        inner = tuple(name for name in inner if name not in known)
        if inner:
            model = _compiled(replace(graph, outputs=inner, tail=None), self.machine)
            known |= zip(inner, model.run_program(self._probe), strict=True)
        found: dict[str, float] = {}
        for part, tensors in parts:
            with_gates = gated(part, to_integers=to_integers, only=tensors)
            found |= self._opened(with_gates, [known[name] for name in part.inputs])
        return found

    def _opened(self, graph: Graph, sample: list[Array]) -> dict[str, float]:
        """Return the errors for the gates of one graph, which are its last inputs."""
        gates = graph.inputs[len(sample) :]
        if not gates:
            return {}
        model = _compiled(graph, self.machine)

        def run(opened: str = "") -> list[Array]:
            values = [np.full(1, gate == opened, np.float32) for gate in gates]
            return model.run_program([*sample, *values])

        right = run()
        return {gate: _error([run(gate)], [right]) for gate in gates}

    @cached_property
    def _effects(self) -> Mapping[str, float]:
        find = partial(self._sensitivities, self.graph, to_integers=False)
        return self._kept("sensitivities", find)

    @cached_property
    def _integer_effects(self) -> Mapping[str, float]:
        if not self.integers:
            return {}
        find = partial(self._sensitivities, self.offered.graph, to_integers=True)
        return self._kept("integer sensitivities", find)

    def measure(self) -> None:
        """Measure what is not known yet of ranges and sensitivities."""
        _ = self._effects, self._integer_effects

    def budget(self, limit: float) -> ErrorBudget:
        """Return a limit on predicted errors, with the sensitivities that they follow from."""
        graph = self.graph
        tensors = (*graph.inputs, *(name for node in graph.nodes for name in node.outputs))

        def tables(effects: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
            of_weights = {node.name: gate_of_weights(node.name) for node in graph.nodes}
            return (
                {n: effects[gate_of(n)] for n in tensors if gate_of(n) in effects},
                {n: effects[gate] for n, gate in of_weights.items() if gate in effects},
            )

        return ErrorBudget(limit, *tables(self._effects), *tables(self._integer_effects))

    # --- errors ---

    @cached_property
    def _right(self) -> list[list[Array]]:
        return [self._exact.run_program(sample) for sample in self._held_out]

    def error(self, plan: Plan) -> Error:
        """Return the error of a plan on the samples to check on.

        The cost cache keeps it, by the kernels and formats of the plan.
        """
        found = self._kept(f"error {digest_of(plan)}", lambda: self._errors(plan))
        return Error(found["measured"], found["expected"])

    def _errors(self, plan: Plan) -> dict[str, float]:
        model = load(lower_plan(plan))
        found = [model.run_program(sample) for sample in self._held_out]
        measured = _error(found, self._right)
        worst = max(_error([a], [b]) for a, b in zip(found, self._right, strict=True))
        return {"measured": measured, "expected": _MARGIN * worst}


def _error(found: Sequence[Sequence[Array]], right: Sequence[Sequence[Array]]) -> float:
    """Return the greatest relative error of an output, over all samples."""
    worst = 0.0
    for place, first in enumerate(right[0]):
        if first.dtype.kind != "f":
            continue
        ours, theirs = (
            np.concatenate([one[place].reshape(-1) for one in arrays]).astype(np.float64)
            for arrays in (found, right)
        )
        norm = float(np.linalg.norm(theirs))
        if not norm:
            continue
        error = float(np.linalg.norm(ours - theirs)) / norm
        worst = max(worst, error if np.isfinite(error) else _WHOLE)
    return worst


def within_budget(
    choose: Callable[[ErrorBudget | None], Plan], reference: Reference, max_error: float
) -> Plan:
    """Return a plan whose error on data is within a limit.

    The plan without a limit comes first. A plan that exceeds the limit, though its predicted error
    does not, is planned again with greater errors of integers or a smaller budget, and in the end
    with no budget at all.

    Args:
        choose: returns the best plan within a budget for predicted errors, or without one.
        reference: the model in float32, and the data.
        max_error: limit on the relative error.

    Raises:
        PlanError: even the plan without any rounding exceeds it.
    """
    free = choose(None)
    error = reference.error(free).expected
    if error <= max_error:
        return with_budget(free, reference.budget(max_error))
    budget, kept = reference.budget(max_error), list[Plan]()
    limit, strain, broken = max_error, 1.0, 1.0
    for _ in range(_ATTEMPTS):
        plan = choose(replace(budget.strained(strain), limit=limit))
        error = reference.error(plan).expected
        if error <= max_error:
            kept.append(plan)
            if strain < _STRAINED * broken or error > _CAUTION * max_error:
                break
            strain = sqrt(strain * broken)  # between what breaks the limit and what is far from it
        elif kept:
            break
        else:
            broken = strain
            limit, strain = _stricter(plan, budget, limit, strain, error)
    if not kept:
        kept = [choose(replace(budget, limit=_NOTHING))]
        error = reference.error(kept[0]).expected
        if error > max_error:
            raise PlanError.at(
                "max_error",
                expected=f"a plan with a relative error of at most {max_error:g}",
                found=f"{error:.1e} expected with all tensors in float32",
                fix="allow a greater error",
            )
    return with_budget(min(kept, key=lambda plan: plan.cost_ns), budget)


def _stricter(
    plan: Plan, budget: ErrorBudget, limit: float, strain: float, error: float
) -> tuple[float, float]:
    """Return the limit and the strain to plan with again if an error is greater than predicted.

    Values beyond their ranges make errors of integers greater than predicted, and less independent.
    """
    of_floats = with_budget(plan, budget.strained(0.0)).predicted_error ** 2
    of_integers = with_budget(plan, budget).predicted_error ** 2 - of_floats
    if error**2 <= of_floats or of_integers <= _NOTHING * of_floats:
        return limit * _CAUTION * budget.limit / error, strain
    factor = sqrt((error**2 - of_floats) / of_integers)
    return limit, max(factor, _STRAINED * strain)


def with_budget(plan: Plan, budget: ErrorBudget) -> Plan:
    """Return a plan that was made without a budget, with the errors that its kernels cause."""
    terms = plan.terms
    return replace(plan, terms=Terms(terms.graph, terms.candidates, terms.edge, budget))


def noted(plan: Plan, reference: Reference, max_error: float) -> Plan:
    """Return a plan with its predicted and measured error in its notes."""
    error = reference.error(plan)
    note = (
        f"relative error of the outputs: {plan.predicted_error:.1e} predicted, "
        f"{error.measured:.1e} measured on {reference.checked} samples, "
        f"{error.expected:.1e} expected at most on other data, at most {max_error:g} allowed"
    )
    return replace(plan, notes=(*plan.notes, note))
