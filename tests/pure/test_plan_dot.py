"""Drawings of plans for Graphviz: read back by a parser of its grammar, and compared."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.formats import Format
from stridewise.graph import Graph
from stridewise.ops import GraphBuilder
from stridewise.planning import Plan

from .plans import cheap, conv, net, planned, random_costs, residual
from .test_explain import moving

TOKEN = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|(->|[\[\]{};,=])|([A-Za-z_][A-Za-z0-9_]*|\d+))', re.S
)


@dataclass
class Drawing:
    """What a text in the language of Graphviz says."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    legend: dict[str, str] = field(default_factory=dict)


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


class Reader:
    """A parser of the part of Graphviz's grammar that drawings may use; it fails on all else."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = TOKEN.match(text, at)
            assert match is not None, text[at : at + 40]
            string, mark, word = match.groups()
            kind = "mark" if mark else "word" if word else "string"
            self.tokens.append((kind, mark or word or unescaped(string)))
            at = match.end()

    def take(self, *kinds: str) -> str:
        kind, text = self.tokens.pop(0)
        assert kind in kinds, (kind, text)
        return text

    def maybe(self, mark: str) -> bool:
        if self.tokens[0] == ("mark", mark):
            self.tokens.pop(0)
            return True
        return False

    def attributes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.maybe("["):
            while not self.maybe("]"):
                key = self.take("word")
                assert self.take("mark") == "="
                found[key] = self.take("string", "word")
                self.maybe(",")
        assert self.take("mark") == ";"
        return found

    def statements(self, drawing: Drawing, cluster: str = "") -> None:
        while not self.maybe("}"):
            subject = self.take("word")
            if subject == "subgraph":
                name = self.take("word")
                assert self.take("mark") == "{"
                self.statements(drawing, name)
            elif self.maybe("="):
                self.take("string", "word")
                assert self.take("mark") == ";"
            elif self.maybe("->"):
                drawing.edges.append((subject, self.take("word"), self.attributes()))
            elif cluster:
                found = self.attributes()
                if "fillcolor" in found:
                    drawing.legend[found["label"]] = found["fillcolor"]
            elif subject not in ("node", "edge"):
                assert subject not in drawing.nodes
                drawing.nodes[subject] = self.attributes()
            else:
                self.attributes()


def drawn(plan: Plan) -> Drawing:
    reader = Reader(plan.to_dot())
    assert reader.take("word") == "digraph"
    assert reader.take("string") == plan.graph.name
    assert reader.take("mark") == "{"
    drawing = Drawing()
    reader.statements(drawing)
    assert not reader.tokens
    return drawing


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([residual, moving]))
def test_everything_is_drawn_in_the_color_of_its_format(seed: int, graph):
    plan = planned(graph(), random_costs(seed))
    drawing = drawn(plan)
    assert len(set(drawing.legend.values())) == len(drawing.legend)
    for index, (node, decision) in enumerate(zip(plan.graph.nodes, plan.decisions, strict=True)):
        box = drawing.nodes[f"n{index}"]
        lines = box["label"].split("\n")
        assert lines[0] == node.name
        assert lines[1].split("+")[0] == node.op
        assert decision.chosen.algorithm in lines[2]
        assert box["fillcolor"] == drawing.legend[str(decision.chosen.option.outputs[0])]
    wanted = len(plan.graph.inputs) + len(plan.graph.nodes) + len(plan.graph.outputs)
    assert len(drawing.nodes) == wanted
    assert {end for edge in drawing.edges for end in edge[:2]} == set(drawing.nodes)


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_exactly_the_reorders_are_marked(seed: int):
    plan = planned(moving(), random_costs(seed))
    marked = [edge[2]["label"] for edge in drawn(plan).edges if "style" in edge[2]]
    found = [label.split("\n")[:2] for label in marked]
    assert all(text.startswith("reorder ") for _, text in found)
    # Formats of equal bytes, as NHWC and nChw16c of 16 channels, go by several names.
    same = plan.storages.key
    assert {
        (tensor, same(tensor, Format.parse(text.partition(" -> ")[2]))) for tensor, text in found
    } == {(r.tensor, same(r.tensor, r.target)) for r in plan.reorders}


@pytest.mark.parametrize(
    "name", ['say "hi"', "back\\slash", "end\\", "two\nlines", "a/b:0", "<html>", "größe", "n;}{]["]
)
def test_names_are_escaped(name: str):
    b = GraphBuilder(name)
    x = b.input(f"{name} in", (1, 32, 6, 6))
    y = b.op("relu", [conv(b, x)], name=name, output=f"{name} out")
    graph: Graph = b.build([b.op("tanh", [y], name=f"{name} 2")])
    drawing = drawn(planned(graph, cheap("blocked")))
    labels = [box["label"] for box in drawing.nodes.values()]
    assert any(label.startswith(f"{name} in\n") for label in labels)
    assert any(label.startswith(f"{name} 2\n") for label in labels)


def test_an_output_that_is_an_input_or_a_constant_is_drawn():
    b, x = net()
    y = conv(b, x)
    plan = planned(b.build([y, x]), cheap("plain"))
    drawing = drawn(plan)
    assert ("in0", "out1") in [edge[:2] for edge in drawing.edges]
