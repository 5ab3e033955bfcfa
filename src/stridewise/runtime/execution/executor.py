"""The compiled model: checks inputs, runs the native program, times and traces its steps."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from stridewise.classes import dataclass
from stridewise.errors import ExecutionError, InputError, StridewiseError
from stridewise.formats import Format
from stridewise.graph import Constant, Graph, Value
from stridewise.ops.geometry import storage_shape
from stridewise.planner.split import Split
from stridewise.program import KernelStep, Program, Written, reorder_label
from stridewise.runtime.binding.library import share_workers
from stridewise.runtime.binding.program import NativeProgram
from stridewise.runtime.binding.weights import Weights
from stridewise.runtime.execution.arrays import empty
from stridewise.runtime.execution.inputs import as_array, in_order
from stridewise.runtime.execution.model import Model
from stridewise.runtime.execution.mutable_values import MutableValues
from stridewise.runtime.execution.streams import Streams
from stridewise.runtime.execution.tail import TailRun

if TYPE_CHECKING:
    from stridewise.planning import Plan
    from stridewise.profile import Memory, Profile

__all__ = ["CallSignature", "CompiledModel", "DeferredPlan"]

Array = NDArray[Any]

_REFUSAL = re.compile(r"step (\d+): expected (.*), found (.*)")
"""What the core says where a kernel cannot take the values of a run."""


@dataclass(frozen=True, slots=True)
class CallSignature:
    """Inputs and outputs of a compiled model, without nodes or weights.

    Attributes:
        graph: name, inputs and outputs of the planned graph; it has no nodes.
        input_formats: formats of the inputs, by name.
        output_formats: formats of the outputs, by name.
        threads: number of threads of one run.
    """

    graph: Graph
    input_formats: Mapping[str, Format]
    output_formats: Mapping[str, Format]
    threads: int

    @classmethod
    def of(cls, plan: Plan) -> CallSignature:
        """Return the signature of the model of a plan."""
        outside = _shaped(plan.graph, plan.split.whole)
        # Plans have formats of parameters and states, too.
        inputs = {name: plan.input_formats[name] for name in plan.graph.inputs}
        outputs = {name: plan.output_formats[name] for name in plan.graph.outputs}
        return cls(outside, inputs, outputs, plan.machine.threads * plan.split.lanes)

    def part(self, split: Split) -> Graph:
        """Return inputs and outputs of the program of one part."""
        return _shaped(self.graph, split.part)


class DeferredPlan(ABC):
    """A plan that is restored from a document when it is first needed."""

    __slots__ = ()

    @abstractmethod
    def restore(self) -> Plan:
        """Return the plan.

        Raises:
            PlanError: the model's file has changed, or is gone.
        """


def _shaped(graph: Graph, shaped: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Graph:
    """Return a graph's inputs and outputs alone, with other shapes."""
    values: dict[str, Value] = {}
    for name in (*graph.inputs, *graph.outputs):
        value = graph.values[name]
        values[name] = replace(value, type=replace(value.type, shape=shaped(value.shape)))
    return Graph(graph.name, graph.inputs, graph.outputs, (), values, {}, None, {}, {}, {})


def _formats(plan: Plan) -> dict[str, str]:
    """Return the formats of each node and reorder by the name that its steps have."""
    found: dict[str, str] = {}
    for decision in plan.decisions:
        option = decision.chosen.option
        sources = dict.fromkeys(str(way) for way in option.needs if way is not None)
        results = dict.fromkeys(map(str, option.makes))
        found[decision.node] = f"{', '.join(sources)} -> {', '.join(results)}"
    for reorder in plan.reorders:
        found[reorder_label(reorder)] = f"{reorder.source} -> {reorder.target}"
    return found


class CompiledModel(Model):
    """A model ready to run; any number of threads may call it at the same time.

    At most as many calls run at once as the model has streams. The others wait, because runs that
    share processors take longer than runs one after the other.

    Attributes:
        call_signature: inputs and outputs of the program.
        program: the program as data.

    >>> import stridewise as sw
    >>> b = sw.GraphBuilder("double")
    >>> x = b.input("x", (1, 2))
    >>> model = sw.compile(b.build([b.op("add", [x, x], output="y")]), tune="model")
    >>> model(np.array([[1, 2]], np.float32))
    array([[2., 4.]], dtype=float32)
    """

    def __init__(
        self,
        signature: CallSignature,
        program: Program,
        native: NativeProgram,
        plan: Plan | DeferredPlan,
    ) -> None:
        """Wrap a loaded program, which ``loading.py`` and ``stored.py`` make.

        Args:
            signature: inputs and outputs.
            program: the program as data.
            native: the program with its kernels and packed constants.
            plan: the plan, or what restores it.

        Raises:
            ModelError: ONNX Runtime refuses the part of the model that it computes.
        """
        self.call_signature, self.program, self._native = signature, program, native
        self._plan = plan
        self._constants: Mapping[str, Constant] = {}
        self._tail: TailRun | None = None
        # Stored models have no values that runs or users change.
        changing = signature.graph
        if not isinstance(plan, DeferredPlan):
            changing = plan.graph
            self._constants, self._tail = plan.graph.constants, TailRun.of(plan)
        self._parameters = MutableValues("parameter", changing.values, changing.parameters, native)
        self._states = MutableValues("state", changing.values, changing.states, native)
        self._run = native.program.run
        self.use_streams(Streams())
        graph, values = signature.graph, signature.graph.values
        self._inputs = [values[name] for name in graph.inputs]
        self._input_formats = [signature.input_formats[name] for name in graph.inputs]
        self._input_shapes = [
            storage_shape(value, fmt)
            for value, fmt in zip(self._inputs, self._input_formats, strict=True)
        ]
        self._input_dtypes = [value.dtype.numpy for value in self._inputs]
        self._outputs = [
            (storage_shape(values[name], signature.output_formats[name]), values[name].dtype.numpy)
            for name in graph.outputs
        ]

    def with_plan(self, plan: Plan) -> CompiledModel:
        """Return this model with a plan that makes the same decisions and has other notes."""
        model = CompiledModel.__new__(CompiledModel)
        vars(model).update(vars(self), _plan=plan)
        return model

    def use_streams(self, streams: Streams) -> None:
        """Share streams with other models: together they run at most that many requests."""
        super().use_streams(streams)
        self._native.program.gate = streams.gate

    @property
    def has_tail(self) -> bool:
        """Whether another runtime computes the last part of the model."""
        return self._tail is not None

    @property
    def interface(self) -> Graph:
        """Inputs and outputs as the caller sees them, with their types."""
        return self.call_signature.graph if self._tail is None else self.plan.graph

    @property
    def originals(self) -> Mapping[str, Constant]:
        """The constants of the graph as they are held; none in a model from the store."""
        return self._constants

    @property
    def plan(self) -> Plan:
        """The plan; that of a stored model is restored when it is first needed.

        Raises:
            PlanError: the model's file has changed since, or is gone.
        """
        if isinstance(self._plan, DeferredPlan):
            self._plan = self._plan.restore()
        return self._plan

    @property
    def memory(self) -> Memory:
        """The memory of the model."""
        from stridewise.profile import Memory  # noqa: PLC0415 (a start reports nothing)

        lanes = self.program.split.lanes
        return Memory(
            self.program.arena_nbytes * lanes,
            self.program.lower_bound_nbytes * lanes,
            self.weights.own_nbytes + self.weights.shared_nbytes,
            sum(self.weights.winograd.values()),
            self.weights.shared_nbytes,
            sum(constant.held_nbytes for constant in self._constants.values()),
            self.streams,
            self._native.mutable_nbytes,
        )

    def drop_originals(self) -> None:
        """Drop the original weights, which are packed now, and the file that holds them.

        The graph of the plan keeps types but no elements: it cannot be saved, annotated or compiled
        any more. All questions about decisions and costs still work.
        """
        for constant in self._constants.values():
            constant.drop()

    @property
    def parameters(self) -> MutableValues:
        """The parameters by name; none unless the model was compiled with ``keep_parameters``."""
        return self._parameters

    @property
    def states(self) -> MutableValues:
        """The states by name: what runs change and later runs read."""
        return self._states

    @property
    def weights(self) -> Weights:
        """The packed constants that the model reads."""
        return self._native.weights

    def __call__(self, *inputs: Any) -> Array | tuple[Array, ...]:
        """Run the model.

        Args:
            inputs: arrays in the order of ``input_names``, of the dtypes that the model says;
                NumPy, or anything that offers DLPack. C-contiguous ones are read where they are.

        Returns:
            One array, or a tuple in the order of ``output_names``; the caller owns them.

        Raises:
            InputError: the number of inputs, a shape or a dtype is wrong.
            ExecutionError: a node fails for these values, such as an index beyond the end, or the
                system cannot start the threads that the model was compiled for.
        """
        if self._tail is not None:
            results = tuple(self.run(self._tail.named(inputs)).values())
            return results[0] if len(results) == 1 else results
        outputs = self._execute(self._checked(inputs))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run_program(self, inputs: Sequence[Any]) -> list[Array]:
        """Run the program without the tail, which another runtime computes.

        Args:
            inputs: arrays in the order of the graph's inputs.

        Raises:
            InputError: the number of inputs, a shape or a dtype is wrong.
            ExecutionError: a node fails for these values.
        """
        return self._execute(self._checked(inputs))

    def run_tensors(self, inputs: list[Any], outputs: list[Any]) -> None:
        """Run the program on PyTorch tensors, whose types and strides the caller has checked.

        Args:
            inputs: tensors of the storage shapes of the inputs, in order, without gaps.
            outputs: likewise for the outputs; they are written.

        Raises:
            ExecutionError: a node fails for these values.
        """
        try:
            self._native.program.run_tensors(inputs, outputs)
        except StridewiseError:
            raise
        except (RuntimeError, MemoryError) as error:
            raise self._failed(error) from error

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the model with inputs by name and return the outputs by name.

        Raises:
            InputError: a name, a shape or a dtype is wrong, or an input is missing.
        """
        outputs = self._execute(self._named(inputs))
        found = dict(zip(self.call_signature.graph.outputs, outputs, strict=True))
        return found if self._tail is None else self._tail.results(inputs, found)

    def profile(self, inputs: Mapping[str, Any], runs: int = 20) -> Profile:
        """Time every step and compare with predicted times.

        If a batch runs in parts, times are those of all parts; if several parts run at the same
        time, their shares of the whole.

        Raises:
            InputError: as for :meth:`run`, or ``runs`` is below 1.
            ExecutionError: as for :meth:`run`.
        """
        from stridewise.profile import Profile, ProfileRow  # noqa: PLC0415 (as above)

        if not isinstance(cast("object", runs), int) or runs < 1:
            raise InputError.at("runs", expected="1 or more", found=repr(runs))
        samples = self.step_times(self._named(inputs), runs + 1)[1:]
        rows: list[ProfileRow] = []
        formats, split = _formats(self.plan), self.program.split
        for index, step in enumerate(self.program.steps):
            kernel = type(step).__name__.removesuffix("Step").lower()
            predicted = 0.0
            if isinstance(step, KernelStep):
                kernel = f"{step.spec.kind} [{step.implementation}]"
                predicted = step.cost_ns * split.parts / split.lanes
            measured = float(np.median([sample[index] for sample in samples]))
            stored = formats.get(step.node, "") if isinstance(step, KernelStep) else ""
            rows.append(ProfileRow(step.node, kernel, predicted, measured, stored))
        return Profile(tuple(rows), runs)

    def step_times(self, inputs: Sequence[Any], runs: int) -> list[list[int]]:
        """Run the model and return the nanoseconds of every step, for each run.

        Args:
            inputs: arrays in the order of the graph's inputs.
            runs: how often.

        Raises:
            InputError: the number of inputs, a shape or a dtype is wrong.
            ExecutionError: a step failed.
        """
        arrays, outputs = self._checked(inputs), self._allocate()
        try:
            return self._native.program.profile(arrays, outputs, runs)
        except StridewiseError:
            raise
        except (RuntimeError, MemoryError) as error:
            raise self._failed(error) from error

    def report_html(self, inputs: Mapping[str, Any] | None = None, runs: int = 20) -> str:
        """Return the plan, the arena and, for ``inputs``, measured times as a page in HTML.

        Args:
            inputs: arrays by name to time every step with; without them the page has no
                measured times of single steps.
            runs: how many runs the times are medians of.

        Raises:
            InputError: as for :meth:`profile`.
        """
        from stridewise.report import to_html  # noqa: PLC0415 (jinja2 takes time to load)

        profile = None if inputs is None else self.profile(inputs, runs)
        return to_html(self.plan, self.program, profile, memory=self.memory)

    def _repr_html_(self) -> str:
        from stridewise.report import framed  # noqa: PLC0415 (as above)

        return framed(self.report_html())

    def trace(
        self, inputs: Mapping[str, Any], callback: Callable[[Written, Array], object]
    ) -> dict[str, Array]:
        """Run with an arena full of NaN, and show every stored tensor as soon as it is complete.

        If a batch runs in parts, the tensors are those of one part after the other. Several threads
        may trace at once, and the callback may run and trace the model.

        Args:
            inputs: arrays by name.
            callback: called with the description of a tensor and a copy of its storage, a dense
                array of its storage shape, padding included.

        Raises:
            InputError: as for :meth:`run`.
            ExecutionError: as for :meth:`run`.
        """
        arrays, outputs = self._named(inputs), self._allocate()
        native, parts = self._native.program, self.program.split.parts
        theirs: list[Exception] = []

        def after(index: int, arena: NDArray[np.uint8], results: Sequence[Array]) -> None:
            for written in self.program.steps[index].written:
                ref = written.ref
                if ref.space not in ("arena", "output"):
                    continue
                source = (
                    arena if ref.space == "arena" else results[ref.index].reshape(-1).view(np.uint8)
                )
                flat = source.reshape(-1)[ref.offset : ref.offset + written.desc.nbytes]
                stored = np.frombuffer(flat.tobytes(), written.desc.dtype.numpy)
                try:
                    callback(written, stored.reshape(written.desc.storage_shape))
                except Exception as error:
                    theirs.append(error)
                    raise

        try:
            for part in range(parts):
                native.trace(_cut(arrays, part, parts), _cut(outputs, part, parts), after)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, StridewiseError) or theirs:  # the callback's errors are its own
                raise
            raise self._failed(error) from error
        return dict(zip(self.call_signature.graph.outputs, outputs, strict=True))

    def _allocate(self) -> list[Array]:
        return [empty(shape, dtype) for shape, dtype in self._outputs]

    def _execute(self, arrays: Sequence[Array]) -> list[Array]:
        outputs = self._allocate()
        share_workers()
        try:
            self._run(arrays, outputs)
        except StridewiseError:
            raise
        except (RuntimeError, MemoryError) as error:
            raise self._failed(error) from error
        return outputs

    def _failed(self, error: Exception) -> ExecutionError:
        where = f"model {self.call_signature.graph.name!r}"
        refusal = _REFUSAL.fullmatch(str(error))
        if refusal is not None:
            step = self.program.steps[int(refusal[1])]
            node = step.node if isinstance(step, KernelStep) else ""
            fix = "check the values that the model is given or computes"
            expected, found = refusal[2], refusal[3]
            return ExecutionError.at(
                f"{where}, node {node!r}", expected=expected, found=found, fix=fix
            )
        return ExecutionError.at(where, expected="a run", found=str(error))

    def _checked(self, inputs: Sequence[Any]) -> list[Array]:
        if len(inputs) != len(self._inputs):
            raise InputError.at(
                f"model {self.call_signature.graph.name!r}",
                expected=f"{len(self._inputs)} inputs ({', '.join(self.input_names)})",
                found=f"{len(inputs)}",
            )
        arrays: list[Array] = []
        for value, fmt, shape, dtype, given in zip(
            self._inputs,
            self._input_formats,
            self._input_shapes,
            self._input_dtypes,
            inputs,
            strict=True,
        ):
            if (
                type(given) is np.ndarray
                and given.dtype == dtype
                and given.shape == shape
                and given.flags.c_contiguous
            ):
                arrays.append(given)
            else:
                arrays.append(as_array(value, given, fmt))
        return arrays

    def _named(self, inputs: Mapping[str, Any]) -> list[Array]:
        given = inputs if self._tail is None else self._tail.tensors(inputs)
        return in_order(self.call_signature.graph, given, self.call_signature.input_formats)


def _cut(arrays: Sequence[Array], part: int, parts: int) -> list[Array]:
    """Return views of one part of arrays, which the first axis is cut into."""
    if parts == 1:
        return list(arrays)
    found: list[Array] = []
    for array in arrays:
        size = array.shape[0] // parts
        found.append(array[part * size : (part + 1) * size])
    return found
