"""From a program, which is data, to native objects: primitives, packed weights, bound steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import dtype_of
from stridewise.errors import ExecutionError
from stridewise.graph import Constant, Graph, TensorType
from stridewise.program import CopyStep, FillStep, KernelStep, PackedConstant, Program, Ref
from stridewise.runtime.binding.arguments import role_argument
from stridewise.runtime.binding.kernels import Kernels
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.binding.packing import Packing, pack_all
from stridewise.runtime.binding.weights import Weights
from stridewise.targets.kernels import HOST

if TYPE_CHECKING:
    from stridewise import _core

Array = NDArray[Any]

__all__ = ["NativeProgram", "check_layouts", "program_nbytes"]

_SPACES = {"arena": 0, "constant": 1, "input": 2, "output": 3, "parameter": 4, "state": 5}


def check_layouts(program: Program, kernels: Kernels) -> None:
    """Raise unless kernels read constants in the layouts that the program was lowered for.

    Raises:
        ExecutionError: a kernel reads one in another layout.
    """
    for constant in program.constants:
        if constant.spec is None:
            continue
        found = kernels.layout(constant.spec, constant.implementation, constant.role)
        if found != constant.layout:
            raise ExecutionError.at(
                f"kernel {constant.spec}",
                expected=f"{constant.role} as {constant.layout}, which they are packed in",
                found=found,
                fix="compile the model again",
            )


def _nbytes(type_: TensorType) -> int:
    return type_.dtype.itemsize * prod(type_.shape)


def mutable_nbytes(graph: Graph, program: Program, kernels: Kernels) -> tuple[list[int], list[int]]:
    """Return the bytes of each form of a parameter, and of each state."""
    forms = [Packing.of(form, kernels, graph.parameters).nbytes for form in program.parameters]
    return forms, [_nbytes(graph.values[name].type) for name in program.states]


def program_nbytes(graph: Graph, program: Program, kernels: Kernels) -> int:
    """Return the bytes that runs use: the arena, packed constants, parameters and states.

    Args:
        graph: what the program computes.
        program: the program; no other one shares its constants.
        kernels: its kernels.
    """
    packed = [Packing.of(constant, kernels, graph.constants) for constant in program.constants]
    distinct = {packing.key: packing.nbytes for packing in packed}
    forms, states = mutable_nbytes(graph, program, kernels)
    return program.arena_nbytes + sum(distinct.values()) + sum(forms) + sum(states)


class NativeProgram:
    """The native program, ready to run, and the weights that it reads."""

    def __init__(
        self, graph: Graph, program: Program, kernels: Kernels, threads: int, weights: Weights
    ) -> None:
        """Make it; where the program is split, graph and threads are those of a part."""
        core = load_core()
        self.weights = weights
        values, mutable = graph.values, mutable_nbytes(graph, program, kernels)
        self.mutable_nbytes = sum(map(sum, mutable))
        self.program = core.Program(
            program.arena_nbytes,
            self.weights.buffers,
            [_nbytes(values[name].type) for name in program.inputs],
            [_nbytes(values[name].type) for name in program.outputs],
            threads,
            program.split.parts,
            program.split.lanes,
            *mutable,
        )
        nodes = {node.name: node for node in graph.nodes}
        for step in program.steps:
            if isinstance(step, KernelStep) and step.spec.kind == HOST:
                # They need all operators; stored models have no such step.
                from stridewise.runtime.binding.fallback_steps import host_call  # noqa: PLC0415

                self._add_host(step, host_call(nodes[step.node], graph, threads))
            else:
                self._add(core, step, kernels)
        self.program.freeze()
        self._graph, self._kernels, self._threads = graph, kernels, threads
        self._forms: dict[str, list[tuple[int, PackedConstant]]] = {}
        for index, form in enumerate(program.parameters):
            self._forms.setdefault(form.value, []).append((index, form))
        self._states = {name: index for index, name in enumerate(program.states)}
        self._parameters = dict(graph.parameters)
        self.write({**graph.parameters, **graph.states})

    def read(self, name: str) -> Array:
        """Return a parameter or state as it is now, in the user's order of axes."""
        if self._graph.is_packed(name):
            return self._parameters[name].array.copy()
        type_ = self._graph.values[name].type
        found = np.empty(type_.shape, type_.dtype.numpy)
        is_state = name in self._states
        index = self._states[name] if is_state else self._forms[name][0][0]
        self.program.read((_SPACES["state" if is_state else "parameter"], index, 0), found)
        return found

    def write(self, values: Mapping[str, Constant]) -> None:
        """Replace parameters and states between two runs; types are those of the graph."""
        written: list[tuple[tuple[int, int, int], Array]] = []
        for name, value in values.items():
            if name in self._states:
                array = np.ascontiguousarray(value.array)
                written.append(((_SPACES["state"], self._states[name], 0), array))
            for index, form in self._forms.get(name, ()):
                packed = self._packed(form, value)
                written.append(((_SPACES["parameter"], index, 0), packed))
        self.program.write(written)
        self._parameters |= {name: values[name] for name in values if name in self._parameters}

    def _packed(self, form: PackedConstant, value: Constant) -> NDArray[np.uint8]:
        packing = Packing.of(form, self._kernels, {form.value: value})
        buffer = load_core().Buffer(packing.nbytes)
        pack_all([(packing, 0)], buffer, self._threads)
        return buffer.array()

    def _add(self, core: Any, step: KernelStep | CopyStep | FillStep, kernels: Kernels) -> None:
        if isinstance(step, CopyStep):
            self.program.add_copy(self._ref(step.target), self._ref(step.source), step.nbytes)
        elif isinstance(step, FillStep):
            self.program.add_fill(self._ref(step.target), step.count, step.value)
        else:
            primitive = kernels.get(step.spec, step.implementation)
            args: list[_core.Arg] = []
            for binding in step.bindings:
                argument = role_argument(step.spec.kind, binding.role)
                args.append((argument, primitive.arg_desc(argument), *self._ref(binding.ref)))
            if primitive.scratchpad_nbytes:
                pad = primitive.arg_desc(core.ARG_SCRATCHPAD)
                args.append((core.ARG_SCRATCHPAD, pad, 0, 0, step.scratch))
            in_place = [
                (role_argument(step.spec.kind, result), role_argument(step.spec.kind, operand))
                for result, operand in step.in_place
            ]
            self.program.add_primitive(primitive, args, in_place)

    def _add_host(self, step: KernelStep, call: Callable[[list[Any]], object]) -> None:
        args: list[tuple[int, int, int, int, bool]] = []
        for binding in step.bindings:
            memory = step.spec.memory(binding.role)
            assert memory is not None  # fallback kernels describe all of their arguments
            nbytes = prod(memory.dims) * dtype_of(memory.dtype).itemsize
            args.append((*self._ref(binding.ref), nbytes, binding.role.startswith("out")))
        self.program.add_host(call, args)

    def _ref(self, ref: Ref) -> tuple[int, int, int]:
        if ref.space == "constant":
            buffer, offset = self.weights.places[ref.index]
            return _SPACES[ref.space], buffer, offset + ref.offset
        return _SPACES[ref.space], ref.index, ref.offset
