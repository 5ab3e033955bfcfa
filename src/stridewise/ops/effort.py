"""How much memory and work it takes to compute a node with NumPy, and how much is allowed.

Nodes of constants are computed before a model runs. Without a limit, a model of a few bytes could
ask for any amount: a chain of concatenations doubles a tensor each time. Sizes are Python integers,
so nothing overflows, and they are known before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from stridewise.classes import dataclass
from stridewise.graph import Node, TensorType
from stridewise.ops.attention import OPERANDS, attention_shape
from stridewise.ops.einsum import parse_equation
from stridewise.ops.matmul import operand_shapes

__all__ = ["Budget", "Effort", "effort", "nbytes"]

_FREE = frozenset({"expand", "identity", "reshape", "slice", "transpose"})
"""Operators that only look at their operand in another way, as a rule."""


def nbytes(types: Iterable[TensorType | None]) -> int:
    """Return the bytes of tensors of these types."""
    return sum(prod(item.shape) * item.dtype.itemsize for item in types if item is not None)


@dataclass(frozen=True, slots=True)
class Effort:
    """What computing a node takes.

    Attributes:
        nbytes: bytes of the results.
        operations: multiplications, comparisons, copies of an element.
    """

    nbytes: int
    operations: int


def effort(
    node: Node, inputs: tuple[TensorType | None, ...], outputs: tuple[TensorType, ...]
) -> Effort:
    """Return what computing a node takes, from types alone.

    >>> from stridewise.dtypes import dtype_of
    >>> a, b, y = (TensorType(dtype_of("float32"), s) for s in ((900, 2), (2, 8), (900, 8)))
    >>> effort(Node("y", "matmul", ("a", "b"), ("y",)), (a, b), (y,)).operations
    16216
    """
    sizes = [prod(item.shape) for item in inputs if item is not None]
    made = sum(prod(item.shape) for item in outputs)
    if node.op in _FREE:
        return Effort(nbytes(outputs), made)
    if node.op == "einsum":
        return _einsum(node, inputs, outputs)
    return Effort(nbytes(outputs), sum(sizes) + made * _per_element(node, inputs))


def _einsum(
    node: Node, inputs: tuple[TensorType | None, ...], outputs: tuple[TensorType, ...]
) -> Effort:
    """Return what it takes to multiply all with all; results of steps are no larger than that."""
    shapes = tuple(item.shape for item in inputs if item is not None)
    terms = parse_equation(node.str_attr("equation"), tuple(map(len, shapes)))
    count = prod(terms.extents(shapes).values())
    steps = 8 * count if len(shapes) > 2 else 0
    return Effort(nbytes(outputs) + steps, len(shapes) * count)


def _per_element(node: Node, inputs: tuple[TensorType | None, ...]) -> int:
    """Return how many products or comparisons one element of a result is made of."""
    window = node.get("kernel") or node.get("size") or 1
    factors = window if isinstance(window, tuple) else (window,)
    count = prod(item for item in factors if isinstance(item, int))
    first = inputs[0] if inputs else None
    weights = inputs[1] if len(inputs) > 1 else None
    if node.op.startswith(("conv", "deconv")) and weights is not None:
        return count * prod(weights.shape[1:])
    if node.op == "attention":
        known = attention_shape(node, *(item for item in inputs[:OPERANDS] if item is not None))
        return known.keys * (known.depth + known.width) // max(1, known.width)
    if node.op == "matmul" and first is not None and weights is not None:
        return operand_shapes(node, first.shape, weights.shape)[0][-1]
    return max(count, 1)


class Budget:
    """What computing constants may still take, all of them together.

    Attributes:
        nbytes: bytes of results that are left.
        operations: operations that are left.
    """

    BASE_NBYTES = 256 << 20
    BASE_OPERATIONS = 1 << 28
    _GROWTH = 4
    """A model that brings much may compute much: this many times the bytes of its own weights."""

    def __init__(self) -> None:
        """Start with what any model gets."""
        self.nbytes = self.BASE_NBYTES
        self.operations = self.BASE_OPERATIONS

    def grow(self, nbytes: int) -> None:
        """Add what a tensor of ``nbytes`` that the model brings along is worth."""
        self.nbytes += self._GROWTH * nbytes
        self.operations += self._GROWTH * nbytes

    def take(self, wanted: Effort) -> bool:
        """Take an effort out of the budget; return False, taking nothing, where it is too much."""
        if wanted.nbytes > self.nbytes or wanted.operations > self.operations:
            return False
        self.nbytes -= wanted.nbytes
        self.operations -= wanted.operations
        return True
