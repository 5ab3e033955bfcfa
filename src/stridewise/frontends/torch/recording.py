"""Graphs of Dynamo as functional aten graphs, recorded in one run on fake tensors.

AOT Autograd makes the same graphs. It runs each graph twice and loads most of PyTorch's compiler,
which takes longer than all stages of Stridewise. It is still needed for gradients, autocast, open
shapes, writes to inputs or through views, results that share memory, constants of the program, and
operators without a handler.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

from stridewise.frontends.torch.library import submodule, torch
from stridewise.frontends.torch.table import HANDLERS, decompositions
from stridewise.frontends.torch.values import is_impure, is_symbolic, listed, tensors_of

__all__ = ["recorded", "static_inputs"]


class _UnfitError(Exception):
    """Ends the recording of a graph that is left to AOT Autograd."""


def recorded(module: Any) -> Any:
    """Return the functional aten graph of a graph of Dynamo; None if it needs AOT Autograd.

    Args:
        module: the ``GraphModule`` that a backend gets.
    """
    inputs = module.graph.find_nodes(op="placeholder")
    given = [node.meta.get("example_value") for node in inputs]
    if torch.is_autocast_enabled("cpu") or not given or not all(map(_is_plain, given)):
        return None
    if torch.is_grad_enabled() and any(x.requires_grad for x in given):
        return None
    if any(is_symbolic(node.meta.get("example_value")) for node in module.graph.nodes):
        return None  # shapes that depend on data, of which PyTorch counts the symbols
    recording = _Recording(module.graph)
    mode = _mode_of(recording)
    try:
        with torch.no_grad(), given[0].fake_mode, mode():
            return recording.run(module.graph)
    except (_UnfitError, RuntimeError):  # AOT Autograd repeats what is an error of the model
        return None


def static_inputs(module: Any) -> tuple[int, ...]:
    """Return the positions of the placeholders that are parameters or buffers of modules."""
    inputs = module.graph.find_nodes(op="placeholder")
    notes: list[Any] = [node.meta.get("tensor_dict") for node in inputs]
    return tuple(at for at, x in enumerate(notes) if x and x.get("_dynamo_static_input_type"))


def _is_plain(x: Any) -> bool:
    """Return whether a value is a fake tensor of known shape, and nothing that wraps one."""
    kind = submodule("torch._subclasses.fake_tensor").FakeTensor
    return (
        type(x) is kind
        and not is_symbolic(x)
        and x.device.type == "cpu"
        and x.layout == torch.strided
        and not (x.is_complex() or x.is_neg())
    )


def _mode_of(recording: _Recording) -> Any:
    base: Any = submodule("torch.utils._python_dispatch").TorchDispatchMode

    class Mode(base):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            del types
            decomposed = recording.decompositions.get(func)
            if decomposed is None:
                return recording.ran(func, args, kwargs or {})
            with self:
                return decomposed(*args, **(kwargs or {}))

    return Mode


def _is_function(target: Any) -> bool:
    """Return whether a target is a function of PyTorch or Python that reads operands alone."""
    owners = (torch, torch.nn.functional, torch._C._nn, operator)
    name = getattr(target, "__name__", "")
    return any(getattr(owner, name, None) is target for owner in owners)


def _storage(x: Any) -> int:
    return x.untyped_storage()._cdata


def _changes_shape(target: Any) -> bool:
    """Return whether a method or function gives a tensor other extents or strides in place."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    packet = getattr(torch.ops.aten, name, None) if name.endswith("_") else None
    overloads = [getattr(packet, key) for key in packet.overloads()] if packet else []
    return any(torch.Tag.inplace_view in overload.tags for overload in overloads)


class _Recording:
    """A graph on its way, and which of its nodes gives each fake tensor."""

    def __init__(self, traced: Any) -> None:
        """Start without nodes.

        Args:
            traced: the graph of Dynamo.
        """
        self.graph = submodule("torch.fx").Graph()
        self.decompositions = decompositions()
        # By fake tensor: its node, and its position if it is one of several results.
        self._nodes: dict[int, tuple[Any, int | None]] = {}
        self._members: dict[int, dict[int, Any]] = {}  # by storage, which keeps all tensors alive
        self._read_only: set[int] = set()
        # What Dynamo has found for the function that runs, unless the program changes it later.
        self._keeps_types = not any(_changes_shape(node.target) for node in traced.nodes)
        self._function: Any = None
        self._traced: Any = None
        self._rows: dict[Any, tuple[Any, Any]] = {}  # statistics that no batch norm gives
        self._convolutions = (torch.conv1d, torch.conv2d, torch.conv3d)
        self._norms = (torch.nn.functional.batch_norm, torch.batch_norm)

    def run(self, graph: Any) -> Any:
        """Record a graph and return the module of it.

        Raises:
            _UnfitError: it needs AOT Autograd.
        """
        fx, known = submodule("torch.fx"), dict[Any, Any]()
        for node in graph.nodes:
            if node.op == "placeholder":
                known[node] = node.meta["example_value"]
                self._made(self.graph.placeholder(node.target), known[node])
                self._read_only.add(_storage(known[node]))
            elif node.op == "output":
                results = fx.map_arg(node.args[0], known.__getitem__)
                self.graph.output(tuple(map(self._node, self._checked(results))))
            elif node.target is not torch._C._log_api_usage_once:
                args, options = fx.map_arg((node.args, node.kwargs), known.__getitem__)
                known[node] = self._called(node, args, options)
        self.graph.eliminate_dead_code()
        names = {str(n.target) for n in self.graph.nodes if n.op == "call_function"}
        if not names <= {*HANDLERS, str(operator.getitem)}:
            raise _UnfitError
        # Its Python code is only needed if PyTorch runs the whole graph.
        lazy = submodule("torch.fx._lazy_graph_module")._LazyGraphModule
        return lazy(torch.nn.Module(), self.graph)

    def _called(self, node: Any, args: Any, options: Any) -> Any:
        self._function, self._traced = node.target, node.meta.get("example_value")
        if node.op == "call_method":
            found = getattr(args[0], node.target)(*args[1:], **options)
        elif node.op == "call_function" and _is_function(node.target):
            found = node.target(*args, **options)
        else:
            raise _UnfitError
        made, traced = map(listed, (found, node.meta.get("example_value")))
        given = [x for x in (*made, *traced) if x is not None]
        if not given or not all(map(_is_plain, given)) or _types(made) != _types(traced):
            raise _UnfitError
        return found

    def _checked(self, results: Any) -> Sequence[Any]:
        """Return the results, which share memory neither with each other nor with inputs."""
        found = cast("Sequence[Any]", results)
        if not all(map(_is_plain, found)):
            raise _UnfitError
        storages = [*map(_storage, found), *self._read_only]
        if len(set(storages)) < len(storages) or any(x.requires_grad for x in found):
            raise _UnfitError
        return found

    def ran(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Run an operator on fake tensors and record it.

        Raises:
            _UnfitError: there is no functional form of it with a handler.
        """
        target, given = func, args
        if func is torch.ops.aten.native_batch_norm.default:
            x, *rows, training, momentum, epsilon = args
            if training:
                raise _UnfitError
            target = torch.ops.aten._native_batch_norm_legit_no_training.default
            given = (x, *rows, momentum, epsilon)
            if x.dtype not in self._rows:
                self._rows[x.dtype] = (x.new_empty(0), x.new_empty(0))
            image = self._known(self._norms, x)
            found: Any = (torch.empty_like(x) if image is None else image, *self._rows[x.dtype])
        else:
            if func is torch.ops.aten.as_strided_.default:  # the tensor itself gets other strides
                before = torch.empty_strided(args[0].shape, args[0].stride(), dtype=args[0].dtype)
                self._node(args[0]).meta["val"] = before
            is_convolution = func is torch.ops.aten.convolution.default
            found = self._known(self._convolutions, args[0]) if is_convolution else None
            found = func(*args, **options) if found is None else found
        is_mutable = func._schema.is_mutable
        if not tensors_of(found):
            if is_mutable:
                raise _UnfitError  # it writes and returns nothing
            return found  # a number that depends on shapes alone
        if is_mutable:
            target = self._functional(func, args, options)
        read = submodule("torch.fx").node.map_aggregate((tuple(given), dict(options)), self._node)
        node = self.graph.call_function(target, *read)
        if is_impure(node):
            raise _UnfitError
        self._made(node, found)
        return found

    def _known(self, functions: Sequence[Any], x: Any) -> Any:
        """Return what Dynamo has found for an operator; None if it has to run on fake tensors.

        Args:
            functions: those of PyTorch whose result is that of the operator, unless they add a
                batch axis to their operand.
            x: the first operand of the operator.
        """
        found = self._traced
        is_known = self._keeps_types and any(self._function is known for known in functions)
        return found if is_known and _is_plain(found) and found.dim() == x.dim() else None

    def _functional(self, func: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Return the operator that computes what another one writes to its first operand."""
        name, overload = func._schema.name.split("::")[1], func._overloadname
        packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
        own = hasattr(packet, overload) and name.endswith("_") and func.namespace == "aten"
        target = getattr(packet, overload) if own else None
        is_view = target is not None and any(item.alias_info for item in target._schema.returns)
        if target is None or (is_view and target is not torch.ops.aten.as_strided.default):
            raise _UnfitError
        written, *others = submodule("torch.utils._pytree").tree_leaves((args, options))
        tensors = [x for x in others if isinstance(x, torch.Tensor)]
        storage = _storage(written)
        if (
            storage in self._read_only
            or len(self._members[storage]) > 1
            or any(x.dtype != written.dtype for x in tensors)
        ):
            raise _UnfitError
        return target

    def _made(self, node: Any, found: Any) -> None:
        """Note what a node gives."""
        node.meta["val"] = found
        for at, x in enumerate(listed(found)):
            if isinstance(x, torch.Tensor):
                self._nodes[id(x)] = (node, None if x is found else at)
                self._members.setdefault(_storage(x), {})[id(x)] = x

    def _node(self, x: Any) -> Any:
        """Return the node that gives a tensor, and everything else as it is."""
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in self._nodes:
            raise _UnfitError  # a constant of the program
        node, at = self._nodes[id(x)]
        if at is None:
            return node
        taker = self.graph.call_function(operator.getitem, (node, at))
        taker.meta["val"] = x
        self._nodes[id(x)] = (taker, None)
        return taker


def _types(results: Sequence[Any]) -> list[tuple[Any, ...] | None]:
    return [None if x is None else (x.shape, x.stride(), x.dtype) for x in results]
