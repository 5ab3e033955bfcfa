"""What rounding a tensor to bfloat16 does to the outputs, and the error of a plan on data.

The simplified graph is compiled once more in float32, with a gate for each tensor: an input that is
0, or 1 to round the tensor. One run for each tensor gives all sensitivities.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import dtype_of
from stridewise.errors import InputError, PlanError
from stridewise.graph import Constant, Graph, Node, TensorType, Value
from stridewise.passes.fuse_pointwise import fuse_pointwise
from stridewise.planner import derive
from stridewise.planner.problem.error_budget import ErrorBudget
from stridewise.planner.problem.formulation import Terms
from stridewise.planning import Plan, make_plans
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.inputs import as_array, made_up
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.tuning.cost_cache import CostCache
from stridewise.runtime.tuning.finalists import digest_of
from stridewise.runtime.tuning.oracle import estimating_oracle
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import ABILITY, onednn_cpu

__all__ = ["Reference", "gated", "noted", "with_budget", "within_budget"]

Array = NDArray[Any]
_BF16, _F32 = dtype_of("bfloat16"), dtype_of("float32")
_PRODUCTS = ("conv", "conv_transpose", "matmul")
_SPLIT = np.float32(2**16 + 1)
"""Source: Dekker 1971: c - (c - x) with c = (2**16 + 1) x has the upper 8 bits of x, rounded."""
_SAMPLES = 3
"""Made-up samples: the first for sensitivities, the others to check plans on."""
_ATTEMPTS = 4
_CAUTION = 0.8
_NOTHING = 1e-12
"""A budget that allows no error at all."""
_WHOLE = 1.0
"""The sensitivity of a tensor whose rounding makes outputs infinite."""


def _gate(name: str) -> str:
    return f"round {name}"


def _gate_of_weights(node: str) -> str:
    return f"round weights of {node}"


class _Gated:
    """The graph with gates, node by node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values, self.constants = dict(graph.values), dict(graph.constants)
        self.nodes: list[Node] = []
        self.gates: dict[str, str] = {}
        """The names of gates, by the key of what they round."""
        self.read: dict[str, str] = {}
        self.split = self.constant("round/split", np.array(_SPLIT))
        for name in graph.inputs:
            self.round(name)
        for node in graph.nodes:
            inputs = tuple(self.read.get(name, name) for name in node.inputs)
            self.node(replace(node, inputs=inputs))
            for name in node.outputs:
                self.round(name)

    def constant(self, name: str, data: Array) -> str:
        found = Constant(data)
        self.constants[name] = found
        self.values[name] = Value(name, TensorType(found.dtype, found.shape))
        return name

    def gate(self, name: str) -> str:
        self.gates[name] = name
        self.values[name] = Value(name, TensorType(_F32, (1,)))
        return name

    def step(self, op: str, like: str, role: str, *operands: str, **attrs: float) -> str:
        """Add an elementwise node with a result like a value."""
        found = f"round/{role}/{like}"
        self.values[found] = replace(self.values[like], name=found)
        self.nodes.append(Node(found, op, operands, (found,), tuple(sorted(attrs.items()))))
        return found

    def round(self, name: str) -> None:
        """Add the rounding error of a tensor, times its gate, for all readers."""
        if self.values[name].dtype != _F32:
            return
        gate = self.gate(_gate(name))
        scaled = self.step("mul", name, "scaled", name, self.split)
        rest = self.step("sub", name, "rest", scaled, name)
        upper = self.step("sub", name, "upper", scaled, rest)
        error = self.step("sub", name, "error", upper, name)
        opened = self.step("mul", name, "opened", error, gate)
        self.read[name] = self.step("add", name, "result", name, opened)

    def node(self, node: Node) -> None:
        """Add a node; a product of float32 constants with the product of their rounding errors."""
        weights = node.inputs[1] if node.op in _PRODUCTS else ""
        constant = self.graph.constants.get(weights)
        if constant is None or constant.dtype != _F32:
            self.nodes.append(node)
            return
        y, data = node.outputs[0], constant.array
        operands = {post.operand for post in node.post_ops}
        own = tuple(name for place, name in enumerate(node.inputs) if place not in operands)
        error = data.astype(_BF16.numpy).astype(np.float32) - data
        wrong = self.constant(f"round/weights/{node.name}", error)
        before = self.product(node, f"round/product/{y}", own)
        missing = self.product(node, f"round/missing/{y}", (own[0], wrong))
        opened = self.step(
            "mul", y, "weights opened", missing, self.gate(_gate_of_weights(node.name))
        )
        result = self.step("add", y, "product rounded", before, opened)
        for place, post in enumerate(node.post_ops):
            second = () if post.operand is None else (node.inputs[post.operand],)
            attrs = {"alpha": post.alpha, "beta": post.beta}
            result = self.step(post.op, y, f"post {place}", result, *second, **attrs)
        self.nodes.append(Node(node.name, "identity", (result,), (y,)))

    def product(self, node: Node, name: str, inputs: tuple[str, ...]) -> str:
        self.values[name] = replace(self.values[node.outputs[0]], name=name)
        self.nodes.append(replace(node, name=name, inputs=inputs, outputs=(name,), post_ops=()))
        return name

    def built(self) -> Graph:
        """Return the graph."""
        return replace(
            self.graph,
            inputs=(*self.graph.inputs, *self.gates),
            outputs=tuple(self.read.get(name, name) for name in self.graph.outputs),
            nodes=tuple(self.nodes),
            values=MappingProxyType(self.values),
            constants=MappingProxyType(self.constants),
            tail=None,
        )


def gated(graph: Graph) -> Graph:
    """Return a graph with a gate, a further input of (1,), for each tensor and each product.

    The tensor is rounded to bfloat16, or the constant weights of the product are, if it is 1.
    """
    return _Gated(graph).built()


def _compiled(graph: Graph, machine: Machine) -> CompiledModel:
    """Return a float32 model by estimated costs, without Winograd kernels."""
    target = onednn_cpu(machine, "exact")
    derived = derive(fuse_pointwise(graph, ABILITY)[0])
    return load(
        lower_plan(make_plans(derived, target, machine, estimating_oracle(machine, target))[0])
    )


def _samples(graph: Graph, given: Sequence[Mapping[str, Any]] | None) -> list[list[Array]]:
    """Return inputs in the order of the graph: those given, or made up.

    Raises:
        InputError: a sample has no array for an input, or a wrong one.
    """
    values = [graph.values[name] for name in graph.inputs]
    if given is None:
        seeds = map(np.random.default_rng, range(_SAMPLES))
        return [[made_up(value, value.shape, rng) for value in values] for rng in seeds]
    found: list[list[Array]] = []
    for number, sample in enumerate(given):
        where = f"calibration, sample {number}"
        if set(sample) != set(graph.inputs):
            expected = f"inputs {', '.join(graph.inputs)}"
            raise InputError.at(where, expected=expected, found=", ".join(sample) or "none")
        # A program for a part of the batch takes as many of its items.
        found.append([as_array(v, _part(sample[v.name], v.shape)) for v in values])
    if not found:
        raise InputError.at("calibration", expected="at least one sample", found="none")
    return found


def _part(array: Any, shape: tuple[int, ...]) -> Any:
    given: tuple[int, ...] = np.shape(array)
    fits = bool(given and shape) and given[1:] == shape[1:]
    return array[: shape[0]] if fits and given[:1] > shape[:1] else array


@dataclass(frozen=True)
class Reference:
    """A model in float32, and data to compare plans of it on.

    Attributes:
        graph: the simplified graph.
        machine: the machine and its threads.
        given: samples by input name; None for made-up ones.
        costs: stores sensitivities; None to measure them each time.
    """

    graph: Graph
    machine: Machine
    given: Sequence[Mapping[str, Any]] | None = None
    costs: CostCache | None = None

    @cached_property
    def samples(self) -> list[list[Array]]:
        """Inputs in the order of the graph; all but the first check plans, if there are more."""
        return _samples(self.graph, self.given)

    @property
    def checked(self) -> int:
        """The number of samples that plans are checked on."""
        return len(self._held_out)

    @cached_property
    def _held_out(self) -> list[list[Array]]:
        return self.samples[1:] or self.samples

    @cached_property
    def _gated(self) -> tuple[CompiledModel, list[str]]:
        graph = gated(self.graph)
        return _compiled(graph, self.machine), list(graph.inputs[len(self.graph.inputs) :])

    def _run(self, sample: Sequence[Array], opened: str = "") -> list[Array]:
        model, gates = self._gated
        values = [np.full(1, gate == opened, np.float32) for gate in gates]
        return model.run_program([*sample, *values])

    @cached_property
    def key(self) -> str:
        """The key of this model and data in the cost cache."""
        digest = hashlib.sha256(str(self.graph).encode())
        for array in (item for sample in self.samples for item in sample):
            digest.update(np.ascontiguousarray(array).tobytes())
        return f"sensitivities {digest.hexdigest()}"

    @cached_property
    def _effects(self) -> Mapping[str, float]:
        """The relative error of the outputs if one gate is open, by its name."""
        known = self.costs.find((self.key,)).get(self.key) if self.costs else None
        if known is not None:
            return dict(known)
        sample = self.samples[0]
        right = self._run(sample)
        found = {gate: _error([self._run(sample, gate)], [right]) for gate in self._gated[1]}
        if self.costs is not None:
            self.costs.store({self.key: tuple(found.items())})
        return found

    def measure(self) -> None:
        """Measure what is not known yet of sensitivities."""
        _ = self._effects

    def budget(self, limit: float) -> ErrorBudget:
        """Return a limit on predicted errors, with the sensitivities that they follow from."""
        effects, graph = self._effects, self.graph
        tensors = (*graph.inputs, *(name for node in graph.nodes for name in node.outputs))
        return ErrorBudget(
            limit,
            {name: effects[_gate(name)] for name in tensors if _gate(name) in effects},
            {
                node.name: effects[_gate_of_weights(node.name)]
                for node in graph.nodes
                if _gate_of_weights(node.name) in effects
            },
        )

    @cached_property
    def _right(self) -> list[list[Array]]:
        return [self._run(sample) for sample in self._held_out]

    def error(self, plan: Plan) -> float:
        """Return the relative error of a plan's outputs on the samples to check on.

        The cost cache keeps it, by the kernels and formats of the plan.
        """
        key = f"error {digest_of(plan)} of {self.key}"
        known = self.costs.find((key,)).get(key) if self.costs else None
        if known:
            return known[0][1]
        model = load(lower_plan(plan))
        error = _error([model.run_program(sample) for sample in self._held_out], self._right)
        if self.costs is not None:
            self.costs.store({key: (("error", error),)})
        return error


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
    does not, is planned again with a smaller budget for predictions, and in the end with none.

    Args:
        choose: returns the best plan within a budget for predicted errors, or without one.
        reference: the model in float32, and the data.
        max_error: limit on the relative error.

    Raises:
        PlanError: even the plan without any rounding exceeds it.
    """
    free = choose(None)
    error = reference.error(free)
    if error <= max_error:
        return with_budget(free, reference.budget(max_error))
    limit = max_error
    for attempt in range(_ATTEMPTS + 1):
        limit = _NOTHING if attempt == _ATTEMPTS else limit
        plan = choose(reference.budget(limit))
        error = reference.error(plan)
        if error <= max_error:
            return plan
        limit *= _CAUTION * max_error / error
    raise PlanError.at(
        "max_error",
        expected=f"a plan with a relative error of at most {max_error:g}",
        found=f"{error:.1e} with all tensors in float32",
        fix="allow a greater error",
    )


def with_budget(plan: Plan, budget: ErrorBudget) -> Plan:
    """Return a plan that was made without a budget, with the errors that its kernels cause."""
    terms = plan.terms
    return replace(plan, terms=Terms(terms.graph, terms.candidates, terms.edge, budget))


def noted(plan: Plan, reference: Reference, max_error: float) -> Plan:
    """Return a plan with its predicted and measured error in its notes."""
    note = (
        f"relative error of the outputs: {plan.predicted_error:.1e} predicted, "
        f"{reference.error(plan):.1e} measured on {reference.checked} samples, "
        f"at most {max_error:g} allowed"
    )
    return replace(plan, notes=(*plan.notes, note))
