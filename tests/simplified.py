"""Simplification for the native target, which is what the package does by itself."""

from __future__ import annotations

from collections.abc import Sequence

from stridewise import passes
from stridewise.graph import Graph
from stridewise.passes import Pass, Simplified
from stridewise.targets.onednn.target import ABILITY

__all__ = ["PASSES", "simplify"]

PASSES = passes.passes_for(ABILITY)


def simplify(graph: Graph, chosen: Sequence[Pass] = PASSES, *, check: bool = False) -> Simplified:
    return passes.simplify(graph, chosen, check=check)
