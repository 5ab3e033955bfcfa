"""Positions of greatest and least elements: the native kernel against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stridewise as sw
from stridewise.program import KernelStep
from stridewise.runtime.binding.library import load_core
from stridewise.runtime.simulation.reference import run_reference

from .net import Net

NUMBERS = np.array([-2, -1, -0.0, 0, 1, 2, np.inf, -np.inf, np.nan], np.float32)


def kinds(model: sw.CompiledModel) -> list[str]:
    return [step.spec.kind for step in model.program.steps if isinstance(step, KernelStep)]


@given(st.data())
def test_any_axis_with_ties_and_numbers_that_are_none(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3)))
    attrs = {key: data.draw(st.integers(0, 1)) for key in ("keepdims", "last")}
    axis, op = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.sampled_from(["max", "min"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = rng.choice(NUMBERS, shape, p=[*[0.18] * 5, *[0.025] * 4])
    b = sw.GraphBuilder("positions")
    y = b.op(f"arg_{op}", [b.input("x", shape)], {"axis": axis, **attrs})
    graph = b.build([y])
    model = sw.compile(graph, tune="model", threads=2)
    assert kinds(model) == ["positions"]
    found, expected = model.run({"x": x})[y], run_reference(graph, {"x": x})[y]
    assert found.dtype == expected.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("fmt", ["NCHW", "NHWC"])
def test_classes_of_pixels_in_any_format(fmt):
    b = Net(2, 19, 6, 7)
    y = b.op("arg_max", [b.named(b.x)], {"axis": 1, "keepdims": 0})
    graph = b.build([y])
    x = np.random.default_rng(0).standard_normal((2, 19, 6, 7)).astype(np.float32)
    model = sw.compile(graph, tune="model", threads=2, input_formats={"x": fmt})
    assert "host" not in kinds(model)
    given = x.transpose(0, 2, 3, 1).copy() if fmt == "NHWC" else x
    np.testing.assert_array_equal(model.run({"x": given})[y], run_reference(graph, {"x": x})[y])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"what": "arg_mean"}, "expected arg_max or arg_min"),
        ({"src": ((2, 3), "f32", "ab")}, "dense float32 of three axes"),
        ({"src": ((2, 3, 4), "f32", "acb")}, "dense float32 of three axes"),
        ({"src": ((2, 3, 4), "s32", "abc")}, "dense float32 of three axes"),
        ({"dst": ((2, 4, 1), "s32", "abc")}, "dense pairs of s32"),
        ({"dst": ((2, 5, 2), "s32", "abc")}, "dense pairs of s32"),
    ],
)
def test_the_core_refuses_other_tensors(changes, message):
    core = load_core()
    usual: dict[str, Any] = {
        "what": "arg_max",
        "src": ((2, 3, 4), "f32", "abc"),
        "dst": ((2, 4, 2), "s32", "abc"),
    }
    given = usual | changes
    src, dst = (core.MemoryDesc(*given[role]) for role in ("src", "dst"))
    with pytest.raises(ValueError, match=message):
        core.Positions(given["what"], False, src, dst, threads=1)
