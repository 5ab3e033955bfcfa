"""Graphs for training: what the builder declares, and what a step updates."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import stridewise as sw
from stridewise.graph.verify import verify
from stridewise.ops import infer
from stridewise.report.loss_curve import loss_curve
from stridewise.runtime.simulation.reference import run_reference
from stridewise.training import evaluation_graph, loss_of, step_graph, trainable

F32 = np.float32


def network() -> sw.Graph:
    b = sw.GraphBuilder("net", training=True)
    y = b.batch_norm(b.input("x", (4, 3, 5, 5)), momentum=0.25, name="norm")
    return b.build([b.dense(b.flatten(b.global_avg_pool(y)), 2, name="dense")])


def test_layers_have_parameters_and_states_in_training_alone():
    found = network()
    assert set(found.parameters) == {"norm.scale", "norm.shift", "dense.weights", "dense.bias"}
    assert set(found.states) == set(found.updates) == {"norm.mean", "norm.variance"}
    b = sw.GraphBuilder("net")
    y = b.batch_norm(b.input("x", (4, 3, 5, 5)))
    plain = b.build([b.dense(b.flatten(b.global_avg_pool(y)), 2)])
    assert not plain.parameters
    assert len(trainable(plain).parameters) == 4
    assert trainable(found) is found


def test_a_step_updates_parameters_moments_and_running_statistics():
    graph = network()
    step = step_graph(
        graph, tuple(graph.parameters), loss_of("mean_squared_error"), sw.AdamW(), accumulate=2
    )
    verify(step.graph, infer)
    assert set(step.graph.updates) == {*graph.parameters, *graph.states, *step.moments}
    assert len(step.moments) == 3 * len(graph.parameters)
    assert {*step.scalars} == {"keep", "rate", "root"}


def test_names_that_a_graph_has_already_are_left_alone():
    b = sw.GraphBuilder("taken", training=True)
    x, y = b.input("target", (2, 3)), b.input("loss", (2, 3))
    graph = b.build([b.dense(b.add(x, y), 2, name="optimizer.rate")])
    step = step_graph(graph, tuple(graph.parameters), loss_of("mean_squared_error"), sw.SGD(0.1))
    assert step.target not in graph.inputs
    assert len(step.graph.inputs) == 4


@given(st.integers(1, 4), st.integers(1, 4), st.floats(0, 1), st.integers(0, 9))
def test_running_statistics_follow_their_definition(images, pixels, momentum, seed):
    rng = np.random.default_rng(seed)
    b = sw.GraphBuilder("norm", training=True)
    shape = (images, 2, pixels)
    start = rng.uniform(0.5, 2, (2, 2)).astype(F32)
    y = b.batch_norm(b.input("x", shape), momentum=momentum, mean=start[0], variance=start[1])
    found = b.build([y])
    x = rng.normal(size=shape).astype(F32)
    new = dict(zip(found.updates, found.updates.values(), strict=True))
    seen = sw.GraphBuilder.of(found).build(list(new.values()))
    mean, variance = run_reference(seen, {"x": x}).values()
    count = images * pixels
    spread = x.var((0, 2)) * count / max(count - 1, 1)
    for array, old, batch in ((mean, start[0], x.mean((0, 2))), (variance, start[1], spread)):
        wanted = (1 - momentum) * old + momentum * batch
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6)


def test_evaluation_keeps_a_norm_whose_statistics_are_read():
    b = sw.GraphBuilder("read", training=True)
    y = b.batch_norm(b.input("x", (4, 3, 5, 5)), name="norm")
    graph = b.build([y])
    (norm,) = (node for node in graph.nodes if node.op == "batch_norm")
    reads = sw.GraphBuilder.of(graph).build([y, norm.outputs[1]])
    assert {node.op for node in evaluation_graph(graph, {}).nodes} == {"scale_shift"}
    assert {node.op for node in evaluation_graph(reads, {}).nodes} == {"batch_norm"}


def test_the_curve_of_one_loss():
    assert 'points="40.0,40.0"' in loss_curve([3.0])
