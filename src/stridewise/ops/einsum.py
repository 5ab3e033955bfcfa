"""Sums of products over named indices (Einstein's notation).

The importer writes contractions as matrix products; what is left is computed by NumPy.
"""

from __future__ import annotations

from collections import Counter
from string import ascii_letters

import numpy as np

from stridewise.classes import dataclass
from stridewise.graph import Node, TensorType
from stridewise.ops.element_types import NUMBERS, needs_type
from stridewise.ops.registry import Array, Operands, Types, array, needs, register

__all__ = ["Terms", "parse_equation"]

_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Terms:
    """An equation with a letter for every axis.

    Attributes:
        inputs: the letters of each operand's axes.
        output: the letters of the result's axes.
    """

    inputs: tuple[str, ...]
    output: str

    def extents(self, shapes: tuple[tuple[int, ...], ...]) -> dict[str, int]:
        """Return the extent of each letter; axes of extent 1 are broadcast.

        Raises:
            ValueError: axes of one letter have different extents.
        """
        found: dict[str, int] = {}
        for term, shape in zip(self.inputs, shapes, strict=True):
            for letter, extent in zip(term, shape, strict=True):
                if found.get(letter, 1) == 1:
                    found[letter] = extent
                elif extent not in (1, found[letter]):
                    raise ValueError(f"{letter!r} has extents {found[letter]} and {extent}")
        return found


def _spelled(term: str, rank: int, spare: str) -> str:
    """Return a term with letters instead of an ellipsis, the last of ``spare`` for the last axis.

    Raises:
        ValueError: it does not fit an operand of that rank, or is no term.
    """
    named = term.replace(_ELLIPSIS, "", 1)
    hidden = rank - len(named)
    if not all(letter in ascii_letters for letter in named) or hidden < 0:
        raise ValueError(f"{term!r} for {rank} axes")
    if (_ELLIPSIS not in term and hidden) or hidden > len(spare):
        raise ValueError(f"{term!r} for {rank} axes")
    return term.replace(_ELLIPSIS, spare[len(spare) - hidden :], 1)


def parse_equation(equation: str, ranks: tuple[int, ...]) -> Terms:
    """Return the terms of an equation for operands of these ranks.

    Source: ONNX, Einsum; without an arrow, the result has the letters that occur once, in
    alphabetical order, after the axes of the ellipsis.

    Raises:
        ValueError: the equation is not one, or does not fit the operands.

    >>> parse_equation("...ij, jk", (3, 2)).output
    'aik'
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"{len(terms)} terms for {len(ranks)} operands")
    spare = "".join(letter for letter in ascii_letters if letter not in text)
    hidden = [rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "." in term]
    spare = spare[: max(hidden, default=0)]
    inputs = tuple(_spelled(term, rank, spare) for term, rank in zip(terms, ranks, strict=True))
    if not arrow:
        count = Counter(left)
        once = sorted(item for item in count if item in ascii_letters and count[item] == 1)
        right = (_ELLIPSIS if "." in left else "") + "".join(once)
    shown = len(right.replace(_ELLIPSIS, "", 1)) + (len(spare) if "." in right else 0)
    output = _spelled(right, shown, spare)
    if len(set(output)) != len(output) or not set(output) <= set("".join(inputs)):
        raise ValueError(f"a result {right!r} of {left!r}")
    return Terms(inputs, output)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    found = tuple(needs_type(node, types, index, NUMBERS) for index in range(len(types)))
    same = all(item.dtype == found[0].dtype for item in found)
    needs(node, same, f"operands of dtype {found[0].dtype}", ", ".join(map(str, found)))
    equation = node.str_attr("equation")
    try:
        terms = parse_equation(equation, tuple(len(item.shape) for item in found))
        extents = terms.extents(tuple(item.shape for item in found))
    except ValueError as error:
        needs(node, False, f"operands that fit {equation!r}", error)
        raise
    return (TensorType(found[0].dtype, tuple(extents[letter] for letter in terms.output)),)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    arrays = [array(operands, index) for index in range(len(operands))]
    dtype = arrays[0].dtype
    precise = dtype if dtype.kind in "iu" else np.dtype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = [item.astype(precise) for item in arrays]
        result = np.einsum(node.str_attr("equation"), *wide, optimize=len(wide) > 2)
        return (np.asarray(result).astype(dtype),)


register("einsum", (1, None), _infer, _evaluate, "interrupt", attributes={"equation": "text"})
