"""One model for many shapes: a program for each shape, made when it is first needed.

A :class:`Specializer` makes the programs, because the runtime does not read model files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stridewise.classes import dataclass
from stridewise.errors import InputError, UnknownValueError, describe
from stridewise.graph import InputSpec, Refusal, Signature
from stridewise.profile import Memory, Profile
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.inputs import by_name, of_dtype
from stridewise.runtime.execution.model import Model
from stridewise.runtime.execution.programs import ProgramCache
from stridewise.runtime.execution.streams import Streams

if TYPE_CHECKING:
    from stridewise.planning import Plan

__all__ = ["DynamicModel", "ProgramInfo", "Programs", "Specializer"]

Array = NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]
GivenShapes = Mapping[str, Sequence[SupportsIndex]]
Values = Mapping[str, Array]
Key = tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[tuple[str, str, bytes], ...]]
"""The shapes of a program, then the values that are part of it: name, dtype and content."""

_CUTS = 64
"""Number of shapes for which the outcome of the padding check is kept."""


class Specializer(Protocol):
    """Makes programs of one model."""

    def model(self, shapes: Shapes, values: Values) -> CompiledModel:
        """Return a program for these shapes, to which these values belong.

        Raises:
            UnknownValueError: the values of other inputs are needed, too.
        """
        ...

    def batch_outputs(
        self, shapes: Shapes, values: Values, inputs: frozenset[str]
    ) -> frozenset[str] | Refusal:
        """Return the outputs to cut where these inputs are padded to a larger batch, or why not."""
        ...


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """A program that is ready.

    Attributes:
        shapes: of the inputs, by name.
        values: of inputs that are part of the program.
        arena: bytes of activations and scratchpads, for each stream of the model.
        own_weights: bytes of weights that were packed for this program: what a second copy costs.
        shared_weights: bytes of weights that programs before it have packed.
        runs: how often it was asked for.
    """

    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, tuple[Any, ...]]
    arena: int
    own_weights: int
    shared_weights: int
    runs: int


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of a model, the one not used for longest first.

    Attributes:
        ready: what is there.
        max_programs: how many there may be.
        hits: calls that found theirs.
        misses: calls for which one was made.
        evictions: number of programs that were dropped.
    """

    ready: tuple[ProgramInfo, ...]
    max_programs: int
    hits: int
    misses: int
    evictions: int


class DynamicModel(Model):
    """A model for inputs of many shapes; any number of threads may call it at the same time.

    At most as many calls run at once as the model has streams, of all shapes together. The first
    call with a shape makes a program for it. Inputs whose values a plan depends on, such as the
    target of a reshape, are handled like shapes.
    """

    def __init__(
        self,
        name: str,
        signature: Signature,
        outputs: Sequence[str],
        specializer: Specializer,
        *,
        max_programs: int = 8,
        max_nbytes: int | None = None,
        arguments: Sequence[str] | None = None,
    ) -> None:
        """Start without a program.

        Args:
            name: the graph's.
            signature: the inputs, and the shapes that they may have.
            outputs: names of the outputs.
            specializer: makes the programs.
            max_programs: how many programs are kept.
            max_nbytes: bytes that their arenas and weights may take; None for no limit.
            arguments: names of all inputs in the order of a call, if some are not tensors and
                therefore not in the signature.

        Raises:
            InputError: a limit is below 1.
        """
        for where, limit in (("max_programs", max_programs), ("max_program_nbytes", max_nbytes)):
            if limit is not None and limit < 1:
                raise InputError.at(where, expected="1 or more", found=str(limit))
        self.name = name
        self.signature = signature
        self._specs = {item.name: item for item in signature}
        self._arguments = tuple(self._specs if arguments is None else arguments)
        self._outputs = tuple(outputs)
        self._specializer = specializer
        self._streams = Streams()
        self._cache: ProgramCache[Key] = ProgramCache(max_programs, max_nbytes)
        self._lock = Lock()
        self._valued: tuple[str, ...] = ()
        self._cuts: dict[Key, frozenset[str] | Refusal] = {}
        self._last: ref[CompiledModel] | None = None

    def use_streams(self, streams: Streams) -> None:
        """Share streams with other models: together they run at most that many requests."""
        super().use_streams(streams)
        for _, program, _ in self._cache.models():
            program.use_streams(streams)

    # --- asking ---------------------------------------------------------------------------------

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs in the order of a call."""
        return self._arguments

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs in the order of the results."""
        return self._outputs

    @property
    def plan(self) -> Plan:
        """The plan of the last call, if its program is kept; otherwise that for the default shapes.

        Raises:
            InputError: nothing was run, and there are no default shapes; use :meth:`plan_for`.
        """
        last = None if self._last is None else self._last()
        if last is not None:
            return last.plan
        shapes = self.signature.default()
        missing = [name for name in self._specs if name not in shapes and name not in self._valued]
        if missing or self._valued:
            raise InputError.at(
                f"model {self.name!r}",
                expected=f"shapes of {', '.join(missing or self._valued)}",
                found="none, as it has not been called",
                fix="use plan_for(shapes, values)",
            )
        return self.plan_for(shapes)

    def plan_for(self, shapes: GivenShapes, values: Mapping[str, ArrayLike] | None = None) -> Plan:
        """Return the plan for some shapes; its program is made as by :meth:`prepare`."""
        return self.program_for(shapes, values).plan

    def prepare(self, shapes: GivenShapes, values: Mapping[str, ArrayLike] | None = None) -> None:
        """Make the program for some shapes, so that the first call need not.

        Args:
            shapes: of each input by name.
            values: of inputs that the plan depends on.

        Raises:
            InputError: a shape is missing or not among those that there may be.
            UnknownValueError: the plan depends on a value that is not given.
            ModelError: the model does not take these shapes.
        """
        self.program_for(shapes, values)

    def prepare_default(self) -> None:
        """Make the program for the default shapes, if there are any, and no value is needed.

        Raises:
            ModelError: the model uses something unsupported.
        """
        shapes = self.signature.default()
        try:
            if shapes and set(shapes) == set(self._specs):
                self.prepare(shapes)
        except UnknownValueError:
            return  # recorded; the value comes with the first call

    def adopt(self, shapes: Shapes, program: CompiledModel) -> None:
        """Keep a program that was made elsewhere; it depends on no values."""
        program.use_streams(self._streams)
        self._cache.get(_key(shapes, {}), lambda: program)
        self._last = self._last or ref(program)

    def first_program(self) -> tuple[Shapes, CompiledModel] | None:
        """Return the only program and its shapes; None if there are others, or it has values."""
        programs = self._cache.models()
        if len(programs) != 1 or self._valued:
            return None
        (shapes, _), program, _ = programs[0]
        return dict(shapes), program

    def program_for(
        self, shapes: GivenShapes, values: Mapping[str, ArrayLike] | None = None
    ) -> CompiledModel:
        """Return the program for some shapes; it is made as by :meth:`prepare`.

        Args:
            shapes: of each input by name.
            values: of inputs that the plan depends on.

        Raises:
            InputError: a shape is missing or not among those that there may be.
        """
        given = {self._spec(name).name: tuple(map(index, s)) for name, s in shapes.items()}
        known = {
            name: np.asarray(value, self._spec(name).dtype.numpy)
            for name, value in (values or {}).items()
        }
        missing = [n for n in self._specs if n not in given and n not in known]
        if missing:
            raise InputError.at(
                f"model {self.name!r}",
                expected=f"shapes of {', '.join(self._specs)}",
                found=f"none of {', '.join(missing)}",
                fix="give shapes= (on the command line: --shape NAME=EXTENTS)",
            )
        program, _ = self._program({**given, **{n: v.shape for n, v in known.items()}}, known)
        return program

    def _spec(self, name: str) -> InputSpec:
        if name not in self._specs:
            raise InputError.at(
                f"model {self.name!r}", expected=f"inputs {', '.join(self._arguments)}", found=name
            )
        return self._specs[name]

    @property
    def programs(self) -> Programs:
        """The programs, and how often calls found one."""
        cache = self._cache
        ready = tuple(_info(key, model, runs) for key, model, runs in cache.models())
        return Programs(ready, cache.max_programs, cache.hits, cache.misses, cache.evictions)

    @property
    def memory(self) -> Memory:
        """The memory of all programs; weights that several of them read count once."""
        models = [model for _, model, _ in self._cache.models()]
        blocks = {id(block): block for model in models for block in model.weights.blocks}
        winograd = {key: size for m in models for key, size in m.weights.winograd.items()}
        constants = [item for model in models for item in model.originals.values()]
        originals = {item.key: item.held_nbytes for item in constants}
        return Memory(
            sum(model.memory.arena for model in models),
            sum(model.memory.arena_lower_bound for model in models),
            sum(block.nbytes for block in blocks.values()),
            sum(winograd.values()),
            sum(model.weights.shared_nbytes for model in models),
            sum(originals.values()),
            self.streams,
        )

    def __repr__(self) -> str:
        inputs = ", ".join(f"{item.name}: {item.dtype} {item}" for item in self.signature)
        return f"DynamicModel({self.name!r}, {inputs} -> {', '.join(self._outputs)})"

    # --- running --------------------------------------------------------------------------------

    def __call__(self, *inputs: Any) -> Array | tuple[Array, ...]:
        """Run the model.

        Args:
            inputs: arrays in the order of ``input_names``; NumPy, or anything that offers DLPack.

        Returns:
            One array, or a tuple in the order of ``output_names``; the caller owns them.

        Raises:
            InputError: the number of inputs, a shape or a dtype is wrong.
            ModelError: the model does not take these shapes.
        """
        if len(inputs) != len(self._arguments):
            raise InputError.at(
                f"model {self.name!r}",
                expected=f"{len(self._arguments)} inputs ({', '.join(self._arguments)})",
                found=f"{len(inputs)}",
            )
        outputs = self._execute(inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run the model with inputs by name and return the outputs by name.

        Raises:
            InputError: a name, a shape or a dtype is wrong, or an input is missing.
            ModelError: the model does not take these shapes.
        """
        return dict(
            zip(
                self._outputs,
                self._execute(by_name(self.name, self._arguments, inputs)),
                strict=True,
            )
        )

    def profile(self, inputs: Mapping[str, Any], runs: int = 20) -> Profile:
        """Time every step of the program for these inputs; see :meth:`CompiledModel.profile`."""
        program, given = self.program_of(inputs)
        return program.profile(given, runs)

    def program_of(self, inputs: Mapping[str, Any]) -> tuple[CompiledModel, dict[str, Any]]:
        """Return the program that runs some inputs, and the inputs as it takes them.

        Args:
            inputs: arrays by name. Batches are padded where the program is for a larger one, and
                values that are part of the program are left out.

        Raises:
            InputError: a name, a shape or a dtype is wrong, or an input is missing.
            ModelError: the model does not take these shapes.
        """
        arrays = self._arrays(by_name(self.name, self._arguments, inputs))
        program, shapes = self._program({n: a.shape for n, a in arrays.items()}, arrays)
        padded = {name: _padded(array, shapes.get(name)) for name, array in arrays.items()}
        given = {**inputs, **padded}
        return program, {name: given[name] for name in program.input_names}

    def _arrays(self, inputs: Sequence[Any]) -> dict[str, Array]:
        return {
            name: of_dtype(given, self._specs[name].dtype, self._specs[name].where)
            for name, given in zip(self._arguments, inputs, strict=True)
            if name in self._specs
        }

    def _execute(self, inputs: Sequence[Any]) -> list[Array]:
        arrays = self._arrays(inputs)
        own = {name: array.shape for name, array in arrays.items()}
        program, shapes = self._program(own, arrays)
        self._last = ref(program)
        padded = {name: _padded(array, shapes.get(name)) for name, array in arrays.items()}
        given = {**dict(zip(self._arguments, inputs, strict=True)), **padded}
        found = program(*[given[name] for name in program.input_names])
        outputs = list(found) if isinstance(found, tuple) else [found]
        grown = frozenset(name for name in shapes if shapes[name] != own[name])
        return self._cut(outputs, own, shapes, arrays, grown) if grown else outputs

    # --- programs -------------------------------------------------------------------------------

    def _program(self, shapes: Shapes, arrays: Values) -> tuple[CompiledModel, Shapes]:
        """Return the program that runs inputs of some shapes, and the shapes that it takes."""
        while True:
            valued = self._valued
            values = self._values(valued, arrays)
            sized = {name: shape for name, shape in shapes.items() if name not in valued}
            program = self._cache.find(_key(sized, values))
            if program is not None:
                return program, sized
            fitted = self.signature.fitted(sized)
            if fitted != sized:
                self._batch(fitted, values, sized)
            key = _key(fitted, values)
            try:
                return self._cache.get(key, lambda f=fitted, v=values: self._make(f, v)), fitted
            except UnknownValueError as error:
                self._learn(valued, error)

    def _make(self, shapes: Shapes, values: Values) -> CompiledModel:
        model = self._specializer.model(shapes, values)
        model.use_streams(self._streams)
        self._last = self._last or ref(model)
        return model

    def _learn(self, valued: Sequence[str], error: UnknownValueError) -> None:
        """Make the values of more inputs than ``valued`` part of programs.

        Raises:
            UnknownValueError: they are part already.
        """
        wanted = set(error.inputs) & set(self._specs)
        if wanted <= set(valued):
            raise error
        with self._lock:
            wanted.update(self._valued)
            self._valued = tuple(name for name in self._specs if name in wanted)

    def _values(self, names: Sequence[str], arrays: Values) -> dict[str, Array]:
        missing = tuple(name for name in names if name not in arrays)
        if missing:
            message = describe(
                f"model {self.name!r}",
                expected=f"values of {', '.join(names)}, which its plan depends on",
                found="none",
                fix=f"give values={{{missing[0]!r}: [...]}}",
            )
            raise UnknownValueError(message, missing)
        return {name: arrays[name] for name in names}

    # --- batches --------------------------------------------------------------------------------

    def _batch(self, fitted: Shapes, values: Values, own: Shapes) -> frozenset[str]:
        """Return the outputs to cut where inputs are run in a larger batch.

        Raises:
            InputError: that would change the results, or batches differ.
        """
        grown = frozenset(name for name in own if fitted[name] != own[name])
        sizes = {(own[name][0], fitted[name][0]) for name in grown}
        key = _key(fitted, values)
        found = self._cuts.get(key) if len(sizes) == 1 else Refusal("batch", "", "batches differ")
        if found is None:
            found = self._specializer.batch_outputs(fitted, values, grown)
            with self._lock:
                if len(self._cuts) >= _CUTS:
                    self._cuts.clear()
                self._cuts[key] = found
        if isinstance(found, Refusal):
            name = next(iter(sorted(grown)))
            raise InputError.at(
                f"input {name!r}",
                expected=f"shape {self._specs[name]}, as the batch cannot be padded",
                found=f"{own[name]} ({': '.join(filter(None, (found.subject, found.reason)))})",
                fix="compile with shapes= that include it",
            )
        return found

    def _cut(
        self,
        outputs: Sequence[Array],
        own: Shapes,
        fitted: Shapes,
        arrays: Values,
        grown: frozenset[str],
    ) -> list[Array]:
        sized = {name: shape for name, shape in own.items() if name in fitted}
        cut = self._batch(fitted, self._values(self._valued, arrays), sized)
        batch = own[next(iter(grown))][0]
        return [
            output[:batch].copy() if name in cut else output
            for name, output in zip(self._outputs, outputs, strict=True)
        ]


def _key(shapes: Shapes, values: Values) -> Key:
    # A value has one axis at most, so that its bytes tell its shape.
    content = ((name, array.dtype.name, array.tobytes()) for name, array in values.items())
    return tuple(shapes.items()), tuple(content)


def _info(key: Key, model: CompiledModel, runs: int) -> ProgramInfo:
    shapes, content = key
    values = {name: tuple(np.frombuffer(data, dtype).tolist()) for name, dtype, data in content}
    weights = model.weights
    return ProgramInfo(
        dict(shapes),
        values,
        model.memory.arena,
        weights.own_nbytes,
        weights.shared_nbytes,
        runs,
    )


def _padded(array: Array, shape: tuple[int, ...] | None) -> Array:
    """Return an array with zeros after the last item of its batch."""
    if shape is None or array.shape == shape:
        return array
    found = np.zeros(shape, array.dtype)
    found[: array.shape[0]] = array
    return found
