"""Simplification for the native target, which is what the package does by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stridewise import passes
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes import Pass, Simplified
from stridewise.planner import Derived, derive
from stridewise.planner.problem.candidates import Offers
from stridewise.planning import Plan, make_plans
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.cost import KernelOracle
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import ABILITY
from stridewise.targets.target import Target

from .networks import F32, rng

__all__ = ["PASSES", "assert_same", "derived", "plan_of", "simplify"]

PASSES = passes.passes_for(ABILITY)


def assert_same(before: Graph, after: Graph, tolerance: float = 0.0) -> None:
    """Check that a rewritten graph is valid and computes the same of random inputs."""
    verify(after, infer)
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    draw = rng()
    feeds = {name: draw.normal(size=before.value(name).shape).astype(F32) for name in before.inputs}
    expected, found = run_reference(before, feeds), run_reference(after, feeds)
    for name in before.outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=tolerance, atol=tolerance)


def simplify(graph: Graph, chosen: Sequence[Pass] = PASSES, *, check: bool = False) -> Simplified:
    return passes.simplify(graph, chosen, check=check)


@dataclass
class _Last:
    """What was found for the last graph: tests plan a graph in one kind of format after another."""

    graph: Graph
    derived: Derived
    offers: list[Offers]


_LAST: list[_Last] = []


def _last(graph: Graph) -> _Last:
    if not _LAST or _LAST[0].graph is not graph:
        _LAST[:] = [_Last(graph, derive(simplify(graph, check=True).graph), [])]
    return _LAST[0]


def derived(graph: Graph) -> Derived:
    """Return the simplified graph with its origins."""
    return _last(graph).derived


def plan_of(graph: Graph, target: Target, machine: Machine, oracle: KernelOracle) -> Plan:
    """Return the cheapest plan of a graph that is simplified first."""
    last = _last(graph)
    if not any(known.target == target for known in last.offers):
        last.offers.append(Offers.of(last.derived.graph, target))
    offers = next(known for known in last.offers if known.target == target)
    return make_plans(last.derived, target, machine, oracle, offers=offers)[0]
