"""A plan in which nodes run again: the same kernels, a second time, right before their readers."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

from stridewise.graph import Graph, Node
from stridewise.graph.names import Names
from stridewise.planner.choice import comparison, decisions, reorders
from stridewise.planner.derivation.provenance import Derived
from stridewise.planner.plan import PlanData
from stridewise.planner.problem.candidates import Candidates
from stridewise.planner.problem.formulation import Terms
from stridewise.planner.problem.io_formats import Boundary

__all__ = ["repeated"]

P = TypeVar("P", bound=PlanData)


class _Repeater:
    """The graph that grows: copies of nodes stand where the last part first needs them."""

    def __init__(self, graph: Graph, again: Collection[str]) -> None:
        self.graph, self.again = graph, again
        self.nodes: list[Node] = []
        self.values = dict(graph.values)
        self.copies: dict[str, str] = {}
        """The original of each copied node."""
        self.renamed: dict[str, str] = {}
        """The copy of each value that is computed again."""
        self._names = Names(graph)
        self._producers = graph.producers()
        self._positions = {node.name: index for index, node in enumerate(graph.nodes)}

    def run(self, split: int) -> Graph:
        """Return the graph whose nodes from ``split`` on read copies."""
        self.nodes += self.graph.nodes[:split]
        for node in self.graph.nodes[split:]:
            for source in self._missing(node):
                self._copy(source)
            self.nodes.append(dataclasses.replace(node, inputs=self._inputs(node)))
        nodes, values = tuple(self.nodes), MappingProxyType(self.values)
        return dataclasses.replace(self.graph, nodes=nodes, values=values)

    def _inputs(self, node: Node) -> tuple[str, ...]:
        return tuple(self.renamed.get(name, name) for name in node.inputs)

    def _missing(self, node: Node) -> list[Node]:
        """Return the nodes to copy before a node, in their order."""
        found: dict[str, Node] = {}
        waiting = [node]
        while waiting:
            for name in waiting.pop().inputs:
                source = self._producers.get(name)
                if source is None or source.name not in self.again or name in self.renamed:
                    continue
                if source.name not in found:
                    found[source.name] = source
                    waiting.append(source)
        return sorted(found.values(), key=lambda item: self._positions[item.name])

    def _copy(self, node: Node) -> None:
        name = self._names.fresh(f"{node.name}.again")
        inputs = self._inputs(node)
        outputs = tuple(self._names.fresh(f"{output}.again") for output in node.outputs)
        for output, copy in zip(node.outputs, outputs, strict=True):
            self.values[copy] = dataclasses.replace(self.values[output], name=copy)
        self.renamed.update(zip(node.outputs, outputs, strict=True))
        self.copies[name] = node.name
        self.nodes.append(dataclasses.replace(node, name=name, inputs=inputs, outputs=outputs))


def _candidates(known: Candidates, graph: Graph, repeater: _Repeater) -> Candidates:
    """Return candidates for the copies as well: those of their originals."""
    nodes = {n.name: known.nodes[repeater.copies.get(n.name, n.name)] for n in graph.nodes}
    moves = {name: [name, copy] for name, copy in repeater.renamed.items()}

    def copied(costs: Mapping[tuple[str, str, str], object]) -> Iterator[tuple[str, str, str]]:
        for name, source, goal in costs:
            yield from ((copy, source, goal) for copy in moves.get(name, [name]))

    originals = {copy: name for name, copy in repeater.renamed.items()}

    def priced(costs: Mapping[tuple[str, str, str], object]) -> dict[tuple[str, str, str], object]:
        return {move: costs[originals.get(move[0], move[0]), *move[1:]] for move in copied(costs)}

    return dataclasses.replace(
        known,
        storages=known.storages.of(graph),
        nodes=nodes,
        reorders=priced(known.reorders),
        user_reorders=priced(known.user_reorders),
    )


def repeated(plan: P, split: int, again: Collection[str]) -> P:
    """Return a plan whose last part computes values of its first part again.

    All nodes keep their kernels and formats, and copies have those of their originals. So results
    have the same bits.

    Args:
        plan: the plan.
        split: position of the first node of the last part.
        again: names of nodes of the first part whose results the last part computes again, where
            it needs them.
    """
    repeater = _Repeater(plan.graph, again)
    graph = repeater.run(split)
    terms = Terms(
        graph,
        _candidates(plan.candidates, graph, repeater),
        Boundary(
            {name: (fmt,) for name, fmt in plan.input_formats.items()},
            {name: (fmt,) for name, fmt in plan.output_formats.items()},
        ),
        None,
    )
    chosen = {decision.node: decision.chosen for decision in plan.decisions}
    only: dict[str, tuple[int, ...]] = {}
    for name, group in terms.candidates.nodes.items():
        own = chosen[repeater.copies.get(name, name)]
        only[name] = (next(index for index, item in enumerate(group) if item == own),)
    solution = terms.solve(only)
    steps = reorders(terms, solution)
    reasons = dict(plan.derived.provenance)
    for name, copy in repeater.renamed.items():
        reasons[copy] = reasons[name]
    return dataclasses.replace(
        plan,
        graph=graph,
        decisions=decisions(terms, solution),
        reorders=steps,
        cost_ns=solution.cost,
        derived=Derived(graph, MappingProxyType(reasons), plan.derived.conflicts),
        comparisons=(comparison(plan.name, solution.cost, steps), *plan.comparisons),
        terms=terms,
        repeats={**plan.repeats, **repeater.copies},
    )
