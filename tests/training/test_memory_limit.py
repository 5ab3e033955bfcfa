"""Training steps within a limit of memory: same bits, exact bytes, refusals."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stridewise as sw
from stridewise.errors import MemoryLimitError, PlanError
from stridewise.graph import Graph
from stridewise.planner.recompute.repeat import repeated
from stridewise.report.training import find_training
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.training import loss_of, step_graph

F32 = np.float32
BATCH, CLASSES = 4, 5


def network() -> Graph:
    """Return a network with residual blocks, concats and views, whose activations are large."""
    b = sw.GraphBuilder("net", training=True)
    y = b.conv2d(b.input("x", (BATCH, 3, 32, 32)), 16, 3, padding=1)
    for _ in range(3):
        z = b.relu(b.batch_norm(b.conv2d(y, 16, 3, padding=1, bias=False)))
        y = b.op("add", [y, b.sigmoid(b.conv2d(z, 16, 1))])
    y = b.op("concat", [y, b.relu(b.batch_norm(y))], {"axis": 1})
    y = b.max_pool2d(b.relu(b.conv2d(y, 19, 3, padding=1)), 2)
    return b.build([b.dense(b.flatten(b.avg_pool2d(y, 4)), CLASSES)])


def trainer(**options: Any) -> sw.Trainer:
    rule = sw.SGD(lr=0.1, momentum=0.9)
    return sw.Trainer(network(), optimizer=rule, tune="model", threads=2, **options)


def batches(count: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [
        (rng.normal(size=(BATCH, 3, 32, 32)).astype(F32), rng.integers(0, CLASSES, BATCH))
        for _ in range(count)
    ]


@cache
def unlimited() -> tuple[sw.Trainer, list[float]]:
    found = trainer()
    return found, found.fit(batches(3))


def test_every_point_of_the_front_runs_with_the_same_bits():
    whole, losses = unlimited()
    points = whole.model.plan.front()
    assert points[-1].nbytes == whole.nbytes
    assert points[-1].repeats == 0
    assert points[0].nbytes < 0.6 * whole.nbytes
    for left, right in pairwise(points):
        assert left.nbytes < right.nbytes
        assert left.cost_ns > right.cost_ns
    for point in (points[0], points[len(points) // 2], points[-1]):
        found = trainer(memory_limit=point.nbytes)
        plan = found.model.plan
        assert (found.nbytes, plan.cost_ns) == (point.nbytes, point.cost_ns)
        assert len(plan.repeats) == point.repeats
        assert plan.lower_bound_ns <= plan.cost_ns
        assert found.fit(batches(3)) == losses
        for name, array in found.state_dict().items():
            np.testing.assert_array_equal(array, whole.state_dict()[name])


def test_three_fifths_of_the_memory_cost_little():
    whole, _ = unlimited()
    limit = int(0.6 * whole.nbytes)
    found = trainer(memory_limit=limit)
    assert found.nbytes <= limit
    assert found.model.plan.cost_ns <= 1.3 * whole.model.plan.cost_ns
    assert found.model.program.arena_nbytes == found.model.memory.arena
    assert "run again" in found.model.plan.notes[-1]


def test_impossible_limits_are_refused_with_the_least_that_is_possible():
    least = unlimited()[0].model.plan.front()[0].nbytes
    with pytest.raises(MemoryLimitError, match=f"memory_limit of {least} or more"):
        trainer(memory_limit=least - 1)
    assert trainer(memory_limit=least).nbytes == least


def test_plans_that_repeat_nodes_are_not_saved(tmp_path: Path):
    whole, _ = unlimited()
    found = trainer(memory_limit=whole.nbytes // 2)
    with pytest.raises(PlanError, match="give memory_limit again"):
        found.model.plan.save(tmp_path / "plan.json")
    whole.model.plan.save(tmp_path / "plan.json")
    again = trainer(memory_limit=whole.nbytes // 2, plan=tmp_path / "plan.json")
    assert again.model.plan.repeats == found.model.plan.repeats


def test_plans_of_graphs_that_no_run_changes_have_no_front():
    b = sw.GraphBuilder("net")
    graph = b.build([b.relu(b.conv2d(b.input("x", (1, 3, 8, 8)), 4, 3))])
    assert sw.plan(graph, tune="model").front() == ()


@cache
def step_plan() -> sw.Plan:
    graph = network()
    names = [name for name in graph.parameters if name not in graph.updates]
    loss = loss_of("softmax_cross_entropy")
    return sw.plan(step_graph(graph, names, loss, sw.SGD(0.1)).graph, tune="model", threads=2)


def after_a_step(plan: sw.Plan) -> dict[str, Any]:
    """Return the loss, parameters and states after a step."""
    ((x, labels),) = batches(1)
    arrays = {
        "x": x,
        "target": np.eye(CLASSES, dtype=F32)[labels],
        "optimizer.rate": np.array([0.1], F32),
    }
    model = load(lower_plan(plan))
    return {**model.run(arrays), **model.states, **model.parameters}


@given(st.data())
@settings(max_examples=10)
def test_any_nodes_may_run_again_anywhere(data: st.DataObject):
    plan = step_plan()
    nodes = plan.graph.nodes
    split = data.draw(st.integers(0, len(nodes)))
    names = [node.name for node in nodes[:split]]
    again = data.draw(st.sets(st.sampled_from(names))) if names else set[str]()
    changed = repeated(plan, split, again)
    assert len(changed.graph.nodes) == len(nodes) + len(changed.repeats)
    assert set(changed.repeats.values()) <= again
    wanted = after_a_step(plan)
    for name, array in after_a_step(changed).items():
        np.testing.assert_array_equal(array, wanted[name], err_msg=name)


def test_the_page_has_phases_and_points_and_losses():
    whole, losses = unlimited()
    found = trainer(memory_limit=int(0.6 * whole.nbytes))
    plan = found.model.plan
    training = find_training(plan, None, found.nbytes, losses)
    assert training is not None
    forward, again, backward, update = training.total.nodes
    assert (forward + again + backward + update, again) == (
        len(plan.graph.nodes),
        len(plan.repeats),
    )
    assert update >= len(found.parameters)
    assert backward > forward
    steps = sum(training.total.times_ns) + sum(move.cost_ns for move in plan.reorders)
    assert steps == pytest.approx(plan.cost_ns)
    assert training.points == whole.model.plan.front()
    assert training.front_picture.count("<circle") >= len(training.points)
    assert training.loss_picture.count("<polyline") == 1
    page = found.to_html()
    assert "Time against memory" in page
    assert "Losses" not in page
    b = sw.GraphBuilder("net")
    plain = sw.plan(b.build([b.relu(b.input("x", (2, 3)))]), tune="model")
    assert find_training(plain, None, None, ()) is None


def test_uniform_plans_of_predicted_kernels_run(tmp_path: Path):
    rule = sw.SGD(lr=0.1)
    options: dict[str, Any] = {"threads": 2, "cache_dir": tmp_path, "optimizer": rule}
    found = sw.Trainer(network(), **options)
    ((x, labels),) = batches(1)
    loss = found.step(x, labels)
    for kind in ("plain", "channels-last", "blocked"):
        uniform = sw.Trainer(network(), plan=found.model.plan.uniform(kind), **options)
        np.testing.assert_allclose(uniform.step(x, labels), loss, rtol=1e-4)
