"""Plans that store what they can in bfloat16, and a check of all that they store."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.simplified import plan_of

import stridewise as sw
from stridewise.graph import Graph
from stridewise.planning import Plan
from stridewise.program import Written
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.machine.machine import this_machine
from stridewise.targets.kernels import HOST, KernelSpec
from stridewise.targets.onednn.target import onednn_cpu
from stridewise.targets.target import Precision

from .graphs import ForcingOracle, inputs_of
from .test_execute import padding

F32 = np.float32


class HalfOracle(ForcingOracle):
    """Kernels on bfloat16 tensors of one storage kind are cheap, all others are dear."""

    def _cost(self, spec: KernelSpec) -> Any:
        found = super()._cost(spec)
        if spec.kind in (HOST, "reorder") or not isinstance(found, tuple):
            return found
        source = spec.memory("src") or spec.memory("src0")
        half = source is not None and source.dtype == "bf16"
        (cost,) = found
        return found if half else (type(cost)(cost.cost_ns + 1e6, "", "model"),)


def half_plan(graph: Graph, kind: str, dtype: Precision = "bfloat16") -> Plan:
    """Plan a graph so that as much as possible is stored in bfloat16, in one kind of format."""
    machine = this_machine(2)
    target = onednn_cpu(machine, "exact", dtype)
    return plan_of(graph, target, machine, HalfOracle(kind))


def check(graph: Graph, model: CompiledModel) -> None:
    """Check every stored tensor beside what its node makes of its operands, and all padding."""
    feeds = inputs_of(graph)
    found = sw.verify(model, inputs=feeds)
    wrong = [row for row in found.rows if row.verdict == "differs"]
    assert not wrong, "\n".join(map(str, wrong))

    def spare_lanes(written: Written, stored: np.ndarray[Any, Any]) -> None:
        assert not np.isnan(stored.astype(F32)).any(), f"{written.value} is not written everywhere"
        where = f"{written.value} in {written.desc.storage.format}"
        assert (stored[padding(written)] == 0).all(), f"spare lanes of {where}"

    plain = model.run(feeds)
    traced = model.trace(feeds, spare_lanes)
    for name, wanted in plain.items():
        assert wanted.dtype == graph.values[name].dtype.numpy
        np.testing.assert_array_equal(traced[name], wanted)
