"""Small graphs, planned with made-up costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tests.simplified import simplify

from stridewise.graph import Graph, Refusal
from stridewise.ops import GraphBuilder
from stridewise.planner import derive
from stridewise.planning import Plan, make_plan
from stridewise.targets.cost import KernelCost
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import onednn_cpu

__all__ = [
    "F32", "KINDS", "MACHINE", "TARGET", "Oracle", "cheap", "conv", "kind_of", "net", "planned",
    "random_costs", "residual",
]  # fmt: skip

F32 = np.float32
MACHINE = Machine("some CPU", "AVX512_CORE", 2, "oneDNN 0")
TARGET = onednn_cpu(MACHINE)
KINDS = ("plain", "channels-last", "blocked")


def kind_of(spec: KernelSpec) -> str:
    """Return the storage kind of a kernel's destination."""
    memory = spec.memory("dst")
    tag = memory.tag if memory is not None else ""
    if any(letter.isdigit() for letter in tag):
        return "blocked"
    return "channels-last" if len(tag) > 2 and tag.endswith("b") else "plain"


class Oracle:
    """Costs by a function of the kernel; it keeps what it was asked."""

    def __init__(self, price: Callable[[KernelSpec], float | Refusal | tuple[KernelCost, ...]]):
        self.price = price
        self.asked: list[KernelSpec] = []

    def costs(
        self, specs: Sequence[KernelSpec], progress: Any = None
    ) -> Mapping[KernelSpec, tuple[KernelCost, ...] | Refusal]:
        assert progress is None or callable(progress)
        self.asked += specs
        found: dict[KernelSpec, tuple[KernelCost, ...] | Refusal] = {}
        for spec in specs:
            price = self.price(spec)
            if isinstance(price, float | int):
                price = (KernelCost(float(price), "jit", "model"),)
            found[spec] = price
        return found


def cheap(kind: str, reorder: float = 1.0) -> Oracle:
    """Make every kernel of one storage kind cheap."""

    def price(spec: KernelSpec) -> float:
        if spec.kind == "reorder":
            return reorder
        return 1.0 if kind_of(spec) == kind else 100.0

    return Oracle(price)


def random_costs(seed: int) -> Oracle:
    draw = np.random.default_rng(seed)
    prices: dict[KernelSpec, float] = {}
    return Oracle(lambda spec: prices.setdefault(spec, float(draw.integers(1, 20))))


def planned(graph: Graph, oracle: Any) -> Plan:
    return make_plan(derive(simplify(graph).graph), TARGET, MACHINE, oracle)


def net(*shape: int) -> tuple[GraphBuilder, str]:
    b = GraphBuilder("g")
    return b, b.input("x", shape or (1, 32, 6, 6))


def conv(b: GraphBuilder, x: str, outputs: int = 32, kernel: int = 3, **attrs: Any) -> str:
    w = b.constant(np.ones((outputs, b.type(x).shape[1], kernel, kernel), F32), "w")
    return b.op("conv", [x, w], {"pads": (kernel // 2,) * 4, **attrs})


def residual() -> Graph:
    """Return convolutions with a residual sum, a pooling and a classifier."""
    b, x = net(1, 3, 12, 12)
    y = b.op("relu", [conv(b, x)])
    y = b.op("relu", [b.op("add", [conv(b, b.op("relu", [conv(b, y)])), y])])
    y = b.op("max_pool", [y], {"kernel": (2, 2), "strides": (2, 2)})
    y = b.op("concat", [conv(b, y, 16), y], {"axis": 1})
    y = b.op("reduce_mean", [y], {"axes": (2, 3), "keepdims": 0})
    return b.build([b.op("matmul", [y, b.constant(np.ones((48, 10), F32))])])
