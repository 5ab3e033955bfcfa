"""What accepting other formats would save: the figures are those of plans that accept them."""

from __future__ import annotations

import pytest

from stridewise.graph import Graph
from stridewise.planner import Saving, derive
from stridewise.planner.problem.io_formats import Wanted, boundary
from stridewise.planning import Plan, make_plan

from .plans import MACHINE, TARGET, Oracle, conv, kind_of, net


def graph() -> Graph:
    b, x = net(1, 32, 6, 6)
    return b.build([conv(b, conv(b, x))])


def planned(inputs: Wanted | None = None, outputs: Wanted | None = None) -> Plan:
    """Plan two convolutions that are cheap in channels-last; each reorder costs 10."""

    def price(spec: object) -> float:
        if getattr(spec, "kind", "") == "reorder":
            return 10.0
        return 1.0 if kind_of(spec) == "channels-last" else 100.0  # type: ignore[arg-type]

    derived = derive(graph())
    edge = boundary(derived.graph, inputs, outputs)
    return make_plan(derived, TARGET, MACHINE, Oracle(price), edge=edge)


def test_each_side_saves_its_reorder() -> None:
    plan = planned()
    assert plan.cost_ns == 22
    found = {(s.side, s.tensor, str(s.format)): s.saved_ns for s in plan.savings()}
    assert found == {("input", "x", "NHWC"): 10.0, ("output", plan.graph.outputs[0], "NHWC"): 10.0}


def test_what_is_promised_is_what_accepting_it_saves() -> None:
    plan = planned()
    for saving in plan.savings():
        formats: dict[str, list[object]] = {saving.tensor: ["NCHW", saving.format]}
        wider = planned(formats) if saving.side == "input" else planned(None, formats)
        assert plan.cost_ns - wider.cost_ns == saving.saved_ns


def test_accepted_formats_save_nothing_more() -> None:
    name = graph().outputs[0]
    plan = planned({"x": ["NCHW", "NHWC"]}, {name: ["NHWC"]})
    assert plan.cost_ns == 2
    assert str(plan.input_formats["x"]) == str(plan.output_formats[name]) == "NHWC"
    assert plan.savings() == ()


def test_the_plan_says_it() -> None:
    text = planned().explain()
    assert "giving 'x' as NHWC would save 10.0 ns (see input_formats)\n" in text
    assert " as NHWC would save 10.0 ns (see output_formats)\n" in text


@pytest.mark.parametrize(("side", "verb"), [("input", "giving"), ("output", "taking")])
def test_a_saving_reads_like_a_sentence(side: str, verb: str) -> None:
    (first, *_) = planned().savings()
    saving = Saving("t", side, first.format, 1_250_000.0)  # type: ignore[arg-type]
    assert str(saving) == f"{verb} 't' as NHWC would save 1.250 ms"
