"""Sharing of bytes: what is done in place, what is copied, and that both are right."""

from __future__ import annotations

import numpy as np
import pytest

from stridewise.graph import Graph
from stridewise.program import CopyStep, KernelStep
from stridewise.runtime.execution.executor import CompiledModel
from stridewise.runtime.execution.loading import load, lower_plan
from stridewise.runtime.simulation.reference import run_reference

from .graphs import KINDS, Net, error, forced_plan, inputs_of


def run(graph: Graph, kind: str, *, simplified: bool = True) -> CompiledModel:
    """Compile for one kind of format and compare with the reference, several times over."""
    model = load(lower_plan(forced_plan(graph, kind, simplified=simplified)))
    for seed in range(2):
        feeds = inputs_of(graph, seed)
        expected = run_reference(graph, feeds)
        found = model.run(feeds)
        for name, wanted in expected.items():
            assert error(found[name], wanted) <= 1e-5, name
    traced = model.trace(feeds, lambda *_: None)
    for name, wanted in found.items():
        np.testing.assert_array_equal(traced[name], wanted)
    return model


def copies(model: CompiledModel) -> list[str]:
    return [step.node for step in model.program.steps if isinstance(step, CopyStep)]


def sums(model: CompiledModel) -> int:
    """Return how many kernels add to what their destination holds."""
    steps = [step for step in model.program.steps if isinstance(step, KernelStep)]
    return sum(post.kind == "sum" for step in steps for post in step.spec.post_ops)


every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_a_sum_takes_over_an_operand_that_has_no_other_reader(kind):
    b = Net(2, 17, 6, 6)
    shortcut, y = b.conv(b.x, 17, name="shortcut"), b.conv(b.x, 17, 3)
    y = b.op("add", [b.conv(y, 17, 3), shortcut])
    model = run(b.build([b.conv(y, 17)]), kind)
    assert sums(model) == 1
    assert copies(model) == []


@every_kind
def test_a_sum_copies_an_operand_that_is_needed_later(kind):
    b = Net(2, 17, 6, 6)
    shortcut = b.conv(b.x, 17)
    y = b.op("add", [b.conv(b.conv(b.x, 17, 3), 17, 3), shortcut])
    model = run(b.build([b.conv(b.op("concat", [b.conv(y, 17), shortcut], {"axis": 1}), 5)]), kind)
    assert len([c for c in copies(model) if "operand" in c]) == sums(model)
    if kind == "plain":
        assert sums(model) == 1


@every_kind
def test_a_sum_copies_an_operand_that_the_same_kernel_reads(kind):
    b = Net(2, 17, 6, 6)
    y = b.conv(b.x, 17)
    model = run(b.build([b.conv(b.op("add", [b.conv(y, 17, 3), y]), 17)]), kind)
    assert len([c for c in copies(model) if "operand" in c]) == sums(model)


@every_kind
def test_an_operand_may_be_added_twice(kind):
    b = Net(2, 17, 6, 6)
    y = b.conv(b.x, 17)
    z = b.op("add", [b.op("add", [b.conv(b.x, 17, 3), y]), y])
    run(b.build([b.conv(z, 17)]), kind)


@every_kind
def test_the_callers_inputs_are_never_taken_over(kind):
    b = Net(2, 16, 6, 6)
    y = b.op("add", [b.conv(b.x, 16, 3), b.x])
    model = run(b.build([y, b.op("relu", [b.x])]), kind)
    feeds = inputs_of(model.plan.graph)
    before = feeds["x"].copy()
    model.run(feeds)
    np.testing.assert_array_equal(feeds["x"], before)


@every_kind
def test_activations_of_dead_values_work_in_place_and_of_living_ones_do_not(kind):
    b = Net(2, 17, 6, 6)
    y = b.op("max_pool", [b.conv(b.x, 17)], {"kernel": (2, 2)})
    dead = b.op("tanh", [y], name="last")
    model = run(b.build([b.conv(dead, 17)]), kind)
    (step,) = (s for s in model.program.steps if s.node == "last")
    assert isinstance(step, KernelStep)
    assert len({binding.ref for binding in step.bindings}) == 1
    model = run(b.build([b.conv(dead, 17), b.conv(y, 17)]), kind)
    (step,) = (s for s in model.program.steps if s.node == "last")
    assert isinstance(step, KernelStep)
    assert len({binding.ref for binding in step.bindings}) == 2


@every_kind
def test_binary_operators_read_one_value_as_both_operands(kind):
    b = Net(2, 17, 6, 6)
    y = b.op("max_pool", [b.conv(b.x, 17)], {"kernel": (2, 2)})
    run(b.build([b.conv(b.op("mul", [y, y]), 17), b.op("add", [b.x, b.x])]), kind)


# --- outputs --------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("simplified", [True, False])
def test_outputs_may_be_inputs_other_names_and_constants(kind, simplified):
    b = Net(2, 16, 3, 3)
    y = b.conv(b.x, 16)
    named, again = b.op("identity", [y]), b.op("identity", [b.x])
    c = b.data(3, 2)
    run(b.build([y, named, again, b.x, c, b.op("relu", [y])]), kind, simplified=simplified)


@every_kind
def test_outputs_may_be_asked_for_twice(kind):
    b = Net(2, 16, 3, 3)
    y = b.op("relu", [b.conv(b.x, 16)])
    graph = b.build([y, y, b.x])
    model = run(graph, kind)
    feeds = inputs_of(graph)
    first, second, third = model(feeds["x"])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(third, feeds["x"])
    assert not np.shares_memory(first, second)
    assert not np.shares_memory(third, feeds["x"])


@every_kind
@pytest.mark.parametrize("axis", [0, 1])
def test_outputs_may_be_views_of_an_input(kind, axis):
    b = Net(4, 6)
    stops = (2, 6) if axis == 0 else (4, 3)
    cut = {"starts": (1, 0) if axis == 0 else (0, 1), "stops": stops, "steps": (1, 1)}
    part = b.op("slice", [b.x], cut)
    run(b.build([part, b.op("reshape", [b.x], {"shape": (24,)}), b.op("tanh", [part])]), kind)


@every_kind
def test_outputs_are_used_again_without_being_overwritten(kind):
    b = Net(2, 16, 4, 4)
    y = b.op("relu", [b.op("max_pool", [b.conv(b.x, 16)], {"kernel": (2, 2)})])
    z = b.op("tanh", [b.op("neg", [y])])
    run(b.build([y, z, b.op("add", [b.conv(z, 16), y])]), kind)


@every_kind
@pytest.mark.parametrize("op", ["relu", "identity"])
def test_outputs_may_be_computed_from_constants_alone(kind, op):
    b = Net(2, 3)
    graph = b.build([b.op(op, [b.data(2, 3)]), b.op("relu", [b.x])])
    run(graph, kind)


# --- concats --------------------------------------------------------------------------------------


def placed(model: CompiledModel) -> bool:
    """Return whether the concat of a model runs no kernel of its own."""
    return not any(
        isinstance(s, KernelStep) and s.spec.kind == "concat" for s in model.program.steps
    )


@every_kind
@pytest.mark.parametrize(
    "pieces",
    [
        "two",
        "twice",
        "input",
        "odd",
        "output",
        "shared",
        "in place",
        "view",
        "constant",
        "padded",
    ],
)
def test_concats_in_place_hold_every_piece(kind, pieces):
    b = Net(1, 16, 4, 4)
    y, z = b.conv(b.x, 16), b.conv(b.x, 32, 3)
    extra: list[str] = []
    parts = [y, z]
    if pieces == "twice":
        parts = [y, z, y]
    elif pieces == "input":
        parts = [b.x, y]
    elif pieces == "odd":
        parts = [z, b.conv(b.x, 17)]
    elif pieces == "output":
        extra = [y]
    elif pieces == "shared":
        other = b.op("concat", [z, y], {"axis": 1})
        extra = [b.conv(other, 3), b.conv(y, 2)]
    elif pieces == "in place":
        pool = {"kernel": (3, 3), "pads": (1,) * 4}
        parts = [b.op("tanh", [b.op("max_pool", [y], pool)]), z]
    elif pieces == "view":
        cut = {"starts": (0, 16, 0, 0), "stops": (1, 32, 4, 4), "steps": (1,) * 4}
        parts = [b.op("slice", [z], cut), y]
    elif pieces == "constant":
        parts = [y, b.data(1, 16, 4, 4)]
    elif pieces == "padded":
        parts = [b.op("pad", [y], {"pads": (0, 16, 0, 0, 0, 0, 0, 0)}), z]
    joined = b.op("concat", parts, {"axis": 1}, name="joined")
    model = run(b.build([b.conv(joined, 5), *extra]), kind)
    if pieces in ("two", "odd") and kind != "channels-last":
        assert placed(model)
        assert copies(model) == []


@every_kind
def test_concats_in_place_may_be_outputs(kind):
    b = Net(1, 16, 4, 4)
    parts = [b.conv(b.x, 16), b.conv(b.x, 16, 3)]
    model = run(b.build([b.op("concat", parts, {"axis": 1})]), kind)
    if kind == "plain":
        assert placed(model)
        assert model.memory.arena == 0 or copies(model) == []


@every_kind
@pytest.mark.parametrize("batch", [1, 2])
def test_nested_concats_keep_what_was_put_into_them(kind, batch):
    b = Net(batch, 16, 4, 4)
    y = b.conv(b.x, 16)
    for _ in range(4):
        y = b.op("concat", [y, b.conv(b.op("relu", [y]), 16, 3)], {"axis": 1})
    run(b.build([b.conv(y, 5)]), kind)


@every_kind
def test_concats_along_the_batch_are_in_place_in_every_format(kind):
    b = Net(2, 17, 3, 3)
    joined = b.op("concat", [b.conv(b.x, 17), b.conv(b.x, 17, 3)], {"axis": 0})
    assert placed(run(b.build([b.conv(joined, 5)]), kind))
