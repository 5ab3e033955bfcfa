"""Reverse-mode differentiation: the graph of a loss and of its gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import cast

import numpy as np

from stridewise.errors import GraphError, InputError
from stridewise.graph import Graph, Node, TensorType
from stridewise.graph.rewrite import Rewriter
from stridewise.ops import GraphBuilder
from stridewise.ops.backward import input_gradients
from stridewise.ops.element_types import FLOATS

__all__ = ["grad"]


def _is_float(type_: TensorType) -> bool:
    return type_.dtype.name in FLOATS


def _check_types(graph: object, loss: object, wrt: object) -> None:
    """Refuse arguments of another kind."""
    is_list = hasattr(wrt, "__iter__") and not isinstance(wrt, str)
    fits: tuple[tuple[str, bool, str, object], ...] = (
        ("graph", isinstance(graph, Graph), "a graph, such as sw.load gives", graph),
        ("loss", isinstance(loss, str), "the name of a value", loss),
        ("wrt", is_list, "names of values, as a list", wrt),
    )
    for name, does_fit, expected, given in fits:
        if not does_fit:
            found = repr(given) if isinstance(given, str) else type(given).__name__
            raise InputError.at(f"grad, {name}", expected=expected, found=found)


def _check(graph: Graph, loss: str, wrt: Sequence[str]) -> None:
    where = f"graph {graph.name!r}"
    if graph.tail is not None:
        found = "a part that another runtime computes"
        raise GraphError.at(where, expected="operators of Stridewise alone", found=found)
    type_ = graph.value(loss).type
    if prod(type_.shape) != 1 or not _is_float(type_):
        expected, found = "a loss of one float element", f"{loss!r}, {type_}"
        raise GraphError.at(where, expected=expected, found=found, fix="take its mean")
    are_names = all(isinstance(cast("object", name), str) for name in wrt)
    if not wrt or not are_names or len(set(wrt)) != len(wrt):
        expected, found = "a list of one name or more, each once", repr(wrt)
        raise GraphError.at(f"{where}, wrt", expected=expected, found=found)
    for name in wrt:
        if not _is_float(graph.value(name).type):
            found = f"{name!r}, {graph.value(name).type}"
            raise GraphError.at(f"{where}, wrt", expected="float values", found=found)


def _active(graph: Graph, wrt: Sequence[str]) -> set[str]:
    """Return the float values that depend on those of ``wrt``, and these."""
    found = set(wrt)
    for node in graph.nodes:
        if found.intersection(node.inputs):
            found |= {name for name in node.outputs if _is_float(graph.values[name].type)}
    return found


class _Gradients:
    """The gradients that are known so far, one or more for each value, to be added up."""

    def __init__(self, b: GraphBuilder) -> None:
        self._b = b
        self._parts: dict[str, list[str]] = {}

    def add(self, name: str, gradient: str) -> None:
        found, wanted = self._b.type(gradient), self._b.type(name)
        if found != wanted:
            where = f"the gradient of {name!r}"
            raise GraphError.at(where, expected=str(wanted), found=str(found))
        self._parts.setdefault(name, []).append(gradient)

    def total(self, name: str) -> str:
        """Return the sum of the gradients of a value, ``""`` where it has none."""
        parts = self._parts.get(name, [])
        while len(parts) > 1:
            parts[:2] = [self._b.op("add", parts[:2])]
        return parts[0] if parts else ""


def _propagated(node: Node, gradients: _Gradients, b: GraphBuilder) -> Iterator[tuple[str, str]]:
    """Yield the inputs of a node with their gradients, from those of its outputs."""
    given = [gradients.total(name) for name in node.outputs]
    if any(given):
        # Rules may leave out the last inputs; one operand may stand for several.
        yield from zip(node.inputs, input_gradients(node, given, b), strict=False)


def grad(graph: Graph, loss: str, wrt: Iterable[str]) -> Graph:
    """Return the graph that computes a loss and its gradients.

    Its first output is the loss. For each name of ``wrt`` follows an output of the same shape and
    element type, named ``"<name>.gradient"``. Inputs, parameters, states and updates are those of
    the graph; other outputs are left out.

    Args:
        graph: as built or loaded, not simplified.
        loss: the name of a float value with one element.
        wrt: names of the values to differentiate by: inputs, parameters, constants or results of
            nodes, of float element types.

    Raises:
        InputError: an argument is of another type.
        GraphError: a name is unknown, the loss does not depend on a value, or an operator between
            them has no gradient rule.

    >>> import numpy as np
    >>> import stridewise as sw
    >>> b = sw.GraphBuilder("square")
    >>> x = b.input("x", (3,))
    >>> loss = b.op("reduce_sum", [b.mul(x, x)], {"axes": (0,), "keepdims": 0}, output="loss")
    >>> model = sw.compile(sw.grad(b.build([loss]), "loss", ["x"]), tune="model")
    >>> [array.tolist() for array in model(np.array([1, 2, 3], np.float32))]
    [14.0, [2.0, 4.0, 6.0]]
    """
    _check_types(graph, loss, wrt)
    wrt = list(wrt)
    _check(graph, loss, wrt)
    active = _active(graph, wrt)
    b = GraphBuilder.of(graph)
    gradients = _Gradients(b)
    seed = graph.value(loss).type
    gradients.add(loss, b.constant(np.ones(seed.shape, seed.dtype.numpy), f"{loss}.seed"))
    for node in reversed(graph.nodes):
        if not active.intersection(node.inputs) or not active.intersection(node.outputs):
            continue
        for name, gradient in _propagated(node, gradients, b):
            if gradient and name in active:
                gradients.add(name, gradient)
    outputs = [loss]
    for name in wrt:
        total = gradients.total(name)
        if not total:
            where = f"graph {graph.name!r}, wrt"
            expected, found = f"values that {loss!r} depends on", repr(name)
            raise GraphError.at(where, expected=expected, found=found, fix="leave it out")
        outputs.append(b.op("identity", [total], output=b.fresh(f"{name}.gradient")))
    return Rewriter(b.build(outputs)).finish()
