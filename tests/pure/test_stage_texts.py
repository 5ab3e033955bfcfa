"""The texts of all stages, from graph to program, by golden files: equal on every CPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.graph import Graph
from stridewise.planning import Plan
from stridewise.program import KernelStep, Program
from stridewise.runtime.lowering.lower import lower
from stridewise.targets.kernels import KernelSpec

from .plans import cheap, conv, net, planned, random_costs, residual


class Facts:
    """Made-up facts about implementations, which lowering asks for."""

    def scratch(self, spec: KernelSpec, implementation: str) -> int:
        del implementation
        return 256 if spec.kind == "convolution" else 0

    def layout(self, spec: KernelSpec, implementation: str, role: str) -> str:
        return f"{spec.memory(role)} by {implementation}"


def program(plan: Plan) -> Program:
    return lower(plan, Facts())


def reordered() -> Graph:
    """Return a graph whose blocked convolutions surround an operator without blocked kernels."""
    b, x = net(1, 16, 4, 4)
    y = b.op("transpose", [conv(b, x, 16)], {"perm": (0, 1, 3, 2)})
    y = b.op("pad", [conv(b, y, 16)], {"pads": (0, 0, 1, 0, 0, 0, 1, 0), "value": 2.0})
    return b.build([y])


def named() -> Graph:
    """Return a graph whose names must be quoted."""
    b, x = net(2, 4)
    y = b.op("relu", [x], name="first\nnode", output='a "b"')
    return b.build([b.op("hardmax", [y], {"axis": 1}, output="\u2028"), x])


GRAPHS: dict[str, tuple[Callable[[], Graph], str]] = {
    "residual": (residual, "blocked"),
    "reordered": (reordered, "blocked"),
    "named": (named, "plain"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_texts_of_all_stages(name: str, golden: Callable[[str, str], None]) -> None:
    make, kind = GRAPHS[name]
    plan = planned(make(), cheap(kind))
    stages = {
        "graph": str(make()),
        "simplified": str(plan.graph),
        "plan": plan.to_text(),
        "program": program(plan).text(),
    }
    golden(f"stages_{name}", "\n".join(f"--- {key}\n{text}" for key, text in stages.items()))


@given(st.integers(0, 2**31), st.sampled_from(sorted(GRAPHS)))
def test_texts_say_all_that_was_decided(seed: int, name: str) -> None:
    plan = planned(GRAPHS[name][0](), random_costs(seed))
    lowered = program(plan)
    text = lowered.text()
    assert text == program(planned(GRAPHS[name][0](), random_costs(seed))).text()
    starts = re.findall(r"^(\w+) ", text, flags=re.MULTILINE)
    assert starts.count("step") == len(lowered.steps)
    assert starts.count("constant") == len(lowered.constants)
    assert starts.count("block") == len(lowered.blocks)
    for step in lowered.steps:
        if isinstance(step, KernelStep):
            for binding in step.bindings:
                assert f"\n  {binding.role}: {binding.ref}" in text
    listed = re.findall(r"^(\w+) ", plan.to_text(), flags=re.MULTILINE)
    assert listed.count("node") == len(plan.decisions)
    assert listed.count("reorder") == len(plan.reorders)
    assert {c for c in text + plan.to_text() if not c.isprintable()} == {"\n"}


def test_the_examples_of_the_page_are_parts_of_a_golden_file() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs/stages/texts.md").read_text("utf-8")
    shown = (root / "tests/golden/stages_residual.txt").read_text("utf-8").splitlines()
    examples = re.findall(r"^```\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    for line in "".join(examples).splitlines():
        begin, _, end = line.partition("...")
        assert any(found.startswith(begin) and found.endswith(end) for found in shown), line
