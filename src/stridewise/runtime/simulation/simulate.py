"""Execution of plans whose target is not there: every tensor is stored as the plan says.

Operators are computed by their NumPy references in the user's order, between reading operands out
of their storage and writing results into theirs. What is checked is the plan: that every operand is
there in the format that was decided, that formats which count as one really are, that views lie
where they should, and that nothing depends on padding. Speed is no aim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from stridewise.errors import ExecutionError, InputError
from stridewise.graph import Node
from stridewise.ops import evaluate
from stridewise.ops.geometry import stored, way_of
from stridewise.planner.plan import Reorder
from stridewise.planner.problem.candidates import Candidate
from stridewise.planning import Plan
from stridewise.profile import Profile
from stridewise.runtime.execution.inputs import as_array, in_order
from stridewise.runtime.execution.model import Model
from stridewise.runtime.execution.streams import Streams
from stridewise.runtime.execution.tail import TailRun
from stridewise.runtime.simulation.storage import StoredTensor, pack, store, unpack
from stridewise.targets.tables.table import TableTarget
from stridewise.tensor import Storage, TensorDesc

__all__ = ["SimulatedModel"]

Array = NDArray[Any]
Seen = Callable[[StoredTensor], object]


class SimulatedModel(Model):
    """A model planned for another machine, executed with NumPy in the planned formats.

    >>> import numpy as np
    >>> import stridewise as sw
    >>> b = sw.GraphBuilder("double")
    >>> x = b.input("x", (1, 2))
    >>> model = sw.compile(b.build([b.op("add", [x, x], output="y")]), target="ascend")
    >>> model(np.array([[1, 2]], np.float32))
    array([[2., 4.]], dtype=float32)
    """

    def __init__(self, plan: Plan) -> None:
        """Store the constants in the formats that the plan's kernels take.

        Raises:
            ExecutionError: the plan is for a target with kernels.
            DependencyError: another runtime computes the tail, and is not installed.
        """
        if not isinstance(plan.target, TableTarget):
            raise ExecutionError.at(
                f"plan of {plan.graph.name!r}",
                expected="a plan for a simulated target",
                found=plan.target.name,
                fix="use CompiledModel",
            )
        kept = (*plan.graph.parameters, *plan.graph.states)
        if kept:
            raise ExecutionError.at(
                f"plan of {plan.graph.name!r}",
                expected="a graph without parameters and states, as simulation keeps none",
                found=", ".join(kept),
                fix="leave out keep_parameters and the updates",
            )
        self._plan = plan
        self._streams = Streams()
        self._tail = TailRun.of(plan)
        self._padding = plan.target.padding
        constants = plan.graph.constants
        self.packed: dict[tuple[str, int], Array] = {}
        for node, decision in zip(plan.graph.nodes, plan.decisions, strict=True):
            for packed in decision.chosen.option.packed:
                name = node.inputs[packed.input]
                dtype = plan.graph.values[name].dtype
                key = (node.name, packed.input)
                # What a target says about padding is about data; weights are packed with zeros.
                self.packed[key] = pack(packed, constants[name].array, dtype, "zero")

    @property
    def plan(self) -> Plan:
        """What was decided, and why."""
        return self._plan

    def __call__(self, *inputs: Any) -> Array | tuple[Array, ...]:
        """Run the model.

        Args:
            inputs: arrays in the order of ``input_names``; NumPy, or anything that offers DLPack.

        Returns:
            One array, or a tuple in the order of ``output_names``.

        Raises:
            InputError: the number of inputs, a shape or a dtype is wrong.
            ExecutionError: the plan contradicts itself.
        """
        graph = self._plan.graph
        if self._tail is not None:
            results = tuple(self.run(self._tail.named(inputs)).values())
            return results[0] if len(results) == 1 else results
        if len(inputs) != len(graph.inputs):
            raise InputError.at(
                f"model {graph.name!r}",
                expected=f"{len(graph.inputs)} inputs ({', '.join(graph.inputs)})",
                found=f"{len(inputs)}",
            )
        formats = self._plan.input_formats
        arrays = [
            as_array(graph.values[name], given, formats[name])
            for name, given in zip(graph.inputs, inputs, strict=True)
        ]
        found = self._execute(arrays)
        return found[0] if len(found) == 1 else tuple(found)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the model with inputs by name and return the outputs by name.

        Raises:
            InputError: a name, a shape or a dtype is wrong, or an input is missing.
            ExecutionError: the plan contradicts itself.
        """
        return self.trace(inputs, lambda _: None)

    def profile(self, inputs: Mapping[str, Any], runs: int = 20) -> Profile:
        """Refuse: the speed of a simulation says nothing about the target.

        Raises:
            InputError: always.
        """
        del inputs, runs
        raise InputError.at(
            "profile",
            expected="a target whose kernels run here",
            found=f"{self._plan.target.name}, which is simulated",
            fix="see plan.explain() for predicted costs",
        )

    def trace(self, inputs: Mapping[str, Any], callback: Seen) -> dict[str, Array]:
        """Run, and pass every stored tensor to a callback as soon as it is complete.

        Args:
            inputs: arrays by name.
            callback: called with each stored tensor, that of an input or a reorder included.

        Raises:
            InputError: as for :meth:`run`.
            ExecutionError: the plan contradicts itself.
        """
        given = inputs if self._tail is None else self._tail.tensors(inputs)
        graph = self._plan.graph
        found = self._execute(in_order(graph, given, self._plan.input_formats), callback)
        computed = dict(zip(graph.outputs, found, strict=True))
        return computed if self._tail is None else self._tail.results(inputs, computed)

    def _execute(self, arrays: Sequence[Array], callback: Seen | None = None) -> list[Array]:
        return _Run(self, self._plan, self._padding, callback).outputs(arrays)


class _Run:
    """One run: which tensors are there, by name and storage format."""

    def __init__(self, model: SimulatedModel, plan: Plan, padding: Any, seen: Seen | None) -> None:
        self.model, self.plan, self.graph = model, plan, plan.graph
        self.padding, self.seen = padding, seen
        self.there: dict[tuple[str, str], StoredTensor] = {}
        self.reorders: dict[tuple[str, str], list[Reorder]] = {}
        for reorder in plan.reorders:
            self.reorders.setdefault(self.key(reorder.tensor, reorder.source), []).append(reorder)

    def key(self, name: str, way: Storage) -> tuple[str, str]:
        return name, self.plan.storages.key(name, way)

    def desc(self, name: str, way: Storage) -> TensorDesc:
        return stored(self.graph.values[name], way)

    def put(self, tensor: StoredTensor) -> None:
        """Note that a tensor is there, and reorder it where the plan says so."""
        key = self.key(tensor.value, way_of(self.graph.values[tensor.value], tensor.desc))
        self.there[key] = tensor
        if self.seen is not None:
            self.seen(tensor)
        for reorder in self.reorders.get(key, ()):
            moved = tensor.reordered(self.desc(reorder.tensor, reorder.target), self.padding)
            self.there[self.key(reorder.tensor, reorder.target)] = moved
            if self.seen is not None:
                self.seen(moved)

    def get(self, name: str, way: Storage, reader: str) -> StoredTensor:
        """Return a tensor as a reader takes it, or fail: nothing is converted in silence."""
        found = self.there.get(self.key(name, way))
        if found is None:
            formats = [
                str(tensor.desc.storage.format)
                for (value, _), tensor in self.there.items()
                if value == name
            ]
            raise ExecutionError.at(
                f"{reader}, tensor {name!r}",
                expected=f"storage {way}",
                found=f"{' and '.join(formats) or 'nothing'}, without a reorder",
            )
        # Formats that count as one for this shape: the bytes are read as the reader names them.
        return found.seen_as(name, self.desc(name, way), 0)

    def operand(self, node: Node, index: int, chosen: Candidate) -> Array | None:
        name, way = node.inputs[index], chosen.option.needs[index]
        if not name:
            return None
        if way is not None:
            return self.get(name, way, f"node {node.name!r} ({node.op})").array
        packed = next(item for item in chosen.option.packed if item.input == index)
        buffer = self.model.packed[node.name, index]
        return unpack(packed, buffer, self.graph.values[name].shape)

    def node(self, node: Node, chosen: Candidate) -> None:
        option = chosen.option
        views = {alias.output: alias for alias in option.aliases if alias.kind == "view"}
        results: Sequence[Array] = ()
        if len(views) < len(node.outputs):
            operands = [self.operand(node, i, chosen) for i in range(len(node.inputs))]
            results = evaluate(node, operands)
        for index, (name, way) in enumerate(zip(node.outputs, option.makes, strict=True)):
            desc = self.desc(name, way)
            alias = views.get(index)
            source = option.needs[alias.input] if alias is not None else None
            if alias is None or source is None:
                self.put(store(name, desc, results[index], self.padding))
                continue
            reader = f"node {node.name!r} ({node.op})"
            viewed = self.get(node.inputs[alias.input], source, reader)
            self.put(viewed.seen_as(name, desc, alias.offset))

    def outputs(self, arrays: Sequence[Array]) -> list[Array]:
        for name, array in zip(self.graph.inputs, arrays, strict=True):
            desc = self.desc(name, Storage(self.plan.input_formats[name]))
            self.put(StoredTensor(name, desc, array.reshape(-1)))
        for node, decision in zip(self.graph.nodes, self.plan.decisions, strict=True):
            self.node(node, decision.chosen)
        found: list[Array] = []
        for name in self.graph.outputs:
            if name in self.graph.constants:
                found.append(self.graph.constants[name].array.copy())
                continue
            last = self.get(name, Storage(self.plan.output_formats[name]), "the caller")
            found.append(last.buffer.reshape(last.desc.storage.shape).copy())
        return found
