"""An exported program as the reader of a model."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stridewise.errors import InputError, ModelError, StridewiseError, UnsupportedError, describe
from stridewise.frontends.source import fixed_shapes
from stridewise.frontends.torch.aliases import beyond_views
from stridewise.frontends.torch.calls import Argument, Limits, ProgramCalls, least, most, order_of
from stridewise.frontends.torch.foreign import add_foreign
from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.partition import Outside, partition, read_node
from stridewise.frontends.torch.reader import Reader, Traced, array_of, tensor_of, type_of
from stridewise.frontends.torch.values import (
    Values,
    constants_of,
    depends_on_data,
    is_impure,
    tensors_of,
    values_of,
)
from stridewise.graph import Capability, Extent, Graph, InputSpec, Shapes, Signature
from stridewise.ops.capability import graph_capability
from stridewise.ops.data_format import inverse
from stridewise.ops.demand import check_demand, memory_demand

__all__ = ["ProgramReader"]

Array = NDArray[Any]


class ProgramReader:
    """An exported program of aten operators.

    It is the ``ModelReader`` of PyTorch. Inputs and outputs of its graphs are dense arrays in the
    order in which the exported program stores them: an input whose example was channels-last is
    [N, H, W, C]. The weights are copied when the program is opened, so that later changes of the
    module do not reach it.

    Attributes:
        is_graph: False.
        name: of the graphs.
        signature: the inputs that are tensors.
        arguments: their names, in order.
        outputs: names of the results that are computed, in order.
        paths: none.
        opened: when it was opened, in seconds since the epoch.
        calls: how tensors become arrays, and arrays results.
    """

    is_graph = False

    def __init__(self, program: Any, name: str, *, fallback: bool) -> None:
        """Take a program.

        Args:
            program: a ``torch.export.ExportedProgram``, decomposed.
            name: of the graphs.
            fallback: whether PyTorch may compute operators without a counterpart.

        Raises:
            UnsupportedError: it writes to buffers or inputs, or has random operators, shapes that
                depend on data, numbers as results that depend on shapes, or parameters on another
                device.
            DTypeError: an input has a type that Stridewise does not support.
        """
        self.opened, self.paths = time.time(), tuple[Path, ...]()
        self._program, self.name, self._fallback = program, name, fallback
        module = program.graph_module
        _refuse(program)
        module.graph.eliminate_dead_code()
        nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
        specs = program.graph_signature.input_specs
        kinds = submodule("torch.export.graph_signature").InputKind
        users = [n for n, s in zip(nodes, specs, strict=True) if s.kind == kinds.USER_INPUT]
        self._state = {
            node: _tensor(program, spec.target)
            for node, spec in zip(nodes, specs, strict=True)
            if spec.kind != kinds.USER_INPUT
        }
        self._placeholders = nodes
        traced = [node.meta.get("val") for node in users]
        self._users = {
            node: Argument(node.name, value, order_of(value) if _is_tensor(value) else ())
            for node, value in zip(users, traced, strict=True)
        }
        tensors = [item for item in self._users.values() if item.is_tensor]
        self.arguments = tuple(item.name for item in tensors)
        self.signature = Signature(tuple(map(self._spec, tensors)))
        output = next(node for node in module.graph.nodes if node.op == "output")
        self._results: Sequence[Any] = output.args[0]
        self._computed = tuple(dict.fromkeys(n for n in self._results if self._is_computed(n)))
        self.outputs = self._names(program.call_spec.out_spec)
        self.calls = ProgramCalls(program, tuple(self._users.values()), self._places())

    def _spec(self, item: Argument) -> InputSpec:
        shape = [item.traced.shape[axis] for axis in item.order]
        return InputSpec(item.name, type_of(item.traced), tuple(map(self._extent, shape)))

    def _extent(self, extent: Any) -> Extent:
        if not isinstance(extent, torch.SymInt):
            return Extent.parse(int(extent))
        expression = extent.node.expr
        limits = self._program.range_constraints.get(expression)
        if not expression.is_Symbol:
            return self._derived(expression)
        if limits is None:
            return Extent()
        return Extent((str(expression),), least(limits), most(limits))

    def _derived(self, expression: Any) -> Extent:
        """Return the limits of an extent such as ``2*s``; calls check that it is one of these.

        The least is that of the default shapes, in which ``s`` is 1 if it may be.
        """
        symbols = tuple(expression.free_symbols)
        limits = self._program.range_constraints.get(symbols[0]) if len(symbols) == 1 else None
        if limits is None:
            return Extent()
        start = int(expression.subs(symbols[0], max(least(limits), 1)))
        last = most(limits)
        return Extent((), start, None if last is None else int(expression.subs(symbols[0], last)))

    def values(self, values: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Return values of inputs in their dtypes.

        Raises:
            InputError: a name is not one of an input.
        """
        types = {item.name: item.dtype.numpy for item in self.signature}
        for name in values:
            if name not in types:
                expected = f"names of inputs ({', '.join(types)})"
                raise InputError.at("values", expected=expected, found=repr(name))
        return {name: np.asarray(value, types[name]) for name, value in values.items()}

    def graph(
        self,
        shapes: Shapes | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Graph:
        """Return the graph for some shapes.

        Raises:
            InputError: ``shapes`` or ``values`` do not fit the inputs.
            UnsupportedError: without ``fallback``, an operator has no counterpart.
            MemoryLimitError: it needs more memory than the limit.
        """
        given = self.values(values or {})
        sized = {name: item.shape for name, item in given.items()}
        fixed = fixed_shapes(self.signature, {**(shapes or {}), **sized})
        with torch.no_grad():
            graph = self._built({**self.signature.default(), **fixed}, given)
        check_demand(f"model {self.name!r}", memory_demand(graph), memory_limit)
        return graph

    def capability(
        self,
        shapes: Shapes | None = None,
        values: Mapping[str, ArrayLike] | None = None,
        *,
        memory_limit: int | None = None,
    ) -> Capability:
        """Return which nodes are native; raises errors like :meth:`graph`."""
        return graph_capability(self.graph(shapes, values, memory_limit=memory_limit))

    def eager(self, inputs: Mapping[str, Any], threads: int) -> dict[str, Array]:
        """Return the outputs by name, computed by PyTorch.

        Args:
            inputs: arrays by name, in the order of the program.
            threads: how many threads PyTorch uses.
        """
        args: list[Any] = []
        for node in self._placeholders:
            if node in self._state:
                args.append(self._state[node])
            else:
                item = self._users[node]
                args.append(
                    tensor_of(np.array(inputs[item.name])).permute(inverse(item.order))
                    if item.is_tensor
                    else item.traced
                )
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with torch.no_grad():
                results = self._program.graph_module(*args)
        finally:
            torch.set_num_threads(before)
        found = dict(zip(self._results, results, strict=True))
        return {
            name: array_of(found[node].permute(order_of(node.meta["val"])).contiguous())
            for name, node in zip(self.outputs, self._computed, strict=True)
        }

    # --- building -----------------------------------------------------------------------------

    def _is_computed(self, item: Any) -> bool:
        return _is_node(item) and item not in self._state and bool(tensors_of(item.meta.get("val")))

    def _names(self, spec: Any) -> tuple[str, ...]:
        """Return a name for each computed result: ``output``, with its place in the results."""
        tree = submodule("torch.utils._pytree")
        paths, _ = tree.tree_flatten_with_path(tree.tree_unflatten(list(self._results), spec))
        found: dict[Any, str] = {}
        for node, (path, _) in zip(self._results, paths, strict=True):
            keys = (getattr(item, "key", getattr(item, "idx", item)) for item in path)
            found.setdefault(node, ".".join(["output", *map(str, keys)]))
        return tuple(found[node] for node in self._computed)

    def _places(self) -> list[tuple[int | None, Any]]:
        """Return where each result of a call comes from."""
        found: list[tuple[int | None, Any]] = []
        for item in self._results:
            if not _is_node(item):
                found.append((None, item))
            elif item in self._state:
                found.append((None, self._state[item]))
            else:
                back = inverse(order_of(item.meta["val"]))
                found.append((self._computed.index(item), back))
        return found

    def _built(self, shapes: Mapping[str, Sequence[int]], given: Mapping[str, Array]) -> Graph:
        module = self._program.graph_module
        tensors = self._examples(shapes)
        types = self._types(tensors)
        beyond = beyond_views(module.graph, types)
        if beyond:
            found = f"strides that lead out of views: {', '.join(beyond)}"
            where, expected = f"model {self.name!r}", "views of elements that their operand has"
            raise UnsupportedError(describe(where, expected=expected, found=found), found)
        known = dict(self._state)
        for node, item in self._users.items():
            if item.name in given:
                known[node] = tensor_of(given[item.name]).permute(inverse(item.order))
        constants = constants_of(module, known, types)
        found = partition(module.graph, constants, types)
        if found.outside and not self._fallback:
            raise _not_native(self.name, found.outside)
        reader = Reader(self.name)
        made: dict[Any, Any] = {}
        for node, item in self._users.items():
            if item.is_tensor and item.name not in given:
                stored = [tensors[node].shape[axis] for axis in item.order]
                value = reader.input(item.name, stored, type_of(item.traced))
                made[node] = reader.permute(value, inverse(item.order))
        reasons = {item.node: item for item in found.outside}
        for part in found.parts:
            if part.is_native:
                for node in part.nodes:
                    made[node] = read_node(reader, node, made, constants, types)
            else:
                add_foreign(reader, part, made, constants, types, reasons)
        for node, name in zip(self._computed, self.outputs, strict=True):
            value = self._value(reader, node, made, constants)
            stored = reader.left(reader.permute(value, order_of(node.meta["val"])))
            reader.builder.op("identity", [stored.name], output=name)
        return reader.builder.build(self.outputs)

    @staticmethod
    def _value(reader: Reader, node: Any, made: Mapping[Any, Any], constants: Values) -> Traced:
        if node in constants:
            array = np.ascontiguousarray(array_of(constants[node]))
            return reader.traced(reader.builder.constant(array))
        return made[node]

    def _examples(self, shapes: Mapping[str, Sequence[int]]) -> dict[Any, Any]:
        """Return tensors for the arguments, of some shapes; their elements are not defined.

        Raises:
            InputError: the program does not take these shapes.
        """
        limits = Limits(self._program.range_constraints)
        found: dict[Any, Any] = {}
        for node, item in self._users.items():
            if not item.is_tensor:
                continue
            if item.name not in shapes:
                expected = f"a shape of {item.name!r}, such as {tuple(item.traced.shape)}"
                raise InputError.at(f"model {self.name!r}", expected=expected, found="none")
            tensor = torch.empty(tuple(shapes[item.name]), dtype=item.traced.dtype)
            found[node] = tensor.permute(inverse(item.order))
            if not limits.fit(found[node].shape, item.traced.shape):
                raise InputError.at(
                    f"input {item.name!r}",
                    expected=f"shape {tuple(item.traced.shape)} as exported",
                    found=str(tuple(found[node].shape)),
                    fix="export the module for such inputs",
                )
        return found

    def _types(self, tensors: Mapping[Any, Any]) -> Values:
        """Return the type of every node's result.

        Raises:
            ModelError: an operator does not take these shapes.
        """
        args = [
            self._state.get(node, tensors.get(node, node.meta.get("val")))
            for node in self._placeholders
        ]
        try:
            return values_of(self._program.graph_module, args)
        except StridewiseError:
            raise
        except Exception as error:
            found = " ".join(str(error).split())[:300]
            raise ModelError.at(
                f"model {self.name!r}", expected="shapes that it takes", found=found
            ) from error


def _is_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor)


def _is_node(item: Any) -> bool:
    return isinstance(item, submodule("torch.fx").Node)


def _tensor(program: Any, target: str) -> Any:
    """Return a copy of a parameter, a buffer or a constant.

    Raises:
        UnsupportedError: it is not on the CPU.
    """
    found = program.state_dict.get(target)
    found = program.constants[target] if found is None else found
    if _is_tensor(found) and found.device.type != "cpu":
        where, reason = f"parameter {target!r}", f"a tensor on {found.device}"
        fix = "call .cpu() on the module, or .to_empty(device='cpu') and load its weights"
        message = describe(where, expected="a tensor on the CPU", found=reason, fix=fix)
        raise UnsupportedError(message, reason)
    return found.detach().clone() if _is_tensor(found) else found


def _refuse(program: Any) -> None:
    """Refuse what a graph cannot express.

    Raises:
        UnsupportedError: there is such.
    """
    kinds = submodule("torch.export.graph_signature").OutputKind
    specs = program.graph_signature.output_specs
    nodes = list(program.graph.nodes)
    reasons = {
        "call .eval() on the module, and return what it computes": [
            f"it writes to {spec.target}" for spec in specs if spec.kind != kinds.USER_OUTPUT
        ],
        "draw random numbers outside of it": [
            f"{node.target} is random or writes" for node in nodes if is_impure(node)
        ],
        "use torch.compile(module, backend='stridewise')": [
            f"the shape of {node.name} depends on data" for node in nodes if depends_on_data(node)
        ]
        + [
            f"result {item.name} is a number that depends on shapes"
            for node in nodes
            if node.op == "output"
            for item in node.all_input_nodes
            if not tensors_of(item.meta.get("val"))
        ],
    }
    for fix, found in reasons.items():
        if found:
            raise UnsupportedError(
                describe(
                    "exported program",
                    expected="a function of its inputs alone",
                    found="; ".join(dict.fromkeys(found)),
                    fix=fix,
                ),
                found[0],
            )


def _not_native(name: str, outside: Sequence[Outside]) -> UnsupportedError:
    found = "; ".join(f"{item.operator} ({item.reason})" for item in outside)
    return UnsupportedError(
        describe(
            f"model {name!r}",
            expected="native operators alone",
            found=found,
            fix="leave out fallback=False",
        ),
        outside[0].reason,
    )
