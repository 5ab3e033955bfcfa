"""Reading one operator after the other of an aten graph into a graph of Stridewise.

A handler gets the arguments of an aten operator in the order of its schema. A value of the graph
is a :class:`Traced`, a constant is a PyTorch tensor, and all else is as PyTorch has it. The handler
adds nodes and returns its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stridewise.dtypes import DType, dtype_of
from stridewise.errors import UnsupportedError, describe
from stridewise.frontends.torch.library import torch
from stridewise.graph import Attr
from stridewise.ops import GraphBuilder

__all__ = ["Handler", "Operand", "Reader", "Results", "Traced", "array_of", "tensor_of", "type_of"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Traced:
    """A value of the graph that is being built.

    Attributes:
        name: of the value.
        shape: its extents in PyTorch's logical order.
    """

    name: str
    shape: tuple[int, ...]


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
    """Return the element type of a tensor.

    Raises:
        DTypeError: Stridewise does not support it.
    """
    return dtype_of(str(tensor.dtype).removeprefix("torch."))


class Reader:
    """The graph on its way, and what handlers ask for and add.

    Raises:
        UnsupportedError: by its methods, if an operator has no counterpart in this form.
    """

    def __init__(self, name: str) -> None:
        """Start an empty graph of that name."""
        self.builder = GraphBuilder(name)
        self._operator = ""

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

    def number(self, x: Operand) -> float | None:
        """Return the value of a number or a constant of one element, or None for all else."""
        if isinstance(x, bool | int | float):
            return float(x)
        if isinstance(x, Traced) or x is None or x.numel() != 1:
            return None
        return float(x)

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

    # --- what handlers add ------------------------------------------------------------------------

    def value(self, x: Operand) -> str:
        """Return the name of a value; constants and numbers are added."""
        if isinstance(x, Traced):
            return x.name
        if isinstance(x, bool | int | float):
            return self.builder.constant(np.asarray(x, np.float32))
        return self.builder.constant(np.asarray(array_of(x), np.float32))

    def emit(self, op: str, inputs: Sequence[Operand], **attrs: Attr) -> Traced:
        """Add a node and return its output."""
        names = [self.value(x) for x in inputs]
        return self.traced(self.builder.op(op, names, attrs, name=self._operator))

    def input(self, name: str, shape: Sequence[int], dtype: str | DType = "float32") -> Traced:
        """Add an input of the graph."""
        return self.traced(self.builder.input(self.builder.fresh(name), shape, dtype))

    def traced(self, name: str) -> Traced:
        """Return a value that the builder made."""
        return Traced(name, self.builder.type(name).shape)

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
