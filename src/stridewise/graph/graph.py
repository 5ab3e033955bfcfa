"""The typed SSA graph that every stage reads and every pass rewrites.

Frozen data only: a pass takes a graph and returns another. Checks live in
:mod:`stridewise.graph.verify`, the text form is described and parsed in
:mod:`stridewise.graph.text`, edits are in :mod:`stridewise.graph.rewrite`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from stridewise.classes import dataclass
from stridewise.dtypes import DType
from stridewise.errors import GraphError
from stridewise.formats import Format
from stridewise.graph.constant import Constant
from stridewise.graph.foreign import ForeignPart
from stridewise.tensor import Grid

if TYPE_CHECKING:
    from stridewise.graph.partition import Tail

__all__ = [
    "Attr",
    "Graph",
    "Node",
    "PostOp",
    "Refusal",
    "TensorType",
    "Value",
    "data_of",
    "quoted",
    "to_text",
]

_INLINE_LIMIT = 8

TAIL_LISTS = (
    "inputs", "outputs", "arguments", "results", "nodes", "operators", "reasons"
)  # fmt: skip
"""Fields of a tail that its text has."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][\w./-]*")

Attr = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | ForeignPart
"""What an attribute may be. Booleans are stored as 0 and 1."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and logical shape, in the user's axis order."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.short}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor of the graph, defined once.

    Attributes:
        name: unique in the graph.
        type: element type and logical shape in the user's axis order.
        origin: the meaning of the axes in the user's order, or None if unknown (ND).
        grid: the numbers that its elements are among, where a quantization says so.
        offer: the grid that a plan may round it to, in order to store it as integers.
        bias: of weights with an offer, what is added to the results of rounded weights: the bias of
            the node, less the mean error of the results; empty for the bias alone.
        exact: whether its elements must not be rounded to a smaller type: neither where it is
            stored, nor in what other exact values are computed from.
    """

    name: str
    type: TensorType
    origin: Format | None = None
    grid: Grid | None = None
    offer: Grid | None = None
    bias: tuple[float, ...] = ()
    exact: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape in the user's axis order."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype


@dataclass(frozen=True, slots=True)
class PostOp:
    """Something that a kernel does to each result before it stores it.

    Attributes:
        op: the name of an elementwise operator (``"relu"``, ``"add"``).
        alpha: its first parameter, by the operator's own meaning.
        beta: its second parameter.
        operand: for binary operators, which input of the node is the second operand.
    """

    op: str
    alpha: float = 0.0
    beta: float = 0.0
    operand: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a fusion, a format or a kernel was not used.

    Attributes:
        rule: the pass, target or kernel that refused.
        subject: the node or value that it refused.
        reason: one sentence without a full stop.
    """

    rule: str
    subject: str
    reason: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Attributes:
        name: unique in the graph, for people: the name in the model where there is one.
        op: a key of :data:`stridewise.ops.OPS`.
        inputs: names of values; ``""`` stands for an optional input that is absent.
        outputs: names of the values that it defines.
        attrs: attributes, sorted by name.
        post_ops: applied in order to the first output.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()
    post_ops: tuple[PostOp, ...] = ()

    def get(self, key: str) -> Attr | None:
        """Return an attribute, or None where it is absent."""
        for name, value in self.attrs:
            if name == key:
                return value
        return None

    def _typed(self, key: str, default: Attr | None) -> Attr:
        value = self.get(key)
        if value is None:
            value = default
        if value is None:
            raise GraphError.at(
                f"node {self.name!r} ({self.op})", expected=f"attribute {key!r}", found="none"
            )
        return value

    def _wrong(self, key: str, expected: str, value: Attr) -> GraphError:
        return GraphError.at(
            f"node {self.name!r} ({self.op}), attribute {key!r}",
            expected=expected,
            found=repr(value),
        )

    def int_attr(self, key: str, default: int | None = None) -> int:
        """Return an integer attribute.

        Raises:
            GraphError: it is absent without a default, or not an integer.
        """
        value = self._typed(key, default)
        if not isinstance(value, int):
            raise self._wrong(key, "an integer", value)
        return value

    def float_attr(self, key: str, default: float | None = None) -> float:
        """Return a float attribute; raises GraphError like :meth:`int_attr`."""
        value = self._typed(key, default)
        if not isinstance(value, int | float):
            raise self._wrong(key, "a number", value)
        return float(value)

    def str_attr(self, key: str, default: str | None = None) -> str:
        """Return a string attribute; raises GraphError like :meth:`int_attr`."""
        value = self._typed(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def ints_attr(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return a tuple of integers; raises GraphError like :meth:`int_attr`."""
        value = self._typed(key, default)
        if not isinstance(value, tuple):
            raise self._wrong(key, "a tuple of integers", value)
        items = tuple(item for item in value if isinstance(item, int))
        if len(items) != len(value):
            raise self._wrong(key, "a tuple of integers", value)
        return items


def _no_constants() -> Mapping[str, Constant]:
    return MappingProxyType({})


def _no_updates() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, repr=False)
class Graph:
    """A typed SSA graph, its nodes in an order in which they can run.

    A value has one of five kinds. Inputs, constants, parameters and states exist before a run;
    nodes define results. Nodes read parameters and states as they are before the run; ``updates``
    says what they are after it.

    Attributes:
        name: for people.
        inputs: names of the values that a call gives.
        outputs: names of the values that a call returns.
        nodes: in topological order.
        values: every value by name: inputs, constants, parameters, states and results.
        constants: the data of the constant values.
        tail: what another runtime computes afterwards from inputs and outputs; None for nothing.
        parameters: initial data of the values that may change between runs.
        states: initial data of the values that runs change.
        updates: for parameters and states, the value that each has after a run. Those that are
            absent keep their value.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    constants: Mapping[str, Constant] = field(default_factory=_no_constants)
    tail: Tail | None = None
    parameters: Mapping[str, Constant] = field(default_factory=_no_constants)
    states: Mapping[str, Constant] = field(default_factory=_no_constants)
    updates: Mapping[str, str] = field(default_factory=_no_updates)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the values that no node defines."""
        return (*self.inputs, *self.constants, *self.parameters, *self.states)

    @property
    def sinks(self) -> tuple[str, ...]:
        """Names of the values that must exist after a run, each once: outputs and updates."""
        return tuple(dict.fromkeys((*self.outputs, *self.updates.values())))

    @property
    def stored(self) -> tuple[str, ...]:
        """Names of the states, and of the parameters that an update writes.

        Each lives in memory of its own, in the user's order of axes.
        """
        return tuple(name for name in (*self.parameters, *self.states) if not self.is_packed(name))

    def is_packed(self, name: str) -> bool:
        """Return whether kernels read a value in a form that is packed before the run.

        These are constants, and parameters that no update writes.
        """
        return name in self.constants or (name in self.parameters and name not in self.updates)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of what the caller gives, tensors or not, in order."""
        return self.inputs if self.tail is None else self.tail.arguments

    @property
    def results(self) -> tuple[str, ...]:
        """Names of what the caller gets, in order."""
        return self.outputs if self.tail is None else self.tail.results

    def value(self, name: str) -> Value:
        """Return the value of that name.

        Raises:
            GraphError: there is none.
        """
        found = self.values.get(name)
        if found is None:
            raise GraphError.at(f"graph {self.name!r}", expected="a known value", found=repr(name))
        return found

    def types(self, names: tuple[str, ...]) -> tuple[TensorType | None, ...]:
        """Return the types of inputs of a node, None for absent ones."""
        return tuple(self.value(name).type if name else None for name in names)

    @property
    def offers(self) -> Mapping[str, Grid]:
        """The grids that plans may round tensors to, without those of constants."""
        known = {name: value.offer for name, value in self.values.items()}
        return {n: grid for n, grid in known.items() if grid and n not in self.constants}

    def producers(self) -> dict[str, Node]:
        """Return the node that defines each result."""
        return {output: node for node in self.nodes for output in node.outputs}

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.nodes)} nodes)"

    def __str__(self) -> str:
        return to_text(self)


# --- text -----------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """Return a text in the quotes of JSON."""
    import json  # noqa: PLC0415 (a start with a stored model prints no graph)

    return json.dumps(text)


def _ref(name: str) -> str:
    if not name:
        return "_"
    return f"%{name}" if _PLAIN_NAME.fullmatch(name) else f"%{quoted(name)}"


def _attr_text(value: Attr) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_attr_text(item) for item in value) + "]"
    return quoted(value) if isinstance(value, str) else repr(value)


def _value_text(value: Value) -> str:
    origin = f" @{value.origin}" if value.origin is not None else ""
    return f"{_ref(value.name)}: {value.type}{origin}"


def _constant_text(constant: Constant) -> str:
    if constant.is_dropped:
        return "sha dropped"
    if prod(constant.shape) > _INLINE_LIMIT:
        return f"sha {constant.digest}"
    array = constant.array
    # "nan" would lose the sign and the payload of a NaN.
    if array.dtype.kind not in "biu" and np.isnan(array).any():
        return f"sha {constant.digest}"
    items = ", ".join(repr(item) for item in array.reshape(-1).tolist())
    return f"= [{items}]"


def _post_text(post: PostOp) -> str:
    operand = "" if post.operand is None else f", {post.operand}"
    return f"{post.op}({post.alpha!r}, {post.beta!r}{operand})"


def _node_text(graph: Graph, node: Node) -> str:
    results = ", ".join(_value_text(graph.values[name]) for name in node.outputs)
    text = f"{results} = {node.op}({', '.join(_ref(name) for name in node.inputs)})"
    if node.attrs:
        attrs = ", ".join(f"{key}={_attr_text(value)}" for key, value in node.attrs)
        text += f" {{{attrs}}}"
    if node.post_ops:
        text += f" post [{', '.join(_post_text(post) for post in node.post_ops)}]"
    return f"{text} {quoted(node.name)}"


def _tail_text(tail: Tail) -> str:
    lists = ", ".join(f"{key}={_attr_text(getattr(tail, key))}" for key in TAIL_LISTS)
    return f"tail {{{lists}}}" if tail.part is None else f"tail {{{lists}}} {tail.part}"


def data_of(graph: Graph) -> tuple[tuple[str, Mapping[str, Constant]], ...]:
    """Return the values that have data, by the word of their kind in texts."""
    return ("const", graph.constants), ("param", graph.parameters), ("state", graph.states)


def to_text(graph: Graph) -> str:
    """Return the text form of a graph."""
    inputs = ", ".join(_value_text(graph.values[name]) for name in graph.inputs)
    lines = [f"graph {quoted(graph.name)} ({inputs}) {{"]
    for kind, known in data_of(graph):
        for name, constant in known.items():
            lines.append(f"  {kind} {_value_text(graph.values[name])} {_constant_text(constant)}")
    lines += [f"  {_node_text(graph, node)}" for node in graph.nodes]
    lines += [f"  update {_ref(name)} = {_ref(value)}" for name, value in graph.updates.items()]
    if graph.tail is not None:
        lines.append(f"  {_tail_text(graph.tail)}")
    lines.append(f"  return {', '.join(_ref(name) for name in graph.outputs)}".rstrip())
    return "\n".join([*lines, "}"]) + "\n"
