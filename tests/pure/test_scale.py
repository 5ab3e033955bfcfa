"""Large problems: proved optimal as small ones are, and nothing lost by working things out once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tests.networks import F32, Net, networks
from tests.simplified import simplify

from stridewise.graph import Graph
from stridewise.planner import derive
from stridewise.planner.problem import candidates, context
from stridewise.planner.solver import eliminate
from stridewise.planner.solver.integer import minimize_tables
from stridewise.planner.solver.problem import Choice, Problem
from stridewise.planner.solver.solve import solve
from stridewise.planning import make_plan, make_plans
from stridewise.targets.cost import KernelCost, Roofline
from stridewise.targets.kernels import KernelSpec
from stridewise.targets.machine import Machine
from stridewise.targets.onednn.target import onednn_cpu

FORMATS = ("p", "q", "r")
MACHINE = Machine("some CPU", "AVX512_CORE", 2, "oneDNN 0")
TARGET = onednn_cpu(MACHINE)
ORACLE = Roofline(2e11, 4e10, TARGET.efficiency)


class Random:
    """Costs at random, the same for the same kernel."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def costs(self, specs: Sequence[KernelSpec], progress: object = None) -> dict:
        del progress
        return {spec: (KernelCost(self.price(spec), "jit", "model"),) for spec in specs}

    def price(self, spec: KernelSpec) -> float:
        return float(random.Random(f"{self.seed} {spec}").randint(1, 20))


def layered(layers: int, reads: Sequence[int], seed: int = 0) -> Problem:
    """Return layers that each read some before them, all in one format; costs are random.

    Args:
        layers: how many there are.
        reads: how far back each reads; further back than the first is the input.
        seed: of the costs.
    """
    draw = random.Random(seed)
    tensors, nodes = ["x"], dict[str, tuple[Choice, ...]]()
    for number in range(layers):
        read = dict.fromkeys(tensors[max(0, len(tensors) - back)] for back in reads)
        nodes[f"n{number}"] = tuple(
            Choice(
                float(draw.randint(1, 20)),
                frozenset((tensor, fmt) for tensor in read),
                frozenset([(f"t{number}", fmt)]),
            )
            for fmt in FORMATS
        )
        tensors.append(f"t{number}")
    pairs = [(t, f, g) for t in tensors for f in FORMATS for g in FORMATS if f != g]
    reorders = {key: float(draw.randint(1, 9)) for key in pairs}
    return Problem(nodes, reorders, {"x": frozenset("pq")}, {tensors[-1]: frozenset("p")})


def shortest_path(problem: Problem) -> float:
    """Return the least cost of a chain, layer by layer, because each tensor has one reader."""
    layers = list(problem.nodes.values())
    tensors = ["x", *(f"t{number}" for number in range(len(layers)))]
    best = dict.fromkeys(problem.given["x"], 0.0)

    def arrive(tensor: str, fmt: str) -> float:
        return min(
            cost + (problem.reorders[tensor, source, fmt] if source != fmt else 0.0)
            for source, cost in best.items()
        )

    for tensor, choices in zip(tensors, layers, strict=False):
        best = {
            fmt: choice.cost + arrive(tensor, fmt)
            for fmt, choice in zip(FORMATS, choices, strict=True)
        }
    return min(arrive(tensors[-1], fmt) for fmt in problem.demanded[tensors[-1]])


def test_a_chain_of_2000_nodes_is_solved_exactly():
    problem = layered(2000, [1])
    found = solve(problem)
    assert found.cost == pytest.approx(shortest_path(problem))
    assert found.gap == 0
    assert found == solve(problem)


@pytest.mark.parametrize("reads", [[1, 2], [1, 3], [1, 2, 3]])
def test_2000_nodes_that_read_several_before_them_are_solved_exactly(reads):
    found = solve(layered(2000, reads))
    assert found.gap == 0
    # The integer program of a part of it agrees.
    part = layered(40, reads)
    assert solve(part).cost == pytest.approx(solve(part, method="milp").cost)


def dense(blocks: int, layers: int) -> Graph:
    """Return blocks in which each layer reads all before it, as in DenseNet."""
    b = Net("dense")
    y = b.input("x", (1, 16, 8, 8))
    for _ in range(blocks):
        pieces = [y]
        for _ in range(layers):
            y = b.op("concat", pieces, {"axis": 1}) if len(pieces) > 1 else y
            pieces.append(b.conv(b.op("relu", [b.conv(y, 32)]), 16, 3, pads=(1, 1, 1, 1)))
        y = b.conv(b.op("concat", pieces, {"axis": 1}), 32)
    return b.build([y])


def test_dense_blocks_of_2000_nodes_are_planned_exactly():
    graph = dense(40, 12)
    assert len(graph.nodes) == 1960
    plans = make_plans(derive(graph), TARGET, MACHINE, ORACLE)
    assert plans[0].gap == 0
    assert all(plans[0].cost_ns <= plan.cost_ns for plan in plans)


def test_where_tables_grow_too_large_an_integer_program_helps(monkeypatch):
    asked: list[int] = []

    def watched(sizes: Sequence[int], *rest: Any) -> Any:
        asked.append(len(sizes))
        return minimize_tables(sizes, *rest)

    monkeypatch.setattr(eliminate, "minimize_tables", watched)
    graph = dense(1, 20)
    plan = make_plan(derive(graph), TARGET, MACHINE, Random(4))
    assert plan.gap <= 1e-9
    # It is asked once, and only about what elimination left over.
    assert len(asked) == 1
    assert asked[0] < len(graph.nodes)


@settings(max_examples=40)
@given(networks())
def test_what_is_worked_out_once_is_the_same_as_for_each_node(graph):
    derived = derive(simplify(graph).graph).graph
    shared = candidates.enumerate_candidates(derived, TARGET, Random(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context.NodeContext, "signature", lambda seen: seen.node.name)
        patch.setattr(context.Storages, "group", lambda _storages, name: name)
        alone = candidates.enumerate_candidates(derived, TARGET, Random(3))
    assert shared.nodes == alone.nodes
    assert shared.refusals == alone.refusals
    assert shared.reorders == alone.reorders


def test_nodes_that_are_alike_share_their_candidates_and_keep_their_own_refusals():
    b = Net("twins")
    x = b.input("x", (1, 17, 6, 6))
    attrs = {"starts": (0, 3, 0, 0), "stops": (1, 15, 6, 6), "steps": (1, 1, 1, 1)}
    halves = [b.op("slice", [b.conv(x, 17)], attrs, name=name) for name in ("left", "right")]
    graph = derive(b.build(halves)).graph
    found = candidates.enumerate_candidates(graph, TARGET, ORACLE)
    assert found.nodes["left"] is found.nodes["right"]
    reason = "the slice cuts a block of nChw16c"
    assert [r.subject for r in found.refusals if r.reason == reason] == ["left", "right"]


def test_a_copy_of_an_operand_that_is_needed_later_is_paid_for_by_that_node_alone():
    b = Net("sums")
    x = b.input("x", (1, 16, 6, 6))
    first = b.conv(x, 16)
    second = b.op("add", [b.conv(x, 16), first])
    third = b.op("add", [b.conv(second, 16), first])
    b.constant(np.zeros(1, F32))
    graph = simplify(b.build([third])).graph
    found = candidates.enumerate_candidates(derive(graph).graph, TARGET, ORACLE)
    sums = [node for node in graph.nodes if node.post_ops]
    costs = [
        next(c.cost_ns for c in found.nodes[node.name] if "sum in place" in c.algorithm)
        for node in sums
    ]
    # Eight bytes an element at ten bytes a nanosecond, for the first of two sums only.
    assert costs[0] - costs[1] == pytest.approx(8 * 16 * 36 / 10)
