"""From a program, which is data, to native objects: primitives, packed weights, bound steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import dtype_of
from stridewise.graph import Graph, TensorType
from stridewise.ops.kernels import HOST, KernelSpec
from stridewise.runtime.host import host_call
from stridewise.runtime.library import load_core
from stridewise.runtime.memory import ALIGNMENT
from stridewise.runtime.primitives import create, role_argument
from stridewise.runtime.program import (
    CopyStep,
    FillStep,
    KernelStep,
    PackedConstant,
    Program,
    Ref,
)

if TYPE_CHECKING:
    from stridewise import _core

__all__ = ["Kernels", "NativeProgram"]

Array = NDArray[Any]
_SPACES = {"arena": 0, "constant": 1, "input": 2, "output": 3}


class Kernels:
    """Primitives, each created once."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._made: dict[tuple[KernelSpec, str], _core.Primitive] = {}

    def get(self, spec: KernelSpec, implementation: str) -> _core.Primitive:
        """Return the primitive of an implementation; ExecutionError where there is none."""
        key = (spec, implementation)
        if key not in self._made:
            self._made[key] = create(spec, implementation, self._threads)
        return self._made[key]

    def scratch(self, spec: KernelSpec, implementation: str) -> int:
        """Return the bytes of scratchpad that an implementation needs."""
        return self.get(spec, implementation).scratchpad_nbytes


def _source(constant: PackedConstant, dims: tuple[int, ...], arrays: Mapping[str, Array]) -> Array:
    """Return the elements of a constant in the order of the kernel's dimensions."""
    if not constant.value:
        return np.full(dims, constant.fill, np.float32)
    array = arrays[constant.value]
    if constant.reshape is not None:
        array = array.reshape(constant.reshape)
    if constant.permute is not None:
        array = array.transpose(constant.permute)
    array = np.broadcast_to(array, dims) if array.shape != dims else array
    if array.dtype != np.float32 or min(array.strides, default=1) <= 0:
        # The library cannot describe broadcast and reversed views.
        array = np.ascontiguousarray(array, np.float32)
    return array


def _nbytes(type_: TensorType) -> int:
    return type_.dtype.itemsize * prod(type_.shape)


class _Weights:
    """All packed constants in one block of memory, which huge pages make cheap to walk."""

    def __init__(
        self,
        constants: Sequence[PackedConstant],
        kernels: Kernels,
        arrays: Mapping[str, Array],
        threads: int,
    ) -> None:
        core = load_core()
        wanted = [self._wanted(constant, kernels) for constant in constants]
        self.offsets: list[int] = []
        end = 0
        for constant, desc in zip(constants, wanted, strict=True):
            self.offsets.append(end)
            size = arrays[constant.value].nbytes if desc is None else max(desc.nbytes, desc.extent)
            end += -(-size // ALIGNMENT) * ALIGNMENT
        self.buffer: _core.Buffer = core.Buffer(end)
        for constant, desc, offset in zip(constants, wanted, self.offsets, strict=True):
            if desc is None:
                flat = np.ascontiguousarray(arrays[constant.value]).reshape(-1).view(np.uint8)
                self.buffer.array()[offset : offset + flat.size] = flat
                continue
            array = _source(constant, tuple(desc.dims), arrays)
            strides = [step // array.itemsize for step in array.strides]
            source = core.MemoryDesc.strided(desc.dims, "f32", strides)
            core.prepack_into(array, source, desc, self.buffer, offset, threads)

    @staticmethod
    def _wanted(constant: PackedConstant, kernels: Kernels) -> _core.MemoryDesc | None:
        """Return what a kernel wants a constant as; None for the array's own row-major bytes."""
        if constant.spec is None:
            return None
        primitive = kernels.get(constant.spec, constant.implementation)
        return primitive.arg_desc(role_argument(constant.spec.kind, constant.role))


class NativeProgram:
    """The native program, ready to run, and the weights that it reads."""

    def __init__(self, graph: Graph, program: Program, kernels: Kernels, threads: int) -> None:
        core = load_core()
        arrays = {name: item.array for name, item in graph.constants.items()}
        self.weights = _Weights(program.constants, kernels, arrays, threads)
        values = graph.values
        self.program = core.Program(
            program.arena_nbytes,
            [self.weights.buffer],
            [_nbytes(values[name].type) for name in program.inputs],
            [_nbytes(values[name].type) for name in program.outputs],
            threads,
        )
        nodes = {node.name: node for node in graph.nodes}
        for step in program.steps:
            if isinstance(step, KernelStep) and step.spec.kind == HOST:
                self._add_host(step, host_call(nodes[step.node], graph, threads))
            else:
                self._add(core, step, kernels)
        self.program.freeze()

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
            self.program.add_primitive(primitive, args)

    def _add_host(self, step: KernelStep, call: Callable[[list[Any]], object]) -> None:
        args: list[tuple[int, int, int, int, bool]] = []
        for binding in step.bindings:
            memory = step.spec.memory(binding.role)
            assert memory is not None  # host kernels describe all of their arguments
            nbytes = prod(memory.dims) * dtype_of(memory.dtype).itemsize
            args.append((*self._ref(binding.ref), nbytes, binding.role.startswith("out")))
        self.program.add_host(call, args)

    def _ref(self, ref: Ref) -> tuple[int, int, int]:
        if ref.space == "constant":
            return _SPACES[ref.space], 0, self.weights.offsets[ref.index] + ref.offset
        return _SPACES[ref.space], ref.index, ref.offset
