"""A plan as an annotated graph: reorders as nodes, and what was decided as text.

For exporters, which know graphs but not plans. Nothing here knows a file format.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stridewise.graph import Graph, Node, Value
from stridewise.graph.names import Names
from stridewise.ops.geometry import stored
from stridewise.planner.plan import Decision, PlanData, Reorder
from stridewise.tensor import Storage

__all__ = ["Annotated", "annotated"]

Texts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Annotated:
    """A planned graph and what to say about it. A text ``summary`` says the most in one line.

    Attributes:
        graph: the planned graph, every reorder a node ``reorder`` on its edge. It is no operator
            of :data:`stridewise.ops.OPS`, so the graph can be shown, but not planned again.
        model: about the whole plan.
        nodes: about each node: kernel, formats, cost.
        values: about each value that is not a constant: Origin and Storage.
    """

    graph: Graph
    model: Texts
    nodes: Mapping[str, Texts]
    values: Mapping[str, Texts]


def annotated(plan: PlanData) -> Annotated:
    """Return the graph of a plan with its reorders, and texts about all that was decided.

    A value that the plan reorders has several stored forms. The one that its producer leaves has
    the value's name, the others are named after value and format. A graph output is the form that
    the caller gets, so there the producer's form takes the longer name. An input that is an output
    as well, in another format, keeps its name, and the output takes the longer one.
    """
    return _Annotation(plan).result()


class _Annotation:
    """The graph and the texts so far."""

    def __init__(self, plan: PlanData) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.values = dict(plan.graph.values)
        self.nodes: list[Node] = []
        self.node_texts: dict[str, Texts] = {}
        self.value_texts: dict[str, Texts] = {}
        self.names: dict[tuple[str, str], str] = {}
        self._fresh = Names(plan.graph).fresh
        self._pending: dict[str, list[Reorder]] = {}
        for reorder in plan.reorders:
            self._pending.setdefault(reorder.tensor, []).append(reorder)

    def result(self) -> Annotated:
        for name in self.graph.inputs:
            self.stored(self.graph.values[name], self.plan.made(name), name)
            self.reorder(name)
        for node, decision in zip(self.graph.nodes, self.plan.decisions, strict=True):
            self.node(node, decision)
        graph = dataclasses.replace(
            self.graph,
            nodes=tuple(self.nodes),
            values=MappingProxyType(self.values),
            outputs=tuple(
                self.form(name, Storage(self.plan.output_formats[name]))
                for name in self.graph.outputs
            ),
        )
        return Annotated(graph, _model_texts(self.plan), self.node_texts, self.value_texts)

    # --- values ---------------------------------------------------------------------------------

    def key(self, name: str, stored: Storage) -> tuple[str, str]:
        return name, self.plan.storages.key(name, stored)

    def define(self, name: str, made: Storage) -> str:
        """Name the form of a value that a node leaves."""
        handed_over = any(self.is_output(name, step.target) for step in self._pending.get(name, ()))
        value = self.graph.values[name]
        return self.stored(value, made, f"{name}/{made}" if handed_over else name)

    def is_output(self, name: str, stored: Storage) -> bool:
        """Return whether this form of a value is what the caller gets under its name."""
        if name not in self.graph.outputs or name in self.graph.inputs:
            return False
        return self.key(name, stored) == self.key(name, Storage(self.plan.output_formats[name]))

    def stored(self, value: Value, way: Storage, hint: str) -> str:
        """Add a stored form of a value, and what there is to say about it."""
        name = value.name if hint == value.name else self._fresh(hint)
        self.names[self.key(value.name, way)] = name
        self.values[name] = dataclasses.replace(value, name=name)
        desc = stored(value, way)
        self.value_texts[name] = {
            "summary": desc.summary,
            "value": value.name,
            "origin": "ND" if value.origin is None else str(value.origin),
            "storage": str(way),
            "storage_shape": str(list(desc.storage_shape)),
            "nbytes": str(desc.nbytes),
        }
        return name

    def form(self, name: str, way: Storage | None) -> str:
        """Return the name of the form of a value that a consumer reads."""
        if not name or way is None or self.graph.is_packed(name):
            return name
        return self.names[self.key(name, way)]

    # --- nodes ----------------------------------------------------------------------------------

    def node(self, node: Node, decision: Decision) -> None:
        option = decision.chosen.option
        inputs = tuple(map(self.form, node.inputs, option.needs))
        outputs = tuple(map(self.define, node.outputs, option.makes))
        self.nodes.append(dataclasses.replace(node, inputs=inputs, outputs=outputs))
        self.node_texts[node.name] = _node_texts(node, decision)
        for name in node.outputs:
            self.reorder(name)

    def reorder(self, name: str) -> None:
        """Add the reorders of a value behind what makes it."""
        value = self.graph.values[name]
        for step in self._pending.get(name, ()):
            source = self.form(name, step.source)
            final = self.is_output(name, step.target)
            result = self.stored(value, step.target, name if final else f"{name}/{step.target}")
            attrs = (
                ("cost_ns", step.cost_ns),
                ("from", str(step.source)),
                ("nbytes", step.nbytes),
                ("to", str(step.target)),
            )
            label = self._fresh(f"reorder {name} to {step.target}")
            self.nodes.append(Node(label, "reorder", (source,), (result,), attrs))
            self.node_texts[label] = _reorder_texts(step)


def _storages(names: tuple[str, ...], ways: tuple[Storage | None, ...]) -> str:
    return ", ".join(
        "absent" if not name else "constant" if way is None else str(way)
        for name, way in zip(names, ways, strict=True)
    )


def _node_texts(node: Node, decision: Decision) -> Texts:
    chosen = decision.chosen
    option = chosen.option
    sources = ", ".join(dict.fromkeys(cost.source for cost in chosen.costs)) or "free"
    texts = {
        "summary": f"{chosen.algorithm}: {chosen.cost_ns / 1e3:.1f} us ({sources})",
        "op": node.op,
        "algorithm": chosen.algorithm,
        "kernel": chosen.implementation,
        "inputs": _storages(node.inputs, option.needs),
        "outputs": _storages(node.outputs, option.makes),
        "cost_ns": repr(chosen.cost_ns),
        "cost_source": sources,
    }
    if node.post_ops:
        texts["fused"] = ", ".join(post.op for post in node.post_ops)
    return texts


def _reorder_texts(step: Reorder) -> Texts:
    return {
        "summary": f"{step.source} -> {step.target}, {step.nbytes} bytes: "
        f"{step.cost_ns / 1e3:.1f} us",
        "op": "reorder",
        "kernel": step.implementation or "library's choice",
        "inputs": str(step.source),
        "outputs": str(step.target),
        "nbytes": str(step.nbytes),
        "cost_ns": repr(step.cost_ns),
    }


def _model_texts(plan: PlanData) -> Texts:
    proof = "proved optimal" if plan.gap < 1e-9 else f"within {plan.gap:.2%} of the optimum"
    return {
        "summary": f"plan for {plan.target.name}: {plan.cost_ns / 1e6:.3f} ms, "
        f"{len(plan.reorders)} reorders, {proof}",
        "plan": plan.name,
        "target": plan.target.name,
        "machine": str(plan.machine),
        "cost_ns": repr(plan.cost_ns),
        "lower_bound_ns": repr(plan.lower_bound_ns),
        "gap": repr(plan.gap),
        "reorders": str(len(plan.reorders)),
    }
