"""Which kernels are offered for matrix products, by the number of rows and the instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from stridewise.ops import GraphBuilder
from stridewise.planner import derive
from stridewise.planning import make_plan
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import onednn_cpu

from .plans import Oracle


@pytest.mark.parametrize("isa", ["AVX2", "AVX512_CORE"])
@pytest.mark.parametrize(("rows", "leaves"), [(197, True), (257, True), (196, False), (37, False)])
def test_inner_products_have_rows_in_whole_blocks_with_avx512(
    rows: int, leaves: bool, isa: str
) -> None:
    b = GraphBuilder()
    weights = b.constant(np.ones((24, 40), np.float32))
    graph = b.build([b.op("matmul", [b.input("x", (1, rows, 24)), weights], name="product")])
    machine = Machine("some CPU", isa, 2, "oneDNN 0")
    plan = make_plan(derive(graph), onednn_cpu(machine), machine, Oracle(lambda _: 1.0))
    decision = next(found for found in plan.decisions if found.node == "product")
    options = [found.option for found in (decision.chosen, *decision.rejected)]
    kinds = {call.spec.kind for option in options for call in option.calls}
    is_left_out = leaves and isa == "AVX512_CORE"
    assert kinds == {"matmul", "conv1x1"} | (set() if is_left_out else {"inner_product"})
