"""The report: its data, its folding, and a page that untrusted names cannot break."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simplified import simplify

from stridewise.formats import parse
from stridewise.graph import ForeignFunction, ForeignPart, Graph, Refusal, Tail
from stridewise.ops import GraphBuilder
from stridewise.planner import derive
from stridewise.planner.questions.what_if import Regret
from stridewise.planning import Plan, make_plans
from stridewise.report import collect, render, to_html, to_json
from stridewise.report.data import Report
from stridewise.report.fold import LEAST_SAVED, repeats, stretches
from stridewise.targets.cost import Roofline
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import onednn_cpu
from stridewise.tensor import Storage

F32 = np.float32
MACHINE = Machine("some CPU", "AVX512_CORE", 2, "oneDNN 0")

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }} {% raw %}",
    "a\u2028b\u2029c",
    "&lt;b&gt; &amp; ]]>",
    "\ud800 lone, \x00 and \x1b",
    "javascript:alert(1)",
)


def plan_of(graph: Graph) -> Plan:
    target = onednn_cpu(MACHINE)
    oracle = Roofline(1e11, 4e10, target.efficiency)
    simplified = simplify(graph)
    refusals = simplified.refusals
    return make_plans(derive(simplified.graph), target, MACHINE, oracle, None, refusals)[0]


def small(names: tuple[str, ...] = ("image", "first", "second", "sum", "result")) -> Graph:
    """Two convolutions, a residual sum, a pooling and a flattening."""
    rng = np.random.default_rng(0)
    image, first, second, total, result = names
    b = GraphBuilder("small" if image == "image" else image)
    x = b.input(image, (1, 16, 8, 8))
    weights = [b.constant(rng.normal(size=(16, 16, 3, 3)).astype(F32)) for _ in range(2)]
    attrs = {"pads": (1, 1, 1, 1)}
    y = b.op("relu", [b.op("conv", [x, weights[0]], attrs, name=first)])
    z = b.op("conv", [y, weights[1]], attrs, name=second)
    y = b.op("add", [z, y], output=total)
    y = b.op("max_pool", [y], {"kernel": (2, 2), "strides": (2, 2)})
    return b.build([b.op("reshape", [y], {"shape": (1, 256)}, output=result)])


def chain(blocks: int) -> Graph:
    """Residual blocks of three convolutions, all alike."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("chain")
    y = b.input("x", (1, 16, 4, 4))
    w = b.constant(rng.normal(size=(16, 16, 1, 1)).astype(F32))
    y = b.op("max_pool", [y], {"kernel": (1, 1)})
    for _ in range(blocks):
        inner = b.op("relu", [b.op("conv", [y, w])])
        inner = b.op("relu", [b.op("conv", [inner, w])])
        y = b.op("relu", [b.op("add", [b.op("conv", [inner, w]), y])])
    return b.build([y])


# --- data -----------------------------------------------------------------------------------------


def test_the_data_of_a_small_graph(golden: Callable[[str, str], None]):
    report = dataclasses.replace(collect(plan_of(small())), version="some")
    golden("report_small", to_json(report, indent=1) + "\n")


def check_edges(plan: Plan, report: Report) -> None:
    """Every stored tensor that a kernel reads arrives in the format that it was made in."""
    for edge in report.edges:
        assert edge.source < edge.target
        source, target = report.vertices[edge.source], report.vertices[edge.target]
        assert any(p.name == edge.tensor and p.format == edge.format for p in source.outputs)
        assert any(p.name == edge.tensor for p in target.inputs)
    read = {(edge.target, edge.tensor) for edge in report.edges}
    constants = plan.graph.constants
    for index, vertex in enumerate(report.vertices):
        for port in vertex.inputs:
            assert ((index, port.name) in read) == (port.name not in constants)


def test_every_vertex_is_there_once_and_knows_its_candidates():
    plan = plan_of(small())
    report = collect(plan)
    kinds = [vertex.kind for vertex in report.vertices]
    assert kinds.count("node") == len(plan.decisions)
    assert kinds.count("reorder") == len(plan.reorders)
    assert kinds.count("input") == kinds.count("output") == 1
    nodes = [vertex for vertex in report.vertices if vertex.kind == "node"]
    for vertex, decision in zip(nodes, plan.decisions, strict=True):
        assert vertex.name == decision.node
        assert [choice.chosen for choice in vertex.choices] == [True] + [False] * (
            len(decision.rejected)
        )
        others = [choice.cost_ns for choice in vertex.choices[1:]]
        assert others == sorted(c.cost_ns for c in decision.rejected)
    total = sum(vertex.predicted_ns for vertex in report.vertices)
    assert total == pytest.approx(plan.cost_ns)
    check_edges(plan, report)


def test_sums_moves_and_views_are_those_of_the_plan():
    plan = plan_of(small())
    report = collect(plan)
    assert [bar.cost_ns for bar in report.bars] == [item.cost_ns for item in plan.compare()]
    assert report.plan in [bar.name for bar in report.bars]
    assert sum(move.nbytes for move in report.moves) == sum(r.nbytes for r in plan.reorders)
    free = [d.node for d in plan.decisions if d.chosen.implementation == "no work"]
    assert list(report.views) == free != []
    assert report.arena is None
    assert report.measured_ns is None
    stored = 1 + len(plan.reorders) + sum(len(node.outputs) for node in plan.graph.nodes)
    assert sum(use.tensors for use in report.formats) == stored
    sizes = [use.nbytes for use in report.formats]
    assert sizes == sorted(sizes, reverse=True)


def test_regrets_arrive_at_the_node_that_makes_the_tensor():
    plan = plan_of(small())
    made = plan.graph.nodes[0].outputs[0]
    priced = Regret(made, Storage(parse("NCHW")), 310.0, 50.0, 260.0)
    (vertex,) = (v for v in collect(plan, regrets=[priced]).vertices if v.regrets)
    assert vertex.name == plan.graph.nodes[0].name
    (row,) = vertex.regrets
    assert (row.tensor, row.format, row.total_ns) == (made, "NCHW", 310.0)
    assert row.kernel_ns + row.reorder_ns == row.total_ns


def test_refusals_arrive_at_the_node_that_they_are_about():
    plan = plan_of(small())
    node = plan.graph.nodes[1]
    about = (
        Refusal("onednn", node.name, "no such kernel"),
        Refusal("derive", node.outputs[0], "two meanings"),
        Refusal("fuse", "a node that was folded away", "no reader"),
    )
    derived = dataclasses.replace(plan.derived, conflicts=about[1:2])
    plan = dataclasses.replace(plan, refusals=(about[0], about[2]), derived=derived)
    report = collect(plan)
    (vertex,) = (vertex for vertex in report.vertices if vertex.refusals)
    assert vertex.name == node.name
    assert [row.reason for row in vertex.refusals] == ["no such kernel", "two meanings"]
    assert [row.rule for row in report.refusals] == ["onednn", "fuse"]
    assert [row.subject for row in report.conflicts] == [node.outputs[0]]
    texts = "".join(read(render(report)).texts)
    assert all(refusal.reason in texts for refusal in about)


# --- what runs where ------------------------------------------------------------------------------


class Elsewhere(ForeignPart):
    """A part of a runtime that is never run."""

    runtime, nbytes, digest = "elsewhere", 1, "0f3a"

    def prepare(self, threads: int, where: str) -> ForeignFunction:
        raise NotImplementedError


def mixed(name: str = "odd") -> Graph:
    """Two convolutions with a cluster of another runtime between them, a host node, and a tail."""
    b = GraphBuilder("mixed")
    x = b.input("x", (1, 16, 8, 8))
    w = b.constant(np.ones((16, 16, 3, 3), F32))
    y = b.op("conv", [x, w], {"pads": (1, 1, 1, 1)}, name="first")
    attrs = {
        "nodes": (name, "p", "q"),
        "operators": ("Odd", "Loop", "Loop"),
        "reasons": (f"no {name}", "a loop", "a loop"),
        "types": ("f32[1,16,8,8]",),
        "part": Elsewhere(),
    }
    y = b.op("fallback", [y], attrs)
    y = b.op("conv", [y, w], {"pads": (1, 1, 1, 1)}, name="second")
    axes = {"batch_axis": 0, "time_axis": 1}
    y = b.op("reverse_sequence", [y, b.constant(np.array([9]))], axes, name="reversed")
    why = ("its shape depends on data",)
    tail = Tail(Elsewhere(), (y,), ("z",), ("x",), ("z",), ("last",), ("NonZero",), why)
    return b.build([y], tail)


def test_parts_are_those_of_the_plan_with_their_reasons():
    plan = plan_of(mixed())
    report = collect(plan)
    assert [part.support for part in report.parts] == ["native", "fallback", "native", "tail"]
    for part, expected in zip(report.parts, plan.partitions, strict=True):
        assert (part.nodes, part.reasons) == (expected.nodes, expected.reasons)
        assert (part.reorders, part.reorder_ns) == (expected.reorders, expected.reorder_ns)
    assert report.parts[1].operators == ("Odd", "Loop", "Loop")
    assert report.parts[1].reorders == 2
    (hosted,) = report.hosted
    assert (hosted.operator, hosted.nodes, hosted.reorders) == (
        "reverse_sequence",
        ("reversed",),
        1,
    )
    found = read(render(report))
    assert ("section", "places") in [(tag, attrs.get("id")) for tag, attrs in found.elements]
    texts = " ".join("".join(found.texts).split())
    for text in (
        "in ONNX Runtime Odd, 2 Loop odd, p, q no odd; a loop 2 reorders, ",
        "in ONNX Runtime, after the program NonZero last its shape depends on data",
        "The time of what runs after the program is in none of the times here.",
        f"reverse_sequence reversed {hosted.reason} 1 reorder, ",
    ):
        assert text in texts


def test_nothing_is_said_of_places_where_there_is_but_one():
    report = collect(plan_of(small()))
    assert (report.parts, report.hosted) == ((), ())
    page = render(report)
    assert 'id="places"' not in page
    assert "ONNX Runtime" not in page


@pytest.mark.parametrize("name", HOSTILE)
def test_names_in_other_runtimes_are_text_as_well(name: str):
    page = to_html(plan_of(mixed(name)))
    page.encode("utf-8")
    found, harmless = read(page), read(to_html(plan_of(mixed())))
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in harmless.elements]
    shown = re.sub("[\x00\x1b\ud800]", "\ufffd", name)
    assert f"no {shown}; a loop" in "".join(found.texts)


# --- folding --------------------------------------------------------------------------------------


WORDS = st.lists(st.integers(0, 2), max_size=24)


def worth(found: tuple[tuple[int, int, int], ...]) -> int:
    return sum(2 * length * (times - 1) - length for _, length, times in found)


def best_worth(letters: list[int], start: int = 0) -> int:
    """The most that any set of repeats is worth, by trying all of them from the right."""
    count = len(letters)
    best = [0] * (count + 1)
    for begin in range(count - 1, start - 1, -1):
        best[begin] = best[begin + 1]
        for length in range(1, (count - begin) // 2 + 1):
            word = letters[begin : begin + length]
            times = 1
            while letters[begin + times * length : begin + (times + 1) * length] == word:
                times += 1
                if length * (times - 1) >= LEAST_SAVED:
                    gain = 2 * length * (times - 1) - length
                    best[begin] = max(best[begin], gain + best[begin + length * times])
    return best[start]


@given(WORDS)
def test_what_is_folded_repeats_and_does_not_overlap(letters: list[int]):
    found = repeats(letters)
    for start, length, times in found:
        assert times > 1
        assert length * (times - 1) >= LEAST_SAVED
        word = letters[start : start + length]
        assert letters[start : start + length * times] == word * times
    for (start, length, times), (following, _, _) in pairwise(found):
        assert start + length * times <= following


@given(WORDS)
def test_no_folding_is_worth_more(letters: list[int]):
    assert worth(repeats(letters)) == best_worth(letters)


@given(WORDS, st.data())
def test_a_block_begins_where_it_is_narrowest(letters: list[int], data: st.DataObject):
    widths = data.draw(st.lists(st.integers(1, 4), min_size=len(letters), max_size=len(letters)))
    for start, length, _ in repeats(letters, widths):
        assert widths[start] == min(widths[start : start + length])


@given(st.integers(0, 300), st.integers(1, 40))
def test_stretches_leave_few_boxes(count: int, most: int):
    found = stretches(count, (), most)
    left = count - sum(length - 1 for _, length, _ in found)
    assert left <= most
    assert bool(found) == (count > most)
    for (start, length, _), (following, _, _) in pairwise(found):
        assert start + length <= following


def test_blocks_of_a_network_fold_into_one_box():
    report = collect(plan_of(chain(6)))
    (group,) = report.groups
    assert (group.length, group.count) == (3, 6)
    assert group.label == "conv+relu, conv+relu, conv+add+relu"
    first = report.vertices[group.first]
    assert first.op == "conv"
    assert report.vertices[group.first - 1].op in ("max_pool", "reorder")


# --- the page -------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Elements and text of a page; every element is closed in order."""

    VOID = frozenset({"meta", "link", "input", "img", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.texts.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_is_whole_and_asks_for_nothing():
    page = to_html(plan_of(small()))
    found = read(page)
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    for tag, attrs in found.elements:
        assert tag not in ("iframe", "object", "embed", "base", "form")
        for key in ("src", "href"):
            address = attrs.get(key)
            assert address is None or address.startswith(("#", "data:")), (tag, address)
        assert not any(key.startswith("on") or key == "style" for key in attrs), (tag, attrs)
    ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    (policy,) = (
        attrs["content"] for _, attrs in found.elements if attrs.get("http-equiv") is not None
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_page_holds_the_data_and_one_picture_a_format():
    plan = plan_of(small())
    report = collect(plan)
    found = read(render(report))
    data, script = found.scripts
    assert json.loads(data) == json.loads(to_json(report))
    assert "pictures" not in json.loads(data)
    assert "use strict" in script
    pictures = [attrs for tag, attrs in found.elements if tag == "img"]
    used = [use.name for use in report.formats if use.tensors]
    assert len(pictures) == len(used)
    for name, attrs in zip(used, pictures, strict=True):
        assert f"format {name}," in (attrs["alt"] or "")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_and_nothing_else(name: str):
    names = tuple(f"{index}{name}" for index in range(5))
    page = to_html(plan_of(small(names)))
    page.encode("utf-8")
    found, harmless = read(page), read(to_html(plan_of(small())))
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in harmless.elements]
    data, script = found.scripts
    assert script == harmless.scripts[1]
    assert not re.search("[<>&\u2028\u2029]", data)
    shown = re.sub("[\x00\x1b\ud800]", "\ufffd", names[0])
    assert json.loads(data)["name"] == shown
    assert shown in "".join(found.texts)


def test_an_empty_graph_has_a_page():
    b = GraphBuilder("nothing")
    x = b.input("x", (2, 3))
    report = collect(plan_of(b.build([x])))
    assert [vertex.kind for vertex in report.vertices] == ["input", "output"]
    read(render(report))


def test_a_plan_draws_itself_alone_and_in_a_notebook():
    plan = plan_of(small())
    page = plan.to_html()
    assert page == to_html(plan)
    frame = plan._repr_html_()
    (tag, attrs), *others = read(frame).elements
    assert (tag, others) == ("iframe", [])
    assert attrs["srcdoc"] == page
    assert attrs["sandbox"] == "allow-scripts"
    assert html.unescape(frame).count("<!DOCTYPE html>") == 1


def test_the_pictures_of_the_docs_are_shown_and_small():
    docs = Path(__file__).parents[2] / "docs"
    shown = re.findall(r"\]\((pictures/\S+\.png)\)", (docs / "report.md").read_text("utf-8"))
    assert sorted(docs / name for name in shown) == sorted((docs / "pictures").glob("*.png"))
    assert all((docs / name).stat().st_size < 200_000 for name in shown)
