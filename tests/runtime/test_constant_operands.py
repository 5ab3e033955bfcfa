"""Any operand may be a constant, such as a frozen parameter or a folded value."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

import numpy as np
import pytest

import stridewise as sw
from stridewise.graph import Constant, Graph
from stridewise.program import KernelStep
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.simulation.reference import run_reference
from stridewise.targets.kernels import HOST

from .graphs import CASES, KINDS, error, forced_plan, inputs_of

GRAPHS = [name for name, make in CASES.items() if len(make().inputs) > 1]


def frozen(graph: Graph, name: str, array: np.ndarray) -> Graph:
    """Return a graph with an input as a constant."""
    constants = MappingProxyType({**graph.constants, name: Constant(array)})
    inputs = tuple(other for other in graph.inputs if other != name)
    return dataclasses.replace(graph, inputs=inputs, constants=constants)


@pytest.mark.parametrize("case", GRAPHS)
def test_inputs_may_be_constants(case):
    graph = CASES[case]()
    feeds = inputs_of(graph)
    expected = run_reference(graph, feeds)
    for name in graph.inputs:
        fixed = frozen(graph, name, feeds[name])
        given = {other: array for other, array in feeds.items() if other != name}
        for kind in KINDS:
            found = load(lower_plan(forced_plan(fixed, kind))).run(given)
            for output, wanted in expected.items():
                assert error(found[output], wanted) <= 1e-5, (name, kind, output)


def hosted(graph: Graph) -> list[str]:
    """Return the nodes that run in NumPy."""
    steps = sw.compile(graph, tune="model", threads=2).program.steps
    return [s.node for s in steps if isinstance(s, KernelStep) and s.spec.kind == HOST]


@pytest.mark.parametrize("case", [name for name in GRAPHS if "places" not in name])
def test_constants_need_no_numpy(case):
    # Positions of maxima are never constant: a kernel of the same graph makes them.
    graph = CASES[case]()
    feeds, expected = inputs_of(graph), hosted(graph)
    for name in graph.inputs:
        assert hosted(frozen(graph, name, feeds[name])) == expected, name


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("batches", [((), ()), ((1,), (3,)), ((3,), ()), ((2, 1), (2, 3))])
def test_left_operands_of_products_are_packed(trans_a, trans_b, batches):
    rng = np.random.default_rng(0)
    a, x = (rng.standard_normal((*batch, 7, 7)).astype(np.float32) for batch in batches)
    b = sw.GraphBuilder("product")
    attrs = {"trans_a": trans_a, "trans_b": trans_b}
    product = b.op("matmul", [b.constant(a), b.input("x", x.shape)], attrs)
    graph = b.build([b.op("relu", [product])])
    assert hosted(graph) == []
    (wanted,) = run_reference(graph, {"x": x}).values()
    assert error(sw.compile(graph, tune="model")(x), wanted) <= 1e-5


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
def test_dropout_with_a_constant_counter(data_format):
    b = sw.GraphBuilder("dropout", data_format=data_format)
    x = b.relu(b.conv2d(b.input("x", (2, 5, 5, 5)), 5, 3))
    counter = sw.ops.dropout.counter(3, 5)
    graph = b.build([b.op("dropout", [x, b.constant(counter)], {"share": 0.5})])
    feeds = inputs_of(graph)
    (wanted,) = run_reference(graph, feeds).values()
    assert error(sw.compile(graph, tune="model").run(feeds)[graph.outputs[0]], wanted) <= 1e-5
