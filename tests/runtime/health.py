"""What ``stridewise.verify`` says about models that are right."""

from __future__ import annotations

from typing import Any

import numpy as np

import stridewise as sw
from stridewise.graph import Graph
from stridewise.runtime.execution.executor import CompiledModel

__all__ = ["check_health", "healthy"]


def healthy(model: CompiledModel, **options: Any) -> sw.Verification:
    found = sw.verify(model, **options)
    assert {row.verdict for row in found.rows} == {"ok"}, str(found)
    found.check()
    return found


def check_health(graph: Graph, model: CompiledModel) -> None:
    """Check that a model is healthy, with a row for each tensor that it writes."""
    found = healthy(model, seed=3)
    traced: list[str] = []
    feeds = {n: np.zeros(graph.value(n).shape, np.float32) for n in graph.inputs}
    model.trace(feeds, lambda written, _: traced.append(written.value))
    inner = [row.name for row in found.rows if row.node != "run"]
    assert sorted(inner) == sorted(traced)
    assert [row.name for row in found.rows if row.node == "run"] == list(
        dict.fromkeys(graph.outputs)
    )
