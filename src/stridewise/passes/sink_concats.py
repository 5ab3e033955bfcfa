"""Move concatenations down past scales and activations of results of kernels.

Networks with branches normalize and activate the joined results of several convolutions. Each of
these can apply its part to its own results, which takes no pass over memory.
"""

from __future__ import annotations

import dataclasses
from itertools import accumulate, pairwise

from stridewise.graph import Graph, Node, Refusal
from stridewise.graph.rewrite import Rewriter
from stridewise.ops.activation import UNARY
from stridewise.ops.data_format import canonical_order
from stridewise.passes.ability import Ability

__all__ = ["sink_concats"]


class _Sinker:
    def __init__(self, graph: Graph, ability: Ability) -> None:
        self.rewriter, self.ability = Rewriter(graph), ability
        self.refusals: list[Refusal] = []
        self.makers: dict[str, Node] = {}  # what made the pieces of moved nodes, by their names

    def against(self, node: Node, piece: str) -> str:
        """Return why the node that makes a piece does not take a part of another one, or ""."""
        maker = self.rewriter.producer(piece)
        origin = None if maker is None else self.makers.get(maker.name, maker)
        if maker is None or origin is None or self.rewriter.only_reader(piece) is None:
            return f"{piece!r} has other readers, or is an input"
        if node.op == "scale_shift":
            constants = [
                self.rewriter.known(name) is not None for name in origin.inputs[1:] if name
            ]
            fits = origin.op == "conv" and all(constants) and not maker.post_ops
            moved = maker.name in self.makers and maker.op != "scale_shift"
            return "" if fits and not moved else f"{maker.name!r} has no weights for a scale"
        takes = not maker.post_ops and node.op in self.ability.post_ops(origin)
        return "" if takes else f"{maker.name!r} does not take {node.op}"

    def visit(self, node: Node) -> None:
        is_scale = node.op == "scale_shift"
        if node.post_ops or not (is_scale or node.op in UNARY):
            return
        concat = self.rewriter.producer(node.inputs[0])
        if concat is None or concat.op != "concat" or not self.rewriter.only_reader(node.inputs[0]):
            return
        if self.rewriter.value(node.outputs[0]).dtype.name not in self.ability.dtypes:
            return
        if len(set(concat.inputs)) < len(concat.inputs):
            return
        reasons = [why for piece in concat.inputs if (why := self.against(node, piece))]
        parts = self.parameters(node, concat) if is_scale else [()] * len(concat.inputs)
        if reasons or parts is None:
            reason = reasons[0] if reasons else "its scale is not constant, or of another axis"
            self.refusals.append(Refusal("sink_concats", node.name, reason))
            return
        self.sink(node, concat, parts)

    def parameters(self, node: Node, concat: Node) -> list[tuple[str, ...]] | None:
        """Return the parts of scale and shift for each piece of a concat of channels."""
        shapes = [self.rewriter.value(name).shape for name in concat.inputs]
        axis = concat.int_attr("axis")
        known = [(name, self.rewriter.constant(name)) for name in node.inputs[1:]]
        if axis != canonical_order(node, len(shapes[0]))[1]:
            return None
        if any(data is None for _, data in known):
            return None
        bounds = pairwise(accumulate((shape[axis] for shape in shapes), initial=0))
        return [
            tuple(
                self.rewriter.add_constant(name, data[begin:end])
                for name, data in known
                if data is not None
            )
            for begin, end in bounds
        ]

    def sink(self, node: Node, concat: Node, parts: list[tuple[str, ...]]) -> None:
        rewriter = self.rewriter
        results: list[str] = []
        for piece, part in zip(concat.inputs, parts, strict=True):
            maker = rewriter.producer(piece)
            assert maker is not None  # `against` refuses inputs
            result = rewriter.add_value(f"{node.outputs[0]}.part", rewriter.value(piece).type)
            moved = dataclasses.replace(node, inputs=(piece, *part), outputs=(result,))
            moved = dataclasses.replace(moved, name=f"{node.name}.part")
            self.makers[rewriter.insert(moved, node).name] = self.makers.get(maker.name, maker)
            results.append(result)
        rewriter.remove(concat)
        joined = dataclasses.replace(concat, inputs=tuple(results), outputs=node.outputs)
        rewriter.replace(node, joined)

    def run(self) -> tuple[Graph, tuple[Refusal, ...]]:
        for node in self.rewriter.nodes():
            self.visit(node)
        return self.rewriter.finish(), tuple(self.refusals)


def sink_concats(graph: Graph, ability: Ability) -> tuple[Graph, tuple[Refusal, ...]]:
    """Return the graph with scales and activations before the concatenations of their operands."""
    return _Sinker(graph, ability).run()
