"""A plan as text to debug from: every node with its formats, kernels and shared bytes.

:func:`stridewise.planner.documents.text.explain` is the shorter text about costs and alternatives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from stridewise.formats import Format
from stridewise.graph import Node
from stridewise.ops.geometry import user_format
from stridewise.planner.plan import Decision, PlanData
from stridewise.targets.cost import KernelCost
from stridewise.targets.kernels import Arg, KernelOption, Operand
from stridewise.tensor import TensorDesc

__all__ = ["listing"]

_quoted = json.dumps

_SIDES = {"in": "input", "out": "output", "fill": "filled with", "ahead": "input of the node ahead"}


def listing(plan: PlanData) -> str:
    """Return all decisions of a plan; ``docs/stages/texts.md`` explains the lines.

    The text is the same for the same plan.
    """
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: PlanData) -> Iterator[str]:
    graph = plan.graph
    yield f"plan {_quoted(plan.name)} of {_quoted(graph.name)} for {plan.target.name}"
    yield f"machine: {plan.machine}"
    yield f"cost: {_ns(plan.cost_ns)}, lower bound {_ns(plan.lower_bound_ns)}"
    if plan.split.parts > 1:
        yield f"split: {plan.split}"
    yield from (f"note: {note}" for note in plan.notes)
    yield from (f"given: {pin}" for pin in plan.pins)
    for name, fmt in plan.input_formats.items():
        yield f"input {_tensor(plan, name, fmt)}"
        yield from _reorders(plan, name)
    for node, decision in zip(graph.nodes, plan.decisions, strict=True):
        yield from _node(plan, node, decision)
        for name in node.outputs:
            yield from _reorders(plan, name)
    for name, fmt in plan.output_formats.items():
        yield f"output {_tensor(plan, name, fmt)}"


def _ns(number: float) -> str:
    return f"{number:.1f} ns"


def _kernel(implementation: str) -> str:
    return f"[{implementation or 'library choice'}]"


def _tensor(plan: PlanData, name: str, fmt: Format) -> str:
    value = plan.graph.values[name]
    desc = TensorDesc(value.shape, value.dtype, user_format(value), fmt)
    return f"{_quoted(name)} {desc.summary}, {desc.nbytes} bytes"


def _reorders(plan: PlanData, name: str) -> Iterator[str]:
    for item in plan.reorders:
        if item.tensor == name:
            change = f"{item.source} -> {item.target}, {item.nbytes} bytes"
            kernel = _kernel(item.implementation)
            yield f"reorder {_quoted(name)} {change} {kernel}, {_ns(item.cost_ns)}"


def _node(plan: PlanData, node: Node, decision: Decision) -> Iterator[str]:
    chosen = decision.chosen
    op = "+".join((node.op, *(post.op for post in node.post_ops)))
    yield f"node {_quoted(node.name)} {op}: {chosen.algorithm}, {_ns(chosen.cost_ns)}"
    for name, fmt in zip(node.inputs, chosen.option.inputs, strict=True):
        if name:
            yield f"  reads {_quoted(name)} " + ("packed" if fmt is None else f"in {fmt}")
    for name, fmt in zip(node.outputs, chosen.option.outputs, strict=True):
        yield f"  writes {_tensor(plan, name, fmt)}"
    yield from _option(chosen.option, chosen.costs)


def _option(option: KernelOption, costs: Sequence[KernelCost]) -> Iterator[str]:
    for alias in option.aliases:
        at = f", {alias.offset} elements apart" if alias.offset else ""
        yield f"  shares input {alias.input} and output {alias.output}: {alias.kind}{at}"
    if option.held:
        yield f"  computed by the kernel of its reader, {option.held}"
    if option.fill is not None:
        yield f"  fills {option.fill.count} float32 elements with {option.fill.value!r}"
    for item in option.packed:
        yield f"  packs input {item.input} as {item.format}"
    for call, cost in zip(option.calls, costs, strict=True):
        kernel = _kernel(cost.implementation)
        yield f"  calls {call.spec} {kernel}, {_ns(cost.cost_ns)}, {cost.source}"
        yield from (f"    {arg.role}: {_argument(arg)}" for arg in call.args)


def _operand(operand: Operand) -> str:
    if operand.side != "numbers":
        return f"{_SIDES[operand.side]} {operand.index}"
    numbers = operand.numbers
    if len(numbers) == 1:
        return f"number {numbers[0]!r}"
    return f"{len(numbers)} numbers from {min(numbers)!r} to {max(numbers)!r}"


def _argument(arg: Arg) -> str:
    parts = [_operand(arg.operand)]
    parts += [f"from element {arg.offset}"] if arg.offset else []
    parts += [f"reshaped to {list(arg.reshape)}"] if arg.reshape is not None else []
    parts += [f"permuted by {list(arg.permute)}"] if arg.permute is not None else []
    if arg.affine is not None:
        parts.append(f"times {arg.affine[0]!r} plus {arg.affine[1]!r}")
    return ", ".join(parts)
