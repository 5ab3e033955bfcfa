"""The graph of a training step: forward, loss, backward and update."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType

import numpy as np

from stridewise.errors import GraphError, InputError
from stridewise.graph import Graph, Node
from stridewise.ops import GraphBuilder
from stridewise.ops.backward import Term
from stridewise.training.gradient import grad
from stridewise.training.losses import Loss
from stridewise.training.optimizers import Optimizer, Updates

__all__ = ["StepGraph", "step_graph"]


@dataclass(frozen=True, slots=True)
class StepGraph:
    """A graph whose runs are training steps.

    Attributes:
        graph: its only output is the loss.
        target: the input that takes what the prediction should be.
        scalars: the inputs that take numbers of the optimizer, by the optimizer's name of them.
        first: with accumulation, the input that is 1 for the first part of a batch, else ``""``.
        last: likewise for the last part.
        draws: the input that takes the counter of a run, if there is dropout, else ``""``.
        moments: the states that hold more than what the given graph has.
    """

    graph: Graph
    target: str
    scalars: Mapping[str, str]
    first: str
    last: str
    draws: str
    moments: tuple[str, ...]


def _number(b: GraphBuilder, name: str) -> str:
    return b.input(b.fresh(name), (1,))


def _chosen(flag: Term, yes: Term, no: Term) -> Term:
    """Return one of two values, by a number that is 1 or 0."""
    return flag.of("greater", 0.0).of("where", yes, no)


def _clipped(gradients: dict[str, Term], limit: float) -> dict[str, Term]:
    """Return gradients scaled so that the norm of all is at most a limit.

    Source: PyTorch, ``torch.nn.utils.clip_grad_norm_``.
    """
    squares = [
        g.of("reduce_sum_square", axes=tuple(range(len(g.shape)))) for g in gradients.values()
    ]
    total = squares[0].reshape((1,))
    for square in squares[1:]:
        total = total + square.reshape((1,))
    factor = (limit / (total.of("sqrt") + 1e-6)).of("minimum", 1.0)
    return {name: gradient * factor for name, gradient in gradients.items()}


def _accumulated(
    b: GraphBuilder, gradients: Mapping[str, Term], first: Term, parts: int
) -> dict[str, Term]:
    """Return the sums of the gradients' shares since the first part of a batch."""
    found: dict[str, Term] = {}
    for name, gradient in gradients.items():
        zeros = np.zeros(gradient.shape, np.float32)
        state = Term(b, b.state(zeros, b.fresh(f"optimizer.{name}.gradient")))
        share = gradient * (1 / parts)
        found[name] = _chosen(first, share, state + share).reshape(gradient.shape)
        b.update(state.name, found[name].name)
    return found


def _drawing(graph: Graph) -> tuple[Graph, str]:
    """Return a graph whose dropout draws by the counter of a new input, and the input's name."""
    if not any(_is_idle_dropout(node) for node in graph.nodes):
        return graph, ""
    b = GraphBuilder.of(graph)
    counter = b.input(b.fresh("dropout.counter"), (4,))
    streams = count()
    nodes = tuple(
        replace(
            node,
            inputs=(*node.inputs, counter),
            attrs=tuple(sorted({**dict(node.attrs), "stream": next(streams)}.items())),
        )
        if _is_idle_dropout(node)
        else node
        for node in graph.nodes
    )
    return replace(b.build(graph.outputs), nodes=nodes), counter


def _is_idle_dropout(node: Node) -> bool:
    return node.op == "dropout" and len(node.inputs) == 1


def _check(graph: Graph, names: Sequence[str]) -> None:
    where = f"graph {graph.name!r}, training"
    if len(graph.outputs) != 1:
        expected, found = "one output, the prediction", ", ".join(graph.outputs) or "none"
        raise GraphError.at(where, expected=expected, found=found)
    if not names:
        expected, fix = "parameters to train", "build it with GraphBuilder(training=True)"
        raise GraphError.at(where, expected=expected, found="none", fix=fix)
    for name in names:
        if name not in graph.parameters or name in graph.updates:
            expected = "names of parameters without an update"
            raise InputError.at(f"{where}, train", expected=expected, found=repr(name))
        if graph.value(name).dtype.name != "float32":
            found = f"{name!r}, {graph.value(name).type}"
            raise GraphError.at(where, expected="float32 parameters", found=found)


def _with_exact_ends(graph: Graph, seeds: Iterable[str], known: Container[str]) -> Graph:
    """Return the graph of a step with exact ends: the loss, and what gradients are used for.

    The loss, and the gradient of the prediction, are what is computed from the seeds, the
    prediction and the target, alone. What gradients are used for are the values that were unknown
    in the backward graph: sums, norms, moments, and new parameters.
    """
    exact = {*seeds, *(name for name in graph.values if name not in known)}
    for node in graph.nodes:
        if all(name in exact or name in graph.constants for name in node.inputs):
            exact.update(node.outputs)
    values = {n: replace(v, exact=v.exact or n in exact) for n, v in graph.values.items()}
    return replace(graph, values=MappingProxyType(values))


def step_graph(
    graph: Graph,
    names: Sequence[str],
    loss: Loss,
    optimizer: Optimizer,
    *,
    clip_norm: float | None = None,
    accumulate: int = 1,
) -> StepGraph:
    """Return the graph of a training step.

    Args:
        graph: from inputs to one output, the prediction.
        names: the parameters to train.
        loss: adds the loss.
        optimizer: adds the updates.
        clip_norm: the largest norm of all gradients together.
        accumulate: parts of a batch, each of which is a run; the last one updates parameters.

    Raises:
        GraphError: the graph has no parameter or several outputs, the loss does not depend on a
            parameter, or an operator between them has no gradient rule.
        InputError: a name is none of a parameter.
    """
    _check(graph, names)
    graph, draws = _drawing(graph)
    b = GraphBuilder.of(graph)
    (prediction,) = graph.outputs
    target = b.input(b.fresh("target"), b.type(prediction).shape)
    found = loss(b, prediction, target)
    if not found:
        expected = "a function that returns the name of a value"
        raise InputError.at(f"graph {graph.name!r}, loss", expected=expected, found=repr(found))
    value = b.op("identity", [found], output=b.fresh("loss"))
    backward = grad(b.build([value]), value, names)
    outputs = dict(zip(names, backward.outputs[1:], strict=True))
    b = GraphBuilder.of(backward)
    gradients = {name: Term(b, output) for name, output in outputs.items()}
    first = last = ""
    if accumulate > 1:
        first, last = _number(b, "first"), _number(b, "last")
        gradients = _accumulated(b, gradients, Term(b, first), accumulate)
    if clip_norm is not None:
        gradients = _clipped(gradients, clip_norm)
    scalars = {name: _number(b, f"optimizer.{name}") for name in optimizer.scalars(0)}
    terms = {name: Term(b, item) for name, item in scalars.items()}
    updates = Updates()
    for name, gradient in gradients.items():
        updates |= optimizer.updates(b, name, gradient, terms)
    for name, new in updates.items():
        kept = _chosen(Term(b, last), new, Term(b, name)) if last else new
        b.update(name, kept.reshape(b.type(name).shape).name)  # numbers have one axis
    step = _with_exact_ends(b.build([value]), (prediction, target), backward.values)
    moments = tuple(name for name in step.states if name not in graph.states)
    return StepGraph(step, target, scalars, first, last, draws, moments)
