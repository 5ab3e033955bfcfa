"""Which nodes of an aten graph become programs of Stridewise, and which PyTorch computes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stridewise.errors import StridewiseError, UnsupportedError
from stridewise.frontends.torch.aliases import is_restrided
from stridewise.frontends.torch.library import torch
from stridewise.frontends.torch.reader import BOOL, FLOATS, INTEGERS, Reader, Traced, type_of
from stridewise.frontends.torch.table import HANDLERS, OF_FLOATS, VIEWS
from stridewise.frontends.torch.values import (
    UNSET,
    Values,
    is_check,
    is_impure,
    listed,
    resolved,
    tensors_of,
)

__all__ = ["Outside", "Part", "Partition", "partition", "read_node"]


@dataclass(frozen=True, slots=True)
class Outside:
    """An operator that PyTorch computes.

    Attributes:
        node: its name in the graph.
        operator: the name of its overload.
        reason: why it has no counterpart.
    """

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that run together.

    Attributes:
        is_native: whether they become a program.
        nodes: in the order of the graph.
        inputs: nodes outside that they read, constants not among them.
        outputs: those of the nodes that others read, or the graph returns.
    """

    is_native: bool
    nodes: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A graph in parts, in an order in which they can run.

    Attributes:
        parts: native ones and those of PyTorch.
        outside: the operators of the latter, with reasons; views without a reason are left out.
        native: number of operators in native parts.
    """

    parts: tuple[Part, ...]
    outside: tuple[Outside, ...]
    native: int

    def without(self, part: Part, reason: str) -> Partition:
        """Return the same with one native part left to PyTorch."""
        nodes = [node for node in part.nodes if node.target is not operator.getitem]
        left = [Outside(n.name, str(n.target), reason) for n in nodes if _computes(n)]
        parts = tuple(replace(p, is_native=False) if p is part else p for p in self.parts)
        return Partition(parts, (*self.outside, *left), self.native - len(nodes))


def read_node(
    reader: Reader, node: Any, made: Mapping[Any, Any], constants: Values, values: Values
) -> Any:
    """Add a node to a graph and return what it gives: values, or a tuple with None among them.

    Args:
        reader: the graph.
        node: calls an aten operator, or takes one of several results.
        made: values of the graph by node.
        constants: tensors by node.
        values: the type of every node's result.

    Raises:
        UnsupportedError: it has no counterpart in this form.
        GraphError: an operator does not take these operands.
    """
    known = {**constants, **made}
    args, options = resolved((node.args, node.kwargs), known, values)
    if node.target is operator.getitem:
        found = args[0][args[1]]
        if found is None:
            raise UnsupportedError("", f"its output {args[1]} is read")
        return found
    handler = HANDLERS.get(str(node.target))
    if handler is None:
        raise UnsupportedError("", "there is no operator for it")
    return reader.read(node.name, handler, args, options)


_NUMBERS = frozenset(dtype.name for dtype in (*FLOATS, BOOL))
_NATIVE = _NUMBERS | {dtype.name for dtype in INTEGERS}


def _takers(node: Any) -> list[Any]:
    """Return the nodes that take one of a node's several results, or a part of one.

    Operators that a checkpoint repeats give a state of the random generator beside their results.
    """
    found = [user for user in node.users if user.target is operator.getitem]
    return [*found, *(inner for taker in found for inner in _takers(taker))]


def _type_reason(node: Any, constants: Values, values: Values) -> str | None:
    """Return why tensors that a node reads or makes have no native kernels."""
    known = _NUMBERS if str(node.target) in OF_FLOATS else _NATIVE
    # Of several results, those that are taken count.
    for read in (*node.all_input_nodes, *(_takers(node) or (node,))):
        for tensor in tensors_of(values[read]):
            if tensor.device.type != "cpu":
                return f"a tensor on {tensor.device}"
            if tensor.layout != torch.strided:
                return f"a tensor of layout {tensor.layout}"
            # Handlers check what types constants have.
            name = str(tensor.dtype).removeprefix("torch.")
            if read not in constants and name not in known:
                return f"elements of {name}"
    return None


def _reason(node: Any, constants: Values, values: Values) -> str | None:
    """Return why a node has no counterpart, or None if it has one; it is tried out."""
    if is_check(node):
        return "it raises an error for some tensors"
    if is_impure(node):
        return "its results are random, or it writes to its operands"
    found = _type_reason(node, constants, values)
    if found is not None:
        return found
    if is_restrided(node, values):
        return "strides that read other elements"
    reader, made = Reader("trial"), dict[Any, Any]()
    for read in node.all_input_nodes:
        if read not in constants and isinstance(values[read], torch.Tensor):
            shape, dtype = values[read].shape, type_of(values[read])
            made[read] = reader.input(read.name, shape, dtype)
    try:
        results = made[node] = read_node(reader, node, made, constants, values)
        for taker in _takers(node):
            read_node(reader, taker, made, constants, values)
    except UnsupportedError as error:
        return error.reason
    except StridewiseError as error:
        return str(error)
    return _mismatch(results, values[node])


def _mismatch(results: Any, promised: Any) -> str | None:
    """Return how results differ from what PyTorch says that the operator gives."""
    for found, tensor in zip(listed(results), listed(promised), strict=True):
        if not isinstance(found, Traced):
            continue
        if found.shape != tuple(tensor.shape):
            return f"a result of shape {found.shape} in place of {tuple(tensor.shape)}"
        if found.dtype != type_of(tensor):
            return f"a result of {found.dtype} in place of {type_of(tensor)}"
    return None


def _reasons(nodes: Sequence[Any], constants: Values, values: Values) -> dict[Any, str | None]:
    """Return why each node is not native; what takes one of several results is as its producer."""
    found: dict[Any, str | None] = {}
    for node in nodes:
        if node not in found:
            reason = _reason(node, constants, values)
            found.update(dict.fromkeys([node, *_takers(node)], reason))
    return found


def _levels(nodes: Sequence[Any], is_native: Mapping[Any, bool]) -> dict[Any, int]:
    """Return a level for each node, even for native ones; it never falls along an edge.

    All nodes of a level can run together: a path between two of them stays in the level. Random
    operators keep their order, so that they draw the same numbers as in PyTorch.
    """
    found: dict[Any, int] = {}
    drawn = -1  # before all native nodes
    for node in nodes:
        level = 0 if is_native[node] else -1
        for read in node.all_input_nodes:
            if read in found:
                level = max(level, found[read] + (is_native[read] != is_native[node]))
        if is_impure(node) and not is_native[node]:
            level = drawn = max(level, drawn)
        found[node] = level
    return found


def _grouped(nodes: Sequence[Any], is_native: Mapping[Any, bool]) -> list[list[Any]]:
    levels = _levels(nodes, is_native)
    groups: dict[int, list[Any]] = {}
    for node in nodes:
        groups.setdefault(levels[node], []).append(node)
    return [groups[level] for level in sorted(groups)]


def _computes(node: Any) -> bool:
    name = str(node.target)
    if node.target is operator.getitem or is_check(node):
        return False
    return name not in VIEWS and name not in UNSET


def _counts(node: Any, values: Values) -> bool:
    """Return whether a node computes with integers without axes alone: it counts, say, batches."""
    tensors = [x for item in (node, *node.all_input_nodes) for x in tensors_of(values[item])]
    return not any(tensor.dim() or tensor.dtype.is_floating_point for tensor in tensors)


def partition(
    graph: Any,
    constants: Values,
    values: Values,
    results: Sequence[Any] | None = None,
    *,
    checks: bool = False,
) -> Partition:
    """Return a graph in as few parts as can run one after the other.

    Args:
        graph: a ``torch.fx`` graph of aten operators.
        constants: tensors by node, for the nodes that need no run.
        values: the type of every node's result.
        results: nodes whose results are wanted; by default those that the graph returns.
        checks: whether nodes without results, which check a tensor, belong to it.
    """
    nodes = [
        node
        for node in graph.nodes
        if node.op == "call_function"
        and node not in constants
        and (tensors_of(values[node]) or (checks and is_check(node)))
    ]
    reasons = _reasons(nodes, constants, values)
    is_native = {node: reasons[node] is None for node in nodes}
    groups = _grouped(nodes, is_native)
    # Views alone are no work: PyTorch makes them without a copy.
    idle = [g for g in groups if is_native[g[0]] and not any(map(_computes, g))]
    if idle:
        is_native.update({node: False for group in idle for node in group})
        groups = _grouped(nodes, is_native)
    output = next(node for node in graph.nodes if node.op == "output")
    returned = set(output.all_input_nodes if results is None else results)
    parts = tuple(
        _part(group, is_native[group[0]], constants, values, returned) for group in groups
    )
    outside = tuple(
        Outside(node.name, str(node.target), reason or "")
        for node in nodes
        if not is_native[node] and _computes(node) and not _counts(node, values)
        for reason in (reasons[node],)
    )
    native = sum(is_native[node] and node.target is not operator.getitem for node in nodes)
    return Partition(parts, outside, native)


def _part(
    group: Sequence[Any], native: bool, constants: Values, values: Values, returned: set[Any]
) -> Part:
    inside = set(group)
    reads = dict.fromkeys(read for node in group for read in node.all_input_nodes)
    inputs = [
        read
        for read in reads
        if read not in inside and read not in constants and tensors_of(values[read])
    ]
    outputs = [
        node for node in group if node in returned or any(user not in inside for user in node.users)
    ]
    return Part(native, tuple(group), tuple(inputs), tuple(outputs))
