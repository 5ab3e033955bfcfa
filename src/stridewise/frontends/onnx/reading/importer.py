"""The state of one import: the value of each ONNX name, and the constants.

Handlers take an :class:`OnnxNode` and an :class:`Importer`. They refer to values by ONNX names, or
by names that the importer returns for intermediate results. A name refers to a constant (outside of
the graph until a node reads it), is an alias of an earlier value, or refers to a value of the
graph. Nodes whose operands are all constants are computed at once, so shape arithmetic never
becomes part of the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

import numpy as np
from onnx import FunctionProto, ModelProto, SparseTensorProto, TensorProto

from stridewise.dtypes import dtype_of
from stridewise.errors import (
    DamageError,
    GraphError,
    MemoryLimitError,
    ModelError,
    UnknownValueError,
    describe,
)
from stridewise.frontends.onnx.reading.proto import OnnxNode, reads_of
from stridewise.frontends.onnx.reading.tensors import TensorReader
from stridewise.graph import Attr, Graph, Node, Tail, TensorType
from stridewise.graph.names import fresh_name
from stridewise.ops import GraphBuilder, evaluate, infer
from stridewise.ops.demand import spelled
from stridewise.ops.effort import Budget, Effort, effort, nbytes
from stridewise.ops.fallback import OP as FALLBACK
from stridewise.ops.quantize import moved_grid
from stridewise.ops.registry import Array
from stridewise.tensor import Grid

__all__ = ["MAX_WINDOW", "Handler", "Importer", "scalar", "tensor_type"]

_UNSORTED = "sort the nodes so that each comes after the ones it reads; a cycle cannot be imported"

_WINDOW = ("dilations", "kernel", "output_padding", "pads", "strides")
MAX_WINDOW = 2**31 - 1
"""Greatest parameter of a window. Those of valid models are far below, and kernels compute with 64
bits."""


_MOST_ELEMENTS = 64
"""Most elements of an input whose value may be requested: shapes, axes, pads, scales."""


def tensor_type(array: Array) -> TensorType:
    """Return the type of an array."""
    return TensorType(dtype_of(array.dtype), array.shape)


class Importer:
    """Collects the graph; handlers use its methods.

    Attributes:
        builder: the graph so far.
        rebatched: pairs of the batch in the model and the requested one.
        pooled: shapes of what was max-pooled, by the name of the indices.
        keeps: whether the node that is imported becomes nodes even if all it reads is constant.
        trains: whether the graph is to be trained: batch norms in training mode keep running
            statistics in states, and dropout is kept whatever its mode.
        budget: the remaining limit for the computation of constants.
        reader: reads the tensors of the model.
        functions: local functions that are not inlined, by domain, name and overload.
    """

    def __init__(
        self,
        name: str,
        model: ModelProto,
        reader: TensorReader,
        memory_limit: int | None = None,
        outputs: Sequence[str] | None = None,
    ) -> None:
        """Start from the initializers and names of a model; its inputs are added next.

        Args:
            name: the name of the graph.
            model: the model with initializers and names.
            reader: reads the initializers.
            memory_limit: bytes that a value may have; None for no limit.
            outputs: the outputs of the graph, by default those of the model.
        """
        graph = model.graph
        self.builder = GraphBuilder(name)
        self.rebatched: set[tuple[int, int]] = set()
        self.pooled: dict[str, tuple[int, ...]] = {}
        self.trains = False
        self.keeps = False
        self.budget = Budget()
        self.reader = reader
        self.functions: dict[tuple[str, str, str], FunctionProto] = {
            (item.domain, item.name, item.overload): item for item in model.functions
        }
        self._limit = memory_limit
        self._initializers: dict[str, TensorProto] = {item.name: item for item in graph.initializer}
        self._sparse: dict[str, SparseTensorProto] = {
            item.values.name: item for item in graph.sparse_initializer
        }
        self._constants: dict[str, Array] = {}
        self._grids: dict[str, Grid] = {}
        self._aliases: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._states: set[str] = set()
        given = tuple(item.name for item in graph.output)
        self._outputs = given if outputs is None else tuple(outputs)
        self._reads = {name for node in graph.node for name in reads_of(node)} | set(given)
        self._node_names = Counter(node.name for node in graph.node)
        self._reserved = self._reads.union(self._initializers, self._sparse)
        for node in graph.node:
            self._reserved.update(node.output)

    # --- queries ---------------------------------------------------------------------------------

    def _resolve(self, name: str) -> str:
        return self._aliases.get(name, name)

    def const(self, name: str) -> Array | None:
        """Return the data of a constant, None for any other value.

        Raises:
            ModelError: the data cannot be read.
        """
        name = self._resolve(name)
        found = self._constants.get(name)
        if found is None and name in self._initializers:
            found = self.reader.initializer(self._initializers[name])
            self._constants[name] = found
            self.budget.grow(found.nbytes)
        elif found is None and name in self._sparse:
            found = self.dense(self._sparse[name], f"sparse initializer {name!r}")
            self._constants[name] = found
        return found

    def dense(self, tensor: SparseTensorProto, where: str) -> Array:
        """Return a sparse tensor with its zeros.

        Raises:
            MemoryLimitError: it exceeds the budget.
            ModelError: it cannot be read.
        """
        read = self.reader.sparse(tensor, where)
        self.budget.grow(read.values.nbytes + read.places.nbytes)
        count = prod(read.shape)
        self.spend(where, Effort(count * read.values.itemsize, count))
        return read.dense()

    def initializer(self, name: str) -> TensorProto | None:
        """Return a dense initializer as the file has it, None for any other value."""
        return self._initializers.get(self._resolve(name))

    def require_const(self, node: OnnxNode, index: int, what: str) -> Array:
        """Return the data of an input that must be a constant.

        Raises:
            ModelError: it is absent, or computed from the inputs of the model.
        """
        name = node.required(index)
        found = self.const(name)
        if found is None:
            # V is NumPy's kind of bfloat16.
            inputs = self.small_sources((name,), "biufV")
            if inputs:
                raise _unknown_value(node, what, inputs)
            raise node.error(
                f"{what} to be constant",
                f"{name!r}, which depends on the model's inputs",
                "export the model with fixed shapes and parameters",
            )
        return found

    def small_sources(self, names: Sequence[str], kinds: str) -> tuple[str, ...]:
        """Return the inputs of the model that some values depend on, if all of these are small.

        Their values may then be requested. The result is () if an input is large, or has a dtype
        whose kind is not in ``kinds``.
        """
        computed = [self._values.get(self._resolve(name), "") for name in names if name]
        found = self.builder.sources([name for name in computed if name])
        for name in found:
            type_ = self.builder.type(name)
            small = len(type_.shape) <= 1 and nbytes((type_,)) <= (
                _MOST_ELEMENTS * type_.dtype.itemsize
            )
            if not small or type_.dtype.numpy.kind not in kinds:
                return ()
        return found

    def integers(self, node: OnnxNode, index: int, what: str) -> tuple[int, ...]:
        """Return a constant input that is a list of integers, like axes or a shape.

        Raises:
            ModelError: it is not a constant, or not integers.
        """
        data = self.require_const(node, index, what)
        if data.dtype.kind not in "iu":
            raise node.error(f"{what} to be integers", data.dtype)
        return tuple(int(item) for item in data.reshape(-1))

    def type(self, name: str) -> TensorType:
        """Return the type of a value."""
        data = self.const(name)
        if data is not None:
            return tensor_type(data)
        return self.builder.type(self._values[self._resolve(name)])

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self.type(name).shape

    def known(self, name: str) -> bool:
        """Return whether the name is defined."""
        resolved = self._resolve(name)
        return resolved in self._values or self._is_constant(resolved)

    def _is_constant(self, resolved: str) -> bool:
        tables = (self._constants, self._initializers, self._sparse)
        return any(resolved in table for table in tables)

    def used(self, name: str) -> bool:
        """Return whether a node reads the value, or it is an output."""
        return bool(name) and name in self._reads

    def all_constant(self, node: OnnxNode) -> bool:
        """Return whether a node has inputs, and all of them are constants."""
        names = [name for name in node.inputs if name]
        return bool(names) and all(self._is_constant(self._resolve(name)) for name in names)

    def axis(self, node: OnnxNode, axis: int, rank: int) -> int:
        """Return an axis counted from the front.

        Raises:
            DamageError: there is no such axis.
        """
        if not -rank <= axis < rank:
            raise node.damage(f"an axis from {-rank} to {rank - 1}", axis)
        return axis + rank if axis < 0 else axis

    def check_inputs(self, node: OnnxNode) -> None:
        """Check that the inputs of a node are defined.

        Raises:
            ModelError: an input is defined later, or nowhere.
        """
        self.check_names(node, [name for name in node.inputs if name])

    def check_names(self, node: OnnxNode, names: Sequence[str]) -> None:
        """Check that values which a node or its subgraphs read are defined.

        Raises:
            ModelError: one is defined later, or nowhere.
        """
        for name in names:
            if not self.known(name):
                raise node.error("inputs that are defined before it", repr(name), _UNSORTED)

    def only_first_output(self, node: OnnxNode, why: str) -> None:
        """Check that all outputs but the first are unused.

        Raises:
            ModelError: another output is used.
        """
        for name in node.outputs[1:]:
            if self.used(name):
                raise node.error(f"no use of output {name!r}", "one", why)

    # --- defining -------------------------------------------------------------------------------

    def _claim(self, name: str) -> str:
        if not name or self.known(name):
            raise ModelError.at(
                "model",
                expected="each value to be defined once",
                found=f"another definition of {name!r}" if name else "a result without a name",
            )
        return name

    def _fresh(self, hint: str) -> str:
        return fresh_name(hint, lambda name: name in self._reserved or self.known(name))

    def add_input(self, name: str, type_: TensorType) -> None:
        """Declare an input of the graph.

        Raises:
            MemoryLimitError: it is larger than the limit.
        """
        self._claim(name)
        self.check_size(f"input {name!r}", type_)
        self._values[name] = self.builder.input(name, type_.shape, type_.dtype)

    def add_value(self, name: str, data: Array) -> None:
        """Define an input of the model as a constant, as its value is given."""
        self._constants[self._claim(name)] = data

    def add_tensor(self, name: str, tensor: TensorProto, where: str) -> None:
        """Define a tensor of a subgraph as a constant."""
        data = self.reader.read(tensor, where)
        self._constants[self._claim(name)] = data
        self.budget.grow(data.nbytes)

    def reserve(self, hint: str) -> str:
        """Return a name that no value of the model has or gets."""
        name = self._fresh(hint)
        self._reserved.add(name)
        return name

    def note_reads(self, names: Iterable[str]) -> None:
        """Note values that nodes read which are not in the model's graph."""
        self._reads.update(names)

    def state(self, name: str) -> str | None:
        """Return the graph's name of a constant as a state; None for a computed value.

        Raises:
            DamageError: a node has read it as a constant.
        """
        name = self._resolve(name)
        if name in self._states:
            return self._values[name]
        data = self.const(name)
        if data is None:
            return None
        if name in self._values:
            expected, found = "statistics that batch norms alone read", "another reader"
            raise DamageError.at(f"value {name!r}", expected=expected, found=found)
        self._states.add(name)
        self._values[name] = self.builder.state(data, name)
        return self._values[name]

    def define(self, name: str, data: Array) -> str:
        """Define a result as a constant; a result without a name is dropped.

        Raises:
            MemoryLimitError: it exceeds the budget, or the limit of a value.
        """
        if name:
            found = tensor_type(data)  # raises an error for unsupported dtypes
            # A broadcast element takes no memory before it is packed as a weight.
            if 0 not in data.strides:
                self.spend(f"value {name!r}", Effort(nbytes((found,)), 0))
            self.check_size(f"value {name!r}", found)
            self._constants[self._claim(name)] = data
        return name

    def note_grid(self, name: str, grid: Grid) -> None:
        """Note the numbers that the elements of a constant are among."""
        self._grids[self._resolve(name)] = grid

    def spend(self, where: str, wanted: Effort) -> None:
        """Take work out of the budget for constants.

        Raises:
            MemoryLimitError: it is more than is left.
        """
        if not self.budget.take(wanted):
            raise MemoryLimitError.at(
                where,
                expected=f"constants that take at most {spelled(self.budget.nbytes)} and "
                f"{self.budget.operations} operations more to compute",
                found=f"{spelled(wanted.nbytes)} and {wanted.operations} operations",
                fix="store the result in the model, or compute it from an input",
            )

    def check_size(self, where: str, type_: TensorType) -> None:
        """Check that a single value fits into the memory limit.

        Raises:
            MemoryLimitError: it does not.
        """
        size = nbytes((type_,))
        if self._limit is not None and size > self._limit:
            raise MemoryLimitError.at(
                where,
                expected=f"at most {spelled(self._limit)} of memory",
                found=f"{type_}, which is {spelled(size)}",
                fix="give smaller shapes, or a higher memory_limit",
            )

    def preset(self, constants: Mapping[str, Array]) -> None:
        """Define results that an earlier import of the same model computed."""
        self._constants |= constants

    def forget(self, names: Sequence[str]) -> None:
        """Remove results that a handler may have defined before it raised an error."""
        for name in names:
            for table in (self._values, self._constants, self._aliases):
                table.pop(name, None)

    def assume(self, name: str, type_: TensorType) -> None:
        """Define a result by its type alone, as a node that no graph is built of."""
        attrs = {"nodes": (name,), "operators": ("",), "reasons": ("",), "types": (str(type_),)}
        self._claim(name)
        (value,) = self.builder.node(FALLBACK, [], attrs)
        self._values[name] = value
        self.check_size(f"value {name!r}", type_)

    def fallback(
        self,
        name: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr],
        outputs: Sequence[str],
    ) -> None:
        """Add a part of the model that another runtime computes.

        Args:
            name: the node's name.
            inputs: names of the values that it reads; no constants.
            attrs: the attributes of operator ``fallback``.
            outputs: names of the values that it defines.

        Raises:
            MemoryLimitError: an output is larger than the limit.
        """
        for result in outputs:
            self._claim(result)
        names = [self.materialize(item) for item in inputs]
        found = self.builder.node(FALLBACK, names, attrs, name=name, outputs=outputs)
        for result in found:
            self._values[result] = result
            self.check_size(f"value {result!r}", self.builder.type(result))

    def constant(self, hint: str, data: Array) -> str:
        """Add a constant that is not in the model and return its name."""
        return self.define(self._fresh(hint), data)

    def alias(self, name: str, source: str) -> None:
        """Define a result as an alias of an earlier value, without a node."""
        if name:
            self._aliases[self._claim(name)] = self._resolve(source)

    def step(
        self,
        node: OnnxNode,
        role: str,
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr] | None = None,
    ) -> str:
        """Add an intermediate operation of a node and return the name of its result."""
        base = next(name for name in node.outputs if name)
        name = self._fresh(f"{base}/{role}")
        return self._add(name, (name,), op, inputs, attrs or {})

    def emit(
        self,
        node: OnnxNode,
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr] | None = None,
        output: int = 0,
    ) -> None:
        """Add the operation that computes an output of a node, unless the output has no name."""
        result = node.outputs[output] if output < len(node.outputs) else ""
        if not result:
            return
        own = node.name if output == 0 and self._node_names[node.name] == 1 else ""
        self._add(own or result, (result,), op, inputs, attrs or {})

    def emit_all(
        self,
        node: OnnxNode,
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr],
        count: int,
    ) -> tuple[str, ...]:
        """Add the operation that computes all ``count`` outputs of a node, and return their names.

        Outputs without a name get one.
        """
        first = next(name for name in node.outputs if name)
        given = (*node.outputs, *("",) * (count - len(node.outputs)))
        results = tuple(
            name or self._fresh(f"{first}/output{index}") for index, name in enumerate(given)
        )
        own = node.name if self._node_names[node.name] == 1 else ""
        self._add(own or first, results, op, inputs, attrs)
        return results

    def _add(
        self,
        name: str,
        results: tuple[str, ...],
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr],
    ) -> str:
        """Compute an operation of constants, or add it to the graph; return the first result."""
        if not self.keeps and self._compute(name, results, op, inputs, attrs):
            return results[0]
        for result in results:
            self._claim(result)
        for key in _WINDOW:
            wide = attrs.get(key)
            items = wide if isinstance(wide, tuple) else ()
            if any(isinstance(item, int) and item > MAX_WINDOW for item in items):
                found = f"{key} {wide}"
                raise GraphError.at(f"node {name!r}", expected=f"at most {MAX_WINDOW}", found=found)
        names = [self.materialize(item) if item else "" for item in inputs]
        added = self.builder.node(op, names, attrs, name=name, outputs=results)
        for result, value in zip(results, added, strict=True):
            self._values[result] = value
            self.check_size(f"value {result!r}", self.builder.type(value))
        return results[0]

    def _compute(
        self,
        name: str,
        results: tuple[str, ...],
        op: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr],
    ) -> bool:
        """Compute an operation if all operands are constants and the budget allows it."""
        operands = [self.const(item) if item else None for item in inputs]
        if not any(inputs) or any(
            item and data is None for item, data in zip(inputs, operands, strict=True)
        ):
            return False
        node = Node(name, op, tuple(inputs), results, tuple(sorted(attrs.items())))
        types = tuple(None if item is None else tensor_type(item) for item in operands)
        if not self.budget.take(effort(node, types, infer(node, types))):
            return False
        for result, data in zip(results, evaluate(node, operands), strict=True):
            self._constants[self._claim(result)] = data
        grid = self._grids.get(self._resolve(inputs[0]))
        moved = None if grid is None else moved_grid(node, grid, operands[0])
        if moved is not None:
            self._grids[results[0]] = moved
        return True

    def materialize(self, name: str) -> str:
        """Return the graph's name of a value; the first read of a constant adds it to the graph.

        Raises:
            GraphError: there is no such value.
        """
        name = self._resolve(name)
        found = self._values.get(name)
        if found is None:
            data = self.const(name)
            if data is None:
                raise GraphError(f"value {name!r} is not defined")
            # The name of an output is reserved for the node that computes it.
            hint = f"{name}/value" if name in self._outputs else name
            hint = hint if hint == name else self._fresh(hint)
            found = self._values[name] = self.builder.constant(data, hint, self._grids.get(name))
        return found

    def finish(self, tail: Tail | None = None) -> Graph:
        """Return the graph with the model's outputs, or those that the tail reads.

        An output that is an alias or a constant becomes a node ``identity``.

        Raises:
            ModelError: an output is not defined.
        """
        for name in dict.fromkeys(self._outputs):
            if not self.known(name):
                raise ModelError.at(
                    f"output {name!r}", expected="a node that gives it", found="none"
                )
            if name in self._aliases or self.const(name) is not None:
                self.builder.op("identity", [self.materialize(name)], name=name, output=name)
        return self.builder.build(self._outputs, tail)


Handler = Callable[[Importer, OnnxNode], None]
"""Adds the equivalent of one ONNX node to the graph.

Raises ModelError for unsupported nodes. A GraphError of the builder becomes a ModelError.
"""


def _unknown_value(node: OnnxNode, what: str, inputs: tuple[str, ...]) -> UnknownValueError:
    names = " and ".join(map(repr, inputs))
    examples = ", ".join(f"{name!r}: [...]" for name in inputs)
    message = describe(
        node.where,
        expected=f"{what} to be known before the model is planned",
        found=f"what depends on the value of input {names}",
        fix=f"give it: values={{{examples}}}, or on the command line --value {inputs[0]}=1,2; "
        "or call stridewise.compile, whose model takes it with each call",
    )
    return UnknownValueError(message, inputs)


def scalar(imp: Importer, node: OnnxNode, role: str, value: float, like: str) -> str:
    """Add a constant scalar of the dtype of another value and return its name."""
    dtype = imp.type(like).dtype.numpy
    return imp.constant(f"{node.outputs[0]}/{role}", np.array(value, dtype))
