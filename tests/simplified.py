"""Simplification for the native target, which is what the package does by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stridewise import passes
from stridewise.graph import Graph
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.passes import Pass, Simplified
from stridewise.planner import Derived, derive
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.onednn.target import ABILITY

from .networks import F32, rng

__all__ = ["PASSES", "assert_same", "derived", "simplify"]

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


_LAST: dict[int, tuple[Graph, Derived]] = {}


def derived(graph: Graph) -> Derived:
    """Return the simplified graph with its origins; the last one is kept for further plans."""
    if id(graph) not in _LAST:
        _LAST.clear()
        _LAST[id(graph)] = graph, derive(simplify(graph, check=True).graph)
    return _LAST[id(graph)][1]
