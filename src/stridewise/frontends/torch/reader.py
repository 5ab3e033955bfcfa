"""Reading one operator after the other of an aten graph into a graph of Stridewise.

A handler gets the arguments of an aten operator in the order of its schema. A value of the graph
is a :class:`Traced`, a constant is a PyTorch tensor, and all else is as PyTorch has it. The handler
adds nodes and returns its results.

Floats are float32 in the graph. Those of 16 bits are converted where they enter and leave it; the
plan decides which values are stored as bfloat16. Truth values are 1 and 0, of float32. Integers
keep their type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import DType, dtype_of
from stridewise.errors import UnsupportedError, describe
from stridewise.frontends.torch.library import torch
from stridewise.graph import Attr
from stridewise.ops import GraphBuilder

__all__ = [
    "BOOL",
    "FLOAT",
    "FLOATS",
    "INTEGERS",
    "Handler",
    "Operand",
    "Reader",
    "Results",
    "Traced",
    "array_of",
    "tensor_of",
    "type_of",
]

Array = NDArray[Any]

BOOL, FLOAT = dtype_of("bool"), dtype_of("float32")
FLOATS = tuple(map(dtype_of, ("float32", "bfloat16", "float16")))
"""Element types of floats that kernels store."""

INTEGERS = tuple(map(dtype_of, ("int64", "int32", "int16", "int8", "uint8")))
"""Element types of integers that PyTorch computes with."""

_MOVES = frozenset({"concat", "expand", "identity", "reshape", "slice", "tile", "transpose"})
"""Operators whose results are elements of their operands: truth values stay such."""


_LOGIC = ("maximum", "minimum", "mul")
"""Operators that give 0 and 1 for such."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A value of the graph that is being built.

    Attributes:
        name: of the value.
        shape: its extents in PyTorch's logical order.
        dtype: its element type in PyTorch.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType


Operand: TypeAlias = Any
"""A :class:`Traced`, a PyTorch tensor that is a constant, or a number."""

Results: TypeAlias = "Traced | tuple[Traced | None, ...]"
"""What an operator returns: one value, or one for each of its outputs, None for those not made."""

Handler: TypeAlias = Callable[..., Results]
"""Takes a :class:`Reader` and the arguments of the operator; returns its results."""


def array_of(tensor: Any) -> Array:
    """Return a PyTorch tensor as a NumPy array over the same memory."""
    found = tensor.detach().resolve_neg()
    if found.dtype == torch.bfloat16:  # PyTorch gives NumPy no such arrays
        return found.view(torch.int16).numpy().view(dtype_of("bfloat16").numpy)
    return found.numpy()


def tensor_of(array: Array) -> Any:
    """Return a NumPy array as a PyTorch tensor over the same memory."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def type_of(tensor: Any) -> DType:
    """Return the element type of a tensor, or the one that a type of PyTorch stands for.

    Raises:
        DTypeError: Stridewise does not support it.
    """
    return _named(str(getattr(tensor, "dtype", tensor)))


@cache
def _named(name: str) -> DType:
    """Return the element type that PyTorch writes in this way."""
    return dtype_of(name.removeprefix("torch."))


def _stand_in(x: Operand) -> Any:
    """Return a number, or a tensor without elements in memory, that has the type of an operand."""
    if not isinstance(x, Traced):
        return x
    return torch.empty(x.shape, dtype=getattr(torch, x.dtype.name), device="meta")


def _integers_of(operands: Sequence[Operand]) -> DType:
    """Return the type of the first operand that is no number if it is of integers, else float32."""
    types = (type_of(x) for x in operands if not isinstance(x, bool | int | float))
    first = next(types, FLOAT)
    return first if first in INTEGERS else FLOAT


class Reader:
    """The graph on its way, and what handlers ask for and add.

    Raises:
        UnsupportedError: by its methods, if an operator has no counterpart in this form.
    """

    def __init__(self, name: str) -> None:
        """Start an empty graph of that name."""
        self.builder = GraphBuilder(name)
        self._operator = ""
        self._made_by: dict[str, tuple[str, Sequence[Operand]]] = {}
        self._compared: dict[str, str] = {}

    def read(
        self, operator: str, handler: Handler, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Results:
        """Add an operator and return its results.

        Args:
            operator: its name, for nodes and messages.
            handler: adds it.
            args: its arguments in the order of its schema.
            options: its keyword arguments.
        """
        self._operator = operator
        return handler(self, *args, **options)

    # --- what handlers ask for --------------------------------------------------------------------

    def refuse(self, reason: str) -> UnsupportedError:
        """Return an error that says why there is no counterpart."""
        where = f"operator {self._operator!r}"
        message = describe(where, expected="a form with a native operator", found=reason)
        return UnsupportedError(message, reason)

    def scalar(self, x: Operand) -> bool | int | float | None:
        """Return the value of a number or a constant of one element, or None for all else."""
        if isinstance(x, bool | int | float):
            return x
        if isinstance(x, Traced) or x is None or x.numel() != 1:
            return None
        found: bool | int | float = x.item()
        return found

    def number(self, x: Operand) -> float | None:
        """Return the same as a float, which integers beyond 2^53 are not exactly."""
        found = self.scalar(x)
        return None if found is None else float(found)

    def row(self, x: Operand | None, what: str) -> Array:
        """Return the elements of a parameter that must be constant."""
        if x is None or isinstance(x, Traced | int | float):
            raise self.refuse(f"{what} that are no constant")
        return array_of(x)

    def shape(self, x: Operand) -> tuple[int, ...]:
        """Return the extents of an operand; none for a number."""
        return () if isinstance(x, bool | int | float) else tuple(x.shape)

    def axis(self, x: Operand, axis: int) -> int:
        """Return the position of an axis counted from the front."""
        return axis % max(len(self.shape(x)), 1)

    def axes(self, x: Operand, axes: Sequence[int] | int | None) -> tuple[int, ...]:
        """Return positions of axes counted from the front; all for None or an empty list."""
        rank = len(self.shape(x))
        given = [axes] if isinstance(axes, int) else list(axes or range(rank))
        return tuple(sorted(axis % rank for axis in given)) if rank else ()

    def common(self, a: Operand, b: Operand) -> DType:
        """Return the element type that PyTorch computes in for two operands."""
        return type_of(torch.result_type(_stand_in(a), _stand_in(b)))

    def may_be_masked(self, x: Traced) -> bool:
        """Return whether all elements of a row may be -inf though operands are finite."""
        op, inputs = self._made_by.get(x.name, ("", ()))
        if op == "matmul":
            return len(inputs) > 2
        values = [item for item in inputs if self.number(item) is None]
        plain = op in _MOVES or (op in ("mul", "div") and len(values) == 1)
        return not plain or any(map(self.may_be_masked, values))

    # --- what handlers add ------------------------------------------------------------------------

    def value(self, x: Operand, dtype: DType = FLOAT) -> str:
        """Return the name of a value; constants and numbers are added.

        Args:
            x: the operand.
            dtype: float32, or the integers among which it stands.
        """
        if isinstance(x, Traced):
            return x.name
        if dtype in INTEGERS:
            return self.builder.constant(self._integers(x, dtype))
        if isinstance(x, bool | int | float) or not x.dim():
            return self.builder.constant(np.asarray(float(x), np.float32))
        if type_of(x) not in FLOATS:
            raise self.refuse(f"a constant of {type_of(x)} among floats")
        return self.builder.constant(array_of(x.float()))

    def _integers(self, x: Operand, dtype: DType) -> Array:
        """Return a number or a constant as an array of integers of a type."""
        held = torch.as_tensor(x)
        found = held.to(getattr(torch, dtype.name))
        if held.dtype.is_floating_point or not found.equal(held.to(torch.int64)):
            raise self.refuse(f"a constant of {held.dtype} among elements of {dtype}")
        return array_of(found)

    def held(self, x: Operand) -> Traced:
        """Return a tensor as a value of its own element type; constants are added."""
        if isinstance(x, Traced):
            return x
        dtype = type_of(x)
        return replace(self.traced(self.value(x, dtype)), dtype=dtype)

    def emit(self, op: str, inputs: Sequence[Operand], **attrs: Attr) -> Traced:
        """Add a node and return its output, of the element type of the first value.

        Positions, which operators give as integers, stay such.
        """
        return self.emit_all(op, inputs, **attrs)[0]

    def emit_all(self, op: str, inputs: Sequence[Operand], **attrs: Attr) -> tuple[Traced, ...]:
        """Add a node and return all of its outputs; see :meth:`emit`."""
        among = _integers_of(inputs)
        names = [self.value(x, among) for x in inputs]
        types = [x.dtype for x in inputs if isinstance(x, Traced)] or [FLOAT]
        is_truth = types[0] == BOOL and op not in _MOVES
        dtype = FLOAT if is_truth else types[0]
        results: list[Traced] = []
        for name in self.builder.node(op, names, attrs, name=self._operator):
            self._made_by[name] = op, inputs
            found = self.traced(name)
            results.append(found if found.dtype in INTEGERS else replace(found, dtype=dtype))
        return tuple(results)

    def cast(self, x: Operand, dtype: DType) -> Operand:
        """Return an operand with elements of a type; numbers stay.

        Args:
            x: the operand.
            dtype: one of :data:`FLOATS` or :data:`INTEGERS`, or bool: what is not 0.
        """
        if isinstance(x, bool | int | float):
            return x
        if not isinstance(x, Traced):
            return x.to(getattr(torch, dtype.name))
        if x.dtype != dtype and dtype == BOOL:
            return self.negated(self.truth("equal", x, 0))
        if dtype not in (*FLOATS, *INTEGERS, BOOL):
            raise self.refuse(f"elements of {dtype}")
        if x.dtype != dtype and not {x.dtype, dtype}.isdisjoint(INTEGERS):
            to = dtype if dtype in INTEGERS else FLOAT
            source = self._compared.get(x.name, x.name) if x.dtype == BOOL else x.name
            x = self.traced(self.builder.op("cast", [source], {"to": to.name}))
        return replace(x, dtype=dtype)

    def arithmetic(self, op: str, a: Operand, b: Operand) -> Traced:
        """Add an operator of two operands in the type that they have in common.

        Quotients of integers are floats.
        """
        dtype = self.common(a, b)
        dtype = FLOAT if op == "div" and dtype in INTEGERS else dtype
        found = self.emit(op, [self.cast(a, dtype), self.cast(b, dtype)])
        return replace(found, dtype=BOOL) if dtype == BOOL and op in _LOGIC else found

    def truth(self, op: str, *operands: Operand) -> Traced:
        """Add a comparison."""
        among = _integers_of(operands)
        compared = self.builder.op(op, [self.value(x, among) for x in operands])
        found = self.builder.op("where", [compared, self.value(1.0), self.value(0.0)])
        self._compared[found] = compared
        return replace(self.traced(found), dtype=BOOL)

    def chosen(self, condition: Operand, a: Operand, b: Operand) -> Traced:
        """Add the choice between two operands of one type, one of them a value.

        Kernels compute a comparison together with the choice, if both have the same shape. Truth
        values of float32 that are broadcast have a kernel of their own.

        Args:
            condition: truth values.
            a: where it is true.
            b: where it is false.
        """
        among = _integers_of([a, b])
        if isinstance(condition, Traced):
            shape = np.broadcast_shapes(*map(self.shape, (condition, a, b)))
            if condition.shape != shape and among != FLOAT:
                ones = (1,) * (len(shape) - len(condition.shape))
                aligned = self.reshape(condition, (*ones, *condition.shape)) if ones else condition
                condition = self.emit("expand", [aligned], shape=shape)
            known = self._known(condition, among)
        else:
            known = self.builder.constant(condition.numpy())
        name = self.builder.op("where", [known, self.value(a, among), self.value(b, among)])
        dtypes = [x.dtype for x in (a, b) if isinstance(x, Traced)]
        return replace(self.traced(name), dtype=dtypes[0] if dtypes else FLOAT)

    def _known(self, condition: Traced, among: DType) -> str:
        """Return truth values as a choice reads them; that between floats becomes an expression."""
        known = self._compared.get(condition.name)
        if known is not None and among in INTEGERS:
            return known
        return self.builder.op("greater", [condition.name, self.value(0.5)])

    def negated(self, x: Operand) -> Traced:
        """Add the negation of truth values."""
        return replace(self.emit("sub", [1.0, x]), dtype=BOOL)

    def input(self, name: str, shape: Sequence[int], dtype: str | DType = "float32") -> Traced:
        """Add an input of the graph, and return it as operators read it."""
        return self.entered(self.declare(name, shape, dtype))

    def declare(self, name: str, shape: Sequence[int], dtype: str | DType) -> str:
        """Add an input of the graph."""
        return self.builder.input(self.builder.fresh(name), shape, dtype)

    def entered(self, name: str) -> Traced:
        """Return a value from outside as operators read it."""
        found = self.traced(name)
        if found.dtype not in (*FLOATS[1:], BOOL):
            return found
        return replace(self.emit("cast", [found], to=FLOAT.name), dtype=found.dtype)

    def left(self, x: Traced) -> Traced:
        """Return a value as the outside reads it."""
        if self.builder.type(x.name).dtype == x.dtype:
            return x
        return self.traced(self.builder.op("cast", [x.name], {"to": x.dtype.name}))

    def traced(self, name: str) -> Traced:
        """Return a value that the builder made."""
        found = self.builder.type(name)
        return Traced(name, found.shape, found.dtype)

    def like(self, x: Traced, name: str) -> Traced:
        """Return a value that the builder made, with the element type of another one."""
        return replace(self.traced(name), dtype=x.dtype)

    def reshape(self, x: Operand, shape: Sequence[int]) -> Traced:
        """Add a view of another shape."""
        return self.emit("reshape", [x], shape=tuple(shape))

    def permute(self, x: Operand, perm: Sequence[int]) -> Traced:
        """Add a transpose; none for the identity."""
        if isinstance(x, Traced) and list(perm) == sorted(perm):
            return x
        return self.emit("transpose", [x], perm=tuple(perm))

    def cut(self, x: Operand, axis: int, start: int, stop: int, step: int = 1) -> Traced:
        """Add a slice along one axis."""
        shape = self.shape(x)
        starts, stops, steps = [0] * len(shape), list(shape), [1] * len(shape)
        starts[axis], stops[axis], steps[axis] = start, stop, step
        return self.emit("slice", [x], starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
