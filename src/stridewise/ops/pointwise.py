"""Expressions: several elementwise operators as one, so that a kernel needs one pass over memory.

The attribute ``expression`` is a list of steps. ``x0``, ``x1``, ... are the inputs, ``t0``, ``t1``,
... the results of the steps before, and numbers are literals. Parameters stand after the operands,
where they are not the operator's defaults. The last step gives the result::

    pointwise(%a, %b) {expression=["mul(x0, 0.5)", "clip(t0, 0.0, 6.0)", "add(t1, x1)"]}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from stridewise.classes import dataclass
from stridewise.dtypes import dtype_of
from stridewise.errors import GraphError
from stridewise.graph import Node, TensorType
from stridewise.ops.activation import SNAPS, UNARY, default_parameters, parameter_attrs
from stridewise.ops.elementwise import BINARY
from stridewise.ops.logic import COMPARISONS, CONNECTIVES
from stridewise.ops.registry import OPS, Array, Operands, Types, needs, register

__all__ = [
    "MOST_INPUTS",
    "MOST_STEPS",
    "OPERANDS",
    "Step",
    "parse_expression",
    "step_nodes",
    "steps",
    "weight",
]

MOST_STEPS = 16
MOST_INPUTS = 6
"""What kernels take. Longer chains become several expressions."""

OPERANDS: Mapping[str, int] = {
    **dict.fromkeys((op for op in UNARY if op != "linear"), 1),
    **dict.fromkeys((*BINARY, *COMPARISONS, *CONNECTIVES, "pow", "prelu"), 2),
    **dict.fromkeys(("ceil", "cos", "erf", "floor", "is_nan", "logical_not", "sign", "sin"), 1),
    "where": 3,
}
"""The operators that may be steps, with the number of their operands. A linear function is two."""


def weight(op: str) -> int:
    """Return how many steps of kernels an operator takes: a rounding to a grid is several."""
    return _SNAP_STEPS if op in SNAPS else 1


_SNAP_STEPS = 4

_STEP = re.compile(r"(\w+)\(([^()]*)\)")
_NAME = re.compile(r"([xt])(\d+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of an expression.

    Attributes:
        op: a key of :data:`OPERANDS`.
        operands: ``"x0"`` for inputs, ``"t0"`` for results of steps, numbers for literals.
        alpha: the parameter of a function of one operand.
        beta: its second parameter.
    """

    op: str
    operands: tuple[str | float, ...]
    alpha: float = 0.0
    beta: float = 0.0

    def __str__(self) -> str:
        parameters = (self.alpha, self.beta)
        given = () if parameters == _defaults(self.op) else parameters
        return f"{self.op}({', '.join(map(str, (*self.operands, *given)))})"


def _defaults(op: str) -> tuple[float, float]:
    return default_parameters(op) if op in UNARY else (0.0, 0.0)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parse(text: str, known: frozenset[str]) -> Step | None:
    match = _STEP.fullmatch(text)
    op = match[1] if match else ""
    items = [item.strip() for item in match[2].split(",")] if match else []
    count = OPERANDS.get(op, 0)
    operands = [item if item in known else _number(item) for item in items[:count]]
    parameters = [_number(item) for item in items[count:]]
    complete = [item for item in operands if item is not None]
    numbers = [item for item in parameters if item is not None]
    fits = (
        0 < count == len(complete)
        and len(numbers) == len(parameters)
        and len(numbers) in ((0, 2) if op in UNARY else (0,))
        and not any(numbers[len(UNARY[op].defaults) :] if op in UNARY else ())
    )
    alpha, beta = numbers if numbers and fits else _defaults(op)
    return Step(op, tuple(complete), alpha, beta) if fits else None


def parse_expression(texts: tuple[str, ...], inputs: int) -> tuple[Step, ...]:
    """Return the steps that texts stand for.

    Args:
        texts: one for each step.
        inputs: how many there are.

    Raises:
        GraphError: a text is no step; the message has it.

    >>> parse_expression(("mul(x0, 0.5)", "clip(t0, 0, 6)"), 1)[1]
    Step(op='clip', operands=('t0',), alpha=0.0, beta=6.0)
    """
    found: list[Step] = []
    known = frozenset(f"x{index}" for index in range(inputs))
    for index, text in enumerate(texts):
        step = _parse(text, known)
        if step is None:
            operands = f"{', '.join(sorted(known))} and numbers"
            raise GraphError.at(
                "expression", expected=f"an operator of {operands}", found=repr(text)
            )
        found.append(step)
        known |= {f"t{index}"}
    return tuple(found)


def steps(node: Node) -> tuple[Step, ...]:
    """Return the steps of a node.

    Raises:
        GraphError: its attribute is no expression, or of too many steps or inputs.
    """
    texts = node.get("expression")
    given = texts if isinstance(texts, tuple) else ()
    needs(
        node,
        1 <= len(given) <= MOST_STEPS and len(node.inputs) <= MOST_INPUTS,
        f"1 to {MOST_STEPS} steps on at most {MOST_INPUTS} inputs",
        f"{len(given)} on {len(node.inputs)}",
    )
    return parse_expression(tuple(map(str, given)), len(node.inputs))


def step_nodes(node: Node) -> Iterator[Node]:
    """Yield the steps of an expression as nodes of their own.

    Their inputs are named as in the expression, numbers included, and their outputs ``"t0"``, ...

    Raises:
        GraphError: as for :func:`steps`.
    """
    for index, step in enumerate(steps(node)):
        attrs = parameter_attrs(step.op, step.alpha, step.beta)
        inputs = tuple(map(str, step.operands))
        yield Node(f"{node.name}/{step.op}", step.op, inputs, (f"t{index}",), attrs)


def _infer(node: Node, types: Types) -> tuple[TensorType, ...]:
    found = {f"x{index}": item for index, item in enumerate(types) if item is not None}
    floats = {item.dtype for item in found.values() if item.dtype.name != "bool"}
    needs(node, len(floats) <= 1, "inputs of one type of floats, or bool", set(map(str, floats)))
    # Numbers beside truth values alone are float32.
    scalar = TensorType(next(iter(floats), dtype_of("float32")), ())
    for step in step_nodes(node):
        operands = tuple(found.get(name, scalar) for name in step.inputs)
        (found[step.outputs[0]],) = OPS[step.op].infer(step, operands)
    return (found[f"t{len(steps(node)) - 1}"],)


def _evaluate(node: Node, operands: Operands) -> tuple[Array, ...]:
    found = {f"x{index}": item for index, item in enumerate(operands) if item is not None}
    floats = (item.dtype for item in found.values() if item.dtype.kind != "b")
    dtype = next(floats, np.dtype(np.float32))
    result: Array = np.empty(0)
    for step in step_nodes(node):
        given = [
            found[name] if _NAME.fullmatch(name) else np.asarray(float(name), dtype)
            for name in step.inputs
        ]
        (result,) = OPS[step.op].evaluate(step, given)
        found[step.outputs[0]] = np.asarray(result)
    return (result,)


register(
    "pointwise",
    (1, MOST_INPUTS),
    _infer,
    _evaluate,
    "elementwise",
    attributes={"expression": "texts"},
)
