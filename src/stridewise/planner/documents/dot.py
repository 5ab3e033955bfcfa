"""A plan as a drawing for Graphviz: a color a format, reorders marked on the edges.

Nodes are filled with the color of the format that they produce, and edges are drawn in it. An edge
on which bytes change their format is dashed and says what it costs.
"""

from __future__ import annotations

from collections.abc import Iterator

from stridewise.graph import Node
from stridewise.planner.plan import PlanData, Reorder
from stridewise.planner.questions.why import duration
from stridewise.tensor import Storage

__all__ = ["to_dot"]

_COLORS = (
    # Tol's light scheme, which people with any color vision can tell apart
    "#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00",
    "#dddddd",
)  # fmt: skip
_MARK = "#cc3311"


def _quoted(text: str) -> str:
    """Return a string as Graphviz reads it; line breaks stay line breaks."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\r", "").replace("\n", "\\n") + '"'


def _item(subject: str, **attributes: str) -> str:
    inside = ", ".join(f"{key}={_quoted(value)}" for key, value in attributes.items())
    return f"  {subject} [{inside}];"


class _Drawing:
    """The parts of a drawing, with an identifier for everything that is connected."""

    def __init__(self, plan: PlanData) -> None:
        self.plan, self.graph, self.spell = plan, plan.graph, plan.target.spell
        self.colors: dict[str, str] = {}
        self.sources: dict[str, str] = {}
        key = plan.storages.key
        self.reorders: dict[tuple[str, str], Reorder] = {
            (r.tensor, key(r.tensor, r.target)): r for r in plan.reorders
        }

    def color(self, stored: Storage) -> str:
        name = self.name(stored)
        if name not in self.colors:
            self.colors[name] = _COLORS[len(self.colors) % len(_COLORS)]
        return self.colors[name]

    def name(self, stored: Storage) -> str:
        return stored.spelled(self.spell)

    def inputs(self) -> Iterator[str]:
        for index, name in enumerate((*self.graph.inputs, *self.graph.stored)):
            made = self.plan.made(name)
            self.sources[name] = f"in{index}"
            label = f"{name}\n{self.graph.values[name].type}\n{self.name(made)}"
            yield _item(f"in{index}", shape="ellipse", label=label, fillcolor=self.color(made))

    def node(self, index: int, node: Node) -> Iterator[str]:
        decision = self.plan.decisions[index]
        chosen = decision.chosen
        for name in node.outputs:
            self.sources[name] = f"n{index}"
        post = "".join(f"+{post.op}" for post in node.post_ops)
        kernel = f"{chosen.algorithm} [{chosen.implementation}]"
        label = f"{node.name}\n{node.op}{post}\n{kernel}\n{duration(chosen.cost_ns)}"
        made = chosen.option.makes[0]
        yield _item(f"n{index}", shape="box", label=label, fillcolor=self.color(made))
        for name, wanted in zip(node.inputs, chosen.option.needs, strict=True):
            if wanted is not None:
                yield self.edge(name, f"n{index}", wanted)

    def outputs(self) -> Iterator[str]:
        for index, name in enumerate(self.graph.sinks):
            fmt = self.graph.values[name].origin
            shown = self.plan.made(name) if fmt is None else Storage(fmt)
            label = f"{name}\n{self.graph.values[name].type}\n{self.name(shown)}"
            yield _item(f"out{index}", shape="ellipse", label=label, fillcolor=self.color(shown))
            if name in self.sources:
                yield self.edge(name, f"out{index}", shown)

    def edge(self, name: str, reader: str, wanted: Storage) -> str:
        key = self.plan.storages.key
        made = self.plan.made(name)
        ends = f"{self.sources[name]} -> {reader}"
        if key(name, made) == key(name, wanted):
            return _item(ends, label=f"{name}\n{self.name(wanted)}", color=self.color(wanted))
        reorder = self.reorders.get((name, key(name, wanted)))
        cost = "" if reorder is None else f"\n{duration(reorder.cost_ns)}"
        change = f"{self.plan.target.reorder} {self.name(made)} -> {self.name(wanted)}"
        label = f"{name}\n{change}{cost}"
        return _item(ends, label=label, color=_MARK, fontcolor=_MARK, style="dashed")

    def legend(self) -> Iterator[str]:
        yield "  subgraph cluster_formats {"
        yield '    label="formats";'
        for index, (name, color) in enumerate(self.colors.items()):
            yield "  " + _item(f"format{index}", shape="box", label=name, fillcolor=color)
        yield "  }"


def to_dot(plan: PlanData) -> str:
    """Return a plan in the language of Graphviz; ``dot -Tsvg`` draws it."""
    drawing = _Drawing(plan)
    lines = [f"digraph {_quoted(plan.graph.name)} {{", "  rankdir=TB;"]
    lines.append('  node [style="filled", fontname="sans-serif", fontsize=10];')
    lines.append('  edge [penwidth=2, fontname="sans-serif", fontsize=9];')
    title = f"{plan.graph.name} for {plan.target.name}: {duration(plan.cost_ns)}"
    lines.append(f"  label={_quoted(title)};")
    lines += drawing.inputs()
    for index, node in enumerate(plan.graph.nodes):
        lines += drawing.node(index, node)
    lines += drawing.outputs()
    lines += drawing.legend()
    return "\n".join([*lines, "}"]) + "\n"
